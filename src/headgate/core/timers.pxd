cimport cython

@cython.final
cdef class Timers:
    cdef public double due
    cdef public list heap
    cdef public long long ticket

    cpdef add(self, double when, object call)
    cpdef run(self, double now)

cimport cython

@cython.final
cdef class Alarm:
    cdef public object call

@cython.final
cdef class Timers:
    cdef public double due
    cdef public list heap
    cdef public long long ticket
    cdef public Py_ssize_t cancelled

    @cython.locals(alarm=Alarm)
    cpdef Alarm add(self, double when, object call)
    cpdef cancel(self, Alarm alarm)
    @cython.locals(alarm=Alarm)
    cpdef run(self, double now)

cimport cython

@cython.final
cdef class Histogram:
    cdef public unsigned long long[::1] counts
    cdef public unsigned long long count
    cdef public double total

    @cython.locals(index=cython.int)
    cpdef clear(self)
    cpdef add(self, double seconds, unsigned long long count)
    @cython.locals(wanted=double, seen=double, index=cython.int)
    cpdef double quantile(self, double fraction)

@cython.locals(micros=cython.ulonglong, octave=cython.int)
cpdef int bucket(double seconds)

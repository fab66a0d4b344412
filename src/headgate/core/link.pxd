cimport cython

@cython.final
cdef class Pool:
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t size
    cdef public Py_ssize_t messages
    cdef public list lanes
    cdef public long long last_key
    cdef public bint watched
    cdef public long long kept
    cdef public long long durable
    cdef public list uncommitted

    cpdef object least(self)

@cython.final
cdef class Link:
    cdef public str name
    cdef public double rate
    cdef public double burst
    cdef public double tokens
    cdef public double refilled
    cdef public list ready
    cdef public Py_ssize_t waiting
    cdef public bint scheduled

    cpdef enlist(self, object lane, int level)
    cpdef bint admits(self, double now)
    cpdef refill(self, double now)

cimport cython

@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Note:
    cdef public object flow
    cdef public bytes topic
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size
    cdef public double arrived
    cdef public unsigned int facets

@cython.final
cdef class Block:
    cdef public Py_ssize_t rows
    cdef public list columns
    cdef public double[::1] at
    cdef public double[::1] arrived
    cdef public double[::1] since
    cdef public unsigned int[::1] flow
    cdef public unsigned int[::1] topic
    cdef public unsigned int[::1] count
    cdef public unsigned long long[::1] size
    cdef public unsigned int[::1] facets
    cdef public list flows
    cdef public dict topics

@cython.final
cdef class Tape:
    cdef public object hand_over
    cdef public Block block
    cdef public long long number
    cdef public object free
    cdef public unsigned long long written
    cdef public unsigned long long lost
    cdef public long long every
    cdef public long long skip
    cdef public unsigned long long state

    @cython.locals(x=cython.ulonglong)
    cpdef bint passes(self)
    cpdef bint ready(self) except -1
    cpdef unsigned int introduce(self, object flow) except? 0xFFFFFFFF
    @cython.locals(block=Block, row=Py_ssize_t)
    cpdef put(self, unsigned int flow, bytes topic, Py_ssize_t count, Py_ssize_t size, double at, double arrived, double since, unsigned int facets)
    cpdef bint turn(self) except -1

cpdef unsigned int facets(int outcome, int reason, int rank, int qos, bint retained)

cimport cython
from headgate.core.outlet cimport Outlet

cdef size_t LENGTH
cdef size_t END
cdef size_t TIMES
cdef size_t AT
cdef size_t ARRIVED
cdef size_t SINCE
cdef size_t WHOLES
cdef size_t FLOW
cdef size_t TOPIC
cdef size_t COUNT
cdef size_t SIZE
cdef size_t FACETS
cdef size_t NEXT

@cython.final
cdef class Block:
    cdef public Py_ssize_t index
    cdef public Py_ssize_t rows
    cdef public Py_ssize_t hanging
    cdef public Py_ssize_t hollow
    cdef public list flows
    cdef public dict topics

@cython.final
cdef class Tape:
    cdef public object hand_over
    cdef public object reclaim
    cdef public object arena
    cdef public double[::1] times
    cdef public unsigned int[::1] wholes
    cdef public list blocks
    cdef public object free
    cdef public list closing
    cdef public Block block
    cdef public size_t begin
    cdef public size_t place
    cdef public size_t end
    cdef public long long number
    cdef public bytes topic
    cdef public unsigned int topic_number
    cdef public list outlets
    cdef public unsigned long long written
    cdef public unsigned long long lost
    cdef public Py_ssize_t deaf
    cdef public long long every
    cdef public long long skip
    cdef public unsigned long long state

    cpdef bint keeps(self) except -1
    @cython.locals(x=cython.ulonglong)
    cpdef draw(self)
    cpdef bint ready(self) except -1
    cpdef unsigned int introduce(self, object flow) except? 0xFFFFFFFF
    @cython.locals(topics=dict)
    cpdef unsigned int called(self, bytes topic) except? 0xFFFFFFFF
    @cython.locals(number=cython.uint, place=size_t, last=size_t)
    cpdef note(self, Outlet outlet, unsigned int flow, bytes topic, Py_ssize_t count, Py_ssize_t size, double arrived, unsigned int facets)
    @cython.locals(others=cython.ulonglong, length=cython.ulonglong)
    cpdef bint joins(self, size_t row, unsigned int flow, unsigned int topic, unsigned long long count, unsigned long long size, double arrived, unsigned int facets) except -1
    @cython.locals(place=size_t)
    cpdef fill(self, unsigned int flow, unsigned int topic, Py_ssize_t count, Py_ssize_t size, double at, double arrived, double since, unsigned int facets)
    @cython.locals(number=cython.uint, last=size_t)
    cpdef put(self, unsigned int flow, bytes topic, Py_ssize_t count, Py_ssize_t size, double at, double arrived, double since, unsigned int facets)
    @cython.locals(place=size_t, settled=Py_ssize_t, block=Block)
    cpdef settle(self, Outlet outlet, int outcome, double now)
    @cython.locals(block=Block)
    cpdef close_settled(self)
    @cython.locals(full=Block)
    cpdef bint turn(self) except -1
    @cython.locals(block=Block)
    cpdef finish(self)
    @cython.locals(outlet=Outlet)
    cpdef sweep(self)
    @cython.locals(place=size_t, block=Block)
    cpdef move(self, Outlet outlet)
    cpdef write_notes(self, Outlet outlet, int outcome, double now)

cpdef unsigned int facets(int outcome, int reason, int rank, int qos, bint retained)

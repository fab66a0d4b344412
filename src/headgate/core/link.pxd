cimport cython
from headgate.core.tape cimport Tape

@cython.final
cdef class Pool:
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t size
    cdef public Py_ssize_t messages
    cdef public Py_ssize_t unacknowledged
    cdef public Py_ssize_t retained
    cdef public Py_ssize_t standing
    cdef public Py_ssize_t arriving
    cdef public Py_ssize_t free
    cdef public list lanes
    cdef public long long last_key
    cdef public bint watched
    cdef public bint raise_grant
    cdef public bint hurry
    cdef public long long kept
    cdef public long long durable
    cdef public list uncommitted
    cdef public Tape tape
    cdef public list paced
    cdef public list resting
    cdef public double rested
    cdef public bint resuming
    cdef public double steps
    cdef public double stepped

    cpdef Py_ssize_t burden(self)
    cpdef bint full(self, Py_ssize_t size)
    cpdef bint may_step(self, double now)
    cpdef object least(self)

cdef class Contender:
    cdef public double start
    cdef public double ahead

@cython.final
cdef class Link:
    cdef public str name
    cdef public double rate
    cdef public double burst
    cdef public double tokens
    cdef public double refilled
    cdef public bint estimated
    cdef public dict members
    cdef public list ready
    cdef public list passed
    cdef public list furthest
    cdef public long long arrivals
    cdef public Py_ssize_t waiting
    cdef public Py_ssize_t queued
    cdef public bint scheduled
    cdef public int discipline
    cdef public list shares
    cdef public list credits
    cdef public list weights
    cdef public int turn
    cdef public double sent
    cdef public double reported

    @cython.locals(passed=double, start=double, key=double, queue=list)
    cpdef enlist(self, Contender lane, int level)
    @cython.locals(queue=list)
    cpdef relist(self, Contender lane, int level)
    @cython.locals(queue=list)
    cpdef object next_lane(self, int level)
    @cython.locals(cost=double, others=Py_ssize_t, queue=list)
    cpdef progress(self, Contender lane, int level, Py_ssize_t size)
    @cython.locals(earned=double, share=double, level=cython.int)
    cpdef refill(self, double now)
    @cython.locals(cost=double, left=double, least=double)
    cpdef charge(self, int level, Py_ssize_t size)
    @cython.locals(first=cython.int, best=cython.int, most=double, level=cython.int)
    cpdef int next_level(self)
    cpdef int first_level(self, int level)
    @cython.locals(steps=cython.int)
    cpdef int next_in_round(self)

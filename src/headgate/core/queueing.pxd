cimport cython
from headgate.core.accounting cimport Account, numbered
from headgate.core.histogram cimport Histogram
from headgate.core.link cimport Contender, Link, Pool
from headgate.core.message cimport Message, split
from headgate.core.session cimport Session
from headgate.core.tape cimport Tape, facets

cdef int CRITICAL, NORMAL, URGENT, CAPACITY, EXPIRED, MEMORY, ACKNOWLEDGED
cdef Py_ssize_t MESSAGE


# Cycles through a delivery are broken when its session ends, so the collector need not look.
@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Delivery:
    cdef public Queue flow
    cdef public Message message
    cdef public int qos
    cdef public bint retain
    cdef public bint released
    cdef public int packet_id
    cdef public long long sequence
    cdef public long long position
    cdef public double sent

@cython.final
cdef class Lane(Contender):
    cdef public Queue flow
    cdef public int level
    cdef public object items
    cdef public bint listed
    cdef public object replay
    cdef public bint resting

cdef class Queue(Account):
    cdef public str filter
    cdef public int priority
    cdef public Py_ssize_t capacity
    cdef public double lifetime
    cdef public list lanes
    cdef public Py_ssize_t backlog
    cdef public object replay

    @cython.locals(session=Session, count=Py_ssize_t, level=cython.int, pool=Pool, delivery=Delivery, part=Message)
    cpdef enqueue(self, Message message, int qos, bint retain, double now)
    @cython.locals(session=Session)
    cpdef bint has_room(self, Message message)
    @cython.locals(lane=Lane)
    cpdef bint may_number(self, int rank) except -1
    @cython.locals(session=Session, message=Message, lane=Lane, link=Link)
    cpdef wait(self, Delivery delivery)
    @cython.locals(session=Session, delivery=Delivery, message=Message)
    cpdef Delivery unwait(self, Lane lane)
    @cython.locals(session=Session)
    cpdef line_up(self, Lane lane)
    @cython.locals(session=Session)
    cpdef step_out(self, Lane lane)
    @cython.locals(lane=Lane)
    cpdef promote(self, int priority)
    cpdef int level(self, int rank)
    @cython.locals(before=cython.int, lane=Lane)
    cpdef bint follows(self, int rank)
    @cython.locals(rank=cython.int, lane=Lane)
    cpdef Lane last_lane(self)
    @cython.locals(levels=dict, lane=Lane)
    cpdef Lane worst_lane(self)
    @cython.locals(session=Session, message=Message)
    cpdef keep(self, Delivery delivery)
    @cython.locals(message=Message)
    cpdef forget(self, Delivery delivery)
    cpdef discard(self, Delivery delivery, int reason, double now)
    cpdef lose(self, Message message, int qos, int reason, double now)
    @cython.locals(tape=Tape, message=Message)
    cpdef record_acknowledged(self, Delivery delivery, double now)

cpdef bint make_room(Pool pool, Py_ssize_t size, int level, bint oldest, double now) except -1

@cython.locals(flow=Queue, first=Delivery, part=Message)
cpdef bint evict(Lane lane, int level, bint oldest, int reason, double now)

@cython.locals(message=Message, lifetime=double)
cpdef bint overdue(Delivery delivery, double now)

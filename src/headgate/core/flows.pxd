cimport cython
from headgate.core.histogram cimport Histogram
from headgate.core.link cimport Link, Pool
from headgate.core.message cimport Message, run, split, uint16, varint
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session
from headgate.core.tape cimport Note, Tape, facets


# Cycles through a delivery are broken when its session ends, so the collector need not look.
@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Delivery:
    cdef public Flow flow
    cdef public Message message
    cdef public int qos
    cdef public bint retain
    cdef public bint released
    cdef public int packet_id
    cdef public long long sequence
    cdef public long long position
    cdef public double sent

@cython.final
cdef class Lane:
    cdef public Flow flow
    cdef public int level
    cdef public object items
    cdef public bint listed
    cdef public object replay
    cdef public bint resting

@cython.final
cdef class Flow:
    cdef public Session session
    cdef public str filter
    cdef public bytes topic_filter
    cdef public str group
    cdef public int qos
    cdef public bint no_local
    cdef public bint retain_as_published
    cdef public int retain_handling
    cdef public unsigned int identifier
    cdef public bytes identifier_property
    cdef public object membership
    cdef public list claims
    cdef public int priority
    cdef public double drop_rate
    cdef public unsigned long long threshold
    cdef public unsigned long long salt
    cdef public Py_ssize_t capacity
    cdef public double lifetime
    cdef public object threshold_s
    cdef public double join
    cdef public double learned
    cdef public bint decided
    cdef public list lanes
    cdef public Py_ssize_t backlog
    cdef public object replay
    cdef public unsigned long long offered
    cdef public unsigned long long delivered
    cdef public unsigned long long sent_bytes
    cdef public list drops
    cdef public Histogram waited
    cdef public Histogram acknowledged
    cdef public object reported
    cdef public bint fast
    cdef public long long block
    cdef public unsigned int number

    @cython.locals(outlet=Outlet, link=Link)
    cpdef refresh(self)
    @cython.locals(outlet=Outlet)
    cpdef forward(self, bytes topic, bytes encoded, Py_ssize_t count, double now)
    @cython.locals(session=Session, outlet=Outlet, qos=cython.int)
    cpdef deliver(self, Message message, bint retain, double now)
    @cython.locals(session=Session, outlet=Outlet, qos=cython.int)
    cpdef int offer(self, Message message, double now) except -1
    cpdef int granted(self, Message message)
    @cython.locals(session=Session)
    cpdef bint has_room(self, Message message)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef launch(self, Message message, int qos, bint retain, Outlet outlet, double now)
    @cython.locals(first=cython.int, packet=bytes, link=Link)
    cpdef bint emit(self, Message message, int qos, int packet_id, bint retain, bint dup, Outlet outlet, double now)
    @cython.locals(extra=bytes, left=cython.longlong, alias=cython.int, packet=bytes)
    cpdef bytes dressed(self, Message message, int first, int packet_id, Outlet outlet, double now)
    @cython.locals(session=Session, count=Py_ssize_t, level=cython.int, pool=Pool, delivery=Delivery, part=Message)
    cpdef enqueue(self, Message message, int qos, bint retain, double now)
    @cython.locals(lane=Lane)
    cpdef bint may_number(self, int rank) except -1
    @cython.locals(session=Session, message=Message, lane=Lane, link=Link)
    cpdef wait(self, Delivery delivery)
    @cython.locals(session=Session, delivery=Delivery, message=Message)
    cpdef Delivery unwait(self, Lane lane)
    @cython.locals(session=Session, own=dict)
    cpdef line_up(self, Lane lane)
    @cython.locals(session=Session, own=dict)
    cpdef step_out(self, Lane lane)
    @cython.locals(lane=Lane)
    cpdef promote(self, int priority)
    cpdef int level(self, int rank)
    @cython.locals(before=cython.int, lane=Lane)
    cpdef bint follows(self, int rank)
    @cython.locals(rank=cython.int, lane=Lane)
    cpdef Lane last_lane(self)
    @cython.locals(levels=dict, own=dict, lane=Lane)
    cpdef Lane worst_lane(self)
    @cython.locals(session=Session, message=Message)
    cpdef keep(self, Delivery delivery)
    @cython.locals(message=Message)
    cpdef forget(self, Delivery delivery)
    cpdef discard(self, Delivery delivery, int reason, double now)
    cpdef lose(self, Message message, int qos, int reason, double now)
    cpdef refuse(self, Message message, double now)
    @cython.locals(tape=Tape)
    cpdef miss(self, Message message, int qos, int reason, double now)
    @cython.locals(session=Session, outlet=Outlet, note=Note)
    cpdef note(self, bytes topic, Py_ssize_t count, Py_ssize_t size, double arrived, int rank, int qos, bint retain)
    cpdef record(self, Py_ssize_t count, double seconds)
    @cython.locals(tape=Tape, message=Message)
    cpdef record_acknowledged(self, Delivery delivery, double now)

@cython.locals(flow=Flow, first=Delivery, part=Message)
cpdef bint evict(Lane lane, int level, bint oldest, int reason, double now)

@cython.locals(message=Message, lifetime=double)
cpdef bint overdue(Delivery delivery, double now)

@cython.locals(flow=Flow, mark=tuple)
cpdef settle(Outlet outlet, double now)

@cython.locals(notes=list, note=Note, flow=Flow, tape=Tape)
cpdef write_notes(Outlet outlet, int outcome, double now)

cpdef unsigned int numbered(Flow flow, Tape tape) except? 0xFFFFFFFF

cpdef cut(Outlet outlet, double now)

@cython.locals(x=cython.ulonglong)
cpdef unsigned long long thinned(unsigned long long number, unsigned long long salt)

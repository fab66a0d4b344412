cimport cython
from headgate.core.link cimport Link
from headgate.core.message cimport Message, run, uint16, varint
from headgate.core.outlet cimport Outlet
from headgate.core.queueing cimport Delivery, Queue, make_room
from headgate.core.session cimport Session
from headgate.core.tape cimport Tape, facets

cdef int CRITICAL, NORMAL
cdef unsigned long long MASK, STIR, MIX

@cython.final
cdef class Flow(Queue):
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
    cdef public double drop_rate
    cdef public unsigned long long threshold
    cdef public unsigned long long salt
    cdef public object threshold_s
    cdef public double join
    cdef public double learned
    cdef public bint decided
    cdef public bint fast

    @cython.locals(outlet=Outlet, link=Link)
    cpdef refresh(self)
    @cython.locals(outlet=Outlet, tape=Tape)
    cpdef forward(self, bytes topic, bytes encoded, Py_ssize_t count, double now)
    @cython.locals(session=Session, outlet=Outlet, qos=cython.int)
    cpdef deliver(self, Message message, bint retain, double now)
    @cython.locals(session=Session, outlet=Outlet, qos=cython.int)
    cpdef int offer(self, Message message, double now) except -1
    cpdef int granted(self, Message message)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef launch(self, Message message, int qos, bint retain, Outlet outlet, double now)
    @cython.locals(first=cython.int, packet=bytes, link=Link, tape=Tape)
    cpdef bint emit(self, Message message, int qos, int packet_id, bint retain, bint dup, Outlet outlet, double now)
    @cython.locals(extra=bytes, left=cython.longlong, alias=cython.int, packet=bytes)
    cpdef bytes dressed(self, Message message, int first, int packet_id, Outlet outlet, double now)
    cpdef refuse(self, Message message, double now)

@cython.locals(x=cython.ulonglong)
cpdef unsigned long long thinned(unsigned long long number, unsigned long long salt)
@cython.locals(table=cython.ulonglong, left=cython.ulonglong, right=cython.ulonglong)
cpdef unsigned long long drawn(unsigned long long number, unsigned long long salt)

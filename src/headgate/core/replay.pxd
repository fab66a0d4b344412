cimport cython
from headgate.core.flows cimport Flow
from headgate.core.link cimport Pool
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.queueing cimport Delivery, Lane
from headgate.core.retained cimport Cursor, Leaf, Retained
from headgate.core.session cimport Session

@cython.final
cdef class Replay:
    cdef public Flow flow
    cdef public object broker
    cdef public Retained retained
    cdef public Pool pool
    cdef public Cursor cursor
    cdef public bint through
    cdef public unsigned long long since
    cdef public set ahead
    cdef public dict missed
    cdef public bint lasting
    cdef public bint recorded
    cdef public Lane lane
    cdef public object trusted

    cpdef judge(self)
    @cython.locals(outlet=Outlet, pool=Pool, message=Message, reason=cython.int)
    cpdef int proceed(self, double now) except -1
    @cython.locals(lane=Lane, first=Delivery)
    cpdef bint follows(self) except -1
    cpdef Message current(self)
    cpdef bint go_on(self) except -1
    cpdef bint owes(self, Message message) except -1
    @cython.locals(flow=Flow, session=Session)
    cpdef bint may_have(self, Message message, double now) except -1
    @cython.locals(topic=bytes)
    cpdef miss(self, Message message)
    @cython.locals(topic=bytes, leaf=Leaf, kept=Message)
    cpdef precede(self, Message live, double now)
    @cython.locals(flow=Flow, session=Session, outlet=Outlet, qos=cython.int)
    cpdef bint lead(self, Message kept, Message live, double now) except -1
    cpdef interrupt(self)
    cpdef end(self)

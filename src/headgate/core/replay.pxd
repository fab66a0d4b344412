cimport cython
from headgate.core.flows cimport Flow, Lane
from headgate.core.link cimport Pool
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.retained cimport Cursor, Leaf, Retained
from headgate.core.session cimport Session

@cython.final
cdef class Replay:
    cdef public Flow flow
    cdef public object broker
    cdef public Retained retained
    cdef public Pool pool
    cdef public Cursor cursor
    cdef public unsigned long long since
    cdef public set ahead
    cdef public bint lasting
    cdef public bint recorded
    cdef public Lane lane

    @cython.locals(outlet=Outlet, pool=Pool, sent=cython.bint, message=Message, reason=cython.int)
    cpdef int proceed(self, double now) except -1
    @cython.locals(flow=Flow, session=Session)
    cpdef bint owes(self, Message message, double now) except -1
    @cython.locals(leaf=Leaf, kept=Message, flow=Flow, session=Session)
    cpdef precede(self, Message live, double now)
    cpdef interrupt(self)
    cpdef end(self)

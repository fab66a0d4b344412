cimport cython
from headgate.core.flows cimport Flow
from headgate.core.link cimport Link
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.queueing cimport Delivery, Lane, overdue
from headgate.core.replay cimport Replay
from headgate.core.session cimport Session

cdef int COMMIT, EXPIRED, OFFLINE, PACING, SOCKET, TURN, WINDOW
cdef double TICK

@cython.locals(lane=Lane, reason=cython.int, session=Session, outlet=Outlet, before=Py_ssize_t, level=cython.int)
cpdef double pump(Link link, double now)

@cython.locals(flow=Flow, session=Session, outlet=Outlet, delivery=Delivery, message=Message, replay=Replay)
cpdef int advance(Lane lane, double now)

@cython.locals(delivery=Delivery, flow=Flow)
cpdef int repeat(Session session, Outlet outlet, double now)

@cython.locals(session=Session, outlet=Outlet, delivery=Delivery)
cpdef int hindrance(Lane lane)

@cython.locals(session=Session, delivery=Delivery)
cpdef reserve(Lane lane)

cpdef bint crowded(Session session)

@cython.locals(delivery=Delivery, sent=Py_ssize_t)
cpdef Py_ssize_t outstanding(Session session)

@cython.locals(link=Link, lane=Lane)
cpdef double wake(Session session, double now)

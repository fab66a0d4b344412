cimport cython
from headgate.core.flows cimport Delivery, Flow, Lane
from headgate.core.link cimport Link
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session

@cython.locals(lane=Lane, reason=cython.int)
cpdef double pump(Link link, double now)

@cython.locals(flow=Flow, session=Session, outlet=Outlet, delivery=Delivery, message=Message)
cpdef int advance(Lane lane, double now)

cpdef bint overdue(Flow flow, Message message, double now)

@cython.locals(session=Session, delivery=Delivery)
cpdef reserve(Lane lane)

@cython.locals(outlet=Outlet, room=Py_ssize_t, delivery=Delivery, flow=Flow)
cpdef repeat(Session session, double now)

@cython.locals(sent=Py_ssize_t, delivery=Delivery)
cpdef Py_ssize_t outstanding(Session session)

@cython.locals(link=Link, lane=Lane)
cpdef double wake(Session session, double now)

cimport cython
from headgate.core.link cimport Pool
from headgate.core.message cimport uint16
from headgate.core.outlet cimport Outlet
from headgate.core.queueing cimport Delivery, Queue
from headgate.core.session cimport Session

cdef int OPEN, OPENING

cdef class Acknowledger:
    cdef public object broker
    cdef public Pool pool
    cdef public Outlet outlet
    cdef public int state
    cdef public int version
    cdef public Session session
    cdef public list gate
    cdef public Py_ssize_t unanswered

    @cython.locals(first=bytes, packet=bytes)
    cpdef answer(self, int qos, int packet_id, int reason, long long position)
    cpdef acknowledge(self, bytes packet, long long position)
    @cython.locals(first=cython.uint)
    cpdef send_acknowledgement(self, bytes packet)
    cpdef Py_ssize_t recorded(self, Session session) except -1
    @cython.locals(gate=list, passed=Py_ssize_t, position=cython.longlong, packet=bytes)
    cpdef committed(self)
    @cython.locals(session=Session, position=cython.longlong)
    cpdef pubrel(self, int packet_id, double now)
    cpdef remember(self, Session session, int packet_id)
    cpdef recall(self, Session session, int packet_id)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef puback(self, int packet_id, double now)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef pubrec(self, int packet_id, int reason, double now)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef pubcomp(self, int packet_id, double now)
    @cython.locals(flow=Queue, session=Session)
    cpdef finish(self, Delivery delivery, double now)

@cython.locals(number=cython.int)
cpdef int packet_identifier(bytes data, Py_ssize_t pos) except -1

cimport cython
from headgate.core.acknowledging cimport Acknowledger, packet_identifier
from headgate.core.counters cimport Counters
from headgate.core.flows cimport Flow
from headgate.core.message cimport Message, uint16
from headgate.core.outlet cimport Outlet
from headgate.core.publication cimport Properties, remaining_length
from headgate.core.router cimport Route
from headgate.core.session cimport Session

cdef int CRITICAL, NORMAL, URGENT
cdef Py_ssize_t ALIASED, KNOWN_TOPICS, LONG

cdef class Publisher(Acknowledger):
    cdef public Counters counters
    cdef public bint waits
    cdef public bint crowded
    cdef public Py_ssize_t effort
    cdef public Py_ssize_t receive_maximum
    cdef public dict topics
    cdef public dict aliases
    cdef public int alias_limit
    cdef public double rate
    cdef public double allowance
    cdef public double charged
    cdef public double resume_at
    cdef public double claim_allowance
    cdef public double claimed

    cpdef Route route_for(self, bytes topic)
    @cython.locals(own=bytes, other=bytes, version=cython.int, expanded=list, flow=Flow, outlet=Outlet, message=Message)
    cpdef forward(self, Route route, bytes data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, double now)
    @cython.locals(pos=Py_ssize_t, number=cython.ulonglong, skip=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t,
                   body=Py_ssize_t, end=Py_ssize_t, message=Message, session=Session)
    cpdef list expand(self, Route route, bytes data, Py_ssize_t count, double now)
    @cython.locals(qos=cython.int, middle=Py_ssize_t, topic=bytes, packet_id=cython.int, properties=Properties,
                   route=Route, session=Session, message=Message, kept=cython.longlong, position=cython.longlong,
                   reason=cython.int)
    cpdef int publish(self, unsigned int first, bytes data, Py_ssize_t pos, Py_ssize_t end, int rank, int timing, double now) except -3
    @cython.locals(session=Session, message=Message)
    cpdef Message message(self, Route route, bytes payload, int first, Properties properties, double now)
    cpdef int hand_over(self, Route route, Message message, double now) except -1
    cpdef bytes resolve(self, bytes topic, int alias)
    cpdef go_on(self, double now)
    cpdef charge(self, double now)

cimport cython
from headgate.core.link cimport Link, Pool
from headgate.core.outlet cimport Outlet

cdef Py_ssize_t IN_FLIGHT_PART, MESSAGE

@cython.final
cdef class Session:
    cdef public str client_id
    cdef public object identity
    cdef public Pool pool
    cdef public dict flows
    cdef public Outlet outlet
    cdef public object channel
    cdef public str user
    cdef public list claims
    cdef public Py_ssize_t window
    cdef public dict inflight
    cdef public Py_ssize_t unacknowledged
    cdef public list owed
    cdef public int last_packet_id
    cdef public long long sequence
    cdef public set received
    cdef public Link link
    cdef public list parked
    cdef public dict waiting
    cdef public dict levels
    cdef public Py_ssize_t standing
    cdef public Py_ssize_t queued_messages
    cdef public Py_ssize_t queued_size
    cdef public Py_ssize_t message_limit
    cdef public Py_ssize_t size_limit
    cdef public bint drop_oldest
    cdef public bint draining
    cdef public unsigned int expiry
    cdef public double ends
    cdef public object alarm
    cdef public object journal
    cdef public object will
    cdef public object connectivity

    cpdef stand_for(self, Py_ssize_t size)
    @cython.locals(cost=Py_ssize_t)
    cpdef bint takes(self, Py_ssize_t size)
    cpdef sent(self, Py_ssize_t size)
    cpdef completed(self, Py_ssize_t size)
    @cython.locals(packet_id=cython.int)
    cpdef int take_packet_id(self)
    @cython.locals(link=Link)
    cpdef release(self, int packet_id)
    cpdef Link own_link(self)

cimport cython
from headgate.core.histogram cimport Histogram
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session
from headgate.core.tape cimport Tape, facets

cdef class Account:
    cdef public Session session
    cdef public unsigned long long offered
    cdef public unsigned long long delivered
    cdef public unsigned long long sent_bytes
    cdef public list drops
    cdef public Histogram waited
    cdef public Histogram acknowledged
    cdef public object reported
    cdef public long long block
    cdef public unsigned int number

    @cython.locals(tape=Tape)
    cpdef miss(self, Message message, int qos, int reason, double now)
    cpdef record(self, Py_ssize_t count, double seconds)

@cython.locals(flow=Account, mark=tuple, tape=Tape)
cpdef settle(Outlet outlet, double now)

cpdef unsigned int numbered(Account flow, Tape tape) except? 0xFFFFFFFF

cpdef cut(Outlet outlet, double now)

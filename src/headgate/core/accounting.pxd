cimport cython
from headgate.core.histogram cimport Histogram
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session
from headgate.core.tape cimport Note, Tape, facets

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
    @cython.locals(session=Session, outlet=Outlet, note=Note)
    cpdef note(self, bytes topic, Py_ssize_t count, Py_ssize_t size, double arrived, int rank, int qos, bint retain)
    cpdef record(self, Py_ssize_t count, double seconds)

@cython.locals(flow=Account, mark=tuple)
cpdef settle(Outlet outlet, double now)

@cython.locals(notes=list, note=Note, flow=Account, tape=Tape)
cpdef write_notes(Outlet outlet, int outcome, double now)

cpdef unsigned int numbered(Account flow, Tape tape) except? 0xFFFFFFFF

cpdef cut(Outlet outlet, double now)

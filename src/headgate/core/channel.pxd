cimport cython
from headgate.core.acknowledging cimport packet_identifier
from headgate.core.publication cimport remaining_length
from headgate.core.publishing cimport Publisher
from headgate.core.router cimport Route
from headgate.core.scheduler cimport wake

cdef int CRITICAL, NORMAL, URGENT, EARLY, IN_TURN, NOT_ROUTED, UNREADY, CLOSING, OPEN, OPENING
cdef Py_ssize_t EFFORT, ENDLESS, GREETING, LARGE, RUN

@cython.final
cdef class Channel(Publisher):
    cdef public object peer
    cdef public double heard
    cdef public object connection
    cdef public object alarm

    cdef public list chunks
    cdef public Py_ssize_t gathered
    cdef public Py_ssize_t needed
    cdef public Py_ssize_t packet_limit
    cdef public bytes inbox
    cdef public dict routed
    cdef public bint unfinished
    cdef public object task
    cdef public Py_ssize_t weight
    cdef public bint overweight

    cdef public double keep_alive
    cdef public bint tells_problems
    cdef public object login
    cdef public bint awaits_auth
    cdef public bint said_goodbye

    @cython.locals(data=bytes, rest=Py_ssize_t, early=dict)
    cpdef process(self, double now)
    @cython.locals(size=Py_ssize_t, more=Py_ssize_t)
    cpdef bint weigh(self) except -1
    cpdef receive(self, bytes data, double now)
    cpdef bint take(self, bytes data, double now)
    @cython.locals(size=Py_ssize_t, pos=Py_ssize_t, version=cython.int, first=cython.uint, body=Py_ssize_t,
                   length=Py_ssize_t, end=Py_ssize_t, kind=cython.uint, named=Py_ssize_t, middle=Py_ssize_t,
                   with_properties=cython.bint, renamed=cython.bint)
    cpdef preview(self, bytes data, double now)
    @cython.locals(reason=cython.int)
    cpdef route_early(self, unsigned int first, bytes data, Py_ssize_t start, Py_ssize_t body, Py_ssize_t end, int rank, double now)
    @cython.locals(size=Py_ssize_t, pos=Py_ssize_t, version=cython.int, route=Route, prefix=bytes, prefix_start=Py_ssize_t, prefix_end=Py_ssize_t,
                   run_start=Py_ssize_t, run_end=Py_ssize_t, run_count=Py_ssize_t, acknowledged=cython.bint, slow=cython.int,
                   first=cython.uint, body=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, kind=cython.uint,
                   middle=Py_ssize_t, topic=bytes)
    cpdef Py_ssize_t consume(self, bytes data, double now) except -1

cimport cython
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.math cimport ceil
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from headgate.core.outlet cimport Outlet
from headgate.core.station cimport Station
from headgate.core.timers cimport Timers
from headgate.server.connection cimport Connection

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int poller, epoll_event *events, int most, int milliseconds)

cdef inline double seconds() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9

# As `select.epoll.poll` does it, without a buffer from the heap for each call.
cdef inline list ready(int poller, double timeout):
    cdef epoll_event found[8192]  # EVENTS
    cdef int milliseconds = <int>ceil(timeout * 1000.0)
    cdef int count, number
    cdef list events
    with nogil:
        count = epoll_wait(poller, found, 8192, milliseconds)
    if count < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
        return []
    events = []
    for number in range(count):
        events.append((found[number].data.fd, found[number].events))
    return events

cdef double LONGEST_SLEEP, FINE, NEXT, SHORT, PASSING
cdef int HASTY

@cython.final
cdef class Reactor:
    cdef public double offset
    cdef public object after_turn
    cdef public object epoll
    cdef public int poller
    cdef public dict connections
    cdef public dict listeners
    cdef public set resting
    cdef public object crowd
    cdef public list more
    cdef public list line
    cdef public list bulk
    cdef public dict hasty
    cdef public object posted
    cdef public int alarm
    cdef public bint running
    cdef public bint alone
    cdef public bint lively

    cpdef double clock(self)
    @cython.locals(timers=Timers, board=list, timeout=double, passed=cython.int, now=double)
    cpdef run(self, Station broker)
    @cython.locals(now=double, connection=Connection, event=tuple, fd=cython.int, mask=cython.int, passed=cython.int, later=list)
    cpdef int read(self, Station broker, list events) except -1
    @cython.locals(begin=double, events=list)
    cpdef list poll(self, double timeout)
    cpdef list look(self, double timeout)
    cpdef fetch(self, Station broker, Connection connection, double now)
    cpdef stand_in_line(self, Connection connection)
    @cython.locals(now=double)
    cpdef work(self, double limit)
    @cython.locals(connection=Connection, done=Py_ssize_t)
    cpdef list work_on(self, list line, double now, double end)
    cpdef send(self, Station broker, double now)
    @cython.locals(waiting=list, outlet=Outlet, connection=Connection)
    cpdef write(self, list board, double now)

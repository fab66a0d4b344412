cimport cython
from headgate.core.outlet cimport Outlet
from headgate.core.timers cimport Timers
from headgate.server.connection cimport Connection

@cython.final
cdef class Reactor:
    cdef public double offset
    cdef public object after_turn
    cdef public object epoll
    cdef public dict connections
    cdef public dict listeners
    cdef public set resting
    cdef public object crowd
    cdef public list more
    cdef public object line
    cdef public object bulk
    cdef public dict hasty
    cdef public object posted
    cdef public int alarm
    cdef public bint running

    cpdef double clock(self)
    @cython.locals(timers=Timers, board=list, timeout=double, passed=cython.int, now=double)
    cpdef run(self, object broker)
    @cython.locals(now=double, connection=Connection, event=tuple, fd=cython.int, mask=cython.int, passed=cython.int, later=list)
    cpdef int read(self, object broker, list events)
    cpdef fetch(self, object broker, Connection connection, double now)
    cpdef stand_in_line(self, Connection connection)
    @cython.locals(now=double, connection=Connection)
    cpdef work(self, double limit)
    cpdef send(self, object broker, double now)
    @cython.locals(waiting=list, outlet=Outlet, connection=Connection)
    cpdef write(self, list board, double now)

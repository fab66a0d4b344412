cimport cython
from headgate.core.channel cimport Channel
from headgate.core.accounting cimport settle
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session
from headgate.server.transport.plain cimport PlainStream

cdef int CHECKING, CLOSING, OPENING, READ, WRITE
cdef Py_ssize_t BULK, UNREAD

@cython.final
cdef class Connection:
    cdef public object reactor
    cdef public object broker
    cdef public object listener
    cdef public object stream
    cdef public PlainStream plain
    cdef public Channel channel
    cdef public Outlet outlet
    cdef public int fd
    cdef public int events
    cdef public bint pending
    cdef public bint bulky
    cdef public object rest
    cdef public bint open

    @cython.locals(channel=Channel, plain=PlainStream)
    cpdef bint fetch(self, double now) except *
    @cython.locals(channel=Channel)
    cpdef process(self, double now)
    cpdef bint wants_write(self) except *
    cpdef resume(self, double now)
    @cython.locals(taken=Py_ssize_t)
    cpdef writable(self, double now)
    @cython.locals(outlet=Outlet, data=bytes, taken=Py_ssize_t, session=Session)
    cpdef flush(self, double now)
    @cython.locals(channel=Channel, events=cython.int)
    cpdef watch(self)
    cpdef finish(self, double now)
    cpdef close(self, double now)

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from posix.unistd cimport read, write

# The two calls of a small message, without what `os` adds to them: a buffer of the largest size
# that is then cut, a change of the lock's owner, and back. They never block.

cdef inline bytes receive(int descriptor):
    cdef char buffer[4096]  # SMALL_READ
    cdef Py_ssize_t size = -1
    while size < 0:
        size = read(descriptor, buffer, sizeof(buffer))
        if size < 0 and errno == EAGAIN:
            return None
        if size < 0 and errno != EINTR:
            PyErr_SetFromErrno(OSError)
    return PyBytes_FromStringAndSize(buffer, size)

cdef inline Py_ssize_t transmit(int descriptor, bytes data) except -1:
    cdef Py_ssize_t size = -1
    while size < 0:
        size = write(descriptor, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if size < 0 and errno == EAGAIN:
            return 0
        if size < 0 and errno != EINTR:
            PyErr_SetFromErrno(OSError)
    return size

@cython.final
cdef class PlainStream:
    cdef int _descriptor
    cdef int _size
    cdef public object peer
    cdef readonly bint wants_write
    cdef readonly bint has_pending

    cpdef int fileno(self)
    cpdef object read(self)
    cpdef Py_ssize_t write(self, object data) except -1
    @cython.locals(descriptor=cython.int)
    cpdef close(self)

cimport cython

@cython.final
cdef class PlainStream:
    cdef object _socket
    cdef int _size
    cdef public object peer
    cdef readonly bint wants_write
    cdef readonly bint has_pending

    cpdef int fileno(self) except -1
    cpdef object read(self)
    cpdef Py_ssize_t write(self, object data) except -1

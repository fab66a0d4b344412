cimport cython

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

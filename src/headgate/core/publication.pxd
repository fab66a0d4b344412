cimport cython

@cython.final
cdef class Properties:
    cdef public bytes forwarded
    cdef public int alias
    cdef public long long expiry
    cdef public bint utf8
    cdef public int rank
    cdef public Py_ssize_t place
    cdef public Py_ssize_t end

    @cython.locals(length=Py_ssize_t, shift=cython.int, byte=cython.uint, end=Py_ssize_t, start=Py_ssize_t,
                   here=Py_ssize_t, cuts=cython.int, seen=cython.ulonglong, bit=cython.ulonglong, identifier=cython.uint,
                   middle=Py_ssize_t, last=Py_ssize_t, left=Py_ssize_t, forwarded=bytes, topic=bytes)
    cpdef scan(self, bytes data, Py_ssize_t pos, Py_ssize_t limit)

@cython.locals(end=Py_ssize_t)
cpdef Py_ssize_t binary_end(bytes data, Py_ssize_t pos, Py_ssize_t limit)

@cython.locals(end=Py_ssize_t)
cpdef Py_ssize_t text_end(bytes data, Py_ssize_t pos, Py_ssize_t limit)

@cython.locals(length=Py_ssize_t, shift=cython.int, byte=cython.uint)
cpdef tuple remaining_length(bytes data, Py_ssize_t pos, Py_ssize_t size, int version)

cimport cython

@cython.final
cdef class Outlet:
    cdef public list board
    cdef public int version
    cdef public list pieces
    cdef public list marks
    cdef public object marked
    cdef public Py_ssize_t marked_count
    cdef public double marked_arrival
    cdef public object tape
    cdef public size_t first_row
    cdef public size_t last_row
    cdef public list notes
    cdef public Py_ssize_t size
    cdef public Py_ssize_t room
    cdef public bint clear
    cdef public bint listed
    cdef public bint held
    cdef public object connection
    cdef public Py_ssize_t packet_limit
    cdef public int alias_limit
    cdef public dict aliases

    cpdef put(self, bytes piece)
    cpdef hold(self)
    cpdef release(self)
    cpdef mark(self, object flow, Py_ssize_t count, double arrived)
    @cython.locals(pieces=list)
    cpdef bytes take(self)
    cpdef int alias(self, bytes topic)

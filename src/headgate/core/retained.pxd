cimport cython
from headgate.core.link cimport Pool
from headgate.core.message cimport Message

# A chain of siblings may be long; without the trashcan each would end inside the end of the one
# before it, until the stack does.
@cython.final
@cython.trashcan(True)
cdef class Leaf:
    cdef public bytes name
    cdef public Leaf parent
    cdef public long long born
    cdef public Message message
    cdef public Py_ssize_t pins
    cdef public dict children
    cdef public Leaf first
    cdef public Leaf last
    cdef public Leaf next
    cdef public Leaf previous

    cpdef Leaf child(self, bytes name)
    @cython.locals(child=Leaf, last=Leaf)
    cpdef Leaf adopt(self, bytes name, long long born)
    @cython.locals(before=Leaf, after=Leaf)
    cpdef part(self, Leaf child)

@cython.final
cdef class Retained:
    cdef public Pool pool
    cdef public Leaf root
    cdef public long long born
    cdef public Py_ssize_t count

    @cython.locals(leaf=Leaf, level=bytes)
    cpdef Leaf leaf(self, bytes topic)
    @cython.locals(leaf=Leaf)
    cpdef Message get(self, bytes topic)
    @cython.locals(leaf=Leaf, child=Leaf, level=bytes, before=Message)
    cpdef put(self, Message message)
    @cython.locals(leaf=Leaf, level=bytes, more=Py_ssize_t)
    cpdef Py_ssize_t price(self, Message message) except? -1
    @cython.locals(leaf=Leaf)
    cpdef bint remove(self, bytes topic) except -1
    @cython.locals(parent=Leaf)
    cpdef prune(self, Leaf leaf)

@cython.final
cdef class Cursor:
    cdef public Retained retained
    cdef public bint deep
    cdef public list levels
    cdef public Py_ssize_t count
    cdef public Leaf leaf
    cdef public Py_ssize_t depth

    @cython.locals(child=Leaf, here=Leaf)
    cpdef bint step(self) except -1
    cpdef leave(self)
    @cython.locals(before=Leaf)
    cpdef stand(self, Leaf leaf)
    cpdef Message message(self)
    @cython.locals(level=bytes)
    cpdef bint wild(self, Py_ssize_t depth)
    cpdef Leaf visible(self, Leaf leaf, Py_ssize_t depth)
    @cython.locals(here=Leaf)
    cpdef bint passed(self, Leaf leaf, Py_ssize_t depth) except -1

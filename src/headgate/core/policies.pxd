cimport cython
from headgate.core.flows cimport Flow

@cython.final
cdef class Level:
    cdef public dict children
    cdef public list rules

@cython.final
cdef class Topics:
    cdef public Level root
    cdef public list untold

    cpdef add(self, tuple ranked)
    @cython.locals(found=list, levels=list, deeper=list, level=Level, children=dict, wild=cython.bint, name=str)
    cpdef list covering(self, object names)

@cython.final
cdef class Enforcer:
    cdef public object policy
    cdef public dict exact
    cdef public dict groups
    cdef public bint by_topic
    cdef public dict found
    cdef public dict refined

    cpdef add(self, Py_ssize_t rank)
    cpdef settings_of(self, Flow flow)
    @cython.locals(kind=tuple, found=tuple, name=tuple, refined=tuple)
    cpdef settings_as(self, Flow flow, object membership)
    @cython.locals(drop=double)
    cpdef settle(self, Flow flow)
    @cython.locals(rules=list, group=Topics)
    cpdef list select(self, str application, str category, bytes topic_filter)
    cpdef refine(self, list common, list exact, Flow flow, object membership)

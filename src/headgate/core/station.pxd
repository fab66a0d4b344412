from headgate.core.link cimport Pool
from headgate.core.timers cimport Timers

cdef class Station:
    cdef public Pool pool
    cdef public Timers timers
    cdef public list board
    cdef public list closing

cimport cython
from headgate.core.flows cimport Flow
from headgate.core.histogram cimport Histogram
from headgate.core.queueing cimport Lane
from headgate.core.session cimport Session

@cython.final
cdef class Report:
    cdef public long long offered
    cdef public long long delivered
    cdef public long long sent_bytes
    cdef public list drops

@cython.locals(before=Report, waited=Histogram, acknowledged=Histogram, offered=cython.longlong, delivered=cython.longlong, dropped=cython.bint, session=Session, fields=dict, lane=Lane)
cpdef object report(Flow flow, double now)

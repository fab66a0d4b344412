cimport cython

@cython.final
cdef class Counters:
    cdef public unsigned long long messages_received
    cdef public unsigned long long messages_unmatched
    cdef public unsigned long long messages_refused
    cdef public unsigned long long messages_retained
    cdef public unsigned long long messages_urgent
    cdef public unsigned long long messages_critical
    cdef public unsigned long long claims_denied
    cdef public unsigned long long bytes_received
    cdef public unsigned long long bytes_sent
    cdef public unsigned long long connections_opened
    cdef public unsigned long long connections_refused
    cdef public unsigned long long connections_failed
    cdef public unsigned long long subscriptions_refused
    cdef public unsigned long long numbered

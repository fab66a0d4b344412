cimport cython
from headgate.core.flows cimport Flow
from headgate.core.link cimport Pool
from headgate.core.message cimport Message
from headgate.core.outlet cimport Outlet
from headgate.core.session cimport Session

@cython.final
cdef class Group:
    cdef public str name
    cdef public list members
    cdef public Py_ssize_t turn

    @cython.locals(count=Py_ssize_t, step=Py_ssize_t, index=Py_ssize_t, flow=Flow, connected=Flow, outlet=Outlet)
    cpdef Flow next_member(self)

@cython.final
cdef class Node:
    cdef public dict children
    cdef public dict flows
    cdef public dict groups

@cython.final
cdef class Route:
    cdef public bytes topic
    cdef public list flows
    cdef public list groups
    cdef public list denied
    cdef public bint stale
    cdef public bint plain
    cdef public bint refused
    cdef public bint reserved
    cdef public int captured
    cdef public Py_ssize_t effort

    @cython.locals(flow=Flow, group=Group)
    cpdef dispatch(self, Message message, Session sender, double now)

@cython.final
cdef class Router:
    cdef public object permits
    cdef public object captured
    cdef public Node root
    cdef public Pool pool
    cdef public dict routes
    cdef public Py_ssize_t cached
    cdef public Py_ssize_t subscriptions

    @cython.locals(route=Route)
    cpdef Route route(self, bytes topic)
    @cython.locals(route=Route, node=Node, flow=Flow, group=Group)
    cpdef Route find(self, bytes topic)

@cython.locals(children=dict, child=Node, wild=cython.bint, looked=Py_ssize_t)
cpdef Py_ssize_t collect(Node node, list levels, Py_ssize_t depth, Py_ssize_t count, bint reserved, list found) except -1

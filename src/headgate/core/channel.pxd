cimport cython
from headgate.core.counters cimport Counters
from headgate.core.flows cimport Delivery, Flow
from headgate.core.link cimport Pool
from headgate.core.message cimport Message, uint16
from headgate.core.outlet cimport Outlet
from headgate.core.publication cimport Properties
from headgate.core.router cimport Route
from headgate.core.scheduler cimport wake
from headgate.core.session cimport Session

@cython.final
cdef class Channel:
    cdef public object broker
    cdef public object peer
    cdef public Outlet outlet
    cdef public Pool pool
    cdef public Counters counters
    cdef public int state
    cdef public double heard
    cdef public object connection
    cdef public object alarm

    cdef public list chunks
    cdef public Py_ssize_t gathered
    cdef public Py_ssize_t needed
    cdef public Py_ssize_t packet_limit
    cdef public bytes inbox
    cdef public dict routed
    cdef public bint waits
    cdef public bint crowded
    cdef public bint unfinished

    cdef public int version
    cdef public Session session
    cdef public double keep_alive
    cdef public bint tells_problems
    cdef public Py_ssize_t receive_maximum
    cdef public dict topics
    cdef public dict aliases
    cdef public int alias_limit
    cdef public object login
    cdef public bint awaits_auth
    cdef public bint said_goodbye

    cdef public list gate
    cdef public Py_ssize_t unanswered
    cdef public double rate
    cdef public double allowance
    cdef public double charged
    cdef public double resume_at
    cdef public double claim_allowance
    cdef public double claimed

    @cython.locals(data=bytes, rest=Py_ssize_t, early=dict)
    cpdef process(self, double now)
    cpdef go_on(self, double now)
    cpdef receive(self, bytes data, double now)
    cpdef bint take(self, bytes data, double now)
    @cython.locals(size=Py_ssize_t, pos=Py_ssize_t, version=cython.int, first=cython.uint, body=Py_ssize_t,
                   length=Py_ssize_t, end=Py_ssize_t, kind=cython.uint, named=Py_ssize_t, middle=Py_ssize_t,
                   with_properties=cython.bint, renamed=cython.bint)
    cpdef preview(self, bytes data, double now)
    @cython.locals(reason=cython.int)
    cpdef route_early(self, unsigned int first, bytes data, Py_ssize_t start, Py_ssize_t body, Py_ssize_t end, int rank, double now)
    @cython.locals(size=Py_ssize_t, pos=Py_ssize_t, version=cython.int, route=Route, prefix=bytes,
                   run_start=Py_ssize_t, run_end=Py_ssize_t, run_count=Py_ssize_t, acknowledged=cython.bint, slow=cython.int,
                   first=cython.uint, body=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, kind=cython.uint,
                   middle=Py_ssize_t, topic=bytes)
    cpdef Py_ssize_t consume(self, bytes data, double now) except -1
    @cython.locals(length=Py_ssize_t, shift=cython.int, byte=cython.uint)
    cpdef tuple long_length(self, bytes data, Py_ssize_t pos, Py_ssize_t size)
    cpdef Route route_for(self, bytes topic)
    @cython.locals(own=bytes, other=bytes, version=cython.int, expanded=list, flow=Flow, outlet=Outlet, message=Message)
    cpdef forward(self, Route route, bytes data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, double now)
    @cython.locals(pos=Py_ssize_t, number=cython.ulonglong, skip=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t,
                   body=Py_ssize_t, end=Py_ssize_t, message=Message, session=Session)
    cpdef list expand(self, Route route, bytes data, Py_ssize_t count, double now)
    @cython.locals(qos=cython.int, middle=Py_ssize_t, topic=bytes, packet_id=cython.int, properties=Properties,
                   route=Route, session=Session, message=Message, kept=cython.longlong, position=cython.longlong,
                   reason=cython.int)
    cpdef int publish(self, unsigned int first, bytes data, Py_ssize_t pos, Py_ssize_t end, int rank, int timing, double now) except -3
    cpdef remember(self, Session session, int packet_id)
    cpdef recall(self, Session session, int packet_id)
    @cython.locals(session=Session, message=Message)
    cpdef Message message(self, Route route, bytes payload, int first, Properties properties, double now)
    cpdef int hand_over(self, Route route, Message message, double now) except -1
    cpdef bytes resolve(self, bytes topic, int alias)
    cpdef charge(self, double now)
    @cython.locals(first=bytes, packet=bytes)
    cpdef answer(self, int qos, int packet_id, int reason, long long position)
    cpdef acknowledge(self, bytes packet, long long position)
    @cython.locals(first=cython.uint)
    cpdef send_acknowledgement(self, bytes packet)
    cpdef Py_ssize_t recorded(self, Session session) except -1
    @cython.locals(gate=list, passed=Py_ssize_t, position=cython.longlong, packet=bytes)
    cpdef committed(self)
    @cython.locals(session=Session, position=cython.longlong)
    cpdef pubrel(self, int packet_id, double now)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef puback(self, int packet_id, double now)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef pubrec(self, int packet_id, int reason, double now)
    @cython.locals(session=Session, delivery=Delivery)
    cpdef pubcomp(self, int packet_id, double now)
    @cython.locals(flow=Flow, session=Session)
    cpdef finish(self, Delivery delivery, double now)

@cython.locals(number=cython.int)
cpdef int packet_identifier(bytes data, Py_ssize_t pos) except -1

cimport cython

cdef list BYTE, TWO_BYTES

cpdef bytes varint(unsigned int number)
cpdef bytes uint16(unsigned int number)

@cython.final
@cython.freelist(1024)
cdef class Message:
    cdef public bytes topic
    cdef public bytes payload
    cdef public bytes properties
    cdef public int qos
    cdef public bint retain
    cdef public int flags
    cdef public int rank
    cdef public Py_ssize_t count
    cdef public bint sealed
    cdef public bint own
    cdef public double expires
    cdef public double arrived
    cdef public unsigned long long number
    cdef public str sender
    cdef public long long key
    cdef public Py_ssize_t holders
    cdef public Py_ssize_t size
    cdef public bytes plain3
    cdef public bytes plain5

    cpdef bytes plain(self, int version)
    @cython.locals(topic=bytes, payload=bytes, properties=bytes, prefix=bytes, length=Py_ssize_t)
    cpdef bytes packet(self, int version, int first, unsigned int packet_id, bytes extra, bint aliased)

@cython.locals(message=Message)
cpdef Message run(int version, bytes topic, bytes encoded, Py_ssize_t count, double arrived)

@cython.locals(version=cython.int, data=bytes, start=Py_ssize_t, size=Py_ssize_t, pos=Py_ssize_t, length=Py_ssize_t, shift=cython.int, end=Py_ssize_t)
cpdef list split(Message message)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""Records packed as Kafka stores them, a whole batch in one call.

aiokafka's own builder does the same record by record; `batches.ReferenceBatch` is it. A batch of
format 2 is a head of 61 bytes, which aiokafka writes, and its records, which are written here:

    length of what follows      varint
    attributes                  one byte, 0
    timestamp - the first's     varint
    place in the batch          varint
    key, value                  length as a varint (-1: none) and the bytes
    number of headers           varint
    each header's name, value   likewise

A varint is a whole number in zig-zag order (0, -1, 1, -2, …), seven bits a byte, the lowest first;
all but the last byte have their highest bit set. So 300 is 600 in zig-zag order: d8 04.

A record is gone through twice. First everything is looked at that could be of a wrong type or too
long, and its length is added up; then it is written, where nothing can fail any more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char*, Py_ssize_t)
    int PyByteArray_Resize(object, Py_ssize_t) except -1
    char* PyByteArray_AS_STRING(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PySequence_Fast(object, const char*)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject* PySequence_Fast_GET_ITEM(object, Py_ssize_t)  # borrowed

cdef enum:
    HEAD_BYTES = 61
    # Kafka keeps lengths in 32 bits, signed.
    MOST_BYTES = 0x7FFFFFFF


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline Py_ssize_t varint_bytes(int64_t number) noexcept nogil:
    cdef uint64_t left = zigzag(number) >> 7
    cdef Py_ssize_t taken = 1
    while left:
        left >>= 7
        taken += 1
    return taken


cdef inline uint8_t* put_varint(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t left = zigzag(number)
    while left > 0x7F:
        at[0] = <uint8_t>(left | 0x80)
        at += 1
        left >>= 7
    at[0] = <uint8_t>left
    return at + 1


cdef inline uint8_t* put_bytes(uint8_t* at, const char* source, Py_ssize_t size) noexcept nogil:
    at = put_varint(at, size)
    memcpy(at, source, size)
    return at + size


cdef inline uint8_t* put_field(uint8_t* at, object field) noexcept:
    if field is None:
        return put_varint(at, -1)
    return put_bytes(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))


cdef inline Py_ssize_t field_bytes(object field, str what) except -1:
    cdef Py_ssize_t size
    if field is None:
        return 1
    if not isinstance(field, bytes):
        raise TypeError(f"{what} is bytes or None, not {type(field).__name__}")
    size = PyBytes_GET_SIZE(field)
    return varint_bytes(size) + size


cdef Py_ssize_t headers_bytes(object headers) except -1:
    """Bytes that the headers take, their number included; checks each of them."""
    cdef Py_ssize_t i, size, count = PySequence_Fast_GET_SIZE(headers)
    cdef Py_ssize_t total = varint_bytes(count)
    cdef object header, name
    for i in range(count):
        header = <object>PySequence_Fast_GET_ITEM(headers, i)
        if not isinstance(header, tuple) or len(<tuple>header) != 2:
            raise TypeError("a header is a tuple of a name and a value")
        name = (<tuple>header)[0]
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        PyUnicode_AsUTF8AndSize(name, &size)
        total += varint_bytes(size) + size
        total += field_bytes((<tuple>header)[1], "a header's value")
        if total > MOST_BYTES:
            raise OverflowError("a record's headers are longer than Kafka's format takes")
    return total


cdef uint8_t* put_headers(uint8_t* at, object headers) noexcept:
    cdef Py_ssize_t i, size, count = PySequence_Fast_GET_SIZE(headers)
    cdef const char* name
    cdef object header
    at = put_varint(at, count)
    for i in range(count):
        header = <object>PySequence_Fast_GET_ITEM(headers, i)
        # The name keeps its encoded form since it was looked at: this cannot fail.
        name = PyUnicode_AsUTF8AndSize((<tuple>header)[0], &size)
        at = put_bytes(at, name, size)
        at = put_field(at, (<tuple>header)[1])
    return at


def pack(outputs, Py_ssize_t limit):
    """Pack records until the batch is full; the first is taken however large it is.

    Args:
        outputs: a sequence of tuples (key, value, timestamp in milliseconds, headers).
        limit: the whole batch, with its head, stays below so many bytes.

    Returns:
        The batch, whose head is still to be written; how many records it took; the first one's
        timestamp, and the latest.

    Raises:
        TypeError: a record is not such a tuple.
        UnicodeEncodeError: a header's name is no valid text.
        OverflowError: a record is longer, or a timestamp larger, than Kafka's format takes.
    """
    cdef object rows = PySequence_Fast(outputs, b"outputs are a sequence")
    cdef object output, key, value, moment, headers
    cdef Py_ssize_t room = HEAD_BYTES, used = HEAD_BYTES, taken = 0, size, needed
    cdef int64_t timestamp, delta, first = 0, latest = 0
    cdef double wanted
    cdef bytearray batch = PyByteArray_FromStringAndSize(NULL, room)
    cdef uint8_t* at
    memset(PyByteArray_AS_STRING(batch), 0, HEAD_BYTES)
    limit = min(limit, MOST_BYTES)
    while taken < PySequence_Fast_GET_SIZE(rows):
        output = <object>PySequence_Fast_GET_ITEM(rows, taken)
        if not isinstance(output, tuple) or len(<tuple>output) != 4:
            raise TypeError("an output is a tuple of key, value, timestamp and headers")
        key, value, moment, headers = <tuple>output
        if not isinstance(moment, int):
            raise TypeError(f"a timestamp is int, not {type(moment).__name__}")
        timestamp = moment
        headers = PySequence_Fast(headers, b"headers are a sequence")
        if not taken:
            first = latest = timestamp
        delta = <int64_t>(<uint64_t>timestamp - <uint64_t>first)  # wraps, as other clients' does
        size = 1 + varint_bytes(delta) + varint_bytes(taken)
        size += field_bytes(key, "a key")
        size += field_bytes(value, "a value")
        size += headers_bytes(headers)
        if size > MOST_BYTES - HEAD_BYTES - 5:
            raise OverflowError("a record is longer than Kafka's format takes")
        needed = used + varint_bytes(size) + size
        if taken and needed >= limit:
            break
        if needed > room:
            # Records are much alike: what is written tells how much room the rest will need.
            wanted = <double>(needed - HEAD_BYTES) / (taken + 1) * PySequence_Fast_GET_SIZE(rows)
            room = max(needed, <Py_ssize_t>min(wanted * 1.125 + HEAD_BYTES, <double>limit))
            PyByteArray_Resize(batch, room)
        at = put_varint(<uint8_t*>PyByteArray_AS_STRING(batch) + used, size)
        at[0] = 0
        at = put_varint(at + 1, delta)
        at = put_varint(at, taken)
        at = put_field(at, key)
        at = put_field(at, value)
        put_headers(at, headers)
        latest = max(latest, timestamp)
        used = needed
        taken += 1
    PyByteArray_Resize(batch, used)
    return batch, taken, first, latest

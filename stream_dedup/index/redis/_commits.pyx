# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""What a commit sends for each decision and each cluster, packed natively; see `codec`.

A decision is packed as MessagePack has it: a byte that names the type and, where the value does not
fit into that byte, its size; then the value, big-endian.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

import sys

from stream_dedup.index.redis import layouts as _layouts

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef enum:
    BARE_BYTES = 56
    DELTA_BYTES = 37
    # Of a packed decision, without its texts and its fingerprint: heads of array, texts and
    # fingerprint, and five numbers.
    NUMBERS_BYTES = 1 + 4 * 5 + 5 * 9

cdef int64_t LATEST_US = <int64_t>1 << 52  # codec.LATEST_US
cdef bytes DIGITS = b"0123456789abcdef"

assert _layouts.BARE_DELTA.struct.size == BARE_BYTES
assert _layouts.DELTA.struct.size == DELTA_BYTES
if sys.byteorder != "little":
    raise ImportError("numbers are packed as a little-endian machine holds them")

cdef struct Buffer:
    uint8_t* start
    Py_ssize_t used
    Py_ssize_t room


def pack_decisions(list decisions not None):
    """See `codec.reference_pack_decisions`.

    Raises:
        OverflowError: a number has more than 64 bits, and is not the fingerprint.
        TypeError: what is given are not decisions.
    """
    cdef Buffer out
    cdef tuple decision
    cdef object fingerprint
    cdef Py_ssize_t fields
    out.used = 0
    out.room = 64 + 64 * len(decisions)
    out.start = <uint8_t*>malloc(out.room)
    if out.start is NULL:
        raise MemoryError
    try:
        put_head(&out, 0x90, 0xDC, 16, len(decisions))
        for given in decisions:
            if not isinstance(given, tuple) or len(<tuple>given) != 8:
                raise TypeError("a decision is a tuple of eight")
            decision = <tuple>given
            fields = 5
            if decision[7]:
                fields = 8
            elif decision[6]:
                fields = 7
            elif decision[5] is not None:
                fields = 6
            reserve(&out, NUMBERS_BYTES)
            put_byte(&out, <uint8_t>(0x90 | fields))
            put_text(&out, decision[0])
            put_number(&out, decision[1])
            put_number(&out, decision[2])
            fingerprint = decision[3]
            if fingerprint is None:
                put_byte(&out, 0xC0)
            else:
                put_fingerprint(&out, fingerprint)
            put_text(&out, decision[4])
            if fields > 5:
                put_number(&out, decision[5])
            if fields > 6:
                put_number(&out, decision[6])
            if fields > 7:
                put_text(&out, decision[7])
        return PyBytes_FromStringAndSize(<char*>out.start, out.used)
    finally:
        free(out.start)


cdef int reserve(Buffer* out, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = out.room
    cdef uint8_t* start
    if out.used + more > room:
        while out.used + more > room:
            room *= 2
        start = <uint8_t*>realloc(out.start, room)
        if start is NULL:
            raise MemoryError
        out.start, out.room = start, room
    return 0


cdef inline void put_byte(Buffer* out, uint8_t byte) noexcept:
    out.start[out.used] = byte
    out.used += 1


cdef inline void put_big_endian(Buffer* out, uint64_t number, int size) noexcept:
    cdef int place
    for place in range(size):
        out.start[out.used + place] = <uint8_t>(number >> 8 * (size - 1 - place))
    out.used += size


cdef void put_head(Buffer* out, uint8_t short, uint8_t wide, int most, Py_ssize_t count) noexcept:
    """Put the head of an array: its size is in `short`, or behind `wide` or the byte after that."""
    if count < most:
        put_byte(out, <uint8_t>(short | count))
    elif count < 1 << 16:
        put_byte(out, wide)
        put_big_endian(out, count, 2)
    else:
        put_byte(out, wide + 1)
        put_big_endian(out, count, 4)


cdef int put_text(Buffer* out, object text) except -1:
    cdef Py_ssize_t size
    cdef const char* encoded = PyUnicode_AsUTF8AndSize(text, &size)
    reserve(out, size + NUMBERS_BYTES)
    if 31 < size < 256:
        put_byte(out, 0xD9)
        put_byte(out, <uint8_t>size)
    else:
        put_head(out, 0xA0, 0xDA, 32, size)
    memcpy(out.start + out.used, encoded, size)
    out.used += size
    return 0


cdef int put_number(Buffer* out, object given) except -1:
    cdef int beyond = 0
    cdef int64_t number
    cdef uint64_t positive
    if given is None:
        put_byte(out, 0xC0)
        return 0
    number = PyLong_AsLongLongAndOverflow(given, &beyond)
    if beyond == 0 and number < 0:
        if number >= -32:
            put_byte(out, <uint8_t>number)
        elif number >= -(1 << 7):
            put_byte(out, 0xD0)
            put_big_endian(out, <uint64_t>number, 1)
        elif number >= -(1 << 15):
            put_byte(out, 0xD1)
            put_big_endian(out, <uint64_t>number, 2)
        elif number >= -(<int64_t>1 << 31):
            put_byte(out, 0xD2)
            put_big_endian(out, <uint64_t>number, 4)
        else:
            put_byte(out, 0xD3)
            put_big_endian(out, <uint64_t>number, 8)
        return 0
    positive = given if beyond else <uint64_t>number
    if positive < 1 << 7:
        put_byte(out, <uint8_t>positive)
    elif positive < 1 << 8:
        put_byte(out, 0xCC)
        put_big_endian(out, positive, 1)
    elif positive < 1 << 16:
        put_byte(out, 0xCD)
        put_big_endian(out, positive, 2)
    elif positive < <uint64_t>1 << 32:
        put_byte(out, 0xCE)
        put_big_endian(out, positive, 4)
    else:
        put_byte(out, 0xCF)
        put_big_endian(out, positive, 8)
    return 0


cdef int put_fingerprint(Buffer* out, object fingerprint) except -1:
    """Put the bytes of a fingerprint, as few as hold it."""
    cdef uint64_t low, high = fingerprint >> 64
    cdef int size = 0, of_high = 0
    low = fingerprint & 0xFFFFFFFFFFFFFFFF
    while of_high < 8 and high >> 8 * of_high:
        of_high += 1
    while size < 8 and (of_high or low >> 8 * size):
        size += 1
    put_byte(out, 0xC4)
    put_byte(out, <uint8_t>(of_high + size))
    put_big_endian(out, high, of_high)
    put_big_endian(out, low, size)
    return 0


def pack_deltas(deltas, Py_ssize_t samples, Py_ssize_t max_bytes, bytes owner not None):
    """See `codec.reference_pack_deltas`."""
    cdef list rows = list(deltas), keys = [], arguments = []
    cdef bytes bare = PyBytes_FromStringAndSize(NULL, BARE_BYTES * len(rows)), identity, key, part
    cdef char* to = PyBytes_AS_STRING(bare)
    cdef char* own
    cdef double[4] numbers
    cdef uint64_t cluster, priority
    cdef object representative, taken, sampled, value
    cdef uint16_t count
    for delta in rows:
        cluster = delta.cluster
        numbers[0] = delta.count
        numbers[1] = clamped(delta.first_us)
        numbers[2] = clamped(delta.last_us)
        numbers[3] = delta.size
        representative, taken, sampled = delta.representative, delta.samples, delta.sampled
        if representative is None and not taken and not sampled:
            memcpy(to, numbers, sizeof(numbers))
            put_id(to + 32, cluster)
            put_digits(to + 40, cluster)
            to += BARE_BYTES
            continue
        key = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(owner) + 16)
        memcpy(PyBytes_AS_STRING(key), PyBytes_AS_STRING(owner), PyBytes_GET_SIZE(owner))
        put_digits(PyBytes_AS_STRING(key) + PyBytes_GET_SIZE(owner), cluster)
        keys.append(key)
        if len(taken) > samples:
            taken = taken[:samples]
        part = PyBytes_FromStringAndSize(NULL, DELTA_BYTES)
        own = PyBytes_AS_STRING(part)
        memcpy(own, numbers, sizeof(numbers))
        count = <uint16_t>len(taken)
        memcpy(own + 32, &count, 2)
        count = <uint16_t>len(sampled)
        memcpy(own + 34, &count, 2)
        own[36] = representative is not None
        arguments.append(part)
        identity = PyBytes_FromStringAndSize(NULL, 8)
        put_id(PyBytes_AS_STRING(identity), cluster)
        arguments.append(identity)
        arguments.append(b"" if representative is None else first_of(representative, max_bytes))
        for value in taken:
            arguments.append(first_of(value, max_bytes))
        for priority, value in sampled:
            if not isinstance(value, bytes):
                raise TypeError(f"a value is bytes, not {type(value).__name__}")
            part = PyBytes_FromStringAndSize(NULL, 8 + PyBytes_GET_SIZE(value))
            put_id(PyBytes_AS_STRING(part), priority)
            memcpy(PyBytes_AS_STRING(part) + 8, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            arguments.append(part)
    return bare[:to - PyBytes_AS_STRING(bare)], keys, arguments


cdef inline object first_of(object value, Py_ssize_t most):
    return value if len(value) <= most else value[:most]


cdef double clamped(object time_us) except? -1:
    cdef int beyond = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(time_us, &beyond)
    if beyond:
        return <double>(LATEST_US * beyond)
    return <double>max(-LATEST_US, min(number, LATEST_US))


cdef inline void put_id(char* to, uint64_t number) noexcept:
    cdef int place
    for place in range(8):
        to[place] = <char>(number >> 56 - 8 * place)


cdef inline void put_digits(char* to, uint64_t number) noexcept:
    cdef int place
    for place in range(16):
        to[place] = PyBytes_AS_STRING(DIGITS)[number >> 60 - 4 * place & 15]

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""Records packed as Kafka stores them, a whole batch in one call, and taken apart again.

aiokafka does the same record by record; `batches.ReferenceBatch` packs by it. A batch of format 2
is a head of 61 bytes, which aiokafka writes and reads, and its records, which are dealt with here:

    length of what follows      varint
    attributes                  one byte, 0
    timestamp - the first's     varint
    place in the batch          varint
    key, value                  length as a varint (-1: none) and the bytes
    number of headers           varint
    each header's name, value   likewise

A varint is a whole number in zig-zag order (0, -1, 1, -2, …), seven bits a byte, the lowest first;
all but the last byte have their highest bit set. So 300 is 600 in zig-zag order: d8 04.

What is packed is gone through twice. First everything is looked at that could be of a wrong type or
too long, and its length is added up; then it is written, where nothing can fail any more.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char*, Py_ssize_t)
    int PyByteArray_Resize(object, Py_ssize_t) except -1
    char* PyByteArray_AS_STRING(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PySequence_Fast(object, const char*)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject* PySequence_Fast_GET_ITEM(object, Py_ssize_t)  # borrowed

FORMAT = 2
"""Kafka's format of batches since 0.11: the one that has headers and transactions."""

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


cdef inline const uint8_t* get_varint(
    const uint8_t* at, const uint8_t* end, int64_t* number
) except NULL:
    cdef uint64_t found = 0
    cdef int shift = 0
    while shift < 64:
        if at >= end:
            raise ValueError("a number goes beyond its record")
        found |= <uint64_t>(at[0] & 0x7F) << shift
        at += 1
        if at[-1] < 0x80:
            number[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return at
        shift += 7
    raise ValueError("a number of more than ten bytes")


cdef inline Py_ssize_t get_size(const uint8_t** at, const uint8_t* end) except -2:
    """The length of a field that follows; -1 for none."""
    cdef int64_t size
    at[0] = get_varint(at[0], end, &size)
    if size < -1 or size > end - at[0]:
        raise ValueError(f"a field of {size} bytes, and its record has {end - at[0]} left")
    return size


cdef inline object get_field(const uint8_t** at, const uint8_t* end):
    cdef Py_ssize_t size = get_size(at, end)
    if size < 0:
        return None
    at[0] += size
    return PyBytes_FromStringAndSize(<const char*>at[0] - size, size)


cdef inline object get_headers(const uint8_t** at, const uint8_t* end):
    cdef int64_t count
    cdef Py_ssize_t size
    cdef list headers
    at[0] = get_varint(at[0], end, &count)
    if count == 0:
        return ()
    if count < 0 or count > end - at[0]:  # a header takes two bytes at least
        raise ValueError(f"{count} headers in {end - at[0]} bytes")
    headers = []
    for _ in range(count):
        size = get_size(at, end)
        if size < 0:
            raise ValueError("a header has no name")
        at[0] += size
        # As Java's clients read it: a name that is no text must not keep anybody from reading on.
        name = PyUnicode_DecodeUTF8(<const char*>at[0] - size, size, b"replace")
        headers.append((name, get_field(at, end)))
    return headers


cdef enum:
    PACKED_BITS = 10
    PACKED = 1 << PACKED_BITS

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15

cdef struct Packed:
    PyObject* headers  # held by their column; NULL for none
    Py_ssize_t at  # where they stand in the batch
    Py_ssize_t size


def pack(
    list timestamps not None,
    list keys not None,
    list values not None,
    list all_headers not None,
    Py_ssize_t limit,
):
    """Pack records until the batch is full; the first is taken however large it is.

    Args:
        timestamps: of the records, in milliseconds.
        keys: bytes, or None.
        values: bytes, or None.
        all_headers: of each a sequence of tuples (name, value). Headers that are the same object
            are taken to say the same.
        limit: the whole batch, with its head, stays below so many bytes.

    Returns:
        The batch, whose head is still to be written; how many records it took; the first one's
        timestamp, and the latest.

    Raises:
        TypeError: a record has what none can have.
        ValueError: the columns are not of equal length.
        UnicodeEncodeError: a header's name is no valid text.
        OverflowError: a record is longer, or a timestamp larger, than Kafka's format takes.
    """
    cdef object key, value, moment, headers
    cdef Py_ssize_t count = len(timestamps)
    cdef Py_ssize_t room = HEAD_BYTES, used = HEAD_BYTES, taken = 0, size, needed
    cdef int64_t timestamp, delta, first = 0, latest = 0
    cdef double wanted
    cdef bytearray batch = PyByteArray_FromStringAndSize(NULL, room)
    cdef uint8_t* at
    cdef Packed[PACKED] packed  # headers that many records share are packed once
    cdef Packed* known
    cdef PyObject* its_headers
    memset(packed, 0, sizeof(packed))
    memset(PyByteArray_AS_STRING(batch), 0, HEAD_BYTES)
    limit = min(limit, MOST_BYTES)
    if not count == len(keys) == len(values) == len(all_headers):
        raise ValueError(
            f"{count} timestamps, {len(keys)} keys, {len(values)} values and "
            f"{len(all_headers)} headers"
        )
    while taken < count:
        with cython.boundscheck(True):  # headers may be anything that is gone through, so much may run
            key, value = keys[taken], values[taken]
            moment, headers = timestamps[taken], all_headers[taken]
        if not isinstance(moment, int):
            raise TypeError(f"a timestamp is int, not {type(moment).__name__}")
        timestamp = moment
        its_headers = <PyObject*>headers
        headers = PySequence_Fast(headers, b"headers are a sequence")
        known = packed + ((<uint64_t><uintptr_t>its_headers * SPREAD) >> (64 - PACKED_BITS))
        if known.headers != its_headers:
            known.headers = NULL
            known.size = headers_bytes(headers)
        if not taken:
            first = latest = timestamp
        delta = <int64_t>(<uint64_t>timestamp - <uint64_t>first)  # wraps, as other clients' does
        size = 1 + varint_bytes(delta) + varint_bytes(taken)
        size += field_bytes(key, "a key")
        size += field_bytes(value, "a value")
        size += known.size
        if size > MOST_BYTES - HEAD_BYTES - 5:
            raise OverflowError("a record is longer than Kafka's format takes")
        needed = used + varint_bytes(size) + size
        if taken and needed >= limit:
            break
        if needed > room:
            # Records are much alike: what is written tells how much room the rest will need.
            wanted = <double>(needed - HEAD_BYTES) / (taken + 1) * count
            room = max(needed, <Py_ssize_t>min(wanted * 1.125 + HEAD_BYTES, <double>limit))
            PyByteArray_Resize(batch, room)
        at = put_varint(<uint8_t*>PyByteArray_AS_STRING(batch) + used, size)
        at[0] = 0
        at = put_varint(at + 1, delta)
        at = put_varint(at, taken)
        at = put_field(at, key)
        at = put_field(at, value)
        if known.headers == NULL:
            known.at = at - <uint8_t*>PyByteArray_AS_STRING(batch)
            put_headers(at, headers)
            known.headers = its_headers
        else:
            memcpy(at, PyByteArray_AS_STRING(batch) + known.at, known.size)
        latest = max(latest, timestamp)
        used = needed
        taken += 1
    PyByteArray_Resize(batch, used)
    return batch, taken, first, latest


cdef class Unpacker:
    """Takes the records of a batch apart, in order, some at a time.

    Args:
        records: what follows the batch's head, not compressed.
        count: how many there are, as its head says.
        base_offset: what their offsets are counted from.
        base_ms: what their timestamps are counted from.
        appended_ms: the timestamp of all of them, where the broker has set it; else None.
    """

    cdef const uint8_t[::1] records
    cdef Py_ssize_t at
    cdef Py_ssize_t left
    cdef int64_t base_offset
    cdef int64_t base_ms
    cdef object appended_ms

    def __init__(
        self,
        const uint8_t[::1] records not None,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t base_ms,
        appended_ms=None,
    ):
        self.records = records
        self.at = 0
        self.left = count
        self.base_offset = base_offset
        self.base_ms = base_ms
        self.appended_ms = appended_ms

    def take(self, Py_ssize_t most, int64_t wanted):
        """The next records, column by column.

        Args:
            most: of them, at the most.
            wanted: an offset; those below it are left out, and those not above one before them.

        Returns:
            Offsets, timestamps, keys, values and headers: lists of equal length. None where there
            are no more.

        Raises:
            ValueError: these are no records.
        """
        cdef list offsets = [], timestamps = [], keys = [], values = [], headers = []
        cdef const uint8_t* start = &self.records[0] if self.records.shape[0] else NULL
        cdef const uint8_t* end = start + self.records.shape[0]
        cdef const uint8_t* at = start + self.at
        cdef const uint8_t* its_end
        cdef int64_t size, time, place, offset
        cdef Py_ssize_t taken = 0
        cdef object key, value, its_headers
        cdef int64_t moment, moment_before = 0
        cdef object timestamp = None  # many records have that of the one before: one number for all
        while self.left > 0 and taken < most:
            at = get_varint(at, end, &size)
            if size < 1 or size > end - at:
                raise ValueError(f"a record of {size} bytes, and {end - at} are left")
            its_end = at + size
            at = get_varint(at + 1, its_end, &time)
            at = get_varint(at, its_end, &place)
            offset = <int64_t>(<uint64_t>self.base_offset + <uint64_t>place)
            if offset < wanted:
                at = its_end
            else:
                key = get_field(&at, its_end)
                value = get_field(&at, its_end)
                its_headers = get_headers(&at, its_end)
                if at != its_end:
                    raise ValueError(f"a record of {size} bytes is {its_end - at} too long")
                offsets.append(offset)
                moment = <int64_t>(<uint64_t>self.base_ms + <uint64_t>time)
                if self.appended_ms is not None:
                    timestamp = self.appended_ms
                elif timestamp is None or moment != moment_before:
                    timestamp = moment_before = moment
                timestamps.append(timestamp)
                keys.append(key)
                values.append(value)
                headers.append(its_headers)
                taken += 1
                wanted = offset + 1
            self.left -= 1
            self.at = at - start
        if self.left <= 0 and at != end:
            raise ValueError(f"{end - at} bytes follow the last record")
        if taken:
            return offsets, timestamps, keys, values, headers

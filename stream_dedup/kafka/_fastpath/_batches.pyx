# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""Packs and unpacks the records of a Kafka batch, all of them in one call.

aiokafka does the same record by record; property tests compare the two. A batch of format 2 is a
head of 61 bytes, which aiokafka writes and reads, followed by its records:

    length of the rest          varint
    attributes                  one byte, 0
    timestamp - the first's     varint
    position in the batch       varint
    key, value                  length as a varint (-1: none) and the bytes
    number of headers           varint
    each header's name, value   as key and value

A varint is an integer in zig-zag order (0, -1, 1, -2, …), seven bits a byte, the lowest first; the
highest bit is set in all bytes but the last. So 300 is 600 in zig-zag order: d8 04.

Each record is packed in two passes. The first checks every type and length and adds up the size;
the second writes, and cannot fail.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char*, Py_ssize_t)
    int PyByteArray_Resize(object, Py_ssize_t) except -1
    char* PyByteArray_AS_STRING(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PySequence_Fast(object, const char*)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject* PySequence_Fast_GET_ITEM(object, Py_ssize_t)  # borrowed

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    #define CRC_TARGET __attribute__((target("sse4.2")))
    #define CRC_WORD(crc, word) _mm_crc32_u64((crc), (word))
    #define CRC_BYTE(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
    static int has_crc32c(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define CRC_TARGET
    #define CRC_WORD(crc, word) __crc32cd((uint32_t)(crc), (word))
    #define CRC_BYTE(crc, byte) __crc32cb((uint32_t)(crc), (byte))
    static int has_crc32c(void) { return 1; }
    #else
    #define CRC_TARGET
    #define CRC_WORD(crc, word) (crc)
    #define CRC_BYTE(crc, byte) (crc)
    static int has_crc32c(void) { return 0; }
    #endif
    CRC_TARGET static uint32_t crc32c_of(const uint8_t* at, size_t left) {
        uint64_t crc = 0xFFFFFFFFu, word;
        for (; left >= 8; left -= 8, at += 8) {
            memcpy(&word, at, 8);
            crc = CRC_WORD(crc, word);
        }
        for (; left; left--, at++)
            crc = CRC_BYTE(crc, *at);
        return (uint32_t)crc ^ 0xFFFFFFFFu;
    }
    """
    int has_crc32c() nogil
    uint32_t crc32c_of(const uint8_t* at, size_t left) nogil

HAS_CRC32C = has_crc32c() != 0
"""Whether the processor has an instruction for `crc32c`."""

FORMAT = 2
"""The format of batches since Kafka 0.11, with headers and transactions."""

cdef enum:
    HEAD_BYTES = 61
    # Memory that a header takes as Python objects, though two bytes may encode it.
    HEADER_COST = 100
    # Most headers of a record: a few MB of objects. A record in real use has a few dozen.
    MOST_HEADERS = 1 << 16
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
    """Check headers, and return the bytes that they take, including their number."""
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
        # The name keeps its encoded form since the first pass: this cannot fail.
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
    """Read the length of a field; -1 for none."""
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
    if count > MOST_HEADERS:
        raise ValueError(f"{count} headers, more than {MOST_HEADERS}")
    headers = []
    for _ in range(count):
        size = get_size(at, end)
        if size < 0:
            raise ValueError("a header has no name")
        at[0] += size
        # As in Java's client: a name that is not UTF-8 must not stop the consumer.
        name = PyUnicode_DecodeUTF8(<const char*>at[0] - size, size, b"replace")
        headers.append((name, get_field(at, end)))
    return headers


def crc32c(const uint8_t[::1] data not None):
    """Compute the checksum of bytes; only where `HAS_CRC32C`.

    It takes a fifth of the time of the driver's, which computes it by tables.
    """
    if not HAS_CRC32C:
        raise RuntimeError("the processor has no instruction for CRC-32C")
    return crc32c_of(&data[0], data.shape[0]) if data.shape[0] else 0


cdef enum:
    PACKED_BITS = 10
    PACKED = 1 << PACKED_BITS

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15

cdef struct Packed:
    PyObject* headers  # held by their column; NULL for none
    Py_ssize_t at  # their position in the packed bytes
    Py_ssize_t size


def pack(
    list timestamps not None,
    list keys not None,
    list values not None,
    list all_headers not None,
    Py_ssize_t limit,
):
    """Pack records until the batch is full; the first one is always taken.

    Args:
        timestamps: the records' timestamps in milliseconds.
        keys: bytes or None for each record.
        values: bytes or None for each record.
        all_headers: a sequence of tuples (name, value) for each record. Sequences that are the same
            object must have equal content throughout the call.
        limit: bytes that the whole batch, with its head, stays below.

    Returns:
        The batch with an empty head; the number of records that it took; the timestamp of the
        first; the latest timestamp.

    Raises:
        TypeError: a field has a wrong type.
        ValueError: the columns are not of equal length.
        UnicodeEncodeError: a header's name cannot be encoded.
        OverflowError: a record is longer, or a timestamp larger, than Kafka's format allows.
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
        with cython.boundscheck(True):  # iterating over headers may run any code
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
            # Records are of similar size: reserve what the rest needs at the present average.
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
    """Unpacks the records of a batch in order, a number of them at a time.

    Args:
        records: the bytes after the batch's head, decompressed.
        count: the number of records, from the head.
        base_offset: the offset that theirs are relative to.
        base_ms: the timestamp that theirs are relative to.
        appended_ms: the timestamp of all records, if the broker has set it; else None.
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

    def take(self, Py_ssize_t most, int64_t wanted, Py_ssize_t most_bytes=1 << 62):
        """Unpack the next records into columns.

        Args:
            most: the largest number of records to return.
            most_bytes: with the record that reaches this size, no more are returned.
            wanted: records below this offset are skipped, as are those whose offset is not above
                that of the record before.

        Returns:
            Offsets, timestamps, keys, values and headers: lists of equal length. None if there are
            no more records.

        Raises:
            ValueError: the next record is malformed, or bytes follow the last one.
        """
        cdef list offsets = [], timestamps = [], keys = [], values = [], headers = []
        cdef const uint8_t* start = &self.records[0] if self.records.shape[0] else NULL
        cdef const uint8_t* end = start + self.records.shape[0]
        cdef const uint8_t* at = start + self.at
        cdef const uint8_t* its_end
        cdef int64_t size, time, place, offset
        cdef Py_ssize_t taken = 0, taken_bytes = 0
        cdef object key, value, its_headers
        cdef int64_t moment, moment_before = 0
        cdef object timestamp = None  # consecutive equal timestamps share one object
        try:
            while self.left > 0 and taken < most and taken_bytes < most_bytes:
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
                    taken_bytes += size + HEADER_COST * len(its_headers)
                    wanted = offset + 1
                self.left -= 1
                self.at = at - start
        except ValueError:
            if not taken:  # else those are returned first
                raise
        if taken:
            return offsets, timestamps, keys, values, headers
        if self.left <= 0 and at != end:
            raise ValueError(f"{end - at} bytes follow the last record")

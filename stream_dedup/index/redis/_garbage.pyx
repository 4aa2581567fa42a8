# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""What closed clusters have left, packed natively; see `garbage`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from stream_dedup.clustering import learning as _learning
from stream_dedup.index.redis import layouts as _layouts

from stream_dedup.tables._bytes cimport taken

cdef enum:
    MOST = 512  # keys of posting lists of a cluster (`learning.MAX_POSTING_LISTS`)
    ID_BYTES = 8
    GROUP_BYTES = 4
    EXACT_BYTES = 8
    KEY_BYTES = 8
    PIECE_BYTES = 10  # id(8), number of posting lists(2)
    DIGITS = 20

assert _layouts.PIECE.struct.size == PIECE_BYTES
assert _layouts.ID_BYTES == ID_BYTES and _layouts.GROUP_BYTES == GROUP_BYTES
assert _layouts.EXACT_BYTES == EXACT_BYTES and _layouts.KEY_BYTES == KEY_BYTES
assert _learning.MAX_POSTING_LISTS == MOST

cdef uint64_t GROUP_FACTOR = _layouts.GROUP_FACTOR
cdef bytes HEXADECIMAL = b"0123456789abcdef"

cdef struct Piece:
    const char* start  # its id is there
    const char* keys  # keys that are left
    Py_ssize_t keys_left
    const char* group
    const char* names  # those that are left
    Py_ssize_t names_left
    uint64_t spread


def pack_garbage(pieces, shard, layout, arrange, Py_ssize_t call_work):
    """See `garbage.reference_pack_garbage`."""
    cdef bytes owner = shard.prefixes.owner, exact = shard.prefixes.exact
    cdef bytes table = shard.prefixes.table, prefix = shard.postings, packed
    cdef Py_ssize_t head = layout.names_at, size = layout.name_bytes, width = layout.width // 8
    cdef Py_ssize_t name_work = layout.name_work, room = call_work, names, count, place
    cdef int exact_shift = layout.exact_shift, posting_shift = layout.posting_shift
    cdef Piece piece
    cdef const char* first  # the name of the representative
    cdef const char* raw
    cdef const char* fingerprint
    cdef list keys = [], arguments = [], slices, fields, calls = []
    cdef bint is_last
    for packed in pieces:
        if packed is None:
            raise TypeError("a piece is bytes, not None")
        unpack(packed, head, size, &piece)
        first = piece.names
        while True:
            names = min(room // name_work, piece.names_left)
            room -= names * name_work
            count = min(room, piece.keys_left) if names == piece.names_left else 0
            room -= count
            slices, fields = [], []
            find_slices(&piece, count, prefix, posting_shift, slices, fields)
            is_last = names == piece.names_left and count == piece.keys_left
            keys.append(cluster_key(owner, packed))
            arguments += (packed, names, int(is_last), len(slices))
            for place in range(names):
                raw = piece.names + place * size
                keys.append(slice_key(exact, shifted(taken(raw, EXACT_BYTES) ^ piece.spread, exact_shift)))
                fingerprint, members = raw + EXACT_BYTES, b""
                if raw == first and head > GROUP_BYTES:  # keys of bands
                    fingerprint = piece.group + GROUP_BYTES
                elif size - EXACT_BYTES - 1 < width:
                    fingerprint = NULL
                if fingerprint is not NULL and raw[size - 1] == 1:
                    found, members = arrange(
                        int.from_bytes(fingerprint[:width], "big"), taken(piece.group, GROUP_BYTES),
                        taken(piece.start, ID_BYTES), table,
                    )
                    keys += found
                name = PyBytes_FromStringAndSize(NULL, GROUP_BYTES + size)
                memcpy(PyBytes_AS_STRING(name), piece.group, GROUP_BYTES)
                memcpy(PyBytes_AS_STRING(name) + GROUP_BYTES, raw, size)
                arguments.append(name)
                arguments.append(members)
            keys += slices
            arguments += fields
            piece.names += names * size
            piece.names_left -= names
            piece.keys += count * KEY_BYTES
            piece.keys_left -= count
            if room < name_work:
                calls.append((keys, arguments))
                keys, arguments = [], []
                room = call_work
            if is_last:
                break
    if keys:
        calls.append((keys, arguments))
    return calls


cdef void unpack(bytes packed, Py_ssize_t head, Py_ssize_t size, Piece* piece) noexcept:
    cdef Py_ssize_t length = PyBytes_GET_SIZE(packed), names_at
    piece.start = PyBytes_AS_STRING(packed)
    piece.keys = piece.group = piece.names = piece.start
    piece.keys_left = piece.names_left = 0
    piece.spread = 0
    if length < PIECE_BYTES:
        return
    names_at = PIECE_BYTES + KEY_BYTES * <Py_ssize_t>taken(piece.start + ID_BYTES, 2)
    if length < names_at + head or names_at > PIECE_BYTES + KEY_BYTES * MOST:
        return
    piece.keys = piece.start + PIECE_BYTES
    piece.keys_left = (names_at - PIECE_BYTES) // KEY_BYTES
    piece.group = piece.start + names_at
    piece.spread = taken(piece.group, GROUP_BYTES) * GROUP_FACTOR
    piece.names = piece.group + head
    piece.names_left = (length - names_at - head) // size


cdef int find_slices(
    Piece* piece, Py_ssize_t count, bytes prefix, int shift, list names, list packed
) except -1:
    """Append the slices of the next posting lists, and for each the fields of its lists."""
    cdef uint64_t slices[MOST]
    cdef char fields[MOST * (GROUP_BYTES + KEY_BYTES)]
    cdef const char* keys = piece.keys
    cdef Py_ssize_t place, other, used
    for place in range(count):
        slices[place] = shifted(taken(keys + KEY_BYTES * place, KEY_BYTES) ^ piece.spread, shift)
    for place in range(count):
        for other in range(place):
            if slices[other] == slices[place]:
                break
        else:
            used = 0
            for other in range(place, count):
                if slices[other] == slices[place]:
                    memcpy(fields + used, piece.group, GROUP_BYTES)
                    memcpy(fields + used + GROUP_BYTES, keys + KEY_BYTES * other, KEY_BYTES)
                    used += GROUP_BYTES + KEY_BYTES
            names.append(slice_key(prefix, slices[place]))
            packed.append(fields[:used])
    return 0


cdef inline uint64_t shifted(uint64_t number, int shift) noexcept nogil:
    return number >> shift if shift < 64 else 0


cdef bytes slice_key(bytes prefix, uint64_t number):
    """A prefix, and a number in decimal digits."""
    cdef char digits[DIGITS]
    cdef int at = DIGITS
    while True:
        at -= 1
        digits[at] = <char>(c"0" + number % 10)
        number //= 10
        if not number:
            break
    return with_end(prefix, digits + at, DIGITS - at)


cdef bytes cluster_key(bytes prefix, bytes packed):
    """A prefix, and the id of a piece in hexadecimal digits."""
    cdef char digits[2 * ID_BYTES]
    cdef Py_ssize_t size = min(ID_BYTES, PyBytes_GET_SIZE(packed)), place
    cdef uint8_t byte
    for place in range(size):
        byte = <uint8_t>PyBytes_AS_STRING(packed)[place]
        digits[2 * place] = PyBytes_AS_STRING(HEXADECIMAL)[byte >> 4]
        digits[2 * place + 1] = PyBytes_AS_STRING(HEXADECIMAL)[byte & 15]
    return with_end(prefix, digits, 2 * size)


cdef bytes with_end(bytes prefix, const char* end, Py_ssize_t size):
    cdef Py_ssize_t before = PyBytes_GET_SIZE(prefix)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, before + size)
    memcpy(PyBytes_AS_STRING(key), PyBytes_AS_STRING(prefix), before)
    memcpy(PyBytes_AS_STRING(key) + before, end, size)
    return key

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""The keys of patterns, packed natively; see `one_off`.

Keys that are taken are in a hash set with open addressing: they are hashes, so some of their bits
are the place.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from stream_dedup.clustering import learning as _learning
from stream_dedup.fingerprint import combinations as _combinations
from stream_dedup.fingerprint import one_off as _one_off
from stream_dedup.index.redis import layouts as _layouts

cdef enum:
    KEY_BYTES = 8
    MOST = 512  # keys of a pattern, and of a cluster (`learning.MAX_POSTING_LISTS`)
    ANCHORS = 3
    FIELD_BYTES = 4 + KEY_BYTES
    PATTERN_BYTES = 7
    WORDS_BITS = 6
    COUNTED_STEP = 2
    LISTS_BYTES = KEY_BYTES + ANCHORS * FIELD_BYTES
    DIGITS = 20
    SLICE_BYTES = 2 + DIGITS
    PATTERN_KEY_BYTES = 27  # field(12), posting(12), around(1), assigned(1), place(1)

cdef uint64_t SHAPE = ~<uint64_t>0xFF  # the other bits of what says how many words there are
cdef uint64_t GAPS = _one_off.ALL_GAPS
cdef uint64_t COMBINATION_FACTOR = _combinations.COMBINATION_FACTOR
cdef uint64_t[ANCHORS] WORD_FACTORS = _combinations.WORD_FACTORS[:ANCHORS]
cdef uint64_t SUM_MASK = (<uint64_t>1 << <int>_combinations.SUM_BITS) - 1

assert _combinations.ANCHORS == ANCHORS
assert _layouts.PATTERN.struct.size == PATTERN_BYTES
assert _layouts.LISTS.struct.size == LISTS_BYTES
assert _layouts.PATTERN_KEY.struct.size == PATTERN_KEY_BYTES
assert _learning.MAX_POSTING_LISTS == MOST
assert (_one_off.WORDS_BITS, _one_off.COUNTED_STEP) == (WORDS_BITS, COUNTED_STEP)

cdef uint64_t GROUP_FACTOR = _layouts.GROUP_FACTOR
cdef uint8_t OWN = _learning.OWN, FIRST_NUMBER = _layouts.FIRST_NUMBER


def pack_patterns(rows, Py_ssize_t shift):
    """See `one_off.reference_pack_patterns`.

    Raises:
        ValueError: a pattern has more keys than one has, or they are cut off.
    """
    cdef Py_ssize_t size = 0, keys, total = 0, room = 8
    cdef bytes one_off, packed
    cdef uint64_t owner
    cdef uint32_t group
    cdef uint64_t* taken
    cdef char* to
    rows = list(rows)  # it is gone through twice
    for one_off, _, _ in rows:
        if one_off is None:
            raise TypeError("the keys of a pattern are bytes")
        keys = PyBytes_GET_SIZE(one_off) // 16
        if keys > MOST or PyBytes_GET_SIZE(one_off) % 16:
            raise ValueError(f"{len(one_off)} bytes are not the keys of a pattern")
        size += PATTERN_BYTES + LISTS_BYTES + keys * (KEY_BYTES + SLICE_BYTES + PATTERN_KEY_BYTES)
        total += keys
    while room < 2 * total:
        room *= 2
    taken = <uint64_t*>calloc(room + 1, sizeof(uint64_t))
    if taken is NULL:
        raise MemoryError
    try:
        packed = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(packed)
        for one_off, group, owner in rows:
            to = put_pattern(
                to, PyBytes_AS_STRING(one_off), PyBytes_GET_SIZE(one_off) // 16, group, owner,
                <int>shift, taken, <uint64_t>room - 1,
            )
        return packed[:to - PyBytes_AS_STRING(packed)]
    finally:
        free(taken)


cdef char* put_pattern(
    char* to, const char* one_off, Py_ssize_t count, uint32_t group, uint64_t owner, int shift,
    uint64_t* taken, uint64_t mask,
) noexcept nogil:
    cdef uint64_t keys[MOST]
    cdef uint64_t slices[MOST]
    cdef uint64_t spread = group * GROUP_FACTOR, about, words
    cdef Py_ssize_t place, other, in_slice
    cdef bint plain = True
    cdef char* head = to
    cdef char* counted
    if count == 0:
        memset(to, 0, PATTERN_BYTES + LISTS_BYTES)
        return to + PATTERN_BYTES + LISTS_BYTES
    to += PATTERN_BYTES + LISTS_BYTES
    for place in range(count):
        memcpy(&keys[place], one_off + 16 * place, 8)
        to = put(to, keys[place], 8)
        keys[place] ^= spread
        slices[place] = keys[place] >> shift if shift < 64 else 0
        if not take(taken, mask, keys[place]):
            plain = False
    memcpy(&words, one_off + 8, 8)
    head[0] = <char>(words & (1 << WORDS_BITS) - 1)
    head[1] = <char>((words & 0xFF) >> WORDS_BITS) * COUNTED_STEP
    head[2], head[3], head[4] = plain, 0, <char>count
    for place in range(count):
        for other in range(place):
            if slices[other] == slices[place]:
                break
        else:
            head[3] += 1
            to = put_digits(to, slices[place])
            counted = to
            to += 1
            in_slice = 0
            for other in range(place, count):
                if slices[other] == slices[place]:
                    in_slice += 1
                    about = OWN | (words >> 8 & GAPS) << 32
                    if other:
                        memcpy(&about, one_off + 16 * other + 8, 8)
                    to = put(put(to, group, 4), keys[other] ^ spread, 8)
                    to[0] = <char>(<uint8_t>about + FIRST_NUMBER)
                    to = put(put(to + 1, about >> 32, 3), owner, 8)
                    to[0], to[1], to[2] = <char>(about >> 8), <char>(about >> 16 & 1), <char>other
                    to += 3
            counted[0] = <char>in_slice
    head = put(put(head + 5, to - head - PATTERN_BYTES - LISTS_BYTES, 2), words & SHAPE, 8)
    put_lists(head, one_off, count, group, words & SHAPE)
    return to


cdef void put_lists(
    char* to, const char* one_off, Py_ssize_t count, uint32_t group, uint64_t shape
) noexcept nogil:
    """See `combinations.list_keys`."""
    cdef uint64_t values[ANCHORS]
    cdef uint64_t about
    cdef Py_ssize_t place
    for place in range(ANCHORS):
        values[place] = 0
    for place in range(1, min(count, ANCHORS + 1)):
        memcpy(&about, one_off + 16 * place + 8, 8)
        if (about & 0xFF) < ANCHORS:
            values[about & 0xFF] = about >> 32
    for place in range(ANCHORS):
        about = shape - (place + 1) * COMBINATION_FACTOR + values[place] * WORD_FACTORS[place]
        to = put(put(to, group, 4), (shape & ~SUM_MASK) | (about & SUM_MASK), 8)


cdef bint take(uint64_t* taken, uint64_t mask, uint64_t key) noexcept nogil:
    """Take a key; whether it was free. Zero stands for an empty place and has one at the end."""
    cdef uint64_t at = key & mask if key else mask + 1
    cdef uint64_t mark = key if key else 1
    while taken[at] != 0:
        if taken[at] == mark:
            return False
        at = (at + 1) & mask
    taken[at] = mark
    return True


cdef inline char* put(char* to, uint64_t value, int size) noexcept nogil:
    """The low bytes of a number, eight at most, big-endian."""
    cdef int place
    for place in range(size):
        to[place] = <char>(value >> 8 * (size - 1 - place))
    return to + size


cdef inline char* put_digits(char* to, uint64_t number) noexcept nogil:
    """A number in decimal digits, behind their count."""
    cdef int digits = 1, place
    cdef uint64_t rest = number
    while rest > 9:
        rest //= 10
        digits += 1
    to[0] = <char>digits
    for place in range(digits, 0, -1):
        to[place] = <char>(c"0" + number % 10)
        number //= 10
    return to + 1 + digits

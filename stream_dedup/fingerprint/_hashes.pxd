# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Hashes and arrays of them, for the kernel: what knows nothing of tokens, lines and recipes.

MurmurHash3 and SipHash, growing buffers, sorting, the sketches of bands, and the votes of a simhash.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort, realloc
from libc.string cimport memset

cdef enum:
    BAND_SKETCH = 128
    FEW_HASHES = 256
    BUCKETS = 256

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    // The compiler turns the inner loops into vector instructions. Those that every processor of the
    // family has are a third as fast as AVX2, and that is a third as fast as AVX-512; so these are
    // compiled too, and chosen at run time.
    #define MIX(key)                                                                               \
        key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDu;                                             \
        key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53u;                                             \
        key ^= key >> 33;
    #define BAND_KEYS(name)                                                                        \
    static void name(const uint32_t* x, size_t count, const uint32_t* a, const uint32_t* b,        \
                     uint32_t* keys) {                                                             \
        uint32_t out[48];                                                                          \
        for (int j = 0; j < 48; j++) out[j] = UINT32_MAX;                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            uint32_t one = x[i];                                                                   \
            for (int j = 0; j < 48; j++) {                                                         \
                uint32_t value = a[j] * one + b[j];                                                \
                out[j] = value < out[j] ? value : out[j];                                          \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; j < 16; j++) {                                                             \
            uint64_t key = out[j] | (uint64_t)out[16 + j] << 32;                                   \
            MIX(key)                                                                               \
            key ^= out[32 + j];                                                                    \
            MIX(key)                                                                               \
            keys[j] = (uint32_t)(key >> 32);                                                       \
        }                                                                                          \
    }

    #define SIP_ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
    #define SIP_ROUND                                                                              \
        v0 += v1; v2 += v3; v1 = SIP_ROTATE(v1, 13) ^ v0; v3 = SIP_ROTATE(v3, 16) ^ v2;            \
        v0 = SIP_ROTATE(v0, 32) + v3; v2 += v1;                                                    \
        v3 = SIP_ROTATE(v3, 21) ^ v0; v1 = SIP_ROTATE(v1, 17) ^ v2; v2 = SIP_ROTATE(v2, 32);
    #define SHORT_HASHES(name)                                                                     \
    static void name(const uint64_t* __restrict last, size_t count,                                \
                     const uint64_t* __restrict key, uint64_t salt, uint32_t* __restrict out) {    \
        uint64_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3];                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            uint64_t v0 = k0, v1 = k1, v2 = k2, v3 = k3 ^ last[i];                                 \
            SIP_ROUND                                                                              \
            v0 ^= last[i]; v2 ^= 0xFF;                                                             \
            SIP_ROUND SIP_ROUND SIP_ROUND                                                          \
            out[i] = (uint32_t)((v0 ^ v1 ^ v2 ^ v3 ^ salt) >> 32);                                 \
        }                                                                                          \
    }

    #define STARTS_ONES 0x0101010101010101u
    // Replaces how many are in each bucket by where it begins: eight sums by a multiplication.
    static void starts_of(uint8_t* counts) {
        uint64_t before = 0, word, sums;
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        for (int i = 0; i < 256; i++) {
            word = counts[i];
            counts[i] = (uint8_t)before;
            before += word;
        }
        (void)sums;
    #else
        for (int i = 0; i < 256; i += 8) {
            memcpy(&word, counts + i, 8);
            sums = word * STARTS_ONES;
            word = (sums << 8) + before * STARTS_ONES;
            memcpy(counts + i, &word, 8);
            before += sums >> 56;
        }
    #endif
    }
    #define EXCHANGE(from, to, first)                                                              \
        for (size_t i = 0; i < padded; i += 16)                                                    \
            for (size_t j = 0; j < 16; j++) {                                                      \
                uint32_t before = from[i + j - 1], here = from[i + j], next = from[i + j + 1];     \
                uint32_t low = here < next ? here : next, high = here > before ? here : before;    \
                to[i + j] = j % 2 == first ? low : high;                                           \
            }
    // Less than 256 hashes: counted by their first bits, and so put into 256 buckets; then neighbours
    // are exchanged, the even ones with those behind them and the odd ones in turns, until all are in
    // order. Repeats stay where there are `few`. The number of turns alone depends on the hashes: they
    // are some half of what the largest bucket holds.
    #define SORT_UP_TO_255(name)                                                                   \
    static size_t name(const uint32_t* x, size_t count, uint64_t scale, size_t few,               \
                       uint32_t* out) {                                                            \
        uint32_t one[1 + 256 + 1], other[1 + 256 + 1];                                             \
        uint32_t *a = one + 1, *b = other + 1;                                                     \
        uint8_t starts[256] = {0};                                                                 \
        size_t padded = (count + 15) / 16 * 16, kept = 0;                                          \
        for (size_t i = 0; i < count; i++) starts[x[i] * scale >> 32]++;                           \
        starts_of(starts);                                                                         \
        for (size_t i = 0; i < count; i++) a[starts[x[i] * scale >> 32]++] = x[i];                 \
        for (size_t i = count; i <= padded; i++) a[i] = UINT32_MAX;                                \
        a[-1] = b[-1] = 0;                                                                         \
        b[padded] = UINT32_MAX;                                                                    \
        for (;;) {                                                                                 \
            uint32_t descends = 0;                                                                 \
            for (size_t i = 0; i < padded; i += 16)                                                \
                for (size_t j = i; j < i + 16; j++) descends |= a[j] > a[j + 1];                   \
            if (!descends) break;                                                                  \
            EXCHANGE(a, b, 0)                                                                      \
            EXCHANGE(b, a, 1)                                                                      \
        }                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            out[kept] = a[i];                                                                      \
            kept += count <= few || i + 1 == count || a[i] != a[i + 1];                            \
        }                                                                                          \
        return kept;                                                                               \
    }
    BAND_KEYS(keys_by_any)
    SHORT_HASHES(short_by_any)
    SORT_UP_TO_255(sort_by_any)
    #if defined(__x86_64__) && defined(__GNUC__)
    #if defined(__clang__)  // it takes the longest vectors there are; what it does not know it ignores
    #define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw")))
    #else
    #define AVX512 __attribute__((target(                                                          \
        "avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")))
    #endif
    #define AVX2 __attribute__((target("avx2")))
    AVX2 BAND_KEYS(keys_by_avx2)
    AVX2 SHORT_HASHES(short_by_avx2)
    AVX2 SORT_UP_TO_255(sort_by_avx2)
    AVX512 BAND_KEYS(keys_by_avx512)
    AVX512 SHORT_HASHES(short_by_avx512)
    AVX512 SORT_UP_TO_255(sort_by_avx512)
    #define HAS_AVX512 (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")    \
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    static void keys_of(const uint32_t* x, size_t count, const uint32_t* a, const uint32_t* b,
                        uint32_t* keys) {
        if (HAS_AVX512) keys_by_avx512(x, count, a, b, keys);
        else if (__builtin_cpu_supports("avx2")) keys_by_avx2(x, count, a, b, keys);
        else keys_by_any(x, count, a, b, keys);
    }
    static void short_hashes(const uint64_t* last, size_t count, const uint64_t* key,
                             uint64_t salt, uint32_t* out) {
        if (HAS_AVX512) short_by_avx512(last, count, key, salt, out);
        else if (__builtin_cpu_supports("avx2")) short_by_avx2(last, count, key, salt, out);
        else short_by_any(last, count, key, salt, out);
    }
    static size_t sort_up_to_255(const uint32_t* x, size_t count, uint64_t scale, size_t few,
                                 uint32_t* out) {
        if (HAS_AVX512) return sort_by_avx512(x, count, scale, few, out);
        if (__builtin_cpu_supports("avx2")) return sort_by_avx2(x, count, scale, few, out);
        return sort_by_any(x, count, scale, few, out);
    }
    #else
    #define keys_of keys_by_any
    #define short_hashes short_by_any
    #define sort_up_to_255 sort_by_any
    #endif
    #define DIGITS_HASH(text) (((text) ^ ((text) >> 29)) * 0x9E3779B97F4A7C15u)
    // Copies a text with a 0 for each digit, and zeros up to a multiple of 16 bytes; hashes the copy.
    static uint64_t without_digits(const uint8_t* text, size_t length, uint8_t* __restrict out) {
        uint64_t a = length, b = 0, x, y;
        for (size_t i = 0; i < length; i++)
            out[i] = (uint8_t)(text[i] - '0') < 10 ? '0' : text[i];
        memset(out + length, 0, 16);
        for (size_t i = 0; i < length; i += 16) {
            memcpy(&x, out + i, 8);
            memcpy(&y, out + i + 8, 8);
            a = DIGITS_HASH(a ^ x);
            b = DIGITS_HASH(b ^ y);
        }
        return DIGITS_HASH(a ^ (b << 32 | b >> 32));
    }
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define take_turn(flag) (_InterlockedExchange(flag, 1) == 0)
    #define end_turn(flag) _InterlockedExchange(flag, 0)
    static unsigned lowest_bit(uint64_t x) { unsigned long i; _BitScanForward64(&i, x); return i; }
    #else
    #define take_turn(flag) (__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE) == 0)
    #define end_turn(flag) __atomic_store_n(flag, 0, __ATOMIC_RELEASE)
    #define lowest_bit(x) ((unsigned)__builtin_ctzll(x))
    #endif
    """
    unsigned lowest_bit(uint64_t value) noexcept nogil  # of a value that is not 0
    uint64_t without_digits(const uint8_t* text, size_t length, uint8_t* out) noexcept nogil
    bint take_turn(long* flag) noexcept nogil  # False if another thread has it
    void end_turn(long* flag) noexcept nogil
    # The 16 keys, each of the least a·x + b of three functions: those of the first come first.
    void keys_of(
        const uint32_t* x, size_t count, const uint32_t* a, const uint32_t* b, uint32_t* keys
    ) noexcept nogil
    # The upper halves of `sip` of texts of less than eight bytes, each given as the word that
    # `last_word` makes of it, with a salt.
    void short_hashes(
        const uint64_t* last, size_t count, const uint64_t* key, uint64_t salt, uint32_t* out
    ) noexcept nogil

    # Writes hashes in order; without repeats, unless they are `few` or less. Returns how many.
    # `scale` is 2^40 by one more than the largest that they may be, rounded down.
    size_t sort_up_to_255(
        const uint32_t* x, size_t count, uint64_t scale, size_t few, uint32_t* out
    ) noexcept nogil

cdef struct Hashes:
    uint64_t* at
    size_t count
    size_t room

cdef struct Hashes32:
    uint32_t* at
    size_t count
    size_t room

cdef struct Hashes16:
    uint16_t* at
    size_t count
    size_t room

cdef struct Pair:
    uint64_t low
    uint64_t high

cdef struct Secret:
    uint64_t v0, v1, v2, v3  # the state in which a hash begins


# ---------------------------------------------------------------- MurmurHash3 x64-128

cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline uint64_t finish(uint64_t x) noexcept nogil:
    x ^= x >> 33
    x *= <uint64_t>0xFF51AFD7ED558CCD
    x ^= x >> 33
    x *= <uint64_t>0xC4CEB9FE1A85EC53
    return x ^ (x >> 33)


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    # Compiles to one instruction on little-endian machines.
    return (<uint64_t>p[0] | <uint64_t>p[1] << 8 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 24
            | <uint64_t>p[4] << 32 | <uint64_t>p[5] << 40 | <uint64_t>p[6] << 48
            | <uint64_t>p[7] << 56)


cdef inline uint64_t load_tail(const uint8_t* p, size_t length) noexcept nogil:
    # 0 to 7 bytes, little-endian, without a branch: the 8 bytes that end with them. All texts are
    # contents of bytes objects, whose head of 32 bytes lies before them in the same memory, or have
    # 8 bytes of a buffer before them.
    return load64(p + length - 8) >> 8 >> 8 * (7 - length)


cdef inline Pair murmur(const uint8_t* p, size_t length, uint32_t seed) noexcept nogil:
    cdef uint64_t c1 = <uint64_t>0x87C37B91114253D5
    cdef uint64_t c2 = <uint64_t>0x4CF5AD432745937F
    cdef uint64_t h1 = seed
    cdef uint64_t h2 = seed
    cdef size_t left = length
    cdef Pair out
    while left >= 16:
        h1 ^= rotate(load64(p) * c1, 31) * c2
        h1 = (rotate(h1, 27) + h2) * 5 + 0x52DCE729
        h2 ^= rotate(load64(p + 8) * c2, 33) * c1
        h2 = (rotate(h2, 31) + h1) * 5 + 0x38495AB5
        p += 16
        left -= 16
    if left > 8:
        h2 ^= rotate(load_tail(p + 8, left - 8) * c2, 33) * c1
    if left:
        h1 ^= rotate((load64(p) if left >= 8 else load_tail(p, left)) * c1, 31) * c2
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    h1 = finish(h1)
    h2 = finish(h2)
    h1 += h2
    out.low = h1
    out.high = h2 + h1
    return out


# ---------------------------------------------------------------- SipHash-1-3; see `siphash`

cdef inline void sip_round(Secret* s) noexcept nogil:
    s.v0 += s.v1
    s.v2 += s.v3
    s.v1 = rotate(s.v1, 13) ^ s.v0
    s.v3 = rotate(s.v3, 16) ^ s.v2
    s.v0 = rotate(s.v0, 32) + s.v3
    s.v2 += s.v1
    s.v3 = rotate(s.v3, 21) ^ s.v0
    s.v1 = rotate(s.v1, 17) ^ s.v2
    s.v2 = rotate(s.v2, 32)


cdef inline void sip_word(Secret* s, uint64_t word) noexcept nogil:
    s.v3 ^= word
    sip_round(s)
    s.v0 ^= word


cdef inline uint64_t sip_finish(Secret* s, uint64_t last) noexcept nogil:
    sip_word(s, last)
    s.v2 ^= 0xFF
    sip_round(s)
    sip_round(s)
    sip_round(s)
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3


cdef inline uint64_t sip(const uint8_t* p, size_t length, const Secret* key) noexcept nogil:
    cdef Secret s = key[0]
    cdef size_t left = length
    while left >= 8:
        sip_word(&s, load64(p))
        p += 8
        left -= 8
    return sip_finish(&s, last_word(p, left, length))


cdef inline uint64_t last_word(const uint8_t* p, size_t left, size_t length) noexcept nogil:
    """Return the last word that is hashed: what is left of a text, and the text's length."""
    return load_tail(p, left) | <uint64_t>length << 56


cdef inline uint64_t sip_sequence(
    const uint64_t* at, size_t count, const Secret* key
) noexcept nogil:
    # Of the bytes of the hashes, little-endian: the same on every machine.
    cdef Secret s = key[0]
    cdef size_t i
    for i in range(count):
        sip_word(&s, at[i])
    return sip_sequence_end(&s, count)


cdef inline uint64_t sip_sequence_end(Secret* s, size_t count) noexcept nogil:
    return sip_finish(s, <uint64_t>count << 59)  # the length in bytes, modulo 256


# ---------------------------------------------------------------- growing buffers

cdef inline void* grown(void* at, size_t* room, size_t wanted, size_t size) except NULL nogil:
    """Make room for at least so many elements of a size, and for as many again."""
    cdef size_t more = 2 * wanted + 64
    cdef void* moved = realloc(at, more * size)
    if moved == NULL:
        with gil:
            raise MemoryError
    room[0] = more
    return moved


cdef inline int reserve_hashes(Hashes* hashes, size_t more) except -1 nogil:
    cdef size_t wanted = hashes.count + more
    if wanted > hashes.room:
        hashes.at = <uint64_t*>grown(hashes.at, &hashes.room, wanted, sizeof(uint64_t))
    return 0


cdef inline int push_hash(Hashes* hashes, uint64_t value) except -1 nogil:
    reserve_hashes(hashes, 1)
    hashes.at[hashes.count] = value
    hashes.count += 1
    return 0


cdef inline int reserve32(Hashes32* hashes, size_t more) except -1 nogil:
    cdef size_t wanted = hashes.count + more
    if wanted > hashes.room:
        hashes.at = <uint32_t*>grown(hashes.at, &hashes.room, wanted, sizeof(uint32_t))
    return 0


cdef inline int reserve16(Hashes16* hashes, size_t more) except -1 nogil:
    cdef size_t wanted = hashes.count + more
    if wanted > hashes.room:
        hashes.at = <uint16_t*>grown(hashes.at, &hashes.room, wanted, sizeof(uint16_t))
    return 0


cdef inline int by_value(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*>left)[0], b = (<const uint64_t*>right)[0]
    return (a > b) - (a < b)


cdef inline void sort_hashes(uint64_t* at, size_t count, int depth) noexcept nogil:
    # Quicksort, with insertion sort for short ranges, and the C library's sort where the pivots
    # fail. Its function call a comparison would take most of the kernel's time.
    cdef uint64_t pivot, value
    cdef size_t i, j
    while count > 24:
        if depth == 0:
            qsort(at, count, sizeof(uint64_t), by_value)
            return
        depth -= 1
        pivot = at[(count - 1) >> 1]
        i = 0
        j = count - 1
        while True:
            while at[i] < pivot:
                i += 1
            while at[j] > pivot:
                j -= 1
            if i >= j:
                break
            value = at[i]
            at[i] = at[j]
            at[j] = value
            i += 1
            j -= 1
        sort_hashes(at, j + 1, depth)
        at += j + 1
        count -= j + 1
    for i in range(1, count):
        value = at[i]
        j = i
        while j and at[j - 1] > value:
            at[j] = at[j - 1]
            j -= 1
        at[j] = value


cdef inline size_t sort_few(
    const Hashes32* hashes, uint64_t limit, Hashes32* table
) except? 0 nogil:
    """As `sort_least`, of less than `FEW_HASHES`; up to `BAND_SKETCH` keep their repeats."""
    table.count = 0
    reserve32(table, hashes.count + 1)
    return sort_up_to_255(
        hashes.at, hashes.count, (<uint64_t>BUCKETS << 32) // (limit + 1), BAND_SKETCH, table.at
    )


cdef inline size_t sort_least(const Hashes32* hashes, uint64_t limit, Hashes32* table) except? 0 nogil:
    """Write the distinct hashes, ascending, to the table's beginning; return how many.

    Keyed hashes are spread evenly up to the limit, so the size of each says roughly where it
    belongs in a sorted table. None is larger than the limit.
    """
    if hashes.count < FEW_HASHES:
        return sort_few(hashes, limit, table)
    cdef size_t room = 2 * hashes.count + 1, slot, i, count = 0, size
    cdef uint64_t scale = (<uint64_t>room << 32) // (limit + 1)
    cdef uint32_t value, other
    cdef bint zero = False
    size = room + hashes.count + 1
    table.count = 0
    reserve32(table, size + 1)
    memset(table.at, 0, (size + 1) * sizeof(uint32_t))
    cdef uint32_t* slots = table.at + 1  # before it is room for a zero
    for i in range(hashes.count):
        value = hashes.at[i]
        if value == 0:  # an empty slot's mark
            zero = True
            continue
        slot = value * scale >> 32
        while slots[slot] != 0:
            other = slots[slot]
            if other >= value:
                if other == value:
                    break
                slots[slot] = value
                value = other
            slot += 1
        slots[slot] = value
    count = zero
    for slot in range(size):  # without a branch, which would be a random one
        value = slots[slot]
        table.at[count] = value
        count += value != 0
    return count


cdef inline size_t pack_sketch(const uint32_t* least, size_t count, uint16_t* out) noexcept nogil:
    """Write the sketch of what `sort_least` found; return its length. See `tables.sketches`."""
    cdef uint32_t shift = 16
    cdef uint16_t value, last
    cdef size_t i, length = 2
    cdef bint is_cut = count > BAND_SKETCH
    if count == 0:
        return 0
    if is_cut:
        count = BAND_SKETCH
        shift = 0
        while least[count - 1] >> shift > 0xFFFF:
            shift += 1
    out[0] = 2 * shift + is_cut
    last = least[0] >> shift
    out[1] = last
    for i in range(1, count):
        value = least[i] >> shift
        out[length] = value
        length += value != last
        last = value
    return length


# ---------------------------------------------------------------- simhash by bit planes

cdef inline void vote(uint64_t* planes, uint64_t value, int64_t weight, int* height) noexcept nogil:
    # Adds `weight` to every counter whose bit is set in `value`: for each bit of the weight, a
    # ripple-carry addition that starts at the plane of that bit.
    cdef int plane, shift = 0
    cdef uint64_t carry, kept
    while weight:
        if weight & 1:
            carry = value
            plane = shift
            while carry:
                kept = planes[plane] & carry
                planes[plane] ^= carry
                carry = kept
                plane += 1
            if plane > height[0]:
                height[0] = plane
        weight >>= 1
        shift += 1


cdef inline uint64_t add3(uint64_t* low, uint64_t a, uint64_t b) noexcept nogil:
    # Adds two bits to one, 64 times side by side: the sum's low bits stay, its high bits return.
    cdef uint64_t apart = low[0] ^ a
    cdef uint64_t high = (low[0] & a) | (apart & b)
    low[0] = apart ^ b
    return high


cdef inline void vote_eight(uint64_t* planes, const uint64_t* v, int* height) noexcept nogil:
    # Eight votes of weight 1 through a tree of adders (Harley and Seal), so that only one carry
    # has to ripple instead of eight.
    cdef uint64_t two_a = add3(&planes[0], v[0], v[1])
    cdef uint64_t two_b = add3(&planes[0], v[2], v[3])
    cdef uint64_t four_a = add3(&planes[1], two_a, two_b)
    two_a = add3(&planes[0], v[4], v[5])
    two_b = add3(&planes[0], v[6], v[7])
    cdef uint64_t four_b = add3(&planes[1], two_a, two_b)
    cdef uint64_t eight = add3(&planes[2], four_a, four_b)
    if height[0] < 3:
        height[0] = 3
    vote(planes, eight, 8, height)


cdef inline uint64_t majority(const uint64_t* planes, int height, int64_t total) noexcept nogil:
    # The bits whose counter is above total / 2: counter > floor(total / 2).
    cdef int64_t half = total >> 1
    cdef uint64_t above = 0, equal = ~<uint64_t>0, threshold
    cdef int plane
    if half >> height:
        return 0
    for plane in range(height - 1, -1, -1):
        threshold = 0 - <uint64_t>((half >> plane) & 1)
        above |= equal & planes[plane] & ~threshold
        equal &= ~(planes[plane] ^ threshold)
    return above

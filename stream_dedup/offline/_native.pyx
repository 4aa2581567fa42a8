# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""The native kernel for whole files of fingerprints.

`reference` documents each function and class; `pairs` explains the algorithm.

A part of a table is permuted while it is filled (a few shifts a fingerprint), then sorted by its
prefix: a stable radix sort of ceil(p / 11) passes, two for a prefix of 16 bits. Words with equal
prefixes are then neighbours, and each is compared with those after it: one exclusive or, one bit
count. A permutation changes no distance, so only the pairs found are permuted back.

The comparison is compiled three times, for processors that count bits in vectors of eight words
(AVX-512 VPOPCNTDQ), one word at a time (POPCNT) or not at all; the choice is made when the module
is loaded. A block of 32 words without a hit, by far the most frequent case, costs no branch.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(address) __builtin_prefetch(address)
    #else
    #define prefetch(address) ((void)0)
    #endif

    typedef unsigned __int128 wide_t;

    #define APART64(a, b) __builtin_popcountll((a) ^ (b))
    #define APART128(a, b) (__builtin_popcountll((uint64_t)((a) ^ (b))) \
        + __builtin_popcountll((uint64_t)(((a) ^ (b)) >> 64)))

    /* Writes the indexes of the words within k bits of the query; returns how many there are. */
    #define NEAR(name, attributes, word, apart) \
    attributes static size_t name( \
        const word* words, size_t count, word query, int k, uint32_t* found) \
    { \
        size_t hits = 0, at = 0; \
        for (; at + 32 <= count; at += 32) { \
            int any = 0; \
            for (int i = 0; i < 32; i++) any += apart(words[at + i], query) <= k; \
            if (any) \
                for (int i = 0; i < 32; i++) { \
                    found[hits] = (uint32_t)(at + i); \
                    hits += apart(words[at + i], query) <= k; \
                } \
        } \
        for (; at < count; at++) { \
            found[hits] = (uint32_t)at; \
            hits += apart(words[at], query) <= k; \
        } \
        return hits; \
    }

    NEAR(near64_plain, , uint64_t, APART64)
    NEAR(near128_plain, , wide_t, APART128)

    static size_t (*near64)(const uint64_t*, size_t, uint64_t, int, uint32_t*) = near64_plain;
    static size_t (*near128)(const wide_t*, size_t, wide_t, int, uint32_t*) = near128_plain;

    #if defined(__x86_64__)
    NEAR(near64_popcnt, __attribute__((target("popcnt"))), uint64_t, APART64)
    NEAR(near128_popcnt, __attribute__((target("popcnt"))), wide_t, APART128)
    #define FEATURES "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt"
    #if defined(__clang__)  // it takes the longest vectors there are; what it does not know it ignores
    #define VECTORS __attribute__((target(FEATURES)))
    #else
    #define VECTORS __attribute__((target(FEATURES ",prefer-vector-width=512")))
    #endif
    NEAR(near64_vectors, VECTORS, uint64_t, APART64)

    static void choose_near(void)
    {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("popcnt")) {
            near64 = near64_popcnt;
            near128 = near128_popcnt;
        }
        if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bw")
                && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            near64 = near64_vectors;
    }
    #else
    static void choose_near(void) {}
    #endif

    /* Memory for tables that are read at random: in pages of 2 MB, where the system has them, a step to
       memory needs no second one to find it, and the first use of 512 pages costs as much as of two. */
    #define HUGE_PAGE ((size_t)1 << 21)
    #if defined(__linux__)
    #include <stdlib.h>
    #include <sys/mman.h>
    static void* table_memory(size_t size)
    {
        void* at = NULL;
        if (size < HUGE_PAGE) return malloc(size);
        if (posix_memalign(&at, HUGE_PAGE, size)) return NULL;
    #if defined(MADV_HUGEPAGE)
        madvise(at, size, MADV_HUGEPAGE);  /* without it all else stays the same */
    #endif
        return at;
    }
    #else
    #include <stdlib.h>
    #define table_memory malloc
    #endif
    """
    size_t HUGE_PAGE
    void* table_memory(size_t size) noexcept nogil
    # 128 bits. Cython has no such type, and it must differ from uint64_t for the fused type.
    ctypedef signed long long wide_t
    size_t near64(const uint64_t*, size_t, uint64_t, int, uint32_t*) noexcept nogil
    size_t near128(const wide_t*, size_t, wide_t, int, uint32_t*) noexcept nogil
    void choose_near()
    void prefetch(const void*) noexcept nogil

choose_near()

ctypedef fused word_t:
    uint64_t
    wide_t

cdef enum:
    DIGIT_BITS = 11
    MAX_PASSES = 12
    KEY_BYTES = 4
    AHEAD = 3  # fingerprints whose places in memory are asked for in advance
    PAIRS_PIECE = 256
    FIRST_BITS = 14
    CHUNK = 4096
    NONE = 0xFFFFFFFF

cdef uint64_t NO_OWNER = 0xFFFFFFFFFFFFFFFF  # an empty place in a table of `BandPairs`
cdef uint64_t _MASK64 = 0xFFFFFFFFFFFFFFFF
cdef char* _HEX = b"0123456789abcdef"


# ---------------------------------------------------------------- reading and writing


def parse(const uint8_t[::1] text not None, bint hexadecimal, int width):
    """See `reference.parse`."""
    if width <= 64:
        return _parse[uint64_t](text, hexadecimal, width, 0)
    return _parse[wide_t](text, hexadecimal, width, 0)


cdef _parse(const uint8_t[::1] text, bint hexadecimal, int width, word_t zero):
    cdef const uint8_t* at = &text[0] if text.shape[0] else NULL
    cdef const uint8_t* end = at + text.shape[0]
    cdef size_t lines = 0, count = 0
    cdef word_t most = (~zero) >> (8 * sizeof(word_t) - width)
    cdef const uint8_t* line = at
    cdef bint good = True
    cdef word_t* words
    with nogil:
        while line < end:
            line = <const uint8_t*>memchr(line, 10, end - line)
            lines += 1
            if line == NULL:
                break
            line += 1
    made = bytearray(lines * sizeof(word_t))
    cdef uint8_t[::1] view = made
    if lines:
        words = <word_t*>&view[0]
        with nogil:
            while at < end and good:
                if hexadecimal:
                    good = read_hexadecimal[word_t](&at, end, words + count, most)
                else:
                    good = read_decimal[word_t](&at, end, words + count, most)
                count += good
    view = None
    del made[count * sizeof(word_t):]
    return made, -1 if good else count


cdef inline void skip_blanks(const uint8_t** at, const uint8_t* end) noexcept nogil:
    while at[0] < end and (at[0][0] == 32 or at[0][0] == 9 or at[0][0] == 13):
        at[0] += 1


cdef inline bint at_line_end(const uint8_t** at, const uint8_t* end) noexcept nogil:
    skip_blanks(at, end)
    if at[0] == end:
        return True
    at[0] += 1
    return (at[0] - 1)[0] == 10


cdef inline bint read_decimal(
    const uint8_t** at, const uint8_t* end, word_t* to, word_t most
) noexcept nogil:
    """Read one line's number; False if there is none, or it is larger than `most`."""
    cdef word_t number = 0
    cdef word_t safe = (most - 9) // 10
    cdef uint8_t digit
    cdef const uint8_t* start
    skip_blanks(at, end)
    start = at[0]
    while at[0] < end:
        digit = at[0][0] - 48
        if digit > 9:
            break
        if number > safe and (number > most // 10 or digit > most - number * 10):
            return False
        number = number * 10 + digit
        at[0] += 1
    to[0] = number
    return at[0] != start and at_line_end(at, end)


cdef inline bint read_hexadecimal(
    const uint8_t** at, const uint8_t* end, word_t* to, word_t most
) noexcept nogil:
    """Read one line's hexadecimal number, with or without 0x."""
    cdef word_t number = 0
    cdef uint8_t digit
    cdef const uint8_t* start
    skip_blanks(at, end)
    if at[0] + 1 < end and at[0][0] == 48 and at[0][1] | 32 == 120:
        at[0] += 2
    start = at[0]
    while at[0] < end:
        digit = at[0][0] - 48
        if digit > 9:
            digit = (at[0][0] | 32) - 97
            if digit > 5:
                break
            digit += 10
        if number > most >> 4:
            return False
        number = number << 4 | digit
        at[0] += 1
    to[0] = number
    return at[0] != start and at_line_end(at, end)


def rows(
    const uint8_t[::1] words not None, const uint64_t[::1] ends, int width, bint hexadecimal,
    bint json
):
    """See `reference.rows`."""
    if width <= 64:
        return _rows[uint64_t](words, ends, width, hexadecimal, json, 0)
    return _rows[wide_t](words, ends, width, hexadecimal, json, 0)


cdef _rows(
    const uint8_t[::1] words, const uint64_t[::1] ends, int width, bint hexadecimal, bint json,
    word_t zero
):
    cdef size_t count = words.shape[0] // sizeof(word_t), at = 0, row = 0, row_end
    cdef bint pairs = ends is None
    cdef const word_t* word
    cdef char* to
    cdef char* text
    cdef int digits = width // 4 if hexadecimal else 0
    if count == 0:
        return b""
    word = <const word_t*>&words[0]
    # No number has more than 39 digits; a row has at most six characters more than its numbers.
    text = <char*>malloc(count * ((20 if width <= 64 else 39) + 4) + 16)
    if text == NULL:
        raise MemoryError
    with nogil:
        to = text
        while at < count:
            row_end = at + 2 if pairs else ends[row]
            row += 1
            if json:
                to[0] = 91
                to += 1
            while at < row_end:
                to = put[word_t](to, word[at], digits, json)
                at += 1
                if at < row_end:
                    to[0] = 44 if json else 9
                    to += 1
                    if json:
                        to[0] = 32
                        to += 1
            if json:
                to[0] = 93
                to += 1
            elif pairs:
                to[0] = 9
                to = put[word_t](to + 1, <word_t>apart[word_t](word[at - 2], word[at - 1]), 0, False)
            to[0] = 10
            to += 1
    try:
        return PyBytes_FromStringAndSize(text, to - text)
    finally:
        free(text)


cdef inline char* put(char* to, word_t number, int digits, bint quoted) noexcept nogil:
    """Write a number's digits, decimal where `digits` is 0; return where they end."""
    cdef char decimal[40]
    cdef char* start = decimal + 40
    cdef int digit
    if digits:
        if quoted:
            to[0] = 34
            to += 1
        for digit in range(digits):
            to[digit] = _HEX[<int>(number >> 4 * (digits - 1 - digit) & 15)]
        to += digits
        if quoted:
            to[0] = 34
            to += 1
        return to
    while True:
        start -= 1
        start[0] = <char>(48 + <int>(number % 10))
        number //= 10
        if number == 0:
            break
    memcpy(to, start, decimal + 40 - start)
    return to + (decimal + 40 - start)


cdef inline uint32_t apart(word_t a, word_t b) noexcept nogil:
    cdef uint32_t distance = 0
    cdef word_t bits = a ^ b
    while bits:
        bits &= bits - 1
        distance += 1
    return distance


# ---------------------------------------------------------------- sorting


def sort_distinct(uint8_t[::1] words not None, int width):
    """See `reference.sort_distinct`."""
    if words.shape[0] == 0:
        return 0
    if width <= 64:
        return _sort_distinct[uint64_t](words, 0)
    return _sort_distinct[wide_t](words, 0)


cdef _sort_distinct(uint8_t[::1] view, word_t zero):
    cdef size_t count = view.shape[0] // sizeof(word_t), at, kept = 1
    cdef word_t* words = <word_t*>&view[0]
    cdef word_t* scratch = <word_t*>malloc(count * sizeof(word_t))
    cdef word_t* sorted_words
    cdef size_t* counts = <size_t*>calloc(MAX_PASSES << DIGIT_BITS, sizeof(size_t))
    cdef int passes = (8 * sizeof(word_t) + DIGIT_BITS - 1) // DIGIT_BITS, number
    if scratch == NULL or counts == NULL:
        free(scratch)
        free(counts)
        raise MemoryError
    with nogil:
        for at in range(count):
            for number in range(passes):
                counts[(number << DIGIT_BITS) + <size_t>(words[at] >> number * DIGIT_BITS & 2047)] += 1
        sorted_words = radix_sort[word_t](words, scratch, count, counts, 0, DIGIT_BITS, passes)
        words[0] = sorted_words[0]
        for at in range(1, count):
            words[kept] = sorted_words[at]
            kept += words[kept] != words[kept - 1]
    free(scratch)
    free(counts)
    return kept


cdef word_t* radix_sort(
    word_t* words, word_t* scratch, size_t count, size_t* counts, int shift, int bits, int passes
) noexcept nogil:
    """Sort stably by digits of `bits` bits, from `shift` on; return which array holds the result.

    `counts` holds how often each digit occurs, 2^DIGIT_BITS entries a pass.
    """
    cdef word_t* source = words
    cdef word_t* target = scratch
    cdef size_t at, before, digit, ones = (<size_t>1 << bits) - 1
    cdef size_t* starts
    cdef int number
    for number in range(passes):
        starts = counts + (number << DIGIT_BITS)
        if starts[<size_t>(source[0] >> shift) & ones] == count:
            shift += bits  # all have the same digit
            continue
        before = 0
        for digit in range(ones + 1):
            at = starts[digit]
            starts[digit] = before
            before += at
        for at in range(count):
            digit = <size_t>(source[at] >> shift) & ones
            target[starts[digit]] = source[at]
            starts[digit] += 1
        source, target = target, source
        shift += bits
    return source


def count_up_to(const uint8_t[::1] words not None, bound, int width):
    """See `reference.count_up_to`."""
    cdef size_t low = 0, high, middle
    cdef uint64_t bound_low = bound & 0xFFFFFFFFFFFFFFFF, bound_high = bound >> 64
    cdef wide_t wide_bound = <wide_t>bound_high
    cdef const uint64_t* narrow
    cdef const wide_t* wide
    wide_bound = wide_bound << 64 | <wide_t>bound_low
    if words.shape[0] == 0:
        return 0
    if width <= 64:
        narrow = <const uint64_t*>&words[0]
        high = words.shape[0] // 8
        while low < high:
            middle = (low + high) // 2
            if narrow[middle] <= bound_low:
                low = middle + 1
            else:
                high = middle
        return low
    wide = <const wide_t*>&words[0]
    high = words.shape[0] // 16
    while low < high:
        middle = (low + high) // 2
        if wide[middle] <= wide_bound:
            low = middle + 1
        else:
            high = middle
    return low


# ---------------------------------------------------------------- parts of tables


# Consecutive blocks that stay neighbours, which move together.
cdef struct Piece:
    wide_t mask
    int down, up


cdef inline word_t moved(word_t word, const Piece* pieces, int count) noexcept nogil:
    cdef word_t out = 0
    cdef int at
    for at in range(count):
        out |= (word & <word_t>pieces[at].mask) >> pieces[at].down << pieces[at].up
    return out


cdef inline word_t moved_back(word_t word, const Piece* pieces, int count) noexcept nogil:
    cdef word_t out = 0
    cdef int at
    for at in range(count):
        out |= word >> pieces[at].up << pieces[at].down & <word_t>pieces[at].mask
    return out


cdef wide_t wide_of(number):
    cdef uint64_t high = number >> 64, low = number & 0xFFFFFFFFFFFFFFFF
    cdef wide_t out = <wide_t>high
    return out << 64 | <wide_t>low


cdef class Part:
    """See `reference.Part`."""

    cdef void* words
    cdef void* scratch
    cdef size_t* counts
    cdef Piece* pieces
    cdef wide_t* earlier
    cdef size_t room, count, start, end, left, right
    cdef int size, k, width, table, piece_count, prefix_bits, top_bits, digit_bits, passes
    cdef uint64_t low, high
    cdef readonly uint64_t compared
    cdef readonly bint done

    def __cinit__(self, layout, int table, uint64_t low, uint64_t high):
        cdef list bounds = [layout.bounds[block] for block in layout.orders[table]]
        cdef int up = layout.width, down, bits, number, lowest = 0, joined
        cdef list runs = []
        self.width = layout.width
        self.size = 8 if self.width <= 64 else 16
        self.k = layout.k
        self.table = table
        self.low = low
        self.high = high
        self.prefix_bits = layout.prefix_bits[table]
        self.top_bits = min(self.prefix_bits, 16)
        self.passes = (self.prefix_bits + DIGIT_BITS - 1) // DIGIT_BITS
        self.digit_bits = (self.prefix_bits + self.passes - 1) // self.passes
        for down, bits in bounds:
            up -= bits
            joined = runs.pop()[1] if runs and lowest == down + bits else 0
            runs.append((down, joined + bits, up))
            lowest = down
        self.piece_count = len(runs)
        self.pieces = <Piece*>calloc(len(runs), sizeof(Piece))
        self.earlier = <wide_t*>calloc(table + 1, sizeof(wide_t))
        self.counts = <size_t*>calloc(self.passes << DIGIT_BITS, sizeof(size_t))
        if self.pieces == NULL or self.earlier == NULL or self.counts == NULL:
            raise MemoryError
        for number in range(self.piece_count):
            down, bits, up = runs[number]
            self.pieces[number].mask = (~<wide_t>0 >> (128 - bits)) << down
            self.pieces[number].down = down
            self.pieces[number].up = up
        for number in range(table):
            self.earlier[number] = wide_of(layout.masks[number])

    def __dealloc__(self):
        free(self.words)
        free(self.scratch)
        free(self.counts)
        free(self.pieces)
        free(self.earlier)

    def __len__(self):
        return self.count

    def add(self, const uint8_t[::1] words not None):
        cdef size_t count = words.shape[0] // self.size
        if count == 0:
            return
        if self.count + count > self.room:
            self.grow(self.count + count)
        if self.size == 8:
            with nogil:
                self.append[uint64_t](<const uint64_t*>&words[0], count)
        else:
            with nogil:
                self.append[wide_t](<const wide_t*>&words[0], count)

    cdef grow(self, size_t wanted):
        """Make room; exactly as much as wanted at first, as a part is often filled in one call."""
        cdef size_t room = max(wanted, self.room + self.room // 4)
        cdef void* larger = realloc(self.words, room * self.size)
        if larger == NULL:
            raise MemoryError
        self.words = larger
        self.room = room

    cdef void append(self, const word_t* given, size_t count) noexcept nogil:
        cdef word_t* to = <word_t*>self.words + self.count
        cdef word_t word
        cdef size_t at, ones = (<size_t>1 << self.digit_bits) - 1, prefix
        cdef uint64_t top
        cdef int number, rest = self.width - self.prefix_bits
        cdef int top_shift = self.width - self.top_bits
        for at in range(count):
            word = moved[word_t](given[at], self.pieces, self.piece_count)
            top = <uint64_t>(word >> top_shift)
            if top < self.low or top >= self.high:
                continue
            to[0] = word
            to += 1
            word = word >> rest
            for number in range(self.passes):
                self.counts[(number << DIGIT_BITS) + (<size_t>word & ones)] += 1
                word = word >> self.digit_bits
        self.count = to - <word_t*>self.words

    def sort(self):
        if self.count == 0:
            self.done = True
            return
        self.scratch = malloc(self.count * self.size)
        if self.scratch == NULL:
            raise MemoryError
        with nogil:
            if self.size == 8:
                self.sort_words[uint64_t](<uint64_t*>self.words)
            else:
                self.sort_words[wide_t](<wide_t*>self.words)
        free(self.scratch)
        self.scratch = NULL

    cdef void sort_words(self, word_t* words) noexcept nogil:
        cdef word_t* sorted_words = radix_sort[word_t](
            words, <word_t*>self.scratch, self.count, self.counts,
            self.width - self.prefix_bits, self.digit_bits, self.passes,
        )
        if sorted_words != words:
            self.words, self.scratch = self.scratch, self.words

    def step(self, size_t max_pairs, uint64_t max_compared):
        cdef size_t found
        cdef void* pairs = malloc((max_pairs + CHUNK) * 2 * self.size)
        if pairs == NULL:
            raise MemoryError
        with nogil:
            if self.size == 8:
                found = self.compare[uint64_t](<uint64_t*>pairs, max_pairs, max_compared)
            else:
                found = self.compare[wide_t](<wide_t*>pairs, max_pairs, max_compared)
        try:
            return PyBytes_FromStringAndSize(<char*>pairs, found * 2 * self.size)
        finally:
            free(pairs)

    cdef size_t compare(
        self, word_t* pairs, size_t max_pairs, uint64_t max_compared
    ) noexcept nogil:
        cdef const word_t* words = <const word_t*>self.words
        cdef size_t found = 0, hits, hit, chunk
        cdef uint64_t last = self.compared + max_compared
        cdef int rest = self.width - self.prefix_bits
        cdef uint32_t near[CHUNK]
        while found < max_pairs and self.compared < last:
            if self.right >= self.end:  # all words after `left` were compared with it
                self.left += 1
                self.right = self.left + 1
                if self.left >= self.end:  # and it was the last of its run
                    self.start = self.left = self.end
                    if self.start >= self.count:
                        self.done = True
                        return found
                    self.end = self.start + 1
                    while (
                        self.end < self.count
                        and (words[self.end] ^ words[self.start]) >> rest == 0
                    ):
                        self.end += 1
                    self.right = self.start + 1
                continue
            chunk = min(self.end - self.right, <size_t>CHUNK)
            if word_t is uint64_t:
                hits = near64(words + self.right, chunk, words[self.left], self.k, near)
            else:
                hits = near128(words + self.right, chunk, words[self.left], self.k, near)
            for hit in range(hits):
                found += self.write_pair[word_t](
                    words[self.left], words[self.right + near[hit]], pairs + 2 * found
                )
            self.compared += chunk
            self.right += chunk
        return found

    cdef inline bint write_pair(self, word_t first, word_t second, word_t* to) noexcept nogil:
        """Write a pair; False if an earlier table finds it too."""
        cdef word_t apart
        cdef int table
        to[0] = moved_back[word_t](first, self.pieces, self.piece_count)
        to[1] = moved_back[word_t](second, self.pieces, self.piece_count)
        apart = to[0] ^ to[1]
        for table in range(self.table):
            if apart & <word_t>self.earlier[table] == 0:
                return False
        return True


def histogram(const uint8_t[::1] words not None, layout, int table):
    """See `reference.histogram`."""
    counts = array("Q", bytes(8 << min(layout.prefix_bits[table], 16)))
    cdef Part part = Part(layout, table, 0, 0)
    cdef uint64_t[::1] view = counts
    if words.shape[0]:
        if part.size == 8:
            with nogil:
                count_tops[uint64_t](part, <const uint64_t*>&words[0], words.shape[0] // 8, &view[0])
        else:
            with nogil:
                count_tops[wide_t](part, <const wide_t*>&words[0], words.shape[0] // 16, &view[0])
    return counts


cdef void count_tops(Part part, const word_t* words, size_t count, uint64_t* to) noexcept nogil:
    cdef size_t at
    cdef int shift = part.width - part.top_bits
    for at in range(count):
        to[<size_t>(moved[word_t](words[at], part.pieces, part.piece_count) >> shift)] += 1


# ---------------------------------------------------------------- connected components


cdef class BandPairs:
    """See `reference.BandPairs`.

    Of each key's place a table of its own, at most five eighths full: a key and its owner in eight
    bytes, so a look-up takes one step to memory, which is asked for some fingerprints ahead. A key
    of several owners is there several times. Memory: 200 to 410 bytes a fingerprint of 16 keys.
    """

    cdef uint64_t** tables  # in one piece of memory while each is smaller than a huge page
    cdef uint32_t* met  # by owner: the number of the last fingerprint that met it
    cdef size_t met_room, room, count
    cdef uint32_t keys, crowd
    cdef int bits  # of a place in a table

    def __cinit__(self, uint32_t keys, uint32_t crowd):
        if not (0 < keys <= 64 and 0 < crowd <= 64):
            raise ValueError(f"there are no tables of {keys} keys and crowds of {crowd}")
        self.keys, self.crowd = keys, crowd
        self.tables = <uint64_t**>calloc(keys, sizeof(uint64_t*))
        if self.tables == NULL:
            raise MemoryError
        self.grow(FIRST_BITS)

    def __dealloc__(self):
        self.free_tables(self.tables, self.room)
        free(self.met)

    cdef uint64_t** new_tables(self, size_t room) except NULL:
        """Return tables of so many places each, whose memory is not set."""
        cdef uint64_t** tables = <uint64_t**>calloc(self.keys, sizeof(uint64_t*))
        cdef size_t size = room * sizeof(uint64_t)
        cdef uint32_t key
        if tables == NULL:
            raise MemoryError
        for key in range(self.keys):
            if key and size < HUGE_PAGE:
                tables[key] = tables[0] + key * room
                continue
            tables[key] = <uint64_t*>table_memory(size if size >= HUGE_PAGE else self.keys * size)
            if tables[key] == NULL:
                self.free_tables(tables, room)
                raise MemoryError
        return tables

    cdef void free_tables(self, uint64_t** tables, size_t room) noexcept nogil:
        cdef uint32_t key, pieces = self.keys if room * sizeof(uint64_t) >= HUGE_PAGE else 1
        if tables != NULL:
            for key in range(pieces):
                free(tables[key])
        free(tables)

    cdef inline size_t place_of(self, uint32_t key, int bits) noexcept nogil:
        return <size_t>(key * <uint64_t>0x9E3779B97F4A7C15 >> (64 - bits))

    cdef int grow(self, int bits) except -1:
        """Move all tables to larger ones; they stay as they are without memory."""
        cdef size_t room = <size_t>1 << bits, at, place
        cdef uint32_t key
        cdef uint64_t word
        cdef uint64_t* table
        cdef uint64_t** tables = self.new_tables(room)
        with nogil:
            for key in range(self.keys):
                table = tables[key]
                memset(table, 0xFF, room * sizeof(uint64_t))
                for at in range(self.room):
                    word = self.tables[key][at]
                    if word != NO_OWNER:
                        place = self.place_of(word >> 32, bits)
                        while table[place] != NO_OWNER:
                            place = place + 1 & room - 1
                        table[place] = word
                if self.room * sizeof(uint64_t) >= HUGE_PAGE:
                    free(self.tables[key])
                    self.tables[key] = NULL
        self.free_tables(self.tables, self.room)
        self.tables, self.room, self.bits = tables, room, bits
        return 0

    def add(self, const uint8_t[::1] fingerprints not None, const uint32_t[::1] owners not None):
        cdef size_t count = owners.shape[0], done = 0, piece, at
        cdef uint32_t most = 0
        pairs = array("I")
        cdef uint32_t* out = NULL
        cdef size_t found
        if fingerprints.shape[0] != <Py_ssize_t>(count * self.keys * KEY_BYTES):
            raise ValueError(f"fingerprints have {self.keys * KEY_BYTES} bytes each")
        for at in range(count):
            most = max(most, owners[at])
        if most == NONE:
            raise ValueError("owners are below 4 294 967 295")
        self.make_room(count, most)
        try:
            while done < count:
                piece = min(count - done, <size_t>PAIRS_PIECE)
                out = <uint32_t*>realloc(out, piece * self.keys * self.crowd * 2 * sizeof(uint32_t))
                if out == NULL:
                    raise MemoryError
                with nogil:
                    found = self.add_piece(
                        <const uint32_t*>&fingerprints[0] + done * self.keys, &owners[done], piece, out
                    )
                if found:
                    pairs.frombytes(PyBytes_FromStringAndSize(<char*>out, found * sizeof(uint32_t)))
                done += piece
        finally:
            free(out)
        return pairs

    cdef int make_room(self, size_t more, uint32_t most) except -1:
        cdef size_t met_room = max(self.met_room, 1024)
        cdef int bits = self.bits
        cdef void* met
        while (<size_t>5 << bits) // 8 < self.count + more:
            bits += 1
        if bits != self.bits:
            self.grow(bits)
        while met_room <= most:
            met_room *= 2
        if met_room != self.met_room:
            met = realloc(self.met, met_room * sizeof(uint32_t))
            if met == NULL:
                raise MemoryError
            self.met = <uint32_t*>met
            memset(self.met + self.met_room, 0xFF, (met_room - self.met_room) * sizeof(uint32_t))
            self.met_room = met_room
        return 0

    cdef size_t add_piece(
        self, const uint32_t* keys, const uint32_t* owners, size_t count, uint32_t* out
    ) noexcept nogil:
        """Add fingerprints; write the pairs, and return how many numbers they are."""
        cdef size_t at, place, mask = self.room - 1, found = 0
        cdef uint32_t key, members, owner, number
        cdef uint64_t word
        cdef uint64_t* table
        for at in range(count):
            if at + AHEAD < count:
                for number in range(self.keys):
                    key = keys[(at + AHEAD) * self.keys + number]
                    prefetch(&self.tables[number][self.place_of(key, self.bits)])
            for number in range(self.keys):
                key = keys[at * self.keys + number]
                table = self.tables[number]
                place = self.place_of(key, self.bits)
                members = 0
                word = table[place]
                while word != NO_OWNER:
                    if word >> 32 == key:
                        members += 1
                        owner = <uint32_t>word
                        if self.met[owner] != owners[at]:
                            self.met[owner] = owners[at]
                            out[found] = owner
                            out[found + 1] = owners[at]
                            found += 2
                    place = place + 1 & mask
                    word = table[place]
                if members < self.crowd:
                    table[place] = <uint64_t>key << 32 | owners[at]
        self.count += count
        return found


cdef class Components:
    """See `reference.Components`.

    An open hash table from words to numbers, at most half full, and union-find trees over the
    numbers; with path halving a find takes one or two steps.
    """

    cdef wide_t* wide
    cdef uint64_t* narrow
    cdef uint32_t* parents
    cdef uint32_t* slots
    cdef size_t room, slots_room
    cdef uint32_t count
    cdef int size

    def __cinit__(self, int width):
        self.size = 8 if width <= 64 else 16
        self.resize(1024)

    def __dealloc__(self):
        free(self.wide)
        free(self.narrow)
        free(self.parents)
        free(self.slots)

    def __len__(self):
        return self.count

    cdef resize(self, size_t room):
        cdef void* words = realloc(
            <void*>self.narrow if self.size == 8 else <void*>self.wide, room * self.size
        )
        cdef void* moved_to
        cdef size_t slots_room = 2 * room
        cdef uint32_t number
        if words == NULL:
            raise MemoryError
        if self.size == 8:
            self.narrow = <uint64_t*>words
        else:
            self.wide = <wide_t*>words
        moved_to = realloc(self.parents, room * sizeof(uint32_t))
        if moved_to == NULL:
            raise MemoryError
        self.parents = <uint32_t*>moved_to
        moved_to = realloc(self.slots, slots_room * sizeof(uint32_t))
        if moved_to == NULL:
            raise MemoryError
        self.slots = <uint32_t*>moved_to
        memset(self.slots, 0xFF, slots_room * sizeof(uint32_t))
        self.room = room
        self.slots_room = slots_room
        for number in range(self.count):
            if self.size == 8:
                self.slots[self.slot_of[uint64_t](self.narrow[number], self.narrow)] = number
            else:
                self.slots[self.slot_of[wide_t](self.wide[number], self.wide)] = number

    cdef inline size_t slot_of(self, word_t word, const word_t* known) noexcept nogil:
        """Return the slot that holds the word's number, or a free one."""
        cdef uint64_t mixed = <uint64_t>word
        cdef size_t slot
        if word_t is wide_t:
            mixed ^= <uint64_t>(word >> 64) * <uint64_t>0x9E3779B97F4A7C15
        mixed = (mixed ^ (mixed >> 32)) * <uint64_t>0xD6E8FEB86659FD93
        mixed = (mixed ^ (mixed >> 29)) * <uint64_t>0xBF58476D1CE4E5B9
        slot = (mixed ^ (mixed >> 32)) & (self.slots_room - 1)
        while self.slots[slot] != NONE and known[self.slots[slot]] != word:
            slot = (slot + 1) & (self.slots_room - 1)
        return slot

    cdef inline uint32_t number_of(self, word_t word, word_t* known) noexcept nogil:
        cdef size_t slot = self.slot_of[word_t](word, known)
        if self.slots[slot] == NONE:
            self.slots[slot] = self.count
            known[self.count] = word
            self.parents[self.count] = self.count
            self.count += 1
        return self.slots[slot]

    cdef inline uint32_t root_of(self, uint32_t number) noexcept nogil:
        while self.parents[number] != number:
            self.parents[number] = self.parents[self.parents[number]]
            number = self.parents[number]
        return number

    cdef make_room(self, size_t more):
        cdef size_t room = self.room
        if self.count + more >= NONE:
            raise OverflowError("more than 2^32 fingerprints cannot be put into clusters")
        while self.count + more > room:
            room *= 2
        if room != self.room:
            self.resize(room)

    def numbers(self, const uint8_t[::1] words not None):
        cdef size_t count = words.shape[0] // self.size, at
        cdef size_t piece, done = 0
        made = array("I", bytes(4 * count))
        cdef uint32_t[::1] view = made
        while done < count:
            piece = min(count - done, <size_t>CHUNK)
            self.make_room(piece)
            for at in range(done, done + piece):
                if self.size == 8:
                    view[at] = self.number_of[uint64_t]((<const uint64_t*>&words[0])[at], self.narrow)
                else:
                    view[at] = self.number_of[wide_t]((<const wide_t*>&words[0])[at], self.wide)
            done += piece
        return made

    def join(self, const uint8_t[::1] pairs not None):
        cdef size_t count = pairs.shape[0] // (2 * self.size), at, done = 0, piece
        cdef uint32_t first, second
        while done < count:
            piece = min(count - done, <size_t>CHUNK)
            self.make_room(2 * piece)
            for at in range(done, done + piece):
                if self.size == 8:
                    first = self.number_of[uint64_t]((<const uint64_t*>&pairs[0])[2 * at], self.narrow)
                    second = self.number_of[uint64_t]((<const uint64_t*>&pairs[0])[2 * at + 1], self.narrow)
                else:
                    first = self.number_of[wide_t]((<const wide_t*>&pairs[0])[2 * at], self.wide)
                    second = self.number_of[wide_t]((<const wide_t*>&pairs[0])[2 * at + 1], self.wide)
                first = self.root_of(first)
                second = self.root_of(second)
                if first < second:
                    self.parents[second] = first
                else:
                    self.parents[first] = second
            done += piece

    def words(self):
        made = bytearray(<size_t>self.count * self.size)
        cdef uint8_t[::1] view = made
        if self.count:
            memcpy(
                &view[0],
                <void*>self.narrow if self.size == 8 else <void*>self.wide,
                <size_t>self.count * self.size,
            )
        return made

    def grouped(self, const uint32_t[::1] numbers not None):
        cdef size_t count = numbers.shape[0], at, clusters = 0, kept = 0, total = 0
        cdef uint32_t* cluster_of = <uint32_t*>malloc((<size_t>self.count + 1) * sizeof(uint32_t))
        cdef uint64_t* starts = <uint64_t*>calloc(<size_t>self.count + 1, sizeof(uint64_t))
        cdef uint32_t root
        cdef uint64_t size
        cdef uint64_t[::1] to, end_at
        try:
            if cluster_of == NULL or starts == NULL:
                raise MemoryError
            memset(cluster_of, 0xFF, (<size_t>self.count + 1) * sizeof(uint32_t))
            for at in range(count):
                root = self.root_of(numbers[at])
                if cluster_of[root] == NONE:
                    cluster_of[root] = clusters
                    clusters += 1
                starts[cluster_of[root]] += 1
            for at in range(clusters):
                if starts[at] > 1:
                    kept += 1
                    total += starts[at]
            positions = array("Q", bytes(8 * total))
            ends = array("Q", bytes(8 * kept))
            if total == 0:
                return positions, ends
            to = positions
            end_at = ends
            kept = total = 0
            for at in range(clusters):
                size = starts[at]
                starts[at] = total if size > 1 else <uint64_t>-1
                if size > 1:
                    total += size
                    end_at[kept] = total
                    kept += 1
            for at in range(count):
                root = cluster_of[self.root_of(numbers[at])]
                if starts[root] != <uint64_t>-1:
                    to[starts[root]] = at
                    starts[root] += 1
            return positions, ends
        finally:
            free(cluster_of)
            free(starts)


def taken(const uint8_t[::1] words not None, const uint64_t[::1] positions not None, int width):
    """See `reference.taken`."""
    cdef size_t size = 8 if width <= 64 else 16, at
    made = bytearray(positions.shape[0] * size)
    cdef uint8_t[::1] view = made
    for at in range(<size_t>positions.shape[0]):
        memcpy(&view[at * size], &words[positions[at] * size], size)
    return made

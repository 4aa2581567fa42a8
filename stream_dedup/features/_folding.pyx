# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""`fold`, `fold_both`, `fold_words` and `Passages` of `folding`, natively: a batch in one call, without the GIL.

A text's characters are folded into `Symbols`, code points of 32 bits: ASCII without upper-case and
control characters, letters, and surrogates for bytes that are not UTF-8. The tokens are found in
these, and written as UTF-8.

Most texts are *simple*: ASCII without links and addresses. Their symbols are bytes, and only at digits
and at signs that may be letters it matters what is around them. The letters between these are copied
by a table, 64 at a time where the processor can do so (AVX-512 VBMI2).

The table has a page for each 256 code points; pages with equal contents, such as those of Chinese
characters, are stored once. An entry below `DROPPED` is the character that is left.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from stream_dedup.features import folding

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    // Writes the symbols of a text, and four zeros; returns whether it is simple.
    static int simple_symbols(const uint8_t* __restrict text, size_t size, uint8_t* __restrict out)
    {
        uint8_t all = 0, marks = 0, www = 0;
        for (size_t i = 0; i < size; i++) {
            uint8_t byte = text[i];
            uint8_t lower = (uint8_t)(byte - 'A') < 26 ? byte + 32 : byte;
            out[i] = byte < 32 || byte == 127 ? 32 : lower;
            all |= byte;
            marks |= (byte == '/') | (byte == '@');
        }
        if (all & 0x80 || marks) return 0;
        memset(out + size, 0, 4);
        for (size_t i = 0; i < size; i++)
            www |= (out[i] == 'w') & (out[i + 1] == 'w') & (out[i + 2] == 'w');
        return !www;
    }

    static size_t letters_by_any(
        const uint8_t* text, size_t size, const uint8_t* left, uint8_t** out)
    {
        uint8_t* to = *out;
        size_t at = 0;
        for (; at < size && left[text[at]] != 0xFF; at++) {
            *to = left[text[at]];
            to += *to != 0;
        }
        *out = to;
        return at;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi,popcnt")))
    static size_t letters_by_vbmi2(
        const uint8_t* text, size_t size, const uint8_t* left, uint8_t** out)
    {
        __m512i low = _mm512_loadu_si512(left), high = _mm512_loadu_si512(left + 64);
        for (size_t at = 0; at < size; at += 64) {
            __mmask64 here = size - at < 64 ? ((uint64_t)1 << (size - at)) - 1 : ~(uint64_t)0;
            __m512i bytes = _mm512_maskz_loadu_epi8(here, text + at);
            __m512i letters = _mm512_permutex2var_epi8(low, bytes, high);
            uint64_t ends = _mm512_movepi8_mask(letters) & here;
            uint64_t kept = _mm512_test_epi8_mask(letters, letters) & here & ((ends & -ends) - 1);
            _mm512_storeu_si512(*out, _mm512_maskz_compress_epi8(kept, letters));
            *out += __builtin_popcountll(kept);
            if (ends) return at + __builtin_ctzll(ends);
        }
        return size;
    }
    static size_t letters_before(
        const uint8_t* text, size_t size, const uint8_t* left, uint8_t** out)
    {
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi")
                && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi"))
            return letters_by_vbmi2(text, size, left, out);
        return letters_by_any(text, size, left, out);
    }
    #else
    #define letters_before letters_by_any
    #endif
    """
    bint simple_symbols(const uint8_t* text, size_t size, uint8_t* out) noexcept nogil
    # Writes the letters of simple symbols up to digits and signs that may be letters, and returns
    # where these are. `left` has what is left of each symbol: a letter, 0 for nothing, or RUNS.
    # There is room for as many letters as symbols and for 64 bytes more.
    size_t letters_before(
        const uint8_t* text, size_t size, const uint8_t* left, uint8_t** out
    ) noexcept nogil

cdef enum:
    RUNS = 0xFF
    LETTERS_ROOM = 64
    WRITTEN = 1 << 16
    DROPPED = 0x110000
    KEPT = 0x110001  # the character itself
    SEVERAL = 0x200000  # plus where they are in `_several`, after their number
    PAGES = 0x1100
    MAX_PAGES = 512
    SURROGATE = 0xDC00  # plus the byte that is not UTF-8, as in Python
    HANGUL = 0xAC00
    HANGUL_SYLLABLES = 11172
    PADDING = 4  # zeros after the last symbol, so that nobody needs to look for the end

cdef enum:  # kinds of ASCII
    LETTER = 1
    DIGIT = 2
    ALNUM = LETTER | DIGIT
    RUN = 4  # digits and signs that may stand for letters
    LEET = 8  # those that do
    PUNCTUATION = 16  # signs that do, but not at a word's end
    URL = 32
    SCHEME = 64
    HOST = 128
    LOCAL = 256  # of an address, before @
    JOINER = 512  # what numbers have between digits
    END = 1024  # the zeros behind a text, which has none

cdef struct Symbols:
    uint32_t* at
    Py_ssize_t size
    Py_ssize_t room
    uint8_t marks  # which of the signs there are that links and addresses have

cdef enum:
    SLASH = 1
    AT = 2
    WWW = 4

cdef struct Bytes:
    uint8_t* at
    Py_ssize_t size
    Py_ssize_t room

cdef struct Apart:  # the words of a text, two spaces before each, and its numbers, with three
    Bytes words
    Bytes numbers

ctypedef fused symbol_t:
    uint8_t  # of a simple text
    uint32_t

cdef enum Fold:
    LOOK_ALIKES
    BOTH
    WORDS

cdef uint16_t _page_of[PAGES]
cdef uint32_t _pages[MAX_PAGES][256]
cdef uint32_t _several[1 << 15]
cdef uint16_t _kinds[128]
cdef uint8_t _letters[128]
cdef uint8_t _marks[128]
cdef uint8_t _left[128]  # of each symbol of a simple text; see `letters_before`


def fold(texts):
    """See `folding.fold`."""
    return folded_by(texts, LOOK_ALIKES)


def fold_both(texts):
    """See `folding.fold_both`."""
    return folded_by(texts, BOTH)


def fold_words(texts):
    """See `folding.fold_words`."""
    return folded_by(texts, WORDS)


cdef class Texts:
    """The texts of a batch, to be read without the GIL, and what is written for each of them."""

    cdef list values  # nobody else's, as their bytes are read without the GIL
    cdef Py_ssize_t count
    cdef const uint8_t** froms
    cdef Py_ssize_t* sizes
    cdef Py_ssize_t first  # of the texts that `out` is written for
    cdef Py_ssize_t* ends  # in `out`
    cdef Bytes out

    def __cinit__(self, texts):
        cdef Py_ssize_t index
        cdef bytes value
        self.values = list(texts)
        self.count = len(self.values)
        self.froms = <const uint8_t**>malloc((self.count + 1) * sizeof(void*))
        self.sizes = <Py_ssize_t*>malloc((self.count + 1) * sizeof(Py_ssize_t))
        self.ends = <Py_ssize_t*>malloc((self.count + 1) * sizeof(Py_ssize_t))
        if self.froms == NULL or self.sizes == NULL or self.ends == NULL:
            raise MemoryError
        for index in range(self.count):
            value = self.values[index]
            if value is None:
                raise TypeError("a text is bytes")
            self.froms[index] = <const uint8_t*>PyBytes_AS_STRING(value)
            self.sizes[index] = PyBytes_GET_SIZE(value)

    def __dealloc__(self):
        free(self.froms)
        free(self.sizes)
        free(self.ends)
        free(self.out.at)

    cdef bytes written(self, Py_ssize_t index):
        """What is written for a text."""
        cdef Py_ssize_t start = self.ends[index - 1] if index > self.first else 0
        return PyBytes_FromStringAndSize(<char*>self.out.at + start, self.ends[index] - start)


cdef list folded_by(texts, Fold fold):
    cdef Texts batch = Texts(texts)
    cdef Folding buffers = Folding()
    cdef Py_ssize_t index
    cdef list folded = []
    cdef bytes value
    while batch.first < batch.count:
        with nogil:
            index = buffers.fold_some(batch, fold)
        if index < 0:
            raise MemoryError
        for index in range(batch.first, index):
            value = batch.written(index)
            if not value:  # without letters
                value = batch.values[index]
                value = b" ".join(value.split())
            folded.append(value)
        batch.first = len(folded)
        batch.out.size = 0
    return folded


cdef class Folding:
    """The buffers of one call."""

    cdef Symbols symbols
    cdef Bytes simple
    cdef Apart apart

    def __dealloc__(self):
        free(self.symbols.at)
        free(self.simple.at)
        free(self.apart.words.at)
        free(self.apart.numbers.at)

    cdef Py_ssize_t fold_some(self, Texts batch, Fold fold) noexcept nogil:
        """Write texts until they are some `WRITTEN` bytes; return the index behind, -1 without memory.

        So much stays in the processor's cache until it is copied.
        """
        cdef Py_ssize_t index, size
        cdef bint enough
        cdef Apart* apart = &self.apart if fold == BOTH else NULL
        for index in range(batch.first, batch.count):
            if batch.out.size >= WRITTEN:
                return index
            size = batch.sizes[index]
            if fold == LOOK_ALIKES:
                if not (
                    has_bytes(&self.simple, size + PADDING)
                    and has_bytes(&batch.out, size + LETTERS_ROOM)
                ):
                    return -1
                if simple_symbols(batch.froms[index], size, self.simple.at):
                    fold_simple(self.simple.at, size, &batch.out)
                    batch.ends[index] = batch.out.size
                    continue
            enough = fold_characters(batch.froms[index], size, &self.symbols)
            if fold == WORDS:
                enough = enough and keep_words(&self.symbols, &batch.out)
            else:
                enough = enough and fold_tokens(&self.symbols, &batch.out, apart)
            if not enough:
                return -1
            batch.ends[index] = batch.out.size
        return batch.count


# ------------------------------------------------------------ characters


cdef bint fold_characters(const uint8_t* text, Py_ssize_t size, Symbols* symbols) noexcept nogil:
    """Write what is left of a text's characters; False without memory.

    There is always room for as many symbols as bytes are left.
    """
    cdef Py_ssize_t at = 0, length = 0
    cdef uint32_t code, entry, rest
    cdef uint32_t* several
    cdef uint8_t marks = 0
    symbols.size = 0
    if not has_room(symbols, size + PADDING):
        return False
    while at < size:
        if text[at] < 0x80:
            length = symbols.size - at
            while at < size and text[at] < 0x80:
                entry = _pages[0][text[at]]
                marks |= _marks[entry]
                symbols.at[length + at] = entry
                at += 1
            symbols.size = length + at
            continue
        length = character(text + at, size - at, &code)
        at += length
        if length == 1:
            entry = SURROGATE + code
        elif code - <uint32_t>HANGUL < HANGUL_SYLLABLES:
            rest = code - HANGUL  # three letters at most, of three bytes
            symbols.at[symbols.size] = 0x1100 + rest // 588
            symbols.at[symbols.size + 1] = 0x1161 + rest % 588 // 28
            symbols.at[symbols.size + 2] = 0x11A7 + rest % 28
            symbols.size += 3 if rest % 28 else 2
            continue
        else:
            entry = _pages[_page_of[code >> 8]][code & 255]
        if entry < DROPPED:
            pass
        elif entry == DROPPED:
            continue
        elif entry == KEPT:
            entry = code
        else:
            several = _several + (entry - SEVERAL)
            length = several[0]
            if not has_room(symbols, length + size - at + PADDING):
                return False
            memcpy(symbols.at + symbols.size, several + 1, length * sizeof(uint32_t))
            symbols.size += length
            marks = SLASH | AT  # perhaps
            continue
        if entry < 0x80:
            marks |= _marks[entry]
        symbols.at[symbols.size] = entry
        symbols.size += 1
    for length in range(PADDING):
        symbols.at[symbols.size + length] = 0
    symbols.marks = marks | WWW * has_www(symbols)
    return True


cdef inline bint has_www(const Symbols* symbols) noexcept nogil:
    cdef uint32_t found = 0
    cdef Py_ssize_t i
    for i in range(symbols.size):  # and two zeros
        found |= (
            (symbols.at[i] == c"w") & (symbols.at[i + 1] == c"w") & (symbols.at[i + 2] == c"w")
        )
    return found != 0


cdef inline Py_ssize_t character(
    const uint8_t* text, Py_ssize_t size, uint32_t* code
) noexcept nogil:
    """Decode a character that is not ASCII; return its bytes. One byte alone is not UTF-8."""
    cdef uint32_t first = text[0]
    if 0xC2 <= first < 0xE0 and size > 1 and continues(text[1]):
        code[0] = (first & 0x1F) << 6 | text[1] & 0x3F
        return 2
    if 0xE0 <= first < 0xF0 and size > 2 and continues(text[1]) and continues(text[2]):
        code[0] = (first & 0x0F) << 12 | (text[1] & 0x3F) << 6 | text[2] & 0x3F
        if code[0] >= 0x800 and not 0xD800 <= code[0] < 0xE000:
            return 3
    elif (
        0xF0 <= first < 0xF5 and size > 3
        and continues(text[1]) and continues(text[2]) and continues(text[3])
    ):
        code[0] = (
            (first & 0x07) << 18 | (text[1] & 0x3F) << 12 | (text[2] & 0x3F) << 6 | text[3] & 0x3F
        )
        if 0x10000 <= code[0] < 0x110000:
            return 4
    code[0] = first
    return 1


cdef inline bint continues(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef inline bint has_room(Symbols* symbols, Py_ssize_t more) noexcept nogil:
    """Make room for more symbols; False without memory."""
    cdef Py_ssize_t room = symbols.size + more
    cdef void* at
    if room <= symbols.room:
        return True
    room += room >> 1
    at = realloc(symbols.at, room * sizeof(uint32_t))
    if at == NULL:
        return False
    symbols.at = <uint32_t*>at
    symbols.room = room
    return True


# ------------------------------------------------------------ tokens


cdef bint fold_tokens(Symbols* symbols, Bytes* out, Apart* apart) noexcept nogil:
    """Write the text's letters and symbols; nothing if it has no letters. False without memory.

    Args:
        symbols: the text.
        out: where to write.
        apart: room for its words and numbers, which are written after it; NULL for none of them.
    """
    cdef const uint32_t* text = symbols.at
    cdef Py_ssize_t at = 0, end, size = symbols.size, slash = -1, sign = -1, start = out.size
    cdef Py_ssize_t written, word_end = -1  # `word_end`: where the last word ended
    cdef uint32_t code, before = 0
    cdef uint16_t kind
    cdef bint letters = False
    if not has_bytes(out, 4 * size):  # a symbol has four bytes at most
        return False
    if apart != NULL:
        apart.words.size = apart.numbers.size = 0
        # Of the words and spaces there may be three times as many bytes as symbols, and of letters
        # that are not ASCII, which have no spaces between them, four times.
        if not has_bytes(&apart.words, 4 * size + 4) or not has_bytes(&apart.numbers, 4 * size + 4):
            return False
    cdef bint simple = apart == NULL and symbols.marks == 0
    while at < size:
        code = text[at]
        written = out.size
        if simple and code < 0x80 and not _kinds[code] & RUN:
            at = copy_letters(text, at, out)
            letters = letters or out.size > written
            before = text[at - 1]
            continue
        if code >= 0x80:
            out.size += encode(code, out.at + out.size)
            letters = True
            if apart != NULL:
                add_word(&apart.words, out.at + written, out.size - written, at != word_end)
                word_end = at + 1
            before = 0
            at += 1
            continue
        kind = _kinds[code]
        if kind & ALNUM and not _kinds[before] & ALNUM:
            end = 0
            if symbols.marks & SLASH:
                if slash < at:
                    slash = find(text, at, size, c"/")
                end = url_end(text, at, slash)
            if code == c"w" and not end:
                end = www_end(text, at)
            if end:
                out.at[out.size] = c"/"
            elif symbols.marks & AT:
                if sign < at:
                    sign = find(text, at, size, c"@")
                end = email_end(text, at, sign)
                if end:
                    out.at[out.size] = c"@"
            if end:
                out.size += 1
                before = last(text[end - 1])
                at = end
                continue
        if kind & LETTER:
            letters = True
            while is_kind(text[at], LETTER):
                code = text[at]
                out.at[out.size] = _letters[code]
                out.size += 1
                at += 1
            if apart != NULL:
                end = at - (out.size - written)
                add_word(&apart.words, out.at + written, out.size - written, end != word_end)
                word_end = at
        elif kind & RUN:
            end = leet_end(text, at, before)
            if end > at:
                letters = True
                code = text[end - 1]
                while at < end:
                    out.at[out.size] = _letters[text[at]]
                    out.size += 1
                    at += 1
                if apart != NULL:
                    end = at - (out.size - written)
                    add_word(&apart.words, out.at + written, out.size - written, end != word_end)
                    word_end = at
            elif kind & DIGIT:
                end = at
                at = number_end(text, at)
                if apart != NULL:
                    add_digits(&apart.numbers, text + end, at - end)
                code = text[at - 1]
                out.at[out.size] = c"#"
                out.size += 1
            else:
                at += 1
        else:
            at += 1
        before = code
    if not letters:
        out.size = start
    elif apart != NULL:
        return (
            append(out, apart.words.at, apart.words.size)
            and append(out, apart.numbers.at, apart.numbers.size)
            and append(out, <const uint8_t*>b"   ", 3 if apart.numbers.size else 2)
        )
    return True


cdef void fold_simple(const uint8_t* text, Py_ssize_t size, Bytes* out) noexcept nogil:
    """As `fold_tokens`, of simple symbols; there is room for what is written."""
    cdef uint8_t* to = out.at + out.size
    cdef Py_ssize_t at = 0, end, numbers = 0
    cdef uint32_t before
    while True:
        at += letters_before(text + at, size - at, _left, &to)
        if at == size:
            break
        before = text[at - 1] if at else 0
        end = leet_end(text, at, before)
        if end > at:
            while at < end:
                to[0] = _letters[text[at]]
                to += 1
                at += 1
        elif _kinds[text[at]] & DIGIT:
            at = number_end(text, at)
            to[0] = c"#"
            to += 1
            numbers += 1
        else:
            at += 1
    if to - (out.at + out.size) > numbers:  # it has letters
        out.size = to - out.at


cdef inline Py_ssize_t copy_letters(
    const uint32_t* text, Py_ssize_t at, Bytes* out
) noexcept nogil:
    """Write letters, and leave all else out, until digits or signs that may be letters; return where.

    Without links and addresses letters do not depend on what is around them. So there is no branch
    at the end of a word, which would be a random one. There is room for what is written.
    """
    cdef uint32_t code = text[at]
    cdef uint8_t* to = out.at + out.size
    while code < 0x80 and not _kinds[code] & (RUN | END):
        to[0] = _letters[code]
        to += _kinds[code] & LETTER
        at += 1
        code = text[at]
    out.size = to - out.at
    return at


cdef inline void add_word(
    Bytes* words, const uint8_t* letters, Py_ssize_t size, bint begins
) noexcept nogil:
    """Add letters to the last word, or begin a word; there is room for them."""
    if begins:
        words.at[words.size] = words.at[words.size + 1] = c" "
        words.size += 2
    memcpy(words.at + words.size, letters, size)
    words.size += size


cdef inline void add_digits(Bytes* numbers, const uint32_t* text, Py_ssize_t size) noexcept nogil:
    """Add each run of digits of a number; there is room for them."""
    cdef Py_ssize_t i
    cdef bint inside = False
    for i in range(size):
        if is_kind(text[i], DIGIT):
            if not inside:
                memcpy(numbers.at + numbers.size, b"   ", 3)
                numbers.size += 3
            numbers.at[numbers.size] = text[i]
            numbers.size += 1
        inside = is_kind(text[i], DIGIT)


cdef bint keep_words(Symbols* symbols, Bytes* out) noexcept nogil:
    """Write the text's words, two spaces around each; nothing without words. False without memory."""
    cdef Py_ssize_t at, start = out.size
    cdef uint32_t code
    cdef bint inside = False
    if not has_bytes(out, 4 * symbols.size + 4):
        return False
    for at in range(symbols.size):
        code = symbols.at[at]
        if code < 0x80 and not _kinds[code] & ALNUM:
            inside = False
            continue
        if not inside:
            out.at[out.size] = out.at[out.size + 1] = c" "
            out.size += 2
            inside = True
        if code < 0x80:
            out.at[out.size] = code
            out.size += 1
        else:
            out.size += encode(code, out.at + out.size)
    if out.size > start:
        out.at[out.size] = out.at[out.size + 1] = c" "
        out.size += 2
    return True


cdef bint has_bytes(Bytes* out, Py_ssize_t more) noexcept nogil:
    """Make room for more bytes; False without memory."""
    cdef Py_ssize_t room = out.size + more
    cdef void* grown
    if room <= out.room:
        return True
    room += room >> 1
    grown = realloc(out.at, room)
    if grown == NULL:
        return False
    out.at = <uint8_t*>grown
    out.room = room
    return True


cdef inline uint32_t last(uint32_t code) noexcept nogil:
    return code if code < 0x80 else 0


cdef inline bint is_kind(uint32_t code, uint16_t kinds) noexcept nogil:
    return code < 0x80 and _kinds[code] & kinds != 0


cdef inline Py_ssize_t find(
    const uint32_t* text, Py_ssize_t at, Py_ssize_t size, uint32_t code
) noexcept nogil:
    """Return where a character is next; the size if nowhere."""
    while at < size and text[at] != code:
        at += 1
    return at


cdef Py_ssize_t url_end(const uint32_t* text, Py_ssize_t start, Py_ssize_t slash) noexcept nogil:
    """Return the end of a link with a scheme, or a name and a path; 0 if none begins here.

    Args:
        text: the symbols.
        start: where to look.
        slash: where the next slash is, or the text's end.
    """
    cdef Py_ssize_t at = start, dot = 0
    if text[slash] != c"/" or slash - start > 89:
        return 0
    # A scheme.
    if text[slash - 1] == c":" and text[slash + 1] == c"/":
        if not (is_kind(text[start], LETTER) and 2 <= slash - 1 - start <= 16):
            return 0
        for at in range(start + 1, slash - 1):
            if not is_kind(text[at], SCHEME):
                return 0
        return past(text, slash + 2, URL) if is_kind(text[slash + 2], URL) else 0
    # A name.
    for at in range(start, slash):
        if not is_kind(text[at], HOST):
            return 0
        if text[at] == c".":
            dot = at
    if not dot or not 1 <= dot - start <= 64 or not 2 <= slash - dot - 1 <= 24:
        return 0
    for at in range(dot + 1, slash):
        if not is_kind(text[at], LETTER):
            return 0
    return past(text, slash + 1, URL)


cdef inline Py_ssize_t www_end(const uint32_t* text, Py_ssize_t at) noexcept nogil:
    """Return the end of a link with www; 0 if none begins here."""
    if (
        text[at + 1] == c"w" and text[at + 2] == c"w" and text[at + 3] == c"."
        and is_kind(text[at + 4], URL)
    ):
        return past(text, at + 4, URL)
    return 0


cdef Py_ssize_t email_end(const uint32_t* text, Py_ssize_t start, Py_ssize_t sign) noexcept nogil:
    """Return the end of an address; 0 if none begins here. `sign`: where the next @ is."""
    cdef Py_ssize_t at
    if text[sign] != c"@" or not 1 <= sign - start <= 64:
        return 0
    for at in range(start + 1, sign):
        if not is_kind(text[at], LOCAL):
            return 0
    at = label_end(text, sign + 1)
    if at == sign + 1 or text[at] != c"." or label_end(text, at + 1) == at + 1:
        return 0
    while text[at] == c"." and label_end(text, at + 1) > at + 1:
        at = label_end(text, at + 1)
    return at


cdef inline Py_ssize_t label_end(const uint32_t* text, Py_ssize_t at) noexcept nogil:
    """Return the end of a label of a domain."""
    while is_kind(text[at], ALNUM) or text[at] == c"-":
        at += 1
    return at


cdef inline Py_ssize_t leet_end(
    const symbol_t* text, Py_ssize_t start, uint32_t before
) noexcept nogil:
    """Return the end of the digits and signs that stand for letters; `start` if they do not."""
    cdef Py_ssize_t end = start, core, at
    cdef bint all_leet = True
    if _kinds[before] & RUN:
        return start
    while is_kind(text[end], RUN):
        all_leet = all_leet and is_kind(text[end], LEET)
        end += 1
    if not all_leet:
        return start
    if _kinds[before] & LETTER:
        if is_kind(text[end], LETTER):
            return end if end - start <= 3 else start
        core = end
        while core > start and is_kind(text[core - 1], PUNCTUATION):
            core -= 1
        return core if core - start <= 2 else start
    if end - start == 1 and is_kind(text[end], LETTER):
        for at in range(end + 1, end + 3):
            if not is_kind(text[at], LETTER | LEET) or is_kind(text[at], PUNCTUATION):
                return start
        return end
    return start


cdef inline Py_ssize_t number_end(const symbol_t* text, Py_ssize_t at) noexcept nogil:
    """Return the end of a number."""
    while is_kind(text[at], DIGIT) or (
        is_kind(text[at], JOINER) and is_kind(text[at + 1], DIGIT)
    ):
        at += 1
    return at


cdef inline Py_ssize_t past(const uint32_t* text, Py_ssize_t at, uint16_t kinds) noexcept nogil:
    """Return where characters of these kinds end."""
    while is_kind(text[at], kinds):
        at += 1
    return at


cdef inline Py_ssize_t encode(uint32_t code, uint8_t* out) noexcept nogil:
    """Write a symbol that is not ASCII; return its bytes."""
    if SURROGATE <= code < SURROGATE + 256:
        out[0] = <uint8_t>(code - SURROGATE)
        return 1
    if code < 0x800:
        out[0] = 0xC0 | code >> 6
        out[1] = 0x80 | code & 0x3F
        return 2
    if code < 0x10000:
        out[0] = 0xE0 | code >> 12
        out[1] = 0x80 | code >> 6 & 0x3F
        out[2] = 0x80 | code & 0x3F
        return 3
    out[0] = 0xF0 | code >> 18
    out[1] = 0x80 | code >> 12 & 0x3F
    out[2] = 0x80 | code >> 6 & 0x3F
    out[3] = 0x80 | code & 0x3F
    return 4


# ------------------------------------------------------------ passages

cdef struct Passage:
    const uint8_t* at
    Py_ssize_t size
    Py_ssize_t within  # the longest other passage that this one begins with; -1 if there is none

cdef struct Head:  # the first bytes of some passages, and which these are; empty if `end` is 0
    uint64_t head
    Py_ssize_t first
    Py_ssize_t end


@cython.final
cdef class Passages:
    """See `folding.Passages`.

    The passages are sorted, so those that begin alike are neighbours. A table of hashes leads from
    eight bytes of a text to the passages that begin with them. Among these, the last one that is
    not greater than the text is looked for: whichever passages the text begins with, this one
    begins with them too. So the work is bounded, whatever the texts and the passages are.
    """

    cdef bytes _all  # what `_passages` point into
    cdef Passage* _passages
    cdef Head* _heads
    cdef uint64_t _mask

    def __cinit__(self, passages):
        cdef Py_ssize_t index, count, start = 0, other
        cdef uint64_t room = 8, slot, head
        cdef bytes passage
        cdef list ordered = sorted(set(passages))
        for passage in ordered:
            if len(passage) < folding.MIN_PASSAGE_BYTES:
                least = folding.MIN_PASSAGE_BYTES
                raise ValueError(f"the passage {passage!r} has fewer than {least} bytes")
        count = len(ordered)
        while room < 4 * count:
            room *= 2
        self._mask = room - 1
        self._all = b"".join(ordered)
        self._passages = <Passage*>malloc((count + 1) * sizeof(Passage))
        self._heads = <Head*>calloc(room, sizeof(Head))
        if self._passages == NULL or self._heads == NULL:
            raise MemoryError
        for index in range(count):
            passage = ordered[index]
            other = index - 1
            while other >= 0 and not passage.startswith(ordered[other]):
                other = self._passages[other].within
            self._passages[index] = Passage(
                <const uint8_t*>PyBytes_AS_STRING(self._all) + start, len(passage), other
            )
            head = head_of(self._passages[index].at)
            slot = self.slot_of(head)
            if not self._heads[slot].end:
                self._heads[slot] = Head(head, index, index)
            self._heads[slot].end = index + 1
            start += len(passage)

    def __dealloc__(self):
        free(self._passages)
        free(self._heads)

    def leave_out(self, texts):
        """See `folding.Passages.leave_out`."""
        cdef Texts batch = Texts(texts)
        cdef Py_ssize_t index
        cdef bint enough = True
        cdef list left = []
        with nogil:
            for index in range(batch.count):
                enough = self.write_rest(batch.froms[index], batch.sizes[index], &batch.out)
                if not enough:
                    break
                batch.ends[index] = batch.out.size
        if not enough:
            raise MemoryError
        for index in range(batch.count):
            left.append(batch.written(index) or batch.values[index])
        return left

    cdef bint write_rest(
        self, const uint8_t* text, Py_ssize_t size, Bytes* out
    ) noexcept nogil:
        """Write what is left of a text; nothing if it stays whole. False without memory."""
        cdef Py_ssize_t at = 0, start = 0, found, before = out.size
        for at in range(size - 1):
            if text[at] == c" " and text[at + 1] == c" ":
                size = at  # without its words
                break
        at = 0
        while at + <Py_ssize_t>sizeof(uint64_t) <= size:
            found = self.longest(text + at, size - at)
            if not found:
                at += 1
                continue
            if not append(out, text + start, at - start):
                return False
            at += found
            start = at
        if not start:
            return True
        if not append(out, text + start, size - start):
            return False
        for at in range(before, out.size):
            if out.at[at] != c"/" and out.at[at] != c"@" and out.at[at] != c"#":
                return True
        out.size = before
        return True

    cdef inline Py_ssize_t longest(self, const uint8_t* text, Py_ssize_t size) noexcept nogil:
        """Return the size of the longest passage that a text begins with; 0 if there is none."""
        cdef uint64_t slot = self.slot_of(head_of(text))
        cdef Py_ssize_t low = self._heads[slot].first, high = self._heads[slot].end
        cdef Py_ssize_t middle, index, common = 0
        if not high:
            return 0
        while low < high:
            middle = (low + high) // 2
            if is_greater(self._passages + middle, text, size):
                high = middle
            else:
                low = middle + 1
        index = low - 1
        if index < self._heads[slot].first:
            return 0
        size = min(size, self._passages[index].size)
        while common < size and self._passages[index].at[common] == text[common]:
            common += 1
        while index >= 0 and self._passages[index].size > common:
            index = self._passages[index].within
        return self._passages[index].size if index >= 0 else 0

    cdef inline uint64_t slot_of(self, uint64_t head) noexcept nogil:
        """Return where a head is in the table, or would be."""
        cdef uint64_t slot = (head * <uint64_t>0x9E3779B97F4A7C15) >> 32 & self._mask
        while self._heads[slot].end and self._heads[slot].head != head:
            slot = slot + 1 & self._mask
        return slot


cdef inline uint64_t head_of(const uint8_t* text) noexcept nogil:
    cdef uint64_t head
    memcpy(&head, text, sizeof(head))
    return head


cdef inline bint is_greater(
    const Passage* passage, const uint8_t* text, Py_ssize_t size
) noexcept nogil:
    """Return whether a passage comes after a text in the order of bytes."""
    cdef int order = memcmp(passage.at, text, min(size, passage.size))
    return order > 0 or (order == 0 and passage.size > size)


cdef inline bint append(Bytes* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Write some bytes; False without memory."""
    if not has_bytes(out, size):
        return False
    if size:
        memcpy(out.at + out.size, text, size)
    out.size += size
    return True


# ------------------------------------------------------------ tables


cdef _load_kinds():
    cdef int code
    for code in range(128):
        character_ = chr(code)
        letter, digit = "a" <= character_ <= "z", "0" <= character_ <= "9"
        _letters[code] = code
        _marks[code] = SLASH * (character_ == "/") | AT * (character_ == "@")
        _kinds[code] = (
            LETTER * letter
            | (DIGIT | RUN) * digit
            | RUN * (character_ in "@$!|+")
            | LEET * (character_ in "01345789@$!|+")
            | PUNCTUATION * (character_ in "!|+")
            | URL * ("!" <= character_ <= "~" and character_ not in "\"'<>|")
            | SCHEME * (letter or digit or character_ in "+.-")
            | HOST * (letter or digit or character_ in ".-")
            | LOCAL * (letter or digit or character_ in "._%+-")
            | JOINER * (character_ in ",.:/-")
            | END * (code == 0)
        )
    for code, letter in folding.LETTERS.items():
        _letters[code] = letter


cdef _load_table():
    cdef uint32_t page[256]
    cdef uint32_t code, number, entry, first, last_kept, used = 0, several = 0
    table = folding.table()
    by_page = {}
    for code, text in table.left.items():
        by_page.setdefault(code >> 8, []).append((code & 255, text))
    known = {}
    kept = zip(*table.kept)
    first, last_kept = next(kept)
    for number in range(PAGES):
        for entry in range(256):
            code = number << 8 | entry
            while last_kept < code:
                first, last_kept = next(kept, (DROPPED, DROPPED))
            page[entry] = 32  # a space
            if first <= code:
                page[entry] = KEPT if number else code
        for entry, text in by_page.get(number, ()):
            if len(text) == 1:
                page[entry] = ord(text)
            elif not text:
                page[entry] = DROPPED
            else:
                page[entry] = SEVERAL + several
                for each in (len(text), *map(ord, text)):
                    assert several < sizeof(_several) / sizeof(uint32_t)
                    _several[several] = each
                    several += 1
        key = (<char*>page)[: sizeof(page)]
        if key not in known:
            assert used < MAX_PAGES
            known[key] = used
            memcpy(_pages[used], page, sizeof(page))
            used += 1
        _page_of[number] = known[key]


cdef _load_left():
    cdef uint8_t code
    cdef uint8_t symbols[1 + PADDING]
    for code in range(128):
        if simple_symbols(&code, 1, symbols):
            assert symbols[0] == _pages[0][code]
        if _kinds[code] & RUN:
            _left[code] = RUNS
        else:
            _left[code] = _letters[code] if _kinds[code] & LETTER else 0


_load_kinds()
_load_table()
_load_left()

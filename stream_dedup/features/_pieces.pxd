# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Structure inside a line: `pieces` in C; read that first. `_pieces.pyx` and the kernel use it.

`next_piece` yields the pieces of a line one by one. All state is in a `Line`, so nothing is
allocated; a line without brackets, quotes and assignments costs a few comparisons a token more than
the tokens alone.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset, strstr

cdef enum:
    # Byte classes, ORed over a token. Zero is a delimiter.
    ORDINARY = 1
    DIGIT = 2
    DOT = 4
    AT = 8
    NAME = 16  # may stand in a dotted name
    SLASH = 32
    DASH = 64
    NOT_HEX = 128  # no letter of a hex number

    SUBSTITUTE = 0x1A
    ESC = 0x1B
    LAST_SEPARATOR = 0x1F  # of files, groups, records and units, from the one behind ESC on

    # Kinds of delimiters.
    SPACE = 0
    EQUALS
    COLONS
    COMMA
    OPENING
    CLOSING
    QUOTE
    LESS
    OTHERS
    ESCAPE

    WORDS = 256  # slots of a set of words, at most half of them used
    WORD_BYTES = 15
    MAX_WORDS = 2
    MAX_KEY = 32
    HEAD_BYTES = 128
    MAX_THREAD = 128  # bytes in the brackets of a thread
    THREAD_DEPTH = 4  # of brackets in each other
    MAX_NAME = 41  # bytes of a part of the name of a class, or of the name of a product
    MAX_CLASS = 81
    MAX_PARTS = 16
    LEAST_SCRAMBLED = 14  # letters of an identifier of letters alone
    LEAST_CHANGES = 5
    MARK_WORDS = 10  # words between a host and the mark of network equipment

cdef enum Role:
    # What the text since the last token, or since a string, says of the next token.
    OTHER = 0
    OPENED
    ITEM
    ASSIGNED
    COLON
    SPACED
    QUOTED
    JSON

cdef struct Words:  # a set of words, padded with zeros, with the length in the last byte
    uint64_t at[WORDS][2]
    uint32_t lengths[256]  # by first byte: bit n for words of n bytes
    uint8_t first[256]  # whether a word begins with this byte

cdef struct Tables:
    uint8_t classes[256]
    uint8_t gaps[256]  # kinds of delimiters
    Words units
    Words labels
    Words message_keys
    Words sentence_keys
    Words outcome_keys
    Words states
    Words programs
    Words clock_marks
    Words media
    Words irregular
    Words state_keys
    Words roles
    Words method_parts
    Words name_parts
    Words levels

cdef struct Close:  # the end of a string: see `find_close`
    size_t looked
    size_t at
    bint there
    uint8_t follower  # the byte that follows it, white space aside; 0 at the end of the text

cdef struct Line:
    const uint8_t* text
    size_t length
    size_t at
    Role role
    size_t depth
    size_t outermost  # where the last bracket is that is in no other one
    uint64_t keyed  # of the innermost 64 brackets, a bit each: whether a key comes before it
    size_t last, last_end  # the last token that was in no value's string; no token: 0, 0
    size_t end  # the last token's end, if nothing but a gap follows it; else 0
    bint blank  # whether that gap is white space
    bint number  # whether that token holds a digit
    size_t plain  # end of a single-quoted string whose words are words
    size_t inside  # end of the value's string that is being taken; else 0
    size_t checked_end  # end of a token that runs of dots or dashes divide
    bint requested  # whether the request of an access log has been read
    size_t method  # where its method ends, else 0
    size_t version  # and where the space before its version is
    size_t optional  # where an optional value's bracket is
    size_t within  # one more than the depth at which the brackets of an optional value end; else 0
    size_t hex_end  # end of the last run of hex groups that was looked at
    bint is_hex
    size_t message_end  # of the last string behind a message key
    size_t nested_end  # end of the last names joined by "::" that were looked at
    bint is_nested
    size_t list_end  # end of the items of the last list in square brackets
    size_t assigned_end  # end of the last value of a key, outside brackets, that has colons
    size_t host, host_end  # in the head of a line of syslog; no host: 0, 0
    Close single
    Close double

cdef struct Piece:
    size_t start
    size_t end
    int held  # the classes of its bytes
    bint variable  # by its place, or by a class that only `pieces` has
    bint assigned  # a word that is the value of a key, outside brackets
    bint nested  # in brackets, and not in a message in quotes; see `never_closed`
    bint absent  # stands for a value that is not there, or for what a client has chosen


# ---------------------------------------------------------------- sets of words

cdef inline uint64_t packed(const uint8_t* word, size_t length, bint lower) noexcept nogil:
    # At most eight bytes, little-endian.
    cdef uint64_t out = 0
    cdef size_t i
    cdef uint64_t byte
    for i in range(length):
        byte = word[i]
        if lower and c"A" <= byte <= c"Z":
            byte |= 0x20
        out |= byte << 8 * i
    return out


cdef inline size_t slot_of(uint64_t head, uint64_t tail) noexcept nogil:
    return ((head ^ tail * <uint64_t>0x9E3779B97F4A7C15) * <uint64_t>0xC2B2AE3D27D4EB4F) >> 56


cdef inline int find_slot(const Words* words, uint64_t head, uint64_t tail) noexcept nogil:
    cdef size_t slot = slot_of(head, tail)
    while words.at[slot][0] != 0 and (words.at[slot][0] != head or words.at[slot][1] != tail):
        slot = (slot + 1) & (WORDS - 1)
    return <int>slot


cdef inline bint holds(
    const Words* words, const uint8_t* word, size_t length, bint lower
) noexcept nogil:
    cdef uint64_t head, tail = 0
    if length == 0 or length > WORD_BYTES:
        return False
    if not words.lengths[word[0]] >> length & 1:
        return False
    head = packed(word, length if length < 8 else 8, lower)
    if length > 8:
        tail = packed(word + 8, length - 8, lower)
    tail |= <uint64_t>length << 56
    return words.at[find_slot(words, head, tail)][0] != 0


cdef inline void add_word(Words* words, const uint8_t* word, size_t length, bint lower) noexcept:
    cdef uint64_t head = packed(word, length if length < 8 else 8, False), tail = 0
    cdef int slot
    if length > 8:
        tail = packed(word + 8, length - 8, False)
    tail |= <uint64_t>length << 56
    slot = find_slot(words, head, tail)
    words.at[slot][0] = head
    words.at[slot][1] = tail
    words.lengths[word[0]] |= <uint32_t>1 << length
    words.first[word[0]] = 1
    if lower and c"a" <= word[0] <= c"z":
        words.lengths[word[0] - 32] |= <uint32_t>1 << length


cdef inline int set_words(Words* table, words, bint lower=False) except -1:
    memset(table, 0, sizeof(Words))
    if len(words) > WORDS // 2:
        raise ValueError(f"{len(words)} words are more than {WORDS // 2}")
    for word in words:
        if len(word) > WORD_BYTES:
            raise ValueError(f"{word!r} is longer than {WORD_BYTES} bytes")
        add_word(table, word, len(word), lower)
    return 0


# ---------------------------------------------------------------- tables

cdef inline int fill_classes(uint8_t* classes, delimiters) except -1:
    """Fill the classes of bytes that all recipes use."""
    cdef int byte
    for byte in range(256):
        char = chr(byte)
        kind = 0 if byte in delimiters else ORDINARY
        if kind and byte < 128:
            kind |= DIGIT if char.isdigit() else 0
            kind |= NAME if char.isalnum() or char in "_$-" else 0
            kind |= DOT if char == "." else 0
            kind |= AT if char == "@" else 0
        elif kind:
            kind |= NAME
        classes[byte] = kind
    return 0


cdef inline int gap_kind(str char) except -1:
    for kind, chars in (
        (SPACE, " \t\n\r\x0b\x0c"), (EQUALS, "="), (COLONS, ":"), (COMMA, ",;"), (OPENING, "([{"),
        (CLOSING, ")]}"), (QUOTE, "\"'"), (LESS, "<"), (ESCAPE, "\x1b"),
    ):
        if char in chars:
            return kind
    return OTHERS


cdef inline int fill_tables(Tables* tables, delimiters) except -1:
    from stream_dedup.features import kinds, pieces, tokens, variants

    cdef int byte
    fill_classes(tables.classes, delimiters)
    for byte in range(256):
        char = chr(byte)
        kind = tables.classes[byte]
        kind |= (SLASH if char in "/\\" else 0) | (DASH if char == "-" else 0)
        kind |= NOT_HEX if kind and char not in "abcdefABCDEF" else 0
        tables.classes[byte] = 0 if ESC <= byte <= LAST_SEPARATOR else kind
        tables.gaps[byte] = gap_kind(char)
    set_words(&tables.units, tokens.UNITS)
    set_words(&tables.labels, pieces.LAST_LABELS, True)
    set_words(&tables.message_keys, kinds.MESSAGE_KEYS, True)
    set_words(&tables.sentence_keys, kinds.SENTENCE_KEYS, True)
    set_words(&tables.outcome_keys, kinds.OUTCOME_KEYS, True)
    set_words(&tables.states, kinds.STATES, True)
    set_words(&tables.programs, pieces.PROGRAMS, True)
    set_words(&tables.clock_marks, pieces.CLOCK_MARKS)
    set_words(&tables.media, pieces.MEDIA)
    set_words(&tables.irregular, kinds.IRREGULAR)
    set_words(&tables.state_keys, kinds.STATE_KEYS, True)
    set_words(&tables.roles, kinds.ROLES, True)
    set_words(&tables.method_parts, kinds.METHOD_PARTS, True)
    set_words(&tables.name_parts, kinds.NAME_PARTS, True)
    set_words(&tables.levels, [level.encode() for level in variants.LEVELS], True)
    return 0


# ---------------------------------------------------------------- bytes

cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == c" " or 9 <= byte <= 13


cdef inline bint is_word_byte(uint8_t byte) noexcept nogil:
    return (c"a" <= byte <= c"z" or c"A" <= byte <= c"Z" or c"0" <= byte <= c"9"
            or byte == c"_" or byte >= 128)


cdef inline bint is_lower(uint8_t byte) noexcept nogil:
    return c"a" <= byte <= c"z"


cdef inline bint is_upper(uint8_t byte) noexcept nogil:
    return c"A" <= byte <= c"Z"


cdef inline bint divides(uint8_t byte) noexcept nogil:
    """Return whether a byte is between the parts of a key."""
    return byte == c"_" or byte == c"." or byte == c"-"


cdef inline bint is_hex_digit(uint8_t byte) noexcept nogil:
    return c"0" <= byte <= c"9" or c"a" <= byte | 0x20 <= c"f"


cdef inline bint is_run(const Line* line, size_t at) noexcept nogil:
    """Return whether three dots or four dashes begin here."""
    cdef const uint8_t* p = line.text + at
    cdef size_t left = line.length - at
    if p[0] == c".":
        return left > 2 and p[1] == c"." and p[2] == c"."
    return left > 3 and p[0] == c"-" and p[1] == c"-" and p[2] == c"-" and p[3] == c"-"


cdef inline size_t run_end(const Line* line, size_t at) noexcept nogil:
    cdef uint8_t byte = line.text[at]
    while at < line.length and line.text[at] == byte:
        at += 1
    return at


cdef inline size_t before_escape(const Line* line, size_t start, size_t end) noexcept nogil:
    """Return where a token ends whose last backslashes escape a quote."""
    cdef const uint8_t* text = line.text
    if end == line.length or end == start or text[end - 1] != c"\\" or (
        text[end] != c'"' and text[end] != c"'"
    ):
        return end
    while end > start and text[end - 1] == c"\\":
        end -= 1
    return end


cdef inline size_t word_end(Line* line, const Tables* tables, size_t start, int* held) noexcept nogil:
    """Return where the token that begins here ends; `start` if a run begins here."""
    cdef const uint8_t* text = line.text
    cdef const uint8_t* classes = tables.classes
    cdef size_t i = start, length = line.length, at
    cdef int kind, kinds = 0
    if start >= line.checked_end:
        while i < length:
            kind = classes[text[i]]
            if kind == 0:
                break
            kinds |= kind
            i += 1
        held[0] = kinds
        if not kinds & (DOT | DASH):
            return before_escape(line, start, i) if kinds & SLASH else i
        at = start + 2  # of three in a row, one is found in steps of three
        while at < i and not (
            classes[text[at]] & (DOT | DASH)
            and (text[at] == text[at - 1] or (at + 1 < i and text[at] == text[at + 1]))
        ):
            at += 3
        if at >= i:
            return before_escape(line, start, i) if kinds & SLASH else i
        line.checked_end = i
        i = start
    held[0] = 0
    while i < length:
        kind = classes[text[i]]
        if kind == 0 or (kind & (DOT | DASH) and is_run(line, i)):
            break
        held[0] |= kind
        i += 1
    return before_escape(line, start, i)


cdef inline size_t escape_end(const Line* line, size_t at) noexcept nogil:
    """Return where an escape sequence ends; directly after its first byte if it is none."""
    cdef const uint8_t* text = line.text
    cdef size_t length = line.length, i = at + 1, after
    if i == length:
        return i
    if text[i] == c"[":
        after = i + 1
        while after < length and c"0" <= text[after] <= c"?":
            after += 1
        while after < length and (text[after] == c" " or text[after] == c"!" or text[after] == c"$"):
            after += 1
        return after + 1 if after < length and c"@" <= text[after] <= c"~" else i
    if text[i] == c"#" or text[i] == c"%" or c"(" <= text[i] <= c"+":
        return i + 2 if i + 1 < length and c"0" <= text[i + 1] <= c"~" else i
    return i + 1 if c"0" <= text[i] <= c"~" else i


cdef inline bint is_octal(const uint8_t* text, size_t length) noexcept nogil:
    """Return whether a text begins as what rsyslog writes for a control character."""
    cdef size_t i
    if length < 4 or text[0] != c"#":
        return False
    for i in range(1, 4):
        if not c"0" <= text[i] <= c"9":
            return False
    return True


cdef inline bint begins_behind(uint8_t byte) noexcept nogil:
    """Return whether what is behind three octal digits may make them an escape."""
    return (
        c"a" <= byte | 0x20 <= c"z" or byte == c"#" or byte == c"[" or byte == c"]"
        or byte == c"%" or c"(" <= byte <= c"+"
    )


cdef inline bint may_have_escapes(const uint8_t* text, size_t length) noexcept nogil:
    """Return whether a text may have escapes, whatever its digits are.

    The kernel remembers lines by what is between their digits, but none of these.
    """
    cdef const uint8_t* at = text
    cdef const uint8_t* end = text + length
    if length == 0:
        return False
    if memchr(text, ESC, length) != NULL:
        return True
    while True:
        at = <const uint8_t*>memchr(at, c"#", end - at)
        if at == NULL:
            return False
        if is_octal(at, end - at) and (
            at != text and not is_blank(at[-1]) or at + 4 < end and begins_behind(at[4])
        ):
            return True
        at += 1
        if at == end:
            return False


cdef inline size_t written_escape_end(const Line* line, size_t at) noexcept nogil:
    """Return where an escape sequence ends whose first byte is written ``#033``; `at` if none does."""
    cdef const uint8_t* text = line.text
    cdef size_t length = line.length, end
    cdef uint8_t behind = text[at + 4] if at + 4 < length else c" "
    if behind == c"[":
        end = escape_end(line, at + 3)
        return end if end > at + 4 else at
    if behind == c"]":
        return at + 5
    if (behind == c"%" or c"(" <= behind <= c"+") and (
        at + 5 < length and c"0" <= text[at + 5] <= c"~"
    ):
        return at + 6
    return at


cdef inline bint continues(const Line* line, size_t at) noexcept nogil:
    """Return whether a letter, or what rsyslog may have written, is here."""
    cdef const uint8_t* text = line.text
    return at < line.length and (
        c"a" <= text[at] | 0x20 <= c"z"
        or text[at] == c"#" and at + 1 < line.length and text[at + 1] == c"0"
    )


cdef inline bint is_of_rsyslog(const Line* line) noexcept nogil:
    """Return whether a text has control characters as rsyslog writes them, that are no numbers."""
    cdef const uint8_t* text = line.text
    cdef size_t length = line.length, at
    cdef uint8_t high, low, before
    for at in range(length):
        if text[at] != c"#" or not is_octal(text + at, length - at) or text[at + 1] != c"0":
            continue
        high, low = text[at + 2], text[at + 3]
        before = text[at - 1] if at else c" "
        if high == c"3" and low == c"3" and written_escape_end(line, at) > at:
            return True
        if high == c"1" and (low == c"1" or low == c"2"):
            if continues(line, at + 4):
                return True
            if (
                not is_blank(before) and at + 5 < length
                and is_blank(text[at + 4]) and is_blank(text[at + 5])
            ):
                return True
        if at + 4 == length and (
            high == c"1" and (low == c"2" or low == c"5") or high == c"0" and low == c"0"
        ) and (
            c"a" <= before | 0x20 <= c"z" or before == c")" or before == c"]" or before == c"}"
            or before == c'"' or before == c"'" or before == c"." or before == c"!"
            or before == c"?"
        ):
            return True
    return False


cdef inline size_t escapes_end(
    const Line* line, size_t at, bint of_rsyslog, bint* spaced
) noexcept nogil:
    """Return where escapes that follow each other end, `at` if there is none here.

    Those of terminals and, if so, what rsyslog writes: see `LineReader.without_escapes`. `spaced`
    is set if white space is among them.
    """
    cdef const uint8_t* text = line.text
    cdef size_t length = line.length, end
    cdef uint8_t high, low
    while at < length:
        if text[at] == ESC:
            at = escape_end(line, at)
            continue
        if not of_rsyslog or not is_octal(text + at, length - at) or text[at + 1] != c"0":
            break
        high, low = text[at + 2], text[at + 3]
        if high == c"3" and low == c"3":
            end = written_escape_end(line, at)
            if end > at:
                at = end
                continue
        elif not (
            high == c"0" and (low == c"0" or low == c"7")
            or high == c"1" and (c"0" <= low <= c"5" or low == c"7")
        ):
            break
        if (at == 0 or is_blank(text[at - 1])) and not continues(line, at + 4):
            break
        spaced[0] = spaced[0] or high != c"3"
        at += 4
    return at


cdef inline bint is_method(const uint8_t* word, size_t length) noexcept nogil:
    """Return whether a word is one of `variants.METHODS`."""
    cdef char method[10]  # between spaces, as in the list
    cdef size_t at
    if not 3 <= length <= 7:
        return False
    for at in range(length):
        if not c"A" <= word[at] <= c"Z":
            return False
        method[1 + at] = word[at]
    method[0] = method[length + 1] = c" "
    method[length + 2] = 0
    return strstr(b" GET HEAD POST PUT PATCH DELETE OPTIONS ", method) != NULL


cdef inline size_t skip_blank(const Line* line, size_t at) noexcept nogil:
    while at < line.length and is_blank(line.text[at]):
        at += 1
    return at


# ---------------------------------------------------------------- between tokens

cdef inline const Close* find_close(Line* line, size_t at, uint8_t quote) noexcept nogil:
    cdef Close* found = &line.double if quote == c'"' else &line.single
    cdef const uint8_t* text = line.text
    cdef size_t i = at, behind
    if found.looked <= at <= found.at:
        return found
    found.looked = at
    found.there = False
    while i < line.length and text[i] != c"\n":
        if text[i] == c"\\":
            i += 1 if i + 1 < line.length and text[i + 1] == c"\n" else 2
            continue
        if text[i] == quote and (
            quote == c'"' or i + 1 == line.length or not is_word_byte(text[i + 1])
        ):
            found.there = True
            break
        i += 1
    found.at = i if i < line.length else line.length
    if found.there:
        behind = skip_blank(line, i + 1)
        found.follower = text[behind] if behind < line.length else 0
    return found


cdef inline bint is_word(const uint8_t* text, const char* word, size_t length) noexcept nogil:
    """Return whether letters are a word in lower case."""
    cdef size_t i
    for i in range(length):
        if text[i] | 0x20 != <uint8_t>word[i]:
            return False
    return True


cdef inline size_t last_part(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Return where the last part of a key begins, behind other bytes; `end` if it is all one."""
    cdef size_t i = end
    while i > start and is_lower(text[i - 1]):
        i -= 1
    if i == start:
        return end
    if is_upper(text[i - 1]):  # of "lastError"; or all of "LAST_ERROR"
        i -= 1
        if i + 1 == end:
            while i > start and is_upper(text[i - 1]):
                i -= 1
            return i if i > start and (
                divides(text[i - 1]) or i + 1 == end and (
                    is_lower(text[i - 1]) or is_digit(text[i - 1])
                )
            ) else end
        return i if i > start and (
            divides(text[i - 1]) or is_lower(text[i - 1]) or is_digit(text[i - 1])
        ) else end
    return i if divides(text[i - 1]) else end


cdef inline bint is_role(
    const Tables* tables, const uint8_t* text, size_t start, size_t end
) noexcept nogil:
    """Return whether a word is the role of a member of a cluster: `kinds.is_role`."""
    cdef size_t at = start
    if start < 5 or not holds(&tables.roles, text + start, end - start, True):
        return False
    if text[at - 1] == c'"' or text[at - 1] == c"'":
        at -= 1
    if text[at - 1] == c"=":
        at -= 1
        if text[at - 1] == c" ":
            at -= 1
    elif text[at - 1] == c":":
        at -= 1
    elif text[at - 1] == c" ":
        at -= 1
        if text[at - 1] == c":":
            at -= 1
        elif text[at - 1] == c"=":
            at -= 1
            if text[at - 1] == c" ":
                at -= 1
    else:
        return False
    if at and (text[at - 1] == c'"' or text[at - 1] == c"'"):
        at -= 1
    return at > 3 and holds(&tables.state_keys, text + at - 4, 4, True) and (
        at == 4 or tables.classes[text[at - 5]] == 0
    )


cdef inline bint is_message_key(const Line* line, const Tables* tables) noexcept nogil:
    """Return whether the last token is a key whose value says what happened."""
    cdef const uint8_t* text = line.text
    cdef size_t start = line.last, end = line.last_end, i, first
    if end - start > MAX_KEY:
        start = end - MAX_KEY
    if holds(&tables.message_keys, text + start, end - start, True):
        return True
    i = last_part(text, start, end)
    if i == end:
        return False
    if holds(&tables.outcome_keys, text + i, end - i, True):
        return True
    if end - i == 6:
        if not is_word(text + i, b"method", 6):
            return False
    elif end - i != 4 or not (is_word(text + i, b"type", 4) or is_word(text + i, b"name", 4)):
        return False
    end = i - 1 if divides(text[i - 1]) else i
    first = last_part(text, start, end)
    if first == end:
        first = start
    return holds(
        &tables.method_parts if line.last_end - i == 6 else &tables.name_parts,
        text + first, end - first, True,
    )


cdef inline bint has_words(const uint8_t* text, size_t length) noexcept nogil:
    """Return whether a text has more words, between white space, than `pieces.MAX_WORDS`."""
    cdef size_t i
    cdef int words = 0
    for i in range(length):
        if not is_blank(text[i]) and (i == 0 or is_blank(text[i - 1])):
            words += 1
            if words > MAX_WORDS:
                return True
    return False


cdef inline int take_string(
    Line* line, const Tables* tables, size_t at, uint8_t quote, bint behind_word, Piece* piece
) noexcept nogil:
    """Take a string: 0 if there is none, 1 if its words are words, 2 if it is one value."""
    cdef const Close* found = find_close(line, at + 1, quote)
    cdef size_t close = found.at
    cdef uint8_t follower = found.follower
    cdef bint words
    cdef Role role = line.role
    if not found.there:
        return 0
    if quote == c'"' and (role == OPENED or role == ITEM) and not (
        follower == c"," or follower == c")" or follower == c"]" or follower == c"}"
    ):
        return 0
    line.role = OTHER
    line.blank = False
    line.at = at + 1
    words = quote == c"'" and line.depth and follower == c":"  # a key
    if role == ASSIGNED or role == COLON or role == SPACED or role == JSON or behind_word:
        if is_message_key(line, tables):
            words = True
            line.message_end = close
        words = words or is_role(tables, line.text, at + 1, close)
    if not (
        role == ASSIGNED or role == JSON
        or ((role == COLON or role == SPACED) and line.depth)
        or ((role == OPENED or role == ITEM) and line.keyed & 1)
        or (at and (line.text[at - 1] == c"b" or line.text[at - 1] == c"u"))
    ):
        words = words or has_words(line.text + at + 1, close - at - 1)
    if words:
        if quote == c"'":
            line.plain = close
        return 1
    line.inside = close
    piece.start = piece.end = at + 1
    piece.held = 0
    piece.variable = True
    return 2


cdef inline bint begins_sentence(const Line* line, size_t at) noexcept nogil:
    """Return whether a colon, a space and a letter are here, but no literal of JSON."""
    cdef const uint8_t* text = line.text + at
    cdef size_t left = line.length - at, size = 0
    if left < 3 or text[0] != c":" or text[1] != c" " or not c"a" <= text[2] | 0x20 <= c"z":
        return False
    if left > 5 and (memcmp(text + 2, b"true", 4) == 0 or memcmp(text + 2, b"null", 4) == 0):
        size = 6
    elif left > 6 and memcmp(text + 2, b"false", 5) == 0:
        size = 7
    return size == 0 or left > size and c"a" <= text[size] | 0x20 <= c"z"


cdef inline bint is_name(Line* line, const Tables* tables, size_t at) noexcept nogil:
    """Return whether a single word in double quotes, of class 12, begins here."""
    cdef const uint8_t* text = line.text
    cdef const Close* found
    cdef size_t i
    if is_message_key(line, tables):
        return False
    found = find_close(line, at + 1, c'"')
    if not found.there or found.follower == c"=":
        return False
    if is_role(tables, text, at + 1, found.at):
        return False
    if found.follower == c":" and (line.depth or not begins_sentence(line, found.at + 1)):
        return False  # a key
    for i in range(at + 1, found.at):
        if is_blank(text[i]) or text[i] == ESC or text[i] == c'"':
            return False
    return found.at > at + 1


cdef inline size_t method_end(const Line* line, size_t at) noexcept nogil:
    """Return where one of `variants.METHODS` ends that is here, before a space, else 0."""
    cdef size_t end = at
    while end < line.length and end - at < 8 and is_upper(line.text[end]):
        end += 1
    if end == line.length or line.text[end] != c" " or not is_method(line.text + at, end - at):
        return 0
    return end


cdef inline size_t version_at(const uint8_t* text, size_t length) noexcept nogil:
    """Return where a space and a version of HTTP begin that end a text, else 0."""
    if length >= 9 and text[length - 2] == c".":
        if memcmp(text + length - 9, b" HTTP/", 6) == 0 and (
            c"0" <= text[length - 3] <= c"9" and c"0" <= text[length - 1] <= c"9"
        ):
            return length - 9
        return 0
    if length >= 7 and memcmp(text + length - 7, b" HTTP/", 6) == 0 and (
        c"0" <= text[length - 1] <= c"9"
    ):
        return length - 7
    return 0


cdef inline int classes_of(const Tables* tables, const uint8_t* text, size_t length) noexcept nogil:
    cdef int held = 0
    cdef size_t i
    for i in range(length):
        held |= tables.classes[text[i]]
    return held


cdef inline void put_chosen(
    const Line* line, const Tables* tables, size_t start, size_t end, Piece* piece
) noexcept nogil:
    """Make a piece of what a client has chosen."""
    piece.start = start
    piece.end = end
    piece.held = classes_of(tables, line.text + start, end - start)
    piece.variable = piece.absent = True


cdef inline bint has_status_behind(const Line* line, size_t at) noexcept nogil:
    """Return whether a quote closes at a place, and a status of HTTP is behind it."""
    cdef const uint8_t* text = line.text + at
    return at + 5 <= line.length and text[1] == c" " and c"1" <= text[2] <= c"5" and (
        c"0" <= text[3] <= c"9" and c"0" <= text[4] <= c"9"
    ) and (at + 5 == line.length or is_blank(text[5]))


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return c"a" <= byte | 0x20 <= c"z"


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c"0" <= byte <= c"9"


cdef inline size_t product_version(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where the first digit of a product's version is (``curl/7.88``), 0 if here is none."""
    cdef size_t start = at
    if at == length or not is_letter(text[at]):
        return 0
    while at < length and at - start < MAX_NAME and (
        is_letter(text[at]) or text[at] == c"." or text[at] == c"_" or text[at] == c"-"
    ):
        at += 1
    if at == length or text[at] != c"/":
        return 0
    at += 1
    if at < length and text[at] == c"v":
        at += 1
    return at if at < length and is_digit(text[at]) else 0


cdef inline size_t product_end(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where the name and the version of a product end that begin here, else 0."""
    cdef size_t start = product_version(text, length, at)
    if start == 0:
        return 0
    at = start
    while at < length and at - start < MAX_NAME and (
        is_letter(text[at]) or is_digit(text[at]) or text[at] == c"." or text[at] == c"_"
        or text[at] == c"-"
    ):
        at += 1
    return at


cdef inline bint is_agent(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return whether a string begins here as a user agent."""
    cdef size_t end = product_end(text, length, at)
    if end == 0 or end == length or memcmp(text + at, b"HTTP/", 5) == 0:
        return False
    if text[end] == c'"':
        return True
    return text[end] == c" " and end + 1 < length and (
        text[end + 1] == c"(" or product_version(text, length, end + 1) != 0
    )


cdef inline bint take_plain_string(
    Line* line, const Tables* tables, size_t at, Role role, bint behind_word, Piece* piece
) noexcept nogil:
    """Take a string that an access log makes a value, or a user agent; return whether it is one."""
    cdef size_t end
    cdef const Close* found
    if is_agent(line.text, line.length, at + 1) and not (
        (role == ASSIGNED or role == COLON or role == SPACED or role == JSON or behind_word)
        and is_message_key(line, tables)
    ):
        found = find_close(line, at + 1, c'"')
        if found.there:
            put_chosen(line, tables, at + 1, found.at, piece)
            line.at = found.at + 1
            line.end = 0
            return True
    if (
        role == ASSIGNED or role == COLON or role == SPACED or role == JSON
        or (at + 1 < line.length and is_blank(line.text[at + 1]))
    ):
        return False
    if line.requested:
        if behind_word or at == 0 or not is_blank(line.text[at - 1]):
            return False
        found = find_close(line, at + 1, c'"')
        if not found.there:
            return False
        put_chosen(line, tables, at + 1, found.at, piece)
        line.at = found.at + 1
        line.end = 0
        return True
    end = method_end(line, at + 1)
    if end == 0:
        return False
    found = find_close(line, at + 1, c'"')
    if not found.there or not has_status_behind(line, found.at):
        return False
    line.version = version_at(line.text + at + 1, found.at - at - 1)
    if line.version:
        line.requested = True
        line.method = end
        line.version += at + 1
    return False


cdef inline bint take_quote(
    Line* line, const Tables* tables, uint8_t quote, Role role, bint behind_word, Piece* piece
) noexcept nogil:
    cdef size_t at = line.at
    cdef bint behind = line.end and at == line.end
    cdef int taken
    line.at = at + 1
    if quote == c'"':
        if behind:
            line.role = QUOTED
            return False
        if not (
            role == JSON
            or ((role == ASSIGNED or role == COLON or role == SPACED) and line.depth)
            or ((role == OPENED or role == ITEM) and line.keyed & 1)
            or (behind_word and is_name(line, tables, at))
        ):
            return take_plain_string(line, tables, at, role, behind_word, piece)
    elif behind and (
        (line.plain and at <= line.plain) or line.text[at - 1] == c"\\" or is_word_byte(line.text[at - 1])
    ):
        line.role = QUOTED
        return False
    elif line.plain and at <= line.plain:
        return False
    line.role = role
    taken = take_string(line, tables, at, quote, behind_word, piece)
    if taken == 0:
        line.role = QUOTED if behind else OTHER
    return taken == 2


cdef inline size_t bracket_end(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where the square brackets close that open here, if they may be a thread's; else 0."""
    cdef size_t i, depth = 0
    if length > at + MAX_THREAD + 2:
        length = at + MAX_THREAD + 2
    for i in range(at, length):
        if text[i] == c"[":
            depth += 1
            if depth > THREAD_DEPTH:
                return 0
        elif text[i] == c"]":
            depth -= 1
            if depth == 0:
                return i
        elif text[i] == ESC or text[i] == c"\n":
            return 0
    return 0


cdef inline size_t behind_spaces(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return what is behind one or more spaces; 0 if none is here, or nothing behind them."""
    cdef size_t i = at
    while i < length and text[i] == c" ":
        i += 1
    return i if at < i < length else 0


cdef inline bint is_class_name(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return whether the name of a class with its packages is here, and a delimiter behind it."""
    cdef size_t start, parts = 0
    if text[at] == c".":
        at += 1
    while at < length and is_lower(text[at]):
        start = at
        while at < length and at - start < MAX_NAME and (
            is_lower(text[at]) or is_digit(text[at]) or text[at] == c"_"
        ):
            at += 1
        if at == length or text[at] != c".":
            return False
        at += 1
        parts += 1
    if not 0 < parts <= MAX_PARTS or at == length or not is_upper(text[at]):
        return False
    start = at
    while at < length and at - start < MAX_CLASS and (
        is_letter(text[at]) or is_digit(text[at]) or text[at] == c"_" or text[at] == c"$"
    ):
        at += 1
    return at < length and (
        text[at] == c" " or text[at] == c":" or text[at] == c"]" or text[at] == c"["
        or text[at] == c"("
    )


cdef inline bint is_before_class(
    const uint8_t* text, size_t length, size_t at, size_t end
) noexcept nogil:
    """Return whether what is around brackets makes them those of a thread before a class."""
    cdef size_t i = at, start
    cdef int others
    while i and text[i - 1] == c" ":
        i -= 1
    if i and not (
        is_digit(text[i - 1]) or text[i - 1] == c"Z" or text[i - 1] == c"]"
        or (i > 2 and text[i - 1] == c"-" and text[i - 2] == c"-" and text[i - 3] == c"-")
    ):
        start = i
        while start and is_upper(text[start - 1]):
            start -= 1
        if not 4 <= i - start <= 8 or (start and is_lower(text[start - 1])):
            return False
    i = behind_spaces(text, length, end + 1)
    for others in range(2):
        if i and text[i] == c"[":
            i = bracket_end(text, length, i)
            if i:
                i = behind_spaces(text, length, i + 1)
    if i == 0:
        return False
    start = i
    while i < length and is_upper(text[i]):
        i += 1
    if i > start:
        if not 4 <= i - start <= 8:
            return False
        i = behind_spaces(text, length, i)
        if i == 0:
            return False
    if text[i] == c"-":
        i = behind_spaces(text, length, i + 1)
        if i == 0:
            return False
    return is_class_name(text, length, i)


cdef inline bint is_simple_name(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return whether a name with a capital and a small letter is here, and a dash or a colon."""
    cdef size_t start = at
    cdef bint lower = False
    if not is_upper(text[at]):
        return False
    while at < length and at - start < MAX_CLASS and (
        is_letter(text[at]) or is_digit(text[at]) or text[at] == c"_" or text[at] == c"$"
    ):
        lower |= is_lower(text[at])
        at += 1
    if not lower:
        return False
    at = behind_spaces(text, length, at)
    return at != 0 and at + 1 < length and text[at + 1] == c" " and (
        text[at] == c"-" or text[at] == c":"
    )


cdef inline bint has_clock(const uint8_t* text, size_t length) noexcept nogil:
    """Return whether a time of the day is in a text."""
    cdef size_t i
    for i in range(3, length):
        if text[i - 2] == c":" and (
            is_digit(text[i - 3]) and is_digit(text[i - 1]) and is_digit(text[i])
        ):
            return True
    return False


cdef inline bint is_before_name(
    const Tables* tables, const uint8_t* text, size_t length, size_t at, size_t end
) noexcept nogil:
    """Return whether brackets are beside a level, behind a time and before a simple name."""
    cdef size_t behind = behind_spaces(text, length, end + 1), before = at, start
    if behind == 0 or not is_upper(text[behind]):
        return False
    while before and text[before - 1] == c" ":
        before -= 1
    start = before
    while start and is_upper(text[start - 1]):
        start -= 1
    if not (start and is_lower(text[start - 1])) and (
        holds(&tables.levels, text + start, before - start, True)
    ):
        before = start
    else:
        if at == 0 or text[at - 1] != c" " and text[at - 1] != c"]":
            return False
        start = behind
        while behind < length and is_upper(text[behind]):
            behind += 1
        if not holds(&tables.levels, text + start, behind - start, True):
            return False
        behind = behind_spaces(text, length, behind)
        if behind == 0:
            return False
    return is_simple_name(text, length, behind) and has_clock(text, before)


cdef inline size_t end_of_thread(const Line* line, const Tables* tables, size_t at) noexcept nogil:
    """Return where the brackets of a thread close that open here; 0 if these are others."""
    cdef const uint8_t* text = line.text
    cdef size_t length = line.length, i, start, end
    if at > HEAD_BYTES:
        return 0
    end = bracket_end(text, length, at)
    if end < at + 2 or not (
        is_before_class(text, length, at, end) or is_before_name(tables, text, length, at, end)
    ):
        return 0
    i = at + 1
    while i < end:
        start = i
        while i < end and tables.classes[text[i]] != 0:
            i += 1
        if i > start and names_itself(tables, text, length, start, i):
            return 0
        i += i == start
    return end


cdef inline size_t end_of_line(const Line* line, size_t at) noexcept nogil:
    """Return where the line ends that a place is in, without white space at its end."""
    cdef const uint8_t* newline = <const uint8_t*>memchr(line.text + at, c"\n", line.length - at)
    cdef size_t end = line.length if newline == NULL else <size_t>(newline - line.text)
    while end > at and is_blank(line.text[end - 1]):
        end -= 1
    return end


cdef inline bint is_behind(const Line* line, size_t at, const char* text, size_t size) noexcept nogil:
    """Return whether a text is directly before a place."""
    return at >= size and memcmp(line.text + at - size, text, size) == 0


cdef inline size_t end_of_sudo(const Line* line, size_t at) noexcept nogil:
    """Return where the command ends that sudo has run and that is behind a "="; 0 if none is."""
    if at + 1 == line.length or line.text[at + 1] != c"/" or not is_behind(line, at, "; COMMAND", 9):
        return 0
    return end_of_line(line, at)


cdef inline size_t end_of_cron(const Line* line, size_t at) noexcept nogil:
    """Return where the brackets close of a command that cron has run; 0 if these are others."""
    cdef size_t end
    if at > HEAD_BYTES or not (
        is_behind(line, at, ") CMD ", 6) or is_behind(line, at, ") CMDEND ", 9)
    ):
        return 0
    end = end_of_line(line, at) - 1
    return end if end > at + 1 and line.text[end] == c")" else 0


cdef inline bint is_behind_clock(const uint8_t* text, size_t start) noexcept nogil:
    """Return whether a time of the day is directly before a token."""
    cdef size_t at = start, i
    if at < 5 or text[at - 1] != c" ":
        return False
    at -= 1
    if text[at - 1] == c"M" and (text[at - 2] == c"A" or text[at - 2] == c"P") and (
        text[at - 3] == c" "
    ):
        at -= 3
    i = at
    while i and at - i < 10 and is_digit(text[i - 1]):
        i -= 1
    if i and 0 < at - i < 10 and (text[i - 1] == c"." or text[i - 1] == c","):
        at = i - 1
    return at > 3 and is_digit(text[at - 1]) and is_digit(text[at - 2]) and (
        text[at - 3] == c":" and is_digit(text[at - 4])
    )


cdef inline bint is_ruler(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is four or more of the same mark."""
    cdef size_t i
    cdef uint8_t mark = token[0]
    if length < 4 or not (
        mark == c"*" or mark == c"#" or mark == c"~" or mark == c"+"
    ):
        return False
    for i in range(1, length):
        if token[i] != mark:
            return False
    return True


cdef inline bint is_media_type(
    const Tables* tables, const uint8_t* token, size_t length
) noexcept nogil:
    """Return whether a token is a media type: ``text/html``."""
    cdef size_t i = 0
    while i < length and is_lower(token[i]):
        i += 1
    if i + 1 >= length or token[i] != c"/" or not holds(&tables.media, token, i, False):
        return False
    i += 1
    if not is_lower(token[i]):
        return False
    while i < length and (
        is_lower(token[i]) or token[i] == c"." or token[i] == c"+" or token[i] == c"-"
    ):
        i += 1
    return i == length


cdef inline bint is_absent(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is null, none or nil."""
    cdef uint64_t word
    if length != 3 and length != 4:
        return False
    word = packed(token, length, True)
    return word == packed(b"null", 4, False) or word == packed(b"none", 4, False) or (
        word == packed(b"nil", 3, False)
    )


cdef inline bint take_angle(
    Line* line, const Tables* tables, size_t at, Piece* piece
) noexcept nogil:
    """Take the begin of a value in angle brackets, if there is one."""
    cdef const uint8_t* text = line.text
    cdef uint8_t byte
    cdef size_t i = at + 1
    while i < line.length and text[i] != c">":
        byte = text[i]
        if is_blank(byte) or byte == ESC or byte == c'"' or byte == c"'" or byte == c"<":
            return False
        i += 1
    if i == line.length or is_absent(text + at + 1, i - at - 1) or is_message_key(line, tables):
        return False
    line.role = OTHER
    line.inside = i
    piece.start = piece.end = at + 1
    piece.held = 0
    piece.variable = True
    return True


cdef inline bint take_gap(Line* line, const Tables* tables, Piece* piece) noexcept nogil:
    """Take one delimiter; return whether it gave a piece: an empty value, or a string's begin."""
    cdef size_t at = line.at, chosen = 0
    cdef uint8_t byte = line.text[at]
    cdef int kind = tables.gaps[byte]
    cdef Role role = line.role
    cdef bint empty = False, keyed, blank = line.blank
    line.at = at + 1
    if kind == SPACE:
        if role == COLON:
            line.role = SPACED
        return False
    if kind == ESCAPE:
        line.at = escape_end(line, at)
        return False
    line.blank = False
    line.role = OTHER
    if kind == COLONS:
        if role == QUOTED:
            line.role = JSON
        elif line.end and at == line.end:
            line.role = COLON
    elif kind == OPENING:
        if line.optional and at == line.optional and not line.within:
            line.within = line.depth + 1
        if not line.depth:
            line.outermost = at
        keyed = (
            role == ASSIGNED or role == JSON
            or ((role == COLON or role == SPACED) and line.depth)
            or ((role == OPENED or role == ITEM) and line.keyed & 1)
        )
        line.keyed = line.keyed << 1 | keyed
        line.depth += 1
        line.role = OPENED
        if byte == c"[":
            chosen = end_of_thread(line, tables, at)
        elif byte == c"(" and line.depth == 1:
            chosen = end_of_cron(line, at)
    elif kind == CLOSING:
        empty = (role == ASSIGNED and line.depth) or (role == OPENED and line.keyed & 1)
        if line.depth:
            line.depth -= 1
            line.keyed >>= 1
            if line.depth + 1 == line.within:
                line.within = 0
    elif kind == EQUALS:
        line.role = ASSIGNED
        if not line.depth:
            chosen = end_of_sudo(line, at)
    elif kind == COMMA:
        empty = role == ASSIGNED and line.depth
        line.role = ITEM
    elif kind == QUOTE:
        line.at = at
        return take_quote(line, tables, byte, role, blank and not line.number, piece)
    elif kind == LESS:
        if role == ASSIGNED:
            line.role = ASSIGNED
            if line.text[at - 1] == c"=":
                return take_angle(line, tables, at, piece)
    if chosen:
        put_chosen(line, tables, at + 1, chosen, piece)
        line.at = chosen
        line.role = OTHER
        line.end = 0
        return True
    if empty:
        piece.start = piece.end = at
        piece.held = 0
        piece.variable = True
    return empty


# ---------------------------------------------------------------- tokens

cdef inline bint is_dotted(const uint8_t* classes, const uint8_t* token, size_t length) noexcept nogil:
    cdef size_t i, dots = 0
    cdef bint after_dot = True
    while length and not classes[token[length - 1]] & NAME:
        length -= 1
    for i in range(length):
        if token[i] == c".":
            if after_dot:
                return False
            dots += 1
            after_dot = True
        elif classes[token[i]] & NAME:
            after_dot = False
        else:
            return False
    return dots >= 2 and not after_dot


cdef inline bint is_exception(const uint8_t* classes, const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a dotted name is that of an exception: `tokens.is_exception`."""
    while length and not classes[token[length - 1]] & NAME:
        length -= 1
    if length >= 5 and memcmp(token + length - 5, b"Error", 5) == 0:
        return True
    return length >= 9 and memcmp(token + length - 9, b"Exception", 9) == 0


cdef inline bint ends_as_kind(const uint8_t* word, size_t length, const char* end, size_t size) noexcept nogil:
    return length >= size and memcmp(word + length - size, end, size) == 0


cdef inline bint is_named_kind(const uint8_t* classes, const uint8_t* word, size_t length) noexcept nogil:
    """Return whether a word ends like the name of what went wrong: `tokens.is_named_kind`."""
    while length and not classes[word[length - 1]] & NAME:
        length -= 1
    if ends_as_kind(word, length, b"Error", 5) or ends_as_kind(word, length, b"Fault", 5):
        return length > 5
    if (
        ends_as_kind(word, length, b"Timeout", 7) or ends_as_kind(word, length, b"Refused", 7)
        or ends_as_kind(word, length, b"Failure", 7) or ends_as_kind(word, length, b"Warning", 7)
    ):
        return length > 7
    return ends_as_kind(word, length, b"Exception", 9) and length > 9


cdef inline bint has_state(const Tables* tables, const uint8_t* word, size_t length) noexcept nogil:
    """Return whether the last of a name's parts says what happened: `kinds.has_state`."""
    cdef size_t i = 0, start, last = 0, end = 0, parts = 0
    while i < length:
        start = i
        while i < length and is_upper(word[i]):
            i += 1
        while i < length and is_lower(word[i]):
            i += 1
        if i == start:
            if word[i] == c"-":
                return False
            i += 1
            continue
        parts += 1
        last = start
        end = i
    return parts > 1 and holds(&tables.states, word + last, end - last, True)


cdef inline bint says_what_happened(
    const Tables* tables, const uint8_t* word, size_t length
) noexcept nogil:
    """Return whether a word names what went wrong, or a state."""
    return is_named_kind(tables.classes, word, length) or has_state(tables, word, length)


cdef inline bint is_tag(
    const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    """Return whether a word in capitals is marked as a tag: `kinds.is_tag`."""
    cdef size_t i
    cdef bint capital = False
    if text[end - 1] != c"-" and (start == 0 or text[start - 1] != c"[") and not (
        start > 1 and text[start - 1] == c" " and text[start - 2] == c":"
        and end < length and text[end] == c"("
    ):
        return False
    for i in range(start, end):
        if is_lower(text[i]) or text[i] >= 128:
            return False
        capital |= is_upper(text[i])
    return capital


cdef inline bint names_itself(
    const Tables* tables, const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    """Return whether a word names a kind of event: `kinds.names_itself`."""
    return (
        says_what_happened(tables, text + start, end - start)
        or is_tag(text, length, start, end)
    )


cdef inline bint is_signed(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Return whether a word has a sign."""
    return (text[start] == c"+" or text[start] == c"-") and end > start + 1 and (
        c"a" <= text[start + 1] | 0x20 <= c"z"
    )


cdef inline bint is_numbered_process(
    const uint8_t* text, size_t length, size_t end
) noexcept nogil:
    """Return whether the number of a process in brackets, a colon and a space are here."""
    cdef size_t at = end + 1
    if end == length or text[end] != c"[":
        return False
    while at < length and at - end <= 10 and c"0" <= text[at] <= c"9":
        at += 1
    return 1 < at - end <= 10 and at + 2 < length and (
        text[at] == c"]" and text[at + 1] == c":" and text[at + 2] == c" "
    )


cdef inline bint is_of_class(
    const uint8_t* classes, const uint8_t* token, size_t length, int held
) noexcept nogil:
    """Return whether a token is of class 1 to 4: `tokens.is_variable`."""
    cdef size_t i
    cdef uint8_t first = token[0]
    if held & DIGIT:
        return True
    if (first == c"/" or first == c"\\") and length > 1:
        return True
    if first == c"~" and length > 2 and token[1] == c"/":
        return True
    if held & AT:
        for i in range(1, length - 1):
            if token[i] == c"@":
                return True
    return held & DOT and is_dotted(classes, token, length) and not is_exception(classes, token, length)


cdef inline bint is_hex_group(Line* line, const Tables* tables, size_t start, size_t end) noexcept nogil:
    """Return whether a token without digits is a group of an address: class 7."""
    cdef const uint8_t* text = line.text
    cdef size_t i, at, groups = 1
    cdef bint digit = False, held
    if start < line.hex_end:
        return line.is_hex
    at = start
    while at and text[at - 1] == c":":  # the groups before it
        i = at - 1
        if i and text[i - 1] == c":":
            i -= 1
        at = i
        held = False
        while at and is_hex_digit(text[at - 1]):
            at -= 1
            held = held or text[at] <= c"9"
        if at == i or i - at > 4 or (at and tables.classes[text[at - 1]] != 0):
            break
        groups += 1
        digit = digit or held
    at = end
    while at < line.length and text[at] == c":":  # those behind it
        i = at + 1
        if i < line.length and text[i] == c":":
            i += 1
        at = i
        held = False
        while at < line.length and is_hex_digit(text[at]):
            held = held or text[at] <= c"9"
            at += 1
        if at == i or at - i > 4 or (at < line.length and tables.classes[text[at]] != 0):
            break
        groups += 1
        digit = digit or held
        end = at
    line.hex_end = end
    line.is_hex = groups > 2 and digit
    return line.is_hex


cdef inline bint is_nested_name(
    Line* line, const Tables* tables, size_t start, size_t end
) noexcept nogil:
    """Return whether a token is one of three or more that are joined by ``::``."""
    cdef const uint8_t* text = line.text
    cdef size_t at = end, last = start, names = 1
    cdef bint named
    if start < line.nested_end:
        return line.is_nested
    if end + 1 >= line.length or text[end] != c":" or text[end + 1] != c":":
        return False
    named = says_what_happened(tables, text + start, end - start)
    while (
        at + 2 < line.length and text[at] == c":" and text[at + 1] == c":"
        and tables.classes[text[at + 2]] != 0
    ):
        last = at + 2
        at = last
        names += 1
        while at < line.length and tables.classes[text[at]] != 0:
            at += 1
        named = named or says_what_happened(tables, text + last, at - last)
    line.nested_end = at
    line.is_nested = names > 2 and not named
    return line.is_nested


cdef inline size_t end_of_items(const Line* line, const Tables* tables, size_t at) noexcept nogil:
    """Return where two or more items of a list end that begins here; `at` if there is none."""
    cdef const uint8_t* text = line.text
    cdef size_t start = at, first, items = 0
    while True:
        first = at
        while at < line.length and tables.classes[text[at]] != 0:
            at += 1
        if at == first or at == line.length:
            return start
        items += 1
        if text[at] == c"]":
            return at if items > 1 else start
        if text[at] != c",":
            return start
        at += 1
        if at < line.length and text[at] == c" ":
            at += 1


cdef inline bint has_address_behind(const Line* line, size_t end) noexcept nogil:
    """Return whether an IP address in brackets is directly behind a name."""
    cdef const uint8_t* text = line.text
    cdef size_t at = end + 1
    cdef size_t group = 0  # digits of the last group
    cdef int colons = 0, dots = 0
    cdef bint decimal = True, joined = False
    while at < line.length and at - end <= 45 and (
        is_hex_digit(text[at]) or text[at] == c":" or text[at] == c"."
    ):
        if text[at] == c":":
            joined |= text[at - 1] == c":"
            colons += 1
        elif text[at] == c".":
            decimal &= 0 < group < 4
            group = 0
            dots += 1
        else:
            decimal &= text[at] <= c"9"
            group += 1
        at += 1
    if at == line.length or text[at] != c"]":
        return False
    if colons == 0:
        return dots == 3 and decimal and 0 < group < 4
    return at - end > 3 and colons > 1 and (colons == 7 or joined)


cdef inline bint is_structured(const Tables* tables, const uint8_t* token, size_t length, int held) noexcept nogil:
    """Return whether a token is of class 8, 9 or 18."""
    cdef size_t i, separators = 0
    cdef const uint8_t* classes = tables.classes
    if token[0] == c"." and held & SLASH:
        i = 1 if length > 1 and token[1] == c"." else 0
        if length > i + 1 and token[i + 1] == c"/":
            return length > i + 2
    for i in range(1, length - 1):
        if (token[i] == c"." or token[i] == c"/" or token[i] == c"\\") and (
            classes[token[i - 1]] & classes[token[i + 1]] & NAME
        ):
            separators += 1
    if separators > 1:
        return not is_exception(classes, token, length)
    if held & SLASH and is_media_type(tables, token, length):
        return True
    if not held & DOT:
        return False
    while length and not classes[token[length - 1]] & NAME:
        length -= 1
    i = length
    while i and token[i - 1] != c".":
        i -= 1
    if i < 2 or not holds(&tables.labels, token + i, length - i, True):
        return False
    for separators in range(i - 1):
        if not classes[token[separators]] & NAME:
            return False
    return True


cdef inline bint is_scrambled(
    const uint8_t* classes, const uint8_t* token, size_t length
) noexcept nogil:
    """Return whether a token is an identifier of letters alone: `pieces._is_scrambled`."""
    cdef size_t i, small = 0, runs = 0, changes = 0
    cdef bint capitals = False, before = False  # whether the letter before is a small one
    while length and not classes[token[length - 1]] & NAME:
        length -= 1
    if length < LEAST_SCRAMBLED:
        return False
    for i in range(length):
        if is_lower(token[i]):
            small += 1
            runs += not before
            before = True
        elif is_upper(token[i]):
            changes += before
            capitals |= i != 0 and not before
            before = False
        else:
            return False
    return changes >= LEAST_CHANGES and 2 * small < 5 * runs and capitals and (
        not is_named_kind(classes, token, length)
    )


cdef inline bint is_closed(const Line* line, size_t end) noexcept nogil:
    """Return whether a value may end here."""
    cdef uint8_t follower = line.text[end] if end < line.length else c","
    return (
        follower == c"," or follower == c";" or follower == c")" or follower == c"]"
        or follower == c"}" or follower == c">" or is_blank(follower)
        or ESC <= follower <= LAST_SEPARATOR
    )


cdef inline bint is_value(
    const Line* line, const Tables* tables, size_t start, size_t end
) noexcept nogil:
    cdef const uint8_t* text = line.text
    cdef Role role = line.role
    cdef uint8_t follower
    cdef size_t word_end = end
    cdef bint value, item = (role == OPENED or role == ITEM) and line.keyed & 1
    if item or (role == SPACED and line.depth):
        end = skip_blank(line, end)
        if end == line.length:
            return False
        follower = text[end]
        value = follower == c"," or follower == c")" or follower == c"]" or follower == c"}"
        if item:
            return value
    elif (role == JSON or role == ASSIGNED) and line.depth:
        value = is_closed(line, end)
    else:
        return False
    return value and not is_message_key(line, tables) and (
        not is_role(tables, text, start, word_end)
    )


cdef inline bint is_assigned(
    Line* line, const Tables* tables, size_t start, size_t end
) noexcept nogil:
    """Return whether a word, alone in double quotes or not, is of the value of a key."""
    cdef const uint8_t* text = line.text
    if start < line.assigned_end:
        return True
    if text[start - 1] == c'"':
        if start < 2 or end == line.length or text[end] != c'"':
            return False
        start -= 1
        end += 1
    if text[start - 1] != c"=":
        return False
    if end < line.length and text[end] == c":" and not is_message_key(line, tables):
        while end < line.length and (tables.classes[text[end]] != 0 or text[end] == c":"):
            end += 1
        if is_closed(line, end):
            line.assigned_end = end
            return True
        return False
    return is_closed(line, end) and not is_message_key(line, tables)


cdef inline bint is_in_capitals(const uint8_t* word, size_t length) noexcept nogil:
    """Return whether a word has two or more capitals or underscores, and begins with a capital."""
    cdef size_t i
    for i in range(length):
        if not (is_upper(word[i]) or (i and word[i] == c"_")):
            return False
    return length > 1


cdef inline bint is_participle(
    const Tables* tables, const uint8_t* text, size_t start, size_t end
) noexcept nogil:
    """Return whether a word says what was done: `kinds.is_participle`."""
    cdef size_t i, at = start - 1, size
    cdef const uint8_t* word
    if start < 3 or text[at] != c" ":
        return False
    # Nearly all words end here: the one before is no form of "to be".
    if text[at - 1] | 0x20 > c"t" or not <uint32_t>0x1840A0 >> (text[at - 1] & 31) & 1:  # egnst
        return False
    if not (end - start > 3 and text[end - 1] == c"d" and text[end - 2] == c"e"):
        if not holds(&tables.irregular, text + start, end - start, False):
            return False
    else:
        for i in range(start, end):
            if not is_lower(text[i]):
                return False
    i = at
    while i and at - i < 6 and is_word_byte(text[i - 1]):
        i -= 1
    size = at - i
    word = text + i
    if size == 2:
        return memcmp(word, b"is", 2) == 0 or memcmp(word, b"be", 2) == 0
    if size == 3:
        return (
            memcmp(word, b"was", 3) == 0 or memcmp(word, b"are", 3) == 0
            or memcmp(word, b"got", 3) == 0
        )
    if size == 4:
        return memcmp(word, b"were", 4) == 0 or memcmp(word, b"been", 4) == 0
    return size == 5 and memcmp(word, b"being", 5) == 0


cdef inline bint is_said(
    const uint8_t* text, size_t length, const Tables* tables, size_t start, size_t word_end
) noexcept nogil:
    """Return whether a word is the value of a message key: `kinds.is_said`."""
    cdef Line line
    cdef size_t at = start, end
    cdef bint is_spaced = False
    if at and (text[at - 1] == c'"' or text[at - 1] == c"'"):
        at -= 1
    if at == 0 or at < start and (word_end == length or text[word_end] != text[at]):
        return False
    if at > 2 and text[at - 1] == c" " and text[at - 2] == c"=" and text[at - 3] == c" ":
        end = at - 3
    elif text[at - 1] == c"=" or text[at - 1] == c":":
        end = at - 1
        if end and (text[end - 1] == c'"' or text[end - 1] == c"'"):
            end -= 1
    elif text[at - 1] == c" " and is_in_capitals(text + start, word_end - start):
        is_spaced = True
        end = at - 1
    else:
        return False
    at = end
    while at and end - at < MAX_KEY and tables.classes[text[at - 1]] != 0:
        at -= 1
    line.text = text
    line.last = at
    line.last_end = end
    if is_spaced and holds(&tables.state_keys, text + at, end - at, True):
        return True
    return is_message_key(&line, tables) and not holds(
        &tables.sentence_keys, text + at, end - at, True
    )


cdef inline bint is_unit(const Tables* tables, const uint8_t* token, size_t length) noexcept nogil:
    while length and token[length - 1] == c".":
        length -= 1
    return holds(&tables.units, token, length, False)


cdef inline bint is_optional(const Line* line, size_t start, size_t end) noexcept nogil:
    """Return whether a token is of class 14; it begins with O or S."""
    cdef const uint8_t* token = line.text + start
    cdef size_t length = end - start
    if not (end < line.length and (line.text[end] == c"(" or line.text[end] == c"[")):
        while length and token[length - 1] == c".":
            length -= 1
        if length < 6 or memcmp(token + length - 6, b".empty", 6) != 0:
            return False
        length -= 6
    if length == 4:
        return memcmp(token, b"Some", 4) == 0
    if length < 8 or memcmp(token, b"Optional", 8) != 0:
        return False
    return (
        length == 8 or (length == 11 and memcmp(token + 8, b"Int", 3) == 0)
        or (length == 12 and memcmp(token + 8, b"Long", 4) == 0)
        or (length == 14 and memcmp(token + 8, b"Double", 6) == 0)
    )


cdef inline void put_address(
    Line* line, size_t start, size_t end, int held, Piece* piece
) noexcept nogil:
    """Make a piece of a text up to white space, but for punctuation at its end."""
    cdef const uint8_t* text = line.text
    while (
        text[end - 1] == c"," or text[end - 1] == c";" or text[end - 1] == c":"
        or text[end - 1] == c"." or text[end - 1] == c"!" or text[end - 1] == c"?"
    ):
        end -= 1
    line.at = line.last_end = line.end = end
    line.last = start
    line.blank = False
    line.role = OTHER
    piece.start = start
    piece.end = end
    piece.held = held
    piece.variable = True


cdef inline void take_address(
    Line* line, const Tables* tables, size_t start, size_t end, int held, bint of_path, Piece* piece
) noexcept nogil:
    """Take an address, of which the scheme or the path is given: class 13."""
    cdef const uint8_t* text = line.text
    cdef uint8_t byte
    while end < line.length:
        byte = text[end]
        if (
            is_blank(byte) or byte == ESC or byte == c'"' or byte == c"'" or byte == c"<"
            or byte == c">" or byte == c"|" or byte == c")" or byte == c"]" or byte == c"}"
            or of_path and (byte == c"," or byte == c";")
        ):
            break
        held |= tables.classes[byte]
        end += 1
    put_address(line, start, end, held, piece)


cdef inline void take_joined_agent(
    Line* line, const Tables* tables, size_t start, size_t end, int held, Piece* piece
) noexcept nogil:
    """Take a user agent with a plus for each space."""
    cdef const uint8_t* text = line.text
    while end < line.length and not (
        is_blank(text[end]) or text[end] == ESC or text[end] == c'"'
    ):
        held |= tables.classes[text[end]]
        end += 1
    put_address(line, start, end, held, piece)
    piece.absent = True


cdef inline bint is_year(const uint8_t* text) noexcept nogil:
    """Return whether four digits and a space are here."""
    cdef size_t i
    for i in range(4):
        if not is_digit(text[i]):
            return False
    return text[4] == c" "


cdef inline size_t month_end(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where a time ends that begins with a month (``Mar 18 2026 06:03:56``), else 0."""
    if length < at + 15 or not (
        is_upper(text[at]) and is_lower(text[at + 1]) and is_lower(text[at + 2])
        and text[at + 3] == c" " and (text[at + 4] == c" " or is_digit(text[at + 4]))
        and is_digit(text[at + 5]) and text[at + 6] == c" "
    ):
        return 0
    if length >= at + 20 and is_year(text + at + 7):
        at += 5
    return at + 15 if is_time(text + at + 7) else 0


cdef inline size_t date_of_syslog(const uint8_t* text, size_t length) noexcept nogil:
    """Return where the time ends with which a line of syslog begins, 0 if it begins otherwise."""
    cdef size_t at = 0, first
    if text[0] == c"<":  # the priority
        at = 1
        while at < 4 and at < length and c"0" <= text[at] <= c"9":
            at += 1
        if at == 1 or at == length or text[at] != c">":
            return 0
        at += 1
    first = at
    if length - at < 17:
        return 0
    if is_upper(text[at]):
        return month_end(text, length, at)
    if text[at + 4] == c" ":
        return month_end(text, length, at + 5) if is_year(text + at) else 0
    if not (
        text[at + 4] == c"-" and text[at + 7] == c"-" and text[at + 10] == c"T"
        and c"0" <= text[at] <= c"9"
    ):
        return 0
    for at in range(first, first + 10):
        if at != first + 4 and at != first + 7 and not c"0" <= text[at] <= c"9":
            return 0
    first = at = first + 11
    while at < length and at - first < 24 and (
        c"0" <= text[at] <= c"9" or text[at] == c":" or text[at] == c"." or text[at] == c","
    ):
        at += 1
    if at - first < 8 or at == length:
        return 0
    if text[at] == c"Z":
        return at + 1
    if text[at] != c"+" and text[at] != c"-":
        return at
    if length - at < 6 or not (c"0" <= text[at + 1] <= c"9" and c"0" <= text[at + 2] <= c"9"):
        return 0
    at += 4 if text[at + 3] == c":" else 3
    return at + 2 if (
        length - at > 2 and c"0" <= text[at] <= c"9" and c"0" <= text[at + 1] <= c"9"
    ) else 0


cdef inline bint is_time(const uint8_t* text) noexcept nogil:
    """Return whether eight bytes are a time of the day."""
    cdef size_t i
    for i in range(8):
        if text[i] != c":" if i == 2 or i == 5 else not c"0" <= text[i] <= c"9":
            return False
    return True


cdef inline bint is_mark(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return whether a mark of network equipment is here: ``%SYS-5-CONFIG_I: ``."""
    cdef size_t first = at + 2
    cdef bint numbered = False
    if at + 4 > length or text[at] != c"%" or not is_upper(text[at + 1]):
        return False
    at = first
    while at < length and at - first <= 64 and (
        is_letter(text[at]) or is_digit(text[at]) or text[at] == c"_" or text[at] == c"-"
    ):
        if at > first + 1 and text[at] == c"-" and text[at - 2] == c"-" and is_digit(text[at - 1]):
            numbered = True
        at += 1
    return numbered and at - first <= 64 and at + 1 < length and (
        text[at] == c":" and text[at + 1] == c" "
    )


cdef inline bint is_before_mark(const uint8_t* word, size_t length) noexcept nogil:
    """Return whether a word may be between a host and a mark of network equipment."""
    cdef size_t i = 1 if word[0] == c"*" or word[0] == c"." else 0
    if word[length - 1] == c":" or i < length and is_digit(word[i]):
        return True
    if not 2 <= length - i <= 5 or not is_upper(word[i]):
        return False
    for i in range(i + 1, length):
        if not is_letter(word[i]):
            return False
    return True


cdef inline size_t mark_behind(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where a mark of network equipment is behind a host, else 0: `pieces._mark_behind`."""
    cdef size_t i, first
    cdef int words
    if text[at] == c":":
        at += 1
    for words in range(MARK_WORDS):
        i = at
        while i < length and i - at < 2 and text[i] == c" ":
            i += 1
        if is_mark(text, length, i):
            return at
        first = i
        while i < length and i - first <= 64 and not is_blank(text[i]):
            i += 1
        if not 0 < i - first <= 64 or i == length or text[i] != c" " or (
            not is_before_mark(text + first, i - first)
        ):
            return 0
        at = i
    return 0


cdef inline size_t host_of_syslog(
    const Tables* tables, const uint8_t* text, size_t length, size_t* end
) noexcept nogil:
    """Return where the host begins in the head of a line of syslog, 0 if the line has none.

    `end` is where such variables end: see `pieces._host_of_syslog`.
    """
    cdef size_t at, start, first, size
    cdef bint lower = False
    if length == 0 or not (
        is_upper(text[0]) or text[0] == c"<" or c"0" <= text[0] <= c"9"
    ):
        return 0
    at = date_of_syslog(text, length)
    if at == 0 or at == length or text[at] != c" ":
        return 0
    start = at = at + 1
    while at < length and at - start < 65 and tables.classes[text[at]] != 0:
        lower |= is_lower(text[at])
        at += 1
    if not 0 < at - start < 65 or at == length or text[start] == c"%" or (
        text[at] != c" " and text[at] != c":"
    ):
        return 0
    if holds(&tables.levels, text + start, at - start, True):
        return 0
    end[0] = at
    if lower and text[at] == c" ":
        first = at = at + 1
        while at < length and at - first < 65 and not is_blank(text[at]) and text[at] != c":":
            at += 1
        size = at - first
        if 0 < size < 65 and at + 1 < length and text[at] == c":" and text[at + 1] == c" " and (
            text[at - 1] == c"]" or text[first] == c"%"
            or holds(&tables.programs, text + first, size, True)
        ):
            return start
    end[0] = mark_behind(text, length, end[0])
    return start if end[0] else 0


cdef inline void start_line(
    Line* line, const Tables* tables, const uint8_t* text, size_t length
) noexcept nogil:
    line.text = text
    line.length = length
    line.at = line.depth = line.outermost = line.last = line.last_end = line.end = 0
    line.plain = line.inside = line.checked_end = line.hex_end = line.keyed = 0
    line.message_end = line.nested_end = line.list_end = line.assigned_end = 0
    line.optional = line.within = line.method = line.version = 0
    line.host_end = 0
    line.host = host_of_syslog(tables, text, length, &line.host_end)
    line.role = OTHER
    line.blank = line.number = line.requested = False
    line.single.looked = line.double.looked = 1
    line.single.at = line.double.at = 0


cdef inline bint never_closed(const Line* line) noexcept nogil:
    """Return whether the last outermost bracket of a line that has ended is round and not closed.

    Then no piece behind it is nested.
    """
    return line.depth and line.text[line.outermost] == c"("


cdef inline bint take_inside(Line* line, const Tables* tables, Piece* piece) noexcept nogil:
    """Take the next piece of a value's string; return whether there was one."""
    cdef size_t start, end
    while line.at < line.inside:
        start = line.at
        if line.text[start] == ESC:
            line.at = escape_end(line, start)
        elif tables.classes[line.text[start]] == 0:
            line.at = start + 1
        else:
            end = word_end(line, tables, start, &piece.held)
            if end > start:
                line.at = end
                piece.start = start
                piece.end = end
                piece.variable = True
                return True
            line.at = run_end(line, start)
    start = line.inside
    line.at = start + 1
    line.inside = 0
    line.end = 0
    line.blank = False
    if tables.classes[line.text[start - 1]] == 0:  # is part of the value
        piece.start = piece.end = start
        piece.held = 0
        piece.variable = True
        return True
    return False


cdef inline bint next_piece(Line* line, const Tables* tables, Piece* piece) noexcept nogil:
    """Take the next piece of a line; return whether there was one."""
    cdef const uint8_t* text = line.text
    cdef size_t start, end
    cdef int held = 0, taken
    cdef size_t length = line.length
    cdef bint variable, of_host, nested
    piece.absent = piece.nested = False
    if line.inside and take_inside(line, tables, piece):
        return True
    start = line.at
    if start == line.method and start:  # the target of a request is next
        line.method = 0
        if line.version > start + 1:
            put_chosen(line, tables, start + 1, line.version, piece)
            line.at = line.version
            line.end = 0
            line.blank = False
            return True
    while start < length:
        if tables.classes[text[start]] == 0:
            if text[start] == c" " and line.role != COLON:
                start += 1
                continue
            line.at = start
            if take_gap(line, tables, piece):
                return True
            start = line.at
            continue
        end = word_end(line, tables, start, &held)
        if end == start:
            line.blank = False
            line.role = OTHER
            start = run_end(line, start)
            continue
        if not held & NAME and (
            line.role != ASSIGNED and line.role != COLON and line.role != SPACED
            and line.role != JSON and is_ruler(text + start, end - start)
        ):
            line.blank = False
            line.role = OTHER
            start = end
            continue
        if (
            end == start + 1 and end < line.length and text[end] == c"'"
            and (text[start] == c"b" or text[start] == c"u") and end > line.plain
        ):
            taken = take_string(line, tables, end, c"'", False, piece)
            if taken == 2:
                return True
            if taken:
                start = line.at
                continue
        if end + 2 < length and text[end] == c":" and text[end + 1] == text[end + 2] == c"/":
            take_address(line, tables, start, end, held, False, piece)
            return True
        if text[start] == c"/" and memchr(text + start, c"?", end - start - 1) != NULL:
            take_address(line, tables, start, end, held, True, piece)
            return True
        if (
            text[end - 1] == c"+" and end > start + 1 and end < length and text[end] == c"("
            and product_end(text, end, start) == end - 1
        ):
            take_joined_agent(line, tables, start, end, held, piece)
            return True
        variable = held & DIGIT
        of_host = end < length and text[end] == c"[" and has_address_behind(line, end)
        nested = (
            start < line.nested_end or end < length and text[end] == c":"
        ) and is_nested_name(line, tables, start, end)
        if start and text[start - 1] == c"[" and start >= line.list_end:
            line.list_end = end_of_items(line, tables, start)
        if not held & DIGIT:
            variable = nested or start < line.host_end and start >= line.host or (
                tables.clock_marks.first[text[start]]
                and holds(&tables.clock_marks, text + start, end - start, False)
                and is_behind_clock(text, start)
            ) or (
                (of_host or start < line.list_end)
                and not names_itself(tables, text, length, start, end)
            )
            if not variable and not held & NOT_HEX and end - start <= 4 and (
                end < line.length and text[end] == c":" or start and text[start - 1] == c":"
            ):
                variable = is_hex_group(line, tables, start, end)
            if held & (DOT | SLASH) and not variable:
                variable = is_structured(tables, text + start, end - start, held) or (
                    text[start] == c"/" and end == start + 1 and line.blank
                    and is_method(text + line.last, line.last_end - line.last)
                )
            if end - start >= LEAST_SCRAMBLED and not variable:
                variable = is_scrambled(tables.classes, text + start, end - start)
            if line.depth and line.role != OTHER and not variable:
                variable = is_value(line, tables, start, end)
            if (
                line.blank & line.number & tables.units.first[text[start]]
                and not variable
            ):
                variable = is_unit(tables, text + start, end - start)
            if (text[start] == c"O" or text[start] == c"S") and is_optional(line, start, end) and not (
                (line.role == ASSIGNED or line.role == COLON or line.role == SPACED or line.role == JSON)
                and is_message_key(line, tables)
            ):
                line.optional = end
                variable = True
            variable = variable or line.within != 0
            if variable and text[start] | 0x20 == c"n":
                piece.absent = is_absent(text + start, end - start)
        piece.assigned = not line.depth and start and is_assigned(line, tables, start, end)
        piece.nested = line.depth > 0 and start >= line.message_end
        line.at = line.last_end = line.end = end
        line.last = start
        line.blank = True
        line.number = held & DIGIT != 0
        line.role = OTHER
        piece.start = start
        piece.end = end
        piece.held = held
        piece.variable = variable
        return True
    line.at = start
    return False

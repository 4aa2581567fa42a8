# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Statuses and exit codes in a line: `variants` in C; read that first. The kernel includes it.

Every function asks about a place in a text: the line `text` of `length` bytes, and a token in it from
`start` to `end`, or the one before it.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, strlen, strstr

from stream_dedup.features._pieces cimport (
    Tables,
    is_blank,
    is_hex_digit,
    is_method,
    is_time,
    is_unit,
    is_word_byte,
)

cdef enum:
    MAX_LETTERS = 31  # of a key of a status or an exit code
    ANNOUNCED = 1
    BARE = 2


cdef inline bint is_number(const uint8_t* token) noexcept nogil:
    return c"0" <= token[0] <= c"9" and c"0" <= token[1] <= c"9" and c"0" <= token[2] <= c"9"


cdef inline bint is_version(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is HTTP/1 or HTTP/1.1, say."""
    if not (length == 6 or length == 8):
        return False
    if (token[0] | 0x20 != c"h" or token[1] | 0x20 != c"t" or token[2] | 0x20 != c"t"
            or token[3] | 0x20 != c"p" or token[4] != c"/"):
        return False
    if not c"0" <= token[5] <= c"9":
        return False
    return length == 6 or (token[6] == c"." and c"0" <= token[7] <= c"9")


cdef inline bint is_of_squid(
    const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    """Return whether a token is a result of Squid and a status, before a size: ``TCP_HIT/200 9``."""
    cdef size_t i = end - 4
    if end - start < 8 or text[i] != c"/" or not is_number(text + i + 1):
        return False
    if end + 1 >= length or text[end] != c" " or not c"0" <= text[end + 1] <= c"9":
        return False
    if memcmp(text + start, b"NONE", 4) == 0:
        start += 4
        if start == i:
            return True
    elif (memcmp(text + start, b"TCP", 3) == 0 or memcmp(text + start, b"UDP", 3) == 0
          or memcmp(text + start, b"TAG", 3) == 0):
        start += 3
    else:
        return False
    if start + 1 >= i or text[start] != c"_":
        return False
    while start < i and (c"A" <= text[start] <= c"Z" or text[start] == c"_"):
        start += 1
    return start == i


cdef inline bint may_be_status(
    const uint8_t* text, size_t length, size_t start, size_t end, int slash, size_t before,
    size_t before_end
) noexcept nogil:
    """Return whether a token with a digit may be a status or an exit code; most are none."""
    cdef size_t size = end - start
    if size == 3 or (size > 3 and (text[end - 1] == c"." or text[end - 1] == c"!")):
        return True
    if slash and size > 7 and c"N" <= text[start] <= c"U":
        return True
    if is_before_failures(text, length, end):
        return True
    if before_end == 0:
        return False
    # Most tokens before a number end with a digit, or with another letter than those of exit codes.
    if text[before_end - 1] < c"A":
        if text[before_end - 1] != c"-" and text[before_end - 1] != c".":
            return False
    elif not <uint32_t>0x900C9178 >> (text[before_end - 1] & 31) & 1:  # cdefhlors, _ and \\
        return False
    return may_be_exit_code(text, before, before_end)


cdef inline bint may_be_exit_code(
    const uint8_t* text, size_t before, size_t before_end
) noexcept nogil:
    """Return whether the token before a number may announce an exit code; most end here."""
    cdef uint8_t first, last
    while before < before_end and is_ignored_in_key(text[before_end - 1]):
        before_end -= 1
    if before_end - before < 2:
        return False
    first = text[before_end - 2] | 0x20
    last = text[before_end - 1] | 0x20
    if last == c"s":  # status, is, was, failures, errors
        return (first == c"u" or first == c"i" or first == c"a" or first == c"e"
                or first == c"r")
    if last == c"e":  # code, exitvalue, unreachable
        return first == c"d" or first == c"u" or first == c"l"
    return (
        (last == c"d" and first == c"e") or (last == c"f" and first == c"o")  # exited, of
        or (last == c"r" and first == c"r") or (last == c"o" and first == c"n")  # err, errno
        or (last == c"h" and first == c"t") or last == c"c" or last == c"l"  # with, rc, retval
        or is_ignored_in_key(text[before_end - 2])
    )


cdef inline bint is_exit_code(
    const Tables* tables, const uint8_t* text, size_t length, size_t before, size_t before_end,
    size_t start, size_t end
) noexcept nogil:
    """Return whether a number is behind what announces an exit code."""
    cdef size_t at, i
    cdef bint assigned = False
    if end + 1 < length and text[end] == c":" and c"0" <= text[end + 1] <= c"9":
        return False
    # The sign may also be between the tokens.
    i = start - 1 if start > 0 and text[start - 1] == c"-" else start
    at = phrase_of_exit(text, i)
    if at:
        if at == BARE and end + 1 < length and text[end] == c" " and (
            c"a" <= text[end + 1] <= c"z"
        ):
            return False
        return not is_amount_at(tables, text, length, end)
    if i < before_end:
        return False
    if ends_as_exit_key(text + before, before_end - before):
        if i == before_end + 1 and text[before_end] == c" ":
            return True
    elif not is_exit_key(text + before, before_end - before):
        return False
    for at in range(before_end, i):
        if text[at] == c"=" or text[at] == c":":
            assigned = True
        elif not is_between_key_and_value(text[at]):
            return False
    return assigned


cdef inline bint is_integer(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Return whether a token is a decimal or hexadecimal number: `variants._EXIT_CODE`."""
    cdef size_t at = start, i
    if at < end and text[at] == c"-":
        at += 1
    if end - at > 2 and c"0" <= text[at] <= c"9" and text[at + 1] | 0x20 == c"x":
        if end - at > 18:
            return False
        for i in range(at + 2, end):
            if not is_hex_digit(text[i]):
                return False
        return True
    if at == end or end - at > 20:
        return False
    for i in range(at, end):
        if not c"0" <= text[i] <= c"9":
            return False
    return True


cdef inline bint is_before_failures(
    const uint8_t* text, size_t length, size_t end
) noexcept nogil:
    """Return whether ``errors`` or ``failures`` is behind a number."""
    if end + 7 > length or text[end] != c" " or text[end + 1] != c"e" and text[end + 1] != c"f":
        return False
    if memcmp(text + end + 1, b"errors", 6) == 0:
        end += 7
    elif end + 9 <= length and memcmp(text + end + 1, b"failures", 8) == 0:
        end += 9
    else:
        return False
    return end == length or not (is_word_byte(text[end]) or text[end] == c"-")


cdef inline bint is_exit_key(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is of `variants.EXIT_KEYS`."""
    cdef char name[MAX_LETTERS + 3]
    return letters_of(token, length, name) and strstr(
        b" rc retcode retval exitvalue err errno errcode grpcstatus failed failures errors "
        b"unreachable ", name
    ) != NULL


cdef inline bint ends_as_exit_key(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token ends as one of `variants.EXIT_KEY_ENDINGS`."""
    cdef char name[MAX_LETTERS + 3]
    cdef size_t size = letters_of(token, length, name)
    return (
        (size >= 8 and memcmp(name + 1 + size - 8, b"exitcode", 8) == 0)
        or (size >= 10 and memcmp(name + 1 + size - 10, b"exitstatus", 10) == 0)
        or (size >= 10 and memcmp(name + 1 + size - 10, b"returncode", 10) == 0)
    )


cdef inline int phrase_of_exit(const uint8_t* text, size_t end) noexcept nogil:
    """Return whether words announce an exit code at a place: `variants._EXIT_PHRASE`.

    Returns:
        0 if they do not; `BARE` if they are "exited with", which may also announce a count; else
        `ANNOUNCED`.
    """
    cdef size_t at
    cdef bint opened = False
    if end and (text[end - 1] == c"(" or text[end - 1] == c"[" or text[end - 1] == c"'"
                or text[end - 1] == c'"'):
        end -= 1
        opened = True
        if text[end] == c"(" and end and text[end - 1] == c" " and (
            word_at_end(text, end - 1, b"exited", 6)
        ):
            return ANNOUNCED
    if end == 0:
        return 0
    if text[end - 1] == c" ":
        end -= 1
        if not opened:
            at = word_at_end(text, end, b"with", 4)
            if at:
                return BARE if word_before(text, at, b"exited", 6) else 0
            at = word_at_end(text, end, b"code", 4)
            if at:
                at = word_before(text, at, b"with", 4)
            if at and (
                word_before(text, at, b"finished", 8) or word_before(text, at, b"ended", 5)
                or word_before(text, at, b"completed", 9) or word_before(text, at, b"failed", 6)
            ):
                return ANNOUNCED
        at = word_at_end(text, end, b"of", 2)
        if at == 0:
            at = word_at_end(text, end, b"is", 2)
        if at == 0:
            at = word_at_end(text, end, b"was", 3)
        if at > 1:
            return ANNOUNCED if text[at - 1] == c" " and is_behind_exit(text, at - 1) else 0
        if end and (text[end - 1] == c":" or text[end - 1] == c"="):
            end -= 1
            if end and text[end - 1] == c" ":
                end -= 1
    elif text[end - 1] == c":" or text[end - 1] == c"=":
        end -= 1
        if end and text[end - 1] == c" ":
            end -= 1
    else:
        return 0
    return ANNOUNCED if is_behind_exit(text, end) else 0


cdef inline bint is_behind_exit(const uint8_t* text, size_t end) noexcept nogil:
    """Return whether "exit code", "exited with status" or the like ends at a place."""
    cdef size_t at = word_at_end(text, end, b"code", 4)
    if at == 0:
        at = word_at_end(text, end, b"status", 6)
    if at < 2 or text[at - 1] != c" ":
        return False
    end = at - 1
    if word_at_end(text, end, b"exit", 4) or word_at_end(text, end, b"return", 6):
        return True
    if word_at_end(text, end, b"exited", 6):
        return True
    if text[end - 1] == c"," and word_at_end(text, end - 1, b"exited", 6):
        return True
    at = word_at_end(text, end, b"with", 4)
    if at < 2 or text[at - 1] != c" ":
        return False
    end = at - 1
    at = word_at_end(text, end, b"abnormally", 10)
    if at == 0:
        at = word_at_end(text, end, b"unexpectedly", 12)
    if at:
        if at == 1 or text[at - 1] != c" ":
            return False
        end = at - 1
    return word_at_end(text, end, b"exited", 6) or word_at_end(text, end, b"terminated", 10)


cdef inline size_t word_at_end(
    const uint8_t* text, size_t end, const char* word, size_t length
) noexcept nogil:
    """Return where a word in lower case begins that ends at a place, 0 if none does.

    At the beginning of a text 1 is returned, where no further word ends.
    """
    cdef size_t i, start
    if end < length:
        return 0
    start = end - length
    for i in range(length):
        if text[start + i] | 0x20 != <uint8_t>word[i]:
            return 0
    if start == 0:
        return 1
    return 0 if text[start - 1] < 0x80 and is_word_byte(text[start - 1]) else start


cdef inline size_t word_before(
    const uint8_t* text, size_t start, const char* word, size_t length
) noexcept nogil:
    """Return where a word begins that ends before a space before a place, as `word_at_end`."""
    if start == 0 or text[start - 1] != c" ":
        return 0
    return word_at_end(text, start - 1, word, length)


cdef inline size_t behind_duration(const uint8_t* text, size_t start) noexcept nogil:
    """Return where a number of milliseconds begins that ends before a space, 0 if none does."""
    cdef size_t at = start, end
    if start < 5 or text[start - 1] != c" " or text[start - 2] | 0x20 != c"s" or (
        text[start - 3] | 0x20 != c"m"
    ):
        return 0
    at = end = start - 3
    while at and end - at < 10 and c"0" <= text[at - 1] <= c"9":
        at -= 1
    if not 0 < end - at < 10:
        return 0
    if at and text[at - 1] == c".":
        end = at - 1
        at = end
        while at and end - at < 10 and c"0" <= text[at - 1] <= c"9":
            at -= 1
        if not 0 < end - at < 10:
            return 0
    return at


cdef inline bint is_behind_http(const uint8_t* text, size_t start) noexcept nogil:
    """Return whether ``HTTP``, ``status code`` or the like is before a place: `_HTTP_PHRASE`."""
    cdef size_t at = behind_duration(text, start)
    if at:
        at = word_before(text, at, b"in", 2)
        return at != 0 and word_before(text, at, b"finished", 8) != 0 and (
            word_before(text, at - 9, b"request", 7) != 0
        )
    if word_before(text, start, b"responded", 9):
        return True
    at = word_before(text, start, b"with", 4)
    if at:
        return word_before(text, at, b"responded", 9) != 0
    at = word_before(text, start, b"code", 4)
    if at:
        if word_before(text, at, b"status", 6) or word_before(text, at, b"response", 8):
            return True
        start = at
    at = word_before(text, start, b"error", 5)
    if at == 0:
        at = word_before(text, start, b"status", 6)
    return word_before(text, at if at else start, b"http", 4) != 0


cdef inline bint is_sent(const uint8_t* text, size_t length, size_t start) noexcept nogil:
    """Return whether three digits are between ``Sent`` and ``in``, as Phoenix writes a status."""
    return (
        start > 4 and memcmp(text + start - 5, b"Sent ", 5) == 0
        and (start == 5 or text[start - 6] >= 0x80 or not is_word_byte(text[start - 6]))
        and start + 7 <= length and memcmp(text + start + 3, b" in ", 4) == 0
    )


cdef inline bint is_nonzero(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Return whether an exit code is another than zero."""
    cdef size_t i
    for i in range(start, end):
        if text[i] != c"0" and text[i] != c"-" and text[i] | 0x20 != c"x":
            return True
    return False


cdef inline size_t behind_number(
    const uint8_t* text, size_t length, size_t at, size_t most
) noexcept nogil:
    """Return where a number ends that begins behind a space at a place, 0 if none is there."""
    cdef size_t first = at + 1
    if at >= length or text[at] != c" ":
        return 0
    at += 1
    while at < length and at - first <= most and c"0" <= text[at] <= c"9":
        at += 1
    return at if 0 < at - first <= most else 0


cdef inline bint is_before_sizes(const uint8_t* text, size_t length, size_t start) noexcept nogil:
    """Return whether three digits are before what follows the status in logs of load balancers."""
    cdef size_t at = start + 3, first
    if start == 0 or text[start - 1] != c" " or at + 8 > length or text[at] != c" ":
        return False
    if text[at + 1] == c"-":
        at += 2
    elif is_number(text + at + 1):
        at += 4
    else:
        return False
    at = behind_number(text, length, at, 10)
    if at:
        at = behind_number(text, length, at, 10)
    if at == 0 or at + 3 >= length or text[at] != c" " or text[at + 1] != c'"':
        return False
    at += 2
    first = at
    while at < length and at - first < 8 and (c"A" <= text[at] <= c"Z" or text[at] == c"-"):
        at += 1
    if not 0 < at - first < 8 or at >= length or text[at] != c" ":
        return False
    at += 1
    first = at
    while at < length and at - first < 7 and (
        c"a" <= text[at] <= c"z" or (at > first and c"0" <= text[at] <= c"9")
    ):
        at += 1
    return 0 < at - first < 7 and begins(text, length, at, b"://")


cdef inline bint is_ignored_in_key(uint8_t byte) noexcept nogil:
    """Return whether a byte is of `variants.IGNORED_IN_KEYS`."""
    return byte == c"_" or byte == c"-" or byte == c"." or byte == c"\\"


cdef inline bint is_between_key_and_value(uint8_t byte) noexcept nogil:
    return byte == c'"' or byte == c" " or byte == c"'" or byte == c"\\"


cdef inline bint is_status_key(const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is a name of `variants.STATUS_KEYS`, whose letters alone count."""
    cdef char name[MAX_LETTERS + 3]
    return letters_of(token, length, name) and strstr(
        b" code status statuscode httpstatus httpstatuscode httpresponsestatuscode responsestatus "
        b"responsecode httpcode httpresponsecode scstatus upstreamstatus downstreamstatus "
        b"originstatus elbstatuscode resp ", name) != NULL


cdef inline size_t letters_of(const uint8_t* token, size_t length, char* name) noexcept nogil:
    """Write a token's letters between spaces, as in lists of names.

    Returns:
        How many; 0 if it has other bytes, or more letters than `MAX_LETTERS`.
    """
    cdef size_t size = 1, i
    name[0] = c" "
    for i in range(length):
        if is_ignored_in_key(token[i]):
            continue
        if not c"a" <= token[i] | 0x20 <= c"z" or size > MAX_LETTERS:
            return 0
        name[size] = token[i] | 0x20
        size += 1
    name[size] = c" "
    name[size + 1] = 0
    return size - 1


cdef inline bint is_behind_key(
    const uint8_t* text, size_t before, size_t before_end, size_t start
) noexcept nogil:
    """Return whether a version of HTTP, or a key of a status, is directly before a place."""
    cdef size_t i
    cdef bint version = is_version(text + before, before_end - before), assigned = False
    if not version and not is_status_key(text + before, before_end - before):
        return False
    for i in range(before_end, start):
        if text[i] == c"=" or text[i] == c":":
            assigned = True
            if version:
                return False
        elif not (text[i] == c'"' or text[i] == c" " if version
                  else is_between_key_and_value(text[i])):
            return False
    return version or assigned


cdef inline bint is_day_before_time(
    const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    """Return whether four or eight digits are before a space and a time of the day."""
    cdef size_t i
    if (end - start != 4 and end - start != 8) or end + 9 > length or text[end] != c" ":
        return False
    for i in range(start, end):
        if not c"0" <= text[i] <= c"9":
            return False
    return is_time(text + end + 1)


cdef inline bint is_between_bars(const uint8_t* text, size_t length, size_t start) noexcept nogil:
    """Return whether three digits are between a time of the day and a duration, and bars."""
    cdef size_t at
    if start < 11 or start + 5 > length or text[start - 2] != c"|" or text[start + 4] != c"|":
        return False
    if text[start - 1] != c" " or text[start - 3] != c" " or text[start + 3] != c" ":
        return False
    if not is_time(text + start - 11):
        return False
    at = start + 5
    while at < length and text[at] == c" ":
        at += 1
    if at == length or not c"0" <= text[at] <= c"9":
        return False
    while at < length and text[at] != c" " and text[at] != c"|":
        at += 1
    if text[at - 1] != c"s":
        return False
    while at < length and text[at] == c" ":
        at += 1
    return at < length and text[at] == c"|"


cdef inline bint is_behind_times(
    const uint8_t* text, size_t before, size_t before_end, size_t start
) noexcept nogil:
    """Return whether five numbers between slashes, as HAProxy's times are, are before a place."""
    cdef size_t i
    cdef int slashes = 0
    cdef bint digits = False
    if start != before_end + 1 or text[before_end] != c" ":
        return False
    for i in range(before, before_end):
        if c"0" <= text[i] <= c"9":
            digits = True
        elif text[i] == c"/":
            if not digits:
                return False
            slashes += 1
            digits = False
        elif digits or not (text[i] == c"-" or text[i] == c"+") or (
            i > before and text[i - 1] != c"/"
        ):
            return False
    return digits and slashes == 4


cdef inline size_t status_of_request(
    const Tables* tables, const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    """Return where the status of a request is, 0 if nowhere: `variants.status_of_request`."""
    # Nearly all tokens end here.
    if end - start > 7 or end - start < 3 or end + 6 > length or not is_quote(text[end]):
        return 0
    return status_after_method(tables, text, length, start, end)


cdef inline size_t status_after_method(
    const Tables* tables, const uint8_t* text, size_t length, size_t start, size_t end
) noexcept nogil:
    cdef size_t status
    if not is_method(text + start, end - start):
        return 0
    status = status_after_path(tables, text, length, end)
    return status if status else status_in_iis(text, length, end)


cdef inline size_t status_in_iis(const uint8_t* text, size_t length, size_t end) noexcept nogil:
    """Return where the status is in a line of IIS whose method ends at a place, else 0."""
    cdef size_t at = end, first, word
    if at + 1 >= length or text[at] != c" " or text[at + 1] != c"/":
        return 0
    for word in range(2):  # the path and the query
        first = at + 1
        at = first
        while at < length and text[at] != c" ":
            at += 1
        if at == first:
            return 0
    at = behind_number(text, length, at, 5)  # the port
    if at == 0 or at >= length or text[at] != c" ":
        return 0
    first = at + 1
    at = first
    while at < length and text[at] != c" ":  # the user
        at += 1
    if at == first or at >= length:
        return 0
    first = at + 1
    at = first
    while at < length and (
        c"0" <= text[at] <= c"9" or c"a" <= text[at] | 0x20 <= c"f" or text[at] == c"."
        or text[at] == c":" or text[at] == c"%"
    ):
        at += 1
    if at == first or at >= length or text[at] != c" ":
        return 0
    if text[length - 1] == c"\r":
        length -= 1
    first = before_number(text, before_number(text, before_number(text, length, 10), 10), 3)
    if first < 4 or not is_number(text + first - 3):
        return 0
    return first - 3 if text[first - 4] == c" " and first - 4 >= at else 0


cdef inline size_t before_number(const uint8_t* text, size_t end, size_t most) noexcept nogil:
    """Return where the space is before a number that ends at a place, 0 if none ends there."""
    cdef size_t at = end
    while at and end - at <= most and c"0" <= text[at - 1] <= c"9":
        at -= 1
    return at - 1 if at and 0 < end - at <= most and text[at - 1] == c" " else 0


cdef inline size_t status_after_path(
    const Tables* tables, const uint8_t* text, size_t length, size_t end
) noexcept nogil:
    cdef size_t at = end, first, status
    cdef bint of_path
    while at < length and at - end < 8 and is_quote(text[at]):
        at += 1
    of_path = begins(text, length, at, b"/")
    if not (of_path or begins(text, length, at, b"http://")
            or begins(text, length, at, b"https://")):
        return 0
    while at < length and not is_quote(text[at]):
        at += 1
    if not of_path:
        at = behind_content(text, length, at)
    first = at
    while at < length and at - first < 8 and (
        is_quote(text[at]) or text[at] == c"=" or text[at] == c">" or text[at] == c":"
        or text[at] == c"|" or text[at] == c"-"
    ):
        at += 1
    if at == first or at + 3 > length or not is_number(text + at):
        return 0
    status = at
    at += 3
    if of_path and is_port(text, length, status):
        return 0
    if at < length:
        if text[at] == c"," or text[at] == c";":
            if at + 1 < length and not is_blank(text[at + 1]):
                return 0
        elif not (is_blank(text[at]) or ends_word(text[at])):
            return 0
    return 0 if is_amount_at(tables, text, length, at) else status


cdef inline size_t behind_content(const uint8_t* text, size_t length, size_t at) noexcept nogil:
    """Return where Kestrel's type and length of what a request held end; `at` if it held nothing."""
    cdef size_t i = at + 3, first
    if not begins(text, length, at, b" - "):
        return at
    first = i
    while i < length and text[i] != c" ":
        i += 1
    if i == first or i + 1 >= length:
        return at
    i += 1
    if text[i] == c"-":
        i += 1
    else:
        first = i
        while i < length and c"0" <= text[i] <= c"9":
            i += 1
        if i == first:
            return at
    return i if begins(text, length, i, b" - ") else at


cdef inline bint is_port(const uint8_t* text, size_t length, size_t start) noexcept nogil:
    """Return whether three digits are the port in a line of IIS: `variants._PORT`."""
    cdef size_t at = start + 6
    cdef int divided = 0
    if memcmp(text + start - 3, b" - ", 3) != 0 or not begins(text, length, start + 3, b" - "):
        return False
    while at < length and (
        is_hex_digit(text[at]) or text[at] == c"." or text[at] == c":" or text[at] == c"%"
    ):
        divided += text[at] == c"." or text[at] == c":"
        at += 1
    return divided > 1


cdef inline bint is_amount_at(
    const Tables* tables, const uint8_t* text, size_t length, size_t end
) noexcept nogil:
    """Return whether a unit follows a number that ends at a place."""
    cdef size_t at = end, first
    while at < length and text[at] == c" ":
        at += 1
    if at == end:
        return False
    first = at
    while at < length and not is_blank(text[at]) and not ends_word(text[at]):
        at += 1
    return is_amount_of(tables, text + first, at - first)


cdef inline bint is_amount_of(const Tables* tables, const uint8_t* token, size_t length) noexcept nogil:
    """Return whether a token is a unit."""
    if length == 3 and token[2] == c"s" and (
        (token[0] == 0xC2 and token[1] == 0xB5) or (token[0] == 0xCE and token[1] == 0xBC)
    ):
        return True  # microseconds
    return is_unit(tables, token, length)


cdef inline bint ends_word(uint8_t byte) noexcept nogil:
    return (byte == c'"' or byte == c"'" or byte == c"|" or byte == c")" or byte == c"]"
            or byte == c"," or byte == c";")


cdef inline bint is_quote(uint8_t byte) noexcept nogil:
    """Return whether a byte is a quote or a space."""
    return byte == c" " or byte == c'"' or byte == c"'"


cdef inline bint begins(
    const uint8_t* text, size_t length, size_t at, const char* with_
) noexcept nogil:
    cdef size_t size = strlen(with_)
    return at + size <= length and memcmp(text + at, with_, size) == 0

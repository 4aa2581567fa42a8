"""Tokens and token classes: which parts of a log line are words, and which are variables.

Problem: two log lines say the same thing if they differ only in numbers, addresses, paths and
times. Regular expressions can find those parts, but take one pass over the bytes for each.

Idea: a token's *shape* says almost as much. Cut the bytes at delimiters, and call a token
*variable* if

1. it holds an ASCII digit (``42``, ``0x1f``, ``blk_17``, ``node-3``);
2. it starts with ``/``, ``\\`` or ``~/`` and is longer than that (a path);
3. it holds ``@`` inside (an address);
4. it is a dotted name with two dots or more, trailing punctuation aside (``a.b.c``, a host or a
   class), but for names of exceptions (``a.b.SomeError``);
5. it is an English month or weekday name and a token of class 1 follows, directly or after more
   such names (``Mon Jan 5``).

A token that starts with the byte 0x1A (SUBSTITUTE) is variable too: a mask puts it in the place of
its match (see `masks`). A run of variables becomes *one* placeholder, so that a list of three
addresses equals a list of five.

Worked example::

    Failed password for root from 10.0.0.7 port 4422 ssh2
    Failed password for root from <*>      port <*>

The native kernel recognises the same classes in one pass; this module defines them. `lines` adds
classes for units, hosts, hex groups and structured text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LOG_DELIMITERS = b" \t\n\r\x0b\x0c=:,;()[]{}<>\"'|"
"""Bytes that separate the tokens of a log line: white space and punctuation around values."""

SEPARATORS = b"\x1b\x1c\x1d\x1e\x1f"
"""What begins an escape sequence; and the separators of files, groups, records and units."""

STRUCTURE_DELIMITERS = LOG_DELIMITERS + SEPARATORS
"""Bytes that separate the tokens of a log line whose structure is read."""

TIME_ZONES = frozenset(
    b"UTC GMT CET CEST EET EEST WET WEST BST IST EST EDT CST CDT MST MDT PST PDT AKST AKDT HST JST "
    b"KST SGT HKT AEST AEDT ACST ACDT AWST NZST NZDT MSK BRT ART SAST PKT WIB PHT".split()
)
"""Names of time zones."""

UNITS = frozenset(
    b"""
    b B kb kB KB mb MB gb GB tb TB KiB MiB GiB TiB byte bytes bit bits
    KB/s kB/s MB/s GB/s B/s kbps Mbps Gbps Hz kHz MHz GHz %
    ns us ms s msec msecs usec usecs sec secs second seconds min mins minute minutes
    h hr hrs hour hours day days nanoseconds microseconds milliseconds
    """.split()
)
"""Units after a number; a full stop at the end does not count."""

WORD_DELIMITERS = bytes(
    byte for byte in range(128) if not (chr(byte).isalnum() or byte == ord("_") or byte == 0x1A)
)
"""Bytes that separate the words of free text: ASCII except letters, digits and ``_``."""

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

NONWORD_DELIMITERS = bytes(set(range(256)) - set(_LETTERS + b"0123456789_\x1a"))
"""The bytes that ``\\W`` matches: all but ASCII letters, digits and ``_``."""

NONALPHA_DELIMITERS = bytes(set(range(256)) - set(_LETTERS + b"\x1a"))
"""All bytes but ASCII letters."""

DELIMITERS = {
    "log": LOG_DELIMITERS,
    "word": WORD_DELIMITERS,
    "space": b" ",
    "nonword": NONWORD_DELIMITERS,
    "nonalpha": NONALPHA_DELIMITERS,
}
"""Delimiters by their names in recipes. None has 0x1A, which belongs to masks."""

SUBSTITUTE = 0x1A
"""First byte of a token that a mask has put in the place of its match."""

_SUBSTITUTE = bytes([SUBSTITUTE])

PLACEHOLDER = b"<*>"
"""Hashed in the place of a run of variables. It equals no token, as ``<`` is a delimiter."""

_MONTHS = (
    "January February March April May June July August September October November December"
).split()
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
CALENDAR_NAMES = frozenset(
    name.encode() for full in (*_MONTHS, *_WEEKDAYS) for name in (full, full[:3])
)

_DIGIT = re.compile(rb"[0-9]")
_NAME_BYTE = rb"[A-Za-z0-9_$\x80-\xff-]"
_DOTTED = re.compile(_NAME_BYTE + rb"+(?:\." + _NAME_BYTE + rb"+){2,}")
EXCEPTIONS = (b"Exception", b"Error")
"""Ends of the names of exceptions, which say what happened."""

KINDS = (*EXCEPTIONS, b"Timeout", b"Refused", b"Failure", b"Fault", b"Warning")
"""Ends of words that name what went wrong, behind another part of the name."""

TRAILING_PUNCTUATION = bytes(
    byte for byte in range(128) if not (chr(byte).isalnum() or byte in b"_$-")
)
"""Bytes that are not counted at the end of a name."""


class Token(NamedTuple):
    """One word, or one run of variables, and its place in the text."""

    text: bytes
    """The word's bytes; for a run of variables, `PLACEHOLDER`."""
    start: int
    end: int
    variable: bool
    until: int = 0
    """End of the text that repeats what ends with this token (`lines`); 0 if none does."""
    assigned: bool = False
    """Whether the word is the value of a key (`lines`)."""
    nested: bool = False
    """Whether the word is in brackets (`lines`)."""


def splitter(delimiters: bytes) -> re.Pattern[bytes]:
    """Compile the pattern of one token between `delimiters`."""
    return re.compile(b"[^" + re.escape(delimiters) + b"]+")


SPACE_SPLIT = re.compile(rb"(?:^|(?<= ))[^ ]*")
"""Tokens between single spaces, empty ones included, as Java's ``String.split(" ")`` finds them."""


def is_variable(token: bytes) -> bool:
    """Return whether a token is of class 1 to 4 or was put there by a mask."""
    return (
        token[0] == SUBSTITUTE
        or _DIGIT.search(token) is not None
        or (token[0] in b"/\\" and len(token) > 1)
        or (token.startswith(b"~/") and len(token) > 2)
        or b"@" in token[1:-1]
        or (
            _DOTTED.fullmatch(token.rstrip(TRAILING_PUNCTUATION)) is not None
            and not is_exception(token)
        )
    )


def is_exception(token: bytes) -> bool:
    """Return whether a dotted name is that of an exception."""
    return token.rstrip(TRAILING_PUNCTUATION).endswith(EXCEPTIONS)


def is_named_kind(word: bytes) -> bool:
    """Return whether a word ends like the name of what went wrong.

    >>> [is_named_kind(word) for word in (b"SSLError", b"ReadTimeout", b"Error", b"Bob")]
    [True, True, False, False]
    """
    word = word.rstrip(TRAILING_PUNCTUATION)
    return word.endswith(KINDS) and word not in KINDS


def tokenise(text: bytes, split: re.Pattern[bytes], classes: bool) -> Iterator[Token]:
    """Cut `text` into words and placeholders.

    Args:
        text: any bytes.
        split: the result of `splitter`, or `SPACE_SPLIT`.
        classes: whether to apply the token classes; otherwise only a mask's substitutes are
            variables.
    """
    pieces = (
        (
            *match.span(),
            is_variable(token) if classes and token else token[:1] == _SUBSTITUTE,
            False,
            False,
        )
        for match in _matches(text, split)
        for token in (match.group(),)
    )
    return iter(merged(text, pieces, CALENDAR_NAMES if classes else frozenset()))


def merged(
    text: bytes,
    pieces: Iterable[tuple[int, int, bool, bool, bool]],
    calendar_names: frozenset[bytes] = CALENDAR_NAMES,
) -> list[Token]:
    """Make words and placeholders of pieces.

    Args:
        text: what they are pieces of.
        pieces: where each begins and ends, whether it is variable, whether it is the value of a
            key, and whether it is in brackets; in order.
        calendar_names: words that are part of a variable with a digit directly after them.
    """
    tokens: list[Token] = []
    names = 0  # calendar names directly before the current piece
    for begin, end, variable, assigned, nested in pieces:
        start, token = begin, text[begin:end]
        if variable and names and _DIGIT.search(token):
            start = tokens[-names].start
            del tokens[-names:]
        names = names + 1 if not variable and token in calendar_names else 0
        if not variable:
            tokens.append(Token(token, start, end, False, assigned=assigned, nested=nested))
        elif tokens and tokens[-1].variable:
            tokens[-1] = Token(PLACEHOLDER, tokens[-1].start, end, True)
        else:
            tokens.append(Token(PLACEHOLDER, start, end, True))
    return tokens


def _matches(text: bytes, split: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    if split is not SPACE_SPLIT:
        return split.finditer(text)
    # Java drops empty tokens at the end, so a text of spaces alone has none; but a text without any
    # space is one token, even if it is empty.
    end = len(text.rstrip(b" "))
    return split.finditer(text, 0, end) if end or not text else iter(())

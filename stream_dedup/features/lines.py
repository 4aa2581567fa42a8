"""Structure inside a line: JSON, ``Name(key=value, …)``, lists and quoted strings.

Problem: one statement of a program that logs whole objects writes a hundred patterns. Their values
are words (``rack=eu``), their strings hold any text, their lists are of any length.

Idea: what is before and behind a token says whether it is a value, and its key is a word. One
pass keeps a counter of open brackets and the *role* of the text since the last token. In addition
to the classes of `tokens`, a token is variable if it

6. is a unit after a token with a digit (``12 ms``, ``3 bytes``);
7. is one of three or more groups of up to four hex digits joined by ``:`` or ``::``, one of them
   with a decimal digit (``fe80::ab:1``);
8. holds two or more of ``.``, ``/`` and ``\\`` between name bytes (``usr/lib/jvm``), or starts with
   ``./`` or ``../`` and is longer than that; but for names of exceptions (`tokens.is_exception`).
   Or it is the path ``/`` behind a method of a request.
   Or it is one of three or more that are joined by ``::`` (``hyper::proto::h1``), unless one names
   what went wrong or a state (`tokens.is_named_kind`, `has_state`);
9. is a name, a dot and one of `LAST_LABELS` (``example.com``, ``report.pdf``); or a name directly
   before an IP address in brackets (``unknown[203.0.113.9]``), unless it names a kind of event; or
   the host in the head of a line of syslog (``Nov 24 16:00:00 atlas sshd[7]: …``);
10. is a value: inside brackets a single word after ``key=``, after ``"key":``, or after ``key:``, a
    space and before the next comma or bracket; an item of a list behind a key; one of two or more
    single words in square brackets, with commas between them (``[orders, users]``);
11. is in a string that is one value: in single quotes (``b'…'`` too), unless it has three
    words or more and neither key nor ``b`` before it; in double quotes
    after ``"key":``, after ``key=`` inside brackets, or in a list behind a key. A string that is a
    key itself, or comes after a message key (`is_message_key`), has words as any text; so has
    one behind such a key and white space (``result 'oom-kill'``). In angle brackets directly after
    ``key=`` are values too (``from=<bob>``), unless they hold white space or quotes or the key is a
    message key;
12. is a single word in double quotes behind a word without a digit: ``table "accounts"``, and
    outside brackets ``task "backup": hung``;
13. is an address with a scheme (``http://a/b?c=d``), up to white space, a quote or a bracket that
    closes; its scheme, host and parameters are not words of their own;
14. is an optional value of a programming language: ``Optional.empty``, ``Optional[…]`` or
    ``Some(…)``, whatever the brackets hold;
15. is the target of a request in an access log, which is in double quotes with a status behind it
    (``"GET / HTTP/1.1" 200``); or a string in double quotes that follows on the line, neither
    behind a key nor behind a word: the referrer, the user agent. What they say is no outcome, as
    clients choose it.

An *absent* value is a value: one of `ABSENT` in a place of class 10 is a variable and no outcome,
so ``{"rack": null}`` reads as ``{"rack": "eu"}``. In other places, as in ``error: null``, it says
what happened.

A single word after ``key=`` outside brackets, alone in double quotes or not, stays a word; but
unless the key is a message key it is *assigned*, so that all such values of a line can be learned
at once (`fingerprint.one_off`). So are the words of a value with colons (``image=nginx:latest``).

An empty value (``key=,``, ``""``, ``[]`` behind a key) is a variable too. Runs of three dots or
more and of four dashes or more, the escape sequences of terminals, the separators of ASCII (file,
group, record, unit), and backslashes directly before a quote separate tokens; so do the control
characters that rsyslog writes with digits (`LineReader.without_escapes`).

At last, a group of 2 to 32 tokens that holds a placeholder and repeats in a row is kept once: a
list of alike items, of any length, is one item. Items with different outcomes are not alike. A
group of one word and one placeholder is an item only if more than white space is between two of
them, or if its word is a key: ``node 1, node 2`` and ``x=1 x=2``, but not ``retry 3 worker 4 worker
stopped``.

A line of variables alone, such as ``[<02114408>] do_page_fault+0x12f/0x446``, says something after
all if it holds names. So it is read again: what has `LEAST_LETTERS` bytes or more of letters,
underscores or bytes beyond ASCII between other bytes, and no digit, is a word.

Worked example::

    Got Node(id=7, host='db a', rack=eu) for [{"topic": "x", "size": 1}, {"topic": "y", "size": 2}]
    Got Node id <*> host <*>    rack <*>  for    topic   <*>  size   <*>

Time is linear in the text: brackets are counted, not matched, and the end of a string is looked for
once. A string never spans lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from stream_dedup.features.recipe import Recipe
from stream_dedup.features.tokens import (
    LOG_DELIMITERS,
    SUBSTITUTE,
    TRAILING_PUNCTUATION,
    UNITS,
    Token,
    is_exception,
    is_named_kind,
    is_variable,
    merged,
    tokenise,
)
from stream_dedup.features.variants import LEVELS, METHODS, VariantWord, variant_words
from stream_dedup.native import extension

MAX_WORDS = 2
"""Maximum words of a string that is one value without a key: more may be a message."""

LEAST_LETTERS = 3
"""Least bytes of a name in a line of variables."""

LEAST_GROUP = 2
"""Tokens of the smallest group that may be an item of a list."""

MAX_GROUP = 32
"""Maximum tokens of a group that is kept once: the kernel looks for two in the 64 last tokens."""

ALL_ASSIGNED = 48
"""The bit, in a mask of words, of all words that are assigned."""

TOP_LABELS = frozenset(
    b"com net org edu gov mil io cloud local localdomain lan internal corp "
    b"cn de uk jp fr ru nl eu br au".split()
)
"""Last labels of host names with one dot, lower case."""

FILE_ENDINGS = frozenset(
    b"pdf png jpg jpeg gif svg ico csv tsv txt json xml yaml yml toml ini conf cfg html htm css "
    b"doc docx xls xlsx zip gz tgz tar bz2 xz jar war mp3 mp4 avi wav bak "
    b"service timer mount automount swap slice".split()
)
"""Endings of names of files and of systemd's units, lower case. Not those of source code, as
``main.go`` says where a line comes from; nor words that programs have for parts of themselves, as
in ``console.log``, ``app.db`` and ``event.target``."""

LAST_LABELS = TOP_LABELS | FILE_ENDINGS
"""What makes a name of two labels a variable."""

MESSAGE_KEYS = frozenset(
    b"msg message text log event type kind action operation op method verb cmd error err "
    b"errmsg exception reason cause description detail details title subject summary problem "
    b"warning alert alertname status state result outcome code command query sql statement "
    b"textpayload @m @mt decision verdict conclusion phase severity failure eventname eventtype "
    b"errorcode error_code error.code exitcode exit_code returncode return_code resultcode "
    b"result_code reasoncode reason_code errormessage error_message error.message".split()
)
"""Keys whose values say what happened, lower case: their words stay words."""

SENTENCE_KEYS = frozenset(
    b"msg message text log error err errmsg exception cause description detail details title "
    b"subject summary problem warning alert alertname query sql statement textpayload @m @mt "
    b"failure errormessage error_message error.message".split()
)
"""Those of them whose values are sentences: their words do not name kinds of events."""

OUTCOME_KEYS = frozenset(b"error err reason result status cause exception outcome".split())
"""Keys that are message keys also as the last part of a name, behind other letters, lower case."""

STATES = frozenset(
    b"up down open opened close closed start started stop stopped ready fail failed success "
    b"succeeded died killed enabled disabled connect connected disconnect disconnected create "
    b"created delete deleted added removed accepted rejected denied allowed locked unlocked lost "
    b"found completed cancelled canceled aborted expired online offline healthy unhealthy "
    b"available unavailable active inactive timeout login logout".split()
)
"""Last parts of names that say what happened or how it is, lower case: of ``session_open``."""

PROGRAMS = frozenset(
    b"kernel sudo su cron crond systemd login logger sshd dhcpd dhclient dnsmasq named ntpd "
    b"chronyd rsyslogd syslogd syslog auditd audispd useradd userdel usermod groupadd passwd "
    b"shutdown reboot snmpd postfix dovecot hostapd smbd xinetd".split()
)
"""Programs whose lines of syslog may lack the number of the process, lower case."""

ABSENT = frozenset((b"null", b"none", b"nil"))
"""What stands for a value that is not there, lower case."""

OPTIONALS = frozenset((b"Optional", b"OptionalInt", b"OptionalLong", b"OptionalDouble", b"Some"))
"""What is before the brackets of an optional value."""

MAX_KEY = 32
"""No message key is as long, so no more bytes of a key are read than its last ones."""

_EMPTY = b".empty"
_URL_MARK = b"://"
_ESC = 0x1B
_SPACES = b" \t\n\r\x0b\x0c"
_OPENING, _CLOSING = b"([{", b")]}"
_SEPARATING = b"\x1b\x1c\x1d\x1e\x1f"  # escapes, and the separators of files, records and fields
_AFTER_VALUE = frozenset(_SPACES + _SEPARATING + b",;)]}>")
_DELIMITERS = LOG_DELIMITERS + _SEPARATING
_QUOTES, _SEPARATORS = (b"'", b'"'), (b"=", b":")
_BACKSLASH = ord("\\")
_CAPITAL, _NO_CAPITAL = re.compile(rb"[A-Z]"), re.compile(rb"[a-z\x80-\xff]")
_DASH, _SLASH = ord("-"), ord("/")
_SKIPPED = re.escape(_DELIMITERS)
_WORD = re.compile(rb"(?:[^.\-%b]|\.(?!\.\.)|-(?!---))++" % _SKIPPED)
_RUN = re.compile(rb"\.++|-++|\\++")
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*+[ !$]*+[@-~]|[#%(-+][0-~]|[0-Z\\-~])?")
# What rsyslog writes for control characters: NUL, BEL, those of white space, and shift in.
_WRITTEN_SPACE = re.compile(rb"#0(?:0[07]|1[0-57])")
_WRITTEN_ESCAPE = rb"#033(?:\[[0-?]*+[ !$]*+[@-~]|[%(-+][0-~]|\])"
_WRITTEN = rb"(?:%b|#033)" % _WRITTEN_SPACE.pattern
_GLUED = rb"(?<=[^%b])%b|%b(?=[A-Za-z]|#0)" % (_SPACES, _WRITTEN, _WRITTEN)
_OF_TERMINALS = re.compile(rb"(?:%b)++" % _ESCAPE.pattern)
_ESCAPES = re.compile(b"(?:" + b"|".join((_ESCAPE.pattern, _WRITTEN_ESCAPE, _GLUED)) + b")++")
_OF_RSYSLOG = re.compile(  # numbers, such as worker#012, are none of these
    rb"%b|#01[12](?=[A-Za-z]|#0)|(?<=[^%b])#01[12](?=[%b]{2})|(?<=[A-Za-z)\]}\"'.!?])#0(?:00|12|15)\Z"
    % (_WRITTEN_ESCAPE, _SPACES, _SPACES)
)
_HEX_GROUP = re.compile(rb"[A-Fa-f]{1,4}+")
_HEX_BEHIND = re.compile(rb"(?:::?[0-9A-Fa-f]{1,4}+(?=[%b]|\Z))*+" % _SKIPPED)
_URL_REST = re.compile(rb"[^%b\x1b\"'<>|)\]}]*+" % _SPACES)
_QUERY_REST = re.compile(rb"[^%b\x1b\"'<>|)\]},;]*+" % _SPACES)
_URL_ENDS_NOT = b",;:.!?"
_NAME = rb"[A-Za-z0-9_$\x80-\xff-]"
_SEPARATED = re.compile(rb"(?<=%b)[./\\](?=%b)" % (_NAME, _NAME))
_BLANK = re.compile(rb"[%b]*+" % _SPACES)
_DIGIT = re.compile(rb"[0-9]")
_SUBSTITUTE = bytes([SUBSTITUTE])
_NAME_BYTES = re.compile(_NAME + rb"++")
_LAST_PART = re.compile(  # of a key: "status" of "job_status", "Error" of "lastError"
    rb"(?:(?<=[_.-])(?:[A-Z]++|[A-Za-z][a-z]*+)|(?<=[a-z0-9])[A-Z][a-z]*+)\Z"
)
_WORD_BYTE = re.compile(rb"[A-Za-z0-9_\x80-\xff]")
_RUN_OF_WORD_BYTES = re.compile(rb"[A-Za-z0-9_\x80-\xff]++")

_ANGLE = re.compile(rb"<([^%b\x1b\"'<>]*+)>" % _SPACES)
_BARE = re.compile(rb"[^%b\x1b\"]++" % _SPACES)
_ADDRESS = re.compile(rb"\[(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|([0-9A-Fa-f.:]{3,45}))\]")
_NESTED = re.compile(rb"[^%b]++(?:::[^%b]++)*+" % (_SKIPPED, _SKIPPED))
_ITEMS = re.compile(rb"[^%b]++(?:, ?[^%b]++)++(?=\])" % (_SKIPPED, _SKIPPED))
_VALUE_REST = re.compile(rb"(?:[^%b]|:)*+" % _SKIPPED)
_BETWEEN_ITEMS = re.compile(rb"[,;|)\]}>\n]")
_SIGNED = re.compile(rb"[+-][A-Za-z]")
_PROCESS_NUMBER = re.compile(rb"\[[0-9]{1,9}\]: ")
_LETTERS = re.compile(rb"[A-Z]++[a-z]*+|[a-z]++")
_METHOD = re.compile(rb"(?:%b)(?= )" % b"|".join(sorted(METHODS)))
_VERSION = re.compile(rb" HTTP/[0-9](?:\.[0-9])?")
_VERSION_SIZES = (7, 9)
_SYSLOG_HEAD = re.compile(  # the time, the host, and the program
    rb"(?:<[0-9]{1,3}>)?"
    rb"(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
    rb"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,]{8,24}(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"
    rb" (?P<host>(?=[^%b]{0,63}[a-z])[^%b]{1,64}) (?P<program>[^%b:]{1,64}): "
    % (_SKIPPED, _SKIPPED, _SPACES)
)
_SENTENCE_BEHIND = re.compile(rb'": (?!(?:true|false|null)(?![A-Za-z]))[A-Za-z]')
_STATUS_BEHIND = re.compile(rb'" [1-5][0-9]{2}(?![^%b])' % _SPACES)
_SPACE_BYTES = tuple(_SPACES[i : i + 1] for i in range(len(_SPACES)))

# What the text since the last token, or since a string, says of the next token.
_OTHER, _OPENED, _ITEM, _ASSIGNED, _COLON, _SPACED, _QUOTED, _JSON = range(8)
_KEYED = (_ASSIGNED, _COLON, _SPACED, _JSON)


class Piece(NamedTuple):
    """A token between delimiters, an empty value, or where a string that is a value begins or ends.

    Attributes:
        start: where it begins.
        end: where it ends.
        variable: whether it is a variable.
        assigned: whether it is the value of a key, outside brackets.
        absent: whether it stands for a value that is not there, or for what a client has chosen;
            what it says is no outcome.
    """

    start: int
    end: int
    variable: bool
    assigned: bool = False
    absent: bool = False


class _Close(NamedTuple):
    """The end of strings that begin at `looked` or later and before it.

    Attributes:
        looked: from where it was looked for.
        at: where the quote is, or else where the line or the text ends.
        there: whether there is one.
        follower: the byte that follows it, white space aside; nothing at the end of the text.
    """

    looked: int
    at: int
    there: bool
    follower: bytes


_NO_CLOSE = _Close(1, 0, False, b"")


def learned_words(tokens: Iterable[Token], mask: int) -> Callable[[Token], bool]:
    """Return which words are shown as variables.

    Args:
        tokens: of an event.
        mask: bit i for each word i that is learned, and bit `ALL_ASSIGNED`. A word counts wherever
            it stands; but not one without letters, such as ``-``, which stands for many things.
    """
    words = (token for token in tokens if not token.variable)
    known = [word for number, word in enumerate(words) if mask >> number & 1]
    places = {(word.text, word.start) for word in known}
    texts = {word.text for word in known if _WORD_BYTE.search(word.text)}
    assigned = bool(mask >> ALL_ASSIGNED & 1)
    return lambda token: (
        token.text in texts or (token.text, token.start) in places or (assigned and token.assigned)
    )


class Reading(NamedTuple):
    """What a line is made of.

    Attributes:
        tokens: words and placeholders in order.
        variant: the words that make the variant.
    """

    tokens: Sequence[Token]
    variant: Sequence[VariantWord]


class LineReader:
    """Reads tokens and variants by a recipe.

    Args:
        recipe: the recipe.
        reference: whether to use no compiled code: for what compiled code is compared with.
    """

    def __init__(self, recipe: Recipe, *, reference: bool = False) -> None:
        self._pieces = pieces if reference else fastest().pieces
        # The pattern of an event and the slots of its pattern are asked for one after the other.
        self._whole = lru_cache(1)(self._read)
        self._split = recipe.split
        self._structured = recipe.text.classes == "structured"
        self._classes = bool(recipe.text.classes)
        self._protected, self._levels = recipe.protected, recipe.levels
        self._status = "status" in recipe.match.variants

    def read(self, text: bytes, *, lists: bool = True) -> Reading:
        """Return the tokens of a text and its variant.

        Args:
            text: any bytes.
            lists: whether to keep groups that repeat once, where the recipe reads structure.
        """
        whole, has_lists = self._whole(text)
        return _without_repeats(text, *whole) if lists and has_lists else whole

    def _read(self, text: bytes) -> tuple[Reading, bool]:
        """Return all tokens of a text and its variant; and whether it may have lists."""
        if not self._structured:
            tokens = tokenise(text, self._split, self._classes)
            spans = (match.span() for match in self._split.finditer(text))
            return Reading(tuple(tokens), self._variant(text, spans)), False
        found = self._pieces(text)
        spans = ((start, end) for start, end, *_, absent in found if end > start and not absent)
        variant = self._variant(text, spans)
        apart = {word.start for word in variant}  # never learned, as are kinds
        whole = tuple(
            token._replace(assigned=False)
            if token.assigned and (token.start in apart or names_kind(text, token.start, token.end))
            else token
            for token in merged(text, (piece[:4] for piece in found))
        )
        if all(token.variable for token in whole):
            names = tuple(merged(text, (piece[:4] for piece in _names(text))))
            if not all(token.variable for token in names):
                return Reading(names, variant), False
        return Reading(whole, variant), True

    def without_escapes(self, text: bytes) -> bytes:
        """Return a text without the escape sequences of terminals, which are no part of it.

        Nothing compares them. `read` takes those of terminals for delimiters, so that the places of
        tokens are those in the text; but what is on both sides is then not next to each other.

        rsyslog writes a control character as ``#`` and three octal digits; ``worker#012`` looks
        the same. So these are read, and removed or replaced by a space, if the text has one that
        is no number: an escape sequence (``#033[31m``), a tab or line end directly before a letter,
        another one or indentation, or a line end at the text's end (``failed#012``).
        """
        if not self._structured:
            return text
        if b"#0" in text and _OF_RSYSLOG.search(text):
            return _ESCAPES.sub(_space_between, text)
        return _OF_TERMINALS.sub(_space_between, text) if b"\x1b" in text else text

    def _variant(self, text: bytes, spans: Iterator[tuple[int, int]]) -> tuple[VariantWord, ...]:
        if not self._protected and not self._status:
            return ()
        return tuple(variant_words(text, spans, self._protected, self._levels, status=self._status))


def pieces(text: bytes) -> Sequence[Piece]:
    """Return the tokens of a text, and its empty values, in order."""
    return _Scanner(text).pieces()


def fastest() -> ModuleType:
    """Return the native module if it is in use, or this one."""
    return extension("features._lines") or sys.modules[__name__]


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._pieces: list[Piece] = []
        self._role = _OTHER
        self._depth = 0
        self._keyed = 0  # of the innermost 64 brackets, a bit each: whether a key comes before it
        self._last = (-1, -1)  # the last token that was in no value's string
        self._end = -1  # the last token's end, if nothing but a gap follows it
        self._blank = False  # whether that gap is white space
        self._plain = -1  # end of a single-quoted string whose words are words
        self._requested = False  # whether the request of an access log has been read
        self._target = (-1, -1)  # where its method ends, and its version begins
        self._optional = -1  # where an optional value's bracket is
        self._inside = -1  # the depth at which the brackets of an optional value end
        self._hex_end = 0  # end of the last run of hex groups that was looked at
        self._is_hex = False
        self._nested_end = 0  # end of the last names joined by "::" that were looked at
        self._is_nested = False
        self._list_end = 0  # end of the items of the last list in square brackets
        self._assigned_end = 0  # end of the last value of a key, outside brackets, that has colons
        self._closes = {b'"': _NO_CLOSE, b"'": _NO_CLOSE}
        self._host = _host_of_syslog(text)

    def pieces(self) -> list[Piece]:
        text, at = self._text, 0
        while at < len(text):
            at = self._gap(at) if text[at] in _DELIMITERS else self._token(at)
        return self._pieces

    # ---------------------------------------------------------------- between tokens

    def _gap(self, at: int) -> int:
        """Take one delimiter; return where to go on."""
        text, role = self._text, self._role
        byte = text[at : at + 1]
        if byte == b"\x1b":
            return _end(_ESCAPE, text, at)
        if byte in _SPACES:
            if role == _COLON:
                self._role = _SPACED
            return at + 1
        blank, self._blank = self._blank, False
        self._role = _OTHER
        if byte == b"=":
            self._role = _ASSIGNED
        elif byte == b":":
            if role == _QUOTED:
                self._role = _JSON
            elif at == self._end:
                self._role = _COLON
        elif byte in b",;":
            if role == _ASSIGNED and self._depth:
                self._value(at)
            self._role = _ITEM
        elif byte in _OPENING:
            if at == self._optional and self._inside < 0:
                self._inside = self._depth
            self._open(role)
        elif byte in _CLOSING:
            if (role == _ASSIGNED and self._depth) or (role == _OPENED and self._keyed & 1):
                self._value(at)
            if self._depth:
                self._depth -= 1
                self._keyed >>= 1
                if self._depth == self._inside:
                    self._inside = -1
        elif byte == b"<" and role == _ASSIGNED:
            self._role = _ASSIGNED
            return self._angle(at)
        elif byte in b"\"'":
            return self._quote(at, byte, role, behind_word=blank and not self._is_number())
        return at + 1

    def _open(self, role: int) -> None:
        keyed = (
            role in (_ASSIGNED, _JSON)
            or (role in (_COLON, _SPACED) and self._depth > 0)
            or (role in (_OPENED, _ITEM) and self._keyed & 1)
        )
        self._keyed = (self._keyed << 1 | keyed) & (2**64 - 1)
        self._depth += 1
        self._role = _OPENED

    def _value(self, at: int) -> None:
        self._pieces.append(Piece(at, at, True))

    def _quote(self, at: int, quote: bytes, role: int, *, behind_word: bool) -> int:
        if quote == b'"':
            if at == self._end:
                self._role = _QUOTED
                return at + 1
            item = role in (_OPENED, _ITEM) and self._keyed & 1
            value = role == _JSON or (role in (_ASSIGNED, _COLON, _SPACED) and self._depth) or item
            if not value and not (behind_word and self._is_name(at)):
                return self._plain_string(at, role, behind_word=behind_word)
        elif at == self._end and (at <= self._plain or _closes(self._text[at - 1])):
            self._role = _QUOTED
            return at + 1
        elif at <= self._plain:
            return at + 1
        after = self._string(at, quote, role, behind_word=behind_word)
        if after < 0:
            self._role = _QUOTED if at == self._end else _OTHER
            return at + 1
        return after

    def _plain_string(self, at: int, role: int, *, behind_word: bool) -> int:
        """Take a string that only an access log makes a value; return where to go on."""
        text = self._text
        if role in _KEYED or text[at + 1 : at + 2] in _SPACE_BYTES:
            return at + 1
        if self._requested:
            if behind_word or text[at - 1 : at] not in _SPACE_BYTES:
                return at + 1
            found = self._close(at + 1, b'"')
            if not found.there:
                return at + 1
            self._pieces.append(Piece(at + 1, found.at, True, absent=True))
            self._end = -1
            return found.at + 1
        method = _METHOD.match(text, at + 1)
        if method is None:
            return at + 1
        found = self._close(at + 1, b'"')
        if not found.there or _STATUS_BEHIND.match(text, found.at) is None:
            return at + 1
        for size in _VERSION_SIZES:
            if _VERSION.fullmatch(text, found.at - size, found.at):
                self._requested, self._target = True, (method.end(), found.at - size)
        return at + 1

    def _is_name(self, at: int) -> bool:
        """Return whether a single word in double quotes, of class 12, begins here."""
        if self._is_message_key():
            return False
        found = self._close(at + 1, b'"')
        if not found.there or found.follower == b"=":
            return False
        if found.follower == b":" and (
            self._depth or not _SENTENCE_BEHIND.match(self._text, found.at)
        ):
            return False  # a key
        return found.at > at + 1 and _end(_BARE, self._text, at + 1) == found.at

    def _is_number(self) -> bool:
        """Return whether the last piece holds a digit."""
        before = self._pieces[-1]
        return _DIGIT.search(self._text, before.start, before.end) is not None

    def _string(self, at: int, quote: bytes, role: int, *, behind_word: bool = False) -> int:
        """Take a string; return where to go on, or -1 if there is none."""
        text = self._text
        found = self._close(at + 1, quote)
        if not found.there:
            return -1
        close, follower = found.at, found.follower
        if quote == b'"' and role in (_OPENED, _ITEM) and (not follower or follower not in b",)]}"):
            return -1
        self._role = _OTHER
        self._blank = False
        words = quote == b"'" and self._depth > 0 and follower == b":"  # a key
        if role in _KEYED or behind_word:
            words = words or self._is_message_key()
        keyed = (
            role in (_ASSIGNED, _JSON)
            or (role in (_COLON, _SPACED) and self._depth > 0)
            or (role in (_OPENED, _ITEM) and self._keyed & 1 == 1)
            or text[at - 1 : at] in (b"b", b"u")
        )
        if not keyed:
            words = words or len(text[at + 1 : close].split(None, MAX_WORDS)) > MAX_WORDS
        if words:
            if quote == b"'":
                self._plain = close
            return at + 1
        return self._one_value(at + 1, close)

    def _angle(self, at: int) -> int:
        """Take a value in angle brackets, if one begins here; return where to go on."""
        text = self._text
        found = _ANGLE.match(text, at)
        if found is None or text[at - 1 : at] != b"=" or self._is_message_key():
            return at + 1
        if found[1].lower() in ABSENT:
            return at + 1
        self._role = _OTHER
        return self._one_value(at + 1, found.end() - 1)

    def _one_value(self, at: int, close: int) -> int:
        """Take a text that is one value; return where to go on behind what closes it."""
        text = self._text
        self._value(at)
        while at < close:
            if text[at] == _ESC:
                at = _end(_ESCAPE, text, at)
            elif text[at] in _DELIMITERS:
                at += 1
            else:
                end = _word_end(text, at)
                if end > at:
                    self._pieces.append(Piece(at, end, True))
                at = end if end > at else _end(_RUN, text, at)
        if text[close - 1] in _DELIMITERS:  # is part of the value
            self._value(close)
        self._end = -1
        return close + 1

    def _close(self, at: int, quote: bytes) -> _Close:
        """Return the end of a string's text that begins at `at`.

        What was found is found again from any quote before it, so each byte is looked at once.
        """
        text, known = self._text, self._closes[quote]
        if known.looked <= at <= known.at:
            return known
        i, there = at, False
        while i < len(text) and text[i] != 0x0A:
            if text[i] == 0x5C:  # a backslash
                i += 1 if text[i + 1 : i + 2] == b"\n" else 2
                continue
            if text[i] == quote[0] and (quote == b'"' or not _WORD_BYTE.match(text, i + 1)):
                there = True
                break
            i += 1
        behind = _end(_BLANK, text, i + 1) if there else i
        found = _Close(at, min(i, len(text)), there, text[behind : behind + 1])
        self._closes[quote] = found
        return found

    # ---------------------------------------------------------------- tokens

    def _token(self, start: int) -> int:
        """Take one token, or a run that separates tokens; return where to go on."""
        text = self._text
        end = _word_end(text, start)
        if end == start:
            self._blank = False
            self._role = _OTHER
            return _end(_RUN, text, start)
        role = self._role
        token = text[start:end]
        if token in (b"b", b"u") and text[end : end + 1] == b"'" and end > self._plain:
            after = self._string(end, b"'", role)
            if after >= 0:
                return after
        if text.startswith(_URL_MARK, end):
            return self._address(start, _end(_URL_REST, text, end))
        if token[0] == _SLASH and b"?" in token[:-1]:
            return self._address(start, _end(_QUERY_REST, text, end))
        nested, listed = self._is_nested_name(start, end), self._is_listed(start)
        variable = (
            nested
            or start == self._host
            or (token == b"/" and self._is_behind_method())
            or ((listed or has_address_behind(text, end)) and not _names_itself(text, start, end))
            or self._is_hex_group(start, end)
            or is_variable(token)
            or self._is_structured(token)
        )
        if not variable and role != _OTHER:
            variable = self._is_value(end, role)
        assigned = not self._depth and self._is_assigned(start, end)
        if not variable and self._blank and self._pieces[-1].variable:
            variable = self._is_number() and token.rstrip(b".") in UNITS
        if self._is_optional(token, end) and not (role in _KEYED and self._is_message_key()):
            self._optional = end
            variable = True
        variable = variable or self._inside >= 0
        absent = variable and token.lower() in ABSENT
        self._pieces.append(Piece(start, end, variable, assigned and not variable, absent))
        self._last = start, end
        self._end = end
        self._blank = True
        self._role = _OTHER
        if end == self._target[0]:
            return self._take_target(end, self._target[1])
        return end

    def _is_behind_method(self) -> bool:
        """Return whether nothing but white space is between a method of a request and here."""
        start, end = self._last
        return self._blank and self._text[start:end] in METHODS

    def _take_target(self, at: int, end: int) -> int:
        """Take what is between the method of a request and its version."""
        if end > at + 1:
            self._pieces.append(Piece(at + 1, end, True, absent=True))
            self._end = -1
            self._blank = False
        return end

    def _address(self, start: int, end: int) -> int:
        """Take an address, but for punctuation at its end; return where to go on."""
        while self._text[end - 1] in _URL_ENDS_NOT:
            end -= 1
        self._pieces.append(Piece(start, end, True))
        self._last = start, end
        self._end = end
        self._blank = False
        self._role = _OTHER
        return end

    def _is_optional(self, token: bytes, end: int) -> bool:
        if token[:1] not in (b"O", b"S"):
            return False
        opened = self._text[end : end + 1] in (b"(", b"[")
        if opened:
            return token in OPTIONALS
        name = token.rstrip(b".")
        return name.endswith(_EMPTY) and name.removesuffix(_EMPTY) in OPTIONALS

    def _is_hex_group(self, start: int, end: int) -> bool:
        """Return whether a token without digits is of class 7."""
        text = self._text
        if not _HEX_GROUP.fullmatch(text, start, end) or b":" not in (
            text[end : end + 1],
            text[max(start - 1, 0) : start],
        ):
            return False
        if start >= self._hex_end:
            groups = [*_groups_before(text, start)]
            behind = _HEX_BEHIND.match(text, end)
            assert behind is not None
            groups += re.findall(rb"[^:]+", behind[0])
            self._hex_end = behind.end()
            self._is_hex = len(groups) > 1 and any(map(_DIGIT.search, groups))
        return self._is_hex

    def _is_nested_name(self, start: int, end: int) -> bool:
        """Return whether a token is one of three or more that are joined by ``::``."""
        text = self._text
        if start >= self._nested_end:
            if text[end : end + 2] != b"::":
                return False
            self._nested_end = _end(_NESTED, text, start)
            names = text[start : self._nested_end].split(b"::")
            self._is_nested = len(names) > 2 and not any(map(_says_what_happened, names))
        return self._is_nested

    def _is_listed(self, start: int) -> bool:
        """Return whether a token is one of two or more items of a list in square brackets."""
        text = self._text
        if start >= self._list_end and text[start - 1 : start] == b"[":
            self._list_end = _end(_ITEMS, text, start)
        return start < self._list_end

    @staticmethod
    def _is_structured(token: bytes) -> bool:
        """Return whether a token is of class 8 or 9."""
        if token.startswith((b"./", b"../")):
            return len(token.lstrip(b".")) > 1
        if len(_SEPARATED.findall(token)) > 1:
            return not is_exception(token)
        name, _, label = token.rstrip(TRAILING_PUNCTUATION).rpartition(b".")
        return label.lower() in LAST_LABELS and _NAME_BYTES.fullmatch(name) is not None

    def _is_closed(self, end: int) -> bool:
        return end == len(self._text) or self._text[end] in _AFTER_VALUE

    def _is_assigned(self, start: int, end: int) -> bool:
        text = self._text
        if start < self._assigned_end:
            return True
        if text[start - 1 : start] == b'"':  # alone in quotes
            start, end = start - 1, end + 1 if text[end : end + 1] == b'"' else -1
        if end < 0 or text[start - 1 : start] != b"=" or self._is_message_key():
            return False
        if text[end : end + 1] == b":":
            end = _end(_VALUE_REST, text, end)
            self._assigned_end = end if self._is_closed(end) else self._assigned_end
        return self._is_closed(end)

    def _is_value(self, end: int, role: int) -> bool:
        text = self._text
        close = self._is_closed(end)
        keyed = bool(self._keyed & 1)
        if role in (_ASSIGNED, _JSON):
            value = close and self._depth > 0
        elif (role in (_OPENED, _ITEM) and keyed) or (role == _SPACED and self._depth > 0):
            behind = _end(_BLANK, text, end)
            follower = text[behind : behind + 1]
            value = follower != b"" and follower in b",)]}"
            if role != _SPACED:
                return value
        else:
            return False
        return value and not self._is_message_key()

    def _is_message_key(self) -> bool:
        start, end = self._last
        return start >= 0 and is_message_key(self._text[max(start, end - MAX_KEY) : end])


def is_message_key(key: bytes) -> bool:
    """Return whether the value of a key says what happened, as of ``msg`` and ``errorCode``."""
    if key.lower() in MESSAGE_KEYS:
        return True
    last = _LAST_PART.search(key)
    return last is not None and last[0].lower() in OUTCOME_KEYS


def names_kind(text: bytes, start: int, end: int) -> bool:
    """Return whether a word names a kind of event, and so is never learned to be a variable.

    It ends like the name of an exception (``SSLError``) or with a part that is one of `STATES`
    (``session_open``, ``NodeNotReady``); it is a method of HTTP or a tag (``[PUB]``); it has a sign
    (``-sdown``); or it is the value of a message key (``type:exists``), or the name of a process
    before its number (``sshd[7]: ``).
    """
    return (
        _names_itself(text, start, end)
        or text[start:end] in METHODS
        or is_said(text, start, end)
        or _SIGNED.match(text, start, end) is not None
        or _PROCESS_NUMBER.match(text, end) is not None
    )


def has_state(word: bytes) -> bool:
    """Return whether the last of a name's parts says what happened or how it is.

    Names with dashes are those of things.

    >>> [has_state(word) for word in (b"NotReady", b"session_open", b"SERVICE_STOP", b"open")]
    [True, True, True, False]
    """
    parts = _LETTERS.findall(word)
    return len(parts) > 1 and parts[-1].lower() in STATES and b"-" not in word


def _says_what_happened(word: bytes) -> bool:
    return is_named_kind(word) or has_state(word)


def _names_itself(text: bytes, start: int, end: int) -> bool:
    """Return whether a word names a kind of event, whatever is around it but ``[``."""
    return _says_what_happened(text[start:end]) or is_tag(text, start, end)


def is_tag(text: bytes, start: int, end: int) -> bool:
    """Return whether a word in capitals is behind ``[``, before ``(`` or ends with a dash.

    The bracket counts behind a colon and a space.

    >>> [is_tag(text, 2, 6) for text in (b" [HPUB 7]", b"  SH-- ", b": PING(7)", b", PING(7)")]
    [True, True, True, False]
    """
    marked = (
        text[start - 1 : start] == b"["
        or text[end - 1] == _DASH
        or (text[max(start - 2, 0) : start] == b": " and text[end : end + 1] == b"(")
    )
    return bool(
        marked and _CAPITAL.search(text, start, end) and not _NO_CAPITAL.search(text, start, end)
    )


def is_said(text: bytes, start: int, end: int) -> bool:
    """Return whether a word is the value of a message key: ``type:exists``, ``state="UP"``.

    It is directly behind the key, alone in quotes or not, or behind ``key = ``. Words of sentences
    are no such values.
    """
    quote = text[start - 1 : start]
    at = start - (quote in _QUOTES)
    if at < start and text[end : end + 1] != quote:
        return False
    if text[max(at - 3, 0) : at] == b" = ":
        end = at - 3
    elif at and text[at - 1 : at] in _SEPARATORS:
        end = at - 1 - (text[at - 2 : at - 1] in _QUOTES)
    else:
        return False
    begin = end
    while begin > 0 and end - begin < MAX_KEY and text[begin - 1] not in _DELIMITERS:
        begin -= 1
    key = text[begin:end]
    return is_message_key(key) and key.lower() not in SENTENCE_KEYS


def _host_of_syslog(text: bytes) -> int:
    """Return where the host begins in the head of a line of syslog; -1 if the line has none.

    The program has the number of its process or a percent sign, or is one of `PROGRAMS`. In ``Nov
    24 16:00:00 client error: gone`` there is no host.
    """
    head = _SYSLOG_HEAD.match(text)
    if head is None or head["host"].lower().decode("latin-1") in LEVELS:
        return -1
    program = head["program"]
    is_one = program[-1:] == b"]" or program[:1] == b"%" or program.lower() in PROGRAMS
    return head.start("host") if is_one else -1


def _names(text: bytes) -> Iterator[Piece]:
    """Yield the names of a line of variables, and what is between them."""
    for match in _RUN_OF_WORD_BYTES.finditer(text):
        start, end = match.span()
        variable = (
            end - start < LEAST_LETTERS
            or _DIGIT.search(match[0]) is not None
            or text[start - 1 : start] == _SUBSTITUTE
        )
        yield Piece(start, end, variable)


def _groups_before(text: bytes, at: int) -> Iterator[bytes]:
    """Yield the hex groups that are joined to a token, the nearest first."""
    while at and text[at - 1 : at] == b":":
        at -= 2 if text[max(at - 2, 0) : at] == b"::" else 1
        start = at
        while start and text[start - 1] in b"0123456789abcdefABCDEF":
            start -= 1
        if not 0 < at - start <= 4 or (start and text[start - 1] not in _DELIMITERS):
            return
        yield text[start:at]
        at = start


def _closes(byte: int) -> bool:
    """Return whether a single quote after a byte of a token begins no string."""
    return byte == 0x5C or _WORD_BYTE.match(bytes([byte])) is not None


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Return where a match that begins here ends; `at` if there is none."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _word_end(text: bytes, start: int) -> int:
    """Return where a token ends that begins here; `start` if a run begins here.

    Backslashes directly before a quote escape it.
    """
    end = _end(_WORD, text, start)
    if end > start and text[end - 1] == _BACKSLASH and text[end : end + 1] in _QUOTES:
        return start + len(text[start:end].rstrip(b"\\"))
    return end


def has_address_behind(text: bytes, end: int) -> bool:
    """Return whether the IP address of a host is in brackets directly behind its name.

    >>> [has_address_behind(text, 1) for text in (b"a[10.0.0.1]", b"a[fe80::1]", b"a[12:00:01]")]
    [True, True, False]
    """
    found = _ADDRESS.match(text, end)
    if found is None or found[1] is None:
        return found is not None
    colons = found[1].count(b":")
    return colons > 1 and (colons == 7 or b"::" in found[1])


def _space_between(match: re.Match[bytes]) -> bytes:
    """Return what stands for escapes: a space, if they part two words or are white space."""
    text, start, end = match.string, match.start(), match.end()
    if not start or end == len(text):
        return b""
    before, behind = text[start - 1], text[end]
    if before in _SPACES or behind in _SPACES:
        return b""
    if before not in _DELIMITERS and behind not in _DELIMITERS:
        return b" "
    return b" " if _WRITTEN_SPACE.search(match[0]) else b""


def _without_repeats(
    text: bytes, tokens: Sequence[Token], variant: Sequence[VariantWord]
) -> Reading:
    """Keep groups that hold a placeholder and repeat in a row once."""
    texts = [token.text for token in tokens if not token.variable]
    if len(set(texts)) == len(texts):  # a group has a word, as no placeholders are neighbours
        return Reading(tokens, variant)
    kept: list[Token] = []
    held: list[list[VariantWord]] = []  # the variant's words in each token
    rest = iter(variant)
    word = next(rest, None)
    alike: list[tuple[bytes, bool, tuple[bytes, ...]]] = []
    gaps: list[bytes] = []  # what is before each token
    end = 0
    for index, token in enumerate(tokens):
        follower = tokens[index + 1].start if index + 1 < len(tokens) else None
        words = []
        while word is not None and (follower is None or word.start < follower):
            words.append(word)
            word = next(rest, None)
        kept.append(token)
        held.append(words)
        gaps.append(text[end : token.start])
        end = token.end
        alike.append((token.text, token.variable, tuple(one.word for one in words)))
        for count in range(LEAST_GROUP, MAX_GROUP + 1):
            if (
                2 * count <= len(alike)
                and alike[-count:] == alike[-2 * count : -count]
                and any(variable for _, variable, _ in alike[-count:])
                and (count > LEAST_GROUP or _BETWEEN_ITEMS.search(gaps[-2]) or b"=" in gaps[-1])
            ):
                del kept[-count:], held[-count:], alike[-count:], gaps[-count:]
                kept[-1] = kept[-1]._replace(until=token.end)
                break
    return Reading(kept, [one for words in held for one in words])

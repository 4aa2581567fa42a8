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
   what went wrong or a state (`tokens.is_named_kind`, `kinds.has_state`);
9. is a name, a dot and one of `LAST_LABELS` (``example.com``, ``report.pdf``); or a name directly
   before an IP address in brackets (``unknown[203.0.113.9]``), unless it names a kind of event; or
   the host in the head of a line of syslog (``Nov 24 16:00:00 atlas sshd[7]: …``), and what
   network equipment writes between it and its mark (``atlas 7: *Nov 24 16:00:00: %SYS-5-X: …``);
10. is a value: inside brackets a single word after ``key=``, after ``"key":``, or after ``key:``, a
    space and before the next comma or bracket; an item of a list behind a key; one of two or more
    single words in square brackets, with commas between them (``[orders, users]``);
11. is in a string that is one value: in single quotes (``b'…'`` too), unless it has three
    words or more and neither key nor ``b`` before it; in double quotes
    after ``"key":``, after ``key=`` inside brackets, or in a list behind a key. A string that is a
    key itself, or comes after a message key (`kinds.is_message_key`), or is the role of a member of
    a cluster (`kinds.is_role`), has words as any text; so has
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
    behind a key nor behind a word: the referrer, the user agent. So is a string in double quotes
    that begins as a user agent (``"curl/7.88"``, ``"Mozilla/5.0 (…"``), anywhere; and one without
    quotes, with a plus for each space, up to white space. What they say is no outcome, as clients
    choose it;
16. is a mark of a half day or the name of a time zone, directly behind a time (``4:00:02 PM UTC``);
17. is in the square brackets of a thread: in a line's head, at its beginning or behind the time, a
    level or ``---``, and before the name of a class (``INFO [mail sender] com.acme.Orders - …``);
    or directly beside a level, behind a time, and before a simple name and a dash or a colon
    (``10:00:02 INFO [main] Orders - …``), unless a word in them names a kind of event. What they
    say is no outcome;
18. is a media type: ``text/html``; or an identifier of letters alone: 14 or more of both cases,
    with five or more changes from a small letter to a capital, two capitals side by side, and runs
    of small letters of less than 2.5 on average (``sPcjGvUEEbbLIeyA``), but no name of an
    exception;
19. is a command that sudo or cron has run: outside brackets, behind ``; COMMAND=`` and up to the
    end of the line, if a slash is first; or in the brackets behind ``) CMD`` or ``) CMDEND`` in a
    line's head that close where the line ends. What it says is no outcome.

An *absent* value is a value: one of `ABSENT` in a place of class 10 is a variable and no outcome,
so ``{"rack": null}`` reads as ``{"rack": "eu"}``. In other places, as in ``error: null``, it says
what happened.

A single word after ``key=`` outside brackets, alone in double quotes or not, stays a word; but
unless the key is a message key it is *assigned*, so that all such values of a line can be learned
at once (`fingerprint.one_off`). So are the words of a value with colons (``image=nginx:latest``).

An empty value (``key=,``, ``""``, ``[]`` behind a key) is a variable too. Runs of three dots or
more and of four dashes or more, tokens of four or more of the same ``*``, ``#``, ``~`` or
``+``, the escape sequences of terminals, the separators of ASCII (file, group, record, unit), and
backslashes directly before a quote separate tokens; so do the control
characters that rsyslog writes with digits (`lines.LineReader.without_escapes`).

Worked example::

    Got Node(id=7, host='db a', rack=eu) for [{"topic": "x", "size": 1}, {"topic": "y", "size": 2}]
    Got Node id <*> host <*>    rack <*>  for    topic   <*>  size   <*>

Time is linear in the text: brackets are counted, not matched, and the end of a string is looked for
once. A string never spans lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

from stream_dedup.features.kinds import (
    MAX_KEY,
    is_message_key,
    is_role,
    names_itself,
    says_what_happened,
)
from stream_dedup.features.tokens import (
    SEPARATORS,
    STRUCTURE_DELIMITERS,
    TIME_ZONES,
    TRAILING_PUNCTUATION,
    UNITS,
    is_exception,
    is_named_kind,
    is_variable,
)
from stream_dedup.features.variants import LEVELS, METHODS
from stream_dedup.native import module_or

MAX_WORDS = 2
"""Maximum words of a string that is one value without a key: more may be a message."""

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

PROGRAMS = frozenset(
    b"kernel sudo su cron crond systemd login logger sshd dhcpd dhclient dnsmasq named ntpd "
    b"chronyd rsyslogd syslogd syslog auditd audispd useradd userdel usermod groupadd passwd "
    b"shutdown reboot snmpd postfix dovecot hostapd smbd nmbd winbindd xinetd inetd atd anacron "
    b"charon keepalived openvpn haproxy dbus-daemon dbus networkmanager modemmanager "
    b"wpa_supplicant avahi-daemon polkitd firewalld smartd mdadm multipathd iscsid slapd nscd "
    b"nslcd sssd unbound pdns squid asterisk clamd freshclam spamd rspamd opendkim exim sendmail "
    b"dockerd containerd kubelet etcd crio pppd pptpd xl2tpd racoon pluto logrotate monit "
    b"puppet-agent snapd iptables ulogd rngd acpid irqbalance udisksd upowerd colord cupsd "
    b"lightdm gdm rpcbind rpc.statd rpc.mountd nfsd mountd automount ntpdate bgpd ospfd zebra "
    b"bird corosync pacemakerd crmd ipsec auditctl".split()
)
"""Programs whose lines of syslog may lack the number of the process, lower case."""

CLOCK_MARKS = TIME_ZONES | frozenset((b"AM", b"PM", b"am", b"pm"))
"""What may be directly behind a time of the day."""

MEDIA = frozenset(b"text image application audio video font multipart message model".split())
"""What is before the slash of a media type."""

ABSENT = frozenset((b"null", b"none", b"nil"))
"""What stands for a value that is not there, lower case."""

OPTIONALS = frozenset((b"Optional", b"OptionalInt", b"OptionalLong", b"OptionalDouble", b"Some"))
"""What is before the brackets of an optional value."""

SPACES = b" \t\n\r\x0b\x0c"
"""White space."""

ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*+[ !$]*+[@-~]|[#%(-+][0-~]|[0-Z\\-~])?")
"""An escape sequence of a terminal."""

WORD_BYTE = re.compile(rb"[A-Za-z0-9_\x80-\xff]")
"""A letter, a digit, an underscore or a byte beyond ASCII."""

_EMPTY = b".empty"
_URL_MARK = b"://"
_ESC = 0x1B
_OPENING, _CLOSING = b"([{", b")]}"
_AFTER_VALUE = frozenset(SPACES + SEPARATORS + b",;)]}>")
_QUOTES = (b"'", b'"')
_BACKSLASH = ord("\\")
_SLASH = ord("/")
_OPEN, _CLOSE = b"[]"
_SKIPPED = re.escape(STRUCTURE_DELIMITERS)
_WORD = re.compile(rb"(?:[^.\-%b]|\.(?!\.\.)|-(?!---))++" % _SKIPPED)
_TOKEN = re.compile(rb"[^%b]++" % _SKIPPED)
_RUN = re.compile(rb"\.++|-++|\\++")
_HEX_GROUP = re.compile(rb"[A-Fa-f]{1,4}+")
_HEX_BEHIND = re.compile(rb"(?:::?[0-9A-Fa-f]{1,4}+(?=[%b]|\Z))*+" % _SKIPPED)
_URL_REST = re.compile(rb"[^%b\x1b\"'<>|)\]}]*+" % SPACES)
_QUERY_REST = re.compile(rb"[^%b\x1b\"'<>|)\]},;]*+" % SPACES)
_URL_ENDS_NOT = b",;:.!?"
_NAME = rb"[A-Za-z0-9_$\x80-\xff-]"
_SEPARATED = re.compile(rb"(?<=%b)[./\\](?=%b)" % (_NAME, _NAME))
_SPACES_HERE = re.compile(rb" *+")
_BLANK = re.compile(rb"[%b]*+" % SPACES)
_DIGIT = re.compile(rb"[0-9]")
_NAME_BYTES = re.compile(_NAME + rb"++")
_ANGLE = re.compile(rb"<([^%b\x1b\"'<>]*+)>" % SPACES)
_BARE = re.compile(rb"[^%b\x1b\"]++" % SPACES)
_ADDRESS = re.compile(rb"\[(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|([0-9A-Fa-f.:]{3,45}))\]")
_NESTED = re.compile(rb"[^%b]++(?:::[^%b]++)*+" % (_SKIPPED, _SKIPPED))
_ITEMS = re.compile(rb"[^%b]++(?:, ?[^%b]++)++(?=\])" % (_SKIPPED, _SKIPPED))
_VALUE_REST = re.compile(rb"(?:[^%b]|:)*+" % _SKIPPED)
_METHOD = re.compile(rb"(?:%b)(?= )" % b"|".join(sorted(METHODS)))
_VERSION = re.compile(rb" HTTP/[0-9](?:\.[0-9])?")
_VERSION_SIZES = (7, 9)
_SYSLOG_HOST = re.compile(  # the time and the host
    rb"(?:<[0-9]{1,3}>)?"
    rb"(?:(?:[0-9]{4} )?[A-Z][a-z]{2} [ 0-9][0-9] (?:[0-9]{4} )?[0-9]{2}:[0-9]{2}:[0-9]{2}"
    rb"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,]{8,24}(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"
    rb" (?P<host>(?!%%)[^%b]{1,64})(?=[ :])" % _SKIPPED
)
_SYSLOG_PROGRAM = re.compile(rb" ([^%b:]{1,64}): " % SPACES)
_SMALL = re.compile(rb"[a-z]")
_NEXT_WORD = re.compile(rb" {0,2}([^%b]{1,64}+)(?= )" % SPACES)
_BEFORE_MARK = re.compile(rb"[*.]?[0-9].*|[*.]?[A-Z][A-Za-z]{1,4}|.*:", re.DOTALL)
_MARK = re.compile(rb" {0,2}%[A-Z](?=[A-Za-z0-9_-]{0,64}-[0-9]-)[A-Za-z0-9_-]{1,64}+: ")
_MARK_WORDS = 10
_CLOCK_BEFORE = re.compile(rb"[0-9]:[0-9]{2}(?:[.,][0-9]{1,9})? (?:[AP]M )?\Z")
_CLOCK_BYTES = 18
_PRODUCT = rb"[A-Za-z][A-Za-z._-]{0,40}/v?[0-9][A-Za-z0-9._-]{0,40}"
_AGENT = re.compile(rb"(?!HTTP/)%b(?:\"| \(| [A-Za-z][A-Za-z._-]{0,40}/v?[0-9])" % _PRODUCT)
_JOINED_AGENT = re.compile(rb"%b\+\([^%b\x1b\"]*" % (_PRODUCT, SPACES))
_MEDIA_TYPE = re.compile(rb"[a-z]++/[a-z][a-z.+-]*+")
_LEAST_SCRAMBLED, _LEAST_CHANGES = 14, 5
_SMALL_RUN = re.compile(rb"[a-z]++")
_CHANGE = re.compile(rb"[a-z][A-Z]")
_CAPITALS = re.compile(rb"[A-Z]{2}")
_RULER = re.compile(rb"([*#~+])\1{3,}")
_HEAD_BYTES = 128
_THREAD_BYTES, _THREAD_DEPTH = 128, 4
_BEFORE_THREAD = re.compile(rb"(?:[0-9Z\]]|---|(?<![A-Za-z])[A-Z]{4,8}|\A)\Z")
_BEHIND_THREAD = re.compile(  # a level, the name of a class
    rb"(?:[A-Z]{4,8} +)?(?:- +)?"
    rb"\.?(?:[a-z][a-z0-9_]{0,40}\.){1,16}[A-Z][A-Za-z0-9_$]{0,80}[ :\]\[(]"
)
_LEVEL_BEFORE = re.compile(rb"(?<![A-Za-z])[A-Z]{3,8}\Z")
_LEVEL_BEHIND = re.compile(rb"([A-Z]{3,8}) +")
_CLOCK = re.compile(rb"[0-9]:[0-9]{2}")
_SIMPLE_NAME = re.compile(rb"(?=[A-Z][A-Z0-9_$]{0,80}[a-z])[A-Z][A-Za-z0-9_$]{0,80}+ +[:-] ")
_SENTENCE_BEHIND = re.compile(rb'": (?!(?:true|false|null)(?![A-Za-z]))[A-Za-z]')
_STATUS_BEHIND = re.compile(rb'" [1-5][0-9]{2}(?![^%b])' % SPACES)
_SUDO, _CRON = b"; COMMAND", (b") CMD ", b") CMDEND ")
_SPACE_BYTES = tuple(SPACES[i : i + 1] for i in range(len(SPACES)))

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
        nested: whether it is in brackets, and not in a message in quotes. A round bracket that is
            never closed is none.
        absent: whether it stands for a value that is not there, or for what a client has chosen;
            what it says is no outcome.
    """

    start: int
    end: int
    variable: bool
    assigned: bool = False
    nested: bool = False
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


def pieces(text: bytes) -> Sequence[Piece]:
    """Return the tokens of a text, and its empty values, in order."""
    return _Scanner(text).pieces()


def fastest() -> ModuleType:
    """Return the native module if it is in use, or this one."""
    return module_or("features._pieces", sys.modules[__name__])


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._pieces: list[Piece] = []
        self._role = _OTHER
        self._depth = 0
        self._outermost = 0  # where the last bracket is that is in no other one
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
        self._message_end = 0  # of the last string behind a message key
        self._host, self._host_end = _host_of_syslog(text)

    def pieces(self) -> list[Piece]:
        text, at = self._text, 0
        while at < len(text):
            at = self._gap(at) if text[at] in STRUCTURE_DELIMITERS else self._token(at)
        if self._depth and text[self._outermost : self._outermost + 1] == b"(":
            return [
                each._replace(nested=each.nested and each.start < self._outermost)
                for each in self._pieces
            ]
        return self._pieces

    # ---------------------------------------------------------------- between tokens

    def _gap(self, at: int) -> int:
        """Take one delimiter; return where to go on."""
        text, role = self._text, self._role
        byte = text[at : at + 1]
        if byte == b"\x1b":
            return _end(ESCAPE, text, at)
        if byte in SPACES:
            if role == _COLON:
                self._role = _SPACED
            return at + 1
        blank, self._blank = self._blank, False
        self._role = _OTHER
        if byte == b"=":
            self._role = _ASSIGNED
            if not self._depth and (end := _end_of_sudo(text, at)):
                self._role = _OTHER
                return self._take_chosen(at + 1, end)
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
            if not self._depth:
                self._outermost = at
            self._open(role)
            end = 0
            if byte == b"[":
                end = self._end_of_thread(at)
            elif byte == b"(" and self._depth == 1:
                end = _end_of_cron(text, at)
            if end:
                self._role = _OTHER
                return self._take_chosen(at + 1, end)
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
        """Take a user agent, or a string that an access log makes a value; return where to go."""
        text = self._text
        is_keyed = role in _KEYED or behind_word
        if _AGENT.match(text, at + 1) and not (is_keyed and self._is_message_key()):
            found = self._close(at + 1, b'"')
            if found.there:
                self._pieces.append(Piece(at + 1, found.at, True, absent=True))
                self._end = -1
                return found.at + 1
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
        if is_role(self._text, at + 1, found.at):
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
            if self._is_message_key():
                words, self._message_end = True, close
            words = words or is_role(text, at + 1, close)
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
                at = _end(ESCAPE, text, at)
            elif text[at] in STRUCTURE_DELIMITERS:
                at += 1
            else:
                end = _word_end(text, at)
                if end > at:
                    self._pieces.append(Piece(at, end, True))
                at = end if end > at else _end(_RUN, text, at)
        if text[close - 1] in STRUCTURE_DELIMITERS:  # is part of the value
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
            if text[i] == quote[0] and (quote == b'"' or not WORD_BYTE.match(text, i + 1)):
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
        if role not in _KEYED and _RULER.fullmatch(token):
            self._blank = False
            self._role = _OTHER
            return end
        if token in (b"b", b"u") and text[end : end + 1] == b"'" and end > self._plain:
            after = self._string(end, b"'", role)
            if after >= 0:
                return after
        if text.startswith(_URL_MARK, end):
            return self._address(start, _end(_URL_REST, text, end))
        if token[0] == _SLASH and b"?" in token[:-1]:
            return self._address(start, _end(_QUERY_REST, text, end))
        if token[-1:] == b"+" and (agent := _JOINED_AGENT.match(text, start)):
            self._address(start, agent.end())
            self._pieces[-1] = self._pieces[-1]._replace(absent=True)
            return self._end
        joined, listed = self._is_nested_name(start, end), self._is_listed(start)
        variable = (
            joined
            or self._host <= start < self._host_end
            or (token in CLOCK_MARKS and self._is_behind_clock(start))
            or (token == b"/" and self._is_behind_method())
            or ((listed or has_address_behind(text, end)) and not names_itself(text, start, end))
            or self._is_hex_group(start, end)
            or is_variable(token)
            or self._is_structured(token)
        )
        if not variable and role != _OTHER:
            variable = self._is_value(start, end, role)
        assigned = not self._depth and self._is_assigned(start, end)
        if not variable and self._blank and self._pieces[-1].variable:
            variable = self._is_number() and token.rstrip(b".") in UNITS
        if self._is_optional(token, end) and not (role in _KEYED and self._is_message_key()):
            self._optional = end
            variable = True
        variable = variable or self._inside >= 0
        absent = variable and token.lower() in ABSENT
        nested = not variable and self._depth > 0 and start >= self._message_end
        self._pieces.append(Piece(start, end, variable, assigned and not variable, nested, absent))
        self._last = start, end
        self._end = end
        self._blank = True
        self._role = _OTHER
        if end == self._target[0]:
            return self._take_target(end, self._target[1])
        return end

    def _is_behind_clock(self, start: int) -> bool:
        """Return whether a time of the day is directly before a token."""
        return _CLOCK_BEFORE.search(self._text[max(start - _CLOCK_BYTES, 0) : start]) is not None

    def _end_of_thread(self, at: int) -> int:
        """Return where the brackets of a thread close that open here; 0 if these are others."""
        text = self._text
        if at > _HEAD_BYTES:
            return 0
        end = _end_of_brackets(text, at)
        if end < at + 2 or not (self._is_before_class(at, end) or self._is_before_name(at, end)):
            return 0
        words = _TOKEN.finditer(text, at + 1, end)
        return 0 if any(names_itself(text, *word.span()) for word in words) else end

    def _is_before_class(self, at: int, end: int) -> bool:
        """Return whether what is around brackets makes them those of a thread before a class."""
        text = self._text
        if not _BEFORE_THREAD.search(text[:at].rstrip(b" ")):
            return False
        behind = _behind_spaces(text, end + 1)
        for _ in range(2):  # the threads of other systems
            if behind and text[behind : behind + 1] == b"[":
                closed = _end_of_brackets(text, behind)
                behind = _behind_spaces(text, closed + 1) if closed else 0
        return behind > 0 and _BEHIND_THREAD.match(text, behind) is not None

    def _is_before_name(self, at: int, end: int) -> bool:
        """Return whether brackets are beside a level, behind a time and before a simple name."""
        text = self._text
        behind = _behind_spaces(text, end + 1)
        if not behind:
            return False
        before = text[:at].rstrip(b" ")
        level = _LEVEL_BEFORE.search(before)
        if level is not None and _is_level(level[0]):
            before = before[: level.start()]
        else:
            level = _LEVEL_BEHIND.match(text, behind)
            if level is None or not _is_level(level[1]) or text[at - 1 : at] not in (b" ", b"]"):
                return False
            behind = level.end()
        return _SIMPLE_NAME.match(text, behind) is not None and _CLOCK.search(before) is not None

    def _is_behind_method(self) -> bool:
        """Return whether nothing but white space is between a method of a request and here."""
        start, end = self._last
        return self._blank and self._text[start:end] in METHODS

    def _take_target(self, at: int, end: int) -> int:
        """Take what is between the method of a request and its version."""
        return self._take_chosen(at + 1, end) if end > at + 1 else end

    def _take_chosen(self, start: int, end: int) -> int:
        """Take a text that is one variable and no outcome; return where it ends."""
        self._pieces.append(Piece(start, end, True, absent=True))
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
            self._is_nested = len(names) > 2 and not any(map(says_what_happened, names))
        return self._is_nested

    def _is_listed(self, start: int) -> bool:
        """Return whether a token is one of two or more items of a list in square brackets."""
        text = self._text
        if start >= self._list_end and text[start - 1 : start] == b"[":
            self._list_end = _end(_ITEMS, text, start)
        return start < self._list_end

    @staticmethod
    def _is_structured(token: bytes) -> bool:
        """Return whether a token is of class 8, 9 or 18."""
        if token.startswith((b"./", b"../")):
            return len(token.lstrip(b".")) > 1
        if len(_SEPARATED.findall(token)) > 1:
            return not is_exception(token)
        if _is_scrambled(token):
            return True
        if token.partition(b"/")[0] in MEDIA and _MEDIA_TYPE.fullmatch(token):
            return True
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

    def _is_value(self, start: int, end: int, role: int) -> bool:
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
        return value and not self._is_message_key() and not is_role(text, start, end)

    def _is_message_key(self) -> bool:
        start, end = self._last
        return start >= 0 and is_message_key(self._text[max(start, end - MAX_KEY) : end])


def _host_of_syslog(text: bytes) -> tuple[int, int]:
    """Return where the host begins in the head of a line of syslog, and where such variables end.

    Both are 0 if the line has none. The program has the number of its process or a percent sign, or
    is one of `PROGRAMS`; or else there is a mark as network equipment writes it. In ``Nov 24
    16:00:00 client error: gone`` there is no host.
    """
    head = _SYSLOG_HOST.match(text)
    if head is None or _is_level(head["host"]):
        return 0, 0
    start, end = head.span("host")
    program = _SYSLOG_PROGRAM.match(text, end)
    if program is not None and _SMALL.search(text, start, end):
        name = program[1]
        if name[-1:] == b"]" or name[:1] == b"%" or name.lower() in PROGRAMS:
            return start, end
    mark = _mark_behind(text, end)
    return (start, mark) if mark else (0, 0)


def _mark_behind(text: bytes, at: int) -> int:
    """Return where the mark of network equipment is behind a host (``%SYS-5-CONFIG_I: ``), else 0.

    Between them are counters, times, the host once more, and colons.
    """
    at += text[at : at + 1] == b":"
    for _ in range(_MARK_WORDS):
        if _MARK.match(text, at):
            return at
        word = _NEXT_WORD.match(text, at)
        if word is None or not _BEFORE_MARK.fullmatch(word[1]):
            return 0
        at = word.end()
    return 0


def _is_level(word: bytes) -> bool:
    return word.lower().decode("latin-1") in LEVELS


def begins_command(text: bytes, at: int) -> bool:
    """Return whether a command that sudo or cron has run begins at a place."""
    return at > 0 and (_end_of_sudo(text, at - 1) or _end_of_cron(text, at - 1)) > 0


def _end_of_sudo(text: bytes, at: int) -> int:
    """Return where the command ends that sudo has run and that is behind a "="; 0 if none is."""
    is_sudo = text.startswith(b"=/", at) and text.endswith(_SUDO, 0, at)
    return _end_of_line(text, at) if is_sudo else 0


def _end_of_cron(text: bytes, at: int) -> int:
    """Return where the brackets close of a command that cron has run; 0 if these are others."""
    if at > _HEAD_BYTES or not (text.startswith(b"(", at) and text.endswith(_CRON, 0, at)):
        return 0
    end = _end_of_line(text, at) - 1
    return end if end > at + 1 and text[end : end + 1] == b")" else 0


def _end_of_line(text: bytes, at: int) -> int:
    """Return where the line ends that a place is in, without white space at its end."""
    end = text.find(b"\n", at)
    return at + len(text[at : end if end >= 0 else len(text)].rstrip(SPACES))


def _end_of_brackets(text: bytes, at: int) -> int:
    """Return where the square brackets close that open here, if they may be a thread's; else 0."""
    depth = 0
    for i in range(at, min(len(text), at + _THREAD_BYTES + 2)):
        if text[i] == _OPEN:
            depth += 1
            if depth > _THREAD_DEPTH:
                return 0
        elif text[i] == _CLOSE:
            depth -= 1
            if depth == 0:
                return i
        elif text[i] in b"\x1b\n":
            return 0
    return 0


def _behind_spaces(text: bytes, at: int) -> int:
    """Return what is behind one or more spaces; 0 if none is here, or nothing behind them."""
    end = _end(_SPACES_HERE, text, at)
    return end if at < end < len(text) else 0


def _groups_before(text: bytes, at: int) -> Iterator[bytes]:
    """Yield the hex groups that are joined to a token, the nearest first."""
    while at and text[at - 1 : at] == b":":
        at -= 2 if text[max(at - 2, 0) : at] == b"::" else 1
        start = at
        while start and text[start - 1] in b"0123456789abcdefABCDEF":
            start -= 1
        if not 0 < at - start <= 4 or (start and text[start - 1] not in STRUCTURE_DELIMITERS):
            return
        yield text[start:at]
        at = start


def _is_scrambled(token: bytes) -> bool:
    """Return whether a token is an identifier of letters alone.

    >>> [_is_scrambled(token) for token in (b"sPcjGvUEEbbLIeyA", b"getXMLHTTPRequestIOError")]
    [True, False]
    """
    letters = token.rstrip(TRAILING_PUNCTUATION)
    if len(letters) < _LEAST_SCRAMBLED or not letters.isalpha():
        return False
    runs = _SMALL_RUN.findall(letters)
    return (
        len(_CHANGE.findall(letters)) >= _LEAST_CHANGES
        and 2 * sum(map(len, runs)) < 5 * len(runs)
        and _CAPITALS.search(letters) is not None
        and not is_named_kind(letters)
    )


def _closes(byte: int) -> bool:
    """Return whether a single quote after a byte of a token begins no string."""
    return byte == 0x5C or WORD_BYTE.match(bytes([byte])) is not None


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

"""Stack traces: the lines that make one, and what two traces of the same error have in common.

Problem: one error leaves a trace of thirty lines. Compared as a text, a trace is mostly frames of
servers, pools and schedulers: two errors of one server look alike, and one error reached on two
ways does not.

Idea: a trace is its *header* and two *frames*. The header is what the trace says in words: the line
of the log before it, and the exceptions with their messages, causes included. It is compared as any
line is. The frames say where the error came from: the innermost one, and the innermost one of the
program itself, without what belongs to its language or is installed beside it. They and the names
of the exceptions belong to the event's variant (`variants`), so another place is another cluster.

Deviation: error trackers compare all frames of the program, or let people write rules. The
innermost alone (as Bugsnag does) gives one cluster for each place, whoever called it.

Worked example, of Java, where the last exception printed is the cause, and its innermost frame
comes first::

    ERROR request 17 failed                              header
    shop.OrderFailed: order 17                           header
        at shop.Orders.place(Orders.java:5)
    Caused by: java.lang.NumberFormatException: "x17"    header
        at java.base/java.lang.Integer.parseInt(…)       the innermost frame
        at shop.Cards.charge(Cards.java:4)               the innermost one of the program
        ... 3 more

Behind the frames Node prints the properties of an error; those that say what happened, such as
``code: 'ECONNREFUSED'``, are header.

Python prints the cause first and the innermost frame last; .NET and Go print both first. In Go,
what comes before ``panic(`` is the function that recovered.

Lines, addresses, arguments and generated names do not count: they differ between builds.

Everything is found by prefixes of lines: texts are hostile, so no pattern is matched that could
backtrack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from stream_dedup.features.kinds import is_message_key

TRACEBACKS = (b"Traceback (most recent call last)", b"Stack (most recent call last)")
"""Begin the traces of Python."""

GROUP_TRACEBACK = b"+ Exception Group Traceback (most recent call last)"
"""Begins that of a group of exceptions; after white space."""

CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
"""Between two traces of Python that belong together."""

CAUSES = (b"Caused by: ", b"Wrapped by: ", b"Suppressed: ")
"""Begin a further exception of a trace of Java; the last one also after white space."""

GOROUTINE = b"goroutine "
"""Begins the trace of a goroutine."""

PANICS = (b"panic: ", b"fatal error: ")
"""Begin what Go says before its traces."""

_CAUSE_OF_NODE = b"[cause]: "
_ENDS_OF_PANICS = (b"[signal ", b"exit status ")
_BEGIN_FRAMES = (
    *TRACEBACKS,
    b"Exception Group Traceback ",
    GOROUTINE,
    b"--- End of inner exception",
)
_SKIPPED = (
    b"... ",
    b"--- End of ",
    b"[Previous line repeated ",
    b"Node.js v",
    b"+-",
    *_ENDS_OF_PANICS,
    *CHAINED,
)

_MARKS = b"^~ {}[](),;\r"
"""Make up lines that mark a place in the source, or that end a block."""

_SAID_BEFORE = (
    *CAUSES,
    _CAUSE_OF_NODE,
    b"---> ",
    b"Unhandled exception. ",
    b"Unhandled Exception: ",
    b"Uncaught ",
)
"""Stand before the name of an exception."""

_OF_NAMES = b"._$"
_EXCEPTIONS = (b"Exception", b"Error", b"Throwable", b"Warning", b"Interrupt")

_RUNTIME_PACKAGES = (b"java.", b"javax.", b"jdk.", b"sun.", b"com.sun.", b"kotlin.", b"scala.")
_RUNTIME_NAMESPACES = (b"System.", b"Microsoft.")
_INSTALLED = (b"/site-packages/", b"/dist-packages/", b"/lib/python", b"\\lib\\", b"<frozen ")
_GENERATED = (b"$$Lambda", b"$Proxy", b"MethodAccessor", b"CGLIB$$", b"ByteBuddy$")
_GO_STANDARD = frozenset(
    b"""
    archive bufio bytes cmp compress container context crypto database debug embed encoding errors
    expvar flag fmt go hash html image index internal io iter log maps math mime net os panic path
    plugin reflect regexp runtime slices sort strconv strings sync syscall testing text time unicode
    unique unsafe
    """.split()
)
"""The first elements of the packages of Go's standard library."""


MAX_LINES = 4_000
"""Lines of a text that are read, half of them from its end."""

MAX_PREFIX_BYTES = 256
"""Bytes of a prefix of all lines."""

WRITTEN_LINE_END = b"#012"
"""A line end, as rsyslog writes it."""

_WRITTEN_TAB = b"#011"
_LINE_FEED, _NUMBER_SIGN = b"\n#"  # as numbers: to look for bytes takes ten times as long
_IN_FRAMES = (b"at ", b'File "', b".go:")


class Frame(NamedTuple):
    """A frame of a trace.

    Attributes:
        name: what it calls, and where that is, as far as it is the same in every build.
        own: whether it belongs to the program itself.
    """

    name: bytes
    own: bool


class Trace(NamedTuple):
    """What a trace is compared by.

    Attributes:
        header: its lines that are not frames; exceptions without their packages, as a dotted name
            is a variable.
        exceptions: the names of its exceptions.
        frames: the names of the innermost frame, and of the innermost one of the program if that is
            another.
    """

    header: bytes
    exceptions: tuple[bytes, ...]
    frames: tuple[bytes, ...]

    @property
    def variant(self) -> tuple[bytes, ...]:
        """What two traces of a cluster never differ in."""
        return self.exceptions + self.frames


def trace_of(text: bytes) -> Trace | None:
    """Return what a text of several lines is compared by, if it is a trace; or None."""
    if not any(mark in text for mark in _IN_FRAMES):
        return None
    lines = lines_of(text)
    if len(lines) == 1:
        return None
    if len(lines) > MAX_LINES:
        lines = lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]
    if lines[0][:1] in (lines[-1][:1], lines[1][:1]):  # perhaps a pod or container
        cut = _shared(min(lines), max(lines))
        lines = [lines[0], *(line[cut:] for line in lines[1:])]
    reader = _Reader()
    for line in filter(None, lines):
        reader.read(line)
    return reader.trace()


def has_lines(text: bytes) -> bool:
    """Return whether a text may have several lines."""
    return _LINE_FEED in text or (_NUMBER_SIGN in text and WRITTEN_LINE_END in text)


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of a text; of one line, those that it had before rsyslog.

    rsyslog writes control characters as ``#`` and three octal digits (see
    `lines.LineReader.without_escapes`), so a trace arrives as one line.
    """
    if b"\n" not in text and WRITTEN_LINE_END in text:
        text = text.replace(WRITTEN_LINE_END, b"\n").replace(_WRITTEN_TAB, b"\t")
    return text.split(b"\n")


class _Reader:
    """Reads a trace line by line."""

    def __init__(self) -> None:
        self._header: list[bytes] = []
        self._sections: list[list[bytes]] = [[]]  # the frames of each exception, as printed
        self._frame: Callable[[bytes], Frame | None] = _frame_at
        self._causes_last = False
        self._suppressed = 0  # how far a suppressed exception is indented
        self._source = False  # the next line is of a source file
        self._properties = -1  # how far an error's properties are indented; 0: not known yet

    def read(self, line: bytes) -> None:
        """Read the next line."""
        words = line.lstrip()
        if words[:2] in (b"| ", b"+ "):  # within a group of exceptions of Python
            line = words[2:]
            words = line.lstrip()
        depth = len(line) - len(words)
        if not depth:
            self._properties = -1
        if not words or (self._suppressed and depth >= self._suppressed):
            return
        source, self._source = self._source, False
        self._suppressed = 0
        frames = self._sections[-1]
        if depth and is_frame(words):
            frames.append(words)
            self._properties = 0 if words.endswith(b" {") else -1
            if words[:1] == b"F":
                self._frame, self._source = _frame_of_python, True
        elif line[:1] == b"\t" and b".go:" in words and self._header:
            self._go_frame(words)
        elif words.startswith(_BEGIN_FRAMES):
            self._sections.append([])
        elif words.startswith(b"Suppressed: "):
            self._suppressed = max(depth, 1)
        elif words.startswith((*CAUSES, _CAUSE_OF_NODE)):
            self._causes_last = True
            self._sections.append([])
            self._header.append(words)
        elif depth and self._properties >= 0:
            self._property(words, depth)
        elif not (
            (depth and (source or frames)) or words.startswith(_SKIPPED) or not words.strip(_MARKS)
        ):
            self._header.append(words)

    def _property(self, words: bytes, depth: int) -> None:
        """Read a line of an error's properties; those that say what happened are compared."""
        self._properties = self._properties or depth
        if depth == self._properties and is_message_key(words.partition(b":")[0]):
            self._header.append(words)

    def _go_frame(self, place: bytes) -> None:
        if len(self._header) == 1 == len(self._sections) or self._header[-1].startswith(PANICS):
            self._header.append(place)  # of an error of several lines
            return
        call = self._header.pop()
        self._frame = _frame_of_go
        if call.startswith(b"panic("):
            self._sections[-1].clear()  # so far it was what recovered
        elif not call.startswith(b"created by "):
            self._sections[-1].append(call)

    def trace(self) -> Trace | None:
        """Return what was read, if it was a trace."""
        sections: Iterable[list[bytes]] = self._sections
        if self._frame is _frame_of_python:
            sections = (section[::-1] for section in sections)
        elif self._causes_last:
            sections = reversed(self._sections)
        frames = filter(None, map(self._frame, chain.from_iterable(sections)))
        innermost = next(frames, None)
        if innermost is None:
            return None
        own = innermost if innermost.own else next((each for each in frames if each.own), innermost)
        names = (own.name,) if own.name == innermost.name else (innermost.name, own.name)
        exceptions: dict[bytes, None] = {}  # in order
        header = b"\n".join([_shortened(line, exceptions) for line in self._header])
        return Trace(header, tuple(exceptions), names)


def is_frame(words: bytes) -> bool:
    """Return whether an indented line may be a frame, given without its indent."""
    if words.startswith(b"at "):
        return b"(" in words or b":" in words
    return words.startswith(b'File "') and b'", line ' in words


def _shortened(line: bytes, exceptions: dict[bytes, None]) -> bytes:
    """Return a line of a header, its exception without its package; add that to `exceptions`."""
    begin = 0
    if line.startswith(_SAID_BEFORE):
        begin = next(len(mark) for mark in _SAID_BEFORE if line.startswith(mark))
    elif line.startswith(b'Exception in thread "'):
        begin = line.find(b'" ') + 2
    before, after = line[:begin], line[begin:]
    name, colon, message = after.partition(b":")
    name = name.rstrip()
    if not name.translate(None, _OF_NAMES).isalnum():
        return line
    if not (b"." in name or b"$" in name or name.endswith(_EXCEPTIONS)):
        return line
    exceptions[name] = None
    return before + name[max(name.rfind(b"."), name.rfind(b"$")) + 1 :] + colon + message


def _shared(least: bytes, greatest: bytes) -> int:
    """Return the length of the words that all lines begin with, given the least and greatest."""
    pairs = zip(least[:MAX_PREFIX_BYTES], greatest, strict=False)
    count = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
    return 0 if least[:1].isspace() else least.rfind(b" ", 0, count) + 1


def _frame_at(words: bytes) -> Frame | None:
    """Return a frame as Java, .NET and Node print it; None for other words."""
    call = words.removeprefix(b"at ").removeprefix(b"async ")
    name, bracket, place = call.partition(b"(")
    if bracket and not name.endswith(b" "):  # Java or .NET
        if not name or b" " in name:
            return None
        for mark in _GENERATED:
            before, found, _ = name.partition(mark)
            name = before + found
        name = name.rpartition(b"/")[2]  # without its module
        return Frame(name, not name.startswith((*_RUNTIME_PACKAGES, *_RUNTIME_NAMESPACES)))
    if not bracket:
        name, place = b"", call
    place = place.rstrip(b" {\r").removesuffix(b")")
    if not bracket and place.count(b":") < 2:
        return None
    place = place.rpartition(b":")[0].rpartition(b":")[0]
    own = bool(place) and not place.startswith(b"node:") and b"node_modules" not in place
    return Frame((b"%b (%b)" % (name.rstrip(), _file(place))).lstrip(), own)


def _frame_of_python(words: bytes) -> Frame:
    path, _, rest = words.removeprefix(b'File "').partition(b'", line ')
    name = rest.partition(b", in ")[2].strip()
    own = not any(mark in path for mark in _INSTALLED)
    return Frame((b"%b (%b)" % (name, _file(path))).lstrip(), own)


def _frame_of_go(call: bytes) -> Frame:
    call = call.rstrip()
    name = call[: call.rfind(b"(")] if call.endswith(b")") else call
    first = name.partition(b"/")[0].partition(b".")[0].partition(b"(")[0]
    return Frame(name, first not in _GO_STANDARD)


def _file(path: bytes) -> bytes:
    """Return a file's name with its folder: releases have folders of their own."""
    return b"/".join(path.replace(b"\\", b"/").split(b"/")[-2:])

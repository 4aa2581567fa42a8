"""Joining the lines of an input to events: stack traces, and lines that continue another.

Theory of operation. A line that begins with white space is *indented*. Every trace has indented
lines, so only they are looked at, and what is around them:

1. `_Lines.begin` looks back, from the first indented line, for where its event begins: the line
   before it, or up to six, as in ``panic: …``, an empty line, ``goroutine 1 [running]:``, a call.
2. `_Lines.end` looks ahead, over all indented lines, and over the lines between them that belong
   to the event, as ``Caused by: …``, the last line of a traceback, or an empty line in a chain.

Both know the traces of Java, Python, Go, .NET and Node (`features.traces`). Any other indented line
continues the line before it, unless that line or its file says otherwise:

- the line before is empty, or was indented and continued nothing: then whole blocks are indented;
- it is as in YAML (``key:``), a diff, a list, or an opening bracket alone;
- the indented line begins with a time, a log level or a number, or has as many tabs as the one
  before: it is a record or a row, aligned to the right;
- more than `MAX_INDENTED` lines would continue one: then no such lines are joined any more.

A line before a trace belongs to it, unless its level is below a warning: then it was only written
before the trace. Between a line of an error and an exception may be an empty line; then one behind
the trace belongs to it, too (Spring Boot).

The end of what was read may continue, so the last line and an event without its end are held back
until more is read, the input ends, or it pauses. How an input is cut into reads changes nothing.

Lines are given out as they are, each once: joined by line ends, the events are the input.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Protocol

import re2

from stream_dedup.columnar import rows_beginning
from stream_dedup.features.masks import compile_pattern
from stream_dedup.features.traces import (
    CAUSES,
    CHAINED,
    GOROUTINE,
    GROUP_TRACEBACK,
    PANICS,
    TRACEBACKS,
    is_frame,
)

MAX_EVENT_LINES = 2_000
"""Maximum lines of one event; Java prints up to 1,024 frames. What follows is another event."""

MAX_EVENT_BYTES = 1 << 20
"""Maximum bytes of one event of several lines; a longer line is an event by itself."""

MAX_INDENTED = 500
"""Maximum lines that continue another without being a trace: more are not a continuation."""

MAX_SOURCES = 1_000
"""Maximum pods or containers whose lines are joined separately at a time."""

MAX_APART_LINES = 1_000
"""An event ends with the next read after so many lines of other pods or containers, which wait for
it."""

_INDENT = frozenset((b" ", b"\t"))

_NO_HEADS = frozenset((b"+", b"-", b"@", b"\\", b"#", b">", b"|"))
"""First bytes of lines that no indented line continues: of diffs, lists and comments."""

_LOW = compile_pattern(r"\b(?i:info|debug|trace|notice|verbose|fine|finer|finest)\b")
_HIGH = compile_pattern(
    r"(?i:err|warn|exception|fatal|critical|severe|panic|fail|uncaught|unhandled|alert|emerg|abort)"
)
_RECORD = compile_pattern(  # an indented line that is a record by itself, or a row
    r"^\s+(?:[\[(<]*(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE)\b"
    r"|[\[(<]*\d{4}[-/.]\d\d[-/.]\d\d|[\[(<]*\d\d:\d\d:\d\d)"
)
_ROW = compile_pattern(r"^\s+[+-]?\d+(?:[^:\d]|:\S|$)")  # not as in "  3: std::rt::main"
_KEY = compile_pattern(  # of YAML
    r"""^(?:[\w.$/-]+|"[^"]*"|'[^']*'):(?:\s+(?:[|>][+-]?\d*|[&!]\S+))?\s*(?:#.*)?$"""
)
_EXCEPTION = compile_pattern(r"^[A-Za-z_$][\w$]*(?:\.[\w$]+)*(?::.*)?\s*$")
_EXCEPTION_CLASS = compile_pattern(
    r"^[A-Za-z_$](?:[\w$.]*[.$][\w$]+|[\w$]*(?:Exception|Error|Throwable))(?:: .*)?\s*$"
)
_CALL = compile_pattern(r"^[\w./*()\[\]$~-]+\(.*\)\s*$|^[\w/~-]+\.[\w.*()\[\]/-]+$|^created by ")
_PLACE = compile_pattern(r"^\S+:\d+\s*$")

HEAD_BYTES = 512
"""Bytes of a line that are searched for its level."""

MAX_HEAD_BYTES = 16 << 10
"""Bytes of a line that may say that the next one belongs to it."""


class Joiner(Protocol):
    """Joins the lines of one input, in order."""

    @property
    def held(self) -> int:
        """The number of the first line that is held back; 0 if none is."""

    def join(
        self, lines: list[bytes], numbers: Sequence[int], *, flush: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        """Take the next lines and return the events that have ended.

        Args:
            lines: the lines, without line ends.
            numbers: their numbers.
            flush: whether the last event ends here; otherwise it may be held back.

        Returns:
            The events' lines, joined by line ends, and the number of each one's first line, in
            ascending order.
        """


# ---------------------------------------------------------------- by a pattern of first lines


class StartJoiner:
    """Joins each line to the one before, unless it is a first line.

    Args:
        starts: returns whether a line is the first of an event.
    """

    def __init__(self, starts: Callable[[bytes], object]) -> None:
        self._starts = starts
        self._lines: list[bytes] = []
        self._number = 0
        self._size = 0

    @property
    def held(self) -> int:
        """See `Joiner.held`."""
        return self._number if self._lines else 0

    def join(
        self, lines: list[bytes], numbers: Sequence[int], *, flush: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        """See `Joiner.join`."""
        events: list[bytes] = []
        firsts: list[int] = []
        for line, number in zip(lines, numbers, strict=True):
            full = len(self._lines) >= MAX_EVENT_LINES or self._size > MAX_EVENT_BYTES
            if self._lines and (full or self._starts(line)):
                self._give_out(events, firsts)
            if not self._lines:
                self._number = number
            self._lines.append(line)
            self._size += len(line) + 1
        if flush and self._lines:
            self._give_out(events, firsts)
        return events, firsts

    def _give_out(self, events: list[bytes], firsts: list[int]) -> None:
        events.append(b"\n".join(self._lines))
        firsts.append(self._number)
        self._lines, self._size = [], 0


# ---------------------------------------------------------------- by what the lines look like


class TraceJoiner:
    """Joins the lines of stack traces, and lines that continue another."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._numbers: Sequence[int] = ()
        self._indents = True  # whether any indented line may continue the one before

    @property
    def held(self) -> int:
        """See `Joiner.held`."""
        return self._numbers[0] if self._lines else 0

    def apart(self, last: int) -> int:
        """Return how many lines up to the number `last` are not among those that are held back."""
        return last - self.held - len(self._lines) if self._lines else 0

    def join(
        self, lines: list[bytes], numbers: Sequence[int], *, flush: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        """See `Joiner.join`."""
        if not (lines or flush):
            return [], ()
        if self._lines:
            lines = self._lines + lines
            numbers = _following(self._numbers, numbers)
        found = _Lines(lines, self._indents, flush=flush)
        spans, end = found.spans()
        self._indents = found.indents
        self._lines, self._numbers = lines[end:], numbers[end:]
        if not spans:
            return lines[:end], numbers[:end]
        events: list[bytes] = []
        firsts: list[int] = []
        at = 0
        for start, stop in spans:
            events += lines[at:start]
            firsts += numbers[at : start + 1]
            events.append(b"\n".join(lines[start:stop]))
            at = stop
        events += lines[at:end]
        firsts += numbers[at:end]
        return events, firsts


class PrefixJoiner:
    """Joins lines that begin with the name of a pod or container: each source's for themselves.

    Args:
        prefix: the pattern of such a beginning.
        before: joined the lines before this was known.
    """

    def __init__(self, prefix: re2._Regexp, before: TraceJoiner) -> None:
        self._prefix = prefix
        self._sources: dict[bytes, _Source] = {}
        events, numbers = before.join([], (), flush=True)
        self._waiting = list(zip(numbers, events, strict=True))

    @property
    def held(self) -> int:
        """See `Joiner.held`."""
        return min(
            filter(None, (source.joiner.held for source in self._sources.values())), default=0
        )

    def join(
        self, lines: list[bytes], numbers: Sequence[int], *, flush: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        """See `Joiner.join`. Events of other sources wait for one that began before them."""
        read: dict[bytes, tuple[list[bytes], list[int]]] = {}
        for line, number in zip(lines, numbers, strict=True):
            match = self._prefix.search(line)
            end = match.end() if match is not None else 0
            texts, of_texts = read.setdefault(line[:end], ([], []))
            texts.append(line[end:])
            of_texts.append(number)
        ended = [self._waiting]
        too_many = len(self._sources) > MAX_SOURCES
        flush = flush or too_many
        last = numbers[-1] if numbers else 0
        for prefix in {**self._sources, **read}:
            source = self._sources.setdefault(prefix, _Source(prefix))
            texts, of_texts = read.get(prefix, ([], []))
            is_late = source.joiner.apart(last) > MAX_APART_LINES
            ended.append(source.join(texts, of_texts, flush=flush or is_late))
        if too_many:
            self._sources.clear()
        whole = list(merge(*ended))
        held = self.held
        cut = bisect_right(whole, held, key=itemgetter(0)) if held else len(whole)
        self._waiting = whole[cut:]
        return [event for _, event in whole[:cut]], [number for number, _ in whole[:cut]]


class _Source:
    """The lines of one pod or container."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self.joiner = TraceJoiner()

    def join(
        self, texts: list[bytes], numbers: Sequence[int], *, flush: bool
    ) -> list[tuple[int, bytes]]:
        """Return the events that have ended, with their numbers."""
        events, firsts = self.joiner.join(texts, numbers, flush=flush)
        prefix = self._prefix
        return [
            (number, prefix + event.replace(b"\n", b"\n" + prefix))
            for number, event in zip(firsts, events, strict=True)
        ]


def _following(held: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    if (
        isinstance(held, range)
        and isinstance(more, range)
        and (not more or held.stop == more.start)
    ):
        return range(held.start, more.stop if more else held.stop)
    return [*held, *more]


# ---------------------------------------------------------------- where events begin and end


class _Lines:
    """Lines of one source, among which the events of several lines are looked for.

    Attributes:
        indents: whether any indented line may continue the line before it.
    """

    def __init__(self, lines: list[bytes], indents: bool, *, flush: bool) -> None:
        self.indents = indents
        self._lines = lines
        self._flush = flush

    def spans(self) -> tuple[list[tuple[int, int]], int]:
        """Return the events of several lines, and the index from which on lines are held back.

        An event is its first index, and the index behind its last line.
        """
        lines, low = self._lines, 0
        spans: list[tuple[int, int]] = []
        for i in rows_beginning(lines, b" \t"):
            while low <= i:
                words = lines[i].lstrip()
                in_trace = _in_trace(words)
                if not in_trace and _RECORD.search(lines[i]):
                    break  # it is like a line that is not indented
                start = self._begin(i, low)
                if not words or (start == i and not in_trace):
                    low = i + 1
                    break
                end, is_whole = self._end(start, i)
                if not is_whole and not self._flush:
                    return spans, start
                if end - start > 1:
                    spans.append((start, end))
                low = end
        return spans, len(lines) if self._flush else self._begin(len(lines), low)

    # ------------------------------------------------------------ where it begins

    def _begin(self, i: int, low: int) -> int:
        """Return where the event begins that the indented line `i` belongs to.

        Args:
            i: the line; after the last line, one that may follow, of any kind.
            low: the first line that is in no event yet.
        """
        if i < len(self._lines):
            return next(self._beginnings(i, low), i)
        return min(self._beginnings(i, low), default=i)

    def _beginnings(self, i: int, low: int) -> Iterator[int]:
        """Yield where its event may begin, the likeliest first."""
        lines, last = self._lines, i - 1
        if last < low:
            return
        before, line = lines[last][:MAX_HEAD_BYTES], lines[i] if i < len(lines) else None
        above = lines[last - 1][:MAX_HEAD_BYTES] if last > low else b""
        if not before.strip():
            if line is None and above.startswith(_BEFORE_BLANK):
                yield self._begin_of_panic(last - 1, low)
            elif line is None and _is_grave(above):
                yield last - 1
            return
        if before.startswith(TRACEBACKS):
            yield self._with_header(last, low)
        if before.startswith(GOROUTINE):
            yield self._begin_of_goroutine(last, low)
        if line is None and before.startswith(_BEFORE_BLANK):
            yield self._begin_of_panic(last, low)
        if (line is None or _is_go_place(line)) and _CALL.search(before):
            if above.startswith(GOROUTINE):
                yield self._begin_of_goroutine(last - 1, low)
            yield last - 1 if above.strip() else last
        words = None if line is None else line.lstrip()
        # Node indents by four spaces: its exceptions have nothing to do with the line before.
        thrown = words is None or ((line or b"")[:4] != b"    " and words[:3] in (b"at ", b"---"))
        if thrown and _EXCEPTION_CLASS.search(before):
            yield self._with_header_above(last, low)
        if (words is None or not words.strip(b"^\r")) and _PLACE.search(above):
            yield last - 1  # a place, its source, and marks below that
        if line is None or words is None:
            yield last
        elif words.startswith((b'File "', GROUP_TRACEBACK)):
            if _is_header(before):
                yield last
        elif _in_trace(words) or (self.indents and _continues(before, line)):
            yield last

    def _with_header(self, i: int, low: int) -> int:
        return i - 1 if i > low and _is_header(self._lines[i - 1]) else i

    def _with_header_above(self, i: int, low: int) -> int:
        """Return where an exception's event begins; Spring Boot writes empty lines around it."""
        lines = self._lines
        if i - 1 > low and not lines[i - 1].strip() and _is_grave(lines[i - 2]):
            return i - 2
        return self._with_header(i, low)

    def _begin_of_goroutine(self, i: int, low: int) -> int:
        lines = self._lines
        if i == low:
            return i
        if lines[i - 1].strip():
            return i - 1  # what was logged with it
        return self._begin_of_panic(i - 2, low) if i - 2 >= low else i

    def _begin_of_panic(self, i: int, low: int) -> int:
        """Return where it begins, if the line `i` is the last before an empty one in a panic."""
        lines = self._lines
        first = i - 1 if i > low and lines[i].startswith(b"[signal ") else i
        return first if lines[first].startswith(PANICS) else i + 2

    # ------------------------------------------------------------ where it ends

    def _end(self, start: int, i: int) -> tuple[int, bool]:
        """Return the index after an event's last line, and whether that is known.

        Args:
            start: the event's first line.
            i: its first indented line.
        """
        lines, count = self._lines, len(self._lines)
        size = plain = 0
        language, opened, j = "", False, start
        while j < count:
            line = lines[j]
            indented = line[:1] in _INDENT
            words = line.lstrip() if indented else line
            bridged: int | None = j + 1
            if indented and words:
                if (
                    words[:1] in _RECORD_FIRST
                    and j > i
                    and not _is_source(lines[j - 1])
                    and _RECORD.search(line)
                ):
                    return j, True
                plain += not language
            elif j >= i:
                if self._closes(j, start, language):
                    return j + 1, True
                bridged = self._bridged(j, start, language, opened=opened)
                opened = False
            if bridged is None or bridged == j:
                return j, bridged is not None
            size += len(line) + 1
            if bridged - j > 1:
                size += sum(map(len, lines[j + 1 : bridged])) + bridged - j - 1
            if j > start and (bridged - start > MAX_EVENT_LINES or size > MAX_EVENT_BYTES):
                return j, True
            if not language:
                language = _language(line, words)
                if plain > MAX_INDENTED and not language:
                    self.indents = False
                    return start + 1, True
            opened = opened or line.endswith(_OPENING)
            j = bridged
        return j, False

    def _closes(self, j: int, start: int, language: str) -> bool:
        """Return whether the line `j` is the empty one behind a trace with one before it."""
        lines = self._lines
        return (
            language == _OTHER
            and start + 1 < j < start + MAX_EVENT_LINES
            and not lines[j].strip()
            and not lines[start + 1].strip()
        )

    def _bridged(self, j: int, start: int, language: str, *, opened: bool) -> int | None:
        """Return the index after lines that are not indented, from `j` on, and belong to the event.

        Returns:
            `j` if there are none; None if that is not known yet.
        """
        lines = self._lines
        line, before = lines[j], lines[j - 1]
        if not line.strip():
            return self._bridged_blank(j, start, language)
        belongs = line.startswith(_BETWEEN_FRAMES) or (opened and not line.strip(_CLOSING))
        if language == _PYTHON:
            in_frames = before[:1] in _INDENT and not before.rstrip().endswith(b"----")
            belongs = belongs or (in_frames and _EXCEPTION.search(line) is not None)
        elif language == _GO:
            belongs = belongs or line.startswith((b"exit status ", GOROUTINE))
            if not belongs and _CALL.search(line):
                if j + 1 == len(lines):
                    return None
                return j + 2 if lines[j + 1][:1] == b"\t" else j
        return j + 1 if belongs else j

    def _bridged_blank(self, j: int, start: int, language: str) -> int | None:
        """Return the index after an empty line and what follows it, as `_bridged` does."""
        lines = self._lines
        wanted: tuple[tuple[bytes, ...], ...]
        if language == _PYTHON:
            wanted = CHAINED, (), (*TRACEBACKS, b"  " + GROUP_TRACEBACK)
        elif language == _GO:
            wanted = ((GOROUTINE,),)
        elif _PLACE.search(lines[start]):  # Node
            wanted = ((b"Node.js v",),) if language else ((b"",), (b"    at ",))
        else:
            return j
        for k, beginnings in enumerate(wanted, j + 1):
            if k == len(lines):
                return None
            if not (lines[k].startswith(beginnings) if beginnings else not lines[k].strip()):
                return j
        end = j + 1 + len(wanted)
        return end if lines[end - 1][:1] not in _INDENT else end - 1


_BETWEEN_FRAMES = (*CAUSES, b"--- End of ")
_PYTHON, _GO, _OTHER = "python", "go", "other"

_OPENING = (b"{", b"[", b"(", b"{\r", b"[\r", b"(\r")
_RECORD_FIRST = frozenset(bytes([byte]) for byte in b"0123456789[(<TDINWECFS")
"""First bytes of what `_RECORD` finds."""

_CLOSING = b"}]),; \t\r"
_BEFORE_BLANK = (*PANICS, b"[signal ")


def _in_trace(words: bytes) -> bool:
    """Return whether an indented line is one of a trace, given without its indent."""
    return is_frame(words) or words.startswith(GROUP_TRACEBACK)


def _is_source(line: bytes) -> bool:
    """Return whether the next line is of a program's source: it may look like anything."""
    return line.lstrip(b" |").startswith(b'File "')


def _is_go_place(line: bytes) -> bool:
    return line[:1] == b"\t" and b".go:" in line


def _language(line: bytes, words: bytes) -> str:
    """Return the language whose traces have such a line, or nothing."""
    if words.startswith((*TRACEBACKS, b'File "', GROUP_TRACEBACK)):
        return _PYTHON
    if line.startswith((GOROUTINE, *PANICS)) or _is_go_place(line):
        return _GO
    return _OTHER if line is not words and _in_trace(words) else ""


def _is_header(line: bytes) -> bool:
    """Return whether a line before a trace belongs to it."""
    head = line[:HEAD_BYTES]
    return bool(head.strip()) and (not _LOW.search(head) or _HIGH.search(head) is not None)


def _is_grave(line: bytes) -> bool:
    """Return whether a line is of a level from a warning on, or speaks of an error."""
    return _HIGH.search(line[:HEAD_BYTES]) is not None


def _continues(before: bytes, line: bytes) -> bool:
    """Return whether an indented line that is in no trace continues the line before it."""
    first = before[:1]
    if first in _NO_HEADS or (first == b"<" and not before[1:2].isdigit()):
        return False
    if before.strip() in (b"[", b"(", b"[{"):
        return False
    tabs = before.count(b"\t")
    if tabs and tabs == line.count(b"\t"):
        return False
    return not (_ROW.search(line) or _KEY.search(before))

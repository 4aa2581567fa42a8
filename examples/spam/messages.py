"""Reads messages: JSON lines, labelled lines or plain lines, with any bytes in them.

A message is a JSON object a line, with ``text`` and, if known, ``sender`` and ``time`` (seconds
since 1970, or ISO 8601); or a line ``label<TAB>text``; or a line of text. Messages without a sender
count as one sender each, those without a time as sent now. Lines that are none of these, and lines
above `MAX_LINE_BYTES`, are left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.io.files import InputFile

HERE = Path(__file__).resolve().parent
MAX_LINE_BYTES = 256 * 1024
"""A longer line is not a message; it is left out, and counted."""
MAX_NAME = 100
"""Characters kept of a sender, a label, a cluster's name."""
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came.

    Attributes:
        text: what it says.
        sender: who sent it.
        time_us: when, in microseconds since 1970.
        label: what somebody says it is; for measuring alone.
        kind: which sort of it; for measuring alone.
        campaign: the one it was made for; for measuring alone.
        cluster: what a worker has decided; empty if none has.
    """

    text: str
    sender: str
    time_us: int
    label: str = ""
    kind: str = ""
    campaign: int | None = None
    cluster: str = ""


@dataclass(slots=True)
class Reader:
    """Messages out of files, in batches; counts the lines that are none.

    Attributes:
        paths: files, plain or compressed; ``-`` for standard input.
        read: lines that were messages.
        left_out: reason → lines that were not.
    """

    paths: Sequence[str]
    read: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def batches(self) -> Iterator[list[Message]]:
        """Messages as they come, `BATCH` at most together."""
        clock = SystemClock()
        for path in self.paths:
            source = InputFile(path, max_line_bytes=MAX_LINE_BYTES)
            try:
                while (lines := source.read()) is not None:
                    parts = lines.pieces | lines.tails
                    now_us = clock.now_us()
                    found: list[Message] = []
                    for index, line in enumerate(lines.values):
                        if index in parts or len(line) > MAX_LINE_BYTES:
                            if index not in lines.pieces:  # its end: a long line counts once
                                self._leave_out(f"longer than {MAX_LINE_BYTES} bytes")
                            continue
                        number = lines.first + index
                        message = parse(line, f"{source.name}:{number}", now_us)
                        if isinstance(message, str):
                            self._leave_out(message)
                        else:
                            found.append(message)
                    self.read += len(found)
                    for start in range(0, len(found), BATCH):
                        yield found[start : start + BATCH]
            finally:
                source.close()

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def parse(line: bytes, place: str, now_us: int) -> Message | str:
    """A line's message, or why it is none. Takes any bytes.

    >>> parse(b'spam\\twin a prize', "a:1", 7)
    Message(text='win a prize', sender='a:1', time_us=7, label='spam', kind='', campaign=None, \
cluster='')
    >>> parse(b'{"txet": "hello"}', "a:1", 7)
    'no text'

    Args:
        line: its bytes.
        place: used as the sender where none is given.
        now_us: used as the time where none is given; later times are cut back to it.
    """
    line = line.strip()
    if not line:
        return "empty"
    if not line.startswith(b"{"):
        label, tab, rest = line.decode("utf-8", "replace").partition("\t")
        return Message(rest, place, now_us, label) if tab else Message(label, place, now_us)
    try:
        given = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "not JSON"
    if given.get("type") == "summary":
        return "summaries"
    text = given.get("text")
    if not isinstance(text, str):
        return "no text"
    try:
        time_us = min(time_of(given["time"]), now_us) if "time" in given else now_us
    except ValueError:
        return "not a time"
    dedup = given.get("dedup")
    return Message(
        text=text,
        sender=_text(given, "sender") or place,
        time_us=time_us,
        label=_text(given, "label"),
        kind=_text(given, "kind"),
        cluster=_text(dedup, "cluster") if isinstance(dedup, dict) else "",
    )


def _text(given: dict[str, Any], name: str) -> str:
    """A name that a message gives; empty if it gives none."""
    value = given.get(name)
    return value[:MAX_NAME] if isinstance(value, str) else ""


def time_of(value: object) -> int:
    """A time in microseconds since 1970.

    >>> time_of("2026-01-05T08:00:00Z") == time_of(1767600000) == 1767600000000000
    True

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return round(value * US_PER_S)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a time")  # noqa: TRY004 -- a wrong value of a message
    moment = datetime.fromisoformat(value[:40])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, round(moment.timestamp() * US_PER_S))
    except OverflowError as error:
        raise ValueError(f"{value!r} is not a time") from error


def iso(time_us: int) -> str:
    """A time as ISO 8601, to the second."""
    return datetime.fromtimestamp(time_us // US_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str, limit: int) -> str:
    r"""A text that a terminal shows and does not obey: what is not seen becomes an escape.

    >>> printable("win \x1b[2J \u202e now", 100)
    'win \\x1b[2J \\u202e now'

    Args:
        text: what a sender wrote.
        limit: characters of it that are used.
    """
    text = text[:limit]
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(text: str | None) -> str:
    """A module's docstring as click shows it: lines that are set in are kept as they are."""
    return re.sub(r"\n\n(?=    )", "\n\n\b\n", text or "")

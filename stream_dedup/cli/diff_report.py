"""The report of ``stream-dedup diff``: what it holds, as text and as JSON lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec
from rich.cells import cell_len

from stream_dedup.changes.rates import Counts
from stream_dedup.cli.terminal import coloured_pattern, cut_to
from stream_dedup.clock import US_PER_S
from stream_dedup.emit.summaries import iso_time, label, pattern_fields
from stream_dedup.model import Decision, Summary
from stream_dedup.units import counted

Per = Literal["time", "events"]
Kind = Literal["new", "vanished", "more", "fewer", "same"]

COLOURS: dict[Kind, str] = {"new": "\x1b[32m", "vanished": "\x1b[31m"}
"""Of the others: yellow."""

_CHANGED = "\x1b[33m"
_RESET = "\x1b[0m"

_CLUSTER = attrgetter("cluster")


@dataclass(slots=True)
class Side:
    """One of the two inputs, as it was read.

    Attributes:
        name: of its files.
        events: those that have a pattern.
        first_us: time of the earliest; None if no event has one.
        last_us: time of the latest.
        counts: events of each cluster.
    """

    name: str = ""
    events: int = 0
    first_us: int | None = None
    last_us: int | None = None
    counts: Counter[int | None] = field(default_factory=Counter)

    def add(self, decisions: Sequence[Decision], times_us: Sequence[int] | None) -> None:
        """Count events of the side."""
        self.counts.update(map(_CLUSTER, decisions))
        # Lines before the first one with a time are at 0.
        known = [time_us for time_us in times_us or () if time_us]
        if known:
            first_us, last_us = min(known), max(known)
            self.first_us = first_us if self.first_us is None else min(self.first_us, first_us)
            self.last_us = last_us if self.last_us is None else max(self.last_us, last_us)

    @property
    def length_s(self) -> float:
        """From its first to its last event."""
        if self.first_us is None or self.last_us is None:
            return 0.0
        return (self.last_us - self.first_us) / US_PER_S


class Row(NamedTuple):
    """A pattern that is in one of the inputs.

    Attributes:
        summary: of its cluster, with its pattern.
        counts: its events.
        kind: what became of it.
        factor: how many times as high its rate is; None if it is new or vanished.
        log_p: natural logarithm of the probability of that by chance; None if nothing was compared.
        significant: whether it counts as a change.
    """

    summary: Summary
    counts: Counts
    kind: Kind
    factor: float | None
    log_p: float | None
    significant: bool


class Report(NamedTuple):
    """What changed.

    Attributes:
        sides: the inputs.
        per: what rates are divided by.
        rows: the patterns that changed, or are in one input only; the least likely first.
        patterns: all patterns.
        changed: how many of them changed.
    """

    sides: tuple[Side, Side]
    per: Per
    rows: Iterable[Row]
    listed: int
    patterns: int
    changed: int


# ---------------------------------------------------------------- output


def json_lines(report: Report, top: int) -> Iterator[bytes]:
    """The sides as one line, and each change as one."""
    document: dict[str, object] = {"type": "comparison", "per": report.per}
    for name, side in zip(("old", "new"), report.sides, strict=True):
        document[name] = {
            "name": side.name,
            "events": side.events,
            "first_time": _iso(side.first_us),
            "last_time": _iso(side.last_us),
        }
    document |= {"patterns": report.patterns, "changed": report.changed, "listed": report.listed}
    yield msgspec.json.encode(document) + b"\n"
    for _, row in zip(range(top), report.rows, strict=False):
        summary = row.summary
        change = {
            "type": "change",
            "change": row.kind,
            "significant": row.significant,
            "old": row.counts.old,
            "new": row.counts.new,
            "factor": row.factor,
            "log10_p": None if row.log_p is None else row.log_p / math.log(10),
            **pattern_fields(summary),
        }
        yield msgspec.json.encode(change) + b"\n"


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else iso_time(time_us)


def text_lines(report: Report, top: int, width: int | None, *, colour: bool) -> Iterator[str]:
    """The report as text."""
    for name, side in zip(("old", "new"), report.sides, strict=True):
        during = f" in {_length(side.length_s)}" if report.per == "time" and side.length_s else ""
        yield f"{name}: {side.name}: {counted(side.events, 'event')}{during}"
    rows = [row for _, row in zip(range(top), report.rows, strict=False)]
    if rows:
        yield ""
        yield from _table(rows, width, colour=colour)
        yield ""
    if report.changed:
        text = f"{report.changed:,} of {counted(report.patterns, 'pattern')} changed"
    elif report.patterns:
        text = f"no change: {counted(report.patterns, 'pattern')} compared"
    else:
        text = "no change: neither has an event"
    if report.listed > len(rows):
        text += f"; {report.listed - len(rows):,} more are listed with a higher --top"
    yield text


def _table(rows: Sequence[Row], width: int | None, *, colour: bool) -> Iterator[str]:
    heads = "change", "old", "new", "p"
    cells = [
        (_change(row), f"{row.counts.old}", f"{row.counts.new}", _p_text(row.log_p)) for row in rows
    ]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    for row, texts in chain([(None, heads)], zip(rows, cells, strict=True)):
        padded = [texts[0].ljust(widths[0])]
        padded += [text.rjust(room) for text, room in zip(texts[1:], widths[1:], strict=True)]
        head = "  ".join(padded)
        text = "pattern" if row is None else f"{label(row.summary)} {row.summary.pattern}".strip()
        if width is not None:
            text = cut_to(text, width - cell_len(head) - 2)
        if colour and row is not None:
            head = f"{COLOURS.get(row.kind, _CHANGED)}{head}{_RESET}" if row.significant else head
            text = coloured_pattern(text)
        yield f"{head}  {text}"


def _change(row: Row) -> str:
    if row.factor is None:
        return row.kind
    times, sign = (row.factor, "×") if row.factor >= 1 else (1 / row.factor, "÷")
    return f"{sign}{times:,.0f}" if times >= 10 else f"{sign}{times:.1f}"


def _p_text(p: float | None) -> str:
    """A probability of which only the logarithm may be a number."""
    if p is None:
        return "-"
    if p > math.log(0.001):
        return f"{math.exp(p):.2g}"
    exponent = math.floor(p / math.log(10))
    return f"1e{exponent}"


def _length(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"

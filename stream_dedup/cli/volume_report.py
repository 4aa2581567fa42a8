"""The report of ``stream-dedup volume``: what it holds, as text and as JSON lines.

The figures of its lines add up to those of its last line, and the bytes to those that were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len

from stream_dedup.cli.terminal import coloured_pattern, cut_to
from stream_dedup.cli.volume_count import PatternBytes, Taken, VolumeCount
from stream_dedup.emit.summaries import label, pattern_fields
from stream_dedup.units import counted


class Report(NamedTuple):
    """What the events of an input take.

    Attributes:
        counted: their bytes.
        read: all bytes that were read.
        rows: the largest patterns, described.
        has_rules: whether rules acted, so that less may be written.
    """

    counted: VolumeCount
    read: int
    rows: Sequence[PatternBytes]
    has_rules: bool

    @property
    def between(self) -> Taken:
        """What separates events: their line ends, without those of events that are withheld."""
        count = self.counted
        read = self.read - count.taken
        return Taken(0, read, max(0, read - count.withheld))

    @property
    def whole(self) -> Taken:
        """Everything that was read."""
        whole = Taken()
        for each in (self.counted.patterns, *self.counted.passed.values(), self.between):
            whole.add(each)
        return whole


# ---------------------------------------------------------------- JSON


def json_lines(report: Report) -> Iterator[bytes]:
    """Everything as one line, and each pattern as one."""
    count, whole = report.counted, report.whole
    yield _line(
        {
            "type": "volume",
            "per_minute": count.per_minute,
            "events": whole.events,
            "bytes_in": report.read,
            "bytes_out": whole.left,
            "drop_saves": count.dropped,
            "keep_saves": count.kept if count.timed else None,
            "patterns": {"number": count.clusters, **_bytes(count.patterns)},
            "passed": {reason: _bytes(each) for reason, each in sorted(count.passed.items())},
            "line_ends": _bytes(report.between),
            "listed": len(report.rows),
        }
    )
    for summary, taken, savings in report.rows:
        yield _line(
            {
                "type": "pattern",
                **_bytes(taken),
                "share": _share(taken, report.read),
                "drop_saves": savings.dropped,
                "keep_saves": savings.kept,
                **pattern_fields(summary),
            }
        )


def _line(document: dict[str, object]) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _bytes(taken: Taken) -> dict[str, object]:
    return {"events": taken.events, "bytes_in": taken.read, "bytes_out": taken.left}


def _share(taken: Taken, read: int) -> float:
    return round(taken.read / read, 6) if read else 0.0


# ---------------------------------------------------------------- text


class _Line(NamedTuple):
    """A line of the table; None where a figure means nothing, or is not known."""

    text: str
    taken: Taken
    dropped: int | None = None
    kept: int | None = None
    is_pattern: bool = False


def text_lines(report: Report, width: int | None, *, colour: bool) -> Iterator[str]:
    """The report as a table; patterns are cut to the width of a terminal."""
    count = report.counted
    lines = [
        _Line(f"{label(each.summary)} {each.summary.pattern}".strip(), each.taken, *each.savings,
              is_pattern=True)
        for each in report.rows
    ]  # fmt: skip
    rest = count.clusters - len(lines)
    if rest:
        patterns = count.patterns
        taken = Taken(
            patterns.events - sum(line.taken.events for line in lines),
            patterns.read - sum(line.taken.read for line in lines),
            patterns.left - sum(line.taken.left for line in lines),
        )
        dropped = count.dropped - sum(line.dropped or 0 for line in lines)
        kept = count.kept - sum(line.kept or 0 for line in lines)
        text = f"{counted(rest, 'more pattern')}, with a higher --top"
        lines.append(_Line(text, taken, dropped, kept if count.timed else None))
    lines += (
        _Line(f"not compared: {reason}", each) for reason, each in sorted(count.passed.items())
    )
    lines.append(_Line("line ends", report.between))
    kept_all = count.kept if count.timed else None
    lines.append(_Line("all that was read", report.whole, count.dropped, kept_all))
    yield from _table(report, lines, width, colour=colour)


def _table(
    report: Report, lines: Sequence[_Line], width: int | None, *, colour: bool
) -> Iterator[str]:
    heads = ["bytes", "share", "drop saves", f"keep {report.counted.per_minute:,} saves", "events"]
    columns = [_cells(line, report.read) for line in lines]
    if report.has_rules:
        heads.insert(2, "bytes out")
        for cells, line in zip(columns, lines, strict=True):
            cells.insert(2, f"{line.taken.left:,}")
    widths = [max(map(len, column)) for column in zip(heads, *columns, strict=True)]
    rows: list[_Line | None] = [None, *lines]
    for cells, row in zip([heads, *columns], rows, strict=True):
        padded = [cell.rjust(room) for cell, room in zip(cells, widths, strict=True)]
        head = "  ".join(padded)
        text = "pattern" if row is None else row.text
        if width is not None:
            text = cut_to(text, width - cell_len(head) - 2)
        if colour and row is not None and row.is_pattern:
            text = coloured_pattern(text)
        yield f"{head}  {text}"


def _cells(line: _Line, read: int) -> list[str]:
    return [
        f"{line.taken.read:,}",
        f"{_share(line.taken, read):.1%}",
        *("-" if saved is None else f"{saved:,}" for saved in (line.dropped, line.kept)),
        f"{line.taken.events:,}",
    ]

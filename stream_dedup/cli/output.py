"""What ``stream-dedup dedup`` writes: events and summaries as text or JSON lines, or a report.

Per batch, not per line: only lines that are written cost more than their bytes.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import compress
from typing import BinaryIO, Literal

from stream_dedup.changes.detector import Detector
from stream_dedup.changes.events import PatternEvents
from stream_dedup.cli.common import write_whole
from stream_dedup.cli.report import Ranking, Row, table_text
from stream_dedup.cli.terminal import coloured_line, coloured_summary, escaped, escaped_json
from stream_dedup.cli.volume_count import VolumeCount
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.events import (
    PASSED,
    annotated_text,
    decision_object,
    event_json,
    kept,
    kept_text,
)
from stream_dedup.emit.modes import Mode
from stream_dedup.emit.summaries import (
    MARK,
    summary_json,
    summary_parts,
    summary_text,
    time_text,
)
from stream_dedup.features.patterns import Patterns
from stream_dedup.io.decoder import Events
from stream_dedup.model import Decision, Kind, Partition, Summary

PIECE = Decision(Kind.PASSED, reason="piece of a line too long")

LARGEST = 10
"""Clusters listed in the statistics."""


@dataclass(frozen=True, slots=True)
class Output:
    """What is written, and how.

    Attributes:
        mode: which events, and whether summaries.
        format: text or JSON lines; None for the format of each input.
        stats: whether to collect statistics.
        limit: maximum number of lines to read; None for all.
        step_us: event time between two checks for due summaries.
        mark: what a summary in text begins with.
        ids: whether a first line in text is preceded by the ids of its cluster and template.
        colour: whether text is coloured.
        escape: whether control characters are shown as escapes, as a terminal would obey them.
        parameters: whether events in JSON have the values of their variables.
        ranking: collects the clusters for a report, in place of all output; None for none.
        volume: counts the bytes of the clusters for a report, in the same way.
        patterns: where events about patterns are written; None for nowhere.
    """

    mode: Mode
    format: Literal["text", "jsonl"] | None
    stats: bool
    limit: int | None
    step_us: int
    mark: str = MARK
    ids: bool = False
    colour: bool = False
    escape: bool = False
    parameters: bool = False
    ranking: Ranking | None = None
    volume: VolumeCount | None = None
    patterns: PatternFile | None = None


class PatternFile:
    """Writes events about patterns, each as soon as it is noticed.

    Args:
        out: unbuffered.
        bin_us: how often clusters are counted.
        max_patterns: patterns that are remembered.
    """

    def __init__(self, out: BinaryIO, bin_us: int, max_patterns: int) -> None:
        self._out = out
        self._events = PatternEvents(Detector(bin_us, max_patterns), max_patterns)

    def add(self, summaries: Sequence[Summary]) -> None:
        """Count described summaries, and write what they show."""
        lines = self._events.add(summaries)
        if lines:
            write_whole(self._out, b"".join(lines))


class Places:
    """The lines where clusters were first and last seen, numbered through all inputs."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._names: list[str] = []
        self._numbered: dict[Partition, int] = {}
        self._last: dict[int | None, int] = {}

    def begin(self, partition: Partition, name: str, lines: int) -> None:
        """Begin an input after so many lines; `name` is what its line numbers follow."""
        self._starts.append(lines)
        self._names.append(name)
        self._numbered[partition] = lines

    def saw(self, decisions: Sequence[Decision], numbers: Sequence[int]) -> None:
        """Note where the clusters of these events were seen."""
        start = self._starts[-1]
        places: Sequence[int] = [start + number for number in numbers] if start else numbers
        clusters = [decision.cluster for decision in decisions]
        self._last.update(zip(clusters, places, strict=True))

    def forget(self, decisions: Sequence[Decision]) -> None:
        """Forget where the clusters of these events were seen: they have times."""
        if self._last:
            for decision in decisions:
                self._last.pop(decision.cluster, None)

    def first(self, summary: Summary) -> int:
        """Return where a cluster's first event was."""
        source, number, offset = summary.position
        return self._numbered.get(Partition(source, number), 0) + offset

    def last(self, summary: Summary) -> int | None:
        """Return where a cluster was last seen, if that is known; a closed one is forgotten."""
        if summary.final:
            return self._last.pop(summary.cluster, None)
        return self._last.get(summary.cluster)

    def text(self, place: int) -> str:
        """Return a place as ``line 8`` or ``auth.log:8``."""
        at = bisect_right(self._starts, place - 1) - 1
        return f"{self._names[at]}{place - self._starts[at]}"


class Writer:
    """Writes decided events and summaries.

    Args:
        dedup: what decided them.
        output: what is written, and how.
        out: the output.
        note: writes a message to the user.

    Attributes:
        places: where clusters were seen.
        largest: the largest clusters, for statistics.
        withheld: events that were not written, by the kind of the rule that withheld them.
    """

    def __init__(
        self, dedup: Deduplicator, output: Output, out: BinaryIO, note: Callable[[str], None]
    ) -> None:
        self.places = Places()
        self.largest = Ranking(LARGEST if output.stats else 0)
        self.withheld: Counter[str] = Counter()
        self._dedup = dedup
        self._output = output
        self._out = out
        self._note: Callable[[str], None] | None = note
        self._json = output.format == "jsonl"
        self._merge = output.mode.summaries and not (output.ranking or output.volume)
        self._patterns = Patterns(dedup.recipe) if output.colour else None
        self._plain = not (output.ids or output.colour or output.escape)
        self._alike = f"{output.mark} repeated ".encode()

    # ------------------------------------------------------------ events

    def events(
        self, events: Events, decisions: list[Decision], *, json: bool, by_time: bool
    ) -> None:
        """Write events, and note where their clusters were seen.

        Args:
            events: the events.
            decisions: a decision for each.
            json: whether their input is JSON lines.
            by_time: whether their times are known, or that of their arrival means something.
        """
        output = self._output
        if output.volume is not None:
            output.volume.add(events, decisions)
            return
        if output.format is None:
            self._json = json
        if by_time:
            self.places.forget(decisions)
        elif output.ranking is not None or (self._merge and not self._json):
            self.places.saw(decisions, events.numbers)
        if output.ranking is not None:
            return
        if output.mode.duplicates:
            events, decisions = self._without_withheld(events, decisions)
        if self._json:
            text = self._json_lines(events, decisions)
        elif output.mode.duplicates:
            text = b"".join(map(annotated_text, events.raws, decisions))
            if events.goes_on and decisions:
                text = text.removeprefix(PASSED)
        elif self._plain:
            text = kept_text(events.raws, decisions)
        else:
            text = self._first_lines(events, decisions)
        if self._merge and not self._json and self._note is not None and self._alike in text:
            self._warn_of_lines_alike(text)
        if events.piece:
            text += self._piece(events)
        if output.escape and (self._json or output.mode.duplicates):
            text = escaped_json(text) if self._json else escaped(text).encode()
        self._write(text)

    def _without_withheld(
        self, events: Events, decisions: list[Decision]
    ) -> tuple[Events, list[Decision]]:
        """Leave out events that a rule withholds, and count them."""
        if not self._dedup.engine.withholds:
            return events, decisions
        leaving = [row for row, decision in enumerate(decisions) if not decision.withheld]
        if len(leaving) == len(decisions):
            return events, decisions
        self.withheld.update(filter(None, (decision.withheld for decision in decisions)))
        return events.rows(leaving), [decisions[row] for row in leaving]

    def _first_lines(self, events: Events, decisions: list[Decision]) -> bytes:
        """The events that are not duplicates as lines with ids, escapes and colours."""
        output, patterns = self._output, self._patterns
        chosen = kept(decisions)
        lines: list[bytes] = []
        for raw, decision in zip(
            compress(events.raws, chosen), compress(decisions, chosen), strict=True
        ):
            if patterns is not None:
                line = coloured_line(raw, patterns).encode()
            else:
                line = escaped(raw + b"\n")[:-1].encode() if output.escape else raw
            lines += _id(decision) if output.ids else b"", line, b"\n"
        if events.goes_on and lines:
            lines[0] = b""  # the id is in front of the line's first piece
        return b"".join(lines)

    def _json_lines(self, events: Events, decisions: list[Decision]) -> bytes:
        annotate = self._output.mode.duplicates
        leaves = [True] * len(decisions) if annotate else kept(decisions)
        indexes = [index for index, leaving in enumerate(leaves) if leaving]
        chosen = [decisions[index] for index in indexes]
        patterns, templates = self._dedup.patterns(chosen), self._dedup.templates(chosen)
        width = self._dedup.recipe.fingerprint.bits
        parameters: Sequence[tuple[tuple[str, str], ...] | None] = [None] * len(chosen)
        if self._output.parameters:
            texts = [events.batch.values[index] for index in indexes]
            parameters = self._dedup.parameters(texts, chosen)
        return b"".join(
            event_json(
                events.numbers[index],
                events.raws[index],
                events.documents[index],
                decision_object(
                    decisions[index]._replace(template=template), pattern, width, values
                ),
            )
            for index, pattern, template, values in zip(
                indexes, patterns, templates, parameters, strict=True
            )
        )

    def _piece(self, events: Events) -> bytes:
        """Format a piece of a line that is too long, without its line end."""
        if self._json:
            passed = decision_object(PIECE, None, self._dedup.recipe.fingerprint.bits)
            return event_json(events.piece_number, events.piece, None, passed)
        begins = not events.goes_on or bool(events.raws)
        if self._output.mode.duplicates:
            return PASSED + events.piece if begins else events.piece
        piece = escaped(events.piece).encode() if self._output.escape else events.piece
        return _id(PIECE) + piece if self._output.ids and begins else piece

    def _warn_of_lines_alike(self, text: bytes) -> None:
        alike = self._alike
        if self._note is not None and (text.startswith(alike) or b"\n" + alike in text):
            self._note(
                f"a line of the input begins with '{alike.decode().strip()}', as summaries do; to "
                "tell them apart, give another --mark, or --output-format jsonl"
            )
            self._note = None  # once is enough

    def _write(self, text: bytes) -> None:
        if text:
            write_whole(self._out, text)

    # ------------------------------------------------------------ summaries

    def summaries(self, summaries: Iterable[Summary], *, event_times: bool) -> None:
        """Write summaries, or collect final ones for a report.

        Args:
            summaries: without patterns.
            event_times: whether times were read from the events; then they are shown in UTC.
        """
        ranking = self._output.ranking or (self.largest if self._output.stats else None)
        zone = UTC if event_times else None
        parts: list[bytes] = []
        if self._output.patterns is not None:
            summaries = [self._dedup.describe(summary) for summary in summaries]
            self._output.patterns.add(summaries)
        if self._output.volume is not None:
            self._output.volume.ended(summaries)
            return
        for summary in summaries:
            last = self.places.last(summary)
            if summary.final and ranking is not None:
                ranking.add(summary, self.places.first(summary), last)
            if self._merge:
                parts.append(self._summary(summary, last, zone))
            if len(parts) > 1000:
                self._write(b"".join(parts))
                parts.clear()
        self._write(b"".join(parts))

    def _summary(self, summary: Summary, last: int | None, zone: tzinfo | None) -> bytes:
        single = summary.new_count < 2 and summary.revision == 1
        if not self._json and single and summary.merged_into is None:
            return b""
        summary = self._dedup.describe(summary)
        if self._json:
            text = summary_json(summary, self._dedup.recipe.name)
            return escaped_json(text) if self._output.escape else text
        if last is None:
            until = time_text(summary.last_time_us, summary.first_time_us, zone)
        else:
            until = escaped(os.fsencode(self.places.text(last)))
        if not self._output.colour:
            return summary_text(summary, until, self._output.mark)
        parts = summary_parts(summary, until, self._output.mark)
        return f"{coloured_summary(*parts)}\n".encode() if parts else b""

    # ------------------------------------------------------------ reports

    def rows(self, ranking: Ranking, *, event_times: bool) -> list[Row]:
        """Return the clusters of a report, with patterns, and when or where they were seen."""
        zone = UTC if event_times else None
        rows: list[Row] = []
        for summary, first, last in ranking.entries():
            if last is None:
                first, last = summary.first_time_us, summary.last_time_us  # noqa: PLW2901 -- then times tell them apart
                seen = [time_text(time_us, 0, zone) for time_us in (first, last)]
            else:
                seen = [escaped(os.fsencode(self.places.text(line))) for line in (first, last)]
            rows.append(Row(self._dedup.describe(summary), seen[0], seen[1], first, last))
        return rows

    def report(self, rows: Sequence[Row], ranking: Ranking) -> None:
        """Write the clusters of a report: a table, or final summaries as JSON lines."""
        if self._json:
            name = self._dedup.recipe.name
            self._write(b"".join(summary_json(row.summary, name) for row in rows))
            return
        width = shutil.get_terminal_size().columns if self._output.escape else None
        self._write(table_text(rows, ranking, width=width).encode("utf-8", "backslashreplace"))


def _id(decision: Decision) -> bytes:
    if decision.cluster is None:
        return b"[-] "
    if decision.template is None:
        return b"[%016x] " % decision.cluster
    return b"[%016x %016x] " % (decision.cluster, decision.template)

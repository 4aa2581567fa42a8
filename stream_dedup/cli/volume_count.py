"""The bytes of events by pattern, as ``stream-dedup volume`` counts them.

Every byte that was read is counted once: in a pattern, in what was not compared, or as what
separates events.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from stream_dedup.io.decoder import TOO_LONG, Events
from stream_dedup.model import Decision, Summary
from stream_dedup.volume.counts import Axis, Counts
from stream_dedup.volume.savings import MINUTE_US, Savings, savings_of


@dataclass(slots=True)
class Taken:
    """What some events take.

    Attributes:
        events: how many they are.
        read: their bytes, without the line ends that end them.
        left: those of `read` that are written where events are annotated.
    """

    events: int = 0
    read: int = 0
    left: int = 0

    def add(self, other: Taken) -> None:
        """Add other events."""
        self.events += other.events
        self.read += other.read
        self.left += other.left


@dataclass(slots=True)
class _Open(Taken):
    """An open cluster."""

    counts: Counts = field(default_factory=Counts)


class PatternBytes(NamedTuple):
    """A pattern, and what it takes."""

    summary: Summary
    taken: Taken
    savings: Savings


class VolumeCount:
    """Counts the bytes of events by cluster, and keeps the largest ones.

    A cluster that merged into another one counts as part of it.

    Args:
        most: clusters that are kept.
        per_minute: the events a minute that a rule would keep.

    Attributes:
        clusters: how many there were.
        patterns: what all clusters take.
        passed: what the events take that were not compared, by the reason.
        dropped: what dropping the repeats of all clusters saves.
        kept: what keeping so many events a minute of each cluster saves.
        timed: whether an event has a time; if none has, `kept` is not known.
        withheld: events that a rule withholds.
    """

    def __init__(self, most: int, per_minute: int) -> None:
        self.per_minute = per_minute
        self.clusters = 0
        self.patterns = Taken()
        self.passed: dict[str, Taken] = {}
        self.dropped = self.kept = 0
        self.timed = False
        self.withheld = 0
        self._most = most
        self._axis = Axis(MINUTE_US, slides=False)
        self._open: dict[int, _Open] = {}
        self._numbers = count()
        self._heap: list[tuple[int, int, int, PatternBytes]] = []

    def add(self, events: Events, decisions: Sequence[Decision]) -> None:
        """Count decided events."""
        times_us = events.batch.times_us or [0] * len(decisions)
        for decision, raw in zip(decisions, events.raws, strict=True):
            taken = self._of(decision)
            taken.events += 1
            taken.read += len(raw)
            if decision.withheld:
                self.withheld += 1
            else:
                taken.left += len(raw)
        if events.piece:  # its line is counted with its last piece
            piece = Taken(0, len(events.piece), len(events.piece))
            self.passed.setdefault(TOO_LONG, Taken()).add(piece)
        known = [time_us for time_us in times_us if time_us]
        if known:
            self.timed = True
            self._count_times(decisions, times_us, min(known), max(known))

    def _of(self, decision: Decision) -> Taken:
        if decision.cluster is None:
            return self.passed.setdefault(decision.reason, Taken())
        return self._open.setdefault(decision.cluster, _Open())

    def _count_times(
        self, decisions: Sequence[Decision], times_us: Sequence[int], first: int, last: int
    ) -> None:
        axis = self._axis
        axis.reach(first)
        axis.reach(last)
        # Lines before the first one with a time are at 0.
        places = Counter(
            (decision.cluster, time_us // axis.width)
            for decision, time_us in zip(decisions, times_us, strict=True)
            if time_us
        )
        for (cluster, bucket), events in places.items():
            if cluster is not None:
                self._open[cluster].counts.add(axis, bucket * axis.width, events)

    def ended(self, summaries: Iterable[Summary]) -> None:
        """Take summaries without patterns; after its final one, a cluster takes no more events."""
        for summary in summaries:
            found = self._open.pop(summary.cluster, None) if summary.final else None
            if found is None:
                continue
            if summary.merged_into is not None:
                into = self._open.setdefault(summary.merged_into, _Open())
                into.add(found)
                into.counts.merge(self._axis, found.counts)
            else:
                self._rank(summary, found)

    def _rank(self, summary: Summary, found: _Open) -> None:
        axis = self._axis
        savings = savings_of(
            found.read, found.events, found.counts.values(axis), axis, self.per_minute
        )
        self.clusters += 1
        self.patterns.add(found)
        self.dropped += savings.dropped
        self.kept += savings.kept or 0
        taken = Taken(found.events, found.read, found.left)
        row = PatternBytes(summary, taken, savings)
        entry = found.read, found.events, -next(self._numbers), row
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def taken(self) -> int:
        """The bytes of all events whose clusters have ended, or that have none."""
        return self.patterns.read + sum(each.read for each in self.passed.values())

    def largest(self) -> list[PatternBytes]:
        """Return the clusters kept, the largest first."""
        return [entry[-1] for entry in sorted(self._heap, reverse=True, key=lambda each: each[:3])]

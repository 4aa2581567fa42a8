"""Counts over time: how many events of a cluster came when, in a bounded number of buckets.

Problem: an index says how many events a cluster has, not when they came. The page wants both, for
10⁵ clusters, and the bars have to add up to the number beside them.

Idea: every reading of a count gives a difference to the reading before, and differences telescope:
they add up to the count, whatever was missed between two readings. A difference is spread evenly
over the buckets between both readings, in whole events. What lies before the first bucket is one
number, `before`. So at any time ``before + sum(buckets) == events``.

All counts of a source share an `Axis`. One that *slides* keeps its width, and old buckets leave it:
for live streams. Another one keeps everything, and doubles its width when there are too many
buckets: for files. A width that doubles adds up pairs of buckets, so nothing changes in sum.

Memory: 16 bytes for each bucket that is not empty, 960 at most, and 150 for the rest.

Worked example, width 10, an axis that slides over 60 buckets: readings of 5 events at 100 and of 12
at 129. The 7 others are spread over the buckets 10, 11 and 12: 2, 2, 3.
"""

from __future__ import annotations

from array import array

BUCKETS = 60
"""Buckets of an axis at most."""

RECENT = 4
"""The last of so many parts of an axis is compared with the others."""


class Axis:
    """Where the buckets of a source lie.

    Args:
        width: of a bucket: microseconds, or lines.
        slides: whether old buckets leave, instead of growing.

    Attributes:
        width: as given, or as it has grown.
        slides: as given.
        least: the first bucket that was reached; None before.
        last: the last bucket that was reached.
    """

    def __init__(self, width: int, *, slides: bool) -> None:
        self.width = width
        self.slides = slides
        self.least: int | None = None
        self.last = 0

    @property
    def first(self) -> int:
        """The first bucket that is kept."""
        if self.least is None:
            return 0
        return self.last - BUCKETS + 1 if self.slides else self.least

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return 0 if self.least is None else self.last - self.first + 1

    @property
    def recent(self) -> int:
        """The first bucket of the last part."""
        return self.last + 1 - max(1, self.buckets // RECENT)

    def reach(self, at: int) -> None:
        """Make room for a time, or a line."""
        bucket = at // self.width
        if self.least is None:
            self.least = self.last = bucket
            return
        self.least, self.last = min(self.least, bucket), max(self.last, bucket)
        while not self.slides and self.last - self.least >= BUCKETS:
            self.width *= 2
            self.least //= 2
            self.last //= 2


class Counts:
    """The counts of one cluster.

    Attributes:
        before: events of which no bucket is kept. Buckets that have left the axis since are still
            kept until the next events come.
    """

    __slots__ = ("_pairs", "_width", "before")

    def __init__(self) -> None:
        self.before = 0
        self._width = 0
        self._pairs = array("q")  # bucket, events, bucket, events, …; the buckets ascend

    @property
    def total(self) -> int:
        """All events."""
        return self.before + sum(self._pairs[1::2])

    def add(self, axis: Axis, at: int, events: int) -> None:
        """Add events of one time; the axis must have reached it."""
        self._settle(axis)
        self._add(axis.first, at // axis.width, events)

    def spread(self, axis: Axis, start: int, end: int, events: int) -> None:
        """Add events of which only a first and a last time are known, evenly."""
        self._settle(axis)
        first, last = start // axis.width, end // axis.width
        parts = last - first + 1
        if parts > 10 * BUCKETS:  # all but the last of them are one
            kept = events * (axis.last - axis.first + 1) // parts
            self.before += events - kept
            first, events = max(first, axis.first), kept
            parts = max(1, last - first + 1)
            last = first + parts - 1
        for part in range(parts):
            share = events * (part + 1) // parts - events * part // parts
            if share:
                self._add(axis.first, first + part, share)

    def merge(self, axis: Axis, other: Counts) -> None:
        """Add the events of another cluster."""
        self._settle(axis)
        other._settle(axis)
        self.before += other.before
        pairs = other._pairs
        for place in range(0, len(pairs), 2):
            self._add(axis.first, pairs[place], pairs[place + 1])

    def values(self, axis: Axis) -> list[int]:
        """The events of each bucket of an axis. Nothing is changed, so any thread may ask."""
        out, first, pairs = [0] * axis.buckets, axis.first, self._pairs
        factor = self._factor(axis)
        for place in range(0, len(pairs), 2):
            bucket = pairs[place] // factor - first
            if 0 <= bucket < len(out):
                out[bucket] += pairs[place + 1]
        return out

    def between(self, axis: Axis, first: int, last: int) -> int:
        """The events in some buckets of an axis, `last` included. Nothing is changed, as above."""
        factor, pairs = self._factor(axis), self._pairs
        low, high = max(first, axis.first) * factor, (last + 1) * factor
        return sum(pairs[at + 1] for at in range(0, len(pairs), 2) if low <= pairs[at] < high)

    def change(self, axis: Axis) -> tuple[int, int]:
        """The events in the last part of an axis, and those in all parts before it.

        Nothing is changed, as above.
        """
        pairs, factor = self._pairs, self._factor(axis)
        bound, first = axis.recent * factor, axis.first * factor
        recent, gone, place = 0, 0, len(pairs)
        while place and pairs[place - 2] >= bound:
            recent += pairs[place - 1]
            place -= 2
        while gone < place and pairs[gone] < first:
            gone += 2
        return recent, sum(pairs[gone + 1 : place : 2])

    def _factor(self, axis: Axis) -> int:
        """How many of these buckets are one of an axis that has grown."""
        return axis.width // self._width if self._width else 1

    def _add(self, first: int, bucket: int, events: int) -> None:
        if bucket < first:
            self.before += events
            return
        pairs = self._pairs
        place = len(pairs)
        while place and pairs[place - 2] > bucket:
            place -= 2
        if place and pairs[place - 2] == bucket:
            pairs[place - 1] += events
        else:
            pairs[place:place] = array("q", (bucket, events))

    def _settle(self, axis: Axis) -> None:
        """Follow an axis that has grown or slid."""
        pairs = self._pairs
        if self._width != axis.width:
            if pairs:
                factor = axis.width // self._width
                old, self._pairs = pairs, array("q")
                for place in range(0, len(old), 2):
                    self._add(axis.first, old[place] // factor, old[place + 1])
                pairs = self._pairs
            self._width = axis.width
        gone, first = 0, axis.first
        while gone < len(pairs) and pairs[gone] < first:
            self.before += pairs[gone + 1]
            gone += 2
        if gone:
            del pairs[:gone]

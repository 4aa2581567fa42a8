"""Snapshots of the metrics, now and over the last minute, for the status page.

Counters and histograms only grow, so a rate takes two snapshots. `RecentMetrics` keeps one a second
for a minute, each summed over the labels whose values come from data: its size grows with the
pipelines, not with topics, partitions or reasons. Nothing is done per event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from stream_dedup.metrics import BOUNDS, COUNTERS, METRICS, Counter, Gauge, Histogram

SNAPSHOTS = 61
"""Snapshots kept: one a second makes the last minute."""

Values = tuple[str, ...]
"""The values of a metric's labels, in the order of `METRICS`."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a histogram has observed.

    Attributes:
        bounds_s: its buckets' upper bounds in seconds, ascending, without infinity.
        counts: observations in each bucket, and past the last bound.
        total_s: their sum.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float

    @classmethod
    def none(cls, name: Histogram) -> Distribution:
        """A distribution without observations."""
        bounds_s = METRICS[name].bounds_s
        return cls(bounds_s, (0,) * (len(bounds_s) + 1), 0.0)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def plus(self, other: Distribution, sign: int = 1) -> Distribution:
        """The sum of both, or with a sign of -1 the difference."""
        pairs = zip(self.counts, other.counts, strict=True)
        counts = tuple(mine + sign * theirs for mine, theirs in pairs)
        return Distribution(self.bounds_s, counts, self.total_s + sign * other.total_s)

    def quantile_s(self, share: float) -> float:
        """The quantile as Prometheus estimates it: linear within a bucket.

        >>> Distribution((1.0, 2.0), (5, 10, 0), 18.0).quantile_s(0.5)
        1.25

        Returns:
            NaN without observations; infinity past the last bound.
        """
        rank, seen, low_s = share * self.count, 0, 0.0
        if not self.count:
            return math.nan
        for bound_s, count in zip(self.bounds_s, self.counts, strict=False):
            if count and seen + count >= rank:
                return low_s + (bound_s - low_s) * (rank - seen) / count
            seen, low_s = seen + count, bound_s
        return math.inf


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All metrics at one moment, or how much they grew between two.

    Attributes:
        values: counters and gauges.
        distributions: histograms.
    """

    values: Mapping[str, Mapping[Values, float]]
    distributions: Mapping[str, Mapping[Values, Distribution]]

    def value(self, name: Counter | Gauge, **labels: str) -> float:
        """The sum of the series that have these labels; 0 when there is none."""
        return sum(value for _, value in _chosen(self.values, name, labels))

    def by(self, name: Counter | Gauge, *by: str, **labels: str) -> dict[Values, float]:
        """The sums of the series that have these labels, grouped by others."""
        places = [METRICS[name].labels.index(label) for label in by]
        sums: dict[Values, float] = {}
        for values, value in _chosen(self.values, name, labels):
            key = tuple(values[place] for place in places)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def seconds(self, name: Histogram, **labels: str) -> Distribution:
        """The sum of the histogram's series that have these labels."""
        total = Distribution.none(name)
        for _, distribution in _chosen(self.distributions, name, labels):
            total = total.plus(distribution)
        return total

    def since(self, earlier: Snapshot) -> Snapshot:
        """How much counters and histograms grew."""
        values: dict[str, dict[Values, float]] = {}
        for name, of in self.values.items():
            before = earlier.values.get(name, {})
            values[name] = {key: value - before.get(key, 0.0) for key, value in of.items()}
        distributions: dict[str, dict[Values, Distribution]] = {}
        for name, observed in self.distributions.items():
            seen = earlier.distributions.get(name, {})
            distributions[name] = {
                key: each.plus(seen[key], -1) if key in seen else each
                for key, each in observed.items()
            }
        return Snapshot(values, distributions)


def _chosen(
    of: Mapping[str, Mapping[Values, _T]], name: str, labels: Mapping[str, str]
) -> Iterator[tuple[Values, _T]]:
    have = METRICS[name].labels
    wanted = [(have.index(label), value) for label, value in labels.items()]
    for values, each in of.get(name, {}).items():
        if all(values[place] == value for place, value in wanted):
            yield values, each


class TimedSnapshot(NamedTuple):
    """The counters and histograms at one moment."""

    at_s: float
    snapshot: Snapshot


class Growth(NamedTuple):
    """How much the counters and histograms grew from the oldest snapshot kept to the newest.

    Attributes:
        seconds: the time between the two; 0 before there are two.
        grown: the differences.
        age_s: how long ago the newest was taken.
    """

    seconds: float
    grown: Snapshot
    age_s: float = 0.0


class RecentMetrics:
    """The snapshots of the last minute. One thread takes them, any thread may read them.

    Args:
        take: takes a snapshot of all metrics.
        now_s: seconds on a monotonic clock.
    """

    def __init__(self, take: Callable[[], Snapshot], now_s: Callable[[], float]) -> None:
        self._take = take
        self._now_s = now_s
        self._kept: tuple[TimedSnapshot, ...] = ()

    def now(self) -> Snapshot:
        """All current values."""
        return self._take()

    def update(self) -> None:
        """Take a snapshot and drop the oldest. Call it once a second."""
        newest = TimedSnapshot(self._now_s(), _summed(self._take()))
        self._kept = (*self._kept[-SNAPSHOTS + 1 :], newest)  # one assignment: others read it

    def growth(self) -> Growth:
        """How much grew over the time that is kept."""
        kept = self._kept
        if len(kept) < 2:
            return Growth(0.0, Snapshot({}, {}))
        first, last = kept[0], kept[-1]
        age_s = max(0.0, self._now_s() - last.at_s)
        return Growth(last.at_s - first.at_s, last.snapshot.since(first.snapshot), age_s)

    def rates(self, name: Counter, **labels: str) -> list[float]:
        """By how much a counter grew a second, between each two snapshots.

        Labels whose values come from data cannot be chosen by.
        """
        known = [(each.at_s, each.snapshot.value(name, **labels)) for each in self._kept]
        return [
            (value - before) / (at_s - before_s)
            for (before_s, before), (at_s, value) in pairwise(known)
            if at_s > before_s
        ]


def _summed(snapshot: Snapshot) -> Snapshot:
    """The counters summed over the labels whose values come from data, and the histograms.

    Such a label has an empty value, so that the others keep their places.
    """
    values: dict[str, dict[Values, float]] = {}
    for name, of in snapshot.values.items():
        if name not in COUNTERS:
            continue
        free = [label in BOUNDS for label in METRICS[name].labels]
        sums = values[name] = {}
        for key, value in of.items():
            kept = tuple("" if f else v for f, v in zip(free, key, strict=True))
            sums[kept] = sums.get(kept, 0.0) + value
    return Snapshot(values, snapshot.distributions)

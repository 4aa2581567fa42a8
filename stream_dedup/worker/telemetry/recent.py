"""What the metrics say, now and in the last minute: for who looks at a worker without Prometheus.

Counters and histograms only grow, so that a rate takes two readings. `Recent` keeps one a second,
no more than a minute's, each summed over the labels whose values come from data: what it holds
grows with the pipelines, not with topics, partitions or reasons. Nothing is done for an event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from stream_dedup.metrics import BOUNDS, COUNTERS, METRICS, Counter, Gauge, Histogram

READINGS = 61
"""Kept: one a second makes the last minute."""

Values = tuple[str, ...]
"""The values of a metric's labels, in the order of `METRICS`."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Times:
    """What a histogram has observed.

    Attributes:
        bounds_s: its buckets' upper bounds in seconds, ascending, without infinity.
        counts: how many lie in each bucket, and past the last bound.
        total_s: their sum.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float

    @classmethod
    def none(cls, name: Histogram) -> Times:
        """Nothing was observed yet."""
        bounds_s = METRICS[name].bounds_s
        return cls(bounds_s, (0,) * (len(bounds_s) + 1), 0.0)

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)

    def plus(self, other: Times, sign: int = 1) -> Times:
        """Both together, or with a sign of -1 what is left without the other."""
        pairs = zip(self.counts, other.counts, strict=True)
        counts = tuple(mine + sign * theirs for mine, theirs in pairs)
        return Times(self.bounds_s, counts, self.total_s + sign * other.total_s)

    def quantile_s(self, share: float) -> float:
        """The seconds that a share of them stays below, as Prometheus estimates it.

        Within a bucket they are taken to be spread evenly.

        >>> Times((1.0, 2.0), (5, 10, 0), 18.0).quantile_s(0.5)
        1.25

        Returns:
            NaN if there are none; infinity past the last bound, where nothing is known.
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
class Numbers:
    """All metrics at one moment, or how much they grew between two.

    Attributes:
        values: counters and gauges.
        times: histograms.
    """

    values: Mapping[str, Mapping[Values, float]]
    times: Mapping[str, Mapping[Values, Times]]

    def value(self, name: Counter | Gauge, **labels: str) -> float:
        """The sum of the series that have these labels; 0 when there is none."""
        return sum(value for _, value in _chosen(self.values, name, labels))

    def by(self, name: Counter | Gauge, *by: str, **labels: str) -> dict[Values, float]:
        """The series that have these labels, summed up by others."""
        places = [METRICS[name].labels.index(label) for label in by]
        sums: dict[Values, float] = {}
        for values, value in _chosen(self.values, name, labels):
            key = tuple(values[place] for place in places)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def seconds(self, name: Histogram, **labels: str) -> Times:
        """What the series that have these labels observed together."""
        all_of_it = Times.none(name)
        for _, times in _chosen(self.times, name, labels):
            all_of_it = all_of_it.plus(times)
        return all_of_it

    def since(self, earlier: Numbers) -> Numbers:
        """How much counters and histograms grew."""
        values: dict[str, dict[Values, float]] = {}
        for name, of in self.values.items():
            before = earlier.values.get(name, {})
            values[name] = {key: value - before.get(key, 0.0) for key, value in of.items()}
        times: dict[str, dict[Values, Times]] = {}
        for name, observed in self.times.items():
            seen = earlier.times.get(name, {})
            times[name] = {
                key: each.plus(seen[key], -1) if key in seen else each
                for key, each in observed.items()
            }
        return Numbers(values, times)


def _chosen(
    of: Mapping[str, Mapping[Values, _T]], name: str, labels: Mapping[str, str]
) -> Iterator[tuple[Values, _T]]:
    have = METRICS[name].labels
    wanted = [(have.index(label), value) for label, value in labels.items()]
    for values, each in of.get(name, {}).items():
        if all(values[place] == value for place, value in wanted):
            yield values, each


class Reading(NamedTuple):
    """What the counters and histograms said at one moment."""

    at_s: float
    numbers: Numbers


class Lately(NamedTuple):
    """What happened in the time before the last reading.

    Attributes:
        seconds: how long it was; 0 before there are two readings.
        grown: how much the counters and histograms grew.
        age_s: how long ago the last reading was.
    """

    seconds: float
    grown: Numbers
    age_s: float = 0.0


class Recent:
    """The readings of the last minute. One thread reads the metrics, any may ask.

    Args:
        numbers: reads all metrics.
        now_s: seconds on a clock that never goes back.
    """

    def __init__(self, numbers: Callable[[], Numbers], now_s: Callable[[], float]) -> None:
        self._numbers = numbers
        self._now_s = now_s
        self._kept: tuple[Reading, ...] = ()

    def now(self) -> Numbers:
        """All metrics as they stand."""
        return self._numbers()

    def read(self) -> None:
        """Take a reading, and forget the oldest. To be called once a second."""
        reading = Reading(self._now_s(), _summed(self._numbers()))
        self._kept = (*self._kept[-READINGS + 1 :], reading)  # whole at any moment: see `lately`

    def lately(self) -> Lately:
        """How much grew between the oldest reading and the newest."""
        kept = self._kept
        if len(kept) < 2:
            return Lately(0.0, Numbers({}, {}))
        first, last = kept[0], kept[-1]
        age_s = max(0.0, self._now_s() - last.at_s)
        return Lately(last.at_s - first.at_s, last.numbers.since(first.numbers), age_s)

    def a_second(self, name: Counter, **labels: str) -> list[float]:
        """How much a counter grew a second, from each reading to the next.

        Labels whose values come from data cannot be chosen by.
        """
        known = [(reading.at_s, reading.numbers.value(name, **labels)) for reading in self._kept]
        return [
            (value - before) / (at_s - before_s)
            for (before_s, before), (at_s, value) in pairwise(known)
            if at_s > before_s
        ]


def _summed(numbers: Numbers) -> Numbers:
    """The counters, without the labels whose values come from data, and the histograms.

    What is left out has an empty value, so that the others keep their places.
    """
    values: dict[str, dict[Values, float]] = {}
    for name, of in numbers.values.items():
        if name not in COUNTERS:
            continue
        free = [label in BOUNDS for label in METRICS[name].labels]
        sums = values[name] = {}
        for key, value in of.items():
            kept = tuple("" if f else v for f, v in zip(free, key, strict=True))
            sums[kept] = sums.get(kept, 0.0) + value
    return Numbers(values, numbers.times)

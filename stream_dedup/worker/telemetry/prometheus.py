"""Metrics in Prometheus's and OpenMetrics' text formats. The only module to import the client.

The client's own counters take 1 to 2 µs a call, which is too much a batch stage. Here a number is
a cell that is found by one look-up of the name and the labels' values; the client only writes what
is in the cells when it is asked. A call costs some 0.5 µs.

What comes from data cannot make the page grow without end or break it: of a label in
`metrics.BOUNDS` so many values are shown, the rest as ``other``; what is not text is escaped.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter as ClusterDelta
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from stream_dedup.metrics import (
    BOUNDS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    OTHER,
    PREFIX,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metric,
    Series,
    checked,
    grown,
    matches,
)
from stream_dedup.worker.telemetry.recent import Numbers, Times

MAX_LABEL_CHARS = 249
"""Characters shown of a label's value: as many as a topic's name may have."""

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class _Cell:
    """The number of a counter or gauge."""

    __slots__ = ("value",)

    def __init__(self, _: Metric) -> None:
        self.value = 0.0


class _Buckets:
    """What a histogram has observed: how many up to each bound and past the last, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, metric: Metric) -> None:
        self.bounds = metric.bounds_s
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """(upper bound, how many up to it), as Prometheus has it."""
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            yield bound, seen


_C = TypeVar("_C", bound=_Cell | _Buckets)


class _Table(Generic[_C]):
    """The cells of one kind of metrics.

    `found` leads from a call's name and values, as they were given, to the cell: ``3`` and ``"3"``
    are two ways to one. `series` leads from the values as they are shown. Calls past a bound are
    not entered in `found`, which would grow with them.

    Args:
        metrics: the kind's metrics.
        make: makes a cell.
        folds: whether values past a bound go into a series of their own, or nowhere.
    """

    def __init__(
        self, metrics: Mapping[Any, Metric], make: Callable[[Metric], _C], *, folds: bool = True
    ) -> None:
        self.metrics = metrics
        self.found: dict[tuple[Label, ...], _C] = {}
        self.series: dict[Series, _C] = {}
        self._make = make
        self._folds = folds
        self._values: dict[tuple[str, str], ClusterDelta[str]] = {}

    def enter(self, name: str, labels: dict[str, Label]) -> tuple[_C | None, bool]:
        """The cell of a call that `found` does not know, and whether that was past a bound."""
        values = [_text(value) for value in checked(self.metrics, name, labels)]
        fits = [self._fits(name, *pair) for pair in zip(labels, values, strict=True)]
        folded = not all(fits)
        if folded and not self._folds:
            return None, True
        series = (name, *(v if fit else OTHER for v, fit in zip(values, fits, strict=True)))
        cell = self.series.get(series)
        if cell is None:
            cell = self.series[series] = self._make(self.metrics[name])
            for label, value in zip(labels, series[1:], strict=True):
                self._values.setdefault((name, label), ClusterDelta())[value] += 1
        if not folded:
            self.found[name, *labels.values()] = cell
        return cell, folded

    def _fits(self, name: str, label: str, value: str) -> bool:
        bound = BOUNDS.get(label)
        known = self._values.get((name, label), ())
        return bound is None or value in known or len(known) < bound

    def remove(self, name: str, labels: dict[str, Label]) -> None:
        """Forget the series that have these labels."""
        gone = [series for series in self.series if matches(series, name, labels)]
        cells = {id(self.series.pop(series)) for series in gone}
        self.found = {call: cell for call, cell in self.found.items() if id(cell) not in cells}
        for series in gone:
            for label, value in zip(self.metrics[name].labels, series[1:], strict=True):
                delta = self._values[name, label]
                delta[value] -= 1
                if not delta[value]:
                    del delta[value]


class PrometheusMetrics:
    """The worker's metrics, with those of the process, the interpreter and its garbage collector.

    Any thread may call it: a call, and the copying of all numbers, each hold the one lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters = _Table(COUNTERS, _Cell)
        self._gauges = _Table(GAUGES, _Cell, folds=False)
        self._histograms = _Table(HISTOGRAMS, _Buckets)
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(self.families))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        if not value >= 0:
            grown(name, value)
        with self._lock:
            cell = self._counters.found.get((name, *labels.values()))
            if cell is None:
                cell, folded = self._counters.enter(name, labels)
                assert cell is not None
                if folded:
                    self._folded(name)
            cell.value += value

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        with self._lock:
            cell = self._gauges.found.get((name, *labels.values()))
            if cell is None:
                cell, _ = self._gauges.enter(name, labels)
                if cell is None:
                    self._folded(name)
                    return
            cell.value = value

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        with self._lock:
            cell = self._histograms.found.get((name, *labels.values()))
            if cell is None:
                cell, folded = self._histograms.enter(name, labels)
                assert cell is not None
                if folded:
                    self._folded(name)
            cell.counts[bisect_left(cell.bounds, seconds)] += 1
            cell.total += seconds

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        with self._lock:
            if name in COUNTERS:
                self._counters.remove(name, labels)
            elif name in GAUGES:
                self._gauges.remove(name, labels)
            else:
                self._histograms.remove(name, labels)

    def _folded(self, name: str) -> None:
        cell, _ = self._counters.enter("folded_labels_total", {"metric": PREFIX + name})
        assert cell is not None
        cell.value += 1

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """What ``/metrics`` answers.

        Args:
            accept: the request's header: OpenMetrics for who wants it, else Prometheus's format.

        Returns:
            The content type and the text.
        """
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def numbers(self) -> Numbers:
        """All numbers as they stand, for who asks within the worker."""
        values: dict[str, dict[tuple[str, ...], float]] = {}
        times: dict[str, dict[tuple[str, ...], Times]] = {}
        with self._lock:
            for table in (self._counters, self._gauges):
                for (name, *labels), cell in table.series.items():
                    values.setdefault(name, {})[tuple(labels)] = cell.value
            for (name, *labels), buckets in self._histograms.series.items():
                seen = Times(buckets.bounds, tuple(buckets.counts), buckets.total)
                times.setdefault(name, {})[tuple(labels)] = seen
        return Numbers(values, times)

    def families(self) -> list[Family]:
        """All numbers as they stand, as the client writes them; metrics without series too."""
        with self._lock:
            counts = [(series, cell.value) for series, cell in self._counters.series.items()]
            levels = [(series, cell.value) for series, cell in self._gauges.series.items()]
            times = [
                (series, list(cell.cumulative()), cell.total)
                for series, cell in self._histograms.series.items()
            ]
        counters: dict[str, CounterMetricFamily] = {}
        for counter, (labels, text, _) in COUNTERS.items():
            counters[counter] = CounterMetricFamily(PREFIX + counter, text, labels=labels)
        gauges: dict[str, GaugeMetricFamily] = {}
        for gauge, (labels, text, _) in GAUGES.items():
            gauges[gauge] = GaugeMetricFamily(PREFIX + gauge, text, labels=labels)
        histograms: dict[str, HistogramMetricFamily] = {}
        for histogram, (labels, text, _) in HISTOGRAMS.items():
            histograms[histogram] = HistogramMetricFamily(PREFIX + histogram, text, labels=labels)
        for (name, *values), value in counts:
            counters[name].add_metric(values, value)
        for (name, *values), value in levels:
            gauges[name].add_metric(values, value)
        for (name, *values), buckets, total in times:
            histograms[name].add_metric(values, buckets, total)
        return [*counters.values(), *gauges.values(), *histograms.values()]


class _Collector(Collector):
    """What the client asks for the numbers."""

    def __init__(self, families: Callable[[], list[Family]]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families()


def _text(value: str) -> str:
    """A label's value as text that every encoder takes: no half characters, not too long."""
    return value[:MAX_LABEL_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")

"""Every metric's name, labels and help, and the port that takes their values.

The names are in one `Literal` for each kind, so that a type checker finds a misspelt one. Labels
and help are in one table, `METRICS`, from which Prometheus's exposition and ``docs/metrics.md`` are
made. The code uses short names; exported names begin with ``stream_dedup_``.

The conventions are Prometheus's: counters end in ``_total`` and only grow, times are in seconds,
a label has few values. Labels are given in the order of the table. For a label whose values come
from data (`BOUNDS`), the adapter counts values past the bound as ``other``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

PREFIX = "stream_dedup_"

Counter = Literal[
    # events coming in
    "events_total",
    "event_bytes_total",
    "clamped_total",
    # decisions
    "decisions_total",
    "passed_total",
    "near_cache_hits_total",
    "matches_total",
    "rule_events_total",
    "withheld_events_total",
    "redelivered_total",
    "replayed_total",
    # records going out
    "outputs_total",
    "dead_letters_total",
    "pattern_events_total",
    # the consumer group
    "commits_total",
    "commit_failures_total",
    "rebalances_total",
    "partition_restarts_total",
    "topics_reset_total",
    # the services
    "retries_total",
    # the index
    "refused_commits_total",
    "index_resets_total",
    "index_rollbacks_total",
    "truncated_searches_total",
    "clusters_evicted_total",
    "clusters_expired_total",
    "clusters_merged_total",
    # these metrics
    "folded_labels_total",
]

Gauge = Literal[
    # how far behind
    "lag_events",
    "backlog_events",
    "stalled_seconds",
    # the worker's state
    "assigned_partitions",
    "paused_partitions",
    "near_cache_entries",
    "mirror_entries",
    # the index's state
    "clusters",
    "fingerprints",
    "waiting_clusters",
    "stream_time_seconds",
    "stream_time_lag_seconds",
    # the process
    "ready",
    "info",
]

Histogram = Literal[
    # one batch
    "stage_seconds",
    "redis_seconds",
    "kernel_seconds",
    # from the record's timestamp
    "delivery_delay_seconds",
]

Label = str | int

BOUNDS = {"topic": 500, "reason": 50}
"""Labels whose values come from data, and how many values a metric shows of each."""

OTHER = "other"
"""The value for all those past the bound in counters and histograms; gauges omit them."""

FIXED = {
    "stage": ("poll", "hash", "decide", "shape", "deliver", "commit", "emit"),
    "decision": ("new", "duplicate", "passed"),
    "kind": ("event", "summary", "dead_letter", "pattern"),
    "change": ("new", "spike", "vanished"),
    "rule": ("exact", "learned", "words", "fingerprint", "new"),
    "rule_kind": (
        *("merge", "split", "never_merge", "always_variable", "never_variable", "name", "mute"),
        "keep",
    ),
    "limit": ("mute", "keep"),
    "cause": ("broker", "index", "index_full", "index_reset"),
    "step": ("poll", "decide", "deliver", "commit", "emit"),
}
"""Labels that have a fixed set of values."""

_WORK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DELAY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Metric(NamedTuple):
    """The description of a metric.

    Attributes:
        labels: its labels' names, in the order in which calls give them.
        help: one sentence.
        bounds_s: a histogram's upper bounds in seconds, ascending, without infinity.
    """

    labels: tuple[str, ...]
    help: str
    bounds_s: tuple[float, ...] = ()


_P = ("pipeline",)

COUNTERS: dict[Counter, Metric] = {
    "events_total": Metric((*_P, "topic"), "Events read and counted, each once."),
    "event_bytes_total": Metric((*_P, "topic"), "Bytes of the values of those events."),
    "clamped_total": Metric(_P, "Events too far in the future, whose time was set to the limit."),
    "decisions_total": Metric((*_P, "decision"), "Events decided, each once, by decision."),
    "passed_total": Metric(
        (*_P, "reason"),
        "Events written without a decision, or changed because the output topic refused them.",
    ),
    "near_cache_hits_total": Metric(
        _P, "Events that the near cache decided, without asking the index."
    ),
    "matches_total": Metric(
        (*_P, "rule"), "Events that the index decided, by the rule that found the cluster."
    ),
    "rule_events_total": Metric(
        (*_P, "rule_kind"),
        "Events to which rules that people made applied, redelivered events included.",
    ),
    "withheld_events_total": Metric(
        (*_P, "limit"),
        "Events of delivered batches that were not written, because rules mute or limit patterns.",
    ),
    "redelivered_total": Metric(_P, "Events delivered again, with the same decision as before."),
    "replayed_total": Metric(
        _P, "Events delivered again and decided again, because the journal no longer held them."
    ),
    "outputs_total": Metric((*_P, "kind"), "Records delivered to Kafka."),
    "dead_letters_total": Metric((*_P, "reason"), "Events that could not be processed."),
    "pattern_events_total": Metric(
        (*_P, "change"),
        "Events about patterns that were sent: new patterns, spikes, and patterns that vanished.",
    ),
    "commits_total": Metric(_P, "Commits of offsets, or of transactions."),
    "commit_failures_total": Metric(_P, "Commits that failed; their events are read again."),
    "rebalances_total": Metric(_P, "Rebalances of the consumer group."),
    "partition_restarts_total": Metric(
        (*_P, "reason"), "Restarts of a partition from its committed offset."
    ),
    "topics_reset_total": Metric(
        _P, "Partitions counted from their beginning: the topic was recreated or truncated."
    ),
    "retries_total": Metric(
        (*_P, "cause"),
        "Retries after an error, by cause: `broker`: Kafka did not answer or refused; `index`: "
        "Redis was away for longer than `index.within_s`; `index_full`: its memory was full; "
        "`index_reset`: its data was lost.",
    ),
    "refused_commits_total": Metric(
        _P,
        "Commits that the index refused, because a cluster had closed after it was found and "
        "before the commit. The events are decided again.",
    ),
    "index_resets_total": Metric(_P, "How often the index had lost all its data."),
    "index_rollbacks_total": Metric(
        _P, "How often the index had lost the last writes of a partition, as after a failover."
    ),
    "truncated_searches_total": Metric(
        _P,
        "Searches that were cut short by a limit on candidates or on work: a near event may have"
        " been missed.",
    ),
    "clusters_evicted_total": Metric(_P, "Clusters closed early because the index was full."),
    "clusters_expired_total": Metric(_P, "Clusters closed because their window had passed."),
    "clusters_merged_total": Metric(
        _P, "Clusters that merged into another and whose last summary this worker emitted."
    ),
    "folded_labels_total": Metric(
        ("metric",),
        "Values shown as `other`, or omitted from a gauge, because a label had too many values.",
    ),
}

GAUGES: dict[Gauge, Metric] = {
    "lag_events": Metric(
        (*_P, "topic", "partition"),
        "Events of the partition that are not delivered yet, up to the end that the broker gives.",
    ),
    "backlog_events": Metric(_P, "Events read and not yet delivered."),
    "stalled_seconds": Metric(
        (*_P, "step"),
        "How long a step has not moved although events wait for it, in the partition where this "
        "is longest; 0 if the step has nothing to do. `emit` sends summaries.",
    ),
    "assigned_partitions": Metric(_P, "Partitions assigned to this worker."),
    "paused_partitions": Metric(_P, "Partitions paused at a batch that cannot be read."),
    "near_cache_entries": Metric(_P, "Exact hashes in the near cache."),
    "mirror_entries": Metric(
        _P,
        "Fingerprints in this worker's copy of the index, including some of closed clusters; "
        "0 while Redis does the search.",
    ),
    "clusters": Metric(_P, "Live clusters in the index, of all workers together."),
    "fingerprints": Metric(_P, "Fingerprints in the index, aliases included."),
    "waiting_clusters": Metric(_P, "Closed clusters whose final summary is not confirmed yet."),
    "stream_time_seconds": Metric(
        _P, "Stream time: the event time that all partitions have reached, as Unix time."
    ),
    "stream_time_lag_seconds": Metric(
        _P, "The worker's clock minus stream time; negative if event times are in the future."
    ),
    "ready": Metric((), "1 if the worker is ready, else 0; `/readyz` gives the reasons."),
    "info": Metric(("version", "kernel"), "Always 1; its labels are the version and the kernel."),
}

HISTOGRAMS: dict[Histogram, Metric] = {
    "stage_seconds": Metric((*_P, "stage"), "Time of one batch in one stage.", _WORK),
    "redis_seconds": Metric(_P, "Time of one script call to Redis, including retries.", _WORK),
    "kernel_seconds": Metric(_P, "Time of one batch in the kernel, without waiting.", _WORK),
    "delivery_delay_seconds": Metric(
        _P,
        "Time from the timestamp of the oldest record of a batch to the delivery of the batch.",
        _DELAY,
    ),
}

METRICS: dict[str, Metric] = dict(chain(COUNTERS.items(), GAUGES.items(), HISTOGRAMS.items()))
"""All of them by name."""


class Metrics(Protocol):
    """Takes values. Any thread may call it; it does no I/O and holds no lock for long.

    A call gives all labels of the metric, in the order of the table.

    Raises:
        ValueError: a name, label or value is not in the table, or a counter would shrink. This is
            a bug of the caller, never caused by data.
    """

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        """Add to a counter; 0 makes the series appear."""

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        """Set a gauge."""

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        """Add an observation to a histogram."""

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        """Remove all series with these labels, for example of a revoked partition.

        Some of the labels are enough, in any order; without any, all series are removed.
        """


class NoMetrics:
    """Drops all values."""

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None: ...
    def set(self, name: Gauge, value: float, **labels: Label) -> None: ...
    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None: ...
    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None: ...


Series = tuple[str, ...]
"""A metric's name and its labels' values, in the order of the table."""


class MemoryMetrics:
    """Keeps the values and refuses every misuse; for tests.

    >>> metrics = MemoryMetrics()
    >>> metrics.add("events_total", 500, pipeline="main", topic="logs")
    >>> metrics.add("events_total", 20, pipeline="main", topic="audit")
    >>> metrics.value("events_total", topic="logs"), metrics.value("events_total")
    (500, 520)

    Attributes:
        values: counters and gauges.
        seconds: the observations of histograms, in order.
    """

    def __init__(self) -> None:
        self.values: dict[Series, float] = {}
        self.seconds: defaultdict[Series, list[float]] = defaultdict(list)

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        series = (name, *check_labels(COUNTERS, name, labels))
        check_increase(name, value)
        self.values[series] = self.values.get(series, 0) + value

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        self.values[name, *check_labels(GAUGES, name, labels)] = value

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        self.seconds[name, *check_labels(HISTOGRAMS, name, labels)].append(seconds)

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        for kept in (self.values, self.seconds):
            for series in [series for series in kept if matches(series, name, labels)]:
                del kept[series]

    def value(self, name: Counter | Gauge, **labels: Label) -> float:
        """The sum of a counter's or gauge's series that have these labels; 0 when there is none."""
        return sum(n for series, n in self.values.items() if matches(series, name, labels))

    def observed(self, name: Histogram, **labels: Label) -> list[float]:
        """The observations of a histogram's series that have these labels."""
        every = self.seconds.items()
        return [s for series, seconds in every if matches(series, name, labels) for s in seconds]


def matches(series: Series, name: str, labels: dict[str, Label]) -> bool:
    """Whether a series is of the metric and has these labels."""
    have = METRICS[name].labels
    return series[0] == name and all(
        series[1 + have.index(label)] == str(value) for label, value in labels.items()
    )


def check_labels(
    table: Mapping[Any, Metric], name: str, labels: dict[str, Label]
) -> tuple[str, ...]:
    """The labels' values as text, of a metric in the table.

    Raises:
        ValueError: there is no such metric, or it has other labels, or one has another value.
    """
    if name not in table:
        raise ValueError(f"there is no such metric as {name!r}, or it is of another kind")
    expected = table[name].labels
    if tuple(labels) != expected:
        raise ValueError(f"{name} takes the labels {expected}, in this order, not {tuple(labels)}")
    for label, value in labels.items():
        if label in FIXED and value not in FIXED[label]:
            raise ValueError(f"{name}: {label} is one of {FIXED[label]}, not {value!r}")
    return tuple(map(str, labels.values()))


def check_increase(name: str, value: float) -> None:
    """Raise ValueError if a counter would shrink."""
    if not value >= 0:
        raise ValueError(f"{name} is a counter, which cannot grow by {value}")


def start_at_zero(
    metrics: Metrics, pipeline: str, known: Mapping[Counter, Iterable[str]] | None = None
) -> None:
    """Show at 0 all series of a pipeline's counters that are known in advance.

    Prometheus sees no increase in a counter whose first value is 1: an alert on it would not fire.

    Args:
        metrics: takes the values.
        pipeline: the pipeline's name.
        known: counters with another label, and values of that label.
    """
    for name, (labels, _, _) in COUNTERS.items():
        if labels == _P:
            metrics.add(name, 0, pipeline=pipeline)
        elif labels[0] == "pipeline" and labels[1] in FIXED:
            for value in FIXED[labels[1]]:
                metrics.add(name, 0, **{"pipeline": pipeline, labels[1]: value})
    for name, values in (known or {}).items():
        for value in values:
            metrics.add(name, 0, **{"pipeline": pipeline, COUNTERS[name].labels[1]: value})

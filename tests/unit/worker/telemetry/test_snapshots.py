"""What is kept of the last minute, and what is made of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.metrics import HISTOGRAMS, start_at_zero
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.snapshots import SNAPSHOTS, Distribution, RecentMetrics


class Watched:
    """Metrics whose clock the test sets."""

    def __init__(self) -> None:
        self.metrics = PrometheusMetrics()
        self.now_s = 1_000.0
        self.recent = RecentMetrics(self.metrics.snapshot, lambda: self.now_s)

    def second(self, events: int = 0, *, topic: str = "t", pipeline: str = "p") -> None:
        """A second goes by, in which events come."""
        self.metrics.add("events_total", events, pipeline=pipeline, topic=topic)
        self.now_s += 1
        self.recent.update()


# ------------------------------------------------------------ numbers


def test_numbers_are_summed_by_the_labels_that_are_chosen() -> None:
    metrics = PrometheusMetrics()
    for pipeline, topic, count in (("p", "a", 1), ("p", "b", 20), ("q", "a", 300)):
        metrics.add("events_total", count, pipeline=pipeline, topic=topic)
    metrics.set("ready", 1)
    metrics.observe("stage_seconds", 0.002, pipeline="p", stage="poll")
    metrics.observe("stage_seconds", 0.2, pipeline="p", stage="hash")
    numbers = metrics.snapshot()
    assert numbers.value("events_total") == 321
    assert numbers.value("events_total", pipeline="p") == 21
    assert numbers.value("events_total", pipeline="p", topic="b") == 20
    assert numbers.value("events_total", pipeline="none") == 0
    assert numbers.value("ready") == 1
    assert numbers.by("events_total", "pipeline") == {("p",): 21, ("q",): 300}
    assert numbers.by("events_total", "topic", "pipeline", pipeline="p") == {
        ("b", "p"): 20,
        ("a", "p"): 1,
    }
    assert numbers.by("clusters", "pipeline") == {}
    assert numbers.seconds("stage_seconds", stage="hash").total_s == 0.2
    both = numbers.seconds("stage_seconds", pipeline="p")
    assert (both.count, both.total_s) == (2, 0.202)
    assert numbers.seconds("redis_seconds").count == 0


def test_numbers_are_a_copy() -> None:
    metrics = PrometheusMetrics()
    metrics.add("events_total", 1, pipeline="p", topic="t")
    metrics.observe("redis_seconds", 1, pipeline="p")
    before = metrics.snapshot()
    metrics.add("events_total", 1, pipeline="p", topic="t")
    metrics.observe("redis_seconds", 1, pipeline="p")
    assert (before.value("events_total"), before.seconds("redis_seconds").count) == (1, 1)
    grown = metrics.snapshot().since(before)
    assert (grown.value("events_total"), grown.seconds("redis_seconds").count) == (1, 1)


# ------------------------------------------------------------ quantiles


def test_a_quantile_is_what_prometheus_would_estimate() -> None:
    times = Distribution((1.0, 2.0, 4.0), (4, 4, 2, 0), 0.0)
    assert [times.quantile_s(share) for share in (0.1, 0.4, 0.5, 0.8, 0.9, 1.0)] == [
        0.25,
        1.0,
        1.25,
        2.0,
        3.0,
        4.0,
    ]


def test_a_quantile_of_nothing_is_nan_and_one_past_the_bounds_is_inf() -> None:
    assert math.isnan(Distribution.none("redis_seconds").quantile_s(0.5))
    assert math.inf == Distribution((1.0,), (1, 9), 0.0).quantile_s(0.5)


@given(st.lists(st.floats(0, 9), min_size=1), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(seconds: list[float], share: float) -> None:
    metrics = PrometheusMetrics()
    for each in seconds:
        metrics.observe("redis_seconds", each, pipeline="p")
    found = metrics.snapshot().seconds("redis_seconds").quantile_s(share)
    true = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    bounds = (0.0, *HISTOGRAMS["redis_seconds"].bounds_s)
    above = next(at for at, bound in enumerate(bounds) if true <= bound)
    assert bounds[max(0, above - 1)] - 1e-9 <= found <= bounds[max(1, above)] + 1e-9


# ------------------------------------------------------------ the last minute


def test_there_is_no_rate_before_there_are_two_readings() -> None:
    watched = Watched()
    assert watched.recent.growth().seconds == 0
    assert watched.recent.rates("events_total", pipeline="p") == []
    watched.second(500)
    assert watched.recent.growth().seconds == 0
    assert watched.recent.growth().grown.value("events_total") == 0


def test_what_grew_is_that_of_the_last_minute_alone() -> None:
    watched = Watched()
    watched.second(1_000_000)
    for _ in range(60):
        watched.second(7)
    lately = watched.recent.growth()
    assert (lately.seconds, lately.grown.value("events_total", pipeline="p")) == (60, 420)
    for _ in range(60):
        watched.second(0)
    lately = watched.recent.growth()
    assert (lately.seconds, lately.grown.value("events_total", pipeline="p")) == (60, 0)
    assert watched.recent.now().value("events_total") == 1_000_420


def test_each_second_has_its_rate_however_long_it_took() -> None:
    watched = Watched()
    watched.second(5)
    watched.second(100)
    watched.now_s += 3  # it was busy
    watched.second(100)
    watched.metrics.add("events_total", 3, pipeline="p", topic="u")
    watched.second(5, pipeline="q")
    assert watched.recent.rates("events_total", pipeline="p") == [100, 25, 3]


def test_a_clock_that_does_not_move_causes_no_division_by_zero() -> None:
    watched = Watched()
    for _ in range(3):
        watched.metrics.add("commits_total", pipeline="p")
        watched.recent.update()
    assert watched.recent.rates("commits_total") == []
    assert watched.recent.growth().seconds == 0


def test_what_comes_into_being_later_grew_from_nothing() -> None:
    watched = Watched()
    watched.second()
    watched.metrics.add("dead_letters_total", 3, pipeline="p", reason="too large")
    watched.metrics.observe("redis_seconds", 0.5, pipeline="p")
    watched.second()
    grown = watched.recent.growth().grown
    assert grown.value("dead_letters_total", pipeline="p") == 3
    assert grown.seconds("redis_seconds", pipeline="p").count == 1


@pytest.mark.parametrize("topics", [1, 300])
def test_what_is_kept_does_not_grow_with_time_topics_or_partitions(topics: int) -> None:
    watched = Watched()
    start_at_zero(watched.metrics, "p")
    for topic in range(topics):
        watched.metrics.set("lag_events", 1, pipeline="p", topic=f"t{topic}", partition=0)
        watched.metrics.add("event_bytes_total", 1, pipeline="p", topic=f"t{topic}")
        watched.metrics.add("events_total", 1, pipeline="p", topic=f"t{topic}")
    for _ in range(2 * SNAPSHOTS):
        watched.second(topic="t0")
    kept = watched.recent._kept
    assert len(kept) == SNAPSHOTS
    assert sum(len(of) for of in kept[-1].snapshot.values.values()) < 50
    assert kept[-1].snapshot.value("events_total", pipeline="p") == topics

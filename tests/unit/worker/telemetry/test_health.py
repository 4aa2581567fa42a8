"""Alive and ready: two questions with two answers."""

from __future__ import annotations

from stream_dedup.metrics import MemoryMetrics
from stream_dedup.worker.telemetry.health import LOOP, START, STUCK_AFTER_S, Health


class Seconds:
    """A clock that does not move."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_begins_alive_and_not_ready() -> None:
    health = Health(now_s=Seconds())
    assert health.alive()
    assert [reason.name for reason in health.reasons()] == [START]
    health.ready(START)
    assert health.reasons() == []


def test_a_loop_that_stops_beating_is_stuck_until_it_beats_again() -> None:
    seconds = Seconds()
    health = Health(now_s=seconds)
    health.ready(START)
    seconds.now += STUCK_AFTER_S - 1
    health.beat()
    seconds.now += STUCK_AFTER_S - 0.1
    assert health.alive()
    seconds.now += 0.2
    assert not health.alive()
    assert abs(health.silent_s() - STUCK_AFTER_S) < 0.2
    assert [reason.name for reason in health.reasons()] == [LOOP]
    health.beat()
    assert health.alive()
    assert health.reasons() == []


def test_reasons_are_set_and_cleared_by_name_and_keep_their_beginning() -> None:
    seconds = Seconds()
    health = Health(now_s=seconds)
    health.ready(START)
    health.not_ready("index", "redis is away")
    seconds.now += 2
    health.not_ready("broker", "kafka is away")
    health.not_ready("index", "redis loads its data")
    seconds.now += 1
    expected = [("index", "redis loads its data", 3.0), ("broker", "kafka is away", 1.0)]
    assert health.reasons() == expected
    health.ready("index")
    health.ready("never given")
    assert [reason.name for reason in health.reasons()] == ["broker"]


def test_the_gauge_ready_follows() -> None:
    metrics = MemoryMetrics()
    health = Health(metrics)
    seen = [metrics.values["ready",]]
    health.not_ready("index", "away")
    health.ready(START)
    seen.append(metrics.value("ready"))
    health.ready("index")
    seen.append(metrics.value("ready"))
    health.not_ready("index", "away")
    seen.append(metrics.value("ready"))
    assert seen == [0, 0, 1, 0]

"""Readiness and metrics follow progress: a broker dead, Redis full or frozen, a topic deleted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.integration.worker.running import Trial, Worker, real_lines, wait_for
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer

LINES = real_lines(400)

QUICK: dict[str, object] = {
    "worker__stalled_after_s": "2s",
    "kafka__session_timeout_s": "10s",
    "kafka__heartbeat_interval_s": "1s",
}

STAYS_S = 20.0
"""How long readiness is watched: longer than the pauses between retries."""

GUARANTEES = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])


def watch(worker: Worker, seconds: float = STAYS_S) -> set[int]:
    """The answers of readiness, asked five times a second."""
    seen = set()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        seen.add(worker.get("/readyz")[0])
        assert worker.get("/healthz")[0] == 200
        time.sleep(0.2)
    return seen


def cpu_s(worker: Worker) -> float:
    """The processor time that a worker has used."""
    text = worker.get("/metrics")[1]
    (line,) = [each for each in text.splitlines() if each.startswith("process_cpu_seconds_total ")]
    return float(line.split()[1])


def true_lag(trial: Trial) -> int:
    """Events that the group has not committed, as an independent client sees them."""
    return sum(trial.kafka.end_offsets(trial.read).values()) - trial.committed()


def test_an_idle_stream_stays_ready(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url)
    with trial.worker(**QUICK) as worker, trial.worker(**QUICK) as other:
        wait_for(lambda: worker.ready() and other.ready(), "both are ready")
        trial.write(LINES[:50])
        wait_for(lambda: trial.committed() == 50, "all is through")
        wait_for(lambda: worker.ready() and other.ready(), "both are ready again")
        assert watch(worker) == {200}
        assert other.get("/readyz")[0] == 200
        assert worker.metric("stalled_seconds") < 2
        assert worker.metric("lag_events") + other.metric("lag_events") == 0


@GUARANTEES
@pytest.mark.parametrize("events", [True, False], ids=["with events", "idle"])
def test_a_dead_broker_is_noticed_until_it_is_back(
    make_kafka: Callable[..., KafkaBroker],
    redis_server: RedisServer,
    guarantee: str,
    *,
    events: bool,
) -> None:
    kafka = make_kafka()
    trial = Trial(kafka, redis_server.url)
    with trial.worker(worker__guarantee=guarantee, **QUICK) as worker:
        wait_for(worker.ready, "it is ready")
        if events:
            trial.write(LINES[:100])
            wait_for(lambda: trial.committed() == 100, "the first events are through")
        kafka.kill()
        wait_for(lambda: not worker.ready(), "it is not ready")
        assert watch(worker) == {503}
        assert worker.metric("ready") == 0
        assert worker.metric("stalled_seconds", step="poll") > 2
        assert worker.metric("retries_total", cause="broker") > 0
        assert "main: poll" in worker.reasons()
        kafka.start()
        wait_for(worker.ready, "it is ready again")
        trial.write(LINES[100:200])
        wait_for(lambda: trial.committed() == (200 if events else 100), "nothing was lost")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_full_redis_is_noticed_and_the_lag_goes_on(
    kafka: Kafka, make_redis: Callable[..., RedisServer]
) -> None:
    redis = make_redis()
    trial = Trial(kafka, redis.url)
    with trial.worker(index__within_s="1s", worker__max_batch_events=10, **QUICK) as worker:
        wait_for(worker.ready, "it is ready")
        trial.write(LINES[:50])
        wait_for(lambda: trial.committed() == 50, "the first events are through")
        redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        redis.command("CONFIG", "SET", "maxmemory", "1")
        trial.write(LINES[50:])
        wait_for(lambda: not worker.ready(), "it is not ready")
        assert watch(worker) == {503}
        assert worker.metric("stalled_seconds", step="decide") > 2
        assert worker.metric("retries_total", cause="index_full") > 0
        wait_for(lambda: worker.metric("lag_events") == true_lag(trial), "the lag is right")
        for _ in range(3):  # it is not read any more: the broker is asked
            trial.write(LINES)
            wait_for(lambda: worker.metric("lag_events") == true_lag(trial) > 0, "it grows")
        redis.command("CONFIG", "SET", "maxmemory", "0")
        wait_for(worker.ready, "it is ready again")
        wait_for(lambda: true_lag(trial) == 0, "nothing was lost")


def test_a_frozen_redis_is_noticed_though_no_events_come(
    kafka: Kafka, make_redis: Callable[..., RedisServer]
) -> None:
    redis = make_redis()
    trial = Trial(kafka, redis.url)
    with trial.worker(index__timeout_s="1s", **QUICK) as worker:
        wait_for(worker.ready, "it is ready")
        redis.pause()
        try:
            wait_for(lambda: "main: index" in worker.reasons(), "it is not ready", within_s=60)
            assert watch(worker) == {503}
            assert worker.metric("stalled_seconds", step="emit") > 2
        finally:
            redis.resume()
        wait_for(worker.ready, "it is ready again")


@GUARANTEES
def test_a_deleted_output_topic_is_noticed_and_costs_little(
    kafka: Kafka, redis_server: RedisServer, guarantee: str
) -> None:
    trial = Trial(kafka, redis_server.url)
    with trial.worker(worker__guarantee=guarantee, **QUICK) as worker:
        wait_for(worker.ready, "it is ready")
        trial.write(LINES[:100])
        wait_for(lambda: trial.committed() == 100, "the first events are through")
        kafka.delete_topic(trial.out)
        trial.write(LINES[100:200])
        wait_for(lambda: not worker.ready(), "it is not ready")
        before_s = cpu_s(worker)
        assert watch(worker) == {503}
        assert (cpu_s(worker) - before_s) / STAYS_S < 0.1
        assert worker.metric("stalled_seconds", step="deliver") > 2
        kafka.create_topic(trial.out, trial.partitions)
        wait_for(worker.ready, "it is ready again")
        wait_for(lambda: trial.committed() == 200, "nothing was lost")


def test_stream_time_and_its_lag_are_shown(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url)
    with trial.worker(**QUICK) as worker:
        wait_for(worker.ready, "it is ready")
        assert worker.metric("stream_time_seconds") == 0  # not known before the first event
        trial.write(LINES[:100])
        wait_for(lambda: worker.metric("stream_time_seconds") > 0, "it is known")
        lag_s = worker.metric("stream_time_lag_seconds")
        shown = worker.metric("stream_time_seconds") + lag_s
        assert shown == pytest.approx(time.time(), abs=60)
        assert -60 < lag_s < 120

"""A worker stops as usual while its broker or its group is not there."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.integration.worker.running import Trial, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.kafka_broker import KafkaBroker
from tests.services.redis import RedisServer

WAITING = "PREPARING_REBALANCING"
FAILED = "Heartbeat send request failed", "Group Coordinator Request failed"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_worker_stops_while_its_broker_is_away(
    make_kafka: Callable[..., KafkaBroker], redis_server: RedisServer, guarantee: str
) -> None:
    broker = make_kafka()
    trial = Trial(broker, redis_server.url)
    trial.write(real_lines(100))
    settings = {"pipelines__0__emit": "merge", "pipelines__0__summary_every_s": "1s"}
    with trial.worker(worker__guarantee=guarantee, **settings) as worker:
        wait_for(worker.ready, "the worker is ready")
        trial.write(real_lines(2000))
        broker.kill()
        # Which call finds it out is a matter of time: a heartbeat, or one to find the coordinator.
        wait_for(lambda: any(each in worker.log for each in FAILED), "its calls fail")
        worker.signal(signal.SIGINT)
        assert worker.end() == 0, worker.log


def test_a_worker_that_waits_for_its_group_stops_at_once(
    kafka: Kafka, redis_server: RedisServer
) -> None:
    trial = Trial(kafka, redis_server.url)
    with trial.worker() as killed:
        wait_for(killed.ready, "the first worker is ready")
        killed.process.kill()
    with trial.worker() as worker:  # the broker waits for the first one
        wait_for(lambda: worker.get("/readyz")[0] == 503, "it listens")
        wait_for(lambda: kafka.describe_group(trial.group).state == WAITING, "it waits")
        begun_s = time.monotonic()
        worker.signal(signal.SIGINT)
        assert worker.end() == 0
        assert time.monotonic() - begun_s < 8, worker.log
        assert "did not close" not in worker.log

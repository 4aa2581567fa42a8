"""A worker stops as usual while its broker is away."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.integration.worker.running import Trial, real_lines, wait_for
from tests.services.kafka_broker import KafkaBroker
from tests.services.redis import RedisServer


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
        time.sleep(8)  # its calls fail, and are made again
        worker.signal(signal.SIGINT)
        assert worker.end() == 0, worker.log

"""Fixtures of real services. Those of the session are shared: leave them whole and running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.services.docker import Docker
from tests.services.kafka import Kafka, KafkaBroker, named_kafka
from tests.services.redis import RedisCluster, RedisSentinel, RedisServer
from tests.services.toxiproxy import Toxiproxy


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A server that keeps nothing on disk. Use keys of your own; do not stop it."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A cluster. Whoever kills a node calls `revive`."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A master with a replica and sentinels. Whoever kills one of them calls `revive`."""
    with RedisSentinel() as group:
        yield group


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[Toxiproxy]:
    """A Toxiproxy. Each test makes proxies of its own, and closes them."""
    with Toxiproxy() as server:
        yield server


@pytest.fixture
def make_redis() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers that the test may break. The options are those of `RedisServer`."""
    with ExitStack() as stack:

        def started(**options: Any) -> RedisServer:
            return stack.enter_context(RedisServer(**options))

        yield started


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker without security. Use topics of your own (`fresh_topic`); do not stop it."""
    with named_kafka() or KafkaBroker() as running:
        yield running


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """A Docker engine. Name what you make, and remove it."""
    with Docker() as engine:
        yield engine


@pytest.fixture
def make_kafka() -> Iterator[Callable[..., KafkaBroker]]:
    """Starts brokers that the test may break. The options are those of `KafkaBroker`."""
    with ExitStack() as stack:

        def started(**options: Any) -> KafkaBroker:
            return stack.enter_context(KafkaBroker(**options))

        yield started

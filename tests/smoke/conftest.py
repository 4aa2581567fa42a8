"""The services of the smoke tests: processes of this machine, or containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.services.containers import redis_container, testcontainers_engine
from tests.services.docker import Docker
from tests.services.docker_images import find_images
from tests.services.kafka import DockerKafka, Kafka


class Services(NamedTuple):
    """A Kafka and a Redis.

    Attributes:
        kafka: the broker.
        redis_url: the URL of the server.
    """

    kafka: Kafka
    redis_url: str


@pytest.fixture(scope="session")
def containers(docker: Docker) -> Iterator[Services]:
    """Kafka and Redis in containers."""
    images = find_images(docker)
    with (
        testcontainers_engine(docker),
        redis_container(images["REDIS_IMAGE"]) as redis_url,
        DockerKafka(images["KAFKA_IMAGE"]) as kafka,
    ):
        yield Services(kafka, redis_url)


@pytest.fixture(params=["processes", pytest.param("containers", marks=pytest.mark.docker)])
def services(request: pytest.FixtureRequest) -> Services:
    """A Kafka and a Redis that other tests use too."""
    if request.param == "containers":
        found: Services = request.getfixturevalue("containers")
        return found
    kafka, redis = request.getfixturevalue("kafka"), request.getfixturevalue("redis_server")
    return Services(kafka, redis.url)

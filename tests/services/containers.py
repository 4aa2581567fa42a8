"""Redis and Kafka in containers, started through testcontainers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from testcontainers.community.redis import RedisContainer

from tests.services.docker import Docker


@contextmanager
def testcontainers_engine(docker: Docker) -> Iterator[None]:
    """Point testcontainers at an engine while the block runs.

    Its cleaner, Ryuk, is off: its image cannot be pulled everywhere, every container here is ended
    by a `with` block, and an engine of our own is swept at its next start.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        for name, value in docker.environment.items():
            patch.setenv(name, value)
        yield


@contextmanager
def redis_container(image: str) -> Iterator[str]:
    """Run a Redis server that keeps nothing on disk.

    Args:
        image: the image's name.

    Yields:
        Its URL.
    """
    command = "redis-server --save '' --protected-mode no"
    with RedisContainer(image).with_command(command) as container:
        host = container.get_container_host_ip()
        yield f"redis://{host}:{container.get_exposed_port(container.port)}/0"

"""A broker and a Redis only for the examples, because their pages use fixed topics and keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.debian import find_program
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer


@pytest.fixture(scope="session")
def examples_kafka() -> Iterator[KafkaBroker]:
    """A broker whose topics no other test makes."""
    with KafkaBroker() as running:
        yield running


@pytest.fixture(scope="session")
def examples_redis() -> Iterator[RedisServer]:
    """A Redis whose keys no other test makes."""
    with RedisServer(appendonly=True) as running:
        yield running


@pytest.fixture(scope="session")
def jq() -> None:
    """The program, installed if it is missing."""
    find_program("jq", "jq", "a page's commands are run")

"""The walk-through of the sample logs prints what it shows, up to Kafka and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.blocks import ROOT
from tests.examples.sessions import alone, beside
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

LOGS = ROOT / "examples" / "logs"
PAGE = LOGS / "README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in LOGS.glob("*.gz"):
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.mark.usefixtures("jq")
def test_the_walk_through_prints_what_it_shows(folder: Path) -> None:
    wrong = alone(PAGE, folder)
    assert not wrong, "\n".join(wrong)


def test_the_walk_through_over_kafka_prints_what_it_shows(
    folder: Path, examples_kafka: KafkaBroker, examples_redis: RedisServer
) -> None:
    wrong = beside(PAGE, folder, examples_kafka, examples_redis)
    assert not wrong, "\n".join(wrong)

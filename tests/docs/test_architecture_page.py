"""The architecture page lists the layers and the modules of a batch as they are."""

from __future__ import annotations

import asyncio
import re
import tomllib

from benchmarks.batch_path import batch_path
from docs.blocks import ROOT, blocks
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

PAGE = ROOT / "docs" / "architecture.md"
REDIS = "index/redis/"
"""The folder of the modules that the page names without one."""

TOP = {"clock.py", "retries.py", "metrics.py", "model.py", "errors.py"}
"""Modules that are in no folder."""


def section(heading: str) -> str:
    """The text below a heading."""
    _, _, below = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")
    return below.partition("\n## ")[0]


def test_the_layers_are_those_that_the_linter_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    expected = [row.replace("stream_dedup.", "") for row in contract["layers"]]
    block = next(block for block in blocks(PAGE) if block.language == "text")
    assert block.text.splitlines() == expected


def test_the_table_names_every_package() -> None:
    cells = re.findall(r"^\| (`.+?) \|", section("Packages"), re.MULTILINE)
    listed = {name.rstrip("/") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    paths = (ROOT / "stream_dedup").iterdir()
    names = {path.name for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed == {name for name in names if not name.startswith("_")}


def test_a_batch_passes_through_the_modules_of_the_page(
    kafka: Kafka, redis_server: RedisServer
) -> None:
    text = section("The way of a batch")
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    listed = {name if "/" in name or name in TOP else REDIS + name for name in named}
    measured = set(asyncio.run(batch_path(kafka, redis_server.url)))
    assert listed == measured
    assert f"These are {len(measured)} modules." in text

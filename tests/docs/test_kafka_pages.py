"""The pages about the worker are correct: their sessions, options, keys and metrics are tested.

Sessions are ``text`` blocks that begin with ``$``. They run in order against a broker and a Redis
of their own, which replace localhost:9092 and localhost:6379. A replacement for ``docker`` runs the
commands in the broker's container.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
import yaml

from docs.blocks import EXAMPLES, ROOT, blocks
from docs.commands import commands, options
from stream_dedup import metrics
from stream_dedup.cli.main import cli
from stream_dedup.config import load
from stream_dedup.config.document import keys
from tests.examples.sessions import beside
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

DOCS = ROOT / "docs"
QUICKSTART = DOCS / "quickstart-kafka.md"
PAGES = [
    QUICKSTART,
    DOCS / "guarantees.md",
    DOCS / "comparison.md",
    DOCS / "how-to" / "operations.md",
    DOCS / "how-to" / "opentelemetry.md",
    DOCS / "how-to" / "runbook.md",
]


@pytest.mark.slow
def test_the_quickstart_prints_what_it_shows(
    tmp_path: Path,
    make_kafka: Callable[..., KafkaBroker],
    make_redis: Callable[..., RedisServer],
) -> None:
    shutil.copy(EXAMPLES / "auth.log", tmp_path)
    wrong = beside(QUICKSTART, tmp_path, make_kafka(), make_redis(appendonly=True))
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------ names


def named_commands(page: Path) -> Iterator[str]:
    """Commands that a page names in its blocks and between backticks."""
    text = page.read_text("utf-8")
    for block in blocks(page):
        joined = block.text.replace("\\\n", " ")
        yield from re.findall(r"^(?:\$ |.*\| )?(stream-dedup [^|>;&\n]+)", joined, re.MULTILINE)
    yield from re.findall(r"`(stream-dedup [^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    known = dict(commands(cli, "stream-dedup"))
    for line in named_commands(page):
        words = line.split()
        name = max((n for n in known if words[: len(n.split())] == n.split()), key=len)
        assert not isinstance(known[name], click.Group), line
        for option in re.findall(r"(?<= )--?[a-z-]+", line):
            assert any(option in each.opts for each in options(known[name])), f"{option} in {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_metrics_exist(page: Path) -> None:
    known = {*get_args(metrics.Counter), *get_args(metrics.Gauge), *get_args(metrics.Histogram)}
    text = page.read_text("utf-8")
    written = set(re.findall(r"`stream_dedup_([a-z_]+)`", text))
    table = re.search(r"^\| metric .*?\n\n", text, re.MULTILINE | re.DOTALL)
    if table:
        written |= set(re.findall(r"^\| `([a-z_]+)` \|", table[0], re.MULTILINE))
    assert written - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_exist(page: Path) -> None:
    sections: dict[str, set[str]] = {}
    for key in keys():
        sections.setdefault(key.section, set()).add(key.name)
    named = r"`(kafka|index|worker|http|log|otel|pipelines)\.([a-z_]+)\b(?!\.)"
    for section, name in re.findall(named, page.read_text("utf-8")):
        assert name in sections[section], f"{section}.{name}"


def test_alerts_that_need_scraping_are_marked() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8"))
    scraped = {
        rule["alert"]
        for group in groups["groups"]
        for rule in group["rules"]
        if re.search(r"\b(?:up|process_\w+|python_\w+)\{", rule["expr"])
    }
    assert scraped
    text = (DOCS / "how-to" / "opentelemetry.md").read_text("utf-8")
    assert set(re.findall(r"`(StreamDedup\w+)`", text)) == scraped


def test_the_configuration_of_the_quickstart_is_valid(tmp_path: Path) -> None:
    (block,) = (b for b in blocks(QUICKSTART) if b.language == "toml")
    (tmp_path / "a.toml").write_text(block.text)
    (pipeline,) = load(str(tmp_path / "a.toml")).config.pipelines
    assert (
        pipeline.name,
        pipeline.summary_topic,
        pipeline.summary_every_s,
    ) == ("app", "app-logs-counts", 1.0)

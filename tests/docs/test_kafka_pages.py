"""The pages about the worker say what is so: their sessions, options, keys and metrics are tried.

Sessions stand in ``text`` blocks that begin with ``$``: run in order against a broker and a Redis
of their own, in the place of localhost:9092 and localhost:6379. What they call in the broker's
container is done by a stand-in for ``docker``.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from docs.blocks import EXAMPLES, ROOT, Block, blocks, steps
from docs.generate import commands, options
from stream_dedup import metrics
from stream_dedup.cli.main import cli
from stream_dedup.config import load
from stream_dedup.config.load import settings
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

DOCS = ROOT / "docs"
QUICKSTART = DOCS / "quickstart-kafka.md"
PAGES = [
    QUICKSTART,
    DOCS / "guarantees.md",
    DOCS / "comparison.md",
    DOCS / "how-to" / "operations.md",
]
LIKE = doctest.OutputChecker()
HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

DOCKER = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.services.kafka_existing import ExistingKafka

kafka = ExistingKafka({bootstrap!r})
given = sys.argv[4:]
options = {{name: value for name, value in zip(given, given[1:]) if name.startswith("--")}}
topic = options["--topic"]
if sys.argv[3].endswith("kafka-topics.sh"):
    config = dict([options["--config"].split("=")]) if "--config" in options else {{}}
    kafka.create_topic(topic, int(options["--partitions"]), config)
    print(f"Created topic {{topic}}.")
elif sys.argv[3].endswith("kafka-console-consumer.sh"):
    for record in kafka.consume(topic):
        print((record.value or b"").decode())
else:
    sys.exit(f"nobody knows {{sys.argv}}")
"""


def sessions(page: Path) -> list[Block]:
    return [b for b in blocks(page) if b.language == "text" and b.text.startswith("$ ")]


def test_the_quickstart_prints_what_it_shows(
    tmp_path: Path,
    make_kafka: Callable[..., KafkaBroker],
    make_redis: Callable[..., RedisServer],
) -> None:
    broker, redis = make_kafka(), make_redis(appendonly=True)
    ports = {"9092": broker.bootstrap.rpartition(":")[2], "6379": str(redis.port)}
    shutil.copy(EXAMPLES / "auth.log", tmp_path)
    (toml,) = (b.text for b in blocks(QUICKSTART) if b.language == "toml")
    file = tmp_path / "stream-dedup.toml"
    for told, real in ports.items():
        toml = toml.replace(f"localhost:{told}", f"127.0.0.1:{real}")
    file.write_text(f"{toml}\n[http]\nport = 0\n")
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        DOCKER.format(python=sys.executable, root=str(ROOT), bootstrap=broker.bootstrap)
    )
    docker.chmod(0o755)
    path = [str(docker.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    wrong = []
    for block in sessions(QUICKSTART):
        for step in steps(block.text):
            if "jq " in step.command and not shutil.which("jq"):
                continue
            done = subprocess.run(
                ["bash", "-c", step.command],
                cwd=tmp_path,
                env={
                    "PATH": os.pathsep.join(path),
                    "LC_ALL": "C.UTF-8",
                    "TZ": "UTC",
                    "COLUMNS": "120",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                check=False,
            )
            printed = done.stdout
            for told, real in ports.items():
                printed = printed.replace(f"127.0.0.1:{real}", f"localhost:{told}")
            if not LIKE.check_output(step.expected, printed, HOW):
                wrong.append(f"line {block.line}: $ {step.command}{printed}")
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
    assert set() == written - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_exist(page: Path) -> None:
    sections: dict[str, set[str]] = {}
    for section, name, _ in settings():
        sections.setdefault(section, set()).add(name)
    for section, name in re.findall(r"`(kafka|index|worker|http|log|pipelines)\.([a-z_]+)\b",
                                    page.read_text("utf-8")):  # fmt: skip
        assert name in sections[section], f"{section}.{name}"


def test_the_quickstarts_configuration_is_one(tmp_path: Path) -> None:
    (block,) = (b for b in blocks(QUICKSTART) if b.language == "toml")
    (tmp_path / "a.toml").write_text(block.text)
    (pipeline,) = load(str(tmp_path / "a.toml")).config.pipelines
    assert ("app", "app-logs-counts", 1.0) == (
        pipeline.name,
        pipeline.summary_topic,
        pipeline.summary_every_s,
    )

"""Run the sessions of pages with real services.

``console`` blocks need only the package. ``text`` blocks that begin with ``$`` run against a broker
and a Redis that replace localhost:9092 and localhost:6379. A replacement for ``docker`` runs the
commands in the broker's container, on the same broker.
"""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.blocks import ROOT, Step, blocks, run, says, steps
from tests.services.debian import find_program
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

TIMEOUT_S = 120
"""No command of a page takes so long on the slowest machine."""

_LIKE = doctest.OutputChecker()
_HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_DOCKER = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.services.kafka_existing import ExistingKafka

kafka = ExistingKafka({bootstrap!r})
(tool,) = (word for word in sys.argv if word.endswith(".sh"))
given = sys.argv[sys.argv.index(tool) + 1 :]
options = {{name: value for name, value in zip(given, given[1:]) if name.startswith("--")}}
topic = options["--topic"]
if tool.endswith("kafka-topics.sh"):
    config = dict([options["--config"].split("=")]) if "--config" in options else {{}}
    kafka.create_topic(topic, int(options["--partitions"]), config)
    print(f"Created topic {{topic}}.")
elif tool.endswith("kafka-console-producer.sh"):
    kafka.produce(topic, sys.stdin.buffer.read().splitlines())
elif tool.endswith("kafka-console-consumer.sh"):
    for record in kafka.consume(topic):
        sys.stdout.buffer.write((record.value or b"") + b"\\n")
else:
    sys.exit(f"nobody knows {{tool}}")
"""


def alone(page: Path, folder: Path) -> list[str]:
    """Run the ``console`` blocks of a page; what they print that the page does not say."""
    wrong = []
    for block in blocks(page):
        if block.language == "console":
            for step in steps(block.text):
                printed = run(step.command, folder)
                if not says(step.expected, printed):
                    wrong.append(f"line {block.line}: $ {step.command}{printed}")
    return wrong


def beside(page: Path, folder: Path, kafka: Kafka, redis: RedisServer) -> list[str]:
    """Run the ``text`` blocks of a page with real services, and return the steps that differ.

    The ``toml`` blocks of the page begin with the name of their file.
    """
    ports = {"9092": kafka.bootstrap.rpartition(":")[2], "6379": str(redis.port)}
    for block in blocks(page):
        if block.language == "toml":
            text = block.text
            for shown, real in ports.items():
                text = text.replace(f"localhost:{shown}", f"127.0.0.1:{real}")
            name = text.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(f"{text}\n[http]\nport = 0\n")
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        _DOCKER.format(python=sys.executable, root=str(ROOT), bootstrap=kafka.bootstrap)
    )
    docker.chmod(0o755)
    wrong = []
    for line, step in _sessions(page):
        if "jq " in step.command:
            find_program("jq", "jq", "a page's commands are run")
        command = step.command
        for shown, real in ports.items():
            command = command.replace(f"localhost:{shown}", f"127.0.0.1:{real}")
        printed = _run(command, folder, docker.parent)
        for shown, real in ports.items():
            printed = printed.replace(f"127.0.0.1:{real}", f"localhost:{shown}")
        if not _LIKE.check_output(step.expected, printed, _HOW):
            wrong.append(f"line {line}: $ {step.command}{printed}")
    return wrong


def _sessions(page: Path) -> Iterator[tuple[int, Step]]:
    for block in blocks(page):
        if block.language == "text" and block.text.startswith("$ "):
            for step in steps(block.text):
                yield block.line, step


def _run(command: str, folder: Path, tools: Path) -> str:
    path = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
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
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout

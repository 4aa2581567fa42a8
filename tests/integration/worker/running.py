"""Runs ``stream-dedup run`` like a user, and watches it like an operator."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.integration.command import COMMAND, Done
from tests.services.kafka import GroupMember, Kafka, Record
from tests.services.processes import ServiceError, free_port

LOGS = Path(__file__).parents[3] / "examples" / "logs"

STEP_MS = 100
"""Time between two events, so that summaries become due by event time."""

END_S = 180.0
"""The longest time to wait for a condition, for the slowest machine."""


def real_lines(count: int, name: str = "postgresql") -> list[bytes]:
    """Lines of a real log."""
    with gzip.open(LOGS / f"{name}.log.gz") as file:
        return [line.rstrip(b"\n") for line in islice(file, count)]


def wait_for(holds: Callable[[], bool], what: str, within_s: float = END_S) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)


def flags(settings: dict[str, object]) -> list[str]:
    """Settings as flags; two underscores stand for a dot."""
    return [
        part
        for key, value in settings.items()
        for part in ("--set", f"{key.replace('__', '.')}={value}")
    ]


class Trial:
    """Fresh topics, a group and a namespace for a test, and the workers that use them."""

    def __init__(self, kafka: Kafka, url: str, partitions: int = 2) -> None:
        self.kafka = kafka
        self.partitions = partitions
        self.read = kafka.fresh_topic(partitions)
        self.out = kafka.fresh_topic(partitions)
        self.summary_topic = kafka.fresh_topic(1)
        self.dead = kafka.fresh_topic(1)
        self.group = f"{self.read}-main"
        self.settings: dict[str, object] = {
            "kafka__bootstrap_servers": kafka.bootstrap,
            "kafka__group_id": self.read,
            "index__url": url,
            "http__port": 0,
            "pipelines__0__topics": self.read,
            "pipelines__0__output_topic": self.out,
            "pipelines__0__summary_topic": self.summary_topic,
            "pipelines__0__dead_letter_topic": self.dead,
            "pipelines__0__namespace": self.read,
            "pipelines__0__emit": "annotate",
            "pipelines__0__summary_every_s": "10ms",
        }

    def write(self, lines: Sequence[bytes]) -> None:
        """Spread lines over the partitions, in order, a tenth of a second apart, until now.

        Their numbers are their keys.
        """
        begin_ms = int(time.time() * 1000) - STEP_MS * len(lines)
        for first in range(self.partitions):
            numbers = range(first, len(lines), self.partitions)
            self.kafka.produce(
                self.read,
                [lines[number] for number in numbers],
                partition=first,
                keys=[b"%d" % number for number in numbers],
                headers=[[("host", b"a")] for _ in numbers],
                timestamps_ms=[begin_ms + STEP_MS * number for number in numbers],
            )

    def once(self, **settings: object) -> Done:
        """Run a worker that reads to the end."""
        return command("run", "--once", *flags(self.settings | settings))

    def emit_due_summaries(self, **settings: object) -> None:
        """Write a later event into each partition, and read on: all summaries become due."""
        self.write([b"later event of partition %d" % n for n in range(self.partitions)])
        done = self.once(**settings)
        assert done.code == 0, done.err

    def members(self) -> tuple[GroupMember, ...]:
        """The group's members; none while it has no coordinator."""
        try:
            return self.kafka.describe_group(self.group).members
        except ServiceError:
            return ()

    @contextmanager
    def worker(self, **settings: object) -> Iterator[Worker]:
        """Start a worker with an HTTP port; kill it at the end."""
        port = free_port()
        args = flags(self.settings | {"http__port": port} | settings)
        with TemporaryFile() as err:
            process = subprocess.Popen(
                [COMMAND, "run", *args], stdin=subprocess.DEVNULL, stdout=err, stderr=err
            )
            worker = Worker(process, port, err)
            try:
                yield worker
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
                worker.last_log = worker.log

    def counts(self, topic: str = "") -> dict[str, int]:
        """Events that summaries count, by cluster."""
        return {
            cluster: sum(summary["new_count"] for summary in revisions.values())
            for cluster, revisions in self.summaries(topic).items()
        }

    def summaries(self, topic: str = "") -> dict[str, dict[int, dict[str, Any]]]:
        """Summaries by cluster and revision; copies of a revision must be equal."""
        found: dict[str, dict[int, dict[str, Any]]] = {}
        for record in self.kafka.consume(topic or self.summary_topic):
            if not (record.value or b"").startswith(b'{"type":"summary"'):
                continue  # an event, where both go to one topic
            summary = json.loads(record.value or b"")
            assert summary["cluster"].encode() == record.key
            known = found.setdefault(summary["cluster"], {})
            assert known.setdefault(summary["revision"], summary) == summary
        return found

    def committed(self) -> int:
        """Events whose offsets are committed; 0 while the group has no coordinator."""
        try:
            return sum(self.kafka.committed(self.group).values())
        except ServiceError:
            return 0


def command(*args: str, within_s: float = END_S) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        [COMMAND, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "STREAM_DEDUP_REDIS": ""},
        timeout=within_s,
        check=False,
    )
    err = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in err, err[-3_000:]
    return Done(done.returncode, done.stdout, err)


def last_line(done: Done) -> str:
    """The last line of a command's errors; of a line of its log the message."""
    line = done.err.splitlines()[-1]
    if not line.startswith("{"):
        return line
    logged: dict[str, str] = json.loads(line)
    return logged["event"]


def text_headers(record: Record) -> dict[str, str]:
    """A record's headers as text."""
    return {name: (value or b"").decode() for name, value in record.headers}


class Worker:
    """A running worker."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, err: Any) -> None:
        self.process = process
        self.last_log: str | None = None
        self._port = port
        self._err = err

    @property
    def log(self) -> str:
        """Its log so far."""
        if self.last_log is not None:
            return self.last_log
        self._err.seek(0)
        text: str = self._err.read().decode("utf-8", "replace")
        return text

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Whether it is ready."""
        assert self.process.poll() is None, self.log
        return self.get("/readyz")[0] == 200

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels."""
        _, text = self.get("/metrics")
        found = re.findall(rf"^stream_dedup_{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(value) for shown, value in found if all(w in shown for w in wanted))

    def reasons(self) -> dict[str, str]:
        """Why it is not ready."""
        code, text = self.get("/readyz")
        assert code in {200, 503}, (code, self.log)
        return {each["name"]: each["reason"] for each in json.loads(text)["reasons"]}

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, within_s: float = END_S) -> int:
        """Wait until it ends, and return its exit code."""
        code = self.process.wait(within_s)
        assert "Traceback" not in self.log, self.log
        return code

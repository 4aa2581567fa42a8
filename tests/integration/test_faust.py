"""The Faust example: its workers with a real Kafka and a real Redis."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.worker.running import STEP_MS, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "faust"
LINES = real_lines(1_200)


class App:
    """Fresh topics and a namespace for a test, and workers of the example that use them."""

    def __init__(self, kafka: Kafka, redis_url: str, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.read, self.out = kafka.fresh_topic(2), kafka.fresh_topic(2)
        self.counts = kafka.fresh_topic(1)
        self.group = f"app-{secrets.token_hex(4)}"
        self.environment = {
            **os.environ,
            "APP_ID": self.group,
            "BROKER": f"kafka://{kafka.bootstrap}",
            "REDIS": redis_url,
            "INPUT": self.read,
            "OUTPUT": self.out,
            "COUNTS": self.counts,
            "NAMESPACE": self.group,
        }
        self.written = 0

    def write(self, lines: list[bytes]) -> None:
        """Write events to both partitions, a tenth of a second apart."""
        for number in (0, 1):
            mine = range(number, len(lines), 2)
            self.kafka.produce(
                self.read,
                [lines[i] for i in mine],
                partition=number,
                timestamps_ms=[1_700_000_000_000 + (self.written + i) * STEP_MS for i in mine],
            )
        self.written += len(lines)

    @contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a worker; kill it at the end."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "faust", "--datadir", str(self.folder / name)),
                    *("-A", "app", "worker", "--without-web", "-l", "info"),
                ],
                cwd=EXAMPLE,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def committed(self) -> int:
        """Events whose offsets are committed."""
        return sum(self.kafka.committed(self.group).values())

    def places(self) -> dict[str, set[tuple[str, str]]]:
        """Decision and cluster of each event in the output, by its place."""
        found: dict[str, set[tuple[str, str]]] = {}
        for record in self.kafka.consume(self.out):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            decided = headers["sd-decision"], headers["sd-cluster"]
            found.setdefault(headers["place"], set()).add(decided)
        return found

    def counted(self) -> int:
        """Events that summaries count, and first events of clusters that have none yet."""
        count = {cluster: 1 for copies in self.places().values() for _, cluster in copies}
        for record in self.kafka.consume(self.counts):
            summary = json.loads(record.value or b"")
            cluster = summary["cluster"]
            count[cluster] = max(count.get(cluster, 0), summary["count"])
        return sum(count.values())


@pytest.fixture
def faust_app(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> App:
    return App(kafka, redis_server.url, tmp_path)


@pytest.mark.timeout(1_200)
def test_counts_add_up_when_workers_are_killed_and_join(faust_app: App) -> None:
    faust_app.write(LINES[:400])
    with faust_app.worker("one") as first:
        wait_for(lambda: len(faust_app.places()) > 5, "something has left")
        first.send_signal(signal.SIGKILL)
        first.wait()
    faust_app.write(LINES[400:800])
    with faust_app.worker("two"), faust_app.worker("three") as third:
        wait_for(lambda: faust_app.committed() >= 800, "all is read", 180)
        faust_app.write(LINES[800:])
        wait_for(lambda: faust_app.committed() > 900, "some more is read", 180)
        third.send_signal(signal.SIGKILL)
        third.wait()
        wait_for(lambda: faust_app.committed() >= len(LINES), "the other reads on", 300)
        wait_for(lambda: faust_app.counted() == len(LINES), "all are counted", 300)
        time.sleep(2)  # nothing is counted twice later
        assert faust_app.counted() == len(LINES)
    places = faust_app.places()
    # Copies of an event have the same decision, and no cluster has two first events.
    assert {len(copies) for copies in places.values()} == {1}
    clusters = [cluster for ((_, cluster),) in places.values()]
    assert len(clusters) == len(set(clusters))
    assert 5 < len(clusters) < len(LINES) // 4


def test_a_worker_with_an_index_in_memory_ends_orderly(kafka: Kafka, tmp_path: Path) -> None:
    app = App(kafka, "", tmp_path)
    app.write(LINES[:200])
    with app.worker("alone") as worker:
        wait_for(lambda: app.committed() >= 200, "all is read", 180)
        wait_for(lambda: app.counted() == 200, "all are counted", 180)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(180) == 0
    assert "Traceback" not in (tmp_path / "alone.log").read_text()

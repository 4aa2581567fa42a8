"""How long partitions stand still in a rebalance: ``python -m benchmarks.rebalance``.

A real broker, a real Redis and real workers are started. Events are written to all partitions at a
steady rate, and an independent consumer notes when the output of each arrives. The longest time in
which a partition wrote nothing is the time that it stood still. Each cell shows the median and the
longest of all partitions, in all rounds; without a rebalance the longest is about the pause between
two batches.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import TopicPartition

from tests.faults.harness import GUARANTEES, Guarantee, Site, Stage, Worker
from tests.services.processes import wait_until

PARTITIONS = 12
WORKERS = 3
RATE = 300
"""Events a second, near-duplicates; each partition gets one every 40 ms."""

ASSIGNED = re.compile("partitions? (?:is|are) assigned")
"""What a worker logs then."""

SETTLE_S = 8.0
"""Time before, between and after the changes."""


class Change(NamedTuple):
    """What happens to a group of `WORKERS` workers."""

    name: str
    settings: Mapping[str, object]
    happens: Callable[[Stage, list[Worker]], None]


def nothing(_stage: Stage, _workers: list[Worker]) -> None:
    """Change nothing, to see what is usual."""


def joins(stage: Stage, workers: list[Worker]) -> None:
    """Start another worker, and wait until it has partitions."""
    worker = stage.worker("joined")
    workers.append(worker)
    wait_until(
        lambda: bool(ASSIGNED.search(worker.last_lines())), what="it has partitions", seconds=120
    )


def leaves(_stage: Stage, workers: list[Worker]) -> None:
    """Stop a worker in good order."""
    worker = workers.pop()
    worker.stop()
    worker.close()


class Traffic(threading.Thread):
    """Writes events, and notes when output arrives."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self._stage = stage
        self._stopping = threading.Event()
        self.arrived: dict[int, list[float]] = defaultdict(list)

    def run(self) -> None:
        kafka, written = self._stage.site.broker, 0
        producer = kafka.producer(linger_ms=1)
        level = "read_committed" if self._stage.guarantee == "exactly_once" else "read_uncommitted"
        with closing(kafka.consumer("bench", isolation_level=level, fetch_wait_max_ms=5)) as reader:
            topic = self._stage.topics["output"]
            reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            started_s = time.monotonic()
            while not self._stopping.is_set():
                due = int((time.monotonic() - started_s) * RATE)
                while written < due:
                    value = b"user %d logged in from host-%d" % (written, written % 7)
                    key = b"id-%d" % written
                    producer.produce(self._stage.input, value, key, written % PARTITIONS)
                    written += 1
                producer.poll(0)
                for message in reader.consume(500, 0.005):
                    if message.error() is None:
                        self.arrived[message.partition() or 0].append(time.monotonic())
        producer.flush(30)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def stood_still_s(self, from_s: float) -> list[float]:
        """The longest pause of each partition since a time."""
        return [
            max((after - before for before, after in pairwise(times) if after >= from_s), default=0)
            for times in self.arrived.values()
        ]


def measure(site: Site, guarantee: Guarantee, change: Change) -> list[float]:
    """The longest pause of each partition around a change."""
    folder = Path(tempfile.mkdtemp(prefix="rebalance-"))
    common = {"worker.max_batch_events": 500, "kafka.session_timeout_s": 10}
    stage = Stage(site, guarantee, folder, {**common, **change.settings}, partitions=PARTITIONS)
    workers = [stage.worker(f"worker-{number}") for number in range(WORKERS)]
    traffic = Traffic(stage)
    try:
        traffic.start()
        wait_until(
            lambda: len(traffic.arrived) == PARTITIONS, what="all partitions write", seconds=120
        )
        time.sleep(SETTLE_S)
        from_s = time.monotonic()
        change.happens(stage, workers)
        time.sleep(SETTLE_S)
        return traffic.stood_still_s(from_s)
    finally:
        traffic.stop()
        for worker in workers:
            worker.close()


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default 3)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    given = parser.parse_args()
    extra = dict(each.split("=", 1) for each in given.set)
    changes = [
        Change(
            f"{happens.__name__}, heartbeats every {beat:g} s",
            {"kafka.heartbeat_interval_s": beat, **extra},
            happens,
        )
        for beat in (3.0, 1.0, 0.3)
        for happens in (joins, leaves)
    ]
    changes.insert(0, Change("nothing", extra, nothing))
    with Site() as site:
        for guarantee in GUARANTEES:
            for change in changes:
                pauses = [p for _ in range(given.rounds) for p in measure(site, guarantee, change)]
                print(
                    f"{guarantee:14} {change.name:32} median {median(pauses):5.2f} s, longest "
                    f"{max(pauses):5.2f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

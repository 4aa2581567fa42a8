"""The worker beside a bare copy of the same topic, in one run: ``make bench-worker``.

A real broker and a real Redis are started for it. The bare copy is what the client alone can do:
aiokafka's ``getmany`` → ``send_batch``, in one process. Phases:

    A  throughput: the bare copy, then annotate, drop and merge at 95 % duplicates, and annotate at
       50 % and 0 %, at least once; annotate exactly once; annotate over the index in memory
    B  latency at a steady rate, about half of what phase A reaches
    C  two workers beside one
    D  processor time by stage, of one event

Each run is a process of its own that measures itself, from the moment it may join its group until
all is delivered and committed and it has left: wall time and its own processor time. A machine's
speed changes within minutes, so each run is compared with a bare copy right before it, and medians
of several rounds are shown; ratios are what to compare.
Broker, Redis and worker share the machine's cores, so wall times say as much of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import replayed_log
from benchmarks.reporting import Target
from benchmarks.speed import real_lines
from benchmarks.worker_runs import PARTITIONS, Cost
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer


class Bench:
    """Topics, and runs over them."""

    def __init__(self, broker: KafkaBroker, redis: RedisServer, events: int) -> None:
        self.broker = broker
        self.redis = redis
        self.events = events
        self._runs = 0

    def fill(self, duplicates: float) -> str:
        """A topic of replayed log lines; fewer where each takes long."""
        topic = self.broker.fresh_topic(PARTITIONS)
        events = self.events if duplicates > 0.9 else self.events // 10
        lines = replayed_log(real_lines(), events, duplicate_share=duplicates)
        for number in range(PARTITIONS):
            self.broker.produce(topic, lines[number::PARTITIONS], partition=number, timeout_s=120)
        return topic

    def _child(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker_runs", *arguments],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    @staticmethod
    def _cost(process: subprocess.Popen[str]) -> Cost:
        out, _ = process.communicate(timeout=600)
        if process.returncode:
            raise SystemExit(f"a run failed with exit code {process.returncode}")
        return Cost(*json.loads(out.splitlines()[-1]))

    def copy(self, topic: str, *codec: str) -> Cost:
        """A bare copy; not compressed, as is the driver's way, unless a codec is named."""
        self._runs += 1
        output = self.broker.fresh_topic(PARTITIONS)
        return self._cost(
            self._child("copy", self.broker.bootstrap, topic, output, f"copy-{self._runs}", *codec)
        )

    def settings(self, topic: str, output: str) -> list[str]:
        """Of a worker with a group and a namespace of its own."""
        self._runs += 1
        return [
            f"kafka.bootstrap_servers={self.broker.bootstrap}",
            f"kafka.group_id=bench-{self._runs}",
            f"index.url={self.redis.url}",
            f"pipelines.0.topics={topic}",
            f"pipelines.0.output_topic={output}",
            f"pipelines.0.namespace=bench-{self._runs}",
        ]

    def run(self, topic: str, *settings: str, workers: int = 1) -> list[Cost]:
        """Workers, over an index that knows nothing yet."""
        output = self.broker.fresh_topic(PARTITIONS)
        given = [*self.settings(topic, output), *settings]
        started = [self._child("work", *given) for _ in range(workers)]
        costs = [self._cost(process) for process in started]
        self.redis.command("FLUSHALL")
        return costs

    def read(self, topic: str, how: Literal["read", "take"]) -> Cost:
        """Reading alone, as the bare copy does or as the worker does."""
        self._runs += 1
        return self._cost(self._child(how, self.broker.bootstrap, topic, f"read-{self._runs}"))

    def stages(self, *, shared: bool) -> dict[str, float]:
        """The worker's own stages, over an index in Redis or in memory."""
        url = self.redis.url if shared else ""
        out, _ = self._child("stages", url, str(self.events)).communicate(timeout=600)
        self.redis.command("FLUSHALL")
        found: dict[str, float] = json.loads(out.splitlines()[-1])
        return found


def typical(costs: list[Cost]) -> Cost:
    """The middle wall time and the middle processor time of several rounds."""
    return Cost(costs[0].events, median(c.wall_s for c in costs), median(c.cpu_s for c in costs))


COMPRESSED_COPY = "bare copy, by snappy"

RUNS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    (COMPRESSED_COPY, 0.95, ("snappy",)),  # the fastest that the driver has
    ("annotate", 0.95, ("pipelines.0.emit=annotate",)),
    ("drop", 0.95, ("pipelines.0.emit=drop",)),
    ("merge", 0.95, ("pipelines.0.emit=merge",)),
    ("annotate", 0.5, ("pipelines.0.emit=annotate",)),
    ("annotate", 0.0, ("pipelines.0.emit=annotate",)),
    (
        "annotate, exactly once",
        0.95,
        ("pipelines.0.emit=annotate", "worker.guarantee=exactly_once"),
    ),
    ("annotate, not compressed", 0.95, ("pipelines.0.emit=annotate", "kafka.compression=none")),
    ("annotate, index in memory", 0.95, ("pipelines.0.emit=annotate", "index.kind=memory")),
)


def bench_throughput(bench: Bench, out: Console, rounds: int) -> list[Target]:
    """Phase A."""
    table = Table(
        "run", "duplicates", "events a second", "of the copy's", "a second of processor",
        "of the copy's", title=f"A. {bench.events:,} log lines (a tenth of them at 50 % and "
        f"0 %), {PARTITIONS} partitions, medians "
        f"of {rounds} rounds", title_justify="left",
    )  # fmt: skip
    targets: list[Target] = []
    topics: dict[float, str] = {}
    for share in sorted({share for _, share, _ in RUNS}, reverse=True):
        topics[share] = bench.fill(share)
        bench.copy(topics[share])  # the broker compiles itself meanwhile
    pairs: list[list[tuple[Cost, Cost]]] = [[] for _ in RUNS]
    for _ in range(rounds):
        for found, (name, share, settings) in zip(pairs, RUNS, strict=True):
            topic = topics[share]
            bare = bench.copy(topic)
            if name == COMPRESSED_COPY:
                found.append((bare, bench.copy(topic, *settings)))
            else:
                found += [(bare, ours) for ours in bench.run(topic, *settings)]
    for share in topics:
        copies = [
            bare
            for found, (_, of, _) in zip(pairs, RUNS, strict=True)
            for bare, _ in found
            if of == share
        ]
        middle = typical(copies)
        table.add_row(
            "bare copy", f"{share:.0%}", f"{middle.per_wall:,.0f}", "", f"{middle.per_cpu:,.0f}", ""
        )
    for found, (name, share, _) in zip(pairs, RUNS, strict=True):
        ours = typical([ours for _, ours in found])
        wall = median(ours.per_wall / bare.per_wall for bare, ours in found)
        cpu = median(ours.per_cpu / bare.per_cpu for bare, ours in found)
        table.add_row(
            name, f"{share:.0%}", f"{ours.per_wall:,.0f}", f"{wall:.2f}", f"{ours.per_cpu:,.0f}",
            f"{cpu:.2f}",
        )  # fmt: skip
        if share == 0.95 and "," not in name:
            for what, ratio in (("wall", wall), ("processor", cpu)):
                targets.append(
                    Target(
                        f"A. {name}, {what}, of the copy's", f"{ratio:.2f}", "≥ 0.5", ratio >= 0.5
                    )
                )
    out.print(table)
    return targets


def bench_latency(bench: Bench, out: Console, rate: int) -> None:
    """Phase B: from an event's writing to its delivery, at a steady rate.

    The broker sets the output's timestamp when it stores it; a header holds the time of writing.
    """
    seconds = 10
    topic = bench.broker.fresh_topic(PARTITIONS)
    output = bench.broker.fresh_topic(PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    lines = replayed_log(real_lines(), rate * seconds, duplicate_share=0.95)
    worker = subprocess.Popen(
        [str(Path(sys.executable).with_name("stream-dedup")), "run"]
        + [f"--set={each}" for each in bench.settings(topic, output)]
        + ["--set=pipelines.0.emit=annotate", "--set=http.port=0"],
        stderr=subprocess.DEVNULL,
    )
    producer = bench.broker.producer(**{"linger.ms": 1})
    try:
        time.sleep(4)  # it has joined its group
        started = time.time()
        for number, line in enumerate(lines):
            ahead_s = started + number / rate - time.time()
            if ahead_s > 0.001:
                producer.poll(0)
                time.sleep(ahead_s)
            headers = [("written", b"%d" % (time.time() * 1000))]
            producer.produce(topic, line, partition=number % PARTITIONS, headers=headers)
            if number % 100 == 0:
                producer.poll(0)
        producer.flush(30)
        took_s = time.time() - started
        time.sleep(2)
    finally:
        worker.terminate()
        worker.wait(30)
    delivered = bench.broker.consume(output, timeout_s=60)
    if len(delivered) < len(lines):
        raise SystemExit(f"{len(delivered):,} of {len(lines):,} events were delivered")
    written = [int(dict(record.headers)["written"] or 0) for record in delivered]
    warm_ms = min(written) + 2_000
    late = sorted(
        record.timestamp_ms - ms
        for record, ms in zip(delivered, written, strict=True)
        if ms > warm_ms
    )
    out.print(
        f"B. latency, {len(lines) / took_s:,.0f} events a second for {took_s:.0f} s, the first 2 "
        f"left out, from the producer's call to the broker's storing the output: p50 "
        f"{late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms, longest {late[-1]} ms"
    )


def bench_scaling(bench: Bench, out: Console) -> None:
    """Phase C: two workers share the partitions."""
    topic = bench.fill(0.95)
    table = Table("workers", "events a second", "a second of their processor time",
                  title="C. scaling, annotate, 95 % duplicates", title_justify="left")  # fmt: skip
    for workers in (1, 2):
        costs = bench.run(topic, "pipelines.0.emit=annotate", workers=workers)
        wall_s = max(cost.wall_s for cost in costs)
        events, cpu_s = sum(c.events for c in costs), sum(c.cpu_s for c in costs)
        table.add_row(str(workers), f"{events / wall_s:,.0f}", f"{events / cpu_s:,.0f}")
    out.print(table)


def bench_stages(bench: Bench, out: Console) -> None:
    """Phase D."""
    topic = bench.fill(0.95)
    table = Table("stage", "index in Redis", "index in memory", "the bare copy's",
                  title="D. processor time an event, annotate, 95 % duplicates, µs",
                  title_justify="left")  # fmt: skip
    bare, taking = (
        typical([bench.read(topic, how) for _ in range(3)]).cpu_s / bench.events * 1e6
        for how in ("read", "take")
    )
    copying = typical([bench.copy(topic) for _ in range(3)]).cpu_s / bench.events * 1e6
    shared, own = (bench.stages(shared=shared) for shared in (True, False))
    whole = []
    for kind in ("redis", "memory"):
        settings = ("pipelines.0.emit=annotate", f"index.kind={kind}")
        costs = [cost for _ in range(3) for cost in bench.run(topic, *settings)]
        whole.append(typical(costs).cpu_s / bench.events * 1e6)
    table.add_row("read", *[f"{taking:.2f}"] * 2, f"{bare:.2f}")
    for name in shared:
        table.add_row(name, f"{shared[name]:.2f}", f"{own[name]:.2f}", "")
    rests = [
        all_ - taking - sum(parts.values())
        for all_, parts in zip(whole, (shared, own), strict=True)
    ]
    table.add_row("the rest: waiting, sending, handing on", *(f"{rest:.2f}" for rest in rests),
                  f"{copying - bare:.2f}")  # fmt: skip
    table.add_row("all, as measured", *(f"{each:.2f}" for each in whole), f"{copying:.2f}")
    out.print(table)


def main() -> int:
    """Measure and print, with the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=20_000, help="events a second of phase B")
    parser.add_argument("--only", default="ABCD", help="the phases, such as A,B")
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    out.print(f"{os.cpu_count()} cores for broker, Redis and worker together")
    with KafkaBroker() as broker, RedisServer() as redis:
        bench = Bench(broker, redis, options.events)
        only = options.only.upper()
        targets = bench_throughput(bench, out, options.rounds) if "A" in only else []
        if "B" in only:
            bench_latency(bench, out, options.rate)
        if "C" in only:
            bench_scaling(bench, out)
        if "D" in only:
            bench_stages(bench, out)
    table = Table("target", "measured", "wanted", "", title="targets", title_justify="left")
    for target in targets:
        table.add_row(
            target.name, target.measured, target.wanted, "met" if target.met else "MISSED"
        )
    out.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A long run of distinct events through a capped namespace: ``make soak-redis``.

Every event opens a cluster, and for want of room closes another, whose summary is claimed and
confirmed. What is kept is bounded, so the server's memory has to stay flat however long it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from dataclasses import dataclass, field

import redis
from rich.console import Console
from rich.table import Table

from benchmarks.redis_growth import PLAIN
from benchmarks.redis_meter import WIDE, Meter, opened, random_query
from benchmarks.reporting import Target
from stream_dedup.clock import SystemClock
from stream_dedup.index.base import ClusterDelta, Commit
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Partition
from tests.services.redis import RedisServer

BATCH = 1_000
HERE = Partition("bench", 0)
STEPS = 20
FLAT = 1.05
"""Memory may grow by this factor in the second half of the events and still counts as flat."""


@dataclass(slots=True)
class Soak:
    """The run so far.

    Attributes:
        index: the index.
        fence: of the partition.
        counted: events that final summaries counted.
        finals: final summaries.
    """

    index: RedisIndex
    fence: int
    counted: int = 0
    finals: int = 0
    clock: SystemClock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=lambda: random.Random(17))

    async def batch(self, first: int, count: int) -> None:
        """Resolve and record events, then emit due summaries."""
        now_us = self.clock.now_us()
        queries = [
            random_query(first + i, self.rng.getrandbits(64))._replace(
                first_us=now_us, last_us=now_us
            )
            for i in range(count)
        ]
        answers = await self.index.resolve(queries, now_us)
        deltas: dict[int, ClusterDelta] = {}
        for answer in answers:
            delta = deltas.setdefault(
                answer.cluster, ClusterDelta(answer.cluster, 0, now_us, now_us)
            )
            delta.count += 1
            delta.representative = b"a line of a log, about as long as most of them are"
        last = first + count - 1
        closed = await self.index.record(
            Commit(HERE, self.fence, first, last, last + 1, now_us, list(deltas.values())), now_us
        )
        assert not closed, "a cluster of this very batch was closed: give more CLUSTERS"
        await self.emit(2 * BATCH)

    async def emit(self, limit: int) -> bool:
        """Claim and confirm summaries, and return whether there were any."""
        now_us = self.clock.now_us()
        summaries = await self.index.claim(limit, now_us)
        await self.index.confirm([(one.cluster, one.revision) for one in summaries], now_us)
        finals = [one.count for one in summaries if one.final]
        self.counted += sum(finals)
        self.finals += len(finals)
        return bool(summaries)


async def soak(server: RedisServer, out: Console, *, events: int, clusters: int) -> list[Target]:
    """Run it and check what is left."""
    meter = Meter(server)
    used: list[int] = []
    async with opened(server, meter, PLAIN, windows=WIDE, max_clusters=clusters) as index:
        tables = index.layout.table_layout.tables
        out.print(
            f"{events:,} distinct events, at most {clusters:,} clusters, batches of {BATCH:,}, "
            f"{tables} tables"
        )
        now_us = time.time_ns() // 1000
        run = Soak(index, (await index.claim_partition(HERE, None, now_us)).fence)
        done = 0
        for step in range(1, STEPS + 1):
            started, before = time.perf_counter(), done
            while done < events * step // STEPS:
                count = min(BATCH, events * step // STEPS - done)
                await run.batch(done, count)
                done += count
            rate = (done - before) / (time.perf_counter() - started)
            used.append(meter.used_memory())
            size = await index.size()
            garbage = server.command("LLEN", ShardKeys(index.namespace, 0).garbage)
            assert isinstance(garbage, int)
            out.print(
                f"{step / STEPS:4.0%} {rate:8,.0f} events/s  {used[-1] / 1e6:7.1f} MB  "
                f"{size.clusters:8,} open  {size.waiting:6,} waiting  {garbage:6,} garbage  "
                f"{size.evicted:10,} evicted",
                soft_wrap=True,
            )
        members, without_ttl, keys = _look(server)
        size = await index.size()
        await index.finish(run.clock.now_us())
        while await run.emit(BATCH):
            pass
        left, still, _ = _look(server)
    quarters = [used[STEPS * part // 4 - 1] / 1e6 for part in (1, 2, 3, 4)]
    shown = " / ".join(f"{megabytes:.1f}" for megabytes in quarters)
    growth = quarters[3] / quarters[1]
    flat = Target(
        "memory at 25 / 50 / 75 / 100 %",
        f"{shown} MB",
        f"flat: ≤ {FLAT} × from 50 % on",
        growth <= FLAT,
    )
    return [
        flat,
        _equal(f"keys without a time to live, of {keys:,}", without_ttl, 0),
        _equal("members of tables, of the open clusters", members, size.fingerprints * tables),
        _equal("open clusters", size.clusters, min(clusters, events)),
        _equal("final summaries", run.finals, events),
        _equal("events they counted", run.counted, events),
        _equal("members of tables once all is closed", left, 0),
        _equal("keys without a time to live then", still, 0),
    ]


def _equal(name: str, value: int, wanted: int) -> Target:
    return Target(name, f"{value:,}", f"{wanted:,}", value == wanted)


def _look(server: RedisServer) -> tuple[int, int, int]:
    """Members of all tables, keys without a time to live, keys."""
    members = without_ttl = 0
    with redis.Redis(port=server.port) as driver:
        keys = list(driver.scan_iter(count=10_000))
        for start in range(0, len(keys), 10_000):
            some = keys[start : start + 10_000]
            pipe = driver.pipeline(transaction=False)
            for key in some:
                pipe.pttl(key)
            without_ttl += sum(left == -1 for left in pipe.execute())
            for key in some:
                if b":t:" in key:
                    pipe.zcard(key)
            members += sum(pipe.execute())
    return members, without_ttl, len(keys)


def main() -> int:
    """Run it; 1 where something is not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--clusters", type=int, default=50_000)
    options = parser.parse_args()
    logging.getLogger("stream_dedup").setLevel(logging.ERROR)  # nothing is kept, on purpose
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    started = time.perf_counter()
    with RedisServer() as server:
        targets = asyncio.run(soak(server, out, events=options.events, clusters=options.clusters))
    table = Table("", "measured", "wanted", "", title="at the end", title_justify="left")
    for target in targets:
        table.add_row(target.name, target.measured, target.wanted, "" if target.met else "MISSED")
    out.print(table)
    out.print(f"{time.perf_counter() - started:.0f} s")
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What events cost that open clusters: the worker's engine and Redis, at an empty and a full index.

    python -m benchmarks.new_streams                      this checkout
    python -m benchmarks.new_streams --beside ../before   and another one, in turns
    python -m benchmarks.new_streams --together           the partitions at the same time

A real Redis is started; broker and network are left out. Log lines of which 0 %, 50 % and 95 %
repeat go through decoding, deciding and recording in batches, as a worker does it, and summaries
that are due are claimed and confirmed after each round of batches. An index is *full* when it holds
as many clusters as it may (`LIMITS`): each new one then closes another, whose final summary is
sent and whose entries are purged. All times to live are renewed then.

Times are processor time: of this process, and of the server's main thread, where scripts run,
each call by itself (no two are on their way at once). With ``--together`` four partitions are
processed at the same time, as a worker does it: calls then overlap, and their cost is not split.
The *calls* and *commands* of an event do not depend on the load of the machine. The other checkout,
with its native modules built, runs this same file with its own package, in turns; each figure is
the least of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks.corpus import replayed_log
from benchmarks.redis_meter import Meter, opened
from benchmarks.reporting import cost_table
from benchmarks.speed import real_lines
from stream_dedup.assembly import tune
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.config import WorkerConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import LIMITS, RedisIndex
from stream_dedup.io.base import Record, Records
from stream_dedup.io.decoder import DecoderOptions, RecordDecoder
from stream_dedup.model import Partition
from tests.services.redis import RedisServer

PARTITIONS = 4
SHARES = (0.0, 0.5, 0.95)
CLAIMED = 500

Figures = dict[str, float]
"""Microseconds an event: ``worker``, ``redis``, and each script's; ``calls`` and ``commands``."""

COUNTS = ("calls", "commands")


class Stream:
    """Log lines that go through an engine."""

    def __init__(
        self, engine: Engine, meter: Meter, server: RedisServer, *, together: bool
    ) -> None:
        self._engine = engine
        self._meter = meter
        self._server = server
        self._together = together
        self._decoder = RecordDecoder(DecoderOptions(), engine.recipe)
        self._offset = 0

    async def run(self, events: int, share: float, seed: int) -> Figures:
        """Process so many events, of which a share repeats; what each took."""
        lines = replayed_log(real_lines(), events, duplicate_share=share, seed=seed)
        now_ms = int(time.time() * 1000)
        rows = [
            [Record(self._offset + i, now_ms, None, line) for i, line in enumerate(part)]
            for part in (lines[number::PARTITIONS] for number in range(PARTITIONS))
        ]
        self._offset += len(rows[0])
        at_once = WorkerConfig().max_batch_events
        self._meter.calls.clear()
        calls, commands = counted(self._server)
        gc.collect()
        began, server = time.process_time(), self._meter.used_ns()
        for start in range(0, len(rows[0]), at_once):
            batches = [
                self._batch(Partition("t", number), Records.of(part), now_ms)
                for number, records in enumerate(rows)
                if (part := records[start : start + at_once])
            ]
            if self._together:
                await asyncio.gather(*batches)
            else:
                for batch in batches:
                    await batch
            while summaries := await self._engine.claim_summaries(CLAIMED):
                await self._engine.confirm_summaries(summaries)
        figures = {
            "worker": (time.process_time() - began) * 1e6 / events,
            "redis": (self._meter.used_ns() - server) / 1e3 / events,
        }
        if not self._together:
            for script, spent in self._meter.calls.items():
                figures[script] = sum(spent) / 1e3 / events
        after = counted(self._server)
        figures |= {
            "calls": (after[0] - calls) / events,
            "commands": (after[1] - commands) / events,
        }
        return figures

    async def _batch(self, partition: Partition, records: Records, now_ms: int) -> None:
        batch = self._decoder.decode(partition, records, now_ms * 1000)
        hashed = self._engine.hash(batch)
        await self._engine.process(hashed, committed=records.offsets[0])


def counted(server: RedisServer) -> tuple[int, int]:
    """Scripts that were called, and all commands that they ran."""
    calls = {
        name: int(value.split(",")[0].removeprefix("calls="))
        for name, value in server.info("commandstats").items()
    }
    scripts = calls.get("cmdstat_evalsha", 0)
    return scripts, sum(calls.values()) - scripts


async def measure(events: int, share: float, *, full: bool, together: bool) -> Figures:
    """What an event of such a stream takes, at an index without clusters or one that is full."""
    recipe, windows, summaries = load_recipe("logs"), Windows(), Summaries()
    with RedisServer() as server:
        meter = Meter(server)
        async with opened(server, meter, recipe, windows=windows, summaries=summaries) as index:
            engine = Engine(
                recipe, index, windows=windows, summaries=summaries, clock=SystemClock()
            )
            stream = Stream(engine, meter, server, together=together)
            if full:
                await stream.run(LIMITS.max_clusters + PARTITIONS, 0.0, seed=1)
                await renew(server, index, engine)
            return await stream.run(events, share, seed=2)


async def renew(server: RedisServer, index: RedisIndex, engine: Engine) -> None:
    """Let a round renew all times to live, as it does within minutes: inserting is cheaper then."""
    meta = ShardKeys("logs", 0).meta
    while server.command("HGET", meta, "kept") is None:
        await index.expire(engine.clock.now_us())


def name_of(share: float, *, full: bool) -> str:
    """What the tables call it."""
    return f"{share:.0%}, {'full' if full else 'empty'}"


def child(checkout: Path, share: float, events: int, *flags: str) -> Figures:
    """Measure in a process of its own, with the package of a checkout."""
    here = Path(__file__).resolve().parent.parent
    paths = f"{checkout}{os.pathsep}{here}"
    command = [sys.executable, __file__, "--one", str(share), "--events", str(events)]
    out = subprocess.run(
        [*command, *flags],
        check=True, stdout=subprocess.PIPE, text=True, cwd=checkout,
        env={**os.environ, "PYTHONPATH": paths},
    ).stdout  # fmt: skip
    figures: Figures = json.loads(out.splitlines()[-1])
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--only", default="", help="such as 0,full")
    parser.add_argument("--together", action="store_true", help="all partitions at the same time")
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        logging.getLogger().setLevel(logging.ERROR)
        tune()
        work = measure(options.events, options.one, full=options.full, together=options.together)
        print(json.dumps(asyncio.run(work)))
        return
    here = Path(__file__).resolve().parent.parent
    checkouts = {"here": here}
    if options.beside:
        checkouts = {"beside": options.beside.resolve(), **checkouts}
    out = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    kinds = [(share, full) for full in (False, True) for share in SHARES]
    for share, full in kinds:
        name = name_of(share, full=full)
        if options.only and options.only != f"{share * 100:.0f},{'full' if full else 'empty'}":
            continue
        least: dict[str, Figures] = {}
        for _ in range(options.rounds):
            for checkout, path in checkouts.items():
                flags = [
                    name for name, on in (("--full", full), ("--together", options.together)) if on
                ]
                figures = child(path, share, options.events, *flags)
                known = least.setdefault(checkout, figures)
                least[checkout] = {
                    each: min(known.get(each, us), us) for each, us in figures.items()
                }
        columns = sorted({each for figures in least.values() for each in figures})
        columns.sort(key=["redis", "worker", *COUNTS].__contains__, reverse=True)
        table = cost_table(f"{name}: processor time, µs an event", *columns)
        for checkout, figures in least.items():
            table.add_row(
                checkout,
                *(f"{figures.get(each, 0):.{2 if each in COUNTS else 1}f}" for each in columns),
            )
        out.print(table)


if __name__ == "__main__":
    main()

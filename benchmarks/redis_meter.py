"""What the benchmarks over Redis share: a server, its figures before and after, its slow calls.

The processor time of the server is what all its clients share, so it says more than the wall: it
is read from the server itself (``INFO cpu``). *Calls* cross the network; *commands* run inside the
server, those of scripts among them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import redis

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.redis.client import Arguments, RedisClient
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.store import LIMITS, RedisIndex
from stream_dedup.model import Position
from tests.services.redis import RedisServer

BATCH = 200
"""Queries a call of `resolve` here, where nothing else is said."""

NOW_US = 1_700_000_000 * US_PER_S
"""The clock, and the time of the first event."""

WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)


@dataclass(frozen=True, slots=True)
class Cost:
    """What some events took, each; the counts are means.

    Attributes:
        wall_us: time as the caller sees it.
        server_us: processor time of the server.
        client_us: processor time of this process.
        calls: scripts called over the network.
        commands: commands run in the server, those within scripts included.
        bytes_in: bytes the server received.
        bytes_out: bytes it sent.
    """

    wall_us: float
    server_us: float
    client_us: float
    calls: float
    commands: float
    bytes_in: float
    bytes_out: float

    @classmethod
    def best(cls, rounds: Sequence[Cost]) -> Cost:
        """The least of each figure over several rounds."""
        return cls(*(min(getattr(one, f.name) for one in rounds) for f in fields(cls)))


class Meter:
    """Reads a server's figures before and after a piece of work.

    Attributes:
        calls: nanoseconds of the server's processor time that calls of each script used.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.calls: dict[str, list[int]] = {}
        pid = server.info("server")["process_id"]
        self._schedstat = Path(f"/proc/{pid}/task/{pid}/schedstat")

    async def time(self, events: int, work: Awaitable[object]) -> Cost:
        """Do some work once and say what it took, an event."""
        before = self._read()
        client = time.process_time()
        wall = time.perf_counter()
        await work
        wall = time.perf_counter() - wall
        client = time.process_time() - client
        after = self._read()
        server_us, inner, calls, received, sent = (
            b - a for a, b in zip(before, after, strict=True)
        )
        return Cost(
            wall * 1e6 / events,
            server_us / events,
            client * 1e6 / events,
            calls / events,
            inner / events,
            received / events,
            sent / events,
        )

    def _read(self) -> tuple[float, ...]:
        info = self._server.info("everything")
        used_us = (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])) * 1e6
        counts = {
            name.removeprefix("cmdstat_"): int(value.split(",")[0].removeprefix("calls="))
            for name, value in info.items()
            if name.startswith("cmdstat_")
        }
        calls = counts.get("evalsha", 0)
        inner = sum(counts.values()) - calls - counts.get("info", 0)
        return (
            used_us,
            inner,
            calls,
            int(info["total_net_input_bytes"]),
            int(info["total_net_output_bytes"]),
        )

    def used_memory(self) -> int:
        """Bytes the server has allocated."""
        return int(self._server.info("memory")["used_memory"])

    def used_ns(self) -> int:
        """Nanoseconds of processor time of the server's main thread, where its scripts run."""
        return int(self._schedstat.read_text().split()[0])

    def note_call(self, script: str, used_ns: int) -> None:
        """A call that was alone has used so much."""
        self.calls.setdefault(script, []).append(used_ns)


class MeteredServer(RedisClient):
    """A service that notes what each call costs the server, unless others are on their way."""

    def __init__(self, url: str, meter: Meter) -> None:
        super().__init__(url)
        self._meter = meter
        self._on_their_way = 0
        self._met = False

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Arguments) -> Any:  # noqa: ANN401 -- as the parent's
        self._on_their_way += 1
        self._met = self._on_their_way > 1
        before = self._meter.used_ns()
        try:
            return await super().run(script, keys, arguments)
        finally:
            if not self._met:
                self._meter.note_call(script.name, self._meter.used_ns() - before)
            self._on_their_way -= 1


@contextmanager
def fresh(server: RedisServer) -> Iterator[redis.Redis]:
    """A plain client of the server, emptied first and afterwards."""
    server.command("FLUSHALL", "SYNC")
    with redis.Redis(port=server.port) as driver:
        yield driver
    server.command("FLUSHALL", "SYNC")


@asynccontextmanager
async def opened(
    server: RedisServer,
    meter: Meter,
    recipe: Recipe,
    *,
    windows: Windows = WIDE,
    summaries: Summaries | None = None,
    max_clusters: int = LIMITS.max_clusters,
    blocks: int | None = None,
    mirror_size: int = MIRROR_SIZE,
    empty: bool = True,
) -> AsyncIterator[RedisIndex]:
    """An index over the server.

    Args:
        server: the server.
        meter: notes its calls.
        recipe: what counts as near.
        windows: when clusters close.
        summaries: how often summaries are due.
        max_clusters: the number it is laid out for; above it the least recently seen are closed.
        blocks: blocks of a fingerprint; chosen by the planner by default.
        mirror_size: the number of fingerprints that are mirrored in the process.
        empty: empty the server before and after; otherwise open the index that is there.
    """
    if empty:
        server.command("FLUSHALL", "SYNC")
    service = MeteredServer(server.url, meter)
    limits = Limits(max_clusters, LIMITS.max_candidates, LIMITS.max_verified, LIMITS.sweep)
    try:
        index = await RedisIndex.open(
            service, recipe, windows=windows, summaries=summaries, limits=limits, blocks=blocks,
            mirror_size=mirror_size,
        )  # fmt: skip
        yield index
    finally:
        await service.aclose()
        if empty:
            server.command("FLUSHALL", "SYNC")


def random_query(offset: int, fingerprint: int, sketch: bytes = b"") -> Query:
    """A query whose exact hash is its fingerprint, a millisecond after the one before."""
    time_us = NOW_US + 1_000 * offset
    return Query(
        "", fingerprint, fingerprint, sketch, True, time_us, time_us, Position("bench", 0, offset)
    )


async def resolve(index: RedisIndex, queries: Sequence[Query], batch: int = BATCH) -> int:
    """Resolve in batches; how many opened a cluster."""
    opened = 0
    for start in range(0, len(queries), batch):
        answers = await index.resolve(queries[start : start + batch], NOW_US)
        opened += sum(answer.new for answer in answers)
    return opened


def memory_usage(server: RedisServer, pattern: str = "sd:*:t:*") -> int:
    """Bytes of the keys of a pattern, by MEMORY USAGE; their names' included."""
    used = 0
    with redis.Redis(port=server.port) as driver:
        keys = list(driver.scan_iter(pattern, count=10_000))
        for start in range(0, len(keys), 10_000):
            pipe = driver.pipeline(transaction=False)
            for key in keys[start : start + 10_000]:
                pipe.memory_usage(key, samples=0)
            used += sum(int(size) for size in pipe.execute())
    return used


def freed(server: RedisServer, pattern: str = "sd:*:t:*") -> int:
    """Bytes that the server gets back when the keys of a pattern are deleted."""
    with redis.Redis(port=server.port) as driver:
        keys = list(driver.scan_iter(pattern, count=10_000))
        before = int(driver.info("memory")["used_memory"])
        for start in range(0, len(keys), 10_000):
            driver.delete(*keys[start : start + 10_000])
        return before - int(driver.info("memory")["used_memory"])

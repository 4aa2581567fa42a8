"""Phases A and E of `redis_index`: unique fingerprints beside the peers, and growth."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import iter_replayed
from benchmarks.redis_meter import (
    BATCH,
    WIDE,
    Cost,
    Meter,
    freed,
    fresh,
    memory_usage,
    opened,
    random_query,
    resolve,
)
from benchmarks.redis_peers import PERMUTATIONS, THRESHOLD, DatasketchPeer, SortedSetPeer
from benchmarks.reporting import Target, at_least, at_most, cost_table
from benchmarks.speed import ROOT, real_lines
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import Query
from stream_dedup.index.redis.namespace import plan_layout
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Partition
from stream_dedup.tables.permutation import Layout
from tests.services.redis import RedisServer

K = 3
BLOCKS = 4
PLAIN = Recipe(match=Match(k=K))
ROUNDS = 5
ROUND = 10 * BATCH
PLOT = ROOT / "docs" / "images" / "redis-growth.png"
FILL_BATCH = 500
AT_ONCE = 3
"""Batches on their way while filling: the client packs one while the server works on another."""


def unique_queries(rng: random.Random, first: int, count: int) -> list[Query]:
    """Queries of random fingerprints."""
    return [random_query(first + i, rng.getrandbits(64)) for i in range(count)]


async def fill(index: RedisIndex, rng: random.Random, first: int, count: int) -> None:
    """Have random fingerprints open clusters, as fast as it goes."""

    async def some(starts: Iterator[int]) -> None:
        for start in starts:
            await resolve(
                index, unique_queries(rng, start, min(FILL_BATCH, end - start)), FILL_BATCH
            )

    end = first + count
    starts = iter(range(first, end, FILL_BATCH))
    await asyncio.gather(*(some(starts) for _ in range(AT_ONCE)))


async def bench_unique(
    server: RedisServer, meter: Meter, out: Console, *, stored: int, peer_s: float
) -> list[Target]:
    """Unique events: one fingerprint after another that nothing stored is near to."""
    planned = plan_layout(PLAIN, stored, 1).blocks
    table = cost_table(
        f"A. unique events, k = {K}, 64 bits, {stored:,} random fingerprints stored, batches of "
        f"{BATCH}; the planner takes {planned} blocks",
        "wall, µs", "server, µs", "client, µs", "commands", "tables, bytes", "when freed",
    )  # fmt: skip
    targets: list[Target] = []
    ours_us = 0.0
    for blocks in dict.fromkeys((BLOCKS, planned)):
        cost, line_us, used, back = await _ours(server, meter, stored, blocks)
        tables = Layout(64, K, blocks).tables
        _row(table, f"stream-dedup: resolve, {blocks} blocks, {tables} tables", cost, used, back)
        table.add_row(f"stream-dedup: engine on lines, {blocks} blocks", f"{line_us:.0f}")
        if blocks == BLOCKS:
            ours_us = line_us
            targets += [
                at_most("A. unique event: server", cost.server_us, 80, "µs"),
                at_most("A. tables, a fingerprint", used, 110, "bytes"),
            ]
    cost, used, back = await _plain(server, meter, stored)
    _row(table, f"sorted set a table, pipelines, {BLOCKS} tables", cost, used, back)
    session_us, one_us, held = _datasketch(server, stored, peer_s)
    table.add_row(f"datasketch: session insert alone, {held:,} stored", f"{session_us:.0f}")
    table.add_row(f"datasketch: query and insert, {held:,} stored", f"{one_us:.0f}")
    out.print(table)
    out.print(
        f"datasketch: {PERMUTATIONS} permutations, threshold {THRESHOLD}, from the line on; "
        "engine on lines: fingerprint, resolve, record"
    )
    return [
        *targets,
        at_least("A. datasketch, query and insert, against ours", one_us / ours_us, 20, "×"),
    ]


def _row(table: Table, name: str, cost: Cost, used: float, back: float) -> None:
    table.add_row(
        name, f"{cost.wall_us:.0f}", f"{cost.server_us:.1f}", f"{cost.client_us:.0f}",
        f"{cost.commands:.1f}", f"{used:.1f}", f"{back:.1f}",
    )  # fmt: skip


async def _ours(
    server: RedisServer, meter: Meter, stored: int, blocks: int
) -> tuple[Cost, float, float, float]:
    """What an event costs by `resolve`; wall µs by the engine; bytes of the tables, two ways."""
    rng = random.Random(7)
    async with opened(
        server, meter, PLAIN, max_clusters=stored, blocks=blocks, mirror_size=0
    ) as index:
        await fill(index, rng, 0, stored)
        used = memory_usage(server) / stored
        rounds = []
        for number in range(ROUNDS):
            queries = unique_queries(rng, stored + number * ROUND, ROUND)
            rounds.append(await meter.time(ROUND, resolve(index, queries)))
        # Opened with room for more: the engine records, and so would close what is above the cap.
        async with opened(server, meter, PLAIN, max_clusters=2 * stored, empty=False) as larger:
            engine = Engine(PLAIN, larger, windows=WIDE, summaries=Summaries(), clock=SystemClock())
            lines = list(iter_replayed(real_lines(), ROUNDS * ROUND, duplicate_share=0, seed=3))
            times = [
                await meter.time(ROUND, process(engine, lines[start : start + ROUND], start))
                for start in range(0, len(lines), ROUND)
            ]
        back = freed(server) / (await index.size()).fingerprints
    return Cost.best(rounds), Cost.best(times).wall_us, used, back


async def process(engine: Engine, lines: Sequence[bytes], first: int, batch: int = BATCH) -> None:
    """Have an engine decide lines in batches."""
    for start in range(0, len(lines), batch):
        values = list(lines[start : start + batch])
        offsets = range(first + start, first + start + len(values))
        await engine.process(Batch(Partition("lines", 0), offsets, values))


async def _plain(server: RedisServer, meter: Meter, stored: int) -> tuple[Cost, float, float]:
    """What an event costs with plain sorted sets, and the bytes a fingerprint, two ways."""
    rng = random.Random(7)
    with fresh(server) as driver:
        peer = SortedSetPeer(driver, Layout(64, K, BLOCKS))

        async def check(count: int, batch: int) -> None:
            for _ in range(0, count, batch):
                peer.check_and_insert([rng.getrandbits(64) for _ in range(batch)])

        await check(stored, 10 * BATCH)
        used = memory_usage(server, "plain:*") / stored
        rounds = [await meter.time(ROUND, check(ROUND, BATCH)) for _ in range(ROUNDS)]
        back = freed(server, "plain:*") / (stored + ROUNDS * ROUND)
    return Cost.best(rounds), used, back


def _datasketch(server: RedisServer, stored: int, within_s: float) -> tuple[float, float, int]:
    """Wall µs of a session's insert and of query and insert; how many were stored by then."""
    lines = list(iter_replayed(real_lines(), stored, duplicate_share=0, seed=5))
    with fresh(server):
        peer = DatasketchPeer(server.port)
        held, step = 0, min(stored, 2_000)
        session: list[float] = []
        until = time.perf_counter() + within_s
        while held < stored and time.perf_counter() < until:
            started = time.perf_counter()
            peer.insert_all(lines[held : held + step])
            session.append((time.perf_counter() - started) / step)
            held += step
        ones = []
        for number in range(ROUNDS):
            more = list(iter_replayed(real_lines(), BATCH, duplicate_share=0, seed=100 + number))
            started = time.perf_counter()
            peer.check_and_insert(more)
            ones.append((time.perf_counter() - started) / BATCH)
    return min(session) * 1e6, min(ones) * 1e6, held


async def bench_growth(
    server: RedisServer, meter: Meter, out: Console, *, sizes: Sequence[int], plot: Path | None
) -> list[Target]:
    """Time and memory while one index grows to the capacity it was laid out for."""
    plan = plan_layout(PLAIN, sizes[-1], 1)
    table = cost_table(
        f"E. growth, random 64-bit fingerprints, k = {K}, laid out for {sizes[-1]:,}: "
        f"{plan.blocks} blocks, {plan.table_layout.tables} tables, {plan.slices:,} slices each",
        "wall, µs", "server, µs", "client, µs", "tables, bytes", "all, bytes a cluster", "all, MB",
    )  # fmt: skip
    rng = random.Random(11)
    rows: list[dict[str, float]] = []
    started = time.perf_counter()
    async with opened(server, meter, PLAIN, max_clusters=sizes[-1]) as index:
        empty = meter.used_memory()
        held = 0
        for size in sizes:
            await fill(index, rng, held, size - ROUNDS * ROUND - held)
            held = size - ROUNDS * ROUND
            rounds = []
            for _ in range(ROUNDS):
                queries = unique_queries(rng, held, ROUND)
                rounds.append(await meter.time(ROUND, resolve(index, queries)))
                held += ROUND
            used = meter.used_memory() - empty
            cost = Cost.best(rounds)
            row = {
                "size": size,
                "wall": cost.wall_us,
                "server": cost.server_us,
                "tables": memory_usage(server) / size,
                "all": used / size,
                "mb": used / 1e6,
            }
            rows.append(row)
            table.add_row(
                f"{size:,}", f"{cost.wall_us:.0f}", f"{cost.server_us:.1f}",
                f"{cost.client_us:.0f}", f"{row['tables']:.1f}", f"{row['all']:.0f}",
                f"{row['mb']:.1f}",
            )  # fmt: skip
    out.print(table)
    took = time.perf_counter() - started
    if plot:
        _plot(rows, plot)
        out.print(f"plot: {plot.relative_to(ROOT)}")
    return [at_most("E. the whole of it", took, 300, "s")]


def _plot(rows: list[dict[str, float]], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 -- of the group bench

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 -- after the backend is set

    sizes = [row["size"] for row in rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    left.plot(sizes, [row["all"] for row in rows], "o-", label="whole index, a cluster")
    left.plot(sizes, [row["tables"] for row in rows], "o-", label="tables, a fingerprint")
    right.plot(sizes, [row["wall"] for row in rows], "o-", label="wall")
    right.plot(sizes, [row["server"] for row in rows], "o-", label="server's processor")
    for axes, title in ((left, "memory, bytes"), (right, "a unique event, µs")):
        axes.set_xscale("log")
        axes.set_xlabel("fingerprints")
        axes.set_title(title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)

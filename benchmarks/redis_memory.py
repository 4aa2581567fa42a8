"""Phase J of `redis_index`: what a namespace takes of memory, by its parts, beside the formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import iter_replayed
from benchmarks.redis_growth import PLAIN, process
from benchmarks.redis_meter import WIDE, Meter, memory_usage, opened
from benchmarks.speed import real_lines
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.tables.entries import make_entries
from tests.services.redis import RedisServer

PARTS = {"tables": "t", "exact hashes": "e", "records": "r", "clusters": "c", "values": "v"}
"""The kinds of keys."""

FIRST = Summaries(every_us=None, samples=0, values=0)
SAMPLES = Summaries(every_us=None, samples=3, values=0)
RECENCY, EXACT_HASH, RECORD = 105, 30, 35


class Case(NamedTuple):
    """What is stored.

    Attributes:
        name: how the table names it.
        recipe: the recipe.
        summaries: what is kept of a cluster.
        copies: how often each line comes.
        lines: how many different lines come.
        laid_out_for: the number of clusters that the tables are planned for.
    """

    name: str
    recipe: Recipe
    summaries: Summaries
    copies: int
    lines: int
    laid_out_for: int


def cases(sizes: Sequence[int]) -> list[Case]:
    """Return what is measured, for each number of lines; the last one is laid out too large."""
    logs = load_recipe("logs")
    kinds = [
        ("k = 3", PLAIN, FIRST, 1),
        ("logs", logs, FIRST, 1),
        ("logs, 3 samples", logs, SAMPLES, 4),
    ]
    found = [Case(*kind, size, size) for kind in kinds for size in sizes]
    return [*found, found[-len(sizes)]._replace(laid_out_for=sizes[-1])]


async def bench_memory(
    server: RedisServer, meter: Meter, out: Console, *, sizes: Sequence[int]
) -> None:
    """Fill an index with lines that each open a cluster, and say where the memory is."""
    table = Table("", "clusters", "laid out for", *PARTS, "others", "not in keys", "all", "formula",
                  "a tombstone",
                  title="J. bytes a cluster, by MEMORY USAGE of the keys")  # fmt: skip
    for case in cases(sizes):
        async with opened(
            server, meter, case.recipe, summaries=case.summaries, max_clusters=case.laid_out_for
        ) as index:
            empty = meter.used_memory()
            lines = list(iter_replayed(real_lines(), case.lines, duplicate_share=0))
            engine = Engine(
                case.recipe, index, windows=WIDE, summaries=case.summaries, clock=SystemClock(),
                near_cache_size=0,
            )  # fmt: skip
            for copy in range(case.copies):
                await process(engine, lines, copy * len(lines), batch=500)
            clusters = (await index.size()).clusters
            used = (meter.used_memory() - empty) / clusters
            parts = [memory_usage(server, f"sd:*:{kind}:*") / clusters for kind in PARTS.values()]
            others = memory_usage(server, "sd:*") / clusters - sum(parts)
            await _close_all(index)
            tombstone = (meter.used_memory() - empty) / clusters
            table.add_row(
                case.name, f"{clusters:,}", f"{case.laid_out_for:,}",
                *(f"{part:,.0f}" for part in (*parts, others, used - sum(parts) - others, used)),
                f"{formula(case, index, lines):,.0f}", f"{tombstone:,.0f}",
            )  # fmt: skip
    out.print(table)


async def _close_all(index: RedisIndex) -> None:
    """Close all clusters, and confirm their final summaries."""
    now_us = SystemClock().now_us()
    await index.finish(now_us)
    while summaries := await index.claim(1_000, now_us):
        await index.confirm([(each.cluster, each.revision) for each in summaries], now_us)


def formula(case: Case, index: RedisIndex, lines: Sequence[bytes]) -> float:
    """What docs/how-to/redis-sizing.md says of one cluster, aliases aside."""
    numbers = Fingerprinter(case.recipe, index.key).fingerprints(lines, full=True)
    least, match = case.recipe.min_search_words, case.recipe.match
    searched = [number >= least for number in numbers.words]
    words = sum(numbers.words) / len(lines)
    in_tables = sum(searched) / len(lines)
    sketches = 8 * sum(w for w, s in zip(numbers.words, searched, strict=True) if s) / len(lines)
    length, kept = sum(map(len, lines)) / len(lines), case.summaries.samples
    layout = index.layout
    entry = make_entries(layout.table_layout, layout.slices).member_bytes + 10
    return (
        400 + length + RECENCY + EXACT_HASH
        + (100 if kept else 0) + kept * (85 + length)
        + (sketches if match.jaccard else 0) + (RECORD * words if match.learn else 0)
        + in_tables * layout.table_layout.tables * entry
    )  # fmt: skip

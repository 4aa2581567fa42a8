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
            table.add_row(
                case.name, f"{clusters:,}", f"{case.laid_out_for:,}",
                *(f"{part:,.0f}" for part in (*parts, others, used - sum(parts) - others, used)),
                f"{formula(case, index, lines):,.0f}",
            )  # fmt: skip
    out.print(table)


def formula(case: Case, index: RedisIndex, lines: Sequence[bytes]) -> float:
    """What docs/how-to/redis-sizing.md says of one cluster, aliases aside."""
    fingerprinter = Fingerprinter(case.recipe, index.key)
    numbers = fingerprinter.fingerprints(lines, full=True)
    words = sum(len(sketch) // 8 for sketch in numbers.sketches) / len(lines)
    length = sum(map(len, lines)) / len(lines)
    kept = case.summaries.samples
    least = case.recipe.min_search_words
    searched = sum(number >= least for number in numbers.words) / len(lines)
    layout = index.layout
    tables = layout.table_layout.tables
    return (
        300 + 8 * words * (case.recipe.match.jaccard > 0) + length + kept * (85 + length)
        + (100 if kept else 0) + RECENCY + EXACT_HASH
        + searched * tables * (make_entries(layout.table_layout, layout.slices).member_bytes + 10)
        + (RECORD * words if case.recipe.match.learn else 0)
    )  # fmt: skip

"""Phases B, C, F and H of `redis_index`: log lines, the shipped recipe, slices of tables."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.corpus import iter_replayed, replayed_log
from benchmarks.datasets import load_datasets
from benchmarks.redis_growth import process
from benchmarks.redis_meter import (
    BATCH,
    NOW_US,
    WIDE,
    Cost,
    Meter,
    fresh,
    memory_usage,
    opened,
    resolve,
)
from benchmarks.reporting import Target, at_most, cost_table
from benchmarks.speed import real_lines
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import NEAR_CACHE_SIZE, Engine
from stream_dedup.features.recipe import Match, Recipe, load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.index.redis.keys import NamespaceLayout
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.namespace import plan_layout
from stream_dedup.index.redis.store import LIMITS
from stream_dedup.model import Position
from stream_dedup.tables.entries import make_entries
from tests.services.redis import RedisServer

ROUNDS = 5
PATTERN_BATCH = 500

WINDOWS_LIVE = ((2_000, 150.0), (10_000, 300.0), (18_000, None))
"""Live clusters, and the wanted microseconds of a miss."""

CONVERTED = 128
"""A set with more entries than this takes some five times the memory an entry."""

_WORD = re.compile(rb"[A-Za-z]{3,}")


def log_queries(recipe: Recipe, lines: Sequence[bytes], first: int) -> list[Query]:
    """What the engine would ask of lines."""
    numbers = Fingerprinter(recipe, PUBLIC_KEY).fingerprints(lines, full=True)
    return [
        Query(
            "",
            numbers.exact[row],
            numbers.fingerprint(row),
            numbers.sketches[row],
            numbers.words[row] >= recipe.match.min_features,
            NOW_US + 1_000 * row,
            NOW_US + 1_000 * row,
            Position("logs", 0, first + row),
        )
        for row in range(len(lines))
    ]


class Kinds(NamedTuple):
    """Queries by what an index says of them when it is asked in this order.

    Attributes:
        misses: they open a cluster.
        aliases: they are found by a search, once; their exact hashes are new.
    """

    misses: list[Query]
    aliases: list[Query]


def all_real_lines(data: Path) -> list[bytes]:
    """Distinct lines of the example logs and of a folder of labelled ones, if it is there."""
    lines = real_lines()
    if data.is_dir():
        lines += [line for dataset in load_datasets(data) for line in dataset.lines]
    return list(dict.fromkeys(lines))


def sort_out(recipe: Recipe, real: Sequence[bytes], misses: int, aliases: int) -> Kinds:
    """Lines that open clusters, in a random order, and others that join one by a search.

    The first are real ones; where there are too few, words of real ones are replaced.
    """
    rng = random.Random(3)
    index = MemoryIndex(
        recipe,
        windows=WIDE,
        limits=Limits(10 * misses, LIMITS.max_candidates, LIMITS.max_verified),
    )
    opening: list[Query] = []
    lines: list[bytes] = []
    seed = 0
    asked = rng.sample(real, len(real))
    while len(opening) < misses:
        for line, query in zip(asked, log_queries(recipe, asked, seed * 10_000_000), strict=True):
            (answer,) = run(index.resolve([query], NOW_US))
            if answer.new and len(opening) < misses:
                opening.append(query)
                lines.append(line)
        asked = replayed_log(real, misses, duplicate_share=0, seed=seed)
        seed += 1
    rng.shuffle(opening)
    joining: list[Query] = []
    tries = [one_word_other(rng.choice(lines), rng) for _ in range(40 * aliases)]
    exact = {query.exact for query in opening}
    for query in log_queries(recipe, tries, 1_000_000_000):
        if len(joining) == aliases:
            break
        if query.exact in exact:
            continue
        exact.add(query.exact)
        (answer,) = run(index.resolve([query], NOW_US))
        if not answer.new and answer.distance:
            joining.append(query)
    return Kinds(opening, joining)


def one_word_other(line: bytes, rng: random.Random) -> bytes:
    """The line with one of its words replaced by one that nobody has seen."""
    words = list(_WORD.finditer(line))
    if not words:
        return line
    start, end = rng.choice(words).span()
    return line[:start] + bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=8)) + line[end:]


def candidates(layout: NamespaceLayout, stored: Iterable[Query], asked: Sequence[Query]) -> float:
    """Entries a search looks at on average: those that share a prefix, over all tables."""
    masks = layout.table_layout.masks
    buckets = Counter(
        (table, query.fingerprint & mask)
        for query in stored
        if query.near
        for table, mask in enumerate(masks)
    )
    return sum(
        buckets[table, query.fingerprint & mask]
        for query in asked
        for table, mask in enumerate(masks)
    ) / len(asked)


async def kinds_costs(
    server: RedisServer, meter: Meter, recipe: Recipe, kinds: Kinds, each: int, mirror_size: int
) -> tuple[Cost, Cost, Cost]:
    """What a miss, an alias and an exact hit cost, the best of some rounds of `each`."""
    misses, aliases = kinds
    before = len(misses) - ROUNDS * each
    async with opened(server, meter, recipe, mirror_size=mirror_size) as index:

        async def best(queries: Sequence[Query], step: int) -> Cost:
            return Cost.best(
                [
                    await meter.time(step, resolve(index, queries[start : start + step]))
                    for start in range(0, len(queries) - step + 1, step)
                ]
            )

        await resolve(index, misses[:before])
        miss = await best(misses[before:], each)
        again = [
            query._replace(position=Position("again", 0, number))
            for number, query in enumerate(misses[before:])
        ]
        exact = await best(again, each)
        return miss, await best(aliases, max(1, len(aliases) // ROUNDS)), exact


async def bench_logs(
    server: RedisServer, meter: Meter, out: Console, *, data: Path, share: float = 1
) -> list[Target]:
    """The recipe `logs`: misses, aliases and exact hits among so many live clusters."""
    recipe = load_recipe("logs")
    real = all_real_lines(data)
    table = cost_table(
        f"B. recipe logs, k = {recipe.match.k}, verified; lines of {len(real):,} real ones, "
        f"then with words replaced; batches of {BATCH}",
        "live", "tables", "wall, µs", "server, µs", "client, µs", "commands", "candidates",
    )  # fmt: skip
    targets = []
    for full, wanted_us in WINDOWS_LIVE:
        each = max(BATCH, round(full * share) // 50)
        live = max(round(full * share), ROUNDS * each)
        kinds = sort_out(recipe, real, live + ROUNDS * each // 2, ROUNDS * each)
        layout = plan_layout(recipe, LIMITS.max_clusters, 1)
        misses, aliases = kinds
        before = len(misses) - ROUNDS * each
        looked = (
            candidates(layout, misses[:live], misses[before:]),
            candidates(layout, misses, aliases),
        )
        for how, size in (("mirrored", MIRROR_SIZE), ("searched in Redis", 0)):
            miss, alias, exact = await kinds_costs(server, meter, recipe, kinds, each, size)
            for name, cost, seen in (
                (f"miss: opens a cluster, {how}", miss, f"{looked[0]:.0f}"),
                (f"alias: found by search ({len(aliases):,}), {how}", alias, f"{looked[1]:.0f}"),
                ("exact hit", exact, ""),
            ):
                table.add_row(
                    name, f"{live:,}", f"{layout.table_layout.tables}", f"{cost.wall_us:.0f}",
                    f"{cost.server_us:.1f}", f"{cost.client_us:.0f}", f"{cost.commands:.1f}",
                    seen if not size else "",
                )  # fmt: skip
            if wanted_us is not None:
                name = f"B. miss, {live:,} live clusters, {how}: server"
                targets.append(at_most(name, miss.server_us, wanted_us, "µs"))
    out.print(table)
    return targets


async def bench_replay(server: RedisServer, meter: Meter, out: Console, *, count: int) -> None:
    """A replayed log through the engine, in batches of a thousand."""
    recipe = load_recipe("logs")
    corpus = replayed_log(real_lines(), count)
    table = cost_table(
        f"C. engine, {count:,} replayed log lines, recipe logs, batches of 1,000",
        "duplicates", "events a second", "commands", "calls", "bytes in", "bytes out",
        "server, µs", "client, µs",
    )  # fmt: skip
    for name, size in (("near cache", NEAR_CACHE_SIZE), ("no near cache", 0)):
        costs = []
        for _ in range(2):
            async with opened(server, meter, recipe) as index:
                engine = Engine(
                    recipe, index, windows=WIDE, summaries=Summaries(), clock=SystemClock(),
                    near_cache_size=size,
                )  # fmt: skip
                costs.append(await meter.time(count, process(engine, corpus, 0, 1_000)))
        cost = Cost.best(costs)
        table.add_row(
            name, f"{engine.counts.removed:.1%}", f"{1e6 / cost.wall_us:,.0f}",
            f"{cost.commands:.2f}", f"{cost.calls:.4f}", f"{cost.bytes_in:.1f}",
            f"{cost.bytes_out:.1f}", f"{cost.server_us:.1f}", f"{cost.client_us:.1f}",
        )  # fmt: skip
    out.print(table)


async def bench_patterns(
    server: RedisServer, meter: Meter, out: Console, *, patterns: int
) -> list[Target]:
    """New patterns alone, through the engine: what each costs the server, and what it keeps."""
    recipe = load_recipe("logs")
    lines = iter_replayed(real_lines(), patterns, duplicate_share=0)
    table = cost_table(
        f"H. {patterns:,} lines, each a new pattern, recipe logs, batches of {PATTERN_BATCH:,}",
        "clusters", "server, µs", "client, µs", "bytes",
        "of it records", "tables", "clusters themselves", "exact hashes",
    )  # fmt: skip
    async with opened(server, meter, recipe, max_clusters=patterns) as index:
        engine = Engine(
            recipe, index, windows=WIDE, summaries=Summaries(), clock=SystemClock(),
        )  # fmt: skip
        before = meter.used_memory()

        async def fill() -> None:
            for first in range(0, patterns, PATTERN_BATCH):
                some = list(islice(lines, PATTERN_BATCH))
                await process(engine, some, first, PATTERN_BATCH)

        cost = await meter.time(patterns, fill())
        clusters = engine.counts.new
        each = (meter.used_memory() - before) / clusters
        parts = [memory_usage(server, f"sd:*:{kind}:*") / clusters for kind in "rtce"]
    server_us = cost.server_us * patterns / clusters
    table.add_row(
        "new patterns", f"{clusters:,}", f"{server_us:.1f}",
        f"{cost.client_us * patterns / clusters:.1f}", f"{each:.0f}", *(f"{p:.0f}" for p in parts),
    )  # fmt: skip
    out.print(table)
    return [
        at_most(f"H. {patterns:,} new patterns: server, each", server_us, 60, "µs"),
        at_most(f"H. {patterns:,} new patterns: records, each", parts[0], 300, "bytes"),
    ]


def bench_slices(server: RedisServer, out: Console, *, data: Path, made: int) -> None:
    """Slices by a hash of group and prefix, against ranges of the permuted fingerprint."""
    table = cost_table(
        f"F. slices of more than {CONVERTED} entries, and bytes a fingerprint of all tables",
        "k", "fingerprints", "tables", "slices", "hash: over", "entries in", "bytes",
        "ranges: over", "entries in", "bytes",
    )  # fmt: skip
    logs = load_recipe("logs")
    real = all_real_lines(data)
    rng = random.Random(5)
    corpora = {
        "real lines": real,
        "a word replaced": [one_word_other(rng.choice(real), rng) for _ in range(made)],
        "all words replaced": list(iter_replayed(real_lines(), made, duplicate_share=0)),
    }
    for name, lines in corpora.items():
        numbers = Fingerprinter(logs, PUBLIC_KEY).fingerprints(lines, full=True)
        distinct = sorted({numbers.fingerprint(row) for row in range(len(lines))})
        shipped = plan_layout(logs, LIMITS.max_clusters, 1).blocks
        for k, blocks in ((logs.match.k, None), (logs.match.k, shipped), (3, None)):
            layout = plan_layout(Recipe(match=Match(k=k)), len(distinct), 1, blocks)
            row = [name, str(k), f"{len(distinct):,}", str(layout.table_layout.tables)]
            row.append(f"{layout.slices:,}")
            for by_hash in (True, False):
                over, inside, each = _sliced(server, layout, distinct, by_hash=by_hash)
                row += [f"{over:.1%}", f"{inside:.1%}", f"{each:.0f}"]
            table.add_row(*row)
    out.print(table)
    out.print("over: of the slices that hold anything; entries in: of all entries")


def _sliced(
    server: RedisServer, layout: NamespaceLayout, fingerprints: Sequence[int], *, by_hash: bool
) -> tuple[float, float, float]:
    """The share of slices that are large, the share of entries in them, bytes a fingerprint."""
    entries = make_entries(layout.table_layout, layout.slices)
    shift = layout.width - (layout.slices.bit_length() - 1)
    size = entries.member_bytes
    slices: dict[bytes, dict[bytes, int]] = {}
    for owner, fingerprint in enumerate(fingerprints):
        keys, packed = entries.arrange(fingerprint, 0, owner << 40 | owner, b"sd:{s:0}:t:")
        for number, hashed in enumerate(keys):
            ranged = layout.table_layout.permute(fingerprint, number) >> shift
            key = hashed if by_hash else b"sd:{s:0}:t:%d:%d" % (number, ranged)
            slices.setdefault(key, {})[packed[number * size : (number + 1) * size]] = 0
    with fresh(server) as driver:
        pipe = driver.pipeline(transaction=False)
        for key, members in slices.items():
            pipe.zadd(key, members)
            if len(pipe) == 1_000:
                pipe.execute()
        pipe.execute()
        used = memory_usage(server)
    sizes = [len(members) for members in slices.values()]
    large = [count for count in sizes if count > CONVERTED]
    return len(large) / len(sizes), sum(large) / sum(sizes), used / len(fingerprints)

"""Phase G of `redis_index`: keys of bands, of messages and at their largest."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.random_messages import RandomMessages, queries_of, query_at
from benchmarks.redis_meter import BATCH, NOW_US, Cost, Meter, memory_usage, opened
from benchmarks.reporting import Target, at_most, cost_table
from stream_dedup.features.recipe import load_recipe
from stream_dedup.fingerprint.bands import BITS
from stream_dedup.index.base import Query, Resolution
from stream_dedup.index.redis.maintenance import RENEWED_AT_ONCE
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.tables.sketches import SKETCH, sketch
from tests.services.redis import RedisServer

RECIPE = load_recipe("text")
ROUNDS, ROUND = 5, 5 * BATCH

KINDS = {"tables": "sd:*:t:*", "clusters": "sd:*:c:*", "exact hashes": "sd:*:e:*"}


def largest(rng: random.Random, first: int, count: int) -> list[Query]:
    """Queries of long texts that have nothing in common."""
    return [
        query_at(
            NOW_US, first + n, rng.getrandbits(64), rng.getrandbits(BITS), _sketch(rng), near=True
        )
        for n in range(count)
    ]


def _sketch(rng: random.Random) -> bytes:
    return sketch(rng.getrandbits(32) for _ in range(2 * SKETCH))


async def bench_bands(
    server: RedisServer, meter: Meter, out: Console, *, sizes: Sequence[int]
) -> list[Target]:
    """What an event costs that opens a cluster, and one that joins by its keys; the memory."""
    table = cost_table(
        f"G. keys of bands, laid out for as many clusters as are stored, batches of {BATCH}",
        "server, µs", "client, µs", "commands", "opened, %", "bytes a cluster",
        *(f"{name}, bytes" for name in KINDS),
    )  # fmt: skip
    targets: list[Target] = []
    for size in sizes:
        for name in ("messages", "long texts"):
            async with opened(server, meter, RECIPE, max_clusters=size) as index:
                empty = meter.used_memory()
                stored = _stored(index, name, size + 2 * ROUNDS * ROUND)
                queries = [query for _ in range(size // BATCH) for query in next(stored)]
                for start in range(0, size, BATCH):
                    await index.resolve(queries[start : start + BATCH], NOW_US)
                await _renew(index)
                clusters = (await index.size()).clusters
                used = (meter.used_memory() - empty) / clusters
                parts = [memory_usage(server, pattern) / clusters for pattern in KINDS.values()]
                memory = [f"{used:.0f}", *(f"{part:.0f}" for part in parts)]
                title = f"{name}, {size:,}"
                new, share = await _timed(index, meter, _rounds(stored))
                _row(table, f"{title}: new", new, share, memory)
                if name == "messages":
                    known, share = await _timed(index, meter, _near(index, size))
                    _row(table, f"{title}: near", known, share, [""] * len(memory))
                    if size == sizes[-1]:
                        targets += [
                            at_most("G. messages: new, server", new.server_us, 120, "µs"),
                            at_most("G. messages: near, server", known.server_us, 90, "µs"),
                        ]
                async with opened(
                    server, meter, RECIPE, max_clusters=size, mirror_size=0, empty=False
                ) as without:
                    new, share = await _timed(without, meter, _rounds(stored))
                _row(table, f"{title}: new, no mirror", new, share, [""] * len(memory))
                if size == sizes[-1]:
                    targets.append(at_most(f"G. {title}: a cluster", used, 900, "bytes"))
    out.print(table)
    return targets


async def _renew(index: RedisIndex) -> None:
    """Have a round renew all slices, as workers do: then inserting need not."""
    slices = (index.layout.table_layout.tables + 1) * index.layout.slices
    for _ in range(slices // RENEWED_AT_ONCE + 2):
        await index.expire(NOW_US)


def _stored(index: RedisIndex, name: str, count: int) -> Iterator[list[Query]]:
    rng, messages = random.Random(7), RandomMessages(7)
    for first in range(0, count, BATCH):
        if name == "messages":
            yield queries_of(RECIPE, index.key, messages.make(BATCH), first, NOW_US)
        else:
            yield largest(rng, first, BATCH)


def _rounds(stored: Iterator[list[Query]]) -> list[list[Query]]:
    """What the rounds of a measurement resolve."""
    return [[q for _ in range(ROUND // BATCH) for q in next(stored)] for _ in range(ROUNDS)]


def _near(index: RedisIndex, size: int) -> list[list[Query]]:
    """Changed copies of stored messages."""
    messages = RandomMessages(7)
    stored = [message for _ in range(ROUNDS * ROUND // BATCH) for message in messages.make(BATCH)]
    first = size + 2 * ROUNDS * ROUND
    rounds = []
    for start in range(0, len(stored), ROUND):
        changed = [messages.changed(message) for message in stored[start : start + ROUND]]
        rounds.append(queries_of(RECIPE, index.key, changed, first + start, NOW_US))
    return rounds


async def _timed(
    index: RedisIndex, meter: Meter, rounds: Sequence[list[Query]]
) -> tuple[Cost, float]:
    costs, answers = [], list[Resolution]()
    for queries in rounds:

        async def work(queries: list[Query] = queries) -> None:
            for start in range(0, len(queries), BATCH):
                answers.extend(await index.resolve(queries[start : start + BATCH], NOW_US))

        costs.append(await meter.time(len(queries), work()))
    return Cost.best(costs), sum(answer.new for answer in answers) / len(answers)


def _row(table: Table, name: str, cost: Cost, share: float, memory: Sequence[str]) -> None:
    table.add_row(
        name, f"{cost.server_us:.1f}", f"{cost.client_us:.0f}", f"{cost.commands:.1f}",
        f"{100 * share:.1f}", *memory,
    )  # fmt: skip

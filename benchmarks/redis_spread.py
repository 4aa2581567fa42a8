"""Phase I of `redis_index`: one group on many nodes, beside one node with the ordinary index.

Every index opens clusters for the same random fingerprints, then the same near events join them,
then the representatives are delivered again. Then all are counted: the representatives with values,
the others without. All that in turns, so that all are measured while the machine
is as busy. The servers' processor time is what ``INFO cpu`` says, of all nodes together and of the
busiest; the caller's is that of this process.
"""

from __future__ import annotations

import random
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from statistics import median

from redis.crc import key_slot
from rich.console import Console
from rich.table import Table

from benchmarks.redis_meter import NOW_US, WIDE
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Query, Resolution
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Partition, Position
from tests.services.redis import RedisCluster, RedisServer

SHARDS = {1: 1, 3: 3, 6: 12}
"""Nodes, and shards. Six shards never lie on six nodes: slots of the shards 0 and 4 are neighbours,
as those of 1 and 5 are."""

EACH = 100
"""Queries a node and call."""

RECIPES = (Recipe(match=Match(k=3, jaccard=0.7)), Recipe(match=Match(k=6, jaccard=0.7)))
LIMITS = Limits(max_clusters=20_000)
WORDS = 20

VALUE = b"a line of some hundred and fifty characters, as many as many log lines have in them " * 2

Call = Callable[[Sequence[Query]], Awaitable[None]]


class _Bench:
    """An index under test.

    Attributes:
        name: for people.
        nodes: the servers.
        costs: by work, of each turn: all nodes, the busiest, and the caller, in µs an event.
    """

    def __init__(
        self, name: str, nodes: Sequence[RedisServer], batch: int, index: RedisIndex
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.costs: dict[str, list[tuple[float, float, float]]] = {}
        self._batch = batch
        self._index = index
        self._fence = 0

    async def resolve(self, work: str, events: Sequence[Query]) -> list[Resolution]:
        """Measure how events are resolved."""
        answers: list[Resolution] = []

        async def resolve(batch: Sequence[Query]) -> None:
            answers.extend(await self._index.resolve(batch, NOW_US))

        await self._measure(work, events, resolve)
        return answers

    async def count(
        self, work: str, events: Sequence[Query], answers: Sequence[Resolution]
    ) -> None:
        """Measure how events are counted that were resolved."""
        partition = Partition("bench", 0)
        if not self._fence:
            owned = await self._index.claim_partition(partition, None, NOW_US)
            self._fence = owned.fence
        of_event = dict(zip(events, answers, strict=True))

        async def record(batch: Sequence[Query]) -> None:
            deltas = [
                ClusterDelta(
                    of_event[event].cluster, 1, NOW_US, NOW_US,
                    representative=VALUE if of_event[event].new else None,
                )
                for event in batch
            ]  # fmt: skip
            first, last = batch[0].position.offset, batch[-1].position.offset
            commit = Commit(partition, self._fence, first, last, last + 1, NOW_US, deltas)
            assert not await self._index.record(commit, NOW_US)

        await self._measure(work, events, record)

    async def _measure(self, work: str, events: Sequence[Query], call: Call) -> None:
        before = [node.cpu_us() for node in self.nodes]
        started_ns = time.process_time_ns()
        for at in range(0, len(events), self._batch):
            await call(events[at : at + self._batch])
        caller_us = (time.process_time_ns() - started_ns) / 1_000
        used = [node.cpu_us() - was for node, was in zip(self.nodes, before, strict=True)]
        each = (sum(used) / len(events), max(used) / len(events), caller_us / len(events))
        self.costs.setdefault(work, []).append(each)


def _namespace(cluster: RedisCluster, shards: int) -> str:
    """A namespace whose shards lie on the nodes as evenly as can be."""

    def most(name: str) -> int:
        slots = [key_slot(ShardKeys(name, number).meta) for number in range(shards)]
        nodes = len(cluster.nodes)
        return max(Counter(slot * nodes // 16_384 for slot in slots).values())

    return min((f"bench-{tried}" for tried in range(200)), key=most)


def _event(fingerprint: int, words: Sequence[int], offset: int, rng: random.Random) -> Query:
    position = Position("bench", 0, offset)
    sketch = array("Q", sorted(words)).tobytes()
    exact = rng.getrandbits(64)
    return Query("", exact, fingerprint, sketch, True, NOW_US, NOW_US, position)


async def bench_spread(out: Console, *, openings: int, turns: int) -> None:
    """Measure one group on one, three and six nodes, beside the ordinary index on one node."""
    for recipe in RECIPES:
        await _bench(out, recipe, openings, turns)


async def _bench(out: Console, recipe: Recipe, openings: int, turns: int) -> None:
    rng = random.Random(0)
    clients: list[RedisClient] = []
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        clients.append(RedisClient(server.url))
        benches = []
        for mirror_size in (MIRROR_SIZE, 0):
            index = await RedisIndex.open(
                clients[0], recipe, namespace=f"bench-{mirror_size}", windows=WIDE,
                limits=LIMITS, mirror_size=mirror_size,
            )  # fmt: skip
            name = "ordinary, mirrored" if mirror_size else "ordinary, searched in Redis"
            benches.append(_Bench(name, [server], EACH, index))
        for count, shards in SHARDS.items():
            cluster = stack.enter_context(RedisCluster(count, replicas=False))
            clients.append(RedisClient(cluster.url))
            spread = await SpreadIndex.open(
                clients[-1], recipe, namespace=_namespace(cluster, shards), windows=WIDE,
                limits=LIMITS, shards=shards,
            )  # fmt: skip
            name = f"spread, {count} nodes, {shards} shards"
            benches.append(_Bench(name, cluster.nodes, count * EACH, spread))
        tables = index.layout.table_layout.tables
        offset = 0
        for turn in range(turns + 1):
            opened, near = [], []
            for _ in range(openings):
                fingerprint = rng.getrandbits(64)
                words = [rng.getrandbits(63) for _ in range(WORDS)]
                opened.append(_event(fingerprint, words, offset, rng))
                twin = fingerprint ^ 1 << rng.randrange(64)
                twin_words = [*words[1:], rng.getrandbits(63)]
                near.append(_event(twin, twin_words, offset + openings, rng))
                offset += 1
            offset += openings
            for bench in benches:
                representatives = await bench.resolve("opens", opened)
                joined = await bench.resolve("joins", near)
                await bench.resolve("is delivered again", opened)
                await bench.count("is counted, as the first", opened, representatives)
                await bench.count("is counted", near, joined)
                if turn == 0:  # scripts were loaded, and the caller's mirror was read
                    bench.costs.clear()
        for client in clients:
            await client.aclose()
    title = f"k = {recipe.match.k}, {tables} tables, {EACH} queries a node and call"
    table = Table(
        "an event that", "index", "all nodes, µs", "busiest node, µs", "caller, µs",
        title=f"one group on many nodes: {title}", title_justify="left",
    )  # fmt: skip
    for work in benches[0].costs:
        for bench in benches:
            figures = [f"{median(column):.1f}" for column in zip(*bench.costs[work], strict=True)]
            table.add_row(work, bench.name, *figures)
    out.print(table)

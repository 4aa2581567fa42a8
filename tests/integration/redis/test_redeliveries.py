"""Workers die between any two steps while few clusters are allowed: every count is right."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.index.redis import store
from stream_dedup.model import Batch, Decision, Kind, Partition, Summary
from tests.contract.driver import HOUR, START_US, S
from tests.integration.redis.helpers import in_loop, opened
from tests.services.redis import RedisServer

RECIPE = load_recipe("logs")
SUMMARIES = Summaries(every_us=S)
LIMITS = Limits(max_clusters=8)
PARTITIONS = [Partition("topic", number) for number in range(3)]
EVENTS = 100
"""Of each partition."""
KINDS = 30


@pytest.fixture
def empty(redis_server: RedisServer) -> RedisServer:
    redis_server.command("FLUSHALL")
    return redis_server


class WorkerDiedError(Exception):
    """The worker died here."""


class Crashing:
    """An index whose worker may die before and after each step."""

    def __init__(self, index: Any, rng: random.Random) -> None:
        self._index = index
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._index, name)
        return self._risky(method) if name in {"resolve", "record"} else method

    def _risky(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*args: object) -> object:
            if self._rng.random() < 0.12:
                raise WorkerDiedError
            answer = await method(*args)
            if self._rng.random() < 0.12:
                raise WorkerDiedError
            return answer

        return call


class History:
    """Workers read partitions to their end, and some die; what they decide and emit is kept."""

    def __init__(self, url: str, seed: int, shards: int) -> None:
        self._url = url
        self._shards = shards
        self._rng = random.Random(seed)
        self._clock = ManualClock(START_US)
        self._stack = AsyncExitStack()
        self._values = {
            partition: [self._line() for _ in range(EVENTS)] for partition in PARTITIONS
        }
        self.decided: dict[tuple[int, int], Decision] = {}
        self.summaries: dict[tuple[int, int], Summary] = {}

    def _line(self) -> bytes:
        kind = random.Random(self._rng.randrange(KINDS))
        words = ("".join(kind.choices("bcdfghjklmnpqrstvwxz", k=8)) for _ in range(12))
        return " ".join(words).encode() + b" %d" % self._rng.randrange(10**6)

    async def _worker(self, *, dies: bool = True) -> Engine:
        index = await self._stack.enter_async_context(
            opened(
                self._url, RECIPE, windows=HOUR, summaries=SUMMARIES, limits=LIMITS,
                shards=self._shards,
            )
        )  # fmt: skip
        over: Any = Crashing(index, self._rng) if dies else index
        return Engine(RECIPE, over, windows=HOUR, summaries=SUMMARIES, clock=self._clock)

    async def run(self) -> None:
        async with self._stack:
            await self._read()
            last = await self._worker(dies=False)
            await last.index.finish(self._clock.now_us())
            self._clock.advance(60)  # past all leases
            await self._emit(last, loses=0)

    async def _read(self) -> None:
        rng, workers = self._rng, [await self._worker() for _ in PARTITIONS]
        committed = dict.fromkeys(PARTITIONS, 0)
        owners: dict[Partition, Engine] = {}
        while unfinished := [p for p in PARTITIONS if committed[p] < EVENTS]:
            partition, number = rng.choice(unfinished), rng.randrange(len(workers))
            start = committed[partition]
            offsets = range(start, min(EVENTS, start + rng.randint(1, 12)))
            values = self._values[partition][start : offsets.stop]
            try:
                if owners.get(partition) is not workers[number]:
                    await workers[number].claim_partition(partition)
                    owners[partition] = workers[number]
                decisions = await workers[number].process(
                    Batch(partition, offsets, values), committed=start
                )
            except WorkerDiedError:
                owners.pop(partition, None)
                if rng.random() < 0.7:
                    workers[number] = await self._worker()
                continue
            for offset, decision in zip(offsets, decisions, strict=True):
                known = self.decided.setdefault((partition.number, offset), decision)
                assert known == decision
            if rng.random() < 0.8:
                committed[partition] = offsets.stop
            else:  # it died before the commit
                del owners[partition]
            self._clock.advance(1)
            if rng.random() < 0.3:
                await self._emit(workers[number])

    async def _emit(self, worker: Engine, loses: float = 0.1) -> None:
        while claimed := await worker.claim_summaries():
            for summary in claimed:
                name = summary.cluster, summary.revision
                assert self.summaries.setdefault(name, summary) == summary
            if self._rng.random() >= loses:
                await worker.confirm_summaries(claimed)


@pytest.mark.parametrize(("seed", "shards"), [(1, 1), (2, 1), (3, 3)])
@in_loop
async def test_counts_are_right_whoever_dies_and_few_clusters_are_open(
    empty: RedisServer, monkeypatch: pytest.MonkeyPatch, seed: int, shards: int
) -> None:
    monkeypatch.setattr(store, "OPENING_WAIT_S", 0.0)
    history = History(empty.url, seed, shards)
    await history.run()
    decided = Counter(decision.cluster for decision in history.decided.values())
    emitted = sorted(history.summaries.values(), key=lambda summary: summary.revision)
    last = {summary.cluster: summary.count for summary in emitted}
    assert decided == last
    assert sum(summary.new_count for summary in emitted) == EVENTS * len(PARTITIONS)
    new = Counter(d.cluster for d in history.decided.values() if d.kind is Kind.NEW)
    assert new == dict.fromkeys(last, 1)
    assert all(summary.representative for summary in emitted)

"""Workers die, and answers are lost, while few clusters are allowed: every count is right."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.index.redis import scripts, store
from stream_dedup.index.redis.client import Arguments, RedisClient, Refusal
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Decision, Kind, Partition, Summary
from tests.contract.driver import HOUR, START_US, S
from tests.integration.redis.helpers import in_loop
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


class LossyClient(RedisClient):
    """A client whose worker may die before and after each script, or lose the answer.

    A commit whose answer is lost may be carried out at once, not at all, or just before a later
    call.
    """

    def __init__(self, url: str, rng: random.Random) -> None:
        super().__init__(url)
        self._rng = rng
        self._late: list[Callable[[], Awaitable[object]]] = []

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Arguments) -> Any:
        rng = self._rng
        if script not in {scripts.RESOLVE, scripts.RECORD, scripts.READ_PARTITION}:
            return await super().run(script, keys, arguments)
        if rng.random() < 0.04:
            raise WorkerDiedError
        if self._late and rng.random() < 0.3:
            with suppress(Refusal):
                await self._late.pop(0)()
        if rng.random() < 0.08:
            if script is scripts.RECORD:
                self._late.append(partial(super().run, script, keys, arguments))
            raise IndexUnavailable("the call was lost")
        answer = await super().run(script, keys, arguments)
        if rng.random() < 0.04:
            raise WorkerDiedError
        if rng.random() < 0.12:
            raise IndexUnavailable("the answer was lost")
        return answer


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
        client = LossyClient(self._url, self._rng) if dies else RedisClient(self._url)
        self._stack.push_async_callback(client.aclose)
        index = await RedisIndex.open(
            client, RECIPE, windows=HOUR, summaries=SUMMARIES, limits=LIMITS, shards=self._shards
        )
        return Engine(RECIPE, index, windows=HOUR, summaries=SUMMARIES, clock=self._clock)

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
            if partition in owners and rng.random() < 0.6:
                number = workers.index(owners[partition])
            start = committed[partition]
            offsets = range(start, min(EVENTS, start + rng.randint(1, 12)))
            values = self._values[partition][start : offsets.stop]
            try:
                if owners.get(partition) is not workers[number]:
                    await workers[number].claim_partition(partition)
                    owners[partition] = workers[number]
                decisions = await workers[number].process(
                    Batch(partition, offsets, values, groups=[_group(value) for value in values]),
                    committed=start,
                )
            except IndexUnavailable:  # others go on before it tries again
                continue
            except WorkerDiedError:
                owners = {p: owner for p, owner in owners.items() if owner is not workers[number]}
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


def _group(value: bytes) -> str:
    return f"group {value[0] % 3}"  # equal lines have equal groups


@pytest.mark.parametrize(("seed", "shards"), [(2, 1), (4, 1), (6, 1), (7, 3), (9, 3)])
@in_loop
async def test_counts_are_right_whoever_dies_and_few_clusters_are_open(
    empty: RedisServer, monkeypatch: pytest.MonkeyPatch, seed: int, shards: int
) -> None:
    monkeypatch.setattr(store, "OPENING_WAITS_S", (0.0, 0.0))
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


class DyingClient(RedisClient):
    """A client whose worker dies between the resolution of a segment and its commit."""

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Arguments) -> Any:
        if script is scripts.RECORD:
            raise WorkerDiedError
        return await super().run(script, keys, arguments)


@in_loop
async def test_a_first_batch_that_waits_holds_up_no_other_for_long(
    empty: RedisServer,
) -> None:
    known = [b"the %s service has renewed its lease" % name for name in (b"ad", b"mail", b"user")]
    opened = b"nobody has answered the second question of the operator yet"
    async with AsyncExitStack() as stack:
        engines = []
        for kind in (RedisClient, DyingClient):
            client = kind(empty.url)
            stack.push_async_callback(client.aclose)
            index = await RedisIndex.open(client, RECIPE, windows=HOUR, summaries=SUMMARIES)
            engines.append(
                Engine(
                    RECIPE,
                    index,
                    windows=HOUR,
                    summaries=SUMMARIES,
                    clock=ManualClock(START_US),
                )
            )
        alive, dying = engines
        await alive.process(Batch(PARTITIONS[0], range(30), known * 10))
        with pytest.raises(WorkerDiedError):
            await dying.process(Batch(PARTITIONS[0], range(30, 31), [opened]))
        values = [*known * 10, opened]
        await asyncio.gather(*map(alive.claim_partition, PARTITIONS[1:]))
        waiting = asyncio.create_task(alive.process(Batch(PARTITIONS[1], range(31), values)))
        await asyncio.sleep(0)
        await alive.process(Batch(PARTITIONS[2], range(30), known * 10))
        assert not waiting.done()
        decisions = await waiting
    assert [decision.kind for decision in decisions] == [Kind.DUPLICATE] * 30 + [Kind.NEW]

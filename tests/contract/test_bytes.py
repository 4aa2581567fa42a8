"""The bytes of events are added up by cluster, exactly, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from stream_dedup.errors import IndexUnavailable
from stream_dedup.index.base import Commit, Index
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.model import Batch, Decision
from tests.contract.driver import ADAPTERS, HERE
from tests.contract.test_engine_over_indexes import SETUP, batches, over
from tests.services.redis import RedisServer


def sizes_of(batches: Sequence[Batch], decisions: Sequence[Decision]) -> dict[int, int]:
    sizes: Counter[int] = Counter()
    values = [value for batch in batches for value in (batch.raws or batch.values)]
    for value, decision in zip(values, decisions, strict=True):
        if decision.cluster is not None:
            sizes[decision.cluster] += len(value or b"")
    return sizes


@pytest.mark.parametrize("near_cache_size", [0, 10_000])
@pytest.mark.parametrize("name", ADAPTERS)
def test_commits_have_the_bytes_of_all_their_events(
    name: str,
    near_cache_size: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opens = ADAPTERS[name].bind(request)
    counted: Counter[int] = Counter()

    async def run() -> list[Decision]:
        async with opens(SETUP) as index:
            record = index.record

            async def noted(commit: Commit, now_us: int) -> frozenset[int]:
                closed = await record(commit, now_us)
                if not closed:
                    counted.update({delta.cluster: delta.size for delta in commit.deltas})
                return closed

            monkeypatch.setattr(index, "record", noted)
            engine = over(index, near_cache_size)
            return [d for batch in batches() for d in await engine.process(batch)]

    decisions = asyncio.run(run())

    assert counted == sizes_of(batches(), decisions)


def test_events_are_measured_as_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(HERE, range(4), [b"one kind 1", b"one kind 2", b"x y z", b"one kind 3"],
                  raws=[b"1" * 100, b"2" * 20, None, b"3" * 3])  # fmt: skip
    found: list[int] = []

    async def run() -> None:
        async with ADAPTERS["memory"].opens(SETUP) as index:
            record = index.record

            async def noted(commit: Commit, now_us: int) -> frozenset[int]:
                found.extend(delta.size for delta in commit.deltas)
                return await record(commit, now_us)

            monkeypatch.setattr(index, "record", noted)
            await over(index).process(batch)
            await over(index).process(batch.part(1, 4))  # counted before

    asyncio.run(run())

    assert sorted(found) == [0, 123]


def test_redis_adds_them_up_once_though_answers_are_lost(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[list[Decision], dict[int, int]]:
        async with ADAPTERS["redis"].opens(SETUP, redis_server) as index:
            decisions = await with_lost_answers(index, monkeypatch)
            client = RedisClient(redis_server.url)
            shard = ShardKeys("logs", 0)
            stored = {}
            for cluster in {d.cluster for d in decisions if d.cluster is not None}:
                key = shard.cluster(codec.pack_id(cluster))
                numbers = codec.unpack_cluster(await client.command(key, "GET", key))
                stored[cluster] = numbers.bytes
            await client.aclose()
            return decisions, stored

    decisions, stored = asyncio.run(run())

    assert stored == sizes_of(batches(), decisions)


async def with_lost_answers(index: Index, monkeypatch: pytest.MonkeyPatch) -> list[Decision]:
    record, lost = index.record, iter([False, True] * 10_000)

    async def loses(commit: Commit, now_us: int) -> frozenset[int]:
        closed = await record(commit, now_us)
        if next(lost):
            raise IndexUnavailable("the answer is lost")
        return closed

    monkeypatch.setattr(index, "record", loses)
    engine, found = over(index), list[Decision]()
    for batch in batches():
        while True:
            try:
                found += await engine.process(batch)
                break
            except IndexUnavailable:
                pass
    return found

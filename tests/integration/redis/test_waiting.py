"""How long a commit waits for those that open the clusters it names."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from stream_dedup.index.redis import layouts, store
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Partition
from tests.contract.driver import S
from tests.integration.redis.helpers import Event, Worker, families, in_loop, opened
from tests.integration.redis.test_spread_commits import spread
from tests.services.redis import RedisServer

BEFORE, BEHIND = Partition("topic", 0), Partition("topic", 1)
TEXTS = families(20)


@asynccontextmanager
async def owned(server: RedisServer, kind: str) -> AsyncIterator[tuple[RedisIndex, Worker, Worker]]:
    """An empty index, and the owners of two partitions: the first goes first."""
    server.command("FLUSHALL")
    async with spread(server.url) if kind == "spread" else opened(server.url, shards=2) as index:
        opener, waiting = Worker(index, BEFORE), Worker(index, BEHIND)
        await opener.own()
        await waiting.own()
        yield index, opener, waiting


@pytest.mark.parametrize("kind", ["ordinary", "spread"])
@in_loop
async def test_a_commit_refused_again_waits_longer_for_openers(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(store, "OPENING_WAITS_S", (0.2, 0.8))
    first, later = (
        [Event(offset, text) for offset, text in enumerate(TEXTS, start)] for start in (0, 100)
    )

    async def refused_after_s(events: Sequence[Event]) -> float:
        """How long a commit waits for one that does not come."""
        assert all(answer.new for answer in await opener.resolve(events))
        answers = await waiting.resolve(events)
        assert not any(answer.new for answer in answers)
        since_s = time.monotonic()
        closed = await index.record(waiting.record_of(events, answers), waiting.now_us)
        assert closed
        return time.monotonic() - since_s

    async with owned(redis_server, kind) as (index, opener, waiting):
        for wait_s, next_s in ((0.2, 0.4), (0.4, 0.8), (0.8, 0.8)):
            assert await refused_after_s(first) >= wait_s
            assert index._waits_s == {BEHIND: next_s}
        await waiting.process(first)
        assert index._waits_s == {}
        await index.finish(waiting.now_us)
        assert await refused_after_s(later) >= 0.2
        assert index._waits_s == {BEHIND: 0.4}
        await waiting.own()  # it was lost meanwhile
        assert index._waits_s == {}


@pytest.mark.parametrize("kind", ["ordinary", "spread"])
@in_loop
async def test_a_commit_that_waits_keeps_its_partition_active(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(store, "OPENING_WAITS_S", (1.5, 1.5))
    events = [Event(offset, text) for offset, text in enumerate(TEXTS)]
    async with owned(redis_server, kind) as (index, opener, waiting):
        await opener.resolve(events)
        answers = await waiting.resolve(events)
        assert await index.record(waiting.record_of(events, answers), waiting.now_us)
        seen = [
            layouts.HEAD.struct.unpack_from(value)[1]
            for shard in index._shards
            for value in await index.client.command(shard.meta, "HVALS", shard.heads)
        ]
        assert max(seen) >= waiting.now_us + S

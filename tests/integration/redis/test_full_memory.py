"""A server whose memory is full: it takes nothing, and what frees memory still runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexFull
from stream_dedup.index.redis.keys import ShardKeys
from tests.contract.driver import S
from tests.integration.redis.helpers import (
    BRIEF,
    NAMESPACE,
    Event,
    Worker,
    batches,
    counts,
    families,
    in_loop,
    keys_of,
    opened,
)
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]

FULL = {"maxmemory": "3mb", "maxmemory-policy": "noeviction"}
SUMMARIES = Summaries(retention_us=S)
WINDOWS = Windows(idle_us=60 * S, max_age_us=600 * S)
EVENTS = [Event(offset, text) for offset, text in enumerate(families(20_000))]
PIECES = batches(EVENTS, 200)


def assert_explains(full: IndexFull) -> None:
    assert "memory is full" in str(full)
    assert "raise maxmemory" in str(full)
    assert full.__cause__ is not None


async def fill(worker: Worker) -> int:
    """Process new events until the memory is full; return how many were counted."""
    counted = 0
    for events in PIECES:
        try:
            await worker.process(events)
        except IndexFull as full:
            assert_explains(full)
            return counted
        counted += len(events)
    pytest.fail("the memory did not become full")


@in_loop
async def test_a_full_server_is_reported_and_serves_after_clusters_close(
    make_redis: MakeRedis,
) -> None:
    server = make_redis(extra=FULL)
    async with opened(
        server.url, retry_policy=BRIEF, summaries=SUMMARIES, windows=WINDOWS
    ) as index:
        worker = Worker(index)
        await worker.own()
        counted = await fill(worker)
        assert counted > 0
        await index.finish(worker.now_us)  # closes and purges
        assert server.command("LLEN", ShardKeys(NAMESPACE, 0).garbage) == 0
        assert counts(await worker.take_summaries()).total() == counted
        assert [key for key in keys_of(server) if b":t:" in key or b":e:" in key] == []
        again = [Event(offset, text) for offset, text in enumerate(families(200, seed=1), 10**6)]
        await worker.process(again)
        assert len(again) == (await index.size()).clusters


@in_loop
async def test_clusters_expire_though_the_memory_is_full(make_redis: MakeRedis) -> None:
    server = make_redis(extra=FULL)
    async with opened(
        server.url, retry_policy=BRIEF, summaries=SUMMARIES, windows=WINDOWS
    ) as index:
        worker = Worker(index)
        await worker.own()
        counted = await fill(worker)
        worker.now_us += 120 * S  # the partition is quiet, so stream time goes with the clock
        await index.expire(worker.now_us)
        worker.now_us += 120 * S
        await index.expire(worker.now_us)
        assert (await index.size()).clusters == 0
        assert counts(await worker.take_summaries()).total() == counted


async def stuffed(server: RedisServer, worker: Worker) -> None:
    """Fill the memory to the last with what is somebody else's."""
    used = int(server.info("memory")["used_memory"])
    server.command("CONFIG", "SET", "maxmemory", max(1, used - 200_000))
    with pytest.raises(IndexFull):
        await worker.process(PIECES[0])


@in_loop
async def test_clusters_close_though_the_memory_is_full(make_redis: MakeRedis) -> None:
    server = make_redis(extra=FULL | {"maxmemory": "100mb"})
    async with opened(
        server.url, retry_policy=BRIEF, summaries=SUMMARIES, windows=WINDOWS
    ) as index:
        worker = Worker(index)
        await worker.own()
        for events in PIECES[1:4]:
            await worker.process(events)
        await index.finish(worker.now_us)
        claimed = await index.claim(300, worker.now_us)
        await stuffed(server, worker)
        names = [(summary.cluster, summary.revision) for summary in claimed]
        await index.confirm(names, worker.now_us)
        assert (await index.size()).waiting == 300
        await index.expire(worker.now_us)
        await index.finish(worker.now_us)


@in_loop
async def test_summaries_are_claimed_though_the_memory_is_full(make_redis: MakeRedis) -> None:
    server = make_redis(extra=FULL | {"maxmemory": "100mb"})
    async with opened(
        server.url, retry_policy=BRIEF, summaries=SUMMARIES, windows=WINDOWS
    ) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(PIECES[1])
        await index.finish(worker.now_us)
        await stuffed(server, worker)
        # Without it nothing could be confirmed, and closed clusters would hold the memory for ever.
        assert counts(await worker.take_summaries()).total() == 200


@in_loop
async def test_a_batch_that_meets_a_full_memory_is_counted_once(make_redis: MakeRedis) -> None:
    server = make_redis(extra=FULL | {"maxmemory": "100mb"})
    async with opened(
        server.url, retry_policy=BRIEF, summaries=SUMMARIES, windows=WINDOWS
    ) as index:
        worker = Worker(index)
        await worker.own()
        answers = await worker.resolve(PIECES[0])
        record = worker.record_of(PIECES[0], answers)
        server.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(IndexFull):
            await index.record(record, worker.now_us)
        server.command("CONFIG", "SET", "maxmemory", 0)
        assert await index.record(record, worker.now_us) == frozenset()
        assert len(PIECES[0]) == counts(await worker.end()).total()

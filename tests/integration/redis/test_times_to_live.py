"""Slices and tables have a time to live whoever makes them, and half of it left at any time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from stream_dedup.clock import SystemClock
from stream_dedup.index.base import ClusterDelta, Commit
from stream_dedup.index.redis import maintenance
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import HERE, HOUR, START_US, C, S, query
from tests.integration.redis.helpers import (
    NAMESPACE,
    Worker,
    families,
    in_loop,
    keys_of,
    opened,
    stream,
    twin,
)
from tests.services.redis import RedisServer

SHORT_MS = 60_000


@pytest.fixture
def empty(redis_server: RedisServer) -> RedisServer:
    """A server without keys."""
    redis_server.command("FLUSHALL")
    return redis_server


def left_ms(server: RedisServer, key: bytes) -> int:
    left = server.command("PTTL", key)
    assert isinstance(left, int)
    return left


def slices(server: RedisServer) -> list[bytes]:
    """Slices of exact hashes and of tables."""
    return [key for key in keys_of(server) if b":t:" in key or b":e:" in key]


def shorten(server: RedisServer) -> set[bytes]:
    """As if long ago somebody had begun their time to live; the slices that stand."""
    stand = slices(server)
    for key in stand:
        server.command("PEXPIRE", key, SHORT_MS)
    return set(stand)


async def put(index: RedisIndex, seed: int, now_us: int, count: int = 40) -> None:
    """Open clusters, and join them by aliases that stand in the tables."""
    rng = random.Random(seed)
    texts = families(count, seed)
    for first, chosen in ((0, texts), (count, [twin(text, rng) for text in texts])):
        asked = [query(seed * 1_000 + first + n, text) for n, text in enumerate(chosen)]
        await index.resolve(asked, now_us)


@in_loop
async def test_what_is_written_to_is_kept_until_a_round_has_kept_all(empty: RedisServer) -> None:
    async with opened(empty.url) as index:
        await put(index, 1, START_US)
        shorten(empty)
        await put(index, 2, START_US, count=400)
        assert [key for key in slices(empty) if left_ms(empty, key) <= SHORT_MS] == []


@pytest.mark.parametrize("stand_before", [True, False])
@in_loop
async def test_after_a_round_only_what_is_made_is_given_one(
    empty: RedisServer, stand_before: bool
) -> None:
    async with opened(empty.url) as index:
        if stand_before:
            await put(index, 1, START_US, count=4)
        for _ in range(3 if stand_before else 1):
            await index.expire(START_US)
        if not stand_before:
            await put(index, 1, START_US, count=4)
        stood = shorten(empty)
        await put(index, 2, START_US + S, count=8)
        made = set(slices(empty)) - stood
        assert made
        assert [key for key in made if left_ms(empty, key) <= SHORT_MS] == []
        # Of the others those stay as they were all of whose query's stood.
        await put(index, 3, START_US + S, count=400)
        stood = shorten(empty)
        await put(index, 4, START_US + S)
        assert all(0 < left_ms(empty, key) <= SHORT_MS for key in stood)


@pytest.mark.parametrize("days", [-9, 9])
@in_loop
async def test_a_write_renews_a_time_to_live_once_half_may_be_over(
    days: int, empty: RedisServer
) -> None:
    async with opened(empty.url) as index:
        await put(index, 1, START_US, count=400)
        for _ in range(50):
            await index.expire(START_US)
        stood = shorten(empty)
        day_us = 24 * 3600 * S
        assert index._runner.ttl_ms < 2 * abs(days) * day_us // 1000
        await put(index, 2, START_US + days * day_us, count=400)
        assert [key for key in stood if left_ms(empty, key) <= SHORT_MS] == []


@in_loop
async def test_who_keeps_for_longer_does_not_go_by_the_round_of_another(
    empty: RedisServer,
) -> None:
    longer = replace(HOUR, max_age_us=90 * 24 * 3600 * S)
    async with opened(empty.url) as index, opened(empty.url, windows=longer) as other:
        await put(index, 1, START_US, count=400)
        for _ in range(50):
            await index.expire(START_US)
        stood = shorten(empty)
        await put(other, 2, START_US, count=400)
        assert [key for key in stood if left_ms(empty, key) <= SHORT_MS] == []


@in_loop
async def test_a_maintenance_round_takes_calls_of_bounded_work(
    empty: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RENEWED_AT_ONCE", 10)
    async with opened(empty.url) as index:
        await put(index, 1, START_US, count=400)
        stood = shorten(empty)
        kept = []
        for _ in range(len(stood)):
            await index.expire(START_US)
            kept.append(sum(left_ms(empty, key) > SHORT_MS for key in stood))
        assert len(stood) == kept[-1]
        assert max(after - before for before, after in zip([0, *kept], kept, strict=False)) <= 10


SHARD = ShardKeys(NAMESPACE, 0)


async def rounds(index: RedisIndex, now_us: int) -> None:
    """Go through all slices and tables, if it is time."""
    for _ in range(50):
        await index.expire(now_us)


@asynccontextmanager
async def gone_round(server: RedisServer, shards: int = 1) -> AsyncIterator[RedisIndex]:
    """An index of many slices, all of which were kept by a round."""
    async with opened(server.url, shards=shards) as index:
        await put(index, 1, START_US, count=400)
        await rounds(index, START_US)
        yield index


def kept(server: RedisServer, keys: Iterable[bytes]) -> list[bool]:
    return [left_ms(server, key) > SHORT_MS for key in keys]


@pytest.mark.parametrize(("sign", "at_once"), [(1, 400), (-1, 400), (1, 1)])
@in_loop
async def test_claimed_partitions_without_events_are_renewed_every_hour(
    empty: RedisServer, sign: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RENEWED_AT_ONCE", at_once)
    async with opened(empty.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(stream(4, of=2), committed=0)
        keys = [SHARD.partition(HERE), SHARD.journal(HERE)]
        for seconds, expected in ((0, True), (3599, False), (3600, True), (2 * 3600, True)):
            for key in keys:
                assert empty.command("PEXPIRE", key, SHORT_MS) == 1
            await index.expire(START_US + sign * seconds * S)
            assert kept(empty, keys) == [expected] * 2


@pytest.mark.parametrize("sign", [1, -1])
@in_loop
async def test_a_round_begins_once_a_quarter_of_a_time_to_live_has_gone(
    empty: RedisServer, sign: int
) -> None:
    async with gone_round(empty) as index:
        stood = shorten(empty)
        quarter_us = index._runner.ttl_ms * 1000 // 4
        await rounds(index, START_US + sign * (quarter_us - 1))
        assert not any(kept(empty, stood))
        await rounds(index, START_US + sign * quarter_us)
        assert all(kept(empty, stood))


@in_loop
async def test_a_round_that_ends_when_the_next_is_due_is_recorded_too(
    empty: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RENEWED_AT_ONCE", 10)
    async with opened(empty.url) as index:
        await put(index, 1, START_US, count=400)
        quarter_us = index._runner.ttl_ms * 1000 // 4
        meta = SHARD.meta
        made = empty.command("HGET", meta, "kept")
        for calls in range(200):
            await index.expire(START_US + calls * quarter_us // 4)
            if empty.command("HGET", meta, "kept") != made:
                break
        assert calls > 4, "a quarter has gone"
        assert empty.command("HGET", meta, "kept") == b"%d" % (START_US // S)


@pytest.mark.parametrize("is_left", [False, True])
@in_loop
async def test_a_new_namespace_needs_no_round_unless_keys_were_left(
    is_left: bool, empty: RedisServer
) -> None:
    if is_left:
        empty.command("HSET", SHARD.heads, "in:0", "lost")
    now_us = SystemClock().now_us()
    async with opened(empty.url) as index:
        await put(index, 1, now_us, count=400)
        stood = shorten(empty)
        await put(index, 2, now_us, count=400)
        assert is_left == all(kept(empty, stood))


@in_loop
async def test_every_shard_records_once_when_a_round_began(empty: RedisServer) -> None:
    async with gone_round(empty, shards=2) as index:
        for number in range(2):
            meta = ShardKeys(NAMESPACE, number).meta
            assert empty.command("HGET", meta, "kept") == b"%d" % (START_US // S)
            empty.command("HDEL", meta, "kept", "kept_for")  # as if it had lost what it held
        await rounds(index, START_US + S)
        for number in range(2):
            assert empty.command("HGET", ShardKeys(NAMESPACE, number).meta, "kept") is None


@pytest.mark.parametrize("sign", [1, -1])
@in_loop
async def test_what_a_round_has_begun_wears_off_with_half_of_it(
    empty: RedisServer, sign: int
) -> None:
    async with gone_round(empty) as index:
        half_us = index._runner.ttl_ms * 1000 // 2
        for over_us, expected in ((0, False), (S, True)):
            stood = shorten(empty)
            await put(index, 2 + expected, START_US + sign * (half_us + over_us), count=400)
            assert expected in kept(empty, stood)
            if expected:
                assert all(kept(empty, stood))
            else:  # but for those whose query has made a slice
                assert not all(kept(empty, stood))


@pytest.mark.parametrize("sign", [1, -1])
@in_loop
async def test_a_count_renews_a_cluster_after_half_its_time_to_live(
    empty: RedisServer, sign: int
) -> None:
    async with opened(empty.url) as index:
        worker = Worker(index)
        await worker.own()
        (answer,) = await worker.process(stream(1, of=1))
        key = SHARD.cluster(answer.cluster.to_bytes(8, "big"))
        half_us = index._runner.ttl_ms * 1000 // 2
        seconds = ((0, False), (S, True), (2 * S, False))
        for offset, (over_us, expected) in enumerate(seconds, 1):
            assert empty.command("PEXPIRE", key, SHORT_MS) == 1
            record = Commit(
                partition=HERE,
                fence=worker.owned.fence,
                first_offset=offset,
                last_offset=offset,
                committed=offset + 1,
                last_us=START_US,
                deltas=[ClusterDelta(answer.cluster, 1, START_US, START_US)],
            )
            assert not await index.record(record, START_US + sign * (half_us + over_us))
            assert kept(empty, [key]) == [expected]


@in_loop
async def test_after_a_round_what_is_not_to_be_searched_is_opened_too(empty: RedisServer) -> None:
    async with opened(empty.url) as index:
        await put(index, 1, START_US)
        await rounds(index, START_US)
        (answer,) = await index.resolve([query(9, C, near=False)], START_US)
        assert answer.new

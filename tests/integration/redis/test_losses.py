"""Data that is lost, whole or in part, and times to live: who notices, and what is kept going."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, IndexReset, PartitionUnclaimed, StaleFence
from stream_dedup.index.base import Limits
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import HERE, THERE, VERIFIED, A, B, C, S, Text, apart
from tests.integration.redis.helpers import (
    NAMESPACE,
    Event,
    Worker,
    counts,
    families,
    in_loop,
    keys_of,
    opened,
    twin,
)
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]

SHARD = ShardKeys(NAMESPACE, 0)
DAY_S = 24 * 3600
WEEK_MS = 7 * DAY_S * 1000


def ttl(server: RedisServer, key: bytes) -> int:
    left = server.command("PTTL", key)
    assert isinstance(left, int)
    return left


# ---------------------------------------------------------------- all is lost


async def expire(index: RedisIndex, now_us: int) -> None:
    await index.expire(now_us)


async def claim(index: RedisIndex, now_us: int) -> None:
    await index.claim(10, now_us)


async def confirm(index: RedisIndex, now_us: int) -> None:
    await index.confirm([(1, 1)], now_us)


async def release(index: RedisIndex, now_us: int) -> None:
    del now_us
    await index.release_partition(THERE)


async def resolve(index: RedisIndex, now_us: int) -> None:
    other = Worker(index, THERE)
    other.now_us = now_us
    await other.resolve([Event(0, B)])


async def claim_another(index: RedisIndex, now_us: int) -> None:
    await index.claim_partition(THERE, None, now_us)


@pytest.mark.parametrize("sees", [expire, claim, confirm, release, resolve, claim_another])
@pytest.mark.parametrize("shards", [1, 2])
@in_loop
async def test_a_loss_another_call_saw_is_in_each_partitions_next_answer(
    redis_server: RedisServer, sees: Callable[[RedisIndex, int], Awaitable[None]], shards: int
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=shards) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(0, A)])
        answers = await worker.resolve([Event(1, A)])
        redis_server.command("FLUSHALL")
        seen = 0
        for _ in range(shards):
            try:
                await sees(index, worker.now_us)
            except IndexReset:
                seen += 1
        assert 1 <= seen == index.resets
        record = worker.record_of([Event(1, A)], answers)
        for _ in range(2):  # until it is claimed again
            with pytest.raises(IndexReset):
                await index.record(record, worker.now_us)
        while True:
            try:
                assert (await worker.own()).high_water == -1
                break
            except IndexReset:
                pass
        await worker.process([Event(1, A)])
        assert shards == index.resets
        assert list(counts(await worker.end()).values()) == [1]


@in_loop
async def test_a_stale_fence_is_not_counted_as_a_loss(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index, opened(redis_server.url) as other:
        worker = Worker(index)
        await worker.own()
        await Worker(other).own()
        with pytest.raises(StaleFence):
            await worker.process([Event(0, A)])
        assert index.resets == 0


# ---------------------------------------------------------------- parts are lost


@in_loop
async def test_a_partition_whose_key_is_lost_must_be_claimed_again(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        fence = (await worker.own()).fence
        await worker.process([Event(0, A)])
        redis_server.command("DEL", SHARD.partition(HERE))
        with pytest.raises(PartitionUnclaimed):
            await worker.process([Event(1, A)])
        assert fence < (await worker.own()).fence  # nobody's earlier fence is given again
        assert [answer.new for answer in await worker.process([Event(1, A)])] == [False]


@in_loop
async def test_entries_left_when_meta_is_lost_are_ignored(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    texts = families(20)
    async with opened(redis_server.url, VERIFIED) as index:
        worker = Worker(index)
        await worker.own()
        old = await worker.process([Event(n, text) for n, text in enumerate(texts[:10])])
        await index.finish(worker.now_us)
        await worker.process([Event(n, text) for n, text in enumerate(texts, 10)], committed=12)
        redis_server.command("DEL", SHARD.meta)
        with pytest.raises(IndexReset):
            await index.expire(worker.now_us)
        assert (await index.size())[:6] == (0,) * 6
        assert await index.claim(100, worker.now_us) == []
        owned = await worker.own()
        assert (owned.high_water, owned.journal) == (-1, {})
        again = await worker.process([Event(n, text) for n, text in enumerate(texts)])
        assert [answer.new for answer in again] == [True] * 20
        assert [a.cluster for a in old] == [a.cluster for a in again[:10]]
        size = await index.size()
        assert size[:3] == (20, 20, 0)
        assert list(counts(await worker.end()).values()) == [1] * 20
        assert (await index.size())[:3] == (0, 0, 0)


@in_loop
async def test_lost_clusters_are_not_counted_for_ever(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    texts = families(8)
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text) for n, text in enumerate(texts[:4])])
        await index.finish(worker.now_us)
        assert len(await index.claim(1, worker.now_us)) == 1  # one is leased
        await worker.process([Event(n, text) for n, text in enumerate(texts[4:], 4)])
        assert (await index.size())[:3] == (4, 4, 4)
        for key in keys_of(redis_server, "*:c:*"):
            redis_server.command("DEL", key)
        worker.now_us += 31 * S
        assert await index.claim(100, worker.now_us) == []
        await index.finish(worker.now_us)
        assert (await index.size())[:3] == (0, 0, 0)


# ---------------------------------------------------------------- shards


@pytest.mark.parametrize("lost", [0, 1])
@in_loop
async def test_a_lost_shard_is_made_again_as_the_others_are(
    redis_server: RedisServer, lost: int
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=2, limits=Limits(max_clusters=100_000)) as index:
        layout = index.layout
    for key in keys_of(redis_server, f"sd:{{{NAMESPACE}:{lost}}}*"):
        redis_server.command("DEL", key)
    async with opened(redis_server.url, shards=2, limits=Limits(max_clusters=50)) as index:
        assert layout == index.layout
    layouts = {
        redis_server.command("HGET", ShardKeys(NAMESPACE, n).meta, "layout") for n in range(2)
    }
    assert len(layouts) == 1


@in_loop
async def test_shards_that_differ_are_refused_by_name(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3):
        pass
    meta = ShardKeys(NAMESPACE, 2).meta
    layout = redis_server.command("HGET", meta, "layout")
    assert isinstance(layout, bytes)
    redis_server.command("HSET", meta, "layout", json.dumps(json.loads(layout) | {"slices": 1}))
    with pytest.raises(IndexRefused, match=r"shard 2 is laid out as .* shard 0 as"):
        async with opened(redis_server.url, shards=3):
            pytest.fail("it was opened")


# ---------------------------------------------------------------- times to live


@in_loop
async def test_what_is_in_use_never_comes_near_its_end(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    month = Windows(idle_us=30 * DAY_S * S, max_age_us=30 * DAY_S * S)  # twice that and two days
    async with opened(redis_server.url, VERIFIED, windows=month) as index:
        worker, quiet = Worker(index), Worker(index, THERE)
        for each in (worker, quiet):
            await each.own()
        events = [Event(0, A), Event(1, apart(A, 2, 0xA1))]
        await worker.process(events)
        await quiet.process([Event(0, C)], committed=0)
        await index.expire(worker.now_us)
        kept = [key for key in keys_of(redis_server) if b":t:" in key or b":e:" in key]
        kept += [SHARD.partition(THERE), SHARD.journal(THERE), SHARD.partition(HERE)]
        assert any(b":t:" in key for key in kept)
        for key in kept:
            redis_server.command("PEXPIRE", key, 60_000)
        worker.now_us += 16 * DAY_S * S
        layout = index.layout
        slices = layout.exact_slices + layout.table_layout.tables * layout.slices
        for _ in range(2 * (1 + slices // 400)):  # what is left of a round, and the next
            await index.expire(worker.now_us)
        assert (await index.size()).clusters == 2
        assert [key for key in kept if ttl(redis_server, key) < 62 * WEEK_MS // 7 - 60_000] == []


@in_loop
async def test_a_partition_that_was_released_is_no_longer_kept(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await index.release_partition(HERE)
        redis_server.command("PEXPIRE", SHARD.partition(HERE), 60_000)
        await index.expire(worker.now_us)
        assert ttl(redis_server, SHARD.partition(HERE)) <= 60_000


@in_loop
async def test_counting_keeps_a_cluster_once_half_of_its_time_has_gone(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        (answer,) = await worker.process([Event(0, A)])
        key = SHARD.cluster(answer.cluster.to_bytes(8, "big"))
        for offset, (days, renewed) in enumerate([(3, False), (1, True), (3, False), (1, True)], 1):
            redis_server.command("PEXPIRE", key, 60_000)
            worker.now_us += days * DAY_S * S
            await worker.process([Event(offset, A)])
            assert (ttl(redis_server, key) > 60_000) == renewed


# ---------------------------------------------------------------- claims


@in_loop
async def test_a_summary_that_is_confirmed_twice_in_a_call_counts_once(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text) for n, text in enumerate(families(2))])
        await index.finish(worker.now_us)
        first, _ = await index.claim(10, worker.now_us)
        await index.confirm([(first.cluster, first.revision)] * 2, worker.now_us)
        assert (await index.size()).waiting == 1


@in_loop
async def test_samples_of_a_cluster_go_with_it(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(0, A), Event(1, A)])
        (values,) = keys_of(redis_server, "*:v:*")
        assert ttl(redis_server, values) > 0
        (summary,) = await worker.end()
        assert len(summary.samples) == 1
        assert keys_of(redis_server, "*:v:*") == []


async def count_sampled(worker: Worker, offset: int, *priorities: int) -> None:
    """Count an event of `A`; it and others of its cluster were chosen by chance."""
    event = Event(offset, A)
    commit = worker.record_of([event], await worker.resolve([event]))
    commit.deltas[0].sampled = of_priorities(*priorities)
    assert await worker.index.record(commit, worker.now_us) == frozenset()


def of_priorities(*priorities: int) -> list[tuple[int, bytes]]:
    return [(each << 56, b"event %d" % each) for each in priorities]


@in_loop
async def test_values_whose_cluster_was_lost_are_not_those_of_the_next(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, summaries=Summaries(every_us=None, values=4)) as index:
        worker = Worker(index)
        await worker.own()
        await count_sampled(worker, 0, 1, 2, 9)
        await count_sampled(worker, 1, 8)
        (cluster,) = keys_of(redis_server, "*:c:*")
        redis_server.command("DEL", cluster, SHARD.partition(HERE), SHARD.journal(HERE))
        await worker.own()  # it is read again
        await count_sampled(worker, 0, 9)
        for offset in range(1, 6):
            await count_sampled(worker, offset, 20 + offset, 30 + offset)
        (summary,) = await worker.end()
        assert list(summary.sampled) == of_priorities(9, 21, 22, 23)
        assert keys_of(redis_server, "*:v:*") == []


@in_loop
async def test_a_cluster_whose_values_were_lost_goes_on(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, summaries=Summaries(every_us=None, values=4)) as index:
        worker = Worker(index)
        await worker.own()
        for offset in range(4):
            await count_sampled(worker, offset, 10 + offset, 20 + offset)
        redis_server.command("DEL", *keys_of(redis_server, "*:v:*"))
        for offset in range(4, 9):
            await count_sampled(worker, offset, 10 + offset)
        (summary,) = await worker.end()
        assert summary.count == 9
        assert list(summary.sampled) == of_priorities(14, 15, 16, 17)


def exact_hashes(server: RedisServer) -> int:
    lengths = [server.command("HLEN", each) for each in keys_of(server, "*:e:*")]
    return sum(each for each in lengths if isinstance(each, int))


@in_loop
async def test_a_name_that_a_failed_call_has_added_goes_with_its_cluster(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        (family,) = families(1)
        await worker.process([Event(0, family)])
        (damaged,) = await worker.resolve([Event(9, B)])
        key = SHARD.cluster(damaged.cluster.to_bytes(8, "big"))
        redis_server.command("DEL", key)
        redis_server.command("RPUSH", key, "of another type")
        with pytest.raises(IndexRefused, match="WRONGTYPE"):
            await worker.resolve([Event(1, twin(family, random.Random(1))), Event(9, B)])
        redis_server.command("DEL", key)
        assert exact_hashes(redis_server) == 3
        await worker.end()
        assert exact_hashes(redis_server) == 1  # of the lost one


@in_loop
async def test_a_claim_that_arrives_again_changes_nothing(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(9, A)])
        (shard,) = index._shards
        made = [
            await index._partitions._claim(shard, HERE, b"", 0, b"5", "0123456789abcdef")
            for _ in range(2)
        ]
        assert made[0] == made[1]
        assert made[0] == [b"2", b"-1", b"0", 1, b""]
        # It may even arrive after what was recorded since.
        worker.owned = worker.owned._replace(fence=2)
        await worker.process([Event(0, B)])
        late = await index._partitions._claim(shard, HERE, b"", 0, b"5", "0123456789abcdef")
        assert late[:2] == [b"2", b"0"]
        await worker.process([Event(1, B)])
        another = await index._partitions._claim(shard, HERE, b"", 0, b"5", "another")
        assert another == [b"3", b"1", b"2", 0, b""]


@in_loop
async def test_partitions_long_gone_are_looked_at_no_more(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index:
        worker, gone = Worker(index), Worker(index, THERE)
        for each in (worker, gone):
            await each.own()
            await each.process([Event(0, A)])
        assert redis_server.command("HLEN", SHARD.heads) == 2
        worker.now_us += 8 * DAY_S * S
        await worker.process([Event(1, A, 8 * DAY_S)])
        assert redis_server.command("HLEN", SHARD.heads) == 1


@in_loop
async def test_bounded_calls_find_summaries_behind_many_leased_ones(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    summaries = Summaries(every_us=10 * S)
    texts = [Text(n, family.fingerprint) for n, family in enumerate(families(901))]
    async with opened(redis_server.url, summaries=summaries) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text) for n, text in enumerate(texts[:900])])
        await worker.process([Event(n + 900, text, 30) for n, text in enumerate(texts[:900])])
        assert len(await index.claim(1000, worker.now_us)) == 900
        (last,) = await worker.process([Event(1800, texts[900], 31)])
        await index.finish(worker.now_us)
        before = index.client.counts["claim"]
        assert [s.cluster for s in await index.claim(1000, worker.now_us)] == [last.cluster]
        assert 3 <= index.client.counts["claim"] - before <= 6

"""A namespace that sees ever new events keeps to its size, and leaves nothing behind."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Query
from stream_dedup.index.redis.client import Arguments
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.layouts import PIECE
from stream_dedup.index.redis.maintenance import Maintenance
from stream_dedup.index.redis.scripts import PURGE, Script
from stream_dedup.model import Partition, Position
from tests.contract.driver import S
from tests.integration.redis.helpers import (
    NAMESPACE,
    Event,
    Worker,
    batches,
    counts,
    families,
    in_loop,
    opened,
)
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]

EVENTS = 30_000
CLUSTERS = 1_000
LIMITS = Limits(max_clusters=CLUSTERS, max_candidates=1_000, max_verified=64)
SUMMARIES = Summaries(every_us=60 * S, samples=1)


def memory_of(server: RedisServer) -> int:
    """What the data takes: without the buffers of connections, which come and go."""
    info = server.info("memory")
    return int(info["used_memory"]) - int(info["mem_clients_normal"])


def scan(server: RedisServer) -> list[bytes]:
    cursor, keys = b"0", set[bytes]()
    while True:
        answer = server.command("SCAN", cursor, "COUNT", 1000)
        assert isinstance(answer, list)
        assert isinstance(answer[0], bytes)
        assert isinstance(answer[1], list)
        cursor = answer[0]
        keys.update(key for key in answer[1] if isinstance(key, bytes))
        if cursor == b"0":
            return sorted(keys)


@in_loop
async def test_memory_stays_flat_and_nothing_is_left_behind(make_redis: MakeRedis) -> None:
    server = make_redis()
    events = [Event(n, text, n * 0.01) for n, text in enumerate(families(EVENTS))]
    used: list[int] = []
    async with opened(server.url, limits=LIMITS, summaries=SUMMARIES) as index:
        worker = Worker(index)
        await worker.own()
        counted: Counter[int] = Counter()
        for batch in batches(events, 500):
            await worker.process(batch)
            counted += counts(await worker.take_summaries())
            worker.now_us += 5 * S
            used.append(memory_of(server))
        size = await index.size()
        assert (size.clusters, size.fingerprints, size.waiting) == (CLUSTERS, CLUSTERS, 0)
        assert size.evicted == EVENTS - CLUSTERS
        tables = index.layout.table_layout.tables
        keys = scan(server)
        assert [key for key in keys if server.command("PTTL", key) in (-1, -2)] == []
        assert server.command("LLEN", ShardKeys(NAMESPACE, 0).garbage) == 0
        assert members(server, keys, "t:", "ZCARD") == tables * CLUSTERS
        assert members(server, keys, "e:", "HLEN") == CLUSTERS
        counted += counts(await worker.end())
        keys = scan(server)
        assert members(server, keys, "t:", "ZCARD") + members(server, keys, "e:", "HLEN") == 0
    assert counted.total() == EVENTS
    second_half = used[len(used) // 2 :]
    assert max(second_half) <= 1.1 * min(second_half), used


def members(server: RedisServer, keys: list[bytes], kind: str, command: str) -> int:
    """How many entries the tables or slices hold."""
    prefix = ShardKeys(NAMESPACE, 0).prefix + kind.encode()
    found = [server.command(command, key) for key in keys if key.startswith(prefix)]
    return sum(number for number in found if isinstance(number, int))


@in_loop
async def test_garbage_that_others_add_meanwhile_stays(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    shard = ShardKeys(NAMESPACE, 0)
    others = [pack_piece(number) for number in range(3)]
    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text) for n, text in enumerate(families(5))])
        run = index.client.run

        async def after_others(script: Script, keys: Sequence[bytes], arguments: Arguments) -> Any:
            if script is PURGE:
                redis_server.command("RPUSH", shard.garbage, *others)
            return await run(script, keys, arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(index.client, "run", after_others)
            await index.finish(worker.now_us)
        left = redis_server.command("LRANGE", shard.garbage, 0, -1)
        assert left == others
        assert members(redis_server, scan(redis_server), "e:", "HLEN") == 0


@in_loop
async def test_garbage_goes_to_one_caller_at_a_time(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    shard, purge, handed = ShardKeys(NAMESPACE, 0), Maintenance._purge, list[int]()

    async def hold(_: Maintenance, __: ShardKeys, pieces: Sequence[bytes]) -> None:
        handed.append(len(pieces))

    async with opened(redis_server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text) for n, text in enumerate(families(5))])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Maintenance, "_purge", hold)
            await index.finish(worker.now_us)
            await index.finish(worker.now_us)
            assert handed == [5, 0]
            # The first caller has died: after a time they are handed out again.
            redis_server.command("HSET", shard.meta, "handed_us", "0")
            patched.setattr(Maintenance, "_purge", purge)
            await index.finish(worker.now_us)
    assert redis_server.command("LLEN", shard.garbage) == 0
    assert redis_server.command("HGET", shard.meta, "handed") == b"0"


def pack_piece(identity: int) -> bytes:
    """A piece of garbage of a cluster that is not there, without records."""
    return PIECE.struct.pack(identity, 0) + bytes(4)


@pytest.mark.parametrize("is_claimed", [False, True])
@in_loop
async def test_a_worker_without_summaries_beside_one_with_them(
    redis_server: RedisServer, *, is_claimed: bool
) -> None:
    """What is claimed is confirmed, and the final summary follows; else nothing is due any more."""
    redis_server.command("FLUSHALL")
    text, late = families(2)
    unread = Summaries(every_us=None, final=False)
    async with (
        opened(redis_server.url, summaries=Summaries(every_us=S)) as index,
        opened(redis_server.url, summaries=unread) as other,
    ):
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(0, text), Event(1, text), Event(2, late, at_s=10)])
        claimed = await index.claim(1, worker.now_us) if is_claimed else []
        await other.finish(worker.now_us)
        assert (await other.size())[:3] == (0, 0, len(claimed))
        await index.confirm([(each.cluster, each.revision) for each in claimed], worker.now_us)
        finals = await worker.take_summaries()
        assert [each.count for each in claimed + finals] == [2, 2] * is_claimed
        assert [each.final for each in finals] == [True] * is_claimed
        assert (await index.size()).waiting == 0


@in_loop
async def test_tombstones_of_unread_clusters_are_bounded(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    unread, shard = Summaries(every_us=None, final=False), ShardKeys(NAMESPACE, 0)
    events = [Event(n, text, n) for n, text in enumerate(families(100))]
    async with opened(redis_server.url, limits=Limits(10), summaries=unread) as index:
        worker = Worker(index)
        await worker.own()
        for batch in batches(events, 5):
            await worker.process(batch)
        assert (await index.size())[:3] == (10, 10, 0)
    assert redis_server.command("ZCARD", shard.gone) == 10
    clusters = [key for key in scan(redis_server) if key.startswith(shard.prefix + b"c:")]
    assert len(clusters) == 20


@in_loop
async def test_an_event_of_another_group_at_a_place_leaves_nothing(make_redis: MakeRedis) -> None:
    server, place = make_redis(), Partition("topic", 0)
    recipe = Recipe(match=Match(k=3, jaccard=0.5))

    def query(offset: int, exact: int, fingerprint: int, group: str) -> Query:
        sketch, position = array("Q", [1, 2, 3, 4]).tobytes(), Position(*place, offset)
        return Query(group, exact, fingerprint, sketch, True, 0, 0, position)

    async def record(fence: int, cluster: int, count: int) -> None:
        (delta,) = [ClusterDelta(cluster, count, 0, 0, representative=b"first")]
        assert not await index.record(Commit(place, fence, 0, count - 1, count, 0, [delta]), 0)

    async with opened(server.url, recipe=recipe) as index:
        owned = await index.claim_partition(place, 0, 0)
        (former,) = await index.resolve([query(0, 7, 0b01, '{"host":"a"}')], 0)
        await record(owned.fence, former.cluster, 1)
        owned = await index.claim_partition(place, 0, 0)  # the topic was created again
        answers = await index.resolve([query(0, 8, 0b00, ""), query(1, 7, 0b01, "")], 0)
        assert {answer.cluster for answer in answers} == {former.cluster}
        await record(owned.fence, former.cluster, 2)
        await index.finish(0)
        while summaries := await index.claim(10, 0):
            await index.confirm([(each.cluster, each.revision) for each in summaries], 0)
        await index.expire(0)
    left = [key for key in scan(server) if b"}:e:" in key or b"}:t:" in key]
    assert left == []

"""A master dies and its replica takes over: calls wait for it, and the counts are whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.keys import ShardKeys
from tests.contract.driver import HOUR, PLAIN
from tests.integration.redis.helpers import (
    HASTY,
    Event,
    Worker,
    batches,
    counts,
    in_loop,
    opened,
    stream,
    until,
)
from tests.services.redis import RedisCluster, RedisSentinel, RedisServer
from tests.services.resp import call

EVENTS = stream(600, of=20)
BATCHES = batches(EVENTS, 50)


async def fed(worker: Worker, pieces: Sequence[Sequence[Event]]) -> None:
    for events in pieces:
        await worker.process(events)


async def undisturbed() -> dict[int, int]:
    """What the stream comes to."""
    worker = Worker(MemoryIndex(PLAIN, windows=HOUR))
    await worker.own()
    await fed(worker, BATCHES)
    return counts(await worker.end())


def replicated(master: RedisServer, shard: int = 0, namespace: str = PLAIN.name) -> None:
    """Return once a replica has what the master answered for, so that nothing is lost."""
    # WAIT waits for what its own connection wrote, and so for all that was written before.
    marker = ShardKeys(namespace, shard).meta + b":marker"
    assert call(master.port, [("SET", marker, 1), ("WAIT", 1, 10_000)])[1] == 1


@in_loop
async def test_calls_wait_for_the_master_that_sentinels_promote(
    redis_sentinel: RedisSentinel,
) -> None:
    redis_sentinel.wait_ready()
    redis_sentinel.master().command("FLUSHALL")
    try:
        async with opened(redis_sentinel.url, namespace=PLAIN.name, retry_policy=HASTY) as index:
            worker = Worker(index)
            await worker.own()
            await fed(worker, BATCHES[:4])
            replicated(redis_sentinel.master())
            old_port = redis_sentinel.kill_master()
            await fed(worker, BATCHES[4:])
            assert redis_sentinel.master_port() != old_port
            assert index.client.counts["retries"] > 0
            assert (index.resets, index.rollbacks) == (0, 0)
            assert await undisturbed() == counts(await worker.end())
    finally:
        redis_sentinel.revive()


@in_loop
async def test_calls_leave_a_master_that_sentinels_demoted(redis_sentinel: RedisSentinel) -> None:
    redis_sentinel.wait_ready()
    redis_sentinel.master().command("FLUSHALL")
    async with opened(redis_sentinel.url, namespace=PLAIN.name, retry_policy=HASTY) as index:
        worker = Worker(index)
        await worker.own()
        await fed(worker, BATCHES[:4])
        old = redis_sentinel.master()
        replicated(old)
        sentinel = redis_sentinel.sentinels[0]
        await asyncio.to_thread(sentinel.command, "SENTINEL", "FAILOVER", redis_sentinel.service)
        await asyncio.to_thread(redis_sentinel.wait_failover, old.port)
        # A sentinel would do it too, after ten seconds. Connections stay open: calls are refused.
        old.command("REPLICAOF", "127.0.0.1", redis_sentinel.master_port())
        await fed(worker, BATCHES[4:])
        assert index.client.counts["retries"] > 0
        assert (index.resets, index.rollbacks) == (0, 0)
        counted = counts(await worker.end())
    redis_sentinel.revive()
    assert await undisturbed() == counted


@in_loop
async def test_calls_wait_for_the_replica_of_a_cluster_node(redis_cluster: RedisCluster) -> None:
    redis_cluster.wait_ready()
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
    slot = redis_cluster.slot_of(ShardKeys(PLAIN.name, 0).meta)
    try:
        async with opened(redis_cluster.url, namespace=PLAIN.name, retry_policy=HASTY) as index:
            worker = Worker(index)
            await worker.own()
            await fed(worker, BATCHES[:4])
            replicated(redis_cluster.master_of(slot))
            old = redis_cluster.kill_master(of_slot=slot)
            going_on = asyncio.create_task(fed(worker, BATCHES[4:]))
            await until(lambda: index.client.retrying)
            await going_on
            assert old is not redis_cluster.master_of(slot)
            assert (index.resets, index.rollbacks) == (0, 0)
            assert await undisturbed() == counts(await worker.end())
    finally:
        redis_cluster.revive()


@in_loop
async def test_shards_on_several_nodes_outlive_the_death_of_one(
    redis_cluster: RedisCluster,
) -> None:
    redis_cluster.wait_ready()
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
    slots = {
        number: redis_cluster.slot_of(ShardKeys(PLAIN.name, number).meta) for number in range(8)
    }
    owners = {number: redis_cluster.master_of(slot) for number, slot in slots.items()}
    dead = owners[0]
    events = [event._replace(group=f"group {event.offset % 40}") for event in EVENTS]
    pieces = batches(events, 50)
    try:
        async with opened(
            redis_cluster.url, shards=8, namespace=PLAIN.name, retry_policy=HASTY
        ) as index:
            worker = Worker(index)
            await worker.own()
            await fed(worker, pieces[:4])
            replicated(dead)
            dead.kill()
            await fed(worker, pieces[4:])
            assert (index.resets, index.rollbacks) == (0, 0)
            assert len(EVENTS) == counts(await worker.end()).total()
    finally:
        redis_cluster.revive()

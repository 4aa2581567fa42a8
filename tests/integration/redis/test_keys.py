"""Keys: all have a time to live, a prefix of ours, and a slot in common with their shard's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.integration.redis import scenario
from tests.integration.redis.helpers import (
    NAMESPACE,
    Event,
    Worker,
    families,
    in_loop,
    keys_of,
    opened,
)
from tests.services.redis import RedisCluster, RedisServer

MakeRedis = Callable[..., RedisServer]

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.mark.parametrize("shards", [1, 3])
@in_loop
async def test_every_key_ends_by_itself_and_is_ours(redis_server: RedisServer, shards: int) -> None:
    redis_server.command("FLUSHALL")
    async with opened(
        redis_server.url,
        windows=scenario.WINDOWS,
        summaries=scenario.SUMMARIES,
        limits=scenario.LIMITS,
        shards=shards,
    ) as index:
        await scenario.use_everything(index, groups=10 * shards)
        assert_ends_and_is_ours(redis_server, shards)
        # And with clusters of all kinds: open, closed and waiting, leased.
        worker = Worker(index)
        await worker.own()
        first, second, third = families(3, seed=4)
        await worker.process([Event(10**6, first), Event(10**6 + 1, second)])
        await index.finish(worker.now_us)
        assert len(await index.claim(1, worker.now_us)) == 1
        await worker.process([Event(10**6 + 2, third)], committed=10**6)
        assert_ends_and_is_ours(redis_server, shards)


def assert_ends_and_is_ours(server: RedisServer, shards: int) -> None:
    keys = keys_of(server)
    assert {b"c", b"p", b"heads", b"meta"} <= {kind_of(key) for key in keys}
    ours = re.compile(rb"sd:\{%s:([0-9]+)\}:." % NAMESPACE.encode())
    found = {key: ours.match(key) for key in keys}
    assert [key for key, match in found.items() if match is None] == []
    assert set(range(shards)) == {int(match[1]) for match in found.values() if match}
    left = {key: server.command("PTTL", key) for key in keys}
    assert [key for key, ms in left.items() if not isinstance(ms, int) or ms <= 0] == []
    # Tombstones alone go sooner.
    assert [
        key
        for key, ms in left.items()
        if kind_of(key) != b"c" and isinstance(ms, int) and ms < WEEK_MS - 60_000
    ] == []


def kind_of(key: bytes) -> bytes:
    return key.split(b"}:")[1].split(b":")[0]


@in_loop
async def test_the_keys_of_a_shard_share_a_slot(redis_cluster: RedisCluster) -> None:
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
    async with opened(redis_cluster.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        texts = families(90)
        await worker.process([Event(n, text, 0, f"group {n % 30}") for n, text in enumerate(texts)])
    slots: dict[bytes, set[int]] = {}
    for node in redis_cluster.masters():
        for key in keys_of(node):
            slots.setdefault(key[: key.index(b"}")], set()).add(redis_cluster.slot_of(key))
    assert {b"sd:{%s:%d" % (NAMESPACE.encode(), number) for number in range(3)} == set(slots)
    assert [len(found) for found in slots.values()] == [1, 1, 1]
    assert len(set[int]().union(*slots.values())) == 3

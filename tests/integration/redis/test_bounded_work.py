"""However hostile the events, a call's work is bounded: in commands, which no load changes."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import ClusterDelta, Commit, Query
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.maintenance import SWEEP_STEPS
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.store import LIMITS, RedisIndex
from stream_dedup.model import Position
from tests.contract.driver import HERE, START_US, A
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]


def alike(first: int, count: int) -> list[Query]:
    """Events of one fingerprint that have no word in common."""
    return [
        Query(
            "",
            offset,
            A.fingerprint,
            array("Q", range(offset * 8 + 8, offset * 8 + 16)).tobytes(),
            True,
            START_US,
            START_US,
            Position("topic", 0, offset),
        )
        for offset in range(first, first + count)
    ]


def calls(server: RedisServer, command: str) -> int:
    stats = server.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
    return int(stats.split("calls=")[1].split(",")[0])


def test_a_crowd_of_equal_fingerprints_costs_bounded_work(make_redis: MakeRedis) -> None:
    redis, many = make_redis(), LIMITS.max_candidates + 500

    async def crowd() -> None:
        server = RedisClient(redis.url)
        try:
            index = await RedisIndex.open(server, load_recipe("logs"))
            await index.resolve(alike(0, many), START_US)
            looked, called = calls(redis, "hmget"), calls(redis, "evalsha")
            searched = calls(redis, "zrange")
            answers = await index.resolve(alike(many, 50), START_US)
            assert all(answer.new for answer in answers)
            looked, called = calls(redis, "hmget") - looked, calls(redis, "evalsha") - called
            # Clusters are looked at once a call at most, and no more a query than twice as many as
            # are verified.
            assert looked <= called * (2 * LIMITS.max_verified + 30)
            # A table alone holds more than the candidates that are compared: no other is searched.
            assert calls(redis, "zrange") - searched == 50
            assert (await index.size()).truncated >= 50
        finally:
            await server.aclose()

    asyncio.run(crowd())


def test_closing_many_clusters_takes_calls_of_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def close() -> None:
        server = RedisClient(redis.url)
        try:
            index = await RedisIndex.open(server, load_recipe("logs"))
            owned = await index.claim_partition(HERE, None, START_US)
            queries = alike(0, 1_000)
            answers = await index.resolve(queries, START_US)
            deltas = [ClusterDelta(a.cluster, 1, START_US, START_US, b"line") for a in answers]
            record = Commit(HERE, owned.fence, 0, 999, 1_000, START_US, deltas)
            await index.record(record, START_US)
            before = {name: calls(redis, name) for name in ("evalsha", "zrem", "rpush")}
            await index.finish(START_US)
            after = {name: calls(redis, name) for name in before}
            done = {name: after[name] - before[name] for name in before}
            assert done["rpush"] == 1_000 // SWEEP_STEPS
            tables = index.layout.table_layout.tables
            assert done["evalsha"] >= 1_000 // SWEEP_STEPS + 1_000 * tables // CALL_WORK
            assert done["zrem"] == 2 * done["rpush"] + 1_000 * tables
        finally:
            await server.aclose()

    asyncio.run(close())


def test_clusters_that_become_due_at_once_are_all_summarised(make_redis: MakeRedis) -> None:
    redis, many = make_redis(), 1_200

    async def count() -> None:
        server = RedisClient(redis.url)
        try:
            index = await RedisIndex.open(server, load_recipe("logs"))
            owned = await index.claim_partition(HERE, None, START_US)
            answers = await index.resolve(alike(0, many), START_US)
            once = [ClusterDelta(a.cluster, 1, START_US, START_US, b"line") for a in answers]
            await index.record(Commit(HERE, owned.fence, 0, 9, 10, START_US, once), START_US)
            again = [
                ClusterDelta(a.cluster, 1, START_US, START_US, samples=[b"line"] * (place % 2))
                for place, a in enumerate(answers)
            ]
            before = calls(redis, "zadd")
            await index.record(Commit(HERE, owned.fence, 10, 19, 20, START_US, again), START_US)
            assert redis.command("ZCARD", index._shards[0].due) == many
            assert calls(redis, "zadd") - before < 10
        finally:
            await server.aclose()

    asyncio.run(count())

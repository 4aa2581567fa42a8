"""However hostile the events, a call's work is bounded: in commands, which no load changes."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
import redis as driver

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.features.recipe import replace as recipe_with
from stream_dedup.index.base import ClusterDelta, Commit, Query
from stream_dedup.index.groups import cluster_id
from stream_dedup.index.redis import resolver
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.maintenance import SWEEP_STEPS
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.resolver import SEARCH_WORK
from stream_dedup.index.redis.store import LIMITS, RedisIndex
from stream_dedup.model import Batch, Position
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


def all_calls(server: RedisServer) -> int:
    return sum(calls(server, name[len("cmdstat_") :]) for name in server.info("commandstats"))


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
            looked, called = calls(redis, "get"), calls(redis, "evalsha")
            searched = calls(redis, "zrange")
            answers = await index.resolve(alike(many, 50), START_US)
            assert all(answer.new for answer in answers)
            looked, called = calls(redis, "get") - looked, calls(redis, "evalsha") - called
            # A query may look at a few times as many clusters as one without a crowd.
            assert looked <= 50 * SEARCH_WORK
            # It reads a few hundred entries, not all that may be compared: so a call has many.
            assert called <= 12
            # A table alone holds more than the candidates that are compared: no other is searched.
            assert calls(redis, "zrange") - searched == 50
            assert (await index.size()).truncated >= 50
        finally:
            await server.aclose()

    asyncio.run(crowd())


# Commands to open a cluster: some 22 (12 without new times to live), and to close another: 24.
# The 21 posting lists of a pattern lie in three slices: they take nine to open it, and six to close
# it.
@pytest.mark.parametrize(("learn", "opening", "full"), [(0, 23, 48), (5, 33, 65)])
def test_a_flood_of_new_patterns_costs_the_same_however_long(
    make_redis: MakeRedis, monkeypatch: pytest.MonkeyPatch, learn: int, opening: int, full: int
) -> None:
    monkeypatch.setattr(resolver, "LEAST_PAUSE_S", 0)
    monkeypatch.setattr(resolver, "READ_PAUSE_FACTOR", 0)
    server, most, step = make_redis(), 1_000, 200
    recipe = recipe_with(load_recipe("logs"), match__learn=learn)
    rng = random.Random(5)
    words = ["".join(rng.choices("bcdfghjklmnpqrstvwxz", k=8)) for _ in range(100_000)]

    async def flood() -> None:
        client = RedisClient(server.url)
        try:
            index = await RedisIndex.open(
                client, recipe, limits=replace(LIMITS, max_clusters=most), mirror_size=most
            )
            engine = Engine(
                recipe, index, windows=Windows(), summaries=Summaries(),
                clock=ManualClock(START_US),
            )  # fmt: skip
            for start in range(0, 5 * most, step):
                before, searched = all_calls(server), calls(server, "zrange")
                lines = [
                    " ".join(words[20 * n : 20 * n + 20]).encode()
                    for n in range(start, start + step)
                ]
                await engine.process(Batch(HERE, range(start, start + step), lines), committed=0)
                while due := await engine.claim_summaries():
                    await engine.confirm_summaries(due)
                commands = (all_calls(server) - before) / step
                assert commands < (full if start >= most else opening)
                # Redis searches no table; now and then the mirror is read again, in 512 slices.
                assert calls(server, "zrange") - searched < 550
                assert index.mirrored
            assert (await index.size())[:3] == (most, most, 0)
        finally:
            await client.aclose()

    asyncio.run(flood())


def test_of_a_crowded_slice_a_part_is_read_first(make_redis: MakeRedis) -> None:
    redis, many, asked = make_redis(), LIMITS.max_candidates + 500, 50

    async def crowd() -> None:
        server = RedisClient(redis.url)
        try:
            index = await RedisIndex.open(server, load_recipe("logs"))
            await index.resolve(alike(0, many), START_US)
            with driver.Redis(port=redis.port) as watching, watching.monitor() as monitor:
                await index.resolve(alike(many, asked), START_US)
                redis.command("ECHO", "the end")
                seen = iter(lambda: monitor.next_command()["command"], "ECHO the end")
                reads = [text for text in seen if text.startswith("ZRANGE ")]
        finally:
            await server.aclose()
        assert len(reads) >= asked
        assert sum(int(text.split()[-1]) for text in reads) <= asked * 256

    asyncio.run(crowd())


@pytest.mark.parametrize("others", [0, 40])
def test_a_line_in_a_crowd_is_compared_with_all_if_others_leave_room(
    make_redis: MakeRedis, others: int
) -> None:
    redis, crowd = make_redis(), 60

    def cut_short() -> list[int]:
        """Searches that were, and how many of them by the limit on work."""
        found = redis.command("HMGET", ShardKeys("logs", 0).meta, "truncated", "cut_by_work")
        assert isinstance(found, list)
        return [int(count) if isinstance(count, bytes) else 0 for count in found]

    async def compare() -> tuple[bool, list[int]]:
        server = RedisClient(redis.url)
        try:
            index = await RedisIndex.open(server, load_recipe("logs"), mirror_size=0)
            known = alike(0, crowd)
            await index.resolve(known, START_US)
            before = cut_short()
            far = [
                each._replace(fingerprint=each.exact * 0x9E37_79B9_7F4A_7C15 % 2**64)
                for each in alike(1_000, others)
            ]
            # Its cluster is the last that the search meets.
            last = max(known, key=lambda each: cluster_id("logs", each.position))
            like = last._replace(exact=9_999, position=Position("topic", 0, 9_999))
            *_, answer = await index.resolve([*far, like], START_US)
            return answer.new, [now - then for now, then in zip(cut_short(), before, strict=True)]
        finally:
            await server.aclose()

    assert asyncio.run(compare()) == ((False, [0, 0]) if others else (True, [1, 1]))


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

"""Commits on many shards: events count once, whoever dies between any two steps.

Texts of one family are near each other and no others are. So a family is one cluster, and what it
has to count is known.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.errors import AlreadyRecorded, StaleFence
from stream_dedup.index.base import Commit
from stream_dedup.index.redis import spread_store, store
from stream_dedup.index.redis.client import RedisClient, RetryPolicy
from stream_dedup.index.redis.codec import pack_id
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.index.spread import counting
from stream_dedup.index.spread.counting import Decide, Drop, Finish, Prepare, Settle
from stream_dedup.model import Partition, Summary
from tests.contract.driver import HOUR, PLAIN
from tests.integration.redis.helpers import (
    HASTY,
    LIMITS,
    NAMESPACE,
    STEADY,
    Event,
    Worker,
    batches,
    counts,
    families,
    in_loop,
    keys_of,
    twin,
    until,
)
from tests.integration.redis.test_failover import replicated
from tests.services.redis import RedisCluster, RedisServer

SHARDS = 5
HERE, THERE = Partition("topic", 0), Partition("topic", 1)
FAMILIES = families(8)
FINAL_ONLY = Summaries(every_us=None)


def events(number: int, seed: str) -> list[Event]:
    rng = random.Random(seed)
    return [Event(offset, twin(rng.choice(FAMILIES), rng)) for offset in range(number)]


def of_families(made: Iterable[Event]) -> list[int]:
    """How many events each family has, in any order."""
    nearest = [
        min(range(len(FAMILIES)), key=lambda n: distance(FAMILIES[n].fingerprint, event))
        for event in made
    ]
    return sorted(Counter(nearest).values())


def distance(fingerprint: int, event: Event) -> int:
    return (fingerprint ^ event.text.fingerprint).bit_count()


@asynccontextmanager
async def spread(
    url: str, retry_policy: RetryPolicy = STEADY, shards: int = SHARDS
) -> AsyncIterator[SpreadIndex]:
    client = RedisClient(url, retry_policy=retry_policy)
    try:
        yield await SpreadIndex.open(
            client, PLAIN, namespace=NAMESPACE, windows=HOUR, summaries=FINAL_ONLY, limits=LIMITS,
            shards=shards,
        )  # fmt: skip
    finally:
        await client.aclose()


class DiesError(Exception):
    """The owner dies."""


class Death(NamedTuple):
    """When an owner dies: at its nth request of a kind, before or after it was carried out."""

    kind: type[counting.Request]
    at: int
    after: bool


DEATHS = [
    Death(kind, at, after)
    for kind, times in ((Prepare, 4), (Decide, 1), (Finish, 4), (Drop, 5))
    for at in range(times)
    for after in (False, True)
]


async def die(index: SpreadIndex, death: Death, commit: Commit, now_us: int) -> None:
    """Make a commit, and die at that request: nothing after it is carried out."""
    ask, asked, dead = index._ask, 0, False

    async def carry_out(request: Any, *given: Any) -> object:
        nonlocal asked, dead
        is_it = isinstance(request, death.kind)
        number, asked = asked, asked + is_it
        if dead or (is_it and number == death.at and not death.after):
            dead = True
            raise DiesError
        answer = await ask(request, *given)
        if is_it and number == death.at:
            dead = True
            raise DiesError
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index, "_ask", carry_out)
        with pytest.raises(DiesError):
            await index.record(commit, now_us)


async def end(index: SpreadIndex, worker: Worker) -> list[Summary]:
    summaries = await worker.end()
    assert (await index.size())[:3] == (0, 0, 0)
    return summaries


def left_behind(server: RedisServer) -> list[bytes]:
    """Keys of commits that are not ended."""
    return [key for name in ("held", "preparing", "x:*") for key in keys_of(server, f"*}}:{name}")]


@pytest.mark.parametrize("death", DEATHS, ids=lambda d: f"{d.kind.__name__} {d.at} {d.after}")
@in_loop
async def test_an_owner_may_die_between_any_two_steps(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, death: Death
) -> None:
    redis_server.command("FLUSHALL")
    monkeypatch.setattr(store, "OPENING_WAITS_S", (0.0, 0.0))
    made = events(60, "dies")
    async with spread(redis_server.url) as one, spread(redis_server.url) as other:
        first = Worker(one, HERE)
        await first.own()
        await first.process(made[:20])
        answers = await first.resolve(made[20:40])
        commit = first.record_of(made[20:40], answers, committed=0)
        if death.kind is Drop:  # a cluster that nobody has opened
            shard = one._shards[1].number
            gone = commit.deltas[0].cluster & ~0xFF | shard
            commit.deltas[0].cluster = gone ^ 1 << 40
        await die(one, death, commit, first.now_us)
        second = Worker(other, HERE)
        owned = await second.own()
        decided = death.kind is Finish or (death.kind is Decide and death.after)
        assert owned.high_water == (39 if decided else 19)
        assert left_behind(redis_server) == []
        assert sorted(owned.journal) == (list(range(20, 40)) if decided else [])
        with pytest.raises(StaleFence):  # it has not died: it goes on as if it owned the partition
            await first.index.record(first.record_of(made[40:], await first.resolve(made[40:])), 0)
        await second.process(made[owned.high_water + 1 :])
        assert sorted(counts(await end(other, second)).values()) == of_families(made)


@pytest.mark.parametrize("decided", [False, True])
@in_loop
async def test_what_nobody_claims_again_is_ended_by_others(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    redis_server.command("FLUSHALL")
    made = events(40, "nobody")
    async with spread(redis_server.url) as one, spread(redis_server.url) as other:
        first, second = Worker(one, HERE), Worker(other, THERE)
        await first.own()
        await second.own()
        await first.process(made[:20])
        commit = first.record_of(made[20:], await first.resolve(made[20:]))
        await die(one, Death(Finish if decided else Decide, 0, after=False), commit, first.now_us)
        assert left_behind(redis_server) != []
        await other.finish(second.now_us)
        open_ones = (await other.size()).clusters
        assert open_ones > 0  # those that are held
        await other.expire(second.now_us)
        assert left_behind(redis_server) != []  # it may be under way
        monkeypatch.setattr(spread_store, "RECOVERED_AFTER_S", -1)
        await other.expire(second.now_us)
        assert left_behind(redis_server) == []
        assert (await other.size()).clusters == open_ones
        # The former owner goes on: what others have dropped is not decided any more.
        if not decided:
            asked: list[object] = []
            ask = one._ask

            async def noted(request: Any, *given: Any) -> object:
                asked.append(type(request))
                return await ask(request, *given)

            monkeypatch.setattr(one, "_ask", noted)
            closed = await one.record(commit, first.now_us)
            assert asked[0] is Settle
            if closed:  # those of the home, which nobody held, closed with the input
                await first.process(made[20:])
        else:
            with pytest.raises(AlreadyRecorded):
                await one.record(commit, first.now_us)
        assert sum(counts(await end(other, second)).values()) == len(made)


@in_loop
async def test_an_attempt_that_others_gave_up_is_made_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    monkeypatch.setattr(spread_store, "RECOVERED_AFTER_S", -1)
    made = events(40, "gave up")
    async with spread(redis_server.url) as one, spread(redis_server.url) as other:
        worker = Worker(one, HERE)
        await worker.own()
        ask, given_up = one._ask, 0

        async def slowly(request: Any, *given: Any) -> object:
            nonlocal given_up
            if isinstance(request, Decide) and not given_up:
                given_up += 1
                await other.expire(worker.now_us)
                assert left_behind(redis_server) == []
            return await ask(request, *given)

        monkeypatch.setattr(one, "_ask", slowly)
        await worker.process(made)
        assert given_up == 1
        assert sorted(counts(await end(one, worker)).values()) == of_families(made)


@pytest.mark.parametrize("before", [0, 20])
@in_loop
async def test_what_was_prepared_hides_nothing_of_a_topic_made_again(
    redis_server: RedisServer, before: int
) -> None:
    redis_server.command("FLUSHALL")
    made, again = events(40, "before"), events(30, "again")
    async with spread(redis_server.url) as one, spread(redis_server.url) as other:
        first, second = Worker(one, HERE), Worker(other, HERE)
        await first.own()
        await fed(first, batches(made[:before], 20))
        commit = first.record_of(made[before:], await first.resolve(made[before:]))
        await die(one, Death(Finish, 0, after=False), commit, first.now_us)
        owned = second.owned = await other.claim_partition(HERE, len(again), second.now_us)
        assert (owned.reset, owned.high_water, owned.segment_boundaries) == (True, -1, ())
        assert left_behind(redis_server) == []
        await second.process(again)
        assert sum(counts(await end(other, second)).values()) == len(made) + len(again)


@in_loop
async def test_an_attempt_under_the_fence_of_another_has_its_own_number(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    made = events(40, "another process")
    async with spread(redis_server.url) as one, spread(redis_server.url) as other:
        worker = Worker(one, HERE)
        await worker.own()
        worker.index = other
        commit = worker.record_of(made, await worker.resolve(made))
        await die(other, Death(Decide, 0, after=False), commit, worker.now_us)
        commit = worker.record_of(made[:20], await worker.resolve(made[:20]))
        assert await other.record(commit, worker.now_us) == frozenset()
        assert sum(counts(await end(other, worker)).values()) == 20


@in_loop
async def test_a_cluster_that_is_lost_between_two_steps_holds_no_other(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    made = events(40, "lost cluster")
    async with spread(redis_server.url) as index:
        worker = Worker(index, HERE)
        await worker.own()
        commit = worker.record_of(made, await worker.resolve(made))
        home, *_ = index._partitions.order(HERE)
        lost = next(each for each in commit.deltas if each.cluster & 0xFF != home.number)
        key = index._shards[lost.cluster & 0xFF].cluster(pack_id(lost.cluster))
        ask = index._ask

        async def after_a_loss(request: Any, *given: Any) -> object:
            if isinstance(request, Finish):
                redis_server.command("DEL", key)
            return await ask(request, *given)

        monkeypatch.setattr(index, "_ask", after_a_loss)
        assert await index.record(commit, worker.now_us) == frozenset()
        assert left_behind(redis_server) == []
        assert sum(counts(await end(index, worker)).values()) == len(made) - lost.count


@in_loop
async def test_a_commit_that_is_ended_late_keeps_its_partition_active(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    made = events(20, "late")
    async with spread(redis_server.url) as index:
        worker = Worker(index, HERE)
        await worker.own()
        commit = worker.record_of(made, await worker.resolve(made))
        await die(index, Death(Finish, 0, after=False), commit, worker.now_us)
        heads = [redis_server.command("HVALS", shard.heads) for shard in index._shards]
        assert all(heads)
        owned = await index.read_partition(HERE, worker.owned.fence)
        assert (owned.high_water, left_behind(redis_server)) == (19, [])
        assert [redis_server.command("HVALS", shard.heads) for shard in index._shards] == heads


@pytest.mark.parametrize("group", ["", "a", "long" * 20_000], ids=["none", "short", "long"])
@in_loop
async def test_entries_of_closed_clusters_are_removed_from_all_shards(
    redis_server: RedisServer, group: str
) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server.url) as index:
        worker = Worker(index, HERE)
        await worker.own()
        await worker.process([each._replace(group=group) for each in events(60, "removed")])
        assert keys_of(redis_server, "*}:s:*") != []
        await end(index, worker)
        assert keys_of(redis_server, "*}:s:*") == []
        assert keys_of(redis_server, "*}:garbage") == []


async def fed(worker: Worker, pieces: Sequence[Sequence[Event]]) -> None:
    for each in pieces:
        await worker.process(each)


@in_loop
async def test_workers_outlive_the_death_of_a_node_and_count_once(
    redis_cluster: RedisCluster,
) -> None:
    """Two at once; a master is killed while they go on, and connections are cut."""
    redis_cluster.wait_ready()
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
    here, there = events(400, "here"), events(400, "there")
    slot = redis_cluster.slot_of(ShardKeys(NAMESPACE, 0).meta)
    try:
        async with (
            spread(redis_cluster.url, HASTY) as one,
            spread(redis_cluster.url, HASTY) as other,
        ):
            first, second = Worker(one, HERE), Worker(other, THERE)
            await first.own()
            await second.own()
            pieces = batches(here, 25), batches(there, 25)
            await asyncio.gather(fed(first, pieces[0][:4]), fed(second, pieces[1][:4]))
            master = redis_cluster.master_of(slot)
            await asyncio.to_thread(replicated, master, 0, NAMESPACE)
            dead = await asyncio.to_thread(redis_cluster.kill_master, of_slot=slot)
            going_on = asyncio.gather(fed(first, pieces[0][4:]), fed(second, pieces[1][4:]))
            await until(lambda: one.client.retrying)
            for node in redis_cluster.masters():
                if node is not dead:
                    node.command("CLIENT", "KILL", "TYPE", "normal")
            await going_on
            assert dead is not redis_cluster.master_of(slot)
            assert (one.resets, one.rollbacks, other.resets, other.rollbacks) == (0, 0, 0, 0)
            await second.index.release_partition(THERE)
            counted = sorted(counts(await end(one, first)).values())
            assert counted == of_families([*here, *there])
    finally:
        redis_cluster.revive()

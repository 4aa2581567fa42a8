"""How calls are made: few round trips, none lost to a forgotten script, settings compared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from stream_dedup.errors import IndexReset, IndexUnavailable, ProtocolError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import PIPELINE_COMMANDS, Arguments, RedisClient
from stream_dedup.index.redis.codec import group_hash
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.scripts import Argument, Script
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Decision, Kind
from tests.contract.driver import HERE, HOUR, START_US, VERIFIED, A, delta, query
from tests.integration.redis.helpers import (
    HASTY,
    NAMESPACE,
    Event,
    Worker,
    counts,
    families,
    in_loop,
    opened,
    stream,
    until,
)
from tests.services.redis import RedisCluster, RedisServer

MakeRedis = Callable[..., RedisServer]


# ---------------------------------------------------------------- many keys


@pytest.mark.parametrize("name", ["redis_server", "redis_cluster"])
@in_loop
async def test_representatives_of_thousands_take_few_calls(
    request: pytest.FixtureRequest, name: str
) -> None:
    service: RedisServer | RedisCluster = request.getfixturevalue(name)
    for node in service.masters() if isinstance(service, RedisCluster) else [service]:
        node.command("FLUSHALL")
    async with opened(service.url, shards=2, limits=Limits(10_000)) as index:
        worker = Worker(index)
        await worker.own()
        events = [Event(n, text, 0, f"{n % 9}") for n, text in enumerate(families(20))]
        known = [answer.cluster for answer in await worker.process(events)]
        asked = [known[n % 20] if n % 250 == 0 else n << 8 | n % 5 for n in range(5_000)]
        before = index.client.counts.copy()
        values = await index.representatives(asked)
        assert [(n % 250 == 0) for n in range(5_000)] == [value is not None for value in values]
        made = index.client.counts - before
        assert set(made) == {"pipeline"}
        assert made["pipeline"] <= 5_000 // PIPELINE_COMMANDS + 2


# ---------------------------------------------------------------- forgotten scripts


def forgetting(server: RedisClient, redis: RedisServer, times: int) -> None:
    """Have the server forget its scripts right after one was loaded, so many times."""
    send = server._send
    left = times

    async def send_and_flush(key: bytes, command: Sequence[Argument]) -> object:
        nonlocal left
        answer = await send(key, command)
        if command[0] == "SCRIPT LOAD" and left:
            left -= 1
            redis.command("SCRIPT", "FLUSH")
        return answer

    server._send = send_and_flush  # type: ignore[method-assign]


@in_loop
async def test_a_script_that_is_forgotten_once_more_is_loaded_once_more(
    make_redis: MakeRedis,
) -> None:
    redis = make_redis()
    async with opened(redis.url, retry_policy=HASTY) as index:
        redis.command("SCRIPT", "FLUSH")
        forgetting(index.client, redis, 3)
        worker = Worker(index)
        await worker.own()
        events = stream(50, of=5)
        await worker.process(events)
        assert index.client.counts["reloads"] >= 4
        assert index.client.counts["retries"] == 0
        assert len(events) == counts(await worker.end()).total()


def named(answer: object) -> bytes:
    assert isinstance(answer, bytes)
    return answer


@in_loop
async def test_calls_wait_while_their_slot_moves_to_a_node_without_scripts(
    redis_cluster: RedisCluster,
) -> None:
    redis_cluster.wait_ready()
    masters = redis_cluster.masters()
    for node in masters:
        node.command("FLUSHALL")
        node.command("SCRIPT", "FLUSH")
    slot = redis_cluster.slot_of(ShardKeys(NAMESPACE, 0).meta)
    old = redis_cluster.master_of(slot)
    new = next(node for node in masters if node is not old)
    name, old_name = (named(node.command("CLUSTER", "MYID")) for node in (new, old))
    new.command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_name)
    old.command("CLUSTER", "SETSLOT", slot, "MIGRATING", name)
    server = RedisClient(redis_cluster.url, retry_policy=HASTY)
    try:
        opening = asyncio.create_task(
            RedisIndex.open(server, VERIFIED, namespace=NAMESPACE, windows=HOUR)
        )
        await until(lambda: server.retrying or opening.done())
        for node in (new, old, *masters):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", name)
        index = await opening
        worker = Worker(index)
        await worker.own()
        await worker.process(stream(20, of=5))
        assert redis_cluster.master_of(slot) is new
        assert counts(await worker.end()).total() == 20
    finally:
        for node in (new, old, *masters):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", name)
        await server.aclose()
        redis_cluster.wait_ready()


@in_loop
async def test_a_script_is_given_to_all_nodes_of_a_cluster(redis_cluster: RedisCluster) -> None:
    redis_cluster.wait_ready()
    masters = redis_cluster.masters()
    for node in masters:
        node.command("FLUSHALL")
        node.command("SCRIPT", "FLUSH")
    async with opened(redis_cluster.url, retry_policy=HASTY) as index:
        assert index.client.counts["reloads"] == 1
    for node in masters:
        assert node.command("SCRIPT", "EXISTS", scripts.OPEN.sha) == [1]


# ---------------------------------------------------------------- shards


@in_loop
async def test_a_delta_or_decision_of_no_shard_is_refused(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3) as index:
        owned = await index.claim_partition(HERE, None, START_US)
        (answer,) = await index.resolve([query(0, A)], START_US)
        foreign = answer.cluster & ~0xFF | 3
        stranger = ClusterDelta(foreign, 1, START_US, START_US)
        decided = [Decision(Kind.DUPLICATE, foreign, 0, 0)]
        for record in (
            Commit(HERE, owned.fence, 0, 0, 0, START_US, [delta(answer), stranger]),
            Commit(HERE, owned.fence, 0, 0, 0, START_US, [delta(answer)], [0], decided),
        ):
            with pytest.raises(ProtocolError, match="none of this namespace"):
                await index.record(record, START_US)
        assert (await index.claim_partition(HERE, None, START_US)).high_water == -1


class Failing(RedisClient):
    """A server that fails a script from a call on."""

    def fail(self, script: Script, after: int, error: Exception) -> None:
        self.failing = script, after, error

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Arguments) -> object:
        if hasattr(self, "failing") and script is self.failing[0]:
            _, after, error = self.failing
            if after <= 0:
                raise error
            self.failing = script, after - 1, error
        return await super().run(script, keys, arguments)


@in_loop
async def test_claimed_summaries_are_returned_though_a_later_call_fails(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    server = Failing(redis_server.url)
    try:
        index = await RedisIndex.open(server, VERIFIED, namespace=NAMESPACE, windows=HOUR, shards=2)
        worker = Worker(index)
        await worker.own()
        events = [Event(n, text, 0, f"{n}") for n, text in enumerate(families(20))]
        answers = await worker.process(events)
        await index.finish(worker.now_us)
        server.fail(scripts.CLAIM, 1, IndexUnavailable("away"))
        claimed = await index.claim(100, worker.now_us)
        assert {a.cluster for a in answers if a.cluster & 0xFF == 0} == {s.cluster for s in claimed}
        with pytest.raises(IndexUnavailable):
            await index.claim(100, worker.now_us)
        server.fail(scripts.CLAIM, 10**6, IndexUnavailable("away"))
        rest = await index.claim(100, worker.now_us)
        assert len(answers) == len(claimed) + len(rest)
    finally:
        await server.aclose()


@in_loop
async def test_a_loss_of_data_is_reported_though_something_was_claimed(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=2) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(n, text, 0, f"{n}") for n, text in enumerate(families(20))])
        await index.finish(worker.now_us)
        redis_server.command("DEL", ShardKeys(NAMESPACE, 1).meta)
        with pytest.raises(IndexReset):
            await index.claim(100, worker.now_us)


# ---------------------------------------------------------------- groups


@in_loop
async def test_groups_with_equal_stored_bits_are_not_counted_as_left_out(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, VERIFIED, limits=Limits(1000, max_verified=1)) as index:
        wanted = group_hash(index.key, b"asked")[0] & 0xFFFF
        other = next(
            f"{n}" for n in range(10**7) if group_hash(index.key, b"%d" % n)[0] & 0xFFFF == wanted
        )
        far = A._replace(exact=2, fingerprint=A.fingerprint ^ 1)
        asked = A._replace(exact=3)
        (mine,) = await index.resolve([query(0, A, group="asked")], START_US)
        (theirs,) = await index.resolve([query(1, far, group=other)], START_US)
        (answer,) = await index.resolve([query(2, asked, group="asked")], START_US)
        assert mine.cluster == answer.cluster != theirs.cluster
        assert (await index.size()).truncated == 0


# ---------------------------------------------------------------- settings


@in_loop
async def test_a_worker_with_other_settings_gets_a_warning(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.command("FLUSHALL")
    caplog.set_level(logging.WARNING)
    recipe = load_recipe("logs")

    async def advice(limits: Limits) -> list[str]:
        caplog.clear()
        async with opened(redis_server.url, recipe, limits=limits) as index:
            found = [text for text in index.advice if "other settings" in text]
            assert [
                record.args[1] for record in caplog.records
                if isinstance(record.args, tuple) and "other settings" in record.getMessage()
            ] == found  # fmt: skip
            return found

    assert await advice(Limits(1_000)) == []
    assert await advice(Limits(1_000)) == []
    (sentence,) = await advice(Limits(2_000))
    assert "limits.max_clusters was 1000 and is 2000" in sentence
    assert await advice(Limits(2_000)) == []  # the last to open is compared with


@in_loop
async def test_shards_without_groups_give_a_warning(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=4, limits=Limits(1_000)) as index:
        assert [text for text in index.advice if "250 of 1,000 clusters" in text] != []

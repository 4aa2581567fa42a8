"""The key of a namespace's hashes: one for all workers, kept with the namespace, never shown."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexRefused
from stream_dedup.features.recipe import load_recipe
from stream_dedup.fingerprint.siphash import KEY_BYTES
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Decision, Kind
from tests.contract.driver import HERE, HOUR, START_US, THERE
from tests.forged import ANY_SEED, HIDDEN, KNOWN
from tests.integration.command import run as command_line
from tests.integration.redis.helpers import NAMESPACE, in_loop, opened
from tests.services.redis import RedisServer

LOGS = load_recipe("logs")


def engine_over(index: RedisIndex) -> Engine:
    return Engine(LOGS, index, windows=HOUR, summaries=Summaries(), clock=ManualClock(START_US))


def batch(lines: list[bytes], first: int = 0) -> Batch:
    return Batch(HERE, range(first, first + len(lines)), lines)


def kinds(decisions: Sequence[Decision]) -> list[Kind]:
    return [decision.kind for decision in decisions]


def stored(server: RedisServer, shard: int = 0) -> bytes:
    value = server.command("HGET", ShardKeys(NAMESPACE, shard).meta, "key")
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize("mirror_size", [0, 10_000])
@in_loop
async def test_a_forged_line_opens_its_own_cluster(
    redis_server: RedisServer, mirror_size: int
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, LOGS, mirror_size=mirror_size) as index:
        decisions = await engine_over(index).process(batch([KNOWN, HIDDEN, KNOWN, *ANY_SEED]))

    assert kinds(decisions) == [Kind.NEW, Kind.NEW, Kind.DUPLICATE, Kind.NEW, Kind.NEW]


@in_loop
async def test_a_forged_line_is_not_joined_by_another_worker_either(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, LOGS) as one, opened(redis_server.url, LOGS) as two:
        (known,) = await engine_over(one).process(batch([KNOWN]))
        decisions = await engine_over(two).process(Batch(THERE, range(2), [HIDDEN, KNOWN]))

    assert kinds(decisions) == [Kind.NEW, Kind.DUPLICATE]
    assert decisions[1].cluster == known.cluster


@pytest.mark.parametrize("shards", [1, 3])
@in_loop
async def test_workers_that_start_at_once_agree_on_a_key(
    redis_server: RedisServer, shards: int
) -> None:
    for _ in range(10):
        redis_server.command("FLUSHALL")
        clients = [RedisClient(redis_server.url) for _ in range(6)]
        indexes = await asyncio.gather(
            *(RedisIndex.open(c, LOGS, namespace=NAMESPACE, shards=shards) for c in clients)
        )
        for client in clients:
            await client.aclose()

        assert {index.key for index in indexes} == {indexes[0].key}
        assert {stored(redis_server, n) for n in range(shards)} == {indexes[0].key.secret()}


@in_loop
async def test_each_namespace_has_a_key_of_its_own_and_keeps_it(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url) as index, opened(redis_server.url, namespace="other") as x:
        first = index.key
        assert first != x.key
    async with opened(redis_server.url) as index:
        assert index.key == first
    assert len(stored(redis_server)) == KEY_BYTES


@in_loop
async def test_a_lost_shard_is_created_with_the_key_of_the_others(
    redis_server: RedisServer,
) -> None:
    for lost in range(3):
        redis_server.command("FLUSHALL")
        async with opened(redis_server.url, shards=3) as index:
            key = index.key
            redis_server.command("DEL", ShardKeys(NAMESPACE, lost).meta)
            async with opened(redis_server.url, shards=3) as later:
                assert later.key == key
        assert {stored(redis_server, n) for n in range(3)} == {key.secret()}


@pytest.mark.parametrize("shards", [1, 3])
@in_loop
async def test_a_worker_takes_the_key_of_who_created_the_index_again(
    redis_server: RedisServer, shards: int
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, LOGS, shards=shards) as index:
        engine = engine_over(index)
        await engine.process(batch([KNOWN]))
        ahead = engine.hash(batch([KNOWN, HIDDEN, KNOWN], 1))  # under the former key
        redis_server.command("FLUSHALL")
        async with opened(redis_server.url, LOGS, shards=shards) as newer:
            (first,) = await engine_over(newer).process(Batch(THERE, range(1), [KNOWN]))
            assert index.key != newer.key
            decisions = await engine.process(ahead)
            assert index.key == newer.key

    assert kinds(decisions) == [Kind.DUPLICATE, Kind.NEW, Kind.DUPLICATE]
    assert {decisions[0].cluster, decisions[2].cluster} == {first.cluster}


@in_loop
async def test_a_worker_that_creates_the_index_again_keeps_its_key(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, LOGS) as index:
        key, engine = index.key, engine_over(index)
        await engine.process(batch([KNOWN]))
        redis_server.command("FLUSHALL")
        assert kinds(await engine.process(batch([KNOWN, KNOWN], 1))) == [Kind.NEW, Kind.DUPLICATE]
        assert index.key == key
    assert stored(redis_server) == key.secret()


async def refusal(server: RedisServer, shards: int = 1) -> str:
    with pytest.raises(IndexRefused) as caught:
        async with opened(server.url, shards=shards):
            pass
    return str(caught.value)


@in_loop
async def test_a_namespace_without_a_key_is_refused_with_a_remedy(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url):
        pass
    meta = ShardKeys(NAMESPACE, 0).meta
    layout = redis_server.command("HGET", meta, "layout")
    assert isinstance(layout, bytes)
    redis_server.command("HDEL", meta, "key")
    assert f"damaged layout in {meta.decode()}; delete it" in await refusal(redis_server)

    redis_server.command("HSET", meta, "layout", layout.replace(b'"format": 7', b'"format": 2'))
    message = await refusal(redis_server)
    assert "is stored in format 2, this program reads 7; use another namespace" in message
    assert "index delete-namespace" in message


@in_loop
async def test_shards_with_different_keys_are_refused_unseen(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=2):
        pass
    redis_server.command("HSET", ShardKeys(NAMESPACE, 1).meta, "key", b"sixteen secrets!")
    message = await refusal(redis_server, shards=2)

    assert "shard 1 and shard 0 have different hash keys; delete the namespace" in message
    assert "sixteen" not in message


COMMANDS = [
    ["index", "stats"],
    ["index", "stats", "--namespace", NAMESPACE],
    ["index", "stats", "--namespace", NAMESPACE, "--format", "json"],
    ["index", "check", "--namespace", NAMESPACE, "--format", "json"],
    ["index", "clusters", "--namespace", NAMESPACE, "--format", "json"],
]


def test_no_command_and_no_log_line_shows_the_key(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.command("FLUSHALL")
    caplog.set_level(logging.DEBUG)

    @in_loop
    async def used() -> None:
        async with opened(redis_server.url, LOGS) as index:
            await engine_over(index).process(batch([KNOWN, HIDDEN, KNOWN]))
            caplog.records.append(logging.makeLogRecord({"msg": f"{index!r} {vars(index)!r}"}))

    used()
    shown = caplog.text + "".join(record.getMessage() for record in caplog.records)
    for arguments in COMMANDS:
        done = command_line(*arguments, "--redis", redis_server.url)
        assert done.code == 0, done.err
        shown += done.out.decode("utf-8", "backslashreplace") + done.err

    key = stored(redis_server)
    forms = [key.hex(), base64.b64encode(key).decode(), repr(key)[2:-1], key.decode("latin-1")]
    assert [form for form in forms if form.lower() in shown.lower()] == []

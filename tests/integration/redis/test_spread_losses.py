"""The spread index: how a namespace is made, and what the loss of one of its shards comes to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from stream_dedup.errors import IndexRefused, IndexReset, RecipeError, RecipeMismatch
from stream_dedup.features.recipe import Fingerprint, Match, Recipe
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.index.spread.protocol import Call, Open
from stream_dedup.tools.index_inspector.check import check
from stream_dedup.tools.index_inspector.clusters import details
from stream_dedup.tools.index_inspector.reader import Namespace, Reader
from stream_dedup.tools.index_inspector.stats import measure
from tests.contract.driver import PLAIN
from tests.integration.redis.helpers import (
    HASTY,
    NAMESPACE,
    STEADY,
    in_loop,
    keys_of,
    opened,
    until,
)
from tests.integration.redis.spread_worker import WINDOWS, event
from tests.integration.redis.test_lost_answers import scripts_run
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Toxiproxy

SHARDS = 3
RANDOM = random.Random(0)
EVENTS = [event(RANDOM.getrandbits(64), offset, 0) for offset in range(40)]


@asynccontextmanager
async def spread(server: RedisServer, recipe: Recipe = PLAIN) -> AsyncIterator[SpreadIndex]:
    """The index, and its client closed afterwards."""
    client = RedisClient(server.url, retry_policy=STEADY)
    try:
        yield await SpreadIndex.open(
            client, recipe, namespace=NAMESPACE, windows=WINDOWS, shards=SHARDS
        )
    finally:
        await client.aclose()


def lose(server: RedisServer, number: int) -> None:
    """Have a shard lose all it holds."""
    keys = keys_of(server, f"sd:{{{NAMESPACE}:{number}}}:*")
    assert server.command("DEL", *keys) == len(keys) > 1


def incarnations(server: RedisServer) -> set[object]:
    metas = (ShardKeys(NAMESPACE, number).meta for number in range(SHARDS))
    return {server.command("HGET", meta, "incarnation") for meta in metas}


@pytest.mark.parametrize("lost", range(SHARDS))
@in_loop
async def test_after_the_loss_of_a_shard_all_begin_again(
    redis_server: RedisServer, lost: int
) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server) as one, spread(redis_server) as other:
        before = await one.resolve(EVENTS, 1)
        assert all(answer.new for answer in before)
        lose(redis_server, lost)
        with pytest.raises(IndexReset):
            await one.resolve(EVENTS, 2)
        # Other texts, near to each of the events: none is found, as the index is empty.
        again = [event(e.fingerprint ^ 1 << 63, e.position.offset, 7) for e in EVENTS]
        opened_again = {answer.cluster for answer in await one.resolve(again, 3)}
        assert len(opened_again) == len(EVENTS)
        # The other caller notices it too, and then finds what the first one has opened.
        with pytest.raises(IndexReset):
            await other.resolve(EVENTS, 4)
        joined = await other.resolve(EVENTS, 5)
        assert {answer.cluster for answer in joined} == opened_again
        assert not any(answer.new for answer in joined)
        assert (one.resets, other.resets) == (1, 1)
        assert len(incarnations(redis_server)) == 1


@in_loop
async def test_an_unnoticed_loss_is_found_at_the_opening(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server) as one:
        await one.resolve(EVENTS, 1)
    lose(redis_server, 1)
    async with spread(redis_server) as one:
        answers = await one.resolve([event(e.fingerprint, n, 7) for n, e in enumerate(EVENTS)], 1)
        assert all(answer.new for answer in answers)


@in_loop
async def test_what_a_dead_caller_has_left_is_swept(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server) as one:
        await one.resolve(EVENTS[:10], 1)
        before = members(redis_server)
        others = [event(e.fingerprint, e.position.offset, 8) for e in EVENTS[:5]]
        dying = [other._replace(group="groß") for other in others] + EVENTS[10:]

        async def die(call: Call, given: Any) -> None:
            if isinstance(call.requests()[0], Open):
                raise asyncio.CancelledError
            await ask(call, given)

        ask = one.clusters._round
        with monkeypatch.context() as patched:
            patched.setattr(one.clusters, "_round", die)
            with pytest.raises(asyncio.CancelledError):
                await one.resolve(dying, 2)
        assert len(members(redis_server)) == len(before) + 5 * len(dying)
        assert await one.clusters.sweep() == 0  # they may still be under way
        assert await one.clusters.sweep(older_than_s=-1) == len(dying)
        assert members(redis_server) == before
        assert await one.clusters.sweep(older_than_s=-1) == 0
        answers = await one.resolve(dying, 3)
        assert all(answer.new for answer in answers)


def members(server: RedisServer) -> set[tuple[bytes, object]]:
    """All entries of all slices."""
    found: set[tuple[bytes, object]] = set()
    for key in keys_of(server, "*}:s:*"):
        stored = server.command("ZRANGE", key, 0, -1)
        assert isinstance(stored, list)
        found |= {(key, str(member)) for member in stored}
    return found


@in_loop
async def test_each_call_is_sent_again_whose_answer_was_lost(
    redis_server: RedisServer, toxiproxy: Toxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = RANDOM.getrandbits(64)
    events = [event(base, 0, 1), event(base ^ 0b101, 1, 1), event(base, 2, 1)]
    redis_server.command("FLUSHALL")
    async with spread(redis_server) as one:
        for each in events:
            await one.resolve([each], 1)
        undisturbed = len(members(redis_server))

    redis_server.command("FLUSHALL")
    with toxiproxy.proxy(redis_server.port) as link:
        client = RedisClient(f"redis://127.0.0.1:{link.port}/0", retry_policy=HASTY)
        index = await SpreadIndex.open(
            client, PLAIN, namespace=NAMESPACE, windows=WINDOWS, shards=SHARDS
        )
        clusters = index.clusters
        ask, rounds = clusters._round, 0

        async def lose_answers(call: Call, given: Any) -> None:
            nonlocal rounds
            rounds += 1
            before, ran = client.counts["retries"], scripts_run(redis_server)
            await asyncio.to_thread(lambda: link.add_toxic("limit_data", "downstream", bytes=0))
            waiting = asyncio.ensure_future(ask(call, given))
            await until(lambda: client.counts["retries"] > before)
            assert scripts_run(redis_server) > ran
            await asyncio.to_thread(link.remove_toxics)
            await waiting

        monkeypatch.setattr(clusters, "_round", lose_answers)
        try:
            answers = [(await clusters.resolve([each], 1))[0] for each in events]
            assert rounds >= 3 + 6 + 1
            assert [is_new for _, is_new, _ in answers] == [True, False, False]
            opener, *others = [found.entry for found, *_ in answers]
            assert others == [opener, opener]
            # Nobody goes on under a ticket whose `Begin` may still be carried out.
            assert opener.ticket.attempt > 1
            await clusters.sweep(older_than_s=-1)
            assert len(members(redis_server)) == undisturbed
        finally:
            await client.aclose()


@in_loop
async def test_many_that_create_a_namespace_at_once_agree(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with AsyncExitStack() as stack:
        contexts = [stack.enter_async_context(spread(redis_server)) for _ in range(10)]
        callers = await asyncio.gather(*contexts)
        assert len(incarnations(redis_server)) == 1
        answers = await asyncio.gather(*(caller.resolve(EVENTS, 1) for caller in callers))
        found = [[(answer.cluster, answer.new) for answer in each] for each in answers]
        assert all(each == found[0] for each in found)
        assert [caller.resets for caller in callers] == [0] * 10


@in_loop
async def test_a_namespace_whose_creator_died_is_completed(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server):
        pass
    redis_server.command("DEL", ShardKeys(NAMESPACE, 0).meta, ShardKeys(NAMESPACE, 2).meta)
    async with spread(redis_server) as one:
        assert len(incarnations(redis_server)) == 1
        assert len(await one.resolve(EVENTS, 1)) == len(EVENTS)


@in_loop
async def test_namespaces_of_the_two_indexes_are_not_mixed_up(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, PLAIN, shards=SHARDS):
        before = incarnations(redis_server)
        with pytest.raises(RecipeMismatch, match="spread"):
            async with spread(redis_server):
                pass
        assert incarnations(redis_server) == before
    redis_server.command("FLUSHALL")
    async with spread(redis_server):
        with pytest.raises(RecipeMismatch, match="spread"):
            async with opened(redis_server.url, PLAIN, shards=SHARDS):
                pass


@pytest.mark.parametrize(
    ("recipe", "remedy"),
    [
        (
            Recipe(match=Match(learn=2)),
            "match.learn: cannot be sharded by fingerprint: it learns words.*use another recipe",
        ),
        (
            Recipe(fingerprint=Fingerprint(kind="bands"), match=Match(k=0, jaccard=0.4)),
            "fingerprint.kind: cannot be sharded.*kind bands.*use another recipe",
        ),
    ],
)
@in_loop
async def test_recipes_that_need_one_node_are_refused(
    redis_server: RedisServer, recipe: Recipe, remedy: str
) -> None:
    with pytest.raises(RecipeError, match=remedy):
        async with spread(redis_server, recipe):
            pass


@in_loop
async def test_the_inspector_knows_such_a_namespace(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with spread(redis_server) as one:
        answers = await one.resolve(EVENTS, 1)
    reader = Reader(redis_server.url)
    try:
        namespace = await Namespace.find(reader, NAMESPACE)
        assert (namespace.spread, namespace.digest) == (True, PLAIN.digest)
        shards = await measure(namespace, 0, lambda _what, _keys: None)
        assert sum(shard.open for shard in shards) == len(EVENTS)
        assert not {"unknown"} & {name for shard in shards for name in shard.measured}
        found = await details(namespace, answers[0].cluster)
        assert found is not None
        assert (found.held.open, found.names) == (True, [])
        with pytest.raises(IndexRefused, match="sharded by fingerprint"):
            await check(namespace, 0, lambda _what, _keys: None)
    finally:
        await reader.aclose()

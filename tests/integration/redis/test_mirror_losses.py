"""What mirrors do not get to hear costs no recall: answers lost, calls late, histories lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis import exceptions

from stream_dedup.errors import IndexRefused
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.redis import resolver, scripts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import PLAIN, START_US, VERIFIED, Text, query
from tests.integration.redis.helpers import (
    LIMITS,
    NAMESPACE,
    STEADY,
    families,
    in_loop,
    keys_of,
    twin,
)
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]
Send = Callable[[bytes, Sequence[Argument]], Awaitable[object]]
Hook = Callable[[Send, bytes, Sequence[Argument]], Awaitable[object]]

TEXTS = families(20, seed=1)


@pytest.fixture(autouse=True)
def read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors that are of no use are read again without a pause, so that they are used."""
    monkeypatch.setattr(resolver, "LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(resolver, "READ_PAUSE_FACTOR", 0)


class HookedServer(RedisClient):
    """A server on the way to which the next calls of `resolve` go through a hook."""

    hook: Hook | None = None

    async def _send(self, key: bytes, command: Sequence[Argument]) -> object:
        if self.hook and command[:2] == ("EVALSHA", scripts.RESOLVE.sha):
            return await self.hook(super()._send, key, command)
        return await super()._send(key, command)


class Process:
    """An index as one process has it, whose mirror has been read."""

    def __init__(self, server: HookedServer, index: RedisIndex, number: int) -> None:
        self.server = server
        self.index = index
        self.number = number
        self.asked = 0

    async def resolve(self, texts: Sequence[Text]) -> list[int]:
        """Their clusters."""
        return [answer.cluster for answer in await self.answers(texts)]

    async def answers(self, texts: Sequence[Text]) -> Sequence[Any]:
        first = self.number * 100_000 + self.asked
        self.asked += len(texts)
        asked = [query(first + n, text) for n, text in enumerate(texts)]
        return await self.index.resolve(asked, START_US)

    async def open(self) -> None:
        """Make a call that opens a cluster."""
        await self.resolve(families(1, seed=1_000 * self.number + self.asked + 7))

    async def hear(self) -> None:
        """Make a call that opens none, and hear of what others have inserted."""
        await self.resolve(families(1, seed=1_000 * self.number + 7))


@asynccontextmanager
async def processes(
    server: RedisServer, count: int, recipe: Recipe = PLAIN
) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            hooked = HookedServer(server.url, retry_policy=STEADY)
            stack.push_async_callback(hooked.aclose)
            index = await RedisIndex.open(hooked, recipe, namespace=NAMESPACE, limits=LIMITS)
            made.append(Process(hooked, index, number + 1))
            await made[-1].open()
        yield made


def twins(texts: Sequence[Text], seed: int = 5) -> list[Text]:
    rng = random.Random(seed)
    return [twin(text, rng) for text in texts]


class Held:
    """A call that is held up, before the server hears it, or after: then its answer is lost."""

    def __init__(self, process: Process, *, heard: bool) -> None:
        self._heard = heard
        self._process = process
        self._waits = asyncio.Event()
        self._go = asyncio.Event()
        process.server.hook = self

    async def __call__(self, send: Send, key: bytes, command: Sequence[Argument]) -> object:
        self._process.server.hook = None
        if self._heard:
            await send(key, command)
        self._waits.set()
        await self._go.wait()
        if not self._heard:
            return await send(key, command)
        raise exceptions.ConnectionError("the answer is lost")

    async def call(self, texts: Sequence[Text]) -> asyncio.Task[list[int]]:
        """Make it; returns once it is on its way."""
        task = asyncio.create_task(self._process.resolve(texts))
        await self._waits.wait()
        return task

    def let_go(self) -> None:
        self._go.set()


@in_loop
async def test_a_call_made_again_beside_another_of_the_process(make_redis: MakeRedis) -> None:
    async with processes(make_redis(), 1) as (one,):
        held = Held(one, heard=True)
        task = await held.call(TEXTS)
        await one.open()  # has seen that call leave, and is answered before it
        held.let_go()
        clusters = await task
        assert await one.resolve(twins(TEXTS)) == clusters


@in_loop
async def test_a_call_that_first_reaches_the_server_after_that_went_back(
    make_redis: MakeRedis,
) -> None:
    server = make_redis()
    async with processes(server, 2) as (one, other):
        await one.open()
        server.command("SAVE")
        held = Held(one, heard=False)
        task = await held.call(families(1, seed=50))
        await one.open()  # goes down with the server, and others take its number
        server.kill()
        server.start()
        clusters = [await other.resolve([text]) for text in TEXTS]
        held.let_go()
        await task
        assert [[cluster] for cluster in await one.resolve(twins(TEXTS))] == clusters


@in_loop
async def test_a_call_that_is_heard_in_two_histories(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with processes(server, 3) as (one, other, third):
        server.command("SAVE")
        held = Held(one, heard=True)
        task = await held.call(families(1, seed=50))
        await third.hear()  # knows of the call that the server is about to forget
        server.kill()
        server.start()
        clusters = await other.resolve(TEXTS)
        held.let_go()
        await task  # under another name
        assert await third.resolve(twins(TEXTS)) == clusters


@in_loop
async def test_a_call_that_comes_late_after_it_was_made_again(make_redis: MakeRedis) -> None:
    rng = random.Random(4)
    (center,) = families(1, seed=77)

    def crowd(count: int) -> list[Text]:
        """Near fingerprints without a word in common: so much work that a call answers in part."""
        return [
            Text(
                rng.getrandbits(64),
                center.fingerprint ^ 1 << rng.randrange(64),
                tuple(rng.getrandbits(63) for _ in range(40)),
            )
            for _ in range(count)
        ]

    late: list[Sequence[Argument]] = []

    async def hook(send: Send, key: bytes, command: Sequence[Argument]) -> object:
        if not late:
            late.append(command)
            raise exceptions.TimeoutError("the server does not answer")
        one.server.hook = None
        answer = await send(key, command)
        await send(key, late[0])
        return answer

    async with processes(make_redis(), 2, VERIFIED) as (one, other):
        await one.resolve(crowd(60))
        await other.hear()
        one.server.hook = hook
        clusters = (await one.resolve([*crowd(4), *TEXTS]))[4:]
        assert late
        assert await one.resolve(twins(TEXTS)) == clusters
        assert await other.resolve(twins(TEXTS, seed=6)) == clusters


@in_loop
async def test_a_script_that_failed_in_its_middle(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with processes(server, 2) as (one, other):
        packer = one.index._packer  # computes the slice of each text
        prefix = ShardKeys(NAMESPACE, 0).prefixes.table
        group = packer.group("").number
        arranged = (packer.entries.arrange(each.fingerprint, group, 1, prefix) for each in TEXTS)
        slices = [keys[0] for keys, _ in arranged]
        # The last text that is the first of its slice.
        fails_at = max(n for n in range(len(slices)) if slices[n] not in slices[:n])
        server.command("SET", slices[fails_at], "of another type")
        with pytest.raises(IndexRefused, match="WRONGTYPE"):
            await one.resolve(TEXTS)
        server.command("DEL", slices[fails_at])
        answers = await other.answers(twins(TEXTS[:fails_at]))
        assert fails_at > 0
        assert not any(answer.new for answer in answers)


@in_loop
async def test_what_a_script_opened_before_it_failed_is_closed_one_day(
    make_redis: MakeRedis,
) -> None:
    server = make_redis()
    async with processes(server, 1) as (one,):
        packer, shard = one.index._packer, ShardKeys(NAMESPACE, 0)
        group = packer.group("").number
        prefix = shard.prefixes.table
        slices = [packer.entries.arrange(t.fingerprint, group, 1, prefix)[0][-1] for t in TEXTS]
        fails_at = next(each for each in reversed(slices) if each not in slices[:2])
        before = len(keys_of(server, "*:c:*"))
        server.command("SET", fails_at, "of another type")
        with pytest.raises(IndexRefused, match="WRONGTYPE"):
            await one.resolve(TEXTS)
        server.command("DEL", fails_at)
        opened = len(keys_of(server, "*:c:*"))
        assert opened > before + 1
        assert server.command("ZCARD", shard.recency) == opened
        assert server.command("PTTL", shard.recency) != -1
        await one.index.finish(START_US)
        assert keys_of(server, "*:c:*") == []


@pytest.mark.parametrize("name", ["expiry", "recency"])
@in_loop
async def test_nothing_is_written_where_clusters_cannot_be_queued(
    name: str, make_redis: MakeRedis
) -> None:
    server = make_redis()
    async with processes(server, 1) as (one,):
        queue = getattr(ShardKeys(NAMESPACE, 0), name)
        server.command("SET", queue, "of another type")
        before = keys_of(server)
        with pytest.raises(IndexRefused, match="WRONGTYPE"):
            await one.resolve(TEXTS)
        assert sorted(before) == sorted(keys_of(server))


@in_loop
async def test_members_that_somebody_else_put_into_a_table_are_left_out(
    make_redis: MakeRedis,
) -> None:
    server = make_redis()
    async with processes(server, 1) as (one,):
        clusters = await one.resolve(TEXTS)
    for number in range(16):
        server.command("ZADD", ShardKeys(NAMESPACE, 0).table(0, number), "0", "of another length")
    async with processes(server, 1) as (one,):
        assert await one.resolve(twins(TEXTS)) == clusters

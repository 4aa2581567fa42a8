"""Workers whose clocks are wrong, over real Redis: its server's clock bounds theirs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from stream_dedup import clock as clocks
from stream_dedup.clock import ServerClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine import Engine
from stream_dedup.errors import IndexUnavailable
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import ClusterDelta, Commit
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Partition
from tests.contract.driver import HOUR, A, B, S, Text, query
from tests.integration.redis.helpers import BRIEF, in_loop, opened
from tests.services.redis import RedisServer

DAY = 24 * 3600 * S
WINDOWS = replace(HOUR, quiet_after_us=S // 2, max_future_us=60 * S)
SUMMARIES = Summaries(every_us=1, lease_us=S // 2)
FIRST, SECOND = Partition("in", 0), Partition("in", 1)

WITHIN_S = 60.0


def clock_us() -> int:
    return time.time_ns() // 1_000


class Clocked:
    """The index as workers with different clocks use it; it counts single events."""

    def __init__(self, index: RedisIndex, namespace: str) -> None:
        self.index = index
        self.meta = ShardKeys(namespace, 0).meta
        self.offset = 0

    async def count(
        self, partition: Partition, text: Text, time_us: int, *, ahead_us: int = 0
    ) -> None:
        now_us = clock_us() + ahead_us
        owned = await self.index.claim_partition(partition, None, now_us)
        asked = query(self.offset, text, partition=partition)
        asked = asked._replace(first_us=time_us, last_us=time_us)
        (found,) = await self.index.resolve([asked], now_us)
        delta = ClusterDelta(found.cluster, 1, time_us, time_us, b"a value")
        at = self.offset
        commit = Commit(partition, owned.fence, at, at, 0, time_us, [delta])
        assert await self.index.record(commit, now_us) == frozenset()
        self.offset += 1

    async def stream_us(self) -> int:
        stream_us = (await self.index.size()).stream_us
        assert stream_us is not None
        return stream_us


@asynccontextmanager
async def clocked(server: RedisServer) -> AsyncIterator[Clocked]:
    name = secrets.token_hex(8)
    async with opened(server.url, namespace=name, windows=WINDOWS, summaries=SUMMARIES) as index:
        yield Clocked(index, name)


@in_loop
async def test_a_worker_a_day_ahead_does_not_hold_stream_time_back(
    redis_server: RedisServer,
) -> None:
    async with clocked(redis_server) as used:
        long_ago_us = clock_us() - 1000 * S
        for partition in (FIRST, SECOND):
            await used.count(partition, A, long_ago_us, ahead_us=DAY)
        end_s = time.monotonic() + WITHIN_S
        while await used.stream_us() <= long_ago_us:  # until the first partition is quiet
            assert time.monotonic() < end_s
            await asyncio.sleep(0.1)
            await used.count(SECOND, B, clock_us())


@in_loop
async def test_events_a_day_ahead_move_stream_time_by_max_future(
    redis_server: RedisServer,
) -> None:
    async with clocked(redis_server) as used:
        await used.count(FIRST, A, clock_us() + DAY, ahead_us=DAY)
        expected_us = clock_us() + WINDOWS.max_future_us
        assert await used.stream_us() == pytest.approx(expected_us, abs=30 * S)


@in_loop
async def test_stream_time_that_was_a_day_ahead_comes_back(redis_server: RedisServer) -> None:
    async with clocked(redis_server) as used:
        await used.count(FIRST, A, clock_us())
        redis_server.command("HSET", used.meta, "stream", b"%d" % (clock_us() + DAY))
        await used.index.expire(clock_us())
        assert await used.stream_us() < clock_us() + WINDOWS.max_future_us + 30 * S


@in_loop
async def test_a_summary_claimed_by_a_clock_ahead_is_soon_claimed_again(
    redis_server: RedisServer,
) -> None:
    async with clocked(redis_server) as used:
        for _ in range(2):
            await used.count(FIRST, A, clock_us() - 1000 * S)
        await used.count(FIRST, B, clock_us() - 900 * S)
        (taken,) = await used.index.claim(10, clock_us() + DAY)
        end_s = time.monotonic() + WITHIN_S
        while not (again := await used.index.claim(10, clock_us())):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.1)
        assert again == [taken]


class Shifted:
    """A machine's clock that is wrong by some time, until it is set right."""

    def __init__(self, ahead_us: int) -> None:
        self.ahead_us = ahead_us

    def now_us(self) -> int:
        return clock_us() + self.ahead_us


@pytest.mark.parametrize("ahead_us", [-DAY, DAY])
@in_loop
async def test_duplicates_are_found_by_a_worker_whose_clock_is_wrong(
    redis_server: RedisServer, ahead_us: int
) -> None:
    recipe, namespace = load_recipe("logs"), secrets.token_hex(8)
    line, times_us = b"disk is full on the third node", [clock_us()]
    async with (
        opened(redis_server.url, recipe, namespace=namespace, windows=WINDOWS) as right,
        opened(
            redis_server.url, recipe, namespace=namespace, windows=WINDOWS, clock=Shifted(ahead_us)
        ) as wrong,
    ):
        engines = [
            Engine(recipe, index, windows=WINDOWS, summaries=Summaries(), clock=index.clock)
            for index in (right, wrong)
        ]
        kinds = []
        await engines[0].process(Batch(SECOND, [0], [b"nothing of the kind"], times_us))
        for offset in range(2):
            (decision,) = await engines[1].process(Batch(FIRST, [offset], [line], times_us))
            kinds.append(decision.kind.value)
            await right.expire(right.clock.now_us())
        assert (kinds, engines[1].counts.clamped) == (["new", "duplicate"], 0)


@asynccontextmanager
async def a_day_behind(server: RedisServer) -> AsyncIterator[tuple[Shifted, RedisIndex]]:
    """An index of a clock a day behind, which is checked with every call."""
    own = Shifted(-DAY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "CHECK_EVERY_S", 0.0)
        async with opened(server.url, namespace=secrets.token_hex(8), clock=own) as index:
            yield own, index


@in_loop
async def test_a_clock_that_is_set_right_is_used_again(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_day_behind(redis_server) as (own, index):
        assert index.clock.now_us() == pytest.approx(clock_us(), abs=60 * S)
        assert "86400 s behind the server's" in caplog.text
        own.ahead_us = 0
        await index.expire(clock_us())
        assert index.clock.now_us() == pytest.approx(clock_us(), abs=S)


@in_loop
async def test_a_difference_around_the_limit_does_not_flap(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_day_behind(redis_server) as (own, index):
        corrected = []
        for ahead_s in (9, 12, 8, 11, 2, 8):
            own.ahead_us = ahead_s * S
            await index.expire(clock_us())
            corrected.append(index.clock.now_us() - own.now_us() < -S)
        assert corrected == [True, True, True, True, False, False]
        assert caplog.text.count("this machine's clock is right again") == 1


@in_loop
async def test_a_clock_that_could_not_be_checked_is_checked_again(
    make_redis: Callable[..., RedisServer],
) -> None:
    redis = make_redis()
    client = RedisClient(redis.url, retry_policy=BRIEF)
    clock = ServerClock(Shifted(-DAY), partial(client.time_us, b"key"), client.address)
    redis.stop()
    with pytest.raises(IndexUnavailable):
        await clock.check()
    redis.restart(keep_data=False)
    await clock.check()
    await client.aclose()
    assert clock.now_us() == pytest.approx(clock_us(), abs=60 * S)


@in_loop
async def test_a_small_difference_of_clocks_is_left_alone(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own = Shifted(-S)
    async with opened(redis_server.url, namespace=secrets.token_hex(8), clock=own) as index:
        before_us = clock_us() - S
        assert before_us <= index.clock.now_us() <= clock_us() - S
        assert "clock" not in caplog.text

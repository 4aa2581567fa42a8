"""A script ran and its answer was lost: the call is made again and changes nothing twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, cast

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import AlreadyRecorded
from stream_dedup.index.base import Index, IndexSize, Ownership, Resolution
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Summary
from tests.contract.driver import PLAIN, VERIFIED, S
from tests.integration.redis.helpers import (
    HASTY,
    LIMITS,
    Event,
    Worker,
    batches,
    counts,
    in_loop,
    opened,
    stream,
    until,
)
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Proxy, Toxic, Toxiproxy

SUMMARIES = Summaries(every_us=60 * S)
EVENTS = stream(200, of=10, every_s=1)
BATCHES = batches(EVENTS, 50)

LOSSES: list[tuple[Toxic, dict[str, int]]] = [
    ("limit_data", {"bytes": 0}),
    ("limit_data", {"bytes": 2}),  # the answer is cut in its middle
    ("reset_peer", {"timeout": 1}),
    ("timeout", {"timeout": 0}),
]

STEPS = ["claim_partition", "resolve", "record", "claim", "confirm", "expire", "finish"]


class Outcome(NamedTuple):
    """All that a run leaves behind."""

    decided: list[tuple[int, int, bool]]
    size: IndexSize
    owned: Ownership
    summaries: dict[int, list[tuple[int, int, int]]]
    end: IndexSize


class Lossy:
    """Makes one call of a kind lose its answer."""

    def __init__(self, index: RedisIndex, link: Proxy, server: RedisServer) -> None:
        self._index = index
        self._link = link
        self._server = server

    async def __call__(self, call: Awaitable[object], toxic: Toxic, **how: int) -> object:
        server = self._index.client
        before, ran = server.counts["retries"], scripts_run(self._server)
        await asyncio.to_thread(lambda: self._link.add_toxic(toxic, "downstream", **how))
        waiting = asyncio.ensure_future(call)
        await until(lambda: server.counts["retries"] > before)
        assert scripts_run(self._server) > ran
        await asyncio.to_thread(self._link.remove_toxics)
        return await waiting


def scripts_run(server: RedisServer) -> int:
    """How many scripts have run to their end."""
    stats = server.info("commandstats").get("cmdstat_evalsha", "calls=0,failed_calls=0")
    pairs = (part.partition("=") for part in stats.split(","))
    counted = {name: float(value) for name, _, value in pairs}
    return round(counted["calls"] - counted["failed_calls"])


Breaks = Callable[[str, Awaitable[object]], Awaitable[object]]
"""Waits for a step's call, and disturbs it perhaps."""


async def whole(step: str, call: Awaitable[object]) -> object:
    del step
    return await call


async def run(index: Index, through: Breaks) -> Outcome:
    """Use every method, the same in every run."""
    worker = Worker(index)
    summaries: list[Summary] = []
    decided: list[tuple[int, int, bool]] = []

    async def take_summaries(times: int = 3) -> None:
        for _ in range(times):  # what was claimed and lost is due again after its lease
            call = index.claim(1000, worker.now_us)
            claimed = cast("list[Summary]", await through("claim", call))
            names = [(s.cluster, s.revision) for s in claimed]
            await through("confirm", index.confirm(names, worker.now_us))
            summaries.extend(claimed)
            worker.now_us += 31 * S

    await worker.own()
    await worker.process(BATCHES[0])
    await through("claim_partition", worker.own())
    for events in BATCHES[1:]:
        answers = cast("list[Resolution]", await through("resolve", worker.resolve(events)))
        decided += [answer[:3] for answer in answers]
        record = worker.record_of(events, answers, committed=events[25].offset)
        worker.now_us += S
        with suppress(AlreadyRecorded):  # by the call whose answer was lost
            await through("record", index.record(record, worker.now_us))
    await take_summaries()
    await through("expire", index.expire(worker.now_us))
    size, owned = await index.size(), await worker.own()
    await through("finish", index.finish(worker.now_us))
    await take_summaries()
    by_cluster: dict[int, list[tuple[int, int, int]]] = {}
    for summary in summaries:
        news = by_cluster.setdefault(summary.cluster, [])
        news.append((summary.revision, summary.count, summary.new_count))
    return Outcome(decided, size, owned._replace(fence=0), by_cluster, await index.size())


@pytest.mark.parametrize(("toxic", "how"), LOSSES, ids=str)
@pytest.mark.parametrize("step", STEPS)
@in_loop
async def test_a_call_whose_answer_was_lost_changes_nothing_twice(
    redis_server: RedisServer, toxiproxy: Toxiproxy, step: str, toxic: Toxic, how: dict[str, int]
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, VERIFIED, summaries=SUMMARIES) as index:
        expected = await run(index, whole)
    assert (
        sum(news for each in expected.summaries.values() for _, _, news in each),
        expected.end.clusters,
        expected.end.waiting,
    ) == (len(EVENTS), 0, 0)

    redis_server.command("FLUSHALL")
    with toxiproxy.proxy(redis_server.port) as link:
        url = f"redis://127.0.0.1:{link.port}/0"
        async with opened(url, VERIFIED, summaries=SUMMARIES, retry_policy=HASTY) as index:
            lose = Lossy(index, link, redis_server)
            lost = 0

            async def through(name: str, call: Awaitable[object]) -> object:
                nonlocal lost
                if name != step or lost:
                    return await call
                lost += 1
                return await lose(call, toxic, **how)

            assert await run(index, through) == expected
            assert lost == 1


class Vandal:
    """Interrupts a link at random moments until `stop` is called."""

    def __init__(self, link: Proxy, index: RedisIndex, seed: int) -> None:
        self._link = link
        self._index = index
        self._rng = random.Random(seed)
        self._stopped = False

    async def rage(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self._rng.uniform(0.002, 0.03))
            if self._rng.random() < 0.5:
                await asyncio.to_thread(self._link.disable)
                await asyncio.to_thread(self._link.enable)
            else:
                bytes_left = self._rng.choice([0, 1, 100, 1000, 3000])
                await asyncio.to_thread(self._link.add_toxic, "limit_data", bytes=bytes_left)
                await asyncio.sleep(0.01)
                await asyncio.to_thread(self._link.remove_toxics)

    def stop(self) -> None:
        self._stopped = True


async def processed(index: Index, events: list[Event]) -> Worker:
    """Process a stream and return the worker, before it has taken any summary."""
    worker = Worker(index)
    await worker.own()
    for events_of_one in batches(events, 10):
        await worker.process(events_of_one)
        worker.now_us += S
    return worker


@pytest.mark.parametrize("seed", [1, 2])
@in_loop
async def test_a_link_cut_at_random_moments_changes_no_count(
    redis_server: RedisServer, toxiproxy: Toxiproxy, seed: int
) -> None:
    windows = Windows(idle_us=60 * S, max_age_us=600 * S)  # clusters close on the way
    events = stream(3000, of=60, seed=seed, every_s=0.5)
    memory = MemoryIndex(PLAIN, windows=windows, limits=LIMITS, summaries=SUMMARIES)
    expected = await processed(memory, events)
    redis_server.command("FLUSHALL")
    with toxiproxy.proxy(redis_server.port) as link:
        url = f"redis://127.0.0.1:{link.port}/0"
        async with opened(
            url,
            namespace=PLAIN.name,
            retry_policy=HASTY,
            windows=windows,
            limits=LIMITS,
            summaries=SUMMARIES,
        ) as index:
            vandal = Vandal(link, index, seed)
            raging = asyncio.create_task(vandal.rage())
            worker = await processed(index, events)
            counted = counts(await worker.end())
            vandal.stop()
            await raging
            assert index.client.counts["retries"] >= 20
    assert len(events) == counted.total()
    assert counts(await expected.end()) == counted

"""A server that stops, hangs, loads or comes back empty: calls wait, and nothing counts twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from stream_dedup.errors import IndexReset, IndexUnavailable
from stream_dedup.index.base import IndexSize, Ownership, Representative
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import HOUR, PLAIN
from tests.integration.redis.helpers import (
    BRIEF,
    HASTY,
    Worker,
    batches,
    counts,
    in_loop,
    opened,
    stream,
    until,
)
from tests.services.redis import RedisReplyError, RedisServer

MakeRedis = Callable[..., RedisServer]

EVENTS = stream(300, of=12)
FIRST, SECOND, THIRD = batches(EVENTS, 100)


async def undisturbed() -> dict[int, int]:
    """What the stream comes to."""
    worker = Worker(MemoryIndex(PLAIN, windows=HOUR))
    await worker.own()
    for batch in (FIRST, SECOND, THIRD):
        await worker.process(batch)
    return counts(await worker.end())


async def disturbed(
    index: RedisIndex, harm: Callable[[], object], repair: Callable[[], object]
) -> dict[int, int]:
    """The counts if the server fails before a batch and is repaired once a call has failed."""
    worker = Worker(index)
    await worker.own()
    await worker.process(FIRST)
    await asyncio.to_thread(harm)
    waiting = asyncio.create_task(worker.process(SECOND))
    await until(lambda: index.client.retrying)
    assert not waiting.done()
    await asyncio.to_thread(repair)
    await waiting
    assert not index.client.retrying
    assert index.client.counts["retries"] > 0
    await worker.process(THIRD)
    return counts(await worker.end())


@in_loop
async def test_calls_wait_for_a_server_that_is_started_again(make_redis: MakeRedis) -> None:
    server = make_redis(appendonly=True)
    async with opened(server.url, namespace=PLAIN.name) as index:
        counted = await disturbed(index, server.stop, server.start)
    assert await undisturbed() == counted


@in_loop
async def test_calls_wait_for_a_server_that_hangs(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url, namespace=PLAIN.name, retry_policy=HASTY) as index:
        counted = await disturbed(index, server.pause, server.resume)
    assert await undisturbed() == counted


@in_loop
async def test_calls_wait_for_a_replica_that_is_made_a_master_again(make_redis: MakeRedis) -> None:
    server = make_redis()

    def demote() -> None:
        server.command("REPLICAOF", "127.0.0.1", 1)  # nobody is there, so it keeps its data

    def promote() -> None:
        server.command("REPLICAOF", "NO", "ONE")

    async with opened(server.url, namespace=PLAIN.name) as index:
        counted = await disturbed(index, demote, promote)
    assert await undisturbed() == counted


@in_loop
async def test_calls_wait_for_a_server_that_loads_its_data(make_redis: MakeRedis) -> None:
    slowly = {"key-load-delay": "2000", "loading-process-events-interval-bytes": "1024"}
    server = make_redis(extra=slowly)
    loading = asyncio.Event()
    loop = asyncio.get_running_loop()

    def crash() -> None:
        server.command("EVAL", "for i = 1, 500 do redis.call('SET', i, i) end", 0)
        server.command("SAVE")
        server.kill()

    async def start() -> None:
        started = asyncio.create_task(asyncio.to_thread(server.start))
        while not started.done():
            try:
                await asyncio.to_thread(server.command, "PING")
            except OSError:
                pass  # not yet listening
            except RedisReplyError as error:
                if str(error).startswith("LOADING"):
                    loading.set()
            await asyncio.sleep(0.01)
        await started

    def repair() -> None:
        asyncio.run_coroutine_threadsafe(start(), loop).result()

    async with opened(server.url, namespace=PLAIN.name) as index:
        counted = await disturbed(index, crash, repair)
    assert loading.is_set()
    assert refused_scripts(server) > 0
    assert await undisturbed() == counted


@in_loop
async def test_calls_wait_while_somebody_elses_script_runs(make_redis: MakeRedis) -> None:
    server = make_redis(extra={"busy-reply-threshold": "20"})
    pool = ThreadPoolExecutor(1)
    endless: list[Future[object]] = []

    def is_busy() -> bool:
        try:
            server.command("PING")
        except RedisReplyError as error:
            return str(error).startswith("BUSY")
        return False

    def occupy() -> None:
        endless.append(pool.submit(server.command, "EVAL", "while true do end", 0))
        while not is_busy():
            pass

    async with opened(server.url, namespace=PLAIN.name) as index:
        counted = await disturbed(index, occupy, lambda: server.command("SCRIPT", "KILL"))
    with pytest.raises(RedisReplyError, match="Script killed"):
        endless[0].result()
    pool.shutdown()
    assert refused_scripts(server) > 0
    assert await undisturbed() == counted


@in_loop
async def test_scripts_that_the_server_forgot_are_loaded_again(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url, namespace=PLAIN.name) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(FIRST)
        loaded = index.client.counts["reloads"]
        server.command("SCRIPT", "FLUSH")
        await worker.process(SECOND)
        await worker.process(THIRD)
        assert index.client.counts["reloads"] == loaded + 2  # resolve and record
        assert index.client.counts["retries"] == 0
        assert await undisturbed() == counts(await worker.end())


@in_loop
async def test_a_server_that_stays_away_is_reported_without_secrets(make_redis: MakeRedis) -> None:
    server = make_redis(extra={"requirepass": "hunter2"})
    url = f"redis://:hunter2@127.0.0.1:{server.port}/0"
    async with opened(url, retry_policy=BRIEF) as index:
        worker = Worker(index)
        await worker.own()
        server.stop()
        with pytest.raises(IndexUnavailable) as caught:
            await worker.process(FIRST)
        assert caught.value.__cause__ is not None
        assert f"redis://127.0.0.1:{server.port}" in str(caught.value)
        for shown in (caught.value, caught.value.__cause__):
            assert "hunter2" not in f"{shown} {shown!r}"
        server.start()
        with pytest.raises(IndexReset):
            await worker.process(FIRST)


@in_loop
async def test_a_server_that_hangs_for_ever_is_given_up(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url, retry_policy=replace(BRIEF, timeout_s=2)) as index:
        server.pause()
        with pytest.raises(IndexUnavailable, match=f"127.0.0.1:{server.port}"):
            await index.size()
        server.resume()
        assert (await index.size()).clusters == 0


@in_loop
async def test_a_server_that_came_back_empty_is_reported_once(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url, namespace=PLAIN.name) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(SECOND)
        server.restart(keep_data=False)
        with pytest.raises(IndexReset, match="has lost its data"):
            await worker.process(FIRST)
        assert (await worker.own()).high_water == -1
        for batch in (FIRST, SECOND, THIRD):
            await worker.process(batch)
        assert (index.resets, index.rollbacks) == (1, 0)
        assert await undisturbed() == counts(await worker.end())


@in_loop
async def test_tasks_that_see_one_loss_at_once_start_over_once(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url) as index:
        workers = [Worker(index), Worker(index)]
        await workers[0].own()
        server.command("FLUSHALL")
        calls = (worker.resolve(FIRST) for worker in workers)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(answer, IndexReset) for answer in answers)
        assert index.resets == 1
        await workers[1].own()
        await workers[1].process(FIRST)
        assert index.resets == 1


@pytest.mark.parametrize("fsync", ["always", "everysec"])
@in_loop
async def test_a_crash_with_an_append_only_file_changes_nothing(
    make_redis: MakeRedis, fsync: str
) -> None:
    server = make_redis(appendonly=True, extra={"appendfsync": fsync})
    async with opened(server.url, namespace=PLAIN.name) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(FIRST)
        await worker.process(SECOND, committed=150)

        async def seen() -> tuple[IndexSize, Ownership, list[Representative | None]]:
            owned = await worker.own()
            clusters = sorted({d.cluster or 0 for d in owned.journal.values()})
            return (
                await index.size(),
                owned._replace(fence=0),
                await index.representatives(clusters),
            )

        before = await seen()
        assert (before[1].high_water, len(before[1].journal)) == (199, 50)
        server.kill()
        server.start()
        assert await seen() == before
        await worker.process(THIRD)
        assert (index.resets, index.rollbacks) == (0, 0)
        assert await undisturbed() == counts(await worker.end())


@in_loop
async def test_a_server_that_lost_its_last_writes_is_noticed(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(FIRST)
        server.command("SAVE")
        await worker.process(SECOND)
        server.kill()
        server.start()
        await worker.process(THIRD)
        assert (index.resets, index.rollbacks) == (0, 1)
        counted = counts(await worker.end())
    assert len(FIRST) + len(THIRD) == counted.total()


def refused_scripts(server: RedisServer) -> int:
    """Calls of scripts that the server refused before they ran."""
    stats = server.info("commandstats")["cmdstat_evalsha"]
    return int(dict(part.split("=") for part in stats.split(","))["rejected_calls"])

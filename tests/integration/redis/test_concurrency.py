"""Many workers at once, in processes of their own: one truth, whoever dies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import ExitStack

import msgspec
import pytest

from stream_dedup.model import Partition
from tests.contract.driver import PLAIN, VERIFIED
from tests.integration.redis.helpers import Worker, batches, counts, in_loop, opened
from tests.integration.redis.processes import begin, line_of, started
from tests.integration.redis.worker import Job, events_of
from tests.services.redis import RedisServer

WORKERS = 8


def last_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.read().splitlines()[-1]


@pytest.mark.parametrize(("verified", "shards"), [(False, 1), (True, 1), (True, 3)])
def test_near_twins_that_many_bring_at_once_come_to_one_cluster(
    redis_server: RedisServer, verified: bool, shards: int
) -> None:
    redis_server.command("FLUSHALL")
    jobs = [
        Job(redis_server.url, number, verified, shards=shards, families=60)
        for number in range(WORKERS)
    ]
    with ExitStack() as stack:
        processes = [stack.enter_context(started("worker", job)) for job in jobs]
        assert [line_of(process) for process in processes] == ["ready"] * WORKERS
        for process in processes:
            begin(process)
        outputs = [last_line(process) for process in processes]
    assert [process.returncode for process in processes] == [0] * WORKERS
    clusters: dict[int, set[int]] = {}
    for job, output in zip(jobs, outputs, strict=True):
        found = dict(msgspec.json.decode(output, type=list[tuple[int, int]]))
        for offset, family in families_of(job).items():
            clusters.setdefault(family, set()).add(found[offset])
    assert [len(found) for found in clusters.values()] == [1] * 60

    async def outcome() -> tuple[int, dict[int, int]]:
        recipe = VERIFIED if verified else PLAIN
        async with opened(redis_server.url, recipe, shards=shards) as index:
            size = await index.size()
            return size.clusters, counts(await Worker(index).end())

    open_ones, counted = asyncio.run(outcome())
    assert open_ones == 60
    each = WORKERS * jobs[0].times
    assert {next(iter(found)): each for found in clusters.values()} == counted


def families_of(job: Job) -> dict[int, int]:
    """The family of each offset."""
    order = [number for number in range(job.families) for _ in range(job.times)]
    return dict(enumerate(order[::2] + order[1::2]))


@in_loop
async def test_the_work_of_a_killed_worker_is_taken_over(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    job = Job(redis_server.url, 0, times=20)
    events = events_of(job)
    with started("worker", job) as process:
        assert line_of(process) == "ready"
        begin(process)
        while int(line_of(process)) < len(events) // 4:
            pass
        process.kill()
        process.wait()
    async with opened(redis_server.url) as index:
        worker = Worker(index, Partition("topic", 0))
        high_water = (await worker.own()).high_water
        assert len(events) // 4 <= high_water < len(events) - 1
        for batch in batches(events[high_water + 1 :], job.batch):
            await worker.process(batch)
        counted = counts(await worker.end())
    assert list(counted.values()) == [job.times] * job.families


@in_loop
async def test_a_worker_that_lost_its_partition_while_asleep_counts_nothing(
    redis_server: RedisServer,
) -> None:
    redis_server.command("FLUSHALL")
    job = Job(redis_server.url, 0, times=20)
    events = events_of(job)
    with started("worker", job) as zombie:
        assert line_of(zombie) == "ready"
        begin(zombie)
        while int(line_of(zombie)) < len(events) // 4:
            pass
        zombie.send_signal(signal.SIGSTOP)
        async with opened(redis_server.url) as index:
            worker = Worker(index, Partition("topic", 0))
            high_water = (await worker.own()).high_water
            rest = batches(events[high_water + 1 :], job.batch)
            await worker.process(rest[0])
            zombie.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(last_line, zombie) == "stale"
            assert rest[0][-1].offset == (await worker.own()).high_water
            for batch in rest[1:]:
                await worker.process(batch)
            counted = counts(await worker.end())
    assert list(counted.values()) == [job.times] * job.families

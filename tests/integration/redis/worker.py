"""A worker in a process of its own: ``python -m tests.integration.redis.worker`` and a `Job`."""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from stream_dedup.errors import StaleFence
from stream_dedup.model import Partition
from tests.contract.driver import PLAIN, VERIFIED
from tests.integration.redis.helpers import Event, Worker, batches, families, opened, twin


class Job(msgspec.Struct):
    """What a worker is to do.

    Attributes:
        url: where the index is.
        partition: the number of its own partition.
        verified: whether near-duplicates are verified.
        families: how many families its stream has, in an order that all workers share.
        times: how many twins of each it brings.
        shards: of the index.
        batch: events a batch.
    """

    url: str
    partition: int
    verified: bool = False
    families: int = 100
    times: int = 6
    shards: int = 1
    batch: int = 20


def events_of(job: Job) -> list[Event]:
    """Twins that no other worker brings, of families that all bring at the same time."""
    rng = random.Random(f"worker {job.partition}")
    made: list[Event] = []
    for number, text in enumerate(families(job.families)):
        group = f"group {number % 10}" if job.shards > 1 else ""
        made += (Event(0, twin(text, rng), 0, group) for _ in range(job.times))
    # The first halves of all families, then the second: some come to clusters that others opened.
    half = made[::2] + made[1::2]
    return [event._replace(offset=offset) for offset, event in enumerate(half)]


async def work(job: Job) -> str:
    recipe = VERIFIED if job.verified else PLAIN
    async with opened(job.url, recipe, shards=job.shards) as index:
        worker = Worker(index, Partition("topic", job.partition))
        await worker.own()
        print("ready", flush=True)  # noqa: T201 -- the parent reads it
        sys.stdin.readline()
        clusters: list[list[int]] = []
        for batch in batches(events_of(job), job.batch):
            try:
                answers = await worker.process(batch)
            except StaleFence:
                return "stale"
            clusters += ([event.offset, a.cluster] for event, a in zip(batch, answers, strict=True))
            print(batch[-1].offset, flush=True)  # noqa: T201 -- as above
        return msgspec.json.encode(clusters).decode()


if __name__ == "__main__":
    print(asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job))), flush=True)  # noqa: T201

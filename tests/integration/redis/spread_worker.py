"""A caller of the spread index: ``python -m tests.integration.redis.spread_worker`` and a `Job`.

It resolves the batches of a stream, and writes the answers of each batch.
"""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from stream_dedup.clock import SystemClock
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import Query
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.model import Position
from tests.contract.driver import START_US
from tests.integration.redis.helpers import HASTY

RECIPE = Recipe(match=Match(k=3))
SHARDS = 6
NAMESPACE = "spread"
WINDOWS = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
WORDS = 0x9E37_79B9_7F4A_7C15

BROKEN = {
    # A search that reads and does not insert first: of two at once neither sees the other.
    "reads first": (
        "  insert(slice, hash, entry, fingerprint)\n  return beside",
        "  return beside",
    ),
    # One that has to yield is passed over, and keeps its ticket.
    "lets both go on": ("      call('DEL', KEYS[at + 1])\n    end\n", "    end\n"),
    # A cluster opens whether or not its attempt has still its ticket.
    "opens without ticket": ("if call('GET', KEYS[at + 1]) ~= ticket then", "if false then"),
}


class Job(msgspec.Struct):
    """What a caller is to do.

    Attributes:
        url: where the index is.
        number: its own; the partition of its events.
        families: how many families its stream has, in an order that all callers share.
        times: events of each family.
        batch: events a call.
        begin: the first batch to resolve.
        broken: of `BROKEN`, what is wrong with the script.
    """

    url: str
    number: int
    families: int = 60
    times: int = 4
    batch: int = 12
    begin: int = 0
    broken: str = ""


class Answered(msgspec.Struct):
    """What a caller writes of a batch.

    Attributes:
        found: for each event its cluster, and whether that was opened for it.
        retries: calls that the caller has sent again, so far.
    """

    found: list[tuple[int, bool]]
    retries: int


def events_of(job: Job) -> list[Query]:
    """Events equal or near to texts that all callers bring at the same time."""
    rng = random.Random(f"caller {job.number}")
    events: list[Query] = []
    for family in range(job.families):
        text = random.Random(f"family {family}").getrandbits(64)
        for _ in range(job.times):
            bits = rng.sample(range(0, 60, 6), rng.choice((0, 1, 1, 2, 3)))
            events.append(event(text ^ sum(1 << bit for bit in bits), len(events), job.number))
    return events


def event(fingerprint: int, offset: int, partition: int, exact: int | None = None) -> Query:
    """An event; equal fingerprints are equal texts unless an exact hash is given."""
    exact = fingerprint * WORDS & (1 << 64) - 1 if exact is None else exact
    position = Position("topic", partition, offset)
    return Query("", exact, fingerprint, b"", True, START_US, START_US, position)


def script_of(job: Job) -> Script:
    if not job.broken:
        return scripts.STEPS
    old, new = BROKEN[job.broken]
    assert old in scripts.STEPS.text
    return Script(job.broken, scripts.STEPS.text.replace(old, new))


async def work(job: Job) -> None:
    client = RedisClient(job.url, retry_policy=HASTY)
    try:

        class OfJob(SpreadIndex):
            script = script_of(job)

        index = await OfJob.open(
            client, RECIPE, namespace=NAMESPACE, windows=WINDOWS, shards=SHARDS
        )
        print("ready", flush=True)  # noqa: T201 -- the parent reads it
        sys.stdin.readline()
        events = events_of(job)
        for at in range(job.begin * job.batch, len(events), job.batch):
            batch = events[at : at + job.batch]
            answers = await index.resolve(batch, SystemClock().now_us())
            found = [(answer.cluster, answer.new) for answer in answers]
            line = msgspec.json.encode(Answered(found, client.counts["retries"]))
            print(line.decode(), flush=True)  # noqa: T201 -- as above
    finally:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job)))

"""Every method of the index, so used that its scripts come to use every command they know."""

from __future__ import annotations

import asyncio
import random
from unittest.mock import AsyncMock

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.index.base import ClusterDelta, Commit, Limits
from stream_dedup.index.redis.maintenance import Maintenance
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Summary
from tests.contract.driver import HERE, S
from tests.integration.redis.helpers import Event, Worker, batches, counts, families, twin

# So that a call evicts, closes a call's share and leaves the rest, and forgets tombstones.
LIMITS = Limits(max_clusters=120, sweep=1)
SUMMARIES = Summaries(every_us=10 * S)
WINDOWS = Windows(idle_us=60 * S, max_age_us=600 * S, quiet_after_us=30 * S)


def events(groups: int) -> list[Event]:
    """Twins of some families and families that come once; at the end many, which expire at once."""
    rng = random.Random(0)
    often, once = families(2, seed=1), families(400, seed=2)
    made = []
    for offset in range(300):
        text = once[offset] if offset % 3 == 0 or offset >= 150 else twin(often[offset % 2], rng)
        group = f"group {offset % groups}" if groups > 1 else ""
        made.append(Event(offset, text, min(offset, 170), group))
    return made


async def use_everything(index: RedisIndex, groups: int = 1) -> None:
    """Use every method, and check that all events were counted."""
    worker = Worker(index)
    assert (await worker.own()).high_water == -1
    made = events(groups)
    summaries: list[Summary] = []
    for batch in batches(made, 30):
        answers = await worker.process(batch, committed=batch[5].offset)
        await index.representatives([answer.cluster for answer in answers])
        claimed = await index.claim(10, worker.now_us)
        await index.confirm([(s.cluster, s.revision) for s in claimed[:7]], worker.now_us)
        summaries += claimed
        worker.now_us += S
    now_us, last, cluster = worker.now_us, made[-1].offset, answers[-1].cluster
    more = [ClusterDelta(cluster, 1, now_us, now_us, sampled=s) for s in ([], [(1, b"chosen")])]
    for offset, delta in enumerate(more, last + 1):
        commit = Commit(HERE, worker.owned.fence, offset, offset, offset, now_us, [delta])
        await index.record(commit, now_us)
    assert last + len(more) == (await worker.own()).high_water
    worker.now_us += 3600 * S
    with pytest.MonkeyPatch.context() as patched:  # a caller dies that was handed all garbage
        patched.setattr(Maintenance, "_purge", AsyncMock())
        await index.expire(worker.now_us)
    unrecorded = [Event(10**6 + n, text, 10_000) for n, text in enumerate(families(2, seed=9))]
    # At once: the one that comes second has not seen what the first has inserted.
    await asyncio.gather(*(worker.resolve([event]) for event in unrecorded))
    await worker.index.release_partition(worker.partition)
    summaries += await worker.end()  # what is purged lies behind that garbage
    assert len(made) + len(more) == counts(summaries).total()
    await index.claim_partition(
        worker.partition, 0, worker.now_us
    )  # the topic was deleted and created again
    assert (await worker.own()).high_water == -1
    late = made[-30:]
    await worker.resolve(late)  # some tombstones are found, and stay: nobody records anything
    assert await worker.end() == []
    await worker.process(late)
    assert len(late) == counts(await worker.end()).total()
    assert (await index.size()).clusters == 0

"""Groups spread over shards: what a crash between two of them leaves behind is made whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from stream_dedup.errors import AlreadyRecorded, IndexReset, StaleFence
from stream_dedup.index.base import Commit
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex, Since
from stream_dedup.model import Decision, Kind
from tests.contract.driver import S
from tests.integration.redis.helpers import (
    NAMESPACE,
    Event,
    Worker,
    batches,
    counts,
    in_loop,
    keys_of,
    opened,
    stream,
)
from tests.services.redis import RedisCluster, RedisServer

EVENTS = [
    event._replace(group=f"group {event.offset % 30}") for event in stream(600, of=5, every_s=0.1)
]
BATCHES = batches(EVENTS, 60)


def service(request: pytest.FixtureRequest, name: str) -> RedisServer | RedisCluster:
    """An empty service."""
    found: RedisServer | RedisCluster = request.getfixturevalue(name)
    for node in found.masters() if isinstance(found, RedisCluster) else [found]:
        node.command("FLUSHALL")
    return found


def expected() -> Counter[tuple[str, int]]:
    """Events by group and family: twins have their family's fingerprint, but for a bit."""
    by_group: Counter[tuple[str, int]] = Counter()
    for event in EVENTS:
        by_group[event.group, family_of(event)] += 1
    return by_group


def family_of(event: Event) -> int:
    """The fingerprint of the first of its family."""
    return next(
        other.text.fingerprint
        for other in EVENTS
        if (other.text.fingerprint ^ event.text.fingerprint).bit_count() <= 3
    )


@pytest.mark.parametrize("name", ["redis_server", "redis_cluster"])
@in_loop
async def test_groups_are_spread_and_everything_adds_up(
    request: pytest.FixtureRequest, name: str
) -> None:
    url = service(request, name).url
    async with opened(url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        of: dict[int, str] = {}
        for batch in BATCHES:
            answers = await worker.process(batch)
            for event, answer in zip(batch, answers, strict=True):
                assert event.group == of.setdefault(answer.cluster, event.group)
        assert {cluster & 0xFF for cluster in of} == {0, 1, 2}
        assert EVENTS[-1].offset == (await worker.own()).high_water
        values = await index.representatives(list(of))
        assert None not in values
        summaries = await worker.end()
        assert {summary.cluster: summary.group for summary in summaries} == of
        assert sorted(expected().values()) == sorted(counts(summaries).values())
        size = await index.size()
        assert (size.clusters, size.fingerprints, size.waiting) == (0, 0, 0)


async def record_on(index: RedisIndex, number: int, record: Commit, now_us: int) -> None:
    """Commit what belongs to one shard, as a worker does that dies before the next."""
    shard = index._shards[number]
    deltas = [delta for delta in record.deltas if delta.cluster & 0xFF == number]
    own = [
        (offset, decision)
        for offset, decision in zip(record.offsets, record.decisions, strict=True)
        if (decision.cluster or 0) & 0xFF == number
    ]
    part = replace(
        record,
        deltas=deltas,
        offsets=[offset for offset, _ in own],
        decisions=[decision for _, decision in own],
    )
    recorded = await index._record(shard, part, Since(now_us), 0.0)
    assert not recorded.closed


@in_loop
async def test_each_shard_gets_its_own_and_the_first_gets_passed_events(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    commits: dict[int, Commit] = {}

    record_on_shard = RedisIndex._record

    async def record_part(shard: ShardKeys, record: Commit, clock: Since, wait_s: float) -> object:
        commits[shard.number] = record
        return await record_on_shard(index, shard, record, clock, wait_s)

    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        whole = worker.record_of(BATCHES[0], await worker.resolve(BATCHES[0]), committed=5)
        passed = Decision(Kind.PASSED, reason="no")
        whole = replace(whole, decisions=[*whole.decisions[:-1], passed])
        monkeypatch.setattr(index, "_record", record_part)
        await index.record(whole, worker.now_us)

    assert sorted(commits) == [0, 1, 2]
    journal: dict[int, Decision] = {}
    for number, part in commits.items():
        assert {(d.cluster or 0) & 0xFF for d in part.decisions} == {number}
        assert {delta.cluster & 0xFF for delta in part.deltas} == {number}
        journal.update(zip(part.offsets, part.decisions, strict=True))
    assert dict(zip(whole.offsets, whole.decisions, strict=True)) == journal
    assert sum(len(part.offsets) for part in commits.values()) == len(journal)


@pytest.mark.parametrize("reached", [[0], [1], [2], [0, 2], [1, 2]])
@in_loop
async def test_a_batch_that_reached_some_shards_is_counted_once(
    redis_server: RedisServer, reached: list[int]
) -> None:
    redis_server.command("FLUSHALL")
    half, torn = BATCHES[0], BATCHES[1]
    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(half)
        answers = await worker.resolve(torn)
        record = worker.record_of(torn, answers, committed=torn[0].offset)
        for number in reached:
            await record_on(index, number, record, worker.now_us)

    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        owned = await worker.own()
        assert (owned.high_water, owned.segment_boundaries) == (half[-1].offset, (torn[-1].offset,))
        # What the reached shards decided may be sent again as it was.
        decided = {
            event.offset: answer.cluster
            for event, answer in zip(torn, answers, strict=True)
            if answer.cluster & 0xFF in reached
        }
        journal = {offset: d.cluster for offset, d in owned.journal.items()}
        assert decided == journal
        # Batches of other sizes, but with an end at the cut.
        rest = [torn[:25], torn[25:], *BATCHES[2:]]
        for batch in rest:
            again = await worker.process(batch)
            for event, answer in zip(batch, again, strict=True):
                assert decided.get(event.offset, answer.cluster) == answer.cluster
        assert (await worker.own()).segment_boundaries == ()
        counted = counts(await worker.end())
    assert len(EVENTS) == counted.total()
    assert sorted(expected().values()) == sorted(counted.values())


@in_loop
async def test_a_batch_that_straddles_a_cut_is_refused(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        answers = await worker.resolve(BATCHES[0])
        await record_on(index, 1, worker.record_of(BATCHES[0], answers), worker.now_us)
        owned = await worker.own()
        assert (owned.high_water, owned.segment_boundaries) == (-1, (BATCHES[0][-1].offset,))
        torn = worker.record_of(EVENTS[:90], await worker.resolve(EVENTS[:90]))
        with pytest.raises(AlreadyRecorded, match="of offsets 0 to 89 some were"):
            await index.record(torn, worker.now_us)


@in_loop
async def test_shards_torn_apart_twice_are_made_whole(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        for number, batch in ((0, BATCHES[0]), (0, BATCHES[1]), (1, BATCHES[0])):
            answers = await worker.resolve(batch)
            await record_on(index, number, worker.record_of(batch, answers), worker.now_us)
        owned = await worker.own()
        assert (owned.high_water, owned.segment_boundaries) == (-1, (59, 119))
        for batch in BATCHES:
            await worker.process(batch)
        counted = counts(await worker.end())
    assert sorted(expected().values()) == sorted(counted.values())


@pytest.mark.parametrize("ahead", [0, 1])
@in_loop
async def test_shards_torn_apart_forget_a_topic_made_again(
    redis_server: RedisServer, ahead: int
) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=2) as index:
        worker = Worker(index)
        await worker.own()
        for number, batch in ((1 - ahead, BATCHES[0]), (ahead, BATCHES[0]), (ahead, BATCHES[1])):
            answers = await worker.resolve(batch)
            await record_on(index, number, worker.record_of(batch, answers), worker.now_us)
        between = BATCHES[0][-1].offset + 10
        owned = await index.claim_partition(worker.partition, between, worker.now_us)
        assert (owned.reset, owned.high_water, owned.segment_boundaries) == (True, -1, ())
        again = await index.claim_partition(worker.partition, between, worker.now_us)
        assert (again.reset, again.high_water) == (False, -1)


@in_loop
async def test_a_fence_that_shards_do_not_agree_on_heals(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        await worker.process(BATCHES[0])
        # Another worker got no further than to one shard.
        key = ShardKeys(NAMESPACE, 2).partition(worker.partition)
        redis_server.command("HSET", key, "fence", 41)
        with pytest.raises(StaleFence):
            await worker.process(BATCHES[1])
        owned = await worker.own()
        assert owned.fence > 41
        fences = [
            redis_server.command(
                "HGET", ShardKeys(NAMESPACE, n).partition(worker.partition), "fence"
            )
            for n in range(3)
        ]
        assert [b"%d" % owned.fence] * 3 == fences
        done = {BATCHES[0][-1].offset, *owned.segment_boundaries}
        assert done <= {BATCHES[0][-1].offset, BATCHES[1][-1].offset}
        for batch in BATCHES[1:]:
            await worker.process(batch)
        counted = counts(await worker.end())
    assert sorted(expected().values()) == sorted(counted.values())


@in_loop
async def test_one_shard_that_lost_its_data_starts_empty(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, shards=3) as index:
        worker = Worker(index)
        await worker.own()
        for batch in BATCHES[:3]:
            await worker.process(batch)
        for key in keys_of(redis_server, f"sd:{{{NAMESPACE}:1}}*"):
            redis_server.command("DEL", key)
        worker.now_us += S
        with pytest.raises(IndexReset, match="has lost its data"):
            await worker.own()
        owned = await worker.own()
        assert (owned.high_water, owned.segment_boundaries) == (-1, (BATCHES[2][-1].offset,))
        for batch in BATCHES:
            await worker.process(batch)
        counted = counts(await worker.end())
        assert index.resets == 1
    assert sorted(expected().values()) == sorted(counted.values())

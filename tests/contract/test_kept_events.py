"""What a rule lets leave is decided alike over every index, and alike when delivered again."""

from __future__ import annotations

import asyncio
import random

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable
from stream_dedup.index.base import Commit, Index
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Decision, Partition
from stream_dedup.rules.keeping import MINUTE_US
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.rules.ruleset import RuleSet
from tests.contract.driver import ADAPTERS, START_US, Setup
from tests.contract.test_engine_over_indexes import SETUP
from tests.services.redis import RedisCluster

HERE, THERE = Partition("input", 0), Partition("input", 1)
KEEP = PatternRule(RuleKind.KEEP, ("job <*> ended in zone <*>",), per_minute=3)
MUTE = PatternRule(RuleKind.MUTE, ("task <number> is over",))
RULES = RuleSet([KEEP, MUTE])
BATCH = 20


def batches(partition: Partition, events: int = 200) -> list[Batch]:
    rng = random.Random(partition.number)
    lines = [b"job %d ended in zone a", b"task %d is over", b"another line %d"]
    values = [rng.choice(lines) % rng.randrange(9) for _ in range(events)]
    times_us = [START_US + number * MINUTE_US // 40 for number in range(events)]
    groups = [rng.choice(["", '{"host":"a"}', '{"host":"b"}']) for _ in range(events)]
    return [
        Batch(partition, range(at, at + BATCH), values[at : at + BATCH], times_us[at : at + BATCH],
              groups[at : at + BATCH])
        for at in range(0, events, BATCH)
    ]  # fmt: skip


def over(index: Index, rules: RuleSet = RULES) -> Engine:
    setup = SETUP
    engine = Engine(
        setup.recipe, index, windows=setup.windows, summaries=setup.summaries,
        clock=ManualClock(START_US),
    )  # fmt: skip
    engine.use_rules(rules)
    return engine


async def through(index: Index, batches: list[Batch], rules: RuleSet = RULES) -> list[Decision]:
    engine = over(index, rules)
    return [decision for batch in batches for decision in await engine.process(batch)]


def in_memory(*partitions: Partition) -> list[str]:
    async def run() -> list[str]:
        async with ADAPTERS["memory"].opens(SETUP) as index:
            of_all = [batch for partition in partitions for batch in batches(partition)]
            return [each.withheld for each in await through(index, of_all)]

    return asyncio.run(run())


@pytest.mark.parametrize("name", ADAPTERS)
def test_engines_withhold_alike_and_go_on_from_a_claim(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def run() -> list[str]:
        async with opens(SETUP) as index:
            found: list[Decision] = []
            for partition in (HERE, THERE):
                for batch in batches(partition):
                    found += await through(index, [batch])  # another owner each time
            return [decision.withheld for decision in found]

    found = asyncio.run(run())

    assert found == in_memory(HERE, THERE)
    assert set(found) == {"", "keep", "mute"}


@pytest.mark.parametrize("name", ADAPTERS)
def test_partitions_are_counted_apart(name: str, request: pytest.FixtureRequest) -> None:
    opens = ADAPTERS[name].bind(request)
    values = [b"job 1 ended in zone a"] * 5

    async def run() -> list[list[str]]:
        async with opens(SETUP) as index:
            engine = over(index)
            return [
                [d.withheld for d in await engine.process(Batch(where, range(5), values, [0] * 5))]
                for where in (HERE, THERE)
            ]

    assert asyncio.run(run()) == [["", "", "", "keep", "keep"]] * 2


@pytest.mark.parametrize("name", ADAPTERS)
def test_redelivered_events_are_withheld_as_before(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    first, second, third, *_ = batches(HERE)

    async def run() -> tuple[list[Decision], list[Decision], list[Decision]]:
        async with opens(SETUP) as index:
            engine = over(index)
            before = [d for batch in (first, second) for d in await engine.process(batch, 0)]
            # Its worker was killed, the group's offset not stored; rules have changed meanwhile.
            engine = over(index, RuleSet([]))
            again = [d for batch in (first, second) for d in await engine.process(batch, 0)]
            return before, again, await engine.process(third, 0)

    before, again, after = asyncio.run(run())

    assert again == before
    assert {decision.withheld for decision in again} == {"", "keep", "mute"}
    assert {decision.withheld for decision in after} == {""}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_lost_answer_counts_nothing_twice(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def run() -> list[str]:
        async with opens(SETUP) as index:
            record, engine, found = index.record, over(index), []
            lost = iter([True, False] * 100)

            async def loses(commit: Commit, now_us: int) -> frozenset[int]:
                closed = await record(commit, now_us)
                if not closed and next(lost):
                    raise IndexUnavailable("the answer is lost")
                return closed

            monkeypatch.setattr(index, "record", loses)
            for batch in batches(HERE):
                while True:
                    try:
                        found += await engine.process(batch)
                        break
                    except IndexUnavailable:
                        pass
            return [decision.withheld for decision in found]

    assert asyncio.run(run()) == in_memory(HERE)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_partition_that_begins_again_is_counted_anew(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def run() -> tuple[object, object]:
        async with opens(SETUP) as index:
            await through(index, batches(HERE))
            known = await index.claim_partition(HERE, 1_000, START_US)
            reset = await index.claim_partition(HERE, 1, START_US)
            return known.kept, (reset.kept, (await index.claim_partition(HERE, 1, START_US)).kept)

    known, forgotten = asyncio.run(run())

    assert forgotten == ({}, {})
    assert isinstance(known, dict)
    assert list(known) == [KEEP.id]


def test_shards_hold_the_same_counts(redis_cluster: RedisCluster) -> None:
    async def run() -> list[str]:
        for node in redis_cluster.masters():
            node.command("FLUSHALL")
        client = RedisClient(redis_cluster.url)
        try:
            setup: Setup = SETUP
            index = await RedisIndex.open(
                client, setup.recipe, windows=setup.windows, summaries=setup.summaries, shards=4
            )
            found: list[Decision] = []
            for batch in batches(HERE):
                found += await through(index, [batch])
            return [each.withheld for each in found]
        finally:
            await client.aclose()

    assert asyncio.run(run()) == in_memory(HERE)

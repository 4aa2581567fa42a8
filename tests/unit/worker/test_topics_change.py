"""A pipeline whose topics change while it runs: more partitions, created again, truncated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_dedup.model import Partition
from stream_dedup.worker import assignment
from stream_dedup.worker.pipeline import Pipeline
from tests.unit.worker.test_pipeline import NOW_MS, Rig

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "REOPEN_S", 0.01)


def following(rig: Rig) -> Pipeline:
    """A pipeline that often asks about its topics."""
    pipeline = rig.pipeline()
    return Pipeline(replace(pipeline.context, metadata_max_age_s=0.02))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 -- what it waits for has no event
            await asyncio.sleep(0.01)


def write(rig: Rig, text: bytes, partitions: int, events: int = 20) -> None:
    for number in range(events):
        rig.broker.write(
            "in", b"%b %d" % (text, number), partition=number % partitions,
            timestamp_ms=NOW_MS, key=b"%d" % number,
        )  # fmt: skip


@pytest.mark.parametrize("transactional", [False, True])
def test_a_topic_created_again_is_read_and_counted_anew(*, transactional: bool) -> None:
    rig = Rig(transactional=transactional, partitions=2)

    async def changed() -> None:
        pipeline = following(rig)
        running = asyncio.create_task(pipeline.run())
        write(rig, b"words of the old topic", 2)
        await until(lambda: len(rig.broker.read("out")) == 20)
        rig.broker.create("in", 2)
        write(rig, b"words of the new topic", 2, 60)
        await until(lambda: rig.metrics.value("topics_reset_total") == 2)
        await until(
            lambda: len({r.value for r in rig.broker.read("out")}) == 80  # some perhaps twice
        )
        pipeline.stop()
        await running

    asyncio.run(changed())
    assert rig.broker.committed("group") == {Partition("in", 0): 30, Partition("in", 1): 30}
    assert rig.metrics.value("replayed_total") == 0


def test_a_shorter_topic_is_read_from_its_start() -> None:
    rig = Rig(partitions=1)

    async def changed() -> None:
        pipeline = rig.pipeline()  # which does not ask: the position is gone
        running = asyncio.create_task(pipeline.run())
        write(rig, b"words of the old topic", 1)
        await until(lambda: len(rig.broker.read("out")) == 20)
        rig.broker.create("in", 1)
        write(rig, b"words of the new topic", 1, 5)
        await until(lambda: len(rig.broker.read("out")) == 25)
        pipeline.stop()
        await running

    asyncio.run(changed())
    assert rig.metrics.value("partition_restarts_total", reason="OffsetGone") == 1
    assert rig.metrics.value("topics_reset_total") == 1


def test_partitions_added_to_the_output_are_used() -> None:
    rig = Rig(partitions=2)

    async def changed() -> None:
        pipeline = following(rig)
        running = asyncio.create_task(pipeline.run())
        write(rig, b"words", 2)
        await until(lambda: len(rig.broker.read("out")) == 20)
        rig.broker.add_partitions("out", 4)
        await until(lambda: pipeline.context.sink.topics["out"].partitions == 4)
        write(rig, b"words", 2, 40)
        await until(lambda: len(rig.broker.read("out")) == 60)
        pipeline.stop()
        await running

    asyncio.run(changed())
    assert all(rig.broker.logs[Partition("out", number)] for number in range(4))


def test_the_first_position_is_committed_before_any_event() -> None:
    rig = Rig(partitions=2)

    async def idle() -> None:
        pipeline = rig.pipeline()
        running = asyncio.create_task(pipeline.run())
        await until(lambda: len(rig.broker.committed("group")) == 2)
        pipeline.stop()
        await running

    asyncio.run(idle())
    assert rig.broker.committed("group") == {Partition("in", 0): 0, Partition("in", 1): 0}

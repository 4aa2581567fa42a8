"""A pipeline over memory is ready while its events move, or none wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from stream_dedup.errors import BrokerUnavailable, IndexFull
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Partition
from stream_dedup.worker import assignment
from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry import reporter, waiting
from stream_dedup.worker.telemetry.health import START
from tests.memory_broker import MemoryConsumer
from tests.unit.worker.test_pipeline import LINES, QUICK, Rig, run, wait_until

STALLED_AFTER_S = 0.5
WATCHED_S = 2.5
"""Longer than what a step may take, and than the pauses between retries."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "ENDS_EVERY_S", 0.05)
    monkeypatch.setattr(reporter, "ENDS_TIMEOUT_S", 0.1)
    monkeypatch.setattr(assignment, "MAX_REOPEN_S", 1.0)


@pytest.fixture(params=[False, True], ids=["at least once", "exactly once"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(transactional=request.param)


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Pipeline]:
    """A pipeline that runs and is ready."""
    pipeline = rig.pipeline()
    worker = QUICK.model_copy(update={"stalled_after_s": STALLED_AFTER_S})
    context = replace(pipeline.context, worker=worker)
    pipeline = Pipeline(context)
    context.health.ready(START)
    source: Any = context.source
    before = rig.metrics.value("rebalances_total")
    task = asyncio.create_task(pipeline.run())
    try:
        await until(lambda: rig.metrics.value("rebalances_total") > before)
        await until(lambda: pipeline.stats().partitions == len(source.assigned))
        await until(lambda: not names(pipeline))
        yield pipeline
    finally:
        pipeline.stop()
        await task


def names(pipeline: Pipeline) -> set[str]:
    """Why it is not ready."""
    return {reason.name for reason in pipeline.context.health.reasons()}


async def until(holds: Callable[[], bool]) -> None:
    async def held() -> bool:
        return holds()

    await wait_until(held)


async def watch(pipeline: Pipeline) -> set[bool]:
    """Whether it was ready, asked again and again."""
    seen = set()
    for _ in range(50):
        seen.add(not names(pipeline))
        await asyncio.sleep(WATCHED_S / 50)
    return seen


def test_a_pipeline_that_has_not_started_is_not_ready(rig: Rig) -> None:
    async def scenario() -> None:
        pipeline = rig.pipeline()
        pipeline.context.health.ready(START)
        assert names(pipeline) == {"main: assignment"}

    run(scenario())


def test_an_idle_pipeline_stays_ready(rig: Rig) -> None:
    async def scenario() -> None:
        async with running(rig) as pipeline:
            rig.write(LINES[:300])
            await until(lambda: pipeline.stats().delivered == 300)
            assert await watch(pipeline) == {True}
            assert rig.metrics.value("stalled_seconds") == 0
            assert rig.metrics.value("lag_events") == 0

    run(scenario())


def test_a_wait_for_the_group_is_logged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "FIRST_S", 0.1)
    caplog.set_level("INFO")
    said = "to assign partitions of in; the group waits for its other members"

    async def scenario() -> None:
        async with running(rig) as pipeline:
            source: Any = pipeline.context.source
            partitions = list(source.assigned)
            assert said not in caplog.text
            await source.revoke()
            await until(lambda: said in caplog.text)
            await source.assign(partitions)
            caplog.clear()
            for _ in range(2):  # reports, the second one as a whole
                rig.metrics.set("assigned_partitions", -1, pipeline="main")
                await until(lambda: rig.metrics.value("assigned_partitions") != -1)
            assert caplog.text == ""
            await source.assign([])
            assert "pipeline main: other members of group" in caplog.text

    run(scenario())


def test_output_that_cannot_be_delivered_makes_it_not_ready(rig: Rig) -> None:
    def refuse(step: str) -> None:
        if step == "send":
            raise BrokerUnavailable("the topic is gone")

    async def scenario() -> None:
        async with running(rig) as pipeline:
            rig.write(LINES[:300])
            await until(lambda: pipeline.stats().delivered == 300)
            rig.broker.faults = refuse
            rig.write(LINES[:300])
            await until(lambda: "main: deliver" in names(pipeline))
            assert await watch(pipeline) == {False}
            assert rig.metrics.value("stalled_seconds", step="deliver") > STALLED_AFTER_S
            assert rig.metrics.value("retries_total", cause="broker") > 0
            rig.broker.faults = lambda _step: None
            # More, at least once, if the first events were not committed before the failure.
            await until(lambda: pipeline.stats().delivered >= 600)
            await until(lambda: not names(pipeline))

    run(scenario())


def test_a_partition_that_fails_again_and_again_is_opened_ever_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(partitions=1)
    monkeypatch.setattr(assignment, "REOPEN_S", 0.1)
    monkeypatch.setattr(assignment, "MAX_REOPEN_S", 60.0)

    def refuse(step: str) -> None:
        if step == "send":
            raise BrokerUnavailable("the topic is gone")

    async def scenario() -> None:
        async with running(rig):
            rig.broker.faults = refuse
            rig.write(LINES[:100])
            await asyncio.sleep(WATCHED_S)
            assert 1 <= rig.metrics.value("partition_restarts_total") <= 6  # not 25

    run(scenario())


def test_a_broker_that_does_not_answer_makes_an_idle_one_not_ready(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: MemoryConsumer, _partitions: Sequence[Partition]) -> dict[Any, int]:
        await asyncio.Event().wait()
        return {}

    async def scenario() -> None:
        async with running(rig) as pipeline:
            answering = MemoryConsumer.ends
            monkeypatch.setattr(MemoryConsumer, "ends", never)
            await until(lambda: names(pipeline) == {"main: poll"})
            assert await watch(pipeline) == {False}
            assert rig.metrics.value("retries_total", cause="broker") > 0
            monkeypatch.setattr(MemoryConsumer, "ends", answering)
            await until(lambda: not names(pipeline))

    run(scenario())


class Full(MemoryIndex):
    """An index that may be full: nothing can be recorded, all else works."""

    full = False

    async def record(self, commit: Any, now_us: int) -> frozenset[int]:
        if self.full:
            raise IndexFull("its memory is full")
        return await super().record(commit, now_us)


def test_a_full_index_makes_it_not_ready_and_the_lag_goes_on(rig: Rig) -> None:
    index = rig.index = Full(rig.recipe, windows=rig.windows, summaries=rig.summaries)

    async def scenario() -> None:
        async with running(rig) as pipeline:
            index.full = True
            rig.write(LINES)
            await until(lambda: {"main: decide", "main: index"} <= names(pipeline))
            assert await watch(pipeline) == {False}
            assert rig.metrics.value("retries_total", cause="index_full") > 0
            for times in (2, 3):  # far more than is read
                rig.write(LINES)
                expected = times * len(LINES)
                await until(lambda: rig.metrics.value("lag_events") == expected)  # noqa: B023 -- at once
            index.full = False
            await until(lambda: rig.metrics.value("lag_events") == 0)
            await until(lambda: not names(pipeline))

    run(scenario())


def test_summaries_that_cannot_leave_make_it_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    async def never(_self: MemoryIndex, _now_us: int) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with running(rig) as pipeline:
            monkeypatch.setattr(MemoryIndex, "expire", never)
            await until(lambda: names(pipeline) == {"main: emit"})
            assert rig.metrics.value("stalled_seconds", step="emit") > 0

    run(scenario())


def test_a_standby_without_partitions_sees_that_the_broker_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(partitions=1)

    async def gone(_self: MemoryConsumer, _partitions: Sequence[Partition]) -> dict[Any, int]:
        raise BrokerUnavailable("no answer")

    async def scenario() -> None:
        async with running(rig), running(rig) as standby:
            assert standby.stats().partitions == 0
            assert await watch(standby) == {True}
            monkeypatch.setattr(MemoryConsumer, "ends", gone)
            await until(lambda: names(standby) == {"main: poll"})

    run(scenario())


def test_a_rebalance_that_does_not_end_makes_it_not_ready() -> None:
    rig = Rig(partitions=1)

    async def scenario() -> None:
        async with running(rig) as pipeline:
            source: Any = pipeline.context.source
            await source.revoke()
            await until(lambda: names(pipeline) == {"main: poll"})
            await source.assign([Partition("in", 0)])
            await until(lambda: not names(pipeline))

    run(scenario())

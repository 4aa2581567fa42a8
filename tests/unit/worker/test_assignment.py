"""Partitions that are assigned, revoked or lost while something else happens to them."""

from __future__ import annotations

import asyncio

import pytest

from stream_dedup.model import Partition
from stream_dedup.worker.assignment import Assignment
from stream_dedup.worker.output import OutputBuilder
from tests.memory_broker import MemoryConsumer, MemoryProducer
from tests.unit.worker.test_pipeline import ANNOTATE, Rig, run

PARTITION = Partition("in", 0)


def test_a_stopping_worker_opens_no_partition() -> None:
    rig = Rig()

    async def assigned_late() -> None:
        context = rig.pipeline().context
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assignment = Assignment(context, OutputBuilder(ANNOTATE, 64, context.sink.topics), failure)
        await assignment.drain()
        await assignment.assigned([PARTITION])
        assert list(assignment) == []

    run(assigned_late())


@pytest.mark.parametrize("again", [False, True])
def test_a_rebalance_while_a_failed_partition_closes_decides(
    monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """Opened all the same, it would fence its new owner for ever, or be open twice."""
    rig = Rig()
    closing, closed = asyncio.Event(), asyncio.Event()

    class SlowToClose:
        async def close(self) -> None:
            closing.set()
            await closed.wait()

    async def slow(_sink: MemoryProducer, _partition: Partition) -> SlowToClose:
        return SlowToClose()

    monkeypatch.setattr(MemoryProducer, "open", slow)

    async def rebalanced() -> None:
        context = rig.pipeline().context
        source = context.source
        assert isinstance(source, MemoryConsumer)
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assignment = Assignment(context, OutputBuilder(ANNOTATE, 64, context.sink.topics), failure)
        await assignment.assigned([PARTITION])  # the source has not got it, so it fails
        await closing.wait()
        failed = asyncio.all_tasks() - {asyncio.current_task()}
        await assignment.revoked([PARTITION])
        if again:
            source.assigned[PARTITION] = 0
            await assignment.assigned([PARTITION])
        before = list(assignment)
        closed.set()
        await asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED)
        assert len(before) == again
        assert list(assignment) == before
        await assignment.close()

    run(rebalanced())

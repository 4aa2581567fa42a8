"""Partitions assigned while the worker stops."""

from __future__ import annotations

import asyncio

from stream_dedup.model import Partition
from stream_dedup.worker.assignment import Assignment
from stream_dedup.worker.output import OutputBuilder
from tests.unit.worker.test_pipeline import ANNOTATE, Rig, run


def test_a_stopping_worker_opens_no_partition() -> None:
    rig = Rig()

    async def assigned_late() -> None:
        context = rig.pipeline().context
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assignment = Assignment(context, OutputBuilder(ANNOTATE, 64), failure)
        await assignment.drain()
        await assignment.assigned([Partition("in", 0)])
        assert list(assignment) == []

    run(assigned_late())

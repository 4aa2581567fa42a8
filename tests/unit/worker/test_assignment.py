"""Assignments that come while a worker stops."""

from __future__ import annotations

from stream_dedup.model import Partition
from tests.unit.worker.test_pipeline import Rig, run


def test_a_worker_that_stops_takes_nothing_from_whoever_comes_after_it() -> None:
    rig = Rig()

    async def assigned_late() -> None:
        lanes = rig.pipeline()._lanes
        await lanes.stop()
        await lanes.assigned([Partition("in", 0)])
        assert list(lanes) == []

    run(assigned_late())

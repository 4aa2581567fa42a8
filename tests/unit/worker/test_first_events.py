"""Of the events of a cluster, the first that is recorded is reported as new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stream_dedup import Limits
from stream_dedup.errors import IndexUnavailable
from stream_dedup.index.base import Commit, Ownership
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.io.base import Records
from stream_dedup.model import Partition
from tests.unit.worker.test_pipeline import ANNOTATE, Rig, decisions, run

FIRST, SECOND = Partition("in", 0), Partition("in", 1)


class ClaimedLate(MemoryIndex):
    """Lets the first partition be claimed only when an event of the second is recorded."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(
            rig.recipe, windows=rig.windows, summaries=rig.summaries, limits=Limits(10_000)
        )
        self.recorded = asyncio.Event()

    async def claim_partition(self, partition: Partition, *more: Any) -> Ownership:
        if partition == FIRST:
            await self.recorded.wait()
        return await super().claim_partition(partition, *more)

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        closed = await super().record(record, now_us)
        if record.partition == SECOND:
            self.recorded.set()
        return closed


class AnswerLost(ClaimedLate):
    """Opens clusters for the first partition, but its first answer gets lost."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.lost = asyncio.Event()

    async def claim_partition(self, partition: Partition, *more: Any) -> Ownership:
        return await MemoryIndex.claim_partition(self, partition, *more)

    async def resolve(self, queries: Any, now_us: int) -> Any:
        if queries[0].position.partition == 1:
            await self.lost.wait()
        answers = await super().resolve(queries, now_us)
        if not self.lost.is_set():
            self.lost.set()
            raise IndexUnavailable("the answer was lost")
        return answers


def new_keys(rig: Rig) -> list[bytes | None]:
    output = rig.broker.read("out")
    assert decisions(output) == {"new": 1, "duplicate": 1}
    return [r.key for r in output if dict(r.headers)["sd-decision"] == b"new"]


@pytest.mark.parametrize("transactional", [False, True])
def test_an_event_resolved_but_not_recorded_joins_one_that_was(
    transactional: bool,
) -> None:
    rig = Rig(transactional=transactional, partitions=2)

    async def scenario() -> None:
        index = ClaimedLate(rig)
        rig.index = index
        rig.write([b"disk 7 of the array is full now"])
        query = await first_query(rig)
        await index.resolve([query], 0)  # by a worker that died then
        rig.write([b"disk 8 of the array is full now"], 1)
        await rig.runs(ANNOTATE)

    run(scenario())
    assert new_keys(rig) == [b"1"]


async def first_query(rig: Rig) -> Any:
    """The query that a worker makes for the first event."""
    asked: list[Any] = []
    other = MemoryIndex(rig.recipe, windows=rig.windows, summaries=rig.summaries)
    resolve = other.resolve

    async def resolved(queries: Any, now_us: int) -> Any:
        asked.extend(queries)
        return await resolve(queries, now_us)

    other.resolve = resolved  # type: ignore[method-assign]
    kept, rig.index = rig.index, other
    pipeline = rig.pipeline()
    rig.index, engine = kept, pipeline.context.engine
    records = [record for record in rig.broker.read("in") if record.key == b"0"]
    batch = pipeline.context.decoder.decode(FIRST, Records.of(records), 0)
    await engine.process(batch)
    return asked[0]


@pytest.mark.parametrize("transactional", [False, True])
def test_one_event_is_new_though_an_answer_was_lost(transactional: bool) -> None:
    rig = Rig(transactional=transactional, partitions=2)

    async def scenario() -> None:
        rig.index = AnswerLost(rig)
        rig.write([b"disk 7 of the array is full now", b"disk 8 of the array is full now"])
        await rig.runs(ANNOTATE)

    run(scenario())
    assert len(new_keys(rig)) == 1

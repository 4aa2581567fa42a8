"""Where a partition is read on when its group has no offset, or one that does not exist."""

from __future__ import annotations

import asyncio

import pytest

from stream_dedup.model import Partition
from tests.memory_broker import MemoryConsumer
from tests.unit.worker.test_pipeline import GROUP, LINES, Rig, decisions, rig, run, wait_until

__all__ = ["rig"]  # a fixture

FIRST = Partition("in", 0)


def keys_of(rig: Rig) -> list[bytes]:
    return sorted(record.key or b"" for record in rig.broker.read("out"))


def test_a_group_that_lost_its_offsets_reads_on_where_it_was(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def forgotten() -> None:
        rig.write(LINES)
        await rig.runs()
        rig.broker.forget_offsets(GROUP)
        rig.write(LINES[:90], len(LINES))
        await rig.runs()

    run(forgotten())
    assert set(keys_of(rig)) == {record.key for record in rig.broker.read("in")}
    assert rig.metrics.value("replayed_total", pipeline="main") == 0
    assert "the group has no offset of in-0, but the index has" in caplog.text


def test_a_group_whose_offset_has_expired_begins_as_configured(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def expired() -> None:
        rig.write(LINES[:90])
        await rig.runs()
        rig.write(LINES[90:180], 90)
        rig.broker.firsts[FIRST] = 40
        await rig.runs()

    run(expired())
    numbers = [*range(90), *(number for number in range(90, 180) if number % 3 or number >= 120)]
    assert keys_of(rig) == sorted(b"%d" % number for number in numbers)
    assert "in-0 has no offset 30, only 40 to 60" in caplog.text


def test_a_partition_whose_next_offset_is_gone_is_opened_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def jumps() -> None:
        rig.write(LINES[:90])
        pipeline = rig.pipeline()
        running = asyncio.create_task(pipeline.run())

        async def all_left() -> bool:
            return len(keys_of(rig)) == len(rig.broker.read("in"))

        async def all_committed() -> bool:  # else what was sent is sent again, at least once
            return sum(rig.broker.committed(GROUP).values()) == len(rig.broker.read("in"))

        await wait_until(all_left)
        await wait_until(all_committed)
        source = pipeline.context.source
        assert isinstance(source, MemoryConsumer)
        source.assigned[FIRST] = 1_000
        rig.write(LINES[90:180], 90)
        await wait_until(all_left)
        pipeline.stop()
        await running

    run(jumps())
    assert keys_of(rig) == sorted(b"%d" % number for number in range(180))
    assert decisions(rig.broker.read("out")).total() == 180
    assert "in-0 has no offset 1000" in caplog.text

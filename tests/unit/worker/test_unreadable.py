"""A batch that cannot be read becomes one dead letter, or pauses its partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from stream_dedup.errors import UnreadableBatch
from stream_dedup.io.base import Records, Unreadable
from stream_dedup.model import Partition
from stream_dedup.worker.pipeline import AT_END_CHECK_S
from tests.memory_broker import MemoryConsumer
from tests.unit.worker.test_pipeline import ANNOTATE, Rig, pipeline_of, wait_until

REASON = "it unpacks to more than 7 bytes"


class DamagedConsumer(MemoryConsumer):
    """Reads values that begin with ``bad`` as the last of three events of an unreadable batch."""

    to_the_end = True

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        found = await super().poll(wanted, limit, wait_s)
        for records in found.values():
            unreadable = {}
            for row, value in enumerate(records.values):
                if value is not None and value.startswith(b"bad"):
                    records.values[row] = records.keys[row] = None
                    records.headers[row] = ()
                    last = records.offsets[row]
                    unreadable[last] = Unreadable(last - 2, REASON, self.to_the_end)
            records.unreadable = unreadable
        return found


def rig_of(monkeypatch: pytest.MonkeyPatch, *, transactional: bool = False) -> Rig:
    """Two partitions; the first one has a bad batch between good events."""
    rig = Rig(transactional=transactional, partitions=2)
    monkeypatch.setattr(
        rig.broker, "source", lambda topics, group: DamagedConsumer(rig.broker, topics, group)
    )
    rig.write([b"good words of event %d" % (number // 2) for number in range(20)])
    rig.broker.write("in", b"bad", partition=0, timestamp_ms=5)
    rig.write([b"more good words of event %d" % (number // 2) for number in range(20)])
    return rig


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("on_poison", ["dead_letter", "pass", "stop"])
def test_one_dead_letter_names_all_offsets(
    monkeypatch: pytest.MonkeyPatch, on_poison: str, *, transactional: bool
) -> None:
    rig = rig_of(monkeypatch, transactional=transactional)
    config = pipeline_of(dead_letter_topic="dead", on_poison=on_poison)
    asyncio.run(rig.runs(config))
    (letter,) = rig.broker.read("dead")
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 5)
    assert dict(letter.headers) == {
        "sd-error": b"unreadable batch",
        "sd-error-message": REASON.encode(),
        "sd-topic": b"in",
        "sd-partition": b"0",
        "sd-offset": b"8",
        "sd-last-offset": b"10",
    }
    assert len(rig.broker.read("out")) == 40
    assert rig.broker.committed("group") == {Partition("in", 0): 21, Partition("in", 1): 20}
    assert rig.metrics.value("dead_letters_total", reason="unreadable batch") == 1
    assert rig.metrics.value("events_total") == 41


@pytest.mark.parametrize("to_the_end", [True, False])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_partition_is_paused_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, *, to_the_end: bool, transactional: bool
) -> None:
    rig = rig_of(monkeypatch, transactional=transactional)
    monkeypatch.setattr(DamagedConsumer, "to_the_end", to_the_end)
    # Where the end of the batch is unknown, it cannot be dead-lettered.
    config = pipeline_of() if to_the_end else ANNOTATE
    with pytest.raises(UnreadableBatch, match=rf"in-0 is paused: offset 8 .*{REASON}"):
        asyncio.run(rig.runs(config))
    assert len(rig.broker.read("out")) == 30
    assert rig.broker.read("dead") == []
    assert rig.broker.committed("group") == {Partition("in", 0): 10, Partition("in", 1): 20}


def test_a_run_to_the_end_waits_for_the_partitions_that_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = rig_of(monkeypatch)
    paused = Partition("in", 0)
    poll = DamagedConsumer.poll

    async def polled(
        consumer: DamagedConsumer, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        if rig.metrics.value("paused_partitions") == 0:
            wanted = [each for each in wanted if each == paused]
        await asyncio.sleep(5 * AT_END_CHECK_S)
        return await poll(consumer, wanted, limit, wait_s)

    monkeypatch.setattr(DamagedConsumer, "poll", polled)
    with pytest.raises(UnreadableBatch, match="in-0 is paused: offset 8"):
        asyncio.run(rig.runs(pipeline_of()))
    assert len(rig.broker.read("out")) == 30


def test_a_paused_partition_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(monkeypatch)

    async def watched() -> dict[str, str]:
        pipeline = rig.pipeline(pipeline_of())
        running = asyncio.create_task(pipeline.run())

        async def is_paused_and_the_other_has_left() -> bool:
            paused = rig.metrics.value("paused_partitions") > 0
            return paused and len(rig.broker.read("out")) == 30

        await wait_until(is_paused_and_the_other_has_left)
        reasons = {each.name: each.reason for each in pipeline.context.health.reasons()}
        pipeline.stop()
        await running
        return reasons

    reasons = asyncio.run(asyncio.wait_for(watched(), 300))
    assert reasons["main: in-0"] == f"paused: offset 8 cannot be read ({REASON})"
    assert len(rig.broker.read("out")) == 30

"""The fast path's self-check: where the driver differs, its public interface is used instead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pkgutil import resolve_name
from types import CodeType
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from stream_dedup.clock import monotonic_s
from stream_dedup.io.base import Outgoing, Record, Records
from stream_dedup.kafka._fastpath import batches, client, fetching, self_check
from stream_dedup.kafka._fastpath.self_check import CHECKS, KNOWN, PRIVATE_NAMES, Part, usable
from stream_dedup.kafka.packing import Delivery, Suspects, TopicLimits
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.native import PURE_PYTHON
from tests.memory_broker import drop_refused

NAMES = [
    (part, owner, name)
    for part, owners in PRIVATE_NAMES.items()
    for owner, names in owners.items()
    for name in names.split()
]
LIMIT = 5_000


@pytest.fixture(autouse=True)
def _check_again() -> Iterator[None]:
    self_check._usable_parts.cache_clear()
    yield
    self_check._usable_parts.cache_clear()


@pytest.fixture(autouse=True)
def _log_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def remove(owner: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove one of the driver's names: from a module, a class, or a class's instances."""
    found: Any = resolve_name(owner)
    if hasattr(found, name):
        for holder in getattr(found, "__mro__", [found]):
            if name in vars(holder):
                monkeypatch.delattr(holder, name)
        return
    code: CodeType = found.__init__.__code__
    assert name in code.co_names
    renamed = tuple("renamed" if each == name else each for each in code.co_names)
    monkeypatch.setattr(found.__init__, "__code__", code.replace(co_names=renamed))


def parts() -> set[Part]:
    return {part for part in CHECKS if usable(part)}


def packed(records: Records) -> tuple[list[Record], set[type]]:
    """What a sink packs for a partition, read back, and the types of its batches."""

    async def pack() -> list[Any]:
        sink = KafkaProducer(options={}, group_id="group")
        sink._packer._limits["topic"] = TopicLimits(LIMIT), monotonic_s()
        producer = AIOKafkaProducer(**sink._options)
        try:
            outgoing = Outgoing("topic", 0, records)
            delivery = Delivery(producer, drop_refused, Suspects())
            return await sink._packer.pack([outgoing], delivery)
        finally:
            await producer.stop()

    rows: list[Record] = []
    found = asyncio.run(pack())
    for _, _, batch, _, _ in found:
        assert batch.size() < LIMIT
        rows += (
            Record(-1, row.timestamp, row.key, row.value, list(row.headers))
            for row in MemoryRecords(bytes(batch._build())).next_batch()
        )
    assert len(found) > 1
    return rows, {type(batch) for _, _, batch, _, _ in found}


def test_every_part_fits_the_installed_driver(caplog: pytest.LogCaptureFixture) -> None:
    assert parts() == {"batches", "fetching", "client"}
    assert caplog.records == []


@pytest.mark.parametrize(("part", "owner", "name"), NAMES)
def test_without_a_private_name_the_public_path_is_used(
    part: Part, owner: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        remove(owner, name, patch)
        assert not usable(part)

    rows, kinds = packed(records := Records.of(list(KNOWN) * 9))
    assert rows == [record._replace(offset=-1) for record in records]
    if part == "batches":
        assert kinds == {BatchBuilder}
    (warning,) = caplog.records
    assert f"does not fit aiokafka {aiokafka.__version__}" in warning.getMessage()
    assert f"{owner}.{name}" in warning.getMessage()


def test_parts_whose_names_exist_are_still_used(monkeypatch: pytest.MonkeyPatch) -> None:
    remove("aiokafka.consumer.fetcher:PartitionRecords", "_consumer_record", monkeypatch)
    assert parts() == {"batches", "client"}


def test_on_the_fast_path_batches_are_native() -> None:
    rows, kinds = packed(records := Records.of(list(KNOWN) * 9))
    assert rows == [record._replace(offset=-1) for record in records]
    assert kinds == {batches.NativeBatch}


WRONG: dict[Part, tuple[object, str, object]] = {
    "batches": (batches._NativeBuilder, "_write_header", lambda *_: None),
    "fetching": (fetching, "PIECE_RECORDS", 1),
    "client": (client.MetadataRequest, "build", lambda _, kind: kind(["other"], True, True, True)),
}


@pytest.mark.parametrize("part", WRONG)
def test_a_part_that_gives_other_results_is_not_used(
    part: Part, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*WRONG[part])
    assert parts() == CHECKS.keys() - {part}
    (warning,) = caplog.records
    assert f"({part}: " in warning.getMessage()


def test_all_problems_are_in_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in WRONG.values():
        monkeypatch.setattr(*wrong)
    assert parts() == set()
    (warning,) = caplog.records
    for part in WRONG:
        assert f"{part}: " in warning.getMessage()


def test_pure_python_uses_no_native_part_and_does_not_warn(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PURE_PYTHON, "1")
    assert parts() == {"client"}
    assert caplog.records == []
    _, kinds = packed(Records.of(list(KNOWN) * 9))
    assert kinds == {BatchBuilder}


def test_without_the_extension_no_native_part_is_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_check, "extension", lambda _name: None)
    assert parts() == {"client"}
    assert caplog.records == []

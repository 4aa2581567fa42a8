"""Whether the fast path fits the installed aiokafka; checked once a process.

The fast path has three parts, one module each, and nothing else in the package uses a private name
of the driver. A part is used if all the names in its table exist and its check succeeds: known
batches of every codec are packed and unpacked by the driver's own means and by ours, and compared.
Otherwise one warning says what is wrong, and the driver's public interface is used in its place.
The whole check takes some milliseconds.

Without the native extension, or with ``STREAM_DEDUP_PURE_PYTHON``, the native parts are not used
either; of that `native` warns.
"""

from __future__ import annotations

import dis
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pkgutil import resolve_name
from types import CodeType
from typing import Any, Literal

import aiokafka
from aiokafka import TopicPartition, codec

from stream_dedup.io.base import Record, Records
from stream_dedup.kafka.codecs import Decompressor
from stream_dedup.native import extension

log = logging.getLogger(__name__)

Part = Literal["batches", "fetching", "client"]

NATIVE_PARTS: tuple[Part, ...] = ("batches", "fetching")

PRIVATE_NAMES: dict[Part, dict[str, str]] = {
    "batches": {
        "aiokafka.codec": "lz4_encode",
        "aiokafka.producer.message_accumulator": "BatchBuilder",
        "aiokafka.producer.message_accumulator:BatchBuilder": (
            "_builder _relative_offset _set_producer_state _build"
        ),
        "aiokafka.record.default_records": "_DefaultRecordBatchBuilderPy",
        "aiokafka.record.default_records:_DefaultRecordBatchBuilderPy": (
            "CODEC_LZ4 HEADER_STRUCT _batch_size _buffer _compression_type _first_timestamp "
            "_last_offset _max_timestamp _maybe_compress _num_records _write_header "
            "set_producer_state"
        ),
    },
    "fetching": {
        "aiokafka.consumer.consumer:AIOKafkaConsumer": "_fetcher",
        "aiokafka.consumer.fetcher:FetchResult": "_partition_records",
        "aiokafka.consumer.fetcher:Fetcher": "_client _records",
        "aiokafka.consumer.fetcher:PartitionRecords": (
            "_consumer_record _records next_fetch_offset"
        ),
        "aiokafka.protocol.fetch": "FetchRequest",
        "aiokafka.record.default_records": "_DefaultRecordBatchPy",
        "aiokafka.record.default_records:_DefaultRecordBatchPy": (
            "ATTRIBUTES_OFFSET HEADER_STRUCT _buffer _decompressed _maybe_uncompress _num_records "
            "_pos base_offset compression_type crc first_timestamp last_offset_delta max_timestamp "
            "next_offset timestamp_type validate_crc"
        ),
        "aiokafka.record.memory_records": "MemoryRecords",
    },
    "client": {
        "aiokafka.admin.client:AIOKafkaAdminClient": "_send_request",
        "aiokafka.conn": "collect_hosts create_conn",
        "aiokafka.producer.message_accumulator:MessageAccumulator": (
            "_batches _exception _pending_batches"
        ),
        "aiokafka.producer.message_accumulator:MessageBatch": "_drain_waiter failure",
        "aiokafka.producer.producer:AIOKafkaProducer": "_message_accumulator _sender _txn_manager",
        "aiokafka.producer.sender:Sender": "sender_task",
        "aiokafka.producer.transaction_manager:TransactionManager": "wait_for_transaction_end",
        "aiokafka.protocol.api": "Request RequestStruct Response",
        "aiokafka.protocol.types": (
            "Array Boolean Bytes CompactArray CompactString Int16 Int32 Schema String TaggedFields"
        ),
    },
}
"""What each part takes from the driver beyond its documented interface: module or class → names."""

_SIZE = 1 << 20
_PRODUCER = (4_000_000_000, 7, 123_456)
_OFFSETS = (100, 200)

KNOWN = Records.of(
    [
        Record(
            offset=number,
            timestamp=1_700_000_000_000 + number * 37 % 50,
            key=b"key %d" % number if number % 3 else None,
            value=b"a value that repeats, " * (number % 4) if number % 5 else None,
            headers=[("name", b"value"), ("empty", None)] if number % 2 else [],
        )
        for number in range(30)
    ]
)
"""What is packed and unpacked to compare."""


def usable(part: Part) -> bool:
    """Return whether a part of the fast path may be used; the first call checks all of them."""
    return part in _usable_parts()


@cache
def _usable_parts() -> frozenset[Part]:
    good: set[Part] = set()
    problems = []
    for part, check in CHECKS.items():
        if part in NATIVE_PARTS and extension("kafka._fastpath._batches") is None:
            continue
        problem = _problem(part, check)
        if problem:
            problems.append(f"{part}: {problem}")
        else:
            good.add(part)
    if problems:
        log.warning(
            "the fast path does not fit aiokafka %s, whose public interface is used instead, "
            "which is slower (%s)",
            aiokafka.__version__,
            "; ".join(problems),
        )
    return frozenset(good)


def _problem(part: Part, check: Callable[[], None]) -> str | None:
    missing = [
        f"{owner}.{name}"
        for owner, names in PRIVATE_NAMES[part].items()
        for name in names.split()
        if not _exists(owner, name)
    ]
    if missing:
        return f"it has no {', '.join(missing)}"
    try:
        check()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the public interface serves
        return f"{type(error).__name__}: {error}"
    return None


def _exists(owner: str, name: str) -> bool:
    """Return whether a module or class of the driver, or the class's instances, have a name.

    Attributes of instances are assigned in the code of their class's constructor.
    """
    try:
        found = resolve_name(owner)
    except (ImportError, AttributeError):
        return False
    code = getattr(getattr(found, "__init__", None), "__code__", None)
    return hasattr(found, name) or (code is not None and name in _assigned(code))


@cache
def _assigned(code: CodeType) -> frozenset[str]:
    """Return the attributes that a function assigns."""
    steps = dis.get_instructions(code)
    return frozenset(step.argval for step in steps if step.opname == "STORE_ATTR")


def _codecs() -> Iterator[int]:
    """Yield the numbers of no compression and of the codecs that are installed."""
    yield 0
    for number, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
        if getattr(codec, f"has_{name}")():
            yield number


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _check_batches() -> None:
    """Pack known records by both builders, and read both batches by the driver's reader."""
    from aiokafka.producer.message_accumulator import BatchBuilder  # noqa: PLC0415 -- after the check of names

    from stream_dedup.kafka._fastpath.batches import NativeBatch  # noqa: PLC0415 -- as above

    for number in _codecs():
        for transactional in (False, True):
            native = NativeBatch(_SIZE, number, transactional)
            _require(native.fill(KNOWN) == len(KNOWN), "the native batch takes too few records")
            driver = BatchBuilder(_SIZE, number, is_transactional=transactional)
            for record in KNOWN:
                driver.append(
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
            _require(native.record_count() == driver.record_count(), "counts differ")
            _require(native.size() == driver.size(), "sizes differ")
            packed = []
            for batch in (native, driver):
                batch._set_producer_state(*_PRODUCER)
                packed.append(bytes(batch._build()))
            _require(number != 0 or packed[0] == packed[1], "packed bytes differ")
            _require(_read(packed[0]) == _read(packed[1]), f"batches of codec {number} differ")


def _read(packed: bytes) -> list[Any]:
    """Return what the driver's reader finds in a batch: its head, and its records."""
    from aiokafka.record import MemoryRecords  # noqa: PLC0415 -- after the check of names

    batch = MemoryRecords(packed).next_batch()
    _require(batch.validate_crc(), "a checksum is wrong")
    head = (
        *(batch.compression_type, batch.is_transactional, batch.is_control_batch),
        *(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        *(batch.first_timestamp, batch.max_timestamp, batch.next_offset),
    )
    return [head, *((r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch)]


def _check_fetching() -> None:
    """Unpack known batches record by record and in pieces."""
    from aiokafka.consumer.fetcher import FetchResult, PartitionRecords  # noqa: PLC0415 -- after the check of names
    from aiokafka.protocol.fetch import FetchRequest  # noqa: PLC0415 -- as above
    from aiokafka.record import MemoryRecords  # noqa: PLC0415 -- as above
    from aiokafka.record.default_records import DefaultRecordBatchBuilder  # noqa: PLC0415 -- as above

    from stream_dedup.kafka._fastpath import fetching  # noqa: PLC0415 -- as above

    newest = FetchRequest(0, 0, 0, 0, []).prepare({FetchRequest.API_KEY: (0, 1 << 15)})
    answer = newest.RESPONSE_TYPE.SCHEMA
    partition = answer.fields[answer.names.index("topics")].array_of.fields[1].array_of
    _require(partition.names[0] == "partition", "a fetched partition begins otherwise")
    _require(partition.names[-1] == "message_set", "a fetched partition ends otherwise")

    place = TopicPartition("topic", 0)
    wanted = 3
    for number in _codecs():
        raw = b""
        for first in _OFFSETS:
            builder = DefaultRecordBatchBuilder(2, number, False, -1, -1, 0, _SIZE)
            for row, record in enumerate(KNOWN):
                builder.append(row, record.timestamp, record.key, record.value, record.headers)
            batch = builder.build()
            batch[:8] = first.to_bytes(8, "big")  # the checksum does not cover it
            raw += bytes(batch)
        seen = []
        for in_pieces in (False, True):
            records = PartitionRecords(
                place, MemoryRecords(raw), [], _OFFSETS[0] + wanted, None, None, True, 1
            )
            result = FetchResult(place, assignment=None, partition_records=records, backoff=0)
            store = fetching._Fetched(Decompressor(_SIZE))
            store.answered = {place: raw} if in_pieces else {}
            store[place] = result
            fetched = list(result._partition_records)
            _require((len(fetched) == len(_OFFSETS)) == in_pieces, "records come in other pieces")
            rows = [(*row[:4], list(row.headers)) for row in fetching.columns(fetched)]
            seen.append((rows, records.next_fetch_offset))
        _require(len(seen[0][0]) == len(_OFFSETS) * len(KNOWN) - wanted, "records are missing")
        _require(seen[0] == seen[1], f"records of codec {number} differ")


def _check_client() -> None:
    """Encode known requests and decode known answers."""
    from stream_dedup.kafka._fastpath import client  # noqa: PLC0415 -- after the check of names

    newest = 1 << 15
    topics = client.MetadataRequest(["t"]).prepare({3: (0, 9)})
    _require(topics.encode() == b"\0\0\0\1\0\1t\0\0\1", "a request for topics differs")
    answer = (
        bytes(9) + b"\1c" + bytes(7) + b"\1" + bytes(3) + b"\1t" + bytes(8) + b"\x08" + bytes(4)
    )
    (topic,) = topics.RESPONSE_TYPE.decode(answer).to_object()["topics"]
    _require((topic["topic"], topic["allowed"]) == ("t", 8), "topics are read differently")

    topics = client.MetadataRequest(["t"]).prepare({3: (0, newest)})
    encoded = b"\2" + bytes(16) + b"\2t\0\0\0\1\0"
    _require(topics.encode() == encoded, "a request for topics' identities differs")
    identity = bytes(range(16))
    answer = (
        bytes(4)
        + b"\1\2c"
        + bytes(4)
        + b"\2"
        + bytes(2)
        + b"\2t"
        + identity
        + b"\0\1"
        + bytes(3)
        + b"\x08"
        + bytes(6)
    )
    (topic,) = topics.RESPONSE_TYPE.decode(answer).to_object()["topics"]
    _require((topic["topic"], topic["identity"]) == ("t", identity), "identities are lost")
    _require(topic["allowed"] == 8, "topics with identities are read differently")

    groups = client.GroupsRequest("g").prepare({15: (0, newest)})
    _require(groups.encode() == b"\0\0\0\1\0\1g\1", "a request for a group differs")
    answer = bytes(7) + b"\1" + bytes(3) + b"\1g" + b"\0\1s" * 3 + bytes(7) + b"\x08"
    (group,) = groups.RESPONSE_TYPE.decode(answer).to_object()["groups"]
    _require((group["state"], group["allowed"]) == ("s", 8), "groups are read differently")


CHECKS: dict[Part, Callable[[], None]] = {
    "batches": _check_batches,
    "fetching": _check_fetching,
    "client": _check_client,
}

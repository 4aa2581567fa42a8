"""Fetched records, handed out by aiokafka in pieces, as columns.

aiokafka hands its records out one by one, through an object, a generator and a copy each, which
costs five times what it takes to make columns of the bytes that the broker sent. There is no public
way to those. So the consumer's store of what was fetched is replaced by one that hears them from
the driver's client, and puts batches in the place of the driver's that give their records in
pieces, taken apart natively. Checksums, compression, transactions, positions and the reaction to a
rebalance stay the driver's. Where the native extensions were not built, for batches of Kafka's old
formats, and should the driver come to name its parts otherwise, it hands out single records as
before; `columns` takes both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

from stream_dedup.io.base import Records

try:
    from aiokafka.protocol.fetch import FetchRequest
    from aiokafka.record.default_records import _DefaultRecordBatchPy as _DriversBatch
    from aiokafka.record.memory_records import MemoryRecords

    from stream_dedup.kafka._fastpath import _batches
except ImportError:
    _NATIVE, _DriversBatch = False, object  # `fingerprint.kernel` warns where nothing was built
else:
    _NATIVE = not os.environ.get("STREAM_DEDUP_PURE_PYTHON")

PIECE_RECORDS = 500
"""Records of a piece, at most: a poll is bounded by pieces."""

LENGTH = Struct(">8xi")
"""How many bytes follow, behind a batch's first offset."""

FORMAT_AT = 16
"""Where a batch says of which format it is."""


def fetch_in_pieces(consumer: AIOKafkaConsumer) -> None:
    """Have a consumer hand out pieces of batches; before anything is fetched."""
    with contextlib.suppress(AttributeError):
        fetcher = consumer._fetcher
        if _NATIVE and not fetcher._records:
            fetched = _Fetched()
            fetcher._client = _Client(fetcher._client, fetched)
            fetcher._records = fetched


def columns(handed_out: Sequence[Any]) -> Records:
    """What a poll gave of a partition: pieces, and single records."""
    records = Records.of([])
    for kind, some in groupby(handed_out, type):
        if kind is _Piece:
            for piece in some:
                records.extend(piece.records)
        else:
            records.extend(Records.of(list(some)))
    return records


class _Client:
    """The driver's client; what brokers answer to fetches is heard on the way."""

    def __init__(self, client: Any, fetched: _Fetched) -> None:
        self._client = client
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any) -> Any:
        answer = await self._client.send(node, request)
        if isinstance(request, FetchRequest):
            # The driver stores at once what it wants of it; the rest is not to be kept.
            self._fetched.answered = answered = {
                TopicPartition(topic, number): records
                for topic, partitions in answer.topics
                for number, *_, records in partitions
            }
            asyncio.get_running_loop().call_soon(answered.clear)
        return answer


class _Fetched(OrderedDict[TopicPartition, Any]):
    """What was fetched, by partition.

    Attributes:
        answered: the bytes of the answer that is being stored, by partition.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[TopicPartition, bytes | None] = {}

    def __setitem__(self, place: TopicPartition, result: Any) -> None:
        fetched: Any = getattr(result, "_partition_records", None)  # an error has none
        batches = getattr(fetched, "_records", None)
        handed_out = getattr(type(fetched), "_consumer_record", None)
        raw = self.answered.pop(place, None)
        if raw is not None and batches is not None and handed_out is not None:
            itself = weakref.proxy(fetched)  # else it would hold itself, and all those bytes
            fetched._records = _Batches(raw, itself)
            fetched._consumer_record = _HandedOut(partial(handed_out, itself))
        super().__setitem__(place, result)


class _HandedOut:
    """Makes what is handed out of what a batch gives: the driver's way, but pieces as they are."""

    def __init__(self, made_of: Callable[[TopicPartition, Any], Any]) -> None:
        self._made_of = made_of

    def __call__(self, place: TopicPartition, given: Any) -> Any:
        return given if type(given) is _Piece else self._made_of(place, given)


class _Piece:
    """Records of a batch that follow each other.

    Attributes:
        offset: the last one's: the driver reads on after it.
        records: the records.
    """

    __slots__ = ("offset", "records")

    def __init__(self, records: Records) -> None:
        self.offset = records.offsets[-1]
        self.records = records


class _Batches:
    """A partition's batches, in place of the driver's `MemoryRecords`.

    Args:
        raw: as the broker sent them; it may have cut the last one short.
        fetched: knows from which offset on records are wanted.
    """

    def __init__(self, raw: bytes, fetched: Any) -> None:
        self._raw = memoryview(raw)
        self._at = self._end = 0
        self._fetched = fetched
        self._look()

    def _look(self) -> None:
        """Find where the next batch ends."""
        if self._at + LENGTH.size > len(self._raw):
            self._end = len(self._raw) + 1
        else:
            (length,) = LENGTH.unpack_from(self._raw, self._at)
            self._end = self._at + LENGTH.size + length

    def has_next(self) -> bool:
        return self._end <= len(self._raw)

    def next_batch(self) -> Any:
        raw = self._raw[self._at : max(self._at, self._end)]
        latest = len(raw) > FORMAT_AT and raw[FORMAT_AT] >= _batches.FORMAT
        if len(raw) < (_Batch.HEADER_STRUCT.size if latest else FORMAT_AT + 1):
            raise CorruptRecordException(f"a batch of {len(raw)} bytes")
        self._at = self._end
        self._look()
        if latest:
            return _Batch(raw, self._fetched)
        return MemoryRecords(bytes(raw)).next_batch()


class _Batch(_DriversBatch):  # type: ignore[misc]  # it is not meant to have subclasses
    """A batch that gives its records in pieces; all else is the driver's."""

    def __init__(self, raw: memoryview, fetched: Any) -> None:
        super().__init__(raw)
        self._fetched = fetched

    def __iter__(self) -> Iterator[_Piece]:
        self._maybe_uncompress()
        unpacker = _batches.Unpacker(
            memoryview(self._buffer)[self._pos :],
            self._num_records,
            self.base_offset,
            self.first_timestamp,
            self.max_timestamp if self.timestamp_type else None,
        )
        try:
            # It may begin before what is wanted; the driver goes on behind each piece.
            while taken := unpacker.take(PIECE_RECORDS, self._fetched.next_fetch_offset):
                yield _Piece(Records(*taken))
        except ValueError as error:
            raise CorruptRecordException(f"a batch at {self.base_offset}: {error}") from error

"""Fetched records as columns, a piece of a batch at a time.

aiokafka returns records one by one, each through an object, a generator and a copy; that takes five
times as long as unpacking the broker's bytes into columns natively. There is no public way to those
bytes. So `fetch_in_pieces` puts two objects into a consumer's fetcher:

- `_Client` in place of its client: it notes the bytes of each answer to a fetch;
- `_Fetched` in place of its store of fetched partitions: it replaces the driver's iterator over
  batches by `_Batches`, whose batches yield pieces: up to `PIECE_RECORDS` records as columns.

Checksums, decompression, aborted transactions, positions and the reaction to a rebalance remain the
driver's. Batches of Kafka's old formats are returned record by record; `columns` accepts both.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

from stream_dedup.io.base import Records
from stream_dedup.kafka._fastpath import _batches

PIECE_RECORDS = 500
"""Largest number of records in a piece. The driver limits a poll in pieces, so a poll may exceed
its limit of events by almost one piece for each partition."""

LENGTH = Struct(">8xi")
"""Number of bytes that follow, after a batch's first offset."""

FORMAT_AT = 16
"""Offset of a batch's format number in its bytes."""


def fetch_in_pieces(consumer: AIOKafkaConsumer) -> None:
    """Make a started consumer return pieces; call it before anything is fetched."""
    fetcher = consumer._fetcher
    if not fetcher._records:
        fetched = _Fetched()
        fetcher._client = _Client(fetcher._client, fetched)
        fetcher._records = fetched


def columns(fetched: Sequence[Any]) -> Records:
    """Concatenate what a poll returned for a partition: pieces and single records."""
    records = Records.of([])
    for kind, some in groupby(fetched, type):
        if kind is _Piece:
            for piece in some:
                records.extend(piece.records)
        else:
            records.extend(Records.of(list(some)))
    return records


class _Client:
    """The driver's client; it notes the bytes in the answers to fetches."""

    def __init__(self, client: Any, fetched: _Fetched) -> None:
        self._client = client
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any) -> Any:
        answer = await self._client.send(node, request)
        if isinstance(request, FetchRequest):
            # The driver stores the partitions that it wants at once; forget the others after that.
            self._fetched.answered = answered = {
                TopicPartition(topic, number): records
                for topic, partitions in answer.topics
                for number, *_, records in partitions
            }
            asyncio.get_running_loop().call_soon(answered.clear)
        return answer


class _Fetched(OrderedDict[TopicPartition, Any]):
    """The driver's store of fetched partitions: partition → `FetchResult`, or an error.

    Attributes:
        answered: partition → the bytes in the answer that is being stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[TopicPartition, bytes | None] = {}

    def __setitem__(self, place: TopicPartition, result: Any) -> None:
        records: Any = getattr(result, "_partition_records", None)  # an error has none
        raw = self.answered.pop(place, None)
        if raw is not None and records is not None:
            itself = weakref.proxy(records)  # a cycle would keep all those bytes in memory
            made_of = type(records)._consumer_record
            records._records = _Batches(raw, itself)
            records._consumer_record = _PieceOrRecord(partial(made_of, itself))
        super().__setitem__(place, result)


class _PieceOrRecord:
    """In place of the driver's method that makes a consumer's record: it returns pieces as is."""

    def __init__(self, made_of: Callable[[TopicPartition, Any], Any]) -> None:
        self._made_of = made_of

    def __call__(self, place: TopicPartition, given: Any) -> Any:
        return given if type(given) is _Piece else self._made_of(place, given)


class _Piece:
    """Consecutive records of a batch.

    Attributes:
        offset: that of the last one: the driver reads on after it.
        records: the records.
    """

    __slots__ = ("offset", "records")

    def __init__(self, records: Records) -> None:
        self.offset = records.offsets[-1]
        self.records = records


class _Batches:
    """The batches of a fetched partition, in place of the driver's `MemoryRecords`.

    Args:
        raw: the bytes that the broker sent; the last batch may be cut short.
        fetched: the driver's `PartitionRecords`, which know the next wanted offset.
    """

    def __init__(self, raw: bytes, fetched: Any) -> None:
        self._raw = memoryview(raw)
        self._at = self._end = 0
        self._fetched = fetched
        self._find_end()

    def _find_end(self) -> None:
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
        self._find_end()
        if latest:
            return _Batch(raw, self._fetched)
        return MemoryRecords(bytes(raw)).next_batch()


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]  # it is not meant to have subclasses
    """The driver's batch, which yields pieces instead of records."""

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
            # A batch may begin before the wanted offset, which the driver raises after each piece.
            while taken := unpacker.take(PIECE_RECORDS, self._fetched.next_fetch_offset):
                yield _Piece(Records(*taken))
        except ValueError as error:
            raise CorruptRecordException(f"a batch at {self.base_offset}: {error}") from error

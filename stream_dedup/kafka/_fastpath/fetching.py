"""Fetched records as columns, a piece of a batch at a time.

aiokafka returns records one by one, each through an object, a generator and a copy; that takes five
times as long as unpacking the broker's bytes into columns natively. There is no public way to those
bytes. So `fetch_in_pieces` puts two objects into a consumer's fetcher:

- `_Client` in place of its client: it notes the bytes of each answer to a fetch;
- `_Fetched` in place of its store of fetched partitions: it replaces the driver's iterator over
  batches by `_Batches`, whose batches yield pieces: up to `PIECE_RECORDS` records as columns.

Checksums, aborted transactions, positions and the reaction to a rebalance remain the driver's.
Batches of Kafka's old formats are returned record by record; `columns` accepts both.

Decompression is bounded (`Decompressor`). From the first record of a batch that cannot be read, the
rest of the batch becomes one piece, an `Unreadable`, and the driver reads on after it. A wrong
checksum is another matter: those are not the bytes that the broker stored; they are fetched again.
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

from stream_dedup.errors import UnreadableBatch
from stream_dedup.io.base import Records, Unreadable
from stream_dedup.kafka._fastpath import _batches
from stream_dedup.kafka.codecs import Decompressor

PIECE_RECORDS = 500
"""Largest number of records in a piece. The driver limits a poll in pieces, so a poll may exceed
its limit of events by almost one piece for each partition."""

PIECE_BYTES = 1 << 20
"""A piece ends with the record that reaches this size: a poll of few pieces stays small, however
large their records are."""

LENGTH = Struct(">8xi")
"""Number of bytes that follow, after a batch's first offset."""

FORMAT_AT = 16
"""Offset of a batch's format number in its bytes."""


OLD_CODEC_AT, OLD_LENGTH = FORMAT_AT + 1, Struct(">i")
"""In batches of the old formats: offset of the codec, and the format of a field's length."""


def fetch_in_pieces(consumer: AIOKafkaConsumer, decompressor: Decompressor) -> None:
    """Make a started consumer return pieces; call it before anything is fetched.

    Args:
        consumer: the consumer.
        decompressor: unpacks batches.
    """
    fetcher = consumer._fetcher
    if not fetcher._records:
        fetched = _Fetched(decompressor)
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

    Args:
        decompressor: unpacks their batches.

    Attributes:
        answered: partition → the bytes in the answer that is being stored.
    """

    def __init__(self, decompressor: Decompressor) -> None:
        super().__init__()
        self._decompressor = decompressor
        self.answered: dict[TopicPartition, bytes | None] = {}

    def __setitem__(self, place: TopicPartition, result: Any) -> None:
        records: Any = getattr(result, "_partition_records", None)  # an error has none
        raw = self.answered.pop(place, None)
        if raw is not None and records is not None:
            itself = weakref.proxy(records)  # a cycle would keep all those bytes in memory
            made_of = type(records)._consumer_record
            records._records = _Batches(raw, itself, self._decompressor)
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
        decompressor: unpacks the batches.
    """

    def __init__(self, raw: bytes, fetched: Any, decompressor: Decompressor) -> None:
        self._raw = memoryview(raw)
        self._at = self._end = 0
        self._fetched = fetched
        self._decompressor = decompressor
        self._find_end()

    def _find_end(self) -> None:
        """Find where the next batch ends."""
        if self._at + LENGTH.size > len(self._raw):
            self._end = len(self._raw) + 1
        else:
            (length,) = LENGTH.unpack_from(self._raw, self._at)
            self._end = self._at + LENGTH.size + length

    def has_next(self) -> bool:
        # Without room the driver returns what it has, and fetches the rest again.
        return self._end <= len(self._raw) and self._decompressor.room > 0

    def next_batch(self) -> Any:
        raw = self._raw[self._at : max(self._at, self._end)]
        latest = len(raw) > FORMAT_AT and raw[FORMAT_AT] >= _batches.FORMAT
        if len(raw) < (_Batch.HEADER_STRUCT.size if latest else FORMAT_AT + 1):
            raise CorruptRecordException(f"a batch of {len(raw)} bytes")
        self._at = self._end
        self._find_end()
        made_of = _Batch if latest else _OldBatch
        return made_of(raw, self._fetched, self._decompressor)


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]  # it is not meant to have subclasses
    """The driver's batch, which yields pieces instead of records."""

    def __init__(self, raw: memoryview, fetched: Any, decompressor: Decompressor) -> None:
        super().__init__(raw)
        self._fetched = fetched
        self._decompressor = decompressor

    @property
    def next_offset(self) -> int:
        # The driver reads on there: never at records that were returned already.
        offset: int = self.base_offset + self.last_offset_delta + 1
        return max(offset, int(self._fetched.next_fetch_offset))

    def validate_crc(self) -> bool:
        if not _batches.HAS_CRC32C:
            valid: bool = super().validate_crc()
            return valid
        crc: int = self.crc
        return crc == _batches.crc32c(memoryview(self._buffer)[self.ATTRIBUTES_OFFSET :])

    def __iter__(self) -> Iterator[_Piece]:
        last = self.base_offset + self.last_offset_delta
        try:
            yield from self._pieces(last)
        except (UnreadableBatch, ValueError) as error:
            first = max(self.base_offset, self._fetched.next_fetch_offset)
            if first <= last:
                why = Unreadable(first, f"batch {self.base_offset} to {last}: {error}")
                yield _Piece(Records.of_unreadable(last, self.max_timestamp, why))

    def _pieces(self, last: int) -> Iterator[_Piece]:
        unpacker = _batches.Unpacker(
            self._unpacked(),
            self._num_records,
            self.base_offset,
            self.first_timestamp,
            self.max_timestamp if self.timestamp_type else None,
        )
        # A batch may begin before the wanted offset, which the driver raises after each piece.
        while taken := unpacker.take(PIECE_RECORDS, self._fetched.next_fetch_offset, PIECE_BYTES):
            records = Records(*taken)
            if records.offsets[-1] > last:
                raise UnreadableBatch(f"a record at {records.offsets[-1]}, after its end")
            yield _Piece(records)

    def __next__(self) -> Any:
        # Called for markers of transactions, which brokers write: this one did not mean to.
        try:
            return super().__next__()
        except (UnreadableBatch, ValueError, IndexError) as error:
            raise CorruptRecordException(f"marker at {self.base_offset}: {error}") from error

    def _maybe_uncompress(self) -> None:
        if not self._decompressed:
            self._buffer, self._pos = bytearray(self._unpacked()), 0
        self._decompressed: bool = True

    def _unpacked(self) -> bytes | memoryview:
        packed = memoryview(self._buffer)[self._pos :]
        codec = self.compression_type
        return self._decompressor.unpack(codec, packed) if codec else packed


class _OldBatch:
    """A batch in a format before Kafka 0.11, whose records the driver unpacks.

    The driver does not bound what such a batch unpacks to. So it is unpacked once before.
    """

    is_control_batch = is_transactional = False
    producer_id = None

    def __init__(self, raw: memoryview, fetched: Any, decompressor: Decompressor) -> None:
        self._raw = bytes(raw)
        self._fetched = fetched
        self._decompressor = decompressor
        self._batch: Any = MemoryRecords(self._raw).next_batch()
        self._last: int = self._batch.next_offset - 1

    @property
    def next_offset(self) -> int:
        wanted: int = self._fetched.next_fetch_offset
        return max(self._last + 1, wanted)

    def validate_crc(self) -> bool:
        valid: bool = self._batch.validate_crc()
        return valid

    def __iter__(self) -> Iterator[Any]:
        try:
            self._check_size()
            yield from self._batch
        except Exception as error:  # noqa: BLE001 -- the driver's parser has no errors of its own
            first = self._fetched.next_fetch_offset
            if first <= self._last:
                why = Unreadable(first, f"batch to {self._last}: {error}")
                yield _Piece(Records.of_unreadable(self._last, -1, why))

    def _check_size(self) -> None:
        """Unpack a compressed batch, bounded, and drop the result."""
        codec = self._raw[OLD_CODEC_AT] & 7
        if codec:
            at = OLD_CODEC_AT + (9 if self._raw[FORMAT_AT] else 1)  # format 1 has a timestamp
            for _ in ("key", "value"):
                (size,) = OLD_LENGTH.unpack_from(self._raw, at)
                start = at + OLD_LENGTH.size
                at = start + max(0, size)
            self._decompressor.unpack(codec, memoryview(self._raw)[start:at])

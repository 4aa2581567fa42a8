"""Packing records into batches for the driver, as large as their topics take.

Records that their topic does not take are replaced before they are sent, as far as is known by
then. A broker refuses a batch as a whole, and this driver does not learn which of its records was
the cause. Records that break a setting of their topic are found before they are sent
(`TopicLimits`). Where settings may not be seen, or a clock differs, the broker refuses a batch all
the same; then the records of the refused batch are sent in batches of a sixty-fourth, and so on,
until those that are refused alone are known (`Suspects`).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer, codec, errors

from stream_dedup.clock import US_PER_MS, SystemClock, monotonic_s
from stream_dedup.errors import BrokerRefused, BrokerUnavailable
from stream_dedup.io.base import Outgoing, Record, Records, Refusal, Refused, Substitute
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.codecs import CODECS
from stream_dedup.kafka.errors import InvalidRecordError

if TYPE_CHECKING:
    from stream_dedup.kafka._fastpath.batches import NativeBatch

log = logging.getLogger(__name__)

MAX_BATCH_BYTES = (1 << 20) - 4096
"""Largest batch, where the topic takes as much. One batch is one request, which brokers accept up
to 1 MiB by default; the rest is for the request's head, and for data that grows a little when it is
compressed."""

ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: codec.gzip_encode,
    2: codec.snappy_encode,
    3: partial(codec.lz4_encode, level=1),
    4: codec.zstd_encode,
}
"""The codecs by their numbers in Kafka's format."""

MIN_BATCH_BYTES = 1024
"""Batches are not made smaller than this, however often a topic refuses them as too large."""

LIMITS_TTL_S = 60.0
"""How long the limits of a topic are cached: one request a minute costs nothing."""

RECORD_OVERHEAD_BYTES = 36
"""A record takes at most this many bytes besides its fields: 1 of attributes, 10 of its timestamp,
and 5 each of its length, position, number of headers, length of key and length of value."""

HEADER_OVERHEAD_BYTES = 10
"""The same of a header: the lengths of its name and value."""


DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's default for a topic's ``max.message.bytes``."""

NO_LIMIT_MS = (1 << 63) - 1
"""The settings of time limits that do not limit."""

NO_TIMESTAMP = -1
"""The timestamp of a record without one, which every topic takes."""

SPLIT = 64
"""A refused batch is sent again in so many parts: a single record of 4,000 is found after two
further deliveries."""

REFUSALS = {
    errors.MessageSizeTooLargeError: Refusal.TOO_LARGE,
    errors.RecordListTooLargeError: Refusal.TOO_LARGE,
    errors.InvalidTimestampError: Refusal.TIMESTAMP,
    InvalidRecordError: Refusal.OTHER,
}
"""Errors of a batch that a record in it causes, so that a retry cannot help."""


class RecordBatch(Protocol):
    """A filled batch, as the driver's `send_batch` takes it."""

    def append(
        self, *, timestamp: int, key: bytes | None, value: bytes | None, headers: object
    ) -> object:
        """Add a record; return None if it does not fit."""

    def close(self) -> None:
        """Take no more records."""

    def record_count(self) -> int:
        """Return how many records it has."""

    def size(self) -> int:
        """Return its size in bytes, before compression."""


def fill(batch: RecordBatch, records: Records, size: int) -> int:
    """Fill a batch of the driver through its public interface, record by record, and close it.

    Args:
        batch: an empty batch.
        records: the records; at least the first one is taken.
        size: bytes that the batch stays below before compression, unless it has only one record.

    Returns:
        How many records it took, from the first on.
    """
    taken = 0
    for _, timestamp, key, value, headers in records:
        most = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:  # a character takes four bytes at most
            most += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
        if taken and batch.size() + most >= size:
            break
        added = batch.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
        if added is None:
            break
        taken += 1
    batch.close()
    return taken


class TopicLimits(NamedTuple):
    """Which records a topic takes.

    Attributes:
        max_bytes: how large a batch may be, as the broker sees it.
        needs_key: whether every record needs a key, as in a compacted topic.
        before_ms: how far before the broker's clock a timestamp may be.
        after_ms: how far after it.
    """

    max_bytes: int = DEFAULT_MAX_BYTES
    needs_key: bool = False
    before_ms: int = NO_LIMIT_MS
    after_ms: int = NO_LIMIT_MS

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicLimits:
        """Read the settings of a topic; what is missing does not limit."""
        widest = _milliseconds(settings, "message.timestamp.difference.max.ms")  # before Kafka 4
        before_ms = min(widest, _milliseconds(settings, "message.timestamp.before.max.ms"))
        after_ms = min(widest, _milliseconds(settings, "message.timestamp.after.max.ms"))
        if settings.get("message.timestamp.type") == "LogAppendTime":
            before_ms = after_ms = NO_LIMIT_MS
        return cls(
            int(settings.get("max.message.bytes") or DEFAULT_MAX_BYTES),
            "compact" in (settings.get("cleanup.policy") or ""),
            before_ms,
            after_ms,
        )

    def refused(self, records: Records, now_ms: int) -> dict[int, Refusal]:
        """Find the records that break another limit than that of size: row → why."""
        found: dict[int, Refusal] = {}
        if not records:
            return found
        times = records.timestamps
        first_ms, last_ms = now_ms - self.before_ms, now_ms + self.after_ms
        if (self.after_ms < NO_LIMIT_MS and max(times) > last_ms) or (
            self.before_ms < NO_LIMIT_MS and min(times) < first_ms
        ):
            found = {
                row: Refusal.TIMESTAMP
                for row, time_ms in enumerate(times)
                if time_ms != NO_TIMESTAMP and not first_ms <= time_ms <= last_ms
            }
        if self.needs_key and None in records.keys:
            found |= {row: Refusal.NO_KEY for row, key in enumerate(records.keys) if key is None}
        return found

    def learn(self, record: Record, why: Refusal, now_ms: int) -> TopicLimits:
        """Return limits under which a record that was refused alone is found before it is sent."""
        if why is Refusal.TIMESTAMP:
            ahead_ms = record.timestamp - now_ms
            if ahead_ms > 0:
                return self._replace(after_ms=min(self.after_ms, ahead_ms - 1))
            return self._replace(before_ms=min(self.before_ms, -ahead_ms - 1))
        if why is Refusal.OTHER and record.key is None:
            return self._replace(needs_key=True)
        return self


def _milliseconds(settings: Mapping[str, str], name: str) -> int:
    return int(settings.get(name) or NO_LIMIT_MS)


class _Range(NamedTuple):
    """Offsets, both included, of events whose records share batches of at most `most` records."""

    first: int
    last: int
    most: int


class Suspects:
    """What the refused batches of one delivery have shown about its records."""

    def __init__(self) -> None:
        self._ranges: dict[str, _Range] = {}
        self._known: dict[tuple[str, int, bytes | None], list[Refusal]] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self._ranges)

    def learn(self, refused: Sequence[tuple[str, Records, Refusal]]) -> None:
        """Learn from the batches (topic, records, why) that were refused when all were sent."""
        self._ranges = {}
        for topic, batch, why in refused:
            first, last = batch.offsets[0], batch.offsets[-1]
            if len(batch) == 1:
                self._known.setdefault(_place(topic, batch[0]), []).append(why)
                continue
            most = -(-len(batch) // SPLIT)
            if topic in self._ranges:
                known = self._ranges[topic]
                first, last = min(first, known.first), max(last, known.last)
                most = min(most, known.most)
            self._ranges[topic] = _Range(first, last, most)

    def of(self, topic: str, record: Record) -> Sequence[Refusal]:
        """Why a record was refused, and then what was written in its place, and so on."""
        return self._known.get(_place(topic, record), ())

    def together(self, topic: str, left: Records) -> Records:
        """The first of these records that may share a batch."""
        if topic not in self._ranges:
            return left
        first, last, most = self._ranges[topic]
        if first <= left.offsets[0] <= last:
            return left.part(0, most)
        return left.part(0, bisect_left(left.offsets, first)) if left.offsets[0] < first else left


def _place(topic: str, record: Record) -> tuple[str, int, bytes | None]:
    """What identifies a record within a delivery: a summary has no offset, but a key."""
    return topic, record.offset, None if record.offset >= 0 else record.key


class Packed(NamedTuple):
    """A batch to send: it holds the first `taken` of these records."""

    topic: str
    partition: int
    batch: RecordBatch
    records: Records
    taken: int


class Delivery(NamedTuple):
    """How records are written that are delivered together.

    Attributes:
        producer: the driver's producer.
        substitute: called with each record that its topic refuses.
        suspects: what earlier tries of the same delivery have shown.
        transactional: whether they are written in a transaction.
    """

    producer: AIOKafkaProducer
    substitute: Substitute
    suspects: Suspects
    transactional: bool = False


class _Task(NamedTuple):
    """Records of one topic that are packed.

    Attributes:
        topic: the topic.
        limits: which records it takes.
        delivery: how they are written.
        moved: (topic, partition) → what is written to other topics in their place.
    """

    topic: str
    limits: TopicLimits
    delivery: Delivery
    moved: dict[tuple[str, int | None], Records]

    def instead(self, partition: int, record: Record, why: Refusal, attempt: int) -> Record | None:
        """The record to write to the same topic in place of one; None if there is none."""
        instead = self.delivery.substitute(
            Refused(self.topic, partition, record, why, self.limits.max_bytes, attempt)
        )
        if instead is None:
            return None
        if instead.topic == self.topic:
            return instead.records[0]
        place = instead.topic, instead.partition
        if place in self.moved:
            self.moved[place].extend(instead.records)
        else:
            self.moved[place] = instead.records
        return None


Partitioned = Callable[[Outgoing], Awaitable[Sequence[tuple[int, Records]]]]
"""Divides records among the partitions of their topic."""


class Packer:
    """Packs records into batches, and knows which records their topics take.

    Args:
        compression: the name of the codec.
        partitioned: divides records among partitions.
        settings: asks for the settings of a topic.
    """

    def __init__(
        self,
        compression: str | None,
        partitioned: Partitioned,
        settings: Callable[[str], Awaitable[Mapping[str, str]]],
    ) -> None:
        self._codec = CODECS[compression]
        self._partitioned = partitioned
        self._settings = settings
        self._asking = asyncio.Lock()
        self._limits: dict[str, tuple[TopicLimits, float]] = {}  # topic → limits, and as of when
        self._sizes: dict[str, int] = {}  # topic → bytes of a batch, where it refused larger ones
        self._clock = SystemClock()
        self._native_batch: type[NativeBatch] | None = None
        if self_check.usable("batches"):
            from stream_dedup.kafka._fastpath.batches import NativeBatch  # noqa: PLC0415 -- after the check

            self._native_batch = NativeBatch

    async def pack(self, outgoing: Sequence[Outgoing], delivery: Delivery) -> list[Packed]:
        """Pack records into batches; those that their topic refuses are replaced."""
        packed: list[Packed] = []
        waiting = deque(outgoing)
        while waiting:
            part = waiting.popleft()
            limits = await self._limits_of(part.topic)
            task = _Task(part.topic, limits, delivery, {})
            for partition, records in await self._partitioned(part):
                packed += self._pack(task, partition, self._replaced(task, partition, records))
            waiting.extend(
                Outgoing(topic, partition, records)
                for (topic, partition), records in task.moved.items()
            )
        return packed

    def _replaced(self, task: _Task, partition: int, records: Records) -> Records:
        """Replace the records that are refused for another reason than their size."""
        refused = self._refused(task, records)
        if not refused:
            return records
        rows: list[Record] = []
        for row, record in enumerate(records):
            left: Record | None = record
            attempt, why = 1, refused.get(row)
            while left is not None and why is not None:
                left = task.instead(partition, left, why, attempt)
                attempt += 1
                if left is not None:
                    why = self._refused(task, Records.of([left]), attempt).get(0)
            if left is not None:
                rows.append(left)
        return Records.of(rows)

    def _refused(self, task: _Task, records: Records, attempt: int = 1) -> dict[int, Refusal]:
        """Find the records that are refused, apart from those that are too large: row → why."""
        refused = task.limits.refused(records, self._clock.now_us() // US_PER_MS)
        suspects = task.delivery.suspects
        if suspects:
            for row, record in enumerate(records):
                if len(whys := suspects.of(task.topic, record)) >= attempt:
                    refused[row] = whys[attempt - 1]
        return refused

    def _pack(
        self, task: _Task, partition: int, left: Records, attempt: int = 1
    ) -> Iterator[Packed]:
        topic, limits, delivery, _ = task
        size = self._size(topic, limits)
        while left:
            some = delivery.suspects.together(topic, left)
            batch: RecordBatch
            if self._native_batch is not None:
                batch = native = self._native_batch(size, self._codec, delivery.transactional)
                taken = native.fill(some)
            else:
                batch = delivery.producer.create_batch()
                taken = fill(batch, some, size)
            # The first record is always taken.
            if taken > 1 or self._fits(batch.size(), left.values[0], limits.max_bytes):
                yield Packed(topic, partition, batch, left, taken)
            else:
                instead = task.instead(partition, left[0], Refusal.TOO_LARGE, attempt)
                if instead is not None:
                    yield from self._pack(task, partition, Records.of([instead]), attempt + 1)
            left = left.part(taken, len(left))

    def _fits(self, size: int, value: bytes | None, limit_bytes: int) -> bool:
        """Whether a batch with one record is small enough, compressed if need be."""
        if size <= limit_bytes:
            return True
        encode = ENCODERS.get(self._codec)
        if encode is None or not value or size - len(value) > limit_bytes:
            return False
        return size - len(value) + len(encode(value)) <= limit_bytes

    # ------------------------------------------------------------ limits of topics

    async def learn(self, refused: Sequence[tuple[Packed, Refusal]], delivery: Delivery) -> None:
        """Learn from batches that their topics refused for good."""
        for topic in {each.topic for each, _ in refused}:
            limits = await self._ask_limits(topic)  # they may have changed
            for each, why in refused:
                if each.topic == topic and each.taken == 1:
                    now_ms = self._clock.now_us() // US_PER_MS
                    limits = limits.learn(each.records[0], why, now_ms)
                elif each.topic == topic and why is Refusal.TOO_LARGE:
                    self._sizes[topic] = max(MIN_BATCH_BYTES, self._size(topic, limits) // 2)
            self._limits[topic] = limits, monotonic_s()
        delivery.suspects.learn(
            [(each.topic, each.records.part(0, each.taken), why) for each, why in refused]
        )

    def _size(self, topic: str, limits: TopicLimits) -> int:
        return min(limits.max_bytes, self._sizes.get(topic, MAX_BATCH_BYTES))

    async def _limits_of(self, topic: str) -> TopicLimits:
        """Return which records a topic takes; Kafka's defaults if we may not know."""
        limits, known_s = self._limits.get(topic, (None, 0.0))
        if limits is not None and monotonic_s() - known_s < LIMITS_TTL_S:
            return limits
        async with self._asking:  # concurrent callers wait for one answer
            limits, known_s = self._limits.get(topic, (None, 0.0))
            if limits is None or monotonic_s() - known_s >= LIMITS_TTL_S:
                try:
                    limits = await self._ask_limits(topic)
                except BrokerUnavailable:
                    if limits is None:
                        raise
                self._limits[topic] = limits, monotonic_s()
            return limits

    async def _ask_limits(self, topic: str) -> TopicLimits:
        try:
            return TopicLimits.of(await self._settings(topic))
        except (BrokerRefused, ValueError) as error:
            log.debug("settings of topic %s are unknown: %s", topic, error)
            return TopicLimits()

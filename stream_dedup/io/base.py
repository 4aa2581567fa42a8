"""The ports to a message broker: where events come from and where output goes.

Words of this page
------------------
offset          an event's position in its partition.
next offset     the offset after the last processed event: where to read on.
committed       the next offset that the group has stored: where it reads on after a crash.
end offset      the offset that the next event written to the partition will get.

The group assigns partitions to a worker. For each partition the worker opens a `PartitionProducer`
and only then reads the committed offset: opening fences the previous owner, so nobody else can
commit after that read. Then, batch by batch, `PartitionProducer.deliver` sends the output and
stores the next offset: both in one transaction (exactly once), or the offset afterwards, by
`EventSource.commit` (at least once).

Methods that talk to a broker raise `BrokerUnavailable` (retry later; what was sent may have been
stored) or `BrokerRefused` (a retry does not help).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from stream_dedup.model import Partition

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record as read from a topic, or to be written to one.

    Attributes:
        offset: its offset. Of a record to be written: the offset of the event it was made from,
            or -1 if it was made from none.
        timestamp: milliseconds since 1970-01-01 UTC; -1 if it has none.
        key: its key.
        value: its value; None for a tombstone.
        headers: its headers.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


_COLUMNS = tuple(map(attrgetter, Record._fields))


class Unreadable(NamedTuple):
    """Consecutive events that a broker sent and nobody can read, for example a damaged batch.

    In `Records` one record without key and value takes their place, at the offset of the last.

    Attributes:
        first: the offset of the first.
        reason: why.
        to_the_end: whether the last is known. If not, the record is at the offset of the first, and
            where the next event begins is unknown.
    """

    first: int
    reason: str
    to_the_end: bool = True


_ALL_READABLE: Mapping[int, Unreadable] = {}


class Records:
    """Records of one partition, or to be written, in order and column by column.

    Attributes:
        offsets, timestamps, keys, values, headers: the columns, of equal length; see `Record`.
        unreadable: the offsets of records that take the place of unreadable events, and perhaps of
            some that are not among these records.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamps", "unreadable", "values")

    def __init__(
        self,
        offsets: list[int],
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Headers],
        *,
        unreadable: Mapping[int, Unreadable] = _ALL_READABLE,
    ) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers = headers
        self.unreadable = unreadable

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Records:
        """Make columns of rows: of `Record`, or of any class with the same attributes."""
        return cls(*(list(map(column, rows)) for column in _COLUMNS))

    @classmethod
    def of_unreadable(cls, last: int, timestamp: int, why: Unreadable) -> Records:
        """Make the record that takes the place of unreadable events."""
        return cls([last], [timestamp], [None], [None], [()], unreadable={last: why})

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Record:
        return Record(*(column[index] for column in self._columns()))

    def __iter__(self) -> Iterator[Record]:
        return map(Record, *self._columns())

    def part(self, start: int, end: int) -> Records:
        """Return the records from index `start` to before index `end`."""
        columns = (column[start:end] for column in self._columns())
        return Records(*columns, unreadable=self.unreadable)

    def chosen(self, which: Sequence[bool]) -> Records:
        """Return the records for which `which` is true."""
        rows = list(compress(range(len(self)), which))
        if len(rows) < len(self) // 4:  # few are picked faster by their rows
            return self.rows(rows)
        columns = (list(compress(column, which)) for column in self._columns())
        return Records(*columns, unreadable=self.unreadable)

    def rows(self, rows: Sequence[int]) -> Records:
        """Return the records at these indexes."""
        columns = ([column[row] for row in rows] for column in self._columns())
        return Records(*columns, unreadable=self.unreadable)

    def extend(self, more: Records) -> None:
        """Append records."""
        for column, others in zip(self._columns(), more._columns(), strict=True):
            column.extend(others)
        if more.unreadable:
            self.unreadable = {**self.unreadable, **more.unreadable}

    def _columns(self) -> tuple[list[Any], ...]:
        return self.offsets, self.timestamps, self.keys, self.values, self.headers


@dataclass(slots=True)
class Outgoing:
    """Records for one topic, in order.

    Attributes:
        topic: the topic.
        partition: its partition; None: chosen by each record's key.
        records: the records.
    """

    topic: str
    partition: int | None
    records: Records


class Refusal(StrEnum):
    """Why a topic does not take a record, however often it is sent."""

    TOO_LARGE = "too large for the topic"
    TIMESTAMP = "timestamp refused by the topic"
    NO_KEY = "no key for a compacted topic"
    OTHER = "refused by the topic"


class Refused(NamedTuple):
    """A record that its topic does not take.

    Attributes:
        topic: the topic.
        partition: the partition that it was meant for.
        record: the record.
        why: why the topic refuses it.
        limit_bytes: how large a record of the topic may be.
        attempt: 1 for the record itself, 2 for what was to be written in its place, and so on.
    """

    topic: str
    partition: int
    record: Record
    why: Refusal
    limit_bytes: int
    attempt: int = 1


Substitute = Callable[[Refused], Outgoing | None]
"""Returns what to write in place of a record that its topic refuses; None: nothing.

It is called again for what it returned, if that is refused too: after some attempts it must return
None, or raise.
"""


class PartitionProducer(Protocol):
    """Delivers the output of one input partition. Calls must not overlap."""

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, substitute: Substitute
    ) -> bool:
        """Send records and wait until they are stored.

        A record that its topic refuses for good is replaced by `substitute`. After an error this
        producer is unusable: close it and open another.

        Returns:
            Whether the next offset is committed too; if not, call `EventSource.commit`.

        Raises:
            BrokerUnavailable: all, some or none of the records may have been stored.
            RecordsRefused: the next call replaces the records that were refused.
            BrokerRefused: the topic cannot be written to.
            ProducerFenced: another worker has opened a producer for the partition.
        """

    async def close(self) -> None:
        """Close it; what was not delivered is discarded."""


class Topic(NamedTuple):
    """What is known of a topic.

    Attributes:
        partitions: how many it has.
        identity: changes when the topic is deleted and created again; "" if unknown.
    """

    partitions: int
    identity: str = ""


class EventSink(Protocol):
    """Where output goes."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that were asked about, by name.

        All output is partitioned by these numbers. They change with `refresh` only.
        """

    async def start(self) -> None:
        """Connect."""

    async def open(self, partition: Partition) -> PartitionProducer:
        """Open a producer for an input partition.

        With exactly-once delivery, whoever opened one for it before can store nothing from now on.
        """

    async def send(self, outgoing: Sequence[Outgoing], substitute: Substitute) -> None:
        """Send records that belong to no input partition, and wait until they are stored."""

    async def topic(self, name: str) -> Topic:
        """Return what is known of a topic; the first call for a topic asks the broker.

        Raises:
            BrokerRefused: the topic does not exist, or we are not allowed to see it.
        """

    async def refresh(self) -> None:
        """Ask the broker about all known topics again; one that is gone stays as it was."""

    async def stop(self) -> None:
        """Close the connections."""


class RebalanceListener(Protocol):
    """Called on a rebalance. The source waits for each call; its heartbeats continue meanwhile."""

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """Finish the work on partitions that another worker is about to get."""

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        """Begin to read partitions; return soon."""


class EventSource(Protocol):
    """Where events come from.

    Attributes:
        topics: the topics to read.
    """

    topics: tuple[str, ...]

    async def start(self, listener: RebalanceListener) -> None:
        """Connect and join the group."""

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        """Return the next events of some partitions, in order.

        Args:
            wanted: the partitions to read; events of the others are left for later. If empty, it
                returns at once; call it regularly all the same, so that the group does not
                consider the worker dead.
            limit: about how many events to return at most.
            wait_s: how long to wait for the first event.

        Raises:
            OffsetGone: a partition does not have its next offset. The others may be polled.
        """

    async def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset, or None if it has stored none."""

    async def first(self, partition: Partition) -> int:
        """Ask the broker for the oldest offset that the partition still has."""

    async def begin(self, partition: Partition) -> int:
        """Return the offset where a group begins whose committed offset does not exist.

        Raises:
            BrokerRefused: the configuration forbids to begin.
        """

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Ask the broker for end offsets; of partitions too that are not assigned.

        Events of open transactions are not counted where they are not read. It may wait for long:
        for all of the partitions, if one has no leader.
        """

    async def position(self, partition: Partition) -> int:
        """Return the offset that is read next; all is read once it reaches the end offset."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue reading at an offset."""

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Store next offsets.

        Raises:
            GroupLost: the partitions belong to another member now; nothing was stored.
            BrokerUnavailable: they may or may not have been stored.
        """

    async def stop(self) -> None:
        """Leave the group and close the connections."""

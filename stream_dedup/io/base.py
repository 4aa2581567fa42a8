"""The connector ports: where events come from, where output goes, how the two are committed.

Words of this page
------------------
offset          an event's place in its partition.
next offset     the offset after the last event dealt with: where to read on.
committed       the next offset that a group has stored: where it reads on after a crash.
end offset      the offset that the next event to be written will get.
lane            a partition as one worker reads it, from its assignment to its loss.

The group assigns partitions to a worker. For each partition the worker opens a `PartitionProducer`
and only then reads the committed offset: opening fences the previous owner, so nobody else commits
after that read. Then, batch by batch, `PartitionProducer.deliver` sends the output and stores the
next offset: together (exactly once), or the one after the other (at least once).

Methods that reach for a broker raise `BrokerUnavailable` (try again later; what was sent may have
arrived) or `BrokerRefused` (trying again will not help).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from stream_dedup.model import Partition

log = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """An event as it stands in a topic; or what is to be written to one.

    Attributes:
        offset: its place in the partition; of what is to be written, that of the event it came
            of, -1 of none.
        timestamp: milliseconds since 1970-01-01 UTC; -1 for none.
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


class Records:
    """Events of one partition, or what is to be written, in order; column by column.

    Attributes:
        offsets, timestamps, keys, values, headers: the columns, of equal length; see `Record`.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        offsets: list[int],
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Headers],
    ) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers = headers

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Records:
        """The columns of rows: of `Record`, or of whatever has its attributes."""
        return cls(*(list(map(column, rows)) for column in _COLUMNS))

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Record:
        return Record(*(column[index] for column in self._columns()))

    def __iter__(self) -> Iterator[Record]:
        return map(Record, *self._columns())

    def part(self, start: int, end: int) -> Records:
        """Those from one index to before another."""
        return Records(*(column[start:end] for column in self._columns()))

    def chosen(self, which: Sequence[bool]) -> Records:
        """Those for which it is true."""
        return Records(*(list(compress(column, which)) for column in self._columns()))

    def rows(self, rows: Sequence[int]) -> Records:
        """Those at these indexes."""
        return Records(*([column[row] for row in rows] for column in self._columns()))

    def extend(self, more: Records) -> None:
        """Add records that follow."""
        for column, others in zip(self._columns(), more._columns(), strict=True):
            column.extend(others)

    def _columns(self) -> tuple[list[Any], ...]:
        return self.offsets, self.timestamps, self.keys, self.values, self.headers


@dataclass(slots=True)
class Outgoing:
    """Records for one topic, in order.

    Attributes:
        topic: the topic.
        partition: its partition; None: each record's key says which.
        records: the records.
    """

    topic: str
    partition: int | None
    records: Records


TooLarge = Callable[[str, Record], Outgoing | None]
"""What to write in the place of a record too large for its topic; None for nothing."""


def nothing(topic: str, record: Record) -> None:
    """What to write where even what stands in for a record is too large."""
    log.warning("a dead letter of %d bytes is too large for %s", len(record.value or b""), topic)


class PartitionProducer(Protocol):
    """Takes what comes of one input partition. Calls are made one after the other."""

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, too_large: TooLarge
    ) -> bool:
        """Send records; it returns once they are stored.

        Returns:
            Whether the next offset is committed too; if not, `Source.commit` is to do it.

        Raises:
            BrokerUnavailable: some of it may have been stored, or none.
            BrokerRefused: the topic cannot be written to.
            ProducerFenced: another worker has opened an partition_producer for the partition.

        After an error the partition_producer is of no more use: close it and open another.
        """

    async def close(self) -> None:
        """Give it up; what was not delivered will never be."""


class Sink(Protocol):
    """Where output goes."""

    async def start(self) -> None:
        """Connect."""

    async def open(self, partition: Partition) -> PartitionProducer:
        """An partition_producer for an input partition.

        With exactly-once delivery, whoever had one for it before can store nothing from now on.
        """

    async def send(self, outgoing: Sequence[Outgoing], too_large: TooLarge) -> None:
        """Send records that belong to no input partition; it returns once they are stored."""

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            BrokerRefused: there is no such topic, or it may not be seen.
        """

    async def stop(self) -> None:
        """Close the connections."""


class Listener(Protocol):
    """Who is told of assignments. The source waits for it, while its heartbeats go on."""

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """These partitions are about to be somebody else's: finish what is on its way."""

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        """These partitions are to be read; returns soon."""


class Source(Protocol):
    """Where events come from.

    Attributes:
        topics: what is read.
    """

    topics: tuple[str, ...]

    async def start(self, listener: Listener) -> None:
        """Connect and take part in the group."""

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        """Events of some partitions, in order.

        Args:
            wanted: partitions that have room; events of others stay where they are. With none it
                returns at once; call it now and then, so that the group sees that the worker lives.
            limit: most events, about.
            wait_s: how long to wait for the first.
        """

    async def committed(self, partition: Partition) -> int | None:
        """The group's stored offset; None without."""

    async def begin(self, partition: Partition) -> int:
        """Where a group begins that has stored nothing."""

    async def end(self, partition: Partition) -> int:
        """The partition's end offset."""

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The end offsets as last seen while reading; may lag a little, costs nothing."""

    async def position(self, partition: Partition) -> int:
        """Where it reads on: at or beyond the end offset, nothing is left to be read."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from an offset."""

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Store next offsets.

        Raises:
            GroupLost: the partitions are not this member's any more; nothing was stored.
            BrokerUnavailable: they may have been stored, or not.
        """

    async def stop(self) -> None:
        """Leave the group and close the connections."""

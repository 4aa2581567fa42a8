"""A broker in memory, with topics, groups, transactions and rebalances: for tests without a server.

It keeps the promises of the ports within one event loop: the members of a group share its
partitions, a commit for a partition that the member has lost is refused, and opening a partition's
producer fences the previous one. A test may inject a fault at any step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stream_dedup.errors import BrokerRefused, GroupLost, OffsetGone, ProducerFenced
from stream_dedup.io.base import (
    Headers,
    Outgoing,
    PartitionProducer,
    RebalanceListener,
    Record,
    Records,
    Refusal,
    Refused,
    Substitute,
    Topic,
)
from stream_dedup.model import Partition


def drop_refused(_refused: Refused) -> None:
    """Write nothing in place of a record that its topic refuses."""


@dataclass(slots=True)
class _Group:
    members: list[MemoryConsumer] = field(default_factory=list)
    offsets: dict[Partition, int] = field(default_factory=dict)


class MemoryBroker:
    """Topics in memory.

    Args:
        topics: name → number of partitions.
        max_bytes: larger values are too large for any topic.

    Attributes:
        logs: the stored records of each partition.
        firsts: partition → the offset before which its records have expired.
        faults: called with the name of a step ("send", "commit", "transaction") before that step;
            an exception that it raises is raised by the step.
        refuses: called with a topic and a record; returns why the topic does not take it, or None.
        creations: how often each topic was created again.
    """

    def __init__(self, topics: Mapping[str, int], *, max_bytes: int = 1_000_000) -> None:
        self.logs = {
            Partition(topic, number): list[Record]()
            for topic, count in topics.items()
            for number in range(count)
        }
        self.firsts: dict[Partition, int] = {}
        self.max_bytes = max_bytes
        self.creations: dict[str, int] = {}
        self.faults: Callable[[str], None] = lambda _step: None
        self.refuses: Callable[[str, Record], Refusal | None] = lambda _topic, _record: None
        self._groups: dict[str, _Group] = {}
        self._epochs: dict[Partition, int] = {}
        self._written = asyncio.Event()
        self._rebalancing = asyncio.Lock()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; one that exists is deleted before."""
        if self.partition_count(topic):
            self.creations[topic] = self.creations.get(topic, 0) + 1
        self.logs = {place: log for place, log in self.logs.items() if place.source != topic}
        self.add_partitions(topic, partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has so many."""
        for number in range(self.partition_count(topic), partitions):
            self.logs[Partition(topic, number)] = []

    def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: Headers = (),
    ) -> None:
        """Append a record."""
        stored = self.logs[Partition(topic, partition)]
        stored.append(Record(len(stored), timestamp_ms, key, value, headers))
        self._written.set()

    def read(self, topic: str) -> list[Record]:
        """Return all records of a topic, partition by partition."""
        return [
            record for place, log in self.logs.items() if place.source == topic for record in log
        ]

    def committed(self, group: str) -> dict[Partition, int]:
        """Return a group's committed offsets."""
        return dict(self._group(group).offsets)

    def forget_offsets(self, group: str) -> None:
        """Forget a group's committed offsets, as a broker does when they have expired."""
        self._group(group).offsets.clear()

    def source(self, topics: Sequence[str], group: str) -> MemoryConsumer:
        """Make a member of a group; it joins when it is started."""
        return MemoryConsumer(self, tuple(topics), group)

    def sink(self, group: str, *, transactional: bool = False) -> MemoryProducer:
        """Make a sink; a transactional one commits offsets together with the output."""
        return MemoryProducer(self, group, transactional=transactional)

    def _group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    async def join(self, group: str, member: MemoryConsumer) -> None:
        """Add a member to a group, and rebalance the group."""
        async with self._rebalancing:
            self._group(group).members.append(member)
            await self._rebalance(group)

    async def leave(self, group: str, member: MemoryConsumer) -> None:
        """Remove a member from a group, and rebalance the group; do nothing if it is not in it."""
        async with self._rebalancing:
            members = self._group(group).members
            if member in members:
                members.remove(member)
                await self._rebalance(group)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return sum(place.source == topic for place in self.logs)

    async def wait(self, wait_s: float) -> None:
        """Wait until a record is written, or the time is up."""
        self._written.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._written.wait()
        except TimeoutError:
            pass

    async def rebalance(self, name: str) -> None:
        """Revoke all partitions of a group, then assign them again, as Kafka does.

        One rebalance ends before the next begins, so a partition never has two owners.
        """
        async with self._rebalancing:
            await self._rebalance(name)

    async def _rebalance(self, name: str) -> None:
        members = self._group(name).members
        for member in members:
            await member.revoke()
        for number, member in enumerate(members):
            mine = [p for p in sorted(self.logs) if p.source in member.topics]
            await member.assign(mine[number :: len(members)])

    def store(self, outgoing: Sequence[Outgoing], substitute: Substitute, attempt: int = 1) -> None:
        """Append records to their topics."""
        for part in outgoing:
            count = self.partition_count(part.topic)
            if not count:
                raise BrokerRefused(f"no such topic: {part.topic}; create it")
            for record in part.records:
                _, timestamp_ms, key, value, headers = record
                place = part.partition
                if place is None:
                    place = sum(key or b"") % count
                why = self.refuses(part.topic, record)
                if why is None and len(value or b"") > self.max_bytes:
                    why = Refusal.TOO_LARGE
                if why is not None:
                    instead = substitute(
                        Refused(part.topic, place, record, why, self.max_bytes, attempt)
                    )
                    if instead is not None:
                        same = instead.topic == part.topic
                        self.store([instead], substitute, attempt + 1 if same else 1)
                    continue
                self.write(
                    part.topic,
                    value,
                    partition=place,
                    key=key,
                    timestamp_ms=timestamp_ms,
                    headers=list(headers),
                )

    def fence(self, partition: Partition) -> int:
        """Raise the epoch of an input partition's producer, and return it."""
        self._epochs[partition] = self._epochs.get(partition, 0) + 1
        return self._epochs[partition]

    def epoch(self, partition: Partition) -> int:
        """Return the latest epoch of an input partition's producer."""
        return self._epochs[partition]

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of a group."""
        self._group(group).offsets.update(offsets)


class MemoryConsumer:
    """The port `EventSource` over a `MemoryBroker`: one member of a group.

    Attributes:
        topics: the topics to read.
        assigned: the member's partitions → the offset that is read next.
    """

    def __init__(self, broker: MemoryBroker, topics: tuple[str, ...], group: str) -> None:
        self.topics = topics
        self.assigned: dict[Partition, int] = {}
        self._broker = broker
        self._group = group
        self._listener: RebalanceListener | None = None

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self._broker.join(self._group, self)

    async def revoke(self) -> None:
        """Give up all partitions."""
        assert self._listener is not None
        await self._listener.revoked(list(self.assigned))
        self.assigned = {}

    async def assign(self, partitions: Sequence[Partition]) -> None:
        """Take over partitions, each from the group's committed offset on."""
        assert self._listener is not None
        stored = self._broker.committed(self._group)
        self.assigned = {partition: stored.get(partition, 0) for partition in partitions}
        await self._listener.assigned(partitions)

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        found = self._take(wanted, limit)
        if wanted and not found:
            await self._broker.wait(wait_s)
            found = self._take(wanted, limit)
        return found

    def _take(self, wanted: Sequence[Partition], limit: int) -> dict[Partition, Records]:
        found: dict[Partition, Records] = {}
        for partition in wanted:
            if partition not in self.assigned:
                continue
            start, log = self.assigned[partition], self._broker.logs[partition]
            if not self._broker.firsts.get(partition, 0) <= start <= len(log):
                raise OffsetGone(*partition, start)
            records = log[start : start + limit]
            if records:
                found[partition] = Records.of(records)
                self.assigned[partition] += len(records)
                limit -= len(records)
            if not limit:
                break
        return found

    async def committed(self, partition: Partition) -> int | None:
        return self._broker.committed(self._group).get(partition)

    async def first(self, partition: Partition) -> int:
        return self._broker.firsts.get(partition, 0)

    async def begin(self, partition: Partition) -> int:
        return await self.first(partition)

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {partition: len(self._broker.logs[partition]) for partition in partitions}

    async def position(self, partition: Partition) -> int:
        return self.assigned.get(partition, 0)

    def seek(self, partition: Partition, offset: int) -> None:
        if partition not in self.assigned:
            raise GroupLost(f"{partition} is not assigned any more")
        self.assigned[partition] = offset

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._broker.faults("commit")
        lost = [partition for partition in offsets if partition not in self.assigned]
        if lost:
            raise GroupLost(f"not assigned any more: {lost}")
        self._broker.commit(self._group, offsets)

    async def stop(self) -> None:
        self.assigned = {}
        await self._broker.leave(self._group, self)


class MemoryProducer:
    """The port `EventSink` over a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, group: str, *, transactional: bool) -> None:
        self._broker = broker
        self._group = group
        self._transactional = transactional
        self.topics: dict[str, Topic] = {}

    async def start(self) -> None:
        """Do nothing."""

    async def open(self, partition: Partition) -> PartitionProducer:
        epoch = self._broker.fence(partition) if self._transactional else 0
        return _MemoryPartitionProducer(self._broker, self._group, partition, epoch)

    async def send(self, outgoing: Sequence[Outgoing], substitute: Substitute) -> None:
        self._broker.faults("send")
        self._broker.store(outgoing, substitute)

    async def topic(self, name: str) -> Topic:
        if name not in self.topics:
            count = self._broker.partition_count(name)
            if not count:
                raise BrokerRefused(f"no such topic: {name}; create it")
            self.topics[name] = Topic(count, str(self._broker.creations.get(name, 0)))
        return self.topics[name]

    async def refresh(self) -> None:
        for name in self.topics:
            count = self._broker.partition_count(name)
            self.topics[name] = Topic(count, str(self._broker.creations.get(name, 0)))

    async def stop(self) -> None:
        """Do nothing."""


class _MemoryPartitionProducer:
    def __init__(self, broker: MemoryBroker, group: str, partition: Partition, epoch: int) -> None:
        self._broker = broker
        self._group = group
        self._partition = partition
        self._epoch = epoch

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, substitute: Substitute
    ) -> bool:
        await asyncio.sleep(0)
        self._broker.faults("send")
        if not self._epoch:
            self._broker.store(outgoing, substitute)
            return False
        if self._epoch != self._broker.epoch(self._partition):
            raise ProducerFenced(f"{self._partition} has another producer")
        self._broker.faults("transaction")
        self._broker.store(outgoing, substitute)
        self._broker.commit(self._group, {self._partition: next_offset})
        return True

    async def close(self) -> None:
        """Do nothing."""

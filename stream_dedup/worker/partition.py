"""A lane: one partition as a worker reads it, from its assignment to its loss. Pure state.

Theory of operation
-------------------
Events wait in `queue`, are taken in batches, and each batch is decided, delivered and committed, in
order. ::

    opening ──► open ──► closing ──► gone
       │          └───────────────────▲
       └──────────────────────────────┘

opening   it is being claimed; nothing is read.
open      events come in and leave.
closing   it is to be somebody else's: what was decided is delivered, nothing else is taken.
gone      nothing of it may be sent or stored any more.

Offsets only grow: committed ≤ delivered ≤ next. Whatever lies at or beyond `committed` will be read
again by whoever comes after; the index knows what was counted of it.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from itertools import accumulate

from stream_dedup.columnar import column_stats
from stream_dedup.io.base import PartitionProducer, Records
from stream_dedup.model import Partition
from stream_dedup.worker.policy import Flow


class State(StrEnum):
    """Where a lane stands."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    GONE = "gone"


class Lane:
    """One partition's events on their way.

    Args:
        partition: the partition.
        flow: how much may be on its way.

    Attributes:
        state: see the theory of operation.
        partition_producer: takes what comes of it.
        committed: the next offset the group has stored, as far as is known.
        delivered: the next offset of which all before is delivered.
        ahead: batches taken and not delivered yet.
        end: the end offset when it was opened.
        events: events that wait to be taken.
        events_delivered: events delivered.
    """

    def __init__(self, partition: Partition, flow: Flow) -> None:
        self.partition = partition
        self.state = State.OPENING
        self.partition_producer: PartitionProducer | None = None
        self.committed = 0
        self.delivered = 0
        self.ahead = 0
        self.end = 0
        self.events = 0
        self.events_delivered = 0
        self._flow = flow
        self._queue: deque[Records] = deque()
        self._taken = 0  # events of its first that were taken
        self._since_s = 0.0

    def open(self, start: int, end: int) -> None:
        """It is claimed: its events may come, from an offset on."""
        self.state = State.OPEN
        self.committed = self.delivered = start
        self.end = end

    def gone(self) -> bool:
        """Whether nothing of it may leave any more."""
        return self.state is State.GONE

    @property
    def idle(self) -> bool:
        """Whether nothing of it is on its way."""
        return not self._queue and not self.ahead

    @property
    def has_room(self) -> bool:
        """Whether more of its events should be read."""
        return self.state is State.OPEN and self.events < 2 * self._flow.max_batch_events

    def add(self, records: Records, now_s: float) -> None:
        """Events were read."""
        if self.state is not State.OPEN:
            return
        if not self._queue:
            self._since_s = now_s
        self._queue.append(records)
        self.events += len(records)

    def ready_in_s(self, now_s: float) -> float | None:
        """How long until a batch should be taken: 0 for now, None for not at all."""
        if self.state is not State.OPEN or not self._queue:
            return None
        if self.ahead >= self._flow.ahead_batches:
            return None
        if self.events >= self._flow.max_batch_events or not self.ahead:
            # Alone on its way it need not wait longer than it takes others to arrive.
            wait_s = 0.0 if self.events >= self._flow.max_batch_events else self._flow.batch_wait_s
            return max(0.0, self._since_s + wait_s - now_s)
        return None

    def take(self, now_s: float) -> tuple[Records, int]:
        """The next batch's events, at least one, within the bounds of Flow; and their bytes."""
        taken = Records.of([])
        most_bytes, size = self._flow.max_batch_bytes, 0
        while self._queue and len(taken) < self._flow.max_batch_events and size < most_bytes:
            records, start = self._queue[0], self._taken
            end = min(start + self._flow.max_batch_events - len(taken), len(records))
            values = records.values[start:end]
            more = column_stats(values).size
            if size + more >= most_bytes:
                sizes = accumulate((len(value or b"") for value in values), initial=0)
                count, more = next((c, s) for c, s in enumerate(sizes) if size + s >= most_bytes)
                end = start + count
            size += more
            taken.extend(records.part(start, end))
            self._taken = end
            if end == len(records):
                self._queue.popleft()
                self._taken = 0
        self.events -= len(taken)
        self.ahead += 1
        self._since_s = now_s
        return taken, size

    def deliver(self, next_offset: int, events: int) -> None:
        """All before an offset is delivered."""
        self.delivered = next_offset
        self.events_delivered += events

    def drop(self) -> None:
        """Forget what waits: it will be read again."""
        self._queue.clear()
        self._taken = 0
        self.events = 0

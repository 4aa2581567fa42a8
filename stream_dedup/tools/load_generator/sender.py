"""The load generator: writes events to a topic at a rate, to try a deployment.

Theory of operation: the rate and the time since the start say how many events are due. They are
sent in turns, at most `MAX_BATCH` in each. A turn ends once its events are stored, so a slow broker
slows the generator down; what is due meanwhile is sent later. A request to stop is noticed between
turns, so a turn that has begun is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stream_dedup.clock import US_PER_MS, Clock
from stream_dedup.io.base import EventSink, Outgoing, Record, Records, Refused

MAX_BATCH = 2_000
"""Maximum events of a turn, which take a broker some milliseconds."""

TURN_S = 0.05
"""How often due events are sent, at most."""

Placing = Literal["round-robin", "key"]


class Event(NamedTuple):
    """An event to write."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Load:
    """The rate and the number of events.

    >>> Load(rate=1000).due(sent=40, after_s=0.5)
    461
    >>> Load(rate=0, count=50).due(sent=40, after_s=0.5)
    10

    Attributes:
        rate: events a second; 0 for as fast as possible.
        count: total number of events; None for no end.
    """

    rate: float = 0
    count: int | None = None

    def due(self, sent: int, after_s: float) -> int:
        """Return how many more events are due; the first is due at once."""
        due = MAX_BATCH if not self.rate else int(self.rate * after_s) + 1 - sent
        return max(0, due if self.count is None else min(due, self.count - sent))

    def done(self, sent: int) -> bool:
        """Return whether all events are sent."""
        return self.count is not None and sent >= self.count


class LoadGenerator:
    """Writes events to a topic.

    Args:
        sink: must be started.
        topic: where to write.
        events: without end.
        load: rate and number of events.
        placing: ``key`` lets each event's key choose its partition; ``round-robin`` writes to the
            next partition, without a key.
        clock: gives events their time.

    Attributes:
        sent: events written.
        size: bytes of their values.
        left_out: events that were too large for the topic; they count as sent.
    """

    def __init__(
        self,
        sink: EventSink,
        topic: str,
        events: Iterator[Event],
        load: Load,
        *,
        placing: Placing,
        clock: Clock,
    ) -> None:
        self.sent = 0
        self.size = 0
        self.left_out = 0
        self._sink = sink
        self._topic = topic
        self._events = events
        self._load = load
        self._placing = placing
        self._clock = clock

    async def run(self, stop: asyncio.Event, tick: Callable[[int, float], None]) -> None:
        """Write until all events are sent, or `stop` is set.

        Args:
            stop: set to end after the current turn.
            tick: called each turn with the events sent and the seconds since the start.

        Raises:
            BrokerRefused: the topic cannot be written to.
            BrokerUnavailable: the broker is unreachable; the last batch may be stored or not.
        """
        loop = asyncio.get_running_loop()
        partitions = (await self._sink.topic(self._topic)).partitions
        began_s = loop.time()
        while not stop.is_set() and not self._load.done(self.sent):
            due = min(MAX_BATCH, self._load.due(self.sent, loop.time() - began_s))
            if due:
                await self._send(due, partitions)
            tick(self.sent, loop.time() - began_s)
            if self._load.rate and not self._load.due(self.sent, loop.time() - began_s):
                await _pause(stop, TURN_S)
            else:
                await asyncio.sleep(0)

    async def _send(self, count: int, partitions: int) -> None:
        now_ms = self._clock.now_us() // US_PER_MS
        batch = [next(self._events) for _ in range(count)]
        if self._placing == "key":
            records = Records.of([Record(-1, now_ms, event.key, event.value) for event in batch])
            outgoing = [Outgoing(self._topic, None, records)]
        else:
            records = Records.of([Record(-1, now_ms, None, event.value) for event in batch])
            first = self.sent % partitions
            outgoing = [
                Outgoing(
                    self._topic,
                    (first + turn) % partitions,
                    records.rows(range(turn, count, partitions)),
                )
                for turn in range(min(partitions, count))
            ]
        await self._sink.send(outgoing, self._left_out)
        self.sent += count
        self.size += sum(len(event.value) for event in batch)

    def _left_out(self, refused: Refused) -> None:
        del refused
        self.left_out += 1


async def _pause(stop: asyncio.Event, for_s: float) -> None:
    try:
        async with asyncio.timeout(for_s):
            await stop.wait()
    except TimeoutError:
        pass  # the time is up

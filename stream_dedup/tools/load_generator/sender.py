"""Feed: writes events to a topic at a rate, to try a deployment.

Theory of operation: of a rate, so many events are due after so long. What is due is sent in turns,
a batch of at most `MOST` each; a turn ends once its events are stored, so a broker that is slow
slows the feed down, and what is due meanwhile is caught up with later. Ending is asked for between
turns: what was begun is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stream_dedup.clock import US_PER_MS, Clock
from stream_dedup.io.base import EventSink, Outgoing, Record, Records

MOST = 2_000
"""Events sent at once: some milliseconds' work of a broker."""

TURN_S = 0.05
"""How often it is looked what is due."""

Placing = Literal["round-robin", "key"]


class Fed(NamedTuple):
    """An event to be written: its key, and its value."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast, and how many.

    >>> Pace(rate=1000).due(sent=40, after_s=0.5)
    461
    >>> Pace(rate=0, count=50).due(sent=40, after_s=0.5)
    10

    Attributes:
        rate: events a second; 0: as fast as they are taken.
        count: events in all; None: without end.
    """

    rate: float = 0
    count: int | None = None

    def due(self, sent: int, after_s: float) -> int:
        """How many events are due that were not sent yet; one is due at once."""
        due = MOST if not self.rate else int(self.rate * after_s) + 1 - sent
        return max(0, due if self.count is None else min(due, self.count - sent))

    def done(self, sent: int) -> bool:
        """Whether all were sent."""
        return self.count is not None and sent >= self.count


class Feed:
    """Writes events to a topic.

    Args:
        sink: takes them; to be started.
        topic: where to.
        events: without end.
        pace: how fast, and how many.
        placing: key: each goes where its key belongs; round-robin: to the next partition, keyless.
        clock: gives events their time.

    Attributes:
        sent: events stored.
        size: bytes of their values.
        left_out: events that were too large for the topic; they count as sent.
    """

    def __init__(
        self,
        sink: EventSink,
        topic: str,
        events: Iterator[Fed],
        pace: Pace,
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
        self._pace = pace
        self._placing = placing
        self._clock = clock

    async def run(self, stop: asyncio.Event, tick: Callable[[int, float], None]) -> None:
        """Write until all were sent, or `stop` is set.

        Args:
            stop: set to end after what was begun.
            tick: told, each turn, the events sent and the seconds since the start.

        Raises:
            BrokerRefused: the topic cannot be written to.
            BrokerUnavailable: the broker went away; the last batch may be stored, or not.
        """
        loop = asyncio.get_running_loop()
        partitions = await self._sink.partitions(self._topic)
        began_s = loop.time()
        while not stop.is_set() and not self._pace.done(self.sent):
            due = min(MOST, self._pace.due(self.sent, loop.time() - began_s))
            if due:
                await self._send(due, partitions)
            tick(self.sent, loop.time() - began_s)
            if self._pace.rate and not self._pace.due(self.sent, loop.time() - began_s):
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
        await self._sink.send(outgoing, self._too_large)
        self.sent += count
        self.size += sum(len(event.value) for event in batch)

    def _too_large(self, topic: str, record: Record) -> None:
        del topic, record
        self.left_out += 1


async def _pause(stop: asyncio.Event, for_s: float) -> None:
    try:
        async with asyncio.timeout(for_s):
            await stop.wait()
    except TimeoutError:
        pass  # the time is up

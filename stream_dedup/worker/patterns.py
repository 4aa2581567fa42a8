"""Events about patterns that are new, spike or have vanished, found in summaries that are due.

All workers of a namespace share what is remembered of patterns (`index.patterns`); none keeps any
of it. A summary's way, whichever worker claims it:

1. claim      The summary is leased.
2. remember   Its counts, and the events that they show, are written at once, unless another worker
              has written since they were read; then again from the read. A summary that was
              counted before shows nothing.
3. send       The summary, and the events.
4. delete     The events are no longer unsent.
5. confirm    The summary.

A worker may die at any point. After 1, the summary is claimed again when its lease has ended. After
2, another worker finds the events when theirs has ended, and sends these very bytes; the summary is
claimed again and counted no more. After 3, the events are sent once more under the same id: readers
drop a copy by it. After 4, the summary alone is claimed again.

Silence is looked for at the end of each round, in which all due summaries were claimed: patterns
whose time is over by the stream time that these summaries show. So a stream that stops altogether,
or a worker that reads nothing, says nothing of any pattern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from stream_dedup.changes.detector import Detector, PatternEvent
from stream_dedup.changes.events import Known, Name, PatternEvents, cluster_name, kind_name
from stream_dedup.clock import US_PER_MS, US_PER_S, Clock
from stream_dedup.errors import IndexUnavailable
from stream_dedup.index.patterns import MAX_DUE, Changes, Pattern, PatternStore, Stored
from stream_dedup.io.base import Record
from stream_dedup.model import Summary

LEAST_BIN_US = 60 * US_PER_S
"""How often events of patterns are counted, unless summaries come less often."""

WRITE_TRIES = 50
"""How often a write is repeated because another worker was faster."""


class PatternRecord(msgspec.Struct, array_like=True, frozen=True):
    """An event about a pattern, as it is stored until it is sent.

    Attributes:
        change: what happened.
        pattern: its id.
        time_us: when.
        value: the event as JSON.
    """

    change: str
    pattern: int
    time_us: int
    value: bytes

    def record(self) -> Record:
        """The record: the pattern's id is the key, so that a pattern's events stay in order."""
        return Record(
            -1,
            max(0, self.time_us // US_PER_MS),
            b"%016x" % self.pattern,
            self.value,
            [("sd-type", b"pattern")],
        )


class PatternWatcher:
    """Finds events about patterns in summaries.

    Args:
        store: what is remembered.
        clock: the clock.
        every_us: time between summaries of a cluster.
        lease_us: how long an event may take to be sent.
        namespace: of the clusters.
    """

    def __init__(
        self, store: PatternStore, clock: Clock, *, every_us: int, lease_us: int, namespace: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._bin_us = max(LEAST_BIN_US, every_us)
        self._lease_us = lease_us
        self._namespace = namespace
        self._looked_us: int | None = None
        self._latest_us: int | None = None

    @property
    def has_observed(self) -> bool:
        """Whether this round brought summaries of open clusters."""
        return self._latest_us is not None

    async def begin(self) -> list[PatternRecord]:
        """Begin a round; return events that whoever found them has not sent.

        Raises:
            IndexUnavailable: what is remembered cannot be reached.
        """
        self._latest_us = None
        while True:
            now_us = self._clock.now_us()
            stored = await self._store.read([], now_us)
            self._looked_us = stored.looked_us
            if not stored.unsent:
                return []
            again = Changes(unsent=stored.unsent, until_us=now_us + self._lease_us)
            if await self._store.write(stored.token, again):
                return [_RECORD.decode(each) for each in stored.unsent]

    async def observe(self, summaries: Sequence[Summary]) -> list[PatternRecord]:
        """Remember the counts of described summaries; return the events to send.

        Raises:
            IndexUnavailable: what is remembered cannot be reached, or others write all the time.
        """
        times_us = [each.last_time_us for each in summaries if not each.final]
        if times_us:
            latest_us = max(times_us)
            if self._latest_us is None or latest_us > self._latest_us:
                self._latest_us = latest_us
        return await self._change(summaries, None)

    async def end(self, stream_us: int | None) -> list[PatternRecord]:
        """End a round, in which all due summaries were observed; return the events to send.

        Args:
            stream_us: the index's stream time, which waits for partitions that are behind.

        Raises:
            IndexUnavailable: as `observe`.
        """
        if self._latest_us is None or stream_us is None:
            return []
        # Due summaries hold all events that are `every_us` older than stream time. Without events
        # stream time goes on with the clock, maybe because Kafka is away: then it says nothing.
        until_us = min(self._latest_us, stream_us)
        if self._looked_us is not None and until_us <= self._looked_us:
            return []
        found: list[PatternRecord] = []
        while True:
            vanished = await self._change([], until_us)
            found += vanished
            if len(vanished) < MAX_DUE:
                return found

    async def sent(self, records: Sequence[PatternRecord]) -> None:
        """Note that events were sent.

        Raises:
            IndexUnavailable: what is remembered cannot be reached; they are sent again then.
        """
        await self._store.sent([_ENCODER.encode(each) for each in records])

    async def _change(
        self, summaries: Sequence[Summary], until_us: int | None
    ) -> list[PatternRecord]:
        """Read, find events, and write; again if another worker was faster."""
        names = _names(summaries)
        for _ in range(WRITE_TRIES):
            now_us = self._clock.now_us()
            stored = await self._store.read(names, now_us, until_us)
            # Hundreds of summaries take some milliseconds: not in the event loop.
            changes, records = await asyncio.to_thread(
                self._found, stored, summaries, until_us, now_us + self._lease_us
            )
            if await self._store.write(stored.token, changes):
                return records
        raise IndexUnavailable("other workers keep changing the stored state of patterns")

    def _found(
        self, stored: Stored, summaries: Sequence[Summary], until_us: int | None, lease_us: int
    ) -> tuple[Changes, list[PatternRecord]]:
        """Find events in what is stored and in summaries; return what is to be written."""
        detector = Detector(self._bin_us)
        patterns = PatternEvents(detector, len(stored.patterns) + len(summaries), self._namespace)
        before = {pattern: Known.unpacked(each) for pattern, each in stored.patterns.items()}
        old_names = {
            key: name for key, each in stored.names.items() if (name := Name.unpacked(each))
        }
        had = {pattern: tuple(known.names) for pattern, known in before.items()}
        patterns.restore(old_names, before)
        needed = {name.pattern for name in old_names.values()}
        for pattern in stored.oldest:
            if pattern not in needed:
                patterns.forget(pattern)
        events: list[PatternEvent] = patterns.observe(summaries)
        if until_us is not None:
            events += patterns.advance(until_us)
        records = [
            PatternRecord(each.change.value, each.pattern, each.time_us, patterns.line(each)[:-1])
            for each in events
        ]
        after, names = patterns.known(), patterns.names()
        kept = {name for known in after.values() for name in known.names}
        dropped = {name for each in had.values() for name in each} - kept
        if until_us is not None and stored.looked_us is not None:
            until_us = max(until_us, stored.looked_us)
        changes = Changes(
            looked_us=until_us,
            names={
                **dict.fromkeys(dropped),
                **{key: name.packed() for key, name in names.items() if key not in dropped},
            },
            patterns={
                **dict.fromkeys({*stored.oldest, *stored.due, *before}),
                **{
                    pattern: Pattern(
                        known.packed(),
                        0 if known.rate is None else known.rate.last_us,
                        detector.deadline_us(pattern),
                    )
                    for pattern, known in after.items()
                },
            },
            unsent=[_ENCODER.encode(each) for each in records],
            until_us=lease_us,
        )
        return changes, records


def _names(summaries: Sequence[Summary]) -> list[bytes]:
    """By what the patterns of summaries are recognised."""
    names: dict[bytes, None] = {}
    for summary in summaries:
        names[cluster_name(summary.cluster)] = None
        names[kind_name(summary)] = None
        if summary.merged_into is not None:
            names[cluster_name(summary.merged_into)] = None
    return list(names)


_ENCODER = msgspec.msgpack.Encoder()
_RECORD = msgspec.msgpack.Decoder(PatternRecord)

"""The clusters of files: the embedded engine reads them in a thread, while pages are shown."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePath

from stream_dedup.cli.reading import read_events
from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StreamDedupError
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.model import Closing, Decision, Kind, Position, Summary
from stream_dedup.ui.counts import Axis
from stream_dedup.ui.finding import InFiles
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.sources import Commands, Details, Status, group_text

VALUES = 64
"""Events of a cluster whose values are counted."""

ALL_LINES = 1 << 62

MAX_FUTURE_US = 24 * 3600 * US_PER_S
"""A time without a zone is read as UTC, but its zone may be up to 14 hours ahead of it."""

log = logging.getLogger(__name__)


class FileSource:
    """Files, read once.

    Args:
        paths: the files.
        recipe: what counts as near.
        reading: how they are read.
        max_clusters: kept at most.
    """

    kind = "files"

    def __init__(
        self, paths: Sequence[str], recipe: Recipe, reading: DecoderOptions, max_clusters: int
    ) -> None:
        self.name = "files"
        self.title = ", ".join(PurePath(path).name for path in paths[:3])
        self.has_times = reading.event_times
        self.axis = Axis(US_PER_S if self.has_times else 1, slides=False)
        self._paths = paths
        self._reading = reading
        self._entries: dict[int, Entry] = {}
        self._summaries: dict[int, Summary] = {}
        self._merged: dict[int, int] = {}
        self._dedup = Deduplicator(
            recipe,
            windows=Windows(FOREVER_US, FOREVER_US, MAX_FUTURE_US),
            summaries=Summaries(every_us=None, values=VALUES, values_every=1),
            limits=Limits(max_clusters=max_clusters),
        )
        self._commands = InFiles(paths)
        self._problems: list[str] = []
        self._events = self._lines = self._before = 0
        self._now_us = SystemClock().now_us()
        self._known_us: int | None = None
        self._passed = 0
        self._done = False
        self._stop = threading.Event()

    @cached_property
    def inspector(self) -> Inspector:
        """Compares events as its recipe does."""
        return Inspector(self._dedup.recipe)

    @property
    def entries(self) -> Mapping[int, Entry]:
        """All clusters by their ids; those that have merged are part of another one."""
        return self._entries

    @property
    def commands(self) -> Commands:
        """What finds events."""
        return self._commands

    def status(self) -> Status:
        """Return how far the files are read."""
        reading = "" if self._done else f"{self._events:,} events read so far"
        return Status("; ".join(self._problems), reading, self._events, None, self._passed)

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Do nothing: files are read whole."""

    async def run(self) -> None:
        """Read the files."""
        reading = asyncio.to_thread(self.read)
        try:
            await reading
        finally:
            self._stop.set()

    def read(self) -> None:
        """Read the files, here and now."""
        for path in self._paths:
            self._before = self._lines
            try:
                for events in read_events(
                    path,
                    self._reading,
                    takes_fields=self._dedup.engine.takes_fields,
                    limit=ALL_LINES,
                    advance=lambda _: None,
                    now_us=self._now_us,
                ):
                    if self._stop.is_set():
                        return
                    self._take(events, self._dedup.process_batch(events.batch))
                    self._keep(self._dedup.due(patterns=False))
            except StreamDedupError as error:
                self._problems.append(str(error))
        self._keep(self._dedup.close(patterns=False))
        self._done = True

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster; while the files are read, what is known so far."""
        while identity in self._merged:
            identity = self._merged[identity]
        entry, summary = self._entries.get(identity), self._summaries.get(identity)
        if entry is None:
            return None
        if summary is None:
            (first,) = await self.firsts([identity])
            position = Position(self._paths[0], 0, 0)
            summary = Summary(identity, 0, None, entry.count, 0, entry.first, entry.last, position,
                              first or b"")  # fmt: skip
        return Details(self._dedup.describe(summary), "open" if entry.open else "closed")

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        missing = [each for each in identities if each not in self._summaries]
        found = dict(zip(missing, await self._dedup.engine.index.representatives(missing),
                         strict=True))  # fmt: skip
        out: list[bytes | None] = []
        for each in identities:
            summary, first = self._summaries.get(each), found.get(each)
            out.append(summary.representative if summary else first.value if first else None)
        return out

    # ------------------------------------------------------------ reading

    def _take(self, events: Events, decisions: Sequence[Decision]) -> None:
        """Count events."""
        batch = events.batch
        passed = sum(decision.cluster is None for decision in decisions)
        self._events += len(decisions) - passed
        self._passed += passed
        self._lines += events.lines
        if not decisions:
            return
        ats = self._times(events)
        axis = self.axis
        axis.reach(min(ats))
        axis.reach(max(ats))
        counted: dict[tuple[int, int], int] = {}
        seen: dict[int, list[int]] = {}
        groups = batch.groups
        for row, (decision, at) in enumerate(zip(decisions, ats, strict=True)):
            cluster = decision.cluster
            if cluster is None:
                continue
            if decision.kind is Kind.NEW or cluster not in self._entries:
                self._open(cluster, batch.values[row], groups[row] if groups else "", at)
            place = cluster, at // axis.width
            counted[place] = counted.get(place, 0) + 1
            span = seen.get(cluster)
            if span is None:
                seen[cluster] = [at, at]
            elif at > span[1]:
                span[1] = at
            elif at < span[0]:
                span[0] = at
        for (cluster, bucket), count in counted.items():
            entry = self._entries[cluster]
            entry.count += count
            entry.counts.add(axis, bucket * axis.width, count)
        for cluster, (first, last) in seen.items():
            entry = self._entries[cluster]
            entry.first, entry.last = min(entry.first, first), max(entry.last, last)

    def _times(self, events: Events) -> Sequence[int]:
        """Return when the events were: their times, or the lines if the first have no times."""
        times = events.batch.times_us or ()
        known = min(filter(None, times), default=self._known_us)  # 0: no time was found so far
        if self.has_times and known is None:
            self.has_times, self.axis = False, Axis(1, slides=False)
        if self.has_times and known is not None:
            self._known_us = known
            return [time_us or known for time_us in times]
        return [self._before + number for number in events.numbers]

    def _open(self, cluster: int, value: bytes, group: str, at: int) -> None:
        if cluster in self._entries:
            return
        entry = Entry(cluster, 0, at, at, group=group_text(group) if group else "")
        self._name(entry, Summary(cluster, 0, None, 0, 0, 0, 0, Position("", 0, 0), value))
        self._entries[cluster] = entry

    def _name(self, entry: Entry, summary: Summary) -> None:
        described = self._dedup.describe(summary)
        entry.pattern, entry.variant = described.pattern, described.variant

    def _keep(self, summaries: Sequence[Summary]) -> None:
        """Keep final summaries; a cluster that has merged becomes part of another one."""
        for summary in summaries:
            self._summaries[summary.cluster] = summary
            entry = self._entries.get(summary.cluster)
            if entry is None:
                continue
            if summary.closing is not Closing.ENDED:
                entry.open = False
            if summary.merged_into is not None:
                self._merged[summary.cluster] = summary.merged_into
            if summary.learned != entry.learned:
                entry.learned = summary.learned
                self._name(entry, summary)
        for cluster in [each for each in self._merged if each in self._entries]:
            root = cluster
            while root in self._merged:
                root = self._merged[root]
            into = self._entries.get(root)
            if into is None:
                continue
            entry = self._entries.pop(cluster)
            into.count += entry.count
            into.first, into.last = min(into.first, entry.first), max(into.last, entry.last)
            into.counts.merge(self.axis, entry.counts)

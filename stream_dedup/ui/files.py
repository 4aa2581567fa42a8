"""The clusters of files: the embedded engine reads them in a thread, while pages are shown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
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
from stream_dedup.rules.model import PatternRule
from stream_dedup.ui.counts import Axis
from stream_dedup.ui.finding import InFiles
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import SourceRules, mark_of
from stream_dedup.ui.sources import Commands, Details, Status, group_text

VALUES = 64
"""Events of a cluster whose values are counted."""

ALL_LINES = 1 << 62

MAX_FUTURE_US = 24 * 3600 * US_PER_S
"""A time without a zone is read as UTC, but its zone may be up to 14 hours ahead of it."""

LOOK_S = 1.0
"""Time between two looks at the rules."""


class FileSource:
    """Files, read once, and again whenever the rules have changed.

    Args:
        paths: the files.
        recipe: what counts as near.
        reading: how they are read.
        max_clusters: kept at most.
        rules: what people decided about patterns.
    """

    kind = "files"

    def __init__(
        self,
        paths: Sequence[str],
        recipe: Recipe,
        reading: DecoderOptions,
        max_clusters: int,
        rules: SourceRules | None = None,
    ) -> None:
        self.name = "files"
        self.title = ", ".join(PurePath(path).name for path in paths[:3])
        self.rules = rules or SourceRules(
            hint="start stream-dedup ui with --rules FILE to decide here; FILE may be a new one"
        )
        self._recipe = recipe
        self._new_pass = partial(Pass, paths, recipe, reading, max_clusters)
        self._shown = self._reading = self._new_pass()
        self._commands = InFiles(paths)
        self._problem = ""

    @property
    def has_times(self) -> bool:
        """Whether times are known; if not, lines stand for them."""
        return self._shown.has_times

    @property
    def axis(self) -> Axis:
        """Of the counts of all entries."""
        return self._shown.axis

    @cached_property
    def inspector(self) -> Inspector:
        """Compares events as its recipe does."""
        return Inspector(self._recipe)

    @property
    def entries(self) -> Mapping[int, Entry]:
        """All clusters by their ids; those that have merged are part of another one."""
        return self._shown.entries

    @property
    def commands(self) -> Commands:
        """What finds events."""
        return self._commands

    def status(self) -> Status:
        """Return how far the files are read."""
        shown, reading = self._shown, ""
        if self._reading is not shown:
            reading = f"again, as the rules have changed: {self._reading.events:,} events so far"
        elif not shown.done:
            reading = f"{shown.events:,} events so far"
        problems = [*shown.problems, self._problem or self.rules.problem]
        problem = "; ".join(filter(None, problems))
        return Status(problem, reading, shown.events, None, shown.passed)

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Do nothing: files are read whole."""

    async def run(self) -> None:
        """Read the files, and again whenever the rules have changed."""
        book = None
        task: asyncio.Task[None] | None = None
        try:
            while True:
                await self._look_at_rules()
                if task is not None and task.done():
                    task.result()  # an error that it did not expect
                if book is not self.rules.book:
                    if task is not None:
                        self._reading.stop.set()
                        await task
                    book = self.rules.book
                    task = asyncio.create_task(self._read(book.acting()))
                await asyncio.sleep(LOOK_S)
        finally:
            self._reading.stop.set()

    async def _look_at_rules(self) -> None:
        try:
            await self.rules.refresh()
            self._problem = ""
        except StreamDedupError as error:
            self._problem = str(error)

    async def _read(self, rules: Sequence[PatternRule]) -> None:
        """Read the files; what was read before is shown until all is read."""
        if rules or self._shown.begun:
            self._reading = self._new_pass(rules)
        if not self._shown.done:
            self._shown = self._reading
        await asyncio.to_thread(self._reading.read)
        if self._reading.done:
            self._shown = self._reading

    def read(self) -> None:
        """Read the files, here and now."""
        self._shown.read()

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster; while the files are read, what is known so far."""
        return await self._shown.details(identity)

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        return await self._shown.firsts(identities)


class Pass:
    """Files, read once under rules that stay as they are.

    Args:
        paths: the files.
        recipe: what counts as near.
        reading: how they are read.
        max_clusters: kept at most.
        rules: what people decided about patterns.

    Attributes:
        rules: as given.
        has_times, axis, entries: as of a source.
        problems: why files were not read whole.
        events: that were read, and are in a cluster.
        passed: that were read, and are in none.
        begun: whether it was begun.
        done: whether all is read.
        stop: set to end it before.
    """

    def __init__(
        self,
        paths: Sequence[str],
        recipe: Recipe,
        reading: DecoderOptions,
        max_clusters: int,
        rules: Sequence[PatternRule] = (),
    ) -> None:
        self.rules = rules
        self.has_times = reading.event_times
        self.axis = Axis(US_PER_S if self.has_times else 1, slides=False)
        self.entries: dict[int, Entry] = {}
        self.problems: list[str] = []
        self.events = self.passed = 0
        self.begun = self.done = False
        self.stop = threading.Event()
        self._paths = paths
        self._reading = reading
        self._summaries: dict[int, Summary] = {}
        self._merged: dict[int, int] = {}
        self._dedup = Deduplicator(
            recipe,
            windows=Windows(FOREVER_US, FOREVER_US, MAX_FUTURE_US),
            summaries=Summaries(every_us=None, values=VALUES, values_every=1),
            limits=Limits(max_clusters=max_clusters),
            rules=rules,
        )
        self._lines = self._before = 0
        self._now_us = SystemClock().now_us()
        self._known_us: int | None = None

    def read(self) -> None:
        """Read the files, here and now."""
        self.begun = True
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
                    if self.stop.is_set():
                        return
                    self._take(events, self._dedup.process_batch(events.batch))
                    self._keep(self._dedup.due(patterns=False))
            except StreamDedupError as error:
                self.problems.append(str(error))
        self._keep(self._dedup.close(patterns=False))
        self.done = True

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster; while the files are read, what is known so far."""
        while identity in self._merged:
            identity = self._merged[identity]
        entry, summary = self.entries.get(identity), self._summaries.get(identity)
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
        self.events += len(decisions) - passed
        self.passed += passed
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
            if decision.kind is Kind.NEW or cluster not in self.entries:
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
            entry = self.entries[cluster]
            entry.count += count
            entry.counts.add(axis, bucket * axis.width, count)
        for cluster, (first, last) in seen.items():
            entry = self.entries[cluster]
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
        if cluster in self.entries:
            return
        entry = Entry(cluster, 0, at, at, group=group_text(group) if group else "")
        self._name(entry, Summary(cluster, 0, None, 0, 0, 0, 0, Position("", 0, 0), value))
        self.entries[cluster] = entry

    def _name(self, entry: Entry, summary: Summary) -> None:
        described = self._dedup.describe(summary)
        entry.pattern, entry.variant = described.pattern, described.variant
        entry.mark = mark_of(self._dedup, summary.representative)

    def _keep(self, summaries: Sequence[Summary]) -> None:
        """Keep final summaries; a cluster that has merged becomes part of another one."""
        for summary in summaries:
            self._summaries[summary.cluster] = summary
            entry = self.entries.get(summary.cluster)
            if entry is None:
                continue
            if summary.closing is not Closing.ENDED:
                entry.open = False
            if summary.merged_into is not None:
                self._merged[summary.cluster] = summary.merged_into
            if summary.learned != entry.learned:
                entry.learned = summary.learned
                self._name(entry, summary)
        for cluster in [each for each in self._merged if each in self.entries]:
            root = cluster
            while root in self._merged:
                root = self._merged[root]
            into = self.entries.get(root)
            if into is None:
                continue
            entry = self.entries.pop(cluster)
            into.count += entry.count
            into.first, into.last = min(into.first, entry.first), max(into.last, entry.last)
            into.counts.merge(self.axis, entry.counts)

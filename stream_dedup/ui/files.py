"""The clusters of files: the embedded engine reads them in a thread, while pages are shown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath

from stream_dedup.cli.reading import read_events
from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.errors import StreamDedupError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.rules.model import PatternRule
from stream_dedup.ui.clusters import Clusters
from stream_dedup.ui.finding import InFiles
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import SourceRules
from stream_dedup.ui.sources import Details, Status
from stream_dedup.volume.counts import Axis

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
        self.inputs = [PurePath(path).name for path in paths]
        self.title = ", ".join(self.inputs[:3])
        self.rules = rules or SourceRules()
        self.inspector = Inspector(recipe)
        self.commands = InFiles(paths)
        self._new_pass = partial(Pass, paths, recipe, reading, max_clusters)
        self._shown = self._reading = self._new_pass()
        self._former: Mapping[int, Entry] = {}  # shown before, under other rules
        self._problem = ""

    @property
    def has_times(self) -> bool:
        """Whether times are known; if not, lines stand for them."""
        return self._shown.has_times

    @property
    def axis(self) -> Axis:
        """Of the counts of all entries."""
        return self._shown.clusters.axis

    @property
    def entries(self) -> Mapping[int, Entry]:
        """All clusters by their ids; those that have merged are part of another one."""
        return self._shown.clusters.entries

    def entry(self, identity: int) -> Entry | None:
        """Return a cluster; one of before the rules changed is the one of its pattern now.

        Rules are part of what makes an id, and pages that are open name those of before.
        """
        entry = self.entries.get(identity)
        former = self._former.get(identity)
        if entry is not None or former is None:
            return entry
        wanted = former.pattern, former.variant, former.group
        for each in list(self.entries.values()):
            if (each.pattern, each.variant, each.group) == wanted:
                return each
        return None

    def status(self) -> Status:
        """Return how far the files are read."""
        shown, reading = self._shown, ""
        clusters = shown.clusters
        if self._reading is not shown:
            events = self._reading.clusters.events
            reading = f"again, as the rules have changed: {events:,} events so far"
        elif not shown.done:
            reading = f"{shown.clusters.events:,} events so far"
        problems = [*shown.problems, self._problem or self.rules.problem]
        problem = "; ".join(filter(None, problems))
        return Status(problem, reading, clusters.events, None, clusters.passed)

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Do nothing: files are read whole."""

    async def run(self) -> None:
        """Read the files, and again whenever the rules have changed."""
        book = None
        task: asyncio.Task[None] | None = None
        try:
            while True:
                self._problem = await self.rules.look()
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

    async def _read(self, rules: Sequence[PatternRule]) -> None:
        """Read the files; what was read before is shown until all is read."""
        if rules or self._shown.begun:
            self._reading = self._new_pass(rules)
        if not self._shown.done:
            self._shown = self._reading
        await asyncio.to_thread(self._reading.read)
        if self._reading.done and self._reading is not self._shown:
            self._former, self._shown = self.entries, self._reading

    def read(self) -> None:
        """Read the files, here and now."""
        self._shown.read()

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster; while the files are read, what is known so far."""
        return await asyncio.to_thread(self._shown.clusters.details, identity)

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        return await asyncio.to_thread(self._shown.clusters.firsts, identities)


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
        has_times: as of a source.
        clusters: what they hold.
        problems: why files were not read whole.
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
        axis = Axis(US_PER_S if self.has_times else 1, slides=False)
        self.clusters = Clusters(
            recipe, axis, max_clusters, rules=rules, inputs=len(paths) if len(paths) > 1 else 0
        )
        self.problems: list[str] = []
        self.begun = self.done = False
        self.stop = threading.Event()
        self._paths = paths
        self._reading = reading
        self._lines = self._before = 0
        self._now_us = SystemClock().now_us()
        self._known_us: int | None = None

    def read(self) -> None:
        """Read the files, here and now."""
        self.begun = True
        clusters = self.clusters
        for number, path in enumerate(self._paths):
            self._before = self._lines
            try:
                for events in read_events(
                    path, self._reading, clusters.dedup.recipe, now_us=self._now_us
                ):
                    if self.stop.is_set():
                        return
                    clusters.take(events, self._times(events), number)
                    self._lines += events.lines
            except StreamDedupError as error:
                self.problems.append(str(error))
        clusters.close()
        self.done = True

    def _times(self, events: Events) -> Sequence[int]:
        """Return when the events were: their times, or the lines if the first have no times."""
        times = events.batch.times_us or ()
        known = min(filter(None, times), default=self._known_us)  # 0: no time was found so far
        if events.raws and self.has_times and known is None:
            self.has_times = False
            self.clusters.axis = Axis(1, slides=False)
        if self.has_times and known is not None:
            self._known_us = known
            return [time_us or known for time_us in times]
        return [self._before + number for number in events.numbers]

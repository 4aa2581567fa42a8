"""The clusters of standard input, pipes, and files that grow: a thread reads them.

Events are counted in buckets of the time that they give, or else of their arrival; later than now
is now, so that a wrong clock cannot move the window. What was read cannot be read again, so rules
act on the events that follow.

Memory is bounded: `max_clusters` open clusters, `MAX_CLOSED` closed ones, and the line that is
being read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import PurePath

from stream_dedup.cli.inputs import POLL_S, Input, open_input, turns
from stream_dedup.clock import US_PER_S, Clock
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.emit.summaries import iso_time
from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.model import Partition
from stream_dedup.rules.book import RuleBook
from stream_dedup.ui.clusters import Clusters
from stream_dedup.ui.files import LOOK_S
from stream_dedup.ui.finding import InFiles
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import SourceRules
from stream_dedup.ui.sources import Details, Status
from stream_dedup.volume.counts import BUCKETS, Axis

MAX_CLOSED = 20_000
"""Closed clusters that are kept."""

END_S = 2.0
"""How long the thread may take to end: one that waits for a named pipe's writer does not."""

ACTS = (
    "A change acts within a second, on the events that follow. What was counted before stays where "
    "it was counted."
)
"""When a change of the rules acts."""

log = logging.getLogger(__name__)


class LiveSource:
    """Inputs that are read as they grow.

    Args:
        paths: files, pipes, and ``-`` for standard input.
        recipe: what counts as near.
        reading: how they are read.
        max_clusters: open ones, kept at most.
        window_us: how far back counts over time go.
        clock: tells when events arrive.
        note: writes a message to the user.
        rules: what people decided about patterns.
        follow: whether files are followed; if not, they are read to their ends.
    """

    kind = "live"
    has_times = True
    inputs = ()

    def __init__(
        self,
        paths: Sequence[str],
        recipe: Recipe,
        reading: DecoderOptions,
        max_clusters: int,
        window_us: int,
        clock: Clock,
        note: Callable[[str], None],
        rules: SourceRules | None = None,
        *,
        follow: bool = False,
    ) -> None:
        self.name = "live"
        names = ["standard input" if path == "-" else PurePath(path).name for path in paths[:3]]
        self.title = ", ".join(names)
        self.rules = rules or SourceRules()
        self._paths = paths
        self.axis = Axis(max(1, window_us // BUCKETS), slides=True)
        self.inspector = Inspector(recipe)
        self.commands = InFiles(paths, grows=True)
        self._reading = reading
        self._follow = follow
        self._clock = clock
        self._tell = note
        self._clusters = Clusters(
            recipe,
            self.axis,
            max_clusters,
            max_closed=MAX_CLOSED,
            quiet_after_us=round(POLL_S * US_PER_S),
        )
        self.entries = self._clusters.entries
        self._applied: RuleBook | None = None
        self._problems: list[str] = []
        self._problem = self._note = ""
        self._stop = threading.Event()
        self._woken, self._wake = os.pipe()

    def entry(self, identity: int) -> Entry | None:
        """Return a cluster."""
        return self.entries.get(identity)

    def status(self) -> Status:
        """Return what could not be read, and what happened last."""
        clusters = self._clusters
        problem = "; ".join(filter(None, [*self._problems, self._problem or self.rules.problem]))
        return Status(problem, "", clusters.events, None, clusters.passed, self._note)

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Do nothing: all is current."""

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster."""
        return await asyncio.to_thread(self._clusters.details, identity)

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        return await asyncio.to_thread(self._clusters.firsts, identities)

    async def run(self) -> None:
        """Read in a thread, and act by the rules as they are."""
        await self._follow_rules()
        thread = threading.Thread(target=self._read, name="reading", daemon=True)
        thread.start()
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self._follow_rules()
        finally:
            self._stop.set()
            os.write(self._wake, b"\0")
            thread.join(END_S)

    async def _follow_rules(self) -> None:
        """Take up rules that have changed."""
        self._problem = await self.rules.look()
        book = self.rules.book
        if book is not self._applied:
            self._applied = book
            await asyncio.to_thread(self._act_by, book)

    def _act_by(self, book: RuleBook) -> None:
        """Act by rules, and name again what they are about or were about."""
        self._clusters.dedup.use_rules(book.acting())
        for entry in list(self.entries.values()):
            if entry.mark is not None or self.rules.about(entry.pattern):
                self._clusters.name_again(entry)

    # ------------------------------------------------------------ reading, in a thread

    def _read(self) -> None:
        try:
            self._read_all()
        except Exception:
            log.exception("%s cannot be read further", self.title)
            self._problems.append("it cannot be read further; the log says why")

    def _read_all(self) -> None:
        """Read until all has ended, or `_stop` is set."""
        inputs = list(filter(None, map(self._open, self._partitions())))
        with ExitStack() as stack:
            for each in inputs:
                stack.enter_context(each.source)
            for each_or_none, reads in turns(inputs, self._woken):
                if self._stop.is_set():
                    return
                if each_or_none is None:
                    continue
                each = each_or_none
                if not reads:
                    self._take(each.decoder.flush(self._clock.now_us()))
                elif not self._read_some(each):
                    inputs.remove(each)
                    self._end(each)

    def _partitions(self) -> list[Partition]:
        # A path given twice is two inputs: their lines are different positions.
        seen: Counter[str] = Counter()
        out = []
        for path in self._paths:
            out.append(Partition(path, seen[path]))
            seen[path] += 1
        return out

    def _open(self, partition: Partition) -> Input | None:
        recipe = self._clusters.dedup.recipe
        try:
            return open_input(partition, self._reading, recipe, self._noted, follow=self._follow)
        except InputError as error:
            self._failed(error)
            return None

    def _read_some(self, each: Input) -> bool:
        """Read the next lines; whether there may be more."""
        try:
            lines = each.source.read()
        except InputError as error:
            self._failed(error)
            return False
        if lines is not None:
            self._take(each.decoder.decode(lines, self._clock.now_us()))
        return lines is not None

    def _end(self, each: Input) -> None:
        self._take(each.decoder.flush(self._clock.now_us()))
        self._clusters.dedup.release(each.partition)
        self._noted(f"{each.source.name} has ended: {self._clusters.events:,} events were read")

    def _take(self, events: Events) -> None:
        if not events.raws:
            return
        now_us = self._clock.now_us()
        times = events.batch.times_us or [0] * len(events.raws)
        # 0: no time was found so far.
        self._clusters.take(events, [min(time_us or now_us, now_us) for time_us in times])

    def _failed(self, error: InputError) -> None:
        self._problems.append(str(error))
        self._tell(str(error))

    def _noted(self, text: str) -> None:
        """Say what happened, in the pages too."""
        moment = iso_time(self._clock.now_us() // US_PER_S * US_PER_S)
        self._note = f"{moment[11:19]} {text}"
        with contextlib.suppress(OSError):  # nobody reads it
            self._tell(text)

"""The clusters of events that this process decides itself, as the pages show them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FILES_MAX_FUTURE_US, FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.io.decoder import Events, split_by_time
from stream_dedup.model import Batch, Closing, Decision, Kind, Position, Summary
from stream_dedup.rules.model import PatternRule
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import mark_of
from stream_dedup.ui.sources import Details, group_text
from stream_dedup.volume.counts import Axis

VALUES = 64
"""Events of a cluster whose values are counted."""


class Clusters:
    """Decides events with the embedded engine, and counts them by cluster and time.

    One thread calls `take` and `close`; any other may read.

    Args:
        recipe: what counts as near.
        axis: of the counts.
        max_clusters: open ones that are kept at most; with more, the least recently seen is closed.
        max_closed: closed ones that are kept at most; None for all.
        quiet_after_us: as of `Windows`.
        rules: what people decided about patterns.
        inputs: files whose events are counted each; 0 for none.

    Attributes:
        axis: as given.
        dedup: the engine.
        entries: all clusters by their ids; those that have merged are part of another one.
        events: that were taken, and are in a cluster.
        passed: that were taken, and are in none.
    """

    def __init__(
        self,
        recipe: Recipe,
        axis: Axis,
        max_clusters: int,
        *,
        max_closed: int | None = None,
        quiet_after_us: int = FOREVER_US,
        rules: Sequence[PatternRule] = (),
        inputs: int = 0,
    ) -> None:
        self.axis = axis
        self.dedup = Deduplicator(
            recipe,
            windows=Windows(FOREVER_US, FOREVER_US, FILES_MAX_FUTURE_US, quiet_after_us),
            summaries=Summaries(every_us=None, values=VALUES, values_every=1),
            limits=Limits(max_clusters=max_clusters),
            rules=rules,
        )
        self.entries: dict[int, Entry] = {}
        self.events = self.passed = 0
        self._inputs = inputs
        self._max_closed = max_closed
        self._closed: OrderedDict[int, None] = OrderedDict()
        self._summaries: dict[int, Summary] = {}
        self._merged: OrderedDict[int, int] = OrderedDict()

    def take(self, events: Events, ats: Sequence[int], number: int = 0) -> None:
        """Decide events and count them.

        Args:
            events: the events.
            ats: when each was: microseconds, or a line.
            number: of the file that they come from.
        """
        start = 0
        for part in split_by_time(events, FOREVER_US, self.dedup.part_events):
            batch, end = part.batch, start + len(part.raws)
            decisions = self.dedup.process_batch(batch)
            if decisions:
                self._count(decisions, ats[start:end], part.raws, batch, number)
            passed = sum(decision.cluster is None for decision in decisions)
            self.events += len(decisions) - passed
            self.passed += passed
            self._keep(self.dedup.due(patterns=False))
            start = end

    def close(self) -> None:
        """Keep what is known now: no event follows."""
        self._keep(self.dedup.close(patterns=False))

    def _count(
        self,
        decisions: Sequence[Decision],
        ats: Sequence[int],
        raws: Sequence[bytes],
        batch: Batch,
        number: int,
    ) -> None:
        axis, groups = self.axis, batch.groups
        axis.reach(min(ats))
        axis.reach(max(ats))
        counted: dict[tuple[int, int], int] = {}
        seen: dict[int, list[int]] = {}
        for row, (decision, at) in enumerate(zip(decisions, ats, strict=True)):
            cluster = decision.cluster
            if cluster is None:
                continue
            if decision.kind is Kind.NEW or cluster not in self.entries:
                self._open(cluster, batch.values[row], groups[row] if groups else "", at)
            self.entries[cluster].bytes += len(raws[row])
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
            if entry.inputs is not None:
                entry.inputs[number] += count
            entry.counts.add(axis, bucket * axis.width, count)
        for cluster, (first, last) in seen.items():
            entry = self.entries[cluster]
            entry.first, entry.last = min(entry.first, first), max(entry.last, last)

    def _keep(self, summaries: Iterable[Summary]) -> None:
        """Keep final summaries; a cluster that has merged becomes part of another one."""
        merged = []
        for summary in summaries:
            identity = summary.cluster
            self._summaries[identity] = summary
            if summary.merged_into is not None:
                self._merged[identity] = summary.merged_into
                merged.append(identity)
            entry = self.entries.get(identity)
            if entry is None:
                continue
            if summary.learned != entry.learned:
                entry.learned = summary.learned
                self._name(entry, summary)
            if summary.closing is not Closing.ENDED:
                entry.open = False
                self._closed[identity] = None
        for identity in merged:
            self._join(identity)
        self._forget()

    def _join(self, identity: int) -> None:
        """Make a cluster that has merged a part of the one that goes on."""
        into = self.entries.get(self.root(identity))
        entry = self.entries.get(identity)
        if into is None or entry is None:
            return
        del self.entries[identity]
        self._closed.pop(identity, None)
        into.count += entry.count
        into.bytes += entry.bytes
        into.first, into.last = min(into.first, entry.first), max(into.last, entry.last)
        if into.inputs is not None and entry.inputs is not None:
            into.inputs = [sum(pair) for pair in zip(into.inputs, entry.inputs, strict=True)]
        into.counts.merge(self.axis, entry.counts)

    def _forget(self) -> None:
        """Keep memory bounded."""
        if self._max_closed is None:
            return
        while len(self._closed) > self._max_closed:
            identity, _ = self._closed.popitem(last=False)
            del self.entries[identity]
            self._summaries.pop(identity, None)
        while len(self._merged) > self._max_closed:
            identity, _ = self._merged.popitem(last=False)
            self._summaries.pop(identity, None)

    def name_again(self, entry: Entry) -> None:
        """Name a cluster, and mark it, by the rules and the words known now."""
        summary = self._summaries.get(entry.identity) or self.dedup.summary(entry.identity)
        if summary is not None:
            entry.learned = summary.learned
            self._name(entry, summary)

    def root(self, identity: int) -> int:
        """The cluster that goes on for one."""
        while identity in self._merged:
            identity = self._merged[identity]
        return identity

    def details(self, identity: int) -> Details | None:
        """Return everything about a cluster, as far as it is known now."""
        identity = self.root(identity)
        entry = self.entries.get(identity)
        summary = self._summaries.get(identity)
        found = self.dedup.summary(identity) if summary is None else self.dedup.describe(summary)
        if entry is None or found is None:
            return None
        return Details(found, "open" if entry.open else "closed")

    def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        found = (self._summaries.get(each) or self.dedup.summary(each) for each in identities)
        return [summary.representative if summary else None for summary in found]

    def _open(self, cluster: int, value: bytes, group: str, at: int) -> None:
        if cluster in self.entries:
            return
        entry = Entry(cluster, 0, at, at, group=group_text(group) if group else "")
        self._name(entry, Summary(cluster, 0, None, 0, 0, 0, 0, Position("", 0, 0), value))
        entry.inputs = [0] * self._inputs if self._inputs else None
        self.entries[cluster] = entry

    def _name(self, entry: Entry, summary: Summary) -> None:
        described = self.dedup.describe(summary)
        entry.pattern, entry.variant = described.pattern, described.variant
        entry.mark = mark_of(self.dedup, summary.representative)

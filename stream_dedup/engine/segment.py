"""A segment: the part of a batch that is decided and committed to the index at once.

How a segment is decided
------------------------
1. `limit_to_one_commit` looks its events up in the near cache and shortens it if need be.
2. `decide_without_index` decides what the journal holds, and passes events that have no text.
3. `_join_cached` lets events join the clusters that the near cache knows; in a log storm nearly
   all. Everything here is done once for each different cache entry, not for each event.
4. `_select_queries` picks one of equal events to query; the others wait for its answer.
5. `_resolve` fingerprints the selected events and asks the index.
6. `_apply` counts each answer and stores it in the near cache. Then step 3 for those that waited.

Meanwhile `deltas` collects what the segment adds to each cluster; `commit` is what the engine then
records. Where the index answers that clusters have closed, `undo` takes their events back, and
they are decided again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from operator import itemgetter, not_, or_
from typing import TypeVar

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode, group_min_max, group_sizes, rows_of, take
from stream_dedup.engine.hashing import HashedBatch, Hasher
from stream_dedup.engine.near_cache import CachedCluster, CachedDecision, Key, Lookup, NearCache
from stream_dedup.engine.sampling import Sampler
from stream_dedup.errors import IndexReset
from stream_dedup.features.values import SlotReader
from stream_dedup.index.base import (
    DELTA_BYTES,
    MAX_DELTAS,
    ClusterDelta,
    Commit,
    Index,
    Query,
    Resolution,
)
from stream_dedup.index.groups import with_rules, with_variant
from stream_dedup.model import Decision, FoundBy, Kind, Position
from stream_dedup.rules.keeping import Keeping, KeptCounts
from stream_dedup.rules.model import RuleKind

NO_TOKENS = Decision(Kind.PASSED, reason="nothing to fingerprint")
"""The decision for an event without tokens: an empty line, or delimiters only."""

REPLAYED = "replayed"
"""Reason of a decision that is made, but not counted, for an event that was counted before."""

NEW, DUPLICATE = Kind.NEW, Kind.DUPLICATE  # an attribute of an enumeration costs as much as a call

Named = tuple[int | None, int]
"""`Decision.template` and `Decision.varied`."""

NOT_NAMED: Named = None, 0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SegmentContext:
    """What all segments of an engine share.

    Attributes:
        index: where clusters are kept.
        hasher: hashes events, and templates if decisions name them.
        cache: the near cache.
        windows: when clusters are live.
        summaries: what is kept of clusters.
        sampler: chooses events whose values are counted; None: none are.
        slots: finds the learned words of events, if decisions name them.
        duplicates_leave: whether anybody reads what decisions name of duplicates.
    """

    index: Index
    hasher: Hasher
    cache: NearCache
    windows: Windows
    summaries: Summaries
    sampler: Sampler | None = None
    slots: SlotReader | None = None
    duplicates_leave: bool = True


@lru_cache(maxsize=256)
def _passed(reason: str) -> Decision:
    return Decision(Kind.PASSED, reason=reason)


@dataclass(slots=True)
class Segment:
    """Consecutive events of a batch while they are decided. A row of the batch names an event.

    Attributes:
        context: what decides.
        hashed: the batch.
        times_us: its event times.
        decisions: its decisions; the segment fills in its own.
        now_us: the clock.
        start: the segment's first row.
        end: the row after its last.
        deltas: what it adds to each cluster. Kept here and not in the cache: clusters that are
            forgotten meanwhile still count.
        opened: events that opened a cluster.
        passed: events that were passed, by reason.
        found_by: by the rows that the index was asked about, how it found their clusters.
        redelivered: events that were decided and counted before, and are decided alike.
        replayed: events that were counted before and are decided by what the index holds now.
    """

    context: SegmentContext
    hashed: HashedBatch
    times_us: Sequence[int]
    decisions: list[Decision]
    now_us: int
    start: int
    end: int
    deltas: dict[CachedCluster, ClusterDelta] = field(default_factory=dict)
    opened: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    found_by: dict[int, FoundBy] = field(default_factory=dict)
    redelivered: int = 0
    replayed: int = 0
    _lookup: Lookup = field(default=Lookup([], array("H")))

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def first_offset(self) -> int:
        """The offset of its first event."""
        return self.hashed.batch.offsets[self.start]

    @property
    def _raws(self) -> Sequence[bytes | None]:
        """The batch's events as they were read."""
        batch = self.hashed.batch
        return batch.values if batch.raws is None else batch.raws

    @property
    def last_offset(self) -> int:
        """The offset of its last event."""
        return self.hashed.batch.offsets[self.end - 1]

    # ------------------------------------------------------------ how long it is

    def limit_to_one_commit(self) -> None:
        """Look its events up in the near cache, and end it where a commit would be too large."""
        keys = self.hashed.keys
        self._lookup = self.context.cache.look_up(keys[self.start : self.end])
        if not self._fits():
            count = self._rows_that_fit()
            self.end = self.start + count
            codes = self._lookup.codes[:count]
            self._lookup = Lookup(self._lookup.entries[: max(codes) + 1], codes)

    def _fits(self) -> bool:
        """Return whether it certainly fits into a commit (see `MAX_DELTAS`).

        An upper bound: a delta for each different entry and for each event that may open another
        cluster; and the values of those events and of clusters that take samples.
        """
        values, max_bytes = self.hashed.batch.values, self.context.summaries.max_value_bytes
        entries, codes = self._lookup
        latest_us = max(self.times_us[self.start : self.end])
        may_open = [entry is None or entry.cluster.live_until_us < latest_us for entry in entries]
        sampled = [entry is None or entry.cluster.samples_wanted > 0 for entry in entries]
        weight = (len(entries) + len(rows_of(codes, may_open))) * DELTA_BYTES
        rows, start = rows_of(codes, list(map(or_, may_open, sampled))), self.start
        weight += sum([min(max_bytes, len(values[start + row])) for row in rows])
        return weight <= MAX_DELTAS * DELTA_BYTES

    def _rows_that_fit(self) -> int:
        """Return how many events fit into a commit, at least one, looking at each that matters.

        Many may be alike. The second event of a new cluster counts as another delta, because the
        cluster then needs a place in the queue of summaries. Of a cluster that stays live and
        takes no samples, only the first event of each entry counts.
        """
        keys, values, times_us = self.hashed.keys, self.hashed.batch.values, self.times_us
        max_bytes, samples = self.context.summaries.max_value_bytes, self.context.summaries.samples
        is_live = self.context.windows.live
        entries, codes = self._lookup
        latest_us = max(times_us[self.start : self.end])
        once = [
            entry is not None
            and not entry.cluster.forgotten
            and not entry.cluster.samples_wanted
            and is_live(entry.cluster.opened_us, entry.cluster.last_us, latest_us)
            for entry in entries
        ]
        numbers, number = rows_of(codes, list(map(not_, once))), 0
        for code, counts_once in enumerate(once):
            number = codes.index(code, number)  # codes are in order of first appearance
            if counts_once:
                numbers.append(number)
        room = MAX_DELTAS * DELTA_BYTES
        # key → events so far of its latest cluster, when that was opened and last seen, and what
        # the cache knows of it
        seen: dict[Key, tuple[int, int, int, CachedCluster | None]] = {}
        for number in sorted(numbers):
            row = self.start + number
            key, entry, time_us = keys[row], entries[codes[number]], times_us[row]
            if key in seen:
                before, opened_us, last_us, cached = seen[key]
            else:
                before, opened_us, last_us, cached = 0, time_us, time_us, None
                if entry and not entry.cluster.forgotten:
                    cached = entry.cluster
                    opened_us, last_us = cached.opened_us, cached.last_us
            if not is_live(opened_us, last_us, time_us):  # this event opens another cluster
                before, opened_us, last_us, cached = 0, time_us, time_us, None
            seen[key] = before + 1, opened_us, max(last_us, time_us), cached
            if before < (1 if cached else 2):
                room -= DELTA_BYTES
            if before < (cached.samples_wanted if cached else 1 + samples):
                room -= min(max_bytes, len(values[row]))
            if room < 0:
                return max(1, number)
        return len(self)

    # ------------------------------------------------------------ deciding

    def decide_without_index(
        self, journal: Mapping[int, Decision], *, counted: bool
    ) -> Sequence[int]:
        """Decide events of the journal and those to be passed; return the rows of all others.

        Args:
            journal: decisions that were recorded.
            counted: whether they were counted here, too; not if the answer to that commit was lost.
        """
        passed, offsets = self.hashed.batch.passed, self.hashed.batch.offsets
        if not journal and not passed:
            return range(self.start, self.end)
        rows = []
        for row in range(self.start, self.end):
            decision = journal.get(offsets[row])
            if decision is not None:
                self.decisions[row] = decision
                self._count_recorded(decision, counted=counted)
            elif row in passed:
                self._pass(row, _passed(passed[row]))
            else:
                rows.append(row)
        return rows

    def _count_recorded(self, decision: Decision, *, counted: bool) -> None:
        if counted:
            self.redelivered += 1
        elif decision.kind is NEW:
            self.opened += 1
        elif decision.kind is Kind.PASSED:
            self.passed[decision.reason] += 1

    def _pass(self, row: int, decision: Decision) -> None:
        self.decisions[row] = decision
        self.passed[decision.reason] += 1

    async def decide(self, rows: Sequence[int]) -> None:
        """Decide events and count them."""
        lookup = self._lookup
        if len(rows) < len(self):
            lookup = self.context.cache.look_up(_selected(self.hashed.keys, rows))
        while rows:
            unknown = self._join_cached(rows, lookup)
            queried, waiting = self._select_queries(unknown)
            answered = self._apply(await self._resolve(queried))
            # An event takes the answer that it waited for, not a later one to an equal event.
            rows = list(waiting)
            entries: list[CachedDecision | None] = [answered[first] for first in waiting.values()]
            lookup = Lookup(*dictionary_encode(entries))

    async def replay(self, rows: Sequence[int]) -> None:
        """Decide events that were counted before, by what the index holds now; count nothing."""
        queried, waiting = self._select_queries(rows)
        for row, (query, resolution, named) in (await self._resolve(queried)).items():
            kind = NEW if resolution.new else DUPLICATE
            shown = self.context.hasher.shown(query.fingerprint)
            self.decisions[row] = Decision(
                kind, resolution.cluster, resolution.distance, shown, REPLAYED, *named
            )
        for row, first in waiting.items():
            self.decisions[row] = self.decisions[first]._replace(kind=DUPLICATE)

    def _join_cached(self, rows: Sequence[int], lookup: Lookup) -> Sequence[int]:
        """Let events join the clusters that the cache knows; return the rows of the others."""
        entries, codes = lookup
        spans = group_min_max(codes, _selected(self.times_us, rows), len(entries))
        sizes = group_sizes(codes, _selected(self._raws, rows), len(entries))
        remaining = self.context.cache.join(entries, spans)
        deltas = self.deltas
        for entry, span, size, remains in zip(entries, spans, sizes, remaining, strict=True):
            if remains or entry is None:
                continue
            cluster = entry.cluster
            if cluster in deltas:
                self._count(cluster, *span, size)
            else:  # as `_count` does
                deltas[cluster] = ClusterDelta(cluster.cluster_id, *span, size=size)
        decisions = take([entry.decision if entry else NO_TOKENS for entry in entries], codes)
        if isinstance(rows, range):
            self.decisions[rows.start : rows.stop] = decisions
        else:
            for row, decision in zip(rows, decisions, strict=True):
                self.decisions[row] = decision
        unknown = []
        for number in rows_of(codes, remaining):
            entry, row = entries[codes[number]], rows[number]
            if entry is None or not self._join(row, entry.cluster):
                unknown.append(row)
        return unknown

    def _join(self, row: int, cluster: CachedCluster) -> bool:
        """Count one event, if its cluster is certainly live; return whether it is."""
        time_us = self.times_us[row]
        if not self.context.cache.is_live(cluster, time_us):
            return False
        cluster.seen(time_us)
        delta = self._count(cluster, 1, time_us, time_us, len(self._raws[row] or b""))
        if cluster.take_sample():
            sample = self.context.summaries.kept(self.hashed.batch.values[row])
            delta.samples = (*delta.samples, sample)
        return True

    def _count(
        self, cluster: CachedCluster, count: int, first_us: int, last_us: int, size: int
    ) -> ClusterDelta:
        delta = self.deltas.get(cluster)
        if delta is None:
            delta = ClusterDelta(cluster.cluster_id, count, first_us, last_us, size=size)
            self.deltas[cluster] = delta
        else:
            delta.count += count
            delta.size += size
            if first_us < delta.first_us:  # noqa: PLR1730 -- min() costs a call here
                delta.first_us = first_us
            if last_us > delta.last_us:  # noqa: PLR1730 -- likewise
                delta.last_us = last_us
        return delta

    def _select_queries(self, rows: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Select the events to query; pass those without tokens.

        Returns:
            The rows to query, each with the latest time it asks for; and the rows that wait, each
            with the row of the equal event whose answer it takes.
        """
        keys, exact, times_us = self.hashed.keys, self.hashed.exact, self.times_us
        empty, is_live = self.hashed.fingerprinter.empty_exact, self.context.windows.live
        queried: dict[int, int] = {}
        latest: dict[Key, int] = {}  # key → the last row queried for it
        waiting: dict[int, int] = {}
        for row in rows:
            if exact[row] == empty:
                self._pass(row, NO_TOKENS)
                continue
            key, time_us = keys[row], times_us[row]
            first = latest.get(key)
            if first is not None and is_live(times_us[first], queried[first], time_us):
                queried[first] = max(queried[first], time_us)
                waiting[row] = first
            else:
                latest[key] = row
                queried[row] = time_us
        return queried, waiting

    async def _resolve(self, queried: dict[int, int]) -> dict[int, tuple[Query, Resolution, Named]]:
        """Ask the index about events.

        Returns:
            By row the query, the answer, and what the decision is to name.
        """
        if not queried:
            return {}
        context, hashed, batch = self.context, self.hashed, self.hashed.batch
        rows = list(queried)
        numbers = await context.hasher.fingerprints(hashed, rows)
        if hashed.fingerprinter.key is not context.index.key:
            raise IndexReset("the index was created again, with another key for its hashes")
        source, partition = batch.partition
        groups, offsets, exact, times_us = batch.groups, batch.offsets, hashed.exact, self.times_us
        least_words = context.hasher.min_search_words
        queries = [
            Query(  # by position: names cost as much again
                with_variant(groups[row] if groups else "", variant),
                exact[row],
                numbers.fingerprint(number),
                sketch,
                words >= least_words,
                times_us[row],
                latest_us,
                Position(source, partition, offsets[row]),
                numbers.one_off(number),
            )
            for number, ((row, latest_us), variant, sketch, words) in enumerate(
                zip(queried.items(), numbers.variants, numbers.sketches, numbers.words, strict=True)
            )
        ]
        if hashed.acted is not None:
            queries = [self._ruled(*each) for each in zip(rows, queries, strict=True)]
        answers = await context.index.resolve(queries, self.now_us)
        named = await self._named(rows, answers)
        return {
            row: (query, answer, named.get(row, NOT_NAMED))
            for row, query, answer in zip(rows, queries, answers, strict=True)
        }

    async def _named(self, rows: Sequence[int], answers: Sequence[Resolution]) -> dict[int, Named]:
        """Return by row what decisions are to name, of the events of which anybody reads it."""
        context = self.context
        if not (context.hasher.gives_templates and context.summaries.max_value_bytes):
            return {}
        templates: Sequence[int]
        if context.duplicates_leave:
            templates = await self._templates(rows, answers)
        else:
            opened = [answer.new for answer in answers]
            rows, answers = list(compress(rows, opened)), list(compress(answers, opened))
            firsts, learned = list(map(self._kept, rows)), [answer.learned for answer in answers]
            templates = await context.hasher.templates(firsts, learned)
        varied: Sequence[int] = [0] * len(rows)
        if context.slots is not None:
            varied = await self._varied(context.slots, rows, answers)
        return dict(zip(rows, zip(templates, varied, strict=True), strict=True))

    def _ruled(self, row: int, query: Query) -> Query:
        """Return the query of an event that rules may act on: found by its exact hash alone."""
        scope = self.hashed.scope(row)
        if scope is None:
            return query
        groups = self.hashed.batch.groups
        return query._replace(
            group=with_rules(groups[row] if groups else "", scope),
            fingerprint=scope & self.context.hasher.fingerprint_mask,
            near=False,
            one_off=b"",
        )

    async def _varied(
        self, reader: SlotReader, rows: Sequence[int], answers: Sequence[Resolution]
    ) -> list[int]:
        """Return which words of the events are learned variables of their clusters."""
        answered = list(zip(rows, answers, strict=True))
        learned = {answer.cluster: answer.learned for answer in answers if answer.learned}
        firsts = {a.cluster: self._kept(row) for row, a in answered if a.new and a.learned}
        missing = [cluster for cluster in learned if cluster not in firsts]
        if missing:
            firsts |= await self._representatives(missing)
        slots = {
            cluster: reader.slots(first, learned[cluster]) for cluster, first in firsts.items()
        }
        return [
            slots[a.cluster].varied(self.hashed.batch.values[row]) if a.cluster in slots else 0
            for row, a in answered
        ]

    async def _templates(self, rows: Sequence[int], answers: Sequence[Resolution]) -> list[int]:
        """Return the ids of the templates of the clusters that the index answered.

        Where a cluster's first event is not recorded yet, because another process has just opened
        it, the event's own pattern stands in for it.
        """
        context, answered = self.context, list(zip(rows, answers, strict=True))
        learned = {answer.cluster: answer.learned for answer in answers}  # the last knows most
        ids: dict[int, int] = {}
        firsts = {a.cluster: self._kept(row) for row, a in answered if a.new}
        missing: list[int] = []
        for cluster in learned.keys() - firsts.keys():
            known = context.cache.template(cluster, learned[cluster])
            if known is None:
                missing.append(cluster)
            else:
                ids[cluster] = known
        if missing:
            firsts |= await self._representatives(missing)
        own = [row for row, a in answered if a.cluster not in ids and a.cluster not in firsts]
        made = await context.hasher.templates(
            [*firsts.values(), *map(self._kept, own)],
            [*(learned[cluster] for cluster in firsts), *[0] * len(own)],
        )
        ids.update(zip(firsts, made, strict=False))
        own_ids = dict(zip(own, made[len(firsts) :], strict=True))
        return [own_ids[row] if row in own_ids else ids[a.cluster] for row, a in answered]

    async def _representatives(self, clusters: Sequence[int]) -> dict[int, bytes]:
        """Return the first events of clusters, without those that are not recorded yet."""
        deltas = self.deltas.items()
        here = {c.cluster_id: d.representative for c, d in deltas if d.representative}
        firsts = {cluster: here[cluster] for cluster in clusters if cluster in here}
        missing = [cluster for cluster in clusters if cluster not in here]
        if missing:
            found = await self.context.index.representatives(missing)
            firsts.update(
                (cluster, first.value)
                for cluster, first in zip(missing, found, strict=True)
                if first is not None and first.value
            )
        return firsts

    def _kept(self, row: int) -> bytes:
        return self.context.summaries.kept(self.hashed.batch.values[row])

    def _apply(
        self, answers: Mapping[int, tuple[Query, Resolution, Named]]
    ) -> dict[int, CachedDecision]:
        """Decide and count events by the index's answers, and cache these for equal events."""
        keys, values, raws = self.hashed.keys, self.hashed.batch.values, self._raws
        cache, kept = self.context.cache, self.context.summaries.kept
        shown, decisions = self.context.hasher.shown, self.decisions
        leave = self.context.duplicates_leave
        entries: dict[int, CachedDecision] = {}
        for row, (query, resolution, named) in answers.items():
            cluster_id, distance, time_us = resolution.cluster, resolution.distance, query.first_us
            fingerprint = shown(query.fingerprint)
            of_duplicate = named if leave else NOT_NAMED
            duplicate = Decision(DUPLICATE, cluster_id, distance, fingerprint, "", *of_duplicate)
            entries[row] = entry = cache.store(keys[row], resolution, duplicate)
            self.found_by[row] = resolution.found_by
            cluster = entry.cluster
            if time_us > cluster.last_us:  # noqa: PLR1730 -- max() costs a call here
                cluster.last_us = time_us
            delta = self._count(cluster, 1, time_us, time_us, len(raws[row] or b""))
            if resolution.new:
                delta.representative = kept(values[row])
                self.opened += 1
                decisions[row] = Decision(NEW, cluster_id, 0, fingerprint, "", *named)
            else:
                decisions[row] = duplicate
                if cluster.samples_wanted and cluster.take_sample():
                    delta.samples = (*delta.samples, kept(values[row]))
        return entries

    # ------------------------------------------------------------ withholding

    def withhold(self, rows: Sequence[int], kept: KeptCounts) -> KeptCounts | None:
        """Mark the events that `mute` and `keep` rules withhold; return the updated counts.

        If some events were decided again, call it again: it starts again from `kept`.

        Args:
            rows: the rows that were decided here, not taken from the journal.
            kept: events emitted before, for each limited pattern and minute.

        Returns:
            `kept` with these events; None if no `keep` rule applies to them.
        """
        limited = self.hashed.limited
        rules = self.hashed.rules
        if not limited or rules is None:
            return None
        here = limited[bisect_left(limited, self.start, key=itemgetter(0)) :]
        decided = rows if isinstance(rows, range) else frozenset(rows)
        keeping: Keeping | None = None
        known: dict[tuple[int, str], tuple[Decision, Decision]] = {}
        for row, rule in here:
            if row >= self.end:
                break
            decision = self.decisions[row]
            if row not in decided or decision.kind is Kind.PASSED:
                continue
            first = decision.kind is NEW
            withheld = "" if first else rule.kind.value
            if rule.kind is RuleKind.KEEP:
                keeping = keeping or Keeping(kept, rules.limits)
                if keeping.leaves(rule, self.times_us[row], first=first):
                    withheld = ""
            if withheld != decision.withheld:
                slot = id(decision), withheld  # equal events go on to share one object
                if slot not in known:
                    known[slot] = decision, decision._replace(withheld=withheld)
                self.decisions[row] = known[slot][1]
        return None if keeping is None else keeping.kept

    # ------------------------------------------------------------ committing

    def commit(self, fence: int, committed: int | None, kept: KeptCounts | None = None) -> Commit:
        """Make what is recorded in the index.

        Args:
            fence: of the partition.
            committed: the next offset to be read after a crash; None: the first of the segment,
                whose decisions are needed if the answer is lost.
            kept: as `Commit.kept`.
        """
        batch, rows = self.hashed.batch, slice(self.start, self.end)
        deltas, offsets = merge_deltas(list(self.deltas.values())), batch.offsets[rows]
        if self.context.sampler is not None:
            decisions, values = self.decisions[rows], batch.values[rows]
            self.context.sampler.add(deltas, batch.partition, offsets, decisions, values)
        if committed is None:
            committed = self.first_offset
        first = bisect_left(offsets, committed)
        return Commit(
            partition=batch.partition,
            fence=fence,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            committed=min(committed, self.last_offset + 1),
            last_us=max(self.times_us[rows]),
            deltas=deltas,
            offsets=offsets[first:],
            decisions=self.decisions[self.start + first : self.end],
            kept=kept,
        )

    def undo(self, rows: Sequence[int], closed: frozenset[int]) -> list[int]:
        """Take back what was decided for closed clusters; return those of `rows` concerned."""
        self.deltas = {
            cluster: delta
            for cluster, delta in self.deltas.items()
            if cluster.cluster_id not in closed
        }
        undone = [row for row in rows if self.decisions[row].cluster in closed]
        self.opened -= sum(self.decisions[row].kind is NEW for row in undone)
        for row in undone:
            self.found_by.pop(row, None)
        return undone


def _selected(column: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """Return the given rows of a column."""
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return [column[row] for row in rows]


def merge_deltas(deltas: Sequence[ClusterDelta]) -> Sequence[ClusterDelta]:
    """Merge deltas of the same cluster, which may be found in two ways."""
    if len({delta.cluster for delta in deltas}) == len(deltas):
        return deltas
    added: dict[int, ClusterDelta] = {}
    merged: set[int] = set()
    for delta in deltas:
        one = added.get(delta.cluster)
        if one is None:
            added[delta.cluster] = delta
            continue
        if delta.cluster not in merged:  # the delta itself stays as it is
            merged.add(delta.cluster)
            one = added[delta.cluster] = copy(one)
        one.count += delta.count
        one.size += delta.size
        one.first_us = min(one.first_us, delta.first_us)
        one.last_us = max(one.last_us, delta.last_us)
        if one.representative is None:
            one.representative = delta.representative
        one.samples = (*one.samples, *delta.samples)
    return list(added.values())

"""The batch loop: from batches of events to decisions, counts and summaries, over any index.

One batch's way (see `index.base` for the index's part)
-------------------------------------------------------
1. `hash` computes the exact hashes of all its events; any thread may do it ahead of time.
2. `process` splits the batch into segments (see `segment`). Events above the partition's high water
   are decided and committed to the index, a segment at a time. Those at or below it were committed
   before: their decisions come from the partition's journal, or, where that no longer holds them,
   from what the index holds now; they are not counted again.
3. The caller sends the output, commits its offsets, and names them with the next batch.

The engine keeps nothing that must not be lost: clusters are in the index, the near cache holds
copies, and what is known of a partition comes back when it is claimed again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from stream_dedup.clock import Clock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.hashing import HashedBatch, Hasher, Offload, inline
from stream_dedup.engine.joins import Joins
from stream_dedup.engine.near_cache import NearCache
from stream_dedup.engine.sampling import Sampler
from stream_dedup.engine.segment import NO_TOKENS, REPLAYED, Segment, SegmentContext
from stream_dedup.errors import (
    AlreadyRecorded,
    IndexReset,
    IndexUnavailable,
    PartitionUnclaimed,
    ProtocolError,
)
from stream_dedup.features.fields import decoded
from stream_dedup.features.patterns import Patterns, Shown
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.values import SlotReader
from stream_dedup.index.base import Index, Ownership, Query, Representative
from stream_dedup.index.groups import with_variant
from stream_dedup.model import Batch, Closing, Decision, FoundBy, Partition, Summary
from stream_dedup.rules.acting import ActingRules
from stream_dedup.rules.keeping import KeptCounts
from stream_dedup.rules.model import RuleKind
from stream_dedup.rules.ruleset import Acted, RuleSet

log = logging.getLogger(__name__)

NEAR_CACHE_SIZE = 200_000
"""Exact hashes in the near cache, in each of its two generations; some 440 bytes each."""

CLAIM_BATCH = 1_000
"""Summaries claimed at once."""

MAX_SLOTS_KEPT = 10_000
"""Clusters whose slots are remembered, where parameters of events are wanted."""

TURN_WAIT_S = 0.5
"""How long a partition waits at most for others to decide their first batches: some segments."""

REFUSALS_WARNED = 5
"""After so many refusals of a segment's commit a warning is logged; and after as many again."""

CLOSE_TOO_SOON = (
    "%s-%d: a batch is not counted yet: %d times clusters closed between being found and the "
    "commit. If this goes on, the index is slow: look at its latency, and raise what closes "
    "clusters so soon (idle_s, quiet_after_s or max_clusters)"
)

MAX_SEGMENT_EVENTS = 10_000
"""Events in a segment. A segment that is shortened was looked up in full, so without this bound a
batch would cost the square of its length."""


@dataclass(slots=True)
class Counts:
    """Numbers of events by what was decided.

    Attributes:
        events: events counted: new + duplicates + passed.
        new: events that opened a cluster.
        duplicates: events that joined one.
        passed: events that were not fingerprinted, by reason.
        clamped: events whose time was too far in the future and was set back.
        asked: events that the near cache did not know, so that the engine asked the index.
        redelivered: events that were delivered again and got the same decision; not in `events`.
        replayed: events that were counted before and whose decision is no longer stored. The
            engine decided them by the present state of the index; not in `events`.
        rules: the asked events by how the index found their clusters (`model.FoundBy`).
    """

    events: int = 0
    new: int = 0
    duplicates: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    clamped: int = 0
    asked: int = 0
    redelivered: int = 0
    replayed: int = 0
    rules: dict[str, int] = field(default_factory=dict)

    @property
    def removed(self) -> float:
        """The share of events that were duplicates."""
        return self.duplicates / self.events if self.events else 0.0


class Named(NamedTuple):
    """The pattern, the template's id and the first event of a cluster."""

    pattern: str
    template: int
    first: Representative


@dataclass(slots=True)
class OwnedPartition:
    """A partition that this engine has claimed.

    Attributes:
        fence: the number that every commit of the partition must give.
        high_water: its largest recorded offset.
        journal: decisions of events that may be delivered again.
        segment_boundaries: offsets at which a segment has to end.
        counted: the largest offset that `Counts` include, or that was recorded before the claim.
        kept: for each `keep` rule, how many events were emitted in each minute, up to the
            high-water mark.
        kept_again: the same for replayed events, which have counts of their own.
        has_begun: whether a batch of it was decided.
        in_doubt: whether a commit may have been recorded although its answer was lost. Then the
            other attributes must be read again before the next commit: clusters may have closed
            since, and events that were counted must keep their decisions.
    """

    fence: int
    high_water: int
    journal: dict[int, Decision]
    segment_boundaries: tuple[int, ...]
    counted: int = -1
    kept: KeptCounts = field(default_factory=dict)
    kept_again: KeptCounts = field(default_factory=dict)
    has_begun: bool = False
    in_doubt: bool = False

    def segment_end(self, offsets: Sequence[int], start: int) -> int:
        """Return the row at which a segment that begins at the row `start` has to end.

        All or none of a segment was recorded before, all or none of it was counted, it does not
        cross a segment boundary, and it has at most `MAX_SEGMENT_EVENTS`.
        """
        last_offsets = (self.high_water, self.counted, *self.segment_boundaries)
        ends = [
            bisect_right(offsets, last, start) for last in last_offsets if last >= offsets[start]
        ]
        return min(*ends, len(offsets), start + MAX_SEGMENT_EVENTS)


class Engine:
    """Decides batches of events against an index.

    Args:
        recipe: what counts as near.
        index: where clusters are kept; made with the same recipe and windows.
        windows: when clusters are live.
        summaries: how many values are kept of a cluster, and how much of each.
        clock: gives arrival times.
        near_cache_size: exact hashes kept in process; 0 for none.
        offload: runs what takes the processor for long, say in a thread.
        templates: whether decisions name templates.
        parameters: whether they name the learned words of events; only with templates.
        duplicates_leave: whether the caller reads the decisions of duplicates; if not, they get no
            template and no learned words.

    Attributes:
        withholds: whether events may be withheld, by present or earlier rules; if not, callers need
            not look for such decisions.
        refused_commits: commits that the index refused, because clusters had closed after they were
            found and before the commit. Their events were decided again.
    """

    def __init__(
        self,
        recipe: Recipe,
        index: Index,
        *,
        windows: Windows,
        summaries: Summaries,
        clock: Clock,
        near_cache_size: int = NEAR_CACHE_SIZE,
        offload: Offload[Any] = inline,
        templates: bool = True,
        parameters: bool = False,
        duplicates_leave: bool = True,
    ) -> None:
        self.recipe = recipe
        self.index = index
        self.counts = Counts()
        self.refused_commits = 0
        self.withholds = False
        self.clock = clock
        self._windows = windows
        self._summaries = summaries
        self._hasher = Hasher(recipe, index.key, offload, templates=templates)
        self._cache = NearCache(windows, near_cache_size, summaries.samples)
        self._patterns = Patterns(recipe)
        self._slots = SlotReader(recipe, self._patterns)
        self._slots_of = lru_cache(MAX_SLOTS_KEPT)(self._slots.slots)
        has_values = summaries.values > 0 and self._slots.has_slots
        self._sampler = sampler = Sampler(summaries) if has_values else None
        self.joins = Joins(self._cache, sampler)
        slots = self._slots if parameters and self._slots.has_slots else None
        self._context = SegmentContext(
            index, self._hasher, self._cache, windows, summaries, sampler, slots, duplicates_leave
        )
        self._owned: dict[Partition, OwnedPartition] = {}
        self._index_resets = index.resets
        self._has_cache = near_cache_size > 0
        self._turn = asyncio.Lock()
        self._names: dict[int, Named] = {}

    @property
    def takes_fields(self) -> bool:
        """Whether the recipe looks at fields of decoded JSON events."""
        return self._hasher.takes_fields

    @property
    def near_cache_entries(self) -> int:
        """Exact hashes in the near cache."""
        return len(self._cache)

    # ------------------------------------------------------------ rules

    def use_rules(self, rules: RuleSet) -> None:
        """Apply these rules from the next segment on; earlier decisions do not change.

        The near cache stays valid, because its keys contain what the rules do with an event.
        """
        self._hasher.use_rules(rules)
        self._names.clear()
        self.withholds = self.withholds or bool(rules.limits)

    @property
    def rules(self) -> ActingRules | None:
        """The rules by which events are decided; None for none."""
        return self._hasher.rules

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None = None, identity: str = ""
    ) -> Ownership:
        """Claim a partition; its former owner is refused from now on.

        `process` claims a partition that is not owned.

        Args:
            partition: the partition.
            end_offset: its end (exclusive) where known; see `Index.claim_partition`.
            identity: its topic's where known; see there.
        """
        claimed = await self.index.claim_partition(
            partition, end_offset, self.clock.now_us(), identity
        )
        self._owned[partition] = OwnedPartition(
            claimed.fence,
            claimed.high_water,
            dict(claimed.journal),
            claimed.segment_boundaries,
            counted=max(claimed.high_water, *claimed.segment_boundaries, -1),
            kept=claimed.kept,
        )
        self._note_withheld(claimed.journal)
        return claimed

    async def _read_again(self, partition: Partition, owned: OwnedPartition) -> None:
        """Learn whether a commit in doubt was recorded, and with which decisions."""
        read = await self.index.read_partition(partition, owned.fence)
        owned.high_water, owned.segment_boundaries = read.high_water, read.segment_boundaries
        owned.journal.update(read.journal)
        owned.kept = read.kept
        owned.in_doubt = False
        self._note_withheld(read.journal)

    def _note_withheld(self, journal: Mapping[int, Decision]) -> None:
        """Note whether events may be withheld by the rules of another time."""
        self.withholds = self.withholds or any(each.withheld for each in journal.values())

    def drop_ownership(self, partition: Partition) -> None:
        """Drop local ownership of a partition, without a call to the index."""
        self._owned.pop(partition, None)

    async def note_committed(self, partition: Partition, offset: int) -> None:
        """Note that all events of a partition before an offset are not read again."""
        owned = self._owned.get(partition)
        if owned is not None:
            await self.index.note_committed(partition, owned.fence, offset)

    async def release_partition(self, partition: Partition) -> None:
        """Release a partition that was read to its end: it no longer holds stream time back."""
        self._owned.pop(partition, None)
        await self.index.release_partition(partition)

    # ------------------------------------------------------------ batches

    def hash(self, batch: Batch) -> HashedBatch:
        """Compute what `process` needs of a batch and no index is asked for. Safe in any thread."""
        return self._hasher.hash(batch)

    async def process(
        self, batch: Batch | HashedBatch, committed: int | None = None
    ) -> list[Decision]:
        """Decide a batch, count it, and return a decision for each event, in order.

        Give one batch of a partition at a time. Batches of several partitions may be processed at
        the same time, as if several workers shared the index. If the index has lost its data,
        processing goes on from there against the empty index.

        Args:
            batch: the events, hashed or not. They may have been processed before.
            committed: the next offset to be read after a crash, as far as known. Decisions from
                there on are kept for whoever reads those events again. None: only this batch may be
                given again, if the call fails.

        Raises:
            StaleFence: another worker has claimed the partition. Send nothing of the batch; the
                other worker counts what is not counted yet.
            IndexUnavailable: the index is away. Call again with the same batch.
        """
        hashed = batch if isinstance(batch, HashedBatch) else self.hash(batch)
        batch = hashed.batch
        now_us = self.clock.now_us()
        times_us = self._clamped_times(batch, now_us)
        decisions = [NO_TOKENS] * len(batch.values)
        start = 0
        while start < len(decisions):
            if self.index.resets != self._index_resets:  # another call may have noticed the loss
                self._forget_all()
            if (
                hashed.fingerprinter.key is not self._hasher.hash_key
                or hashed.rules is not self._hasher.rules
            ):
                hashed = self.hash(batch)
            owned = self._owned.get(batch.partition)
            try:
                if owned is None:
                    await self.claim_partition(batch.partition)
                    continue
                if owned.in_doubt:
                    await self._read_again(batch.partition, owned)
                end = owned.segment_end(batch.offsets, start)
                segment = Segment(self._context, hashed, times_us, decisions, now_us, start, end)
                if segment.first_offset <= owned.high_water:
                    await self._replay(segment, owned)
                elif self._has_cache and not owned.has_begun:
                    await self._decide_in_turn(segment, owned, committed)
                else:
                    await self._decide(segment, owned, committed)
            except IndexReset:
                self._forget_all()
                continue
            except AlreadyRecorded:  # so `owned` is in doubt
                continue
            except PartitionUnclaimed:
                self.drop_ownership(batch.partition)
                continue
            except ProtocolError:  # StaleFence is one
                self.drop_ownership(batch.partition)
                raise
            except BaseException:
                if owned is not None:  # the caller gives the same batch again
                    owned.journal.update(zip(batch.offsets[:start], decisions[:start], strict=True))
                raise
            owned.counted = max(owned.counted, segment.last_offset)
            start = segment.end
            owned.has_begun = owned.has_begun or start == len(decisions)
            if owned.journal and start == len(decisions):
                last = segment.last_offset
                owned.journal = {o: kept for o, kept in owned.journal.items() if o > last}
        return decisions

    def join(
        self,
        value: bytes,
        document: object,
        time_us: int,
        now_us: int,
        group: str,
        is_open: Callable[[int], bool],
    ) -> Decision | None:
        """Decide one event by the near cache; None if that is not certain of its cluster.

        The index counts it with the next `commit_joins`. Only for a caller that is the index's only
        one, and commits before any other call that reads or changes it.

        Args:
            value: its text.
            document: its decoded JSON value, if the recipe takes fields.
            time_us: its time; not too far ahead of the clock.
            now_us: the clock.
            group: its group; empty for none.
            is_open: tells whether the index has a cluster open.
        """
        key = self._hasher.cache_key(value, document, group)
        if key is None:
            return None
        decision = self.joins.add(key, value, time_us, now_us, is_open)
        if decision is not None:
            self.counts.events += 1
            self.counts.duplicates += 1
        return decision

    async def commit_joins(self, partition: Partition, first_offset: int) -> None:
        """Commit to the index what `join` has decided since the last commit.

        Args:
            partition: the partition of those events.
            first_offset: the offset of the first of them; the others follow it.
        """
        owned = self._owned.get(partition)
        if owned is None:
            await self.claim_partition(partition)
            owned = self._owned[partition]
        commit = self.joins.take(partition, owned.fence, first_offset)
        # As of the last event, since when the partition may have been quiet.
        if await self.index.record(commit, self.joins.now_us):
            raise ProtocolError(
                "clusters closed between the events that joined them and the commit"
            )
        owned.high_water = commit.last_offset

    def _clamped_times(self, batch: Batch, now_us: int) -> Sequence[int]:
        times_us = batch.times_us
        if times_us is None:
            return [now_us] * len(batch.values)
        latest_us = now_us + self._windows.max_future_us
        if times_us and max(times_us) > latest_us:
            self.counts.clamped += sum(time_us > latest_us for time_us in times_us)
            return [min(time_us, latest_us) for time_us in times_us]
        return times_us

    async def _replay(self, segment: Segment, owned: OwnedPartition) -> None:
        """Decide events at or below the high water as before, where that is known."""
        counted = segment.first_offset <= owned.counted
        rows = segment.decide_without_index(owned.journal, counted=counted)
        await segment.replay(rows)
        owned.kept_again = segment.withhold(rows, owned.kept_again) or owned.kept_again
        segment.replayed = sum(segment.decisions[row].reason == REPLAYED for row in rows)
        if counted:
            segment.passed.clear()
            segment.redelivered = len(segment) - segment.replayed
        self._count(segment)

    async def _decide_in_turn(
        self, segment: Segment, owned: OwnedPartition, committed: int | None
    ) -> None:
        """Decide a segment of a partition's first batch after those of others, if that is soon.

        Partitions that begin together meet the same new events. So the others find in the near
        cache what they would all have asked the index about and opened, and few commits name
        clusters that other partitions have merged or opened meanwhile.
        """
        has_turn = await self._has_turn()
        try:
            await self._decide(segment, owned, committed)
        finally:
            if has_turn:
                self._turn.release()

    async def _has_turn(self) -> bool:
        """Wait for the turn; return False if it does not come in time."""
        if not self._turn.locked():  # an index in memory may be used without an event loop
            return await self._turn.acquire()
        try:
            async with asyncio.timeout(TURN_WAIT_S):
                return await self._turn.acquire()
        except TimeoutError:
            return False

    async def _decide(self, segment: Segment, owned: OwnedPartition, committed: int | None) -> None:
        """Decide events above the high water and commit them to the index."""
        segment.limit_to_one_commit()
        counted = segment.first_offset <= owned.counted
        rows = undecided = segment.decide_without_index(owned.journal, counted=counted)
        refusals = 0
        try:
            while True:
                await segment.decide(undecided)
                kept = segment.withhold(rows, owned.kept)
                commit = segment.commit(owned.fence, committed, kept)
                # With the clock of when the batch began, the partition would seem quiet while
                # deciding takes long. Stream time would go on, and clusters that were found here
                # would close before they are counted.
                segment.now_us = self.clock.now_us()
                owned.in_doubt = True  # also where clusters have closed: a part may be recorded
                closed = await self.index.record(commit, segment.now_us)
                if not closed:
                    break
                refusals += 1
                self.refused_commits += 1
                if not refusals % REFUSALS_WARNED:
                    log.warning(CLOSE_TOO_SOON, *segment.hashed.batch.partition, refusals)
                self._cache.forget(closed)
                undecided = segment.undo(rows, closed)
        except BaseException:
            # On a retry the index is asked again: the representative must be new then, too.
            self._cache.forget(cluster.cluster_id for cluster in segment.deltas)
            raise
        owned.in_doubt = False
        owned.high_water = segment.last_offset
        if kept is not None:
            owned.kept = kept
        self.counts.asked += len(segment.found_by)
        for found_by, count in Counter(segment.found_by.values()).items():
            self.counts.rules[found_by] = self.counts.rules.get(found_by, 0) + count
        for row, found_by in segment.found_by.items():
            if found_by not in (FoundBy.EXACT, FoundBy.NEW):  # the cluster may have learned a word
                self._names.pop(segment.decisions[row].cluster or 0, None)
        self._count(segment)

    def _count(self, segment: Segment) -> None:
        counts, counted = self.counts, len(segment) - segment.redelivered - segment.replayed
        for reason, count in segment.passed.items():
            counts.passed[reason] = counts.passed.get(reason, 0) + count
        counts.events += counted
        counts.new += segment.opened
        counts.duplicates += counted - segment.opened - sum(segment.passed.values())
        counts.redelivered += segment.redelivered
        counts.replayed += segment.replayed

    def _forget_all(self) -> None:
        self._index_resets = self.index.resets
        self._cache.clear()
        self._owned.clear()
        if self._sampler is not None:
            self._sampler.clear()
        if self.index.key is not self._hasher.hash_key:
            self._hasher.use_key(self.index.key)

    # ------------------------------------------------------------ summaries

    async def claim_summaries(self, limit: int = CLAIM_BATCH) -> list[Summary]:
        """Claim due summaries, not described; call `confirm_summaries` once they are sent.

        Of clusters that have closed, those merge that fit by now what others have learned.
        """
        summaries = await self.index.claim(limit, self.clock.now_us())
        if not self.index.knows_combinations:
            return summaries
        queries = await self._queries([each for each in summaries if self._stands_alone(each)])
        if not queries:
            return summaries
        now_us = self.clock.now_us()
        try:
            found = await self.index.merge_fitting([*queries], [*queries.values()], now_us)
        except IndexUnavailable:
            # It may have been carried out: they are claimed again once their lease has ended. The
            # others need not wait.
            others = [each for each in summaries if each.cluster not in queries]
            if not others:
                raise
            return others
        roots = dict(zip(queries, found, strict=True))
        return [
            each if roots.get(each.cluster) is None
            else replace(each, closing=Closing.MERGED, merged_into=roots[each.cluster])
            for each in summaries
        ]  # fmt: skip

    def _stands_alone(self, summary: Summary) -> bool:
        """Return whether a closed cluster may still merge (`Index.merge_fitting`)."""
        return (
            summary.closing not in (None, Closing.MERGED)
            and summary.revision == 1
            and not summary.learned
            and self._summaries.is_whole(summary.representative)
        )

    async def _queries(self, summaries: Sequence[Summary]) -> dict[int, Query]:
        """Return by their clusters what asks the index about representatives.

        Without those that fit nothing, and those that rules act on: these are found by their exact
        hashes alone.
        """
        if not summaries:
            return {}
        values = [summary.representative for summary in summaries]
        numbers, ruled = await self._hasher.stored(values)
        queries: dict[int, Query] = {}
        for row, (summary, variant) in enumerate(zip(summaries, numbers.variants, strict=True)):
            group, one_off = with_variant(summary.group, variant), numbers.one_off(row)
            if self.index.may_fit(group, one_off) and row not in ruled:
                queries[summary.cluster] = Query(
                    group,
                    numbers.exact[row],
                    numbers.fingerprint(row),
                    b"",
                    near=False,
                    first_us=summary.last_time_us,
                    last_us=summary.last_time_us,
                    position=summary.position,
                    one_off=one_off,
                )
        return queries

    async def confirm_summaries(self, summaries: Sequence[Summary]) -> None:
        """Confirm that summaries were sent."""
        names = [(summary.cluster, summary.revision) for summary in summaries]
        await self.index.confirm(names, self.clock.now_us())
        finals = [summary.cluster for summary in summaries if summary.final]
        self._cache.forget(finals)
        for cluster in finals:
            self._names.pop(cluster, None)

    async def named(self, clusters: Sequence[int]) -> dict[int, Named]:
        """Return patterns and templates of clusters; those that are gone are left out."""
        known = self._names
        if len(known) > NEAR_CACHE_SIZE:
            known.clear()
        missing = [cluster for cluster in dict.fromkeys(clusters) if cluster not in known]
        if missing:
            found = await self.index.representatives(missing)
            firsts = {
                cluster: first
                for cluster, first in zip(missing, found, strict=True)
                if first is not None and first.value  # empty: opened, but nothing recorded yet
            }
            ids = await self._hasher.templates(
                [first.value for first in firsts.values()],
                [first.learned for first in firsts.values()],
            )
            for (cluster, first), template in zip(firsts.items(), ids, strict=True):
                known[cluster] = Named(self.pattern(*first), template, first)
        return {cluster: known[cluster] for cluster in clusters if cluster in known}

    def parameters(self, value: bytes, first: Representative) -> tuple[tuple[str, str], ...]:
        """Return what is in the variables of an event, each with what the pattern shows.

        Args:
            value: the event's text.
            first: the first event of its cluster.

        Returns:
            `values.MAX_SLOTS` at most, of `values.MAX_VALUE` characters; none if the event lacks
            words of the pattern.
        """
        slots = self._slots_of(first.value, first.learned)
        return slots.parameters(value)

    def pattern(self, representative: bytes, learned: int = 0) -> str:
        """Return the pattern of a cluster, made from its representative's value.

        Args:
            representative: the value.
            learned: its words that are learned variables; see `Summary.learned`.
        """
        acted = self._acted(representative)
        if acted is not None and acted.pattern:
            return acted.pattern
        return self._shown(representative, learned).pattern

    def describe(self, summaries: Sequence[Summary]) -> list[Summary]:
        """Return summaries with patterns, templates, variants and variables."""
        ids = self._hasher.template_ids(
            [summary.representative for summary in summaries],
            [summary.learned for summary in summaries],
        )
        described = []
        for summary, template in zip(summaries, ids, strict=True):
            first, learned, variables = summary.representative, summary.learned, None
            sampled = [value for _, value in summary.sampled]
            if self._slots.has_slots and (events := [*summary.samples, *sampled]):
                slots = self._slots.slots(first, learned)
                if lacking := self._slots.lacking(first, slots, events) & ~learned:
                    learned |= lacking
                    slots = self._slots.slots(first, learned)
                variables = slots.describe(sampled, summary.count)
            pattern, variant = self._shown(first, learned)
            acted = self._acted(summary.representative)
            limit = None if acted is None else acted.limit
            if acted is not None and acted.pattern:
                pattern = acted.pattern
            described.append(
                replace(
                    summary,
                    pattern=pattern,
                    name=acted.name.value if acted is not None and acted.name else "",
                    muted=limit is not None and limit.kind is RuleKind.MUTE,
                    template=template,
                    variant=variant,
                    variables=variables,
                )
            )
        return described

    def _acted(self, representative: bytes) -> Acted | None:
        """Return what rules do with events such as the first of a cluster."""
        rules = self._hasher.rules
        if rules is None:
            return None
        return rules.acted(representative, decoded(representative) if self.takes_fields else None)

    def _shown(self, representative: bytes, learned: int) -> Shown:
        # If it was cut short, or is not JSON, its text is the pattern.
        document = decoded(representative) if self.takes_fields else None
        return self._patterns.shown(representative, document, learned)

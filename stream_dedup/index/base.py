"""The index port: what decides which events belong together, and keeps count of it.

An index holds the clusters of one namespace: their fingerprints in tables, their counts, what was
decided for which offset, and the summaries on their way. Many workers may share one; each owns
the partitions it has claimed. An adapter passes the contract suite in ``tests/contract``.

Words of this page
------------------
position      (source, partition, offset): identifies an event for ever.
fence         a number that grows with every claim of a partition; who holds the latest owns it.
high water    the largest offset of a partition whose event was recorded.
journal       the decisions of recorded offsets that are not yet committed.
stream time   event time that all partitions have passed; closes clusters. See `windows`.

One batch's way
---------------
1. `resolve` finds or opens a cluster for every query. Nothing is counted yet.
2. `record` counts the batch's events and writes the journal, all or nothing.
3. The caller sends what was decided, then commits, then goes on.
4. `claim` takes the summaries that are due; the caller sends them; `confirm` settles them.

A caller may die between any two steps and another takes over: every method says what calling it
again does. Methods are coroutines because a shared index is far away; the one in memory never
suspends. Times are microseconds; `now_us` is the clock's, all others are event times.

An index that others serve may be away, or come back empty. Every method then raises
`IndexUnavailable` (nothing is known of the call: make it again) or `IndexReset` (clusters, fences
and journals are gone: forget what was learnt, claim the partitions again, then go on).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stream_dedup.errors import RecipeError
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.simhash import WIDTHS
from stream_dedup.model import Decision, Partition, Position, Summary

MAX_DELTAS = 640
"""More deltas a record make others wait while they are counted. The engine keeps to it: deltas,
and bytes of their values / `DELTA_BYTES`, are no more together."""

DELTA_BYTES = 2_048
"""Storing so many bytes of values takes about as long as counting a delta."""

LEAST_WAITING = 1_000
"""So many closed clusters may wait for their final summary, however few may be open."""


def max_waiting(max_clusters: int) -> int:
    """While more closed clusters wait for their final summary, none is opened."""
    return max(LEAST_WAITING, max_clusters)


def too_many_wait(waiting: int) -> str:
    """What `IndexFull` says then."""
    return f"{waiting} closed clusters wait for their final summary: claim and confirm them"


def check_width(recipe: Recipe) -> None:
    """Refuse a recipe whose fingerprints are too narrow to be cut into blocks.

    Raises:
        RecipeError: it is one.
    """
    width = recipe.fingerprint.width
    if width not in WIDTHS:
        problem = f"is {width}, which is to be looked at only: no index holds so few bits"
        remedy = f"use one of {', '.join(map(str, WIDTHS))}, or compare, explain and fingerprint"
        raise RecipeError(f"recipe {recipe.name}", "fingerprint.width", problem, remedy)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an index may hold.

    Attributes:
        max_clusters: open clusters; above it the least recently seen are closed. While more than
            that (at least `LEAST_WAITING`) are closed and not told of, none is opened.
        max_candidates: entries compared a query; beyond it a search is cut short, and counted.
        max_verified: clusters held against an event; of more, the nearest, and that is counted.
        sweep: clusters closed a call at most, beside those evicted.
    """

    max_clusters: int = 100_000
    max_candidates: int = 10_000
    max_verified: int = 256
    sweep: int = 10_000

    def __post_init__(self) -> None:
        for name in ("max_clusters", "max_candidates", "max_verified", "sweep"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 1 or more")


class Query(NamedTuple):
    """One question: to which cluster does this event belong?

    Equal events of a batch are asked once: the first asks for the others.

    Attributes:
        group: only clusters of an equal group are looked at.
        exact: the exact hash.
        fingerprint: the fingerprint.
        sketch: the sketch, for verification.
        near: whether the event has features enough to match by fingerprint; if not, its exact
            hash alone is looked up.
        first_us: the event's time.
        last_us: latest time among those it asks for; the cluster is kept live until then.
        position: the event's position; it names the cluster that is opened if none is found.
    """

    group: str
    exact: int
    fingerprint: int
    sketch: bytes
    near: bool
    first_us: int
    last_us: int
    position: Position


class Resolution(NamedTuple):
    """The answer to a query.

    Attributes:
        cluster: the cluster's id.
        distance: bits in which the event's fingerprint differs from the representative's.
        new: whether the event is the cluster's representative: it was opened for it, now or
            when the event was delivered before.
        opened_us: event time at which the cluster was opened.
        last_us: event time at which it was last seen, with this query.
        recorded: whether its representative was recorded. Until then the representative may come
            again and has to be asked about, to be found new: so nobody remembers that its like are
            duplicates.
    """

    cluster: int
    distance: int
    new: bool
    opened_us: int
    last_us: int
    recorded: bool = False


@dataclass(slots=True)
class ClusterDelta:
    """What a batch adds to one cluster.

    Attributes:
        cluster: its id.
        count: events.
        first_us: earliest event time among them.
        last_us: latest event time.
        representative: the first event's value, where the batch holds it.
        samples: values of a few others.
    """

    cluster: int
    count: int
    first_us: int
    last_us: int
    representative: bytes | None = None
    samples: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch of one partition, to be counted.

    Attributes:
        partition: the partition.
        fence: as `claim_partition` returned it.
        first_offset: offset of the batch's first event; above the high water.
        last_offset: offset of its last event; becomes the high water.
        committed: the next offset to be read after a crash, as far as is known: journal entries
            below it are dropped, and decisions below it need not be named.
        last_us: the latest event time of the batch, of passed events too.
        deltas: what the batch adds, a delta a cluster.
        offsets: of the events whose decisions are named, ascending; those below `committed` need
            not be.
        decisions: of each of them.
    """

    partition: Partition
    fence: int
    first_offset: int
    last_offset: int
    committed: int
    last_us: int
    deltas: Sequence[ClusterDelta]
    offsets: Sequence[int] = ()
    decisions: Sequence[Decision] = ()

    def uncommitted(self) -> tuple[Sequence[int], Sequence[Decision]]:
        """What the journal is to keep: the offsets from `committed` on, and their decisions."""
        first = bisect_left(self.offsets, self.committed)
        return self.offsets[first:], self.decisions[first:]


class Ownership(NamedTuple):
    """What a worker learns when it claims a partition.

    Attributes:
        fence: to be named with every `record`.
        high_water: largest recorded offset; -1 before the first.
        journal: decisions of offsets at or below the high water that may come again.
        reset: whether the high water lay beyond the partition's end and was taken back: the
            topic was truncated or made anew.
        segment_boundaries: offsets above the high water at which a commit has to end. Some shards
            of an index may have recorded more than others; what they recorded is in the journal
            and is not counted again.
    """

    fence: int
    high_water: int
    journal: Mapping[int, Decision]
    reset: bool = False
    segment_boundaries: tuple[int, ...] = ()


class IndexSize(NamedTuple):
    """How much an index holds.

    Attributes:
        clusters: live clusters.
        fingerprints: entries in the tables: representatives and aliases.
        waiting: closed clusters whose final summary is not confirmed.
        evicted: clusters closed for want of room, since the index was made.
        expired: clusters closed by time, since the index was made.
        truncated: queries whose candidates were cut short by the cap.
        table_bytes: memory of the tables.
    """

    clusters: int
    fingerprints: int
    waiting: int
    evicted: int
    expired: int
    truncated: int
    table_bytes: int


class Index(Protocol):
    """What decides which events belong together, and keeps count of it."""

    @property
    def resets(self) -> int:
        """How often its data was found lost and was begun anew.

        Who keeps what was learnt from it forgets that when this has grown.
        """

    @property
    def mirrored(self) -> int:
        """Fingerprints of an index elsewhere of which this process keeps a copy."""

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int
    ) -> Ownership:
        """Take a partition over: raises its fence, so that who held it before is refused.

        Args:
            partition: the partition.
            end_offset: the partition's end (exclusive) where known. If the high water lies at or
                beyond it the partition was made anew: the high water is reset.
            now_us: the clock.

        Called again: raises the fence again; the earlier one is stale.
        """

    async def release_partition(self, partition: Partition) -> None:
        """The partition was read to its end here; it no longer holds stream time back.

        Called again, or for an unknown partition: does nothing.
        """

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        """Find or open a cluster for each query, in order, each seeing those before it.

        By exact hash; else among all live clusters of its group with a fingerprint within k
        bits, those that verification admits: the most similar, then the nearest, then the
        oldest, and the event's exact hash and fingerprint become an alias of it; else a cluster
        is opened. Two callers that resolve near-twins at once never both open one.

        Counts nothing: a cluster that nobody records closes silently. A cap on candidates may cut
        a search short; that is counted (`IndexSize.truncated`).

        An event that finds another text's open cluster under its own position (the topic was made
        anew, the file rewritten) takes it over: what led there leads there no more; the count and
        the revisions go on.

        Raises:
            IndexFull: a cluster would have to be opened, and too many closed ones wait for their
                final summary (see `Limits.max_clusters`): claim and confirm. Queries before that
                one may have been answered; make the call again.

        Called again with the same queries: finds what it opened, and answers alike.
        """

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        """Count a batch, write its journal and raise the high water: all or nothing.

        Moves stream time on, closes what has expired and, above the cap on clusters, those
        least recently seen.

        Returns:
            The clusters named that are no longer open. Unless it is empty, nothing was counted:
            forget them, resolve their events again, and record again. But from now on the partition
            holds stream time back, at `last_us`: so however far it lags behind the others, what it
            opens again stays open.

        Raises:
            StaleFence: another worker claimed the partition; nothing was written, send nothing.
            PartitionUnclaimed: nobody has claimed the partition, or its state ran out (a time to
                live, an eviction): claim it again and go on. Nothing was written.
            ProtocolError: the batch crosses the high water or a segment boundary.

        Called again with the same record: sees its offsets at or below the high water, writes
        nothing and returns an empty set.
        """

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        """Take summaries that are due, the final ones among them, and lease them.

        A summary is a snapshot: claimed again after its lease ran out it is the same, under the
        same revision, whatever was counted since.
        """

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        """The (cluster, revision) summaries were sent: settle them.

        A final one deletes its cluster and leaves a tombstone with its revision and count, so
        that its representative, should it be delivered again late, goes on from there.

        Called again, or for a revision that is not the claimed one: does nothing.
        """

    async def expire(self, now_us: int) -> None:
        """Move stream time on with the clock and close what has expired; for quiet times.

        Keeps what has a time to live and is in use: call it every few seconds, in busy times too.
        """

    async def finish(self, now_us: int) -> None:
        """The input has ended: close every cluster."""

    async def representatives(self, clusters: Sequence[int]) -> list[bytes | None]:
        """The representatives' values; None for a cluster that is gone."""

    async def size(self) -> IndexSize:
        """How much the index holds."""

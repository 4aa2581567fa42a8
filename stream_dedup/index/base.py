"""The index port: the clusters of one namespace, their counts and summaries.

An index holds fingerprints in tables, counts, the decisions of recent offsets, and the summaries
to be sent. Many workers may share one; each owns the partitions that it has claimed. Every adapter
passes the contract suite in ``tests/contract``.

Terms
-----
position      (source, partition, offset): identifies an event for ever.
fence         a number that grows with every claim of a partition; the latest one owns it.
high water    the largest offset of a partition whose event was recorded.
journal       the decisions of recorded offsets that are not committed yet.
stream time   event time that all partitions have passed; it closes clusters. See `windows`.

Note the two meanings of "commit": a `Commit` records a segment of a batch in this index; an offset
is *committed* where the events come from (in Kafka), once their output is delivered.

One batch's way
---------------
1. `resolve` finds or opens a cluster for every query. Nothing is counted yet.
2. `record` counts the events and writes the journal, all or nothing. A cluster counts once the
   commit that holds its representative is recorded; until then its opening is *provisional*.
3. The caller sends its output, commits its offsets, and goes on.
4. `claim` takes the summaries that are due; the caller sends them and calls `confirm`.

A caller may die between any two steps and another one takes over; each method says what happens
when it is called again. Methods are coroutines because a shared index is remote; the one in memory
never suspends. Times are in microseconds; `now_us` is the clock, all others are event times.

A remote index may be unavailable, or come back empty. Every method then raises `IndexUnavailable`
(the call may have been carried out or not: call again) or `IndexReset` (clusters, fences and
journals are lost: drop what was cached, claim the partitions again, then go on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from stream_dedup.errors import RecipeError
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.simhash import WIDTHS
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.model import Decision, FoundBy, Partition, Position, Summary
from stream_dedup.rules.keeping import KeptCounts

MAX_DELTAS = 640
"""The most that one commit may hold: its deltas, and the bytes of their values / `DELTA_BYTES`,
together. Counting more would make other callers wait. The engine keeps to it."""

DELTA_BYTES = 2_048
"""Storing so many bytes of values takes about as long as counting a delta."""

MAX_MERGED_NAMED = 256
"""Merged clusters that a summary names; the final summary of each names where it went."""

MIN_WAITING = 1_000
"""So many closed clusters may wait for their final summary, however few may be open."""


def max_waiting(max_clusters: int) -> int:
    """Return how many closed clusters may wait for their final summary.

    While there are more, no cluster is opened.
    """
    return max(MIN_WAITING, max_clusters)


def too_many_wait(waiting: int) -> str:
    """Return the message of `IndexFull` in that case."""
    return f"{waiting} closed clusters wait for their final summary: claim and confirm them"


def check_width(recipe: Recipe) -> None:
    """Refuse a recipe whose fingerprints are too narrow to be cut into blocks.

    Raises:
        RecipeError: they are.
    """
    width = recipe.fingerprint.width
    if width not in WIDTHS:
        problem = f"is {width}, which is to be looked at only: no index holds so few bits"
        remedy = f"use one of {', '.join(map(str, WIDTHS))}, or compare, explain and fingerprint"
        raise RecipeError(f"recipe {recipe.name}", "fingerprint.width", problem, remedy)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many clusters an index may hold, and how much work one call may do.

    Attributes:
        max_clusters: open clusters. If there are more, the least recently seen are closed. If more
            than this number (at least `MIN_WAITING`) of closed clusters wait for their final
            summary, no cluster is opened.
        max_candidates: table entries compared for one query. A search that finds more stops
            there and counts as truncated. With bands a query finds at most 256.
        max_verified: clusters whose sketch is compared with one event. If a search finds more, it
            takes the nearest of at most four times as many, and counts as truncated. Clusters that
            cannot admit the event, as the caller knows, do not count. With bands Redis compares at
            most 16, and the index in memory compares all.
        sweep: clusters that one call may close, besides those evicted.
    """

    max_clusters: int = 100_000
    max_candidates: int = 2_000
    max_verified: int = 64
    sweep: int = 10_000

    def __post_init__(self) -> None:
        for name in ("max_clusters", "max_candidates", "max_verified", "sweep"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 1 or more")


class Query(NamedTuple):
    """The question to which cluster an event belongs.

    Of equal events in a batch only the first is queried, for all of them.

    Attributes:
        group: only clusters of an equal group are considered; see `index.groups`.
        exact: the exact hash, computed with the index's key.
        fingerprint: the fingerprint.
        sketch: the sketch, for verification, computed with the index's key.
        near: whether the event has enough features to match by fingerprint; if not, only its
            exact hash is looked up.
        first_us: the event's time.
        last_us: latest time of the events for which it asks; the cluster is kept live until then.
        position: the event's position; it gives the id of the cluster that is opened if none is
            found.
        one_off: the keys of its pattern, if words are learned (`fingerprint.one_off`).
    """

    group: str
    exact: int
    fingerprint: int
    sketch: bytes
    near: bool
    first_us: int
    last_us: int
    position: Position
    one_off: bytes = b""


class Resolution(NamedTuple):
    """The answer to a query.

    Attributes:
        cluster: the cluster's id.
        distance: of the event's fingerprint from the representative's: the bits in which they
            differ; of bands, the keys.
        new: whether the event is the cluster's representative: the cluster was opened for it, now
            or when the event was delivered before.
        opened_us: event time at which the cluster was opened.
        last_us: event time at which it was last seen, this query included.
        recorded: whether its opening was recorded. Until then the cluster may vanish, or its
            representative be delivered again and found new: nobody may cache this answer for equal
            events.
        found_by: how it was found.
        learned: as `Summary.learned`, after all queries of the call.
    """

    cluster: int
    distance: int
    new: bool
    opened_us: int
    last_us: int
    recorded: bool = False
    found_by: FoundBy = FoundBy.EXACT
    learned: int = 0


def opening(queries: Sequence[Query], answers: Sequence[Resolution]) -> list[Query]:
    """Return the queries that have opened clusters, if words are learned."""
    return [
        query
        for query, answer in zip(queries, answers, strict=True)
        if answer.new and answer.found_by is FoundBy.NEW and query.one_off
    ]


class ClusterDelta(msgspec.Struct, gc=False):
    """What a commit adds to one cluster.

    It is a struct because a batch makes hundreds of them.

    Attributes:
        cluster: the cluster's id.
        count: the number of events.
        first_us: their earliest event time.
        last_us: their latest event time.
        representative: the representative's value, if the commit holds that event.
        samples: values of a few others.
        sampled: values of randomly chosen events, each after its priority (`engine.sampling`). The
            cluster keeps the values with the lowest priorities, each once.
        size: bytes of all these events, as they were read.
    """

    cluster: int
    count: int
    first_us: int
    last_us: int
    representative: bytes | None = None
    samples: Sequence[bytes] = ()
    sampled: Sequence[tuple[int, bytes]] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Events of one partition to be recorded at once: a segment of a batch.

    Attributes:
        partition: the partition.
        fence: as `claim_partition` returned it.
        first_offset: offset of the first event; above the high water.
        last_offset: offset of the last event; becomes the high water.
        committed: the next offset to be read after a crash, as far as known: journal entries
            below it are dropped.
        last_us: the latest event time, passed events included.
        deltas: what is added, one delta for each cluster.
        offsets: of the events that the journal keeps: those from `committed` on, ascending.
        decisions: the decision for each of them.
        kept: for each rule that limits a pattern, how many events were written in each minute,
            these events included; None if that is unchanged.
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
    kept: KeptCounts | None = None


def recorded_before(commit: Commit) -> str:
    """Return the message of `AlreadyRecorded`."""
    return (
        f"{commit.partition}: of offsets {commit.first_offset} to {commit.last_offset} some were "
        "recorded before"
    )


class Ownership(NamedTuple):
    """What a worker learns when it claims a partition.

    Attributes:
        fence: to be given with every commit.
        high_water: largest recorded offset; -1 before the first.
        journal: decisions of offsets at or below the high water that may be delivered again.
        reset: whether the high water was reset: it was beyond the partition's end, so the topic was
            truncated or created again; or the topic has another identity.
        created_again: whether the topic has another identity: earlier offsets are not valid any
            more.
        segment_boundaries: offsets above the high water at which a commit has to end. Some shards
            of an index may have recorded more than others; what they recorded is in the journal
            and is not counted again.
        committed: the latest offset named by a commit as committed, so that all events before it
            were delivered; None before the first commit.
        kept: for each rule that limits a pattern, how many events were written in each minute, from
            the last commit that gave it.
    """

    fence: int
    high_water: int
    journal: Mapping[int, Decision]
    reset: bool = False
    segment_boundaries: tuple[int, ...] = ()
    committed: int | None = None
    kept: KeptCounts = MappingProxyType({})
    created_again: bool = False


class IndexSize(NamedTuple):
    """How much an index holds.

    Attributes:
        clusters: live clusters.
        fingerprints: entries in the tables: representatives and aliases.
        waiting: closed clusters whose final summary is not confirmed.
        evicted: clusters closed for lack of room, since the index was created.
        expired: clusters closed by time, since the index was created.
        truncated: queries whose candidates were limited by a cap; and clusters of bands of which
            more than half of the keys were full, so that these keys do not lead to them.
        table_bytes: memory of the tables.
        new_again: events that opened a cluster because theirs had been closed for lack of room,
            as far as known; only the index in memory counts them.
        stream_us: stream time; of several shards the least; None before the first event.
    """

    clusters: int
    fingerprints: int
    waiting: int
    evicted: int
    expired: int
    truncated: int
    table_bytes: int
    new_again: int = 0
    stream_us: int | None = None


class Representative(NamedTuple):
    """The first event of a cluster.

    Attributes:
        value: its value (capped); empty if nothing is recorded yet.
        learned: bit i for each word i that varies: it is learned, or events lack it.
    """

    value: bytes
    learned: int = 0


class Index(Protocol):
    """Decides which events belong together, and counts them."""

    @property
    def resets(self) -> int:
        """How often the index was found without its data and started again, empty.

        Callers that cache its answers drop them when this has grown.
        """

    @property
    def key(self) -> HashKey:
        """The secret of the hashes that queries contain, the same for all who share the index.

        The same object until the index is found without its data (`resets`): whoever created it
        again chose another.
        """

    @property
    def mirrored(self) -> int:
        """Fingerprints of a remote index of which this process keeps a copy."""

    @property
    def knows_combinations(self) -> bool:
        """Whether any words vary together, as of the last `claim`; if not, nothing merges late."""

    def may_fit(self, group: str, one_off: bytes) -> bool:
        """Return whether `merge_fitting` may find anything for a pattern, as of the last `claim`.

        Args:
            group: as `Query.group`.
            one_off: as `Query.one_off`.
        """

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int, identity: str = ""
    ) -> Ownership:
        """Claim a partition: raise its fence, so that its former owner is refused.

        Called again: raises the fence again; the earlier one is stale.

        Args:
            partition: the partition.
            end_offset: the partition's end (exclusive) where known. If the high water is at or
                beyond it, the partition was created again: the high water is reset.
            now_us: the clock.
            identity: its topic's, where known. If the last claim that gave one gave another, the
                topic was created again: the high water is reset.
        """

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        """Read what a claimed partition holds now, under the fence of its claim.

        For a caller that does not know whether a commit was recorded. If its answer was lost, it
        may be recorded even after this call; then the next commit raises `AlreadyRecorded`.

        Raises:
            StaleFence, PartitionUnclaimed: as `record`.
        """

    async def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        """Note that all events before an offset were delivered, and are not read again.

        `record` notes it, too, but only with the next batch. Whoever claims the partition learns it
        (`Ownership.committed`).

        No more is noted than was recorded. Called again, with a smaller offset, or after another
        claim: does nothing.
        """

    async def release_partition(self, partition: Partition) -> None:
        """Release a partition that was read to its end: it no longer holds stream time back.

        Called again, or for an unknown partition: does nothing.
        """

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        """Find or open a cluster for each query, in order; each query sees those before it.

        1. The cluster that the exact hash leads to.
        2. Otherwise, if words are learned, the cluster that the words lead to: a word of the event
           is a known variable; the words are the same; or there is one word more or less (see
           `index.memory.postings`). The event's exact hash becomes an alias of it.
        3. Otherwise, of all live clusters of the group with a fingerprint within k bits that
           verification admits: the most similar, then the nearest, then the oldest. The event's
           exact hash and fingerprint become an alias of it.
        4. Otherwise a new cluster. Two callers that resolve near-duplicates at the same time never
           both open one.

        If words are learned, the event's words are noted. When they show that a word is a variable,
        all clusters that differ in it *merge* into one: the oldest of those whose opening is
        recorded, or else the oldest (of equally old ones that of the least offset). What led to the
        others leads there; they close (`Closing.MERGED`), and answers of this call name the one
        that is left.

        Nothing is counted. If no commit records the opening, the cluster closes without a summary
        and returns to its state before (not stored, closed or gone). So a caller that dies, a
        caller that has lost its partition, and a replay can neither create a cluster nor reopen
        one. A search that reaches a limit is counted (`IndexSize.truncated`).

        If another text's open cluster is found under the event's own position (the topic was
        created again, the file rewritten), the event takes it over: former aliases no longer lead
        to it, its count and revisions go on.

        Called again with the same queries: finds what it opened, and answers alike, but names the
        cluster into which another one has merged since.

        Raises:
            IndexFull: a cluster would have to be opened while too many closed ones wait for their
                final summary (see `Limits.max_clusters`): claim and confirm, then call again.
                Earlier queries of the call may have been answered.
        """

    async def record(self, commit: Commit, now_us: int) -> frozenset[int]:
        """Count events, write the journal and raise the high water: all or nothing.

        Moves stream time on, and closes clusters that have expired and, above the cap on clusters,
        those least recently seen. Over Redis it may wait some seconds for commits of other
        partitions that open clusters named here.

        Called again with the same commit: raises `AlreadyRecorded`.

        Returns:
            The clusters that cannot count the commit: those that have closed, and those whose
            first event neither an earlier commit nor this one records (now closed too). If any
            is returned, nothing was counted: resolve its events again, then record again. The
            partition now
            holds stream time back, at `last_us`, so the clusters opened on the second attempt stay
            open, however far the partition is behind.

        Raises:
            AlreadyRecorded: events of the commit were recorded before; none is counted twice.
                Clusters may have closed since, so its decisions may differ from those that were
                counted: call `read_partition`, and take them from the journal.
            StaleFence: another worker claimed the partition. Nothing was written; send nothing.
            PartitionUnclaimed: nobody has claimed the partition, or its state has expired: claim
                it again and go on. Nothing was written.
        """

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        """Take summaries that are due, final ones included, and lease them.

        A summary is a snapshot. Claimed again after its lease has ended, it is the same under the
        same revision, whatever was counted since.
        """

    async def merge_fitting(
        self, clusters: Sequence[int], queries: Sequence[Query], now_us: int
    ) -> list[int | None]:
        """Merge closed clusters into open ones whose learned patterns they fit by now.

        A cluster that opened before its words were known to vary together is not found by later
        events. So whoever claims its final summary calls this before it sends the summary. If this
        returns a cluster, the summary is sent as that of a merged one (see `Summary`), under the
        same revision, and the next summary of the other cluster names it.

        A cluster merges only if this is its first summary, if it shows no variable, and if the
        other one was opened while it could still have taken events.

        Called again, or if the summary was claimed twice: nothing changes any more, as the summary
        may have been sent. It answers as before.

        Args:
            clusters: whose final summary is claimed.
            queries: of their representatives.
            now_us: the clock.

        Returns:
            For each the cluster that goes on for it; None if it stays as it is.
        """

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        """Confirm that the summaries of these (cluster, revision) pairs were sent.

        A final one deletes its cluster and leaves a tombstone with its revision and count: if an
        event is recorded at its representative's position again (the topic was created again, the
        index has lost a high water), they go on from there.

        Called again, or for a revision that is not the claimed one: does nothing.
        """

    async def expire(self, now_us: int) -> None:
        """Move stream time on with the clock and close what has expired, also in quiet times.

        Above the cap on clusters it closes the least recent ones too, as `record` does: events that
        are decided again, and not recorded, open some.

        Renews the time to live of what is in use: call it every few seconds, in busy times too.
        """

    async def finish(self, now_us: int) -> None:
        """Close every cluster: the input has ended."""

    async def representatives(self, clusters: Sequence[int]) -> list[Representative | None]:
        """Return the representatives; None for a cluster that is gone."""

    async def size(self) -> IndexSize:
        """Return how much the index holds."""

"""The index over Redis, which many workers share. See `base.Index` for the methods.

Theory of operation
-------------------
Every method is one script call a shard, or a few of bounded work, and each script is atomic: two
workers can never both admit near-twins. Clusters go through the same states as in `index.memory`;
what differs is *when* their entries are removed. Closing marks the cluster and takes it off the
queues. Its entries in slices and tables are ignored from then on; its names go to a list of
*garbage*, from which the caller purges the entries right after, in calls of their own. So the work
of a script does not grow with the aliases of the clusters that it closes, and a crash in between
leaves garbage that another worker purges seconds later.

Bounded work: `resolve` is cut into calls by the planned cost of its queries, and a script that has
spent its budget answers fewer queries than it was sent. `record` closes a bounded number of
clusters; the rest is closed by `sweep` calls before it returns.

Shards: groups are assigned to them by hash, and a cluster's id ends with its shard's number. A
partition has a fence, high water and journal in each. A commit goes to all of them; each shard
records all of its part or nothing, and ignores what it has already. A crash between two shards
leaves their high waters apart: `claim_partition` returns the offsets
(`Ownership.segment_boundaries`).

Openings: the commit that holds a cluster's representative is the first that may count there (see
`memory`). Other commits that name the cluster wait for it. So that no two wait for each other, one
waits only for partitions that come before its own (by source and number), and closes what later
ones have opened: these find their cluster closed, and resolve again. An opener that has died is
waited for one second, and longer after each wait in vain (`OPENING_WAITS_S`).

Retention: every key has a time to live of at least twice the longest time a cluster can be open. It
is renewed when a partition is recorded, when a cluster is opened, and when one is counted, closed
or emitted after half of it. `expire` renews what scripts do not renew while clusters only
count: claimed partitions every hour; slices in rounds, a few hundred keys a call. So slices keep
half of their time, and inserting an entry renews them only where no round has. Times to live delete
what is no longer used; they are not how clusters expire.

Loss: a call names the incarnation that its caller knows; `record` the one under which its partition
was claimed. So whichever call notices a loss of data first, each partition's next commit notices it
too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self, TypeVar

from stream_dedup.clock import US_PER_S, Clock, ServerClock, SystemClock, monotonic_s
from stream_dedup.clustering.openings import OpenedPatterns
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode, rows_of
from stream_dedup.errors import (
    AlreadyRecorded,
    IndexRefused,
    IndexUnavailable,
    PartitionUnclaimed,
    ProtocolError,
    StaleFence,
)
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import (
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Representative,
    Resolution,
    opening,
    recorded_before,
)
from stream_dedup.index.redis import codec, layouts, scripts
from stream_dedup.index.redis.advice import advise, compare_settings, judge_shards
from stream_dedup.index.redis.calls import gather_all, group_by
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, check_namespace
from stream_dedup.index.redis.maintenance import PIECES, SWEEP_STEPS, Maintenance
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.namespace import (
    MAX_SHARDS,
    Opened,
    describe_settings,
    open_namespace,
    open_spread,
    plan_layout,
)
from stream_dedup.index.redis.one_off import is_listed
from stream_dedup.index.redis.resolver import Resolver
from stream_dedup.index.redis.runner import Partitions, ScriptRunner
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.model import Partition, Summary

log = logging.getLogger(__name__)

T = TypeVar("T")

LIMITS = Limits(max_clusters=20_000)
"""Less than in memory: more clusters need more tables, and others wait while a script runs."""

CLAIMS = 200
"""Summaries claimed a call; each may hold several values of some kilobytes."""

CONFIRMS = 120
"""Summaries confirmed a call; each takes six commands if its cluster is closed."""

WAITS = 2
"""The first number of ``record.lua``'s answer when the commit waits for others."""

OPENING_WAITS_S = (1.0, 8.0)
"""How long a commit waits for another one that opens a cluster named in it: at first, and at most.
That takes milliseconds, unless the opener has died or the server is slow. The wait doubles each
time it was in vain: if it were always short, a slow opener that is alive would lose its clusters
again and again. It is less than `drain_s` and `stalled_after_s` are by default."""

OPENING_PAUSES_S = (0.002, 0.064)
"""Between two attempts of such a commit: the first pause, doubled each time, and the longest. The
longest is a thirtieth of the wait where that is more."""


class _Recorded(NamedTuple):
    """A shard's answer to a commit.

    Attributes:
        closed: clusters that are no longer open; unless it is empty, nothing was written.
        already: whether the shard had recorded the commit's offsets before.
        lost: whether it had, and the answer was lost.
    """

    closed: frozenset[int] = frozenset()
    already: bool = False
    lost: bool = False


class Since:
    """The caller's clock, which goes on while a call waits.

    Args:
        start_us: the time when the call began.
    """

    def __init__(self, start_us: int) -> None:
        self._start_us = start_us
        self._start_s = monotonic_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return monotonic_s() - self._start_s

    @property
    def now_us(self) -> int:
        """The time now, in whole seconds since the start: most calls need only the start."""
        return self._start_us + US_PER_S * int(self.elapsed_s)


def opening_pauses_s(wait_s: float) -> tuple[float, float]:
    """Return the first and the longest pause of a commit that waits so long for others."""
    first_s, longest_s = OPENING_PAUSES_S
    return first_s, max(longest_s, wait_s / 30)


class RedisIndex:
    """The index over Redis.

    Create it with `open`. Tasks of one event loop may share it; the calls for one partition have to
    be made one after the other.

    Attributes:
        client: the service; its counts are of calls and retries.
        layout: how the namespace is laid out.
        advice: what is wrong with settings: the server's, how shards share the cap on clusters,
            what differs from the worker that opened the namespace before; also logged.
        clock: the time to give to its methods and to the engine.
        spread: whether the tables of a group lie on all shards; see `spread_store`.
    """

    spread = False

    def __init__(
        self,
        client: RedisClient,
        recipe: Recipe,
        opened: Opened,
        *,
        namespace: str,
        windows: Windows,
        summaries: Summaries,
        limits: Limits,
        mirror_size: int,
        clock: Clock,
        advice: tuple[str, ...] = (),
    ) -> None:
        self.client = client
        self.recipe = recipe
        self.namespace = namespace
        self.layout = opened.layout
        self.advice = advice
        self._summaries = summaries
        self._limits = limits
        self._packer = Packer(namespace, opened.layout, opened.key)
        self._shards = self._packer.shards
        self.clock = ServerClock(
            clock, partial(client.time_us, self._shards[0].meta), client.address
        )
        self._runner = ScriptRunner(
            client, namespace, recipe, opened.layout, self._packer, opened.incarnations,
            windows=windows, summaries=summaries, limits=limits, spread=self.spread,
        )  # fmt: skip
        self._openings = OpenedPatterns(recipe.match.learn, windows.idle_us)
        self._shapes: dict[int, bytes] = {}  # of each shard, see `one_off.is_listed`
        self._waits_s: dict[Partition, float] = {}  # where the latest commit waited in vain
        self._partitions = self._make_partitions()
        self._maintenance = self._make_maintenance()
        self._resolver = Resolver(
            client, self._runner, self._packer, recipe, self.layout, limits, mirror_size
        )

    @classmethod
    async def open(
        cls,
        client: RedisClient,
        recipe: Recipe,
        *,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits = LIMITS,
        shards: int = 1,
        blocks: int | None = None,
        mirror_size: int = MIRROR_SIZE,
        clock: Clock | None = None,
    ) -> Self:
        """Open a namespace, or create it.

        Args:
            client: the service; the caller closes it.
            recipe: what counts as near.
            namespace: its name; the recipe's without.
            windows: when clusters close.
            summaries: how often summaries are emitted.
            limits: how much the namespace holds; its tables are laid out for `max_clusters`
                when it is created, whatever is given later.
            shards: over how many slots of a cluster groups are spread; fixed when it is created.
            blocks: m, if it is created; planned without (see `tables.planner`).
            mirror_size: fingerprints of a shard that this process mirrors, at most; where there are
                more, or with 0, Redis searches its tables.
            clock: the process's; see `ServerClock`.

        Raises:
            RecipeMismatch: it was created with another recipe.
            IndexRefused: it was created by another version or with other shards, or the server
                refuses.
            IndexUnavailable: the server cannot be reached.
            ValueError: namespace, shards or blocks are invalid.
        """
        if not 1 <= shards <= MAX_SHARDS:
            raise ValueError(f"shards is {shards}; give 1 to {MAX_SHARDS}")
        namespace = check_namespace(namespace or recipe.name)
        windows, summaries = windows or Windows(), summaries or Summaries()
        planned = cls._plan(recipe, limits, shards, blocks)
        settings = describe_settings(windows, summaries, limits)
        advice: dict[str, None] = {}
        for number in range(shards):
            advice |= dict.fromkeys(await advise(client, ShardKeys(namespace, number).meta))
        if not cls.spread:
            advice |= dict.fromkeys(judge_shards(shards, limits.max_clusters))
        advice |= dict.fromkeys(await compare_settings(client, namespace, settings))
        for sentence in advice:
            log.warning("%s: %s", client.address, sentence)
        opens = open_spread if cls.spread else open_namespace
        opened = await opens(
            client, namespace, recipe, planned, HashKey.random(),
            windows=windows, summaries=summaries, settings=settings,
        )  # fmt: skip
        index = cls(
            client,
            recipe,
            opened,
            namespace=namespace,
            windows=windows,
            summaries=summaries,
            limits=limits,
            mirror_size=mirror_size,
            clock=clock or SystemClock(),
            advice=tuple(advice),
        )
        await index.clock.check()
        return index

    @classmethod
    def _plan(
        cls, recipe: Recipe, limits: Limits, shards: int, blocks: int | None
    ) -> NamespaceLayout:
        return plan_layout(recipe, limits.max_clusters, shards, blocks)

    def _make_partitions(self) -> Partitions:
        return Partitions(self._runner, self._shards, self.client.address)

    def _make_maintenance(self) -> Maintenance:
        learns = self.recipe.match.learn > 0
        return Maintenance(
            self.client, self._runner, self._packer, self.layout, self._limits, learns=learns
        )

    def report(self, on_call: Callable[[float], None], on_rollback: Callable[[], None]) -> None:
        """Have calls and rollbacks reported.

        Args:
            on_call: called with the seconds that a script call took, its retries included.
            on_rollback: called whenever `rollbacks` grows.
        """
        self._runner.on_call = on_call
        self._partitions.on_rollback = on_rollback

    @property
    def key(self) -> HashKey:
        """The key of the namespace's hashes."""
        return self._packer.key

    @property
    def resets(self) -> int:
        """How often the namespace had lost its data."""
        return self._runner.resets

    @property
    def rollbacks(self) -> int:
        """How often a partition's high water had gone back.

        The server lost its last writes, as a failover may; the events that they counted are not
        counted again.
        """
        return self._partitions.rollbacks

    @property
    def mirrored(self) -> int:
        """Fingerprints that this process mirrors; see `mirror`."""
        return self._resolver.mirrored

    @property
    def knows_combinations(self) -> bool:
        """See `base.Index`."""
        return any(self._shapes.values())

    def may_fit(self, group: str, one_off: bytes) -> bool:
        """See `base.Index`."""
        return is_listed(self._shapes.get(self._packer.group(group).shard, b""), one_off)

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int, identity: str = ""
    ) -> Ownership:
        del now_us
        self._waits_s.pop(partition, None)
        return await self._partitions.claim(partition, end_offset, identity)

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        try:
            return await self._partitions.read(partition, fence)
        except Refusal as refusal:
            raise self._protocol_error(partition, fence, refusal) from refusal

    async def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        await self._partitions.note_committed(partition, fence, offset)

    async def release_partition(self, partition: Partition) -> None:
        self._waits_s.pop(partition, None)
        await self._partitions.release(partition)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        answers = await self._ask_shards(self._resolver.resolve, queries, now_us)
        await self._compare(queries, answers, now_us)
        return answers

    async def _compare(
        self, queries: Sequence[Query], answers: Sequence[Resolution], now_us: int
    ) -> None:
        """Compare patterns that have opened clusters with those before; note which words vary."""
        opened = opening(queries, answers)
        patterns = ((query.group, query.one_off, query.first_us) for query in opened)
        settings = self._runner.settings(now_us)
        for place, combination in self._openings.add_all(patterns).items():
            query = opened[place]
            shard = self._shards[self._packer.group(query.group).shard]
            try:
                await self._resolver.combine(shard, query, combination, settings)
            except IndexUnavailable as error:  # lines that come later are compared again
                log.debug("what varies in a pattern is not noted: %s", error)

    async def _ask_shards(
        self,
        ask: Callable[[ShardKeys, Sequence[Query], bytes], Awaitable[list[T]]],
        queries: Sequence[Query],
        now_us: int,
    ) -> list[T]:
        """Ask the shard of each query's group; return the answers in the order of the queries."""
        settings = self._runner.settings(now_us)
        if len(self._shards) == 1:
            return await ask(self._shards[0], queries, settings)
        rows_of_shard: dict[int, list[int]] = {}
        for row, query in enumerate(queries):
            rows_of_shard.setdefault(self._packer.group(query.group).shard, []).append(row)
        answers = await gather_all(
            ask(self._shards[number], [queries[row] for row in rows], settings)
            for number, rows in rows_of_shard.items()
        )
        out: dict[int, T] = {}
        for rows, answered in zip(rows_of_shard.values(), answers, strict=True):
            out.update(zip(rows, answered, strict=True))
        return [out[row] for row in range(len(queries))]

    # ------------------------------------------------------------ counting

    async def record(self, commit: Commit, now_us: int) -> frozenset[int]:
        first_s, longest_s = OPENING_WAITS_S
        clock, wait_s = Since(now_us), self._waits_s.get(commit.partition, first_s)
        closed = await self._record_all(commit, clock, wait_s)
        if not closed:
            self._waits_s.pop(commit.partition, None)
        elif clock.elapsed_s >= wait_s:
            self._waits_s[commit.partition] = min(2 * wait_s, longest_s)
        return closed

    async def _record_all(self, commit: Commit, clock: Since, wait_s: float) -> frozenset[int]:
        """Record a commit on all shards, as `record`; wait so long for those that open clusters."""
        if len(self._shards) == 1:
            return _closed(commit, [await self._record(self._shards[0], commit, clock, wait_s)])
        shard_of = self._packer.shard_of
        deltas = group_by(commit.deltas, lambda delta: shard_of(delta.cluster).number)
        different, places = dictionary_encode(commit.decisions)
        number_of = [0 if d.cluster is None else shard_of(d.cluster).number for d in different]
        parts = []
        for number in range(len(self._shards)):
            rows = rows_of(places, [own == number for own in number_of])
            part = replace(
                commit,
                deltas=deltas.get(number, ()),
                offsets=[commit.offsets[row] for row in rows],
                decisions=[commit.decisions[row] for row in rows],
            )
            parts.append(self._record(self._shards[number], part, clock, wait_s))
        return _closed(commit, await gather_all(parts))

    async def _record(
        self, shard: ShardKeys, commit: Commit, clock: Since, wait_s: float
    ) -> _Recorded:
        settings = self._runner.settings(clock.now_us)
        keys, arguments = self._pack_commit(shard, commit, settings)
        incarnation = self._partitions.incarnation(shard, commit)
        call = partial(self._runner.run, shard, scripts.RECORD, keys, arguments, incarnation)
        try:
            answer = await call()
            pause_s, longest_s = opening_pauses_s(wait_s)
            while answer[0] == WAITS:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
                arguments[0] = settings = self._runner.settings(clock.now_us)
                arguments[3] = int(clock.elapsed_s < wait_s)
                answer = await call()
        except Refusal as refusal:
            if refusal.code == "SDSTRADDLE":
                raise AlreadyRecorded(recorded_before(commit)) from refusal
            raise self._protocol_error(commit.partition, commit.fence, refusal) from refusal
        if not answer[0]:
            return _Recorded(frozenset(int.from_bytes(each, "big") for each in answer[1:]))
        before = int(answer[1])
        lost = self._partitions.check_high_water(shard, commit, before)
        if answer[2] or answer[3:]:  # more to sweep, or garbage to purge
            await self._maintenance.tidy(shard, settings, answer)
        return _Recorded(already=commit.last_offset <= before, lost=lost)

    def _pack_commit(
        self,
        shard: ShardKeys,
        commit: Commit,
        settings: bytes,
        *,
        attempt: int = 0,
        part: int = layouts.PART_WHOLE,
    ) -> tuple[list[bytes], list[Argument]]:
        """Pack a commit, or a shard's part of it: the keys and arguments of ``record.lua``."""
        keys = self._record_keys(shard, commit.partition)
        _, _, partition = self._partitions.names(shard, commit.partition)
        batch = layouts.BATCH.struct.pack(
            commit.fence,
            commit.first_offset,
            commit.last_offset,
            commit.committed,
            codec.clamp_us(commit.last_us),
            self._summaries.samples,
            self._summaries.values,
            # Where there is much to count, calls of their own sweep.
            min(SWEEP_STEPS, self._limits.sweep) if len(commit.deltas) <= SWEEP_STEPS else 0,
            PIECES,
            attempt,
            part,
        )
        journal = codec.pack_journal(commit.offsets, commit.decisions)
        samples, max_bytes = self._summaries.samples, self._summaries.max_value_bytes
        bare, clusters, values = codec.pack_deltas(
            commit.deltas, samples, max_bytes, shard.prefixes.owner
        )
        arguments: list[Argument] = [
            settings, partition, batch, 1, journal, bare, codec.pack_kept(commit.kept), *values,
        ]  # fmt: skip
        return keys + clusters, arguments

    def _record_keys(self, shard: ShardKeys, partition: Partition) -> list[bytes]:
        """Return the keys of ``record.lua``, without clusters."""
        partition_key, journal_key, _ = self._partitions.names(shard, partition)
        return [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads, partition_key, journal_key,
        ]  # fmt: skip

    def _protocol_error(self, partition: Partition, fence: int, refusal: Refusal) -> Exception:
        if refusal.code == "SDUNCLAIMED":
            return PartitionUnclaimed(f"{partition}: nobody has claimed it, or its state ran out")
        if refusal.code == "SDFENCE":
            self._partitions.superseded(partition, fence)
            return StaleFence(
                f"{partition}: fence {fence} is not the latest, which is {refusal.detail}"
            )
        return refusal

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        await self.clock.check()
        await self._maintenance.expire(now_us, self._partitions.claimed)

    async def finish(self, now_us: int) -> None:
        await self._maintenance.finish(now_us)

    # ------------------------------------------------------------ summaries

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        settings = self._runner.settings(now_us)
        claimed: list[Summary] = []
        for shard in self._shards:
            while len(claimed) < limit:
                asked = min(CLAIMS, limit - len(claimed))
                keys = [shard.meta, shard.due, shard.leases, shard.recency]
                try:
                    more, shapes, *answer = await self._runner.run(
                        shard, scripts.CLAIM, keys, [settings, asked]
                    )
                except (IndexRefused, IndexUnavailable):
                    if not claimed:
                        raise
                    # Summaries that are leased already would else be sent only after their lease.
                    # A loss of data is raised at once.
                    return claimed
                self._shapes[shard.number] = shapes
                most = self._summaries.values
                claimed += [codec.unpack_summary(each, most) for each in answer]
                if len(answer) < asked and not more:
                    break
        return claimed

    async def merge_fitting(
        self, clusters: Sequence[int], queries: Sequence[Query], now_us: int
    ) -> list[int | None]:
        identified = [
            query
            for cluster, query in zip(clusters, queries, strict=True)
            if cluster == self._packer.opened_id(query)
        ]
        found = await self._ask_shards(self._resolver.merge_fitting, identified, now_us)
        roots = dict(zip(identified, found, strict=True))
        return [roots.get(query) for query in queries]

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        settings = self._runner.settings(now_us)
        for number, named in group_by(summaries, self._number_of).items():
            shard = self._shards[number]
            for start in range(0, len(named), CONFIRMS):
                keys = [shard.meta, shard.due, shard.leases, shard.gone]
                arguments: list[Argument] = [settings]
                for identity, revision in named[start : start + CONFIRMS]:
                    packed_id = codec.pack_id(identity)
                    keys.append(shard.cluster(packed_id))
                    arguments += (packed_id, revision)
                await self._runner.run(shard, scripts.CONFIRM, keys, arguments)

    def _number_of(self, named: tuple[int, int]) -> int:
        return self._packer.shard_of(named[0]).number

    # ------------------------------------------------------------ reading

    async def representatives(self, clusters: Sequence[int]) -> list[Representative | None]:
        found: dict[int, Representative] = {}
        for number, asked in group_by(clusters, self._known_number_of).items():
            if number is not None:
                found.update(await self._representatives(self._shards[number], asked))
        return [found.get(identity) for identity in clusters]

    async def _representatives(
        self, shard: ShardKeys, clusters: Sequence[int]
    ) -> dict[int, Representative]:
        """The known representatives of a shard's clusters, in few calls."""
        commands = [("GET", shard.cluster(codec.pack_id(each))) for each in clusters]
        answers = await self.client.many(shard.meta, commands)
        found: dict[int, Representative] = {}
        for identity, answer in zip(clusters, answers, strict=True):
            cluster = codec.unpack_cluster(answer) if answer else None
            if cluster is not None and not cluster.gone:
                texts = codec.unpack_texts(answer)
                found[identity] = Representative(texts.representative, texts.learned)
        return found

    def _known_number_of(self, identity: int) -> int | None:
        """The shard of a cluster; None if the id is not of this namespace."""
        try:
            return self._packer.shard_of(identity).number
        except ProtocolError:
            return None

    async def size(self) -> IndexSize:
        counters = ("fingerprints", "waiting", "evicted", "expired", "truncated")
        totals = dict.fromkeys(("clusters", *counters), 0)
        streams_us = []
        for shard in self._shards:
            stream_us, *values = await self.client.command(
                shard.meta, "HMGET", shard.meta, "stream", *counters
            )
            if stream_us is not None:
                streams_us.append(int(stream_us))
            totals["clusters"] += await self.client.command(shard.meta, "ZCARD", shard.recency)
            for counter, value in zip(counters, values, strict=True):
                totals[counter] += max(0, int(value or 0))
        bytes_each = self.layout.table_layout.tables * (self._packer.entries.member_bytes + 4)
        return IndexSize(
            **totals,
            table_bytes=totals["fingerprints"] * bytes_each,
            stream_us=min(streams_us, default=None),
        )


def _closed(commit: Commit, recorded: Sequence[_Recorded]) -> frozenset[int]:
    """Combine the shards' answers to a commit.

    A shard may have recorded it before and its caller know: then the others go on.
    """
    if any(each.lost for each in recorded) or all(each.already for each in recorded):
        raise AlreadyRecorded(recorded_before(commit))
    return frozenset[int]().union(*(each.closed for each in recorded))

"""The index over Redis: many workers share one truth. See `base.Index` for the methods.

Theory of operation
-------------------
Every method is one script a shard, or a few of bounded work, and each script is atomic: two workers
can never both admit near-twins. A cluster's way is that of `index.memory`; what differs is *when*
its traces go. Closing marks the cluster and takes it off the queues; its entries in slices and
tables, now ignored, go to a list of *garbage*, from which the caller purges them right after, in
calls of their own. So no script's work grows with the aliases of what it closes, and a crash
between leaves garbage that the next worker is handed.

Bounded work: `resolve` is cut into calls by what a query is planned to cost, and a script that has
spent its budget answers for fewer queries than it was asked. `record` closes a bounded number of
clusters; the rest goes in `sweep` calls before it returns.

Shards: groups are take over them by hash, and a cluster's id ends with its shard's number. A
partition has a fence, high water and journal in each; a record goes to all of them, each all or
nothing, and what one already has it ignores. A crash between two shards leaves their high waters
apart: `claim_partition` names the offsets (`Ownership.segment_boundaries`).

Retention: every key has a TTL of at least twice the longest time a cluster can be open, begun anew
when a partition is recorded, a cluster opened, closed or told of, or counted after half of it. What
scripts do not renew while clusters only count (slices and tables, partitions that see nothing)
`expire` does: of what it has claimed every hour, of slices and tables in rounds, a few hundred keys
a call. So slices that stand have half of it left, and are begun anew when an entry is added only
where no round says so. It ends what nobody uses; it is not how clusters expire.

Loss: a call names the incarnation its caller knows; `record` that under which its partition was
claimed. So whichever call finds the data lost, each partition's next record does too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode, rows_of
from stream_dedup.errors import (
    IndexRefused,
    IndexUnavailable,
    PartitionUnclaimed,
    ProtocolError,
    StaleFence,
)
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import (
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Resolution,
)
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.advice import advise, judge_shards
from stream_dedup.index.redis.calls import Calls
from stream_dedup.index.redis.keys import Shard, check_namespace
from stream_dedup.index.redis.layout import (
    MAX_SHARDS,
    Stamp,
    compare_settings,
    describe,
    plan_stamp,
    stamp_shard,
)
from stream_dedup.index.redis.maintenance import PIECES, SWEEP_STEPS, Upkeep
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.partitions import Partitions
from stream_dedup.index.redis.resolving import Resolver
from stream_dedup.index.redis.server import Argument, Refusal, Server
from stream_dedup.model import Partition, Summary

log = logging.getLogger(__name__)

N = TypeVar("N")
T = TypeVar("T")

LIMITS = Limits(max_clusters=20_000, max_candidates=2_000, max_verified=64)
"""Less than in memory: what is planned for more clusters takes more tables, and others wait while a
query is worked on."""


CLAIMS = 100
"""Summaries claimed a call; each may hold several values of some kilobytes."""

CONFIRMS = 60
"""Summaries confirmed a call; each takes some ten commands if its cluster is closed."""


class RedisIndex:
    """The index over Redis.

    Make it with `open`, and `aclose` it. Safe to share by tasks of one event loop; a partition's
    calls are to be made one after the other.

    Attributes:
        server: the service; its counts tell of calls and retries.
        advice: what is amiss with the settings: the server's, how shards share the clusters out,
            where those of the worker that opened the namespace before differ; also logged.
    """

    def __init__(
        self,
        server: Server,
        recipe: Recipe,
        stamp: Stamp,
        incarnations: list[bytes],
        *,
        namespace: str,
        windows: Windows,
        summaries: Summaries,
        limits: Limits,
        mirror_size: int,
        advice: tuple[str, ...] = (),
    ) -> None:
        self.server = server
        self.recipe = recipe
        self.namespace = namespace
        self.stamp = stamp
        self.advice = advice
        self._summaries = summaries
        self._limits = limits
        self._packer = Packer(namespace, stamp)
        self._shards = self._packer.shards
        self._calls = Calls(
            server, namespace, recipe, stamp, incarnations,
            windows=windows, summaries=summaries, limits=limits,
        )  # fmt: skip
        self._partitions = Partitions(self._calls, self._shards, server.address)
        self._calls.lost = self._partitions.forget_marks
        self._upkeep = Upkeep(server, self._calls, self._packer, stamp, limits)
        self._resolver = Resolver(
            server, self._calls, self._packer, recipe, stamp, limits, mirror_size
        )

    @classmethod
    async def open(
        cls,
        server: Server,
        recipe: Recipe,
        *,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits = LIMITS,
        shards: int = 1,
        blocks: int | None = None,
        mirror_size: int = MIRROR_SIZE,
    ) -> RedisIndex:
        """Open a namespace, or make it.

        Args:
            server: where it lives; stays the caller's to close.
            recipe: what counts as near.
            namespace: its name; the recipe's without.
            windows: when clusters close.
            summaries: how often clusters are told of.
            limits: how much the namespace holds; its tables are laid out for `max_clusters`
                when it is made, whatever is given later.
            shards: over how many slots of a cluster groups are take; fixed when it is made.
            blocks: m, if it is to be made; planned without (see `tables.planner`).
            mirror_size: fingerprints of a shard that are mirrored in process, at the most; where
                there are more, or with 0, Redis searches its tables.

        Raises:
            RecipeMismatch: it was made with another recipe.
            IndexRefused: it was made by another version or with other shards, or the server will
                not serve.
            IndexUnavailable: the server cannot be reached.
            ValueError: namespace, shards or blocks are none.
        """
        if not 1 <= shards <= MAX_SHARDS:
            raise ValueError(f"shards is {shards}; give 1 to {MAX_SHARDS}")
        namespace = check_namespace(namespace or recipe.name)
        windows, summaries = windows or Windows(), summaries or Summaries()
        planned = plan_stamp(recipe, limits.max_clusters, shards, blocks)
        advice: dict[str, None] = {}
        for number in range(shards):
            amiss = await advise(server, Shard(namespace, number).meta)
            advice.update(dict.fromkeys(amiss))
        settings = describe(windows, summaries, limits)
        advice.update(dict.fromkeys(judge_shards(shards, limits.max_clusters)))
        advice.update(dict.fromkeys(await compare_settings(server, namespace, settings)))
        for sentence in advice:
            log.warning("%s: %s", server.address, sentence)
        # A shard that is gone alone is made again as those are that stand.
        order = await _standing_first(server, namespace, shards)
        incarnations: dict[int, bytes] = {}
        stamp = planned
        for number in order:
            incarnations[number], found = await stamp_shard(
                server, namespace, number, recipe, stamp, windows, summaries, settings
            )
            if found.shards != shards:
                raise IndexRefused(
                    f"namespace {namespace!r} was made with {found.shards} shard(s), not {shards}; "
                    "give that number, or another namespace"
                )
            if number != order[0] and found != stamp:
                raise IndexRefused(
                    f"namespace {namespace!r}: shard {number} is laid out as {tuple(found)}, shard "
                    f"{order[0]} as {tuple(stamp)}; delete the namespace, or the shard that is "
                    "wrong, and have the workers make it anew"
                )
            stamp = found
        return cls(
            server,
            recipe,
            stamp,
            [incarnations[number] for number in range(shards)],
            namespace=namespace,
            windows=windows,
            summaries=summaries,
            limits=limits,
            mirror_size=mirror_size,
            advice=tuple(advice),
        )

    def report(self, took: Callable[[float], None], rolled_back: Callable[[], None]) -> None:
        """Have it told how its calls go.

        Args:
            took: called with the seconds that a script call took, its retries included.
            rolled_back: called whenever `rollbacks` grows.
        """
        self._calls.took = took
        self._partitions.rolled_back = rolled_back

    @property
    def resets(self) -> int:
        """How often the namespace was found lost."""
        return self._calls.resets

    @property
    def rollbacks(self) -> int:
        """How often a partition's high water had gone back.

        The server lost its last writes, as a failover may; what was counted by them is not counted
        again.
        """
        return self._partitions.rollbacks

    @property
    def mirrored(self) -> int:
        """Fingerprints that this process mirrors; see `mirror`."""
        return self._resolver.mirrored

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int
    ) -> Ownership:
        del now_us
        return await self._partitions.claim(partition, end_offset)

    async def release_partition(self, partition: Partition) -> None:
        await self._partitions.release(partition)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        settings = self._calls.settings(now_us)
        if len(self._shards) == 1:
            return await self._resolver.resolve(self._shards[0], queries, settings)
        places: dict[int, list[int]] = {}
        for place, query in enumerate(queries):
            places.setdefault(self._packer.group(query.group)[3], []).append(place)
        answers = await _all(
            self._resolver.resolve(
                self._shards[number], [queries[place] for place in chosen], settings
            )
            for number, chosen in places.items()
        )
        out: dict[int, Resolution] = {}
        for chosen, answered in zip(places.values(), answers, strict=True):
            out.update(zip(chosen, answered, strict=True))
        return [out[place] for place in range(len(queries))]

    # ------------------------------------------------------------ counting

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        settings = self._calls.settings(now_us)
        if len(self._shards) == 1:
            return await self._record(self._shards[0], record, settings)
        shard_of = self._packer.shard_of
        deltas = _by(record.deltas, lambda delta: shard_of(delta.cluster).number)
        offsets, decisions = record.uncommitted()
        different, places = dictionary_encode(decisions)
        number_of = [0 if d.cluster is None else shard_of(d.cluster).number for d in different]
        parts = []
        for number in range(len(self._shards)):
            rows = rows_of(places, [own == number for own in number_of])
            part = replace(
                record,
                deltas=deltas.get(number, ()),
                offsets=[offsets[row] for row in rows],
                decisions=[decisions[row] for row in rows],
            )
            parts.append(self._record(self._shards[number], part, settings))
        closed = await _all(parts)
        return frozenset[int]().union(*closed)

    async def _record(self, shard: Shard, record: Commit, settings: bytes) -> frozenset[int]:
        partition = record.partition
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads, shard.partition(partition), shard.journal(partition),
        ]  # fmt: skip
        batch = codec.BATCH.pack(
            record.fence,
            record.first_offset,
            record.last_offset,
            record.committed,
            codec.clamp_us(record.last_us),
            self._summaries.samples,
            # Much to count leaves the sweeping to calls of its own.
            min(SWEEP_STEPS, self._limits.sweep) if len(record.deltas) <= SWEEP_STEPS else 0,
            PIECES,
        )
        journal = codec.pack_journal(*record.uncommitted())
        bare, others = codec.pack_bare(codec.add_up(record.deltas))
        arguments: list[Argument] = [
            settings, codec.pack_partition(partition), batch, journal, bare,
        ]  # fmt: skip
        samples, max_bytes = self._summaries.samples, self._summaries.max_value_bytes
        for delta in others:
            keys.append(shard.cluster(codec.pack_id(delta.cluster)))
            arguments += codec.pack_tally(delta, samples, max_bytes)
        incarnation = self._partitions.incarnation(shard, record)
        try:
            answer = await self._calls.run(shard, scripts.RECORD, keys, arguments, incarnation)
        except Refusal as refusal:
            if refusal.code == "SDFENCE":
                self._partitions.superseded(record)
            raise _protocol_error(record, refusal) from refusal
        if not answer[0]:
            return frozenset(int.from_bytes(identity, "big") for identity in answer[1:])
        self._partitions.watch(shard, record, int(answer[1]))
        await self._upkeep.tidy(shard, settings, answer)
        return frozenset()

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        await self._upkeep.expire(now_us, self._partitions.claimed)

    async def finish(self, now_us: int) -> None:
        await self._upkeep.finish(now_us)

    # ------------------------------------------------------------ summaries

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        settings = self._calls.settings(now_us)
        claimed: list[Summary] = []
        for shard in self._shards:
            while len(claimed) < limit:
                asked = min(CLAIMS, limit - len(claimed))
                keys = [shard.meta, shard.due, shard.leases, shard.recency]
                try:
                    more, *answer = await self._calls.run(
                        shard, scripts.CLAIM, keys, [settings, asked]
                    )
                except (IndexRefused, IndexUnavailable):
                    if not claimed:
                        raise
                    # What is leased already would be sent late, after its lease. A loss of data
                    # must be told of at once.
                    return claimed
                claimed += map(codec.unpack_summary, answer)
                if len(answer) < asked and not more:
                    break
        return claimed

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        settings = self._calls.settings(now_us)
        for number, named in _by(summaries, self._number_of).items():
            shard = self._shards[number]
            for start in range(0, len(named), CONFIRMS):
                keys = [shard.meta, shard.due, shard.leases, shard.gone]
                arguments: list[Argument] = [settings]
                for identity, revision in named[start : start + CONFIRMS]:
                    packed_id = codec.pack_id(identity)
                    keys.append(shard.cluster(packed_id))
                    arguments += (packed_id, revision)
                await self._calls.run(shard, scripts.CONFIRM, keys, arguments)

    def _number_of(self, named: tuple[int, int]) -> int:
        return self._packer.shard_of(named[0]).number

    # ------------------------------------------------------------ looking

    async def representatives(self, clusters: Sequence[int]) -> list[bytes | None]:
        found: dict[int, bytes | None] = {}
        for number, asked in _by(clusters, self._known_number_of).items():
            if number is not None:
                found.update(await self._representatives(self._shards[number], asked))
        return [found.get(identity) for identity in clusters]

    async def _representatives(
        self, shard: Shard, clusters: Sequence[int]
    ) -> dict[int, bytes | None]:
        """A shard's, in few calls."""
        commands = [("HMGET", shard.cluster(codec.pack_id(each)), "n", "r") for each in clusters]
        answers = await self.server.many(shard.meta, commands)
        found: dict[int, bytes | None] = {}
        for identity, answer in zip(clusters, answers, strict=True):
            numbers, value = answer or (None, None)
            if numbers is not None and not codec.unpack_cluster(numbers).gone:
                found[identity] = value or b""
        return found

    def _known_number_of(self, identity: int) -> int | None:
        """The shard of a cluster; None for an id of none."""
        try:
            return self._packer.shard_of(identity).number
        except ProtocolError:
            return None

    async def size(self) -> IndexSize:
        counters = ("fingerprints", "waiting", "evicted", "expired", "truncated")
        totals = dict.fromkeys(("clusters", *counters), 0)
        for shard in self._shards:
            values = await self.server.command(shard.meta, "HMGET", shard.meta, *counters)
            totals["clusters"] += await self.server.command(shard.meta, "ZCARD", shard.recency)
            for counter, value in zip(counters, values, strict=True):
                totals[counter] += max(0, int(value or 0))
        bytes_each = self.stamp.layout.tables * (self._packer.entries.member_bytes + 4)
        return IndexSize(**totals, table_bytes=totals["fingerprints"] * bytes_each)


async def _standing_first(server: Server, namespace: str, shards: int) -> list[int]:
    """The shards' numbers, those that are made already first."""
    standing = [
        bool(await server.command(meta, "EXISTS", meta))
        for meta in (Shard(namespace, number).meta for number in range(shards))
    ]
    return sorted(range(shards), key=lambda number: not standing[number])


def _protocol_error(record: Commit, refusal: Refusal) -> Exception:
    if refusal.code == "SDUNCLAIMED":
        return PartitionUnclaimed(
            f"{record.partition}: nobody has claimed it, or its state ran out"
        )
    if refusal.code == "SDFENCE":
        return StaleFence(
            f"{record.partition}: fence {record.fence} is not the latest, which is {refusal.detail}"
        )
    if refusal.code == "SDSTRADDLE":
        return ProtocolError(
            f"{record.partition}: offsets {record.first_offset} to {record.last_offset} straddle "
            f"the high water {refusal.detail}"
        )
    return refusal


def _by(items: Iterable[T], number_of: Callable[[T], N]) -> dict[N, list[T]]:
    """Items by their shard, in order."""
    out: dict[N, list[T]] = {}
    for item in items:
        out.setdefault(number_of(item), []).append(item)
    return out


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all calls, at once; then the first error, so that none goes on behind it."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)

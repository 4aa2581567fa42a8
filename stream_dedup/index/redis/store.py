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

Shards: groups are spread over them by hash, and a cluster's id ends with its shard's number. A
partition has a fence, high water and journal in each; a record goes to all of them, each all or
nothing, and what one already has it ignores. A crash between two shards leaves their high waters
apart: `claim_partition` names the places (`Ownership.cuts`).

Retention: every key has a TTL of at least twice the longest time a cluster can be open, begun anew
when an entry is added, a partition recorded, a cluster opened, closed or told of. It ends what
nobody uses; it is not how clusters expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, IndexReset, ProtocolError, StaleFence
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import IndexSize, Limits, Ownership, Query, Record, Resolution
from stream_dedup.index.redis import scripts, wire
from stream_dedup.index.redis.advice import advise
from stream_dedup.index.redis.keys import Shard, check_namespace, source_name
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.server import Argument, Refusal, Server
from stream_dedup.index.redis.stamp import MAX_SHARDS, Stamp, plan_stamp, stamp_shard, ttl_ms
from stream_dedup.model import Decision, Partition, Summary

log = logging.getLogger(__name__)

T = TypeVar("T")

LIMITS = Limits(max_clusters=20_000, max_candidates=1_000, max_verified=64)
"""Less than in memory: what is planned for more clusters takes more tables, and others wait while a
query is worked on."""

CALL_WORK = 1_000
"""Commands of a script call, about: some two milliseconds."""

SWEEP_STEPS = 100
"""Clusters looked at a sweeping call; each takes some ten commands to close."""

PIECES = 200
"""Pieces of garbage handed out a call."""

CLAIMS = 100
"""Summaries a call; each may hold several values of some kilobytes."""


class RedisIndex:
    """The index over Redis.

    Make it with `open`, and `aclose` it. Safe to share by tasks of one event loop; a partition's
    calls are to be made one after the other.

    Attributes:
        server: the service; its counts tell of calls and retries.
        advice: what is amiss with the server's settings; also logged.
        resets: how often the namespace was found lost.
        rollbacks: how often a partition's high water had gone back: the server lost its last
            writes, as a failover may; what was counted by them is not counted again.
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
        advice: tuple[str, ...] = (),
    ) -> None:
        self.server = server
        self.recipe = recipe
        self.namespace = namespace
        self.stamp = stamp
        self.advice = advice
        self.resets = self.rollbacks = 0
        self._windows = windows
        self._summaries = summaries
        self._limits = limits
        self._incarnations = incarnations
        self._packer = Packer(namespace, stamp)
        self._shards = self._packer.shards
        self._ttl_ms = ttl_ms(windows, summaries)
        self._high_water: dict[tuple[int, Partition], int] = {}
        tables = stamp.layout.tables
        self._query_chunk = max(1, CALL_WORK // (3 * tables + 20))
        self._purge_chunk = max(1, CALL_WORK // (tables + 4))
        match = recipe.match
        self._rules = wire.RULES.pack(
            match.k,
            match.jaccard,
            match.aliases,
            limits.max_candidates,
            limits.max_verified,
            self._packer.entries.prefix_bytes,
            self._packer.entries.member_bytes,
            tables,
            CALL_WORK,
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
            shards: over how many slots of a cluster groups are spread; fixed when it is made.
            blocks: m, if it is to be made; planned without (see `tables.planner`).

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
            found = await advise(server, Shard(namespace, number).meta)
            advice.update(dict.fromkeys(found))
        for sentence in advice:
            log.warning("%s: %s", server.address, sentence)
        incarnation, stamp = await stamp_shard(
            server, namespace, 0, recipe, planned, windows, summaries
        )
        if stamp.shards != shards:
            raise IndexRefused(
                f"namespace {namespace!r} was made with {stamp.shards} shard(s), not {shards}; "
                "give that number, or another namespace"
            )
        incarnations = [incarnation]
        for number in range(1, shards):
            incarnation, _ = await stamp_shard(
                server, namespace, number, recipe, stamp, windows, summaries
            )
            incarnations.append(incarnation)
        return cls(
            server,
            recipe,
            stamp,
            incarnations,
            namespace=namespace,
            windows=windows,
            summaries=summaries,
            limits=limits,
            advice=tuple(advice),
        )

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int
    ) -> Ownership:
        del now_us
        end = b"" if end_offset is None else b"%d" % end_offset
        least = 0
        while True:
            first, *others = self._shards
            answers = [await self._claim_partition(first, partition, b"", least, end)]
            fence = int(answers[0][0])
            answers += [
                await self._claim_partition(shard, partition, b"%d" % fence, 0, end)
                for shard in others
            ]
            least = max(int(answer[0]) for answer in answers)
            if least == fence:
                break  # else a shard knows of a later claim, or the first has lost its data
        marks = [int(answer[1]) for answer in answers]
        for shard, mark in zip(self._shards, marks, strict=True):
            self._high_water[shard.number, partition] = mark
        journal: dict[int, Decision] = {}
        for answer in answers:
            committed = int(answer[2])
            for packed in answer[4:]:
                decisions = wire.unpack_journal(packed).items()
                journal.update(item for item in decisions if item[0] >= committed)
        return Ownership(
            fence,
            min(marks),
            journal,
            any(answer[3] for answer in answers),
            tuple(sorted({mark for mark in marks if mark > min(marks)})),
        )

    async def _claim_partition(
        self, shard: Shard, partition: Partition, fence: bytes, least: int, end: bytes
    ) -> list[Any]:
        keys = [shard.meta, shard.partition(partition), shard.journal(partition)]
        arguments: list[Argument] = [self._ttl_ms, fence, least, end]
        answer: list[Any] = await self._run(shard, scripts.CLAIM_PARTITION, keys, arguments)
        return answer

    async def release_partition(self, partition: Partition) -> None:
        settings = self._settings(0)
        for shard in self._shards:
            keys = [shard.meta, shard.heads]
            arguments = [settings, _partition_name(partition)]
            await self._run(shard, scripts.RELEASE_PARTITION, keys, arguments)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        settings = self._settings(now_us)
        if len(self._shards) == 1:
            return await self._resolve(self._shards[0], queries, settings)
        places: dict[int, list[int]] = {}
        for place, query in enumerate(queries):
            places.setdefault(self._packer.group(query.group)[3], []).append(place)
        answers = await _all(
            self._resolve(self._shards[number], [queries[place] for place in chosen], settings)
            for number, chosen in places.items()
        )
        out: dict[int, Resolution] = {}
        for chosen, answered in zip(places.values(), answers, strict=True):
            out.update(zip(chosen, answered, strict=True))
        return [out[place] for place in range(len(queries))]

    async def _resolve(
        self, shard: Shard, queries: Sequence[Query], settings: bytes
    ) -> list[Resolution]:
        answers: list[Resolution] = []
        while len(answers) < len(queries):
            keys = [shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage]
            arguments: list[Argument] = [settings, self._rules]
            for query in queries[len(answers) : len(answers) + self._query_chunk]:
                self._packer.query(shard, query, keys, arguments)
            packed = await self._run(shard, scripts.RESOLVE, keys, arguments)
            answers.extend(wire.unpack_resolutions(packed))
        return answers

    # ------------------------------------------------------------ counting

    async def record(self, record: Record, now_us: int) -> frozenset[int]:
        settings = self._settings(now_us)
        if len(self._shards) == 1:
            return await self._record(self._shards[0], record, record.decisions, settings)
        tallies = _by(record.tallies, lambda tally: tally.cluster & 0xFF)
        decisions = _by(record.decisions.items(), lambda item: (item[1].cluster or 0) & 0xFF)
        closed = await _all(
            self._record(
                shard,
                replace(record, tallies=tallies.get(shard.number, ())),
                dict(decisions.get(shard.number, ())),
                settings,
            )
            for shard in self._shards
        )
        return frozenset[int]().union(*closed)

    async def _record(
        self, shard: Shard, record: Record, decisions: Mapping[int, Decision], settings: bytes
    ) -> frozenset[int]:
        partition = record.partition
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads, shard.partition(partition), shard.journal(partition),
        ]  # fmt: skip
        batch = wire.BATCH.pack(
            record.fence,
            record.first_offset,
            record.last_offset,
            record.committed,
            wire.clamp_us(record.last_us),
            self._summaries.samples,
            # Much to count leaves the sweeping to calls of its own.
            min(SWEEP_STEPS, self._limits.sweep) if len(record.tallies) <= SWEEP_STEPS else 0,
            PIECES,
        )
        kept = {offset: d for offset, d in decisions.items() if offset >= record.committed}
        journal = wire.pack_journal(kept)
        arguments: list[Argument] = [settings, _partition_name(partition), batch, journal]
        for tally in record.tallies:
            keys.append(shard.cluster(wire.pack_id(tally.cluster)))
            arguments += wire.pack_tally(
                tally, self._summaries.samples, self._summaries.max_value_bytes
            )
        try:
            answer = await self._run(shard, scripts.RECORD, keys, arguments)
        except Refusal as refusal:
            raise _protocol_error(record, refusal) from refusal
        if not answer[0]:
            return frozenset(int.from_bytes(identity, "big") for identity in answer[1:])
        self._watch(shard, record, int(answer[1]))
        await self._tidy(shard, settings, answer)
        return frozenset()

    def _watch(self, shard: Shard, record: Record, before: int) -> None:
        """Notice when the server has lost what it had answered for."""
        place = shard.number, record.partition
        known = self._high_water.get(place)
        if known is not None and before < known:
            self.rollbacks += 1
            log.warning(
                "%s: the high water of %s had gone back from %d to %d: the server lost its last "
                "writes, and what they counted",
                self.server.address, record.partition, known, before,
            )  # fmt: skip
        self._high_water[place] = max(before, record.last_offset)

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        # Only `record` closes what is above the cap.
        settings = self._settings(now_us, max_clusters=wire.LATEST_US)
        for shard in self._shards:
            await self._tidy(shard, settings, await self._sweep(shard, settings))

    async def finish(self, now_us: int) -> None:
        settings = self._settings(now_us)
        for shard in self._shards:
            answer = await self._sweep(shard, settings, everything=True)
            await self._tidy(shard, settings, answer, everything=True)

    async def _sweep(self, shard: Shard, settings: bytes, *, everything: bool = False) -> list[Any]:
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads,
        ]  # fmt: skip
        arguments: list[Argument] = [settings, int(everything), SWEEP_STEPS, PIECES]
        answer: list[Any] = await self._run(shard, scripts.SWEEP, keys, arguments)
        return answer

    async def _tidy(
        self, shard: Shard, settings: bytes, answer: list[Any], *, everything: bool = False
    ) -> None:
        """Go on sweeping where a call left more to do, and purge the garbage handed out."""
        swept = SWEEP_STEPS
        while True:
            more, pieces = answer[2], answer[3:]
            await self._purge(shard, pieces)
            if not (more or len(pieces) == PIECES):
                return
            if not everything and swept >= self._limits.sweep:
                return  # the next call goes on
            answer = await self._sweep(shard, settings, everything=everything)
            swept += SWEEP_STEPS

    async def _purge(self, shard: Shard, pieces: Sequence[bytes]) -> None:
        keys = [shard.meta, shard.garbage]
        arguments: list[Argument] = [self._packer.entries.member_bytes]
        room = self._purge_chunk
        for piece in pieces:
            group, entries = wire.unpack_entries(piece[8:], self.stamp.width)
            owner = int.from_bytes(piece[:8], "big")
            at = 0
            while at < len(entries):
                part = entries[at : at + room]
                at += len(part)
                room -= len(part)
                keys.append(shard.cluster(piece[:8]))
                arguments += (piece, len(part), int(at == len(entries)))
                for entry in part:
                    self._packer.entry(shard, entry, group, owner, keys, arguments)
                if not room:
                    await self._run(shard, scripts.PURGE, keys, arguments)
                    keys, arguments = keys[:2], arguments[:1]
                    room = self._purge_chunk
        if len(keys) > 2:
            await self._run(shard, scripts.PURGE, keys, arguments)

    # ------------------------------------------------------------ summaries

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        settings = self._settings(now_us)
        claimed: list[Summary] = []
        for shard in self._shards:
            while len(claimed) < limit:
                asked = min(CLAIMS, limit - len(claimed))
                keys = [shard.meta, shard.due, shard.leases]
                answer = await self._run(shard, scripts.CLAIM, keys, [settings, asked])
                claimed += map(wire.unpack_summary, answer)
                if len(answer) < asked:
                    break
        return claimed

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        settings = self._settings(now_us)
        for number, named in _by(summaries, self._number_of).items():
            shard = self._shards[number]
            for start in range(0, len(named), CLAIMS):
                keys = [shard.meta, shard.due, shard.leases, shard.gone]
                arguments: list[Argument] = [settings]
                for identity, revision in named[start : start + CLAIMS]:
                    packed_id = wire.pack_id(identity)
                    keys.append(shard.cluster(packed_id))
                    arguments += (packed_id, revision)
                await self._run(shard, scripts.CONFIRM, keys, arguments)

    def _number_of(self, named: tuple[int, int]) -> int:
        return self._packer.shard_of(named[0]).number

    # ------------------------------------------------------------ looking

    async def representatives(self, clusters: Sequence[int]) -> list[bytes | None]:
        return await _all(map(self._representative, clusters))

    async def _representative(self, identity: int) -> bytes | None:
        shard = self._packer.shard_of(identity)
        key = shard.cluster(wire.pack_id(identity))
        numbers, value = await self.server.command(key, "HMGET", key, "n", "r")
        if numbers is None or wire.unpack_cluster(numbers).gone:
            return None
        return value or b""

    async def size(self) -> IndexSize:
        counters = ("fingerprints", "waiting", "evicted", "expired", "truncated")
        totals = dict.fromkeys(("clusters", *counters), 0)
        for shard in self._shards:
            values = await self.server.command(shard.meta, "HMGET", shard.meta, *counters)
            totals["clusters"] += await self.server.command(shard.meta, "ZCARD", shard.recency)
            for counter, value in zip(counters, values, strict=True):
                totals[counter] += int(value or 0)
        bytes_each = self.stamp.layout.tables * (self._packer.entries.member_bytes + 4)
        return IndexSize(**totals, table_bytes=totals["fingerprints"] * bytes_each)

    # ------------------------------------------------------------ calls

    def _settings(self, now_us: int, max_clusters: int | None = None) -> bytes:
        if max_clusters is None:
            max_clusters = -(-self._limits.max_clusters // len(self._shards))
        return wire.pack_settings(
            now_us, self._windows, self._summaries, self._ttl_ms, max_clusters
        )

    async def _run(
        self, shard: Shard, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument]
    ) -> Any:  # noqa: ANN401 -- each script says what it returns
        incarnation = self._incarnations[shard.number]
        try:
            return await self.server.run(script, keys, [incarnation, *arguments])
        except Refusal as refusal:
            if refusal.code != "SDRESET":
                raise
            await self._begin_anew(shard, incarnation)
            raise IndexReset(
                f"{self.server.address}: namespace {self.namespace!r} has lost its data: the "
                "server came back without it, or it was deleted"
            ) from refusal

    async def _begin_anew(self, shard: Shard, lost: bytes) -> None:
        incarnation, stamp = await stamp_shard(
            self.server, self.namespace, shard.number, self.recipe, self.stamp,
            self._windows, self._summaries,
        )  # fmt: skip
        if stamp != self.stamp:
            raise IndexRefused(
                f"namespace {self.namespace!r} was made anew with another layout by somebody "
                "else; open it again"
            )
        if self._incarnations[shard.number] != lost:
            return  # another task has seen it too
        self._incarnations[shard.number] = incarnation
        self.resets += 1
        self._high_water = {
            place: mark for place, mark in self._high_water.items() if place[0] != shard.number
        }


def _partition_name(partition: Partition) -> bytes:
    return b"%d:%s" % (partition.number, source_name(partition.source))


def _protocol_error(record: Record, refusal: Refusal) -> Exception:
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


def _by(items: Iterable[T], number_of: Callable[[T], int]) -> dict[int, list[T]]:
    """Items by their shard, in order."""
    out: dict[int, list[T]] = {}
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

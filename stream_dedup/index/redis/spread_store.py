"""The index over Redis where the tables of a group lie on all shards. See `store.RedisIndex`.

Theory of operation
-------------------
`spread` finds and opens clusters; `docs/sharding-by-fingerprint.md` describes the protocol. All
else is as in the ordinary index: shards close their clusters and emit summaries by themselves, with
the same scripts. What differs:

Commits: an event that is decided again may go to another shard, so a commit is made on all shards
or on none (`index.spread.counting`). Each partition has a home, which decides. The other shards
prepare: they keep the call of ``record`` as it is, and take its clusters out of the queues by which
clusters close. Then the home records its part, with all decisions; and the others record what they
keep. The high water of a partition is that of its home, and so is its journal.

What an owner leaves that dies meanwhile is finished or dropped by the next one, when it claims the
partition; or by `expire`, whoever calls it, some seconds later.

Entries: a closed cluster's entries lead nowhere, because they have its ticket. They are purged as
elsewhere, but lie on other shards than the cluster, so the caller sends requests there.

Loss: what one shard loses are entries of clusters on others too. So all shards have one incarnation
and begin again together.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import AlreadyRecorded
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import (
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Resolution,
    recorded_before,
)
from stream_dedup.index.redis import codec, layouts, scripts, store
from stream_dedup.index.redis.calls import gather_all, group_by
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, source_name
from stream_dedup.index.redis.maintenance import Maintenance, chunks
from stream_dedup.index.redis.namespace import plan_layout
from stream_dedup.index.redis.runner import Partitions, ScriptRunner
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.index.redis.spread import SpreadClusters, check_recipe
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.index.spread import counting
from stream_dedup.index.spread.counting import (
    Answer,
    Decide,
    Drop,
    Finish,
    Number,
    Owner,
    Prepare,
    ReadPrepared,
    Rounds,
    Settle,
)
from stream_dedup.model import Partition

log = logging.getLogger(__name__)

RECOVERED_AFTER_S = 10
"""How old a prepared commit is when others finish or drop it: making one takes some milliseconds.
If its owner still goes on, it makes another attempt."""

RECOVERED = 20
"""Prepared commits of a shard that a call of `expire` looks at."""


class SpreadIndex(RedisIndex):
    """The index over Redis whose groups lie on all shards.

    Attributes:
        script: of the atomic steps that find and open clusters.
        clusters: finds and opens them.
    """

    spread = True
    script = scripts.STEPS
    clusters: SpreadClusters

    @classmethod
    def _plan(
        cls, recipe: Recipe, limits: Limits, shards: int, blocks: int | None
    ) -> NamespaceLayout:
        check_recipe(recipe)
        # Tables are planned for one group: all clusters may share a prefix, wherever they lie.
        return plan_layout(recipe, limits.max_clusters, 1, blocks)._replace(shards=shards)

    def _make_partitions(self) -> Partitions:
        self._owners: dict[Partition, Owner] = {}
        return _SpreadPartitions(self._runner, self._shards, self.client.address)

    def _make_maintenance(self) -> Maintenance:
        self.clusters = SpreadClusters(
            self.client, self._runner, self._packer, self.recipe, namespace=self.namespace,
            layout=self.layout, limits=self._limits, script=self.script,
        )  # fmt: skip
        return _SpreadMaintenance(
            self.client, self._runner, self._packer, self.layout, self._limits, self.clusters
        )

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int, identity: str = ""
    ) -> Ownership:
        owned = await super().claim_partition(partition, end_offset, now_us, identity)
        owner = self._owner(partition, owned.fence)
        await self._drive(owner.recover(), self._runner.settings(now_us))
        self._owners[partition] = owner
        return owned

    def _owner(self, partition: Partition, fence: int) -> Owner:
        home, *others = self._partitions.order(partition)
        return Owner(partition, home.number, [shard.number for shard in others], fence)

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        owner = self._owners.get(partition)
        if owner is not None and owner.fence == fence:
            await self._drive(owner.settle(), self._runner.settings(0))
        return await super().read_partition(partition, fence)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        return [
            Resolution(
                found.entry.identity,
                found.distance,
                opened,
                found.opened_us,
                found.last_us,
                found.recorded,
                found_by,
            )
            for found, opened, found_by in await self.clusters.resolve(queries, now_us)
        ]

    # ------------------------------------------------------------ counting

    async def _record_all(
        self, commit: Commit, clock: store.Since, wait_s: float
    ) -> frozenset[int]:
        owner = self._owners.get(commit.partition)
        if owner is None or owner.fence != commit.fence:  # not claimed here: as its shards say
            latest, owner = owner, self._owner(commit.partition, commit.fence)
            if latest is None or latest.fence < commit.fence:  # no attempt gets a number twice
                self._owners[commit.partition] = owner
        deltas = group_by(commit.deltas, lambda delta: self._packer.shard_of(delta.cluster).number)
        other = replace(commit, deltas=(), offsets=(), decisions=(), kept=None)
        parts = {number: replace(other, deltas=deltas.get(number, ())) for number in owner.others}
        parts[owner.home] = replace(commit, deltas=deltas.get(owner.home, ()))
        pause_s, longest_s = store.opening_pauses_s(wait_s)
        while True:
            settings, patient = self._runner.settings(clock.now_us), clock.elapsed_s < wait_s
            answer = await self._drive(owner.commit(parts, patient=patient), settings)
            if answer is Answer.DONE:
                return frozenset()
            if answer is Answer.BEFORE:
                raise AlreadyRecorded(recorded_before(commit))
            if not isinstance(answer, Answer):
                return frozenset(answer)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _drive(self, rounds: Rounds, settings: bytes) -> Any:  # noqa: ANN401 -- as `rounds`
        """Send the requests of rounds; return what those return. Then sweep and purge."""
        left: list[tuple[ShardKeys, list[Any]]] = []
        try:
            asked = next(rounds)
            while True:
                answers = await gather_all(self._ask(each, settings, left) for each in asked)
                asked = rounds.send(answers)
        except StopIteration as stop:
            answer = stop.value
        for shard, of_record in left:
            await self._maintenance.tidy(shard, settings, of_record)
        return answer

    async def _ask(
        self,
        request: counting.Request,
        settings: bytes,
        left: list[tuple[ShardKeys, list[Any]]],
    ) -> object:
        shard, partition = self._shards[request.shard], request.partition
        prepared = shard.prepared(partition)
        match request:
            case Prepare() | Decide():
                return await self._count(shard, request, settings, left)
            case ReadPrepared():
                stored = await self.client.command(shard.meta, "HGET", prepared, "attempt")
                return None if stored is None else Number(*map(int, stored.split(b":")))
            case Settle(number=number):
                keys = [shard.meta, shard.partition(partition)]
                return bool(
                    await self._runner.run(shard, scripts.SETTLE, keys, [settings, *number])
                )
            case Drop(number=number, part=part):
                name = codec.pack_partition(partition)
                held_back = "" if part is None else repr(float(codec.clamp_us(part.last_us)))
                arguments: list[Argument] = [settings, name, *number, held_back]
                keys = self._record_keys(shard, partition)
                await self._runner.run(shard, scripts.DROP, keys, arguments)
            case Finish(number=number, part=part):
                keys = self._record_keys(shard, partition)
                answer = await self._runner.run(
                    shard, scripts.FINISH, keys, [settings, b"%d:%d" % number]
                )
                if answer[0]:
                    left.append((shard, answer))
                if part is not None:
                    self._partitions.check_high_water(shard, part, int(answer[1]))
        return Answer.DONE

    async def _count(
        self,
        shard: ShardKeys,
        request: Prepare | Decide,
        settings: bytes,
        left: list[tuple[ShardKeys, list[Any]]],
    ) -> object:
        """Run ``record`` for a part of a commit."""
        part: Commit = request.part
        decides = isinstance(request, Decide)
        keys, arguments = self._pack_commit(
            shard,
            part,
            settings,
            attempt=request.number.attempt,
            part=layouts.PART_DECIDE if decides else layouts.PART_PREPARE,
        )
        arguments[3] = int(request.patient)
        incarnation = self._partitions.incarnation(shard, part)
        try:
            answer = await self._runner.run(shard, scripts.RECORD, keys, arguments, incarnation)
        except Refusal as refusal:
            if refusal.code == "SDBARRED":
                return Answer.LOST
            if refusal.code == "SDSTRADDLE":
                return Answer.BEFORE
            raise self._protocol_error(part.partition, part.fence, refusal) from refusal
        if not answer[0]:
            return frozenset(int.from_bytes(each, "big") for each in answer[1:])
        if answer[0] == store.WAITS:
            return Answer.WAIT
        if decides:
            before = int(answer[1])
            self._partitions.check_high_water(shard, part, before)
            if part.last_offset <= before:
                return Answer.BEFORE
            left.append((shard, answer))
        return Answer.DONE

    def _record_keys(self, shard: ShardKeys, partition: Partition) -> list[bytes]:
        keys = super()._record_keys(shard, partition)
        return [*keys, shard.held, shard.preparing, shard.prepared(partition)]

    # ------------------------------------------------------------ maintenance

    async def expire(self, now_us: int) -> None:
        await super().expire(now_us)
        settings = self._runner.settings(now_us)
        for shard in self._shards:
            for partition in await self._abandoned(shard):
                home, *_ = self._partitions.order(partition)
                rounds = counting.recover(partition, home.number, [shard.number])
                await self._drive(rounds, settings)
        await self.clusters.sweep()

    async def _abandoned(self, shard: ShardKeys) -> list[Partition]:
        """Partitions whose commit a shard has prepared for long."""
        if not await self.client.command(shard.meta, "ZCARD", shard.preparing):
            return []
        until_s = await self.client.time_us(shard.meta) // US_PER_S - RECOVERED_AFTER_S
        found = await self.client.command(
            shard.meta, "ZRANGE", shard.preparing, "-inf", until_s, "BYSCORE", "LIMIT", 0, RECOVERED
        )
        return [codec.unpack_partition(name) for name in found]

    async def size(self) -> IndexSize:
        size = await super().size()
        held = [await self.client.command(each.meta, "HLEN", each.held) for each in self._shards]
        return size._replace(clusters=size.clusters + sum(held))


class _SpreadPartitions(Partitions):
    """The partitions that this process has claimed: each first on its home."""

    def order(self, partition: Partition) -> Sequence[ShardKeys]:
        home = (zlib.crc32(source_name(partition.source)) + partition.number) % len(self._shards)
        return [*self._shards[home:], *self._shards[:home]]

    def _ownership(
        self,
        partition: Partition,
        fence: int,
        incarnations: Sequence[bytes],
        answers: Sequence[Sequence[Any]],
    ) -> Ownership:
        owned = super()._ownership(partition, fence, incarnations, answers)
        home, *others = [int(answer[1]) for answer in answers]
        # Beyond the home's are only those of others if the home has lost its last writes.
        boundaries = tuple(sorted({mark for mark in others if mark > home}))
        return owned._replace(high_water=home, segment_boundaries=boundaries)


class _SpreadMaintenance(Maintenance):
    """Maintains such a namespace: entries lie on other shards than their clusters."""

    def __init__(
        self,
        client: RedisClient,
        runner: ScriptRunner,
        packer: Packer,
        layout: NamespaceLayout,
        limits: Limits,
        clusters: SpreadClusters,
    ) -> None:
        super().__init__(client, runner, packer, layout, limits, learns=False)
        self._clusters = clusters

    def _slices(self) -> Iterator[list[bytes]]:
        for shard in self._packer.shards:
            yield from chunks(map(shard.spread, range(self._namespace_layout.spread_slices)))

    async def _purge(self, shard: ShardKeys, pieces: Sequence[bytes]) -> None:
        if not pieces:
            return
        steps = self._clusters.steps
        await self._clusters.send([each for piece in pieces for each in steps.unpack_piece(piece)])
        keys = [shard.meta, shard.garbage]
        arguments: list[Argument] = [self._packer.entries.member_bytes, layouts.NAMES_HEAD_BYTES]
        for piece in pieces:  # of them nothing is left on this shard, but the list names them
            keys.append(shard.cluster(piece[: layouts.ID_BYTES]))
            arguments += (piece, 0, 1, 0)
        await self._runner.run(shard, scripts.PURGE, keys, arguments)

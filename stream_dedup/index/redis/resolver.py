"""Resolves queries on a shard, in calls of bounded work, with what the mirror finds near them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from stream_dedup.clock import monotonic_s
from stream_dedup.clustering.linkage import Linkage
from stream_dedup.errors import IndexFull
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.bands import MAX_VERIFIED
from stream_dedup.index.base import Limits, Query, Resolution, too_many_wait
from stream_dedup.index.redis import codec, layouts, scripts
from stream_dedup.index.redis.bands_mirror import BandsMirror, read_clusters
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.mirror import (
    SPARE,
    UNKNOWN,
    Call,
    Mirror,
    read_mirror,
    read_tables,
    read_wanted,
)
from stream_dedup.index.redis.namespace import CALL_WORK, pack_matching
from stream_dedup.index.redis.runner import ScriptRunner
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import MEMORY, choose

log = logging.getLogger(__name__)

READ_PAUSE_FACTOR = 20
"""A mirror is read again after so many times the time that reading it took, at the earliest."""

LEAST_PAUSE_S = 1.0

TOO_LARGE_PAUSE_S = 60.0
"""How long it is not tried again to mirror a shard that was too large."""

KNOWN_WORK = 4
"""Work of a query without its tables, in searches of a table, about; see `CALL_WORK`."""

INSERT_WORK = 0.9
"""Work of inserting into a table, likewise, where its time to live need not be renewed."""

SLOT_WORK_BYTES = 16
"""So many bytes of a pattern's keys are a command: a slot has 16, and is read and written with the
others of its slice."""

SEARCH_WORK = 60
"""Work that each query adds to what the searches of a call may do together, likewise: some two
times what a query without a crowd costs. A search that is cut short by it is counted."""

BANDS_SEARCH_WORK = 200
"""The same where fingerprints are the keys of bands: what a search does there has bounds of its
own, and stays below this."""

MIRROR_FACTOR = 8
"""A mirror compares so many times as many entries as a search in Redis: it has more tables, and in
a crowd each entry is in most of them. Natively that still takes less than the search in Redis."""

MERGED_AT_ONCE = 100
"""Closed clusters that are sent in a call of ``merge_fitting.lua``, at most. If it has spent its
budget, it answers for fewer, and the others are sent again."""

LOW_GROUP = (1 << 8 * layouts.LOW_GROUP_BYTES) - 1
"""The bits of a group's hash that the tables hold."""


@dataclass(slots=True)
class _ShardMirror:
    """The mirror of a shard, if there is one, and when it may be read next."""

    mirror: Mirror | None = None
    reading: bool = False
    not_before_s: float = 0.0


class Resolver:
    """Resolves queries on the shards of a namespace.

    Args:
        client: the service.
        runner: runs the scripts.
        packer: packs queries.
        recipe: what counts as near.
        layout: how the namespace is laid out.
        limits: how far a search goes.
        mirror_size: fingerprints mirrored of a shard, at most; 0 for no mirrors.
    """

    def __init__(
        self,
        client: RedisClient,
        runner: ScriptRunner,
        packer: Packer,
        recipe: Recipe,
        layout: NamespaceLayout,
        limits: Limits,
        mirror_size: int,
    ) -> None:
        self._client = client
        self._runner = runner
        self._packer = packer
        self._namespace_layout = layout
        self._mirror_size = mirror_size
        self._max_candidates = limits.max_candidates
        self._max_verified = limits.max_verified
        self._mirrors = [_ShardMirror() for _ in packer.shards]
        each = min(mirror_size, -(-limits.max_clusters // layout.shards))
        self._script = scripts.RESOLVE_BANDS if layout.is_bands else scripts.RESOLVE
        self._mirror_layout: Layout = layout.table_layout
        most_verified, search_work = limits.max_verified, SEARCH_WORK
        self._linkage = Linkage(recipe)
        if layout.is_bands:
            most_verified, search_work = min(most_verified, MAX_VERIFIED), BANDS_SEARCH_WORK
        else:
            self._mirror_layout = choose(layout.width, layout.k, max(1, each), MEMORY).layout
        tables = layout.table_layout.tables
        self._insert_work, self._search_work = INSERT_WORK * tables, 3 * tables + 14
        limits = replace(limits, max_verified=most_verified)
        self._matching = pack_matching(recipe, layout, limits, packer.entries, search_work)

    @property
    def mirrored(self) -> int:
        """Fingerprints in the mirrors."""
        return sum(len(kept.mirror) for kept in self._mirrors if kept.mirror is not None)

    async def resolve(
        self, shard: ShardKeys, queries: Sequence[Query], settings: bytes
    ) -> list[Resolution]:
        """Find or open a cluster for each query, in order.

        Queries hold hashes under the namespace's key. If it is created again meanwhile, that may
        have another key: then the call is refused.

        Raises:
            IndexFull: too many closed clusters wait for their final summary.
            IndexReset, IndexUnavailable, IndexRefused: see `ScriptRunner.run`.
        """
        incarnation = self._runner.incarnations[shard.number]
        answers: list[Resolution] = []
        searches = any(query.near for query in queries)
        most = len(queries)
        while len(answers) < len(queries):
            mirror = await self._mirror(shard) if searches else None
            if mirror is not None:
                await read_wanted(self._client, shard, mirror)
                if not mirror.sound:  # another call has failed meanwhile
                    mirror = None
            call = Call(mirror)
            left = queries[len(answers) : len(answers) + most]
            try:
                asked, keys, packed, patterns = self._pack(shard, left, call)
                arguments = partial(self._arguments, settings, call, packed, patterns)
                packed_answers, *rest = await self._runner.run(
                    shard, self._script, keys, arguments, incarnation
                )
                resolutions, inserted = codec.unpack_resolutions(packed_answers)
                call.answered(inserted, rest)
            except Refusal as refusal:
                if refusal.code != "SDWAITING":
                    call.failed()
                    raise
                call.refused()
                raise IndexFull(
                    f"{self._client.address}: namespace {shard.namespace!r}: "
                    + too_many_wait(int(refusal.detail))
                ) from refusal
            except BaseException:
                call.failed()
                raise
            answers += resolutions
            # If the call has left some, more would be sent in vain.
            most = len(queries) if len(resolutions) == asked else len(resolutions) + 1
        return answers

    async def merge_fitting(
        self, shard: ShardKeys, queries: Sequence[Query], settings: bytes
    ) -> list[int | None]:
        """Merge closed clusters into open ones that they fit; see `Index.merge_fitting`.

        Raises:
            IndexReset, IndexUnavailable, IndexRefused: see `ScriptRunner.run`.
        """
        answers: list[int | None] = []
        while len(answers) < len(queries):
            left = queries[len(answers) : len(answers) + MERGED_AT_ONCE]
            keys, packed, patterns = self._packer.queries(shard, left, [b""] * len(left))
            arguments: list[Argument] = [settings, self._matching, b"", b"", packed, patterns]
            answer = await self._runner.run(
                shard, scripts.MERGE_FITTING, [shard.meta, *keys], arguments
            )
            answers += codec.unpack_ids(answer)
        return answers

    async def combine(
        self, shard: ShardKeys, query: Query, combination: int, settings: bytes
    ) -> None:
        """Note which words vary together in the pattern of the cluster that a query has opened.

        Raises:
            IndexReset, IndexUnavailable, IndexRefused: see `ScriptRunner.run`.
        """
        keys, packed, patterns = self._packer.queries(shard, [query], [b""])
        arguments: list[Argument] = [settings, self._matching, combination, b"", packed, patterns]
        await self._runner.run(shard, scripts.COMBINE, [shard.meta, *keys], arguments)

    def _arguments(
        self, settings: bytes, call: Call, packed: bytes, patterns: bytes
    ) -> list[Argument]:
        """The arguments of an attempt."""
        return [settings, self._matching, call.attempt(), call.seen, packed, patterns]

    def _pack(
        self, shard: ShardKeys, queries: Sequence[Query], call: Call
    ) -> tuple[int, list[bytes], bytes, bytes]:
        """Pack the queries of one call: how many it takes, its keys, queries and patterns."""
        nears: list[bytes] = []
        work = 0.0
        for query in queries:
            near = b""
            if query.near:
                group = self._packer.group(query.group).number
                near = call.look(group & LOW_GROUP, query.fingerprint, query.sketch)
                work += self._search_work if near == UNKNOWN else self._insert_work
            else:
                call.skip()
            nears.append(near)
            work += KNOWN_WORK + len(query.one_off) // SLOT_WORK_BYTES
            if work >= CALL_WORK:
                break
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.inserted,
            shard.gone,
        ]  # fmt: skip
        its_keys, packed, patterns = self._packer.queries(shard, queries[: len(nears)], nears)
        return len(nears), keys + its_keys, packed, patterns

    async def _mirror(self, shard: ShardKeys) -> Mirror | None:
        """The shard's mirror; None while it has none."""
        kept = self._mirrors[shard.number]
        if kept.mirror is not None and not kept.mirror.sound:
            kept.mirror = None
        # It is worn before that, and read again unless the shard has become too large.
        if kept.mirror is not None and len(kept.mirror) > 2 * self._mirror_size + 4 * SPARE:
            kept.mirror = None
        due = kept.mirror is None or kept.mirror.worn
        if due and self._mirror_size and not kept.reading and monotonic_s() >= kept.not_before_s:
            kept.reading = True
            try:
                kept.mirror = await self._read_mirror(shard, kept)
            finally:
                kept.reading = False
        return kept.mirror

    async def _read_mirror(self, shard: ShardKeys, kept: _ShardMirror) -> Mirror | None:
        started_s = monotonic_s()
        kept.not_before_s = started_s + LEAST_PAUSE_S  # if it fails
        client, layout = self._client, self._namespace_layout
        mirror: Mirror
        if layout.is_bands:
            mirror = of_bands = BandsMirror(self._linkage)
            steps = read_clusters(client, shard, of_bands, layout)
        else:
            linkage = self._linkage if self._linkage.verifies else None
            mirror = Mirror(
                self._mirror_layout,
                MIRROR_FACTOR * self._max_candidates,
                2 * self._max_verified,
                linkage,
            )
            steps = read_tables(client, shard, mirror, self._packer.entries, layout.slices)
        if not await read_mirror(client, shard, mirror, self._mirror_size, steps):
            kept.not_before_s = started_s + TOO_LARGE_PAUSE_S
            log.info(
                "namespace %s, shard %d: more than %d fingerprints are not mirrored",
                shard.namespace, shard.number, self._mirror_size,
            )  # fmt: skip
            return None
        now_s = monotonic_s()
        kept.not_before_s = now_s + max(LEAST_PAUSE_S, READ_PAUSE_FACTOR * (now_s - started_s))
        return mirror

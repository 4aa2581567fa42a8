"""Resolving: queries asked of a shard in calls of bounded work, with what the mirror knows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from stream_dedup.clock import monotonic_s
from stream_dedup.errors import IndexFull
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits, Query, Resolution, too_many_wait
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.calls import CALL_WORK, Calls
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import Stamp
from stream_dedup.index.redis.mirror import SPARE, UNKNOWN, Call, Mirror, read
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.server import Argument, Refusal, Server
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import MEMORY, choose

log = logging.getLogger(__name__)

PAUSES = 20
"""A mirror is read again after so many times as long as reading it took, at the earliest."""

LEAST_PAUSE_S = 1.0

TOO_LARGE_PAUSE_S = 60.0
"""How long nobody looks whether a shard has become small enough for a mirror."""

KNOWN_WORK = 4
"""What a query takes without its tables, in searches of a table, about: see `CALL_WORK`."""

INSERT_WORK = 0.9
"""What adding to a table takes, likewise, where its time to live need not be begun anew."""


@dataclass(slots=True)
class _Kept:
    """The mirror of a shard, if there is one, and when it may be read next."""

    mirror: Mirror | None = None
    reading: bool = False
    not_before_s: float = 0.0


class Resolver:
    """Asks shards about queries.

    Args:
        server: the service.
        calls: runs the scripts.
        packer: where things stand.
        recipe: what counts as near.
        stamp: how the namespace is laid out.
        limits: how far a search goes.
        mirror_size: fingerprints mirrored of a shard at most; 0 for no mirrors.
    """

    def __init__(
        self,
        server: Server,
        calls: Calls,
        packer: Packer,
        recipe: Recipe,
        stamp: Stamp,
        limits: Limits,
        mirror_size: int,
    ) -> None:
        self._server = server
        self._calls = calls
        self._packer = packer
        self._stamp = stamp
        self._mirror_size = mirror_size
        self._max_candidates = limits.max_candidates
        self._max_verified = limits.max_verified
        self._mirrors = [_Kept() for _ in packer.shards]
        each = min(mirror_size, -(-limits.max_clusters // stamp.shards))
        self._layout: Layout = choose(stamp.width, stamp.k, max(1, each), MEMORY).layout
        match, tables = recipe.match, stamp.layout.tables
        self._insert_work, self._search_work = INSERT_WORK * tables, 3 * tables + 14
        self._rules = codec.RULES.pack(
            match.k,
            match.jaccard,
            match.aliases,
            limits.max_candidates,
            limits.max_verified,
            packer.entries.prefix_bytes,
            packer.entries.member_bytes,
            tables,
            CALL_WORK,
        )

    @property
    def mirrored(self) -> int:
        """Fingerprints in the mirrors."""
        return sum(len(kept.mirror) for kept in self._mirrors if kept.mirror is not None)

    async def resolve(
        self, shard: Shard, queries: Sequence[Query], settings: bytes
    ) -> list[Resolution]:
        """Find or open a cluster for each query, in order.

        Raises:
            IndexFull: too many closed clusters wait for their final summary.
            IndexReset, IndexUnavailable, IndexRefused: see `Calls`.
        """
        answers: list[Resolution] = []
        searches = any(query.near for query in queries)
        most = len(queries)
        while len(answers) < len(queries):
            call = Call(await self._mirror(shard) if searches else None)
            left = queries[len(answers) : len(answers) + most]
            try:
                asked, keys, packed = self._pack(shard, left, call)
                arguments = partial(self._arguments, settings, call, packed)
                decided, *rest = await self._calls.run(shard, scripts.RESOLVE, keys, arguments)
                resolutions, inserted = codec.unpack_resolutions(decided)
                call.answered(inserted, rest)
            except Refusal as refusal:
                if refusal.code != "SDWAITING":
                    call.failed()
                    raise
                call.refused()
                raise IndexFull(
                    f"{self._server.address}: namespace {shard.namespace!r}: "
                    + too_many_wait(int(refusal.detail))
                ) from refusal
            except BaseException:
                call.failed()
                raise
            answers += resolutions
            # Of more than it has answered the next call would send some in vain.
            most = len(queries) if len(resolutions) == asked else len(resolutions) + 1
        return answers

    def _arguments(self, settings: bytes, call: Call, packed: bytes) -> list[Argument]:
        """Those of an attempt."""
        return [settings, self._rules, call.attempt(), call.seen, packed]

    def _pack(
        self, shard: Shard, queries: Sequence[Query], call: Call
    ) -> tuple[int, list[bytes], bytes]:
        """How many of the queries one call should take; its keys, and what is said of each."""
        nears: list[bytes] = []
        work = 0.0
        for query in queries:
            near = b""
            if query.near:
                group, *_ = self._packer.group(query.group)
                near = call.look(group & 0xFFFF, query.fingerprint)
                work += self._search_work if near == UNKNOWN else self._insert_work
            else:
                call.skip()
            nears.append(near)
            work += KNOWN_WORK
            if work >= CALL_WORK:
                break
        keys = [shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.inserted]
        its_keys, packed = self._packer.queries(shard, queries[: len(nears)], nears)
        return len(nears), keys + its_keys, packed

    async def _mirror(self, shard: Shard) -> Mirror | None:
        """The shard's mirror; None while it has none."""
        kept = self._mirrors[shard.number]
        if kept.mirror is not None and not kept.mirror.sound:
            kept.mirror = None
        if kept.mirror is not None and len(kept.mirror) > 2 * self._mirror_size + SPARE:
            kept.mirror = None
        due = kept.mirror is None or kept.mirror.worn
        if due and self._mirror_size and not kept.reading and monotonic_s() >= kept.not_before_s:
            kept.reading = True
            try:
                kept.mirror = await self._read(shard, kept)
            finally:
                kept.reading = False
        return kept.mirror

    async def _read(self, shard: Shard, kept: _Kept) -> Mirror | None:
        started_s = monotonic_s()
        kept.not_before_s = started_s + LEAST_PAUSE_S  # if it fails
        mirror = Mirror(self._layout, self._max_candidates, 2 * self._max_verified)
        slices = self._stamp.slices
        if not await read(
            mirror, self._server, shard, self._packer.entries, slices, self._mirror_size
        ):
            kept.not_before_s = started_s + TOO_LARGE_PAUSE_S
            log.info(
                "namespace %s, shard %d: more than %d fingerprints are not mirrored",
                shard.namespace, shard.number, self._mirror_size,
            )  # fmt: skip
            return None
        now_s = monotonic_s()
        kept.not_before_s = now_s + max(LEAST_PAUSE_S, PAUSES * (now_s - started_s))
        return mirror

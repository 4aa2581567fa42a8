"""Upkeep of a namespace: what expired is closed, what led to it purged, what is in use kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from stream_dedup.clock import US_PER_S
from stream_dedup.index.base import Limits
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.calls import CALL_WORK, Calls
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import Stamp
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.server import Argument, Server
from stream_dedup.model import Partition

SWEEP_STEPS = 100
"""Clusters looked at a sweeping call; each takes some ten commands to close."""

PIECES = 200
"""Pieces of garbage handed out a call."""

NO_CAP = 1 << 52
"""For calls that close nothing for want of room."""

PARTITIONS_KEPT_EVERY_US = 3600 * US_PER_S
"""So often the times to live of claimed partitions begin anew, which are a week at least."""

KEPT_AT_ONCE = 400
"""Keys whose times to live a script begins anew, and slices and tables in a call of `expire`."""

CHUNKS_LOOKED_AT = 20
"""So often as many are looked at in a call of `expire` at most, if none of them stands."""


class Upkeep:
    """Keeps a namespace in order.

    Args:
        server: the service.
        calls: runs the scripts.
        packer: where things stand.
        stamp: how the namespace is laid out.
        limits: how much a call may close.
    """

    def __init__(
        self, server: Server, calls: Calls, packer: Packer, stamp: Stamp, limits: Limits
    ) -> None:
        self._server = server
        self._calls = calls
        self._packer = packer
        self._stamp = stamp
        self._limits = limits
        self._purge_chunk = max(1, CALL_WORK // (stamp.layout.tables + 4))
        self._partitions_kept_us: int | None = None
        self._round_us: int | None = None
        self._round: Iterator[list[bytes]] | None = None
        self._chunk: list[bytes] | None = None  # the round's next
        self._round_ended: set[int] = set()  # numbers of the shards that are to be told

    async def expire(self, now_us: int, claimed: Sequence[Partition]) -> None:
        """Close what has expired, and keep what is in use from running out.

        Args:
            now_us: the clock.
            claimed: partitions whose state is kept though they see no events.
        """
        # Only `record` closes what is above the cap.
        settings = self._calls.settings(now_us, max_clusters=NO_CAP)
        for shard in self._packer.shards:
            await self.tidy(shard, settings, await self._sweep(shard, settings))
        await self._keep_partitions(now_us, claimed)
        await self._keep_slices(now_us)
        for number in sorted(self._round_ended):  # a sweep tells the shard
            shard = self._packer.shards[number]
            await self.tidy(shard, settings, await self._sweep(shard, settings))

    async def _keep_partitions(self, now_us: int, claimed: Sequence[Partition]) -> None:
        kept_us = self._partitions_kept_us
        if kept_us is not None and abs(now_us - kept_us) < PARTITIONS_KEPT_EVERY_US:
            return
        for shard in self._packer.shards:
            keys = (key for p in claimed for key in (shard.partition(p), shard.journal(p)))
            for chunk in _chunks(keys):
                await self._keep(chunk)
        self._partitions_kept_us = now_us

    async def _keep_slices(self, now_us: int) -> None:
        """Go on with the round through all slices and tables; begin the next in time.

        Once it has ended the shards are told when it began: what stands was begun anew since then,
        or made since, so until that wears off who inserts need not begin it anew.
        """
        for _ in range(CHUNKS_LOOKED_AT):
            if self._chunk is None and not self._next_chunk(now_us):
                return
            chunk = self._chunk
            assert chunk is not None
            stand = await self._keep(chunk)
            if self._chunk is chunk:  # else another task has done it too
                self._chunk = None
            if stand:
                return

    def _next_chunk(self, now_us: int) -> bool:
        """Go on with the round, or begin one; whether there is something to do in this call."""
        if self._round is None:
            due_us = self._calls.ttl_ms * 1000 // 4
            if self._round_us is not None and abs(now_us - self._round_us) < due_us:
                return False
            self._round_us, self._round = now_us, self._slices()
            self._round_ended = set()
        self._chunk = next(self._round, None)
        if self._chunk is None:  # the next call begins the next round: first this one is told of
            self._round = None
            self._round_ended = {shard.number for shard in self._packer.shards}
        return self._chunk is not None

    def _slices(self) -> Iterator[list[bytes]]:
        """All slices and tables, in chunks; each of one shard."""
        for shard in self._packer.shards:
            keys = (
                shard.exact(number) if table < 0 else shard.table(table, number)
                for table in range(-1, self._stamp.layout.tables)
                for number in range(self._stamp.slices if table >= 0 else self._stamp.exact_slices)
            )
            yield from _chunks(keys)

    async def _keep(self, keys: Sequence[bytes]) -> int:
        """Begin the times to live of a shard's keys anew; how many of them stand."""
        standing: int = await self._server.run(scripts.KEEP, keys, [self._calls.ttl_ms])
        return standing

    async def finish(self, now_us: int) -> None:
        """Close every cluster."""
        settings = self._calls.settings(now_us)
        for shard in self._packer.shards:
            answer = await self._sweep(shard, settings, everything=True)
            await self.tidy(shard, settings, answer, everything=True)

    async def _sweep(self, shard: Shard, settings: bytes, *, everything: bool = False) -> list[Any]:
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads,
        ]  # fmt: skip
        kept_s = b""
        if shard.number in self._round_ended and self._round_us is not None:
            kept_s = b"%d" % (self._round_us // US_PER_S)
        arguments: list[Argument] = [settings, int(everything), SWEEP_STEPS, PIECES, kept_s]
        answer: list[Any] = await self._calls.run(shard, scripts.SWEEP, keys, arguments)
        if kept_s:
            self._round_ended.discard(shard.number)  # once: later the server may have lost it
        return answer

    async def tidy(
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
            group, entries = codec.unpack_entries(piece[8:], self._stamp.width)
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
                    await self._calls.run(shard, scripts.PURGE, keys, arguments)
                    keys, arguments = keys[:2], arguments[:1]
                    room = self._purge_chunk
        if len(keys) > 2:
            await self._calls.run(shard, scripts.PURGE, keys, arguments)


def _chunks(keys: Iterator[bytes]) -> Iterator[list[bytes]]:
    while chunk := list(islice(keys, KEPT_AT_ONCE)):
        yield chunk

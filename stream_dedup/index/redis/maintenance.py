"""Maintenance of a namespace: close expired clusters, purge their entries, renew times to live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from stream_dedup.clock import US_PER_S
from stream_dedup.index.base import Limits
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.garbage import pack_garbage
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.runner import ScriptRunner
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.model import Partition

SWEEP_STEPS = 200
"""Clusters read by a call that sweeps; each takes some four commands to close."""

PIECES = 200
"""Pieces of garbage returned by a call."""

PARTITIONS_RENEWED_EVERY_US = 3600 * US_PER_S
"""How often the times to live of claimed partitions are renewed, which are a week at least."""

RENEWED_AT_ONCE = 400
"""Keys whose times to live a script renews, and slices renewed by a call of `expire`."""

MAX_CHUNKS = 20
"""Chunks of slices tried by a call of `expire`, at most, until one holds slices that exist."""


class Maintenance:
    """Maintains a namespace.

    Args:
        client: the service.
        runner: runs the scripts.
        packer: finds keys.
        layout: how the namespace is laid out.
        limits: how much a call may close.
        learns: whether there are posting lists.
    """

    def __init__(
        self,
        client: RedisClient,
        runner: ScriptRunner,
        packer: Packer,
        layout: NamespaceLayout,
        limits: Limits,
        *,
        learns: bool,
    ) -> None:
        self._client = client
        self._runner = runner
        self._packer = packer
        self._namespace_layout = layout
        self._limits = limits
        self._learns = learns
        self._partitions_renewed_us: int | None = None
        self._round_began_us: int | None = None
        self._round: Iterator[list[bytes]] | None = None  # chunks of slices
        self._chunk: list[bytes] | None = None  # the round's next
        self._unreported: set[int] = set()  # shards that do not know yet that the round has ended

    async def expire(self, now_us: int, claimed: Sequence[Partition]) -> None:
        """Close what has expired, and renew the times to live of what is in use.

        Args:
            now_us: the clock.
            claimed: partitions whose state is kept though they see no events.
        """
        settings = self._runner.settings(now_us)
        for shard in self._packer.shards:
            await self.tidy(shard, settings, await self._sweep(shard, settings))
        await self._renew_partitions(now_us, claimed)
        await self._renew_slices(now_us)
        for number in sorted(self._unreported):  # a sweep reports the round to the shard
            shard = self._packer.shards[number]
            await self.tidy(shard, settings, await self._sweep(shard, settings))

    async def _renew_partitions(self, now_us: int, claimed: Sequence[Partition]) -> None:
        renewed_us = self._partitions_renewed_us
        if renewed_us is not None and abs(now_us - renewed_us) < PARTITIONS_RENEWED_EVERY_US:
            return
        for shard in self._packer.shards:
            keys = (key for p in claimed for key in (shard.partition(p), shard.journal(p)))
            for chunk in chunks(keys):
                await self._renew(chunk)
        self._partitions_renewed_us = now_us

    async def _renew_slices(self, now_us: int) -> None:
        """Continue the round through all slices, or begin the next if it is time.

        When a round has ended, the shards note when it began: every slice that exists was renewed
        since then, or made since then. Until that wears off, calls that insert need not renew it.
        """
        for _ in range(MAX_CHUNKS):
            if self._chunk is None and not self._next_chunk(now_us):
                return
            chunk = self._chunk
            assert chunk is not None
            existing = await self._renew(chunk)
            if self._chunk is chunk:  # else another task has done it too
                self._chunk = None
            if existing:
                return

    def _next_chunk(self, now_us: int) -> bool:
        """Take the round's next chunk, or begin a round; whether this call has one to renew."""
        if self._round is None:
            due_us = self._runner.ttl_ms * 1000 // 4
            if self._round_began_us is not None and abs(now_us - self._round_began_us) < due_us:
                return False
            self._round_began_us, self._round = now_us, self._slices()
            self._unreported = set()
        self._chunk = next(self._round, None)
        if self._chunk is None:  # the next call begins the next round: this one is reported first
            self._round = None
            self._unreported = {shard.number for shard in self._packer.shards}
        return self._chunk is not None

    def _slices(self) -> Iterator[list[bytes]]:
        """All slices, in chunks; each of one shard."""
        layout = self._namespace_layout
        for shard in self._packer.shards:
            exacts = (shard.exact(number) for number in range(layout.exact_slices))
            postings = map(
                shard.postings_slice, range(layout.posting_slices if self._learns else 0)
            )
            tables = (
                shard.table(table, number)
                for table in range(layout.table_layout.tables)
                for number in range(layout.slices)
            )
            yield from chunks(chain(exacts, postings, tables))

    async def _renew(self, keys: Sequence[bytes]) -> int:
        """Renew the times to live of a shard's keys; how many of them exist."""
        existing: int = await self._client.run(scripts.KEEP, keys, [self._runner.ttl_ms])
        return existing

    async def finish(self, now_us: int) -> None:
        """Close every cluster."""
        settings = self._runner.settings(now_us)
        for shard in self._packer.shards:
            answer = await self._sweep(shard, settings, everything=True)
            await self.tidy(shard, settings, answer, everything=True)

    async def _sweep(
        self, shard: ShardKeys, settings: bytes, *, everything: bool = False
    ) -> list[Any]:
        keys = [
            shard.meta, shard.expiry, shard.recency, shard.due, shard.garbage, shard.gone,
            shard.heads,
        ]  # fmt: skip
        round_began_s = b""
        if shard.number in self._unreported and self._round_began_us is not None:
            round_began_s = b"%d" % (self._round_began_us // US_PER_S)
        arguments: list[Argument] = [settings, int(everything), SWEEP_STEPS, PIECES, round_began_s]
        answer: list[Any] = await self._runner.run(shard, scripts.SWEEP, keys, arguments)
        if round_began_s:
            self._unreported.discard(shard.number)  # once: later the server may have lost it
        return answer

    async def tidy(
        self, shard: ShardKeys, settings: bytes, answer: list[Any], *, everything: bool = False
    ) -> None:
        """Purge the garbage that a call returned, and sweep again where it left more to do.

        Args:
            shard: where the call ran.
            settings: its settings.
            answer: what it returned; see ``sweep.lua``.
            everything: whether every cluster is to be closed.
        """
        swept = SWEEP_STEPS
        while True:
            more, pieces = answer[2], answer[3:]
            await self._purge(shard, pieces)
            if not (more or len(pieces) == PIECES):
                return
            if not everything and swept >= self._limits.sweep:
                return  # the next call of `expire` or `record` goes on
            answer = await self._sweep(shard, settings, everything=everything)
            swept += SWEEP_STEPS

    async def _purge(self, shard: ShardKeys, pieces: Sequence[bytes]) -> None:
        entries, layout = self._packer.entries, self._namespace_layout
        for its_keys, its_arguments in pack_garbage(
            pieces, shard, layout, entries.arrange, CALL_WORK
        ):
            keys = [shard.meta, shard.garbage, *its_keys]
            arguments = [entries.member_bytes, layout.names_at, *its_arguments]
            await self._runner.run(shard, scripts.PURGE, keys, arguments)


def chunks(keys: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut keys into pieces whose times to live a script renews at once."""
    while chunk := list(islice(keys, RENEWED_AT_ONCE)):
        yield chunk

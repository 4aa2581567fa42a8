"""How much a namespace holds, and what that takes.

Counts come from counters and lengths. Memory is measured on a sample of the keys of each kind, the
first that SCAN finds (it goes by hash, so they are as good as any), and scaled to all of them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from stream_dedup.index.redis import kinds
from stream_dedup.index.redis.inspection import Namespace, Progress, hold_numbers, integer
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.server import Command

SAMPLE = 1_000
"""Keys of each kind, whose memory is measured."""

ROUGHLY = 100_000
"""Keys looked at of each shard where namespaces are only listed."""

LARGEST = 3
"""Slices named of each kind."""

COUNTERS = ("fingerprints", "waiting", "evicted", "expired", "truncated")


@dataclass(slots=True)
class Measured:
    """The keys of one kind.

    Attributes:
        keys: how many there are.
        sampled: how many of them were measured.
        sampled_bytes: what those take.
        entries: what all slices hold.
        converted: sampled slices that are stored in the large form.
        largest: (entries, key) of the largest slices, ascending.
    """

    keys: int = 0
    sampled: int = 0
    sampled_bytes: int = 0
    entries: int = 0
    converted: int = 0
    largest: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def bytes_all(self) -> int:
        """What all take, about."""
        return round(self.sampled_bytes * self.keys / self.sampled) if self.sampled else 0

    def add_slice(self, entries: int, key: bytes) -> None:
        """Count a slice."""
        self.entries += entries
        heapq.heappush(self.largest, (entries, key))
        if len(self.largest) > LARGEST:
            heapq.heappop(self.largest)


@dataclass(slots=True)
class PartitionState:
    """A partition.

    Attributes:
        source: the topic or path.
        number: its number.
        fence: of its latest claim.
        high_water: the largest recorded offset.
        committed: the next offset to be read after a crash.
        batches: in its journal.
        journal_bytes: what the journal takes.
    """

    source: bytes
    number: int
    fence: int
    high_water: int
    committed: int
    batches: int
    journal_bytes: int


@dataclass(slots=True)
class ShardState:
    """A shard.

    Attributes:
        number: its number.
        counters: of `COUNTERS`, as they are stored.
        stream_us: stream time; None before the first event.
        seen_us: when workers last moved it on, by their clock.
        open: clusters that take events.
        gone: tombstones, those whose time is over included until they give way.
        garbage: pieces still to be purged.
        due: summaries that wait for their time, or to be claimed.
        final: final ones among them.
        due_now: those whose time has come.
        leased: summaries on their way.
        names: exact hashes of the sampled open clusters.
        sampled_open: how many those are.
        least_ttl: (milliseconds, key) of what would be gone first; tombstones left out.
        measured: the keys, by kind.
        partitions: what is known of them.
        looked_at: keys.
        whole: whether all keys were looked at.
    """

    number: int
    counters: dict[str, int]
    stream_us: int | None
    seen_us: int | None
    open: int = 0
    gone: int = 0
    garbage: int = 0
    due: int = 0
    final: int = 0
    due_now: int = 0
    leased: int = 0
    names: int = 0
    sampled_open: int = 0
    least_ttl: tuple[int, bytes] | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    partitions: list[PartitionState] = field(default_factory=list)
    looked_at: int = 0
    whole: bool = True


async def measure(namespace: Namespace, limit: int, progress: Progress) -> list[ShardState]:
    """Measure all shards, looking at so many keys of each (0: all).

    Raises:
        IndexUnavailable: the server is away.
        IndexRefused: the user may not read what is needed.
    """
    return [await _Shard(namespace, shard).measure(limit, progress) for shard in namespace.shards]


class _Shard:
    """One shard, being measured."""

    def __init__(self, namespace: Namespace, shard: Shard) -> None:
        self._namespace = namespace
        self._reader = namespace.reader
        self._shard = shard

    async def _many(self, commands: list[Command]) -> list[Any]:
        return await self._reader.many(self._shard.meta, commands)

    async def measure(self, limit: int, progress: Progress) -> ShardState:
        state = await self._lengths()
        async for found in self._reader.scan(self._shard.meta, f"{self._shard.prefix.decode()}*"):
            keys = found[: limit - state.looked_at] if limit else found
            state.looked_at += len(keys)
            await self._keys(state, keys)
            progress(f"shard {self._shard.number}", state.looked_at)
            if limit and state.looked_at >= limit:
                state.whole = False
                break
        state.partitions.sort(key=lambda partition: (partition.source, partition.number))
        return state

    async def _lengths(self) -> ShardState:
        shard = self._shard
        fields = (*COUNTERS, "stream", "seen")
        values = await self._reader.command(shard.meta, "HMGET", shard.meta, *fields)
        stored = dict(zip(fields, values, strict=True))
        state = ShardState(
            self._shard.number,
            {name: integer(stored[name]) for name in COUNTERS},
            _known(stored["stream"]),
            _known(stored["seen"]),
        )
        until: str | int = "-inf" if state.stream_us is None else state.stream_us
        answers = await self._many(
            [
                ("ZCARD", shard.recency),
                ("ZCARD", shard.gone),
                ("LLEN", shard.garbage),
                ("ZCARD", shard.due),
                ("ZCOUNT", shard.due, "-inf", "-inf"),
                ("ZCOUNT", shard.due, "-inf", until),
                ("ZCARD", shard.leases),
            ]
        )
        names = ("open", "gone", "garbage", "due", "final", "due_now", "leased")
        for name, answer in zip(names, answers, strict=True):
            setattr(state, name, answer or 0)
        return state

    async def _keys(self, state: ShardState, keys: list[bytes]) -> None:
        by_kind: dict[kinds.Kind, list[bytes]] = {}
        for key in keys:
            by_kind.setdefault(kinds.kind_of(self._shard, key, self._namespace.stamp), []).append(
                key
            )
        for kind, of_kind in by_kind.items():
            measured = state.measured.setdefault(kind.group, Measured())
            measured.keys += len(of_kind)
            if kind.name in {"tables", "exact hashes"}:
                await self._slices(measured, kind, of_kind)
            if kind.name == "partitions":
                state.partitions += await self._partitions(of_kind)
            room = max(0, SAMPLE - measured.sampled)
            await self._sample(state, measured, kind, of_kind[:room])

    async def _slices(self, measured: Measured, kind: kinds.Kind, keys: list[bytes]) -> None:
        length = "ZCARD" if kind.type == "zset" else "HLEN"
        for key, entries in zip(keys, await self._many([(length, k) for k in keys]), strict=True):
            measured.add_slice(entries or 0, key)

    async def _sample(
        self, state: ShardState, measured: Measured, kind: kinds.Kind, keys: list[bytes]
    ) -> None:
        sizes = await self._many([("MEMORY", "USAGE", key) for key in keys])
        ttls = await self._many([("PTTL", key) for key in keys])
        forms = await self._many([("OBJECT", "ENCODING", key) for key in keys])
        mortal = [True] * len(keys)
        if kind.name == "clusters":
            answers = await self._many([("HGET", key, "n") for key in keys])
            for place, numbers in enumerate(map(hold_numbers, answers)):
                mortal[place] = numbers is not None and not numbers.gone
                if numbers is not None and numbers.closed == 0:
                    state.sampled_open += 1
                    state.names += numbers.names
        for key, size, ttl_ms, form, counts in zip(keys, sizes, ttls, forms, mortal, strict=True):
            if size is None:
                continue  # gone meanwhile
            measured.sampled += 1
            measured.sampled_bytes += size
            measured.converted += form != b"listpack"
            if counts and ttl_ms >= 0 and (not state.least_ttl or ttl_ms < state.least_ttl[0]):
                state.least_ttl = ttl_ms, key

    async def _partitions(self, keys: list[bytes]) -> list[PartitionState]:
        journals = [
            self._shard.prefix + b"j" + key.removeprefix(self._shard.prefix)[1:] for key in keys
        ]
        fields = ("fence", "high_water", "committed")
        values = await self._many([("HMGET", key, *fields) for key in keys])
        batches = await self._many([("ZCARD", key) for key in journals])
        sizes = await self._many([("MEMORY", "USAGE", key) for key in journals])
        states = []
        for key, value, batch, size in zip(keys, values, batches, sizes, strict=True):
            source, number = kinds.partition_of(self._shard, key)
            fence, high_water, committed = map(integer, value or (None,) * 3)
            states.append(
                PartitionState(source, number, fence, high_water, committed, batch or 0, size or 0)
            )
        return states


def _known(value: bytes | None) -> int | None:
    return None if value is None else integer(value)

"""Measures how much a namespace holds, and the memory that it takes, and prints that.

Counts come from counters and lengths. Memory is measured on a sample of the keys of each kind, the
first that SCAN finds (its order is by hash, so they are as good as any), and scaled to all of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from stream_dedup.cli.common import console, shown
from stream_dedup.index.redis import layouts
from stream_dedup.index.redis.client import Command
from stream_dedup.index.redis.keys import KEY_GROUPS, KeyKind, ShardKeys, kind_of, partition_of
from stream_dedup.tools.index_inspector.output import (
    Row,
    print_rows,
    print_table,
    size,
    text_of,
    when,
    write_json,
)
from stream_dedup.tools.index_inspector.reader import (
    Namespace,
    Progress,
    integer,
    unpack_numbers,
)

SAMPLE = 1_000
"""Keys of each kind, whose memory is measured."""

SLICED = {"tables", "exact hashes", "records"}
"""Kinds whose keys are slices: what is in them is counted."""

LARGEST = 3
"""Slices named of each kind."""

COUNTERS = (
    "events", "fingerprints", "waiting", "evicted", "expired", "truncated", "cut_by_work",
)  # fmt: skip


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
        leased: summaries that were claimed and are not confirmed.
        names: exact hashes of the sampled open clusters.
        sampled_open: how many those are.
        least_ttl: (milliseconds, key) of what would be gone first; tombstones left out.
        measured: the keys, by kind.
        partitions: what is known of them.
        looked_at: keys.
        whole: whether all keys were read.
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

    def __init__(self, namespace: Namespace, shard: ShardKeys) -> None:
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
        by_kind: dict[KeyKind, list[bytes]] = {}
        for key in keys:
            by_kind.setdefault(kind_of(self._shard, key, self._namespace.layout), []).append(key)
        for kind, of_kind in by_kind.items():
            measured = state.measured.setdefault(kind.group, Measured())
            measured.keys += len(of_kind)
            if kind.name in SLICED:
                await self._slices(measured, kind, of_kind)
            if kind.name == "partitions":
                state.partitions += await self._partitions(of_kind)
            room = max(0, SAMPLE - measured.sampled)
            await self._sample(state, measured, kind, of_kind[:room])

    async def _slices(self, measured: Measured, kind: KeyKind, keys: list[bytes]) -> None:
        length = {"zset": "ZCARD", "hash": "HLEN", "string": "STRLEN"}[kind.type]
        each = self._namespace.entries.member_bytes if kind.type == "string" else 1
        for key, count in zip(keys, await self._many([(length, k) for k in keys]), strict=True):
            measured.add_slice((count or 0) // each, key)

    async def _sample(
        self, state: ShardState, measured: Measured, kind: KeyKind, keys: list[bytes]
    ) -> None:
        sizes = await self._many([("MEMORY", "USAGE", key) for key in keys])
        ttls = await self._many([("PTTL", key) for key in keys])
        forms = await self._many([("OBJECT", "ENCODING", key) for key in keys])
        mortal = [True] * len(keys)
        if kind.name == "clusters":
            answers = await self._many([("GET", key) for key in keys])
            for place, numbers in enumerate(map(unpack_numbers, answers)):
                mortal[place] = numbers is not None and not numbers.gone
                if numbers is not None and numbers.open:
                    state.sampled_open += 1
                    state.names += numbers.names
        for key, nbytes, ttl_ms, form, counts in zip(keys, sizes, ttls, forms, mortal, strict=True):
            if nbytes is None:
                continue  # gone meanwhile
            measured.sampled += 1
            measured.sampled_bytes += nbytes
            measured.converted += form != b"listpack" and kind.type != "string"
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
        for key, value, batch, nbytes in zip(keys, values, batches, sizes, strict=True):
            source, number = partition_of(self._shard, key)
            fence, high_water, committed = map(integer, value or (None,) * 3)
            states.append(
                PartitionState(
                    source, number, fence, high_water, committed, batch or 0, nbytes or 0
                )
            )
        return states


def _known(value: bytes | None) -> int | None:
    return None if value is None else integer(value)


# ------------------------------------------------------------ printing

_COUNTS = (
    ("open clusters", "open"),
    ("closed, waiting", "waiting"),
    ("tombstones", "gone"),
    ("fingerprints", "fingerprints"),
    ("aliases ~", "aliases"),
    ("garbage pieces", "garbage"),
    ("summaries due", "due"),
    ("  final ones", "final"),
    ("  due now", "due_now"),
    ("  on their way", "leased"),
    ("events so far", "events"),
    ("evicted so far", "evicted"),
    ("expired so far", "expired"),
    ("searches cut short", "truncated"),
    ("  by limit on work", "cut_by_work"),
)
"""Name for people, key in `_facts`."""


def print_stats(
    namespace: Namespace, shards: list[ShardState], advised: list[str], form: str
) -> None:
    """How much a namespace holds."""
    facts = [_facts(shard) for shard in shards]
    total = {key: sum(fact[key] for fact in facts) for _, key in _COUNTS}
    memory = _memory(shards)
    layout = namespace.layout
    if form == "json":
        write_json(
            {
                "namespace": namespace.name,
                "recipe": namespace.recipe,
                "digest": namespace.digest,
                "shard_by": "fingerprint" if namespace.spread else "group",
                "layout": layout._asdict() | {"tables": layout.table_layout.tables},
                "total": total,
                "shards": facts,
                "memory": memory,
                "advice": advised,
            }
        )
        return
    print_rows(_head(namespace))
    out = console()
    out.print()
    columns = [("total", total), *((f"shard {fact['shard']}", fact) for fact in facts)]
    if len(facts) == 1:
        columns = columns[:1]
    print_table(
        "",
        ("", *(f"#{name}" for name, _ in columns)),
        [(name, *(f"{column[key]:,}" for _, column in columns)) for name, key in _COUNTS],
    )
    out.print()
    _print_memory(memory, total)
    _print_partitions(facts)
    for note in (*_notes(facts, memory), *advised):
        out.print(Text(f"note: {note}"), soft_wrap=True)


def _head(namespace: Namespace) -> Iterator[Row]:
    layout, entries = namespace.layout, namespace.entries
    yield "namespace", f"{namespace.name} on {namespace.reader.address}"
    yield "recipe", shown(f"{namespace.recipe}, digest {namespace.digest}".encode(), 200)
    tables = layout.table_layout.tables
    kind = f"W = {layout.width}, k = {layout.k}, m = {layout.blocks}: {tables}"
    if layout.is_bands:
        kind = f"{tables} keys of bands, of {layout.width // tables} bits: {tables}"
    text = (
        f"{kind} "
        f"tables of {layout.slices:,} slices, {layout.exact_slices:,} slices of exact hashes, "
        f"{layout.shards} shard(s)"
    )
    if namespace.spread:
        text = f"{kind} tables in {layout.spread_slices:,} slices of each of {layout.shards} shards"
    yield "layout", text
    if namespace.spread:
        size = layouts.SPREAD_MEMBER.struct.size + layout.width // 8
        yield "entry", f"{size} bytes; shards by fingerprint"
        return
    yield "entry", f"{entries.member_bytes} bytes, {entries.prefix_bytes} of them searched by"


def _facts(shard: ShardState) -> dict[str, Any]:
    aliases = 0
    if shard.sampled_open:
        aliases = round(shard.open * (shard.names / shard.sampled_open - 1))
    ttl = shard.least_ttl
    return {
        "shard": shard.number,
        "open": shard.open,
        "gone": shard.gone,
        "aliases": aliases,
        "garbage": shard.garbage,
        "due": shard.due,
        "final": shard.final,
        "due_now": shard.due_now,
        "leased": shard.leased,
        **shard.counters,
        "stream_time": None if shard.stream_us is None else when(shard.stream_us),
        "seen": None if shard.seen_us is None else when(shard.seen_us),
        "least_ttl_s": None if ttl is None else ttl[0] // 1000,
        "least_ttl_key": None if ttl is None else text_of(ttl[1]),
        "keys_looked_at": shard.looked_at,
        "whole": shard.whole,
        "bytes_a_fingerprint": _each(shard, "tables", shard.counters["fingerprints"]),
        "bytes_a_cluster": _each(shard, "clusters", 0),
        "partitions": [
            {
                "source": text_of(partition.source),
                "partition": partition.number,
                "fence": partition.fence,
                "high_water": partition.high_water,
                "committed": partition.committed,
                "journal_batches": partition.batches,
                "journal_bytes": partition.journal_bytes,
            }
            for partition in shard.partitions
        ],
    }


def _each(shard: ShardState, kind: str, among: int) -> int | None:
    measured = shard.measured.get(kind)
    among = among or (measured.keys if measured else 0)
    return round(measured.bytes_all / among) if measured and among and shard.whole else None


def _memory(shards: list[ShardState]) -> dict[str, dict[str, Any]]:
    """The kinds of keys, of all shards."""
    out: dict[str, dict[str, Any]] = {}
    for name in KEY_GROUPS:
        measured = [shard.measured[name] for shard in shards if name in shard.measured]
        if measured:
            out[name] = _kind(name, measured)
    return out


def _kind(name: str, measured: list[Measured]) -> dict[str, Any]:
    fact: dict[str, Any] = {
        "keys": sum(each.keys for each in measured),
        "bytes": sum(each.bytes_all for each in measured),
        "sampled": sum(each.sampled for each in measured),
    }
    if name in SLICED:
        largest = sorted((pair for each in measured for pair in each.largest), reverse=True)
        fact["entries"] = sum(each.entries for each in measured)
        fact["slices_in_large_form"] = sum(
            round(each.converted * each.keys / each.sampled) for each in measured if each.sampled
        )
        fact["largest"] = [
            {"slice": text_of(key), "entries": entries} for entries, key in largest[:3]
        ]
    return fact


def _print_memory(memory: dict[str, dict[str, Any]], total: dict[str, int]) -> None:
    def among(name: str, fact: dict[str, Any]) -> str:
        if name == "tables" and total["fingerprints"]:
            return f"~ {fact['bytes'] / total['fingerprints']:,.0f} B a fingerprint"
        if name in {"exact hashes", "records"} and fact["entries"]:
            each = "a record" if name == "records" else "an exact hash"
            return f"~ {fact['bytes'] / fact['entries']:,.0f} B {each}"
        if name == "clusters" and fact["keys"]:
            return f"~ {fact['bytes'] / fact['keys']:,.0f} B a cluster or tombstone"
        return ""

    print_table(
        "memory",
        ("", "#keys", "#size", "each", "#entries", "#large form", "largest slices"),
        (
            (
                name,
                f"{fact['keys']:,}",
                "~ " + size(fact["bytes"]),
                among(name, fact),
                f"{fact['entries']:,}" if "entries" in fact else "",
                f"~ {fact['slices_in_large_form']:,}" if "entries" in fact else "",
                ", ".join(
                    f"{each['slice'].partition('}:')[2]} ({each['entries']:,})"
                    for each in fact.get("largest", ())
                ),
            )
            for name, fact in memory.items()
        ),
    )
    everything = sum(fact["bytes"] for fact in memory.values())
    console().print(Text(f"all together ~ {size(everything)}"))
    console().print()


def _print_partitions(facts: list[dict[str, Any]]) -> None:
    rows = [
        (
            str(fact["shard"]),
            shown(each["source"].encode("utf-8", "replace")),
            str(each["partition"]),
            f"{each['fence']:,}",
            f"{each['high_water']:,}",
            f"{each['committed']:,}",
            f"{each['journal_batches']:,}",
            size(each["journal_bytes"]),
        )
        for fact in facts
        for each in fact["partitions"]
    ]
    if rows:
        print_table(
            "partitions",
            ("#shard", "source", "#partition", "#fence", "#high water", "#committed",
             "#journal batches", "#journal"),
            rows,
        )  # fmt: skip
        console().print()
    for fact in facts:
        stream, seen, ttl = fact["stream_time"], fact["seen"], fact["least_ttl_s"]
        parts = [f"shard {fact['shard']}: stream time {stream or 'not begun'}"]
        parts += [f"last moved on at {seen}"] if seen else []
        if ttl is not None:
            key = shown(fact["least_ttl_key"].encode("utf-8", "replace"), 80)
            parts.append(f"lowest time to live {ttl / 86_400:,.1f} d ({key})")
        console().print(Text("; ".join(parts)), soft_wrap=True)


def _notes(facts: list[dict[str, Any]], memory: dict[str, dict[str, Any]]) -> Iterator[str]:
    for fact in facts:
        if not fact["whole"]:
            yield (
                f"shard {fact['shard']}: only {fact['keys_looked_at']:,} keys were looked at "
                "(--limit); keys, memory and partitions are of those"
            )
    for name, fact in memory.items():
        large = fact.get("slices_in_large_form", 0)
        if large:
            yield (
                f"about {large:,} slices of {name} are stored in the large form, at five to ten "
                "times the memory: they hold, or held, more entries than the server's "
                f"{'zset' if name == 'tables' else 'hash'}-max-listpack-entries"
            )

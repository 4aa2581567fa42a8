"""What ``stream-dedup index stats`` prints of a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from stream_dedup.cli.common import console, shown
from stream_dedup.tools.index_inspector.output import (
    Row,
    print_rows,
    print_table,
    size,
    text_of,
    when,
    write_json,
)

if TYPE_CHECKING:
    from stream_dedup.index.redis.inspection import Namespace
    from stream_dedup.tools.index_inspector.measure import Measured, ShardState

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
    ("evicted so far", "evicted"),
    ("expired so far", "expired"),
    ("searches cut short", "truncated"),
)
"""Name for people, key in `_facts`."""


def print_stats(
    namespace: Namespace, shards: list[ShardState], advised: list[str], form: str
) -> None:
    """How much a namespace holds."""
    facts = [_facts(shard) for shard in shards]
    total = {key: sum(fact[key] for fact in facts) for _, key in _COUNTS}
    memory = _memory(shards)
    stamp = namespace.stamp
    if form == "json":
        write_json(
            {
                "namespace": namespace.name,
                "recipe": namespace.recipe,
                "digest": namespace.digest,
                "layout": stamp._asdict() | {"tables": stamp.layout.tables},
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
    stamp, entries = namespace.stamp, namespace.entries
    yield "namespace", f"{namespace.name} on {namespace.reader.address}"
    yield "recipe", shown(f"{namespace.recipe}, digest {namespace.digest}".encode(), 200)
    layout = (
        f"W = {stamp.width}, k = {stamp.k}, m = {stamp.blocks}: {stamp.layout.tables} tables of "
        f"{stamp.slices:,} slices, {stamp.exact_slices:,} slices of exact hashes, "
        f"{stamp.shards} shard(s)"
    )
    yield "layout", layout
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
    for name in ("tables", "exact hashes", "clusters", "others"):
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
    if name in {"tables", "exact hashes"}:
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
        if fact.get("entries"):
            return f"~ {fact['bytes'] / fact['entries']:,.0f} B an exact hash"
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
        told = [f"shard {fact['shard']}: stream time {stream or 'not begun'}"]
        told += [f"last moved on at {seen}"] if seen else []
        if ttl is not None:
            key = shown(fact["least_ttl_key"].encode("utf-8", "replace"), 80)
            told.append(f"lowest time to live {ttl / 86_400:,.1f} d ({key})")
        console().print(Text("; ".join(told)), soft_wrap=True)


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

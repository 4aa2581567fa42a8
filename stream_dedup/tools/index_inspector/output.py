"""What the commands of ``stream-dedup index`` print: tables for people, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import console, shown, write_whole
from stream_dedup.clock import US_PER_S
from stream_dedup.emit.summaries import iso_time
from stream_dedup.errors import IndexRefused

if TYPE_CHECKING:
    from stream_dedup.index.redis.inspection import Namespace, Reader
    from stream_dedup.tools.index_inspector.findings import Report

WIDTH = 160
"""Characters of a table in files and pipes."""

LEAST_WIDTH = 140
"""Of a table on a terminal."""

Row = tuple[str, str]


def write_json(value: object) -> None:
    """One JSON object on standard output."""
    write_whole(sys.stdout.buffer, msgspec.json.format(msgspec.json.encode(value)) + b"\n")


def text_of(value: bytes) -> str:
    """Bytes as text that JSON can hold."""
    return value.decode("utf-8", "backslashreplace")


def when(time_us: float) -> str:
    """A time, or what cannot be one, as it is."""
    try:
        return iso_time(int(time_us))
    except (ValueError, OverflowError, OSError):
        return f"{time_us} µs"


def brief_time(time_us: float) -> str:
    """A time, to the second."""
    return when(time_us // US_PER_S * US_PER_S)


def print_rows(rows: Iterable[Row], title: str = "") -> None:
    """Names and values, one a line."""
    out = console()
    if title:
        out.print(Text(title, style="bold"), soft_wrap=True)
    kept = list(rows)
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        out.print(Text(f"{name:{width}}  {value}".rstrip()), soft_wrap=True)


def print_table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name begins with ``#`` hold numbers, the last gives way."""
    table = Table(title=title or None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    *others, last = names
    for name in others:
        justify: Literal["left", "right"] = "right" if name.startswith("#") else "left"
        table.add_column(name.removeprefix("#"), justify=justify, no_wrap=True)
    table.add_column(last.removeprefix("#"), justify="right" if last.startswith("#") else "left")
    for *cells, end in rows:
        table.add_row(*map(Text, cells), Text(end, overflow="ellipsis", no_wrap=True))
    out = Console(highlight=False)
    # A narrow terminal breaks the lines; ids that are cut short would be of no use.
    out.width = max(out.width, LEAST_WIDTH) if sys.stdout.isatty() else WIDTH
    out.print(table)


# ------------------------------------------------------------ namespaces


async def listed(reader: Reader, name: str, meta: dict[bytes, bytes]) -> dict[str, Any]:
    """A namespace in the list of all, with its clusters and about its memory."""
    from stream_dedup.index.redis import inspection  # noqa: PLC0415 -- an extra
    from stream_dedup.tools.index_inspector import measure  # noqa: PLC0415

    row: dict[str, Any] = {
        "namespace": name,
        "recipe": text_of(meta.get(b"recipe", b"")),
        "digest": text_of(meta.get(b"digest", b"")),
        "shards": 0,
        "clusters": 0,
        "bytes": 0,
    }
    try:
        namespace = await inspection.Namespace.find(reader, name)
    except (IndexRefused, ValueError) as error:
        return row | {"problem": str(error)}
    shards = await measure.measure(namespace, measure.ROUGHLY, lambda _what, _keys: None)
    row["shards"] = len(shards)
    row["clusters"] = sum(shard.open for shard in shards)
    row["bytes"] = sum(m.bytes_all for shard in shards for m in shard.measured.values())
    row["bytes_at_least"] = not all(shard.whole for shard in shards)
    return row


def print_namespaces(rows: list[dict[str, Any]], whole: bool, address: str, form: str) -> None:
    """The list of namespaces; whole, or as far as the limit allowed."""
    if form == "json":
        write_json({"server": address, "whole": whole, "namespaces": rows})
        return
    if not whole:
        click.echo("stream-dedup: --limit was reached; there may be more namespaces", err=True)
    if not rows:
        console().print(Text(f"{address} holds no namespace{'' if whole else ' so far'}"))
        return
    print_table(
        "",
        ("namespace", "recipe", "digest", "#shards", "#clusters", "#memory", ""),
        (
            (
                shown(row["namespace"].encode()),
                shown(row["recipe"].encode()),
                shown(row["digest"].encode()),
                f"{row['shards']:,}",
                f"{row['clusters']:,}",
                ("> " if row.get("bytes_at_least") else "~ ") + size(row["bytes"]),
                row.get("problem", ""),
            )
            for row in rows
        ),
    )


def size(count: float) -> str:
    """Bytes, in a unit that fits.

    >>> size(999), size(1_530_000)
    ('999 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


# ------------------------------------------------------------ check


def print_report(namespace: Namespace, report: Report, form: str) -> None:
    """What a check found."""
    from stream_dedup.tools.index_inspector.findings import KINDS  # noqa: PLC0415 -- an extra

    if form == "json":
        problems = [
            {
                "kind": kind,
                "count": count,
                "what": KINDS[kind][0],
                "meaning": KINDS[kind][1],
                "remedy": KINDS[kind][2],
                "examples": report.examples[kind],
            }
            for kind, count in report.counts.items()
        ]
        write_json(
            {
                "namespace": namespace.name,
                "looked_at": report.looked_at,
                "problems": problems,
                "notes": report.notes,
            }
        )
        return
    out = console()
    for kind, count in report.counts.items():
        what, meaning, remedy = KINDS[kind]
        out.print(Text(f"{count:,} × {what}", style="bold"), soft_wrap=True)
        print_rows([("  means", meaning), ("  remedy", remedy)])
        for example in report.examples[kind]:
            out.print(Text(f"    {example}"), soft_wrap=True)
        if count > len(report.examples[kind]):
            out.print(Text(f"    … and {count - len(report.examples[kind]):,} more"))
        out.print()
    looked_at = ", ".join(f"{n:,} {name}" for name, n in sorted(report.looked_at.items()) if n > 1)
    verdict = f"{sum(report.counts.values()):,} finding(s)" if report.counts else "all is well"
    for note in report.notes:
        out.print(Text(note), soft_wrap=True)
    shards = f"{len(namespace.shards)} shard(s)"
    out.print(Text(f"{namespace.name}: {verdict}; looked at {shards}, {looked_at}"), soft_wrap=True)


def print_deleted(namespace: str, keys: int, form: str, *, dry_run: bool) -> None:
    """How many keys went, or would go."""
    if form == "json":
        write_json({"namespace": namespace, "keys": keys, "deleted": not dry_run})
        return
    if dry_run and keys:
        console().print(Text(f"{namespace}: {keys:,} keys would go"))
    else:
        console().print(Text(f"{namespace}: {keys:,} keys deleted" if keys else
                             f"{namespace}: has no keys; nothing to delete"))  # fmt: skip

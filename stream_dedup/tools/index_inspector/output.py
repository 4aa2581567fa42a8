"""What the commands of ``stream-dedup index`` print: tables for people, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import console, write_whole
from stream_dedup.clock import US_PER_S
from stream_dedup.emit.summaries import iso_time

LEAST_WIDTH = 140
"""Characters of a table."""

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


def print_rows(rows: Iterable[Row]) -> None:
    """Names and values, one a line."""
    out = console()
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
    out = console()
    # A narrow terminal breaks the lines; ids that are cut short would be of no use.
    out.width = max(out.width, LEAST_WIDTH)
    out.print(table)


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

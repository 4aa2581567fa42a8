"""Helpers for what the commands print for people."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import click
from rich.console import Console

from stream_dedup.features.patterns import readable

MAX_SHOWN = 60
"""Characters shown of a feature."""


class Failed(click.ClickException):
    """A service that a command needs is away or refuses it."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ANN401 -- as click has it
        click.echo(f"stream-dedup: {self.message}", file=file, err=file is None)


def console() -> Console:
    """Standard output for tables: as wide as the terminal, or wide enough for files and pipes."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def write_whole(out: BinaryIO, data: bytes) -> None:
    """Write all of `data`, and flush.

    Under PYTHONUNBUFFERED standard output is the bare file, whose `write` may stop half-way: when a
    signal comes, or the disk is full.
    """
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]
    out.flush()


def shown(text: bytes, limit: int = MAX_SHOWN) -> str:
    """Bytes as one short printable piece of text."""
    return readable(text, limit)


def hexadecimal(fingerprint: int, width: int) -> str:
    """A fingerprint in all its hex digits."""
    return f"{fingerprint:0{-(-width // 4)}x}"


def bits(fingerprint: int, width: int) -> str:
    """A fingerprint in binary, in groups of eight."""
    digits = f"{fingerprint:0{width}b}"
    return " ".join(digits[start : start + 8] for start in range(0, width, 8))

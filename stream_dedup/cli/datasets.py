"""``stream-dedup dedup`` over tables: leaves out rows whose text is near that of an earlier row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import click
from click.core import ParameterSource

from stream_dedup.cli.common import Failed
from stream_dedup.cli.terminal import note as write_note
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.modes import MODES
from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.datasets import (
    CsvTable,
    CsvWriter,
    Table,
    TableFormat,
    TableWriter,
    table_format,
)
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.model import Batch, Partition

NO_EFFECT = {
    "output_format": "--output-format", "time_field": "--time-field",
    "time_format": "--time-format", "group_regex": "--group-regex", "since": "--since",
    "until": "--until", "start_regex": "--start-regex", "follow": "--follow", "top": "--top",
    "order": "--sort", "html": "--html", "ids": "--ids", "mark": "--mark",
    "summary_every": "--summary-every", "join": "--join", "group_prefix": "--group-prefix",
    "patterns_out": "--patterns-out",
}  # fmt: skip
"""Options of lines, by their names in click."""


@contextmanager
def arrow_extra() -> Iterator[None]:
    """Import pyarrow: without the extra, say what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise Failed("Parquet needs pyarrow: pip install 'stream-dedup[arrow]'") from error


def format_of(paths: Sequence[str], chosen: str) -> TableFormat | None:
    """Return the format of tables; None if the inputs are lines.

    Args:
        paths: the inputs.
        chosen: as in ``--input-format``.

    Raises:
        click.UsageError: some are tables and some are not, or of another format.
    """
    if chosen in ("csv", "parquet"):
        return "csv" if chosen == "csv" else "parquet"
    if chosen != "auto":
        return None
    found = {path: table_format(path) for path in paths}
    kinds = {*found.values()}
    if len(kinds) > 1:
        table = next(path for path, kind in found.items() if kind is not None)
        other = next(path for path, kind in found.items() if kind != found[table])
        raise click.UsageError(
            f"{table!r} is a table and {other!r} is of another kind; read them in two runs, or "
            "give --input-format"
        )
    return kinds.pop() if kinds else None


def open_table(
    path: str,
    form: TableFormat,
    text_field: str,
    group_fields: Sequence[str] = (),
    encoding: str = "",
    *,
    recipe: Recipe | None = None,
) -> Table:
    """Open a table for reading; its columns beside the text count as a recipe says.

    Raises:
        InputError: it cannot be opened.
        Failed: the extra is not installed.
    """
    if form == "csv":
        return CsvTable(path, text_field, group_fields, encoding, recipe=recipe)
    with arrow_extra():
        from stream_dedup.io.parquet import ParquetTable  # noqa: PLC0415 -- an extra
    return ParquetTable(path, text_field, group_fields, recipe=recipe)


def table_events(
    path: str,
    form: TableFormat,
    reading: DecoderOptions,
    recipe: Recipe,
    *,
    limit: int = sys.maxsize,
    advance: Callable[[int], None] = lambda _: None,
    texts_alone: bool = False,
) -> Iterator[Events]:
    """Yield the rows of a table as events.

    Args:
        path: its file.
        form: its format.
        reading: which columns are read.
        recipe: what counts as near.
        limit: rows read at most.
        advance: learns how many bytes were read.
        texts_alone: whether events have their texts alone, and their other columns as documents.

    Raises:
        InputError: it cannot be read to its end.
        Failed: the extra is not installed.
    """
    fields = reading.text_field, reading.group_fields, reading.encoding
    size = 0
    with open_table(path, form, *fields, recipe=recipe) as table:
        for rows in table.rows():
            rows.cut(limit)
            limit -= len(rows.texts)
            numbers = range(rows.first, rows.first + len(rows.texts))
            values = rows.texts if texts_alone else rows.values
            batch = Batch(
                Partition(path, 0), numbers, values, groups=rows.groups, passed=rows.passed
            )
            documents: list[dict[str, Any] | None] = [None] * len(numbers)
            if texts_alone:
                documents = [*rows.documents]
            yield Events(batch, rows.texts, numbers, documents, len(numbers))
            advance(rows.size - size)
            size = rows.size
            if limit <= 0:
                return
        for note in table.notes:
            write_note(note)


def _writer(form: TableFormat, out: BinaryIO, *, annotate: bool) -> TableWriter:
    if form == "csv":
        return CsvWriter(out, annotate=annotate)
    with arrow_extra():
        from stream_dedup.io.parquet import ParquetWriter  # noqa: PLC0415 -- an extra
    return ParquetWriter(out, annotate=annotate)


def refuse_options_of_lines(ctx: click.Context, form: TableFormat) -> None:
    """Refuse options that mean nothing for tables.

    Raises:
        click.UsageError: the user gave one.
    """
    for name, option in NO_EFFECT.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} is for lines; the input is a table ({form})")


def refuse_recipe_of_fields(dedup: Deduplicator) -> None:
    """Refuse a recipe that a table has no fields for.

    Raises:
        click.UsageError: it is one.
    """
    if dedup.engine.takes_fields:
        raise click.UsageError(
            f"the recipe {dedup.recipe.name} reads fields of JSON events (input.fields); for a "
            "table give another one, and --text-field"
        )


def check_output(form: TableFormat, options: dict[str, Any]) -> None:
    """Refuse output that a table cannot be.

    Raises:
        click.UsageError: the options ask for it.
    """
    if MODES[options["emit"]].summaries:
        raise click.UsageError(
            "a table has no place for summaries: give --emit drop, or annotate to keep all rows"
        )
    if form == "parquet" and sys.stdout.isatty():
        raise click.UsageError(
            "Parquet is not for a terminal: write to a file, as in > clean.parquet"
        )


class TableRun:
    """One run over tables.

    Args:
        dedup: what decides.
        form: the format of all tables.
        options: those of the command, by name.
        note: writes a message to the user.

    Attributes:
        rows: rows read.
        failed: whether a table could not be read to its end.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        form: TableFormat,
        options: dict[str, Any],
        note: Callable[[str], None],
    ) -> None:
        refuse_recipe_of_fields(dedup)
        self.rows = 0
        self.failed = False
        self._dedup = dedup
        self._form = form
        self._options = options
        self._note = note
        self._left = sys.maxsize if options["limit"] is None else options["limit"]

    def run(self, paths: Sequence[str], out: BinaryIO, progress: Callable[[int], None]) -> None:
        """Read all tables and write one."""
        writer = _writer(self._form, out, annotate=MODES[self._options["emit"]].duplicates)
        for number, path in enumerate(paths):
            try:
                with open_table(
                    path,
                    self._form,
                    self._options["text_field"],
                    self._options["group_fields"],
                    self._options["encoding"],
                    recipe=self._dedup.recipe,
                ) as table:
                    writer.begin(table)
                    self._read(table, Partition(path, number), writer, progress)
                    for note in table.notes:
                        self._note(note)
            except InputError as error:
                self.failed = True
                self._note(str(error))
        writer.close()

    def _read(
        self,
        table: Table,
        partition: Partition,
        writer: TableWriter,
        progress: Callable[[int], None],
    ) -> None:
        size = 0
        for rows in table.rows():
            if self._left <= 0:
                break
            rows.cut(self._left)
            count = len(rows.texts)
            self._left -= count
            batch = Batch(
                partition=partition,
                offsets=range(rows.first, rows.first + count),
                values=rows.values,
                times_us=range(self.rows, self.rows + count),  # by this the oldest are closed
                groups=rows.groups,
                passed=rows.passed,
            )
            writer.write(rows, self._dedup.process_batch(batch))
            self.rows += count
            progress(rows.size - size)
            size = rows.size

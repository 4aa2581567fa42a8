"""Tables in Parquet; the only module that imports pyarrow, from the extra ``arrow``.

A file is read in parts of some thousand rows, so memory is bounded by the largest row group. The
output has the columns, types, metadata and compression of the first file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Self

import pyarrow as pa
from pyarrow import parquet as pq

from stream_dedup.errors import InputError
from stream_dedup.features.outcome_fields import MARKS
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.datasets import (
    ADDED,
    NO_VALUE,
    READ_ROWS,
    Rows,
    TableWriter,
    added_values,
    chosen_columns,
)
from stream_dedup.model import Decision, Kind

GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
"""A row group of the output is written when it has so many rows, or bytes in memory."""


class ParquetTable:
    """A Parquet file.

    Args:
        path: a file's path; ``-`` for standard input, if that is a file.
        text_field: as for `chosen_columns`.
        group_fields: likewise.
        recipe: likewise.

    Raises:
        InputError: it cannot be opened, or lacks the columns, or the text's is none of texts.
    """

    def __init__(
        self,
        path: str,
        text_field: str,
        group_fields: Sequence[str] = (),
        *,
        recipe: Recipe | None = None,
    ) -> None:
        self.name = "standard input" if path == "-" else path
        self.notes: list[str] = []
        try:
            self._raw: BinaryIO = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115, PTH123 -- closed by __exit__
        except OSError as error:
            raise InputError(f"{self.name}: cannot be opened: {error.strerror}") from error
        if not self._raw.seekable():
            raise InputError(f"{self.name}: Parquet has to be a file, as its index is at its end")
        try:
            self._file = pq.ParquetFile(self._raw, pre_buffer=False)
            self.schema: pa.Schema = self._file.schema_arrow
            self.columns: list[str] = list(self.schema.names)
            self._used = chosen_columns(self.name, self.columns, text_field, group_fields, recipe)
            self._check_text()
        except (pa.ArrowException, OSError) as error:
            self._close()
            raise InputError(
                f"{self.name}: cannot be opened: it is cut off or damaged: {_said(error)}"
            ) from error
        except BaseException:
            self._close()
            raise

    def _check_text(self) -> None:
        column = self.schema.field(self._used.text)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
                 pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
                 pa.types.is_fixed_size_binary, pa.types.is_null)  # fmt: skip
        if not any(test(kind) for test in tests):
            raise InputError(
                f"{self.name}: column {column.name!r} holds {column.type}, no texts; name another "
                "one with --text-field"
            )

    @property
    def compression(self) -> str:
        """The compression of its first column, as the writer takes it."""
        metadata = self._file.metadata
        if not metadata.num_row_groups or not metadata.num_columns:
            return "snappy"
        name: str = metadata.row_group(0).column(0).compression.lower()
        return {"uncompressed": "none", "lz4_raw": "lz4"}.get(name, name)

    def rows(self) -> Iterator[Rows]:
        first = 1
        batches = self._file.iter_batches(READ_ROWS, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"{self.name}: cannot be read from row {first:,} on: {_said(error)}"
                ) from error
            if batch is None:
                return
            yield self._rows(first, batch)
            first += batch.num_rows

    def _rows(self, first: int, batch: pa.RecordBatch) -> Rows:
        texts = [_bytes(value) for value in batch.column(self._used.text).to_pylist()]
        passed = {row: NO_VALUE for row, text in enumerate(texts) if text is None}
        groups = None
        if self._used.groups:
            columns = [batch.column(index).to_pylist() for _, index in self._used.groups]
            values = (tuple(map(_text, each)) for each in zip(*columns, strict=True))
            groups = [self._used.group(each) for each in values]
        known = [text or b"" for text in texts]
        columns = [_beside(name, batch.column(index)) for name, index in self._used.beside]
        documents = [self._used.document(each) for each in zip(*columns, strict=True)]
        documents = documents or [{}] * len(known)
        compared = list(map(self._used.compared, documents, known))
        return Rows(first, known, compared, documents, groups, passed, batch, self._raw.tell())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()


class ParquetWriter(TableWriter):
    """Writes rows as a Parquet file."""

    def __init__(self, out: BinaryIO, *, annotate: bool) -> None:
        super().__init__(out, annotate=annotate)
        self._writer: Any = None
        self._batches: list[pa.RecordBatch] = []

    def _in_common(self, table: ParquetTable) -> object:
        return table.schema

    def _write_header(self, table: ParquetTable) -> None:
        written = table.schema
        for name, kind in zip(ADDED, (pa.string(), pa.string(), pa.int32()), strict=True):
            if self._annotate:
                written = written.append(pa.field(name, kind))
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._out, mode="w"), written, compression=table.compression
        )

    def write(self, rows: Rows, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        batch: pa.RecordBatch = rows.source
        if self._annotate:
            added = zip(*map(added_values, decisions), strict=True)
            for name, kind, values in zip(
                ADDED, (pa.string(), pa.string(), pa.int32()), added, strict=True
            ):
                batch = batch.append_column(name, pa.array(values, kind))
        else:
            chosen = pa.array([decision.kind is not Kind.DUPLICATE for decision in decisions])
            columns = [_filtered(column, chosen) for column in batch.columns]
            batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        self._batches.append(batch)
        kept = sum(each.num_rows for each in self._batches)
        if kept >= GROUP_ROWS or sum(each.nbytes for each in self._batches) >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if any(batch.num_rows for batch in self._batches):
            self._writer.write_table(pa.Table.from_batches(self._batches, self._writer.schema))
        self._batches.clear()

    def close(self) -> None:
        if self._writer is not None:
            self._write_group()
            self._writer.close()
        self._out.flush()


def _filtered(column: pa.Array, chosen: pa.Array) -> pa.Array:
    """Return the chosen values of a column; pyarrow itself filters no views."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    other = views.get(column.type)
    if other is None:
        return column.filter(chosen)
    return column.cast(other).filter(chosen).cast(column.type)


def _beside(name: str, column: pa.Array) -> list[Any]:
    """Return the values of a column that may say how an event ended; those of times say nothing."""
    if name in MARKS and not pa.types.is_string(column.type):
        return [valid or None for valid in column.is_valid().to_pylist()]
    try:
        if not pa.types.is_temporal(column.type):
            return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):  # of times in structs
        pass
    return [None] * len(column)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _text(value: object) -> str | None:
    """Return a value of any type as a text that names a group."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str(value)


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0].removesuffix(".")

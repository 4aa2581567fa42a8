"""Tables of texts, as data sets are kept in: one column has the text, others go along with it.

CSV is read here, Parquet in `parquet`. A table is read in parts of bounded size, and its rows are
written as they were: those of CSV byte by byte, those of Parquet as the same values.

Rows are counted from 1, without the header. A row whose text is missing is compared with nothing.
"""

from __future__ import annotations

import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, Self

import msgspec

from stream_dedup.errors import InputError
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.patterns import readable
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import TEXT_FIELDS
from stream_dedup.io.files import MAX_LINE_BYTES, InputFile
from stream_dedup.model import Decision, Kind

TableFormat = Literal["csv", "parquet"]

CSV_ENDINGS = (".csv", ".tsv")
PACKED_ENDINGS = (".gz", ".zst", ".xz", ".bz2")
PARQUET_MAGIC = b"PAR1"

DELIMITERS = ",;\t|"
"""What may separate the fields of CSV: of these the one that the header has most often."""

ADDED = ("dedup_decision", "dedup_cluster", "dedup_distance")
"""Columns that are added to annotated rows."""

NO_VALUE = "no value"
RAGGED = "another number of fields than the header"

READ_ROWS = 2_000
"""Rows that are decided together."""

_MAX_NAMED = 12
"""Columns named in an error."""


class Table(Protocol):
    """A table that is open for reading; a context manager that closes it.

    Attributes:
        name: what it is called in messages.
        columns: the names of its columns.
        notes: what a person should know of it once it was read.
    """

    name: str
    columns: list[str]
    notes: list[str]

    def rows(self) -> Iterator[Rows]:
        """Yield all rows, in parts.

        Raises:
            InputError: it cannot be read further; names the row. What is before it was yielded.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class TableWriter(ABC):
    """Writes rows of tables of one format and one header.

    Args:
        out: the output.
        annotate: whether to write all rows, with their decisions.
    """

    def __init__(self, out: BinaryIO, *, annotate: bool) -> None:
        self._out = out
        self._annotate = annotate
        self._first_name = ""
        self._common: object = None

    def begin(self, table: Table) -> None:
        """Take over the format of a table, the rows of which follow.

        Raises:
            InputError: its columns are others than those of the tables before, or it has one of
                those that would be added.
        """
        if self._common is not None:
            if self._in_common(table) != self._common:
                raise InputError(
                    f"{table.name}: has other columns than {self._first_name}, or of other types; "
                    "clean them in two runs"
                )
            return
        there = next((name for name in ADDED if name in table.columns), None)
        if self._annotate and there is not None:
            raise InputError(f"{table.name}: has a column {there!r} already; rename it first")
        self._first_name, self._common = table.name, self._in_common(table)
        self._write_header(table)

    @abstractmethod
    def _in_common(self, table: Any) -> object:  # noqa: ANN401 -- of this format
        """Return what all tables must have in common."""

    @abstractmethod
    def _write_header(self, table: Any) -> None:  # noqa: ANN401 -- of this format
        """Write what comes before the first row."""

    @abstractmethod
    def write(self, rows: Rows, decisions: Sequence[Decision]) -> None:
        """Write the rows that are not duplicates; annotated, all rows with their decisions."""

    @abstractmethod
    def close(self) -> None:
        """Complete the output."""


@dataclass(slots=True)
class Rows:
    """Rows that were read together.

    Attributes:
        first: number of the first.
        texts: their texts.
        values: what is compared of them.
        documents: their other fields that may say how an event ended.
        groups: their groups, as a batch has them; None if there are none.
        passed: row → reason, for rows that are compared with nothing.
        source: the rows themselves, for the writer of this format.
        size: bytes read from the file so far.
    """

    first: int
    texts: list[bytes]
    values: list[bytes]
    documents: list[dict[str, object]]
    groups: list[str] | None = None
    passed: dict[int, str] = field(default_factory=dict)
    source: Any = None
    size: int = 0

    def cut(self, count: int) -> None:
        """Leave out all but the first rows."""
        if len(self.texts) > count:
            self.texts = self.texts[:count]
            self.values = self.values[:count]
            self.documents = self.documents[:count]
            self.groups = None if self.groups is None else self.groups[:count]
            self.passed = {row: why for row, why in self.passed.items() if row < count}
            self.source = self.source[:count]


class Columns(NamedTuple):
    """The columns that are used.

    Attributes:
        text: its index.
        groups: names and indexes of those that make groups.
        beside: names and indexes of those that may say how an event ended.
        outcomes: finds what they say; None if nobody asks.
    """

    text: int
    groups: list[tuple[str, int]]
    beside: list[tuple[str, int]]
    outcomes: OutcomeFields | None

    def group(self, values: Sequence[str | None]) -> str:
        """Return the group of a row with these values of the columns of groups."""
        named = zip(self.groups, values, strict=True)
        present = {name: value for (name, _), value in named if value is not None}
        return msgspec.json.encode(present, order="sorted").decode() if present else ""

    def document(self, values: Iterable[object]) -> dict[str, object]:
        """Return the fields of a row with these values in `beside`."""
        named = zip(self.beside, values, strict=True)
        return {name: value for (name, _), value in named if value is not None}

    def compared(self, document: dict[str, object], text: bytes) -> bytes:
        """Return what is compared of a row with these fields and this text."""
        return self.outcomes.compared(document, text) if self.outcomes and document else text


def table_format(path: str) -> TableFormat | None:
    """Return the format of a table, by its first bytes or its name; None if it is none."""
    name = path.lower()
    for ending in PACKED_ENDINGS:
        name = name.removesuffix(ending)
    if name.endswith(CSV_ENDINGS):
        return "csv"
    if path == "-" or not os.path.isfile(path):  # noqa: PTH113 -- pathlib's raises if it is long
        return None  # a pipe can be read once
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 -- as above
        if file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC:
            return "parquet" if os.fstat(file.fileno()).st_size >= 2 * len(PARQUET_MAGIC) else None
    return None


def chosen_columns(
    name: str,
    columns: Sequence[str],
    text_field: str,
    group_fields: Sequence[str],
    recipe: Recipe | None = None,
) -> Columns:
    """Find the columns that are used among those of a table.

    Args:
        name: the table's, for errors.
        columns: their names.
        text_field: that of the text; empty for the first of `TEXT_FIELDS`, or the only column.
        group_fields: those that make groups.
        recipe: decides what counts of the columns beside the text; None: nothing.

    Raises:
        InputError: one is not there, or is there twice.
    """
    listed = ", ".join(
        readable(each.encode("utf-8", "replace"), 40) for each in columns[:_MAX_NAMED]
    )
    listed += ", …" if len(columns) > _MAX_NAMED else ""
    if not text_field:
        usual = [each for each in TEXT_FIELDS if each in columns]
        if not usual and len(columns) != 1:
            raise InputError(
                f"{name}: no column is named {', '.join(TEXT_FIELDS[:5])} or the like; name the "
                f"one with the text with --text-field: {listed}"
            )
        text_field = usual[0] if usual else columns[0]
    found = []
    for option, wanted in (
        ("--text-field", text_field),
        *(("--group-field", g) for g in group_fields),
    ):
        count = columns.count(wanted)
        if count != 1:
            what = "no column" if not count else f"{count} columns"
            raise InputError(f"{name}: {what} named {wanted!r} ({option}); there are {listed}")
        found.append(columns.index(wanted))
    groups = list(zip(group_fields, found[1:], strict=True))
    outcomes = None if recipe is None else OutcomeFields(recipe)
    names = [] if outcomes is None else outcomes.columns(columns)
    beside = [(each, columns.index(each)) for each in dict.fromkeys(names)]
    return Columns(found[0], groups, beside, outcomes)


# ---------------------------------------------------------------- CSV


class _Record(NamedTuple):
    """One row of CSV.

    Attributes:
        raw: its bytes.
        line: number of its first line.
        fields: empty if it cannot be parsed.
    """

    raw: bytes
    line: int
    fields: list[str]


class CsvTable:
    """A file of comma-separated values, with a header.

    A field may be in quotes, with quotes in it doubled, and with line ends. Bytes need not be
    UTF-8. The delimiter is that of the header; empty lines are left out.

    Args:
        path: a file's path, plain or compressed; ``-`` for standard input.
        text_field: as for `chosen_columns`.
        group_fields: likewise.
        encoding: as for `InputFile`.
        recipe: as for `chosen_columns`.

    Raises:
        InputError: it cannot be opened, or lacks the columns.
    """

    def __init__(
        self,
        path: str,
        text_field: str,
        group_fields: Sequence[str] = (),
        encoding: str = "",
        *,
        recipe: Recipe | None = None,
    ) -> None:
        self._file = InputFile(path, encoding=encoding)
        self.name = self._file.name
        self.notes: list[str] = []
        self._lines: list[bytes] = []  # read, and not yet returned as records
        self._line = 1  # number of the first of them
        self._size = 0
        self._ended = False
        self._error: InputError | None = None
        self._ragged: list[tuple[int, int, int]] = []  # row, line, fields of the first
        self._ragged_count = 0
        csv.field_size_limit(MAX_LINE_BYTES)
        try:
            self.header, self.columns, self.delimiter = self._read_header()
            self._used = chosen_columns(self.name, self.columns, text_field, group_fields, recipe)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_header(self) -> tuple[bytes, list[str], str]:
        delimiter = ""
        while self._read_lines():
            head = next((line for line in self._lines if line.strip()), None)
            if head is None:
                continue
            delimiter = max(DELIMITERS, key=lambda each: head.count(each.encode()))
            while records := self._records(delimiter, 1):
                if records[0].raw.strip():
                    return records[0].raw, records[0].fields, delimiter
        if delimiter:
            raise self._unclosed()
        raise InputError(f"{self.name}: is empty; a table begins with the names of its columns")

    def rows(self) -> Iterator[Rows]:
        first, more = 1, True
        while more:
            while records := self._records(self.delimiter, READ_ROWS):
                rows = self._rows(first, [record for record in records if record.raw.strip()])
                first += len(rows.texts)
                yield rows
            more = self._read_lines()
        if self._lines:
            raise self._unclosed()
        for row, line, fields in self._ragged:
            self.notes.append(
                f"{self.name}: {self._ragged_count:,} row(s) do not have the {len(self.columns)} "
                f"fields of the header and were kept, undecided; the first is row {row:,} in line "
                f"{line:,}, with {fields}: a field with {self.delimiter!r} or a line end in it "
                "must be in quotes"
            )

    def _rows(self, first: int, records: list[_Record]) -> Rows:
        text, groups, width = self._used.text, self._used.groups, len(self.columns)
        rows = Rows(first, [], [], [], source=[record.raw for record in records], size=self._size)
        of_groups: list[str] = []
        for number, (_, line, fields) in enumerate(records):
            if len(fields) != width:
                rows.passed[number] = RAGGED
                self._ragged_count += 1
                self._ragged = self._ragged or [(first + number, line, len(fields))]
                fields = [""] * width  # noqa: PLW2901 -- nothing of it is used
            elif not fields[text]:
                rows.passed[number] = NO_VALUE
            value = fields[text].encode("utf-8", "surrogateescape")
            rows.texts.append(value)
            document = self._used.document(fields[index] for _, index in self._used.beside)
            rows.values.append(self._used.compared(document, value))
            rows.documents.append(document)
            of_groups.append(self._used.group([fields[index] for _, index in groups]))
        rows.groups = of_groups if groups else None
        return rows

    def _records(self, delimiter: str, most: int) -> list[_Record]:
        """Return records that are complete, and drop their lines.

        The last one may be incomplete: a quoted field goes on in lines that were not read yet. None
        is returned behind one that cannot be parsed, until the next call.
        """
        given = iter(self._lines)
        taken = returned = 0  # lines: of the reader, of records
        ended = False

        def lines() -> Iterator[str]:
            nonlocal taken, ended
            for line in given:
                taken += 1
                yield line.decode("utf-8", "surrogateescape") + "\n"
            ended = True

        reader = csv.reader(lines(), delimiter=delimiter)
        records: list[_Record] = []
        while len(records) < most:
            try:
                fields = next(reader, None)
                parsed = True
            except csv.Error as error:
                if "limit" in str(error):
                    raise self._unclosed(returned) from error
                fields, parsed = [], False
            if fields is None or ended:
                break
            raw = b"\n".join(self._lines[returned:taken])
            records.append(_Record(raw, self._line + returned, fields))
            returned = taken
            if not parsed:
                break
        del self._lines[:returned]
        self._line += returned
        return records

    def _read_lines(self) -> bool:
        """Read further lines; whether there were any.

        As many as are held of a record already, so that a long one is not parsed over and over.
        """
        held = wanted = sum(map(len, self._lines)) + len(self._lines)
        grown = False
        while not grown or held < 2 * wanted:
            if self._error is not None:
                raise self._error
            lines = None if self._ended else self._file.read()
            if lines is None:
                self._ended = True
                return grown
            grown = True
            self._size = lines.size
            if lines.pieces:
                del lines.values[-1]
                line = self._line + len(self._lines) + len(lines.values)
                self._error = InputError(
                    f"{self.name}: line {line:,} is longer than {MAX_LINE_BYTES >> 20} MiB; leave "
                    "it out, or give the rows as JSON lines"
                )
            self._lines += lines.values
            held += sum(map(len, lines.values)) + len(lines.values)
            if lines.pieces:
                break
        return True

    def _unclosed(self, lines: int = 0) -> InputError:
        """Return the error of a record that begins after so many of the lines held."""
        return InputError(
            f"{self.name}: the row in line {self._line + lines:,} has a quoted field that does not "
            f"end, or is longer than {MAX_LINE_BYTES >> 20} MiB; quotes in a field must be "
            "doubled, or the file is cut off"
        )


class CsvWriter(TableWriter):
    """Writes rows of CSV."""

    def _in_common(self, table: CsvTable) -> object:
        return table.columns, table.delimiter

    def _write_header(self, table: CsvTable) -> None:
        self._delimiter = table.delimiter.encode()
        names = [name.encode() for name in ADDED]
        self._write(self._row(table.header, names if self._annotate else []))

    def write(self, rows: Rows, decisions: Sequence[Decision]) -> None:
        pairs = zip(rows.source, decisions, strict=True)
        if self._annotate:
            self._write(b"".join(self._row(raw, _fields(decision)) for raw, decision in pairs))
        else:
            duplicate = Kind.DUPLICATE
            self._write(b"".join(raw + b"\n" for raw, each in pairs if each.kind is not duplicate))

    def _row(self, raw: bytes, added: list[bytes]) -> bytes:
        bare = raw.removesuffix(b"\r") if added else raw
        return self._delimiter.join((bare, *added)) + raw[len(bare) :] + b"\n"

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._out.write(view) :]

    def close(self) -> None:
        self._out.flush()


def added_values(decision: Decision) -> tuple[str, str | None, int | None]:
    """Return the values of `ADDED` for a row."""
    return decision.kind.value, decision.cluster_hex, decision.distance


def _fields(decision: Decision) -> list[bytes]:
    return [b"" if value is None else str(value).encode() for value in added_values(decision)]

"""Tables of comma-separated values: rows, columns, and what is not as it should be."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import InputError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.datasets import (
    NO_VALUE,
    RAGGED,
    CsvTable,
    CsvWriter,
    chosen_columns,
    table_format,
)
from stream_dedup.model import Decision, Kind

NEW, DUPLICATE = Decision(Kind.NEW, 0xAB, 0), Decision(Kind.DUPLICATE, 0xAB, 3)


def write(folder: Path, data: bytes, name: str = "data.csv") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def texts_of(path: str, text_field: str = "text", encoding: str = "") -> list[bytes]:
    with CsvTable(path, text_field, encoding=encoding) as table:
        return [text for rows in table.rows() for text in rows.texts]


def refused(path: str, text_field: str = "text") -> str:
    with pytest.raises(InputError) as caught, CsvTable(path, text_field) as table:
        list(table.rows())
    return str(caught.value)


def copied(path: str, decisions: list[Decision], *, annotate: bool) -> bytes:
    out = io.BytesIO()
    writer = CsvWriter(out, annotate=annotate)
    with CsvTable(path, "text") as table:
        writer.begin(table)
        for rows in table.rows():
            start = rows.first - 1
            writer.write(rows, decisions[start : start + len(rows.texts)])
    writer.close()
    return out.getvalue()


def test_a_column_is_read_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, b'id,text\n1,one\n2,"two, and ""three"""\n3,"four\nfive"\n')

    assert texts_of(path) == [b"one", b'two, and "three"', b"four\nfive"]
    assert texts_of(path, "id") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("delimiter", [b",", b";", b"\t", b"|"])
def test_the_delimiter_is_that_of_the_header(tmp_path: Path, delimiter: bytes) -> None:
    path = write(tmp_path, delimiter.join((b"id", b"text")) + b"\n" + delimiter.join((b"1", b"a")))

    assert texts_of(path) == [b"a"]


rows_of_text = st.lists(
    st.tuples(*[st.text(st.characters(exclude_characters="\x00", codec="utf-8"))] * 3),
    max_size=30,
)


@given(rows_of_text, st.sampled_from(["\n", "\r\n"]))
def test_what_the_standard_library_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]], end: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "text", "tag"), *rows])
    path = write(tmp_path_factory.mktemp("csv"), text.getvalue().encode())

    assert texts_of(path) == [row[1].encode() for row in rows]
    assert copied(path, [NEW] * len(rows), annotate=False).replace(b"\r", b"") == (
        text.getvalue().encode().replace(b"\r", b"")
    )


def test_rows_that_are_kept_are_written_byte_by_byte(tmp_path: Path) -> None:
    data = b'id,text\r\n1,"one"\r\n2, two \r\n3,"th""ree\r\nlines"\r\n4,\xff\xfe\r\n'
    path = write(tmp_path, data)

    assert copied(path, [NEW] * 4, annotate=False) == data
    assert copied(path, [NEW, DUPLICATE, NEW, NEW], annotate=False) == data.replace(
        b"2, two \r\n", b""
    )


def test_decisions_are_columns_behind_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, b"id,text\r\n1,one\r\n2,two\r\n3,")
    passed = Decision(Kind.PASSED, reason=NO_VALUE)

    assert copied(path, [NEW, DUPLICATE, passed], annotate=True) == (
        b"id,text,dedup_decision,dedup_cluster,dedup_distance\r\n"
        b"1,one,new,00000000000000ab,0\r\n"
        b"2,two,duplicate,00000000000000ab,3\r\n"
        b"3,,passed,,\n"
    )


def test_a_column_that_would_be_added_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"dedup_cluster,text\n1,one\n")

    with pytest.raises(InputError, match="has a column 'dedup_cluster' already; rename it first"):
        copied(path, [NEW], annotate=True)


def test_a_row_without_text_is_passed(tmp_path: Path) -> None:
    with CsvTable(write(tmp_path, b'id,text\n1,\n2,""\n3,x\n'), "text") as table:
        (rows,) = table.rows()

    assert rows.passed == {0: NO_VALUE, 1: NO_VALUE}


def test_rows_of_another_length_are_kept_and_named(tmp_path: Path) -> None:
    data = b'id,text\n1,"two\nlines"\n2\n3,4,5\n6,seven\n'
    path = write(tmp_path, data)
    with CsvTable(path, "text") as table:
        (rows,) = table.rows()

    assert rows.passed == {1: RAGGED, 2: RAGGED}
    (note,) = table.notes
    assert note == (
        f"{path}: 2 row(s) do not have the 2 fields of the header and were kept, undecided; the "
        "first is row 2 in line 4, with 1: a field with ',' or a line end in it must be in quotes"
    )
    assert copied(path, [NEW] * 4, annotate=False) == data


def test_a_row_that_cannot_be_parsed_is_kept(tmp_path: Path) -> None:
    data = b"id,text\n1,a\rb\n2,c\n"
    with CsvTable(write(tmp_path, data), "text") as table:
        parts = list(table.rows())

    assert [(rows.source, rows.passed) for rows in parts] == [
        ([b"1,a\rb"], {0: RAGGED}), ([b"2,c"], {}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty; a table begins with the names of its columns"),
        (b"\n\n", "is empty; a table begins with the names of its columns"),
        (
            b'id,text\n1,"a\n2,b\n',
            "the row in line 2 has a quoted field that does not end, or is longer than 8 MiB",
        ),
        (b'"id,text\n1,b\n', "the row in line 1 has a quoted field that does not end"),
        (b"id,body\n1,b\n", "no column named 'text' (--text-field); there are id, body"),
        (b"text,text\n1,b\n", "2 columns named 'text' (--text-field); there are text, text"),
        (b"PK\x03\x04" + bytes(100), "cannot be read: it is a ZIP archive; make lines of it"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    path = write(tmp_path, data)

    assert refused(path).startswith(f"{path}: {problem}")


def test_rows_before_a_field_without_end_are_returned(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with (
        CsvTable(write(tmp_path, b'id,text\n1,a\n2,"b\n3,c\n'), "text") as table,
        pytest.raises(InputError, match="the row in line 3 has a quoted field that does not end"),
    ):
        seen += [text for rows in table.rows() for text in rows.texts]

    with CsvTable(write(tmp_path, b'id,text\n1,a\n2,"b\n3,c\n'), "text") as table:
        assert next(table.rows()).texts == [b"a"]


def test_a_line_that_is_too_long_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, b"id,text\n1,a\n2," + b"x" * (9 << 20) + b"\n3,b\n")

    assert refused(path) == (
        f"{path}: line 3 is longer than 8 MiB; leave it out, or give the rows as JSON lines"
    )


def test_a_field_of_endless_lines_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, b'id,text\n1,"' + b"x\n" * (6 << 20))

    assert "the row in line 2 has a quoted field that does not end" in refused(path)


def test_a_large_field_of_many_lines_is_one_text(tmp_path: Path) -> None:
    text = b"some words in a line\n" * 100_000
    path = write(tmp_path, b'id,text\n1,"' + text + b'"\n2,b\n')

    assert texts_of(path) == [text, b"b"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfid,text\n1,caf\xc3\xa9\n",
        "\ufeffid,text\n1,café\n".encode("utf-16-le"),
        gzip.compress(b"id,text\n1,caf\xc3\xa9\n", mtime=0),
    ],
)
def test_marks_encodings_and_compression_are_recognised(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)

    assert texts_of(path) == ["café".encode()]
    assert copied(path, [NEW], annotate=False) == "id,text\n1,café\n".encode()


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "id,text\n1,café\n".encode("latin-1"))

    assert texts_of(path, encoding="latin-1") == ["café".encode()]


def test_groups_are_read_from_columns(tmp_path: Path) -> None:
    path = write(tmp_path, b"lang,text\nen,a\n,b\n")
    with CsvTable(path, "text", ["lang"]) as table:
        (rows,) = table.rows()

    assert rows.groups == ['{"lang":"en"}', '{"lang":""}']


def test_levels_and_statuses_of_other_columns_are_compared(tmp_path: Path) -> None:
    path = write(
        tmp_path, b"text,level,status\na b,error,503.0\na b,info,\na b,,\na b\n,info,200\n"
    )

    with CsvTable(path, "text", recipe=load_recipe("logs")) as table:
        (rows,) = table.rows()

    assert rows.texts == [b"a b", b"a b", b"a b", b"", b""]
    assert rows.values == [
        "‹error status=5xx› a b".encode(),
        "‹info› a b".encode(),
        b"a b",
        b"",
        b"",
    ]
    rows.cut(1)
    assert (rows.texts, rows.values) == ([b"a b"], ["‹error status=5xx› a b".encode()])


def test_another_header_is_refused(tmp_path: Path) -> None:
    one, other = write(tmp_path, b"id,text\n"), write(tmp_path, b"text,id\n", "other.csv")
    writer = CsvWriter(io.BytesIO(), annotate=False)
    with CsvTable(one, "text") as table:
        writer.begin(table)

    with (
        CsvTable(other, "text") as table,
        pytest.raises(InputError, match=r"other\.csv: has other columns than .*data\.csv"),
    ):
        writer.begin(table)


def test_each_table_that_has_an_added_column_is_refused(tmp_path: Path) -> None:
    writer = CsvWriter(io.BytesIO(), annotate=True)
    for name in ("one.csv", "other.csv"):
        with (
            CsvTable(write(tmp_path, b"text,dedup_cluster\n", name), "text") as table,
            pytest.raises(InputError, match=f"{name}: has a column 'dedup_cluster' already"),
        ):
            writer.begin(table)


@pytest.mark.parametrize(
    ("columns", "text_field", "chosen"),
    [(["id", "body"], "", 1), (["x"], "", 0), (["message", "msg"], "", 0), (["a", "b"], "b", 1)],
)
def test_the_text_is_in_a_usual_or_the_only_column(
    columns: list[str], text_field: str, chosen: int
) -> None:
    assert chosen_columns("t", columns, text_field, []).text == chosen


def test_columns_are_listed_where_none_is_usual() -> None:
    with pytest.raises(
        InputError, match=r"name the one with the text with --text-field: a, b\\x1b$"
    ):
        chosen_columns("t", ["a", "b\x1b"], "", [])


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.csv", b"", "csv"),
        ("A.TSV.GZ", b"", "csv"),
        ("a.parquet", b"PAR1....PAR1", "parquet"),
        ("a", b"PAR1....PAR1", "parquet"),
        ("a.log", b"PAR1", None),
        ("a.parquet", b"other", None),
        ("csv", b"a,b", None),
    ],
)
def test_tables_are_known_by_name_or_first_bytes(
    tmp_path: Path, name: str, data: bytes, form: str | None
) -> None:
    assert table_format(write(tmp_path, data, name)) == form

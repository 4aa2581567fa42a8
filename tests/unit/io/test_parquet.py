"""Tables in Parquet: rows, types, groups of rows, and files that are damaged."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dedup.errors import InputError
from stream_dedup.io import parquet
from stream_dedup.io.datasets import NO_VALUE
from stream_dedup.io.parquet import ParquetTable, ParquetWriter
from stream_dedup.model import Decision, Kind

NEW, DUPLICATE = Decision(Kind.NEW, 0xAB, 0), Decision(Kind.DUPLICATE, 0xAB, 3)


def write(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    path = folder / "data.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def copied(path: str, decisions: list[Decision], *, annotate: bool = False) -> Any:
    out = io.BytesIO()
    writer = ParquetWriter(out, annotate=annotate)
    with ParquetTable(path, "text") as table:
        writer.begin(table)
        for rows in table.rows():
            last = rows.first - 1 + len(rows.texts)
            writer.write(rows, decisions[rows.first - 1 : last])
    writer.close()
    return pq.ParquetFile(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
     pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)  # fmt: skip
def test_texts_of_every_type_are_read(tmp_path: Path, kind: Any) -> None:
    path = write(tmp_path, {"text": pa.array(["café", None, ""]).cast(kind), "n": [1, 2, 3]})
    with ParquetTable(path, "text") as table:
        (rows,) = table.rows()

    assert rows.texts == ["café".encode(), b"", b""]
    assert rows.passed == {1: NO_VALUE}
    kept = copied(path, [NEW, DUPLICATE, NEW]).read()
    before = pq.read_table(path).column("text").to_pylist()
    assert kept.column("text").to_pylist() == [before[0], before[2]]


def test_bytes_that_are_not_utf_8_are_texts_too(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": pa.array([b"\xff\x00\xfe", None])})
    with ParquetTable(path, "text") as table:
        assert next(table.rows()).texts == [b"\xff\x00\xfe", b""]


@pytest.mark.parametrize("values", [[1, 2], [1.5, None], [["a"], ["b"]], [{"a": 1}, {"a": 2}]])
def test_a_column_of_no_texts_is_refused(tmp_path: Path, values: list[Any]) -> None:
    path = write(tmp_path, {"text": pa.array(values)})

    with pytest.raises(InputError, match=r"column 'text' holds .*, no texts; name another one"):
        ParquetTable(path, "text")


def test_other_columns_metadata_and_compression_stay(tmp_path: Path) -> None:
    table = pa.table({
        "text": ["a", "b", "c"],
        "when": pa.array([1, 2, None], pa.timestamp("ms", "UTC")),
        "list": [[1, 2], None, [3]],
        "struct": [{"x": 1.5}, {"x": None}, None],
    }).replace_schema_metadata({"who": "me"})  # fmt: skip
    path = str(tmp_path / "data.parquet")
    pq.write_table(table, path, compression="zstd")
    file = copied(path, [NEW, DUPLICATE, NEW])

    assert file.read().to_pylist() == [table.to_pylist()[0], table.to_pylist()[2]]
    assert file.schema_arrow.equals(pq.ParquetFile(path).schema_arrow, check_metadata=True)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_decisions_are_columns_behind_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": ["a", "b", None]})
    passed = Decision(Kind.PASSED, reason=NO_VALUE)

    assert copied(path, [NEW, DUPLICATE, passed], annotate=True).read().to_pydict() == {
        "text": ["a", "b", None],
        "dedup_decision": ["new", "duplicate", "passed"],
        "dedup_cluster": ["00000000000000ab", "00000000000000ab", None],
        "dedup_distance": [0, 3, None],
    }


def test_rows_are_written_in_groups_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 4_000)
    path = write(tmp_path, {"text": [f"text {n}" for n in range(9_000)]}, row_group_size=1_500)
    file = copied(path, [NEW] * 9_000)

    sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sizes == [4_000, 4_000, 1_000]


def test_a_table_without_rows_stays_one(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": pa.array([], pa.string())})

    assert copied(path, []).schema_arrow.names == ["text"]
    assert copied(path, []).metadata.num_rows == 0


def test_groups_may_be_of_any_type(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": ["a", "b", "c"], "year": [2024, None, 2025]})
    with ParquetTable(path, "text", ["year"]) as table:
        assert next(table.rows()).groups == ['{"year":"2024"}', "", '{"year":"2025"}']


@pytest.mark.parametrize("kept", [0, 3, 4, 100, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, kept: float) -> None:
    path = Path(write(tmp_path, {"text": [f"text {n}" for n in range(5_000)]}))
    data = path.read_bytes()
    path.write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])

    with pytest.raises(InputError, match="cannot be opened: it is cut off or damaged: "):
        ParquetTable(str(path), "text")


def test_damaged_pages_are_named_by_their_first_row(tmp_path: Path) -> None:
    path = Path(write(tmp_path, {"text": [f"text {n}" * 9 for n in range(6_000)]},
                      row_group_size=2_000, use_dictionary=False))  # fmt: skip
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    data[start : start + 400] = bytes(400)
    path.write_bytes(data)

    with ParquetTable(str(path), "text") as table:
        rows = table.rows()
        assert [next(rows).first, next(rows).first] == [1, 2_001]
        with pytest.raises(InputError, match=r"data\.parquet: cannot be read from row 4,001 on: "):
            next(rows)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    writer = ParquetWriter(io.BytesIO(), annotate=False)
    with ParquetTable(write(tmp_path, {"text": ["a"]}), "text") as table:
        writer.begin(table)

    with (
        ParquetTable(write(tmp_path, {"text": ["a"], "n": [1]}), "text") as table,
        pytest.raises(InputError, match="has other columns than"),
    ):
        writer.begin(table)

"""``stream-dedup dedup`` and ``find-clusters`` over tables: CSV and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.command import run, run_file, run_measured, shell
from tests.integration.test_terminal import on_terminal

COMMENTS = Path(__file__).parents[2] / "docs" / "examples" / "comments.csv"
ROWS = COMMENTS.read_bytes().split(b"\n", 1)[1]


def ids(table: bytes) -> list[str]:
    """The first field of every row."""
    return [row[0] for row in csv.reader(io.StringIO(table.decode(), newline=""))][1:]


# ------------------------------------------------------------ CSV


@pytest.mark.parametrize("recipe", ["text", "words"])
def test_rows_near_an_earlier_one_are_left_out(recipe: str) -> None:
    done = run("dedup", "-r", recipe, "--text-field", "body", COMMENTS)

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"id,lang,body\n1,en,")
    assert ids(done.out) == ["1", "3", "5", "6"]
    assert b'\n5,de,"Ein sch\xc3\xb6ner Text, aber viel zu lang\nund ohne ""Pointe"""\n' in done.out


def test_annotated_rows_have_their_decisions() -> None:
    done = run("dedup", "-r", "words", "-e", "annotate", "--text-field", "body", COMMENTS)
    rows = list(csv.DictReader(io.StringIO(done.out.decode(), newline="")))

    assert [row["dedup_decision"] for row in rows] == [
        "new", "duplicate", "new", "duplicate", "new", "passed", "duplicate",
    ]  # fmt: skip
    assert rows[1]["dedup_cluster"] == rows[3]["dedup_cluster"] == rows[0]["dedup_cluster"]
    assert (rows[5]["dedup_cluster"], rows[5]["dedup_distance"]) == ("", "")


def test_statistics_count_rows() -> None:
    done = run("dedup", "-r", "words", "--stats", "--text-field", "body", COMMENTS)

    assert {name: done.stats[name] for name in ("rows", "clusters", "duplicates")} == {
        "rows": "7", "clusters": "3", "duplicates": "3",
    }  # fmt: skip
    assert done.stats["passed: no value"] == "1"


def test_only_rows_of_a_group_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"lang,body\nen,one two three four\nde,one two three four\nen,one two 4\n")
    done = run("dedup", "-r", "logs", "--group-field", "lang", path)

    assert ids(done.out) == ["en", "de", "en"]


@pytest.mark.parametrize("way", ["standard input", "gzip", "tsv"])
def test_tables_are_read_as_other_inputs_are(tmp_path: Path, way: str) -> None:
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(COMMENTS.read_bytes()))
    (tmp_path / "c.tsv").write_bytes(b"body\tid\na b c d\t1\na b c d\t2\n")
    if way == "standard input":
        done = run("dedup", "-r", "words", "--input-format", "csv", stdin=COMMENTS.read_bytes())
    else:
        done = run("dedup", "-r", "words", tmp_path / ("c.tsv" if way == "tsv" else "c.csv.gz"))

    assert done.code == 0
    assert len(ids(done.out)) == (1 if way == "tsv" else 4)


def test_several_tables_are_one_stream_under_one_header(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_bytes(b"a,b\n1,2\n")
    done = run("dedup", "-r", "words", COMMENTS, other, COMMENTS)

    assert done.code == 1
    assert f"{other}: no column is named message, msg" in done.err
    assert ids(done.out) == ["1", "3", "5", "6", "6"]
    assert done.out.count(b"id,lang,body") == 1


def test_ragged_rows_are_kept_and_named(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    path.write_bytes(b"id,body\n1,a b c\n2,a, b c\n3,a b c\n")
    done = run("dedup", "-r", "words", path)

    assert done.code == 0
    assert done.out == b"id,body\n1,a b c\n2,a, b c\n"
    assert "1 row(s) do not have the 2 fields of the header" in done.err
    assert "the first is row 2 in line 3, with 3" in done.err


def test_a_cut_off_file_gives_its_rows_and_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv"
    path.write_bytes(b'id,body\n1,a b c\n2,"a b')
    done = run("dedup", "-r", "words", path)

    assert (done.code, done.out) == (1, b"id,body\n1,a b c\n")
    assert (
        f"stream-dedup: {path}: the row in line 3 has a quoted field that does not end" in done.err
    )


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("-e", "merge"), "a table has no place for summaries: give --emit drop, or annotate"),
        (("--follow",), "--follow is for lines; the input is a table (csv)"),
        (("--html", "x.html"), "--html is for lines; the input is a table (csv)"),
        (("--output-format", "jsonl"), "--output-format is for lines"),
        (("-r", "json"), "no field of JSON events"),
    ],
)
def test_options_that_mean_nothing_are_refused(args: tuple[str, ...], reason: str) -> None:
    done = run("dedup", *args, COMMENTS)
    if args[0] == "-r":
        reason = "the recipe json reads fields of JSON events (input.fields)"

    assert (done.code, done.out) == (2, b"")
    assert reason in done.err


def test_tables_and_lines_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"a b c\n")
    done = run("dedup", COMMENTS, tmp_path / "a.log")

    assert (done.code, done.out) == (2, b"")
    assert "are read in two runs" in done.err or "read them in two runs" in done.err


def test_a_table_can_be_read_as_lines() -> None:
    done = run("dedup", "--input-format", "text", "--limit", "2", COMMENTS)

    assert done.lines[0] == b"id,lang,body"


def test_nothing_is_taken_from_a_pipe_to_see_what_it_is() -> None:
    done = shell('"$SD" dedup <(printf "PAR1 and more\\nsecond line\\n")')
    clusters = shell('"$SD" find-clusters -r words --text <(printf "a b c\\na b c\\n")')

    assert (done.code, done.out) == (0, b"PAR1 and more\nsecond line\n")
    assert clusters.out == b"[1, 2]\n"


def test_the_limit_counts_rows() -> None:
    done = run("dedup", "-r", "words", "--limit", "2", COMMENTS)

    assert ids(done.out) == ["1"]


def test_a_lack_of_room_is_said(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    letters = random.Random(1)
    rows = [bytes(letters.choices(b"abcdefgh ", k=80)) for _ in range(2_999)]
    path.write_bytes(b"body\n" + b"\n".join([*rows, *rows]) + b"\n")
    done = run("dedup", "-r", "words", "--max-clusters", "100", path)

    assert "events were new again because their clusters" in done.err
    assert " that were closed for want of room; give --max-clusters " in done.err


def test_a_large_table_takes_bounded_memory(tmp_path: Path) -> None:
    rows = (b'%d,"a text of some words\nin two lines"\n' % n * 1_000 for n in range(200))
    source = (b"id,body\n" if n == 0 else part for n, part in enumerate([b"", *rows]))
    done, peak_mb = run_measured(
        source, tmp_path / "out", "dedup", "-r", "words", "--input-format", "csv"
    )

    assert done.code == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 3
    assert peak_mb < 150


def test_find_clusters_takes_tables_and_json(tmp_path: Path) -> None:
    json = tmp_path / "c.jsonl"
    json.write_bytes(
        b'{"t":{"b":"one two three four"}}\n{"x":1}\n{"t":{"b":"one two three four"}}\n'
    )

    args = ("find-clusters", "-r", "words", "--text")
    assert run(*args, COMMENTS, "--text-field", "body").out == b"[1, 2, 4]\n[3, 7]\n"
    assert run(*args, json, "--text-field", "t.b").out == b"[1, 3]\n"
    refused = run("find-clusters", "-d", "3", "--text-field", "body", "-i", COMMENTS)
    assert "--text-field goes with --text FILE alone" in refused.err


# ------------------------------------------------------------ Parquet


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    rows = list(csv.DictReader(io.StringIO(COMMENTS.read_text("utf-8"), newline="")))
    for row in rows:
        row["body"] = row["body"] or None
    path = tmp_path / "comments.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, compression="gzip")
    return path


def read(data: bytes) -> list[dict[str, object]]:
    return pq.read_table(io.BytesIO(data)).to_pylist()  # type: ignore[no-any-return]


def test_parquet_stays_parquet(parquet: Path) -> None:
    done = run("dedup", "-r", "text", parquet)

    assert (done.code, done.err) == (0, "")
    assert [row["id"] for row in read(done.out)] == ["1", "3", "5", "6"]


def test_annotated_parquet_has_three_more_columns(parquet: Path) -> None:
    done = run("dedup", "-r", "words", "-e", "annotate", parquet)

    assert [row["dedup_decision"] for row in read(done.out)] == [
        "new", "duplicate", "new", "duplicate", "new", "passed", "duplicate",
    ]  # fmt: skip


def test_parquet_is_read_from_standard_input_if_it_is_a_file(parquet: Path) -> None:
    args = ("dedup", "-r", "words", "--input-format", "parquet")
    with parquet.open("rb") as file:
        assert len(read(run_file(*args, stdin=file).out)) == 4
    piped = run(*args, stdin=parquet.read_bytes())
    assert piped.code == 1
    assert "standard input: Parquet has to be a file" in piped.err


def test_columns_beside_the_text_of_parquet_are_compared(tmp_path: Path) -> None:
    """Whatever else is in the table: times of nanoseconds, also in structs, and dates too far."""
    path = tmp_path / "log.parquet"
    rows = [
        (30, 503, b"ok"),
        (30, 200, b"ok"),
        (50, 200, b"ok"),
        (30, 502, b"ok"),
        (30, 200, b"no"),
    ]
    at = pa.array([1] * len(rows), pa.timestamp("ns"))
    table = {
        "message": [f"sync of node {number}" for number in range(len(rows))],
        "level": pa.array([level for level, _, _ in rows], pa.int16()),
        "status": pa.array([status for _, status, _ in rows], pa.int64()).cast(
            pa.decimal128(20, 0)
        ),
        "state": pa.array([state for _, _, state in rows], pa.binary()),
        "time": at,
        "result": pa.array([2**40] * len(rows), pa.timestamp("s")),
        "error": pa.StructArray.from_arrays([at], ["at"]),
        "type": pa.array([None] * len(rows), pa.string()),
    }
    pq.write_table(pa.table(table), path)
    done = run("dedup", "--emit", "drop", path)
    assert done.code == 0
    assert pq.read_table(pa.BufferReader(done.out))["level"].to_pylist() == [30, 30, 50, 30]


def test_parquet_is_not_written_to_a_terminal(parquet: Path) -> None:
    code, shown, _, _ = on_terminal("dedup", parquet, out=True, err=True)

    assert code == 2
    assert b"Parquet is not for a terminal" in shown


def test_damaged_parquet_is_named(parquet: Path) -> None:
    parquet.write_bytes(parquet.read_bytes()[:-20])
    done = run("dedup", "-r", "words", parquet)

    assert (done.code, done.out) == (1, b"")
    assert f"{parquet}: cannot be opened: it is cut off or damaged: " in done.err


def test_without_the_extra_it_says_what_to_install(parquet: Path, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(name='pyarrow')")
    done = run("dedup", parquet, env={**os.environ, "PYTHONPATH": str(tmp_path)})

    assert done.code == 2
    assert done.err == "stream-dedup: Parquet needs pyarrow: pip install 'stream-dedup[arrow]'\n"


def test_find_clusters_takes_parquet(parquet: Path) -> None:
    done = run("find-clusters", "-r", "words", "--text", parquet)

    assert done.out == b"[1, 2, 4]\n[3, 7]\n"


def test_a_large_parquet_file_takes_bounded_memory(tmp_path: Path) -> None:
    words = [bytes(random.Random(n).choices(b"abcdefgh", k=7)).decode() for n in range(500)]
    texts = [" ".join(random.Random(n % 20_000).choices(words, k=40)) for n in range(100_000)]
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=10_000)
    done, peak_mb = run_measured(
        iter([b""]), tmp_path / "out.parquet", "dedup", "-r", "words", path
    )

    assert done.code == 0
    assert len(read((tmp_path / "out.parquet").read_bytes())) <= 20_000
    assert peak_mb < 500


def test_a_reader_that_goes_away_ends_it(parquet: Path) -> None:
    done = shell(
        '"$SD" dedup -r words "$1" | head -c 1 >/dev/null; echo "${PIPESTATUS[0]}"', parquet
    )

    assert done.out in {b"0\n", b"141\n"}

"""`stream-dedup backfill`: stages that are resumed, counts that add up, inputs that are refused."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyspark.sql import SparkSession

from stream_dedup.cli.main import cli
from stream_dedup.errors import InputError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.spark.backfill import Backfill, Settings
from stream_dedup.testing import ManualClock
from tests.integration.command import run
from tests.integration.spark.test_frames import embedded, example_lines

STAGES = ["stages/input", "stages/fingerprints", "stages/candidates", "stages/clusters", "rows"]


class KilledError(Exception):
    """Ends a run at some stage."""


def backfill(
    spark: SparkSession, output: Path, *inputs: Path, kill_after: str = "-", **settings: Any
) -> dict[str, Any]:
    def say(line: str) -> None:
        if line.startswith(kill_after):
            raise KilledError

    chosen = Settings(tuple(map(str, inputs)), str(output), **settings)
    return Backfill(spark, chosen, load_recipe("logs"), ManualClock(), say).run()


def table(path: Path, **columns: list[Any]) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def done_before(report: dict[str, Any]) -> list[bool]:
    assert [stage["name"] for stage in report["stages"]] == STAGES
    return [stage["done_before"] for stage in report["stages"]]


def test_a_killed_run_goes_on_with_its_stage(spark: SparkSession, tmp_path: Path) -> None:
    lines = example_lines()[:3_000]
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"\n".join(lines[:1_000]) + b"\n"))
    (tmp_path / "b.log").write_bytes(b"\n".join([*lines[1_000:], b""]) + b"\n")
    inputs, out = tmp_path / "[ab].log*", tmp_path / "out"
    for stage in STAGES[1:4]:
        with pytest.raises(KilledError):
            backfill(spark, out, inputs, kill_after=f"{stage}: done in")
    report = backfill(spark, out, inputs)
    assert done_before(report) == [True, True, True, True, False]
    assert json.loads((out / "backfill.json").read_text()) == report
    expected = embedded(lines, "logs")
    events, clusters = 3_000 - expected.count(None), len({*expected} - {None})
    counts = ("rows", "events", "passed", "clusters", "duplicates")
    assert [report[name] for name in counts] == [
        3_001, events, 3_001 - events, clusters, events - clusters,
    ]  # fmt: skip
    rows = sorted(spark.read.parquet(str(out / "rows")).collect(), key=lambda row: row.id)
    place = {row.id: number for number, row in enumerate(rows)}
    found = [row.representative_id and place[row.representative_id] for row in rows]
    assert found == [*expected, None]
    assert (out / "_key").stat().st_mode & 0o777 == 0o600

    (out / "stages/candidates/_SUCCESS").unlink()  # as if it were half written
    assert done_before(backfill(spark, out, inputs)) == [True, True, False, False, False]
    with (tmp_path / "b.log").open("ab") as file:
        file.write(b"one more\n")
    with pytest.raises(InputError, match="holds a backfill of other files"):
        backfill(spark, out, inputs)
    assert backfill(spark, out, inputs, overwrite=True)["rows"] == 3_002

    for damage in ("", "no key"):
        (out / "._key.crc").unlink(missing_ok=True)
        (out / "_key").write_text(damage)
        with pytest.raises(InputError, match="is missing or damaged: give --overwrite"):
            backfill(spark, out, inputs)
    assert done_before(backfill(spark, out, inputs, overwrite=True)) == [False] * 5


def test_tables_with_binary_and_null_texts_are_read(spark: SparkSession, tmp_path: Path) -> None:
    one = table(tmp_path / "1.parquet", id=[1, 2], body=[b"disk 7 \xff full", None])
    table(tmp_path / "2.parquet", id=[3], body=[b"disk 8 \xff full"], host=["web"])
    report = backfill(spark, tmp_path / "out", one.parent / "*.parquet", id="id")
    assert [report[name] for name in ("rows", "passed", "clusters", "duplicates")] == [3, 1, 1, 1]


def test_json_lines_keep_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"n":1,"body":"disk 1 full"}\n{"n":2,"body":"disk 2 full"}\nno json\n')
    report = backfill(spark, tmp_path / "out", path)
    assert [report[name] for name in ("rows", "passed", "duplicates")] == [3, 1, 1]
    rows = spark.read.parquet(str(tmp_path / "out/rows"))
    assert {"n", "body", "id", "cluster"} <= set(rows.columns)


def refusal(spark: SparkSession, tmp_path: Path, *inputs: Path, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        backfill(spark, tmp_path / "out", *inputs, **settings)
    return str(caught.value)


def test_inputs_that_cannot_be_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    whole = gzip.compress(b"\n".join(example_lines()[:2_000]))
    cut = tmp_path / "cut.log.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "Spark failed: " in refusal(spark, tmp_path, cut)
    assert not (tmp_path / "out/stages/input/_settings").exists()

    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    said = refusal(spark, tmp_path, broken, overwrite=True, id="id")
    assert "Spark failed: " in said

    texts = table(tmp_path / "texts.parquet", id=[1], body=["text"])
    numbers = table(tmp_path / "numbers.parquet", id=[1], body=[[7]])
    said = refusal(spark, tmp_path, texts, numbers, overwrite=True, id="id")
    assert "Failed to merge" in said or "merg" in said
    assert "several formats" in refusal(spark, tmp_path, texts, cut)
    assert "there is no such file" in refusal(spark, tmp_path, tmp_path / "none")
    assert "no column is named 'at'" in refusal(spark, tmp_path, texts, overwrite=True, id="at")


def test_folders_below_a_folder_are_read(spark: SparkSession, tmp_path: Path) -> None:
    inside = tmp_path / "logs" / "2024" / "01"
    inside.mkdir(parents=True)
    (tmp_path / "logs" / "top.log").write_text("disk 1 full\n")
    (inside / "app.log").write_text("disk 2 full\n" * 3)
    (inside / "_hidden.log").write_text("disk 2 full\n")
    assert backfill(spark, tmp_path / "out", tmp_path / "logs")["rows"] == 4


def test_a_file_that_would_be_left_out_or_misread_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    hidden = tmp_path / "_a.log"
    hidden.write_text("disk 1 full\n")
    assert "_a.log: is not read by Spark" in refusal(spark, tmp_path, hidden)
    text = tmp_path / "a.log"
    text.write_text("disk 1 full\n")
    assert "a.log: is named twice" in refusal(spark, tmp_path, text, tmp_path / "a.*")
    for name, content, said in (
        ("r.log.1", gzip.compress(b"disk 1 full\n"), "r.log.1: is gzip, but its name"),
        ("u.log", "disk 1 full\n".encode("utf-16"), "u.log: is UTF-16, but Spark"),
        ("x.log.xz", b"\xfd7zXZ", "x.log.xz: is none of"),
        ("t.csv", b"a,b\n", "t.csv: is none of"),
    ):
        (tmp_path / name).write_bytes(content)
        assert said in refusal(spark, tmp_path, tmp_path / name)
    added = table(tmp_path / "k.parquet", id=[1], body=["text"], cluster=["prod"])
    assert "columns that are added to it: cluster" in refusal(spark, tmp_path, added, id="id")
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced_before_all_is_right(spark: SparkSession, tmp_path: Path) -> None:
    given = table(tmp_path / "k.parquet", id=[1, 2], body=["disk 1 full", "disk 2 full"])
    backfill(spark, tmp_path / "out", given, id="id")
    report = tmp_path / "out" / "backfill.json"
    refusal(spark, tmp_path, given, id="none", overwrite=True)
    said = refusal(spark, tmp_path, tmp_path / "out" / "rows", id="id", overwrite=True)
    assert "columns that are added" in said
    stages = tmp_path / "out" / "stages" / "fingerprints"
    said = refusal(spark, tmp_path, stages, id="node", text="text", overwrite=True)
    assert "is below --output" in said
    assert report.exists()

    own = tmp_path / "own" / "stages"
    own.mkdir(parents=True)
    (own / "plan.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a backfill, but has stages"):
        backfill(spark, tmp_path / "own", given, id="id")
    assert (own / "plan.txt").exists()


def test_columns_may_have_dots_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "event.id": [1, 2], "log.message": ["disk 1 full", "disk 2 full"],
    }  # fmt: skip
    given = table(tmp_path / "dots.parquet", **columns)
    report = backfill(spark, tmp_path / "out", given, id="event.id", text="log.message")
    assert (report["rows"], report["duplicates"]) == (2, 1)


def test_spark_that_does_not_start_is_no_traceback(tmp_path: Path) -> None:
    done = run("backfill", "-o", tmp_path / "out", "a.log", env={"JAVA_HOME": "/nowhere"})
    assert done.code == 2
    assert "Spark does not start: [JAVA_GATEWAY_EXITED]" in done.err
    assert "Traceback" not in done.err


def test_an_output_that_is_a_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    given = tmp_path / "a.log"
    given.write_text("a line\n")
    for out in (given, given / "out"):
        with pytest.raises(InputError) as raised:
            backfill(spark, out, given)
        assert str(raised.value) == f"{out}: cannot be written: Not a directory"


def test_ids_that_are_null_or_repeated_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    nulls = table(tmp_path / "nulls.parquet", id=[1, None], body=["text", "other"])
    assert "rows without an id" in refusal(spark, tmp_path, nulls, id="id")
    same = table(tmp_path / "same.parquet", id=[1, 1, 2], body=["text", "text", "other"])
    assert "ids are not unique" in refusal(spark, tmp_path, same, id="id", overwrite=True)


def test_without_the_extra_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    result = CliRunner().invoke(cli, ["backfill", "-o", "out", "events.log"])
    assert result.exit_code == 2
    assert "pip install 'stream-dedup[spark]'" in result.output

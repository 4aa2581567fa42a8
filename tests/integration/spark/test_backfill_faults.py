"""`stream-dedup backfill` when something dies, or a disk is full: what is done stays done."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from stream_dedup.errors import InputError
from stream_dedup.spark import backfill as stages
from tests.integration.command import COMMAND
from tests.integration.spark.test_backfill import STAGES, backfill, done_before
from tests.integration.spark.test_frames import embedded, example_lines
from tests.services.processes import wait_until

LINES = example_lines()[:2_000]
QUIET = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
WITHIN_S = 900
MAX_FILE_BYTES = 1 << 20
"""Of the full disk: room for Java's libraries, not for the input."""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"\n".join([*LINES, b""]))
    return path


def command(inputs: Path, out: Path) -> list[str | Path]:
    return [COMMAND, "backfill", "-o", out, "--master", "local[2]", *QUIET, inputs]


def written(out: Path, done: int) -> dict[Path, int]:
    """Files of the first so many stages, and when they were written."""
    return {
        path: path.stat().st_mtime_ns
        for stage in STAGES[:done]
        for path in (out / stage).rglob("*")
        if path.is_file()
    }


def first_rows(spark: SparkSession, out: Path) -> list[int | None]:
    """The first row of the cluster of each line, as `embedded` returns it."""
    rows = sorted(spark.read.parquet(str(out / "rows")).collect(), key=lambda row: row.id)
    place = {row.id: number for number, row in enumerate(rows)}
    return [row.representative_id and place[row.representative_id] for row in rows]


def test_two_backfills_do_not_write_at_once(
    spark: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / "_lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another backfill writes there"):
            backfill(spark, out, inputs)
        assert [path.name for path in out.iterdir()] == ["_lock"]
    assert backfill(spark, out, inputs)["rows"] == len(LINES)


@pytest.mark.timeout(3 * WITHIN_S)  # Java starts three times
def test_three_kills_cost_the_stage_at_hand_only(
    spark: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", dict[Path, int]()
    for stage in (1, 2, 4):
        begun = out / STAGES[stage]
        with subprocess.Popen(
            command(inputs, out), stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            end_s = time.monotonic() + WITHIN_S
            while not begun.exists():  # Spark has begun to write the stage
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.01)  # nobody signals it
            os.killpg(process.pid, signal.SIGKILL)
        assert not (begun / "_settings").exists()
        assert not (out / "backfill.json").exists()
        assert kept.items() <= written(out, stage).items()
        kept = written(out, stage)
    assert done_before(backfill(spark, out, inputs)) == [True, True, True, True, False]
    assert written(out, 4) == kept
    assert first_rows(spark, out) == embedded(LINES, "logs")


def java_of(process: subprocess.Popen[bytes]) -> set[int]:
    """The processes of Java that a process has started."""
    found: set[int] = set()
    for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found |= set(map(int, children.read_text().split()))
    return {each for each in found if is_java(each)}


def is_java(process: int) -> bool:
    """Whether a process is one of Java, and lives."""
    try:
        return Path(f"/proc/{process}/exe").readlink().name == "java"
    except FileNotFoundError:
        return False


@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.parametrize("begun", ["Java", "a stage"])
def test_an_interrupt_ends_it_without_a_traceback(inputs: Path, tmp_path: Path, begun: str) -> None:
    out = tmp_path / "out"
    # A test run in a shell's background ignores the signal, and would hand that on.
    whole = ["env", "--default-signal=INT", *command(inputs, out)]
    with subprocess.Popen(whole, stderr=subprocess.PIPE, start_new_session=True) as process:
        end_s = time.monotonic() + WITHIN_S
        while not java_of(process) or (begun == "a stage" and not (out / "stages").exists()):
            assert process.poll() is None
            assert time.monotonic() < end_s
            time.sleep(0.01)
        started = java_of(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"Error" not in err
    wait_until(lambda: not any(map(is_java, started)), what="Java ends", seconds=WITHIN_S)
    assert not (out / "backfill.json").exists()


def killing(marker: Path, times: int) -> Callable[[Callable[..., DataFrame]], Callable[..., Any]]:
    """Make a stage's function kill a Python worker of the executor, so many times."""
    folder = str(marker)

    def killed(batches: Any) -> Any:
        for batch in batches:
            for number in range(times):
                try:
                    os.close(os.open(f"{folder}-{number}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def wrapped(stage: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        def run(*args: Any, **options: Any) -> DataFrame:
            frame = stage(*args, **options).coalesce(1)  # one task, which dies each time
            return frame.mapInArrow(killed, frame.schema)

        return run

    return wrapped


@pytest.mark.parametrize(
    ("stage", "made_by", "times"), [(1, "distinct_lines", 1), (3, "decided", 2)]
)
def test_a_killed_python_worker_costs_a_task_or_stage(
    spark: SparkSession,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: int,
    made_by: str,
    times: int,
) -> None:
    """The session runs a task twice at most: of two kills the stage fails."""
    out, made = tmp_path / "out", getattr(stages, made_by)
    monkeypatch.setattr(stages, made_by, killing(tmp_path / "killed", times)(made))
    before = 0
    if times > 1:
        with pytest.raises(InputError, match=r"Spark failed: .*Python worker exited"):
            backfill(spark, out, inputs)
        assert (out / STAGES[stage - 1] / "_settings").exists()
        assert not (out / STAGES[stage] / "_settings").exists()
        before = stage
    report = backfill(spark, out, inputs)
    assert len(list(tmp_path.glob("killed-*"))) == times
    assert done_before(report) == [number < before for number in range(len(STAGES))]
    assert first_rows(spark, out) == embedded(LINES, "logs")


@pytest.mark.timeout(WITHIN_S)
def test_a_full_disk_ends_the_run_and_is_no_result(
    spark: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    inputs.write_bytes(os.urandom(1 << 21).hex().encode() + b" " + inputs.read_bytes())
    full = subprocess.run(
        command(inputs, out),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES,) * 2),
        check=False,
        capture_output=True,
        timeout=WITHIN_S,
    )
    said = full.stderr.decode()
    assert full.returncode == 1
    assert "Traceback" not in said
    assert "File too large" in said.splitlines()[-1]
    assert not (out / "stages/input/_settings").exists()
    assert not (out / "backfill.json").exists()
    report = backfill(spark, out, inputs)
    assert not any(done_before(report))
    assert report["rows"] == len(LINES)

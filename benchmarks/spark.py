"""Stored events on Spark, beside MLlib and datasketch, in one run: ``make bench-spark``.

Rows are log lines, replayed with 95 % duplicates (`corpus`), and texts of which seven in eight are
a changed copy of an earlier one. It is known which row stems from which, so the recall of each tool
is measured with its speed: of the rows that have an earlier row of their origin, the share that it
marks as duplicates; and *wrong*, of the rows without one, the share that it marks. MLlib gets as
many hash tables as it needs for our recall (`TOOLS`).

Each run is a process of its own; see `spark_runs` for what the tools get. Lines a second are those
of the wall clock from the session's start to the last row written, for which the machine should be
idle; processor seconds are the whole process tree's, from then on. Peak memory is the tree's
proportional set size, sampled ten times a second: driver, Java, and Python workers.

The full run of the documentation: ``make bench-spark ARGS='--lines 1000000,10000000 --texts
1000000'``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import sysconf
from pathlib import Path
from string import ascii_lowercase
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import MAX_STEMS, iter_labelled

ROOT = Path(__file__).parents[1]
SEEDED = 2026
WORDS, WORDS_A_TEXT, CHANGED_WORDS, COPIES = 50_000, (20, 60), 4, 8
"""Of the texts: words of the language; words of a text; words that a copy has others for, at most;
texts of one origin, on average."""

ROWS_A_PART = 250_000
TOOLS = {
    "logs": {
        "stream-dedup": ["ours"],
        "MLlib": ["mllib", "--tables", "1"],
        "MLlib, plain": ["mllib", "--tables", "1", "--plain"],
        "datasketch, pandas": ["datasketch"],
    },
    "texts": {
        "stream-dedup": ["ours"],
        "MLlib": ["mllib", "--tables", "10", "--jaccard", "0.35"],
        "datasketch, pandas": ["datasketch", "--jaccard", "0.35"],
    },
}
_TICKS_A_SECOND = sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took.

    Attributes:
        seconds: from the session's start to the last row written.
        cpu_seconds: of all its processes, meanwhile.
        peak_mb: the most memory they held together.
        shuffle_mb: what Spark wrote for shuffles.
        recall: of the rows that have an earlier row of their origin, the share that is marked.
        wrong: of the other rows, the share that is marked.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    shuffle_mb: float
    recall: float
    wrong: float


def log_lines(count: int) -> Iterator[tuple[int, str]]:
    """Yield the origin and the text of log lines."""
    sources = [
        line
        for path in sorted((ROOT / "examples/logs").glob("*.log.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    for number, (stem, line) in enumerate(iter_labelled(sources, count, seed=SEEDED)):
        origin = stem if stem is not None else MAX_STEMS + number
        yield origin, line.decode("utf-8", "replace")


def texts(count: int) -> Iterator[tuple[int, str]]:
    """Yield the origin and the text of texts that change a few words of an earlier one."""
    drawn = random.Random(SEEDED)
    language = ["".join(drawn.choices(ascii_lowercase, k=drawn.randint(3, 10)))
                for _ in range(WORDS)]  # fmt: skip
    origins: list[list[str]] = []
    for _ in range(count):
        if not origins or drawn.random() < 1 / COPIES:
            origins.append(drawn.choices(language, k=drawn.randint(*WORDS_A_TEXT)))
            origin = len(origins) - 1
            yield origin, " ".join(origins[origin])
            continue
        origin = drawn.randrange(len(origins))
        words = list(origins[origin])
        for _ in range(drawn.randint(0, CHANGED_WORDS)):
            words[drawn.randrange(len(words))] = drawn.choice(language)
        yield origin, " ".join(words)


CORPORA = {"logs": log_lines, "texts": texts}


def write_rows(folder: Path, rows: Iterator[tuple[int, str]]) -> None:
    """Write rows as Parquet, in files of `ROWS_A_PART`."""
    folder.mkdir(parents=True)
    first = 0
    while part := list(islice(rows, ROWS_A_PART)):
        columns = {
            "id": pa.array(range(first, first + len(part)), pa.int64()),
            "origin": pa.array([origin for origin, _ in part], pa.int64()),
            "body": pa.array([body for _, body in part], pa.string()),
        }
        parquet.write_table(pa.table(columns), folder / f"part-{first:010}.parquet")
        first += len(part)


def quality(given: Path, output: Path) -> tuple[float, float]:
    """Return recall, and the share of wrong marks; see `Measured`.

    Raises:
        SystemExit: the output has not every row once.
    """
    rows = parquet.read_table(given, columns=["id", "origin"])
    found = parquet.read_table(output, columns=["id", "is_duplicate"]).sort_by("id")
    ids = found.column("id").to_numpy()
    if not np.array_equal(ids, np.arange(rows.num_rows)):
        raise SystemExit(f"{output} holds {len(ids):,} rows, not each of {rows.num_rows:,} once")
    marked = found.column("is_duplicate").to_numpy()
    origins = rows.sort_by("id").column("origin").to_numpy()
    repeats = np.ones(len(origins), bool)
    repeats[np.unique(origins, return_index=True)[1]] = False
    return float(marked[repeats].mean()), float(marked[~repeats].mean())


class Meter:
    """Samples memory and processor time of a process and all below it.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_on)
        self.peak_mb = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_seconds(self) -> float:
        """Return the processor time so far."""
        return sum(self._ticks.values()) / _TICKS_A_SECOND

    def _sample_on(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            held_kb = 0
            for pid in _tree(self._pid):
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    memory = Path(f"/proc/{pid}/smaps_rollup").read_text()
                except OSError:  # it has ended
                    continue
                self._ticks[pid] = int(stat[11]) + int(stat[12])
                held_kb += int(memory.partition("\nPss:")[2].split()[0]) if "Pss:" in memory else 0
            self.peak_mb = max(self.peak_mb, held_kb / 1024)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = " ".join((task / "children").read_text() for task in tasks)
    except OSError:
        return
    for child in children.split():
        yield from _tree(int(child))


def measure(
    tool: Sequence[str], kind: str, given: Path, output: Path, within_s: float
) -> Measured | float | str:
    """Run a tool once.

    Returns:
        What it took; or the processor time that it had used when it was stopped, after `within_s`;
        or why it failed.
    """
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.spark_runs"]
    command += [tool[0], kind, given, output]
    process = subprocess.Popen(
        [*command, *tool[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    timer = threading.Timer(within_s, process.kill)  # Spark's Java ends with its driver
    timer.start()
    with process, Meter(process.pid) as meter:
        ready = process.stdout.readline()
        before_s = meter.cpu_seconds()
        done = process.stdout.readline()
        after_s = meter.cpu_seconds()
        said = process.communicate()[1].strip().splitlines()
        errors = [line for line in said if " WARN " not in line]
    if timer.finished.is_set():
        return after_s - before_s
    timer.cancel()
    if ready != "ready\n" or not done:
        return errors[-1] if errors else f"exit code {process.returncode}"
    result = json.loads(done)
    return Measured(
        result["seconds"],
        after_s - before_s,
        meter.peak_mb,
        result["shuffle_bytes"] / 2**20,
        *quality(given, output),
    )


def bench(
    kind: str, count: int, tools: Sequence[str], folder: Path, minutes: float, out: Console
) -> dict[str, Measured]:
    """Measure tools on rows of one kind, and print it."""
    given = folder / f"{kind}-{count}"
    if not given.exists():
        part = folder / f"{kind}-{count}.part"
        shutil.rmtree(part, ignore_errors=True)
        write_rows(part, CORPORA[kind](count))
        part.rename(given)
    table = Table("tool", "rows/s", "rows/CPU s", "CPU µs/row", "peak MB", "shuffle MB",
                  "recall %", "wrong %", title=f"{count:,} {kind}",
                  title_justify="left")  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    found = {}
    for name in tools:
        run = measure(TOOLS[kind][name], kind, given, folder / "out", 60 * minutes)
        shutil.rmtree(folder / "out", ignore_errors=True)
        if isinstance(run, str):
            table.add_row(name, run)
            continue
        if isinstance(run, float):
            most = f"< {count / (60 * minutes):,.0f}", f"< {count / run:,.0f}"
            table.add_row(name, *most, f"> {1e6 * run / count:.1f}", "stopped")
            continue
        found[name] = run
        table.add_row(
            name, f"{count / run.seconds:,.0f}", f"{count / run.cpu_seconds:,.0f}",
            f"{1e6 * run.cpu_seconds / count:.1f}", f"{run.peak_mb:,.0f}",
            f"{run.shuffle_mb:,.1f}", f"{100 * run.recall:.2f}", f"{100 * run.wrong:.2f}",
        )  # fmt: skip
    out.print(table)
    return found


def main() -> None:
    """Measure all sizes, and print how the cost of a line grows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sizes = parser.add_argument_group("sizes, with commas; 0 leaves a kind out")
    sizes.add_argument("--lines", default="100000", metavar="N,…")
    sizes.add_argument("--texts", default="100000", metavar="N,…")
    parser.add_argument(
        "--minutes", type=float, default=60, help="that a run may take (default: %(default)g)"
    )
    parser.add_argument("--only", metavar="TOOL,…", help="stream-dedup, MLlib, datasketch")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bench-spark",
                        help="keeps the rows that were made")  # fmt: skip
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for kind, given in (("logs", options.lines), ("texts", options.texts)):
        tools = [
            name
            for name in TOOLS[kind]
            if options.only is None or name.split(",")[0] in options.only.split(",")
        ]
        costs = {}
        for count in filter(None, map(int, given.split(","))):
            found = bench(kind, count, tools, options.folder, options.minutes, out)
            if "stream-dedup" in found:
                costs[count] = found["stream-dedup"].cpu_seconds / count
        if len(costs) > 1:
            least, most = min(costs), max(costs)
            growth = costs[most] / costs[least]
            out.print(f"A row of {most:,} costs stream-dedup {growth:.2f} times one of {least:,}")


if __name__ == "__main__":
    main()

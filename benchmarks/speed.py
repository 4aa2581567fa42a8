"""Speed and memory beside the peers, in one run: ``make bench``.

Everything is measured on the machine it runs on, in this order: the kernel, decisions in process,
the command over a file, the memory index as it grows. Times are the best of several runs, for the
machine may be busy with other things; ratios are what to compare. The corpus is made of the real
logs in ``examples/logs``: lines are replayed with other numbers, and one in twenty has words
nobody has seen.

Exit code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import iter_replayed, replayed_log, write_corpus
from benchmarks.datasets import load_datasets
from benchmarks.peers import (
    drain3_default,
    drain3_masked,
    peer_versions,
    pypi_simhash_fingerprints,
    time_per_item,
)
from benchmarks.reporting import Target, at_least, at_most, print_targets, resident_mb
from stream_dedup import Deduplicator, load_recipe
from stream_dedup.features.recipe import Match, Recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Position
from stream_dedup.native import extension
from stream_dedup.tables.planner import choose
from stream_dedup.tables.store import make_tables

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "examples" / "logs"
PLOT = ROOT / "docs" / "images" / "memory-index.png"
BATCH = 4096
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
K = 3
"""Of the growth table; the recipe `logs` has its own."""


def real_lines() -> list[bytes]:
    """The lines of the example logs that have words: without, other numbers are another line."""
    lines: list[bytes] = []
    for path in sorted(LOGS.glob("*.log.gz")):
        with gzip.open(path) as file:
            lines.extend(file.read().splitlines())
    words = Fingerprinter(load_recipe("logs"), PUBLIC_KEY).fingerprints(lines, full=False).words
    return [line for line, count in zip(lines, words, strict=True) if count > 1]


def bench_kernel(corpus: list[bytes], out: Console) -> list[Target]:
    """The kernel alone: microseconds a line, one thread."""
    length = sum(map(len, corpus)) / len(corpus)
    table = Table("recipe", "what", "µs a line", title=f"kernel, {len(corpus):,} lines of "
                  f"{length:.0f} bytes on average", title_justify="left")  # fmt: skip
    times: dict[tuple[str, bool], float] = {}
    recipes = {name: load_recipe(name) for name in ("logs", "words", "text")}
    recipes["words, case kept"] = replace(recipes["words"], text__case="keep")
    for name, recipe in recipes.items():
        fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
        for full in (False, True):

            def work(fingerprinter: Fingerprinter = fingerprinter, full: bool = full) -> None:
                for start in range(0, len(corpus), BATCH):
                    prepared = fingerprinter.prepare(corpus[start : start + BATCH], None)
                    fingerprinter.fingerprints(prepared, full=full)

            times[name, full] = time_per_item(work, len(corpus), 7).min_s * 1e6
            what = "exact hash, fingerprint, sketch" if full else "masks, tokens, exact hash"
            table.add_row(name, what, f"{times[name, full]:.2f}")
    out.print(table)
    return [
        at_most("kernel, logs: masks, tokens, exact hash", times["logs", False], 2, "µs"),
        at_most("kernel, logs: with fingerprint and sketch", times["logs", True], 2, "µs"),
        at_most("simhash of words alone", times["words, case kept", True], 1, "µs"),
    ]


def bench_decisions(corpus: list[bytes], out: Console) -> list[Target]:
    """Decisions in process, beside the peers, on the same lines in the same run."""

    def ours() -> Deduplicator:
        dedup = Deduplicator()
        for start in range(0, len(corpus), BATCH):
            dedup.process(corpus[start : start + BATCH])
        return dedup

    known, hits = ours(), corpus[:100] * (len(corpus) // 100)

    def one_at_a_time() -> None:
        for line in hits:
            known.process_one(line)

    few = corpus[: max(1, len(corpus) // 10)]
    fingerprinter = Fingerprinter(load_recipe("logs"), PUBLIC_KEY)
    count = len(corpus)
    measured: dict[str, float] = {
        "stream-dedup: decision": time_per_item(ours, count, 5).min_s,
        "stream-dedup: process_one, 100 known lines": time_per_item(
            one_at_a_time, len(hits), 5
        ).min_s,
        "drain3, its defaults: decision": time_per_item(
            lambda: drain3_default(corpus), count, 3
        ).min_s,
        "drain3, its example's masks: decision": time_per_item(
            lambda: drain3_masked(corpus), count, 2
        ).min_s,
        "stream-dedup: fingerprint": time_per_item(
            lambda: fingerprinter.fingerprints(few, full=True), len(few), 5
        ).min_s,
        "PyPI simhash: fingerprint": time_per_item(
            lambda: pypi_simhash_fingerprints(few), len(few), 1
        ).min_s,
    }
    ours_s = measured["stream-dedup: decision"]
    table = Table("", "µs a line", "lines a second", "against our decision",
                  title=f"in process, {count:,} lines, {ours().counts.removed:.1%} duplicates; "
                  + ", ".join(f"{n} {v}" for n, v in peer_versions().items()),
                  title_justify="left")  # fmt: skip
    for name, seconds in measured.items():
        table.add_row(
            name, f"{seconds * 1e6:.2f}", f"{1 / seconds:,.0f}", f"{seconds / ours_s:.1f} ×"
        )
    out.print(table)
    single, default, masked, ours_fp, theirs_fp = list(measured.values())[1:]
    return [
        at_most("process_one of a line that is known", single * 1e6, 5, "µs"),
        at_least("decision: against Drain3 without masks", default / ours_s, 3, "×"),
        at_least("decision: against Drain3 with masks", masked / ours_s, 10, "×"),
        at_least("fingerprint: against PyPI simhash", theirs_fp / ours_fp, 100, "×"),
    ]


def bench_command(lines: Sequence[bytes], total: int, data: Path, out: Console) -> list[Target]:
    """The command over files: lines a second and peak memory of the whole process.

    The last file repeats the lines of labelled sets in their order, if their folder is there.
    """
    command = [str(Path(sys.executable).with_name("stream-dedup")), "dedup", "--emit", "drop"]
    table = Table("lines", "input", "seconds", "lines a second", "of processor time", "peak memory",
                  title="stream-dedup dedup --emit drop FILE, whole process",
                  title_justify="left")  # fmt: skip
    rates, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        # The same patterns for every length: what grows with the lines alone shows as memory.
        # A copy of the first quarter, four times over, has four times its lines and no more.
        quarter = Path(folder) / "quarter.log"
        whole = Path(folder) / "whole.log"
        fresh = Path(folder) / "fresh.log"
        write_corpus(quarter, iter_replayed(lines, total // 4))
        content = quarter.read_bytes()
        with whole.open("wb") as file:
            for _ in range(4):
                file.write(content)
        write_corpus(fresh, iter_replayed(lines, total))
        inputs = [
            (quarter, "made", total // 4), (whole, "the same, four times over", total),
            (fresh, "made", total),
        ]  # fmt: skip
        if data.is_dir():
            real = [line for dataset in load_datasets(data) for line in dataset.lines]
            repeated = Path(folder) / "repeated.log"
            write_corpus(repeated, islice(cycle(real), total))
            inputs.append((repeated, f"{data.name}, repeated", total))
        for path, what, count in inputs:
            seconds, used_s, peak_mb = min(_run([*command, str(path)]) for _ in range(3))
            rates.append(count / seconds)
            peaks.append(peak_mb)
            table.add_row(f"{count:,}", what, f"{seconds:.2f}", f"{count / seconds:,.0f}",
                          f"{count / used_s:,.0f}", f"{peak_mb:.0f} MB")  # fmt: skip
    out.print(table)
    return [
        *(
            at_least(f"dedup --emit drop, {what}", rate, 200_000, "lines a second")
            for (_, what, _), rate in zip(inputs[2:], rates[2:], strict=True)
        ),
        at_most("its memory, four times the lines, no new clusters", peaks[1] / peaks[0], 1.1, "×"),
    ]


def _run(command: list[str]) -> tuple[float, float, float]:
    """Seconds, seconds of processor time and peak megabytes of a process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} exited with {process.returncode}")
    used_s = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - started, used_s, usage.ru_maxrss / 1000


def bench_growth(out: Console) -> list[Target]:
    """The memory index as it grows; every size in a process of its own."""
    plan = choose(64, K, SIZES[-1])
    table = Table("fingerprints", "tables: memory", "insert", "query",
                  "whole index: memory", "resolve, new", "resolve, known",
                  title=f"memory index, random 64-bit fingerprints, k = {K}, "
                  f"{plan.layout.blocks} blocks, {plan.layout.tables} tables",
                  title_justify="left")  # fmt: skip
    for column in table.columns:
        column.justify = "right"
    rows = []
    for size in SIZES:
        tables, index = (_measured_apart(f"{part} {size}") for part in ("tables", "index"))
        rows.append({"size": size, "tables": tables, "index": index})
        table.add_row(f"{size:,}", f"{tables['mb']:.1f} MB", f"{tables['insert_us']:.2f} µs",
                      f"{tables['query_us']:.2f} µs", f"{index['mb']:.1f} MB",
                      f"{index['insert_us']:.1f} µs", f"{index['query_us']:.1f} µs")  # fmt: skip
    out.print(table)
    _plot(rows)
    out.print(f"plot: {PLOT.relative_to(ROOT)}")
    last = rows[-1]["tables"]
    assert isinstance(last, dict)
    return [
        at_most("10⁶ fingerprints, k = 3, in tables", last["mb"], 250, "MB"),
        at_most("a query among 10⁶", last["query_us"], 20, "µs"),
    ]


def _measured_apart(what: str) -> dict[str, float]:
    """Measure in a process of its own, so that memory is that of this size alone."""
    command = [sys.executable, "-m", "benchmarks.speed", "--measure", what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(what: str) -> dict[str, float]:
    """Megabytes and microseconds of one structure at one size; run in its own process."""
    part, number = what.split()
    size = int(number)
    rng = random.Random(7)
    stored = [rng.getrandbits(64) for _ in range(size)]
    asked = [rng.getrandbits(64) for _ in range(20_000)]
    before = resident_mb()
    if part == "tables":
        tables = make_tables(choose(64, K, SIZES[-1]).layout)
        insert_s = _timed(lambda: [tables.insert(f, 0, i) for i, f in enumerate(stored)])
        memory = resident_mb() - before
        query_s = _timed(lambda: [tables.query(f, 0, 10_000) for f in asked])
    else:
        index = MemoryIndex(
            Recipe(match=Match(k=K)), limits=Limits(max_clusters=SIZES[-1] + len(asked))
        )
        insert_s = _timed(lambda: _resolve(index, stored, 0))
        memory = resident_mb() - before
        asked = [rng.choice(stored) for _ in asked]
        query_s = _timed(lambda: _resolve(index, asked, size))
    return {
        "mb": memory,
        "insert_us": insert_s / size * 1e6,
        "query_us": query_s / len(asked) * 1e6,
    }


def _resolve(index: MemoryIndex, fingerprints: list[int], first: int) -> None:
    for start in range(0, len(fingerprints), BATCH):
        queries = [
            Query("", value, value, b"", True, 0, 0, Position("bench", 0, first + start + i))
            for i, value in enumerate(fingerprints[start : start + BATCH])
        ]
        asyncio.run(_resolve_one(index, queries))


async def _resolve_one(index: MemoryIndex, queries: list[Query]) -> None:
    await index.resolve(queries, 0)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _plot(rows: list[dict[str, object]]) -> None:
    import matplotlib as mpl  # noqa: PLC0415 -- of the group bench

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 -- after the backend is set

    sizes = [row["size"] for row in rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    for part, name in (("tables", "tables"), ("index", "whole index")):
        parts = [row[part] for row in rows]
        left.plot(sizes, [p["mb"] for p in parts], "o-", label=name)  # type: ignore[index]
        right.plot(sizes, [p["query_us"] for p in parts], "o-", label=name)  # type: ignore[index]
    for axes, title in ((left, "memory, MB"), (right, "query, µs")):
        axes.set_xscale("log")
        axes.set_xlabel("fingerprints")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()
    left.set_yscale("log")
    right.set_ylim(bottom=0)
    figure.tight_layout()
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=110)


def main() -> int:
    """Measure everything and print it with the targets; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000, help="lines in process")
    parser.add_argument("--file-lines", type=int, default=1_000_000, help="lines of the file")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/loghub",
                        help="folder of labelled logs: a file repeats their lines")  # fmt: skip
    parser.add_argument("--only-command", action="store_true", help="the command over files alone")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(measure(options.measure)))
        return 0
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    kernel = "native kernel" if extension("fingerprint._kernel") else "pure-Python reference"
    out.print(f"Python {platform.python_version()}, {kernel}, {os.cpu_count()} cores; "
              "one is used")  # fmt: skip
    lines = real_lines()
    targets = bench_command(lines, options.file_lines, options.data, out)
    if not options.only_command:
        corpus = replayed_log(lines, options.lines)
        targets += [
            *bench_kernel(corpus, out), *bench_decisions(corpus, out), *bench_growth(out),
        ]  # fmt: skip
    return print_targets(targets, out)


if __name__ == "__main__":
    sys.exit(main())

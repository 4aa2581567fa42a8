"""Whole files of fingerprints, beside the C++ simhash library, in one run: ``make bench-batch``.

Each run is a whole process, from its start to its end, on one thread unless it says otherwise: it
reads decimal numbers from a file and writes JSON arrays to another. Times are the best of several
runs, taken in turns, for the machine may be busy with other things; ratios are what to compare.
The fingerprints are random, and one in ten is a near-twin of another, one to k bits away. Where
both run, their pairs are compared too, as sets.

The C++ library's block counts are the two that suit it best (k + 2 and k + 3); ours are planned.
Exit code 1 where the target is missed or pairs differ.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import simhash_cpp
from stream_dedup.offline import kernel

COMMAND = Path(sys.executable).with_name("stream-dedup")
MILLION = 1_000_000

# A process starts with the peak memory of the one that forks it, so a small one does.
_MEASURED = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
WANTED = 2.0
"""Times as fast as the C++ library's best, at a million and k = 3."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The best of several runs of a command.

    Attributes:
        seconds: from start to end.
        peak_mb: the most memory it held.
        pairs: how many it found.
        digest: of its pairs, whatever their order.
    """

    seconds: float
    peak_mb: float
    pairs: int
    digest: str


def write_fingerprints(path: Path, count: int, k: int, seed: int) -> None:
    """Random fingerprints as decimal lines, a tenth of them near-twins, shuffled."""
    generator = random.Random(seed)
    numbers = array("Q", generator.randbytes(8 * (count - count // 10)))
    for _ in range(count // 10):
        near = numbers[generator.randrange(count - count // 10)]
        for bit in generator.sample(range(64), generator.randint(1, k)):
            near ^= 1 << bit
        numbers.append(near)
    generator.shuffle(numbers)
    with path.open("wb") as file:
        for start in range(0, count, MILLION):
            part = numbers[start : start + MILLION]
            ends = array("Q", range(1, len(part) + 1))
            words = memoryview(part).cast("B")
            file.write(kernel.rows(words, ends, 64, hexadecimal=False, json=False))


def measure(commands: dict[str, Sequence[str | Path]], runs: int) -> dict[str, Measured]:
    """Each command's best run; the commands take turns. Each writes to the path after it."""
    best: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for turn in range(runs):
            for name, command in commands.items():
                seconds, peak_mb = _run([*command, "--output", out])
                if turn == 0:
                    lines = sorted(_normal(line) for line in out.read_bytes().splitlines())
                    digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
                    best[name] = Measured(seconds, peak_mb, len(lines), digest)
                elif seconds < best[name].seconds:
                    before = best[name]
                    best[name] = Measured(seconds, peak_mb, before.pairs, before.digest)
    return best


def _normal(line: bytes) -> bytes:
    """A pair with its smaller number first."""
    return b",".join(sorted(line.strip(b"[]").split(b", "), key=int))


def _run(command: Sequence[str | Path]) -> tuple[float, float]:
    """Seconds and peak megabytes of one process."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _MEASURED, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    seconds, peak_kb = done.stdout.split()
    return float(seconds), int(peak_kb) / 1024


def bench(
    count: int, k: int, runs: int, threads: Sequence[int], blocks: Sequence[int], out: Console
) -> tuple[float, bool]:
    """Measure one size and distance, and print it.

    Returns:
        How many times as fast we are as the best of C++ (0 without it), and whether all found
        the same pairs.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "fingerprints"
        write_fingerprints(given, count, k, seed=k)
        commands: dict[str, Sequence[str | Path]] = {
            f"stream-dedup, {n} thread{'s' * (n > 1)}":
                [COMMAND, "find-all", "--distance", str(k), "--threads", str(n), "--input", given]
            for n in threads
        }  # fmt: skip
        for m in blocks if simhash_cpp.SOURCES.is_dir() else ():
            binary = simhash_cpp.command("simhash-find-all")
            commands[f"C++, {m} blocks"] = [
                binary, "--distance", str(k), "--blocks", str(m), "--input", given
            ]  # fmt: skip
        measured = measure(commands, runs)
    theirs = [run.seconds for name, run in measured.items() if name.startswith("C++")]
    ours = measured[next(iter(commands))].seconds
    table = Table("command", "seconds", "peak MB", "pairs", "times ours",
                  title=f"{count:,} fingerprints, k = {k}, best of {runs}",
                  title_justify="left")  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for name, run in measured.items():
        table.add_row(name, f"{run.seconds:.2f}", f"{run.peak_mb:,.0f}", f"{run.pairs:,}",
                      f"{run.seconds / ours:.1f}")  # fmt: skip
    out.print(table)
    same = len({run.digest for run in measured.values()}) == 1
    if not same:
        out.print("the pairs DIFFER")
    return (min(theirs) / ours if theirs else 0.0), same


def main() -> int:
    """Measure everything and print it with the target; 1 where it is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of the first table; others take fewer")
    parser.add_argument("--only", type=int, choices=[1, 2, 3, 4], help="one of the four tables")
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    if not simhash_cpp.SOURCES.is_dir():
        out.print(f"the C++ library is not measured: {simhash_cpp.SOURCES} is not there")
    few = max(1, options.runs // 3)
    cases = {
        1: (MILLION, 3, options.runs, (1, 2), (5, 6)),
        2: (MILLION, 6, few, (1, 2), (8, 9)),
        3: (MILLION, 10, 1, (1, 2), ()),
        4: (10 * MILLION, 3, 1, (1, 2), (5,)),
    }
    met = True
    for number, case in cases.items():
        if options.only not in {None, number}:
            continue
        ratio, same = bench(*case, out)
        met = met and same
        if number == 1 and ratio:
            verdict = "met" if ratio >= WANTED else "MISSED"
            out.print(f"target: {ratio:.1f} times as fast, ≥ {WANTED:g} wanted: {verdict}\n")
            met = met and ratio >= WANTED
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

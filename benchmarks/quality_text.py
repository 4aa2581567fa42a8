"""Near-duplicate texts: what is found, beside other tools, measured here and now.

    python -m benchmarks.quality_text --data FOLDER [--seeds 3] [--messages 800] [--timed 10000]
        [--recipes text,messages,records,documents] [--no-peers] [--json OUT]

**Labelled sets** (see `benchmarks.text_sets`): of each method (`benchmarks.text_methods`)
precision, recall and F1 of pairs at its default threshold; its best F1 over thresholds from 0.3 to
0.8; and the F1 of one half of the set at the threshold that is best on the other half, both ways,
so that no threshold is praised by the texts that chose it.

**Messages**: sentences and a changed copy of each. Recall is the share of copies in their
original's cluster, by length and change; precision the share of pairs put together that are such.

**Cost**: processor time a text and memory of messages of some 20 words that are all different, each
method in a process of its own. Brute force is left out there.

Ours are means over seeds of the key. Exit status: 0 when every target is reached, 1 when not, 2
when the bench could not run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers import PeerMissingError
from benchmarks.quality import positive
from benchmarks.text_methods import BRUTE_FORCE, Method, methods
from benchmarks.text_sets import (
    LENGTHS,
    Messages,
    Pair,
    TextSet,
    TextSetError,
    load_text_sets,
    make_messages,
    sentences,
)
from stream_dedup.features.recipe import shipped

THRESHOLDS = (0.3, 0.36, 0.42, 0.5, 0.6, 0.7, 0.8)
RECIPES = ("text", "messages", "records", "documents")

TARGETS = {
    ("cora", "stream-dedup records", "F1"): 0.8,
    ("early_childhood", "stream-dedup records", "F1"): 0.78,
    ("articles_1000", "stream-dedup documents", "precision"): 0.99,
    ("articles_1000", "stream-dedup documents", "recall"): 1.0,
    ("articles_1000", "stream-dedup text", "precision"): 0.99,
    ("messages", "stream-dedup text", "recall, 8 words and more"): 0.92,
    ("messages", "stream-dedup text", "recall, 5 to 7 words"): 0.8,
    ("messages", "stream-dedup text", "precision"): 0.95,
    ("articles_1000", "stream-dedup messages", "precision"): 0.99,
    ("messages", "stream-dedup messages", "recall, 8 words and more"): 0.92,
    ("messages", "stream-dedup messages", "recall, 5 to 7 words"): 0.8,
    ("messages", "stream-dedup messages", "precision"): 0.95,
}
"""What must be reached: (set, method, measure)."""

Scores = dict[str, float]


def scores(found: AbstractSet[Pair], true: AbstractSet[Pair]) -> Scores:
    """Return precision, recall and F1 of pairs."""
    right = len(found & true)
    precision = right / len(found) if found else 1.0
    recall = right / len(true) if true else 1.0
    both = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "F1": 2 * precision * recall / both if both else 0.0,
    }


def mean(several: Sequence[Scores]) -> Scores:
    """Return the mean of each measure."""
    return {name: fmean(each[name] for each in several) for name in several[0]}


def measure_set(labelled: TextSet, makers: Sequence[Sequence[Method]]) -> dict[str, Scores]:
    """Measure all methods on a set; `makers` has the same methods for each seed."""
    halves = labelled.halves()
    results = {}
    for same in zip(*makers, strict=True):
        repeated = same if same[0].name.startswith("stream-dedup") else same[:1]
        of_seeds = []
        for method in repeated:
            found = scores(method.find(labelled.texts, method.threshold), labelled.pairs)
            curve = [
                scores(method.find(labelled.texts, at), labelled.pairs)["F1"] for at in THRESHOLDS
            ]
            found["best F1"] = max(*curve, found["F1"])
            found["F1 cross-checked"] = fmean(_crossed(method, halves))
            of_seeds.append(found)
        results[same[0].name] = mean(of_seeds)
    return results


def _crossed(method: Method, halves: tuple[TextSet, TextSet]) -> list[float]:
    curves = [
        [scores(method.find(half.texts, at), half.pairs)["F1"] for at in THRESHOLDS]
        for half in halves
    ]
    return [measured[chosen.index(max(chosen))] for chosen, measured in (curves, reversed(curves))]


def measure_messages(method: Method, messages: Messages) -> Scores:
    """Measure recall by length, and precision, of one change."""
    count = len(messages.originals)
    found = method.find(messages.originals + messages.copies, method.threshold)
    results: Scores = {}
    for least, most in LENGTHS:
        rows = [
            row for row in range(count) if least <= len(messages.originals[row].split()) <= most
        ]
        hits = sum((row, row + count) in found for row in rows)
        results[f"{least}-{most} words"] = hits / len(rows) if rows else 1.0
    true = {(row, row + count) for row in range(count)}
    results["precision"] = len(found & true) / len(found) if found else 1.0
    return results


def summary_of_messages(by_change: dict[str, Scores]) -> Scores:
    """Return the means over all changes."""
    (short, *longer), every = [f"{a}-{b} words" for a, b in LENGTHS], by_change.values()
    return {
        "recall, 5 to 7 words": fmean(each[short] for each in every),
        "recall, 8 words and more": fmean(each[name] for each in every for name in longer),
        "precision": fmean(each["precision"] for each in every),
    }


def timed_texts(originals: Sequence[str], count: int) -> list[str]:
    """Return texts of 20 words that have little in common."""
    words = sorted({word for text in originals for word in text.split()})
    drawn = random.Random(1)
    return [" ".join(drawn.choices(words, k=20)) for _ in range(count)]


def cost_of(name: str, texts: Sequence[str]) -> Scores:
    """Measure processor time and memory of a method in a new process."""
    new = multiprocessing.get_context("spawn")
    parent, child = new.Pipe()
    process = new.Process(target=_measure_cost, args=(name, texts, child))
    process.start()
    child.close()
    answer: Scores = parent.recv()
    process.join()
    return answer


def _measure_cost(
    name: str,
    texts: Sequence[str],
    answer: Any,  # noqa: ANN401 -- a pipe's end
) -> None:
    (method,) = [each for each in methods(shipped(), bytes(16), peers=True) if each.name == name]
    method.find(texts[:100], method.threshold)  # imports
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again: proc(5)
    before = _memory_kb("VmRSS")
    start = time.process_time()
    method.find(texts, method.threshold)
    taken = time.process_time() - start
    held = _memory_kb("VmHWM") - before
    answer.send({"µs a text": taken / len(texts) * 1e6, "MB": held / 1024})


def _memory_kb(name: str) -> int:
    """Return a figure of this process's memory: VmRSS now, VmHWM at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0])


# ---------------------------------------------------------------- output


def show(out: Console, title: str, results: dict[str, Scores], digits: int = 3) -> None:
    """Print a table: a row a method, a column a measure."""
    columns = list(next(iter(results.values())))
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in results.items():
        table.add_row(name, *(f"{row[column]:.{digits}f}" for column in columns))
    out.print(table)
    out.print()


def missed(results: dict[str, dict[str, Scores]]) -> list[str]:
    """Return what of the targets is not reached, of the sets and methods measured."""
    lines = []
    for (name, method, measure), least in TARGETS.items():
        value = results.get(name, {}).get(method, {}).get(measure, least)
        if value < least:
            lines.append(f"{name}: {method}: {measure} is {value:.3f}, below {least}")
    return lines


def measure(options: argparse.Namespace, out: Console) -> dict[str, dict[str, Scores]]:
    """Measure everything, printing each part when it is known."""
    sets = load_text_sets(options.data)
    makers = [
        methods(options.recipes, bytes([seed] * 16), peers=not options.no_peers)
        for seed in range(1, options.seeds + 1)
    ]
    results: dict[str, dict[str, Scores]] = {}
    for labelled in sets:
        results[labelled.name] = measure_set(labelled, makers)
        size = f"{len(labelled.texts):,} texts, {len(labelled.pairs):,} pairs"
        show(out, f"{labelled.name}: {size}", results[labelled.name])
    originals = sentences(sets, options.messages)
    changed = list(make_messages(originals))
    results["messages"] = {}
    fast = [method for method in makers[0] if method.name != BRUTE_FORCE]
    for method in fast:
        by_change = {each.change: measure_messages(method, each) for each in changed}
        results["messages"][method.name] = summary_of_messages(by_change)
        if method.name == f"stream-dedup {options.recipes[0]}":
            show(out, f"{len(originals):,} messages and copies: {method.name}", by_change)
    show(out, "messages, means over the changes", results["messages"])
    texts = timed_texts(originals, options.timed)
    results["cost"] = {method.name: cost_of(method.name, texts) for method in fast}
    show(out, f"cost of {len(texts):,} texts of 20 words", results["cost"], 1)
    return results


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.quality_text",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled texts")
    parser.add_argument("--seeds", type=positive, default=3, help="keys to measure ours with")
    parser.add_argument("--messages", type=positive, default=800, help="how many to make")
    parser.add_argument("--timed", type=positive, default=10_000, help="texts to time")
    parser.add_argument("--recipes", type=lambda text: text.split(","), default=list(RECIPES))
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 120)
    try:
        results = measure(options, out)
    except (TextSetError, PeerMissingError, OSError) as error:
        print(f"benchmarks.quality_text: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    lines = missed(results)
    for line in lines:
        out.print(f"missed: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

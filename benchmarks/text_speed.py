"""What a text costs: the kernel by its length, and an index in memory as it grows.

    python -m benchmarks.text_speed [--clusters 10000,100000,1000000] [--recipe text]

**Kernel**: one thread, texts that are all different, the least of several runs.

**Index**: many messages of 8 to 20 random words are stored. Then copies of some are looked up, in
which one word of ten is replaced, one at least. Shown is what a search takes (keys, sketches, the
best cluster), what all of an answer does (which also notes the copy), and the share of copies that
join the cluster of their own message: among more clusters more keys are full. Times are processor
time.

Exit status: 0 when every target is reached, 1 when not.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from benchmarks.peers import time_per_item
from benchmarks.random_messages import RandomMessages, queries_of
from benchmarks.reporting import Target, at_least, at_most, cost_table, print_targets, resident_mb
from benchmarks.speed import BATCH
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Limits, Resolution
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.memory.lookup import Lookup

KERNEL_TARGETS = {8: None, 20: 8.0, 200: 30.0}
"""By the words of a text, the most microseconds it may take."""
TEXTS = 4 * BATCH
RUNS = 5
COPIES = 20_000
QUERY_AT, QUERY_TARGET_US = 100_000, 20.0
OWN_AT, OWN_TARGET = 1_000_000, 0.96


def bench_kernel(recipe: Recipe, out: Console) -> list[Target]:
    """Fingerprints, keys and sketches of texts."""
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    table = cost_table(f"kernel, recipe {recipe.name}", "bytes", "µs a text")
    targets = []
    for words, most in KERNEL_TARGETS.items():
        texts = RandomMessages(words, words, words).make(TEXTS)

        def hash_all(texts: Sequence[bytes] = texts) -> None:
            for start in range(0, TEXTS, BATCH):
                values = fingerprinter.prepare(texts[start : start + BATCH], None)
                fingerprinter.fingerprints(values, full=True)

        taken = time_per_item(hash_all, TEXTS, RUNS).min_s * 1e6
        table.add_row(f"{words} words", f"{sum(map(len, texts)) / TEXTS:.0f}", f"{taken:.2f}")
        if most is not None:
            targets.append(at_most(f"a text of {words} words in the kernel", taken, most, "µs"))
    out.print(table)
    return targets


def bench_index(recipe: Recipe, sizes: Sequence[int], out: Console) -> list[Target]:
    """Lookups of changed copies."""
    table = cost_table(
        f"index in memory, {COPIES:,} changed copies looked up",
        "memory", "open, µs", "search, µs", "answer, µs", "in their own cluster",
    )  # fmt: skip
    targets = []
    for size in sizes:
        before = resident_mb()
        index = MemoryIndex(recipe, limits=Limits(max_clusters=2 * size + COPIES), key=PUBLIC_KEY)
        messages = RandomMessages(7)
        stored = messages.make(size)
        opened, open_us = _resolve(index, stored, 0)
        memory = resident_mb() - before
        chosen = random.Random(8).sample(range(size), min(size, COPIES))
        copies = [messages.changed(stored[place]) for place in chosen]
        found, answer_us = _resolve(index, copies, size)
        own = [
            answer.cluster == opened[place].cluster
            for place, answer in zip(chosen, found, strict=True)
        ]
        share = sum(own) / len(own)
        clusters = sum(answer.new for answer in opened)
        del index, opened, found
        search_us = _searched(recipe, stored, copies)
        table.add_row(f"{clusters:,} clusters", f"{memory:.0f} MB", f"{open_us:.1f}",
                      f"{search_us:.1f}", f"{answer_us:.1f}", f"{100 * share:.2f} %")  # fmt: skip
        if size == QUERY_AT:
            targets.append(at_most(f"a search among {size:,}", search_us, QUERY_TARGET_US, "µs"))
        if size == OWN_AT:
            name = f"copies in their own cluster among {size:,}"
            targets.append(at_least(name, 100 * share, 100 * OWN_TARGET, "%"))
    out.print(table)
    return targets


def _resolve(
    index: MemoryIndex, texts: Sequence[bytes], first: int
) -> tuple[list[Resolution], float]:
    """Resolve texts in batches; the answers, and the microseconds of each without hashing it."""
    answers, taken = list[Resolution](), 0.0
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        queries = queries_of(index.recipe, index.key, batch, first + start, 0)
        started = time.process_time()
        answers.extend(asyncio.run(index.resolve(queries, 0)))
        taken += time.process_time() - started
    return answers, taken / len(texts) * 1e6


def _searched(recipe: Recipe, texts: Sequence[bytes], copies: Sequence[bytes]) -> float:
    """Search for the clusters of copies; the microseconds of each without hashing it."""
    lookup = Lookup(recipe, Limits(max_clusters=len(texts)))
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        for n, query in enumerate(queries_of(recipe, PUBLIC_KEY, batch, start, 0)):
            lookup.add(start + n, query, FOREVER_US)
    queries = queries_of(recipe, PUBLIC_KEY, copies, len(texts), 0)
    started = time.process_time()
    for query in queries:
        lookup.by_fingerprint(query)
    return (time.process_time() - started) / len(copies) * 1e6


def main() -> int:
    """Measure and print, with the targets."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.text_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--recipe", type=load_recipe, default="text", help="of shipped ones")
    parser.add_argument(
        "--clusters",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[10_000, QUERY_AT, OWN_AT],
        help="sizes of the index",
    )
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    out.print(f"Python {platform.python_version()}; one core is used")
    targets = bench_kernel(options.recipe, out) + bench_index(options.recipe, options.clusters, out)
    return print_targets(targets, out)


if __name__ == "__main__":
    sys.exit(main())

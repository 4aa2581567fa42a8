"""Simhash, minhash-n and exact match: what each finds on labelled logs, and what it costs.

    python -m benchmarks.methods --data FOLDER [--seeds 5] [--redis] [--json OUT]

All methods share the words of the recipe `logs` and differ in how events are matched alone:

* exact: by the exact hash of the words in order;
* simhash: fingerprints within k bits; *verified*: and a Jaccard index of 0.7;
* minhash-n: the n least hashes are the same; *words alone*: those of placeholders do not count.

**Quality.** `FOLDER` holds the labelled samples (see `benchmarks.datasets`). Each is grouped twice:
with variables masked by token classes, as in `logs`, and with nothing masked. Pair recall is the
share of the pairs of lines of one template that were put together, pair precision the share of the
pairs put together that are of one template; F1 and GA as in `benchmarks.metrics`. Every figure is
the mean over the samples of the mean over seeds of the hash; F1 is the mean of the samples' F1, not
that of the two means. *GA over seeds* is the least and the greatest mean over the samples.

**Cost**, while 10,000 clusters and more are live, of an event that opens one (*new*) and of one
similar to an earlier one, where the index finds its cluster (*known*) and where the near cache does
(*cached*): processor time in memory, and with ``--redis`` commands, processor time and memory of a
real redis-server, which sees nothing of what is cached.

Exit status: 0, or 2 when the bench could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.datasets import Dataset, DatasetError, load_datasets
from benchmarks.metrics import grouping_accuracy, pair_f1
from benchmarks.quality import positive
from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.engine import NEAR_CACHE_SIZE, Engine
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.index.base import Index, Limits
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.model import Batch, Partition

KS = (3, 6, 8, 10)
"""The distances tried for simhash."""

NS = (1, 2, 3, 4, 8)
"""How many least hashes, for minhash."""

JACCARD = 0.7
"""The threshold where simhash verifies, as in the recipe `logs`."""

ONLY_EXACT = 1_000
"""An event with fewer words than this is matched by its exact hash alone."""

LIVE = 10_000
"""Clusters that are live when the cost is measured."""

EVENTS = 2_000
"""Events over which a cost is the mean."""

ROUNDS = 3
"""A cost is the least of so many rounds: the machine may be busy with other things."""

BATCH = 500
NOW_US = 1_700_000_000_000_000
WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
LIMITS = Limits(max_clusters=20_000, max_candidates=1_000, max_verified=64)
DEFAULT_SEEDS = 5
PLAIN_WIDTH = 120
"""Of a table that does not go to a terminal."""


def methods() -> dict[str, Recipe]:
    """Name → recipe, in the order in which they are shown."""
    logs = load_recipe("logs")
    found = {"exact": replace(logs, match__k=0, match__jaccard=0.0, match__min_features=ONLY_EXACT)}
    for k in KS:
        found[f"simhash k={k}"] = replace(logs, match__k=k, match__jaccard=0.0)
    for k in KS:
        found[f"simhash k={k}, verified"] = replace(logs, match__k=k, match__jaccard=JACCARD)
    for n in NS:
        found[f"minhash-{n}"] = least_hashes(n)
    for n in NS:
        words_alone = replace(least_hashes(n), features__weights__placeholder=0)
        found[f"minhash-{n}, words alone"] = words_alone
    return found


def least_hashes(n: int) -> Recipe:
    """The recipe of minhash-n."""
    return replace(
        load_recipe("logs"),
        fingerprint__kind="minhash",
        fingerprint__least=n,
        match__k=0,
        match__jaccard=0.0,
        match__learn=0,
    )


def unmasked(recipes: dict[str, Recipe]) -> dict[str, Recipe]:
    """The same with nothing masked; without placeholders, words are always alone."""
    return {
        name: replace(recipe, text__classes=False)
        for name, recipe in recipes.items()
        if "alone" not in name
    }


COSTED = ("exact", *(f"simhash k={k}, verified" for k in KS), *(f"minhash-{n}" for n in (1, 4, 8)))
"""The methods whose cost is measured."""


# ---------------------------------------------------------------- quality


@dataclass(frozen=True, slots=True)
class Quality:
    """How well a method puts lines together: means, see the module.

    Attributes:
        recall: of pairs.
        precision: of pairs.
        f1: of pairs.
        ga: grouping accuracy.
        least_ga: of a seed, the least mean over the samples.
        greatest_ga: the greatest.
    """

    recall: float
    precision: float
    f1: float
    ga: float
    least_ga: float
    greatest_ga: float


def quality(recipe: Recipe, datasets: Sequence[Dataset], seeds: int) -> Quality:
    """Score a recipe over all samples, with several seeds of its hash."""
    runs = []
    for seed in range(seeds):
        seeded = replace(recipe, fingerprint__seed=seed)
        runs.append([_scores(seeded, dataset) for dataset in datasets])
    by_seed = [tuple(map(fmean, zip(*scores, strict=True))) for scores in runs]
    recall, precision, f1, ga = map(fmean, zip(*by_seed, strict=True))
    gas = [means[3] for means in by_seed]
    return Quality(recall, precision, f1, ga, min(gas), max(gas))


def _scores(recipe: Recipe, dataset: Dataset) -> tuple[float, float, float, float]:
    """Pair recall, pair precision, pair F1 and grouping accuracy."""
    decisions = Deduplicator(recipe).process(dataset.lines)
    labels = [
        -1 - number if decision.cluster is None else decision.cluster  # passed: alone
        for number, decision in enumerate(decisions)
    ]
    pairs = pair_f1(dataset.truth, labels)
    ga = grouping_accuracy(dataset.truth, labels)
    return pairs.recall, pairs.precision, pairs.f1, ga


# ---------------------------------------------------------------- cost


def texts(first: int, count: int) -> list[bytes]:
    """Lines of ten words, all of them their own: each opens a cluster, whatever the method."""
    letters = str.maketrans("0123456789", "abcdefghij")
    return [
        " ".join(f"{number * 10 + word:08d}" for word in range(10)).translate(letters).encode()
        for number in range(first, first + count)
    ]


class Stream:
    """Events on their way through an engine, without a near cache unless one is wanted."""

    def __init__(self, recipe: Recipe, index: Index, near_cache_size: int = 0) -> None:
        self.engine = Engine(
            recipe,
            index,
            windows=WIDE,
            summaries=Summaries(),
            clock=ManualClock(NOW_US),
            near_cache_size=near_cache_size,
        )
        self._offset = 0

    async def put(self, lines: Sequence[bytes]) -> None:
        """Decide and count lines."""
        for start in range(0, len(lines), BATCH):
            chosen = list(lines[start : start + BATCH])
            offsets = range(self._offset, self._offset + len(chosen))
            self._offset += len(chosen)
            await self.engine.process(Batch(Partition("bench", 0), offsets, chosen))


def rounds() -> Iterator[tuple[list[bytes], list[bytes]]]:
    """For each round, lines that open clusters, and lines whose like was seen."""
    for number in range(ROUNDS):
        yield texts(LIVE + number * EVENTS, EVENTS), texts(number * EVENTS, EVENTS)


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """Microseconds of processor time of an event in memory."""

    new_us: float
    known_us: float
    cached_us: float


def memory_costs(recipes: dict[str, Recipe]) -> dict[str, MemoryCost]:
    """What events cost in one process."""

    def stream_of(recipe: Recipe, near_cache_size: int = 0) -> Stream:
        index = MemoryIndex(recipe, windows=WIDE, limits=LIMITS)
        stream = Stream(recipe, index, near_cache_size)
        run(stream.put(texts(0, LIVE)))
        return stream

    def spent_us(stream: Stream, lines: Sequence[bytes]) -> float:
        start = time.process_time()
        run(stream.put(lines))
        return (time.process_time() - start) * 1e6 / len(lines)

    streams = {name: stream_of(recipe) for name, recipe in recipes.items()}
    caching = {name: stream_of(recipe, NEAR_CACHE_SIZE) for name, recipe in recipes.items()}
    best = {name: MemoryCost(inf, inf, inf) for name in recipes}
    for fresh_lines, seen in rounds():
        for name, stream in streams.items():
            best[name] = MemoryCost(
                min(best[name].new_us, spent_us(stream, fresh_lines)),
                min(best[name].known_us, spent_us(stream, seen)),
                min(best[name].cached_us, spent_us(caching[name], seen)),
            )
    return best


@dataclass(frozen=True, slots=True)
class RedisCost:
    """What an event costs the server, and a cluster.

    Attributes:
        new_commands: commands of an event that opens a cluster, those in scripts included.
        known_commands: of one whose like was seen.
        new_us: microseconds of processor time.
        known_us: of the other.
        bytes: of memory, a cluster.
    """

    new_commands: float
    known_commands: float
    new_us: float
    known_us: float
    bytes: float


async def redis_costs(recipes: dict[str, Recipe]) -> dict[str, RedisCost]:
    """What events cost a server that is started for it."""
    from benchmarks.redis_meter import Cost, Meter, opened  # noqa: PLC0415 -- wants redis installed
    from tests.services.redis import RedisServer  # noqa: PLC0415

    logging.getLogger("stream_dedup").setLevel(logging.ERROR)  # the server keeps nothing on disk
    found = {}
    with RedisServer() as server:
        for name, recipe in recipes.items():
            meter = Meter(server)
            before = meter.used_memory()
            async with opened(server, meter, recipe, max_clusters=LIMITS.max_clusters) as index:
                stream = Stream(recipe, index)
                await stream.put(texts(0, LIVE))
                held = meter.used_memory() - before
                new: list[Cost] = []
                known: list[Cost] = []
                for fresh_lines, seen in rounds():
                    new.append(await meter.time(EVENTS, stream.put(fresh_lines)))
                    known.append(await meter.time(EVENTS, stream.put(seen)))
            opening, joining = Cost.best(new), Cost.best(known)
            found[name] = RedisCost(
                opening.commands,
                joining.commands,
                opening.server_us,
                joining.server_us,
                held / LIVE,
            )
    return found


# ---------------------------------------------------------------- output


def quality_table(title: str, found: dict[str, Quality]) -> Table:
    """One row a method."""
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for name in ("pair recall", "pair precision", "pair F1", "GA", "GA over seeds"):
        table.add_column(name, justify="right")
    for name, one in found.items():
        table.add_row(
            name,
            *(f"{value:.3f}" for value in (one.recall, one.precision, one.f1, one.ga)),
            f"{one.least_ga:.3f}-{one.greatest_ga:.3f}",
        )
    return table


def cost_table(memory: dict[str, MemoryCost], redis: dict[str, RedisCost]) -> Table:
    """One row a method."""
    table = Table(
        title=f"Cost of an event, from {LIVE:,} live clusters on",
        title_justify="left",
    )
    table.add_column("method", no_wrap=True)
    names = ["memory: new", "known", "cached"]
    if redis:
        names += ["redis: new", "known", "commands: new", "known", "bytes each"]
    for name in names:
        table.add_column(name, justify="right")
    for name, one in memory.items():
        row = [f"{value:.1f} µs" for value in (one.new_us, one.known_us, one.cached_us)]
        if redis:
            other = redis[name]
            row += [f"{other.new_us:.0f} µs", f"{other.known_us:.0f} µs"]
            row += [f"{other.new_commands:.1f}", f"{other.known_commands:.1f}"]
            row.append(f"{other.bytes:,.0f}")
        table.add_row(name, *row)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench; see the module for the command line and the exit status."""
    options = _parser().parse_args(arguments)
    try:
        datasets = load_datasets(options.data)
    except DatasetError as error:
        print(f"benchmarks.methods: {error}", file=sys.stderr)
        return 2
    recipes = methods()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    measured = (
        f"{sum(map(len, datasets)):,} lines of {len(datasets)} samples, {options.seeds} seeds"
    )
    scores = {}
    for title, chosen in (("variables masked", recipes), ("nothing masked", unmasked(recipes))):
        scores[title] = {
            name: quality(recipe, datasets, options.seeds) for name, recipe in chosen.items()
        }
        console.print(quality_table(f"Quality, {title}: {measured}", scores[title]))
    costed = {name: recipes[name] for name in COSTED}
    memory = memory_costs(costed)
    redis = asyncio.run(redis_costs(costed)) if options.redis else {}
    console.print(cost_table(memory, redis))
    if options.json:
        report = {
            "samples": {dataset.name: len(dataset) for dataset in datasets},
            "seeds": options.seeds,
            "live_clusters": LIVE,
            "quality": {
                title: {name: asdict(one) for name, one in found.items()}
                for title, found in scores.items()
            },
            "memory": {name: asdict(one) for name, one in memory.items()},
            "redis": {name: asdict(one) for name, one in redis.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.methods",
        description="Simhash, minhash-n and exact match on labelled logs: quality and cost.",
        epilog="example: python -m benchmarks.methods --data loghub --redis",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled *.tsv files")
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, help="runs each (default %(default)s)"
    )
    parser.add_argument(
        "--redis", action="store_true", help="also measure over Redis; needs a redis-server"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures here")
    return parser


if __name__ == "__main__":
    sys.exit(main())

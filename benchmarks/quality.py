"""Grouping quality on labelled logs: ours beside Drain3, measured here and now.

    python -m benchmarks.quality --data FOLDER [--seeds 5] [--recipe NAME] [--json OUT]

`FOLDER` holds the labelled samples (see `benchmarks.datasets`). Every contestant gets the same
lines in the same order, once, and answers with a label a line; see `benchmarks.metrics` for what
GA, FGA and pair F1 say of them. Each dataset starts from nothing.

Our figures move a little with the seed of the fingerprint's hash, so one seed proves nothing: ours
is the mean over several, with the least and the greatest beside it. The peers have no seed.

Exit status: 0 when the mean over the datasets reaches every target, 1 when not, 2 when the
bench could not run.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import Dataset, DatasetError, load_datasets
from benchmarks.metrics import Labels, grouping_accuracy, grouping_f1, pair_f1
from benchmarks.peers import PeerMissingError, drain3_default, drain3_masked, peer_versions
from stream_dedup import Deduplicator
from stream_dedup.features.recipe import load_recipe


def ours(lines: list[bytes], recipe: str, seed: int) -> list[int]:
    """Groups lines with stream-dedup: the one place where this bench calls the product.

    Args:
        lines: The lines, in the order of the stream.
        recipe: The name of a recipe.
        seed: The seed of the fingerprint's hash.

    Returns:
        The cluster of each line. A line passed without one gets a label of its own, below zero,
        where no cluster id is.
    """
    loaded = load_recipe(recipe)
    seeded = replace(loaded, fingerprint=replace(loaded.fingerprint, seed=seed))
    decisions = Deduplicator(recipe=seeded).process(lines)
    return [
        -1 - number if decision.cluster is None else decision.cluster
        for number, decision in enumerate(decisions)
    ]


METRICS = ("GA", "FGA", "pair F1")  # the fields of `Scores`, as printed
# What our mean over the datasets and seeds must reach.
TARGETS = {"GA": 0.86, "FGA": 0.84}
DEFAULT_RECIPE = "logs"
DEFAULT_SEEDS = 5
# Of a table that does not go to a terminal: there rich would squeeze it into 80 columns.
PLAIN_WIDTH = 150

Grouper = Callable[[list[bytes]], Labels]


class Scores(NamedTuple):
    """The measures of one run over one dataset, or their mean over several datasets."""

    ga: float
    fga: float
    pair_f1: float


class Spread(NamedTuple):
    """A measure over the runs with different seeds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant scored.

    Attributes:
        name: Who.
        runs: One run a seed; each holds the scores of every dataset, in the datasets' order.
    """

    name: str
    runs: list[list[Scores]]

    def of_dataset(self, index: int) -> dict[str, Spread]:
        """Each measure of one dataset over the runs."""
        return _spreads(run[index] for run in self.runs)

    def of_mean(self) -> dict[str, Spread]:
        """Each measure's mean over the datasets: its spread is that of the runs' means."""
        return _spreads(Scores(*map(fmean, zip(*run, strict=True))) for run in self.runs)


def _spreads(runs: Iterable[Scores]) -> dict[str, Spread]:
    columns = zip(*runs, strict=True)
    return {
        metric: Spread(fmean(column), min(column), max(column))
        for metric, column in zip(METRICS, columns, strict=True)
    }


def run_contestant(name: str, groupers: Sequence[Grouper], datasets: Sequence[Dataset]) -> Result:
    """Scores one contestant.

    Args:
        name: Who.
        groupers: What labels the lines, one a run: a run differs from the next by its seed.
        datasets: What to label.

    Returns:
        The scores of every run and dataset.
    """
    return Result(name, [[_score(grouper, one) for one in datasets] for grouper in groupers])


def _score(grouper: Grouper, dataset: Dataset) -> Scores:
    labels = grouper(dataset.lines)
    return Scores(
        ga=grouping_accuracy(dataset.truth, labels),
        fga=grouping_f1(dataset.truth, labels),
        pair_f1=pair_f1(dataset.truth, labels).f1,
    )


def missed_targets(result: Result) -> list[str]:
    """One sentence for each target that the mean over datasets and seeds does not reach."""
    means = result.of_mean()
    return [
        f"{metric} {means[metric].mean:.4f} is below {target:.2f}"
        for metric, target in TARGETS.items()
        if means[metric].mean < target
    ]


def as_table(datasets: Sequence[Dataset], results: Sequence[Result]) -> Table:
    """One row a dataset and the mean, three columns a contestant."""
    table = Table(title="Grouping quality (mean, and min-max over seeds)")
    table.add_column("dataset", no_wrap=True)
    for result in results:
        for metric in METRICS:
            table.add_column(f"{result.name}\n{metric}", justify="right")
    for index, dataset in enumerate(datasets):
        table.add_row(dataset.name, *_cells(result.of_dataset(index) for result in results))
    table.add_section()
    table.add_row("mean", *_cells(result.of_mean() for result in results), style="bold")
    return table


def _cells(spreads: Iterable[dict[str, Spread]]) -> list[str]:
    return [_cell(spread) for row in spreads for spread in row.values()]


def _cell(spread: Spread) -> str:
    if spread.low == spread.high:
        return f"{spread.mean:.3f}"
    return f"{spread.mean:.3f} {spread.low:.3f}-{spread.high:.3f}"


def as_json(
    recipe: str, datasets: Sequence[Dataset], results: Sequence[Result]
) -> dict[str, object]:
    """Everything the table shows, unrounded, with what it was measured with."""
    return {
        "recipe": recipe,
        "seeds": len(results[0].runs),
        "python": platform.python_version(),
        "peers": peer_versions(),
        "targets": TARGETS,
        "missed": missed_targets(results[0]),
        "lines": {dataset.name: len(dataset) for dataset in datasets},
        "datasets": {
            dataset.name: {result.name: _plain(result.of_dataset(index)) for result in results}
            for index, dataset in enumerate(datasets)
        },
        "mean": {result.name: _plain(result.of_mean()) for result in results},
    }


def _plain(row: dict[str, Spread]) -> dict[str, dict[str, float]]:
    return {metric: spread._asdict() for metric, spread in row.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench; see the module for the command line and the exit status."""
    options = _parser().parse_args(arguments)
    seeds = range(options.seeds)
    try:
        datasets = load_datasets(options.data)
        results = [
            run_contestant("drain3", [drain3_default], datasets),
            run_contestant("drain3 masked", [drain3_masked], datasets),
        ]
    except (DatasetError, PeerMissingError) as error:
        print(f"benchmarks.quality: {error}", file=sys.stderr)
        return 2
    groupers = [partial(ours, recipe=options.recipe, seed=seed) for seed in seeds]
    results.insert(0, run_contestant("stream-dedup", groupers, datasets))

    if options.json:
        report = as_json(options.recipe, datasets, results)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return _show(options.recipe, datasets, results)


def _show(recipe: str, datasets: Sequence[Dataset], results: Sequence[Result]) -> int:
    """Prints the table and the verdict; returns the exit status."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(as_table(datasets, results))
    versions = ", ".join(f"{name} {version}" for name, version in peer_versions().items())
    console.print(f"recipe {recipe}, {len(results[0].runs)} seeds; {versions}", highlight=False)
    missed = missed_targets(results[0])
    wanted = " and ".join(f"{metric} >= {target:.2f}" for metric, target in TARGETS.items())
    verdict = f"NOT met: {'; '.join(missed)}" if missed else "met"
    console.print(f"targets {wanted}: {verdict}", highlight=False)
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description="Grouping quality on labelled logs, ours beside Drain3.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled *.tsv files")
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, help="runs of ours (default %(default)s)"
    )
    parser.add_argument(
        "--recipe", default=DEFAULT_RECIPE, help="recipe of ours (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures here")
    return parser


def positive(text: str) -> int:
    """A count given as an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


if __name__ == "__main__":
    sys.exit(main())

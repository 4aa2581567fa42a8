"""Grouping quality on labelled logs: ours beside other log parsers, measured here and now.

    python -m benchmarks.quality --data FOLDER [--seeds 5] [--shuffles 3] [--recipe NAME]
        [--json OUT] [--markdown] [--no-peers] [--pairs 100000]

`FOLDER` holds the labelled sets (see `benchmarks.datasets`). Every contestant gets the same lines
in the same order, once, and answers with a label a line; see `benchmarks.metrics` for what the
measures say of them. Each set starts from nothing.

Ours is measured in five ways:

* `stream-dedup`: the template of each line's cluster in the end (see `benchmarks.grouping`);
* `stream-dedup online`: the template of its cluster when the line was emitted;
* `stream-dedup cluster`, `stream-dedup cluster online`: the clusters themselves, which keep levels
  and HTTP status classes of one template apart;
* `stream-dedup shuffled`: as the first, with the lines in another order.

Each is the mean over several seeds (of the hash and of the key of the hashes that decide), with the
deviation beside it; the last over several orders, with one seed. The peers (`benchmarks.parsers`)
have no seed. Where settings are published for some sets only, their mean is over those.

PA and FTA need the true templates: they are measured on the sets that have them, over the lines
whose template is known.

Exit status: 0 when the mean over the sets reaches every target of this folder and no generated pair
that differs in an outcome or a variant merges (see `benchmarks.outcome_pairs`), 1 when not, 2 when
the bench could not run.
"""

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import Dataset, DatasetError, load_datasets
from benchmarks.grouping import group
from benchmarks.metrics import (
    grouping_accuracy,
    grouping_f1,
    normal_template,
    pair_f1,
    parsing_accuracy,
    template_f1,
)
from benchmarks.outcome_pairs import PAIRS, PairResult, check_pairs
from benchmarks.parsers import PARSERS, Grouping
from benchmarks.peers import PeerMissingError, peer_versions

METRICS = ("GA", "FGA", "pair F1", "PA", "FTA")
OURS = "stream-dedup"
ONLINE, CLUSTER, CLUSTER_ONLINE, SHUFFLED = (
    f"{OURS} {name}" for name in ("online", "cluster", "cluster online", "shuffled")
)
TARGETS: dict[str, dict[str, dict[str, float]]] = {
    "loghub": {
        OURS: {"GA": 0.965, "FGA": 0.96, "pair F1": 0.997},
        ONLINE: {"GA": 0.92},
    },
    "loghub2": {OURS: {"GA": 0.90, "FGA": 0.85}},
    "located": {OURS: {"GA": 0.57, "FGA": 0.62, "pair F1": 0.92}},
}
"""By the folder's name: what a contestant's mean over sets and seeds must reach."""

STEADY = ("loghub",)
"""Folders whose figures must be the same for every seed, and nearly for every order."""

MAX_BEHIND = 0.02
"""How much worse ours may be than Drain3's defaults on any set, and shuffled than in order."""

DEFAULT_RECIPE = "logs"
DEFAULT_SEEDS = 5
DEFAULT_SHUFFLES = 3
PLAIN_WIDTH = 180
"""Of a table that does not go to a terminal: there rich would squeeze it into 80 columns."""

Scores = dict[str, float]
"""Measure to value, of one set; without PA and FTA where its templates are not known."""


class Spread(NamedTuple):
    """A measure over the runs with different seeds."""

    mean: float
    low: float
    high: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant scored.

    Attributes:
        runs: One run a seed; each holds the scores of every set, in the sets' order, or None where
            the contestant has no settings for the set.
    """

    runs: list[list[Scores | None]]

    def of_dataset(self, index: int) -> dict[str, Spread]:
        """Each measure of one set over the runs."""
        return _spreads([run[index] or {} for run in self.runs])

    def of_mean(self) -> dict[str, Spread]:
        """Each measure's mean over the sets that have it: its spread is that of the runs' means."""
        return _spreads([_mean(run) for run in self.runs])


def _mean(run: Iterable[Scores | None]) -> Scores:
    given = [scores for scores in run if scores]
    columns = {name: [one[name] for one in given if name in one] for name in METRICS}
    return {name: fmean(column) for name, column in columns.items() if column}


def _spreads(runs: Sequence[Scores]) -> dict[str, Spread]:
    columns = {name: [run[name] for run in runs] for name in METRICS if name in runs[0]}
    return {
        name: Spread(fmean(column), min(column), max(column), pstdev(column))
        for name, column in columns.items()
    }


def score(dataset: Dataset, grouping: Grouping | None) -> Scores | None:
    """The measures of one grouping of a set; None for none."""
    if grouping is None:
        return None
    labels = grouping.labels
    scores = {
        "GA": grouping_accuracy(dataset.truth, labels),
        "FGA": grouping_f1(dataset.truth, labels),
        "pair F1": pair_f1(dataset.truth, labels).f1,
    }
    known = [row for row, label in enumerate(dataset.truth) if label in dataset.templates]
    if known:
        normal = {text: normal_template(text) for text in {*grouping.templates}}
        true_normal = {name: normal_template(text) for name, text in dataset.templates.items()}
        truth = [true_normal[dataset.truth[row]] for row in known]
        predicted = [normal[grouping.templates[row]] for row in known]
        scores["PA"] = parsing_accuracy(truth, predicted)
        scores["FTA"] = template_f1(truth, predicted)
    return scores


def run_ours(
    datasets: Sequence[Dataset], recipe: str, seeds: int, shuffles: int
) -> dict[str, Result]:
    """Scores ours in its five ways."""
    results = {name: Result([]) for name in (OURS, ONLINE, CLUSTER, CLUSTER_ONLINE, SHUFFLED)}
    for seed in range(seeds):
        runs: dict[str, list[Scores | None]] = {}
        for dataset in datasets:
            found = group(dataset.lines, recipe, seed)
            for name, labels, texts in (
                (OURS, found.templates, found.texts),
                (ONLINE, found.online_templates, found.online_texts),
                (CLUSTER, found.clusters.final, found.texts),
                (CLUSTER_ONLINE, found.clusters.online, found.online_texts),
            ):
                scores = score(dataset, Grouping(labels, texts))
                runs.setdefault(name, []).append(scores)
        for name, run in runs.items():
            results[name].runs.append(run)
    for seed in range(shuffles):
        shuffled = [_shuffled(dataset, seed) for dataset in datasets]
        groups = [group(dataset.lines, recipe) for dataset in shuffled]
        results[SHUFFLED].runs.append(
            [
                score(dataset, Grouping(found.templates, found.texts))
                for dataset, found in zip(shuffled, groups, strict=True)
            ]
        )
    return {name: result for name, result in results.items() if result.runs}


def _shuffled(dataset: Dataset, seed: int) -> Dataset:
    """The same lines in another order."""
    order = list(range(len(dataset)))
    random.Random(seed).shuffle(order)
    truth = [dataset.truth[row] for row in order]
    lines = [dataset.lines[row] for row in order]
    return Dataset(dataset.name, truth, lines, dataset.templates)


def run_peer(
    parse: Callable[[str, Sequence[bytes]], Grouping | None], datasets: Sequence[Dataset]
) -> Result:
    """Scores another parser."""
    return Result([[score(one, parse(one.name, one.lines)) for one in datasets]])


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured.

    Attributes:
        folder: Its name, which says what is to be reached.
        recipe: Of ours.
        datasets: What was grouped.
        results: Contestant to scores, in the order in which they are shown.
        pairs: Stage to what became of the generated pairs; empty if they were left out.
    """

    folder: str
    recipe: str
    datasets: Sequence[Dataset]
    results: Mapping[str, Result]
    pairs: Mapping[str, PairResult]

    def missed(self) -> list[str]:
        """One sentence for each target that is not reached."""
        means = {name: result.of_mean() for name, result in self.results.items()}
        found = [
            f"{name} {metric} {means[name][metric].mean:.4f} is below {target:g}"
            for name, wanted in TARGETS.get(self.folder, {}).items()
            for metric, target in wanted.items()
            if means[name][metric].mean < target
        ]
        if self.folder in STEADY:
            found += self._unsteady(means)
        merged = sum(one.merged for one in self.pairs.values())
        return [*found, *([f"{merged} generated pairs merged"] if merged else [])]

    def _unsteady(self, means: Mapping[str, dict[str, Spread]]) -> list[str]:
        """One sentence for each measure that depends on the seed, or much on the order."""
        found = []
        for metric in METRICS[:3]:
            spread = means[OURS][metric]
            if spread.high > spread.low:
                found.append(f"{metric} is {spread.low:.4f} to {spread.high:.4f} over seeds")
            shuffled = means.get(SHUFFLED, means[OURS])[metric]
            if abs(shuffled.mean - spread.mean) > MAX_BEHIND:
                found.append(
                    f"{metric} is {shuffled.mean:.4f} shuffled, {spread.mean:.4f} in order"
                )
        return found

    def behind(self) -> list[str]:
        """One sentence for each set on which ours is clearly worse than Drain3's defaults."""
        if "drain3" not in self.results:
            return []
        found = []
        for index, dataset in enumerate(self.datasets):
            theirs = self.results["drain3"].of_dataset(index)
            ours = self.results[OURS].of_dataset(index)
            found += [
                f"{dataset.name} {metric} {ours[metric].mean:.3f}, drain3 {spread.mean:.3f}"
                for metric, spread in theirs.items()
                if metric in METRICS[:3] and ours[metric].mean < spread.mean - MAX_BEHIND
            ]
        return found

    def as_json(self) -> dict[str, object]:
        """Everything the tables show, unrounded, with what it was measured with."""
        return {
            "recipe": self.recipe,
            "seeds": len(self.results[OURS].runs),
            "python": platform.python_version(),
            "peers": peer_versions(),
            "targets": TARGETS.get(self.folder, {}),
            "missed": self.missed(),
            "behind_drain3": self.behind(),
            "lines": {dataset.name: len(dataset) for dataset in self.datasets},
            "datasets": {
                dataset.name: {
                    name: _plain(result.of_dataset(index)) for name, result in self.results.items()
                }
                for index, dataset in enumerate(self.datasets)
            },
            "mean": {name: _plain(result.of_mean()) for name, result in self.results.items()},
            "pairs": {stage: asdict(one) for stage, one in self.pairs.items()},
        }

    def tables(self) -> list[Table]:
        """The means, then each measure by set, then the generated pairs."""
        means = Table(title="Mean over the sets (± deviation over seeds or orders)")
        for column in ("", *METRICS):
            means.add_column(column, justify="right" if column else "left", no_wrap=True)
        for name, result in self.results.items():
            spreads = result.of_mean()
            means.add_row(name, *(_cell(spreads.get(metric)) for metric in METRICS))
        return [means, *map(self._table, METRICS[:3])] + ([self._pairs()] if self.pairs else [])

    def _table(self, metric: str) -> Table:
        table = Table(title=metric)
        for column in ("", *self.results):
            table.add_column(column, justify="right" if column else "left")
        for index, dataset in enumerate(self.datasets):
            spreads = [result.of_dataset(index).get(metric) for result in self.results.values()]
            table.add_row(dataset.name, *map(_cell, spreads))
        table.add_section()
        spreads = [result.of_mean().get(metric) for result in self.results.values()]
        table.add_row("mean", *map(_cell, spreads), style="bold")
        return table

    def _pairs(self) -> Table:
        table = Table(title="Generated pairs of other outcome")
        for column in ("stage", "pairs", "merged", "merged if they do not differ"):
            table.add_column(column, justify="left" if column == "stage" else "right")
        for stage, one in self.pairs.items():
            share = f"{one.merged_equal:.0%}"
            table.add_row(stage, f"{one.pairs:,}", f"{one.merged:,}", share)
        return table


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    deviation = f" ±{spread.deviation:.3f}" if spread.deviation else ""
    return f"{spread.mean:.3f}{deviation}"


def _plain(row: dict[str, Spread]) -> dict[str, dict[str, float]]:
    return {metric: spread._asdict() for metric, spread in row.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench; see the module for the command line and the exit status."""
    options = _parser().parse_args(arguments)
    try:
        datasets = load_datasets(options.data)
        started = time.monotonic()
        results = run_ours(datasets, options.recipe, options.seeds, options.shuffles)
        _say(OURS, started)
        for name, parse in () if options.no_peers else PARSERS.items():
            started = time.monotonic()
            results[name] = run_peer(parse, datasets)
            _say(name, started)
    except (DatasetError, PeerMissingError) as error:
        print(f"benchmarks.quality: {error}", file=sys.stderr)
        return 2
    started = time.monotonic()
    pairs = check_pairs(options.recipe, options.pairs) if options.pairs else {}
    _say(f"{options.pairs:,} generated pairs", started)
    report = Report(options.data.resolve().name, options.recipe, datasets, results, pairs)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    return _show(report, box.MARKDOWN if options.markdown else box.HEAVY_HEAD)


def _say(what: str, started: float) -> None:
    """Say that something was measured, and how long it took."""
    print(f"{what}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def _show(report: Report, style: box.Box) -> int:
    """Prints the tables and the verdict; returns the exit status."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    for table in report.tables():
        table.title_justify = "left"
        table.box = style
        console.print(table)
    versions = ", ".join(f"{name} {version}" for name, version in peer_versions().items())
    seeds = len(report.results[OURS].runs)
    console.print(f"recipe {report.recipe}, {seeds} seeds; {versions}")
    if "drain3" in report.results:
        behind = "; ".join(report.behind()) or "none"
        console.print(f"sets more than {MAX_BEHIND:g} behind drain3: {behind}")
    missed = report.missed()
    wanted = ", ".join(
        f"{name} {metric} >= {target:g}"
        for name, targets in TARGETS.get(report.folder, {}).items()
        for metric, target in targets.items()
    )
    verdict = f"NOT met: {'; '.join(missed)}" if missed else "met"
    console.print(f"targets of {report.folder} ({wanted or 'none'}): {verdict}")
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description="Grouping quality on labelled logs, ours beside other parsers.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled sets")
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, help="runs of ours (default %(default)s)"
    )
    parser.add_argument(
        "--shuffles", type=int, default=DEFAULT_SHUFFLES,
        help="runs of ours with the lines in another order (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--recipe", default=DEFAULT_RECIPE, help="recipe of ours (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures here")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="pairs to generate (default %(default)s)"
    )
    return parser


def positive(text: str) -> int:
    """A count given as an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


if __name__ == "__main__":
    sys.exit(main())

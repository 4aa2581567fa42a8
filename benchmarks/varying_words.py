"""Lines in which several words vary: how soon their patterns are found, and what is mixed.

    python -m benchmarks.varying_words [--lines 30000] [--seeds 10] [--even]

The labelled sets have few such lines: most of their variables have digits. So lines are made here,
of templates with two or three words out of vocabularies of 25 to 500 names, the first ones much
more frequent, as users, hosts and queues are in logs; with `--even` all are as frequent. Some
templates differ in a verb alone.

For each contestant: into how many groups the lines went when they were emitted, how many of these
began in the second half of the lines, how many groups there are in the end, and how many of them
have lines of several templates; the share of lines that are in the largest group of their template,
and of those that are *misplaced*: most lines of their group are of another template. Drain3 takes
part if it is installed. The figures are means over the seeds; the time is that of a line.

Exit status: 1 if more than `MOST_MISPLACED` of the lines are misplaced by us.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from rich.console import Console

from benchmarks.grouping import group_clusters
from benchmarks.metrics import Labels
from benchmarks.parsers import drain3_as_it_comes
from benchmarks.peers import PeerMissingError
from benchmarks.reporting import cost_table
from stream_dedup.features.recipe import load_recipe, replace

BATCH = 1000
MOST_MISPLACED = 0.001
SYLLABLES = "ba ke ki lo mu ma ne no ra re si so ta te ti vo".split()
VERBS = "archived copied listed moved renamed restored shared tagged updated".split()
ACTIONS = "extended inherited queried renewed".split()
TEMPLATES = [
    "user {user} wrote to {queue}",
    "imap-login: Login: user=<{user}>, method={method}, rip=10.0.0.{n}, mpid={n}, TLS",
    "imap({user})<{n}>: Connection closed in {n} bytes for {queue}",
    "{host} sshd[{n}]: Accepted publickey for {user} from 10.0.0.{n} port {n} ssh2",
    "{host} sshd[{n}]: Disconnected from user {user} 10.0.0.{n} port {n}",
    "{host} systemd[1]: Started unit {service} on behalf of {user}",
    "consumer {service} joined group {queue} with generation {n}",
    "order from {city} shipped to {town} by carrier {carrier}",
    "cache miss for key {service} in region {city} after {n} ms",
    "replicating table {queue} to node {host}: lag {n} ms",
    "mail from {user} to {other} queued as {n}",
    "starting job {service} for tenant {city} requested by {user}",
    *(f"user {{user}} {verb} bucket {{queue}} in project {{service}}" for verb in VERBS),
    *(f"process {{service}} {action} lock {{queue}} on node {{host}}" for action in ACTIONS),
]
SIZES = {"user": 300, "queue": 60, "host": 40, "service": 25, "city": 500}
SAME_NAMES = {"other": "user", "town": "city"}
GIVEN = {"method": "CRAM LOGIN PLAIN".split(), "carrier": "dhl dpd fedex gls hermes ups".split()}


class Outcome(NamedTuple):
    """How a contestant grouped lines.

    Attributes:
        opened: groups, as the lines were emitted.
        late: those of them that began in the second half.
        groups: in the end.
        mixed: those of them that have lines of several templates.
        share: of the lines, those in the largest group of their template.
        misplaced: of the lines, those in a group of which most are of another template.
        us: microseconds a line.
    """

    opened: float
    late: float
    groups: float
    mixed: float
    share: float
    misplaced: float
    us: float


def made_lines(seed: int, count: int, *, even: bool = False) -> Iterator[tuple[int, bytes]]:
    """Make lines: the number of the template of each, and its text.

    Args:
        seed: of the random numbers.
        count: of lines.
        even: whether all names are as frequent.
    """
    chance = random.Random(seed)
    names = {kind: _names(chance, size) for kind, size in SIZES.items()}
    names |= {kind: names[as_this] for kind, as_this in SAME_NAMES.items()} | GIVEN
    for _ in range(count):
        label = chance.randrange(len(TEMPLATES))
        choose = chance.choice if even else partial(_frequent_first, chance)
        values = {kind: choose(of) for kind, of in names.items()}
        yield label, TEMPLATES[label].format(n=chance.randrange(1, 250), **values).encode()


def _names(chance: random.Random, size: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < size:
        found["".join(chance.choices(SYLLABLES, k=3))] = None
    return list(found)


def _frequent_first(chance: random.Random, names: Sequence[str]) -> str:
    return names[int(len(names) ** chance.random()) - 1]


def judge(truth: Labels, online: Labels, final: Labels, seconds: float) -> Outcome:
    """Compare labels with the templates of the lines."""
    groups: defaultdict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for label, template in zip(final, truth, strict=True):
        groups[label][template] += 1
    largest: Counter[Hashable] = Counter()
    for templates in groups.values():
        for template, lines in templates.items():
            largest[template] = max(largest[template], lines)
    half = len(truth) // 2
    return Outcome(
        len(set(online)),
        len(set(online[half:]) - set(online[:half])),
        len(groups),
        sum(len(templates) > 1 for templates in groups.values()),
        largest.total() / len(truth),
        1 - sum(max(templates.values()) for templates in groups.values()) / len(truth),
        seconds / len(truth) * 1e6,
    )


def ours(learn: int | None, lines: Sequence[bytes]) -> tuple[Labels, Labels]:
    """The labels of `logs`, or of it with another `match.learn`."""
    recipe = load_recipe("logs")
    if learn is not None:
        recipe = replace(recipe, match__learn=learn)
    batches = [lines[start : start + BATCH] for start in range(0, len(lines), BATCH)]
    clusters = group_clusters(batches, recipe)
    return clusters.online, clusters.final


def drain3(lines: Sequence[bytes]) -> tuple[Labels, Labels]:
    """The labels of Drain3's defaults, which are final at once."""
    labels = drain3_as_it_comes("", lines).labels
    return labels, labels


CONTESTANTS: dict[str, Callable[[Sequence[bytes]], tuple[Labels, Labels]]] = {
    "stream-dedup": lambda lines: ours(None, lines),
    "stream-dedup, learn = 0": lambda lines: ours(0, lines),
    "drain3": drain3,
}


def measure(name: str, seeds: int, count: int, *, even: bool) -> Outcome:
    """Group the lines of all seeds; the means."""
    outcomes = []
    for seed in range(seeds):
        truth, lines = zip(*made_lines(seed, count, even=even), strict=True)
        started = time.perf_counter()
        online, final = CONTESTANTS[name](lines)
        outcomes.append(judge(truth, online, final, time.perf_counter() - started))
    return Outcome(*map(fmean, zip(*outcomes, strict=True)))


def main() -> int:
    """Measure all contestants and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--even", action="store_true", help="all names are as frequent")
    args = parser.parse_args()
    title = f"{args.lines:,} lines of {len(TEMPLATES)} templates, {args.seeds} seeds"
    counted = ("opened", "in the second half", "in the end", "mixed")
    columns = (*counted, "in the largest", "misplaced", "µs a line")
    table = cost_table(title, *columns)
    misplaced = 0.0
    for name in CONTESTANTS:
        try:
            found = measure(name, args.seeds, args.lines, even=args.even)
        except PeerMissingError:
            table.add_row(name, "not installed", *[""] * (len(columns) - 1))
            continue
        misplaced += found.misplaced if name == "stream-dedup" else 0
        counts = [f"{number:,.0f}" for number in found[:3]] + [f"{found.mixed:.1f}"]
        shares = [f"{found.share:.1%}", f"{found.misplaced:.3%}"]
        table.add_row(name, *counts, *shares, f"{found.us:.1f}")
    Console().print(table)
    return int(misplaced > MOST_MISPLACED)


if __name__ == "__main__":
    raise SystemExit(main())

"""Chaos: ``python -m tests.faults.chaos --cycles 200 --seed 1 --guarantee both``.

Workers read a topic while one fault after another is injected. At the end an oracle, which sees
only the records in Kafka, checks every promise. A second one polls the workers' health each second
and compares it with progress. In half of the cycles there is room for a few clusters only.
"""

from __future__ import annotations

import argparse
import math
import secrets
import shutil
import sys
from itertools import product
from pathlib import Path

from tests.faults.faults import FAULTS
from tests.faults.harness import GUARANTEES, Site
from tests.faults.rounds import DEAD_S, RATE, Report, play


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.chaos",
        description="Break workers, Kafka and Redis, one after the other, while events stream "
        "through; then check, from the records in Kafka alone, that nothing was lost, doubled or "
        "changed, and from their answers that the workers' health was right at every second. In "
        "half of the cycles the index has room for a few clusters only. Exits with 1 if a promise "
        "was broken.",
        epilog="faults: " + ", ".join(FAULTS),
    )
    parser.add_argument(
        "--cycles", type=int, default=22, help="faults a guarantee, some 5 s each (default 22)"
    )
    parser.add_argument("--seed", default="", help="chooses faults and events (default: random)")
    parser.add_argument(
        "--guarantee",
        choices=["both", *GUARANTEES],
        default="both",
        help="which guarantee to test (default both, one after the other)",
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, help=f"events a second (default {RATE})"
    )
    parser.add_argument(
        "--faults",
        type=chosen_faults,
        default=tuple(FAULTS),
        metavar="KIND,KIND",
        help="faults to inject, of those below (default all)",
    )
    parser.add_argument(
        "--clusters",
        choices=["both", "usual", "few"],
        default="both",
        help="room for clusters: usual, few, or one half of the cycles each (default both)",
    )
    parser.add_argument(
        "--dead-s",
        type=float,
        default=DEAD_S,
        help=f"how long the fault 'broker dead' takes, in seconds (default {DEAD_S:g})",
    )
    parser.add_argument("--report", type=Path, help="a file to write the report to")
    return parser


def chosen_faults(text: str) -> tuple[str, ...]:
    """The kinds of faults that a list names."""
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(unknown)}")
    return names


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds, print the report, and return the exit code."""
    given = options().parse_args(arguments)
    seed = given.seed or secrets.token_hex(3)
    chosen = [each for each in GUARANTEES if given.guarantee in ("both", each)]
    reports: list[Report] = []
    rooms = {"usual": [False], "few": [True], "both": [False, True]}[given.clusters]
    for guarantee, low_clusters in product(chosen, rooms):
        with Site() as site:
            report = play(
                site,
                guarantee,
                cycles=math.ceil(given.cycles / len(rooms)),
                seed=seed,
                kinds=given.faults,
                rate=given.rate,
                dead_s=given.dead_s,
                low_clusters=low_clusters,
                say=_say,
            )
        reports.append(report)
        if report.good:
            shutil.rmtree(report.folder)
        _say(str(report))
    text = "\n\n".join(map(str, reports))
    if given.report:
        given.report.write_text(text + "\n")
    _say("verdict: " + ("good" if all(each.good for each in reports) else "BROKEN"))
    return 0 if all(each.good for each in reports) else 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 -- a command


if __name__ == "__main__":
    sys.exit(main())

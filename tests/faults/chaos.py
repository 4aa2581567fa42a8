"""Chaos: ``python -m tests.faults.chaos --cycles 200 --seed 1 --guarantee both``.

Workers read a topic while one fault after another is injected. At the end an oracle, which sees
only the records in Kafka, checks every promise.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from pathlib import Path

from tests.faults.faults import FAULTS
from tests.faults.harness import GUARANTEES, Site
from tests.faults.rounds import RATE, Report, play


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.chaos",
        description="Break workers, Kafka and Redis, one after the other, while events stream "
        "through; then check, from the records in Kafka alone, that nothing was lost, doubled or "
        "changed. Exits with 1 if a promise was broken.",
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
    parser.add_argument("--report", type=Path, help="a file to write the report to")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds, print the report, and return the exit code."""
    given = options().parse_args(arguments)
    seed = given.seed or secrets.token_hex(3)
    chosen = [each for each in GUARANTEES if given.guarantee in ("both", each)]
    reports: list[Report] = []
    for guarantee in chosen:
        with Site() as site:
            report = play(
                site, guarantee, cycles=given.cycles, seed=seed, rate=given.rate, say=_say
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

"""The index over Redis beside the peers, in one run: ``make bench-redis``.

A real redis-server is started for it and keeps nothing on disk. Phases:

    A  unique fingerprints, beside datasketch and plain sorted sets
    B  the recipe `logs` on log lines: misses, aliases, exact hits
    C  a replayed log through the engine
    D  the longest single call of each script
    E  growth, with a plot
    F  slices by a hash, against slices by ranges
    G  keys of bands: messages, and long texts
    H  new patterns alone: the server's time, and bytes of each
    I  one group on many nodes of a Redis Cluster
    J  memory, by its parts, beside the formula of docs/how-to/redis-sizing.md

Times are the best of several rounds, for the machine may be busy with other things; ratios are
what to compare. Missed targets are marked and change no exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from rich.console import Console

from benchmarks.redis_bands import bench_bands
from benchmarks.redis_growth import PLOT, bench_growth, bench_unique
from benchmarks.redis_logs import bench_logs, bench_patterns, bench_replay, bench_slices
from benchmarks.redis_longest import bench_expiry, report_longest
from benchmarks.redis_memory import bench_memory
from benchmarks.redis_meter import Meter
from benchmarks.redis_spread import bench_spread
from benchmarks.reporting import Target, print_targets
from benchmarks.speed import ROOT
from stream_dedup.native import extension
from tests.services.redis import RedisServer

PHASES = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        stored: fingerprints stored before unique events are measured.
        peer_s: seconds to fill datasketch's index.
        share: of the live clusters of phase B.
        replayed: lines of the replayed log.
        expiring: clusters that expire at once.
        growth: fingerprints at which growth is measured.
        made: lines made for the slices.
        bands: clusters stored before keys of bands are measured.
        patterns: new patterns of log lines.
        plot: where the plot goes, if it is drawn.
        openings: clusters that one group on many nodes opens a turn.
        filled: lines that an index is filled with, to measure its memory.
    """

    stored: int = 100_000
    peer_s: float = 75
    share: float = 1
    replayed: int = 100_000
    expiring: int = 20_000
    growth: Sequence[int] = (10_000, 100_000, 1_000_000)
    made: int = 20_000
    bands: Sequence[int] = (20_000, 100_000)
    patterns: int = 1_000_000
    plot: Path | None = PLOT
    openings: int = 1_200
    filled: Sequence[int] = (2_000, 20_000, 100_000)


QUICK = Sizes(
    5_000,
    0.5,
    0.2,
    5_000,
    1_000,
    (11_000, 20_000),
    500,
    (1_000, 2_000),
    2_000,
    None,
    100,
    (500, 1_000),
)


async def measure(sizes: Sizes, phases: str, data: Path, out: Console) -> list[Target]:
    """Measure the phases on a server of their own."""
    targets: list[Target] = []
    with RedisServer() as server:
        info = server.info("server")
        out.print(f"redis-server {info['redis_version']}, one of {os.cpu_count()} cores each for "
                  "server and client")  # fmt: skip
        meter = Meter(server)
        if "A" in phases:
            targets += await bench_unique(
                server, meter, out, stored=sizes.stored, peer_s=sizes.peer_s
            )
        if "B" in phases:
            targets += await bench_logs(server, meter, out, data=data, share=sizes.share)
        if "C" in phases:
            await bench_replay(server, meter, out, count=sizes.replayed)
        if "D" in phases:
            await bench_expiry(server, meter, out, clusters=sizes.expiring)
            targets += report_longest(meter, out)
        if "E" in phases:
            targets += await bench_growth(server, meter, out, sizes=sizes.growth, plot=sizes.plot)
        if "F" in phases:
            bench_slices(server, out, data=data, made=sizes.made)
        if "G" in phases:
            targets += await bench_bands(server, meter, out, sizes=sizes.bands)
        if "H" in phases:
            targets += await bench_patterns(server, meter, out, patterns=sizes.patterns)
        if "I" in phases:
            await bench_spread(out, openings=sizes.openings, turns=5)
        if "J" in phases:
            await bench_memory(server, meter, out, sizes=sizes.filled)
    return targets


def main() -> int:
    """Measure and print, with the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little of everything, to try it")
    parser.add_argument("--only", default=PHASES, help="the phases, such as A,B")
    parser.add_argument("--patterns", type=int, help="new patterns of phase H")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/loghub",
                        help="folder of labelled logs whose lines are taken too")  # fmt: skip
    options = parser.parse_args()
    logging.getLogger("stream_dedup").setLevel(logging.ERROR)  # nothing is kept, on purpose
    out = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    kernel = "native kernel" if extension("fingerprint._kernel") else "pure-Python reference"
    peers = ", ".join(f"{name} {_version(name)}" for name in ("redis", "hiredis", "datasketch"))
    out.print(f"Python {platform.python_version()}, {kernel}, {peers}")
    sizes = QUICK if options.quick else Sizes()
    if options.patterns is not None:
        sizes = replace(sizes, patterns=options.patterns)
    targets = asyncio.run(measure(sizes, options.only.upper(), options.data, out))
    print_targets(targets, out)
    return 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())

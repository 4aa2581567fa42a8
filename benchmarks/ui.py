"""What the web application takes over a namespace of many clusters: ``python -m benchmarks.ui``.

A real Redis holds the clusters, a writer adds duplicates at a rate, and Chromium has the list open,
which renews itself every two seconds. Printed are the times of the first page, the application's
share of a core, and Redis' time: the application is stopped and continued by turns (SIGSTOP), first
the one and then the other, so that both halves have the same load on the machine, and Redis'
processor time is compared for each event, with the standard error of the turns. What the
application asks of Redis does not depend on the events, so it is also measured alone, without a
writer: there nothing else takes Redis' time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import random
import signal
import string
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, stdev
from typing import Any
from urllib.request import urlopen

from rich.console import Console
from rich.table import Table

from tests.integration.command import COMMAND
from tests.integration.redis.helpers import in_loop
from tests.integration.ui.writing import writing
from tests.services.browser import Browser, browser
from tests.services.redis import RedisServer

NAMESPACE = "bench-ui"
BATCH = 2_000
PAGES = 20
WARM = 3
"""Events for each cluster until most are known to the writer, which asks Redis less then."""
WARM_S = 120
TICKS = os.sysconf("SC_CLK_TCK")

LIMITS = {
    "first page, on the server": "300 ms",
    "first page, in the browser": "1,000 ms",
    "application, a page open": "5 % of a core",
    "Redis, a page open": "1 % of its time",
}
"""What it must reach."""


def lines(count: int) -> list[bytes]:
    """So many lines, each of a kind of its own."""
    rng = random.Random(1)

    def word() -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=7))

    return [
        f"{word()} {word()} {word()} was {word()} by {word()} at {word()}".encode()
        for _ in range(count)
    ]


async def seed(url: str, kinds: list[bytes]) -> None:
    """Open a cluster for each line."""
    async with writing(url, NAMESPACE) as writer:
        for start in range(0, len(kinds), BATCH):
            await writer.write(kinds[start : start + BATCH])


def write(url: str, kinds: list[bytes], rate: int, written: Any) -> None:  # noqa: ANN401 -- a shared value has no public type
    """Write duplicates at a rate, in a process of its own, until it is killed."""

    @in_loop
    async def work() -> None:
        rng = random.Random(2)
        async with writing(url, NAMESPACE) as writer:
            writer.written = len(kinds)
            begun_s = time.monotonic()
            while True:
                await writer.write(rng.choices(kinds, k=BATCH))
                written.value += BATCH
                behind_s = written.value / rate - (time.monotonic() - begun_s)
                await asyncio.sleep(max(0.0, behind_s))

    work()


@contextmanager
def served(url: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The application."""
    command = [os.fspath(COMMAND), "ui", "-n", NAMESPACE, "--redis", url]
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def busy_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def fetched_ms(address: str) -> float:
    """How long a page takes on the server: until its last byte is there."""
    begun_s = time.monotonic()
    with urlopen(address) as answer:  # noqa: S310 -- ours
        answer.read()
    return 1e3 * (time.monotonic() - begun_s)


def shown_ms(tab: Browser, address: str) -> float:
    """How long a page takes in the browser: until all it loads is there, and rows are shown."""
    tab.open("about:blank")
    tab.open(address)
    tab.until("return document.querySelectorAll('tbody tr').length && document.readyState === "
              "'complete'")  # fmt: skip
    return float(tab.run("return performance.getEntriesByType('navigation')[0].loadEventEnd"))


def commands_s(server: RedisServer) -> float:
    """Time of all commands so far."""
    found = server.info("commandstats").values()
    return sum(int(each.split("usec=")[1].split(",")[0]) for each in found) / 1e6


def whole(address: str) -> float:
    """Wait until the application knows all clusters; return how long that took."""
    begun_s = time.monotonic()
    while True:
        with urlopen(f"{address}/api/v1/sources") as answer:  # noqa: S310 -- ours
            (state,) = json.load(answer)
        if not state["reading"]:
            return time.monotonic() - begun_s
        time.sleep(1)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=20_000, help="events a second")
    parser.add_argument("--turn-s", type=float, default=8.0, help="seconds of each turn")
    parser.add_argument("--turns", type=int, default=4, help="at least 2")
    parser.add_argument("--port", type=int, default=9_466)
    options = parser.parse_args()
    kinds = lines(options.clusters)
    address = f"http://127.0.0.1:{options.port}"
    page = f"{address}/s/{NAMESPACE}"
    found: list[tuple[str, str]] = []
    with RedisServer() as server, browser() as tab:
        asyncio.run(seed(server.url, kinds))
        with served(server.url, options.port) as ui:
            early_ms = fetched_ms(page)
            found.append(("all clusters known after", f"{whole(address):.0f} s"))
            used_s = busy_s(ui.pid)
            server_ms = [fetched_ms(page) for _ in range(PAGES)]
            used_s = busy_s(ui.pid) - used_s
            browser_ms = [shown_ms(tab, page) for _ in range(5)]
            found += [
                ("first page, at once", f"{early_ms:.0f} ms"),
                ("first page, on the server", f"{median(server_ms):.0f} ms"),
                ("of it, processor time", f"{1e3 * used_s / PAGES:.0f} ms"),
                ("first page, in the browser", f"{median(browser_ms):.0f} ms"),
            ]
            begun_s, before_s = time.monotonic(), commands_s(server)
            time.sleep(2 * options.turn_s)
            share = (commands_s(server) - before_s) / (time.monotonic() - begun_s)
            found.append(("Redis, a page open", f"{share:.2%} of its time, in commands"))

            written = multiprocessing.Value("q", 0)
            writer = multiprocessing.Process(
                target=write, args=(server.url, kinds, options.rate, written), daemon=True
            )
            writer.start()
            try:
                end_s = time.monotonic() + WARM_S
                while written.value < WARM * options.clusters and time.monotonic() < end_s:
                    time.sleep(1)
                found += under_load(server, ui, written, options)
            finally:
                writer.kill()
                writer.join()
            found.append(("memory of the application", f"{memory_mb(ui.pid):.0f} MB"))
    table = Table("measured", "here", "at most")
    for name, value in found:
        table.add_row(name, value, LIMITS.get(name, ""))
    Console(width=100).print(table)


def under_load(
    server: RedisServer,
    ui: subprocess.Popen[bytes],
    written: Any,  # noqa: ANN401 -- as above
    options: argparse.Namespace,
) -> list[tuple[str, str]]:
    """Measure while events are written: with the page open, and with the application stopped."""
    redis_pid = int(server.info("server")["process_id"])
    used: dict[bool, list[float]] = {True: [], False: []}
    events: list[float] = []
    shares: list[float] = []
    for turn in range(2 * options.turns):
        opened = turn % 4 in {0, 3}  # so that what changes steadily is not a difference
        ui.send_signal(signal.SIGCONT if opened else signal.SIGSTOP)
        begun_s, first = time.monotonic(), written.value
        redis_s, ui_s = busy_s(redis_pid), busy_s(ui.pid)
        time.sleep(options.turn_s)
        took_s, count = time.monotonic() - begun_s, written.value - first
        events.append(count / took_s)
        used[opened].append((busy_s(redis_pid) - redis_s) / count)
        if opened:
            shares.append((busy_s(ui.pid) - ui_s) / took_s)
    ui.send_signal(signal.SIGCONT)
    rate = median(events)
    pairs = [opened - closed for opened, closed in zip(used[True], used[False], strict=True)]
    more, error = median(pairs), stdev(pairs) / math.sqrt(len(pairs))
    return [
        ("events a second", f"{rate:,.0f}"),
        ("application, a page open", f"{median(shares):.1%} of a core"),
        (
            "Redis, more for each event",
            f"{1e6 * more:.2f} ± {1e6 * error:.2f} µs of {1e6 * median(used[False]):.2f} µs",
        ),
        ("Redis, more by turns", f"{more * rate:.2%} ± {error * rate:.2%} of its time"),
    ]


if __name__ == "__main__":
    main()

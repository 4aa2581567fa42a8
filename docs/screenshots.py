"""Pictures of what people see, taken of the real thing: ``make screenshots``.

A broker and a Redis are started, a worker between them, and `stream-dedup produce` writes events
made of the example logs; after a minute and a half Chromium, without a window, takes the picture of
the worker's status page. It takes two minutes, and on Debian installs what is missing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docs.blocks import ROOT
from tests.integration.command import COMMAND
from tests.integration.worker.running import flags, free_port
from tests.services.debian import find_program
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

STATUS_PAGE = ROOT / "docs" / "images" / "status-page.png"
LOGS = sorted((ROOT / "examples" / "logs").glob("*.log.gz"))

WIDTH, HEIGHT = 1_100, 1_420
"""The window: as high as the page is."""

UNDER_LOAD_S = 90
"""So that the page's last minute is a whole one."""

COLOURS = 64
"""Kept in a picture: it looks the same, in a third of the bytes."""

RATE = 2_000
LARGE = b"not a line but a dump of memory " * 3_000


def main() -> None:
    """Take all pictures again."""
    chromium = find_program("chromium", "chromium", "it takes the pictures")
    pngquant = find_program("pngquant", "pngquant", "it makes the pictures small")
    take(chromium)
    quantise = [str(pngquant), "--force", "--output", str(STATUS_PAGE), str(COLOURS)]
    subprocess.run([*quantise, str(STATUS_PAGE)], check=True)  # noqa: S603 -- as it was found
    sys.stdout.write(f"{STATUS_PAGE}: {STATUS_PAGE.stat().st_size:,} bytes\n")


def take(chromium: Path) -> None:
    """The status page of a worker under load."""
    with KafkaBroker() as kafka, RedisServer() as redis:
        kafka.create_topic("app-logs", 6)
        kafka.create_topic("audit-logs", 2)
        for name in ("merged-logs", "merged-logs-summaries", "merged-logs-dead"):
            kafka.create_topic(name, 2)
        port = free_port()
        settings = flags({
            "kafka__bootstrap_servers": kafka.bootstrap,
            "index__url": redis.url,
            "http__port": port,
            "pipelines__0__topics": "app-logs,audit-logs",
            "pipelines__0__output_topic": "merged-logs",
            "pipelines__0__summary_topic": "merged-logs-summaries",
            "pipelines__0__dead_letter_topic": "merged-logs-dead",
            "pipelines__0__format": "text",
            "pipelines__0__emit": "merge",
            "pipelines__0__max_event_bytes": len(LARGE) - 1,
            "pipelines__0__summary_every_s": "10s",
        })  # fmt: skip
        load = ["--loop", "--quiet", *map(str, LOGS)]
        with (
            running("run", *settings),
            running("produce", "--topic", "app-logs", "--rate", str(RATE), *load, *settings),
            running(
                "produce", "--topic", "audit-logs", "--rate", str(RATE // 10), *load, *settings
            ),
        ):
            for number in range(UNDER_LOAD_S):
                if number % 30 == 0:
                    kafka.produce("app-logs", [LARGE], partition=number // 30)
                time.sleep(1)
            picture(chromium, f"http://127.0.0.1:{port}/?refresh=off", STATUS_PAGE)


@contextmanager
def running(*args: str) -> Iterator[None]:
    """The command, until the block ends; it must not have ended before."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 -- our own command
            [COMMAND, *args], stdin=subprocess.DEVNULL, stderr=log
        )
        try:
            yield
            if process.poll() is not None:
                log.seek(0)
                raise SystemExit(f"{args[0]} ended:\n{log.read().decode(errors='replace')}")
        finally:
            process.terminate()
            process.wait()


def picture(chromium: Path, url: str, path: Path) -> None:
    """What Chromium shows of a page.

    Args:
        chromium: the browser.
        url: the page.
        path: the PNG that is written.
    """
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(  # noqa: S603 -- the browser that was found
            [
                str(chromium),
                "--headless=new",
                "--no-sandbox",  # which root cannot have; it sees our own page only
                "--hide-scrollbars",
                "--disable-lcd-text",  # coloured edges cost bytes and help on one kind of screen
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={path}",
                url,
            ],
            check=True,
            timeout=120,
            capture_output=True,
        )


if __name__ == "__main__":
    main()

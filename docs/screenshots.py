"""Pictures of what people see, taken of the real thing: ``make screenshots``.

The command runs over the example log, and what a terminal would show is drawn as SVG; ``python -m
docs.screenshots terminal`` takes this picture alone. ``stream-dedup ui`` shows its pages
over one of the example logs; ``python -m docs.screenshots ui`` takes these alone.

A broker and a Redis are started, a worker between them, and `stream-dedup produce` writes events
made of the example logs; after a minute and a half Chromium, without a window, takes the picture of
the worker's status page. It takes two minutes, and on Debian installs what is missing.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from rich.console import Console
from rich.text import Text

from docs.blocks import ROOT, prepare, write
from tests.integration.command import COMMAND
from tests.integration.worker.running import flags
from tests.services.debian import find_program
from tests.services.kafka import KafkaBroker
from tests.services.processes import free_port
from tests.services.redis import RedisServer

TERMINAL = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS = 104
FONT_RATIO = 0.602
"""Width to height of a character of the usual monospaced fonts."""

COMMANDS = ("dedup sessions.log", "dedup --top 2 sessions.log")
"""What is run for the picture of a terminal."""

STATUS_PAGE = ROOT / "docs" / "images" / "status-page.png"
LOGS = sorted((ROOT / "examples" / "logs").glob("*.log.gz"))

WIDTH, HEIGHT = 1_100, 1_420
"""The window: as high as the page is."""

UI_PAGES = [
    ROOT / "docs" / "images" / f"ui-{name}.png"
    for name in ("list", "pattern", "rules", "pair", "compare", "volume")
]
UI_HEIGHT = 800
UI_LOG = ROOT / "examples" / "logs" / "postgresql.log.gz"

UNDER_LOAD_S = 90
"""So that the page's last minute is a whole one."""

COLOURS = 64
"""Kept in a picture: it looks the same, in a third of the bytes."""

TERMINAL_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>stream-dedup in a terminal</title>
<desc>First lines with their variables in colour, summaries of their repeats, and a report of the
largest clusters.</desc>
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
@media (prefers-color-scheme: dark) {{ rect {{ stroke-opacity: .6; }} }}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""

RATE = 2_000
LARGE = b"not a line but a dump of memory " * 3_000


def main() -> None:
    """Take all pictures again, or that of a terminal alone."""
    write(TERMINAL, terminal_picture())
    if sys.argv[1:] == ["terminal"]:
        return
    chromium = find_program("chromium", "chromium", "it takes the pictures")
    pngquant = find_program("pngquant", "pngquant", "it makes the pictures small")
    take_ui(chromium)
    if sys.argv[1:] != ["ui"]:
        take(chromium)
    for path in (*UI_PAGES, STATUS_PAGE):
        quantise = [str(pngquant), "--force", "--output", str(path), str(COLOURS)]
        subprocess.run([*quantise, str(path)], check=True)  # noqa: S603 -- as it was found
        sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


def terminal_picture() -> str:
    """What a terminal shows of the commands in colour, as SVG that loads nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for command in COMMANDS:
            done = subprocess.run(  # noqa: S603 -- our own command
                [COMMAND, *command.split(), "--color", "always"],
                cwd=folder,
                env={**os.environ, "COLUMNS": str(COLUMNS)},
                capture_output=True,
                text=True,
                check=True,
            )
            console.print(Text(f"$ stream-dedup {command}", style="bold"))
            console.print(Text.from_ansi(done.stdout.rstrip("\n")))
            console.print()
    return console.export_svg(
        title="", code_format=TERMINAL_FORMAT, unique_id="terminal", font_aspect_ratio=FONT_RATIO
    )


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


NAMED = "the busiest"
"""What a rule calls a pattern in the pictures."""


def take_ui(chromium: Path) -> None:
    """The views of the web application, in the order of `UI_PAGES`."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        rules = f"{folder}/rules.toml"
        with running("ui", "--port", str(port), "--rules", rules, str(UI_LOG)):
            found = _read_whole(address)
            best = max(found, key=lambda each: sum(map(bool, each["counts"])))
            for body in _decisions(found, best):
                headers = {"Content-Type": "application/json"}
                to = Request(f"{address}/api/v1/sources/files/rules", body, headers)  # noqa: S310 -- ours
                urlopen(to).close()  # noqa: S310 -- ours
            _read_whole(address, NAMED)
            pages = (
                f"{address}/s/files", f"{address}/p/files/{best['id']}", f"{address}/r/files",
                f"{address}/two/files?id={best['id']}&id={_most_similar(address, best['id'])}",
                f"{address}/c/files", f"{address}/v/files",
            )  # fmt: skip
            for page, path in zip(pages, UI_PAGES, strict=True):
                picture(chromium, page, path, height=UI_HEIGHT)


def _most_similar(address: str, identity: str) -> str:
    """The pattern that shares most words with one."""
    with urlopen(f"{address}/api/v1/patterns/files/{identity}/neighbours") as answer:  # noqa: S310 -- ours
        return str(json.load(answer)["neighbours"][0]["pattern"]["id"])


def _read_whole(address: str, name: str = "") -> list[dict[str, Any]]:
    """Wait until the file is read, with a pattern of that name, and return its patterns."""
    found: dict[str, Any] = {}
    for _ in range(60):
        time.sleep(1)
        with suppress(OSError), urlopen(f"{address}/api/v1/sources/files/patterns") as answer:  # noqa: S310 -- ours
            found = json.load(answer)
            if not found["source"]["reading"] and any(
                each["name"] == name or not name for each in found["patterns"]
            ):
                break
    return list(found["patterns"])


def _decisions(found: list[dict[str, Any]], best: dict[str, Any]) -> list[bytes]:
    """Rules about some patterns, as somebody would make them."""
    others = [each["pattern"] for each in found if each is not best and "<" in each["pattern"]]
    rules = (
        {"kind": "mute", "patterns": [others[0]], "author": "bob", "reason": "expected at night"},
        {"kind": "never_merge", "patterns": others[1:3], "author": "ann",
         "reason": "two different problems"},
        {"kind": "name", "patterns": [best["pattern"]], "value": NAMED, "author": "ann",
         "reason": "as the runbook calls it"},
    )  # fmt: skip
    return [json.dumps(each).encode() for each in rules]


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


def picture(chromium: Path, url: str, path: Path, height: int = HEIGHT) -> None:
    """What Chromium shows of a page.

    Args:
        chromium: the browser.
        url: the page.
        path: the PNG that is written.
        height: of the window.
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
                f"--window-size={WIDTH},{height}",
                "--virtual-time-budget=4000",
                f"--screenshot={path}",
                url,
            ],
            check=True,
            timeout=120,
            capture_output=True,
        )


if __name__ == "__main__":
    main()

"""Find the fenced blocks of a page, run them, compare their output, and write it again.

A ``console`` block is a session. Lines that begin with ``$ `` are commands (a command that ends
with a backslash continues in the next line). The lines below are their output, including standard
error, without trailing blanks. ``...`` matches any text, as in doctests. All blocks of a page run
in one folder with copies of the files in ``docs/examples``.

A ``python`` block with prompts is a doctest, otherwise it is executed; the blocks of a page share
their names. ``sh``, ``toml`` and other blocks are not run.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"

TIMEOUT_S = 60
"""Commands on pages take a second or two; one that waits for input would never end."""

_OPTIONAL = ("jq",)
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = doctest.OutputChecker()


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        page: the file with the block.
        line: number of its first line, below the fence.
        language: the word after the fence.
        start: position of its text in the page.
        text: the text between the fences.
    """

    page: Path
    line: int
    language: str
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a session, and the output that the page shows for it."""

    command: str
    shown: str
    expected: str


def pages() -> list[Path]:
    """README and the other pages of the top folder, and every page in ``docs``."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match.start(2), match[2])
        for match in _FENCE.finditer(text)
    ]


def prepare(folder: Path) -> None:
    """Copy the example files to the folder in which a page's blocks run."""
    for path in EXAMPLES.iterdir():
        if not path.name.startswith("_"):
            shutil.copy(path, folder)


def steps(text: str) -> Iterator[Step]:
    """The steps of a ``console`` block."""
    shown: list[str] = []
    expected: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            if shown:
                yield _step(shown, expected)
            shown, expected = [line], []
        elif shown and not expected and shown[-1].endswith("\\\n"):
            shown.append(line)
        else:
            expected.append(line)
    if shown:
        yield _step(shown, expected)


def _step(shown: list[str], expected: list[str]) -> Step:
    text = "".join(shown)
    return Step(text.removeprefix("$ "), text, "".join(expected))


def missing(command: str) -> bool:
    """Whether a command needs an optional program that this machine does not have."""
    return any(name in command.split() and not shutil.which(name) for name in _OPTIONAL)


def run(command: str, folder: Path) -> str:
    """Run a command and return its output as a page shows it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603 -- the commands stand in our own pages
        ["/bin/bash", "-c", command],
        cwd=folder,
        env={
            "PATH": path,
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(folder),
            "STREAM_DEDUP_PURE_PYTHON": os.environ.get("STREAM_DEDUP_PURE_PYTHON", ""),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.decode("utf-8", "backslashreplace").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines).strip("\n") + "\n" if lines else ""


def says(expected: str, printed: str) -> bool:
    """Whether the output of a page matches what was printed."""
    return expected == printed or _OUTPUT.check_output(expected, printed, doctest.ELLIPSIS)


def renewed(page: Path, folder: Path) -> str:
    """The text of a page with present outputs in place of outdated ones.

    Outputs that contain ``...`` are not replaced.
    """
    text = page.read_text("utf-8")
    out: list[str] = []
    at = 0
    for block in blocks(page):
        if block.language != "console":
            continue
        out.append(text[at : block.start])
        for step in steps(block.text):
            if missing(step.command):
                out += step.shown, step.expected
                continue
            printed = run(step.command, folder)
            keep = says(step.expected, printed) or "..." in step.expected
            out += step.shown, step.expected if keep else printed
        at = block.start + len(block.text)
    return "".join(out) + text[at:]


def write(path: Path, text: str) -> None:
    """Write a file and print its name, unless it has this text already."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        print(f"{path.relative_to(ROOT)}: written again")  # noqa: T201 -- a command's output

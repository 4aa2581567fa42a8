"""The manual pages match the commands, and formatters accept them without a warning."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import click
import pytest

from docs.commands import commands, options
from docs.man import FOLDER, escaped, manual_pages
from stream_dedup.cli.main import cli
from tests.services.debian import find_program

TIMEOUT_S = 60
CONTROL = re.compile(r"\x1b\[[0-9;]*m|.\x08")


def formatted(page: Path) -> str:
    """A page as `man` shows it, each run of blanks as one."""
    groff = find_program("groff", "groff", "the manual pages are tried in groff")
    # -rLL: no line is broken, so that no word is; -b names the place of a warning.
    command = [str(groff), "-ww", "-b", "-man", "-Tutf8", "-rLL=9000n", str(page)]
    environment = {**os.environ, "GROFF_NO_SGR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(CONTROL.sub("", done.stdout).replace("\u2010", "-").split())


def test_they_are_up_to_date() -> None:
    there = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert manual_pages() == there, "run `make docs`"


@pytest.mark.parametrize(("name", "found"), list(commands(cli, "stream-dedup")))
def test_a_page_shows_every_option_and_example_without_a_warning(
    name: str, found: click.Command
) -> None:
    text = formatted(FOLDER / f"{name.replace(' ', '-')}.1")
    for option in options(found):
        assert all(each in text for each in option.opts)
        assert " ".join((option.help or "").split()) in text
    for line in (found.help or "").splitlines():
        assert " ".join(line.replace("\b", "").split()).removesuffix(".") in text
    if isinstance(found, click.Group):
        assert all(f"{name} {below}" in text for below in found.commands)


@pytest.mark.parametrize(
    "line", [".so /etc/passwd", "'br", "a\\fBb\\*(xx", "-- ~^`' \u2026 \u00d7", "\\", '.\\" gone']
)
def test_text_that_looks_like_roff_is_escaped(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.1"
    page.write_text(f".TH X 1\n.SH NAME\n{escaped(line)}\n.PP\nand on\n")
    assert f"NAME {line} and on" in formatted(page)

"""Outputs that cannot be written: every command says so in one line, with the same exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.command import run

COMMANDS = [
    ["config", "init", "--force", "-o"],
    ["dedup", "none.log", "--html"],
    ["dedup", "none.log", "--patterns-out"],
    ["find-all", "-d", "3", "-i", "none", "-o"],
    ["find-clusters", "-d", "3", "-i", "none", "-o"],
    ["rules", "export", "--rules", "/dev/null", "-o"],
    ["tune", "none.log", "--force", "-o"],
    ["vocabulary", "boilerplate", "none.txt", "--force", "-o"],
    ["vocabulary", "build", "none.txt", "--force", "-o"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_what_cannot_be_written_is_named_first(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, reason in (
        (tmp_path / "none" / "out", "No such file or directory"),
        (tmp_path / "file" / "out", "Not a directory"),
        (tmp_path, "Is a directory"),
    ):
        done = run(*command, place)
        expected = f"stream-dedup: {place}: cannot be written: {reason}\n"
        assert (done.code, done.out, done.err) == (1, b"", expected)

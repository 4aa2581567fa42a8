"""Groups of commands: what is said of a command that does not exist."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stream_dedup.cli.main import cli


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["dedp"], "No such command 'dedp'. Did you mean 'dedup'?"),
        (["rules", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["find"], "No such command 'find'. Did you mean 'find-all' or 'find-clusters'?"),
        (["frobnicate"], "No such command 'frobnicate'."),
        ([""], "No such command ''."),
    ],
)
def test_close_commands_are_named(typed: list[str], answer: str) -> None:
    done = CliRunner().invoke(cli, typed)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {answer}")

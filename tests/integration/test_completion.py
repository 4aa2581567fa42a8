"""Tab, in real shells: bash, zsh and fish complete commands, options, recipes and files."""

from __future__ import annotations

import fcntl
import os
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dedup.cli.completion import SHELLS
from tests.integration.command import COMMAND, TIMEOUT_S, run
from tests.services.debian import find_program

ARGUMENTS = {
    "bash": ("--norc", "--noprofile", "-i"),
    "zsh": ("-f", "-i"),
    "fish": ("--interactive",),
}
_ZSH = "unsetopt prompt_cr prompt_sp; bindkey -e; autoload -Uz compinit"
PREPARED = {
    "bash": 'bind "set enable-bracketed-paste off"; eval "$(stream-dedup completion bash)"',
    "zsh": f'{_ZSH}; compinit -u; eval "$(stream-dedup completion zsh)"',
    "fish": "stream-dedup completion fish | source",
    "zsh, installed": (
        f"mkdir ~/.zfunc; stream-dedup completion zsh > ~/.zfunc/_stream-dedup; {_ZSH};"
        " fpath+=~/.zfunc; compinit -u"
    ),
    "fish, installed": (
        "mkdir -p ~/.config/fish/completions;"
        " stream-dedup completion fish > ~/.config/fish/completions/stream-dedup.fish"
    ),
}
"""How the script is brought in: for the session, or where the shell finds it."""

TAB, ENTER, TO_THE_FRONT = "\t", "\r", "\x01"


class Typist:
    """Somebody who types at a shell, on a terminal of its own."""

    def __init__(self, way: str, folder: Path) -> None:
        shell = way.partition(",")[0]
        program = find_program(shell, shell, f"completion is tried in {shell}")
        self._ours, theirs = os.openpty()
        self._process = subprocess.Popen(
            [program, *ARGUMENTS[shell]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={
                "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(folder / "home"),
                "TERM": "xterm",
                "LC_ALL": "C.UTF-8",
            },
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 -- one call into the system
        )
        os.close(theirs)
        self._seen = ""
        self._way = way

    def prepare(self) -> None:
        """Load the completion, and wait until the shell reads keys."""
        self.type(f"{PREPARED[self._way]}; printf 'now%s\\n' ready{ENTER}")
        self.wait_for("nowready")

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str) -> str:
        """What came on the terminal, from the last time until `text`."""
        end = time.monotonic() + TIMEOUT_S
        while text not in self._seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come; came:\n{self._seen}"
            if select.select([self._ours], [], [], left)[0]:
                self._seen += os.read(self._ours, 65536).decode("utf-8", "replace")
        before, _, self._seen = self._seen.partition(text)
        return before

    def words(self, typed: str) -> list[str]:
        """The words of the line that `typed` becomes: it is printed instead of run."""
        self.type(f"{typed} END{TO_THE_FRONT}printf 'word=%s=\\n' {ENTER}")
        found: list[str] = re.findall(r"word=([^%\r\n]+)=", self.wait_for("word=END="))
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def typing(way: str, folder: Path) -> Iterator[Typist]:
    (folder / "home").mkdir()
    typist = Typist(way, folder)
    try:
        typist.prepare()
        yield typist
    finally:
        typist.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_commands_options_choices_recipes_and_files(
    shell: str, tmp_path: Path
) -> None:
    (tmp_path / "odd name.log").touch()
    (tmp_path / "wording.toml").touch()
    expected = {
        f"vocab{TAB} bu{TAB}": ["vocabulary", "build"],
        f"dedup --summ{TAB} 1s": ["dedup", "--summary-every", "1s"],
        f"dedup --emit an{TAB}": ["dedup", "--emit", "annotate"],
        f"dedup --recipe md{TAB}": ["dedup", "--recipe", "md5-128"],
        f"dedup --recipe wordin{TAB}": ["dedup", "--recipe", "wording.toml"],
        f"recipes show min{TAB}": ["recipes", "show", "minhash-n"],
        f"dedup odd{TAB}": ["dedup", "odd name.log"],
        f"config check --config wordi{TAB}": ["config", "check", "--config", "wording.toml"],
    }
    with typing(shell, tmp_path) as typist:
        found = {typed: typist.words(f"stream-dedup {typed}") for typed in expected}
    assert {typed: ["stream-dedup", *words] for typed, words in expected.items()} == found


@pytest.mark.parametrize("way", ["zsh, installed", "fish, installed"])
def test_a_script_that_the_shell_finds_serves_each_time(way: str, tmp_path: Path) -> None:
    with typing(way, tmp_path) as typist:
        found = [typist.words(f"stream-dedup vocab{TAB} bu{TAB}") for _ in range(2)]
    assert found == [["stream-dedup", "vocabulary", "build"]] * 2


@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_may_be_joined_to_its_option(shell: str, tmp_path: Path) -> None:
    # Bash splits words at "=", the others do not.
    with typing(shell, tmp_path) as typist:
        found = [typist.words(f"stream-dedup dedup --{typed}{TAB}") for typed in
                 ("recipe=md", "emit=an", "recipe=no-such")]  # fmt: skip
    assert found == [
        ["stream-dedup", "dedup", "--recipe=md5-128"],
        ["stream-dedup", "dedup", "--emit=annotate"],
        ["stream-dedup", "dedup", "--recipe=no-such"],
    ]


def test_another_shell_is_refused() -> None:
    done = run("completion", "tcsh")
    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err

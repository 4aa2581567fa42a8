"""The command ``stream-dedup``: its subcommands, exit codes, and error messages."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import sysconfig
import warnings
from typing import Any

import click

from stream_dedup._version import __version__
from stream_dedup.cli.group import Group
from stream_dedup.errors import ConfigError, RecipeError, RuleError, StreamDedupError
from stream_dedup.native import EXTENSIONS, PURE_PYTHON, extension

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class _ReaderGone(Exception):  # noqa: N818 -- not an error of ours
    """The output's reader is gone. For the system's own exception click would exit with 1."""


COMMANDS = {
    "backfill": "stream_dedup.cli.backfill:backfill",
    "compare": "stream_dedup.cli.explain:compare",
    "completion": "stream_dedup.cli.completion:completion",
    "config": "stream_dedup.cli.config:config",
    "dedup": "stream_dedup.cli.dedup:dedup",
    "diff": "stream_dedup.cli.diff:diff",
    "explain": "stream_dedup.cli.explain:explain",
    "find-all": "stream_dedup.cli.find:find_all",
    "find-clusters": "stream_dedup.cli.find:find_clusters",
    "fingerprint": "stream_dedup.cli.explain:fingerprint",
    "health": "stream_dedup.cli.health:health",
    "index": "stream_dedup.tools.index_inspector.command:index",
    "plan": "stream_dedup.cli.plan:plan",
    "produce": "stream_dedup.tools.load_generator.command:produce",
    "recipes": "stream_dedup.cli.recipes:recipes",
    "rules": "stream_dedup.cli.rules:rules",
    "run": "stream_dedup.cli.run:run",
    "tune": "stream_dedup.cli.tune:tune",
    "ui": "stream_dedup.ui.command:ui",
    "vocabulary": "stream_dedup.cli.vocabulary:vocabulary",
    "volume": "stream_dedup.cli.volume:volume",
}
"""The function of each command. Its module is imported when the command is used."""


class _Group(Group):
    """Imports commands when they are used, and raises `_ReaderGone` for a broken pipe."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- as click has it
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- as click has it
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    del param
    if wanted and not ctx.resilient_parsing:
        python = f"{platform.python_implementation()} {platform.python_version()}"
        where = sysconfig.get_platform()
        click.echo(f"stream-dedup {__version__} ({_kernel_in_use()}, {python}, {where})")
        ctx.exit()


def _kernel_in_use() -> str:
    if os.environ.get(PURE_PYTHON):
        return f"kernel in Python: {PURE_PYTHON} is set"
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # the line says it
        missing = [name for name in EXTENSIONS if extension(name) is None]
    if not missing:
        return "native kernel"
    if len(missing) == len(EXTENSIONS):
        return "kernel in Python: built without a C compiler"
    return f"native kernel without {' and '.join(missing)}"


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version, the kernel and the Python version, and exit.",
)
def cli() -> None:
    """Merge near-duplicate log lines and events as they stream by.

    \b
    stream-dedup dedup app.log                      first lines at once, repeats as counts
    tail -f app.log | stream-dedup dedup            the same, live
    stream-dedup explain "LINE A" "LINE B"          why two lines merge, or do not
    stream-dedup diff old.log new.log               what is new, gone or more frequent
    stream-dedup volume app.log                     which patterns take most bytes
    stream-dedup tune app.log                       the settings that matter on your own lines

    Exit codes: 0 success; 1 an input could not be read, or the output could not be written; 2 an
    option, recipe or configuration is wrong; 3 the two lines of explain do not merge; 129, 130 and
    143 ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM, but run and ui end with 0 then; 141 the reader
    of the output is gone. Those of diff are 0 no change, 1 changes, 2 trouble.
    """


def main() -> None:
    """Run the command and exit with its code."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 -- stays open to the end
    if sys.stdout is None:
        click.echo("stream-dedup: standard output is closed; send it to a file or pipe", err=True)
        sys.exit(EXIT_FAILED)
    # A terminal with another encoding gets escapes instead of an error.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if "_STREAM_DEDUP_COMPLETE" in os.environ:  # a shell asks: our classes serve it, not click's
        importlib.import_module("stream_dedup.cli.completion")
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except StreamDedupError as error:
        from stream_dedup.cli.terminal import note  # noqa: PLC0415 -- slow, and seldom needed

        note(str(error))
        wrong = isinstance(error, ConfigError | RecipeError | RuleError)
        code = EXIT_USAGE if wrong else EXIT_FAILED
    except _ReaderGone:
        code = EXIT_BROKEN_PIPE
    except OSError as error:
        click.echo(f"stream-dedup: cannot write the output: {error.strerror}", err=True)
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    try:
        sys.stdout.flush()
    except OSError:
        # The rest cannot be written; flushing it at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code if isinstance(code, int) else 0)

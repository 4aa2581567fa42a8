"""Write the generated parts of the documentation: ``python -m docs.generate``.

``docs/cli.md`` is made of the click commands; the outputs in the ``console`` blocks of all pages
are made by running their commands.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from docs.blocks import ROOT, pages, prepare, renewed
from stream_dedup.cli import main as command

CLI_PAGE = ROOT / "docs" / "cli.md"

HEAD = """\
<!-- Written by `make docs` from the commands themselves: change their help, not this page. -->

# The command `stream-dedup`

Standard output carries data only; messages, statistics and the progress bar go to standard error.

A **DURATION** is a number with a unit: `500ms`, `90s`, `5m`, `1h`, `2d`; or `off`. A **PATH**
leads to a JSON field: keys joined by dots (`user.name`), or a JSON pointer where keys hold dots
(`/a.b/c`). **RE2** is the syntax of the [RE2 library](https://github.com/google/re2/wiki/Syntax),
whose time is linear in the text; it has no look-around and no back-references. **NAME|FILE** is
the name of a [shipped recipe](recipes.md#shipped-recipes) or the path of a TOML file.
"""

EXIT_CODES = (
    ("0", "All went well. `explain`: the lines merge."),
    (
        str(command.EXIT_FAILED),
        "An input could not be read (the others were), or the output not written.",
    ),
    (str(command.EXIT_USAGE), "An option or a recipe is wrong; nothing was read."),
    ("3", "`explain`: the lines do not merge."),
    (
        str(command.EXIT_INTERRUPTED),
        "Interrupted (Ctrl-C). All that was read was written, final counts too.",
    ),
    (str(command.EXIT_BROKEN_PIPE), "The reader of the output went away, as in `\u2026 | head`."),
    ("129, 143", "Ended by SIGHUP, SIGTERM; all that was read was written, final counts too."),
)
"""What the command exits with, and when."""


def cli_page() -> str:
    """The text of ``docs/cli.md``."""
    parts = [HEAD, "## Exit codes\n", _table(("code", "meaning"), EXIT_CODES)]
    for name, found in commands(command.cli, "stream-dedup"):
        parts.append(f"## {name}\n")
        context = _context(found, name)
        parts.append(f"```sh\n{name} {' '.join(found.collect_usage_pieces(context))}\n```\n")
        parts += _prose(inspect.cleandoc(found.help or ""))
        rows = [_row(option) for option in options(found)]
        parts.append(_table(("option", "default", "meaning"), rows))
    return "\n".join(parts)


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """(full name, command) of a group and of all below it."""
    yield name, group
    for below, found in sorted(group.commands.items()):
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {below}")
        else:
            yield f"{name} {below}", found


def options(found: click.Command) -> list[click.Option]:
    """A command's options, ``--help`` included."""
    context = _context(found, "")
    return [each for each in found.get_params(context) if isinstance(each, click.Option)]


def _context(found: click.Command, name: str) -> click.Context:
    return click.Context(found, info_name=name, **command.cli.context_settings)


def _row(option: click.Option) -> tuple[str, str, str]:
    value = ""
    if isinstance(option.type, click.Choice):
        value = " " + "|".join(option.type.choices)
    elif not option.is_flag:
        number = isinstance(option.type, click.IntRange)
        value = f" {option.metavar or ('N' if number else option.type.name.upper())}"
    name = f"`{', '.join(option.opts)}{value}`"
    default = option.to_info_dict().get("default")
    given = not option.is_flag and not option.multiple and isinstance(default, str | int)
    shown = f"`{default}`" if given and default != "" else ""
    return name, shown, option.help or ""


def _prose(text: str) -> Iterator[str]:
    """A help text's paragraphs; those that keep their lines (after ``\\b``) as code."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```sh\n{paragraph.strip(chr(8) + chr(10))}\n```\n"
        else:
            yield paragraph.strip() + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def main() -> None:
    """Write what has changed."""
    _write(CLI_PAGE, cli_page())
    for page in pages():
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            _write(page, renewed(page, Path(folder)))


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        print(f"{path.relative_to(ROOT)}: written again")  # noqa: T201 -- tells what changed


if __name__ == "__main__":
    main()

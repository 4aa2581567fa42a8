"""Write the manual pages in ``docs/man`` from the click commands: ``python -m docs.man``.

There is one page for each command. click-man is not used because it joins the lines of examples and
drops lines that begin with a quote, which roff takes for a request.

A page is roff, with the macros of man(7). It has the content of ``--help`` and of ``docs/cli.md``:
usage, text, options; the page of a group lists its commands. Pages have no date, so they change
only with the commands and the version.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

import click

from docs.blocks import ROOT, write
from docs.commands import EXIT_CODES, commands, options, subcommands, usage, values_of
from stream_dedup import __version__
from stream_dedup.cli.main import cli

_SIGNS = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)
"""Escapes for signs that formatters would replace by dashes and curly quotes."""

FOLDER = ROOT / "docs" / "man"
PROGRAM = "stream-dedup"

ENVIRONMENT = {
    "STREAM_DEDUP_REDIS": "The URL of Redis, for the index commands and for a worker.",
    "STREAM_DEDUP_CONFIG": "A worker's configuration file, unless --config names one.",
    "STREAM_DEDUP__SECTION__KEY": "A setting of a worker, as in STREAM_DEDUP__KAFKA__GROUP_ID.",
    "STREAM_DEDUP_PURE_PYTHON": "If set to any value, the native kernel is not used.",
}
"""The variables that commands read, and their meanings."""


def manual_pages() -> Mapping[str, str]:
    """The text of each page by file name."""
    return {
        f"{name.replace(' ', '-')}.1": "\n".join(_page(name, found)) + "\n"
        for name, found in commands(cli, PROGRAM)
    }


def _page(name: str, found: click.Command) -> Iterator[str]:
    title = name.replace(" ", "-")
    first, _, rest = inspect.cleandoc(found.help or "").partition("\n\n")
    yield '.\\" Written by `make docs` from the commands themselves: change their help, not this.'
    yield f'.TH {title.upper()} 1 "" "{PROGRAM} {__version__}" "{PROGRAM} manual"'
    yield ".SH NAME"
    yield f"{escaped(title)} \\- {escaped(' '.join(first.split()).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f"\\fB{escaped(name)}\\fR {escaped(usage(name, found))}"
    if rest:
        yield ".SH DESCRIPTION"
        yield from _prose(rest)
    yield ".SH OPTIONS"
    for option in options(found):
        names = ", ".join(f"\\fB{escaped(each)}\\fR" for each in sorted(option.opts, key=len))
        value, default = values_of(option)
        yield from _item(f"{names} {escaped(value)}".rstrip(), option.help or "", default)
    below = subcommands(found) if isinstance(found, click.Group) else {}
    if isinstance(found, click.Group):
        yield ".SH COMMANDS"
        for each in below:
            text = inspect.cleandoc(below[each].help or "").partition("\n\n")[0]
            yield from _item(f"\\fB{escaped(name)} {escaped(each)}\\fR", " ".join(text.split()))
    if name == PROGRAM:
        yield ".SH EXIT STATUS"
        for code, text in EXIT_CODES:
            yield from _item(escaped(code), text.replace("`", ""))
        yield ".SH ENVIRONMENT"
        for variable, text in ENVIRONMENT.items():
            yield from _item(f"\\fB{escaped(variable)}\\fR", text)
    yield ".SH SEE ALSO"
    parents = [name.rpartition(" ")[0]] if " " in name else []
    others = [*parents, *(f"{name} {each}" for each in below)]
    yield ",\n".join(f"\\fB{escaped(each.replace(' ', '-'))}\\fR(1)" for each in others)


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a help text; preformatted ones (after ``\\b``) keep their lines."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        lines = paragraph.strip("\n").splitlines()
        if lines[0] != "\b":
            yield from map(escaped, lines)
            continue
        yield ".RS 2"
        yield ".nf"
        yield from map(escaped, lines[1:])
        yield ".fi"
        yield ".RE"


def _item(head: str, text: str, default: str = "") -> Iterator[str]:
    yield ".TP"
    yield head
    yield escaped(text)
    if default:
        yield f"Default: {escaped(default)}."


def escaped(line: str) -> str:
    """Escape a line of text, so that roff shows it and finds no request in it."""
    line = re.sub(
        r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", line.rstrip().translate(_SIGNS)
    )
    return f"\\&{line}" if line.startswith(".") else line


def main() -> None:
    """Write the pages that have changed, and delete those of removed commands."""
    made = manual_pages()
    for name, text in made.items():
        write(FOLDER / name, text)
    for gone in {path.name for path in FOLDER.iterdir()} - made.keys():
        (FOLDER / gone).unlink()


if __name__ == "__main__":
    main()

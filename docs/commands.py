"""Names, usage, options and exit codes of the commands, for the pages about them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from stream_dedup.cli import main as command

EXIT_CODES = (
    ("0", "Success. `explain`: the lines merge. `diff`: nothing changed."),
    (
        str(command.EXIT_FAILED),
        (
            "An input could not be read (the others were), or the output could not be written. "
            "`diff`: something changed."
        ),
    ),
    (
        str(command.EXIT_USAGE),
        (
            "An option, a recipe or the configuration is wrong; nothing was read. "
            "`diff`: or an input could not be read, or the output could not be written."
        ),
    ),
    ("3", "`explain`: the lines do not merge."),
    (
        str(command.EXIT_INTERRUPTED),
        "Interrupted (Ctrl-C). All output was written, final counts too.",
    ),
    (str(command.EXIT_BROKEN_PIPE), "The reader of the output ended, as in `\u2026 | head`."),
    ("129, 143", "Ended by SIGHUP, SIGTERM; all output was written, final counts too."),
)
"""The exit codes of the command, and their meanings."""


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name, sorted."""
    context = _context(group, "")
    found = {
        name: group.get_command(context, name) for name in sorted(group.list_commands(context))
    }
    return {name: command for name, command in found.items() if command is not None}


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """The (full name, command) pairs of a group and of all its commands, recursively."""
    yield name, group
    for below, found in subcommands(group).items():
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {below}")
        else:
            yield f"{name} {below}", found


def options(found: click.Command) -> list[click.Option]:
    """The options of a command, including ``--help``."""
    context = _context(found, "")
    return [each for each in found.get_params(context) if isinstance(each, click.Option)]


def usage(name: str, found: click.Command) -> str:
    """The usage text that follows a command's full name."""
    return " ".join(found.collect_usage_pieces(_context(found, name)))


def values_of(option: click.Option) -> tuple[str, str]:
    """The placeholder for an option's value, and its default; empty if it has none."""
    value = ""
    if isinstance(option.type, click.Choice):
        value = "|".join(option.type.choices)
    elif not option.is_flag:
        number = isinstance(option.type, click.IntRange)
        value = option.metavar or ("N" if number else option.type.name.upper())
    default = option.to_info_dict().get("default")
    given = not option.is_flag and not option.multiple and isinstance(default, str | int)
    return value, str(default) if given else ""


def _context(found: click.Command, name: str) -> click.Context:
    return click.Context(found, info_name=name, **command.cli.context_settings)

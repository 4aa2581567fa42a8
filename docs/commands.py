"""What the pages about commands are made of: each command's name, usage, options, exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from stream_dedup.cli import main as command

EXIT_CODES = (
    ("0", "All went well. `explain`: the lines merge."),
    (
        str(command.EXIT_FAILED),
        "An input could not be read (the others were), or the output not written.",
    ),
    (
        str(command.EXIT_USAGE),
        "An option, a recipe or the configuration is wrong; nothing was read.",
    ),
    ("3", "`explain`: the lines do not merge."),
    (
        str(command.EXIT_INTERRUPTED),
        "Interrupted (Ctrl-C). All that was read was written, final counts too.",
    ),
    (str(command.EXIT_BROKEN_PIPE), "The reader of the output went away, as in `\u2026 | head`."),
    ("129, 143", "Ended by SIGHUP, SIGTERM; all that was read was written, final counts too."),
)
"""What the command exits with, and when."""


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """A group's commands by name, sorted."""
    context = _context(group, "")
    found = {
        name: group.get_command(context, name) for name in sorted(group.list_commands(context))
    }
    return {name: command for name, command in found.items() if command is not None}


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """(full name, command) of a group and of all below it."""
    yield name, group
    for below, found in subcommands(group).items():
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {below}")
        else:
            yield f"{name} {below}", found


def options(found: click.Command) -> list[click.Option]:
    """A command's options, ``--help`` included."""
    context = _context(found, "")
    return [each for each in found.get_params(context) if isinstance(each, click.Option)]


def usage(name: str, found: click.Command) -> str:
    """What is written behind a command's full name."""
    return " ".join(found.collect_usage_pieces(_context(found, name)))


def values_of(option: click.Option) -> tuple[str, str]:
    """What an option takes, and its default; each empty if there is none to tell."""
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

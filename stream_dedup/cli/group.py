"""The class of commands that have subcommands."""

from __future__ import annotations

import click


class Group(click.Group):
    """Lists its commands with their whole first sentences; click would cut them to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(200)) for name, each in found if each]
            )

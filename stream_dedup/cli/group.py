"""The class of commands that have subcommands."""

from __future__ import annotations

from difflib import get_close_matches

import click


class Group(click.Group):
    """Lists its commands with their whole first sentences; click would cut them to a line.

    For a command that does not exist it names the closest ones.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (ctx.resilient_parsing or name in (names := self.list_commands(ctx))):
            begun = [each for each in names if name and each.startswith(name)]
            close = begun or get_close_matches(name, names)
            if close and not name.startswith("-"):
                meant = " or ".join(map(repr, close))
                ctx.fail(f"No such command {name!r}. Did you mean {meant}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(200)) for name, each in found if each]
            )

"""``stream-dedup completion``: completes commands, options, recipes and files in a shell.

At each Tab the shell calls a function, which runs ``stream-dedup`` with the typed words in the
environment; click prints the possible completions. The command prints that function, which is
click's. `complete_file` and `complete_recipe` are for parameters whose type does not define their
completions. File names are left to the shell, which handles ``~``, blanks and quotes.
"""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from stream_dedup.features.recipe import shipped

SHELLS = ("bash", "zsh", "fish")

PROGRAM = "stream-dedup"
VARIABLE = "_STREAM_DEDUP_COMPLETE"
"""The environment variable that asks click for completions; follows from the program's name."""


@add_completion_class
class _BashComplete(BashComplete):
    """Bash splits ``--recipe=logs`` into three words; click takes the second for the value."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        pairs = zip(["", *args], args, strict=False)
        return [word for last, word in pairs if word != "=" or last[:2] != "--"], incomplete


@add_completion_class
class _ZshComplete(ZshComplete):
    """Zsh replaces all of ``--recipe=lo`` by the completion, but click returns only the value.

    Also, zsh runs an autoloaded file at each call of its function. At the second Tab click's script
    believes that it is being sourced and completes nothing; the function's name decides better.
    """

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", '"$funcstack[1]" == "_%(prog_name)s"'
    )

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _joined(super().get_completions(args, incomplete), incomplete)


@add_completion_class
class _FishComplete(FishComplete):
    """Fish, like zsh, replaces the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _joined(super().get_completions(args, incomplete), incomplete)


def _joined(found: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Put the option before each completion, where it is part of the word."""
    option, equals, _ = incomplete.partition("=")
    if not equals or not option.startswith("--"):
        return found
    values = [item.value for item in found if item.type == "plain"]
    return [CompletionItem(f"{option}={value}") for value in values]


def complete_file(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete any file."""
    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def complete_recipe(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete shipped recipes and files."""
    # Files first: bash drops the completions that come before them.
    names = [CompletionItem(name) for name in shipped() if name.startswith(incomplete)]
    return [*complete_file(ctx, param, incomplete), *names]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="|".join(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes this command in a shell.

    The Tab key then completes commands, options, choices, shipped recipes and files. Install the
    script once, with one of these (bash needs the package bash-completion):

    \b
    stream-dedup completion bash > ~/.local/share/bash-completion/completions/stream-dedup
    stream-dedup completion zsh > ~/.zfunc/_stream-dedup     (~/.zfunc in $fpath)
    stream-dedup completion fish > ~/.config/fish/completions/stream-dedup.fish

    \b
    eval "$(stream-dedup completion bash)"          for this session only
    """
    made = get_completion_class(shell)
    assert made is not None, shell
    click.echo(made(ctx.find_root().command, {}, PROGRAM, VARIABLE).source(), nl=False)

"""``stream-dedup completion``: what makes a shell complete commands, options, recipes and files.

At each press of Tab a shell calls a function, which runs ``stream-dedup`` with the words typed so
far in its environment; click answers with what may follow. This prints the function, click's own;
and it says what may follow where a parameter's type alone cannot tell: `complete_file` and
`complete_recipe`, for the parameters that take one.

Names of files are left to the shell, which knows about ``~``, blanks and quotes.
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
"""Under which click looks for what a shell asks; it follows from the program's name."""


@add_completion_class
class _BashComplete(BashComplete):
    """Bash cuts ``--recipe=logs`` into three words; click takes the second for the value."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        before = ["", *args]
        cut = [word == "=" and last[:2] == "--" for last, word in zip(before, args, strict=False)]
        return [word for word, off in zip(args, cut, strict=True) if not off], incomplete


@add_completion_class
class _ZshComplete(ZshComplete):
    """Zsh puts what it is told in the place of ``--recipe=lo``, of which click leaves half out.

    And it loads a function from a file by running the file, each time: at the second Tab click's
    script takes itself for one that is sourced, and completes nothing. The function's name tells.
    """

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", '"$funcstack[1]" == "_%(prog_name)s"'
    )

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _joined(super().get_completions(args, incomplete), incomplete)


@add_completion_class
class _FishComplete(FishComplete):
    """Fish, as zsh."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _joined(super().get_completions(args, incomplete), incomplete)


def _joined(found: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """What was found, with the option before it where that is part of the word."""
    option, equals, _ = incomplete.partition("=")
    if not equals or not option.startswith("--"):
        return found
    values = [item.value for item in found if item.type == "plain"]
    return [CompletionItem(f"{option}={value}") for value in values]


def complete_file(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Any file."""
    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def complete_recipe(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shipped recipes; files too, or, in bash, where no recipe is meant."""
    # Bash forgets what came before a file.
    names = [CompletionItem(name) for name in shipped() if name.startswith(incomplete)]
    return [*complete_file(ctx, param, incomplete), *names]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="|".join(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete this command.

    Tab then completes commands, options, values to choose from, shipped recipes and files. Where
    the script goes, once (bash finds it there if the package bash-completion is installed):

    \b
    stream-dedup completion bash > ~/.local/share/bash-completion/completions/stream-dedup
    stream-dedup completion zsh > ~/.zfunc/_stream-dedup     (~/.zfunc in $fpath)
    stream-dedup completion fish > ~/.config/fish/completions/stream-dedup.fish

    \b
    eval "$(stream-dedup completion bash)"          for this session alone
    """
    made = get_completion_class(shell)
    assert made is not None, shell
    click.echo(made(ctx.find_root().command, {}, PROGRAM, VARIABLE).source(), nl=False)

"""Measures how many messages of campaigns are found, and what is wrongly taken for them.

    python measure.py                   # of generated messages
    python measure.py sms.txt           # of a file of lines label<TAB>text
    python measure.py --steps           # what each step of folding buys

A message counts as *found* if its cluster is reported, before or after the message. Of what is
found the share labelled spam is the *precision*; of what is labelled spam the share found is the
*recall*. Below stand recall by the way a campaign is disguised, and, by the sort of good message,
the share wrongly found. "At once" is the share of spam whose cluster was reported when it came: the
first messages of a campaign cannot be.

A file's lines have neither sender nor time, so each counts as a sender of its own, and all as sent
now: of the rule only size and letters are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
from campaigns import (
    HERE,
    Campaigns,
    Decider,
    Message,
    Reader,
    Rule,
    recipe_of,
    rule_of,
    rule_options,
    shown,
)
from generate import generated, kinds, size_options

from stream_dedup import Recipe
from stream_dedup.clock import US_PER_S
from stream_dedup.errors import StreamDedupError
from stream_dedup.features.recipe import replace

OWN = str(HERE / "spam.toml")
STEPS = ("characters", "folding:homoglyphs", "folding:squeezed", "folding:folded")
BATCH = 500


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one recipe.

    Attributes:
        spam: kind → messages labelled spam.
        ham: kind → the others.
        found: (whether spam, kind) → messages found.
        at_once: of the spam, messages whose cluster had been reported.
    """

    spam: Counter[str]
    ham: Counter[str]
    found: Counter[tuple[bool, str]]
    at_once: int

    @property
    def precision(self) -> float | None:
        """Of what was found, the share that is spam."""
        right = sum(self.found[True, kind] for kind in self.spam)
        return share(right, self.found.total())

    @property
    def recall(self) -> float | None:
        """Of the spam, the share that was found."""
        return share(sum(self.found[True, kind] for kind in self.spam), self.spam.total())


def share(part: int, whole: int) -> float | None:
    """A share; None of nothing."""
    return part / whole if whole else None


def measured(
    messages: Sequence[Message], recipe: Recipe, rule: Rule, spam_label: str, seed: int
) -> Found:
    """Look for campaigns among labelled messages."""
    campaigns, decider = Campaigns(rule), Decider(recipe, rule.window_s, seed)
    members: list[tuple[str, Message]] = []
    reported: set[str] = set()
    at_once = 0
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        for name, message in zip(decider.clusters(batch), batch, strict=True):
            members.append((name, message))
            at_once += name in reported and message.label == spam_label
            if name and campaigns.see(name, message):
                reported.add(name)
    spam, ham = Counter[str](), Counter[str]()
    found = Counter[tuple[bool, str]]()
    for name, message in members:
        is_spam = message.label == spam_label
        (spam if is_spam else ham)[message.kind] += 1
        found[is_spam, message.kind] += name in reported
    return Found(spam, ham, found, at_once)


def rows(results: Sequence[Found]) -> Iterator[tuple[str, list[float | None]]]:
    """The table: names, and a share for each result."""
    first = results[0]
    yield "precision", [each.precision for each in results]
    yield "recall", [each.recall for each in results]
    yield "at once", [share(each.at_once, each.spam.total()) for each in results]
    order = {kind: number for number, kind in enumerate(kinds())}
    for kind in sorted(filter(None, first.spam), key=lambda kind: order.get(kind, len(order))):
        found = [share(each.found[True, kind], each.spam[kind]) for each in results]
        yield f"  spam, {kind}", found
    for kind in sorted(filter(None, first.ham)):
        found = [share(each.found[False, kind], each.ham[kind]) for each in results]
        yield f"  ham, {kind}", found


def table(names: Sequence[str], results: Sequence[Found]) -> str:
    """The rows as text."""
    lines = [" " * 24 + "".join(f"{name:>12}" for name in names)]
    for name, values in rows(results):
        cells = "".join(f"{'-' if value is None else f'{value:.3f}':>12}" for value in values)
        lines.append(f"{name:24}{cells}")
    return "\n".join(lines)


def made(seed: int, ham: int, each: int, messages: int) -> list[Message]:
    """Generated messages."""
    return [
        Message(one.text, one.sender, round(one.time * US_PER_S), one.label, one.kind)
        for one in generated(seed, ham, each, messages)
    ]


def labelled(paths: Sequence[str]) -> list[Message]:
    """The messages of files that have a label.

    Raises:
        click.UsageError: there are none.
    """
    reader = Reader(paths)
    try:
        messages = [message for batch in reader.batches() for message in batch if message.label]
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error
    if not messages:
        named = ", ".join(paths)
        raise click.UsageError(f"{named}: no line has a label; write label<TAB>text")
    return messages


@click.command(help=shown(__doc__))
@click.argument("paths", nargs=-1, metavar="[FILE]...")
@click.option("--spam-label", default="spam", show_default=True, help="Any other label is ham.")
@click.option("--recipe", default=OWN, metavar="NAME|FILE", help="spam.toml, if not given.")
@click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(0, 63),
    default=(9, 12, 15),
    show_default=True,
    help="Largest distance that counts as near. Repeatable.",
)
@click.option("--steps", is_flag=True, help="One column a step of folding, at the recipe's own k.")
@size_options
@rule_options
def main(
    paths: tuple[str, ...],
    spam_label: str,
    recipe: str,
    ks: tuple[int, ...],
    steps: bool,
    seed: int,
    ham: int,
    each: int,
    messages: int,
    **rule: int,
) -> None:
    """Print the table."""
    checked, own = rule_of(**rule), recipe_of(recipe)
    given = labelled(paths) if paths else made(seed, ham, each, messages)
    try:
        if steps:
            names = [step.removeprefix("folding:") for step in STEPS]
            recipes = [replace(own, features__extractor=step, features__ngram=3) for step in STEPS]
        else:
            names = [f"k = {k}" for k in ks]
            recipes = [replace(own, match__k=k) for k in ks]
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error
    spam = sum(message.label == spam_label for message in given)
    click.echo(f"{len(given):,} messages, {spam:,} of them spam\n")
    found = [measured(given, each_recipe, checked, spam_label, seed) for each_recipe in recipes]
    click.echo(table(names, found))


if __name__ == "__main__":
    main()

"""Measures how many messages of campaigns are found, and what is wrongly taken for them.

    python measure.py                   # of generated messages
    python measure.py sms.txt           # of a file of lines label<TAB>text

A message counts as *found* if its campaign has an alert, before or after the message. Of what is
found the share labelled spam is the *precision*; of what is labelled spam the share found is the
*recall*. Below stand recall by the way a campaign is disguised, and, by the sort of good message,
the share wrongly found. "At once" is the share of spam whose campaign had its alert when it came:
the first messages of a campaign cannot be. "Unmixed" is the share of the spam found that stands
under one alert with the campaign of which most messages there are. The columns are the recipe
alone, and with the wider search; figures are means over ``--keys`` keys of the hashes.

A file's lines have neither sender nor time, so each counts as a sender of its own, and all as sent
now: of the rule only size and letters are left.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import click
from campaigns import Campaign, Campaigns, Decider, Rule, recipe_of, rule_of, rule_options
from generate import generated, kinds, size_options
from messages import Message, Reader, shown
from wider import TEXTS

from stream_dedup import Recipe
from stream_dedup.clock import US_PER_S
from stream_dedup.errors import StreamDedupError
from stream_dedup.fingerprint.siphash import KEY_BYTES, HashKey

BATCH = 500
COLUMNS = {"recipe": 0, "and wider": TEXTS}
"""Columns, and how many texts the wider search keeps."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found under one key.

    Attributes:
        spam: kind → messages labelled spam.
        ham: kind → the others.
        found: (whether spam, kind) → messages found.
        at_once: of the spam, messages whose campaign had its alert.
        unmixed: of the spam found, the share that is of the greatest campaign under its alert; None
            if nobody says which campaign it was made for.
    """

    spam: Counter[str]
    ham: Counter[str]
    found: Counter[tuple[bool, str]]
    at_once: int
    unmixed: float | None

    def shares(self) -> Iterator[tuple[str, float | None]]:
        """The rows of the table: names and shares."""
        right = sum(self.found[True, kind] for kind in self.spam)
        yield "precision", share(right, self.found.total())
        yield "recall", share(right, self.spam.total())
        yield "at once", share(self.at_once, self.spam.total())
        yield "unmixed", self.unmixed
        order = {kind: number for number, kind in enumerate(kinds())}
        for kind in sorted(filter(None, self.spam), key=lambda kind: order.get(kind, len(order))):
            yield f"  spam, {kind}", share(self.found[True, kind], self.spam[kind])
        for kind in sorted(filter(None, self.ham)):
            yield f"  ham, {kind}", share(self.found[False, kind], self.ham[kind])


def share(part: int, whole: int) -> float | None:
    """A share; None of nothing."""
    return part / whole if whole else None


def measured(
    messages: Sequence[Message], recipe: Recipe, rule: Rule, spam_label: str, texts: int, seed: int
) -> Found:
    """Look for campaigns among labelled messages."""
    key = HashKey(random.Random(seed).randbytes(KEY_BYTES))  # noqa: S311 -- repeatable, no secret
    campaigns, decider = Campaigns(rule, key, texts=texts), Decider(recipe, rule.window_s, key)
    members: list[tuple[Campaign | None, Message]] = []
    alerted: set[Campaign] = set()
    at_once = 0
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        for name, message in zip(decider.clusters(batch), batch, strict=True):
            campaign = campaigns.see(name, message) if name else None
            members.append((campaign, message))
            if campaign is not None and campaign.alerted:
                at_once += campaign in alerted and message.label == spam_label
                alerted.add(campaign)
    spam, ham = Counter[str](), Counter[str]()
    found = Counter[tuple[bool, str]]()
    under = defaultdict[Campaign, Counter[int]](Counter)
    for campaign, message in members:
        is_spam = message.label == spam_label
        (spam if is_spam else ham)[message.kind] += 1
        found[is_spam, message.kind] += campaign in alerted
        if campaign in alerted and message.campaign is not None:
            under[campaign][message.campaign] += 1
    greatest = sum(max(counts.values()) for counts in under.values())
    unmixed = share(greatest, sum(counts.total() for counts in under.values()))
    return Found(spam, ham, found, at_once, unmixed)


def table(columns: Sequence[Sequence[Found]]) -> str:
    """Rows of shares, a column for each of `COLUMNS`, each the mean of several results."""
    lines = [" " * 24 + "".join(f"{name:>12}" for name in COLUMNS)]
    rows = [[dict(found.shares()) for found in column] for column in columns]
    for name in rows[0][0]:
        cells = []
        for column in rows:
            shares = [value for row in column if (value := row[name]) is not None]
            cells.append(f"{fmean(shares):.3f}" if shares else "-")
        lines.append(f"{name:24}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def made(which: str, seed: int, ham: int, each: int, messages: int) -> list[Message]:
    """Generated messages."""
    return [
        Message(one.text, one.sender, round(one.time * US_PER_S), one.label, one.kind, one.campaign)
        for one in generated(which, seed, ham, each, messages)
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
@click.option(
    "--recipe", default="text", show_default=True, metavar="NAME|FILE", help="What counts as near."
)
@click.option(
    "--keys",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Repeat with so many keys, and so many generated streams.",
)
@size_options
@rule_options
def main(
    paths: tuple[str, ...],
    spam_label: str,
    recipe: str,
    keys: int,
    which: str,
    seed: int,
    ham: int,
    each: int,
    messages: int,
    **rule: int,
) -> None:
    """Print the table."""
    checked, own = rule_of(**rule), recipe_of(recipe)
    given = labelled(paths) if paths else []
    columns: list[list[Found]] = [[] for _ in COLUMNS]
    for number in range(seed, seed + keys):
        if not paths:
            given = made(which, number, ham, each, messages)
        if number == seed:
            spam = sum(message.label == spam_label for message in given)
            click.echo(f"{len(given):,} messages, {spam:,} of them spam\n")
        for column, texts in zip(columns, COLUMNS.values(), strict=True):
            column.append(measured(given, own, checked, spam_label, texts, number))
    click.echo(table(columns))


if __name__ == "__main__":
    main()

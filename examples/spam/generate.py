"""Makes labelled messages to measure by: what people send, and campaigns among it.

    python generate.py --seed 1 > messages.jsonl

The same seed gives the same messages. The label says how a message was *made*, never what a program
would say of it. Good messages repeat by chance, as real ones do, and in the ways that are hard:
one short text from many people, newsletters, answers with the question below them, chain letters,
notices of a shop's branches. A campaign is a text of three parts with other names, amounts and
links each time; two campaigns share one part at most. Each is disguised by one edit at one
strength, by other chances in every message:

    homoglyphs  letters become letters of other scripts that look alike
    spacing     a space goes between two letters
    noise       words that have nothing to do with it are put in
    leetspeak   letters become digits and signs

The strength is the share of places at which that happens. The disguises stand in ``words.toml``.
They are not taken from what ``folding.py`` undoes: it knows some of them and others not, as it
would be with real ones.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click
import msgspec
from campaigns import HERE, iso, shown

START_S = 1_767_600_000
"""The morning of 2026-01-05, UTC."""
HOURS = 6
PLAIN = "plain"
STRENGTHS = (0.1, 0.25, 0.5)
CAMPAIGN_SENDERS = 15


class Words(msgspec.Struct, frozen=True):
    """The lists of ``words.toml``, which says what they are."""

    openings: list[str]
    offers: list[str]
    closings: list[str]
    announcements: list[str]
    chains: list[str]
    notice: str
    short: list[str]
    names: list[str]
    who: list[str]
    did: list[str]
    what: list[str]
    when: list[str]
    asides: list[str]
    topics: list[str]
    lookalikes: dict[str, str]
    leet: dict[str, list[str]]


WORDS = msgspec.toml.decode((HERE / "words.toml").read_bytes(), type=Words)


class Made(NamedTuple):
    """A message, and what it was made as: label and kind."""

    time: float
    sender: str
    text: str
    label: str
    kind: str
    campaign: int | None = None

    def json(self) -> bytes:
        """It as a JSON line."""
        shaped = self._asdict() | {"time": iso(round(self.time * 1_000_000))}
        return msgspec.json.encode(shaped) + b"\n"


# ------------------------------------------------------------ edits


def homoglyphs(text: str, share: float, chance: random.Random) -> str:
    """Put look-alikes from other scripts in the place of letters."""
    return "".join(
        chance.choice(WORDS.lookalikes[c])
        if c in WORDS.lookalikes and chance.random() < share
        else c
        for c in text
    )


def spacing(text: str, share: float, chance: random.Random) -> str:
    """Put spaces between letters."""
    return re.sub(
        r"(?<=[A-Za-z])(?=[A-Za-z])", lambda _: " " if chance.random() < share else "", text
    )


def noise(text: str, share: float, chance: random.Random) -> str:
    """Put other words between words."""
    out: list[str] = []
    for word in text.split(" "):
        out.append(word)
        if chance.random() < share:
            out.append(chance.choice(_ANY_WORDS))
    return " ".join(out)


def leetspeak(text: str, share: float, chance: random.Random) -> str:
    """Put digits and signs in the place of letters."""
    return "".join(
        chance.choice(WORDS.leet[c.lower()])
        if c.lower() in WORDS.leet and chance.random() < share
        else c
        for c in text
    )


EDITS: dict[str, Callable[[str, float, random.Random], str]] = {
    "homoglyphs": homoglyphs,
    "spacing": spacing,
    "noise": noise,
    "leetspeak": leetspeak,
}


_ANY_WORDS = sorted(
    {word for part in (*WORDS.who, *WORDS.did, *WORDS.what, *WORDS.asides) for word in part.split()}
)

# ------------------------------------------------------------ campaigns


def kinds() -> list[str]:
    """The kinds of campaigns: plain, and each edit at each strength."""
    return [PLAIN, *(f"{edit} {strength:g}" for edit in EDITS for strength in STRENGTHS)]


def templates(each: int) -> Iterator[tuple[tuple[str, str, str], str]]:
    """The parts of each campaign's text, and its kind.

    Two campaigns share one part at most: as the number of parts is a prime, two different ones of
    the sums below agree for no two campaigns.

    Args:
        each: how many of a kind, 3 at most.
    """
    parts = len(WORDS.openings)
    for row in range(each):
        for column, kind in enumerate(kinds()):
            opening = WORDS.openings[column]
            offer = WORDS.offers[(column + row) % parts]
            closing = WORDS.closings[(column + 2 * row) % parts]
            yield (opening, offer, closing), kind


def campaigns(each: int, messages: int, chance: random.Random) -> Iterator[Made]:
    """Campaigns of all kinds.

    Args:
        each: how many of a kind, 3 at most.
        messages: of each campaign.
        chance: what happens.
    """
    for number, (parts, kind) in enumerate(templates(each)):
        yield from _campaign(" ".join(parts), kind, number, messages, chance)


def _campaign(
    template: str, kind: str, number: int, messages: int, chance: random.Random
) -> Iterator[Made]:
    edit, _, strength = kind.partition(" ")
    begin_s = START_S + chance.uniform(0, (HOURS - 1) * 3600)
    lasts_s = chance.uniform(300, 1500)
    senders = [_address(chance) for _ in range(CAMPAIGN_SENDERS)]
    domains = [f"{_letters(8, chance)}.example" for _ in range(4)]
    for _ in range(messages):
        text = template.format(
            name=chance.choice(WORDS.names),
            amount=f"${chance.randint(2, 95) * 10}",
            hours=chance.choice((12, 24, 36, 48, 72)),
            link=f"https://{chance.choice(domains)}/{_letters(6, chance)}",
        )
        if edit != PLAIN:
            text = _around_link(text, lambda part: EDITS[edit](part, float(strength), chance))
        time_s = begin_s + chance.uniform(0, lasts_s)
        yield Made(time_s, chance.choice(senders), text, "spam", kind, number)


def _around_link(text: str, edited: Callable[[str], str]) -> str:
    """The text edited, its link left alone: it has to work."""
    head, link, rest = re.split(r"(https://\S+)", text)
    return edited(head) + link + edited(rest)


# ------------------------------------------------------------ what people send


def good(count: int, chance: random.Random) -> Iterator[Made]:
    """Good messages: chat and short ones by number, and the rest in proportion."""
    people = [_address(chance) for _ in range(max(20, count // 5))]
    for _ in range(count * 7 // 10):
        yield Made(_any_time(chance), chance.choice(people), _chat(chance), "ham", "chat")
    weights = [1 / rank for rank in range(1, len(WORDS.short) + 1)]
    for _ in range(count * 3 // 10):
        text = chance.choices(WORDS.short, weights)[0]
        yield Made(_any_time(chance), chance.choice(people), text, "ham", "short")
    some = max(12, count // 400)
    for number in range(3):
        yield from _newsletter(4 * some, chance)
        copies = (number + 1) * some
        yield from _burst(WORDS.chains[number], copies, people, "chain", chance)
        yield from _replies(WORDS.announcements[number], copies, people, chance)
    yield from _notices(4 * some, chance)


def _chat(chance: random.Random) -> str:
    sentences = []
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        pick = chance.choice
        who, did, what = pick(WORDS.who), pick(WORDS.did), pick(WORDS.what)
        sentences.append(
            pick(
                (
                    f"{who} {did} {what} {pick(WORDS.when)}, {pick(WORDS.asides)}",
                    f"{pick(WORDS.asides)}: {who} {did} {what}",
                    f"{pick(WORDS.when)} {who} {did} {what} and {pick(WORDS.what)}",
                    f"did you hear that {who} {did} {what}? {pick(WORDS.asides)}",
                    f"{pick(WORDS.names)} says {who} {did} {what}, {pick(WORDS.asides)}",
                )
            )
        )
    return ". ".join(sentences)


def _newsletter(count: int, chance: random.Random) -> Iterator[Made]:
    """One sender to many, at once."""
    sender = _address(chance)
    items = "; ".join(
        f"{topic} on the {chance.randint(2, 28)}th" for topic in chance.sample(WORDS.topics, 6)
    )
    begin_s = _any_time(chance)
    for _ in range(count):
        text = f"Dear {chance.choice(WORDS.names)}, coming up in your town: {items}. Unsubscribe:"
        link = f"https://town.example/u/{_letters(10, chance)}"
        yield Made(begin_s + chance.uniform(0, 120), sender, f"{text} {link}", "ham", "newsletter")


def _burst(
    text: str, count: int, people: list[str], kind: str, chance: random.Random
) -> Iterator[Made]:
    begin_s, lasts_s = _any_time(chance), chance.uniform(600, 7200)
    for sender in chance.choices(people, k=count):
        yield Made(begin_s + chance.uniform(0, lasts_s), sender, text, "ham", kind)


def _replies(text: str, count: int, people: list[str], chance: random.Random) -> Iterator[Made]:
    for made in _burst(text, count, people, "reply", chance):
        remark = chance.choice((*WORDS.short, _chat(chance), _chat(chance)))
        yield made._replace(text=f"{remark} > {text}")


def _notices(count: int, chance: random.Random) -> Iterator[Made]:
    branches = [f"branch-{number}@shop.example" for number in range(1, 9)]
    begin_s = _any_time(chance)
    for _ in range(count):
        hour = chance.randint(8, 17)
        text = WORDS.notice.format(
            order=chance.randint(100_000, 999_999),
            day=chance.choice(("Monday", "Tuesday", "Wednesday")),
            hour=hour,
            later=hour + 2,
            link=f"https://shop.example/t/{_letters(9, chance)}",
        )
        sent_s = begin_s + chance.uniform(0, 1800)
        yield Made(sent_s, chance.choice(branches), text, "ham", "notice")


def _any_time(chance: random.Random) -> float:
    return START_S + chance.uniform(0, HOURS * 3600)


def _letters(count: int, chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijkmnopqrstuvwxyz", k=count))


def _address(chance: random.Random) -> str:
    return f"{chance.choice(WORDS.names).lower()}.{_letters(4, chance)}@mail.example"


def generated(seed: int, ham: int, each: int, messages: int) -> list[Made]:
    """All messages, by time.

    >>> generated(1, 100, 1, 12) == generated(1, 100, 1, 12)
    True
    """
    chance = random.Random(seed)  # noqa: S311 -- reproducible data, not secrets
    return sorted([*good(ham, chance), *campaigns(each, messages, chance)])


def size_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of how much is made, for a click command."""
    for option in (
        click.option("--messages", default=40, show_default=True, type=click.IntRange(1, 10_000),
                     help="Messages of each campaign."),
        click.option("--each", default=3, show_default=True, type=click.IntRange(0, 3),
                     help="Campaigns of each kind."),
        click.option("--ham", default=5_000, show_default=True, type=click.IntRange(0, 1_000_000),
                     help="Chat and short messages; the rest comes in proportion."),
        click.option("--seed", default=1, show_default=True, type=int,
                     help="The same seed, the same messages."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(help=shown(__doc__))
@size_options
def main(seed: int, ham: int, each: int, messages: int) -> None:
    """Write the messages as JSON lines."""
    for made in generated(seed, ham, each, messages):
        sys.stdout.buffer.write(made.json())


if __name__ == "__main__":
    main()

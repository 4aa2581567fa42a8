"""Generates labelled messages to measure by: what people send, and campaigns among it.

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
    typos       letters are left out, doubled, replaced, or swapped with the next
    leetspeak   letters become digits and signs

The strength is the share of places at which that happens; of typos, a third of it. Texts and
disguises stand in ``words.toml``. The disguises are not taken from what the recipe undoes: it knows
some of them and others not, as it would be with real ones.

There are two sets of messages, which have no text in common but the names. The settings of this
example were chosen by the set "choose". Its figures come from the set "report".
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click
import msgspec
from messages import HERE, iso, shown

START_S = 1_767_600_000
"""The morning of 2026-01-05, UTC."""
HOURS = 6
PLAIN = "plain"
STRENGTHS = (0.1, 0.25, 0.5)
CAMPAIGN_SENDERS = 15
SETS = ("choose", "report")

Edit = Callable[[str, float, random.Random], str]


class Words(msgspec.Struct, frozen=True):
    """The lists of ``words.toml``, which says what they are."""

    openings: list[str]
    offers: list[str]
    closings: list[str]
    announcements: list[str]
    chains: list[str]
    notices: list[str]
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

    def of(self, which: str) -> Words:
        """The words of one of the `SETS`: every second one of each list, but all names."""
        start = SETS.index(which)
        halves = {
            name: getattr(self, name)[start :: len(SETS)]
            for name in self.__struct_fields__
            if name not in {"names", "lookalikes", "leet"}
        }
        return msgspec.structs.replace(self, **halves)


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


def typos(text: str, share: float, chance: random.Random) -> str:
    """Leave out, double, replace or swap letters."""
    out = list(text)
    for index, letter in enumerate(text):
        if letter.isalpha() and chance.random() < share / 3:
            kind = chance.randrange(4)
            if kind == 3 and index + 1 < len(out):
                out[index], out[index + 1] = out[index + 1], out[index]
            else:
                out[index] = ("", letter + letter, _letters(1, chance), letter)[kind]
    return "".join(out)


def leetspeak(text: str, share: float, chance: random.Random) -> str:
    """Put digits and signs in the place of letters."""
    return "".join(
        chance.choice(WORDS.leet[c.lower()])
        if c.lower() in WORDS.leet and chance.random() < share
        else c
        for c in text
    )


EDITS: dict[str, Edit] = {
    "homoglyphs": homoglyphs,
    "spacing": spacing,
    "noise": noise,
    "typos": typos,
    "leetspeak": leetspeak,
}


_ANY_WORDS = sorted(
    {word for part in (*WORDS.who, *WORDS.did, *WORDS.what, *WORDS.asides) for word in part.split()}
)


def kinds() -> list[str]:
    """The kinds of campaigns: plain, and each edit at each strength."""
    return [PLAIN, *(f"{edit} {strength:g}" for edit in EDITS for strength in STRENGTHS)]


# ------------------------------------------------------------ messages


class Maker:
    """Makes the messages of a set.

    Args:
        which: one of the `SETS`.
        chance: what happens.
    """

    def __init__(self, which: str, chance: random.Random) -> None:
        self._words = WORDS.of(which)
        self._chance = chance

    def templates(self, each: int) -> Iterator[tuple[tuple[str, str, str], str]]:
        """The parts of each campaign's text, and its kind.

        Two campaigns share one part at most: as the number of parts is a prime, two different ones
        of the sums below agree for no two campaigns.

        Args:
            each: how many of a kind, 3 at most.
        """
        words, parts = self._words, len(self._words.openings)
        for number, kind in enumerate(kinds() * each):
            row, first = divmod(number, parts)
            offer = words.offers[(first + row) % parts]
            closing = words.closings[(first + 2 * row) % parts]
            yield (words.openings[first], offer, closing), kind

    def campaigns(self, each: int, messages: int) -> Iterator[Made]:
        """Campaigns of all kinds.

        Args:
            each: how many of a kind, 3 at most.
            messages: of each campaign.
        """
        for number, (parts, kind) in enumerate(self.templates(each)):
            yield from self._campaign(" ".join(parts), kind, number, messages)

    def _campaign(self, template: str, kind: str, number: int, messages: int) -> Iterator[Made]:
        chance = self._chance
        edit, _, strength = kind.partition(" ")
        begin_s = START_S + chance.uniform(0, (HOURS - 1) * 3600)
        lasts_s = chance.uniform(300, 1500)
        senders = [self._address() for _ in range(CAMPAIGN_SENDERS)]
        domains = [f"{_letters(8, chance)}.example" for _ in range(4)]
        for _ in range(messages):
            text = template.format(
                name=chance.choice(self._words.names),
                amount=f"${chance.randint(2, 95) * 10}",
                hours=chance.choice((12, 24, 36, 48, 72)),
                link=f"https://{chance.choice(domains)}/{_letters(6, chance)}",
            )
            if edit != PLAIN:
                head, link, rest = re.split(r"(https://\S+)", text)  # the link has to work
                text = "".join(
                    (
                        EDITS[edit](head, float(strength), chance),
                        link,
                        EDITS[edit](rest, float(strength), chance),
                    )
                )
            time_s = begin_s + chance.uniform(0, lasts_s)
            yield Made(time_s, chance.choice(senders), text, "spam", kind, number)

    def good(self, count: int) -> Iterator[Made]:
        """Good messages: chat and short ones by number, and the rest in proportion."""
        chance, words = self._chance, self._words
        people = [self._address() for _ in range(max(20, count // 5))]
        for _ in range(count * 7 // 10):
            yield Made(self._any_time(), chance.choice(people), self._chat(), "ham", "chat")
        weights = [1 / rank for rank in range(1, len(words.short) + 1)]
        for _ in range(count * 3 // 10):
            text = chance.choices(words.short, weights)[0]
            yield Made(self._any_time(), chance.choice(people), text, "ham", "short")
        some = max(12, count // 400)
        for number, (chain, announcement) in enumerate(
            zip(words.chains, words.announcements, strict=True), start=1
        ):
            yield from self._newsletter(4 * some)
            yield from self._burst(chain, number * some, people, "chain")
            for made in self._burst(announcement, number * some, people, "reply"):
                remark = chance.choice((*words.short, self._chat(), self._chat()))
                yield made._replace(text=f"{remark} > {announcement}")
        yield from self._notices(4 * some)

    def _chat(self) -> str:
        pick, words = self._chance.choice, self._words
        sentences = []
        for _ in range(pick((1, 1, 2, 2, 3))):
            who, did, what = pick(words.who), pick(words.did), pick(words.what)
            sentences.append(
                pick(
                    (
                        f"{who} {did} {what} {pick(words.when)}, {pick(words.asides)}",
                        f"{pick(words.asides)}: {who} {did} {what}",
                        f"{pick(words.when)} {who} {did} {what} and {pick(words.what)}",
                        f"did you hear that {who} {did} {what}? {pick(words.asides)}",
                        f"{pick(words.names)} says {who} {did} {what}, {pick(words.asides)}",
                    )
                )
            )
        return ". ".join(sentences)

    def _newsletter(self, count: int) -> Iterator[Made]:
        """One sender to many, at once."""
        chance, words, sender = self._chance, self._words, self._address()
        items = "; ".join(
            f"{topic} on the {chance.randint(2, 28)}th" for topic in chance.sample(words.topics, 6)
        )
        begin_s = self._any_time()
        for _ in range(count):
            text = f"Dear {chance.choice(words.names)}, coming up in your town: {items}."
            link = f"https://town.example/u/{_letters(10, chance)}"
            text = f"{text} Unsubscribe: {link}"
            yield Made(begin_s + chance.uniform(0, 120), sender, text, "ham", "newsletter")

    def _burst(self, text: str, count: int, people: list[str], kind: str) -> Iterator[Made]:
        begin_s, lasts_s = self._any_time(), self._chance.uniform(600, 7200)
        for sender in self._chance.choices(people, k=count):
            yield Made(begin_s + self._chance.uniform(0, lasts_s), sender, text, "ham", kind)

    def _notices(self, count: int) -> Iterator[Made]:
        chance = self._chance
        branches = [f"branch-{number}@shop.example" for number in range(1, 9)]
        begin_s = self._any_time()
        for _ in range(count):
            hour = chance.randint(8, 17)
            text = self._words.notices[0].format(
                order=chance.randint(100_000, 999_999),
                day=chance.choice(("Monday", "Tuesday", "Wednesday")),
                hour=hour,
                later=hour + 2,
                link=f"https://shop.example/t/{_letters(9, chance)}",
            )
            sent_s = begin_s + chance.uniform(0, 1800)
            yield Made(sent_s, chance.choice(branches), text, "ham", "notice")

    def _any_time(self) -> float:
        return START_S + self._chance.uniform(0, HOURS * 3600)

    def _address(self) -> str:
        name = self._chance.choice(self._words.names).lower()
        return f"{name}.{_letters(4, self._chance)}@mail.example"


def _letters(count: int, chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijkmnopqrstuvwxyz", k=count))


def generated(which: str, seed: int, ham: int, each: int, messages: int) -> list[Made]:
    """All messages of a set, by time.

    >>> generated("report", 1, 100, 1, 12) == generated("report", 1, 100, 1, 12)
    True
    """
    maker = Maker(which, random.Random(seed))  # noqa: S311 -- reproducible data, not secrets
    return sorted([*maker.good(ham), *maker.campaigns(each, messages)])


def size_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of what is made, for a click command."""
    for option in (
        click.option("--messages", default=40, show_default=True, type=click.IntRange(1, 10_000),
                     help="Messages of each campaign."),
        click.option("--each", default=3, show_default=True, type=click.IntRange(0, 3),
                     help="Campaigns of each kind."),
        click.option("--ham", default=5_000, show_default=True, type=click.IntRange(0, 1_000_000),
                     help="Chat and short messages; the rest comes in proportion."),
        click.option("--set", "which", default="report", show_default=True,
                     type=click.Choice(SETS), help="Which texts."),
        click.option("--seed", default=1, show_default=True, type=int,
                     help="The same seed, the same messages."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(help=shown(__doc__))
@size_options
def main(which: str, seed: int, ham: int, each: int, messages: int) -> None:
    """Write the messages as JSON lines."""
    for made in generated(which, seed, ham, each, messages):
        sys.stdout.buffer.write(made.json())


if __name__ == "__main__":
    main()

"""Replay: real lines shown again with other variables, to try a deployment or to time a bench.

Problem: a trial wants any number of events with a known share of duplicates, but repeating the
lines at hand makes exact copies, which a cache of whole lines answers without any work.

Idea: cut a line into what stays and its runs of digits; each showing draws new digits for every
run, of the same length. The pattern repeats while the bytes differ, as in a log storm. A line
without digits replays as it is, as it would in a log. Events that are to be *new* are first the
lines that were not shown yet, then *novel* ones: a real line with every word replaced by an unseen
one of the same length, so that it keeps the shape of a line but no pattern seen before.

Digits: a run that begins with a digit other than 0 keeps one in front, so that numbers stay numbers
where a leading zero is none (JSON). Addresses stay addresses, and times of day such, or a recipe
that masks them would see two patterns where a log has one.

The same arguments give the same events, on every machine with the same Python. Pure.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any

_DIGITS = re.compile(rb"[0-9]+")
# Short words are replaced too, or new lines would be liker to one another than those of a log; but
# there are too few of them for a new one to be unseen, so it takes some long ones.
_WORD = re.compile(rb"[A-Za-z]{2,}")
_LONG_WORD = re.compile(rb"[A-Za-z]{4,}")
_LONG_WORDS_AT_LEAST = 3
_FRESH_WORD_LENGTH = 9
_LETTERS = ascii_lowercase.encode()
_NUMERALS = b"0123456789"
_ZERO, _ONE = b"01"
# What a run of digits may not exceed, told by its first digit: of octets, of a time of day, of a
# day before one.
_IPV4 = re.compile(rb"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_CLOCK = re.compile(
    rb"(?:\b[A-Z][a-z]{2} (?P<day>[0-9]{2}) )?"
    rb"(?<![0-9:])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?(?![0-9:])"
)
_HIGHEST = {"day": b"2"[0], "hour": b"1"[0], "minute": b"5"[0], "second": b"5"[0]}
_OCTET = 3
_ONE_DRAW = 1_000
"""Digits drawn as one number at most: Python writes none of more than 4,300."""


@dataclass(frozen=True, slots=True)
class Stem:
    """A line in pieces: literals with a run of digits between each two of them.

    Attributes:
        literals: what stays.
        run_lengths: digits of each run.
        begins: places, among the digits of all runs, at which no zero may come.
        highest: what may come at most at some of the places.
    """

    literals: tuple[bytes, ...]
    run_lengths: tuple[int, ...]
    begins: tuple[int, ...]
    highest: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, line: bytes) -> Stem:
        """The stem of a line."""
        bounds = _bounds(line)
        begins, highest, length, lengths = [], [], 0, []
        for run in _DIGITS.finditer(line):
            if line[run.start()] != _ZERO:
                begins.append(length)
            if run.start() in bounds:
                highest.append((length, bounds[run.start()]))
            lengths.append(run.end() - run.start())
            length += lengths[-1]
        return cls(tuple(_DIGITS.split(line)), tuple(lengths), tuple(begins), tuple(highest))

    def replay(self, rng: random.Random) -> bytes:
        """The line with new digits; one draw for all runs, because drawing is what costs."""
        total = sum(self.run_lengths)
        if not total:
            return self.literals[0]
        if total <= _ONE_DRAW:
            digits = bytearray(b"%0*d" % (total, rng.randrange(10**total)))
        else:
            digits = bytearray(rng.choices(_NUMERALS, k=total))
        for place, most in self.highest:
            digits[place] = min(digits[place], most)
        for place in self.begins:
            if digits[place] == _ZERO:
                digits[place] = _ONE
        pieces: list[bytes | bytearray] = [self.literals[0]]
        start = 0
        for length, literal in zip(self.run_lengths, self.literals[1:], strict=True):
            pieces += (digits[start : start + length], literal)
            start += length
        return b"".join(pieces)


def _bounds(line: bytes) -> dict[int, int]:
    """The highest first digit of the runs that have one, by where they begin."""
    bounds = {}
    for address in _IPV4.finditer(line):
        for octet in _DIGITS.finditer(line, *address.span()):
            if len(octet[0]) == _OCTET:
                bounds[octet.start()] = _ONE
    for clock in _CLOCK.finditer(line):
        for part, most in _HIGHEST.items():
            if clock[part]:
                bounds[clock.start(part)] = most
    return bounds


def novel(text: bytes, rng: random.Random) -> bytes:
    """A line of the same shape and length whose words nobody has seen."""
    line = _WORD.sub(lambda word: _fresh_word(len(word[0]), rng), text)
    if len(_LONG_WORD.findall(text)) < _LONG_WORDS_AT_LEAST:
        # Mostly numbers and short words: what is left could still pass for the stem.
        line = b""
        while len(line) < len(text):
            line += _fresh_word(_FRESH_WORD_LENGTH, rng) + b" "
        line = line[: len(text)]
    return Stem.of(line).replay(rng)


def _fresh_word(length: int, rng: random.Random) -> bytes:
    return bytes(rng.choices(_LETTERS, k=length))


@dataclass(frozen=True, slots=True)
class Model:
    """A line that events are made after.

    Attributes:
        text: what it says.
        service: who said it.
        fields: of the JSON object it stood in; none for text.
        text_field: under which of them the text stood.
    """

    text: bytes
    service: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    text_field: str = "message"


def replayed(
    models: Sequence[Model], duplicates: float, seed: int = 0
) -> Iterator[tuple[Model, bytes]]:
    """Events without end: the line each is made after, and its text.

    >>> events = replayed([Model(b"worker 12 took 340 ms", "api")], duplicates=1, seed=1)
    >>> [next(events)[1] for _ in range(3)]
    [b'worker 12 took 340 ms', b'worker 18 took 271 ms', b'worker 58 took 915 ms']

    Args:
        models: lines that are not like each other, at least one.
        duplicates: the share of events that show a line again, from 0 to 1.
        seed: another seed, another stream.
    """
    rng = random.Random(seed)  # noqa: S311 -- a trial's data
    stems: list[tuple[Model, Stem]] = []
    while True:
        if stems and rng.random() < duplicates:
            model, stem = stems[int(rng.random() * len(stems))]
            yield model, stem.replay(rng)
        elif len(stems) < len(models):
            model = models[len(stems)]
            stems.append((model, Stem.of(model.text)))
            yield model, model.text
        else:
            model = models[int(rng.random() * len(models))]
            yield model, novel(model.text, rng)

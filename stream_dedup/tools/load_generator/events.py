"""The events of ``stream-dedup produce``: sample lines, shown again with other digits.

Problem: a trial needs any number of events with a known share of duplicates, but repeating the same
lines gives exact copies, which a cache of whole lines answers without any work.

Idea: split a line into literals and runs of digits; each repetition draws new digits for every run,
of the same length. The pattern repeats while the bytes differ, as in a log storm. A line without
digits is repeated as it is, as in a log. *New* events are first the samples not used yet, then
*novel* lines: a sample with every word replaced by an unseen one of the same length, which has the
shape of a line but no known pattern.

Digits: a run that begins with a digit other than 0 never gets a leading 0, so that numbers stay
valid where that is not allowed (JSON). Addresses stay addresses and times of day stay times;
otherwise a recipe that masks them would see two patterns where a log has one.

The same arguments give the same events, on every machine with the same Python version.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import msgspec

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.io.decoder import TEXT_FIELDS
from stream_dedup.io.files import InputFile
from stream_dedup.model import Kind

MAX_SAMPLES = 2_000
"""Maximum number of samples; with more, new events would use nothing else for long."""

READ_BATCH = 2_000
MAX_LINE_BYTES = 64 * 1024
"""Longer lines are left out: they are not log lines."""

_DIGITS = re.compile(rb"[0-9]+")
# Short words are replaced too, so that new lines are not more similar than those of a log. But
# there are few of them, so a novel line also needs some long words to be unseen.
_WORD = re.compile(rb"[A-Za-z]{2,}")
_LONG_WORD = re.compile(rb"[A-Za-z]{4,}")
_LONG_WORDS_AT_LEAST = 3
_FRESH_WORD_LENGTH = 9
_LETTERS = ascii_lowercase.encode()
_NUMERALS = b"0123456789"
_ZERO, _ONE = b"01"
# Limits on the first digit of a run: in octets, in a time of day, and in the day before a time.
_IPV4 = re.compile(rb"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_CLOCK = re.compile(
    rb"(?:\b[A-Z][a-z]{2} (?P<day>[0-9]{2}) )?"
    rb"(?<![0-9:])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?(?![0-9:])"
)
_HIGHEST = {"day": b"2"[0], "hour": b"1"[0], "minute": b"5"[0], "second": b"5"[0]}
_OCTET = 3
_ONE_DRAW = 1_000
"""Maximum digits drawn as one number: Python formats at most 4,300."""


@dataclass(frozen=True, slots=True)
class Stem:
    """A line in pieces: literals with a run of digits between each two of them.

    Attributes:
        literals: the unchanged parts.
        run_lengths: number of digits of each run.
        begins: positions, among the digits of all runs, that must not be 0.
        highest: (position, highest digit) of the limited ones.
    """

    literals: tuple[bytes, ...]
    run_lengths: tuple[int, ...]
    begins: tuple[int, ...]
    highest: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, line: bytes) -> Stem:
        """Split a line."""
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
        """Return the line with new digits, which are one draw for all runs, as drawing is slow."""
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
    """Return the highest first digit of limited runs, by their start."""
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
    """Return a line of the same shape and length with unseen words."""
    line = _WORD.sub(lambda word: _fresh_word(len(word[0]), rng), text)
    if len(_LONG_WORD.findall(text)) < _LONG_WORDS_AT_LEAST:
        # Mostly numbers and short words, so the result could still match the sample.
        line = b""
        while len(line) < len(text):
            line += _fresh_word(_FRESH_WORD_LENGTH, rng) + b" "
        line = line[: len(text)]
    return Stem.of(line).replay(rng)


def _fresh_word(length: int, rng: random.Random) -> bytes:
    return bytes(rng.choices(_LETTERS, k=length))


@dataclass(frozen=True, slots=True)
class Sample:
    """A line that events are made from.

    Attributes:
        text: its text.
        service: the service that wrote it.
        fields: the fields of its JSON object; none for text.
        text_field: the field with the text.
    """

    text: bytes
    service: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    text_field: str = "message"


def replayed(
    samples: Sequence[Sample], duplicates: float, seed: int = 0
) -> Iterator[tuple[Sample, bytes]]:
    """Yield events without end: the sample of each, and its text.

    >>> events = replayed([Sample(b"worker 12 took 340 ms", "api")], duplicates=1, seed=1)
    >>> [next(events)[1] for _ in range(3)]
    [b'worker 12 took 340 ms', b'worker 18 took 271 ms', b'worker 58 took 915 ms']

    Args:
        samples: at least one, each with a pattern of its own.
        duplicates: the share of events that repeat an earlier line, from 0 to 1.
        seed: of the random numbers.
    """
    rng = random.Random(seed)  # noqa: S311 -- a trial's data
    stems: list[tuple[Sample, Stem]] = []
    while True:
        if stems and rng.random() < duplicates:
            sample, stem = stems[int(rng.random() * len(stems))]
            yield sample, stem.replay(rng)
        elif len(stems) < len(samples):
            sample = samples[len(stems)]
            stems.append((sample, Stem.of(sample.text)))
            yield sample, sample.text
        else:
            sample = samples[int(rng.random() * len(samples))]
            yield sample, novel(sample.text, rng)


# ---------------------------------------------------------------- reading samples


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of the inputs.

    Attributes:
        samples: lines with a pattern of their own.
        count: number of all lines that are not blank.
    """

    samples: list[Sample]
    count: int


def read_samples(paths: Sequence[str]) -> Samples:
    """Read inputs to their end, and keep the first of similar lines.

    A line whose repetition would not be a duplicate, as it has only numbers and names, is kept only
    if there are no others.

    Raises:
        InputError: an input cannot be read.
    """
    dedup, rng = Deduplicator("logs", keep_summaries=False), random.Random(0)  # noqa: S311 -- a trial's data
    samples: list[Sample] = []
    others: list[Sample] = []
    count = 0
    for path in paths:
        service = "stdin" if path == "-" else Path(path).name.partition(".")[0] or "stdin"
        for batch in _batches(path):
            found = [_sample(line, service) for line in batch]
            count += len(found)
            if len(samples) >= MAX_SAMPLES:
                continue
            decisions = dedup.process([sample.text for sample in found])
            firsts = list(compress(found, (d.kind is Kind.NEW for d in decisions)))
            again = dedup.process([Stem.of(sample.text).replay(rng) for sample in firsts])
            for sample, decision in zip(firsts, again, strict=True):
                (samples if decision.kind is Kind.DUPLICATE else others).append(sample)
    return Samples((samples or others)[:MAX_SAMPLES], count)


def _batches(path: str) -> Iterator[list[bytes]]:
    with InputFile(path) as source:
        while (lines := source.read()) is not None:
            whole = [
                value.rstrip(b"\r")
                for place, value in enumerate(lines.values)
                if place not in lines.pieces and place not in lines.tails
            ]
            kept = [line for line in whole if line.strip() and len(line) <= MAX_LINE_BYTES]
            for start in range(0, len(kept), READ_BATCH):
                yield kept[start : start + READ_BATCH]


def _sample(line: bytes, service: str) -> Sample:
    fields = _json_object(line)
    if fields is not None:
        name = next((name for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None)
        if name is not None and fields[name].strip():
            given = fields.get("service")
            owner = given if isinstance(given, str) and given else service
            return Sample(fields[name].encode("utf-8", "replace"), owner, fields, name)
    return Sample(line, service)


def _json_object(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

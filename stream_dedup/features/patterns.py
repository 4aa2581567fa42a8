"""Patterns: the masked text that people read as a cluster's name. Made for representatives only.

Each variable is replaced by a placeholder with the name of the mask that matches it: ``<ipv4>``,
``<uuid>``, ``<number>``; ``<unit>`` for a unit after a number, ``<*>`` if none does. What belongs
to the variant is shown: an HTTP status as its class, ``<5xx>``, an exit code as ``<zero>`` or
``<nonzero>``, the letter of klog as its level, ``<error>``, a word as itself. Of a list of alike
items one is shown. A stack trace is shown as its header, and the innermost frame of the program:
``… at App.charge``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from stream_dedup.features.folding import SYMBOLS
from stream_dedup.features.lines import LineReader, Reading, learned_words
from stream_dedup.features.masks import SHOWN, Masker
from stream_dedup.features.outcome_fields import (
    CLOSES,
    OPENS,
    Event,
    split,
    takes_outcomes,
)
from stream_dedup.features.pieces import begins_command
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.tokens import PLACEHOLDER, SUBSTITUTE, UNITS, Token, splitter
from stream_dedup.features.traces import Trace, has_lines, trace_of
from stream_dedup.features.variants import LEVELS, is_key

MAX_PATTERN = 300
"""Maximum characters of a pattern."""

MAX_FRAME = 120
"""Maximum characters of a frame in a pattern."""

_MAX_BYTES = 2_048
"""Bytes of a text that are used for its pattern."""

_NAME = re.compile(rb"<[a-z0-9_]+>")
_BRACKET = re.compile(rb"[()\[\]{}\"]")
_PAIRS = frozenset((b"()", b"[]", b"{}", b'""'))
_ALNUM = re.compile(rb"[A-Za-z0-9\x80-\xff]")
# A value in double quotes that holds white space, such as a user agent, has one name; so has one
# without letters and digits. A run may end inside the quotes.
_PHRASE = re.compile(
    rb"""(?<![^\s=,:(\[{])"(?:[^"]*\s[^"]*|[^"A-Za-z0-9\x80-\xff]+)("(?![^\s,;)\]}])|\Z)"""
)
_ONE_NAME = rb'"x\1'
_ROOT = b"/ HTTP/"

_LEVELS = frozenset(level.encode() for level in LEVELS)
_CLASS = re.compile(rb"[1-5]xx|(?:non)?zero")

_MASKED = bytes([SUBSTITUTE])

_MAX_NAMES = 6
"""A run of more names than this is shown as ``<*>``."""

_NAMES_KEPT = 1_000
"""Runs whose names are remembered: a pattern and its slots name the same."""

# The masker puts a substitute between spaces. Where runs of white space were folded afterwards, the
# spaces are the text's own.
_SUBSTITUTES = re.compile(rb" ?\x1a([a-z0-9_]+) ?")
_FOLDED_SUBSTITUTES = re.compile(rb"\x1a([a-z0-9_]+)")


def _is_hex(mask: tuple[str, str]) -> bool:
    return mask[0] == "hex"


class Shown(NamedTuple):
    """What people read of an event.

    Attributes:
        pattern: its text with variables masked.
        variant: its log levels in upper case, status classes and kinds of exit codes, each once, in
            order; no outcomes, which are in the pattern.
    """

    pattern: str
    variant: tuple[str, ...]


class Piece(NamedTuple):
    """A piece of a pattern.

    Attributes:
        shown: what the pattern shows.
        run: the text for which placeholders are shown; None where the text itself is.
    """

    shown: bytes
    run: bytes | None = None


class Pieces(NamedTuple):
    """An event as its pattern shows it.

    Attributes:
        pieces: what is shown, in order.
        variant: what keeps the event apart from others, however alike they are (`variants`): words,
            and of a stack trace its exceptions and frames.
    """

    pieces: list[Piece]
    variant: tuple[bytes, ...]


class Patterns:
    """Makes the patterns of a recipe.

    Attributes:
        reader: reads the lines from which they are made.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._preparer = Preparer(_legible(recipe))
        self.reader = LineReader(recipe)
        # A mask may match a part of a token ("web-3"): then the token has no name.
        self._parts = re.compile(
            rb"(?:<[a-z0-9_]+>|%b)+" % splitter(recipe.delimiters).pattern[:-1]
        )
        self._words = recipe.features.extractor == "words"
        self._takes_frames = "frames" in recipe.match.variants
        self._takes_outcomes = takes_outcomes(recipe)
        self._takes_levels = "level" in recipe.match.variants
        self._delimiters = recipe.delimiters
        self._namer = Masker(sorted(SHOWN.items(), key=_is_hex))  # long numbers are not hex
        self._named = lru_cache(_NAMES_KEPT)(self._name)

    def pattern(self, value: bytes, document: object = None, learned: int = 0) -> str:
        """Return the pattern of an event; see `shown`."""
        return self.shown(value, document, learned).pattern

    def shown(self, value: bytes, document: object = None, learned: int = 0) -> Shown:
        """Return what people read of an event.

        Args:
            value: its text.
            document: the decoded event, if there are fields.
            learned: the words that are learned; see `learned_words`.
        """
        outcomes, value = self._split(value)
        parts, readings, trace = self._read(value, document)
        place = "" if trace is None else f" at {readable(trace.frames[-1], MAX_FRAME)}"
        variant = (*_named(outcomes), *self._named_variant(parts, readings))
        if _are_variables(readings):  # the text itself is compared
            readings = [Reading([], []) for _ in parts]
        if learned:
            tokens = [token for reading in readings for token in reading.tokens]
            is_learned = learned_words(tokens, learned)
            readings = [_varying(reading, is_learned) for reading in readings]
        masked = (
            name + self._masked(text, reading)
            for (name, text), reading in zip(parts, readings, strict=True)
        )
        before = b"".join(piece.shown for piece in _outcome_pieces(outcomes))
        text = before + b" ".join(masked).strip()
        pattern = readable(text, MAX_PATTERN - len(place)) + place
        return Shown(pattern, tuple(dict.fromkeys(variant)))

    def pieces(self, value: bytes, document: object = None) -> Pieces:
        """Return the pieces of an event's pattern, of which none is learned or left out."""
        outcomes, value = self._split(value)
        parts, readings, trace = self._read(value, document)
        variant = outcomes.split()
        variant += [each.word for reading in readings for each in reading.variant]
        if _are_variables(readings):
            readings = [Reading([], []) for _ in parts]
        pieces = list(_outcome_pieces(outcomes))
        for (name, text), reading in zip(parts, readings, strict=True):
            pieces.append(Piece(b" " + name))
            pieces += self._pieces(text, reading) if self._words else [Piece(text)]
        if trace is not None:
            pieces.append(Piece(f" at {readable(trace.frames[-1], MAX_FRAME)}".encode()))
            variant += trace.variant
        return Pieces(pieces, tuple(variant))

    def _split(self, value: bytes) -> Event:
        return split(value) if self._takes_outcomes else Event(b"", value)

    def legible(self, value: bytes) -> bytes:
        """Return the text of an event from which its pattern is made; not where it has fields."""
        return self._preparer.text(value[:_MAX_BYTES]) if self._preparer.changes_text else value

    def _read(
        self, value: bytes, document: object
    ) -> tuple[list[tuple[bytes, bytes]], list[Reading], Trace | None]:
        """Return the parts of an event with their names, what they are made of, and its trace."""
        trace = None
        if self._preparer.takes_fields and document is not None:
            parts = [
                (name.encode("utf-8", "replace") + b"=", part[:_MAX_BYTES])
                for name, part, _ in self._preparer.parts(document)
            ]
        else:
            trace = trace_of(value) if self._takes_frames and has_lines(value) else None
            if trace is not None:
                value = trace.header
            parts = [(b"", self._preparer.text(value[:_MAX_BYTES]))]
        parts = [(name, self.reader.without_escapes(text)) for name, text in parts]
        return parts, [self.reader.read(text) for _, text in parts], trace

    def _named_variant(
        self, parts: Iterable[tuple[bytes, bytes]], readings: Iterable[Reading]
    ) -> tuple[str, ...]:
        """Name log levels and statuses; other words of a variant are in the pattern."""
        names = (
            each.word.decode().upper() if each.word in _LEVELS else each.word.decode()
            for (_, text), reading in zip(parts, readings, strict=True)
            for each in reading.variant
            if each.stands_for
            or (self._takes_levels and each.word in _LEVELS and not is_key(text, each.end))
        )
        return tuple(names)

    def variables(
        self, line: bytes, tokens: Sequence[Token] | None = None
    ) -> list[tuple[int, int]]:
        """Return where the variable parts of a line of text are, in order; of an empty value, too.

        An event with fields has none. Nor has a line without words: its text itself is compared.

        Args:
            line: the line.
            tokens: its tokens, with those of lists, if they are known.
        """
        if self._preparer.takes_fields:
            return []
        line = line[:_MAX_BYTES]
        found = self._preparer.masked(line)
        if tokens is None:
            tokens = self.reader.read(line, lists=False).tokens if self._words else []
        if not all(token.variable for token in tokens):
            found += [(t.start, t.end) for t in tokens if t.variable]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _masked(self, text: bytes, reading: Reading) -> bytes:
        if not self._words:
            return _FOLDED_SUBSTITUTES.sub(rb"<\1>", text)
        shown = _Writing()
        for piece in self._pieces(text, reading):
            if piece.run is None:
                shown.text(piece.shown)
            else:
                shown.placeholder(piece.shown)
        return _SUBSTITUTES.sub(rb"<\1>", bytes(shown))

    def _pieces(self, text: bytes, reading: Reading) -> Iterator[Piece]:
        """Yield what is shown of a text, in order."""
        variant = reading.variant
        at = number = 0  # in the text; in the variant's words
        for token in reading.tokens:
            yield Piece(text[at : token.start])
            at = token.start
            if not token.variable:
                yield Piece(token.text)
            elif token.start == token.end or token.text != PLACEHOLDER:  # or it is learned
                yield Piece(b"<*>", text[token.start : token.end])
            else:
                while number < len(variant) and variant[number].start < token.end:
                    word, start, end, stands_for = variant[number]
                    number += 1
                    if at <= start:
                        yield Piece(self._between(text[at:start]), text[at:start])
                        if stands_for:
                            yield Piece(b"<" + word + b">", text[start:end])
                        else:
                            yield Piece(text[start:end])
                        at = end
                run = text[at : token.end]
                is_command = begins_command(text, at)
                name = b"<*>" if is_command else self._between(_PHRASE.sub(_ONE_NAME, run))
                yield Piece(name, run)
            at = max(token.end, token.until)
        yield Piece(text[at:])

    def _between(self, run: bytes) -> bytes:
        """Name the variables of a run, and keep the delimiters around them."""
        left = run.lstrip(self._delimiters)
        bare = left.rstrip(self._delimiters)
        head = run[: len(run) - len(left)]
        # A value of punctuation alone, such as "*/*", has no name.
        return head + ((self.named(bare) or b"<*>") if bare else b"") + left[len(bare) :]

    def named(self, run: bytes) -> bytes:
        """Name each variable of a run; equal names in the same brackets are shown once."""
        return self._named(run)

    def named_in(self, text: bytes, start: int, end: int) -> bytes:
        """As `named`, of a run in a text: what is before it may say what it is."""
        return b"<*>" if begins_command(text, start) else self._named(text[start:end])

    def _name(self, run: bytes) -> bytes:
        text = run if SUBSTITUTE in run else self._namer.rename(_PHRASE.sub(_ONE_NAME, run))
        out: list[bytes] = []
        names: list[bytes] = []
        brackets: list[bytes] = []
        end = 0
        for match in self._parts.finditer(text):
            name, stop = match.group(), match.end()
            if name[-1:] == b"-" and text[stop : stop + 1] == b">":  # of an arrow
                name, stop = name[:-1], stop - 1
            if not (_NAME.fullmatch(name) or name.startswith(_MASKED)):
                is_root = text.startswith(_ROOT, match.start())
                if not is_root and not _ALNUM.search(name):
                    continue
                unit = names[-1:] == [b"<number>"] and name.rstrip(b".") in UNITS
                name = b"<unit>" if unit else b"<path>" if is_root else b"<*>"
            if names:
                gap = text[end : match.start()]
                if name == names[-1] and not _unmatched(_BRACKET.findall(gap)):
                    end = stop
                    continue
                brackets += _BRACKET.findall(gap)
                out.append(gap)
            names.append(name)
            out.append(name)
            end = stop
        if len(names) <= _MAX_NAMES:
            return b"".join(out)
        rest = _unmatched(brackets)
        return b"<*>%b<*>" % rest if rest else b"<*>"


class _Writing:
    """A pattern in the making.

    Angle brackets around a placeholder are left out: ``<34>`` is shown as ``<number>``.
    """

    def __init__(self) -> None:
        self._parts = bytearray()
        self._opened = False

    def text(self, text: bytes) -> None:
        """Add what is shown as it is."""
        if text:
            self._parts += text[self._opened and text.startswith(b">") :]
            self._opened = False

    def placeholder(self, name: bytes) -> None:
        """Add placeholders, and what is between them."""
        if name.startswith(b"<") and self._parts.endswith(b"<"):
            del self._parts[-1]
            self._opened = b">>" not in name
            name = name.replace(b">>", b">", 1)
        self._parts += name

    def __bytes__(self) -> bytes:
        return bytes(self._parts)


def _outcome_pieces(outcomes: bytes) -> Iterator[Piece]:
    """Yield what is shown of outcomes: classes of statuses and exit codes as in a text."""
    if not outcomes:
        return
    yield Piece(OPENS.encode())
    for number, each in enumerate(outcomes.split()):
        name, assigns, word = each.rpartition(b"=")
        yield Piece((b" " if number else b"") + name + assigns)
        if assigns and _CLASS.fullmatch(word):
            yield Piece(b"<%b>" % word, word)
        else:
            yield Piece(word)
    yield Piece(CLOSES.encode())


def _named(outcomes: bytes) -> Iterator[str]:
    """Name log levels and classes of outcomes."""
    for each in outcomes.split():
        word = each.rpartition(b"=")[2]
        if word in _LEVELS:
            yield word.decode().upper()
        elif _CLASS.fullmatch(word):
            yield word.decode()


def _are_variables(readings: Iterable[Reading]) -> bool:
    """Return whether an event has no words."""
    return all(token.variable for reading in readings for token in reading.tokens)


def _varying(reading: Reading, is_learned: Callable[[Token], bool]) -> Reading:
    """Return what a line is made of with learned words as variables."""
    tokens = [
        token if token.variable or not is_learned(token) else token._replace(variable=True)
        for token in reading.tokens
    ]
    return reading._replace(tokens=tokens)


def _unmatched(brackets: list[bytes]) -> bytes:
    """Return the brackets that have no partner among them."""
    left: list[bytes] = []
    for bracket in brackets:
        if left and left[-1] + bracket in _PAIRS:
            left.pop()
        else:
            left.append(bracket)
    return b"".join(left)


def _legible(recipe: Recipe) -> Recipe:
    """Return the recipe that prepares what people read: folding leaves no spaces."""
    if recipe.text.fold == "keep":
        return recipe
    masks = tuple(SYMBOLS) if recipe.text.fold.startswith("look-alikes") else ()
    text = msgspec.structs.replace(recipe.text, fold="keep", masks=masks, boilerplate=())
    return msgspec.structs.replace(recipe, text=text)


def readable(text: bytes, limit: int) -> str:
    """Return bytes as one line of text that is safe to print, escaping what is not printable."""
    shown = text.decode("utf-8", "backslashreplace")
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else " " if c in "\n\t" else c.encode("unicode_escape").decode()
            for c in shown
        )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"

"""Reads a log line: its tokens, and the words that make its variant.

`pieces` finds the pieces of a line: its tokens, and which of them are values. Here they become
words and placeholders; the words of `variants` become the line's variant.

A group of 2 to 32 tokens that holds a placeholder and repeats in a row is kept once: a
list of alike items, of any length, is one item. Items with different outcomes are not alike. A
group of one word and one placeholder is an item only if more than white space is between two of
them, or if its word is a key: ``node 1, node 2`` and ``x=1 x=2``, but not ``retry 3 worker 4 worker
stopped``.

If more than `MAX_LEARNED_WORDS` words are left, of which none is learned, the values of keys that
could have been learned are variables at once: such lines are records, as of a firewall.

A line of variables alone, such as ``[<02114408>] do_page_fault+0x12f/0x446``, says something after
all if it holds names. So it is read again: what has `LEAST_LETTERS` bytes or more of letters,
underscores or bytes beyond ASCII between other bytes, and no digit, is a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from stream_dedup.features.kinds import names_kind
from stream_dedup.features.pieces import ESCAPE, SPACES, WORD_BYTE, Piece, fastest, pieces
from stream_dedup.features.recipe import MAX_LEARNED_WORDS, Recipe
from stream_dedup.features.tokens import (
    PLACEHOLDER,
    STRUCTURE_DELIMITERS,
    SUBSTITUTE,
    Token,
    merged,
    tokenise,
)
from stream_dedup.features.variants import VariantWord, variant_words

LEAST_LETTERS = 3
"""Least bytes of a name in a line of variables."""

LEAST_GROUP = 2
"""Tokens of the smallest group that may be an item of a list."""

MAX_GROUP = 32
"""Maximum tokens of a group that is kept once: the kernel looks for two in the 64 last tokens."""

ALL_ASSIGNED = 48
"""The bit, in a mask of words, of all words that are assigned."""

# What rsyslog writes for control characters: NUL, BEL, those of white space, and shift in.
_WRITTEN_SPACE = re.compile(rb"#0(?:0[07]|1[0-57])")
_WRITTEN_ESCAPE = rb"#033(?:\[[0-?]*+[ !$]*+[@-~]|[%(-+][0-~]|\])"
_WRITTEN = rb"(?:%b|#033)" % _WRITTEN_SPACE.pattern
_GLUED = rb"(?<=[^%b])%b|%b(?=[A-Za-z]|#0)" % (SPACES, _WRITTEN, _WRITTEN)
_OF_TERMINALS = re.compile(rb"(?:%b)++" % ESCAPE.pattern)
_ESCAPES = re.compile(b"(?:" + b"|".join((ESCAPE.pattern, _WRITTEN_ESCAPE, _GLUED)) + b")++")
_OF_RSYSLOG = re.compile(  # numbers, such as worker#012, are none of these
    rb"%b|#01[12](?=[A-Za-z]|#0)|(?<=[^%b])#01[12](?=[%b]{2})|(?<=[A-Za-z)\]}\"'.!?])#0(?:00|12|15)\Z"
    % (_WRITTEN_ESCAPE, SPACES, SPACES)
)
_DIGIT = re.compile(rb"[0-9]")
_SUBSTITUTE = bytes([SUBSTITUTE])
_RUN_OF_WORD_BYTES = re.compile(rb"[A-Za-z0-9_\x80-\xff]++")

_BETWEEN_ITEMS = re.compile(rb"[,;|)\]}>\n]")


def learned_words(tokens: Iterable[Token], mask: int) -> Callable[[Token], bool]:
    """Return which words are shown as variables.

    Args:
        tokens: of an event.
        mask: bit i for each word i that is learned, and bit `ALL_ASSIGNED`. A word counts wherever
            it stands; but not one without letters, such as ``-``, which stands for many things.
    """
    words = (token for token in tokens if not token.variable)
    known = [word for number, word in enumerate(words) if mask >> number & 1]
    places = {(word.text, word.start) for word in known}
    texts = {word.text for word in known if WORD_BYTE.search(word.text)}
    assigned = bool(mask >> ALL_ASSIGNED & 1)
    return lambda token: (
        token.text in texts or (token.text, token.start) in places or (assigned and token.assigned)
    )


class Reading(NamedTuple):
    """What a line is made of.

    Attributes:
        tokens: words and placeholders in order.
        variant: the words that make the variant.
    """

    tokens: Sequence[Token]
    variant: Sequence[VariantWord]


class LineReader:
    """Reads tokens and variants by a recipe.

    Args:
        recipe: the recipe.
        reference: whether to use no compiled code: for what compiled code is compared with.
    """

    def __init__(self, recipe: Recipe, *, reference: bool = False) -> None:
        self._pieces = pieces if reference else fastest().pieces
        # The pattern of an event and the slots of its pattern are asked for one after the other.
        self._whole = lru_cache(1)(self._read)
        self._split = recipe.split
        self._structured = recipe.text.classes == "structured"
        self._classes = bool(recipe.text.classes)
        self._protected, self._levels = recipe.protected, recipe.levels
        self._status = "status" in recipe.match.variants

    def read(self, text: bytes, *, lists: bool = True) -> Reading:
        """Return the tokens of a text and its variant.

        Args:
            text: any bytes.
            lists: whether to keep groups that repeat once, where the recipe reads structure.
        """
        whole, has_lists = self._whole(text)
        if not has_lists:
            return whole
        once = _without_repeats(text, *whole)
        if sum(not token.variable for token in once.tokens) > MAX_LEARNED_WORDS:
            once, whole = (
                Reading(tuple(_without_values(reading.tokens)), reading.variant)
                for reading in (once, whole)
            )
        return once if lists else whole

    def _read(self, text: bytes) -> tuple[Reading, bool]:
        """Return all tokens of a text and its variant; and whether it may have lists."""
        if not self._structured:
            tokens = tokenise(text, self._split, self._classes)
            spans = (match.span() for match in self._split.finditer(text))
            return Reading(tuple(tokens), self._variant(text, spans)), False
        found = self._pieces(text)
        spans = ((start, end) for start, end, *_, absent in found if end > start and not absent)
        variant = self._variant(text, spans)
        apart = {word.start for word in variant}  # never learned, as are kinds
        whole = tuple(
            token._replace(assigned=False)
            if token.assigned and (token.start in apart or names_kind(text, token.start, token.end))
            else token
            for token in merged(text, (piece[:5] for piece in found))
        )
        if all(token.variable for token in whole):
            names = tuple(merged(text, (piece[:5] for piece in _names(text))))
            if not all(token.variable for token in names):
                return Reading(names, variant), False
        return Reading(whole, variant), True

    def without_escapes(self, text: bytes) -> bytes:
        """Return a text without the escape sequences of terminals, which are no part of it.

        Nothing compares them. `read` takes those of terminals for delimiters, so that the places of
        tokens are those in the text; but what is on both sides is then not next to each other.

        rsyslog writes a control character as ``#`` and three octal digits; ``worker#012`` looks
        the same. So these are read, and removed or replaced by a space, if the text has one that
        is no number: an escape sequence (``#033[31m``), a tab or line end directly before a letter,
        another one or indentation, or a line end at the text's end (``failed#012``).
        """
        if not self._structured:
            return text
        if b"#0" in text and _OF_RSYSLOG.search(text):
            return _ESCAPES.sub(_space_between, text)
        return _OF_TERMINALS.sub(_space_between, text) if b"\x1b" in text else text

    def _variant(self, text: bytes, spans: Iterator[tuple[int, int]]) -> tuple[VariantWord, ...]:
        if not self._protected and not self._status:
            return ()
        return tuple(variant_words(text, spans, self._protected, self._levels, status=self._status))


def _without_values(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield tokens with placeholders in place of the words that are values of keys."""
    last: Token | None = None  # a placeholder that may go on
    for token in tokens:
        if not token.variable and not token.assigned:
            if last is not None:
                yield last
            last = None
            yield token
        elif last is None:
            last = Token(PLACEHOLDER, token.start, token.end, True, token.until)
        else:
            last = last._replace(end=token.end, until=token.until)
    if last is not None:
        yield last


def _names(text: bytes) -> Iterator[Piece]:
    """Yield the names of a line of variables, and what is between them."""
    for match in _RUN_OF_WORD_BYTES.finditer(text):
        start, end = match.span()
        variable = (
            end - start < LEAST_LETTERS
            or _DIGIT.search(match[0]) is not None
            or text[start - 1 : start] == _SUBSTITUTE
        )
        yield Piece(start, end, variable)


def _space_between(match: re.Match[bytes]) -> bytes:
    """Return what stands for escapes: a space, if they part two words or are white space."""
    text, start, end = match.string, match.start(), match.end()
    if not start or end == len(text):
        return b""
    before, behind = text[start - 1], text[end]
    if before in SPACES or behind in SPACES:
        return b""
    if before not in STRUCTURE_DELIMITERS and behind not in STRUCTURE_DELIMITERS:
        return b" "
    return b" " if _WRITTEN_SPACE.search(match[0]) else b""


def _without_repeats(
    text: bytes, tokens: Sequence[Token], variant: Sequence[VariantWord]
) -> Reading:
    """Keep groups that hold a placeholder and repeat in a row once."""
    texts = [token.text for token in tokens if not token.variable]
    if len(set(texts)) == len(texts):  # a group has a word, as no placeholders are neighbours
        return Reading(tokens, variant)
    kept: list[Token] = []
    held: list[list[VariantWord]] = []  # the variant's words in each token
    rest = iter(variant)
    word = next(rest, None)
    alike: list[tuple[bytes, bool, tuple[bytes, ...]]] = []
    gaps: list[bytes] = []  # what is before each token
    end = 0
    for index, token in enumerate(tokens):
        follower = tokens[index + 1].start if index + 1 < len(tokens) else None
        words = []
        while word is not None and (follower is None or word.start < follower):
            words.append(word)
            word = next(rest, None)
        kept.append(token)
        held.append(words)
        gaps.append(text[end : token.start])
        end = token.end
        alike.append((token.text, token.variable, tuple(one.word for one in words)))
        for count in range(LEAST_GROUP, MAX_GROUP + 1):
            if (
                2 * count <= len(alike)
                and alike[-count:] == alike[-2 * count : -count]
                and any(variable for _, variable, _ in alike[-count:])
                and (count > LEAST_GROUP or _BETWEEN_ITEMS.search(gaps[-2]) or b"=" in gaps[-1])
            ):
                del kept[-count:], held[-count:], alike[-count:], gaps[-count:]
                kept[-1] = kept[-1]._replace(until=token.end)
                break
    return Reading(kept, [one for words in held for one in words])

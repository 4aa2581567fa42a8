"""Clusters compared: why they did not merge, what differs, and which rule would join them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import Struct

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.patterns import readable
from stream_dedup.fingerprint.reference import Feature
from stream_dedup.rules.template import read_pattern
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.patterns import Pattern, pattern_of
from stream_dedup.ui.views.rules import Rule, rule_of
from stream_dedup.ui.views.text import printable

MAX_COMPARED_BYTES = 4_096
"""Bytes of an event that are compared: explaining a longer one would take long."""

MAX_FEATURES = 40
"""Features that are listed of each kind."""

MAX_FEATURE = 80
"""Characters of one."""

MAX_TOKENS = 400
"""Words of a pattern that are aligned with those of another one; the rest counts as different."""


class Neighbour(Struct, frozen=True):
    """A cluster with a similar pattern, and why it is another one."""

    pattern: Pattern
    verdict: str
    distance: int
    jaccard: float


class NeighbourList(Struct, frozen=True):
    """The clusters whose patterns share most words with one, the most similar first."""

    neighbours: list[Neighbour]


class PatternPair(Struct, frozen=True):
    """Two clusters side by side.

    Attributes:
        first, second: they.
        texts: the first event of each.
        verdict: why their first events merge or not, as `stream-dedup explain` says it; empty where
            the recipe is not known.
        merge: whether they would, if there were no other event and no rule.
        distance: bits in which their fingerprints differ.
        limit: the most bits with which events merge; null where the recipe does not go by bits.
        jaccard: the part of their words that they have in common.
        threshold: the least of it with which events merge; 0 where that is not asked.
        shared, first_only, second_only: the words that are compared.
        joining_word: the word of the first in which alone they differ: a rule that it is always a
            variable joins them; empty if there is none.
        rules: rules that act, and are about both.
    """

    first: Pattern
    second: Pattern
    texts: tuple[str, str]
    verdict: str
    merge: bool
    distance: int | None
    limit: int | None
    jaccard: float | None
    threshold: float
    shared: list[str]
    first_only: list[str]
    second_only: list[str]
    joining_word: str
    rules: list[Rule]


def neighbour_list(
    source: Source, first: bytes, near: Iterable[tuple[Entry, bytes | None]]
) -> NeighbourList:
    """Compare a cluster with others, as `stream-dedup explain` does."""
    out = []
    inspector = source.inspector
    for entry, value in near:
        if inspector is None or not value:
            continue
        compared = inspector.compare(first[:MAX_COMPARED_BYTES], value[:MAX_COMPARED_BYTES])
        out.append(
            Neighbour(
                pattern=pattern_of(source, entry),
                verdict=compared.verdict(),
                distance=compared.distance,
                jaccard=round(compared.jaccard, 3),
            )
        )
    return NeighbourList(out)


def pattern_pair(
    source: Source, entries: tuple[Entry, Entry], values: tuple[bytes, bytes]
) -> PatternPair:
    """Compare two clusters by their first events. That takes some milliseconds."""
    first, second = entries
    about = {rule.id for rule in source.rules.about(first.pattern)}
    pair = PatternPair(
        first=pattern_of(source, first),
        second=pattern_of(source, second),
        texts=(printable(values[0]), printable(values[1])),
        verdict="",
        merge=False,
        distance=None,
        limit=None,
        jaccard=None,
        threshold=0.0,
        shared=[],
        first_only=[],
        second_only=[],
        joining_word=joining_word(first.pattern, second.pattern),
        rules=[rule_of(rule) for rule in source.rules.about(second.pattern) if rule.id in about],
    )
    inspector = source.inspector
    if inspector is None or not all(values):
        return pair
    compared = inspector.compare(*(value[:MAX_COMPARED_BYTES] for value in values))
    recipe = inspector.recipe
    shared, first_only, second_only = (_named(inspector, each) for each in compared.features())
    return msgspec.structs.replace(
        pair,
        verdict=compared.verdict(),
        merge=compared.merge,
        distance=compared.distance,
        limit=recipe.match.k if recipe.fingerprint.kind == "simhash" else None,
        jaccard=round(compared.jaccard, 3),
        threshold=compared.threshold,
        shared=shared,
        first_only=first_only,
        second_only=second_only,
    )


def joining_word(left: str, right: str) -> str:
    """Return the word of the left pattern in which alone the patterns differ; empty for none.

    A rule that it is always a variable joins them.

    >>> joining_word("cache emptied by hand", "cache emptied by cron")
    'hand'
    >>> joining_word("cache emptied by hand", "cache filled by cron")
    ''
    """
    try:
        ours, theirs = read_pattern(left).elements, read_pattern(right).elements
    except ValueError:  # no word, or too many
        return ""
    if len(ours) != len(theirs):
        return ""
    places = [at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    if len(places) != 1:
        return ""
    own, other = ours[places[0]], theirs[places[0]]
    if own is None or other is None or ours.count(own) != 1:
        return ""
    return own


def _named(inspector: Inspector, features: Iterable[Feature]) -> list[str]:
    """Return the first features for people: words or groups of words."""
    return [
        inspector.named(each) if each.variable else readable(each.text, MAX_FEATURE)
        for each in islice(features, MAX_FEATURES)
    ]


class Token(NamedTuple):
    """A word of a pattern with the space before it.

    Attributes:
        text: the word.
        differs: whether the other pattern has not the same at this place.
    """

    text: str
    differs: bool


def aligned(left: str, right: str) -> tuple[list[Token], list[Token]]:
    """Return the words of two patterns, each with whether the other one has it there.

    >>> left, right = aligned("job <*> has ended", "job <*> was ended early")
    >>> [token.text for token in left if token.differs]
    ['has']
    >>> [token.text for token in right if token.differs]
    ['was', 'early']
    """
    sides = left.split(), right.split()
    first, second = (words[:MAX_TOKENS] for words in sides)
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    same: tuple[set[int], set[int]] = set(), set()
    for at, other, size in blocks:
        same[0].update(range(at, at + size))
        same[1].update(range(other, other + size))
    one, two = (
        [Token(word, number not in known) for number, word in enumerate(words)]
        for words, known in zip(sides, same, strict=True)
    )
    return one, two

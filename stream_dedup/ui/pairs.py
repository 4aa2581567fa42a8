"""Two patterns side by side: what differs, why they did not merge, and which rule would join them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

from stream_dedup.clustering.comparison import Comparison, Inspector
from stream_dedup.features.patterns import readable
from stream_dedup.fingerprint.reference import Feature
from stream_dedup.rules.template import read_pattern

MAX_FEATURES = 40
"""Features that are listed of each kind."""

MAX_FEATURE = 80
"""Characters of one."""

MAX_TOKENS = 400
"""Words of a pattern that are aligned with those of another one; the rest counts as different."""


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


class Features(NamedTuple):
    """What is compared of two events: words or word groups, named.

    Attributes:
        shared, left, right: those of both, of the left only, and of the right only.
    """

    shared: list[str]
    left: list[str]
    right: list[str]


def features_of(inspector: Inspector, compared: Comparison) -> Features:
    """Return the features of a comparison, a bounded number of each kind."""

    def named(found: Iterable[Feature]) -> list[str]:
        return [
            inspector.named(each) if each.variable else readable(each.text, MAX_FEATURE)
            for each in list(found)[:MAX_FEATURES]
        ]

    return Features(*map(named, compared.features()))

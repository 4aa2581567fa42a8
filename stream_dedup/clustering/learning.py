"""When a word is a variable: the rules of the one-off index, and its bounds.

`word_search` and `postings` in `index.memory` apply them, and ``_words.lua``; `fingerprint.one_off`
says what a slot is.
"""

from __future__ import annotations

from stream_dedup.fingerprint.one_off import COUNTED_STEP, MOST_COUNTED, REPEATED, VALUE_BITS

OWN = 127
"""The number of a posting that stands for no slot."""

COMBINATION = 126
"""The number of a posting that lists a combination of a shape: its value says which."""

MAX_COMBINATIONS = 8
"""Combinations that are tried for a pattern, of those that its shape has."""

MAX_LISTED = 3
"""Clusters by which a combination is listed: when one closes, the others are still found."""

MAX_ASSUMED = 3
"""Combinations for which a pattern that opens a cluster has its values noted, likewise."""

LEARNED = (1 << VALUE_BITS + 1) - 1
"""The value of a slot that is learned."""

MAX_POSTINGS = 64
"""Postings of a list; more are not noted."""

MAX_POSTING_LISTS = 512
"""Posting lists that name a cluster; its patterns are noted in no more."""

MAX_MERGED = 34
"""Clusters that one event merges: as many as a slot may name, 31 by its values, and those found
otherwise. A slot that would exceed it, and those behind it, are learned with a later value."""

MAX_MOVED = 256
"""Posting lists of the clusters that one event merges, likewise, without those of the cluster that
has the most; those of the first slot or combination do not count. No more than `MAX_POSTING_LISTS`
are looked at, to see whether they say more than values and follow: the others are purged."""

MAX_LOADED = 128
"""Clusters named by postings that Redis loads for an event, at most. If there are more, the search
counts as truncated."""

LEAST_SAME = 4
"""Patterns of at least so many words match if all their words are equal."""

LEAST_COMMON = 3
"""If two patterns have at least so many words in common, one of them may lack a word that a
placeholder replaces: ``new login from localhost refused`` and ``new login from 10.0.0.1 refused``.
The first word says what happened, so it is never missing."""

LEAST_COUNTED = 2
"""So many of these words count: are no log level, and have a letter. ``INFO worker shut down`` and
``INFO <*> shut down`` belong together; ``INFO - worker stopped`` and ``INFO - <*> stopped`` have a
single word in common that says something."""

MANY_COUNTED = 6
"""If two patterns have at least so many words in common that count, one of them may lack a word
that nothing replaces. But this is never the last word, which says how something ended: ``session
closed for user ann``, ``session closed for user ann late``."""

# Of a pattern that lacks the word it is known whether so many count.
assert {LEAST_COUNTED, MANY_COUNTED} <= {*range(0, MOST_COUNTED + 1, COUNTED_STEP)}

FEW_AROUND = 2
"""If a pattern has so few other words, twice as many values make a variable; beside a single word,
four times as many."""


def wanted_values(learn: int, around: int) -> int:
    """Return how many distinct values make a slot learned.

    >>> [wanted_values(5, around) for around in (1, 2, 3, 4)]
    [20, 10, 5, 5]

    Args:
        learn: as `Match.learn`.
        around: how many words are around the slot.
    """
    return learn if around > FEW_AROUND else (2 if around == FEW_AROUND else 4) * learn


def wanted_together(learn: int) -> int:
    """Return how many distinct values each of the words must have that vary in a combination.

    One word that varies a lot says nothing of another: ``user <*> copied table users`` has many
    users, and few verbs.

    >>> wanted_together(5)
    10

    Args:
        learn: as `Match.learn`.
    """
    return 2 * learn


def may_be_missing(number: int, words: int, counted: int, gaps: int, *, beside_gap: bool) -> bool:
    """Return whether two patterns belong together of which one has a word more.

    Args:
        number: of the word, in the longer pattern.
        words: how many the longer pattern has.
        counted: how many of the others count: of the longer pattern `WordSlot.around`; of the
            shorter one `Keys.counted`, which may be less, but not here.
        gaps: where placeholders are in the shorter one (`one_off.gaps_of`); `one_off.ALL_GAPS`
            if its pattern shows that any word may be there.
        beside_gap: whether one is beside the word, in the longer pattern. Then that of the shorter
            one does not replace the word: ``pid 7``, ``pid 7 crashed``.
    """
    if not 0 < number < REPEATED:
        return False
    if gaps >> number & 1:
        return words - 1 >= LEAST_COMMON and counted >= LEAST_COUNTED and not beside_gap
    return counted >= MANY_COUNTED and number < words - 1

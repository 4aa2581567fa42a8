"""A second, wider search: texts whose disguises leave the recipe too little to compare.

Problem: the recipe compares four letters in a row. If every fourth letter is a sign that nobody
has a table of, or every second word is noise, two messages of a campaign share a tenth of these,
and a threshold as low as that merges strangers.

Idea: letters that are left still come in the same *order*. Strangers share pairs of letters as
well, but not in order. So

1. *candidates* are the texts that share some of the 128 least hashes of four letters in a row: the
   hashes are looked up one by one, not three at a time as in a band, which finds texts with a tenth
   in common, and costs more. It is done only for texts that the recipe has found new;
2. they are *verified* by the longest common subsequence L of their pairs of letters: 2L / all
   pairs. For two messages of a campaign with leetspeak or noise 0.5 (`generate`) it is some 0.5,
   for strangers 0.2, and for campaigns that share a third of their text 0.45.

The length of the longest common subsequence is computed for all pairs of one text at once, a bit
each (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004).

The hashes are keyed (BLAKE2 under the `HashKey`): without the key, nobody can foresee which of a
text's hashes are looked up. Work and memory are bounded by the constants below, whatever is sent.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, OrderedDict, defaultdict
from hashlib import blake2b
from operator import add
from typing import Generic, NamedTuple, TypeVar

from stream_dedup import load_recipe
from stream_dedup.features.prepare import Preparer
from stream_dedup.fingerprint.siphash import HashKey

TEXTS = 4_096
"""Texts that are searched, the newest: 5 to 17 KB each."""
SIMILARITY = 0.5
"""Least similarity of two texts of a campaign."""
LETTERS = 600
"""Letters of a text that are compared."""
HASHES = 128
"""Least hashes of a text that lead to it."""
CROWD = 32
"""Texts that one hash leads to, the newest."""
SHARED = 3
"""Least hashes that a candidate shares."""
CANDIDATES = 5
"""Texts compared with a new one, those that share the most hashes."""

Owner = TypeVar("Owner")


class Face(NamedTuple):
    """A text as it is compared.

    Attributes:
        letters: its letters, without disguise as far as the recipe knows it.
        hashes: the least keyed hashes of four letters in a row.
    """

    letters: str
    hashes: array[int]


class Compared:
    """A text that others are compared with.

    >>> compared = Compared("freemoney")
    >>> compared.similarity("frxeemonzey"), compared.similarity("yenomeerf")
    (0.6666666666666666, 0.125)

    Args:
        letters: the text.
    """

    def __init__(self, letters: str) -> None:
        self._pairs = max(0, len(letters) - 1)
        self._places: defaultdict[str, int] = defaultdict(int)
        for index, pair in enumerate(map(add, letters, letters[1:])):
            self._places[pair] |= 1 << index

    def similarity(self, letters: str) -> float:
        """2L / all pairs of letters of both texts: 0 to 1."""
        places, every = self._places, (1 << self._pairs) - 1
        open_ = every
        # A bit is 0 where the subsequence with the pairs of `letters` so far becomes longer.
        for pair in map(add, letters, letters[1:]):
            if pair in places and (found := places[pair] & open_):
                open_ = (open_ + found | open_ - found) & every
        pairs = self._pairs + max(0, len(letters) - 1)
        return 2 * (self._pairs - open_.bit_count()) / max(1, pairs)


class WiderSearch(Generic[Owner]):
    """Finds the owner of a similar text among the newest.

    Args:
        key: of the hashes.
        texts: how many are kept.
    """

    def __init__(self, key: HashKey, texts: int = TEXTS) -> None:
        recipe = load_recipe("text")
        self._key = key.secret()
        self._preparer = Preparer(recipe)
        self._max_texts = texts
        self._faces: OrderedDict[int, tuple[Face, Owner]] = OrderedDict()
        self._by_hash: dict[int, tuple[int, ...]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._faces)

    def face(self, text: str) -> Face:
        """A text as it is compared."""
        (folded,) = self._preparer.texts([text.encode("utf-8", "replace")])
        letters = folded[: 4 * LETTERS].decode("utf-8", "replace")[:LETTERS]
        grams = {letters[at : at + 4] for at in range(max(1, len(letters) - 3))}
        hashes = (blake2b(gram.encode(), key=self._key, digest_size=4).digest() for gram in grams)
        least = heapq.nsmallest(HASHES, {int.from_bytes(each) for each in hashes})
        return Face(letters, array("I", least))

    def similar(self, face: Face) -> list[Owner]:
        """The owners of similar texts, the most similar first; one may come several times."""
        shared = Counter(
            number for each in face.hashes for number in self._by_hash.get(each, ())
        ).most_common(CANDIDATES)
        compared = Compared(face.letters)
        found: list[tuple[float, Owner]] = []
        for number, count in shared:
            if count < SHARED:
                break
            other, owner = self._faces[number]
            alike = compared.similarity(other.letters)
            if alike >= SIMILARITY:
                found.append((alike, owner))
        return [owner for _, owner in sorted(found, key=lambda pair: -pair[0])]

    def add(self, face: Face, owner: Owner) -> None:
        """Let a text be found; the oldest is forgotten if there are too many."""
        number, self._next = self._next, self._next + 1
        self._faces[number] = face, owner
        for each in face.hashes:
            self._by_hash[each] = (*self._by_hash.get(each, ()), number)[-CROWD:]
        if len(self._faces) > self._max_texts:
            self._forget(next(iter(self._faces)))

    def _forget(self, number: int) -> None:
        face, _ = self._faces.pop(number)
        for each in face.hashes:
            crowd = self._by_hash.get(each, ())
            if crowd[:1] == (number,):  # it is the oldest of all
                if len(crowd) > 1:
                    self._by_hash[each] = crowd[1:]
                else:
                    del self._by_hash[each]

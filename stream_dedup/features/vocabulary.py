"""Vocabularies: weights of features from the number of documents that contain them.

Problem: a word that is in every document does not distinguish documents. How common words are can
be learnt from a corpus; but if weights were learnt from the stream, a text would get another
fingerprint tomorrow, which matches nothing that is stored.

Idea: count once, over a corpus, and freeze. The result is a table for `features.weights.file`,
which is part of the recipe's digest like any other table.

Counting. Each distinct feature of a document counts once. If there are more than `max_held`
features, the rarest are dropped: first all seen once, then twice, until a quarter is gone. A
dropped feature that occurs again is counted from zero, so counts may be too low, by at most
`Counts.missed`.

Deviation: lossy counting (Manku and Motwani, VLDB 2002) drops after a fixed number of documents;
here features are dropped when memory is full. The order of documents matters only then.

Weights. With N documents, of which df hold the feature, in the scale 1 to 1000:

- ``idf``: ln(N / df), as a share of ln N. A feature of every document gets 1, of one document
  1000.
- ``smooth``: 1 + ln((1 + N) / (1 + df)), as a share of the same for df = 1. Common features keep
  some weight.

Worked: N = 8, df = 1, 2, 4, 8: ln 8/df is 2.08, 1.39, 0.69, 0, so ``idf`` gives 1000, 667, 333, 1.

A feature that is not in the table was seen in at most one document, so it should have the weight of
df = 1: set ``features.weights.default = 1000`` in the recipe.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from stream_dedup.features.prepare import NO_SALT, FeatureExtractor, Preparer
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.tokens import PLACEHOLDER
from stream_dedup.features.weights import MAX_WEIGHT

MAX_HELD = 1_000_000
"""Maximum features while counting: some 150 MB if they are short."""

MAX_FEATURE_BYTES = 256
"""Longer features are not counted."""

KEPT_OF_FULL = 0.75

Formula = Literal["idf", "smooth"]


class Counts:
    """Counts the documents that contain each feature.

    Args:
        recipe: decides the features; its weights do not matter.
        max_held: maximum number of features.
    """

    def __init__(self, recipe: Recipe, max_held: int = MAX_HELD) -> None:
        self._extractor = FeatureExtractor(recipe)
        self._preparer = Preparer(recipe)
        self._max_held = max_held
        self._counts: Counter[bytes] = Counter()
        self.documents = 0
        """Documents with at least one feature."""
        self.missed = 0
        """By how much a count may be too low, at most."""

    @property
    def takes_fields(self) -> bool:
        """Whether documents must be given as decoded JSON."""
        return self._preparer.takes_fields

    def add(self, text: bytes, document: object = None) -> None:
        """Count a document, given as any bytes, and decoded where the recipe takes fields.

        Raises:
            Exception: whatever a foreign extractor raises.
        """
        if self.takes_fields and document is not None:
            parts = [(part, w, NO_SALT) for _, part, w in self._preparer.parts(document)]
        else:
            parts = [(self._preparer.text(text), 1, NO_SALT)]
        found = {feature for feature, _, _ in self._extractor.features(parts)} - {PLACEHOLDER}
        if found:
            self.documents += 1
            self._counts.update(f for f in found if len(f) <= MAX_FEATURE_BYTES)
            if len(self._counts) > self._max_held:
                self._forget()

    def _forget(self) -> None:
        left = round(self._max_held * KEPT_OF_FULL)
        by_count = Counter(self._counts.values())
        held, least = len(self._counts), 0
        while held > left:
            least += 1
            held -= by_count[least]
        self._counts = Counter({f: n for f, n in self._counts.items() if n > least})
        self.missed += least

    def frequent(self, min_count: int, max_features: int) -> list[tuple[str, int]]:
        """Return (feature, documents), the most frequent first, equally frequent ones by bytes.

        Features that cannot be a line of the table are left out: those that are not UTF-8, contain
        a line end, or begin with ``#``.
        """
        found = [
            (feature, count)
            for feature, count in self._counts.items()
            if count >= min_count and _is_writable(feature)
        ]
        found.sort(key=lambda item: (-item[1], item[0]))
        return [(feature.decode(), count) for feature, count in found[:max_features]]


def _is_writable(feature: bytes) -> bool:
    if feature.startswith(b"#") or b"\n" in feature or b"\r" in feature:
        return False
    try:
        feature.decode()
    except UnicodeDecodeError:
        return False
    return True


def weight(formula: Formula, documents: int, count: int) -> int:
    """Return the weight of a feature, from 1 to `MAX_WEIGHT`.

    >>> [weight("idf", 8, count) for count in (1, 2, 4, 8)]
    [1000, 667, 333, 1]

    Args:
        formula: see the module.
        documents: N.
        count: df, at least 1.
    """
    if formula == "idf":
        share = math.log(documents / count) / math.log(documents) if documents > 1 else 1.0
    else:
        smooth = [1 + math.log((1 + documents) / (1 + df)) for df in (count, 1)]
        share = smooth[0] / smooth[1]
    return min(MAX_WEIGHT, max(1, round(MAX_WEIGHT * share)))


class Origin(NamedTuple):
    """How a table was made, for the comments at its head.

    Attributes:
        recipe: decided the features.
        formula: made weights from counts.
        min_count: minimum documents of a feature.
    """

    recipe: Recipe
    formula: Formula
    min_count: int


def table(counts: Counts, found: Sequence[tuple[str, int]], origin: Origin) -> Iterator[str]:
    """Yield the lines of a table of weights: comments, then ``feature<TAB>weight``."""
    yield from _head(counts, len(found), origin)
    for feature, count in found:
        yield f"{feature}\t{weight(origin.formula, counts.documents, count)}\n"


def _head(counts: Counts, kept: int, origin: Origin) -> Iterable[str]:
    formulas = {
        "idf": "1000 * ln(N / df) / ln(N)",
        "smooth": "1000 * (1 + ln((1 + N) / (1 + df))) / (1 + ln((1 + N) / 2))",
    }
    features = origin.recipe.features
    yield f"# Vocabulary: {kept} features of {counts.documents} documents, learnt once, frozen.\n"
    yield (
        f"# Recipe {origin.recipe.name}, digest {origin.recipe.digest}: "
        f"extractor {features.extractor}, ngram {features.ngram}.\n"
    )
    yield (
        f"# Weight: {origin.formula}, {formulas[origin.formula]}, N documents of which df >= "
        f"{origin.min_count} hold it; at least 1.\n"
    )
    if counts.missed:
        yield f"# Memory was full: a df may be too low, by {counts.missed} at most.\n"
    yield f"# Use with features.weights.default = {MAX_WEIGHT}: what is not here is rare.\n"

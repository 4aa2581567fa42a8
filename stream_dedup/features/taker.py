"""Features taken in Python: by extractors and tables that the kernel does not have.

The kernel scans words and characters by itself and weights single words by a table. What else a
recipe may ask for is taken here, at the cost of a few Python steps a feature: extractors that are
functions, and a table of weights for n-grams, characters or the features of such functions. The
kernel then only hashes and folds. Vocabularies (`vocabulary`) are learnt from the same features,
so that what a table names is what is looked up in it.

A feature's weight is the extractor's own times the table's, where there is a table, times the
field's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stream_dedup.features import structure
from stream_dedup.features.extractors import KERNEL_EXTRACTORS, Extractor, load_extractor
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.tokens import PLACEHOLDER, tokenise

MAX_FEATURES = 100_000
"""An extractor of one's own yields no more features than this of one event."""

MAX_WEIGHT = (1 << 32) - 1
"""Of one feature, as the kernel takes it."""

Part = tuple[bytes, int, int]
"""(text, weight, salt) of a part of an event; or of a feature, which is such a part."""


class Taker:
    """Takes the features of events by one recipe. Safe to share by threads.

    Raises:
        RecipeError: the extractor cannot be loaded.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        settings = recipe.features
        weights = settings.weights
        self._table = {feature.encode(): weight for feature, weight in weights.table.items()}
        if settings.extractor == "words":
            self._split = recipe.split
            self._extract: Extractor = self._words
        elif settings.extractor == "characters":
            self._extract = self._characters
        elif settings.extractor in structure.READERS:
            self._extract = structure.both(settings.extractor, weights.layout, weights.content)
        else:
            self._extract = load_extractor(settings.extractor, f"recipe {recipe.name}")

    @staticmethod
    def needed(recipe: Recipe) -> bool:
        """Whether a recipe's features cannot be taken by the kernel."""
        settings = recipe.features
        if settings.extractor not in KERNEL_EXTRACTORS:
            return True
        single_words = (settings.extractor, settings.ngram) == ("words", 1)
        return bool(settings.weights.table) and not single_words

    def to_fold(self, parts: Sequence[Part]) -> list[Part]:
        """`features` as the kernel is to fold them.

        An event whose words are all placeholders has its texts for features, so that only the same
        text is equal, as in the kernel.

        Raises:
            Exception: as `features`.
        """
        features = self.features(parts)
        words = self._recipe.features.extractor == "words"
        if words and features and all(feature == PLACEHOLDER for feature, _, _ in features):
            return [(text, weight, salt) for text, weight, salt in parts if text]
        return features

    def features(self, parts: Sequence[Part]) -> list[Part]:
        """The (feature, weight, salt) triples of an event, `MAX_FEATURES` at most.

        Raises:
            TypeError: the extractor gave something else than features and weights.
            Exception: whatever an extractor of one's own raises.
        """
        limit = self._recipe.input.max_bytes
        default = self._recipe.features.weights.default if self._table else 1
        features: list[Part] = []
        for text, weight, salt in parts:
            found: Iterable[tuple[Any, Any]] = self._extract(text[:limit])  # what it gave, unproven
            for feature, own in found:
                if not isinstance(feature, bytes):
                    raise TypeError(f"{feature!r}, {own!r} is no feature and weight")
                given = own * self._table.get(feature, default) if self._table else own
                if not 0 <= given * weight <= MAX_WEIGHT:
                    raise TypeError(f"{feature!r}, {own!r} is no feature and weight")
                features.append((feature, given * weight, salt))
                if len(features) == MAX_FEATURES:
                    return features
            if len(text) > limit:
                features.append((text[limit:], default * weight, salt))
        return features

    def _words(self, text: bytes) -> Iterator[tuple[bytes, int]]:
        """Words in a row, joined by spaces, as the kernel's n-grams."""
        settings = self._recipe.features
        tokens = [token.text for token in tokenise(text, self._split, self._recipe.text.classes)]
        shortest = 1 if settings.window == "filling" else min(settings.ngram, len(tokens))
        for end in range(max(1, shortest), len(tokens) + 1):
            yield b" ".join(tokens[max(0, end - settings.ngram) : end]), 1

    def _characters(self, text: bytes) -> Iterator[tuple[bytes, int]]:
        """Characters in a row; a character is a byte and the UTF-8 continuation behind it."""
        n = self._recipe.features.ngram
        starts = [i for i, byte in enumerate(text) if i == 0 or byte & 0xC0 != 0x80]
        ends = [*starts[n:], len(text)] if len(starts) >= n else [len(text)]
        for start, end in zip(starts, ends, strict=False):
            yield text[start:end], 1

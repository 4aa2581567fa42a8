"""From an event to what the kernel takes: prepared text, and features taken in Python.

`Preparer` applies the recipe's fields, Unicode form, case, masks or folding. Most log recipes need
none of it, and their texts go to the kernel unchanged.

The kernel itself finds words and characters, and weights single words by a table.
`FeatureExtractor` takes the other features that a recipe may ask for, in a few Python steps each:
extractors that are functions, and tables of weights for n-grams, characters or the features of
functions. The kernel then only hashes and folds. Vocabularies (`vocabulary`) are learnt from the
same features, so that their tables name what is looked up.

A feature's weight is the extractor's own, times the table's if there is one, times the field's.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stream_dedup.features import folding, structure
from stream_dedup.features.extractors import KERNEL_EXTRACTORS, Extractor, load_extractor
from stream_dedup.features.fields import parse_path, select
from stream_dedup.features.lines import LineReader
from stream_dedup.features.masks import Masker
from stream_dedup.features.recipe import Recipe, Text
from stream_dedup.features.tokens import PLACEHOLDER

_NFKC_CHARACTERS = 1024

MAX_FEATURES = 100_000
"""Maximum features of one event."""

MAX_WEIGHT = (1 << 32) - 1
"""Maximum weight of one feature in the kernel."""

Salt = tuple[int, int]
"""What keeps a field's features apart from those of other fields, of 64 bits each: XORed into the
votes on a fingerprint, and into the keyed hashes."""

NO_SALT: Salt = (0, 0)

Fold = Callable[[Sequence[bytes]], list[bytes]]

Part = tuple[bytes, int, Salt]
"""(text, weight, salt) of a part of an event, or of a feature."""


class Preparer:
    """Prepares events according to a recipe.

    Attributes:
        takes_fields: whether the recipe reads fields of a decoded JSON event.
        changes_text: whether `text` may return anything but its argument.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._masker = Masker(recipe.masks) if recipe.masks else None
        self._fold = _fold_of(recipe.text)
        self._spaces = recipe.features.extractor == "characters"
        self._max_bytes = recipe.input.max_bytes
        self._fields = [(parse_path(f.path), f.weight) for f in recipe.input.fields]
        plain = self._masker is None and self._fold is None and not self._spaces
        self._lower_only = plain and recipe.text.case == "lower"
        self.takes_fields = bool(self._fields)
        self.changes_text = not plain or (recipe.text.case, recipe.text.unicode) != ("keep", "keep")

    def texts(self, values: Sequence[bytes]) -> list[bytes]:
        """Prepare several texts."""
        if self._lower_only:  # the common case, without a call an event
            text, limit = self.text, self._max_bytes
            return [
                value.lower() if value.isascii() and len(value) <= limit else text(value)
                for value in values
            ]
        if self._fold is not None:
            return self._folded(self._fold, values)
        return list(map(self.text, values))

    def _folded(self, fold: Fold, values: Sequence[bytes]) -> list[bytes]:
        """Fold several texts in one call, each up to ``max_bytes``."""
        limit = self._max_bytes
        if max(map(len, values), default=0) <= limit:
            return fold(values)
        heads = fold([value[:limit] for value in values])
        return [head + value[limit:] for head, value in zip(heads, values, strict=True)]

    def text(self, value: bytes) -> bytes:
        """Prepare a text, given as any bytes.

        What lies beyond ``max_bytes`` stays unchanged, as the kernel treats it as one feature.
        """
        limit = self._max_bytes
        if len(value) > limit:
            return self.text(value[:limit]) + value[limit:]
        if self._fold is not None:
            return self._fold([value])[0]
        text = self._recipe.text
        if not value.isascii() and (text.unicode == "nfkc" or text.case == "lower"):
            decoded = value.decode("utf-8", "surrogateescape")
            if text.unicode == "nfkc":
                # In pieces: sorting one long run of combining marks costs its square.
                decoded = "".join(
                    unicodedata.normalize("NFKC", decoded[start : start + _NFKC_CHARACTERS])
                    for start in range(0, len(decoded), _NFKC_CHARACTERS)
                )
            if text.case == "lower":
                decoded = decoded.lower()
            value = decoded.encode("utf-8", "surrogateescape")
        elif text.case == "lower":
            value = value.lower()
        if self._masker is not None:
            value = self._masker.substitute(value)
        return b" ".join(value.split()) if self._spaces else value

    def masked(self, value: bytes) -> list[tuple[int, int]]:
        """Return where the masks match in a text."""
        return self._masker.spans(value) if self._masker is not None else []

    def parts(self, document: object) -> Iterator[tuple[str, bytes, int]]:
        """Yield (name, prepared text, weight) of the fields found in a decoded event."""
        for steps, weight in self._fields:
            for name, text in select(document, steps):
                yield name, self.text(text), weight


def _fold_of(text: Text) -> Fold | None:
    """Return the function that folds texts; None if they are not folded."""
    if text.fold == "keep":
        return None
    module = folding.fastest()
    functions: dict[str, Fold] = {
        "look-alikes": module.fold,
        "look-alikes+words": module.fold_both,
        "words": module.fold_words,
    }
    fold = functions[text.fold]
    if not text.boilerplate:
        return fold
    leave_out = module.Passages(folding.folded_passages(text.boilerplate)).leave_out
    return lambda values: leave_out(fold(values))


class FeatureExtractor:
    """Extracts the features of events by one recipe. Threads may share it.

    Raises:
        RecipeError: the extractor cannot be loaded.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        settings = recipe.features
        weights = settings.weights
        self._table = {feature.encode(): weight for feature, weight in weights.table.items()}
        if settings.extractor == "words":
            self._reader = LineReader(recipe)
            self._extract: Extractor = self._words
        elif settings.extractor == "characters":
            self._extract = self._characters
        elif settings.extractor in structure.READERS:
            self._extract = structure.both(settings.extractor, weights.layout, weights.content)
        else:
            self._extract = load_extractor(settings.extractor, f"recipe {recipe.name}")

    @staticmethod
    def needed(recipe: Recipe) -> bool:
        """Return whether the kernel cannot extract a recipe's features by itself."""
        settings = recipe.features
        if settings.extractor not in KERNEL_EXTRACTORS:
            return True
        single_words = (settings.extractor, settings.ngram) == ("words", 1)
        return bool(settings.weights.table) and not single_words

    def to_fold(self, parts: Sequence[Part]) -> list[Part]:
        """Return the features for the kernel to fold.

        If all words of an event are placeholders, its texts are its features, so that only the same
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
        """Return the (feature, weight, salt) triples of an event, at most `MAX_FEATURES`.

        Raises:
            TypeError: the extractor returned something other than features and weights.
            Exception: whatever a foreign extractor raises.
        """
        limit = self._recipe.input.max_bytes
        default = self._recipe.features.weights.default if self._table else 1
        features: list[Part] = []
        for text, weight, salt in parts:
            found: Iterable[tuple[Any, Any]] = self._extract(text[:limit])  # unchecked
            for feature, own in found:
                if not isinstance(feature, bytes):
                    raise TypeError(f"{feature!r}, {own!r} is not a feature and weight")
                given = own * self._table.get(feature, default) if self._table else own
                if not 0 <= given * weight <= MAX_WEIGHT:
                    raise TypeError(f"{feature!r}, {own!r} is not a feature and weight")
                features.append((feature, given * weight, salt))
                if len(features) == MAX_FEATURES:
                    return features
            if len(text) > limit:
                features.append((text[limit:], default * weight, salt))
        return features

    def _words(self, text: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield n-grams of words, joined by spaces, as in the kernel."""
        settings = self._recipe.features
        text = self._reader.without_escapes(text)
        tokens = [token.text for token in self._reader.read(text).tokens]
        shortest = 1 if settings.window == "filling" else min(settings.ngram, len(tokens))
        for end in range(max(1, shortest), len(tokens) + 1):
            yield b" ".join(tokens[max(0, end - settings.ngram) : end]), 1

    def _characters(self, text: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield n-grams of characters: a byte and the UTF-8 continuation bytes after it."""
        n = self._recipe.features.ngram
        starts = [i for i, byte in enumerate(text) if i == 0 or byte & 0xC0 != 0x80]
        ends = [*starts[n:], len(text)] if len(starts) >= n else [len(text)]
        for start, end in zip(starts, ends, strict=False):
            yield text[start:end], 1

"""The kernel in plain Python, written to be read; the native kernel computes the same.

Theory of operation
-------------------
1. **Tokens.** A text longer than ``max_bytes`` is cut there; the rest counts as one word. With the
   extractor ``words``, `LineReader` finds the tokens; each is hashed, and each run of variables has
   the one placeholder hash. With ``characters`` the whole text is one token; of a text that is
   folded to look-alikes and words, what is before the words.
2. **Exact hash**: the hash of the sequence of token identities, over all parts of the event. Equal
   patterns have equal hashes. If an event has no words, its text is hashed as it is, so that only
   the same text is equal; but white space alone has the hash of nothing.
3. **Features.** Words: the tokens, or the hashes of n consecutive tokens. Characters: n consecutive
   characters; a character is a byte and the UTF-8 continuation bytes after it, so any bytes are
   accepted. A part with fewer than n gives one feature of what it has.
4. **Fingerprint**: `simhash` or `minhash` over the features' votes and weights, or `bands` over the
   identities of features that have a weight and are not placeholders.
5. **Sketch**: the least distinct identities of the tokens that are not placeholders (words), or of
   the features (other extractors). Verification compares sketches; a recipe without it has none.
   Where the running text must be equal (`Recipe.compares_text`), and the event has enough words
   to be matched by its fingerprint, the hash of the sequence of these words is mixed into each
   identity: with another text nothing is common.
6. **Variant**: the hash of the sequence of protected words, levels and statuses
   (`variants`); where there are some, it is the last element of the exact hash's sequence. Of a
   stack trace the kernel gets the header alone; the fingerprinter adds its frames to both hashes.

A feature has two hashes. Its *votes* make the fingerprint, which is public and only nominates
candidates: MurmurHash3, or another hash that the recipe names. Its *identity* decides whether two
features are equal: SipHash under a secret key (`siphash`), so nobody can make two of them equal.
A salt is XORed into both, so that equal words in different fields differ.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from stream_dedup.features.folding import WORDS
from stream_dedup.features.kinds import names_kind
from stream_dedup.features.lines import LineReader
from stream_dedup.features.pieces import WORD_BYTE
from stream_dedup.features.prepare import NO_SALT, Part, Salt
from stream_dedup.features.recipe import HASH_BITS, Recipe
from stream_dedup.features.tokens import PLACEHOLDER, Token
from stream_dedup.features.variants import LEVELS, protected_word
from stream_dedup.fingerprint import bands, one_off
from stream_dedup.fingerprint.hashing import MASK64, OTHERS, cyclic, hash128, hash_sequence, mix
from stream_dedup.fingerprint.kernel import (
    BAND_BYTES,
    MAX_VOTES,
    MAX_WEIGHT,
    SKETCH_SIZE,
    Fingerprints,
    Segments,
)
from stream_dedup.fingerprint.minhash import least_hashes, minhash
from stream_dedup.fingerprint.simhash import simhash
from stream_dedup.fingerprint.siphash import HashKey, fastest_siphash
from stream_dedup.tables import sketches


class Feature(NamedTuple):
    """A piece of an event.

    Attributes:
        text: its bytes; of a placeholder, the variables in its place. Consecutive words are joined
            by spaces; shown to people, it begins with the field's name.
        identity: its keyed hash, salted; equal features have equal identities.
        bits: its votes: its MurmurHash3, or the hash that the recipe names, salted.
        weight: the weight of its votes.
        variable: whether it is a placeholder.
        protected: whether it is a protected word.
        assigned: whether it is a word that is the value of a key, and not protected.
        of_kind: whether it is a word that names a kind.
        level: whether it is a protected word that is a log level.
        running: whether it is a word of the running text (`Recipe.compares_text`).
        bare: whether it is a word without letters, such as ``-``.
    """

    text: bytes
    identity: int
    bits: int
    weight: int
    variable: bool
    protected: bool = False
    assigned: bool = False
    of_kind: bool = False
    level: bool = False
    running: bool = False
    bare: bool = False


class Taken(NamedTuple):
    """The tokens and features of one event.

    Attributes:
        tokens: its words and placeholders in order.
        features: the features, repeats included.
        verbatim: the identity of each part's text.
        variant: the words that make its variant.
        blank: whether it is white space alone.
    """

    tokens: list[Feature]
    features: list[Feature]
    verbatim: list[int]
    variant: list[bytes]
    blank: bool = True

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare."""
        return not self.tokens and self.blank


def _check(feature: object, weight: object) -> None:
    # They come from foreign extractors.
    if not isinstance(feature, bytes):
        raise TypeError(f"a feature is bytes, not {type(feature).__name__}")
    if not isinstance(weight, int) or not 0 <= weight <= MAX_WEIGHT:
        raise ValueError(f"a weight is a whole number from 0 to {MAX_WEIGHT}: {weight!r}")


def _one_off(tokens: list[Feature]) -> bytes:
    words = [token for token in tokens if not token.variable]
    if not 2 <= len(words) <= one_off.MAX_WORDS:
        return b""
    hashes, assigned = [word.identity for word in words], [word.assigned for word in words]
    fixed = [word.protected or word.of_kind for word in words]
    weak = [word.level or word.of_kind for word in words]
    uncounted = [word.level or word.bare for word in words]
    return one_off.pack(
        one_off.pattern_keys(hashes, fixed, assigned, weak, uncounted, _gaps(tokens))
    )


def _gaps(tokens: list[Feature]) -> int:
    gaps = words = 0
    for token in tokens:
        if token.variable:
            gaps |= 1 << words
        else:
            words += 1
    return gaps


def _of_bands(taken: Taken) -> set[int]:
    """Return the hashes of which bands and their sketch are made."""
    return {f.identity >> 32 for f in taken.features if f.weight and not f.variable}


class ReferenceKernel:
    """The kernel in plain Python; see `kernel.Kernel` for the methods."""

    def __init__(self, recipe: Recipe, key: HashKey) -> None:
        self._recipe = recipe
        self._identity = partial(fastest_siphash(), key)
        self._reader = LineReader(recipe, reference=True)
        self._structured = recipe.text.classes == "structured"
        self._hash = OTHERS.get(recipe.fingerprint.hash)
        self._bits = (1 << HASH_BITS[recipe.fingerprint.hash]) - 1
        self._tie = int(recipe.fingerprint.tie == "one")
        weights = recipe.features.weights
        self._verifies = recipe.match.jaccard > 0
        self._has_words = recipe.text.fold == "look-alikes+words"
        self._protected, self._levels = recipe.protected, recipe.levels
        self._weights = {word.encode(): weight for word, weight in weights.table.items()}

    def scan(self, texts: Sequence[bytes], full: bool, sketch_from_bytes: int = 0) -> Fingerprints:
        numbers = self._numbers((self.take([(text, 1, NO_SALT)]) for text in texts), full)
        if full and self._recipe.fingerprint.kind == "bands":
            for row, text in enumerate(texts):
                if len(text) < sketch_from_bytes:
                    numbers.sketches[row] = b""
        return numbers

    def exact_of(self, text: bytes) -> int:
        return self.scan([text], full=False).exact[0]

    def sketches(self, texts: Sequence[bytes]) -> list[bytes]:
        if self._recipe.fingerprint.kind != "bands":
            raise ValueError("only bands have sketches of their own")
        return [self.sketch(self.take([(text, 1, NO_SALT)])) for text in texts]

    def scan_segments(self, segments: Segments, full: bool) -> Fingerprints:
        salts = zip(segments.salts, segments.identity_salts, strict=True)
        parts = list(zip(segments.texts, segments.weights, salts, strict=True))
        starts = [0, *segments.ends][:-1]
        events = (parts[start:end] for start, end in zip(starts, segments.ends, strict=True))
        return self._numbers((self.take(event) for event in events), full)

    def fold(self, events: Sequence[Sequence[Part]], full: bool) -> Fingerprints:
        return self._numbers((self.take_features(event) for event in events), full)

    def take(self, parts: Iterable[Part]) -> Taken:
        """Return the tokens and features of an event, given as (text, weight, salt) parts."""
        parts = list(parts)
        taken = Taken([], [], [], [], all(not text or text.isspace() for text, *_ in parts))
        for text, weight, salt in parts:
            taken.verbatim.append(self._identity(text) ^ salt[1])
            limit = self._recipe.input.max_bytes
            head, rest = text[:limit], text[limit:]
            if self._recipe.features.extractor == "characters":
                whole = head.partition(WORDS)[0] or head if self._has_words else head
                tokens = [self._feature(whole, weight, salt)] if head else []
                features = list(self._character_ngrams(head, weight, salt))
            else:
                head = self._reader.without_escapes(head)
                reading = self._reader.read(head)
                tokens = list(self._words(head, reading.tokens, weight, salt))
                features = list(self._word_ngrams(tokens, weight, salt))
                taken.variant.extend(one.word for one in reading.variant)
            if rest:
                default = self._recipe.features.weights.default
                tokens.append(self._feature(rest, default * weight, salt))
                features.append(tokens[-1])
            taken.tokens.extend(tokens)
            taken.features.extend(features)
        return taken

    def take_features(self, event: Iterable[Part]) -> Taken:
        """Return the features of an event, given as (feature, weight, salt) triples."""
        features: list[Feature] = []
        for text, weight, salt in event:
            _check(text, weight)
            features.append(self._feature(text, weight, salt))
        return Taken(features, features, [], [])

    def _words(
        self, text: bytes, tokens: Iterable[Token], weight: int, salt: Salt
    ) -> Iterator[Feature]:
        weights = self._recipe.features.weights
        for token in tokens:
            own = self._weights.get(token.text, weights.default)
            if token.variable:
                own = weights.placeholder
            shown = text[token.start : token.end]
            feature = self._feature(shown, own * weight, salt, token.variable)
            place = text, token.start, token.end
            word = b"" if token.variable else protected_word(*place, self._protected, self._levels)
            protected, level = bool(word), word.decode() in LEVELS
            of_kind = self._structured and not token.variable and names_kind(*place)
            assigned = token.assigned and not (token.variable or protected or of_kind)
            running = not token.variable and not (assigned or token.nested)
            feature = feature._replace(
                protected=protected, assigned=assigned, of_kind=of_kind, level=level,
                running=running or protected or of_kind,
                bare=not token.variable and not WORD_BYTE.search(token.text),
            )  # fmt: skip
            yield feature

    def _word_ngrams(self, tokens: list[Feature], weight: int, salt: Salt) -> Iterator[Feature]:
        n = self._recipe.features.ngram
        if n == 1:
            yield from tokens
            return
        default = self._recipe.features.weights.default
        filling = self._recipe.features.window == "filling"
        ends = range(1 if filling else min(n, len(tokens)), len(tokens) + 1) if tokens else ()
        for end in ends:
            gram = tokens[max(0, end - n) : end]
            text = b" ".join(PLACEHOLDER if t.variable else t.text for t in gram)
            if self._recipe.fingerprint.hash == "cyclic":
                bits = cyclic(token.bits for token in gram)
            elif self._hash is not None:
                bits = self._hash(text)
            else:
                low, high = hash_sequence(
                    [token.bits & MASK64 for token in gram], self._recipe.fingerprint.seed
                )
                bits = low | high << 64
            identity = self._sequence(token.identity for token in gram)
            yield self._salted(text, identity, bits, default * weight, salt)

    def _sequence(self, identities: Iterable[int]) -> int:
        """Return the keyed hash of a sequence of identities."""
        return self._identity(b"".join(one.to_bytes(8, "little") for one in identities))

    def _character_ngrams(self, text: bytes, weight: int, salt: Salt) -> Iterator[Feature]:
        n = self._recipe.features.ngram
        starts = [i for i, byte in enumerate(text) if i == 0 or byte & 0xC0 != 0x80]
        ends = [*starts[n:], len(text)] if len(starts) >= n else [len(text)]
        default = self._recipe.features.weights.default
        for start, end in zip(starts, ends, strict=False):
            yield self._feature(text[start:end], default * weight, salt)

    def _feature(self, text: bytes, weight: int, salt: Salt, variable: bool = False) -> Feature:
        data = PLACEHOLDER if variable else text
        if self._hash is not None:
            bits = self._hash(data)
        else:
            low, high = hash128(data, self._recipe.fingerprint.seed)
            bits = low | high << 64
        identity = self._identity(data)
        if variable:  # the same characters in a text are not a placeholder
            identity ^= MASK64
        return self._salted(text, identity, bits, weight, salt, variable)

    def _salted(
        self,
        text: bytes,
        identity: int,
        bits: int,
        weight: int,
        salt: Salt,
        variable: bool = False,
    ) -> Feature:
        of_votes, of_identity = salt
        bits ^= (of_votes | of_votes << 64) & self._bits
        return Feature(text, identity ^ of_identity, bits, weight, variable)

    def counted(self, taken: Taken) -> list[Feature]:
        """Return the features whose votes count: all, or each distinct one once."""
        if self._recipe.features.repeats == "count":
            return taken.features
        first: dict[int, Feature] = {}
        for feature in taken.features:
            first.setdefault(feature.identity, feature)
        return list(first.values())

    def fingerprint(self, taken: Taken) -> int:
        """Compute the fingerprint of an event."""
        settings = self._recipe.fingerprint
        if settings.kind == "minhash":
            hashes = (f.bits for f in taken.features if f.weight)
            return minhash(hashes, settings.least, settings.width)
        if settings.kind == "bands":
            return bands.fingerprint(_of_bands(taken), settings.seed)
        votes: list[tuple[int, int]] = []
        left = MAX_VOTES
        for feature in self.counted(taken):
            left -= feature.weight
            if left < 0:
                break
            votes.append((feature.bits, feature.weight))
        return simhash(votes, settings.width, self._tie)

    def _chosen(self, taken: Taken) -> int:
        """Return the keyed hash of the features that the minhash is made of; 0 for none."""
        identities: dict[int, int] = {}
        for feature in taken.features:
            if feature.weight:
                identities.setdefault(feature.bits & MASK64, feature.identity)
        ranks = least_hashes(identities, self._recipe.fingerprint.least)
        chosen = [identities[rank] for rank in ranks]
        return self._sequence([*chosen, len(chosen)]) if chosen else 0

    def _compares_text(self, words: Sequence[Feature]) -> bool:
        recipe, count = self._recipe, sum(not word.variable for word in words)
        return recipe.compares_text and count >= recipe.min_search_words

    def sketch(self, taken: Taken, *, salted: bool = True) -> bytes:
        """Compute the sketch of an event, even if the recipe does not verify by it.

        Args:
            taken: the event.
            salted: whether the running text is mixed in, where it must be equal.
        """
        if self._recipe.fingerprint.kind == "bands":
            return sketches.sketch(_of_bands(taken))
        words = self._recipe.features.extractor == "words"
        source = taken.tokens if words else taken.features
        identities = {f.identity for f in source if not f.variable}
        if salted and self._compares_text(source):
            text = self._sequence(word.identity for word in source if word.running)
            identities = {mix(identity ^ text) for identity in identities}
        least = heapq.nsmallest(SKETCH_SIZE, identities)
        return struct.pack(f"={len(least)}Q", *least)

    def _numbers(self, events: Iterable[Taken], full: bool) -> Fingerprints:
        numbers = Fingerprints(
            array("Q"), array("I"), array("Q"), array("Q"), [], array("Q"), array("Q"), [], b""
        )
        keys = []
        for taken in events:
            by_words = self._recipe.features.extractor == "words"
            source = taken.tokens if by_words else taken.features
            words = sum(not feature.variable for feature in source)
            hashed = [token.identity for token in taken.tokens]
            if not words and (hashed or not taken.blank):
                hashed = taken.verbatim
            variant = 0
            if taken.variant:
                variant = self._sequence(map(self._identity, taken.variant))
                hashed = [*hashed, variant]
            numbers.variants.append(variant)
            numbers.exact.append(self._sequence(hashed))
            numbers.words.append(words)
            if full:
                value = self.fingerprint(taken)
                if self._recipe.fingerprint.kind == "bands":
                    keys.append(value.to_bytes(BAND_BYTES, "big"))
                else:
                    numbers.low.append(value & MASK64)
                if self._recipe.fingerprint.width == 128:
                    numbers.high.append(value >> 64)
                numbers.sketches.append(self.sketch(taken) if self._verifies else b"")
                if self._recipe.match.learn:
                    numbers.one_offs.append(_one_off(taken.tokens))
                if self._recipe.fingerprint.kind == "minhash":
                    numbers.chosen.append(self._chosen(taken))
        return numbers._replace(bands=b"".join(keys))

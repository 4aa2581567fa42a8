"""Why two events would merge or not: everything that the decision depends on, side by side."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stream_dedup.clustering.learning import (
    LEAST_COMMON,
    LEAST_COUNTED,
    LEAST_SAME,
    MANY_COUNTED,
    MAX_POSTINGS,
    may_be_missing,
    wanted_together,
    wanted_values,
)
from stream_dedup.clustering.linkage import Linkage
from stream_dedup.clustering.openings import are_few, least_values
from stream_dedup.features.fields import decoded
from stream_dedup.features.patterns import Patterns, readable
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.bands import BANDS, chance_of_meeting
from stream_dedup.fingerprint.combinations import COMBINED_WORDS, PatternWords
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.minhash import chance_of_equality, lookup_keys
from stream_dedup.fingerprint.one_off import (
    ASSIGNED,
    REPEATED,
    Keys,
    WordSlot,
    is_beside_gap,
    unpack,
)
from stream_dedup.fingerprint.reference import Feature, ReferenceKernel, Taken
from stream_dedup.fingerprint.simhash import votes
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.fingerprint.templates import Templates
from stream_dedup.tables import sketches


@dataclass(frozen=True)
class Look:
    """One event, analysed.

    Attributes:
        text: its bytes.
        pattern: its masked text.
        template: the id of its template, if it opens a cluster.
        taken: its tokens and features.
        counted: the features whose votes count.
        sketch: of its features, even if the recipe does not verify.
        features_sketch: the same without its running text.
        numbers: its hashes and fingerprint, as the kernel computes them under `PUBLIC_KEY`: an
            index has a secret key, so its hashes are others.
        key: events with equal keys always merge; the exact hash, or with minhash what takes its
            place.
    """

    text: bytes
    pattern: str
    template: int
    taken: Taken
    counted: list[Feature]
    sketch: bytes
    features_sketch: bytes
    numbers: Fingerprints
    key: int

    @property
    def fingerprint(self) -> int:
        """Its fingerprint."""
        return self.numbers.fingerprint(0)

    @property
    def exact(self) -> int:
        """Its exact hash."""
        return self.numbers.exact[0]

    @property
    def words(self) -> int:
        """Its features that are not placeholders."""
        return self.numbers.words[0]

    @property
    def running(self) -> list[int]:
        """The words of its running text, by identity."""
        return [token.identity for token in self.taken.tokens if token.running]


@dataclass(frozen=True, slots=True)
class Bit:
    """A bit in which two fingerprints differ, and why.

    Attributes:
        number: 0 for the lowest.
        left: the sum of the left event's votes on it.
        right: the sum of the right event's votes on it.
        shared: the sum of the votes of features that both have.
        left_only: (feature, vote) of features that only the left event has.
        right_only: (feature, vote) of features that only the right event has.
    """

    number: int
    left: int
    right: int
    shared: int
    left_only: list[tuple[bytes, int]]
    right_only: list[tuple[bytes, int]]


class _Places(NamedTuple):
    """Words in which two events differ, and which may vary together.

    Attributes:
        number: how many.
        at_once: whether whole patterns show it, though none of them varies by itself.
    """

    number: int
    at_once: bool


@dataclass(frozen=True)
class _WordMore:
    """What one of two events has more.

    Attributes:
        name: which of the two.
        slot: the word, in its pattern.
        other: the other one's pattern.
    """

    name: str
    slot: WordSlot
    other: Keys

    @property
    def may_be_missing(self) -> bool:
        """Whether they belong together all the same."""
        number, words, counted = self.slot.number, self.other.words + 1, self.slot.around
        return may_be_missing(number, words, counted, self.other.gaps, beside_gap=self._beside_gap)

    @property
    def how(self) -> str:
        """Why they belong together."""
        if self._has_placeholder:
            return "which a placeholder replaces in the other"
        return "and it is neither the first nor the last one"

    @property
    def why_apart(self) -> str:
        """Why they do not."""
        number, common = self.slot.number, self.other.words
        if number == 0:
            return "the first one, which is never missing"
        if not self._has_placeholder and number == common:
            return "the last one, and no placeholder replaces it in the other"
        if self._has_placeholder and self._beside_gap:
            return "beside a placeholder that both have, so none replaces it"
        replaced, least, counted = "no", MANY_COUNTED, self.slot.around
        if self._has_placeholder:
            replaced, least = "a", LEAST_COMMON
            if common >= LEAST_COMMON:
                least = LEAST_COUNTED
            else:
                counted = common
        left_out = "; a log level and what has no letters do not count" * (counted < common)
        others = "1 other is" if counted == 1 else f"{counted} others are"
        return (
            f"{replaced} placeholder replaces it in the other, and {others} common, of {least} "
            f"that are needed{left_out}"
        )

    @property
    def _has_placeholder(self) -> bool:
        return bool(self.other.gaps >> self.slot.number & 1)

    @property
    def _beside_gap(self) -> bool:
        return is_beside_gap(self.slot.value)


class Inspector:
    """Analyses events as a recipe does."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
        self._patterns = Patterns(recipe)
        self._templates = Templates(recipe)
        self._kernel = ReferenceKernel(recipe, PUBLIC_KEY)

    def look(self, text: bytes) -> Look:
        """Analyse one event."""
        # Of what is not JSON the text is used as it is.
        document = decoded(text) if self._fingerprinter.takes_fields else None
        documents = [document] if self._fingerprinter.takes_fields else None
        taken = self._fingerprinter.take_apart(text, document, self._kernel)
        prepared = self._fingerprinter.prepare([text], documents)
        numbers = self._fingerprinter.fingerprints(prepared, full=True)
        key = numbers.exact[0]
        if self.recipe.fingerprint.kind == "minhash":
            (key,) = lookup_keys(numbers, self.recipe.match.min_features)
        return Look(
            text,
            self._patterns.pattern(text, document),
            self._templates.ids([text], documents)[0],
            taken,
            self._kernel.counted(taken),
            self._kernel.sketch(taken),
            self._kernel.sketch(taken, salted=False),
            numbers,
            key,
        )

    def named(self, feature: Feature) -> str:
        """Return a feature's text, its placeholders by the names of their masks."""
        return readable(self._patterns.named(feature.text), 80)

    def compare(self, left: bytes, right: bytes) -> Comparison:
        """Analyse two events and compare them."""
        return Comparison(self.recipe, self.look(left), self.look(right))


@dataclass(frozen=True)
class Comparison:
    """Two events compared; the left one came first."""

    recipe: Recipe
    left: Look
    right: Look

    @cached_property
    def _linkage(self) -> Linkage:
        return Linkage(self.recipe)

    @cached_property
    def distance(self) -> int:
        """Bits in which their fingerprints differ; of bands, keys."""
        return self._linkage.distance(self.left.fingerprint, self.right.fingerprint)

    @cached_property
    def jaccard(self) -> float:
        """The Jaccard index of their features, placeholders left out, whatever their texts are."""
        if self.left.running == self.right.running:
            return self._linkage.jaccard(self.left.sketch, self.right.sketch)
        return self._linkage.jaccard(self.left.features_sketch, self.right.features_sketch)

    @property
    def threshold(self) -> float:
        """The Jaccard index from which on they are similar enough; 0 if that is not verified."""
        least = self.recipe.match.jaccard
        if not self._of_bands:
            return least
        few = min(sketches.features(self.left.sketch), sketches.features(self.right.sketch))
        return sketches.threshold(least, few)

    @property
    def _of_bands(self) -> bool:
        return self.recipe.fingerprint.kind == "bands"

    @property
    def near(self) -> bool:
        """Whether a search for one of them finds the other."""
        return self.distance <= (BANDS - 1 if self._of_bands else self.recipe.match.k)

    def features(self) -> tuple[list[Feature], list[Feature], list[Feature]]:
        """Return the distinct features of both, of the left only, and of the right only."""
        left = {feature.identity: feature for feature in self.left.taken.features}
        right = {feature.identity: feature for feature in self.right.taken.features}
        return (
            [feature for identity, feature in left.items() if identity in right],
            [feature for identity, feature in left.items() if identity not in right],
            [feature for identity, feature in right.items() if identity not in left],
        )

    @cached_property
    def chance(self) -> float | None:
        """How likely a search finds one feature set by another with this overlap, over all keys.

        With minhash, that their fingerprints are equal; with bands, that they share a key. None for
        simhash, where their bits decide.
        """
        settings = self.recipe.fingerprint
        if self._of_bands:
            return chance_of_meeting(self.jaccard)
        if settings.kind != "minhash":
            return None
        shared, left, right = (
            sum(feature.weight > 0 for feature in features) for features in self.features()
        )
        return chance_of_equality(shared, shared + left + right, settings.least)

    def bits(self) -> list[Bit]:
        """Return the bits that differ, with the votes that cause it; simhash only."""
        if self.recipe.fingerprint.kind != "simhash":
            return []
        width = self.recipe.fingerprint.width
        left, right = _wide(self.left.counted), _wide(self.right.counted)
        left_votes = votes(((value, w) for value, w, _ in left.values()), width)
        right_votes = votes(((value, w) for value, w, _ in right.values()), width)
        apart = self.left.fingerprint ^ self.right.fingerprint
        bits = []
        for number in range(width):
            if apart >> number & 1:
                left_only = _voters(left, right, number)
                shared = left_votes[number] - sum(vote for _, vote in left_only)
                right_only = _voters(right, left, number)
                sums = left_votes[number], right_votes[number], shared
                bits.append(Bit(number, *sums, left_only, right_only))
        return bits

    @cached_property
    def by_words(self) -> str:
        """Why they merge by their words; empty if they do not, or the recipe learns none."""
        ours, theirs = self.left.numbers.one_off(0), self.right.numbers.one_off(0)
        if not ours or not theirs:
            return ""
        left, right = unpack(ours), unpack(theirs)
        if left.own == right.own and left.words >= LEAST_SAME:
            return "their words are equal, in order"
        if (more := self._one_word_more) and more.may_be_missing:
            return f"the {more.name} has one word more, {more.how}; all others are common"
        if self.wanted_words == 2:  # theirs
            return f"they differ {self._where}, and two words make it a variable"
        return ""

    @cached_property
    def wanted_words(self) -> int:
        """How many words make the one place where they differ a variable; 0: there is none."""
        learn = self.recipe.match.learn
        return min((wanted_values(learn, slot.around) for slot in self._common_slots), default=0)

    @cached_property
    def _places(self) -> _Places | None:
        """The words that may vary together, if they are all in which the two differ."""
        ours, theirs = self.left.numbers.one_off(0), self.right.numbers.one_off(0)
        if not ours or not theirs:
            return None
        left, right = unpack(ours), unpack(theirs)
        if (left.words, left.shape) != (right.words, right.shape):
            return None
        known = {(slot.number, slot.value) for slot in right.slots}
        words = [slot for slot in left.slots if slot.number < REPEATED]
        differing = [slot.number for slot in words if (slot.number, slot.value) not in known]
        if not differing or max(differing) >= COMBINED_WORDS:
            return None
        most = MAX_POSTINGS // wanted_together(self.recipe.match.learn)
        at_once = are_few(len(differing), left.words)
        if len(differing) > most and not at_once:
            return None
        varying = sum(1 << number for number in differing)
        both = (PatternWords(array("Q", packed)).combination(varying) for packed in (ours, theirs))
        return _Places(len(differing), at_once) if all(both) else None

    @cached_property
    def _one_word_more(self) -> _WordMore | None:
        """The word that one of them has more, if that is all in which their words differ."""
        ours, theirs = self.left.numbers.one_off(0), self.right.numbers.one_off(0)
        if not ours or not theirs:
            return None
        left, right = unpack(ours), unpack(theirs)
        found = [
            _WordMore(name, slot, other)
            for more, other, name in ((left, right, "first"), (right, left, "second"))
            for slot in more.slots
            if slot.key == other.own and slot.number < REPEATED
        ]
        return max(found, key=lambda more: more.may_be_missing, default=None)

    @cached_property
    def _common_slots(self) -> list[WordSlot]:
        """The slots in which they may differ: all else is equal."""
        ours, theirs = self.left.numbers.one_off(0), self.right.numbers.one_off(0)
        if not ours or not theirs:
            return []
        values = {(slot.key, slot.number): slot.value for slot in unpack(theirs).slots}
        # A word that only repeats once more is in the same place, too, and no other word.
        return [
            slot
            for slot in unpack(ours).slots
            if values.get((slot.key, slot.number), slot.value) != slot.value
        ]

    @property
    def _where(self) -> str:
        of_keys = all(slot.number == ASSIGNED for slot in self._common_slots)
        return "only in values of keys" if of_keys else "in one place"

    @property
    def merge(self) -> bool:
        """Whether the right event would join the left one's cluster, if there were no other."""
        if self.left.taken.empty or self.right.taken.empty:
            return False
        if self.left.key == self.right.key:
            return True
        if self.left.taken.variant != self.right.taken.variant:
            return False
        if self.by_words:
            return True
        if self.recipe.fingerprint.kind == "minhash":
            return False
        least = self.recipe.min_search_words
        if min(self.left.words, self.right.words) < least or not self.near:
            return False
        sketches = self.left.sketch, self.right.sketch
        return self._linkage.admits(*sketches, self._linkage.jaccard(*sketches), self.distance)

    def verdict(self) -> str:
        """Return in a sentence why they would merge or not, and in another one when they would."""
        verdict, wanted = self._verdict(), self.wanted_words
        if self.merge or self.left.taken.variant != self.right.taken.variant:
            return verdict
        if not wanted and (places := self._places):
            learn = self.recipe.match.learn
            words, where = wanted_together(learn), "and one of them is a variable by itself"
            if places.at_once:
                words, where = least_values(learn), "in lines that are otherwise equal"
            return (
                f"{verdict} They differ in {places.number} places: once {words} different words "
                f"were seen in each of these, {where}, all are variables, and they merge."
            )
        if not wanted and (more := self._one_word_more):
            wanted = wanted_values(self.recipe.match.learn, more.slot.around)
            return (
                f"They do not merge: the {more.name} has one word more: {more.why_apart}. Once "
                f"{wanted} different words were seen there, it is a variable, and they merge."
            )
        if not wanted:
            return verdict
        return (
            f"{verdict} They differ {self._where}: once {wanted} different words were seen there, "
            "it is a variable, and they merge."
        )

    def _verdict(self) -> str:
        match = self.recipe.match
        for look, name in ((self.left, "first"), (self.right, "second")):
            if look.taken.empty:
                return f"They do not merge: the {name} is empty, so it is passed through."
        if self.left.exact == self.right.exact and self.merge:
            what = "words and variables are equal, in order" if self.left.words else (
                "texts are equal")  # fmt: skip
            return f"They merge: their {what}."
        ours, theirs = self.left.taken.variant, self.right.taken.variant
        if ours != theirs:
            return (
                "They do not merge: outcome, level, status or frames differ, which never vary in a "
                f"cluster: {_said(ours)} and {_said(theirs)}."
            )
        if self.by_words:
            return f"They merge: {self.by_words}."
        for look, name in ((self.left, "first"), (self.right, "second")):
            if not look.words:
                return f"They do not merge: the {name} has no word, so only the same text would do."
            if look.words < match.min_features:
                what = "word" if self.recipe.features.extractor == "words" else "feature"
                return (
                    f"They do not merge: the {name} has {look.words} {what}(s), below min_features "
                    f"= {match.min_features}, so only an equal pattern would do."
                )
        for look, name in ((self.left, "first"), (self.right, "second")):
            if look.words < self.recipe.min_search_words:
                return (
                    f"They do not merge: the {name} has only {look.words} words, and with so few "
                    f"one different word is too many for Jaccard {match.jaccard}."
                )
        if self.recipe.compares_text and self.left.running != self.right.running:
            return (
                "They do not merge: they differ outside brackets and values of keys, where a "
                "fingerprint admits no other word."
            )
        if self.recipe.fingerprint.kind == "minhash":
            return self._verdict_by_least_hashes()
        if self._of_bands:
            return self._verdict_by_bands()
        if self.distance > match.k:
            alias = (
                ", though they are alike enough; a joined event between them could link them"
                if match.jaccard and self.jaccard >= match.jaccard
                else ""
            )
            return f"They do not merge: distance {self.distance} is beyond k = {match.k}{alias}."
        near = f"distance {self.distance} is within k = {match.k}"
        if not match.jaccard:
            return f"They merge: {near}."
        if self.merge:
            return f"They merge: {near}, and {self._similarity()}."
        return f"They do not merge: {near}, but {self._similarity()}."

    def _similarity(self) -> str:
        least, reaches = self.threshold, self.jaccard >= self.threshold
        # Round away from the threshold: 0.6996 must not be shown as 0.70.
        side = math.ceil if reaches else math.floor
        share = side(self.jaccard * 100) / 100 if self.jaccard != least else self.jaccard
        return f"Jaccard {share:.2f} {'reaches' if reaches else 'is below'} {least}"

    def _verdict_by_bands(self) -> str:
        shared, similarity = BANDS - self.distance, self._similarity()
        keys = f"they share {shared} of {BANDS} keys"
        if self.merge:
            return f"They merge: {similarity}, and {keys}."
        if self.jaccard < self.threshold:
            return f"They do not merge: {similarity}."
        return (
            f"They do not merge: {similarity}, but {keys}. Under another secret key of the index "
            f"they do with chance {self.chance:.2f}."
        )

    def _verdict_by_least_hashes(self) -> str:
        for look, name in ((self.left, "first"), (self.right, "second")):
            if not look.fingerprint:
                return (
                    f"They do not merge: the {name} has no feature that counts, so only an equal "
                    "pattern would do."
                )
        n = self.recipe.fingerprint.least
        if self.merge:
            return f"They merge: their least hashes (n = {n}) are the same."
        return f"They do not merge: their least hashes (n = {n}) are not the same."


def _said(words: list[bytes]) -> str:
    return f"'{readable(b' '.join(words), 80)}'" if words else "none"


def _wide(features: list[Feature]) -> dict[int, tuple[int, int, bytes]]:
    """Map each identity to (votes, summed weight, text)."""
    out: dict[int, tuple[int, int, bytes]] = {}
    for feature in features:
        weight = out[feature.identity][1] if feature.identity in out else 0
        out[feature.identity] = (feature.bits, weight + feature.weight, feature.text)
    return out


def _voters(
    ours: dict[int, tuple[int, int, bytes]], theirs: dict[int, tuple[int, int, bytes]], bit: int
) -> list[tuple[bytes, int]]:
    return [
        (text, weight if value >> bit & 1 else -weight)
        for identity, (value, weight, text) in ours.items()
        if identity not in theirs or theirs[identity][1] != weight
    ]

"""Hashing: everything that can be computed for a batch without an index.

One call of the native kernel hashes a whole batch; a second one computes the fingerprints and
sketches of the few events that the near cache does not know.

With a minhash recipe the chosen features take the place of the exact hash (`lookup_keys`), in the
near cache and in the index, and no table is searched: one look-up an event, however much the index
holds.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stream_dedup.engine.near_cache import Key
from stream_dedup.features.fields import decoded
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Prepared
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.minhash import lookup_keys
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.fingerprint.templates import Templates
from stream_dedup.model import Batch
from stream_dedup.rules.acting import ActedBatch, ActingRules
from stream_dedup.rules.model import PatternRule
from stream_dedup.rules.ruleset import RuleSet

MIN_OFFLOADED_EVENTS = 500
"""Fewer events are fingerprinted in the calling thread, which takes less than a millisecond: to
hand them over to a thread costs as much processor time as some hundred events."""

LEARNED_EVENTS = 100
"""A template with learned words takes as long as so many others."""

T = TypeVar("T")

Offload = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a function elsewhere, say in a thread, and returns its result."""


async def inline(work: Callable[[], T]) -> T:
    """Call the function here: the `Offload` without threads."""
    return work()


@dataclass(frozen=True, slots=True)
class HashedBatch:
    """A batch with its hashes.

    Attributes:
        batch: the batch.
        fingerprinter: what hashed it.
        prepared: its events as the kernel takes them.
        exact: their exact hashes; with minhash, what takes their place.
        keys: their keys in the near cache.
        rules: the rules that were asked; None for none.
        acted: what they do with the events; None for nothing.
    """

    batch: Batch
    fingerprinter: Fingerprinter
    prepared: Prepared
    exact: Sequence[int]
    keys: Sequence[Key]
    rules: ActingRules | None = None
    acted: ActedBatch | None = None

    @property
    def limited(self) -> Sequence[tuple[int, PatternRule]]:
        """The rows whose events may not leave, ascending, each with the rule that limits them."""
        return () if self.acted is None else self.acted.limited

    def scope(self, row: int) -> int | None:
        """Return the scope that rules give to an event; None for none.

        Events of different scopes never share a cluster.
        """
        return None if self.acted is None else self.acted.scopes.get(row)


class Hasher:
    """Computes hashes and fingerprints as a recipe says.

    Args:
        recipe: what counts as near.
        key: of the hashes that decide; the index's.
        offload: runs long kernel calls.
        templates: whether template ids are wanted.

    Attributes:
        takes_fields: whether the recipe looks at fields of decoded JSON events.
        fingerprint_mask: the bits of a fingerprint.
        min_search_words: an event with fewer words is never searched by its fingerprint.
        gives_templates: whether template ids are wanted.
        rules: what people decided about patterns; None for nothing.
    """

    def __init__(
        self, recipe: Recipe, key: HashKey, offload: Offload[Any], *, templates: bool = False
    ) -> None:
        self._templates = Templates(recipe)
        self.gives_templates = templates
        self.rules: ActingRules | None = None
        self._fingerprinter = Fingerprinter(recipe, key)
        self._minhash = recipe.fingerprint.kind == "minhash"
        self._bands = recipe.fingerprint.kind == "bands"
        self._min_features = recipe.match.min_features
        self._offload = offload
        self.takes_fields = self._fingerprinter.takes_fields
        self.fingerprint_mask = (1 << recipe.fingerprint.bits) - 1
        self.min_search_words = sys.maxsize if self._minhash else recipe.min_search_words

    def shown(self, fingerprint: int) -> int | None:
        """Return what decisions show of a fingerprint; keys of bands are secret."""
        return None if self._bands else fingerprint

    @property
    def hash_key(self) -> HashKey:
        """The key under which batches are hashed."""
        return self._fingerprinter.key

    def use_key(self, key: HashKey) -> None:
        """Hash batches under another key from now on."""
        self._fingerprinter = Fingerprinter(self._fingerprinter.recipe, key)
        if self.rules is not None:
            self.use_rules(self.rules.rules)

    def use_rules(self, rules: RuleSet) -> None:
        """Ask other rules about batches from now on."""
        fingerprinter = self._fingerprinter
        self.rules = (
            ActingRules(rules, fingerprinter.recipe, fingerprinter.keyed_hash) if rules else None
        )

    def hash(self, batch: Batch) -> HashedBatch:
        """Compute the exact hashes of a batch. Safe in any thread; the kernel releases the GIL."""
        fingerprinter = self._fingerprinter
        prepared = fingerprinter.prepare(batch.values, batch.documents)
        numbers = fingerprinter.fingerprints(prepared, full=self._minhash)
        exact: Sequence[int] = numbers.exact
        if self._minhash:
            exact = lookup_keys(numbers, self._min_features)
        rules, acted = self.rules, None
        if rules is not None:
            acted = rules.batch(exact, batch.values, batch.documents)
            exact = exact if acted is None else acted.exact
        keys: Sequence[Key] = exact
        if batch.groups:
            keys = [(g, e) if g else e for g, e in zip(batch.groups, exact, strict=True)]
        return HashedBatch(batch, fingerprinter, prepared, exact, keys, rules, acted)

    def cache_key(self, value: bytes, document: object, group: str) -> Key | None:
        """Return the key of one event in the near cache, as `hash` does for each of a batch.

        None if a rule limits which events of its pattern leave.
        """
        if self._minhash:
            documents = [document] if self.takes_fields else None
            prepared = self._fingerprinter.prepare([value], documents)
            numbers = self._fingerprinter.fingerprints(prepared, full=True)
            exact = lookup_keys(numbers, self._min_features)[0]
        else:
            exact = self._fingerprinter.exact_of(value, document)
        if self.rules is not None and exact != self._fingerprinter.empty_exact:
            ruled = self.rules.one(exact, value, document)
            if ruled is None:
                return None
            exact = ruled
        return (group, exact) if group else exact

    async def fingerprints(self, hashed: HashedBatch, rows: Sequence[int]) -> Fingerprints:
        """Compute the fingerprints and sketches of some events of a batch."""
        work = partial(self._fingerprints, hashed, rows)
        if len(rows) < MIN_OFFLOADED_EVENTS:
            return work()
        fingerprints: Fingerprints = await self._offload(work)
        return fingerprints

    def _fingerprints(self, hashed: HashedBatch, rows: Sequence[int]) -> Fingerprints:
        fingerprinter = hashed.fingerprinter
        selected = fingerprinter.select(hashed.prepared, rows)
        return fingerprinter.fingerprints(selected, full=True)

    async def stored(self, values: Sequence[bytes]) -> tuple[Fingerprints, Collection[int]]:
        """Compute the fingerprints of values as they are stored.

        Returns:
            The fingerprints, and the rows of which rules decide what is near.
        """
        work = partial(self._stored, values)
        if len(values) < MIN_OFFLOADED_EVENTS:
            return work()
        found: tuple[Fingerprints, Collection[int]] = await self._offload(work)
        return found

    def _stored(self, values: Sequence[bytes]) -> tuple[Fingerprints, Collection[int]]:
        fingerprinter, rules = self._fingerprinter, self.rules
        documents = list(map(decoded, values)) if self.takes_fields else None
        numbers = fingerprinter.fingerprints(fingerprinter.prepare(values, documents), full=True)
        acted = None if rules is None else rules.batch(numbers.exact, values, documents)
        return numbers, () if acted is None else acted.scopes.keys()

    async def templates(self, firsts: Sequence[bytes], learned: Sequence[int]) -> list[int]:
        """Compute the ids of clusters' templates; see `fingerprint.templates`."""
        with_learned = sum(1 for mask in learned if mask)
        if len(firsts) + LEARNED_EVENTS * with_learned < MIN_OFFLOADED_EVENTS:
            return self.template_ids(firsts, learned)
        ids: list[int] = await self._offload(partial(self.template_ids, firsts, learned))
        return ids

    def template_ids(self, firsts: Sequence[bytes], learned: Sequence[int]) -> list[int]:
        """Do the same at once."""
        documents = list(map(decoded, firsts)) if self.takes_fields else None
        return self._templates.ids(firsts, documents, learned)

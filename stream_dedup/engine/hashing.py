"""Deciding: from a batch of hashed events to a decision each, by the near cache and the index.

Work is done once a batch: one kernel call for the exact hashes of all events, one for the rest of
those the near cache does not know, one `resolve`. What is left for each event is a dictionary
look-up.

Under minhash an event's fingerprint takes the place of its exact hash (`lookup_keys`), in the near
cache and in the index, and nothing is searched: one look-up an event, whatever the index holds.

`stretch` is how it goes, part by part of a batch; here stands what it needs to know.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.near_cache import Key, NearCache
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Prepared
from stream_dedup.fingerprint.hashing import hash_sequence
from stream_dedup.fingerprint.minhash import lookup_keys
from stream_dedup.fingerprint.numbers import Fingerprints
from stream_dedup.index.base import (
    Index,
    Ownership,
)
from stream_dedup.model import Batch, Decision, Kind

NOTHING = Decision(Kind.PASSED, reason="nothing to fingerprint")
"""Decided of an event without any token: an empty line, or delimiters only."""

REPLAYED = "replayed"
"""Reason of what was decided, and not counted, of an event that was counted before."""

OFFLOADED_ROWS = 64
"""Fewer events are fingerprinted at once where they are: handing them over would take longer."""

T = TypeVar("T")

Offload = Callable[[Callable[[], T]], Awaitable[T]]


async def inline(work: Callable[[], T]) -> T:
    """Do work where it is: what to give for `Offload` without threads."""
    return work()


@dataclass(frozen=True, slots=True)
class HashedBatch:
    """A batch and what one kernel call made of it: all that is known without an index.

    Attributes:
        batch: the batch.
        prepared: its events as the kernel takes them.
        exact: their exact hashes; under minhash, what takes their place.
        keys: their keys in the near cache.
    """

    batch: Batch
    prepared: Prepared
    exact: Sequence[int]
    keys: Sequence[Key]


@dataclass(slots=True)
class Owned:
    """A partition that is owned: how far it was recorded, and what was decided of it.

    Attributes:
        fence: to be named when recording.
        high_water: its largest recorded offset.
        journal: decisions of events that may come again.
        cuts: offsets at which a stretch has to end.
        in_doubt: largest offset that may have been recorded, though nobody was told so.
    """

    fence: int
    high_water: int
    journal: dict[int, Decision]
    cuts: tuple[int, ...]
    in_doubt: int = -1

    @classmethod
    def of(cls, ownership: Ownership) -> Owned:
        """What was learnt when it was claimed."""
        journal = dict(ownership.journal)
        return cls(ownership.fence, ownership.high_water, journal, ownership.cuts)


class Decider:
    """What deciding needs to know, and what it has learnt.

    Args:
        recipe: what counts as near.
        index: where clusters live.
        windows: when clusters are live.
        summaries: how many values of a cluster are kept, and how much of each.
        near_cache_size: exact hashes kept in process; see `NearCache`.
        offload: runs kernel calls elsewhere.

    Attributes:
        near: what the index decided lately.
        samples: values kept of a cluster beside its representative.
        kept_bytes: of a value so much is kept.
    """

    def __init__(
        self,
        recipe: Recipe,
        index: Index,
        windows: Windows,
        summaries: Summaries,
        near_cache_size: int,
        offload: Offload[Any],
    ) -> None:
        self.index = index
        self.windows = windows
        self.near = NearCache(windows, near_cache_size, summaries.samples)
        self.samples, self.kept_bytes = summaries.samples, summaries.max_value_bytes
        self.fingerprinter = Fingerprinter(recipe)
        self.least_hashes = recipe.fingerprint.kind == "minhash"
        self.least_features = recipe.match.min_features
        self.searched_from = sys.maxsize if self.least_hashes else self.least_features
        self.exact_of_nothing, _ = hash_sequence([], recipe.fingerprint.seed)
        self._offload = offload
        self._passed: dict[str, Decision] = {NOTHING.reason: NOTHING}

    def hash(self, batch: Batch) -> HashedBatch:
        """The exact hashes of a batch. Any thread may do it; the kernel lets others run."""
        prepared = self.fingerprinter.prepare(batch.values, batch.documents)
        numbers = self.fingerprinter.fingerprints(prepared, full=self.least_hashes)
        exact: Sequence[int] = numbers.exact
        if self.least_hashes:
            exact = lookup_keys(numbers, self.least_features)
        keys: Sequence[Key] = exact
        if batch.groups:
            keys = [(g, e) if g else e for g, e in zip(batch.groups, exact, strict=True)]
        return HashedBatch(batch, prepared, exact, keys)

    async def fingerprints(self, hashed: HashedBatch, indexes: Sequence[int]) -> Fingerprints:
        """The fingerprints and sketches of some events of a batch."""
        work = partial(self._fingerprints, hashed, indexes)
        if len(indexes) < OFFLOADED_ROWS:
            return work()
        answer: Fingerprints = await self._offload(work)
        return answer

    def _fingerprints(self, hashed: HashedBatch, indexes: Sequence[int]) -> Fingerprints:
        chosen = self.fingerprinter.select(hashed.prepared, indexes)
        numbers = self.fingerprinter.fingerprints(chosen, full=True)
        if self.least_hashes:  # nothing is verified: no cluster need keep a sketch
            return numbers._replace(sketches=[b""] * len(indexes))
        return numbers

    def passes(self, reason: str) -> Decision:
        """The decision of events that are passed for a reason."""
        decision = self._passed.get(reason)
        if decision is None:
            decision = self._passed[reason] = Decision(Kind.PASSED, reason=reason)
        return decision

"""Runs the engine on a sample, and tells how two runs differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.model import Batch, Partition, Summary
from stream_dedup.tuning.sample import Sample

NO_CLUSTER = -1
"""The label of an event that is in no cluster: an extractor failed on it."""


class Grouping:
    """What a recipe makes of a sample, when all of it was read: words are learned, clusters merged.

    Args:
        recipe: what counts as near.
        sample: the events.
        groups: the group of each event, if there are any.

    Attributes:
        recipe: as given.
        labels: for each event of the sample the number of its cluster.
        events: events of each cluster, by its number.
    """

    def __init__(self, recipe: Recipe, sample: Sample, groups: Sequence[str] | None) -> None:
        count = len(sample)
        dedup = Deduplicator(
            recipe,
            windows=Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US, quiet_after_us=FOREVER_US),
            summaries=Summaries(every_us=None, samples=0, values=0),
            limits=Limits(max_clusters=max(1, count)),
            clock=ManualClock(),
            key=sample.key.secret(),
        )
        batch = Batch(
            partition=Partition("sample", 0),
            offsets=range(count),
            values=list(map(OutcomeFields(recipe).compared, sample.beside, sample.texts)),
            times_us=range(count),  # the order in which they came
            groups=groups,
            documents=sample.documents if sample.takes_fields else None,
        )
        decisions = dedup.process_batch(batch)
        finals = {summary.cluster: summary for summary in dedup.close(patterns=False)}
        roots = {cluster: _root(cluster, finals) for cluster in finals}
        self.recipe = recipe
        self.labels: list[int] = []
        self.events: Counter[int] = Counter()
        self._dedup = dedup
        self._summaries: list[Summary] = []
        numbers: dict[int, int] = {}
        for decision, events in zip(decisions, sample.counts, strict=True):
            if decision.cluster is None:
                self.labels.append(NO_CLUSTER)
                continue
            root = roots[decision.cluster]
            number = numbers.setdefault(root, len(numbers))
            if number == len(self._summaries):
                self._summaries.append(finals[root])
            self.labels.append(number)
            self.events[number] += events

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def partition(self) -> tuple[int, ...]:
        """The same for two groupings that put the same events together."""
        first: dict[int, int] = {}
        return tuple(first.setdefault(label, row) for row, label in enumerate(self.labels))

    def pattern(self, cluster: int) -> str:
        """Return a cluster's pattern, with words that are learned shown as variable."""
        return self._dedup.pattern(self._summaries[cluster])


def _root(cluster: int, finals: dict[int, Summary]) -> int:
    """Return the cluster of which a cluster is a part in the end."""
    while (into := finals[cluster].merged_into) is not None:
        cluster = into
    return cluster


@dataclass(frozen=True, slots=True)
class Part:
    """A cluster, or a part of one, of one of two groupings.

    Attributes:
        cluster: its number there.
        events: how many of its events are concerned.
        rows: which of the sample.
    """

    cluster: int
    events: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Clusters of one grouping that are one cluster in another.

    Attributes:
        whole: the one cluster's number.
        parts: what it consists of in the other, the largest first.
    """

    whole: int
    parts: tuple[Part, ...]

    @property
    def events(self) -> int:
        """The events of all parts."""
        return sum(part.events for part in self.parts)

    @property
    def moved(self) -> int:
        """The events that are elsewhere: all but those of the largest part."""
        return self.events - self.parts[0].events


def merged(before: Grouping, after: Grouping, counts: Sequence[int]) -> list[Difference]:
    """Return the clusters of `before` that share one in `after`, those that move most first.

    With the arguments the other way round these are the clusters that part.
    """
    rows_of: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, (old, new) in enumerate(zip(before.labels, after.labels, strict=True)):
        if NO_CLUSTER not in (old, new):
            rows_of[new][old].append(row)
    found = []
    for whole, parts in rows_of.items():
        if len(parts) > 1:
            every = (
                Part(cluster, _events(rows, counts), tuple(rows)) for cluster, rows in parts.items()
            )
            ranked = sorted(every, key=lambda part: (-part.events, part.cluster))
            found.append(Difference(whole, tuple(ranked)))
    return sorted(found, key=lambda each: (-each.moved, each.whole))


def _events(rows: Iterable[int], counts: Sequence[int]) -> int:
    return sum(counts[row] for row in rows)

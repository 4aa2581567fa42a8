"""What you need to test your own pipeline: a clock that stands still, an index, and two checks.

`ManualClock`, `MemoryIndex` and `MemoryMetrics` are the product's own, given here again. Nothing
in this module sleeps, reads the clock or touches the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from stream_dedup.clock import ManualClock
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.engine import Counts
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.metrics import MemoryMetrics
from stream_dedup.model import Decision, Summary

__all__ = [
    "Limits",
    "ManualClock",
    "MemoryIndex",
    "MemoryMetrics",
    "assert_counts_add_up",
    "clusters_of",
    "decisions_of",
]


def decisions_of(
    values: Sequence[bytes | str | dict[str, Any]],
    *,
    recipe: str | os.PathLike[str] | Recipe = "logs",
    times_us: Sequence[int] | None = None,
    groups: Sequence[str] | None = None,
) -> list[Decision]:
    """What a recipe makes of some events, from nothing known, with the clock at their last.

    >>> [d.kind.value for d in decisions_of(["disk 1 full", "disk 2 full", "out of memory"])]
    ['new', 'duplicate', 'new']

    Args:
        values: as for `Deduplicator.process`.
        recipe: a shipped recipe's name, a TOML file's path, or a `Recipe`.
        times_us: event times; all at 0 without.
        groups: only events of an equal group are compared.

    Returns:
        A decision an event, in order.
    """
    clock = ManualClock(max(times_us, default=0) if times_us is not None else 0)
    return Deduplicator(recipe, clock=clock).process(values, times_us=times_us, groups=groups)


def clusters_of(
    values: Sequence[bytes | str | dict[str, Any]],
    *,
    recipe: str | os.PathLike[str] | Recipe = "logs",
) -> list[list[int]]:
    """The events that go together, by their places; passed ones are left out.

    >>> clusters_of(["disk 1 full", "out of memory", "disk 2 full"])
    [[0, 2], [1]]
    """
    places: dict[int, list[int]] = {}
    for place, decision in enumerate(decisions_of(values, recipe=recipe)):
        if decision.cluster is not None:
            places.setdefault(decision.cluster, []).append(place)
    return list(places.values())


def assert_counts_add_up(summaries: Iterable[Summary], counts: Counts) -> None:
    """Check that summaries tell of every event that was not passed, each exactly once.

    A summary that was sent twice, under the same revision, is looked at once.

    >>> dedup = Deduplicator()
    >>> _ = dedup.process(["disk 1 full", "disk 2 full", "", "out of memory"])
    >>> assert_counts_add_up(dedup.close(), dedup.counts)

    Args:
        summaries: all of them, periodic and final, of all the time counted.
        counts: what was decided.

    Raises:
        AssertionError: they do not add up; it says which numbers differ.
    """
    once = {(summary.cluster, summary.revision): summary for summary in summaries}
    told = sum(summary.new_count for summary in once.values())
    passed = sum(counts.passed.values())
    if told + passed != counts.events:
        raise AssertionError(
            f"{len(once)} summaries tell of {told} events and {passed} were passed: "
            f"{told + passed} of {counts.events}"
        )
    if counts.new + counts.duplicates + passed != counts.events:
        raise AssertionError(
            f"{counts.new} new + {counts.duplicates} duplicates + {passed} passed "
            f"are not {counts.events}"
        )

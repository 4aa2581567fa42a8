"""What you need to test your own pipeline: a manual clock, an index in memory, and checks.

`ManualClock`, `MemoryIndex` and `MemoryMetrics` are the product's own. Nothing in this module
sleeps, reads the system clock or uses the network.
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
    """Return what a new `Deduplicator` decides for some events, its clock at the latest of them.

    >>> [d.kind.value for d in decisions_of(["disk 1 full", "disk 2 full", "out of memory"])]
    ['new', 'duplicate', 'new']

    Args:
        values: as for `Deduplicator.process`.
        recipe: a shipped recipe's name, a TOML file's path, or a `Recipe`.
        times_us: event times; by default all are 0.
        groups: only events of an equal group are compared.

    Returns:
        A decision for each event, in order.
    """
    clock = ManualClock(max(times_us, default=0) if times_us is not None else 0)
    dedup = Deduplicator(recipe, clock=clock, keep_summaries=False)
    return dedup.process(values, times_us=times_us, groups=groups)


def clusters_of(
    values: Sequence[bytes | str | dict[str, Any]],
    *,
    recipe: str | os.PathLike[str] | Recipe = "logs",
) -> list[list[int]]:
    """Return the indexes of the events of each cluster; passed events are left out.

    >>> clusters_of(["disk 1 full", "out of memory", "disk 2 full"])
    [[0, 2], [1]]
    """
    members: dict[int, list[int]] = {}
    for number, decision in enumerate(decisions_of(values, recipe=recipe)):
        if decision.cluster is not None:
            members.setdefault(decision.cluster, []).append(number)
    return list(members.values())


def assert_counts_add_up(summaries: Iterable[Summary], counts: Counts) -> None:
    """Check that summaries count every event that was not passed, each exactly once.

    A summary that was sent twice, under the same revision, counts once.

    >>> dedup = Deduplicator()
    >>> _ = dedup.process(["disk 1 full", "disk 2 full", "", "out of memory"])
    >>> assert_counts_add_up(dedup.close(), dedup.counts)

    Args:
        summaries: all of them, periodic and final.
        counts: of the same events.

    Raises:
        AssertionError: they do not add up; the message gives the numbers.
    """
    once = {(summary.cluster, summary.revision): summary for summary in summaries}
    summed = sum(summary.new_count for summary in once.values())
    passed = sum(counts.passed.values())
    if summed + passed != counts.events:
        raise AssertionError(
            f"{len(once)} summaries count {summed} events and {passed} were passed: "
            f"{summed + passed} of {counts.events}"
        )
    if counts.new + counts.duplicates + passed != counts.events:
        raise AssertionError(
            f"{counts.new} new + {counts.duplicates} duplicates + {passed} passed "
            f"are not {counts.events}"
        )

"""A run on a sample groups all events as the engine does, and two runs can be compared."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features.recipe import replace
from stream_dedup.tuning.trials import Grouping, merged
from tests.unit.tuning.helpers import LOGS, accounts, sample_of

USERS = [b"session closed for user %b" % name for name in (b"ann", b"bob", b"cid")]


def clusters_of_all(lines: list[bytes], learn: int) -> Counter[int]:
    """How many clusters have how many events, each event decided."""
    windows = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
    dedup = Deduplicator(replace(LOGS, match__learn=learn), windows=windows)
    dedup.process(lines, times_us=range(len(lines)))
    finals = {summary.cluster: summary for summary in dedup.close()}
    events: Counter[int] = Counter()
    for summary in finals.values():
        root = summary
        while root.merged_into is not None:
            root = finals[root.merged_into]
        events[root.cluster] += summary.count
    return Counter(events.values())


@pytest.mark.parametrize("learn", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sample_is_grouped_as_all_events_are(learn: int, seed: int) -> None:
    lines = accounts() * 3
    random.Random(seed).shuffle(lines)
    grouping = Grouping(replace(LOGS, match__learn=learn), sample_of(lines), None)

    assert Counter(grouping.events.values()) == clusters_of_all(lines, learn)


def test_clusters_that_another_run_merges_are_found_with_their_events() -> None:
    sample = sample_of([*USERS, USERS[0], b"disk 1 is full", b"disk 2 is full"])
    before = Grouping(LOGS, sample, None)
    after = Grouping(replace(LOGS, match__learn=3), sample, None)

    (difference,) = merged(before, after, sample.counts)
    assert after.pattern(difference.whole) == "session closed for user <*>"
    assert [(part.events, before.pattern(part.cluster)) for part in difference.parts] == [
        (2, "session closed for user ann"),
        (1, "session closed for user bob"),
        (1, "session closed for user cid"),
    ]
    assert (difference.events, difference.moved) == (4, 2)
    assert merged(after, before, sample.counts) == []


def test_equal_groupings_have_equal_partitions() -> None:
    sample = sample_of(USERS)
    few, many = (Grouping(replace(LOGS, match__learn=n), sample, None) for n in (3, 2))

    assert few.partition == many.partition
    assert few.partition != Grouping(LOGS, sample, None).partition


def test_events_of_different_groups_are_apart() -> None:
    sample = sample_of([b"disk 1 is full", b"link 1 is up"])

    assert len(Grouping(LOGS, sample_of([b"disk 1 is full"] * 2), None)) == 1
    assert len(Grouping(LOGS, sample, ["a", "b"])) == 2

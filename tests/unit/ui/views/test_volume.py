from __future__ import annotations

import pytest

from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import Mark
from stream_dedup.ui.views.volume import Volume, volume_of
from stream_dedup.volume.counts import Axis
from stream_dedup.volume.savings import MINUTE_US

MUTED = Mark("", muted=True, per_minute=0, merged=False, only=(), rules=())
KEPT = MUTED._replace(muted=False, per_minute=2)


def entry_of(axis: Axis, minutes: list[int], mark: Mark | None = None) -> Entry:
    """An entry with events of ten bytes each in these minutes."""
    entry = Entry(1, len(minutes), 0, 0, bytes=10 * len(minutes), mark=mark)
    for minute in minutes:
        axis.reach(minute * MINUTE_US)
        entry.counts.add(axis, minute * MINUTE_US, 1)
    return entry


@pytest.mark.parametrize(("mark", "left"), [(None, 60), (MUTED, 10), (KEPT, 30)])
def test_volume_is_that_of_the_rules_and_of_what_they_would_save(
    mark: Mark | None, left: int
) -> None:
    axis = Axis(MINUTE_US, slides=False)
    entry = entry_of(axis, [0, 0, 0, 0, 0, 1], mark)

    assert volume_of(entry, axis, 3, has_times=True) == Volume(60, left, 50, 20)


def test_without_times_nobody_knows_what_a_minute_holds() -> None:
    axis = Axis(MINUTE_US, slides=False)
    entry = entry_of(axis, [0, 0, 0], KEPT)

    assert volume_of(entry, axis, 1, has_times=False) == Volume(30, 30, 20, None)

"""Where the bytes of events are counted when clusters merge, close, or have no times."""

from __future__ import annotations

from pathlib import Path

from stream_dedup.cli.volume_count import VolumeCount
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.io.decoder import Events
from stream_dedup.model import Batch, Partition
from stream_dedup.volume.savings import MINUTE_US

SESSIONS = Path(__file__).parents[3] / "docs" / "examples" / "sessions.log"


def counted(lines: list[bytes], most: int, *, times: bool) -> VolumeCount:
    """Each line is decided alone, so that clusters of single users merge later."""
    windows = Windows(FOREVER_US, FOREVER_US, FOREVER_US, FOREVER_US)
    dedup, count = Deduplicator(windows=windows), VolumeCount(most, per_minute=1)
    for number, line in enumerate(lines, 1):
        times_us = [number // 6 * MINUTE_US + MINUTE_US] if times else None
        batch = Batch(Partition("a", 0), [number], [line], times_us)
        decisions = dedup.process_batch(batch)
        count.add(Events(batch, [line], [number], [None], 1), decisions)
        count.ended(dedup.due(patterns=False))
    count.ended(dedup.close(patterns=False))
    return count


def test_bytes_of_clusters_that_merged_are_those_of_one() -> None:
    lines = SESSIONS.read_bytes().splitlines()
    count = counted(lines, 5, times=True)
    assert count.clusters == 2
    assert [row.taken.events for row in count.largest()] == [9, 9]
    assert sum(row.taken.read for row in count.largest()) == sum(map(len, lines))
    # Of one pattern came 3, 3 and 3 events in a minute, of the other one 2, 3, 3 and 1.
    for row in count.largest():
        left = 3 if row.summary.representative == lines[0] else 4
        assert row.savings.kept == row.taken.read - row.taken.read * left // 9


def test_patterns_that_are_not_listed_are_in_the_sums() -> None:
    lines = SESSIONS.read_bytes().splitlines()
    count = counted(lines, 1, times=False)
    assert (len(count.largest()), count.patterns.events, count.timed) == (1, 18, False)
    assert count.taken == sum(map(len, lines))

"""A segment: what it gives to the index."""

from __future__ import annotations

from stream_dedup.engine.segment import merge_deltas
from stream_dedup.index.base import ClusterDelta


def test_two_deltas_of_a_cluster_are_merged() -> None:
    given = [
        ClusterDelta(7, 2, 5, 9),
        ClusterDelta(8, 1, 1, 1),
        ClusterDelta(7, 3, 4, 6, b"first", (b"x",)),
    ]
    assert list(merge_deltas(given)) == [
        ClusterDelta(7, 5, 4, 9, b"first", (b"x",)),
        ClusterDelta(8, 1, 1, 1),
    ]

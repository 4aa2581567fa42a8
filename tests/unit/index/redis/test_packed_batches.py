"""What a batch adds goes over the wire once a cluster, and its journal in few bytes."""

from __future__ import annotations

from stream_dedup.index.base import ClusterDelta, merge_deltas
from stream_dedup.index.redis.codec import pack_journal, unpack_journal
from stream_dedup.model import Decision, Kind


def test_two_deltas_of_a_cluster_are_merged() -> None:
    given = [
        ClusterDelta(7, 2, 5, 9),
        ClusterDelta(8, 1, 1, 1),
        ClusterDelta(7, 3, 4, 6, b"first", [b"x"]),
    ]
    assert list(merge_deltas(given)) == [
        ClusterDelta(7, 5, 4, 9, b"first", [b"x"]),
        ClusterDelta(8, 1, 1, 1),
    ]


def test_offsets_in_a_row_cost_the_journal_no_bytes() -> None:
    decision = Decision(Kind.DUPLICATE, 7, 1, 9)
    row = range(10**9, 10**9 + 100)
    packed = pack_journal(row, [decision] * 100)
    assert dict.fromkeys(row, decision) == unpack_journal(packed)
    assert len(packed) < 300

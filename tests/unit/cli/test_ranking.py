"""Which clusters a report has, and how many events each."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_dedup.cli.report import Order, Ranking
from stream_dedup.deduplicator import Deduplicator

SESSIONS = Path(__file__).parents[3] / "docs" / "examples" / "sessions.log"


def ranked(limit: int, order: Order = "count") -> Ranking:
    """The sessions, each line decided alone, so that clusters of single users merge later."""
    dedup, ranking = Deduplicator(), Ranking(limit, order)
    for line in SESSIONS.read_bytes().splitlines():
        dedup.process([line])
    for summary in dedup.close():
        if summary.final:
            ranking.add(summary, summary.position.offset, summary.position.offset)
    return ranking


@pytest.mark.parametrize("order", ["count", "first", "last"])
def test_clusters_that_merged_are_one(order: Order) -> None:
    ranking = ranked(5, order)
    assert (ranking.clusters, ranking.events) == (2, 18)
    assert [summary.count for summary, _, _ in ranking.entries()] == [9, 9]
    assert sorted((first, last) for _, first, last in ranking.entries()) == [(0, 8), (1, 9)]
    assert ranking.left_out() == ""


def test_what_is_left_out_has_the_events_that_merged() -> None:
    assert ranked(1).left_out() == "and 1 more cluster with 9 events"

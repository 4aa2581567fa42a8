from __future__ import annotations

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.redis.stamp import plan_stamp, ttl_ms

RECIPE = Recipe(match=Match(k=3))
DAY_US = 24 * 3600 * 1_000_000


@pytest.mark.parametrize(
    ("clusters", "slices"), [(1, 1), (100, 1), (101, 2), (100_000, 1024), (10**6, 16384)]
)
def test_slices_hold_between_50_and_100_entries_at_the_planned_size(
    clusters: int, slices: int
) -> None:
    stamp = plan_stamp(RECIPE, clusters, 1)
    assert (slices, slices) == (stamp.slices, stamp.exact_slices)


def test_shards_share_the_clusters() -> None:
    whole, cut = plan_stamp(RECIPE, 100_000, 1), plan_stamp(RECIPE, 100_000, 4)
    assert (whole.slices // 4, 4) == (cut.slices, cut.shards)


def test_blocks_may_be_given() -> None:
    assert 7 == plan_stamp(RECIPE, 1000, 1, blocks=7).blocks
    with pytest.raises(ValueError, match="blocks"):
        plan_stamp(RECIPE, 1000, 1, blocks=3)


def test_keys_outlive_every_cluster_that_sees_events() -> None:
    assert 7 * DAY_US == 1000 * ttl_ms(Windows(), Summaries())
    long = Windows(max_age_us=30 * DAY_US)
    assert 62 * DAY_US == 1000 * ttl_ms(long, Summaries())
    assert ttl_ms(Windows(max_age_us=FOREVER_US), Summaries()) < 2**53

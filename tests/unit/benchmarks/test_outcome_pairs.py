"""Lines that differ in an outcome, a level or a status class never share a cluster."""

from __future__ import annotations

from benchmarks.outcome_pairs import STAGES, check_pairs
from stream_dedup.features.recipe import load_recipe, replace


def assert_none_merges(pairs: int) -> None:
    """Check that pairs merge where the outcome is the same, and only there."""
    found = check_pairs("logs", pairs)

    assert {stage: one.merged for stage, one in found.items()} == dict.fromkeys(STAGES, 0)
    assert sum(one.pairs for one in found.values()) == pairs
    # Where the outcome is the same, most merge: the check could have failed, at every stage.
    assert found["exact"].merged_equal == 1
    assert min(one.merged_equal for one in found.values()) > 0.4


def test_no_pairs_of_different_outcome_merge() -> None:
    assert_none_merges(pairs=5_000)


def test_the_pairs_merge_where_the_recipe_protects_nothing() -> None:
    bare = replace(load_recipe("logs"), match__protected=[], match__variants=[])
    found = check_pairs(bare, 2_000)
    assert all(one.merged for one in found.values())

"""Lines that differ in an outcome, a level or a status class never share a cluster."""

from __future__ import annotations

import pytest

from benchmarks.outcome_pairs import STAGES, check_pairs
from stream_dedup.features.recipe import load_recipe, replace


@pytest.mark.timeout(900)  # 15 s, where nothing else runs
def test_of_100_000_pairs_of_different_outcome_none_merges() -> None:
    found = check_pairs("logs", 100_000)
    assert {stage: one.merged for stage, one in found.items()} == dict.fromkeys(STAGES, 0)
    assert sum(one.pairs for one in found.values()) == 100_000
    # Where the outcome is the same, most merge: the check could have failed, at every stage.
    assert found["exact"].merged_equal == 1
    assert min(one.merged_equal for one in found.values()) > 0.4


def test_the_pairs_merge_where_the_recipe_protects_nothing() -> None:
    bare = replace(load_recipe("logs"), match__protected=[], match__variants=[])
    found = check_pairs(bare, 500)
    assert all(one.merged for one in found.values())

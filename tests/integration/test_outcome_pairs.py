"""Of 100,000 pairs of lines that differ in an outcome, a level or a status class, none merges."""

from __future__ import annotations

import pytest

from tests.unit.benchmarks.test_outcome_pairs import assert_none_merges


@pytest.mark.timeout(900)  # a minute, where nothing else runs
def test_none_of_100_000_pairs_of_different_outcome_merges() -> None:
    assert_none_merges(pairs=100_000)

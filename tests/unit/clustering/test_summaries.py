from __future__ import annotations

import pytest

from stream_dedup.clustering.summaries import Summaries


@pytest.mark.parametrize(
    ("told_us", "stream_us", "due_us"), [(100, 0, 110), (100, 105, 110), (100, 500, 500)]
)
def test_a_summary_is_due_a_period_after_the_last_but_not_in_the_past(
    told_us: int, stream_us: int, due_us: int
) -> None:
    assert due_us == Summaries(every_us=10).due_us(told_us, stream_us)


def test_without_a_period_none_is_due() -> None:
    assert Summaries(every_us=None).due_us(0, 10**18) is None


@pytest.mark.parametrize("every_us", [0, -1])
def test_a_period_is_longer_than_nothing(every_us: int) -> None:
    with pytest.raises(ValueError, match="every_us"):
        Summaries(every_us=every_us)

from __future__ import annotations

import pytest

from stream_dedup.clustering.summaries import Summaries


def test_a_summary_is_due_a_period_after_the_last() -> None:
    assert Summaries(every_us=10).due_us(100) == 110


def test_without_a_period_none_is_due() -> None:
    assert Summaries(every_us=None).due_us(0) is None


@pytest.mark.parametrize("samples", [-1, 256])
def test_samples_are_at_most_255(samples: int) -> None:
    with pytest.raises(ValueError, match=f"samples is {samples}; give 0 to 255"):
        Summaries(samples=samples)


@pytest.mark.parametrize("name", ["max_value_bytes", "lease_us", "retention_us"])
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1; give 0 or more"):
        Summaries(**{name: -1})
    Summaries(**{name: 0})


@pytest.mark.parametrize("every_us", [0, -1])
def test_a_period_of_zero_or_less_is_refused(every_us: int) -> None:
    with pytest.raises(ValueError, match="every_us"):
        Summaries(every_us=every_us)

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dedup.clustering.summaries import LEFT_OUT, Summaries
from stream_dedup.features.traces import trace_of


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
    values: dict[str, Any] = {name: -1}
    with pytest.raises(ValueError, match=f"{name} is -1; give 0 or more"):
        Summaries(**values)
    Summaries(**(values | {name: 0}))


@pytest.mark.parametrize("every_us", [0, -1])
def test_a_period_of_zero_or_less_is_refused(every_us: int) -> None:
    with pytest.raises(ValueError, match="every_us"):
        Summaries(every_us=every_us)


def test_a_long_text_keeps_its_beginning() -> None:
    assert Summaries(max_value_bytes=8).kept(b"a long line") == b"a long l"
    assert Summaries(max_value_bytes=8).kept(b"a line") == b"a line"
    assert Summaries(max_value_bytes=0).kept(b"a\nb") == b""


@given(st.lists(st.binary(max_size=30)).map(b"\n".join), st.integers(0, 60))
def test_what_is_kept_is_never_too_long(value: bytes, most: int) -> None:
    assume(LEFT_OUT not in value)
    kept = Summaries(max_value_bytes=most).kept(value)
    assert len(kept) <= most
    first, left_out, last = kept.partition(LEFT_OUT)
    assert value.startswith(first)
    assert not left_out or value.endswith(last)


def test_of_a_long_trace_its_beginning_and_end_are_kept() -> None:
    frames = b"".join(b'  File "a.py", line %d, in f%d\n' % (n, n) for n in range(300))
    trace = b"ERROR x\nTraceback (most recent call last):\n" + frames + b"ValueError: seventeen"
    found = trace_of(Summaries(max_value_bytes=500).kept(trace))
    assert found == trace_of(trace)

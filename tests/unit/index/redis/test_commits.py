"""What commits send, packed natively and by the reference: the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.index.base import ClusterDelta
from stream_dedup.index.redis import codec
from stream_dedup.index.redis._commits import pack_decisions, pack_deltas
from stream_dedup.model import Decision, Kind

ids = st.integers(0, 2**64 - 1)
edges = st.sampled_from([edge + by for edge in (1 << bits for bits in range(64)) for by in (-1, 0)])
signed = st.one_of(edges, edges.map(lambda edge: -edge), st.integers(-(2**63), 2**64 - 1))
texts = st.one_of(
    st.text(max_size=20),
    st.builds(str.__mul__, st.sampled_from("xä"), st.sampled_from([31, 32, 255, 256, 70_000])),
)
decisions = st.builds(
    Decision,
    st.sampled_from(Kind),
    st.none() | signed,
    st.none() | signed,
    st.none() | st.integers(0, 2**128 - 1) | edges | edges.map(lambda edge: edge << 64),
    texts,
    st.none() | signed,
    st.just(0) | signed,
    st.just("") | texts,
)
times = st.one_of(st.integers(-(2**70), 2**70), st.integers(-(2**53), 2**53))
values = st.binary(max_size=12)
deltas = st.builds(
    ClusterDelta,
    ids,
    st.integers(0, 2**53),
    times,
    times,
    st.none() | values,
    st.just([]) | st.lists(values, max_size=4),
    st.just([]) | st.lists(st.tuples(ids, values), max_size=3),
    st.integers(0, 2**60),
)


@given(st.lists(decisions, max_size=20))
def test_decisions_are_packed_as_by_the_reference(some: list[Decision]) -> None:
    assert codec.reference_pack_decisions(some) == pack_decisions(some)


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_any_number_of_decisions_is_packed(count: int) -> None:
    some = [Decision(Kind.DUPLICATE, 7, 3, 2**64 - 1, "", 9)] * count
    assert codec.reference_pack_decisions(some) == pack_decisions(some)


@pytest.mark.parametrize("wrong", [Decision(Kind.NEW, 2**64), Decision(Kind.NEW, 1, 0, -1)])
def test_a_number_that_cannot_be_packed_is_refused(wrong: Decision) -> None:
    for pack in (codec.reference_pack_decisions, pack_decisions):
        with pytest.raises(OverflowError):
            pack([wrong])


def test_what_is_no_decision_is_refused() -> None:
    for wrong in (None, (), [1]):
        with pytest.raises(TypeError):
            pack_decisions([wrong])  # type: ignore[list-item]


@given(st.lists(deltas, max_size=9), st.integers(0, 3), st.integers(0, 9), values)
def test_deltas_are_packed_as_by_the_reference(
    some: list[ClusterDelta], samples: int, max_bytes: int, owner: bytes
) -> None:
    expected = codec.reference_pack_deltas(some, samples, max_bytes, owner)
    assert expected == pack_deltas(some, samples, max_bytes, owner)

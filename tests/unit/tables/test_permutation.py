from __future__ import annotations

from collections import Counter
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.tables.permutation import MAX_TABLES, Layout


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    width = draw(st.sampled_from([8, 13, 32, 64, 128]))
    k = draw(st.integers(0, min(6, width - 1)))
    most = max(m for m in range(k + 1, min(width, k + 6) + 1) if comb(m, k) <= MAX_TABLES)
    return Layout(width, k, draw(st.integers(k + 1, most)))


@given(layouts(), st.data())
def test_restore_undoes_permute_in_every_table(layout: Layout, data: st.DataObject) -> None:
    fingerprint = data.draw(st.integers(0, 2**layout.width - 1))
    permuted = [layout.permute(fingerprint, table) for table in range(layout.tables)]
    assert [layout.restore(value, table) for table, value in enumerate(permuted)] == [
        fingerprint
    ] * layout.tables
    assert {fingerprint.bit_count()} == {value.bit_count() for value in permuted}


@given(layouts())
def test_blocks_cover_the_width_and_differ_by_at_most_one_bit(layout: Layout) -> None:
    covered = [bit for shift, bits in layout.bounds for bit in reversed(range(shift, shift + bits))]
    assert list(reversed(range(layout.width))) == covered
    sizes = {bits for _, bits in layout.bounds}
    assert max(sizes) - min(sizes) <= 1


@given(layouts())
def test_there_is_a_table_for_every_choice_of_blocks(layout: Layout) -> None:
    assert comb(layout.blocks, layout.k) == layout.tables == len(set(layout.masks))
    assert layout.tables == len(layout.orders) == len(layout.prefix_bits)
    for order in layout.orders:
        assert list(range(layout.blocks)) == sorted(order)
    assert layout.prefix_sizes == Counter(layout.prefix_bits)


@given(layouts(), st.data())
def test_the_prefix_comes_first_in_the_permuted_fingerprint(
    layout: Layout, data: st.DataObject
) -> None:
    table = data.draw(st.integers(0, layout.tables - 1))
    prefix_bits = layout.prefix_bits[table]
    first_ones = ((1 << prefix_bits) - 1) << (layout.width - prefix_bits)
    assert layout.masks[table] == layout.restore(first_ones, table)


@given(layouts(), st.data())
def test_two_fingerprints_within_k_bits_share_a_prefix_in_some_table(
    layout: Layout, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, 2**layout.width - 1))
    flips = data.draw(st.sets(st.integers(0, layout.width - 1), max_size=layout.k))
    second = first ^ sum(1 << bit for bit in flips)
    assert any(first & mask == second & mask for mask in layout.masks)


@given(layouts(), st.data())
def test_one_bit_in_each_of_too_many_blocks_shares_no_prefix(
    layout: Layout, data: st.DataObject
) -> None:
    if layout.k + 1 > layout.blocks:
        return
    chosen = data.draw(st.permutations(range(layout.blocks)))[: layout.k + 1]
    apart = sum(1 << layout.bounds[block][0] for block in chosen)
    assert not any(apart & mask == 0 for mask in layout.masks)


@pytest.mark.parametrize(
    ("width", "k", "blocks"), [(64, 3, 3), (64, -1, 4), (8, 3, 9), (64, 0, 0), (128, 20, 60)]
)
def test_layouts_that_cannot_work_are_refused(width: int, k: int, blocks: int) -> None:
    with pytest.raises(ValueError, match=f"width={width}"):
        Layout(width, k, blocks)

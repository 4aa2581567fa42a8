"""The keys of patterns as a script gets them: natively packed ones are those of the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.one_off import (
    COUNTED_STEP,
    MOST_COUNTED,
    Keys,
    WordSlot,
    pack,
    pattern_keys,
)
from stream_dedup.index.redis import layouts
from stream_dedup.index.redis._one_off import pack_patterns
from stream_dedup.index.redis.one_off import Row, reference_pack_patterns

hashes = st.integers(0, 2**64 - 1) | st.integers(0, 3)
keys = st.builds(
    Keys,
    hashes,
    st.integers(2, 48),
    st.lists(
        st.builds(
            WordSlot,
            hashes,
            st.integers(0, 126),
            st.integers(0, 255),
            st.integers(0, 2**23 - 1),
            st.booleans(),
        ),
        max_size=9,
    ),
    st.integers(0, 2**56 - 1),
    st.sampled_from(range(0, MOST_COUNTED + 1, COUNTED_STEP)),
)
rows = st.lists(
    st.tuples(keys.map(pack) | st.just(b""), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    max_size=9,
)


@given(rows, st.sampled_from([64, 63, 56, 40]))
def test_patterns_are_packed_natively_as_by_the_reference(some: list[Row], shift: int) -> None:
    assert reference_pack_patterns(some, shift) == pack_patterns(some, shift)


def plain(words: list[list[int]], groups: list[int]) -> list[bool]:
    """Which of the patterns of words are plain."""
    patterns = [pack(pattern_keys(each, [False] * len(each))) for each in words]
    some = [(each, group, 5) for each, group in zip(patterns, groups, strict=True)]
    packed, flags = pack_patterns(some, 60), []
    while packed:
        _, _, is_plain, _, _, size = layouts.PATTERN.struct.unpack_from(packed)
        flags.append(bool(is_plain))
        packed = packed[layouts.PATTERN.struct.size + layouts.LISTS.struct.size + size :]
    return flags


@pytest.mark.parametrize(
    ("words", "groups", "expected"),
    [
        ([[1, 2, 3, 4], [5, 6, 7, 8]], [9, 9], [True, True]),
        ([[1, 2, 3, 4], [1, 2, 3, 8]], [9, 9], [True, False]),
        ([[1, 2, 3, 4], [1, 2, 3]], [9, 9], [True, False]),  # without its last word it is the other
        ([[1, 2, 3, 4], [1, 2, 3, 4]], [9, 7], [True, True]),
        ([[1, 2, 2, 4]], [9], [False]),  # without either 2 it is the same
    ],
)
def test_a_pattern_is_plain_if_no_other_has_its_keys(
    words: list[list[int]], groups: list[int], expected: list[bool]
) -> None:
    assert expected == plain(words, groups)


@pytest.mark.parametrize("pack_all", [pack_patterns, reference_pack_patterns])
def test_a_pattern_says_how_many_words_count(pack_all: Callable[[list[Row], int], bytes]) -> None:
    uncounted = [False] * 5 + [True] * 43
    keys = pack(pattern_keys(range(48), [False] * 48, uncounted=uncounted))
    words, counted, *_ = layouts.PATTERN.struct.unpack_from(pack_all([(keys, 9, 5)], 60))
    assert (words, counted) == (48, 4)


def test_keys_that_are_cut_off_are_refused() -> None:
    with pytest.raises(ValueError, match="15 bytes are not the keys of a pattern"):
        pack_patterns([(bytes(15), 0, 0)], 60)
    with pytest.raises(TypeError, match="are bytes"):
        pack_patterns([(None, 0, 0)], 60)  # type: ignore[list-item]

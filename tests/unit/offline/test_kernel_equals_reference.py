"""The native kernel returns what the reference returns, for any words, text and layout."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.offline import _native as native
from stream_dedup.offline import reference
from stream_dedup.offline.reference import packed, unpacked, word_bytes
from stream_dedup.tables.permutation import Layout
from tests.effort import scaled

LAYOUTS = [
    Layout(32, 3, 4),
    Layout(32, 31, 32),
    Layout(64, 0, 1),
    Layout(64, 3, 4),
    Layout(64, 3, 6),
    Layout(64, 10, 12),
    Layout(64, 1, 64),
    Layout(128, 3, 5),
    Layout(128, 0, 1),
    Layout(128, 9, 11),
    Layout(7, 2, 3),
]
widths = st.sampled_from([32, 64, 128])


@st.composite
def near_words(draw: st.DrawFn, width: int) -> list[int]:
    """Numbers of which many are near each other, and some are equal."""
    bases = draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=4))
    bits = st.lists(st.integers(0, width - 1), max_size=8)
    flips = draw(st.lists(st.tuples(st.sampled_from(bases), bits), max_size=60))
    out = []
    for base, positions in flips:
        number = base
        for position in positions:
            number ^= 1 << position
        out.append(number)
    return out


@settings(max_examples=scaled(300))
@given(data=st.data())
def test_parts_hold_and_find_the_same_step_by_step(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS))
    words = packed(sorted(set(data.draw(near_words(layout.width)))), layout.width)
    table = data.draw(st.integers(0, layout.tables - 1))
    top = 1 << min(layout.prefix_bits[table], 16)
    low = data.draw(st.one_of(st.just(0), st.integers(0, top - 1)))
    high = data.draw(st.one_of(st.just(top), st.integers(low, top)))
    found = []
    for kind in (reference.Part, native.Part):
        part = kind(layout, table, low, high)
        middle = len(words) // 2 // word_bytes(layout.width) * word_bytes(layout.width)
        part.add(words[:middle])
        part.add(words[middle:])
        part.sort()
        pairs = b""
        while not part.done:
            pairs += part.step(3, 10)
        found.append((len(part), pairs, part.compared))

    assert found[0] == found[1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_long_runs_are_compared_whole(layout: Layout) -> None:
    generator = random.Random(layout.k)
    base = generator.getrandbits(layout.width)
    numbers = {base ^ (generator.getrandbits(layout.width) & 0x7F) for _ in range(300)}
    words = packed(sorted(numbers), layout.width)
    found = []
    for kind in (reference.Part, native.Part):
        part = kind(layout, 0, 0, 1 << 16)
        part.add(words)
        part.sort()
        pairs = b""
        while not part.done:
            pairs += part.step(1 << 16, 1 << 26)
        found.append((pairs, part.compared))

    assert found[0] == found[1]


number_texts = st.one_of(
    st.integers(0, 2**130).map(str),
    st.sampled_from([2**w + d for w in (32, 64, 128) for d in (-1, 0, 1)]).map(str),
    st.integers(0, 2**130).map("{:x}".format),
    st.integers(0, 2**66).map("0X{:X}".format),
    st.integers(0, 9).map("{:060}".format),
    st.sampled_from(
        ["", "-1", "+1", " 7 ", "\t7\r", "0x", "x", "1 2", "1.0", "1e3", "\0", "7\x0b"]
    ),
    st.text(max_size=3),
)
texts = st.tuples(st.lists(number_texts, max_size=6), st.booleans()).map(
    lambda made: ("\n".join(made[0]) + "\n" * made[1]).encode()
)


@settings(max_examples=scaled(600))
@given(text=st.one_of(texts, st.binary(max_size=20)), hexadecimal=st.booleans(), width=widths)
def test_text_is_read_the_same(text: bytes, hexadecimal: bool, width: int) -> None:
    expected = reference.parse(text, hexadecimal, width)

    assert native.parse(text, hexadecimal, width) == expected


@given(data=st.data(), width=widths, hexadecimal=st.booleans(), json=st.booleans())
def test_rows_are_written_the_same_and_read_back(
    data: st.DataObject, width: int, hexadecimal: bool, json: bool
) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=20))
    words = packed(numbers, width)
    ends = array("Q", sorted(data.draw(st.sets(st.integers(1, len(numbers) or 1)))))
    ends = array("Q", [end for end in ends if end < len(numbers)] + [len(numbers)] * bool(numbers))
    even = words[: len(numbers) // 2 * 2 * word_bytes(width)]

    assert reference.rows(words, ends, width, hexadecimal, json) == native.rows(
        words, ends, width, hexadecimal, json
    )
    assert reference.rows(even, None, width, hexadecimal, json) == native.rows(
        even, None, width, hexadecimal, json
    )
    lines = native.rows(words, array("Q", range(1, len(numbers) + 1)), width, hexadecimal, False)
    assert native.parse(lines, hexadecimal, width) == (words, -1)


@given(data=st.data(), width=widths)
def test_sorting_counting_and_taking_are_the_same(data: st.DataObject, width: int) -> None:
    numbers = data.draw(near_words(width))
    size = word_bytes(width)
    expected, words = packed(numbers, width), packed(numbers, width)

    count = reference.sort_distinct(expected, width)
    assert native.sort_distinct(words, width) == count
    assert expected[: count * size] == words[: count * size]
    assert sorted(set(numbers)) == unpacked(words[: count * size], width)
    del words[count * size :]
    for bound in [*numbers, 0, 2**width - 1]:
        expected_count = reference.count_up_to(words, bound, width)
        assert native.count_up_to(words, bound, width) == expected_count
    if count:
        positions = array("Q", data.draw(st.lists(st.integers(0, count - 1), max_size=9)))
        taken = reference.taken(words, positions, width)
        assert native.taken(words, positions, width) == taken


@given(data=st.data())
def test_histograms_are_the_same(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS))
    table = data.draw(st.integers(0, layout.tables - 1))
    words = packed(data.draw(near_words(layout.width)), layout.width)

    expected = reference.histogram(words, layout, table)

    assert native.histogram(words, layout, table) == expected
    assert len(words) // word_bytes(layout.width) == sum(expected)


@given(data=st.data())
def test_pairs_that_share_a_key_of_bands_are_the_same(data: st.DataObject) -> None:
    keys, crowd = data.draw(st.integers(1, 17)), data.draw(st.integers(1, 4))
    some = [reference.packed([number], 32)[:4] for number in range(4)]
    fingerprint = st.lists(st.sampled_from(some), min_size=keys, max_size=keys).map(b"".join)
    batches = data.draw(st.lists(st.lists(fingerprint, max_size=30), max_size=3))
    pair = reference.BandPairs(keys, crowd), native.BandPairs(keys, crowd)
    first = data.draw(st.integers(0, 5_000))
    for batch in batches:
        owners = array("I", range(first, first + len(batch)))
        first += len(batch)
        found = [sorted_pairs(each.add(b"".join(batch), owners)) for each in pair]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("different", "added"),
    [(40, 3_000), (60_000, 3_000), (1_000_000, 83_000)],  # the last ones have tables of 2 and 4 MB
)
def test_pairs_are_the_same_when_their_tables_have_grown(different: int, added: int) -> None:
    generator = random.Random(different)
    drawn = [generator.getrandbits(32) for _ in range(different)]
    pair = reference.BandPairs(2, 16), native.BandPairs(2, 16)
    for first in range(0, 3 * added, added):
        keys = array("I", generator.choices(drawn, k=2 * added)).tobytes()
        owners = array("I", range(first, first + added))
        found = [sorted_pairs(each.add(keys, owners)) for each in pair]
        assert found[0]
        assert found[0] == found[1]


def test_keys_of_bands_of_another_size_are_refused() -> None:
    for kind in (reference.BandPairs, native.BandPairs):
        with pytest.raises(ValueError, match="bytes"):
            kind(16, 16).add(b"x", array("I", [0]))


def sorted_pairs(numbers: array[int]) -> list[tuple[int, int]]:
    return sorted(zip(numbers[1::2], numbers[::2], strict=True))


@given(data=st.data(), width=widths)
def test_components_are_the_same(data: st.DataObject, width: int) -> None:
    numbers = data.draw(near_words(width))
    alone = packed(data.draw(near_words(width)), width)
    pairs = packed(numbers[: len(numbers) // 2 * 2], width)
    seen = []
    for kind in (reference.Components, native.Components):
        components = kind(width)
        ids = components.numbers(alone)
        components.join(pairs)
        ids += components.numbers(pairs)
        seen.append((ids, len(components), components.words(), components.grouped(ids)))

    assert seen[0] == seen[1]


@pytest.mark.parametrize("width", [64, 128])
def test_components_are_the_same_when_their_tables_have_grown(width: int) -> None:
    generator = random.Random(width)
    numbers = [generator.getrandbits(width) for _ in range(9_000)]
    chosen = packed(generator.choices(numbers, k=4_000), width)
    seen = []
    for kind in (reference.Components, native.Components):
        components = kind(width)
        ids = components.numbers(packed(numbers, width))
        components.join(chosen)
        seen.append((ids, len(components), components.words(), components.grouped(ids)))

    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("setup", "kernel"),
    [
        ("os.environ.pop('STREAM_DEDUP_PURE_PYTHON', None)", "_native"),
        ("os.environ['STREAM_DEDUP_PURE_PYTHON'] = '1'", "reference"),
        ("sys.modules['stream_dedup.offline._native'] = None", "reference"),
    ],
)
def test_the_reference_replaces_a_missing_native_kernel(setup: str, kernel: str) -> None:
    code = (
        f"import os, sys; {setup}; from stream_dedup.offline import kernel; print(kernel.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"stream_dedup.offline.{kernel}"

"""Sketches of sets: two bytes a hash, and what two sets have in common."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.tables.sketches import (
    SKETCH,
    VALUE_BITS,
    fastest_alike,
    fastest_jaccard,
    fastest_pack,
    fastest_unpack,
    features,
    reference_alike,
    reference_jaccard,
    reference_pack,
    reference_unpack,
    sketch,
)

HASHES = st.integers(0, 2**32 - 1)
SETS = st.sets(st.integers(0, 300) | st.integers(0, 2**20) | HASHES, max_size=400)


@given(st.sets(HASHES, max_size=SKETCH))
def test_all_hashes_of_a_small_set_are_there(hashes: set[int]) -> None:
    head, *values = array("H", sketch([*hashes, *hashes])) or [32]
    assert (head, values) == (32, sorted({x >> 16 for x in hashes}))


@given(st.sets(HASHES, min_size=SKETCH + 1, max_size=400), st.integers(0, 20))
def test_the_least_hashes_of_a_large_set_fill_two_bytes(hashes: set[int], down: int) -> None:
    least = sorted({x >> down for x in hashes})
    head, *values = array("H", sketch(least))
    shift, is_cut = divmod(head, 2)
    expected = sorted({x >> shift for x in least[:SKETCH]})
    assert (is_cut, values) == (len(least) > SKETCH, expected)
    assert not is_cut or shift == 0 or values[-1] >> VALUE_BITS - 1 == 1


@given(SETS)
def test_a_packed_sketch_is_unpacked_to_what_it_was(hashes: set[int]) -> None:
    whole = sketch(hashes)
    packed = reference_pack(whole)
    assert fastest_pack()(whole) == packed
    assert reference_unpack(packed) == fastest_unpack()(packed) == whole


def test_packed_values_take_eight_bits_and_some_three() -> None:
    rng = random.Random(5)
    sizes = [len(reference_pack(sketch(rng.getrandbits(32) for _ in range(n)))) for n in (80, 900)]
    assert sizes[0] <= 2 + 80 + 42
    assert sizes[1] <= 2 + 128 + 48


@given(SETS.map(sketch).map(reference_pack), st.data())
def test_damaged_sketches_are_refused_or_read_as_the_reference(
    packed: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(packed)))
    damaged = bytearray(packed[:cut] + data.draw(st.binary(max_size=3)))
    for at in data.draw(st.lists(st.integers(0, max(0, len(damaged) - 1)), max_size=3)):
        damaged[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    read = list[bytes | None]()
    for unpack in (reference_unpack, fastest_unpack()):
        try:
            read.append(unpack(bytes(damaged)))
        except ValueError:
            read.append(None)
    assert read[0] == read[1]


@pytest.mark.parametrize(
    "damaged",
    [b"\x20", b"\x20\x02\x01", bytes.fromhex("2002050480c0"), bytes.fromhex("20010180" + "00")],
)
@pytest.mark.parametrize("unpack", [reference_unpack, fastest_unpack()])
def test_a_damaged_sketch_is_refused(unpack: Callable[[bytes], bytes], damaged: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(damaged)


@pytest.mark.parametrize("pack", [reference_pack, fastest_pack()])
def test_only_sketches_are_packed(pack: Callable[[bytes], bytes]) -> None:
    for numbers in ([32, 5, 5], [32, 5, 4], [256, 1], [32, *range(256)]):
        with pytest.raises(ValueError, match="no sketch"):
            pack(array("H", numbers).tobytes())
    with pytest.raises(ValueError, match="two bytes each"):
        pack(bytes(3))


@given(SETS, SETS)
def test_the_native_index_equals_the_reference(left: set[int], right: set[int]) -> None:
    pair = sketch(left), sketch(right)
    expected = reference_jaccard(*pair)
    assert expected == fastest_jaccard()(*pair) == fastest_jaccard()(*reversed(pair))


@given(st.lists(SETS, min_size=1, max_size=5), st.data())
def test_the_native_pairs_that_are_alike_equal_the_reference(
    sets: list[set[int]], data: st.DataObject
) -> None:
    # Some of each other set, so that there are some that are alike.
    halves = [sorted(one)[: 3 * len(one) // 4] for one in sets]
    known = [sketch([*half, *other]) for half in halves for other in sets]
    numbers = st.integers(0, len(known) - 1)
    given_pairs = data.draw(st.lists(st.tuples(numbers, numbers), max_size=40))
    pairs = array("I", [number for pair in given_pairs for number in pair])
    least = data.draw(st.sampled_from([0.2, 0.42, 0.8]))
    assert reference_alike(pairs, known, least) == fastest_alike()(pairs, known, least)


@pytest.mark.parametrize("alike", [reference_alike, fastest_alike()])
def test_pairs_are_of_known_sketches(alike: Callable[..., object]) -> None:
    known = [sketch([1 << 20]), None]
    with pytest.raises(IndexError):
        alike(array("I", [0, 2]), known, 0.42)
    with pytest.raises(TypeError):
        alike(array("I", [0, 1]), known, 0.42)
    with pytest.raises(ValueError, match=r"pair|zip"):
        alike(array("I", [0]), known, 0.42)


@given(
    st.sets(st.integers(0, 2**16 - 1), max_size=60), st.sets(st.integers(0, 2**16 - 1), max_size=60)
)
def test_the_index_of_small_sets_is_exact(left: set[int], right: set[int]) -> None:
    pair = (sketch(x << 16 for x in some) for some in (left, right))
    expected = len(left & right) / len(left | right) if left | right else 1.0
    assert expected == reference_jaccard(*pair)


@pytest.mark.parametrize("common", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("sizes", [(87, 87), (128, 129), (100, 200), (300, 500), (900, 20_000)])
def test_the_index_is_near_that_of_the_sets(sizes: tuple[int, int], common: float) -> None:
    rng = random.Random(sum(sizes))
    differences = []
    for _ in range(60):
        shared = [rng.getrandbits(32) for _ in range(int(common * min(sizes)))]
        left, right = (
            {*shared, *(rng.getrandbits(32) for _ in range(size - len(shared)))} for size in sizes
        )
        true = len(left & right) / len(left | right)
        differences.append(fastest_jaccard()(sketch(left), sketch(right)) - true)
    assert sum(differences) / 60 == pytest.approx(0, abs=0.02)
    assert max(map(abs, differences)) < (0.02 if max(sizes) <= SKETCH else 0.2)


@given(st.sets(HASHES, max_size=SKETCH))
def test_features_are_counted(hashes: set[int]) -> None:
    assert features(sketch(hashes)) == len({x >> 16 for x in hashes})

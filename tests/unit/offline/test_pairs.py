"""All pairs are found, each once, in one order, whatever the threads, the memory and the shards."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.offline.pairs import Effort, Pair, find_pairs, ranges_of, sorted_words
from stream_dedup.offline.reference import packed
from stream_dedup.offline.sorting import PIECE_BYTES, Sorter
from stream_dedup.tables.planner import offline_layout


def brute_force(fingerprints: list[int], k: int) -> list[Pair]:
    return [
        Pair(first, second, (first ^ second).bit_count())
        for first, second in combinations(sorted(set(fingerprints)), 2)
        if (first ^ second).bit_count() <= k
    ]


def clustered(count: int, width: int, seed: int) -> list[int]:
    """Fingerprints of which a third are near another, and some come twice."""
    generator = random.Random(seed)
    out = [generator.getrandbits(width) for _ in range(count * 2 // 3)]
    while len(out) < count:
        near = generator.choice(out)
        for _ in range(generator.randint(0, 4)):
            near ^= 1 << generator.randrange(width)
        out.append(near)
    generator.shuffle(out)
    return out


@given(data=st.data())
def test_all_pairs_are_found_once(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([32, 64, 128, 9]))
    k = data.draw(st.integers(0, 8))
    blocks = data.draw(st.one_of(st.none(), st.integers(k + 1, min(k + 3, width))))
    bases = data.draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=3))
    flips = st.builds(
        lambda base, bits: base ^ sum(1 << bit for bit in bits),
        st.sampled_from(bases),
        st.sets(st.integers(0, width - 1), max_size=6),
    )
    fingerprints = data.draw(st.lists(flips, max_size=40))

    found = list(find_pairs(fingerprints, k, width=width, blocks=blocks))

    assert brute_force(fingerprints, k) == sorted(found)


@pytest.mark.parametrize("width", [32, 64, 128])
def test_threads_and_memory_change_nothing_not_even_the_order(width: int) -> None:
    fingerprints = clustered(3_000, width, width)
    alone = list(find_pairs(fingerprints, 3, width=width))

    assert brute_force(fingerprints, 3) == sorted(alone)
    assert list(find_pairs(fingerprints, 3, width=width, effort=Effort(threads=3))) == alone


@pytest.mark.parametrize("shards", [1, 2, 5, 70_000])
def test_the_shards_together_find_all_and_nothing_twice(shards: int) -> None:
    fingerprints = clustered(400, 64, 5)
    numbers = range(1, shards + 1) if shards < 10 else [1, 2, 40_000, shards]
    found = [
        pair
        for shard in numbers
        for pair in find_pairs(fingerprints, 3, effort=Effort(shard=shard, shards=shards))
    ]

    if shards < 10:
        assert brute_force(fingerprints, 3) == sorted(found)
    assert len(found) == len(set(found))


def test_shards_get_equal_parts_however_the_fingerprints_lie() -> None:
    fingerprints = [n * n for n in range(20_000)]  # all below 2^29
    layout = offline_layout(64, 3, len(fingerprints), 4)
    with sorted_words(fingerprints, 64, 1 << 30) as words:
        ends = []
        for shard in (1, 2, 3):
            ranges = ranges_of(words, layout, Effort(shard=shard, shards=3))
            last_table = [r for r in ranges if r.table == layout.tables - 1]
            assert len(last_table) == 1
            ends.append((last_table[0].low, last_table[0].high))

    assert ends[0][0] == 0
    assert [ends[0][1], ends[1][1]] == [ends[1][0], ends[2][0]]
    assert ends[2][1] == 1 << 16
    low_bits = [f & 0xFFFF for f in fingerprints]
    sizes = [sum(low <= bits < high for bits in low_bits) for low, high in ends]
    assert max(sizes) < 0.4 * len(fingerprints)


def test_pairs_are_found_also_where_memory_is_exceeded() -> None:
    fingerprints = clustered(120_000, 64, 7)
    in_memory = list(find_pairs(fingerprints, 3, blocks=5))
    effort = Effort(memory_bytes=1 << 20)

    with sorted_words(fingerprints, 64, effort.memory_bytes) as words:
        assert words.memory_bytes == 0  # they are in a file
        assert len(set(fingerprints)) == words.count
        ranges = ranges_of(words, offline_layout(64, 3, words.count, 5), effort)
        assert len(ranges) > 10

    assert list(find_pairs(fingerprints, 3, blocks=5, effort=effort)) == in_memory
    threads = Effort(memory_bytes=1 << 20, threads=2)
    assert list(find_pairs(fingerprints, 3, blocks=5, effort=threads)) == in_memory


@pytest.mark.parametrize("width", [64, 128])
def test_runs_are_merged_into_one_sorted_file_without_repeats(width: int) -> None:
    generator = random.Random(width)
    fingerprints = [generator.getrandbits(17) for _ in range(50_000)]
    fingerprints += [generator.getrandbits(width) for _ in range(150_000)]
    sorter = Sorter(width, 1)
    for start in range(0, len(fingerprints), 997):
        sorter.add(packed(fingerprints[start : start + 997], width))
    with sorter.finish() as words:
        assert words.memory_bytes == 0  # they are in a file
        got = b"".join(words.pieces())

    assert packed(sorted(set(fingerprints)), width) == got
    assert len(got) > PIECE_BYTES  # so it was read in several


def test_a_million_equal_fingerprints_are_one() -> None:
    sorter = Sorter(64, 1 << 20)
    for _ in range(1000):
        sorter.add(packed([42], 64) * 1000)
    with sorter.finish() as words:
        assert words.memory_bytes > 0
        assert words.count == 1
    assert list(find_pairs([42] * 1_000_000, 3)) == []


def test_a_consumer_that_stops_early_stops_the_threads() -> None:
    pairs = find_pairs(range(30_000), 3, blocks=4, effort=Effort(threads=2))

    first = next(pairs)
    pairs.close()  # type: ignore[attr-defined]

    assert first.distance <= 3


def test_planning_takes_more_blocks_for_more_fingerprints() -> None:
    few, many = offline_layout(64, 3, 1_000), offline_layout(64, 3, 100_000_000)

    assert few.blocks < many.blocks
    assert offline_layout(64, 6, 10, 9).blocks == 9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"k": 64}, "distance 64 is not from 0 to 63"),
        ({"k": -1}, "distance -1"),
        ({"k": 3, "blocks": 3}, "3 blocks are not more than the distance"),
        ({"k": 3, "blocks": 65}, "more than the width"),
        ({"k": 10, "blocks": 40}, "more than 2000 tables"),
        ({"k": 3, "width": 129}, "1 to 128 bits"),
        ({"k": 3, "width": 0}, "1 to 128 bits"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(
    arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        list(find_pairs([1, 2], **arguments))


@pytest.mark.parametrize("wrong", [-1, 1 << 64, -(1 << 80)])
def test_numbers_that_are_not_fingerprints_are_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"{wrong} is not a fingerprint of 64 bits"):
        list(find_pairs([1, wrong, 2], 3))


@pytest.mark.parametrize("given_effort", [{"shard": 3, "shards": 2}, {"shard": 0}, {"threads": 0}])
def test_impossible_efforts_are_refused(given_effort: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"shard|threads"):
        Effort(**given_effort)

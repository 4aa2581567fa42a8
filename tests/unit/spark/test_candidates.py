"""`stream_dedup.spark.candidates`: comparing the rows of sorted buckets."""

from __future__ import annotations

import random
import struct
from itertools import combinations

import pyarrow as pa
import pytest

from stream_dedup.features.recipe import load_recipe
from stream_dedup.fingerprint import bands
from stream_dedup.spark import candidates
from stream_dedup.tables.sketches import reference_alike, sketch

Row = tuple[int, int, int, int]


def compared(
    rows: list[Row], most: int | None, window: int, size: int, *, chain: bool = True
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the pairs that were compared and found near, and those that were chained."""
    names = ["bucket", "node", "low", "high"]
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    batches = table.to_batches(max_chunksize=size)
    found: list[dict[str, int]] = []
    for batch in candidates._compared(most, window, chain, batches):
        found += batch.to_pylist()
    near = {(pair["src"], pair["dst"]) for pair in found if pair["met"] == 1}
    return near, {
        (pair["src"], pair["dst"]) for pair in found if pair["met"] == candidates.LINKED_AT
    }


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_every_two_near_rows_of_a_bucket_are_found(size: int) -> None:
    chance = random.Random(2)
    rows = sorted(
        (chance.randrange(9), node, chance.randrange(-8, 8), chance.randrange(4))
        for node in range(200)
    )
    expected = {
        (one[1], other[1])
        for one, other in combinations(rows, 2)
        if one[0] == other[0] and bits(one, other) <= 2
    }
    assert compared(rows, 2, 100, size) == (expected, set())


def bits(one: Row, other: Row) -> int:
    apart = [(one[place] ^ other[place]) & (1 << 64) - 1 for place in (2, 3)]
    return sum(each.bit_count() for each in apart)


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize("different", [4, 40])
def test_texts_that_share_keys_are_linked_at_once(
    different: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_PART_ROWS", 50)
    chance = random.Random(different)
    base = [chance.getrandbits(32) for _ in range(60)]
    rows = []
    for node in range(120):
        keys = [chance.randrange(different * 10) for _ in range(bands.BANDS)]
        kept = base[: chance.choice([0, 30, 55])]
        some = sketch([*kept, *(chance.getrandbits(32) for _ in range(60 - len(kept)))])
        rows.append((node * 7 - 300, chance.choice("ab"), struct.pack(">16I", *keys), some))
    expected = list(range(len(rows)))
    met = 0
    for one, other in combinations(range(len(rows)), 2):
        (_, scope, ours, left), (_, its, theirs, right) = rows[one], rows[other]
        pairs = zip(struct.unpack(">16I", ours), struct.unpack(">16I", theirs), strict=True)
        shared = sum(a == b for a, b in pairs)
        alike = reference_alike([one, other], [row[3] for row in rows], 0.42)
        if scope == its and shared and (alike or shared >= candidates.LINKED_AT):
            expected = [expected[one] if root == expected[other] else root for root in expected]
            met += 1
        assert left != right
    assert met > 10

    columns = dict(zip(("node", "scope", "bands", "sketch"), zip(*rows, strict=True), strict=True))
    batches = pa.table(columns).to_batches(max_chunksize=size)
    found = {row[0]: row[0] for row in rows}
    for batch in candidates._linked(load_recipe("text"), batches):
        found |= {row["node"]: row["root"] for row in batch.to_pylist()}
    least = {root: rows[expected.index(root)][0] for root in set(expected)}
    assert {row[0]: least[root] for row, root in zip(rows, expected, strict=True)} == found


def unlike_texts_of_one_bucket(count: int) -> list[pa.RecordBatch]:
    others = [range(15 * node, 15 * node + 15) for node in range(count)]
    columns = {
        "node": range(count),
        "scope": [""] * count,
        "bands": [bytes(4) + struct.pack(">15I", *numbers) for numbers in others],
        "sketch": [sketch([node << 20]) for node in range(count)],
    }
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches()
    return batches


@pytest.mark.parametrize("count", [bands.CROWD + 1, 20, 40])
def test_all_texts_of_a_bucket_beyond_a_crowd_are_linked_at_once(count: int) -> None:
    (batch,) = candidates._linked(load_recipe("text"), unlike_texts_of_one_bucket(count))
    assert [(node, 0) for node in range(1, count)] == sorted(
        (row["node"], row["root"]) for row in batch.to_pylist()
    )


def test_unlike_texts_of_a_crowd_are_not_linked() -> None:
    batches = unlike_texts_of_one_bucket(bands.CROWD)
    rows = [batch.num_rows for batch in candidates._linked(load_recipe("text"), batches)]
    assert sum(rows) == 0


def test_no_texts_have_no_links() -> None:
    assert list(candidates._linked(load_recipe("text"), [])) == []


@pytest.mark.parametrize("size", [1, 4, 100])
def test_rows_of_a_hot_bucket_are_connected_where_not_compared(size: int) -> None:
    rows = [(5, node, node * 0x0101, 0) for node in range(14)]
    near, chained = compared(rows, None, 3, size)
    assert near == {(a, b) for a, b in combinations(range(14), 2) if b - a <= 3}
    roots = list(range(14))
    for one, other in chained:
        roots = [roots[one] if root == roots[other] else root for root in roots]
    apart = [(a, b) for a, b in combinations(range(14), 2) if b - a > 3]
    assert [pair for pair in apart if roots[pair[0]] != roots[pair[1]]] == []


def test_pairs_for_people_are_never_chained() -> None:
    rows = [(5, node, 0, 0) for node in range(9)]
    assert compared(rows, 0, 3, 100, chain=False)[1] == set()

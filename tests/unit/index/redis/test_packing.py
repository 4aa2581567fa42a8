from __future__ import annotations

from collections import Counter

import pytest

from stream_dedup.errors import ProtocolError
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.redis.packing import Packer, group_hash
from stream_dedup.index.redis.server import Argument
from stream_dedup.index.redis.stamp import plan_stamp
from tests.contract.driver import A, query

RECIPE = Recipe(match=Match(k=3))


def packed(packer: Packer, *, near: bool = True) -> tuple[list[bytes], list[Argument]]:
    return packer.query(packer.shards[0], query(5, A, near=near))


def test_a_query_names_its_cluster_its_slice_and_a_slice_a_table() -> None:
    stamp = plan_stamp(RECIPE, 10_000, 1)
    keys, arguments = packed(Packer("logs", stamp))
    assert 2 + stamp.layout.tables == len(keys) == len(set(keys))
    assert 8 == len(arguments)
    without, lean = packed(Packer("logs", stamp), near=False)
    assert keys[:2] == without
    assert b"" == lean[-1]


def test_groups_spread_over_the_shards_and_ids_end_with_their_shard() -> None:
    packer = Packer("logs", plan_stamp(RECIPE, 10_000, 4))
    numbers = Counter(packer.group(f"group {n}")[3] for n in range(400))
    assert [0, 1, 2, 3] == sorted(numbers)
    assert min(numbers.values()) > 50
    for shard in packer.shards:
        _, arguments = packer.query(shard, query(5))
        identity = arguments[1]
        assert isinstance(identity, bytes)
        assert shard is packer.shard_of(int.from_bytes(identity, "big"))


def test_remembered_groups_are_bounded() -> None:
    packer = Packer("logs", plan_stamp(RECIPE, 10_000, 1))
    first = packer.group("0")
    for n in range(25_000):
        packer.group(str(n))
    assert first == packer.group("0")
    assert len(packer._groups) <= 10_001


def test_groups_that_share_a_hash_in_one_namespace_do_not_in_another() -> None:
    groups = [b"group %d" % n for n in range(5_000)]
    by_hash: dict[int, bytes] = {}
    alike = []
    for group in groups:
        low = group_hash("logs", group)[0] & 0xFFFF
        if low in by_hash:
            alike.append((by_hash[low], group))
        by_hash[low] = group
    assert len(alike) > 100
    still = [pair for pair in alike if len({group_hash("other", g)[0] & 0xFFFF for g in pair}) == 1]
    assert len(still) <= 2


def test_a_packer_hashes_groups_as_operators_do() -> None:
    packer = Packer("logs", plan_stamp(RECIPE, 10_000, 4))
    number, packed_number, packed, shard = packer.group("group")
    low, high = group_hash("logs", packed)
    assert (low, low.to_bytes(4, "big"), high % 4) == (number, packed_number, shard)


def test_an_id_of_no_shard_is_refused() -> None:
    packer = Packer("logs", plan_stamp(RECIPE, 10_000, 4))
    assert packer.shards[3] is packer.shard_of(0xAB03)
    with pytest.raises(ProtocolError, match="000000000000ab04 is none of this namespace"):
        packer.shard_of(0xAB04)
    alone = Packer("logs", plan_stamp(RECIPE, 10_000, 1))
    assert alone.shards[0] is alone.shard_of(0xABFF)

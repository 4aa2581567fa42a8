from __future__ import annotations

from collections import Counter

from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.server import Argument
from stream_dedup.index.redis.stamp import plan_stamp
from tests.contract.driver import A, query

RECIPE = Recipe(match=Match(k=3))


def packed(packer: Packer, *, near: bool = True) -> tuple[list[bytes], list[Argument]]:
    keys: list[bytes] = []
    arguments: list[Argument] = []
    packer.query(packer.shards[0], query(5, A, near=near), keys, arguments)
    return keys, arguments


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
        arguments: list[Argument] = []
        packer.query(shard, query(5), [], arguments)
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

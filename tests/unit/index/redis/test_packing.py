from __future__ import annotations

from collections import Counter
from struct import unpack_from

import pytest

from stream_dedup.errors import ProtocolError
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.redis.codec import Packer, clamp_us, group_hash
from stream_dedup.index.redis.namespace import plan_layout
from tests.contract.driver import A, query

RECIPE = Recipe(match=Match(k=3))
KEY, OTHER = HashKey(b"a" * 16), HashKey(b"b" * 16)


def test_a_query_names_its_cluster_its_slice_and_a_slice_a_table() -> None:
    layout = plan_layout(RECIPE, 10_000, 1)
    packer = Packer("logs", layout, KEY)
    keys, packed, _ = packer.queries(packer.shards[0], [query(5, A)], [b"near"])
    assert 2 + layout.table_layout.tables == len(keys) == len(set(keys))
    lean_keys, lean, _ = packer.queries(packer.shards[0], [query(5, A, near=False)], [b"near"])
    assert keys[:2] == lean_keys
    members = layout.table_layout.tables * packer.entries.member_bytes
    assert len(lean) == len(packed) - members - len(query(5, A).sketch)
    both = packer.queries(packer.shards[0], [query(5, A, near=False), query(5, A)], [b"", b"near"])
    assert [keys[0], keys[0], keys[1], *keys[1:]] == both[0]
    assert both[1].endswith(packed[4:])


@pytest.mark.parametrize("times", [(-(2**60), 2**60), (5, -(2**60)), (2**60, 7)])
def test_times_that_a_double_does_not_hold_are_clamped(times: tuple[int, int]) -> None:
    packer = Packer("logs", plan_layout(RECIPE, 10_000, 1), KEY)
    asked = query(5, A)._replace(first_us=times[0], last_us=times[1])
    _, packed, _ = packer.queries(packer.shards[0], [asked], [b""])
    assert tuple(map(clamp_us, times)) == unpack_from(">2d", packed, 4)


def test_groups_spread_over_the_shards_and_ids_end_with_their_shard() -> None:
    packer = Packer("logs", plan_layout(RECIPE, 10_000, 4), KEY)
    numbers = Counter(packer.group(f"group {n}").shard for n in range(400))
    assert sorted(numbers) == [0, 1, 2, 3]
    assert min(numbers.values()) > 50
    for shard in packer.shards:
        (key, *_), *_ = packer.queries(shard, [query(5)], [b""])
        assert packer.shard_of(int(key.rpartition(b":")[2], 16)) is shard


def test_remembered_groups_are_bounded() -> None:
    packer = Packer("logs", plan_layout(RECIPE, 10_000, 1), KEY)
    first = packer.group("0")
    for n in range(25_000):
        packer.group(str(n))
    assert packer.group("0") == first
    assert packer.group.cache_info().currsize <= 10_000


def test_groups_that_share_a_hash_under_one_key_do_not_under_another() -> None:
    groups = [b"group %d" % n for n in range(5_000)]
    by_hash: dict[int, bytes] = {}
    alike = []
    for group in groups:
        low = group_hash(KEY, group)[0] & 0xFFFF
        if low in by_hash:
            alike.append((by_hash[low], group))
        by_hash[low] = group
    assert len(alike) > 100
    still = [pair for pair in alike if len({group_hash(OTHER, g)[0] & 0xFFFF for g in pair}) == 1]
    assert len(still) <= 2


def test_a_packer_hashes_groups_as_operators_do() -> None:
    packer = Packer("logs", plan_layout(RECIPE, 10_000, 4), KEY)
    number, packed, shard = packer.group("group")
    low, high = group_hash(KEY, packed)
    assert (number, shard) == (low, high % 4)


def test_an_id_of_no_shard_is_refused() -> None:
    packer = Packer("logs", plan_layout(RECIPE, 10_000, 4), KEY)
    assert packer.shards[3] is packer.shard_of(0xAB03)
    with pytest.raises(ProtocolError, match="000000000000ab04 is none of this namespace"):
        packer.shard_of(0xAB04)
    alone = Packer("logs", plan_layout(RECIPE, 10_000, 1), KEY)
    assert alone.shards[0] is alone.shard_of(0xABFF)

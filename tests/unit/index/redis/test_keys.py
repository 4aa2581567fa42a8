from __future__ import annotations

import pytest

from stream_dedup.index.redis.keys import ShardKeys, check_namespace, key_pattern
from stream_dedup.model import Partition


def test_all_keys_of_a_shard_share_its_hash_tag() -> None:
    shard = ShardKeys("logs", 3)
    partition = Partition("a{b}c", 7)
    keys = [
        shard.meta, shard.expiry, shard.recency, shard.due, shard.leases, shard.gone,
        shard.garbage, shard.inserted, shard.heads, shard.prefixes.table, shard.exact(9),
        shard.cluster(bytes(8)), shard.partition(partition), shard.journal(partition),
    ]  # fmt: skip
    assert len(keys) == len(set(keys))
    assert {key[key.index(b"{") + 1 : key.index(b"}")] for key in keys} == {b"logs:3"}
    assert all(key.startswith(key_pattern("logs").removesuffix("*").encode()) for key in keys)


def test_keys_are_a_stored_format() -> None:
    shard = ShardKeys("logs", 0)
    assert shard.meta == b"sd:{logs:0}:meta"
    assert shard.cluster(bytes.fromhex("0123456789abcdef")) == b"sd:{logs:0}:c:0123456789abcdef"
    assert shard.exact(17) == b"sd:{logs:0}:e:17"
    assert shard.partition(Partition("t\udcff", 2)) == b"sd:{logs:0}:p:t\xff:2"
    assert shard.journal(Partition("t", 2)) == b"sd:{logs:0}:j:t:2"


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "a:b", "ü", "x" * 101, "a\n"])
def test_a_namespace_holds_nothing_that_means_something_in_a_key(name: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        check_namespace(name)


def test_a_namespace_is_letters_digits_and_some_signs() -> None:
    assert check_namespace("a.B-9_c") == "a.B-9_c"

from __future__ import annotations

import pytest

from stream_dedup.index.redis.advice import judge, judge_shards

FINE = {
    "maxmemory-policy": "noeviction",
    "zset-max-listpack-entries": "128",
    "zset-max-listpack-value": "64",
    "hash-max-listpack-entries": "512",
    "hash-max-listpack-value": "64",
    "appendonly": "yes",
    "save": "",
}


def test_nothing_is_said_of_good_settings_or_of_unknown_ones() -> None:
    assert judge(FINE) == []
    assert judge({}) == []


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("maxmemory-policy", "allkeys-lru", "set it to noeviction"),
        ("zset-max-listpack-entries", "64", "set it to 128"),
        ("hash-max-listpack-entries", "16", "set it to 128"),
        ("hash-max-listpack-value", "16", "set it to 64"),
        ("appendonly", "no", "set appendonly to yes"),
    ],
)
def test_each_setting_that_hurts_is_named_with_its_remedy(
    name: str, value: str, remedy: str
) -> None:
    (sentence,) = judge({**FINE, name: value})
    assert name in sentence or name == "appendonly"
    assert remedy in sentence


def test_snapshots_are_some_persistence() -> None:
    assert judge({**FINE, "appendonly": "no", "save": "3600 1"}) == []


def test_shards_share_the_clusters_out_and_one_shard_has_them_all() -> None:
    assert judge_shards(1, 20_000) == []
    (sentence,) = judge_shards(3, 20_000)
    assert "6,667 of 20,000" in sentence
    assert "groups" in sentence

from __future__ import annotations

import json

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.errors import IndexRefused
from stream_dedup.features.recipe import Match, Recipe, load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.index.redis.advice import differences
from stream_dedup.index.redis.namespace import (
    FORMAT,
    describe_settings,
    plan_layout,
    read_layout,
    ttl_ms,
)

RECIPE = Recipe(match=Match(k=3))
DAY_US = 24 * 3600 * 1_000_000


@pytest.mark.parametrize(
    ("clusters", "slices"), [(1, 1), (64, 1), (65, 2), (100_000, 2048), (10**6, 16384)]
)
def test_slices_hold_between_32_and_64_entries_at_the_planned_size(
    clusters: int, slices: int
) -> None:
    layout = plan_layout(RECIPE, clusters, 1)
    assert (slices, slices) == (layout.slices, layout.exact_slices)


@pytest.mark.parametrize(("clusters", "slices"), [(128, 1), (129, 2), (100_000, 1024)])
def test_slices_of_bands_hold_up_to_128_entries(clusters: int, slices: int) -> None:
    layout = plan_layout(load_recipe("text"), clusters, 1)
    assert layout.slices == slices
    assert layout.exact_slices == plan_layout(RECIPE, clusters, 1).exact_slices


def test_shards_share_the_clusters() -> None:
    whole, cut = plan_layout(RECIPE, 100_000, 1), plan_layout(RECIPE, 100_000, 4)
    assert (cut.slices, cut.shards) == (whole.slices // 4, 4)


def test_blocks_may_be_given() -> None:
    assert plan_layout(RECIPE, 1000, 1, blocks=7).blocks == 7
    with pytest.raises(ValueError, match="blocks"):
        plan_layout(RECIPE, 1000, 1, blocks=3)


def test_keys_outlive_every_cluster_that_sees_events() -> None:
    assert 1000 * ttl_ms(Windows(), Summaries()) == 7 * DAY_US
    long = Windows(max_age_us=30 * DAY_US)
    assert 1000 * ttl_ms(long, Summaries()) == 62 * DAY_US
    assert ttl_ms(Windows(max_age_us=FOREVER_US), Summaries()) < 2**53


SOUND = plan_layout(RECIPE, 1000, 1)._asdict()


def test_a_layout_is_read_as_it_was_written() -> None:
    layout = json.dumps(SOUND).encode()
    assert plan_layout(RECIPE, 1000, 1) == read_layout("logs", b"meta", layout)


@pytest.mark.parametrize(
    "layout",
    [
        None,
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        json.dumps({"format": FORMAT}).encode(),
        json.dumps({**SOUND, "more": 1}).encode(),
        json.dumps({**SOUND, "shards": 0}).encode(),
        json.dumps({**SOUND, "slices": 3}).encode(),
        json.dumps({**SOUND, "exact_slices": "4"}).encode(),
        json.dumps({**SOUND, "width": None}).encode(),
    ],
)
def test_a_damaged_layout_is_refused_naming_its_key(layout: bytes | None) -> None:
    with pytest.raises(IndexRefused, match=r"damaged layout in sd:\{logs:0\}:meta; delete it"):
        read_layout("logs", b"sd:{logs:0}:meta", layout)


def test_settings_that_differ_are_named_with_both_values() -> None:
    here = describe_settings(Windows(idle_us=5), Summaries(), Limits(max_clusters=7))
    there = describe_settings(Windows(idle_us=6), Summaries(every_us=None), Limits(max_clusters=7))
    (sentence,) = differences("logs", there.encode(), here)
    assert "windows.idle_us was 6 and is 5" in sentence
    assert "summaries.every_us was None and is 60000000" in sentence
    assert "limits" not in sentence
    assert differences("logs", here.encode(), here) == []


@pytest.mark.parametrize("noted", [None, b"", b"{", b"[]", b"7", b'{"more": 1}'])
def test_settings_that_are_not_known_do_not_differ(noted: bytes | None) -> None:
    assert differences("logs", noted, describe_settings(Windows(), Summaries(), Limits())) == []

"""Clusters are the connected components of near pairs, of fingerprints and of lines."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.offline.clusters import find_clusters, find_line_clusters, merge_clusters
from stream_dedup.offline.lines import TextClusters
from stream_dedup.offline.pairs import Effort
from tests.effort import scaled
from tests.strategies import RECIPE_OF_BANDS


def walked(fingerprints: list[int], k: int) -> list[list[int]]:
    """The components by walking from each fingerprint to all that are near."""
    left = set(fingerprints)
    out = []
    for start in sorted(left):
        if start not in left:
            continue
        left.remove(start)
        cluster, front = [start], [start]
        while front:
            here = front.pop()
            near = {other for other in left if (here ^ other).bit_count() <= k}
            left -= near
            front += near
            cluster += near
        if len(cluster) > 1:
            out.append(sorted(cluster))
    return out


@settings(max_examples=scaled(40))
@given(data=st.data())
def test_clusters_are_connected_components(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([16, 64, 128]))
    numbers = st.integers(0, 2**width - 1) | st.integers(0, 4095)
    fingerprints = data.draw(st.lists(numbers, max_size=50))
    k = data.draw(st.integers(0, 3))

    assert walked(fingerprints, k) == find_clusters(fingerprints, k, width=width)


def test_the_clusters_of_shards_merge_into_those_of_all() -> None:
    generator = random.Random(2)
    fingerprints = [generator.getrandbits(64) for _ in range(300)]
    for _ in range(900):
        fingerprints.append(generator.choice(fingerprints) ^ 1 << generator.randrange(64))
    whole = find_clusters(fingerprints, 3)
    parts = [
        find_clusters(fingerprints, 3, effort=Effort(shard=shard, shards=4))
        for shard in (1, 2, 3, 4)
    ]

    assert walked(fingerprints, 3) == whole
    assert all(part != whole for part in parts)
    assert merge_clusters(cluster for part in parts for cluster in part) == whole


def test_lines_that_say_the_same_are_one_cluster_and_empty_ones_none() -> None:
    lines = [
        b"connection from 10.0.0.7 port 4422 closed by peer",
        b"",
        b"disk /dev/sda1 is full",
        b"connection from 10.0.0.9 port 17 closed by peer",
        b"",
        b"disk /dev/sda1 is full",
        b"nothing is like this line at all",
    ]

    assert find_line_clusters(lines) == [[0, 3], [2, 5]]


def test_the_distance_is_the_recipes_unless_given() -> None:
    lines = [b"the quick brown fox jumps over the lazy dog now", b"a wholly other text stands here"]
    recipe = replace(load_recipe("words"), match__k=0, match__jaccard=0.0)

    assert find_line_clusters(lines, recipe) == []
    assert find_line_clusters(lines, recipe, k=63) == [[0, 1]]


def test_json_recipes_take_fields_and_invalid_json_does_not_fail() -> None:
    lines = [b'{"msg":"disk is full","n":1}', b'{"msg":"disk is full","n":2}', b"{", b"\xff"]

    clusters = find_line_clusters(lines, "json")

    assert [0, 1] in clusters


def test_near_texts_connect_only_if_they_are_alike() -> None:
    lines = [
        b"the quick brown fox jumps over the lazy dog now",
        b"a wholly other text stands here",
        b"the quick brown fox jumps over a lazy dog now",
    ]

    assert find_line_clusters(lines, "words", k=63) == [[0, 2]]


def test_lines_that_end_otherwise_are_not_one_cluster() -> None:
    lines = [b"backup of volume 7 succeeded", b"backup of volume 7 failed"]
    recipe = replace(load_recipe("logs"), match__k=63, match__jaccard=0.5)

    assert find_line_clusters(lines, recipe) == []


def test_a_crowd_of_one_fingerprint_is_compared_within_bounds() -> None:
    lines = [b"%c%d common" % (97 + n % 26, n) for n in range(2000)] * 2
    recipe = replace(
        load_recipe("words"),
        features__weights={"default": 0, "table": {"common": 1}},
        match__k=0,
        match__jaccard=0.9,
    )

    clusters = find_line_clusters(lines, recipe)

    assert [[n, n + 2000] for n in range(2000)] == clusters


@pytest.mark.parametrize("pure", [False, True])
def test_texts_connect_by_bands(monkeypatch: pytest.MonkeyPatch, pure: bool) -> None:
    if pure:
        monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")
    lines = [
        b"you have won a holiday for two, call 0900 1234 to claim it",
        b"are you coming home for dinner tonight or are you late",
        b"Y0u have w0n a h0liday for tw0!! call 0900 77 to claim it n0w",
        b"",
        b"ok",
        b"OK!",
        b"you have won a holiday for two, call 0900 555 to claim it today",
    ]

    assert find_line_clusters(lines, RECIPE_OF_BANDS) == [[0, 2, 6], [4, 5]]


def test_bands_take_neither_distance_nor_shards() -> None:
    for settings_ in ({"k": 3}, {"effort": Effort(shard=1, shards=2)}):
        with pytest.raises(ValueError, match="recipe custom has bands, which take neither k"):
            find_line_clusters([b"a"], RECIPE_OF_BANDS, **settings_)


@pytest.mark.parametrize("parts", [[], [[]], [[5]]])
def test_nothing_connected_merges_into_nothing(parts: list[list[int]]) -> None:
    assert merge_clusters(parts) == []


@pytest.mark.parametrize("name", ["text", "logs"])
def test_threads_do_not_change_the_clusters(name: str) -> None:
    generator = random.Random(4)
    words = ["".join(generator.choices("abcdefghij", k=6)) for _ in range(3_000)]
    texts = [" ".join(generator.choices(words, k=9)).encode() for _ in range(9_000)]
    texts += [text[:-7] for text in generator.choices(texts, k=1_000)]
    texts += texts[:200]
    key = HashKey(bytes(16))
    found = []
    for threads in (1, 2):
        clusters = TextClusters(load_recipe(name), 1 << 26, threads, key)
        clusters.add(texts, range(len(texts)))
        found.append(clusters.find())

    assert found[0] == found[1]
    assert len(found[0][1]) > 100

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import pack, pattern_keys, sequence_key
from stream_dedup.index.base import Query
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.model import FoundBy, Position
from tests.contract.test_learned_words import random_query
from tests.effort import scaled

LEARNS = Recipe(match=Match(k=3, jaccard=0.9, learn=5))
PATTERNS = st.builds(  # any word in a place, and in another one a word, another one, or none
    lambda word, other: [101, word, *other, 104, 105],
    st.integers(201, 208),
    st.sampled_from([[103], [103], [203], []]),
)


def asked(offset: int, pattern: list[int]) -> Query:
    exact = mix(sequence_key(pattern))
    keys = pack(pattern_keys(pattern, [False] * len(pattern)))
    position = Position("lines", 0, offset)
    return Query("", exact, mix(exact), b"", False, offset, offset, position, keys)


def decided(queries: list[Query], size: int) -> tuple[MemoryIndex, list[bool]]:
    """An index that never closes a cluster, given so many queries at a time, and what taught it."""
    index = MemoryIndex(LEARNS, windows=Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US))
    taught: list[bool] = []
    for start in range(0, len(queries), size):
        run(index.resolve(queries[start : start + size], 0))
        taught += index.taught
    return index, taught


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_what_teaches_no_variable_may_be_left_out(seed: int) -> None:
    chance, forever = random.Random(seed), Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
    recipe = Recipe(match=Match(k=3, jaccard=0.9, learn=chance.choice([2, 3, 5])))
    whole, part = (MemoryIndex(recipe, windows=forever) for _ in range(2))
    for offset in range(700):
        query = random_query(chance, offset, offset)
        (answer,) = run(whole.resolve([query], 0))
        if whole.taught[0]:
            (other,) = run(part.resolve([query], 0))
            assert (other.cluster, other.learned) == (answer.cluster, answer.learned)


@given(st.lists(PATTERNS, min_size=10, max_size=60), st.integers(1, 60))
def test_what_teaches_nothing_may_be_left_out(patterns: list[list[int]], size: int) -> None:
    queries = [asked(offset, pattern) for offset, pattern in enumerate(patterns)]
    whole, taught = decided(queries, size)
    part, _ = decided([q for q, teaches in zip(queries, taught, strict=True) if teaches], size)
    assert run(part.size()).clusters == run(whole.size()).clusters
    turned = enumerate(patterns[::-1], len(queries))
    found = run(part.resolve([asked(offset, each) for offset, each in turned], 0))
    assert not any(each.found_by is FoundBy.NEW for each in found)
    # Of lines that the whole index knows by their exact hash, this one sees that they fit two.
    assert run(part.size()).clusters <= run(whole.size()).clusters

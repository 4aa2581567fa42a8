"""Ways to find near-duplicate texts, ours and others', as functions from texts to pairs.

* `stream-dedup NAME`: a recipe's clusters in a stream; a pair is two texts of one cluster.
* `stream-dedup NAME, pairs`: every two texts that the recipe's search finds and confirms.
* `datasketch`: `MinHashLSH` of 128 permutations over words, as its documentation shows, each answer
  checked by the estimate of its Jaccard index.
* `text-dedup's settings`: the same with 250 permutations over five words in a row, threshold 0.7:
  the defaults of that program, whose own code needs a data set's loader.
* `rensa`: `RMinHash` and its LSH, 128 permutations, 16 bands, over words, threshold 0.8.
* `brute force`: the exact Jaccard index of four characters in a row, of every two texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import combinations
from typing import Any

from benchmarks.peers import PeerMissingError
from benchmarks.text_sets import Pair
from stream_dedup import Deduplicator
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.offline.text_pairs import TextPairs

Find = Callable[[Sequence[str], float], set[Pair]]

BRUTE_FORCE = "brute force"

BATCH = 4_096

LEAST_KEPT = 0.3
"""The least Jaccard index that brute force remembers."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to find near-duplicates.

    Attributes:
        name: shown.
        threshold: its default.
        find: returns the pairs that it takes for near-duplicates, under a threshold.
    """

    name: str
    threshold: float
    find: Find


def methods(recipes: Sequence[str], key: bytes, *, peers: bool) -> list[Method]:
    """Return all methods.

    Args:
        recipes: ours.
        key: of 16 bytes: the same key gives the same results.
        peers: whether to measure others too.

    Raises:
        PeerMissingError: a library of another one is not installed.
    """
    found = []
    for name in recipes:
        recipe = load_recipe(name)
        least = recipe.match.jaccard
        found.append(Method(f"stream-dedup {name}", least, _streaming(recipe, key)))
        if recipe.fingerprint.kind == "bands":
            found.append(Method(f"stream-dedup {name}, pairs", least, _searching(recipe, key)))
    if peers:
        found += [
            Method("datasketch", 0.5, _datasketch(_words, 128)),
            Method("text-dedup's settings", 0.7, _datasketch(_five_words, 250)),
            Method("rensa", 0.8, _rensa),
        ]
    return [*found, Method(BRUTE_FORCE, 0.5, _brute_force)]


def clustered(labels: Iterable[int | None]) -> set[Pair]:
    """Return all pairs with equal labels."""
    members: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        if label is not None:
            members.setdefault(label, []).append(index)
    return {pair for some in members.values() for pair in combinations(some, 2)}


def _at(recipe: Recipe, threshold: float) -> Recipe:
    return replace(recipe, match__jaccard=threshold) if recipe.match.jaccard else recipe


def _streaming(recipe: Recipe, key: bytes) -> Find:
    def find(texts: Sequence[str], threshold: float) -> set[Pair]:
        dedup = Deduplicator(_at(recipe, threshold), key=key)
        return clustered(decision.cluster for decision in dedup.process(texts))

    return find


def _searching(recipe: Recipe, key: bytes) -> Find:
    def find(texts: Sequence[str], threshold: float) -> set[Pair]:
        fingerprinter = Fingerprinter(_at(recipe, threshold), HashKey(key))
        pairs = TextPairs(fingerprinter)
        found = set[Pair]()
        for start in range(0, len(texts), BATCH):  # as `offline.lines` does
            batch = [text.encode() for text in texts[start : start + BATCH]]
            prepared = fingerprinter.prepare(batch, None)
            alike = pairs.add(prepared, pairs.hash(prepared), range(len(batch)))
            found.update(zip(alike[::2], alike[1::2], strict=True))
        return found

    return find


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _five_words(text: str) -> list[str]:
    words = _words(text)
    return [" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))]


def _datasketch(features: Callable[[str], list[str]], permutations: int) -> Find:
    def find(texts: Sequence[str], threshold: float) -> set[Pair]:
        module = _module("datasketch")
        lsh = module.MinHashLSH(threshold=threshold, num_perm=permutations)
        hashed: list[Any] = []
        found = set()
        for index, text in enumerate(texts):
            minhash = module.MinHash(num_perm=permutations)
            minhash.update_batch([feature.encode() for feature in features(text)])
            near = (other for other in lsh.query(minhash))
            found |= {
                (other, index) for other in near if hashed[other].jaccard(minhash) >= threshold
            }
            lsh.insert(index, minhash)
            hashed.append(minhash)
        return found

    return find


def _rensa(texts: Sequence[str], threshold: float) -> set[Pair]:
    module = _module("rensa")
    lsh = module.RMinHashLSH(threshold=threshold, num_perm=128, num_bands=16)
    hashed: list[Any] = []
    found = set()
    for index, text in enumerate(texts):
        minhash = module.RMinHash(num_perm=128, seed=42)
        minhash.update(_words(text))
        for other in lsh.query(minhash):
            if hashed[other].jaccard(minhash) >= threshold:
                found.add((other, index))
        lsh.insert(index, minhash)
        hashed.append(minhash)
    return found


def _brute_force(texts: Sequence[str], threshold: float) -> set[Pair]:
    if threshold < LEAST_KEPT:
        raise ValueError(f"brute force keeps no pairs below {LEAST_KEPT}")
    return {
        pair for pair, similarity in _all_pairs(tuple(texts)).items() if similarity >= threshold
    }


@lru_cache(maxsize=3)
def _all_pairs(texts: tuple[str, ...]) -> dict[Pair, float]:
    """Compare every two texts once for all thresholds."""
    grams = [_four_characters(text) for text in texts]
    found = {}
    for (first, ours), (second, theirs) in combinations(enumerate(grams), 2):
        shared = len(ours & theirs)
        similarity = shared / (len(ours) + len(theirs) - shared)
        if similarity >= LEAST_KEPT:
            found[first, second] = similarity
    return found


def _four_characters(text: str) -> set[str]:
    plain = " ".join(text.lower().split())
    return {plain[at : at + 4] for at in range(max(1, len(plain) - 3))}


def _module(name: str) -> Any:  # noqa: ANN401 -- a library without types
    try:
        return import_module(name)
    except ImportError as error:
        raise PeerMissingError(f"{name} is not installed: pip install {name}") from error

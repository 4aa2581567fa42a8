"""Clustering by least hashes: one look-up an item, and the same clusters in whatever order."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import comb, sqrt
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dedup import Deduplicator, Kind, Recipe, load_recipe
from stream_dedup.clock import ManualClock
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import RecipeError
from stream_dedup.features.recipe import replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.hashing import MASK64, hash128, hash_sequence
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.minhash import chance_of_equality, lookup_keys
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Limits, Query, Resolution
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.model import Batch, Partition, Position
from tests.integration.command import run as command_line

NOW_US = 1_700_000_000_000_000
WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
HERE = Partition("topic", 0)

Item = tuple[str, str]
"""A group, and a text."""

Clusters = set[frozenset[int]]
"""What items are together, by their numbers."""


def least_hashes(n: int, **changes: Any) -> Recipe:
    """The recipe `logs`, by its n least hashes."""
    return replace(
        load_recipe("logs"),
        fingerprint__kind="minhash",
        fingerprint__least=n,
        match__k=0,
        match__jaccard=0.0,
        match__learn=0,
        **changes,
    )


def numbers_of(recipe: Recipe, texts: Sequence[bytes]) -> Fingerprints:
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    return fingerprinter.fingerprints(fingerprinter.prepare(texts, None), full=True)


def clusters_of(
    recipe: Recipe, items: Sequence[Item], order: Sequence[int], batch: int = 7
) -> Clusters:
    """Put items in, in an order, some at a time."""
    dedup = Deduplicator(recipe, windows=WIDE, clock=ManualClock(NOW_US))
    together: dict[int | None, set[int]] = defaultdict(set)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        decisions = dedup.process(
            [items[i][1] for i in chosen], groups=[items[i][0] for i in chosen]
        )
        for number, decision in zip(chosen, decisions, strict=True):
            if decision.cluster is not None:
                together[decision.cluster].add(number)
    return {frozenset(numbers) for numbers in together.values()}


texts = st.lists(
    st.sampled_from(["disk", "full", "user", "bob", "eve", "in", "out", "42", "10.0.0.7"]),
    max_size=7,
).map(" ".join)
items_ = st.lists(st.tuples(st.sampled_from(["", "", "a", "b"]), texts), max_size=40)
recipes_ = st.builds(
    least_hashes,
    st.integers(1, 5),
    fingerprint__width=st.sampled_from([32, 64, 128]),
    fingerprint__seed=st.integers(0, 3),
    features__ngram=st.integers(1, 2),
    match__min_features=st.integers(1, 3),
    features__weights__placeholder=st.integers(0, 1),
)


# ---------------------------------------------------------------- stability


@given(recipe=recipes_, items=items_, batch=st.integers(1, 50), seed=st.integers(0, 99))
def test_clusters_do_not_depend_on_the_order_of_items(
    recipe: Recipe, items: list[Item], batch: int, seed: int
) -> None:
    order = list(range(len(items)))
    shuffled = random.Random(seed).sample(order, len(order))

    assert clusters_of(recipe, items, order) == clusters_of(recipe, items, shuffled, batch)


@given(
    recipe=recipes_,
    items=items_,
    one=st.tuples(st.sampled_from(["", "a"]), texts),
    place=st.integers(0, 40),
)
def test_one_item_more_never_moves_another(
    recipe: Recipe, items: list[Item], one: Item, place: int
) -> None:
    order = list(range(len(items)))
    before = clusters_of(recipe, items, order)

    order.insert(place, len(items))
    after = clusters_of(recipe, [*items, one], order)

    without = {frozenset(together - {len(items)}) for together in after} - {frozenset()}
    assert before == without


def test_thousands_of_real_words_make_the_same_clusters_in_any_order() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=4)) for _ in range(300)]
    base = [rng.sample(words, 12) for _ in range(100)]
    items = []
    for _ in range(3_000):
        line = rng.choice(base).copy()
        for _ in range(rng.randrange(3)):
            line[rng.randrange(12)] = rng.choice(words)
        items.append(("", " ".join(line)))
    order = list(range(len(items)))

    expected = clusters_of(least_hashes(2), items, order, 500)

    assert 100 < len(expected) < 1_500
    for _ in range(3):
        rng.shuffle(order)
        assert clusters_of(least_hashes(2), items, order, rng.randrange(1, 1_000)) == expected


# ---------------------------------------------------------------- the chance


def trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def pair_by_trigrams(rng: random.Random, shared: int, union: int) -> tuple[str, str]:
    """Two texts whose sets of three characters in a row have so many in common, and in all."""
    ours = (union - shared) // 2
    while True:
        head = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=shared + 2))
        left = head + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=ours))
        right = head + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=union - shared - ours))
        a, b = trigrams(left), trigrams(right)
        if (shared, union) == (len(a & b), len(a | b)):
            return left, right


def pair_by_words(rng: random.Random, shared: int, union: int) -> tuple[str, str]:
    """Two texts whose sets of words have so many in common, and in all."""
    words = sorted({"".join(rng.choices("abcdefghij", k=12)) for _ in range(union)})
    ours = shared + (union - shared) // 2
    left, right = words[:ours], words[:shared] + words[ours:]
    rng.shuffle(left)
    rng.shuffle(right)
    return " ".join(left), " ".join(right)


@pytest.mark.parametrize(
    ("least", "shared", "union"),
    [(1, 3, 10), (1, 9, 12), (2, 9, 12), (3, 20, 24), (4, 9, 12), (4, 28, 30), (8, 40, 44)],
)
@pytest.mark.parametrize(
    ("pair", "changes"),
    [
        (pair_by_trigrams, {"features__extractor": "characters", "features__ngram": 3}),
        (pair_by_words, {"features__extractor": "words"}),
    ],
    ids=["trigrams", "words"],
)
def test_two_items_share_a_cluster_as_often_as_the_formula_says(
    pair: Callable[[random.Random, int, int], tuple[str, str]],
    changes: dict[str, Any],
    least: int,
    shared: int,
    union: int,
) -> None:
    rng = random.Random(f"{least} {shared} {union}")
    seeds, pairs = 40, 75
    trials = seeds * pairs
    matched = 0
    for seed in range(seeds):
        recipe = least_hashes(least, text__classes=False, fingerprint__seed=seed, **changes)
        dedup = Deduplicator(recipe, windows=WIDE, clock=ManualClock(NOW_US))
        lines = [line for _ in range(pairs) for line in pair(rng, shared, union)]
        groups = [str(number // 2) for number in range(2 * pairs)]  # pairs do not meet
        decisions = dedup.process(lines, groups=groups)
        matched += sum(decision.kind is Kind.DUPLICATE for decision in decisions)

    expected = comb(shared, least) / comb(union, least)
    assert chance_of_equality(shared, union, least) == expected
    error = sqrt(expected * (1 - expected) / trials)
    assert pytest.approx(matched / trials, abs=4 * error) == expected
    assert 4 * error < 0.04  # so that it says something


@pytest.mark.parametrize(
    ("shared", "union", "least", "chance"),
    [(5, 5, 8, 1.0), (3, 5, 8, 0.0), (3, 5, 4, 0.0), (0, 5, 1, 0.0), (5, 10, 1, 0.5)],
)
def test_the_chance_at_its_ends(shared: int, union: int, least: int, chance: float) -> None:
    assert chance_of_equality(shared, union, least) == chance


# ---------------------------------------------------------------- one look-up an item


class Searched(MemoryIndex):
    """An index that notes what is put to it."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe, windows=WIDE, limits=Limits(max_clusters=50_000))
        self.queries: list[Query] = []
        self.searches = 0
        lookup = self._clusters.lookup
        self._search = lookup.by_fingerprint
        lookup.by_fingerprint = self._noted  # type: ignore[method-assign]

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        self.queries += queries
        return await super().resolve(queries, now_us)

    def _noted(self, query: Query) -> Any:
        self.searches += 1
        return self._search(query)


def engine_over(index: MemoryIndex, near_cache_size: int = 0) -> Engine:
    return Engine(
        index.recipe,
        index,
        windows=WIDE,
        summaries=Summaries(),
        clock=ManualClock(NOW_US),
        near_cache_size=near_cache_size,
    )


def different(start: int, count: int) -> list[bytes]:
    """Texts of which each has five words of its own."""
    letters = str.maketrans("0123456789", "abcdefghij")
    return [
        " ".join(f"{number * 5 + i:07d}" for i in range(5)).translate(letters).encode()
        for number in range(start, start + count)
    ]


def test_nothing_is_searched_and_the_tables_stay_empty() -> None:
    index = Searched(least_hashes(4))
    engine = engine_over(index)
    lines = different(0, 500)

    for start in (0, 500):
        run(engine.process(Batch(HERE, range(start, start + 500), lines)))

    assert (engine.counts.new, engine.counts.duplicates) == (500, 500)
    assert len(index.queries) == 1_000
    assert (index.searches, run(index.size()).fingerprints) == (0, 0)
    assert {query.sketch for query in index.queries} == {b""}


def test_the_work_per_item_does_not_grow_with_the_index() -> None:
    engine = engine_over(Searched(least_hashes(4)))
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event in {"call", "c_call"}

    def work(first: int, lines: list[bytes]) -> int:
        nonlocal calls
        calls = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            run(engine.process(Batch(HERE, range(first, first + len(lines)), lines)))
        finally:
            sys.setprofile(before)
        return calls

    found = []
    for stored in (1_000, 10_000):
        held = engine.counts.new
        start = engine.counts.events
        lines = different(held, stored - held)
        run(engine.process(Batch(HERE, range(start, start + len(lines)), lines)))
        start = engine.counts.events
        new = work(start, different(90_000 + stored, 300))
        known = work(start + 300, different(stored // 2, 300))
        found.append((new, known))

    (new, known), (later_new, later_known) = found
    assert engine.counts.new == 10_300
    assert later_new <= 1.02 * new
    assert later_known <= 1.02 * known


# ---------------------------------------------------------------- keys


def test_keys_are_spread_evenly() -> None:
    lines = [
        b" ".join(random.Random(f"{n} {i}").randbytes(4).hex().encode() for i in range(60))
        for n in range(2_000)
    ]
    numbers = numbers_of(least_hashes(2, text__classes=False), lines)

    spread = Counter(key >> 58 for key in lookup_keys(numbers, 2))

    assert len(spread) == 64
    assert max(spread.values()) < 70  # 31 each, on average


@pytest.mark.parametrize("width", [32, 64, 128])
def test_equal_fingerprints_have_equal_keys_and_others_have_others(width: int) -> None:
    rng = random.Random(width)
    lines = [b" ".join(rng.choices([b"a", b"b", b"c", b"d", b"e"], k=5)) for _ in range(500)]
    numbers = numbers_of(least_hashes(3, fingerprint__width=width), lines)

    keys = lookup_keys(numbers, 2)

    fingerprints = [numbers.fingerprint(row) for row in range(len(lines))]
    assert len(set(keys)) == len(set(fingerprints)) == len({*zip(keys, fingerprints, strict=True)})
    assert all(0 <= key <= MASK64 for key in keys)


def test_a_short_text_differs_from_the_least_n_gram_of_a_long_one() -> None:
    recipe = least_hashes(1, features__ngram=3, match__min_features=4)
    ends = [f"x{chr(97 + a)} y{chr(97 + b)}" for a in range(10) for b in range(10)]
    short = b"disk is full"
    longer = [b"disk is full " + end.encode() for end in ends]
    words = hash_sequence([hash128(word)[0] for word in short.split()])[0]
    chosen = [
        line
        for line, low in zip(longer, numbers_of(recipe, longer).low, strict=True)
        if low == words  # the n-gram of all of the short one's words is the other's least
    ]
    assert len(chosen) > 10

    first, *others = Deduplicator(recipe).process([short, *chosen])

    assert first.kind is Kind.NEW
    assert {first.cluster} & {other.cluster for other in others} == set()
    assert len({other.cluster for other in others}) == 1


def test_texts_with_too_few_words_join_only_equal_ones() -> None:
    recipe = least_hashes(1, match__min_features=3)

    decisions = Deduplicator(recipe).process(["disk full", "full disk", "disk full", "17", "18"])

    assert [d.kind.value for d in decisions] == ["new", "new", "duplicate", "new", "new"]


def test_texts_without_counting_features_stay_apart() -> None:
    recipe = least_hashes(4, features__weights={"default": 0, "placeholder": 0})

    decisions = Deduplicator(recipe).process(["disk is full", "user logged in", "disk is full"])

    assert [decision.kind.value for decision in decisions] == ["new", "new", "duplicate"]
    verdict = Inspector(recipe).compare(b"disk is full", b"user logged in").verdict()
    assert verdict.startswith("They do not merge: the first has no feature that counts")


def test_groups_are_kept_apart() -> None:
    decisions = Deduplicator(least_hashes(2)).process(
        ["disk sda is full"] * 4, groups=["", "a", "b", "a"]
    )

    assert [decision.kind.value for decision in decisions] == ["new", "new", "new", "duplicate"]


def test_fields_of_json_events_make_a_key() -> None:
    recipe = replace(
        load_recipe("json"),
        fingerprint__kind="minhash",
        fingerprint__least=8,
        match__k=0,
        match__jaccard=0.0,
    )
    events = [
        {"msg": "disk is full", "host": "node-1"},
        {"host": "node-2", "msg": "full is disk"},  # the same features
        {"msg": "disk is slow", "host": "node-1"},
    ]

    decisions = Deduplicator(recipe).process(events)

    assert [decision.kind.value for decision in decisions] == ["new", "duplicate", "new"]


# ---------------------------------------------------------------- delivered again


def test_the_first_item_that_is_recorded_is_new_again() -> None:
    index = MemoryIndex(least_hashes(2), windows=WIDE)
    first, like = [b"disk sda is full"], [b"disk sda is full full"]

    async def through() -> list[Kind]:
        ahead = engine_over(index, 100)
        other = engine_over(index, 100)
        await ahead.claim_partition(HERE)
        hashed = ahead.hash(Batch(HERE, range(1), first))
        # It opened its cluster, and its worker died before it recorded anything.
        await index.resolve(
            [
                Query("", hashed.exact[0], numbers_of(index.recipe, first).fingerprint(0), b"",
                      near=False, first_us=NOW_US, last_us=NOW_US, position=Position("topic", 0, 0))
            ],
            NOW_US,
        )  # fmt: skip
        there = Partition("topic", 1)
        kinds = [d.kind for d in await other.process(Batch(there, range(1), like))]
        kinds += [d.kind for d in await other.process(Batch(HERE, range(1), first), committed=0)]
        again = engine_over(index, 100)
        kinds += [d.kind for d in await again.process(Batch(HERE, range(1), first), committed=0)]
        return kinds

    # Who is recorded first is new.
    assert run(through()) == [Kind.NEW, Kind.DUPLICATE, Kind.DUPLICATE]


# ---------------------------------------------------------------- commands


@given(recipe=recipes_, left=texts, right=texts)
def test_explain_says_what_the_engine_decides(recipe: Recipe, left: str, right: str) -> None:
    _, second = Deduplicator(recipe).process([left, right])

    found = Inspector(recipe).compare(left.encode(), right.encode())

    assert found.merge == (second.kind is Kind.DUPLICATE)
    assert found.merge == found.verdict().startswith("They merge")


@given(left=texts, right=texts)
def test_explain_gives_the_chance_for_the_overlap(left: str, right: str) -> None:
    found = Inspector(least_hashes(1)).compare(left.encode(), right.encode())
    shared, ours, theirs = map(len, found.features())
    assume(shared + ours + theirs)

    assert shared / (shared + ours + theirs) == found.chance


def test_the_command_fingerprint_prints_the_key() -> None:
    settings = ["fingerprint.kind=minhash", "match.k=0", "match.jaccard=0", "match.learn=0"]
    command = ["fingerprint", *(part for one in settings for part in ("--set", one))]
    (key,) = lookup_keys(numbers_of(least_hashes(4), [b"disk is full"]), 2)

    done = command_line(*command, "disk is full")
    as_json = command_line(*command, "--json", "disk is full")

    assert f"key          {key:016x}\n" in done.out.decode()
    assert json.loads(as_json.out)["key"] == f"{key:016x}"


def test_verification_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"match.jaccard: is 0.9 with minhash; set match.jacc"):
        replace(load_recipe("logs"), fingerprint__kind="minhash", match__k=0, match__learn=0)

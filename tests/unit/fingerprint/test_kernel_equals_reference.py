"""The native kernel says what the reference says, of any bytes and under any recipe."""

from __future__ import annotations

import random
import re
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.clustering.linkage import reference_admitting, reference_jaccard
from stream_dedup.features.lines import MAX_GROUP
from stream_dedup.features.prepare import NO_SALT, Part
from stream_dedup.features.recipe import Recipe, load_recipe, replace, shipped
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, segments_of
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.fingerprint.kernel import (
    MAX_VOTES,
    Fingerprints,
    Kernel,
    Segments,
    is_native,
)
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.simhash import simhash
from stream_dedup.fingerprint.siphash import HashKey, siphash
from stream_dedup.native import extension
from tests.effort import scaled
from tests.strategies import feature_events, log_lines, recipes, segments, texts

KEY = HashKey(b"sixteen secrets!")

shipped_natively = [name for name in shipped() if is_native(load_recipe(name))]
kernel_recipes = recipes(("words", "characters"))
batches = st.lists(texts, max_size=6)


def native(recipe: Recipe) -> Kernel:
    module = extension("fingerprint._kernel")
    assert module is not None, "these tests compare the native kernel: build it first"
    kernel: Kernel = module.Kernel(recipe, KEY)
    return kernel


def reference(recipe: Recipe) -> ReferenceKernel:
    return ReferenceKernel(recipe, KEY)


def rows(numbers: Fingerprints) -> list[tuple[Any, ...]]:
    """A tuple an event, so that results of different batches can be compared."""
    columns = [list(column) for column in numbers if len(column) == len(numbers.exact)]
    columns.append([numbers.keys(row) for row in range(len(numbers.exact))])
    return list(zip(*columns, strict=True))


@settings(max_examples=scaled(400))
@given(recipe=kernel_recipes, batch=batches, full=st.booleans())
def test_scan_equals_the_reference(recipe: Recipe, batch: list[bytes], full: bool) -> None:
    assert reference(recipe).scan(batch, full) == native(recipe).scan(batch, full)


@given(
    seed=st.integers(0, 2**32),
    length=st.integers(0, 3_000),
    letters=st.sampled_from(
        ["ab", "abcdefgh ", "abcd\u00e9\u4e00\U0001f600", "\u4e00\u4e01\u4e02"]
    ),
    ngram=st.integers(1, 9),
)
def test_bands_of_long_texts_equal_the_reference(
    seed: int, length: int, letters: str, ngram: int
) -> None:
    recipe = replace(load_recipe("text"), features__ngram=ngram)
    text = "".join(random.Random(seed).choices(letters, k=length)).encode()
    batch = [text, text[: len(text) // 7], text[::2]]
    assert reference(recipe).scan(batch, full=True) == native(recipe).scan(batch, full=True)


@given(batch=batches, least=st.integers(0, 40))
def test_short_texts_have_no_sketch_unless_wanted(batch: list[bytes], least: int) -> None:
    for name in ("text", "documents"):
        recipe = load_recipe(name)
        found = native(recipe).scan(batch, full=True, sketch_from_bytes=least)
        assert reference(recipe).scan(batch, True, least) == found
        whole = native(recipe).scan(batch, full=True)
        expected = [
            sketch if len(text) >= least else b""
            for text, sketch in zip(batch, whole.sketches, strict=True)
        ]
        assert whole._replace(sketches=expected) == found


@given(recipe=kernel_recipes, batch=batches)
def test_sketches_alone_are_those_of_a_scan(recipe: Recipe, batch: list[bytes]) -> None:
    banded = replace(
        load_recipe("text"), text=recipe.text, features=recipe.features, input=recipe.input
    )
    found = native(banded).sketches(batch)

    assert native(banded).scan(batch, full=True).sketches == found
    assert reference(banded).sketches(batch) == found


@pytest.mark.parametrize("make", [native, reference])
def test_only_bands_have_sketches_alone(make: Any) -> None:
    with pytest.raises(ValueError, match="bands"):
        make(load_recipe("logs")).sketches([b"disk full"])


@settings(max_examples=scaled(200))
@given(recipe=kernel_recipes, parts=segments(), full=st.booleans())
def test_scan_segments_equals_the_reference(recipe: Recipe, parts: Segments, full: bool) -> None:
    expected = reference(recipe).scan_segments(parts, full)

    assert native(recipe).scan_segments(parts, full) == expected


@settings(max_examples=scaled(200))
@given(recipe=recipes(), events=feature_events, full=st.booleans())
def test_fold_equals_the_reference(recipe: Recipe, events: list[list[Part]], full: bool) -> None:
    assert reference(recipe).fold(events, full) == native(recipe).fold(events, full)


@pytest.mark.parametrize("name", shipped_natively)
@given(batch=st.lists(log_lines, max_size=8))
def test_the_shipped_recipes_equal_the_reference(name: str, batch: list[bytes]) -> None:
    recipe = load_recipe(name)

    assert reference(recipe).scan(batch, full=True) == native(recipe).scan(batch, full=True)


fields = st.builds(
    b"%b=%b".__mod__,
    st.tuples(
        st.sampled_from(b"a b c user msg action status level type lastError".split()),
        st.sampled_from(b"x y z deny failed error 7 500 SSLError a:b".split()),
    ),
)
alike = st.sampled_from([b"x", b"3", b"failed", b"Jan", b"code=500", b"k: v,", b"(a=b)", b'"x"'])


@given(
    parts=st.lists(st.one_of(fields, fields, fields, alike), min_size=30, max_size=70),
    full=st.booleans(),
)
def test_lines_of_many_words_equal_the_reference(parts: list[bytes], full: bool) -> None:
    recipe, batch = load_recipe("logs"), [b" ".join(parts)]

    assert native(recipe).scan(batch, full) == reference(recipe).scan(batch, full)


statuses = st.sampled_from([b'"GET / HTTP/1.1" 200 12', b"status=503", b"code: 404", b"HTTP/2 301"])
requests = st.lists(
    st.sampled_from(
        [*b"GET POST OPTIONS get / /a?b=1&c https://a.b/c http:/ 200 404 999 ms s bytes".split(),
         *(b" ", b"  ", b'"', b"'", b" -> ", b" - ", b": ", b" | ", b"=", b"\t", b",", b"\0"),
         *b"1/2/3/4/5 0/-1/-1/-1/+0 1/2/3 -/1/2/3/4".split()]
    ),
    max_size=12,
).map(b"".join)  # fmt: skip
lines_with_statuses = st.lists(st.one_of(log_lines, statuses, requests), max_size=5).map(b" ".join)


@pytest.mark.parametrize("name", shipped_natively)
@given(lines=st.lists(lines_with_statuses, min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_lines_that_differ_in_digits_alone_equal_the_reference(
    name: str, lines: list[bytes], seed: int
) -> None:
    recipe, rng = load_recipe(name), random.Random(seed)
    kernel = native(recipe)

    for _ in range(4):  # the kernel remembers lines without their digits
        batch = [re.sub(rb"\d", lambda _: b"%d" % rng.randrange(10), line) for line in lines]
        expected = reference(recipe).scan(batch, full=False)
        assert [kernel.exact_of(line) for line in batch] == list(expected.exact)
        assert kernel.scan(batch, full=False) == expected


@given(recipe=kernel_recipes, batch=batches, seed=st.integers(0, 2**32))
def test_a_kernel_that_remembers_lines_equals_the_reference(
    recipe: Recipe, batch: list[bytes], seed: int
) -> None:
    rng, kernel = random.Random(seed), native(recipe)
    others = [re.sub(rb"\d", lambda _: b"%d" % rng.randrange(10), text) for text in batch]

    for texts_ in (batch, others, batch):
        expected = reference(recipe).scan(texts_, full=False)
        assert kernel.scan(texts_, full=False) == expected
        assert [kernel.exact_of(text) for text in texts_] == list(expected.exact)


few_words = st.sampled_from([b"a", b"b", b"c", b"user", b"failed", b"7"])


@given(words=st.lists(few_words, max_size=8), repeat=st.sampled_from([1, 1, 6, 7]))
def test_keys_of_patterns_equal_the_reference(words: list[bytes], repeat: int) -> None:
    recipe = replace(load_recipe("logs"), match__learn=5)
    line = b" ".join(words * repeat)

    assert reference(recipe).scan([line], full=True) == native(recipe).scan([line], full=True)


@pytest.mark.parametrize("size", [2, 24, MAX_GROUP - 1, MAX_GROUP, MAX_GROUP + 1])
@given(data=st.data(), repeat=st.integers(2, 5))
def test_repeated_groups_equal_the_reference(size: int, data: st.DataObject, repeat: int) -> None:
    group = [b"w" + b"x" * number for number in range(size)]
    for place in data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=3)):
        group[place] = b"7"
    line = b" ".join([b"begin", *group * repeat, b"end"])
    recipe = load_recipe("logs")

    assert reference(recipe).scan([line], full=True) == native(recipe).scan([line], full=True)


@pytest.mark.parametrize("default", [1, 5])
@pytest.mark.parametrize("extractor", ["words", "characters"])
@pytest.mark.parametrize("size", [63, 64, 65, 200])
def test_the_rest_after_max_bytes_is_one_feature_of_default_weight(
    size: int, extractor: str, default: int
) -> None:
    recipe = replace(
        Recipe(),
        input__max_bytes=64,
        features__extractor=extractor,
        features__weights__default=default,
        features__repeats="count",
    )
    text = (b"ab cd ef " * 40)[:size]

    assert reference(recipe).scan([text], full=True) == native(recipe).scan([text], full=True)
    weights = {feature.weight for feature in reference(recipe).take([(text, 1, NO_SALT)]).features}
    assert {default} == weights


@pytest.mark.parametrize("words", [5, 200])
@pytest.mark.parametrize("repeats", ["once", "count"])
def test_a_rest_that_looks_like_a_placeholder_is_a_word(words: int, repeats: str) -> None:
    recipe = replace(load_recipe("logs"), input__max_bytes=4096, features__repeats=repeats)
    text = b" ".join(b"w" + b"x" * (n % 60) for n in range(words)) + b" 4 five "
    text = text[:4096].ljust(4096, b"z") + b"<*>"
    expected = reference(recipe).scan([text, text], full=True)

    assert native(recipe).scan([text, text], full=True) == expected


@pytest.mark.parametrize("width", [64, 128])
def test_votes_beyond_the_most_are_not_counted(width: int) -> None:
    recipe = replace(
        Recipe(),
        features__weights__default=1_000,
        features__repeats="count",
        fingerprint__width=width,
    )
    many = [(b"word %c" % (97 + n % 26), 2**32 - 1, NO_SALT) for n in range(20_000)]
    segments_ = segments_of([many[:8], many])
    expected = reference(recipe).scan_segments(segments_, full=True)

    assert native(recipe).scan_segments(segments_, full=True) == expected
    assert MAX_VOTES < 20_000 * (2**32 - 1) * 1_000


@pytest.mark.parametrize("kind", ["simhash", "minhash"])
def test_events_without_features_equal_the_reference(kind: str) -> None:
    recipe = replace(Recipe(), fingerprint__kind=kind, match__k=0)
    for full in (False, True):
        expected = reference(recipe).scan([b"", b" ", b"a"], full)
        assert native(recipe).scan([b"", b" ", b"a"], full) == expected


def test_texts_with_many_features_equal_the_reference() -> None:
    text = b" ".join(b"word-%c%c" % (97 + i % 26, 97 + i // 26 % 26) for i in range(3_000))
    for settings_ in ({}, {"fingerprint__width": 128}, {"features__repeats": "count"}):
        for weight in (1, 999):
            recipe = replace(Recipe(), features__weights__default=weight, **settings_)
            expected = reference(recipe).scan([text], full=True)
            assert native(recipe).scan([text], full=True) == expected


@given(recipe=recipes(), batch=batches, full=st.booleans())
def test_an_event_has_the_same_numbers_in_any_batch(
    recipe: Recipe, batch: list[bytes], full: bool
) -> None:
    fingerprinter = Fingerprinter(recipe, KEY)

    def numbers(values: list[bytes]) -> list[tuple[Any, ...]]:
        return rows(fingerprinter.fingerprints(fingerprinter.prepare(values, None), full))

    together = numbers(batch)

    assert [row for text in batch for row in numbers([text])] == together
    assert together[::-1] == numbers(batch[::-1])


@given(recipe=recipes(), batch=batches)
def test_exact_hashes_and_words_do_not_depend_on_full(recipe: Recipe, batch: list[bytes]) -> None:
    fingerprinter = Fingerprinter(recipe, KEY)
    prepared = fingerprinter.prepare(batch, None)
    full = fingerprinter.fingerprints(prepared, full=True)
    quick = fingerprinter.fingerprints(prepared, full=False)

    assert (full.exact, full.words) == (quick.exact, quick.words)
    assert (len(quick.low), len(quick.high), len(quick.sketches)) == (0, 0, 0)


TRACE = b"""it failed
Traceback (most recent call last):
  File "/srv/app.py", line 3, in main
    raise ValueError(7)
ValueError: 7"""


@given(recipe=st.one_of(recipes(), st.sampled_from(shipped()).map(load_recipe)), batch=batches)
def test_the_exact_hash_of_one_event_is_that_of_a_batch(recipe: Recipe, batch: list[bytes]) -> None:
    fingerprinter = Fingerprinter(recipe, KEY)
    batch = [*batch, b"\n".join(batch), TRACE]
    together = fingerprinter.fingerprints(fingerprinter.prepare(batch, None), full=False).exact

    assert [fingerprinter.exact_of(text, None) for text in batch * 2] == list(together) * 2


@given(parts=segments(), recipe=kernel_recipes, data=st.data())
def test_selected_events_of_a_batch_keep_their_numbers(
    parts: Segments, recipe: Recipe, data: st.DataObject
) -> None:
    fingerprinter = Fingerprinter(recipe, KEY)
    indexes = data.draw(st.lists(st.sampled_from(range(len(parts.ends))))) if parts.ends else []
    everything = rows(fingerprinter.fingerprints(parts, full=True))
    chosen = fingerprinter.fingerprints(fingerprinter.select(parts, indexes), full=True)

    assert [everything[index] for index in indexes] == rows(chosen)


@pytest.mark.parametrize("name", shipped_natively)
def test_threads_may_share_a_kernel(name: str) -> None:
    kernel = native(load_recipe(name))
    corpora = [
        [
            f"thread {t} line {chr(97 + i % 26) * (i % 40)} error at x{i}".encode()
            for i in range(3_000)
        ]
        for t in range(4)
    ]
    expected = [kernel.scan(corpus, full=True) for corpus in corpora]

    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda corpus: kernel.scan(corpus, full=True), corpora * 3))

    assert actual == expected * 3


def test_threads_share_the_lines_that_a_kernel_remembers() -> None:
    kernel, chance = native(load_recipe("logs")), random.Random(3)
    corpora = [
        [
            b'job%c GET /x HTTP/1.1" %d took %d' % (97 + i % 26, 100 * chance.randint(2, 5), i)
            for i in range(3_000)
        ]
        for _ in range(4)
    ]
    expected = [reference(load_recipe("logs")).scan(corpus, full=False) for corpus in corpora]

    def single(corpus: list[bytes]) -> list[int]:
        return [kernel.exact_of(line) for line in corpus]

    with ThreadPoolExecutor(4) as pool:
        actual = pool.map(lambda corpus: kernel.scan(corpus, full=False), corpora * 3)
        singles = pool.map(single, corpora * 3)

        assert list(actual) == expected * 3
        assert list(singles) == [list(numbers.exact) for numbers in expected] * 3


def hashed_to(value: int, weight: int = 1) -> Part:
    """A feature whose salt makes its hashes what a test wants."""
    return b"x", weight, (hash128(b"x")[0] ^ value, siphash(KEY, b"x") ^ value)


# Hashes that random text would hardly give: nearly no bits, nearly all, nought, equal ones.
chosen_hashes = st.one_of(
    st.sampled_from([0, 1, 2, 3, 4, 2**63, 2**64 - 1]),
    st.integers(0, 63).map(lambda bit: 1 << bit),
    st.integers(0, 2**64 - 1),
)
few_weights = st.sampled_from([0, 1, 1, 1, 2, 1000, 2**32 - 1])


@settings(max_examples=scaled(300))
@given(
    hashes=st.lists(st.tuples(chosen_hashes, few_weights), max_size=40),
    repeats=st.sampled_from(["once", "count"]),
    kind=st.sampled_from(["simhash", "minhash"]),
)
def test_hashes_of_any_kind_equal_the_reference(
    hashes: list[tuple[int, int]], repeats: str, kind: str
) -> None:
    recipe = replace(Recipe(), features__repeats=repeats, fingerprint__kind=kind, match__k=0)
    events = [[hashed_to(low, weight) for low, weight in hashes]]

    assert reference(recipe).fold(events, full=True) == native(recipe).fold(events, full=True)
    if repeats == "count" and kind == "simhash":
        assert [simhash(hashes)] == list(native(recipe).fold(events, full=True).low)


@settings(max_examples=scaled(200))
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 400),
    crowded=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    repeated=st.sampled_from([1, 2, 100]),
)
def test_sketches_of_hashes_that_begin_alike_equal_the_reference(
    seed: int, count: int, crowded: float, repeated: int
) -> None:
    generator = random.Random(seed)
    hashes = [
        generator.choice([0, 7, 255]) << 24 | generator.choice([generator.getrandbits(24), 0, 1])
        if generator.random() < crowded
        else generator.choice([generator.getrandbits(32), 2**32 - 1])
        for _ in range(count // repeated)
    ]
    events = [[hashed_to(value << 32) for value in hashes * repeated]]
    recipe = replace(load_recipe("text"), text__fold="keep")

    assert reference(recipe).fold(events, full=True) == native(recipe).fold(events, full=True)


@pytest.mark.parametrize("repeated", [0, 4, 2**64 - 2])
def test_a_repeated_hash_votes_once_unless_repeats_count(repeated: int) -> None:
    events = [[hashed_to(low) for low in (repeated, 1, repeated, 3)]]
    counting = replace(Recipe(), features__repeats="count")

    assert native(Recipe()).fold(events, full=True).low[0] & 1 == 1
    assert native(counting).fold(events, full=True).low[0] & 1 == 0


def test_votes_without_a_majority_set_no_bits() -> None:
    events = [[hashed_to(1 << bit) for bit in range(count)] for count in range(2, 64)]

    assert list(native(Recipe()).fold(events, full=True).low) == [0] * 62


@pytest.mark.parametrize("count", [23, 24, 25, 64, 65, 5_000])
def test_hashes_in_any_order_give_the_same_sketch(count: int) -> None:
    ascending = [i * 2**40 for i in range(count)]
    orders = [
        ascending,
        ascending[::-1],
        ascending[::2] + ascending[1::2][::-1],
        ascending[1::2][::-1] + ascending[::2],
        random.Random(1).sample(ascending, count),
        [low for low in ascending[: count // 2 + 1] for _ in range(2)][:count],
        [7] * count,
        [low % 3 for low in range(count)],
    ]
    events = [[hashed_to(low) for low in order] for order in orders]
    expected = [sorted(set(order))[:64] for order in orders]

    recipe = replace(Recipe(), match__jaccard=0.5)
    actual = native(recipe).fold(events, full=True).sketches

    assert [list(array("Q", sketch)) for sketch in actual] == expected


@pytest.mark.parametrize("make", [native, reference])
@pytest.mark.parametrize(("jaccard", "size"), [(0.0, 0), (0.01, 16)])
def test_only_recipes_that_verify_have_sketches(make: Any, jaccard: float, size: int) -> None:
    recipe = replace(Recipe(), match__jaccard=jaccard)
    numbers = make(recipe).scan([b"two words", b"", b"other words"], full=True)

    assert [len(sketch) for sketch in numbers.sketches] == [size, 0, size]


def ints(typecode: str, *values: int) -> Any:
    return array(typecode, values)


ONE = ints("Q", 0)


@pytest.mark.parametrize(
    ("ends", "weights", "salts", "error"),
    [
        ([1], ints("I", 1), ints("Q", 0), TypeError),
        (ints("Q", 1), ints("I", 1), ints("Q", 0), TypeError),
        (ints("I", 1), ints("Q", 1), ints("Q", 0), TypeError),
        (ints("I", 1), ints("I", 1), ints("I", 0), TypeError),
        (ints("I", 1), [1], ints("Q", 0), TypeError),
        (ints("I", 1), ints("I", 1), [0], TypeError),
        (ints("I", 1), ints("I"), ints("Q", 0), ValueError),
        (ints("I", 1), ints("I", 1, 1), ints("Q", 0), ValueError),
        (ints("I", 1), ints("I", 1), ints("Q"), ValueError),
        (ints("I", 0), ints("I", 1), ints("Q", 0), ValueError),
        (ints("I", 2), ints("I", 1), ints("Q", 0), ValueError),
        (ints("I", 9, 1), ints("I", 1), ints("Q", 0), ValueError),
        (ints("I"), ints("I", 1), ints("Q", 0), ValueError),
    ],
)
def test_segments_that_do_not_fit_are_refused(
    ends: Any, weights: Any, salts: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        native(Recipe()).scan_segments(Segments([b"a"], ends, weights, salts, ONE), full=True)
    with pytest.raises(error):
        native(Recipe()).scan_segments(Segments([b"a"], ends, weights, ONE, salts), full=True)


@pytest.mark.parametrize("text", [None, "a", bytearray(b"a"), 1])
def test_a_text_that_is_not_bytes_is_refused(text: Any) -> None:
    with pytest.raises(TypeError):
        native(Recipe()).scan([b"a", text], full=True)


@pytest.mark.parametrize("kind", ["native", "reference"])
@pytest.mark.parametrize(
    ("feature", "weight", "error"),
    [
        (b"a", -1, ValueError),
        (b"a", 2**32, ValueError),
        (b"a", 2**80, ValueError),
        (b"a", 1.5, ValueError),
        (b"a", None, ValueError),
        (None, 1, TypeError),
        ("a", 1, TypeError),
    ],
)
def test_a_feature_or_weight_that_does_not_fit_is_refused(
    kind: str, feature: Any, weight: Any, error: type[Exception]
) -> None:
    kernel = native(Recipe()) if kind == "native" else reference(Recipe())
    with pytest.raises(error):
        kernel.fold([[(b"b", 1, NO_SALT), (feature, weight, NO_SALT)]], full=True)


hash_sets = st.sets(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=90)


@settings(max_examples=scaled(300))
@given(left=hash_sets, right=hash_sets)
def test_jaccard_equals_the_reference(left: set[int], right: set[int]) -> None:
    a, b = (array("Q", sorted(hashes)[:64]).tobytes() for hashes in (left, right))

    assert reference_jaccard(a, b) == extension("fingerprint._kernel").jaccard(a, b)
    if max(len(left), len(right)) < 64 and left | right:
        assert len(left & right) / len(left | right) == reference_jaccard(a, b)


@given(st.lists(hash_sets, min_size=1, max_size=6), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_owners_that_admit_equal_the_reference(sets: list[set[int]], least: float) -> None:
    sketches = [array("Q", sorted(hashes)[:64]).tobytes() for hashes in sets]
    asked = (sketches[0], list(range(len(sets))), sketches, least)
    assert reference_admitting(*asked) == extension("fingerprint._kernel").admitting(*asked)


def test_what_is_no_sketch_is_refused() -> None:
    with pytest.raises(TypeError, match="a sketch is bytes"):
        extension("fingerprint._kernel").admitting(b"", [0], [None], 0.5)

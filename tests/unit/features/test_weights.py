"""Weights: stop words, tables, and what they do to features of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.errors import RecipeError
from stream_dedup.features.prepare import NO_SALT, FeatureExtractor
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.features.vocabulary import Counts, Origin, table
from stream_dedup.features.weights import MAX_LINE, read_stop_words, read_weights, stop_lists
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.simhash import distance
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from tests.strategies import texts

TREE = b"the cat in the tree is white"
SUIT = b"the man in the suit is happy"
CAT = b"a white cat is in a tree"
"""The first and third speak of one thing; the first and second share most of their little words."""


def numbers(recipe: Recipe, *values: bytes, full: bool = True) -> Fingerprints:
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    return fingerprinter.fingerprints(fingerprinter.prepare(values, None), full=full)


def distances(recipe: Recipe, *values: bytes) -> list[int]:
    """From the first to each of the others."""
    first, *others = numbers(recipe, *values).low
    return [distance(first, other) for other in others]


# ---------------------------------------------------------------- stop words


@pytest.mark.parametrize("repeats", ["once", "count"])
@pytest.mark.parametrize("seed", range(5))
def test_similar_sentences_are_nearer_than_ones_sharing_stop_words(repeats: str, seed: int) -> None:
    weights = {"default": 3, "stop_words": "english", "stop_weight": 1}
    changes: dict[str, Any] = {"features__repeats": repeats, "fingerprint__seed": seed}
    recipe = replace(load_recipe("words"), features__weights=weights, **changes)

    same_thing, little_words = distances(recipe, CAT, TREE, SUIT)

    assert same_thing < little_words
    assert distances(recipe, TREE, CAT)[0] < distances(recipe, TREE, SUIT)[0]


def test_little_words_that_count_as_much_bring_other_sentences_nearer() -> None:
    def mean(weights: dict[str, Any], other: bytes) -> float:
        found = [
            distances(
                replace(
                    load_recipe("words"),
                    features__weights=weights,
                    features__repeats="count",
                    fingerprint__seed=seed,
                ),
                TREE,
                other,
            )[0]
            for seed in range(20)
        ]
        return sum(found) / len(found)

    weighted = {"default": 3, "stop_words": "english", "stop_weight": 1}

    assert mean({}, SUIT) < mean(weighted, SUIT)
    assert mean(weighted, CAT) < mean({}, CAT)


def test_stop_words_without_a_weight_are_left_out_of_the_fingerprint() -> None:
    recipe = replace(load_recipe("words"), features__weights={"stop_words": "english"})

    assert distances(recipe, b"white cat, tree", b"a white cat is in the tree") == [0]
    of_both = numbers(recipe, b"white cat, tree", b"a white cat is in the tree")
    assert of_both.exact[0] != of_both.exact[1]


def test_the_list_knows_the_pieces_of_short_forms() -> None:
    recipe = replace(load_recipe("words"), features__weights={"stop_words": "english"})

    assert distances(recipe, b"cat", b"cat don't", b"They've isn't I'll cat") == [0, 0]


def test_a_table_and_a_file_win_over_stop_words(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("# mine\n\n the \nand\nof\n")
    (tmp_path / "w.tsv").write_text("and\t5\nof\t6\n")
    (tmp_path / "r.toml").write_text(
        '[features.weights]\nstop_words = "few.txt"\nstop_weight = 2\nfile = "w.tsv"\n'
        "[features.weights.table]\nof = 7\n"
    )

    recipe = load_recipe(tmp_path / "r.toml")

    expected = {"the": 2, "and": 5, "of": 7}
    assert recipe.features.weights.table == expected
    assert replace(Recipe(), features__weights__table=expected).digest == recipe.digest
    assert replace(recipe) == recipe


def test_the_digest_holds_the_words_of_a_list_not_its_name(tmp_path: Path) -> None:
    words = read_stop_words("english", Path(), "r")
    (tmp_path / "same.txt").write_text("\n".join(words))
    (tmp_path / "r.toml").write_text('[features.weights]\nstop_words = "same.txt"\n')

    named = replace(Recipe(), features__weights__stop_words="english")

    assert load_recipe(tmp_path / "r.toml").digest == named.digest != Recipe().digest


def test_settings_without_effect_do_not_change_the_digest() -> None:
    spelt = {"stop_words": "", "stop_weight": 7, "layout": 1, "content": 1}

    assert Recipe().digest == replace(Recipe(), features__weights=spelt).digest


def test_the_lists_that_come_with_the_package_are_lists_of_words() -> None:
    assert stop_lists() == ["english"]
    words = read_stop_words("english", Path(), "r")
    assert len(words) == len(set(words)) > 100
    assert [word.strip().lower() for word in words if word] == words
    assert {"the", "a", "in", "is"} <= set(words)
    assert not {"cat", "tree", "white", "man", "suit", "happy"} & set(words)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "No such file"),
        (b"\xff\n", "not UTF-8"),
        (b"x" * (MAX_LINE + 1), "has more than 65536 characters"),
    ],
)
def test_stop_words_that_cannot_be_read_are_named(
    content: bytes | None, part: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "w.txt").write_bytes(content)
    with pytest.raises(RecipeError, match=rf"r: features\.weights\.stop_words: .*{part}"):
        read_stop_words("w.txt", tmp_path, "r")


def test_an_invalid_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="null"):
        read_weights(tmp_path / "a\0b", "r")


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "w.tsv").write_bytes(b"a" * (4 * MAX_LINE))
    with pytest.raises(RecipeError, match=r"w\.tsv:1 has more than 65536 characters"):
        read_weights(tmp_path / "w.tsv", "r")


# ---------------------------------------------------------------- tables for all features


def weighted(extractor: str, table: dict[str, int], **changes: Any) -> Recipe:
    changed = {"features__extractor": extractor, "features__weights__table": table, **changes}
    return replace(Recipe(), **changed)


@pytest.mark.parametrize(
    ("extractor", "ngram", "heavy", "one", "other"),
    [
        ("words", 2, "disk full", b"disk full again now here", b"disk full but not so much"),
        ("characters", 3, "cat", b"the cat sat", b"one cat ran"),
        ("letters", 1, "q", b"quick", b"queen"),
        ("syllables", 1, "qu", b"quick", b"queen"),
        ("html", 1, "/p", b"<p>some words</p>", b"<p><b>others</b></p>"),
    ],
)
def test_a_table_weights_features_of_every_kind(
    extractor: str, ngram: int, heavy: str, one: bytes, other: bytes
) -> None:
    light = weighted(extractor, {}, features__ngram=ngram)
    loaded = weighted(extractor, {heavy: 1000}, features__ngram=ngram)
    only = weighted(extractor, {heavy: 1}, features__ngram=ngram, features__weights__default=0)

    assert distances(loaded, one, other) < distances(light, one, other)
    assert [0] == distances(loaded, one, other) == distances(only, one, other)


def test_a_tables_weight_multiplies_the_extractors_and_the_fields() -> None:
    recipe = replace(
        Recipe(),
        features__extractor="html",
        features__weights={"default": 5, "content": 3, "table": {"/p": 7}},
        input__fields=[{"path": "a", "weight": 2}],
    )

    prepared: Any = Fingerprinter(recipe, PUBLIC_KEY).prepare([b""], [{"a": "<p>hi"}])

    assert [[feature[:2] for feature in event] for event in prepared] == [
        [(b"/p", 14), (b"/p/#text", 10), (b"hi", 30)]
    ]


def test_without_a_table_the_default_weight_is_not_for_functions() -> None:
    plain = replace(Recipe(), features__extractor="syllables")
    spared = replace(plain, features__weights__default=0)

    assert numbers(plain, b"hello there").low == numbers(spared, b"hello there").low


@given(st.lists(texts, min_size=1, max_size=5), st.integers(1, 4), st.booleans())
def test_characters_missing_in_the_table_equal_those_of_the_kernel(
    values: list[bytes], ngram: int, full: bool
) -> None:
    plain = weighted("characters", {}, features__ngram=ngram, input__max_bytes=64)
    loaded = weighted("characters", {"none so long": 3}, features__ngram=ngram, input__max_bytes=64)

    expected, actual = (numbers(recipe, *values, full=full) for recipe in (plain, loaded))

    assert (expected.low, expected.words, expected.sketches) == (
        actual.low,
        actual.words,
        actual.sketches,
    )


@given(
    st.lists(texts, max_size=5),
    st.sampled_from([("words", 3), ("characters", 2), ("letters", 1), ("html", 1)]),
    st.booleans(),
)
def test_kernel_and_reference_agree_on_weighted_features(
    values: list[bytes], kind: tuple[str, int], classes: bool
) -> None:
    extractor, ngram = kind
    recipe = weighted(
        extractor,
        {"a": 7, "er": 0, "failed": 9, "/#text": 5},
        features__ngram=ngram,
        text__classes=classes and extractor == "words",
        fingerprint__width=128,
    )
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    prepared: Any = fingerprinter.prepare(values, None)
    reference = ReferenceKernel(recipe, PUBLIC_KEY)

    expected = reference.fold(prepared, full=True)
    assert fingerprinter.fingerprints(prepared, full=True) == expected
    for index, value in enumerate(values):
        taken = fingerprinter.take_apart(value, None, reference)
        assert expected.fingerprint(index) == reference.fingerprint(taken)


@given(texts, st.integers(1, 4), st.booleans(), st.sampled_from(["log", "word"]))
def test_the_words_taken_in_python_are_the_kernels(
    text: bytes, ngram: int, classes: bool, delimiters: str
) -> None:
    recipe = replace(
        Recipe(),
        features__ngram=ngram,
        text__classes=classes,
        features__delimiters=delimiters,
        input__max_bytes=64,
    )
    taken = ReferenceKernel(recipe, PUBLIC_KEY).take([(text, 1, NO_SALT)])
    expected = [b"<*>" if f.variable else f.text for f in taken.features]

    actual = [feature for feature, _, _ in FeatureExtractor(recipe).to_fold([(text, 1, NO_SALT)])]

    if all(f.variable for f in taken.tokens):
        expected = [text] if taken.tokens else []
    assert actual == expected


@given(st.lists(texts, max_size=5), st.sampled_from([("words", 2), ("characters", 2)]))
def test_exact_hashes_are_equal_with_and_without_fingerprints(
    values: list[bytes], kind: tuple[str, int]
) -> None:
    recipe = weighted(kind[0], {"ab": 9}, features__ngram=kind[1])

    assert numbers(recipe, *values).exact == numbers(recipe, *values, full=False).exact


@pytest.mark.parametrize("hash_", ["md5", "java"])
def test_tables_weight_features_under_the_hashes_of_other_systems(hash_: str) -> None:
    plain = weighted("characters", {}, features__ngram=2, fingerprint={"hash": hash_, "width": 32})
    none = replace(plain, features__weights__table={"none so long": 3})
    only = replace(plain, features__weights={"table": {"ab": 1}, "default": 0})

    assert numbers(plain, b"abcd").low == numbers(none, b"abcd").low
    assert distances(only, b"abcd", b"xxab") == [0]
    assert distances(none, b"abcd", b"xxab") != [0]


def test_events_of_variables_alone_merge_only_with_their_copies() -> None:
    recipe = weighted("words", {"failed password": 9}, features__ngram=2, text__classes=True)

    decided = Deduplicator(recipe).process([b"12 7 4", b"12 7 5", b"12 7 4", b"  "])

    assert [d.kind.value for d in decided] == ["new", "new", "duplicate", "passed"]


def test_frequent_words_count_less_with_a_vocabulary(tmp_path: Path) -> None:
    corpus = [f"request to {name} failed with {name}-error" for name in "abcdefgh"]
    counts = Counts(Recipe())
    for line in corpus:
        counts.add(line.encode())
    lines = table(counts, counts.frequent(1, 100), Origin(Recipe(), "idf", 1))
    (tmp_path / "v.tsv").write_text("".join(lines))
    (tmp_path / "r.toml").write_text('[features.weights]\nfile = "v.tsv"\ndefault = 1000\n')
    learnt = load_recipe(tmp_path / "r.toml")

    frame = b"request to z failed with z-error"
    same_frame, same_thing = b"request to a failed with a-error", b"z has an z-error now"

    assert distances(Recipe(), frame, same_frame)[0] < distances(learnt, frame, same_frame)[0]
    near, far = distances(learnt, frame, same_thing, same_frame)
    assert near < far

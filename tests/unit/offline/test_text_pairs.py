"""Pairs of alike texts: those whose keys meet and whose sketches are alike."""

from __future__ import annotations

import random

import pytest

from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, WithVariants
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.offline.text_pairs import TextPairs
from stream_dedup.tables.store import Bands, ReferenceBandTables

KEY = HashKey(b"sixteen secrets!")


def some_texts(count: int, seed: int = 1) -> list[bytes]:
    """Texts of 2 to 60 words; many are a changed copy of an earlier one."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefghij", k=6)) for _ in range(900)]
    texts: list[list[str]] = []
    for _ in range(count):
        text = generator.choices(words, k=generator.randint(2, 60))
        if texts and generator.random() < 0.7:
            text = list(generator.choice(texts))
            for _ in range(generator.randint(0, 6)):
                text[generator.randrange(len(text))] = generator.choice(words)
        texts.append(text)
    return [" ".join(text).encode() for text in texts]


def searched(fingerprinter: Fingerprinter, texts: list[bytes]) -> list[tuple[int, int]]:
    """The pairs by the reference of the tables, with the sketches of all texts."""
    recipe = fingerprinter.recipe
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(texts, None), full=True)
    tables = ReferenceBandTables(Bands(bands.BANDS, bands.KEY_BYTES, bands.CROWD))
    pairs = []
    for number in range(len(texts)):
        if numbers.words[number] >= recipe.match.min_features:
            keys = numbers.fingerprint(number)
            sketches = numbers.sketches
            found = tables.similar(keys, 0, sketches[number], sketches, recipe.match.jaccard)
            pairs += [(other, number) for other in found.owners]
            tables.insert(keys, 0, number)
    return sorted(pairs)


@pytest.mark.parametrize("name", ["text", "messages", "records", "documents"])
def test_pairs_are_those_of_the_tables_with_all_sketches(name: str) -> None:
    texts = some_texts(1_500)
    fingerprinter = Fingerprinter(load_recipe(name), KEY)
    pairs = TextPairs(fingerprinter)
    found: list[tuple[int, int]] = []
    for start in range(0, len(texts), 400):
        prepared = fingerprinter.prepare(texts[start : start + 400], None)
        numbers = pairs.hash(prepared)
        alike = pairs.add(prepared, numbers, range(len(numbers.exact)))
        found += zip(alike[::2], alike[1::2], strict=True)

    assert searched(fingerprinter, texts) == sorted(found)
    assert len(found) > 100


def test_texts_beside_a_stack_trace_are_compared_by_their_sketches() -> None:
    trace = b"java.io.IOException: disk\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)\n"
    texts = [*some_texts(1_000), trace]
    recipe = replace(load_recipe("text"), match__variants=("frames",), text__fold="keep")
    fingerprinter = Fingerprinter(recipe, KEY)
    pairs = TextPairs(fingerprinter)
    prepared = fingerprinter.prepare(texts, None)
    alike = pairs.add(prepared, pairs.hash(prepared), range(len(texts)))

    assert isinstance(prepared, WithVariants)
    assert searched(fingerprinter, texts) == sorted(zip(alike[::2], alike[1::2], strict=True))


def test_unchanged_texts_may_be_any_sequence() -> None:
    texts = tuple(some_texts(400))
    recipe = replace(
        load_recipe("text"), text__fold="keep", features__extractor="words", features__ngram=2
    )
    fingerprinter = Fingerprinter(recipe, KEY)
    pairs = TextPairs(fingerprinter)
    prepared = fingerprinter.prepare(texts, None)
    alike = pairs.add(prepared, pairs.hash(prepared), range(len(texts)))

    assert isinstance(prepared, tuple)
    expected = searched(fingerprinter, list(texts))
    assert expected == sorted(zip(alike[::2], alike[1::2], strict=True))
    assert len(expected) > 30


def test_texts_that_are_not_chosen_are_left_out() -> None:
    texts = some_texts(400)
    fingerprinter = Fingerprinter(load_recipe("text"), KEY)
    pairs = TextPairs(fingerprinter)
    prepared = fingerprinter.prepare(texts, None)
    chosen = [index for index in range(len(texts)) if index % 3]
    alike = pairs.add(prepared, pairs.hash(prepared), chosen)

    expected = searched(fingerprinter, [texts[index] for index in chosen])
    assert expected == sorted(zip(alike[::2], alike[1::2], strict=True))
    assert len(chosen) == len(pairs)

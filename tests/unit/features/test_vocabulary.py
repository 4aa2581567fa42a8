"""Vocabularies: counts, their bound, formulas, and the command that builds them."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.features.vocabulary import MAX_FEATURE_BYTES, Counts, weight
from stream_dedup.features.weights import read_weights

COMMAND = Path(sys.executable).parent / "stream-dedup"


def build(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``stream-dedup vocabulary build`` in a folder."""
    command = [str(COMMAND), "vocabulary", "build", *arguments]
    environment = os.environ | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def counted(recipe: Recipe, *documents: bytes, max_held: int = 1000) -> Counts:
    counts = Counts(recipe, max_held)
    for document in documents:
        counts.add(document)
    return counts


# ---------------------------------------------------------------- counting


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"ab": 2, "ba": 1}),
        ({"features__ngram": 2}, {"ab ab": 1, "ab ba": 1}),
        ({"features__extractor": "letters"}, {"a": 2, "b": 2}),
        ({"features__extractor": "syllables"}, {"ab": 2, "ba": 1}),
        (
            {"features__extractor": "characters", "features__ngram": 2},
            {"ab": 2, "b ": 2, " a": 1, " b": 1, "ba": 1},
        ),
    ],
)
def test_a_feature_counts_once_a_document(
    changes: dict[str, Any], expected: dict[str, int]
) -> None:
    counts = counted(replace(Recipe(), **changes), b"ab ab", b"ab ba")

    assert dict(counts.frequent(1, 100)) == expected
    assert (counts.documents, counts.missed) == (2, 0)


def test_documents_without_features_and_placeholders_do_not_count() -> None:
    counts = counted(load_recipe("logs"), b"", b"  ", b"user 12 from 10.0.0.7", b"user 13")

    assert dict(counts.frequent(1, 100)) == {"user": 2, "from": 1}
    assert counts.documents == 2


def test_fields_are_counted_where_the_recipe_takes_them() -> None:
    counts = Counts(replace(Recipe(), input__fields=[{"path": "msg"}]))
    counts.add(b"", {"msg": "disk full", "host": "a"})
    counts.add(b"", {"msg": "disk ok"})

    assert dict(counts.frequent(1, 100)) == {"disk": 2, "full": 1, "ok": 1}


def test_the_most_frequent_come_first_and_equal_ones_by_their_bytes() -> None:
    counts = counted(Recipe(), b"b a c", b"b c", "é b".encode())

    assert counts.frequent(1, 100) == [("b", 3), ("c", 2), ("a", 1), ("é", 1)]
    assert counts.frequent(2, 100) == [("b", 3), ("c", 2)]
    assert counts.frequent(1, 1) == [("b", 3)]


def test_features_that_cannot_be_a_line_are_left_out() -> None:
    # Characters see line ends folded to spaces; functions of one's own see them.
    assert {"o", "k"} == dict(
        counted(replace(Recipe(), features__extractor="characters"), b"#\xff\xfeok\n").frequent(
            1, 100
        )
    ).keys()
    recipe = replace(Recipe(), features__extractor=f"{__name__}:odd_features")
    assert counted(recipe, b"x").frequent(1, 100) == [("a\tb", 1)]


def odd_features(_text: bytes) -> list[tuple[bytes, int]]:
    """An extractor of one's own."""
    features = [b"a\nb", b"a\rb", b"#x", b"\xff", b"a\tb", b"y" * (MAX_FEATURE_BYTES + 1)]
    return [(feature, 1) for feature in features]


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), max_size=120),
    st.integers(4, 30),
)
def test_counts_are_low_by_at_most_missed_and_memory_is_bounded(
    documents: list[list[int]], max_held: int
) -> None:
    lines = [" ".join(f"w{number}" for number in document).encode() for document in documents]
    counts = Counts(Recipe(), max_held)
    for line in lines:
        counts.add(line)
        assert len(counts._counts) <= max_held
    true = Counter(word for line in lines for word in set(line.decode().split()))
    found = dict(counts.frequent(1, 1000))

    for word, count in true.items():
        assert count - counts.missed <= found.get(word, 0) <= count
    if not counts.missed:
        assert true == found


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("formula", ["idf", "smooth"])
@given(documents=st.integers(1, 10**9), counts=st.lists(st.integers(1, 10**9), min_size=2))
def test_weights_are_whole_within_the_scale_and_fall_with_frequency(
    formula: Any, documents: int, counts: list[int]
) -> None:
    ascending = sorted(min(count, documents) for count in counts)
    weights = [weight(formula, documents, count) for count in ascending]

    assert {type(found) for found in weights} == {int}
    assert all(1 <= found <= 1000 for found in weights)
    assert sorted(weights, reverse=True) == weights
    assert weight(formula, documents, 1) == 1000


def test_the_formulas_are_those_of_the_module() -> None:
    assert [weight("idf", 8, df) for df in (1, 2, 4, 8)] == [1000, 667, 333, 1]
    smooth = 1 + math.log(9 / 5), 1 + math.log(9 / 2)
    assert round(1000 * smooth[0] / smooth[1]) == weight("smooth", 8, 4)
    assert [weight(formula, 1000, 999) for formula in ("idf", "smooth")] == [1, 139]


# ---------------------------------------------------------------- the command


def test_a_vocabulary_is_built_and_read_by_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\nthe dog\nThe cow\n")
    with gzip.open(tmp_path / "b.gz", "wt") as file:
        file.write("the cat\n\nthe sky\n")

    done = build(tmp_path, "-r", "words", "-o", "v.tsv", "a.txt", "*.gz")

    assert (done.returncode, done.stdout) == (0, "")
    assert "v.tsv: 2 features of 5 documents" in done.stderr
    text = (tmp_path / "v.tsv").read_text()
    assert text.startswith("# Vocabulary: 2 features of 5 documents")
    assert f"digest {load_recipe('words').digest}" in text
    assert "ln(N / df)" in text
    assert text.splitlines()[-2:] == ["the\t1", f"cat\t{weight('idf', 5, 2)}"]
    (tmp_path / "r.toml").write_text('[features.weights]\nfile = "v.tsv"\ndefault = 1000\n')
    table = load_recipe(tmp_path / "r.toml").features.weights.table
    assert {"the": 1, "cat": weight("idf", 5, 2)} == table
    assert not list(tmp_path.glob(".v.tsv*"))


def test_equal_corpora_give_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("b a c\na b\nc a\n")
    for name in ("one.tsv", "two.tsv"):
        assert build(tmp_path, "-q", "-o", name, "a.txt").returncode == 0

    assert (tmp_path / "one.tsv").read_bytes() == (tmp_path / "two.tsv").read_bytes()


def test_json_events_are_documents_by_their_text(tmp_path: Path) -> None:
    lines = [{"msg": "disk full", "id": "x"}, {"msg": "disk ok", "id": "y"}]
    text = "\n".join([*map(json.dumps, lines), "{not json"])
    (tmp_path / "a.jsonl").write_text(text + "\n")

    done = build(tmp_path, "-o", "v.tsv", "--min-count", "1", "a.jsonl")

    assert done.returncode == 0
    assert read_weights(tmp_path / "v.tsv", "r") == {"disk": 1, "full": 1000, "ok": 1000}
    assert "left out, not JSON: 1" in done.stderr


def test_a_document_on_which_an_extractor_fails_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "def words(text):\n"
        "    if b'bad' in text:\n        raise ValueError('no')\n"
        "    return [(word, 1) for word in text.split()]\n"
    )
    (tmp_path / "a.txt").write_text("good one\nbad one\ngood two\n")

    done = build(tmp_path, "-r", "words", "--set", "features.extractor=failing:words", "-o",
                 "v.tsv", "a.txt", PYTHONPATH=str(tmp_path))  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "left out, extractor failed with ValueError: 1" in done.stderr
    assert read_weights(tmp_path / "v.tsv", "r") == {"good": 1}


def test_letters_syllables_and_grams_have_vocabularies(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("haha hoho\nhaha\n")
    for extractor, ngram, feature in (
        ("letters", 1, "h"), ("syllables", 1, "ha"), ("characters", 3, "aha"),
        ("words", 2, "haha hoho"),
    ):  # fmt: skip
        arguments = ["--set", f"features.extractor={extractor}", "--set", f"features.ngram={ngram}"]
        arguments += ["--set", "match.learn=0"]
        name = f"{extractor}.tsv"
        done = build(tmp_path, *arguments, "--set", "text.classes=false", "--min-count", "1",
                     "-o", name, "a.txt")  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert feature in read_weights(tmp_path / name, "r")


def test_hostile_bytes_end_in_a_table_that_can_be_read(tmp_path: Path) -> None:
    data = bytes(range(256)) * 3 + b"\n" + b"\x80abc\tdef\r\n" + b"\xff" * 9 + b"\n#x y\n"
    (tmp_path / "a.txt").write_bytes(data * 2)
    for extractor in ("words", "characters", "letters", "html", "xml-content", "json-layout"):
        settings = ["--set", f"features.extractor={extractor}", "--set", "text.classes=false"]
        settings += ["--set", "match.learn=0"]
        done = build(tmp_path, *settings, "--input-format", "text", "-o", f"{extractor}.tsv",
                     "--min-count", "1", "a.txt")  # fmt: skip
        if extractor == "xml-content":  # nothing of it is XML
            assert (done.returncode, "no document has a feature" in done.stderr) == (1, True)
            continue
        assert done.returncode == 0, done.stderr
        table = read_weights(tmp_path / f"{extractor}.tsv", "r")
        assert table
        assert all(1 <= found <= 1000 for found in table.values())


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["a.txt"], 2, "Missing option '-o'"),
        (["-o", "v.tsv"], 2, "Missing argument 'FILE...'"),
        (["-o", "there.tsv", "a.txt"], 2, "is there already; give another name, or --force"),
        (["-o", "no/v.tsv", "a.txt"], 1, "no/v.tsv: cannot be written: No such file or directory"),
        (["-o", ".", "--force", "a.txt"], 1, ".: cannot be written: Is a directory"),
        (["-o", "v.tsv", "-r", "wrods", "a.txt"], 2, "wrods: no such recipe"),
        (["-o", "v.tsv", "--start-regex", "(", "a.txt"], 2, "start pattern"),
        (["-o", "v.tsv", "--max-words", "0", "a.txt"], 2, "--max-words"),
        (["-o", "v.tsv", "none.txt"], 1, "none.txt: cannot be opened: No such file"),
        (["-o", "v.tsv", "empty.txt"], 1, "no document has a feature"),
        (["-o", "v.tsv", "--min-count", "9", "a.txt"], 1, "no feature is in 9 documents"),
    ],
)
def test_errors_are_reported_and_nothing_is_written(
    arguments: list[str], code: int, part: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\none\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "there.tsv").write_text("mine\t3\n")

    done = build(tmp_path, *arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert part in " ".join(done.stderr.split())
    assert (tmp_path / "there.tsv").read_text() == "mine\t3\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "empty.txt", "there.tsv"]


def test_a_table_is_written_over_only_where_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\none\n")
    (tmp_path / "v.tsv").write_text("mine\t3\n")

    assert build(tmp_path, "-o", "v.tsv", "--force", "a.txt").returncode == 0
    assert read_weights(tmp_path / "v.tsv", "r") == {"one": 1}

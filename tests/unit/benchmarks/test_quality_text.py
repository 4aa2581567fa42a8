"""The bench of near-duplicate texts: its sets, its messages, its measures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.quality_text import TARGETS, measure_messages, missed, scores, timed_texts
from benchmarks.text_methods import BRUTE_FORCE, Method, clustered, methods
from benchmarks.text_sets import (
    CHANGES,
    Messages,
    TextSet,
    TextSetError,
    load_text_sets,
    sentences,
)

KEY = b"sixteen secrets!"
OURS = methods(["text", "words"], KEY, peers=False)
ALIKE = [
    "the committee will meet again on thursday to discuss the new budget",
    "the comittee will meet again on thursday to discuss the new budgets",
    "a fire destroyed the old town hall in the early hours of the morning",
]


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    return tmp_path


def test_pairs_and_clusters_are_read_alike(tmp_path: Path) -> None:
    sets = load_text_sets(
        folder(
            tmp_path,
            a_items="id\ttext\nx\tone\ttab\ny\ttwo\nz\tthree\n",
            a_pairs="id1\tid2\nz\tx\n",
            b_items="id\tcluster\ttext\n1\tp\tone\n2\tq\ttwo\n3\tp\tthree\n",
        )
    )

    assert [each.name for each in sets] == ["a", "b"]
    assert [each.pairs for each in sets] == [frozenset({(0, 2)})] * 2
    assert sets[1].texts == ["one", "two", "three"]


def test_a_pair_of_unknown_items_is_reported(tmp_path: Path) -> None:
    path = folder(tmp_path, a_items="id\ttext\nx\tone\n", a_pairs="id1\tid2\nx\tq\n")

    with pytest.raises(TextSetError, match=r"a_pairs\.tsv: does not name pairs of a_items"):
        load_text_sets(path)


def test_a_folder_without_items_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TextSetError, match="has no \\*_items"):
        load_text_sets(tmp_path)


def test_halves_cut_no_pair_and_lose_nothing() -> None:
    texts = [f"text {number}" for number in range(40)]
    pairs = frozenset((n, n + 1) for n in range(0, 38, 3))
    halves = TextSet("a", texts, pairs).halves()

    assert sorted(text for half in halves for text in half.texts) == sorted(texts)
    found = {frozenset((half.texts[a], half.texts[b])) for half in halves for a, b in half.pairs}
    assert found == {frozenset((texts[a], texts[b])) for a, b in pairs}
    assert all(half.texts for half in halves)


def test_sentences_are_distinct_and_of_all_lengths() -> None:
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefghij", k=5)) for _ in range(300)]
    lines = [" ".join(drawn.choices(words, k=5 + n % 26)) + "." for n in range(900)]
    found = sentences([TextSet("a", [" ".join(lines)] * 2, frozenset())], 400)

    assert len(set(found)) == len(found) == 400
    assert {len(text.split()) for text in found} >= {5, 8, 13, 21}


def test_every_change_changes_most_texts_and_none_is_lost() -> None:
    drawn = random.Random(1)
    text = "we paid 40 dollars at the Example Store on Monday and want it back"

    for name, change in CHANGES.items():
        changed = [change(text, drawn) for _ in range(20)]
        assert all(changed), name
        assert sum(one != text for one in changed) >= 15, name


def test_measures_of_pairs() -> None:
    found = scores({(0, 1), (2, 3)}, {(0, 1), (4, 5), (6, 7)})

    assert found == pytest.approx({"precision": 1 / 2, "recall": 1 / 3, "F1": 2 / 5})
    assert scores(set(), set()) == {"precision": 1.0, "recall": 1.0, "F1": 1.0}
    assert clustered([7, None, 7, 7, None, 1]) == {(0, 2), (0, 3), (2, 3)}


@pytest.mark.parametrize("method", OURS, ids=[method.name for method in OURS])
def test_our_methods_and_brute_force_find_what_is_alike(method: Method) -> None:
    assert method.find(ALIKE, method.threshold) == {(0, 1)}


def test_brute_force_counts_features_exactly() -> None:
    (brute_force,) = [m for m in methods([], KEY, peers=False) if m.name == BRUTE_FORCE]
    texts = ["abcdef", "abcdeg"]  # abcd bcde cdef, abcd bcde cdeg

    assert brute_force.find(texts, 0.5) == {(0, 1)}
    assert brute_force.find(texts, 0.51) == set()


def test_recall_of_messages_is_given_by_length() -> None:
    def find(texts: object, threshold: float) -> set[tuple[int, int]]:
        del texts, threshold
        return {(0, 2), (0, 1)}

    messages = Messages("none", ["one two three four five", "a b c d e f g h"], ["x", "y"])
    found = measure_messages(Method("a", 0.5, find), messages)

    assert (found["5-7 words"], found["8-12 words"], found["precision"]) == (1.0, 0.0, 0.5)


def test_targets_of_what_was_measured_are_checked() -> None:
    (name, method, measure), least = next(iter(TARGETS.items()))

    assert missed({}) == []
    assert missed({name: {method: {measure: least}}}) == []
    (line,) = missed({name: {method: {measure: least - 0.1}}})
    assert line.startswith(f"{name}: {method}: {measure} is ")


def test_timed_texts_are_of_twenty_words() -> None:
    found = timed_texts(ALIKE, 50)

    assert {len(text.split()) for text in found} == {20}
    assert len(found) == 50

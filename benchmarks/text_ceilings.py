"""The best that features can tell near-duplicate texts by, where every two texts are compared.

    python -m benchmarks.text_ceilings --data FOLDER

For each labelled set, features and measure: the best F1 of pairs over thresholds from 0.3 to 0.9,
chosen by the set itself, and F1 at the threshold of the recipe `text`. A stream finds less: it
compares a text with the first one of each cluster that shares a key. Sets of up to 4,000 texts, in
half a gigabyte and some minutes. Needs numpy.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerMissingError
from benchmarks.text_sets import TextSet, TextSetError, load_text_sets
from stream_dedup.features.recipe import load_recipe

MOST_TEXTS = 4_000
THRESHOLDS = [n / 100 for n in range(30, 92, 2)]

Features = Callable[[str], set[str]]


def _grams(text: str, n: int) -> set[str]:
    return {text[at : at + n] for at in range(max(1, len(text) - n + 1))}


def _letters(text: str) -> set[str]:
    return _grams(re.sub(r"[\W_]", "", text), 4)


def _letters_and_numbers(text: str) -> set[str]:
    return _letters(re.sub(r"\d+", "N", text))


def _of_each_word(text: str) -> set[str]:
    return {gram for word in re.findall(r"\w+", text) for gram in _grams(f" {word} ", 3)}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _words_and_numbers(text: str) -> set[str]:
    return {"N" if word.isdigit() else word for word in _words(text)}


FEATURES: dict[str, Features] = {
    "4 letters, numbers one symbol": _letters_and_numbers,
    "4 letters or digits": _letters,
    "3 characters of each word": _of_each_word,
    "words": _words,
    "words, numbers one symbol": _words_and_numbers,
}
MEASURES = ("Jaccard", "Jaccard, rare ones count more", "containment")


def similarities(texts: Sequence[str], features: Features, measure: str, np: Any) -> Any:  # noqa: ANN401
    """Return the similarity of every two texts, as a matrix of numpy."""
    sets = [features(" ".join(text.lower().split())) for text in texts]
    numbers: dict[str, int] = {}
    for one in sets:
        for feature in one:
            numbers.setdefault(feature, len(numbers))
    there = np.zeros((len(sets), len(numbers)), np.float32)
    for row, one in enumerate(sets):
        there[row, [numbers[feature] for feature in one]] = 1
    weights = np.ones(len(numbers), np.float32)
    if "rare" in measure:
        weights = np.log(len(sets) / there.sum(0))
    sizes = there @ weights
    common = (there * weights) @ there.T
    if measure == "containment":
        return common / np.maximum(np.minimum(sizes[:, None], sizes[None]), 1e-9)
    return common / np.maximum(sizes[:, None] + sizes[None] - common, 1e-9)


def f1_by_threshold(labelled: TextSet, matrix: Any, np: Any) -> dict[float, float]:  # noqa: ANN401
    """Return F1 of pairs at each threshold."""
    true = np.zeros(matrix.shape, bool)
    for one, other in labelled.pairs:
        true[min(one, other), max(one, other)] = True
    upper = np.triu_indices(len(labelled.texts), 1)
    values, is_true = matrix[upper], true[upper]
    found = {}
    for threshold in sorted({*THRESHOLDS, load_recipe("text").match.jaccard}):
        said = values >= threshold
        right = int((said & is_true).sum())
        found[threshold] = 2 * right / max(int(said.sum()) + len(labelled.pairs), 1)
    return found


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.text_ceilings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled texts")
    options = parser.parse_args()
    try:
        try:
            np = import_module("numpy")
        except ImportError as error:
            raise PeerMissingError("numpy is not installed: pip install numpy") from error
        sets = load_text_sets(options.data)
    except (TextSetError, PeerMissingError, OSError) as error:
        print(f"benchmarks.text_ceilings: {error}", file=sys.stderr)
        return 2
    ours = load_recipe("text").match.jaccard
    for labelled in sets:
        if len(labelled.texts) > MOST_TEXTS:
            print(f"{labelled.name}: left out, more than {MOST_TEXTS} texts")
            continue
        for name, features in FEATURES.items():
            for measure in MEASURES:
                found = f1_by_threshold(
                    labelled, similarities(labelled.texts, features, measure, np), np
                )
                best = max(found, key=found.__getitem__)
                print(
                    f"{labelled.name:<16} {name:<30} {measure:<30} best F1 {found[best]:.3f} "
                    f"at {best:.2f}, {found[ours]:.3f} at {ours:.2f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())

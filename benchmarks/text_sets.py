"""Texts of which it is known which are near-duplicates: labelled sets, and messages made of them.

A folder has ``NAME_items.tsv``, with a header: ``id<TAB>text`` and the true pairs in
``NAME_pairs.tsv`` (``id1<TAB>id2``), or ``id<TAB>cluster<TAB>text``.

*Messages* are sentences of 5 to 30 words out of the longest texts of the folder, each once, and a
copy of each that was changed in one way at one strength. How a person sees it, both say the same.
The changes are written here or are character operations of the library nlpaug, and none of them
knows the tables by which texts are folded.
"""

# ruff: noqa: RUF001 -- letters that look alike

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerMissingError

Pair = tuple[int, int]
"""Two texts by their indexes, the smaller first."""

Change = Callable[[str, random.Random], str]

LENGTHS = ((5, 7), (8, 12), (13, 20), (21, 30))
"""Words of a message, from and to: figures are given for each."""

MIN_SENTENCES = 100


class TextSetError(Exception):
    """A folder holds no labelled texts, or they do not fit together."""


@dataclass(frozen=True, slots=True)
class TextSet:
    """Labelled texts.

    Attributes:
        name: its file's, without ``_items.tsv``.
        texts: in the order of the file.
        pairs: all near-duplicates.
    """

    name: str
    texts: list[str]
    pairs: frozenset[Pair]

    def halves(self) -> tuple[TextSet, TextSet]:
        """Divide it, without cutting a pair: settings are chosen by one half, measured on both."""
        parents = list(range(len(self.texts)))
        for left, right in sorted(self.pairs):
            parents[_root(parents, right)] = _root(parents, left)
        chosen = random.Random(1)
        side: dict[int, bool] = {}
        for index in range(len(self.texts)):
            side.setdefault(_root(parents, index), chosen.random() < 0.5)
        halves = []
        for which in (False, True):
            members = [i for i in range(len(self.texts)) if side[_root(parents, i)] is which]
            place = {index: number for number, index in enumerate(members)}
            pairs = frozenset((place[a], place[b]) for a, b in self.pairs if a in place)
            halves.append(TextSet(self.name, [self.texts[i] for i in members], pairs))
        return halves[0], halves[1]


def _root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def load_text_sets(folder: Path) -> list[TextSet]:
    """Load all sets of a folder.

    Raises:
        TextSetError: there is none, or a pair names no item.
    """
    found = sorted(folder.glob("*_items.tsv"))
    if not found:
        raise TextSetError(f"{folder}: has no *_items.tsv; give a folder of labelled texts")
    return [_load(path) for path in found]


def _load(path: Path) -> TextSet:
    head, *rows = _rows(path)
    name = path.name.removesuffix("_items.tsv")
    if head[1:2] == ["cluster"]:
        clusters: dict[str, list[int]] = {}
        for index, row in enumerate(rows):
            clusters.setdefault(row[1], []).append(index)
        pairs = frozenset(
            pair for members in clusters.values() for pair in combinations(members, 2)
        )
        return TextSet(name, [row[2] for row in rows], pairs)
    index_of = {row[0]: index for index, row in enumerate(rows)}
    other = path.with_name(f"{name}_pairs.tsv")
    try:
        named = [(index_of[row[0]], index_of[row[1]]) for row in _rows(other)[1:]]
    except (OSError, KeyError, IndexError) as error:
        raise TextSetError(f"{other}: does not name pairs of {path.name}: {error!r}") from error
    pairs = frozenset((min(pair), max(pair)) for pair in named)
    return TextSet(name, [row[1] for row in rows], pairs)


def _rows(path: Path) -> list[list[str]]:
    lines = path.read_text("utf-8").split("\n")
    return [line.split("\t", 2) for line in lines if line]


# ---------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages, and for each a changed copy.

    Attributes:
        change: how they were changed.
        originals: distinct sentences.
        copies: of each, its copy.
    """

    change: str
    originals: list[str]
    copies: list[str]


def sentences(sets: Sequence[TextSet], most: int, seed: int = 0) -> list[str]:
    """Return distinct sentences of 5 to 30 words, as many of each of `LENGTHS`.

    Raises:
        TextSetError: the texts have hardly any.
    """
    texts = max(sets, key=lambda each: sum(map(len, each.texts)) / len(each.texts)).texts
    found: dict[str, str] = {}
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+", text):
            found.setdefault(re.sub(r"\W", "", sentence).lower(), sentence)
    chosen: list[str] = []
    shuffled = random.Random(seed)
    for least, longest in LENGTHS:
        fitting = [one for one in found.values() if least <= len(one.split()) <= longest]
        shuffled.shuffle(fitting)
        chosen += fitting[: most // len(LENGTHS)]
    if len(chosen) < MIN_SENTENCES:
        raise TextSetError("the texts have fewer than 100 sentences of 5 to 30 words")
    return chosen


def make_messages(originals: Sequence[str], seed: int = 0) -> Iterator[Messages]:
    """Make a changed copy of each message, once for each change."""
    for name, change in {**CHANGES, **library_changes(seed)}.items():
        drawn = random.Random(f"{seed} {name}")
        yield Messages(name, list(originals), [change(text, drawn) for text in originals])


def _typos(share: float) -> Change:
    def change(text: str, drawn: random.Random) -> str:
        words = text.split()
        for _ in range(max(1, round(share * len(words)))):
            place = drawn.randrange(len(words))
            word = words[place]
            at = drawn.randrange(len(word))
            letter = drawn.choice("abcdefghijklmnopqrstuvwxyz")
            words[place] = drawn.choice([
                word[:at] + word[at + 1 :] or word,
                word[:at] + letter + word[at:],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
            ])  # fmt: skip
        return " ".join(words)

    return change


def _words(share: float, kind: str) -> Change:
    def change(text: str, drawn: random.Random) -> str:
        words = text.split()
        for _ in range(max(1, round(share * len(words)))):
            at = drawn.randrange(len(words))
            if kind == "drop" and len(words) > 1:
                del words[at]
            elif kind == "add":
                words.insert(at, drawn.choice(FILLERS))
            elif kind == "replace":
                words[at] = drawn.choice(FILLERS)
            elif kind == "swap":
                words[at : at + 2] = words[at : at + 2][::-1]
        return " ".join(words)

    return change


def _letters(share: float, table: dict[str, str]) -> Change:
    def change(text: str, drawn: random.Random) -> str:
        return "".join(
            drawn.choice(table[char]) if char in table and drawn.random() < share else char
            for char in text
        )

    return change


def _between(share: float, what: str) -> Change:
    def change(text: str, drawn: random.Random) -> str:
        pieces = []
        for one, other in zip(text, f"{text[1:]} ", strict=True):
            inside = one.isalpha() and other.isalpha() and drawn.random() < share
            pieces.append(one + drawn.choice(what) if inside else one)
        return "".join(pieces)

    return change


def _numbers(text: str, drawn: random.Random) -> str:
    called = f"{drawn.randrange(10**9, 10**10)}"
    changed = re.sub(r"\d", lambda _: str(drawn.randrange(10)), text)
    return f"{changed} Call {called}"


def _shouted(text: str, drawn: random.Random) -> str:
    return re.sub(r"\s", drawn.choice(["  ", " - ", " * "]), text.upper()) + "!" * drawn.randrange(
        4
    )


def _framed(text: str, drawn: random.Random) -> str:
    return (
        f"{drawn.choice(['Hi', 'Hello dear', 'FYI:'])} {text} {drawn.choice(['thx', '😀', 'ok?'])}"
    )


FILLERS = "please now really today again just maybe also here there still only quite soon".split()

LOOK_ALIKES = {
    "a": "аɑα", "c": "сϲ", "e": "её", "i": "іí", "o": "оο0", "p": "рρ", "s": "ѕ", "x": "хх",
    "y": "уý", "A": "АΑ", "B": "ВΒ", "E": "ЕΕ", "H": "НΗ", "K": "КΚ", "M": "МΜ", "O": "ОΟ",
    "T": "ТΤ", "P": "РΡ",
}  # fmt: skip
LEET = {"a": "4@", "e": "3", "i": "1!", "o": "0", "s": "5$", "t": "7", "A": "4", "E": "3", "O": "0"}

CHANGES: dict[str, Change] = {
    "typos in 1 of 10 words": _typos(0.1),
    "typos in 2 of 10 words": _typos(0.2),
    "1 of 10 words dropped": _words(0.1, "drop"),
    "1 of 10 words added": _words(0.1, "add"),
    "1 of 10 words replaced": _words(0.1, "replace"),
    "1 of 10 words swapped": _words(0.1, "swap"),
    "other numbers": _numbers,
    "capitals and signs": _shouted,
    "greeting and end": _framed,
    "look-alikes, 10 %": _letters(0.1, LOOK_ALIKES),
    "look-alikes, 40 %": _letters(0.4, LOOK_ALIKES),
    "leet, 10 %": _letters(0.1, LEET),
    "leet, 25 %": _letters(0.25, LEET),
    "zero-width, 40 %": _between(0.4, "\u200b\u200d\u2060"),
    "dots or spaces, 40 %": _between(0.4, ". "),
}
"""The changes written here."""


def library_changes(seed: int) -> dict[str, Change]:
    """Return character operations of nlpaug, in one word of ten.

    Raises:
        PeerMissingError: it is not installed.
    """
    try:
        char: Any = import_module("nlpaug.augmenter.char")
    except ImportError as error:
        raise PeerMissingError("nlpaug is not installed: pip install nlpaug") from error
    share = {"aug_word_p": 0.1, "aug_word_max": None, "aug_char_max": 2}
    makers = {
        "keyboard": lambda: char.KeyboardAug(**share, include_special_char=False),
        "OCR": lambda: char.OcrAug(**share),
        "random insert": lambda: char.RandomCharAug(action="insert", **share),
        "random substitute": lambda: char.RandomCharAug(action="substitute", **share),
        "random delete": lambda: char.RandomCharAug(action="delete", **share),
        "random swap": lambda: char.RandomCharAug(action="swap", **share),
    }

    def changing(make: Callable[[], Any]) -> Change:
        augmenter = make()

        def change(text: str, drawn: random.Random) -> str:
            random.seed(drawn.random())  # the library draws from the module
            return str(augmenter.augment(text)[0])

        return change

    numpy: Any = import_module("numpy")
    numpy.random.seed(seed)
    return {f"nlpaug: {name}": changing(make) for name, make in makers.items()}

"""Extractors for text that somebody has disguised: what a reader still reads, as three letters.

Problem: a filter compares bytes, a person reads letters. ``FREE``, ``F R E E``, ``fr33`` and
``FREE`` with two Cyrillic letters read alike and share hardly a byte.

Idea: undo what a reader overlooks, in three steps, each an extractor of its own so that one can
measure what it buys:

1. `homoglyphs`: letters of other scripts and letters with marks become the Latin ones they look
   like; what is invisible goes.
2. `squeezed`: and only letters stay, so that spaces and punctuation between them say nothing.
3. `folded`: and digits and signs inside words become the letters they stand for. ``1`` stands for
   i and for l, so these two become one.

All three end with runs of three characters, as the shipped recipe ``text``. They take a text after
masks and case folding, and any bytes: what is not UTF-8 is dropped.
"""

from __future__ import annotations

# ruff: noqa: RUF001 -- look-alikes are what this is about
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

LOOKALIKES = {
    "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ѕ": "s", "і": "i", "ј": "j", "к": "k",
    "м": "m", "н": "h", "о": "o", "р": "p", "т": "t", "у": "y", "х": "x", "ӏ": "l", "ԛ": "q",
    "α": "a", "β": "b", "ε": "e", "η": "n", "ι": "i", "κ": "k", "ν": "v", "ο": "o", "ρ": "p",
    "τ": "t", "υ": "u", "χ": "x", "ω": "w", "ѵ": "v",
}  # fmt: skip
"""Lower-case letters of other scripts, and the Latin ones they pass for."""

LEET = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "9": "g",
        "@": "a", "$": "s", "!": "i", "|": "i", "+": "t", "l": "i"}  # fmt: skip
"""Digits and signs, and the letters they stand for inside a word; and l, to be one with i."""

_LATIN = re.compile(r"LATIN (?:SMALL LETTER|LETTER SMALL CAPITAL) (?:SCRIPT |DOTLESS )?([A-Z])\b")
"""Unicode's name of a letter that is some form of a Latin one: with a stroke, a small capital."""

_LEET = str.maketrans(LEET)
_PLACEHOLDER = re.compile("\x1a[a-z0-9_]*")
# A word of letters and what stands for letters. A sign at its end is punctuation, and a word that
# holds no letter is none.
_WORD = re.compile(r"[0-9@$!|+]*[a-z](?:[a-z0-9@$!|+]*[a-z0-9@$|+])?")
_OTHER = re.compile(r"[^a-z]+")


def homoglyphs(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Three characters in a row, once look-alikes are the letters they look like.

    >>> [feature for feature, _ in homoglyphs("fr\\u0435\\u0435".encode())]
    [b'fre', b'ree']
    """
    return _threes(_seen(text))


def squeezed(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Three letters in a row, whatever stands between them.

    >>> [feature for feature, _ in squeezed(b"f r-e.e")]
    [b'fre', b'ree']
    """
    return _threes(_OTHER.sub("", _PLACEHOLDER.sub(" ", _seen(text))))


def folded(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Three letters in a row, digits and signs inside words read as letters.

    >>> [feature for feature, _ in folded(b"fr33 m!1k!")]
    [b'fre', b'ree', b'eem', b'emi', b'mii', b'iik']
    """
    read = _WORD.sub(_unleeted, _PLACEHOLDER.sub(" ", _seen(text)))
    return _threes(_OTHER.sub("", read))


def _seen(text: bytes) -> str:
    """The text as it looks: Latin letters for their look-alikes, marks and invisible parts gone."""
    seen = text.decode("utf-8", "ignore")
    if seen.isascii():
        return seen
    return "".join(map(_letter, unicodedata.normalize("NFKD", seen)))


@lru_cache(maxsize=4096)
def _letter(character: str) -> str:
    """What a character looks like; itself if like nothing else, empty if it is not seen."""
    if character.isascii():
        return character
    if unicodedata.category(character) in ("Mn", "Cf"):
        return ""
    latin = _LATIN.match(unicodedata.name(character, ""))
    return latin[1].lower() if latin else LOOKALIKES.get(character, character)


def _unleeted(word: re.Match[str]) -> str:
    return word.group().translate(_LEET)


def _threes(text: str) -> Iterator[tuple[bytes, int]]:
    """Three characters in a row; a shorter text as it is."""
    for start in range(max(min(1, len(text)), len(text) - 2)):
        yield text[start : start + 3].encode(), 1

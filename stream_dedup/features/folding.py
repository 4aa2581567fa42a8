r"""Folding of look-alikes: what a reader reads in a text, as letters and three symbols.

Problem: a filter compares bytes, a person reads letters. ``FREE``, ``F R E E``, ``fr33`` and
``FREE`` with two Cyrillic letters read alike and share hardly a byte.

Idea: undo what a reader overlooks, in two steps.

1. *Characters*, one by one, by a table made from Unicode's data (`look_alikes.txt`): NFKD; marks
   and invisible characters dropped; case folding; and letters of other scripts, letters with
   strokes and symbols become the ASCII ones that they look like. Letters that look like none stay,
   also the bytes of what is not UTF-8, so that texts in other encodings still differ. Whatever else
   there is, emoji for example, becomes a space.
2. *Tokens*, from left to right, the first that matches (`_TOKEN`): links, addresses and numbers
   become one symbol each (``/``, ``@``, ``#``); digits and signs inside words become the letters
   that they stand for. Of the rest only letters are left, without anything between them.

``1`` and a capital I stand for i and for l, so these two become one, i.

A text in which no letter is left stays as it is, but for runs of white space: else all numbers were
the same text, and all emoji.

``fold(b"Fr\xd0\xb5\xd0\xb5 m0n3y: \$1,000 at www.example.com!")`` in steps:

    free m0n3y: $1,000 at www.example.com!
    free money       #  at /
    freemoney#at/

Where words and numbers tell texts apart, as in addresses and bibliographies, `fold_words` does the
first step alone, and leaves letters and digits, with two spaces around each word. So three
characters in a row lie within one word or at its ends, and words count in any order:
``  free  m0n3y  1  000  at  www  example  com  ``.

Texts that people write and senders of spam disguise need both: without words, long names that
strangers share weigh too much, and without numbers so do addresses of one street. `fold_both`
leaves the folded text, after it its words with two spaces around each, and then its numbers with
three. Disguises that tear words apart change only the words:
``freemoney#at/  free  money  at   1   000   ``.

Time and space are linear in the text; one character leaves at most 18, and its word as many.

Of folded texts `Passages` leaves out what many texts have in common (`boilerplate`): from left to
right, the longest passage that begins there. ``seeyousentfrommyiphone`` is then ``seeyou``. All
words and numbers of such a text are left out too, as nobody knows which are the passage's.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from types import ModuleType
from typing import NamedTuple

from stream_dedup.native import module_or

HANGUL, HANGUL_SYLLABLES = 0xAC00, 11_172
"""The first syllable, and how many there are."""

_URL = r"[!#-&(-;=?-{}~]"  # what a link is made of: printable ASCII but for quotes, <, > and |
_LEET = r"[013457-9@$!|+]"
_RUN = r"[0-9@$!|+]"

_TOKEN = re.compile(
    # A link: with a scheme, with www., or a name of two labels or more and a path.
    rf"(?P<url>(?<![a-z0-9])(?:[a-z][a-z0-9+.-]{{1,15}}+://{_URL}|www\.{_URL}"
    rf"|(?=[a-z0-9.-]{{3,89}}+/)[a-z0-9][a-z0-9.-]{{0,63}}\.[a-z]{{2,24}}/){_URL}*)"
    r"|(?P<email>(?<![a-z0-9])[a-z0-9][a-z0-9._%+-]{0,63}+@[a-z0-9-]+(?:\.[a-z0-9-]+)+)"
    # A run of digits and signs, read as letters: three between letters, two at a word's end, where
    # ! + | are punctuation, one before three letters, of which digits may be the last two.
    rf"|(?P<leet>(?<=[a-z]){_LEET}{{1,3}}(?=[a-z])"
    rf"|(?<=[a-z]){_LEET}?[013457-9@$](?=[!|+]*(?!{_RUN}|[a-z]))"
    rf"|(?<!{_RUN}){_LEET}(?=[a-z][a-z013457-9@$]{{2}}))"
    r"|(?P<number>[0-9]+(?:[,.:/-][0-9]+)*)"
    r"|(?P<letters>[a-z]+|[^\x00-\x7f]+)"
)

_WORD = re.compile(r"(?:[a-z0-9]|[^\x00-\x7f])+")
_DIGITS = re.compile(r"[0-9]+")

SYMBOLS = {"url": "/", "email": "@", "number": "#"}

LETTERS = str.maketrans("01345789@$!|+l", "oieastbgasiiti")
"""What digits and signs stand for; and l, which becomes one with i."""


MIN_PASSAGE_BYTES = 8
"""The least bytes of a passage: a search looks for these first."""

WORDS = b"  "
"""What begins the words of a text folded by `fold_both`; no other folded text holds it."""


class Table(NamedTuple):
    """What is left of each character.

    Attributes:
        left: of single characters.
        kept: the ranges of characters that stay themselves: the first of each, and the last.
    """

    left: dict[int, str]
    kept: tuple[list[int], list[int]]

    def __getitem__(self, code: int) -> str:  # type: ignore[override] # for `str.translate`
        """Return what is left of a character, given as a code point."""
        found = self.left.get(code)
        if found is not None:
            return found
        if 0 <= code - HANGUL < HANGUL_SYLLABLES:
            return jamo(code)
        first, last = self.kept
        index = bisect_right(first, code) - 1
        # Surrogates stand for bytes that are not UTF-8.
        kept = (index >= 0 and code <= last[index]) or 0xDC80 <= code <= 0xDCFF
        return chr(code) if kept else " "


def jamo(code: int) -> str:
    """Return the two or three letters of a Hangul syllable: Unicode, section 3.12."""
    lead, rest = divmod(code - HANGUL, 21 * 28)
    vowel, trail = divmod(rest, 28)
    return chr(0x1100 + lead) + chr(0x1161 + vowel) + (chr(0x11A7 + trail) if trail else "")


@cache
def table() -> Table:
    """Read the table."""
    left: dict[int, str] = {}
    kept: list[range] = []
    file = resources.files("stream_dedup.features") / "look_alikes.txt"
    for line in file.read_text("ascii").splitlines():
        target, tab, codes = line.partition("\t")
        if not tab:
            continue  # a comment
        ranges = []
        for each in codes.split(" "):
            first, _, last = each.partition("-")
            ranges.append(range(int(first, 16), int(last or first, 16) + 1))
        if target == "keep":
            kept = ranges
            continue
        text = "" if target == "drop" else target.encode().decode("unicode_escape")
        for each_range in ranges:
            left.update(dict.fromkeys(each_range, text))
    return Table(left, ([r.start for r in kept], [r.stop - 1 for r in kept]))


def fold_characters(text: bytes) -> str:
    """Return what is left of a text's characters, the first step of folding."""
    return text.decode("utf-8", "surrogateescape").translate(table())


def fold(texts: Sequence[bytes]) -> list[bytes]:
    r"""Fold several texts.

    >>> fold([b"F.R.E.E  m0n3y!", b"Fr\xd0\xb5\xd0\xb5 money", b"call 0800 or b0b@mail.example"])
    [b'freemoney', b'freemoney', b'caii#or@']
    """
    return [_fold(text, with_words=False) for text in texts]


def fold_both(texts: Sequence[bytes]) -> list[bytes]:
    r"""Fold several texts, and leave their words and numbers too.

    >>> fold_both([b"F.REE  m0n3y: 0800/12!", b"12 34"])
    [b'freemoney#  f  ree  money   0800   12   ', b'12 34']
    """
    return [_fold(text, with_words=True) for text in texts]


def fold_words(texts: Sequence[bytes]) -> list[bytes]:
    r"""Leave the words of several texts, as they look.

    >>> fold_words([b"Auer, P.: Gambling (1995)", b"R\xc3\xbcck\xc2\xadweg 7", b"!?"])
    [b'  auer  p  gambling  1995  ', b'  ruckweg  7  ', b'!?']
    """
    return [_fold_words(text) for text in texts]


def _fold_words(text: bytes) -> bytes:
    words = _WORD.findall(fold_characters(text))
    if not words:
        return b" ".join(text.split())
    return f"  {'  '.join(words)}  ".encode("utf-8", "surrogateescape")


def _fold(text: bytes, *, with_words: bool) -> bytes:
    out: list[str] = []
    words: list[str] = []
    numbers: list[str] = []
    end = -1  # of the word
    for match in _TOKEN.finditer(fold_characters(text)):
        symbol = SYMBOLS.get(match.lastgroup or "")
        out.append(symbol or match.group().translate(LETTERS))
        if symbol is None:
            if match.start() != end:
                words.append("  ")
            words.append(out[-1])
            end = match.end()
        else:
            end = -1
            if symbol == SYMBOLS["number"]:
                numbers += (f"   {digits}" for digits in _DIGITS.findall(match.group()))
    if not words:
        return b" ".join(text.split())
    if with_words:
        out += [*words, *numbers, "   " if numbers else "  "]
    return "".join(out).encode("utf-8", "surrogateescape")


class Passages:
    """Passages that are left out of folded texts.

    Args:
        passages: folded, of at least `MIN_PASSAGE_BYTES` bytes.

    Raises:
        ValueError: one is shorter.
    """

    def __init__(self, passages: Iterable[bytes]) -> None:
        self._by_head: dict[bytes, list[bytes]] = {}
        for passage in sorted(set(passages), key=len, reverse=True):
            if len(passage) < MIN_PASSAGE_BYTES:
                least = MIN_PASSAGE_BYTES
                raise ValueError(f"the passage {passage!r} has fewer than {least} bytes")
            self._by_head.setdefault(passage[:MIN_PASSAGE_BYTES], []).append(passage)

    def leave_out(self, texts: Sequence[bytes]) -> list[bytes]:
        """Leave the passages out of several texts, except where no letter would be left.

        >>> Passages([b"sentfrommyiphone"]).leave_out([b"seeyousentfrommyiphone", b"seeyou"])
        [b'seeyou', b'seeyou']
        >>> Passages([b"sentfrommyiphone"]).leave_out([b"#sentfrommyiphone"])
        [b'#sentfrommyiphone']
        """
        return [self._leave_out(text) for text in texts]

    def _leave_out(self, text: bytes) -> bytes:
        head = text.partition(WORDS)[0]
        kept: list[bytes] = []
        start = at = 0
        while at + MIN_PASSAGE_BYTES <= len(head):
            found = self._by_head.get(head[at : at + MIN_PASSAGE_BYTES], ())
            passage = next((each for each in found if head.startswith(each, at)), b"")
            if passage:
                kept.append(head[start:at])
                start = at + len(passage)
            at += len(passage) or 1
        if not kept:
            return text
        left = b"".join([*kept, head[start:]])
        return left if left.strip(b"/@#") else text


def folded_passages(passages: Sequence[str]) -> list[bytes]:
    """Fold passages as they are folded inside a text.

    >>> folded_passages(["Reply STOP to 80888!", "-- 12"])
    [b'repiystopto#', b'#']
    """
    # With letters behind it, a passage without letters is folded too.
    folded = fastest().fold([passage.encode("utf-8", "replace") + b" aa" for passage in passages])
    return [each[:-2] for each in folded]


def fastest() -> ModuleType:
    """Return the native module if it is in use, or this one."""
    return module_or("features._folding", sys.modules[__name__])

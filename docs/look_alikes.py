"""Generate the table of `stream_dedup.features.folding` from Unicode's data files.

    python -m docs.look_alikes FOLDER

The folder holds four files of one version of Unicode: ``UnicodeData.txt``, ``CaseFolding.txt``,
``DerivedCoreProperties.txt`` (Debian's package ``unicode-data`` has these) and ``confusables.txt``
(ICU's source has it, in ``icu/source/data/unidata``; on unicode.org it is under ``security``).

For each character the table says what is left of it: nothing, itself, or other characters. These
are found by the steps that `fold_character` takes. Recipes with ``text.fold = "look-alikes"`` keep
their digests, so their table stays as it is: another version of Unicode would be another value of
``text.fold``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parents[1] / "stream_dedup" / "features" / "look_alikes.txt"

VERSION = "15.0.0"

HEADER = f"""\
# What folding leaves of each character; see folding.py. Written by docs/look_alikes.py.
#
# Each line: what is left, a tab, and the characters of which it is left, in hexadecimal. "drop" is
# nothing, "keep" the character itself. Characters without a line leave a space; Hangul syllables
# leave their letters, which are computed.
#
# Source: UnicodeData, CaseFolding, DerivedCoreProperties and confusables of Unicode {VERSION}. Its
# licence (SPDX: Unicode-DFS-2016) asks for this notice:
#
# COPYRIGHT AND PERMISSION NOTICE
#
# Copyright (c) 1991-2022 Unicode, Inc. All rights reserved. Distributed under the Terms of Use in
# https://www.unicode.org/copyright.html.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of the Unicode data
# files and any associated documentation (the "Data Files") or Unicode software and any associated
# documentation (the "Software") to deal in the Data Files or Software without restriction,
# including without limitation the rights to use, copy, modify, merge, publish, distribute, and/or
# sell copies of the Data Files or Software, and to permit persons to whom the Data Files or
# Software are furnished to do so, provided that either (a) this copyright and permission notice
# appear with all copies of the Data Files or Software, or (b) this copyright and permission
# notice appear in associated Documentation.
#
# THE DATA FILES AND SOFTWARE ARE PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
# IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A
# PARTICULAR PURPOSE AND NONINFRINGEMENT OF THIRD PARTY RIGHTS. IN NO EVENT SHALL THE COPYRIGHT
# HOLDER OR HOLDERS INCLUDED IN THIS NOTICE BE LIABLE FOR ANY CLAIM, OR ANY SPECIAL INDIRECT OR
# CONSEQUENTIAL DAMAGES, OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS,
# WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN
# CONNECTION WITH THE USE OR PERFORMANCE OF THE DATA FILES OR SOFTWARE.
#
# Except as contained in this notice, the name of a copyright holder shall not be used in
# advertising or otherwise to promote the sale, use or other dealings in these Data Files or
# Software without prior written authorization of the copyright holder.
"""

LEET = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "9": "g", "!": "i"}
"""What a letter means that looks like one of these."""

_LATIN = re.compile(
    r"(?:LATIN (?:SMALL LETTER|LETTER SMALL CAPITAL) (?:SCRIPT |DOTLESS |OPEN )?"
    r"|(?:CROSSED )?NEGATIVE (?:SQUARED|CIRCLED) LATIN CAPITAL LETTER "
    r"|REGIONAL INDICATOR SYMBOL LETTER )([A-Z])\b"
)
"""Names of the forms of Latin letters: with a stroke or hook, as a small capital, as a symbol."""


class Unicode:
    """What the data files say.

    Attributes:
        names, categories, classes: of each assigned character; classes are combining classes.
        digits: the value of characters that are a single digit.
        decompositions: the direct decompositions, canonical and compatible.
        upper, folded, confusable: the upper-case character, the full case folding, the skeleton.
        ignorable: characters that are not shown.
    """

    def __init__(self, folder: Path) -> None:
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.classes: dict[int, int] = {}
        self.digits: dict[int, str] = {}
        self.decompositions: dict[int, str] = {}
        self.upper: dict[int, str] = {}
        first = 0
        for line in (folder / "UnicodeData.txt").read_text("utf-8").splitlines():
            fields = line.split(";")
            code = int(fields[0], 16)
            if fields[1].endswith(", First>"):
                first = code
            for each in range(first or code, code + 1) if fields[1].endswith(", Last>") else [code]:
                self.names[each], self.categories[each] = fields[1], fields[2]
                self.classes[each] = int(fields[3])
            if fields[1].endswith(", Last>"):
                first = 0
            if fields[5]:
                self.decompositions[code] = _text(re.sub("<.*>", "", fields[5]))
            if fields[7]:
                self.digits[code] = fields[7]
            if fields[12]:
                self.upper[code] = _text(fields[12])
        self.folded = {
            int(code, 16): _text(text)
            for code, status, text, *_ in _rows(folder / "CaseFolding.txt")
            if status in "CF"
        }
        self.confusable = {
            int(code, 16): _text(text) for code, text, *_ in _rows(folder / "confusables.txt")
        }
        self.ignorable = {
            code
            for codes, name, *_ in _rows(folder / "DerivedCoreProperties.txt")
            if name == "Default_Ignorable_Code_Point"
            for code in _range(codes)
        }

    def decomposed(self, text: str) -> str:
        """Return a text in the form NFKD, but for the order of marks and Hangul syllables."""
        return "".join(
            self.decomposed(self.decompositions[ord(c)]) if ord(c) in self.decompositions else c
            for c in text
        )

    def is_dropped(self, character: str) -> bool:
        """Return whether a character is a mark on another, invisible, or a format character.

        Marks of combining class 0 stay: these are vowels of the scripts of India.
        """
        code = ord(character)
        return (
            code in self.ignorable
            or self.classes.get(code, 0) != 0
            or self.categories.get(code) in ("Me", "Cf")
        )

    def bare(self, text: str) -> str:
        """Return a text decomposed and without the characters that are dropped."""
        return "".join(c for c in self.decomposed(text) if not self.is_dropped(c))

    def is_letter(self, character: str) -> bool:
        """Return whether a character is a letter, or a mark that counts as one."""
        return self.categories.get(ord(character), "Cn")[0] in "LM"


def fold_character(unicode: Unicode, character: str) -> str:
    """Return what is left of a character.

    1. NFKD, and of the result what is neither a combining mark nor invisible.
    2. Case folding, and again NFKD.
    3. Each character that is left by itself: `look_alike`.
    """
    cased = "".join(unicode.folded.get(ord(c), c) for c in unicode.bare(character))
    return "".join(look_alike(unicode, c) for c in unicode.bare(cased))


def look_alike(unicode: Unicode, character: str) -> str:
    """Return what a character looks like in ASCII; itself if a letter, else a space, if nothing.

    A letter becomes letters only, so that no text in another script gets digits or punctuation. A
    sign of currency stays one.
    """
    code = ord(character)
    if character.isascii():
        return character if " " < character <= "~" else " "
    if code in unicode.digits and unicode.categories[code][0] == "N":
        return unicode.digits[code]
    category = unicode.categories.get(code, "Cn")
    upper = unicode.upper.get(code, character)
    skeletons = unicode.confusable.get(code), unicode.confusable.get(ord(upper))
    ascii_ones = [bare for s in skeletons if s and (bare := unicode.bare(s)).isascii() and bare]
    names = [unicode.names.get(ord(s), "") for s in (character, skeletons[0]) if s and len(s) == 1]
    ascii_ones += [latin[1] for name in names if (latin := _LATIN.match(name))]
    for skeleton in [s.lower() for s in ascii_ones]:
        # Unicode's skeleton of m is rn, of | is l.
        found = "m" if skeleton == "rn" else skeleton
        if unicode.is_letter(character):
            found = LEET.get(found, found)
            if found.isalpha():
                return found
        elif category != "Sc":
            return "|" if found == "l" else found
    return character if unicode.is_letter(character) else " "


def table(unicode: Unicode) -> str:
    """Return the table's text."""
    left: dict[str, list[int]] = {"drop": [], "keep": []}
    for code in range(0x110000):
        character = chr(code)
        if 0xAC00 <= code < 0xAC00 + 11_172 or 0xD800 <= code < 0xE000:
            continue
        found = fold_character(unicode, character)
        if found != " ":
            key = "keep" if found == character else found or "drop"
            left.setdefault(key, []).append(code)
    lines = [
        f"{key.encode('unicode_escape').decode()}\t{' '.join(ranges(codes))}\n"
        for key, codes in left.items()
    ]
    return HEADER + "".join(lines)


def ranges(codes: Iterable[int]) -> Iterator[str]:
    """Yield ascending numbers as ranges in hexadecimal."""
    start = last = -2
    for code in [*codes, -2]:
        if code != last + 1 or code < 0:
            if start >= 0:
                yield f"{start:X}-{last:X}" if start < last else f"{start:X}"
            start = code
        last = code


@cache
def _rows(path: Path) -> list[list[str]]:
    """Return the fields of a data file of this version."""
    text = path.read_text("utf-8-sig")
    if not re.search(rf"Version: {VERSION}|-{VERSION}\.txt", text[:1000]):
        sys.exit(f"{path}: is not of Unicode {VERSION}")
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [[field.strip() for field in line.split(";")] for line in lines if line.strip()]


def _text(codes: str) -> str:
    return "".join(chr(int(code, 16)) for code in codes.split())


def _range(codes: str) -> range:
    first, _, last = codes.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TABLE.write_text(table(Unicode(Path(sys.argv[1]))), "ascii")

"""Folding of look-alikes: examples, native against reference, and the table against Unicode."""

# ruff: noqa: RUF001 -- look-alikes are what this is about

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features import _folding, folding
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe, replace
from tests.fuzz.targets import PIECES
from tests.strategies import texts

KINDS: dict[str, Any] = {"native": _folding, "reference": folding}
MAX_EXPANSION = 18  # characters that one character leaves
FOLDED = {"text__fold": "look-alikes", "features__extractor": "characters"}

hostile = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
any_texts = st.lists(texts | hostile | hostile, max_size=6)

EXAMPLES = [
    # disguises of letters
    ("FREE money", "freemoney"),
    ("Frее mоnеу", "freemoney"),  # Cyrillic
    ("ＦＲＥＥ 𝓯𝓻𝓮𝓮 ⓕⓡⓔⓔ 🅵🆁🅴🅴 ꜰʀᴇᴇ 🇫🇷🇪🇪", "free" * 6),
    ("ƒř€ë", "fre"),  # a sign of currency is none of a letter
    ("frëé łøđ", "freeiod"),
    ("f\u200br\u2060e\u00ade", "free"),  # invisible
    ("f\u3164r\ufe0fe\u0332e\u20dd", "free"),  # fillers, selectors, marks
    ("Ꮲауρаⅼ", "paypai"),
    ("к м т н в ʙ γ η", "kmthbbyn"),
    ("straße ﬁn ǆ", "strassefindz"),
    # between letters
    ("f.r.e.e f r e e f-r_e*e", "free" * 3),
    ("free 😀 money", "freemoney"),
    # digits and signs inside words: three at most
    ("fr33 m0n3y", "freemoney"),
    ("b@@@d b@@@@d", "baaadbd"),
    ("sk8 sk88 sk888", "skbskbbsk#"),  # two at the end
    ("fr33!! free! c++ s|", "freefreecs"),
    ("pa$$ cl1(k", "passciik"),
    ("$ale 4ever +ext |ike !tem @ccount", "saieaevertextiikeitemaccount"),  # one at the beginning
    ("7h3n 7h3", "then#he"),
    ("5pm 3rd $$ale 4us!!", "#pm#rdaie#us"),
    ("abc123 abc26 1a", "abc#abc#" + "#a"),
    # i and l are one, as 1 stands for both
    ("c1ick cIick click", "ciick" * 3),
    # links, addresses and numbers
    ("see https://example.org/a?b=c now", "see/now"),
    ("see HTTP://EXAMPLE.ORG, www.example.com! bit.ly/x9", "see///"),
    ("mail b0b.smith+x@mail.example.org!", "maii@"),
    ("cl@im", "ciaim"),
    ("call 0800-123.456 or 10:30, $1,000 1/2", "caii#or###"),
    ("call ٠٨٠٠ or ０８００ or ➀ or 1️⃣", "caii#or#or#or#"),
    ("1, 2 and 3.", "##and#"),
    ("查看http://x.example/a领取", "查看/领取"),
    # other scripts stay apart
    ("2026年11月23日 第3章", "#年#月#日第#章"),
    ("한글", "한글"),
    ("हिन्दी", "हिनदी"),
    ("日本ノート", "日本ノート"),
    ("caf\udce9 \udced\udca0\udc80", "caf\udce9\udced\udca0\udc80"),  # not UTF-8
    # without letters
    ("12 34", "12 34"),
    (" 12 \t\n 34 ", "12 34"),
    ("😀😀  !", "😀😀 !"),
    ("bit.ly/x a@b.example", "bit.ly/x a@b.example"),
    ("\u0301\u200b", "\u0301\u200b"),
    ("", ""),
    ("  ", ""),
]


@pytest.fixture(params=KINDS)
def fold(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param].fold


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_a_text_folds_to_what_a_reader_reads(fold: Any, text: str, expected: str) -> None:
    folded = fold([text.encode("utf-8", "surrogateescape")])

    assert unicodedata.normalize("NFKD", expected) == folded[0].decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "piece",
    ["\u0301", "\ufdfa", "\udc80", "a@", "a.b@", "a.", "w", "a/", "a-", "1!", "x!!", "https:/"],
)
def test_long_hostile_texts_fold_as_the_reference(piece: str) -> None:
    text = ("e" + piece * 20_000).encode("utf-8", "surrogateescape")

    assert _folding.fold([text, b"after", text]) == folding.fold([text, b"after", text])
    assert _folding.fold_both([text]) == folding.fold_both([text])


def test_many_marks_leave_nothing_and_one_character_18(fold: Any) -> None:
    marks, phrase = "\u0301" * 100_000, "\ufdfa"
    letters = unicodedata.normalize("NFKD", phrase).replace(" ", "").encode()

    folded = fold([f"e{marks}e".encode(), (phrase * 1_000).encode()])

    assert len(unicodedata.normalize("NFKD", phrase)) == MAX_EXPANSION
    assert folded[0] == b"ee"
    assert len(folded[1].decode()) == len(letters.decode()) * 1_000


@given(values=any_texts)
def test_native_folding_equals_the_reference(values: list[bytes]) -> None:
    assert _folding.fold(values) == folding.fold(values)


@pytest.mark.parametrize(
    "piece",
    ["", "w", "ww", "www", "wWW.x", "7", "!", "/", "@", ".", "\0", "\x7f", "\u00e9", "\udc80"],
)
def test_what_is_not_simple_is_found_wherever_it_is(piece: str) -> None:
    words = "Alle ww Leute lallen, wie (sie) wollen.\tXW - " * 4
    texts_ = [
        f"{words[:at]}{piece}{words[at : len(words) - size]}".encode("utf-8", "surrogateescape")
        for at in range(len(words))
        for size in (0, at % 70)
    ]

    assert _folding.fold(texts_) == folding.fold(texts_)


def test_every_character_folds_natively_as_in_the_reference() -> None:
    assigned = *range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200), 0xF0000, 0x10FFFF
    every = [chr(code) for code in assigned]
    lines = [" a".join(every[start : start + 64]).encode() for start in range(0, len(every), 64)]

    assert _folding.fold(lines) == folding.fold(lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P. Auer, 'Gambling' (1995), pp. 322-331.", "  p  auer  gambling  1995  pp  322  331  "),
        ("Ｆull-wídth №7", "  full  width  no7  "),
        ("東京都 千代田区1-1", "  東京都  千代田区1  1  "),
        ("a", "  a  "),
        ("?!  ?", "?! ?"),
        ("", ""),
    ],
)
def test_words_are_left_as_they_look(text: str, expected: str) -> None:
    for kind in KINDS.values():
        folded = kind.fold_words([text.encode()])[0].decode()
        assert unicodedata.normalize("NFKD", expected) == folded


@given(values=any_texts)
def test_words_are_left_natively_as_by_the_reference(values: list[bytes]) -> None:
    assert _folding.fold_words(values) == folding.fold_words(values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F.REE m0n3y!", "  f  ree  money  "),
        ("call 0800/12, or 7", "  caii  or   0800   12   7   "),
        ("3 x5 caf\xe9s, a@b.example www.a.example b1z", "  xs  cafes  biz   3   "),
        ("查看12領取", "  查看  領取   12   "),
    ],
)
def test_words_and_numbers_follow_the_folded_text(text: str, words: str) -> None:
    for kind in KINDS.values():
        (folded,) = kind.fold([text.encode()])
        assert kind.fold_both([text.encode()]) == [folded + words.encode()]


@given(values=any_texts)
def test_both_are_left_natively_as_by_the_reference(values: list[bytes]) -> None:
    both = folding.fold_both(values)

    assert _folding.fold_both(values) == both
    assert [each.partition(folding.WORDS)[0] for each in both] == folding.fold(values)


@given(values=any_texts)
def test_only_letters_and_symbols_are_left(values: list[bytes]) -> None:
    for value, folded in zip(values, folding.fold(values), strict=True):
        if folded != b" ".join(value.split()):
            assert re.fullmatch(rb"[a-z\x80-\xff/@#]+", folded)
            assert re.search(rb"[a-z\x80-\xff]", folded)


@pytest.mark.parametrize("wrong", [["a"], [None], 3, [b"a", 3]])
def test_what_is_not_bytes_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        _folding.fold(wrong)


# ---------------------------------------------------------------- the table


def test_characters_fold_as_pythons_own_data_says() -> None:
    """Of characters that both versions of Unicode have."""
    wrong = []
    for code in range(0x80, 0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Cs", "Co"):
            continue
        left = folding.fold_characters(character.encode())
        plain = "".join(
            c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c)
        )
        expected = plain.casefold() if plain.isascii() else left
        if category == "Nd":
            expected = str(unicodedata.digit(character))
        if category in ("Cf", "Me"):
            expected = ""
        if left != expected or left != left.casefold() or len(left) > MAX_EXPANSION:
            wrong.append((character, left, expected))
    assert wrong == []


def test_letters_become_letters_only() -> None:
    for code in range(0x80, 0x30000):
        character = chr(code)
        if unicodedata.category(character) in ("Ll", "Lo") and not unicodedata.decomposition(
            character
        ):
            left = folding.fold_characters(character.encode())
            assert left == "" or all(c.isalpha() or not c.isascii() for c in left), character


def test_the_table_names_its_source_and_licence() -> None:
    head = (Path(folding.__file__).parent / "look_alikes.txt").read_text("ascii")[:2_000]

    assert "Unicode 15.0.0" in head
    assert "Unicode-DFS-2016" in head


# ---------------------------------------------------------------- recipes


def test_a_recipe_folds_with_the_extension_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["Frее m0n3y".encode(), b"12", b"call 5"]
    recipe = replace(Recipe(), **FOLDED)
    natively = Preparer(recipe)
    monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")
    in_python = Preparer(recipe)

    expected = [b"freemoney", b"12", b"caii#"]
    assert expected == natively.texts(values) == in_python.texts(values)
    modules = [preparer._fold.__module__ for preparer in (natively, in_python) if preparer._fold]
    assert modules == ["stream_dedup.features._folding", "stream_dedup.features.folding"]
    assert natively.changes_text


def test_what_lies_beyond_max_bytes_is_not_folded() -> None:
    preparer = Preparer(replace(Recipe(), input__max_bytes=64, **FOLDED))
    text = b"A " * 32 + b"B C"

    assert preparer.texts([text, b"A b"]) == [b"a" * 32 + b"B C", b"ab"]


def test_patterns_of_texts_folded_to_words_mask_nothing() -> None:
    patterns = Patterns(replace(Recipe(), **{**FOLDED, "text__fold": "words"}))

    assert patterns.pattern(b"Call  0800 now") == "Call 0800 now"


def test_patterns_of_folded_texts_stay_legible() -> None:
    patterns = Patterns(replace(Recipe(), **FOLDED))

    assert patterns.pattern(b"Call  0800 now") == "Call <number> now"

"""Token classes, rule by rule; each table holds for the native kernel as well."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given

from stream_dedup.features.recipe import load_recipe
from stream_dedup.features.tokens import (
    CALENDAR_NAMES,
    LOG_DELIMITERS,
    PLACEHOLDER,
    WORD_DELIMITERS,
    is_variable,
    splitter,
    tokenise,
)
from stream_dedup.fingerprint.siphash import PUBLIC_KEY, siphash
from stream_dedup.native import extension
from tests.strategies import texts

SPLIT = splitter(LOG_DELIMITERS)


def masked(text: bytes, *, classes: bool = True) -> list[bytes]:
    return [token.text for token in tokenise(text, SPLIT, classes=classes)]


def assert_scanned(expected: list[bytes], text: bytes) -> None:
    """Check that the kernel's exact hash is that of the expected tokens, so it saw these."""
    # Between two words: an event that is all placeholders is hashed as it is.
    text, expected = b"one %b two" % text, [b"one", *expected, b"two"]
    hashes = [
        siphash(PUBLIC_KEY, token) ^ (2**64 - 1 if token == PLACEHOLDER else 0)
        for token in expected
    ]
    kernel = extension("fingerprint._kernel").Kernel(load_recipe("logs-1"), PUBLIC_KEY)
    whole = siphash(PUBLIC_KEY, struct.pack(f"<{len(hashes)}Q", *hashes))
    assert whole == kernel.scan([text], full=False).exact[0]


@pytest.mark.parametrize(
    "token",
    [
        # 1. an ASCII digit
        *(b"42 0x1f blk_17 node-3 7 a1 1a -5 3.14 10% v2.0 \xff1 \xc3\xa92".split()),
        # 2. a path
        *(rb"/a // /etc/passwd \a \\host\share ~/a ~// /-".split()),
        # 3. an address
        *(b"a@b root@host a@b@c @@@ x@.".split()),
        # 4. a dotted name with two dots or more, trailing punctuation aside
        *(b"a.b.c www.example.com org.apache.Foo a.b.c. a.b.c! a.b.c... $a._b.c-d".split()),
        *(b"\xc3\xa9.\xc3\xa9.\xc3\xa9 a.b.c/ a.b.c@".split()),
        # what a mask has put there
        b"\x1a",
        b"\x1aip",
    ],
)
def test_a_token_of_a_class_is_variable(token: bytes) -> None:
    assert is_variable(token)
    assert masked(token) == [PLACEHOLDER]
    assert_scanned([b"so", PLACEHOLDER, b"it"], b"so " + token + b" it")


@pytest.mark.parametrize(
    "token",
    [
        *(b"error x _ - $ \x00 \xff \xd9\xa3 \xc2\xb2 Error! a\x1ab".split()),
        *(rb"/ \ ~/ ~ ~a a/b usr/bin a\b -/a".split()),
        *(b"@ @@ @a a@ @a@ @abc abc@".split()),
        *(b"a.b a.b. .a.b a..b ... a. .. a.b.! .a.b.c a.b..c a.b.c/d a.b/c.d.e a.b+c.d".split()),
        *(b"Mon May January mon".split()),
    ],
)
def test_any_other_token_is_a_word(token: bytes) -> None:
    assert not is_variable(token)
    assert masked(token) == [token]
    assert_scanned([b"so", token, b"it"], b"so " + token + b" it")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 5. calendar names before a digit token, directly or after more such names
        (b"Jan 5", [b"<*>"]),
        (b"Mon Jan 5 x", [b"<*>", b"x"]),
        (b"Monday, January 5th", [b"<*>"]),
        (b"on Mon Jan 5", [b"on", b"<*>"]),
        (b"Mon Tue Wed Thu Fri Sat Sun 1", [b"<*>"]),
        (b"May May May May May May May May May 9", [b"<*>"]),
        (b"may 5", [b"may", b"<*>"]),
        (b"JAN 5", [b"JAN", b"<*>"]),
        (b"Janu 5", [b"Janu", b"<*>"]),
        (b"Sept 5", [b"Sept", b"<*>"]),
        (b"Maybe 5", [b"Maybe", b"<*>"]),
        (b"Mon x 5", [b"Mon", b"x", b"<*>"]),
        (b"Mon /a", [b"Mon", b"<*>"]),
        (b"Mon a.b.c 5", [b"Mon", b"<*>"]),
        (b"Mon a@b", [b"Mon", b"<*>"]),
        (b"Mon /a 5", [b"Mon", b"<*>"]),
        (b"Mon /5", [b"<*>"]),
        (b"Jan", [b"Jan"]),
        (b"5 Jan", [b"<*>", b"Jan"]),
        (b"5 Jan 2024", [b"<*>"]),
        (b"x 5 Jan 2024 y", [b"x", b"<*>", b"y"]),
        # runs of variables are one placeholder, whatever parts them
        (b"1 2 3", [b"<*>"]),
        (b"1, /a; a@b = a.b.c", [b"<*>"]),
        (b"1 and 2", [b"<*>", b"and", b"<*>"]),
        (b"[1]{2}(3)", [b"<*>"]),
        # every delimiter parts
        (
            b"a b\tc\nd\re\x0bf\x0cg=h:i,j;k(l)m[n]o{p}q<r>s\"t'u|v",
            [b"%c" % c for c in b"abcdefghijklmnopqrstuv"],
        ),
        (b"", []),
        (b" :: ", []),
        (b"a\x00b \x1f \x85", [b"a\x00b", b"\x1f", b"\x85"]),
        (
            b"Failed password for root from 10.0.0.7 port 4422 ssh2",
            b"Failed password for root from <*> port <*>".split(),
        ),
    ],
)
def test_tokens_of_a_text(text: bytes, expected: list[bytes]) -> None:
    assert masked(text) == expected
    assert_scanned(expected, text)


def test_there_are_twelve_months_and_seven_weekdays_long_and_short() -> None:
    expected = b"""
        January February March April May June July August September October November December
        Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec
        Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Wed Thu Fri Sat Sun
    """.split()

    assert set(expected) == CALENDAR_NAMES
    for name in expected:
        assert_scanned([PLACEHOLDER], name + b" 3")
        assert_scanned([name[:-1], PLACEHOLDER], name[:-1] + b" /x")
        assert_scanned([name + b"x", PLACEHOLDER], name + b"x 3")


def test_without_classes_only_a_masks_substitutes_are_variable() -> None:
    text = b"Jan 5 /a a@b a.b.c \x1aip x"

    assert [*b"Jan 5 /a a@b a.b.c".split(), b"<*>", b"x"] == masked(text, classes=False)


def test_word_delimiters_are_ascii_except_letters_digits_underscore() -> None:
    split = splitter(WORD_DELIMITERS)

    assert set(bytes(range(128))) - set(WORD_DELIMITERS) == set(
        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_\x1a"
    )
    assert [
        token.text for token in tokenise(b"don't -- a_b, n\xc3\xa9e!", split, classes=False)
    ] == [b"don", b"t", b"a_b", b"n\xc3\xa9e"]


@given(text=texts)
def test_token_offsets_are_right_and_words_are_verbatim(text: bytes) -> None:
    tokens = list(tokenise(text, SPLIT, classes=True))

    assert sorted(tokens, key=lambda token: token.start) == tokens
    for token, follower in pairwise(tokens):
        assert token.end <= follower.start
        assert not (token.variable and follower.variable)
    for token in tokens:
        assert token.variable or text[token.start : token.end] == token.text
    # What no token covers is delimiters.
    kept = bytearray(text)
    for token in reversed(tokens):
        del kept[token.start : token.end]
    assert set(kept) <= set(LOG_DELIMITERS)

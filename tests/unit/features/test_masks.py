"""Named masks, masks of one's own, their order, and their time on hostile input."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given

from stream_dedup.features.masks import NAMED, Masker, named
from stream_dedup.features.recipe import parse_recipe
from tests.strategies import texts

MATCHES = {
    "url": [
        "http://example.com",
        "https://user:pw@host:8080/a/b?c=d&e=f#g",
        "ftp://10.0.0.1/x",
        "s3+x://bucket/key",
    ],
    "email": ["a@b.c", "first.last+tag@mail.example.co.uk", "x_%-1@a-b.org"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
    "mac": ["00:1a:2B:3c:4D:5e", "00-1a-2b-3c-4d-5e"],
    "timestamp": [
        "2024-01-31T23:59:59",
        "2024-01-31T23:59:59.123456Z",
        "2024-01-31 23:59:59,123 +0100",
        "2024/1/5 7:05:09",
        "31/Jan/2024:23:59:59 +0000",
        "Jan  5 07:05:09",
        "Mon Jan 15 07:05:09 2024",
        "Monday, 15-Jan-2024 07:05:09",
        "2024-01-31",
        "23:59:59",
        "07:05:09.123",
    ],
    "ipv4": ["0.0.0.1", "10.0.0.255", "192.168.1.0/24", "255.255.255.255"],
    "ipv6": [
        "2001:db8:0:0:0:0:2:1",
        "fe80::1",
        "2001:db8::2:1",
        "::1",
        "::ffff:ab",
    ],
    "path": [
        "/a",
        "/usr/lib/x86_64.so.1",
        "~/notes.txt",
        "//x",
        r"C:\Windows\x.dll",
        r"\\host\share",
    ],
    "hex": ["0x0", "0XdeadBEEF", "deadbeef", "0123456789abcdef"],
    "number": ["0", "42", "-1", "+5", "3.14", "1,234,567.8", "6.02e23", "1e-9", "99%"],
}

MATCHES_NOT = {
    "url": ["http:/x", "://x", "example.com", "HTTP", "a://b"],
    "email": ["a@b", "@b.c", "a b.c", "root@", "a@.b"],
    "uuid": [
        "123e4567e89b12d3a456426614174000",
        "123e4567-e89b-12d3-a456-42661417400",
        "123e4567-e89b-12d3-a456-4266141740000",
        "g23e4567-e89b-12d3-a456-426614174000",
    ],
    "mac": ["00:1a:2b:3c:4d", "00:1a:2b:3c:4d:5g", "001a2b3c4d5e"],
    "timestamp": ["Jan 5", "2024", "12:34", "Mon", "May", "99:99:99", "1.2.3"],
    "ipv4": ["1.2.3", "256.1.1.1.", "1.2.3.999", "a.b.c.d"],
    "ipv6": ["::", "1:2:3", "12:34:56", "std::string", "a:b"],
    "path": ["/", "a/b", "and/or", "application/json", "~", "C:", "/ a"],
    "hex": ["0x", "dead", "xdeadbeef", "deadbeeg", "0xg"],
    "number": ["a1", "x", "node3", "", "-", "ab12cd"],
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_mask_matches_the_whole_of_what_it_should(name: str) -> None:
    masker = Masker(named([name]))

    actual = {text: masker.rename(b"x " + text.encode() + b" y") for text in MATCHES[name]}

    assert {text: b"x <%b> y" % name.encode() for text in MATCHES[name]} == actual


@pytest.mark.parametrize("name", NAMED)
def test_a_named_mask_matches_nothing_else(name: str) -> None:
    masker = Masker(named([name]))

    actual = [masker.rename(b"x " + text.encode() + b" y") for text in MATCHES_NOT[name]]

    assert [b"x " + text.encode() + b" y" for text in MATCHES_NOT[name]] == actual


def test_where_several_masks_match_the_most_specific_names_it() -> None:
    masker = Masker(named(NAMED))
    line = (
        b"2024-01-31T23:59:59Z a@b.org http://1.2.3.4/x 1.2.3.4 "
        b"::1 /var/log 0xff 00:1a:2b:3c:4d:5e 7"
    )

    assert (
        masker.rename(line)
        == b"<timestamp> <email> <url> <ipv4> <ipv6> <path> <hex> <mac> <number>"
    )


def test_named_masks_are_tried_in_their_fixed_order() -> None:
    assert [name for name, _ in named(["number", "ipv4", "url"])] == ["url", "ipv4", "number"]
    assert named([]) == []


def test_own_masks_come_before_named_ones_and_in_their_order() -> None:
    document = {
        "text": {
            "mask": [{"name": "two", "pattern": "[0-9]{2}"}, {"name": "any", "pattern": "[0-9x]+"}],
            "masks": ["number"],
        }
    }
    recipe = parse_recipe(document, "test", Path())

    assert [name for name, _ in recipe.masks] == ["two", "any", "number"]
    assert Masker(recipe.masks).rename(b"12 x 123") == b"<two> <any> <two><any>"


@pytest.mark.parametrize(
    ("masks", "text", "expected"),
    [
        ([("a", "(x)(y)?"), ("b", "z")], b"x xy z", b"<a> <a> <b>"),
        ([("a", "(x)|((y)|w)"), ("b", "(?P<n>z)"), ("c", "(?:(q))")], b"xywzq", b"<a><a><a><b><c>"),
        ([("a", "(?P<n>x)"), ("b", "(?P<n>y)")], b"yx", b"<b><a>"),
        ([("a", "x|y"), ("b", "z|w")], b"wzyx", b"<b><b><a><a>"),
        ([("a", "(?i)x"), ("b", "y")], b"XYy", b"<a>Y<b>"),
    ],
)
def test_groups_and_flags_in_a_mask_do_not_shift_names(
    masks: list[tuple[str, str]], text: bytes, expected: bytes
) -> None:
    assert Masker(masks).rename(text) == expected


def test_a_substitute_is_between_spaces_and_names_its_mask() -> None:
    masker = Masker([("ip", "[0-9.]+")])

    assert masker.substitute(b"from1.2.3.4:x") == b"from \x1aip :x"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+$", "([a-z]+)*=", "(.*a){12}b"])
def test_a_pathological_pattern_takes_linear_time(pattern: str) -> None:
    masker = Masker([("evil", pattern)])
    text = b"a" * 100_000 + b"!"
    start = time.perf_counter()

    masker.substitute(text)

    # Backtracking would take longer than the universe is old; RE2 takes some milliseconds.
    assert time.perf_counter() - start < 5


@given(text=texts)
def test_masks_take_any_bytes(text: bytes) -> None:
    masker = Masker(named(NAMED))

    assert masker.substitute(text).count(b"\x1a") >= text.count(b"\x1a")
    assert isinstance(masker.rename(text), bytes)

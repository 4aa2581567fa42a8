"""Patterns: what people read as a cluster's name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.patterns import MAX_PATTERN, Patterns, readable
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.features.values import SlotReader
from tests.strategies import documents, plain_words, recipes, texts

LOGS = Patterns(load_recipe("logs"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ""),
        (b"all is well", "all is well"),
        (
            b"Failed password for root from 10.0.0.7 port 4422 ssh2",
            "Failed password for root from <ipv4> port <number> <*>",
        ),
        (b"open /var/log/x: no", "open <path>: no"),
        (b"id=123e4567-e89b-12d3-a456-426614174000;", "id=<uuid>;"),
        (b"[2024-01-31T23:59:59Z] up", "[<timestamp>] up"),
        (b"Jan  5 07:05:09 host1 up", "<timestamp> <*> up"),
        (b"11-24 16:00:00.123 I gone", "<timestamp> I gone"),
        (b"25/11/24 16:00:00 INFO gone", "<timestamp> INFO gone"),
        (b"251124 16:00:00 [Note] gone", "<timestamp> [Note] gone"),
        (b"Nov 24 2025 16:00:00 fw: gone", "<timestamp> fw: gone"),
        (b"11/24/2025, 04:00:02 PM gone", "<timestamp> gone"),
        (b"24-NOV-2025 16:00:02 gone", "<timestamp> gone"),
        (b"Mon Nov 24 16:00:02 CET 2025 gone", "<timestamp> gone"),
        (b"16:00:02 POST /a", "<timestamp> POST <path>"),
        (b"took 10-24 of 16 items", "took <*> of <number> items"),
        (b"mail to a.b@c.org sent", "mail to <email> sent"),
        (b"by www.example.com now", "by <*> now"),
        (b"took 5ms, 7ms and 9", "took <*> and <number>"),
        (b"sizes 1, 2, 3 given", "sizes <number> given"),
        (b"a \x1aip b", "a<ip>b"),
        (b"10.0.0.1:53->10.0.0.2:4411 udp", "<ipv4>:<number>-><ipv4>:<number> udp"),
        (b"5 -> /a, a7- > b8 up", "<number> -> <path>, <*> up"),
    ],
)
def test_placeholders_are_named(text: bytes, expected: str) -> None:
    assert LOGS.pattern(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a\x1b", "a\\x1b"),
        (b"bell\x07 nul\x00", "bell\\x07 nul\\x00"),
        (b"one\ntwo\tthree", "one two three"),
        (b"cr\rhere", "cr\\rhere"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("é ﬀ 漢".encode(), "é ﬀ 漢"),
        ("right\u202eleft".encode(), "right\\u202eleft"),
        ("zero\u200bwidth".encode(), "zero\\u200bwidth"),
        ("next\x85line".encode(), "next\\x85line"),
    ],
)
def test_unprintable_characters_are_escaped(text: bytes, expected: str) -> None:
    assert readable(text, 100) == expected
    assert Patterns(load_recipe("logs-1")).pattern(text) == expected


def test_a_value_of_punctuation_is_shown_as_a_variable() -> None:
    assert Patterns(load_recipe("logs")).pattern(b'got {"accept":"*/*"}') == 'got {"accept":"<*>"}'


def test_a_long_pattern_is_cut_and_says_so() -> None:
    shown = LOGS.pattern(b"word " * 10_000)

    assert (len(shown), shown[-1]) == (MAX_PATTERN, "…")
    assert LOGS.pattern(b"x" * MAX_PATTERN) == "x" * MAX_PATTERN


def test_a_pattern_shows_fields_by_their_names() -> None:
    recipe = replace(
        load_recipe("logs"),
        input__fields=[{"path": "msg"}, {"path": "user.*"}],
        match__variants=["level", "status"],
    )
    document = {"msg": "failed at 10.0.0.1", "user": {"id": 7, "name": "root"}}

    expected = "msg=failed at <ipv4> user.id=<number> user.name=root"
    assert Patterns(recipe).pattern(b"ignored", document) == expected
    assert Patterns(recipe).pattern(b"ignored", None) == "ignored"


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (b'level=debug msg="Scrape failed" err="refused"', ("DEBUG",)),
        (b'{"level":"info","msg":"a","error":null}', ("INFO",)),
        (b"{'level': 'info', 'error': 7}", ("INFO",)),
        (b"ERROR: disk a is full", ("ERROR",)),
        (b"level=error: disk a is full", ("ERROR",)),
        (b'{"level": "error"}', ("ERROR",)),
    ],
)
def test_a_key_is_not_shown_as_a_level(text: bytes, levels: tuple[str, ...]) -> None:
    assert LOGS.shown(text).variant == levels


def test_the_letter_of_klog_is_shown_as_its_level() -> None:
    line = b"E1126 10:02:11.3       7 a.go:5] sync failed"
    assert LOGS.shown(line).variant == ("ERROR",)
    assert LOGS.pattern(line) == "<error> <timestamp>       <number> a.go:<number>] sync failed"


@pytest.mark.parametrize("text", [b"42", b"10.0.0.1 /a", b"[1] {2}", b"Jan 5"])
def test_a_text_without_words_is_its_own_pattern(text: bytes) -> None:
    assert text.decode() == LOGS.pattern(text)


def test_matches_of_masks_are_named_also_without_token_classes() -> None:
    patterns = Patterns(replace(Recipe(), text__masks=["ipv4"]))

    assert patterns.pattern(b"10.0.0.1") == "<ipv4>"


def test_masks_of_a_recipe_are_shown_by_their_names() -> None:
    masks = {"text__mask": [{"name": "user", "pattern": "user-[a-z]+"}], "text__masks": ["ipv4"]}

    words = Patterns(replace(Recipe(), **masks))
    characters = Patterns(replace(Recipe(), features__extractor="characters", **masks))

    assert words.pattern(b"hello user-bob at 10.0.0.1 now") == "hello <user> at <ipv4> now"
    assert characters.pattern(b"hello user-bob at 10.0.0.1 now") == "hello <user> at <ipv4> now"


@given(recipe=recipes(("words", "characters", "syllables")), text=texts)
def test_any_bytes_have_a_printable_pattern(recipe: Recipe, text: bytes) -> None:
    shown = Patterns(recipe).pattern(text)

    assert len(shown) <= MAX_PATTERN
    assert shown.isprintable()


@given(document=documents, text=texts)
def test_any_document_has_a_printable_pattern(document: object, text: bytes) -> None:
    shown = Patterns(load_recipe("json")).pattern(text, document)

    assert len(shown) <= MAX_PATTERN
    assert shown.isprintable()


@given(
    pieces=st.lists(
        st.tuples(plain_words, st.sampled_from([b"", b"42", b"10.0.0.1", b"/a/b", b"Jan 5"])),
        max_size=12,
    )
)
def test_a_pattern_has_every_word_in_order_and_no_variable(
    pieces: list[tuple[bytes, bytes]],
) -> None:
    text = b" ".join(part for piece in pieces for part in piece if part)
    shown = Patterns(load_recipe("logs-1")).pattern(text)

    words = [word for word in shown.split() if not word.startswith("<")]
    assert [word.decode() for word, _ in pieces] == words
    assert not any(character.isdigit() for character in shown.replace("<ipv4>", ""))


@pytest.mark.parametrize(
    ("recipe", "line", "expected"),
    [
        ("logs", b"disk sda1 is 91% full", [b"sda1", b"91%"]),
        ("logs", b"from 10.0.0.7 port 4422, 17", [b"10.0.0.7", b"4422, 17"]),
        ("logs", b"12 34", []),
        ("logs", b"", []),
        ("text", b"see https://a.example/b now", [b"https://a.example/b"]),
        ("words", b"a 1", []),
        ("json", b'{"n": 1, "text": "two words"}', []),
    ],
)
def test_variable_parts_of_a_line_are_found(
    recipe: str, line: bytes, expected: list[bytes]
) -> None:
    spans = Patterns(load_recipe(recipe)).variables(line)
    assert [line[start:end] for start, end in spans] == expected


@given(recipes(), texts)
def test_variable_parts_are_in_order_and_inside_the_line(recipe: Recipe, line: bytes) -> None:
    bounds = [bound for span in Patterns(recipe).variables(line) for bound in span]
    assert bounds == sorted(bounds)
    assert all(0 <= bound <= len(line) for bound in bounds)


def test_a_learned_word_without_letters_varies_in_one_place() -> None:
    line = b'10.0.0.1 - - [x] "GET /a HTTP/1.1" 200 7 "-" "curl"'
    shown = '<ipv4> - <*> [x] "GET <path> <*>" <2xx> <number> "<*>"'
    assert LOGS.pattern(line, learned=1 << 1) == shown


AGENT = b"Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/117.0"


@pytest.mark.parametrize(
    ("line", "pattern", "values"),
    [
        (
            b"PWD=/a ; COMMAND=/bin/ls -l /b 7",
            "PWD=<path> ; COMMAND=<*>",
            ["/a", "/bin/ls -l /b 7"],
        ),
        (b"(root) CMD (cd / && (ls a 7))", "(root) CMD (<*>)", ["cd / && (ls a 7)"]),
    ],
)
def test_a_command_has_one_name(line: bytes, pattern: str, values: list[str]) -> None:
    assert LOGS.pattern(line) == pattern
    slots = SlotReader(load_recipe("logs")).slots(line)
    assert list(slots.names) == re.findall("<.*?>", pattern)
    assert [value.decode() for value in slots.values(line) or []] == values


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        (
            b'10.0.0.1 - - [x] "GET / HTTP/1.1" 404 17 "https://a.b/c?d" "%b"' % AGENT,
            '<ipv4> - - [x] "GET <path> <*>" <4xx> <number> "<url>" "<*>"',
        ),
        (
            b'10.0.0.1 - - [x] "GET /a HTTP/1.1" 200 17 "/b/c" "%b" rt=0.1' % AGENT,
            '<ipv4> - - [x] "GET <path> <*>" <2xx> <number> "<path>" "<*>" rt=<number>',
        ),
        (b'"HEAD / HTTP/2" 200 "-" "a (down)"', '"HEAD <path> <*>" <2xx> "<*>"'),
        (b'{"a": "x (failed) y"} z', '{"a": "<*> (failed) <*>"} z'),
        (b'{"a": ["b c", "1"]} x', '{"a": ["<*>", "<number>"]} x'),
    ],
)
def test_patterns_of_requests_name_each_string(line: bytes, pattern: str) -> None:
    assert LOGS.pattern(line) == pattern

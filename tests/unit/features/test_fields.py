"""Field selection: paths, pointers, wildcards and their caps."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.fields import MAX_DEPTH, MAX_VALUES, parse_path, select, text_of
from stream_dedup.features.recipe import load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from tests.strategies import documents


def selected(document: object, path: str) -> list[tuple[str, bytes]]:
    return [(name, text) for name, text in select(document, parse_path(path))]


DOCUMENT: Any = {
    "msg": "hi",
    "a.b": {"c/d": 1, "~": 2},
    "user": {"name": "root", "id": 0, "none": None, "on": True},
    "list": [{"x": 1}, {"x": 2}, {"y": 3}, 4],
    "": "empty key",
    "*": "star",
    "0": "nought",
    "deep": {"er": {"est": ["é", 1.5, []]}},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("msg", [("msg", b"hi")]),
        ("user.name", [("user.name", b"root")]),
        ("user.id", [("user.id", b"0")]),
        ("user.on", [("user.on", b"true")]),
        ("user.none", []),
        ("user.nobody", []),
        ("msg.x", []),
        ("user", [("user", b'{"name":"root","id":0,"none":null,"on":true}')]),
        ("list.0.x", [("list.*.x", b"1")]),
        ("list.3", [("list.*", b"4")]),
        ("list.4", []),
        ("list.-1", []),
        ("list.99999999999999999999", []),
        ("list.x", []),
        ("list.*.x", [("list.*.x", b"1"), ("list.*.x", b"2")]),
        ("list.**", [("list.*.x", b"1"), ("list.*.x", b"2"), ("list.*.y", b"3"), ("list.*", b"4")]),
        ("user.*", [("user.name", b"root"), ("user.id", b"0"), ("user.on", b"true")]),
        ("0", [("0", b"nought")]),
        ("deep.**", [("deep.er.est.*", "é".encode()), ("deep.er.est.*", b"1.5")]),
        ("deep.er.est", [("deep.er.est", '["é",1.5,[]]'.encode())]),
        ("/a.b/c~1d", [("a.b.c/d", b"1")]),
        ("/a.b/~0", [("a.b.~", b"2")]),
        ("/", [("", b"empty key")]),
        ("/user/name", [("user.name", b"root")]),
        ("a.b.c", []),
    ],
)
def test_a_path_selects_values(path: str, expected: list[tuple[str, bytes]]) -> None:
    assert selected(DOCUMENT, path) == expected


def test_pointer_escapes_are_those_of_rfc_6901() -> None:
    assert parse_path("/a~1b/m~0n/~01/") == ("a/b", "m~n", "~1", "")


@given(document=documents)
def test_everything_below_is_each_value_that_is_not_null(document: object) -> None:
    def leaves(node: object) -> list[object]:
        if isinstance(node, dict):
            return [leaf for child in node.values() for leaf in leaves(child)]
        if isinstance(node, list):
            return [leaf for child in node for leaf in leaves(child)]
        return [] if node is None else [node]

    assert [text_of(leaf) for leaf in leaves(document)] == [
        text for _, text in selected(document, "**")
    ]


def test_a_path_yields_at_most_max_values() -> None:
    document = {"a": list(range(10 * MAX_VALUES)), "b": {str(i): i for i in range(5_000)}}

    assert [b"%d" % i for i in range(MAX_VALUES)] == [t for _, t in selected(document, "a.*")]
    for path in ("**", "b.**", "b.*"):
        assert len(selected(document, path)) == MAX_VALUES


def nested(levels: int, leaf: object) -> object:
    document = leaf
    for _ in range(levels):
        document = {"k": document}
    return document


def test_below_the_deepest_step_everything_is_one_text() -> None:
    ((name, text),) = selected(nested(MAX_DEPTH + 2, 7), "**")

    assert (name, text) == (".".join(["k"] * MAX_DEPTH), b'{"k":{"k":7}}')
    assert [(".".join(["k"] * MAX_DEPTH), b"7")] == selected(nested(MAX_DEPTH, 7), "**")


@pytest.mark.parametrize("path", ["k", "**", "*", "k.k"])
def test_a_value_nested_deeper_than_the_stack_has_no_text(path: str) -> None:
    assert [text for _, text in selected(nested(100_000, 1), path)] == [b""]


def test_a_hundred_thousand_brackets_are_not_json_and_do_no_harm() -> None:
    text = b"[" * 100_000
    with pytest.raises(RecursionError):
        msgspec.json.decode(text)
    fingerprinter = Fingerprinter(load_recipe("json"), PUBLIC_KEY)

    numbers = fingerprinter.fingerprints(fingerprinter.prepare([text], [None]), full=True)

    assert list(numbers.words) == [1]  # what lies beyond max_bytes


def test_half_a_surrogate_pair_is_kept() -> None:
    document = json.loads('{"a": "\\ud800", "b": ["\\udfff"], "\\udc00": 1}')

    assert selected(document, "a") == [("a", b"\xed\xa0\x80")]
    assert selected(document, "b") == [("b", b'["\\udfff"]')]
    fingerprinter = Fingerprinter(load_recipe("json"), PUBLIC_KEY)
    other = json.loads('{"a": "\\ud801", "b": ["\\udfff"], "\\udc00": 1}')
    prepared = fingerprinter.prepare([b"", b""], [document, other])
    numbers = fingerprinter.fingerprints(prepared, full=True)
    assert numbers.exact[0] != numbers.exact[1]


@given(document=documents, path=st.text(max_size=12))
def test_any_path_may_be_tried_on_any_document(document: object, path: str) -> None:
    try:
        steps = parse_path(path)
    except ValueError:  # an empty step, or a wrong escape
        return
    for name, text in select(document, steps):
        assert (type(name), type(text)) == (str, bytes)


def test_words_differ_between_fields_but_not_between_array_elements() -> None:
    fingerprinter = Fingerprinter(load_recipe("json"), PUBLIC_KEY)
    events: list[Any] = [
        {"a": "x", "b": "y"},
        {"a": "y", "b": "x"},
        {"l": ["x", "y"]},
        {"l": ["y", "x"]},
    ]
    numbers = fingerprinter.fingerprints(fingerprinter.prepare([b""] * 4, events), full=True)

    assert numbers.low[0] != numbers.low[1]
    assert numbers.low[2] == numbers.low[3]

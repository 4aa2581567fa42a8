"""Events as output: JSON, text and Kafka headers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.emit import events
from stream_dedup.emit.events import (
    DecisionHeaders,
    annotated_text,
    decision_object,
    event_json,
    kept,
    kept_text,
)
from stream_dedup.model import Decision, Kind
from tests.strategies import raw_bytes

NEW = Decision(Kind.NEW, 0xAB, 0, 0x12, template=0xCD)
DUPLICATE = Decision(Kind.DUPLICATE, 0xAB, 3, 0x13)
PASSED = Decision(Kind.PASSED, reason="not JSON")
DEDUP = decision_object(NEW, "a <ipv4>", 64)


def test_decision_object_has_the_documented_fields() -> None:
    assert DEDUP == {
        "decision": "new", "cluster": "00000000000000ab",
        "template": "00000000000000cd", "distance": 0,
        "fingerprint": "0000000000000012", "pattern": "a <ipv4>",
    }  # fmt: skip
    assert decision_object(NEW, None, 32)["fingerprint"] == "00000012"
    assert decision_object(NEW, None, 128)["fingerprint"] == f"{0x12:032x}"
    assert decision_object(PASSED, None, 64) == {
        "decision": "passed", "cluster": None, "template": None, "distance": None,
        "fingerprint": None, "pattern": None, "reason": "not JSON",
    }  # fmt: skip


@given(raw_bytes)
def test_text_becomes_an_object_with_line_text_and_decision(raw: bytes) -> None:
    line = event_json(3, raw, None, DEDUP)
    assert line.count(b"\n") == 1
    text = raw.decode("utf-8", "backslashreplace")
    assert msgspec.json.decode(line) == {"line": 3, "text": text, "dedup": DEDUP}


_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.text(max_size=8), st.integers(-(2**80), 2**80),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5) | st.just("dedup"), _values, max_size=5))
def test_a_json_object_keeps_its_values_and_order(document: dict[str, Any]) -> None:
    raw = msgspec.json.encode(document)
    line = event_json(1, raw, msgspec.json.decode(raw), DEDUP)
    given, made = (msgspec.json.decode(text, type=dict[str, msgspec.Raw]) for text in (raw, line))
    assert bytes(made.pop("dedup")) == msgspec.json.encode(DEDUP)
    given.pop("dedup", None)
    assert [(k, bytes(v)) for k, v in made.items()] == [(k, bytes(v)) for k, v in given.items()]


@pytest.mark.parametrize(
    ("raw", "start"),
    [
        (b"{}", b'{"dedup":{'),
        (b" { } \r", b'{"dedup":{'),
        (b'{"a": 1.0 ,\n "b":2 }', b'{"a": 1.0 ,  "b":2,"dedup":{'),
        (b'{"a":1,"a":2}', b'{"a":1,"a":2,"dedup":{'),
        (b'{"dedup":1,"a":1.10}', b'{"dedup":{'),
    ],
)
def test_dedup_is_appended_to_a_json_object(raw: bytes, start: bytes) -> None:
    line = event_json(1, raw, msgspec.json.decode(raw), DEDUP)
    assert line.startswith(start)
    assert line.endswith(b"}\n")
    assert msgspec.json.decode(line)["dedup"] == DEDUP
    assert (b'"a":1.10' in raw) == (b'"a":1.10' in line)


def test_annotated_text_is_separated_by_tabs() -> None:
    assert annotated_text(b"a\tb", DUPLICATE) == b"duplicate\t00000000000000ab\t3\ta\tb\n"
    assert annotated_text(b"\xff", PASSED) == b"passed\t-\t-\t\xff\n"


def test_drop_keeps_new_and_passed_events() -> None:
    decisions = [NEW, DUPLICATE, PASSED]
    assert kept(decisions) == [True, False, True]
    assert kept_text([b"a", b"b", b"c"], decisions) == b"a\nc\n"
    assert kept_text([b"b"], [DUPLICATE]) == b""
    assert kept_text([b""], [PASSED]) == b"\n"


def test_headers_carry_the_decision() -> None:
    cluster = ("sd-cluster", b"00000000000000ab")
    new, first, passed, second = DecisionHeaders(64).of_all([NEW, DUPLICATE, PASSED, DUPLICATE])

    assert new == [
        ("sd-decision", b"new"),
        cluster,
        ("sd-distance", b"0"),
        ("sd-fingerprint", b"0000000000000012"),
        ("sd-template", b"00000000000000cd"),
    ]
    assert first == [
        ("sd-decision", b"duplicate"),
        cluster,
        ("sd-distance", b"3"),
        ("sd-fingerprint", b"0000000000000013"),
    ]
    assert passed == [("sd-decision", b"passed"), ("sd-reason", b"not JSON")]
    assert first is second


def test_headers_of_duplicates_are_cached_those_of_new_events_not() -> None:
    headers = DecisionHeaders(64)
    (new, shared), (again, same) = (headers.of_all([NEW, DUPLICATE]) for _ in range(2))

    assert shared is same
    assert new is not again


@pytest.mark.parametrize("cached", [1, 3, 1_000])
def test_a_decision_never_gets_the_headers_of_a_freed_one(
    monkeypatch: pytest.MonkeyPatch, cached: int
) -> None:
    monkeypatch.setattr(events, "MAX_CACHED", cached)
    headers = DecisionHeaders(64)
    for distance in range(100):  # each may be at a freed one's address
        own = Decision(Kind.DUPLICATE, 0xAB, distance, 0x13)
        assert headers.of_all([own])[0][2:3] == [("sd-distance", b"%d" % distance)]
        del own

"""How decisions and summaries read, as JSON and as text: pure functions of what they are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.emit.annotate import annotated_text
from stream_dedup.emit.drop import kept, kept_text
from stream_dedup.emit.merge import repeats, summary_text, time_text
from stream_dedup.emit.shape import decision_object, event_json, iso_time, summary_json
from stream_dedup.model import Closing, Decision, Kind, Position, Summary
from tests.strategies import raw_bytes

NEW = Decision(Kind.NEW, 0xAB, 0, 0x12)
DUPLICATE = Decision(Kind.DUPLICATE, 0xAB, 3, 0x13)
PASSED = Decision(Kind.PASSED, reason="not JSON")
DEDUP = decision_object(NEW, "a <ipv4>", 64)


def summary(**changes: Any) -> Summary:
    given: dict[str, Any] = {
        "cluster": 0xAB, "revision": 1, "closing": None, "count": 4, "new_count": 4,
        "first_time_us": 1_700_000_000_000_000, "last_time_us": 1_700_000_000_250_000,
        "position": Position("app.log", 0, 7), "representative": b"a 10.0.0.7 \xff",
        "samples": (b"a 10.0.0.8",), "group": '{"app":"api"}', "pattern": "a <ipv4>",
    }  # fmt: skip
    return Summary(**{**given, **changes})


def test_a_decision_reads_as_the_design_says() -> None:
    assert DEDUP == {
        "decision": "new", "cluster": "00000000000000ab", "distance": 0,
        "fingerprint": "0000000000000012", "pattern": "a <ipv4>",
    }  # fmt: skip
    assert decision_object(NEW, None, 32)["fingerprint"] == "00000012"
    assert decision_object(NEW, None, 128)["fingerprint"] == f"{0x12:032x}"
    assert decision_object(PASSED, None, 64) == {
        "decision": "passed", "cluster": None, "distance": None, "fingerprint": None,
        "pattern": None, "reason": "not JSON",
    }  # fmt: skip


@given(raw_bytes)
def test_text_becomes_an_object_of_line_text_and_decision(raw: bytes) -> None:
    line = event_json(3, raw, None, DEDUP)
    assert line.count(b"\n") == 1
    found = msgspec.json.decode(line)
    assert {"line": 3, "text": raw.decode("utf-8", "backslashreplace"), "dedup": DEDUP} == found


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
    assert msgspec.json.encode(DEDUP) == bytes(made.pop("dedup"))
    given.pop("dedup", None)
    assert [(k, bytes(v)) for k, v in given.items()] == [(k, bytes(v)) for k, v in made.items()]


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
def test_an_object_is_added_to_at_its_end(raw: bytes, start: bytes) -> None:
    line = event_json(1, raw, msgspec.json.decode(raw), DEDUP)
    assert line.startswith(start)
    assert line.endswith(b"}\n")
    assert msgspec.json.decode(line)["dedup"] == DEDUP
    assert (b'"a":1.10' in raw) == (b'"a":1.10' in line)


def test_a_summary_as_json_holds_what_the_design_names() -> None:
    assert msgspec.json.decode(
        summary_json(summary(revision=2, closing=Closing.ENDED, new_count=3), "logs")
    ) == {
        "type": "summary", "namespace": "logs", "cluster": "00000000000000ab", "revision": 2,
        "final": True, "closing": "ended", "count": 4, "new_count": 3,
        "first_time": "2023-11-14T22:13:20Z", "last_time": "2023-11-14T22:13:20.250Z",
        "pattern": "a <ipv4>", "representative": "a 10.0.0.7 \\xff", "samples": ["a 10.0.0.8"],
        "group": {"app": "api"},
        "position": {"source": "app.log", "partition": 0, "offset": 7},
    }  # fmt: skip
    odd = summary(group="", position=Position("\udcff", 0, 1))
    assert msgspec.json.decode(summary_json(odd, "logs"))["group"] == {}


def test_a_summary_as_text_tells_of_what_no_line_has_told() -> None:
    text = "… repeated 3× until 10:32:11 [00000000000000ab] a <ipv4>\n"
    assert text.encode() == summary_text(summary(), "10:32:11")
    later = summary(revision=2, count=9, new_count=5)
    assert repeats(later) == 5
    assert summary_text(summary(count=1, new_count=1), "10:32:11") == b""
    assert summary_text(summary(revision=2, new_count=0), "10:32:11") == b""


def test_times_show_the_date_where_it_is_another() -> None:
    at = round(datetime(2026, 11, 21, 0, 30, tzinfo=UTC).timestamp()) * 10**6
    assert time_text(at, at - 10**6) == "00:30:00"
    assert time_text(at, at - 3600 * 10**6) == "2026-11-21 00:30:00"
    assert time_text(at, at - 3600 * 10**6, timezone(timedelta(hours=1))) == "01:30:00"


@given(st.datetimes(datetime(1, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001
def test_iso_times_are_read_back(moment: datetime) -> None:
    us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    year, _, rest = iso_time(us).partition("-")
    assert datetime.fromisoformat(f"{year:>04}-{rest}") == moment


def test_annotated_text_stands_in_tabs() -> None:
    assert annotated_text(b"a\tb", DUPLICATE) == b"duplicate\t00000000000000ab\t3\ta\tb\n"
    assert annotated_text(b"\xff", PASSED) == b"passed\t-\t-\t\xff\n"


def test_drop_keeps_what_is_new_or_passed() -> None:
    decisions = [NEW, DUPLICATE, PASSED]
    assert kept(decisions) == [True, False, True]
    assert kept_text([b"a", b"b", b"c"], decisions) == b"a\nc\n"
    assert kept_text([b"b"], [DUPLICATE]) == b""
    assert kept_text([b""], [PASSED]) == b"\n"

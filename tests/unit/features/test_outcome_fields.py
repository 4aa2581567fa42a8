"""Levels, statuses, outcomes and traces of JSON events that are fields beside the text."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features import outcome_fields
from stream_dedup.features.outcome_fields import MAX_OUTCOMES, OutcomeFields
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.features.variants import LEVELS, OUTCOMES

LOGS = load_recipe("logs")
FIELDS = OutcomeFields(LOGS)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: bad'
JAVA = "java.io.IOException: closed\n\tat a.b.C(D.java:3)\n\tat a.b.E(D.java:9)"


def compared(text: str = "sync of node 7", **fields: object) -> str:
    """What is compared of an event with this text."""
    return FIELDS.compared({**fields, "msg": text}, text.encode()).decode()


def said(**fields: object) -> str:
    """What the fields of an event put before its text."""
    return compared("x", **fields).removesuffix("x").rstrip()


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"level": "error"}, "error"),
        ({"level": "WARN"}, "WARN"),
        ({"Severity": "Critical"}, "Critical"),
        ({"log.level": "info"}, "info"),
        ({"log": {"level": "info"}}, "info"),
        ({"@l": "Verbose"}, "trace"),
        ({"LogLevel": "Information"}, "info"),
        ({"level": 30}, "info"),
        ({"level": 50.0}, "error"),
        ({"level": 3, "short_message": "x"}, "err"),
        ({"PRIORITY": "6"}, "info"),
        ({"severity": 0}, "emerg"),
        ({"severityNumber": 17}, "error"),
        ({"severity_number": 24, "severity_text": ""}, "fatal"),
        ({"level": 400, "level_name": "ERROR"}, "ERROR"),
        ({"s": "I"}, "info"),
        ({"s": "D2"}, "debug"),
        ({"priority": "notice"}, "notice"),
        ({"level": "info", "severity": "ERROR"}, "info"),
        ({"level": "gold", "severity": "ERROR"}, "ERROR"),
        ({"level": 3}, ""),
        ({"level": 35}, ""),
        ({"severity": 8}, ""),
        ({"severityNumber": 0}, ""),
        ({"severityNumber": 25}, ""),
        ({"priority": 3}, ""),
        ({"level": True}, ""),
        ({"level": None}, ""),
        ({"level": ["error"]}, ""),
        ({"level": {"name": "error"}}, ""),
        ({"level": "error " * 1000}, ""),
        ({"level": 10**30}, ""),
        ({"level": float("inf")}, ""),
        ({"levels": "error", "user": "info"}, ""),
    ],
)
def test_levels_are_found_as_loggers_write_them(fields: dict[str, object], level: str) -> None:
    assert said(**fields) == level


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"status": 503}, "status=503"),
        ({"statusCode": "404"}, "statusCode=404"),
        ({"http.response.status_code": 200}, "status_code=200"),
        ({"http": {"response": {"status_code": 200}}}, "status_code=200"),
        ({"res": {"statusCode": 500, "headers": {}}}, "statusCode=500"),
        ({"httpRequest": {"status": 302}}, "status=302"),
        ({"http.statusCode": 200, "event.outcome": "success"}, "statusCode=200 outcome=success"),
        ({"code": 404}, "code=404"),
        ({"code": 17}, ""),
        ({"code": "ECONNREFUSED"}, ""),
        ({"status": 600}, ""),
        ({"exit_code": 0}, "exit_code=0"),
        ({"rc": -9}, "rc=-9"),
        ({"exitCode": "137"}, "exitCode=137"),
        ({"status": "failed"}, "status=failed"),
        ({"status": "Failed"}, "status=Failed"),
        ({"status": "failed after 3 tries"}, ""),
        ({"success": False}, "success=false"),
        ({"success": True}, "success=true"),
        ({"success": 1}, ""),
        ({"event": {"outcome": "failure", "module": "a"}}, "outcome=failure"),
        ({"event": "started"}, ""),
        ({"error": "timeout"}, "error=timeout"),
        ({"error": {"code": 503}}, "code=503"),
        ({"type": "Warning"}, "type=Warning"),
        ({"type": "request"}, ""),
        ({"http": {"http": {"http": {"status": 200}}}}, ""),
        ({"status": 503, "res": {"status": 503}}, "status=503"),
        ({"result": "ok", "level": "info", "status": 200}, "info result=ok status=200"),
    ],
)
def test_outcomes_are_written_as_in_a_line_of_text(fields: dict[str, object], shown: str) -> None:
    assert said(**fields) == shown


def test_a_truth_value_is_no_number() -> None:
    for _ in range(2):  # what was seen before is remembered
        assert said(failed=1) == "failed=1"
        assert said(failed=True) == "failed=true"
        assert said(failed=1.0) == "failed=1"
        assert said(failed=0) == "failed=0"
        assert said(failed=False) == "failed=false"


def test_an_event_without_such_fields_is_its_text() -> None:
    assert compared("a b", user="bob", time=3) == "a b"
    assert FIELDS.compared({}, b"a b") == b"a b"


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_event_without_text_stays_without(text: str) -> None:
    assert compared(text, level="error") == text


def test_there_is_a_limit_of_outcomes() -> None:
    names = sorted(outcome_fields.EXIT_FIELDS)[:20]
    assert len(said(**dict.fromkeys(names, 1)).split()) == MAX_OUTCOMES


@pytest.mark.parametrize("trace", [TRACE, JAVA])
@pytest.mark.parametrize("field", ["exc_info", "stack_trace", "exception", "@x", "stack"])
def test_a_stack_trace_follows_the_text(field: str, trace: str) -> None:
    assert compared("a b", **{field: trace}) == f"a b\n{trace}"
    assert compared("a b", level="error", **{field: trace}) == f"error\na b\n{trace}"
    assert compared("a b", err={field: trace}) == f"a b\n{trace}"
    assert compared("a b", **{f"error.{field}": trace}) == f"a b\n{trace}"


def test_what_is_no_trace_does_not_follow() -> None:
    assert compared("a b", stack="web\nproduction", exception="closed") == "a b"
    assert compared(f"a b\n{TRACE}", exc_info=TRACE) == f"a b\n{TRACE}"  # there already


def test_traces_of_other_places_are_kept_apart() -> None:
    events = [
        {"msg": "unhandled", "exc_info": TRACE.replace("line 3, in f", f"line {line}, in {name}")}
        for line, name in ((3, "f"), (4, "g"), (8, "f"))
    ]
    dedup = Deduplicator(LOGS)
    values = [FIELDS.compared(event, b"unhandled") for event in events]
    assert [each.kind.value for each in dedup.process(values)] == ["new", "new", "duplicate"]


def test_the_recipe_says_what_counts() -> None:
    event = {"level": "error", "status": 503, "result": "failed", "stack": TRACE}

    def of(**match: Any) -> bytes:
        return OutcomeFields(replace(LOGS, match=match)).compared(event, b"x")

    assert of(variants=["level"], protected=()) == b"error x"
    assert of(variants=["status"], protected=()) == b"status=503 x"
    assert of(variants=["frames"], protected=()) == f"x\n{TRACE}".encode()
    assert of(variants=(), protected="outcomes") == b"result=failed x"
    assert of(variants=(), protected=()) == b"x"
    for name in ("logs-1", "text", "json"):
        assert OutcomeFields(load_recipe(name)).compared(event, b"x") == b"x"


def test_fields_of_every_spelling_have_one_order() -> None:
    event = {"result": "ok", "status_code": 200, "success": True, "LEVEL": "INFO", "rc": 0}
    names = list(event)
    expected = said(**event)
    for seed in range(20):
        random.Random(seed).shuffle(names)
        assert said(**{name: event[name] for name in names}) == expected


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_fields, "MAX_KNOWN", 10)
    fields = OutcomeFields(LOGS)
    for number in range(100):
        event = {"status": f"s{number}", "event": "y" * 100, "exc_info": "z" * 10_000}
        assert fields.compared(event, b"x") == b"x"
    assert len(fields._known) <= 10
    assert len(msgspec.json.encode([str(each) for each in fields._known])) < 2_000


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["200", "503", "ok", "FAILED", "error", "info", "\ud800", TRACE])
)
names = st.sampled_from(sorted(FIELDS.names)) | st.text(max_size=5)
documents = st.dictionaries(
    names,
    st.recursive(
        scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below)
    ),
    max_size=6,
)


@given(documents, st.binary(max_size=20))
def test_any_document_keeps_its_text(document: dict[str, object], text: bytes) -> None:
    found = FIELDS.compared(document, text)
    assert text in found
    assert OutcomeFields(LOGS).compared(document, text) == found  # whatever came before
    backwards = dict(reversed(document.items()))
    assert FIELDS.compared(backwards, text) == found


words = st.sampled_from("sync of node user bob from to in the disk".split())
kinds: dict[str, list[Any]] = {
    "level": sorted(LEVELS),
    "status": [100, 204, 302, 404, 503, *sorted(OUTCOMES)],
    "exit_code": [0, 1],
    "success": [True, False],
}


@given(st.lists(words, min_size=1, max_size=40), st.data())
def test_events_that_differ_in_an_outcome_never_merge(text: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(kinds)))
    one, other = data.draw(
        st.lists(st.sampled_from(kinds[name]), min_size=2, max_size=2, unique_by=str)
    )
    line = " ".join(text)
    values = [compared(line, **{name: value}).encode() for value in (one, other, None, one)]
    first, second, without, again = Deduplicator(LOGS).process(values)
    assert len({first.cluster, second.cluster, without.cluster}) == 3
    assert again.cluster == first.cluster

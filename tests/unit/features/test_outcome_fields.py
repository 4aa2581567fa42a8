"""Levels, statuses, outcomes and traces of JSON events that are fields beside the text."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features import outcome_fields
from stream_dedup.features.outcome_fields import (
    EXIT_FIELDS,
    MAX_OUTCOMES,
    STATUS_FIELDS,
    WORD_FIELDS,
    OutcomeFields,
    without_outcomes,
)
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.features.variants import LEVELS, OUTCOMES

LOGS = load_recipe("logs")
FIELDS = OutcomeFields(LOGS)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: bad'
ZAP = "main.f\n\t/a.go:1\nmain.main\n\t/a.go:5"
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
        ({"level": 30, "pid": 17, "hostname": "a"}, "info"),
        ({"level": 50.0, "time": "2026-01-01", "v": 0}, "error"),
        ({"level": 3, "short_message": "x"}, "err"),
        ({"level": "6", "short_message": "x" * 100}, "info"),
        ({"level": Decimal(6), "short_message": "x"}, "info"),
        ({"level": b"ERROR"}, "ERROR"),
        ({"level": "\x1b[31mERROR\x1b[39m"}, "ERROR"),
        ({"level": "INFO "}, "INFO"),
        ({"level": "ERROR+4"}, "ERROR"),
        ({"level": "DPANIC"}, "panic"),
        ({"level": {"name": "WARNING", "no": 30}}, "WARNING"),
        ({"levelno": 30}, "warning"),
        ({"severityLevel": 2}, "warning"),
        ({"label": "Error", "prio": 1}, "Error"),
        ({"error_severity": "FATAL"}, "FATAL"),
        ({"syslogseverity-text": "notice"}, "notice"),
        ({"log.level": "info", "event": {"severity": 3}}, "info"),
        ({"log": {"level": "info"}, "event.severity": 3}, "info"),
        ({"_level_name": "warn"}, "warn"),
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
        ({"level": 30}, ""),
        ({"level": 35, "pid": 1}, ""),
        ({"label": "c"}, ""),
        ({"priority": "n"}, ""),
        ({"severity": 8}, ""),
        ({"severityNumber": 0}, ""),
        ({"severityNumber": 25}, ""),
        ({"priority": 3}, ""),
        ({"level": True}, ""),
        ({"level": None}, ""),
        ({"level": ["error"]}, ""),
        ({"level": {"name": ["error"]}}, ""),
        ({"type": {"name": "error"}}, ""),
        ({"level": "wArNİng"}, ""),
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
        ({"http.statusCode": 200, "event.outcome": "success"}, "outcome=success statusCode=200"),
        ({"http.response": {"status_code": 200}}, "status_code=200"),
        ({"response": "503"}, "status=503"),
        ({"responseStatus": {"code": 403}}, "code=403"),
        ({"_status": "503"}, "status=503"),
        ({"status": "503.0"}, "status=503"),
        ({"status": Decimal(503)}, "status=503"),
        ({"status": b"503"}, "status=503"),
        ({"status": "503 Service Unavailable"}, "status=503"),
        ({"upstream_status": "502, 200"}, "upstream_status=502"),
        ({"status": "5031"}, ""),
        ({"status": "503ms"}, ""),
        ({"code": 404}, "code=404"),
        ({"code": 17}, ""),
        ({"code": "ECONNREFUSED"}, ""),
        ({"status": 600}, ""),
        ({"exit_code": 0}, "exit_code=0"),
        ({"rc": -9}, "rc=-9"),
        ({"exitCode": "137"}, "exitCode=137"),
        ({"exit_code": "0xC0000005"}, "exit_code=0xC0000005"),
        ({"process.exit.code": 1}, "exit_code=1"),
        ({"container_exit_code": 1}, "container_exit_code=1"),
        ({"rpc.grpc.status_code": 14}, "grpc_status=14"),
        ({"grpc.code": "Unavailable"}, "grpc_code=Unavailable"),
        ({"err": 0}, "err=0"),
        ({"err": "timeout"}, "err=timeout"),
        ({"err": {"message": "a b", "code": "ENOENT"}}, ""),
        ({"JOB_RESULT": "done"}, ""),
        ({"JOB_RESULT": "failed"}, "JOB_RESULT=failed"),
        ({"health": "critical"}, "health: critical"),
        ({"result": "warning"}, "result=warning"),
        ({"alert": {"action": "blocked", "severity": 9}}, "action=blocked"),
        ({"result": "o\u212a"}, ""),
        ({"response": 5, "log": 7, "http": True}, ""),
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
        ({"result": "ok", "level": "info", "status": 200}, "info status=200 result=ok"),
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
    names = outcome_fields.EXIT_FIELDS[:20]
    assert len(said(**dict.fromkeys(names, 1)).split()) == MAX_OUTCOMES


@pytest.mark.parametrize("trace", [TRACE, JAVA, ZAP])
@pytest.mark.parametrize("field", ["exc_info", "stack_trace", "exception", "@x", "stack"])
def test_a_stack_trace_follows_the_text(field: str, trace: str) -> None:
    assert compared("a b", **{field: trace}) == f"a b\n{trace}"
    assert compared("a b", level="error", **{field: trace}) == f"error\na b\n{trace}"
    assert compared("a b", err={field: trace}) == f"a b\n{trace}"
    assert compared("a b", **{f"error.{field}": trace}) == f"a b\n{trace}"


def test_a_trace_may_be_a_list_of_lines() -> None:
    lines: list[object] = [*TRACE.split("\n"), None, 7]
    assert compared("a b", stackTrace=lines) == f"a b\n{TRACE}"


def test_lines_as_rsyslog_writes_them_stay_lines() -> None:
    written = JAVA.replace("\n", "#012").replace("\t", "#011")
    assert compared(written, level="error") == f"error#012{written}"
    assert compared("a#012 b", stack=JAVA) == "a#012 b#012" + JAVA.replace("\n", "#012")
    events = [written.replace("java.io.IOException", f"java.io.{name}") for name in ("A", "B")]
    events += [events[0]]
    values = [compared(event, level="error").encode() for event in events]
    kinds = [each.kind.value for each in Deduplicator(LOGS).process(values)]
    assert kinds == ["new", "new", "duplicate"]


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


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("error\na b\nc", "a b\nc"),
        ("error status=503\na b\nc", "a b\nc"),
        ("info status=<2xx> success=true a b", "a b"),
        ("status=503 status=503 a", "a"),
        ("a b status=503", "a b status=503"),
        ("user=error a", "user=error a"),
        ("error", ""),
        ("", ""),
    ],
)
def test_what_was_put_before_a_text_can_be_left_out(event: str, text: str) -> None:
    assert without_outcomes(event) == text


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
    names = sorted(outcome_fields._NAMES)
    for number in range(100):
        event = {"status": f"s{number}", "event": "y" * 100, "exc_info": "z" * 10_000}
        assert fields.compared(event, b"x") == b"x"
        event = dict.fromkeys(names, f"{number} {'y' * 30}")
        assert fields.compared(event, b"x") == b"x"
        assert fields.compared({"status": 10 ** (1000 + number), "rc": 0.1 * number}, b"x")
    assert len(fields._known) <= 10
    assert len(msgspec.json.encode([str(each) for each in fields._known])) < 10_000


def test_events_of_very_many_fields_take_little_time() -> None:
    """Names of traces in objects within objects, each with a text that is none."""
    lines = "at x\n" * 20
    leaf: dict[str, object] = dict.fromkeys(outcome_fields.TRACE_FIELDS, lines)
    for _ in range(2):
        leaf = {**leaf, **dict.fromkeys(outcome_fields.PARENTS, leaf)}
    text = b"at x" * 100_000
    begun = time.process_time()
    assert FIELDS.compared(leaf, text) == text
    assert time.process_time() - begun < 1


def test_which_fields_count_of_many_is_the_same_in_every_process() -> None:
    names = sorted(outcome_fields._NAMES)
    event: dict[str, object] = dict.fromkeys(names, 1) | {"level": "info", "success": True}
    expected = said(**event)
    assert expected == "info"
    for seed in range(20):
        random.Random(seed).shuffle(names)
        assert OutcomeFields(LOGS).compared({name: event[name] for name in names}, b"x") == (
            f"{expected} x".encode()
        )


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["200", "503", "ok", "FAILED", "error", "info", "\ud800", TRACE])
)
names = st.sampled_from(sorted(outcome_fields._NAMES)) | st.text(max_size=5)
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


def test_every_word_gives_a_variant_whatever_its_field_is_called() -> None:
    fields: list[tuple[str, object]] = [("level", word) for word in sorted(LEVELS)]
    fields += [(name, word) for name in WORD_FIELDS for word in ("ok", "failed", "info", "alert")]
    fields += [(name, number) for name in STATUS_FIELDS for number in (204, 503)]
    fields += [(name, number) for name in EXIT_FIELDS for number in (0, 1)]
    values = [compared("sync of a node", **{name: value}).encode() for name, value in fields]
    plain = compared("sync of a node").encode()
    decisions = Deduplicator(LOGS).process([*values, plain])
    by_field: dict[str, list[object]] = {}
    for (name, _), decision in zip(fields, decisions, strict=False):
        by_field.setdefault(name, [decisions[-1].cluster]).append(decision.cluster)
    assert {name for name, found in by_field.items() if len(set(found)) < len(found)} == set()


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

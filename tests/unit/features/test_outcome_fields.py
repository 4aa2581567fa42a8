"""Levels, statuses, outcomes and traces of JSON events that are fields beside the text."""

from __future__ import annotations

import random
import sys
import time
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features import _outcome_fields, outcome_fields
from stream_dedup.features.outcome_fields import (
    EXIT_FIELDS,
    MAX_OUTCOMES,
    STATUS_FIELDS,
    WORD_FIELDS,
    OutcomeFields,
    split,
)
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.features.traces import trace_of
from stream_dedup.features.values import SlotReader
from stream_dedup.features.variants import LEVELS, OUTCOMES
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.fingerprint.templates import Templates

LOGS = load_recipe("logs")
FIELDS = OutcomeFields(LOGS)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: bad'
ZAP = "main.f\n\t/a.go:1\nmain.main\n\t/a.go:5"
JAVA = "java.io.IOException: closed\n\tat a.b.C(D.java:3)\n\tat a.b.E(D.java:9)"


def compared(text: str = "sync of node 7", **fields: object) -> str:
    """What is compared of an event with this text."""
    return FIELDS.compared({**fields, "msg": text}, text.encode()).decode()


def said(**fields: object) -> str:
    """What the other fields of an event say."""
    value = split(compared("x", **fields).encode())
    assert value.text == b"x"
    return value.outcomes.decode()


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"level": "error"}, "error"),
        ({"level": "WARN"}, "warn"),
        ({"Severity": "Critical"}, "critical"),
        ({"log.level": "info"}, "info"),
        ({"log": {"level": "info"}}, "info"),
        ({"@l": "Verbose"}, "trace"),
        ({"level": "FINE"}, "debug"),
        ({"levelName": "FINEST"}, "trace"),
        ({"LogLevel": "Information"}, "info"),
        ({"level": 30, "pid": 17, "hostname": "a"}, "info"),
        ({"level": 50.0, "time": "2026-01-01", "v": 0}, "error"),
        ({"level": 3, "short_message": "x"}, "err"),
        ({"level": "6", "short_message": "x" * 100}, "info"),
        ({"level": Decimal(6), "short_message": "x"}, "info"),
        ({"level": b"ERROR"}, "error"),
        ({"level": "\x1b[31mERROR\x1b[39m"}, "error"),
        ({"level": "INFO "}, "info"),
        ({"level": "ERROR+4"}, "error"),
        ({"level": "DPANIC"}, "panic"),
        ({"level": {"name": "WARNING", "no": 30}}, "warning"),
        ({"levelno": 30}, "warning"),
        ({"severityLevel": 2}, "warning"),
        ({"label": "Error", "prio": 1}, "error"),
        ({"error_severity": "FATAL"}, "fatal"),
        ({"syslogseverity-text": "notice"}, "notice"),
        ({"log.level": "info", "event": {"severity": 3}}, "info"),
        ({"log": {"level": "info"}, "event.severity": 3}, "info"),
        ({"_level_name": "warn"}, "warn"),
        ({"PRIORITY": "6"}, "info"),
        ({"severity": 0}, "emerg"),
        ({"severityNumber": 17}, "error"),
        ({"severity_number": 24, "severity_text": ""}, "fatal"),
        ({"level": 400, "level_name": "ERROR"}, "error"),
        ({"s": "I"}, "info"),
        ({"s": "D2"}, "debug"),
        ({"priority": "notice"}, "notice"),
        ({"level": "info", "severity": "ERROR"}, "info"),
        ({"level": "gold", "severity": "ERROR"}, "error"),
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
        ({"status": 503}, "status=5xx"),
        ({"statusCode": "404"}, "statusCode=4xx"),
        ({"http.response.status_code": 200}, "status_code=2xx"),
        ({"http": {"response": {"status_code": 200}}}, "status_code=2xx"),
        ({"res": {"statusCode": 500, "headers": {}}}, "statusCode=5xx"),
        ({"httpRequest": {"status": 302}}, "status=3xx"),
        ({"http.statusCode": 200, "event.outcome": "success"}, "outcome=success statusCode=2xx"),
        ({"http.response": {"status_code": 200}}, "status_code=2xx"),
        ({"response": "503"}, "response=5xx"),
        ({"responseStatus": {"code": 403}}, "code=4xx"),
        ({"_status": "503"}, "status=5xx"),
        ({"status": "503.0"}, "status=5xx"),
        ({"status": Decimal(503)}, "status=5xx"),
        ({"status": b"503"}, "status=5xx"),
        ({"status": "503 Service Unavailable"}, "status=5xx"),
        ({"upstream_status": "502, 200"}, "upstream_status=5xx"),
        ({"status": "5031"}, ""),
        ({"status": "503ms"}, ""),
        ({"code": 404}, "code=4xx"),
        ({"code": 17}, ""),
        ({"code": "ECONNREFUSED"}, ""),
        ({"status": 600}, ""),
        ({"exit_code": 0}, "exit_code=zero"),
        ({"rc": -9}, "rc=nonzero"),
        ({"exitCode": "137"}, "exitCode=nonzero"),
        ({"exit_code": "0xC0000005"}, "exit_code=nonzero"),
        ({"process.exit.code": 1}, "exit_code=nonzero"),
        ({"status": "150 files left"}, ""),
        ({"container_exit_code": 1}, "container_exit_code=nonzero"),
        ({"rpc.grpc.status_code": 14}, "grpc_status=nonzero"),
        ({"grpc.code": "Unavailable"}, "grpc_code=unavailable"),
        ({"err": 0}, "err=zero"),
        ({"err": "timeout"}, "err=timeout"),
        ({"err": {"message": "a b", "code": "ENOENT"}}, ""),
        ({"JOB_RESULT": "done"}, ""),
        ({"JOB_RESULT": "failed"}, "JOB_RESULT=failed"),
        ({"health": "critical"}, "health=critical"),
        ({"result": "warning"}, "result=warning"),
        ({"alert": {"action": "blocked", "severity": 9}}, "action=blocked"),
        ({"result": "o\u212a"}, ""),
        ({"response": 5, "log": 7, "http": True}, ""),
        ({"status": "failed"}, "status=failed"),
        ({"status": "Failed"}, "status=failed"),
        ({"status": "failed after 3 tries"}, ""),
        ({"success": False}, "success=false"),
        ({"success": True}, "success=true"),
        ({"success": 1}, ""),
        ({"event": {"outcome": "failure", "module": "a"}}, "outcome=failure"),
        ({"event": "started"}, ""),
        ({"error": "timeout"}, "error=timeout"),
        ({"error": {"code": 503}}, "code=5xx"),
        ({"type": "Warning"}, "type=warning"),
        ({"type": "request"}, ""),
        ({"http": {"http": {"http": {"status": 200}}}}, ""),
        ({"status": 503, "res": {"status": 503}}, "status=5xx"),
        ({"result": "ok", "level": "info", "status": 200}, "info status=2xx result=ok"),
    ],
)
def test_outcomes_are_written_as_in_a_line_of_text(fields: dict[str, object], shown: str) -> None:
    assert said(**fields) == shown


def test_a_truth_value_is_no_number() -> None:
    for _ in range(2):  # what was seen before is remembered
        assert said(failed=1) == "failed=nonzero"
        assert said(failed=True) == "failed=true"
        assert said(failed=1.0) == "failed=nonzero"
        assert said(failed=0) == "failed=zero"
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
    assert compared("a b", level="error", **{field: trace}) == f"‹error› a b\n{trace}"
    assert compared("a b", err={field: trace}) == f"a b\n{trace}"
    assert compared("a b", **{f"error.{field}": trace}) == f"a b\n{trace}"


def test_a_trace_may_be_a_list_of_lines() -> None:
    lines: list[object] = [*TRACE.split("\n"), None, 7]
    assert compared("a b", stackTrace=lines) == f"a b\n{TRACE}"


def frames_of(**field: object) -> tuple[str, ...]:
    """The frames of a trace that follows a text: the innermost one, and the program's own."""
    trace = trace_of(compared("a b", **field).encode())
    return tuple(frame.decode() for frame in trace.frames) if trace else ()


def test_a_trace_may_be_a_list_of_frames() -> None:
    log4j = [
        {"class": "java.lang.Integer", "method": "parseInt", "file": "Integer.java", "line": 652},
        {"class": "shop.Cards", "method": "charge", "file": "Cards.java", "line": 4},
    ]
    frames = ("java.lang.Integer.parseInt", "shop.Cards.charge")
    assert frames_of(stackTrace=log4j) == frames
    cause = {"name": "java.lang.NumberFormatException", "extendedStackTrace": log4j}
    thrown = {"name": "shop.OrderFailed", "message": "order 7", "cause": cause}
    assert frames_of(thrown=thrown | {"extendedStackTrace": log4j[1:]}) == frames
    zerolog = [
        {"func": "charge", "line": "20", "source": "cards.go"},
        {"func": "main", "line": "9", "source": "main.go"},
    ]
    assert frames_of(stack=zerolog) == ("charge (cards.go)",)
    for quotes in ("`'", "''"):  # as of Ruby 3.4
        ruby = [f"app/cart.rb:{line}:in {quotes[0]}add{quotes[1]}" for line in (7, 9)]
        assert frames_of(backtrace=ruby) == ("add (app/cart.rb)",)


def test_exceptions_as_structlog_writes_them_are_traces() -> None:
    def fail(name: str) -> list[Any]:
        try:
            try:
                int(name)
            except ValueError as error:
                raise KeyError(name) from error
        except KeyError:
            event = structlog.processors.dict_tracebacks(None, "", {"exc_info": sys.exc_info()})
        return list(event["exception"])

    exception = fail("x")
    assert frames_of(exception=exception) == ("fail (features/test_outcome_fields.py)",)
    lines = compared("a b", exception=exception).split("\n")
    assert [line for line in lines if "Error: " in line] == [
        "ValueError: invalid literal for int() with base 10: 'x'",  # the cause comes first
        "KeyError: 'x'",
    ]


@pytest.mark.parametrize("value", [[{}], [{"frames": [7, {}]}, 7], [{"func": 1}], [[{"func": 1}]]])
def test_a_list_of_anything_is_no_error(value: list[Any]) -> None:
    assert compared("a b", level="error", stack=value).startswith("‹error› a b")


def test_lines_as_rsyslog_writes_them_stay_lines() -> None:
    written = JAVA.replace("\n", "#012").replace("\t", "#011")
    assert compared(written, level="error") == f"‹error› {written}"
    assert compared("a#012 b", stack=JAVA) == "a#012 b#012" + JAVA.replace("\n", "#012")
    events = [written.replace("java.io.IOException", f"java.io.{name}") for name in ("A", "B")]
    events += [events[0]]
    values = [compared(event, level="error").encode() for event in events]
    kinds = [each.kind.value for each in Deduplicator(LOGS).process(values)]
    assert kinds == ["new", "new", "duplicate"]


def test_the_trace_that_follows_does_not_depend_on_the_order() -> None:
    one, two = ({"stack": trace} for trace in (TRACE, JAVA))
    event: dict[str, Any] = {"err": one, "exception": two}
    for look in (FIELDS._look, outcome_fields.look):
        fields = OutcomeFields(LOGS)
        fields._look = look
        assert fields.compared(event, b"x") == f"x\n{TRACE}".encode()
        assert fields.compared(dict(reversed(event.items())), b"x") == f"x\n{TRACE}".encode()


def test_a_text_without_words_merges_with_its_like_alone() -> None:
    values = [compared(", ;", level=level).encode() for level in ("info", "error", "info")]
    values += [compared(", :", level="info").encode()]
    kinds = [each.kind.value for each in Deduplicator(LOGS).process(values)]
    assert kinds == ["new", "new", "duplicate", "new"]


def test_frames_without_words_are_compared() -> None:
    frames = JAVA.partition("\n")[2].encode()
    kinds = [each.kind.value for each in Deduplicator(LOGS).process([frames, frames])]
    assert kinds == ["new", "duplicate"]


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
    ("event", "outcomes", "text"),
    [
        ("‹error› a b\nc", "error", "a b\nc"),
        ("‹info status=2xx› ", "info status=2xx", ""),
        ("‹error a b", "", "‹error a b"),
        ("‹› a b", "", "‹› a b"),
        ("‹ERROR› a b", "", "‹ERROR› a b"),
        ("‹info error› a b", "", "‹info error› a b"),
        ("‹user=ann› a b", "", "‹user=ann› a b"),
        ("‹2026-01-01 10:00:00› a b", "", "‹2026-01-01 10:00:00› a b"),
        ("‹status=› a b", "", "‹status=› a b"),
        ("‹" + "rc=zero " * 9 + "› a", "", "‹" + "rc=zero " * 9 + "› a"),
        ("‹error›a b", "", "‹error›a b"),
        ("‹" + "x" * 2_000 + "› a", "", "‹" + "x" * 2_000 + "› a"),
        ("a ‹error› b", "", "a ‹error› b"),
        ("", "", ""),
    ],
)
def test_outcomes_and_text_are_split(event: str, outcomes: str, text: str) -> None:
    assert split(event.encode()) == (outcomes.encode(), text.encode())


@pytest.mark.parametrize("name", ["logs", "text", "logs-1"])
def test_outcomes_are_no_words_of_the_event(name: str) -> None:
    """Whatever is beside them, different texts are as near as without."""
    texts = [f"payment {word}" for word in "captured refunded voided held settled paid".split()]
    texts += ["login", "logout", "backup", "restore", "deploy", "rollback", "12345", "777"]
    texts += ["billing.invoice.created", "auth.user.deleted", "http://a.b/c", "http://a.b/d"]
    fields = OutcomeFields(load_recipe(name))
    event = {"level": "info", "status": 200, "success": True, "rc": 0, "type": "start"}
    values = [fields.compared(event, text.encode()) for text in texts]
    without, beside = (
        [decision.kind for decision in Deduplicator(name).process(list(some))]
        for some in ([text.encode() for text in texts], values)
    )
    assert beside == without


def test_lines_of_text_that_begin_so_hide_nothing() -> None:
    heads = ["a", "b", "info", "warn", "status=2xx", "code=2xx", "ok=true", "up=true", "", "a b"]
    lines = [f"‹{head}› disk full" for head in heads] + ["disk full"]
    kinds = [decision.kind.value for decision in Deduplicator(LOGS).process([*lines, *lines])]
    assert kinds == ["new"] * len(lines) + ["duplicate"] * len(lines)


def test_lines_of_text_in_such_quotes_stay_lines_of_text() -> None:
    lines = [f"‹2026-01-01 10:00:{second}› request {second} done" for second in range(10, 60)]
    kinds = {decision.kind.value for decision in Deduplicator(LOGS).process(lines)[1:]}
    assert kinds == {"duplicate"}


@pytest.mark.parametrize("value", ["‹error› GET /a/7", "‹error status=5xx› GET /a/8 by <b>"])
def test_pattern_and_exact_hash_of_one_event(value: str) -> None:
    fingerprinter = Fingerprinter(LOGS, HashKey(bytes(16)))
    event = value.encode()
    prepared = fingerprinter.prepare([b"x", event, b"y"], None)
    numbers = fingerprinter.fingerprints(prepared, full=True)
    assert numbers.exact[1] == fingerprinter.exact_of(event, None)
    (chosen,) = fingerprinter.fingerprints(fingerprinter.select(prepared, [1]), full=True).variants
    assert chosen == numbers.variants[1] != numbers.variants[0]
    outcomes, text = split(event)
    plain = fingerprinter.prepare([text], None)
    alone = fingerprinter.fingerprints(plain, full=True)
    assert alone.fingerprint(0) == numbers.fingerprint(1)
    shown = Patterns(LOGS).shown(event)
    said = outcomes.decode().replace("5xx", "<5xx>")
    assert shown.pattern == f"‹{said}› {Patterns(LOGS).pattern(text)}"
    assert shown.variant[0] == "ERROR"


heads = st.sampled_from(["", "‹error› ", "‹ERROR› ", "‹info status=2xx› ", "‹› ", "‹a", "› "])
bodies = st.sampled_from(
    ["sync of node 7", "GET /a", "", " ", "‹error› x", "\N{WON SIGN}", TRACE, JAVA]
)


@given(st.lists(st.builds(str.__add__, heads, bodies), max_size=6), st.randoms())
def test_an_event_has_one_exact_hash_however_it_is_read(
    texts: list[str], chance: random.Random
) -> None:
    fingerprinter = Fingerprinter(LOGS, HashKey(bytes(16)))
    values = [text.encode() for text in texts]
    prepared = fingerprinter.prepare(values, None)
    numbers = fingerprinter.fingerprints(prepared, full=True)
    assert list(numbers.exact) == [fingerprinter.exact_of(value, None) for value in values]
    rows = chance.sample(range(len(values)), k=len(values) // 2)
    chosen = fingerprinter.fingerprints(fingerprinter.select(prepared, rows), full=True)
    assert list(chosen.exact) == [numbers.exact[row] for row in rows]
    assert list(chosen.variants) == [numbers.variants[row] for row in rows]
    for value, exact in zip(values, numbers.exact, strict=True):
        outcomes, text = split(value)
        if outcomes and text.strip():
            assert exact != fingerprinter.exact_of(text, None)


def test_templates_are_of_the_text_alone() -> None:
    values = [compared("GET /a", **fields).encode() for fields in ({}, {"level": "info"})]
    values.append(compared("GET /b", level="error", success=False).encode())
    assert len(set(Templates(LOGS).ids(values))) == 1


def test_values_are_those_of_the_text() -> None:
    slots = SlotReader(LOGS).slots("‹error status=5xx› took 7 ms".encode())
    assert slots.values("‹info› took 9 ms".encode()) == [b"9 ms"]


def test_the_recipe_says_what_counts() -> None:
    event = {"level": "error", "status": 503, "result": "failed", "stack": TRACE}

    def of(**match: Any) -> bytes:
        return OutcomeFields(replace(LOGS, match=match)).compared(event, b"x")

    assert of(variants=["level"], protected=()) == "‹error› x".encode()
    assert of(variants=["status"], protected=()) == "‹status=5xx› x".encode()
    assert of(variants=["frames"], protected=()) == f"x\n{TRACE}".encode()
    assert of(variants=(), protected="outcomes") == "‹level=error result=failed› x".encode()
    assert of(variants=(), protected=("failed",)) == "‹result=failed› x".encode()
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
            f"‹{expected}› x".encode()
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


def looked(kind: str, document: dict[str, Any]) -> tuple[list[str], list[str]] | None:
    """The values and traces that native code or the reference finds; None for too many."""
    values: list[object] = []
    traces: list[tuple[str, object]] = []
    if kind == "reference":
        outcome_fields.look(document, values, traces)
    else:
        limits = outcome_fields._ROLES, outcome_fields.MAX_FIELDS, outcome_fields._MAX_WORD
        if _outcome_fields.look(document, *limits, values, traces) < 0:
            return None
    found = [repr(values[at : at + 4]) for at in range(0, len(values), 4)]
    return sorted(found), sorted(map(repr, traces))


@given(documents)
def test_native_look_equals_the_reference(document: dict[str, Any]) -> None:
    found = looked("native", document)
    assert found is None or found == looked("reference", document)
    reference = OutcomeFields(LOGS)
    reference._look = outcome_fields.look
    assert FIELDS.compared(document, b"x") == reference.compared(document, b"x")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_native_look_leaves_many_fields_to_the_reference(depth: int) -> None:
    most = outcome_fields.MAX_FIELDS[depth]
    names = sorted(outcome_fields._NAMES - {"http"})
    for count in (most, most + 1):
        document: dict[str, Any] = dict.fromkeys(names[:count], 1)
        for _ in range(depth):
            document = {"http": document}
        assert (looked("native", document) is None) == (count > most)
        assert looked("reference", document) is not None


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(TypeError):
        _outcome_fields.look([], {}, (1,), 1, [], [])  # type: ignore[arg-type]


@given(documents, st.binary(max_size=20))
def test_any_document_keeps_its_text(document: dict[str, Any], text: bytes) -> None:
    found = FIELDS.compared(document, text)
    rest = split(found).text if document else found
    assert rest == text or rest.startswith(text + b"\n") or not document
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

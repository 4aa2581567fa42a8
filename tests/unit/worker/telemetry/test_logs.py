"""Log lines: their shape, what is held back, and what never leaves."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stream_dedup.worker.telemetry.logs import (
    HIDDEN,
    MAX_CHARS,
    MAX_KEYS,
    PASSED,
    Logs,
    RateLimit,
    clean,
    clean_text,
    configure,
    context,
)

log = logging.getLogger("stream_dedup.test")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Log:
    """A log that is written to a string, on a clock that does not move."""

    def __init__(self, stream: io.StringIO | None = None, **options: Any) -> None:
        self.stream = stream or io.StringIO()
        self.now = 100.0
        self.logs: Logs = configure(stream=self.stream, now_s=lambda: self.now, **options)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


Make = Callable[..., Log]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Log] = []

    def one(*args: Any, **options: Any) -> Log:
        made.append(Log(*args, **options))
        return made[-1]

    yield one
    for each in made:
        each.logs.close()


# ------------------------------------------------------------ shape


def test_a_line_is_one_json_object_with_fields_in_order(make: Make) -> None:
    out = make()
    log.info("partition %s at %d", "t-0", 7, extra={"partition": 3, "topics": ("a", "b")})
    [line] = out.lines
    names = ["timestamp", "level", "logger", "event", "partition", "topics"]
    assert list(line) == names
    assert (line["level"], line["logger"]) == ("info", "stream_dedup.test")
    assert line["event"] == "partition t-0 at 7"
    assert (line["partition"], line["topics"]) == (3, ["a", "b"])


def test_the_time_is_that_of_the_event_in_utc(make: Make) -> None:
    out = make()
    log.info("now")
    written = out.lines[0]["timestamp"]
    assert written.endswith("Z")
    when = datetime.fromisoformat(written)
    assert when.tzinfo == UTC
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=1)


def test_an_exception_with_its_cause_is_one_field(make: Make) -> None:
    out = make()
    named = {"password=hunter2": int}
    try:
        try:
            named["password=hunter2"]("x")
        except ValueError as error:
            raise RuntimeError("a\x1b[2Jb") from error
    except RuntimeError:
        log.exception("it broke")
    [line] = out.lines
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert "ValueError" in line["exception"]
    assert "a\\x1b[2Jb" in line["exception"]
    assert "hunter2" not in out.text
    assert "exc_info" not in line


def test_fields_of_the_context_are_in_every_line_inside_it(make: Make) -> None:
    out = make()
    with context(pipeline="main"):
        log.info("inside")
    log.info("outside")
    assert [line.get("pipeline") for line in out.lines] == ["main", None]


def test_a_field_named_like_one_of_ours_does_not_replace_it(make: Make) -> None:
    out = make()
    log.info(
        "real", extra={"event": "false", "level": "fatal", "logger": "x", "timestamp": "never"}
    )
    [line] = out.lines
    assert line["level"] == "info"
    assert line["logger"] == "stream_dedup.test"
    assert line["timestamp"] != "never"
    assert line["event"] == "real"


def test_warnings_are_logged(make: Make) -> None:
    out = make()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("slow kernel", RuntimeWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert "slow kernel" in out.lines[0]["event"]
    assert out.lines[0]["logger"] == "py.warnings"


def test_levels_hold_and_aiokafka_is_quiet_unless_asked(make: Make) -> None:
    out = make(level="debug")
    logging.getLogger("aiokafka.consumer.group_coordinator").info("noise")
    logging.getLogger("aiokafka.consumer.group_coordinator").warning("trouble")
    logging.getLogger("asyncio").debug("noise")
    log.debug("detail")
    assert out.events == ["trouble", "detail"]
    out = make(level="warning", levels={"aiokafka": "info"})
    logging.getLogger("aiokafka.conn").info("asked for")
    log.info("not asked for")
    assert out.events == ["asked for"]


def test_auto_is_for_people_on_a_terminal_and_json_elsewhere(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = make()
    log.info("for machines")
    assert out.events == ["for machines"]
    out = make(Terminal())
    log.info("for people", extra={"partition": 3})
    assert "\x1b[" in out.text
    assert "for people" in out.text
    assert "partition" in out.text
    monkeypatch.setenv("NO_COLOR", "1")
    out = make(Terminal())
    log.info("without colours", extra={"partition": 3})
    assert "\x1b" not in out.text
    assert out.text.rstrip().endswith("partition=3")
    out = make(Terminal(), style="json")
    log.info("as written")
    assert out.events == ["as written"]


def test_people_see_a_plain_traceback_without_local_variables(make: Make) -> None:
    out = make(style="console")

    def broken(word: str) -> None:
        raise RuntimeError(len(word))

    try:
        broken("hunter2-local")
    except RuntimeError:
        log.exception("it broke")
    assert "Traceback (most recent call last):" in out.text
    assert "RuntimeError: 13" in out.text
    assert "word" not in out.text.replace("(word", "").replace("len(word", "")


def test_closing_puts_everything_back() -> None:
    root = logging.getLogger()
    quiet = logging.getLogger("aiokafka")
    before = root.handlers[:], root.level, quiet.level, warnings.showwarning
    with configure(stream=io.StringIO(), level="error"):
        assert before[0] != root.handlers
    assert (root.handlers[:], root.level, quiet.level, warnings.showwarning) == before


def test_without_a_stream_it_goes_to_what_standard_error_is_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    with configure("json"):
        log.info("one")
        monkeypatch.setattr(sys, "stderr", second)
        log.info("two")
    assert "one" in first.getvalue()
    assert "two" in second.getvalue()


# ------------------------------------------------------------ nothing stops the work


def test_a_wrong_log_call_or_a_closed_stream_stops_nothing(make: Make) -> None:
    out = make()
    log.info("%d events", "many")
    for _ in range(10):
        log.info("%s and %s", "one")  # noqa: PLE1206 -- is tested
    assert "cannot be made of '%d events'" in out.events[0]
    assert "\n" not in out.events[0]
    out.logs.close()
    closed = io.StringIO()
    closed.close()
    with configure(stream=closed):
        log.info("nobody reads it")


class Unshowable:
    """A value that fails when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_field_of_any_type_is_logged(make: Make) -> None:
    out = make()
    deep: list[Any] = []
    deep.append(deep)
    fields = {"a": Unshowable(), "b": {1: {2}}, "c": float("nan"), "d": b"\xff", "e": deep}
    log.info("odd", extra=fields)
    line = out.lines[0]
    assert "which cannot be shown: RuntimeError" in line["a"]
    assert (line["b"], line["c"], line["d"]) == ({"1": [2]}, "nan", "\\xff")


def test_lines_of_many_threads_stay_whole(make: Make) -> None:
    out = make()

    def many(number: int) -> None:
        for each in range(50):
            log.info("%s", "x" * 1_000, extra={"each": each, "thread_number": number})
            log.info(f"{number}.{each}")  # noqa: G004 -- a template of its own, so it is not held back

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(out.lines) == PASSED + 200


# ------------------------------------------------------------ what repeats


def test_the_first_few_pass_then_one_line_a_minute_says_how_often(make: Make) -> None:
    out = make()
    for number in range(30):
        log.warning("redis is away: try %d", number)
        out.now += 1
    out.logs.tick()
    assert len(out.lines) == PASSED
    out.now += 31
    out.logs.tick()
    last = out.lines[-1]
    assert last["event"] == "redis is away: try 5 … repeated 25 times"
    assert (last["level"], last["logger"], last["repeated"]) == ("warning", "stream_dedup.test", 25)
    log.warning("redis is away: try %d", 30)
    assert out.events[-1] == "redis is away: try 30"


def test_any_line_reports_due_repeats_and_closing_reports_the_rest(make: Make) -> None:
    out = make()
    with context(partition=7):
        for _ in range(PASSED + 1):
            log.info("a %s %%", "100%")
    out.now += 61
    with context(partition=8):
        log.info("b")
    assert out.events[-2:] == ["a 100% % … repeated 1 time", "b"]
    assert "partition" not in out.lines[-2]
    for _ in range(PASSED + 2):
        log.info("c")
    out.logs.close()
    assert out.events[-1] == "c … repeated 2 times"


def test_repeats_have_one_template_logger_and_level_above_debug(make: Make) -> None:
    out = make(level="debug")
    for _ in range(PASSED):
        log.info("a")
        log.warning("a")
        log.info("b")
        logging.getLogger("stream_dedup.other").info("a")
    for _ in range(50):
        log.debug("c")
    assert len(out.lines) == PASSED * 4 + 50


def test_what_is_remembered_is_bounded() -> None:
    repeats = RateLimit[int]()
    for key in range(MAX_KEYS * 3):
        for _ in range(PASSED + 1):
            repeats.due(0)
            repeats.passes(key, lambda: 0, 0)
    assert len(repeats._windows) <= MAX_KEYS + 1


def test_suppressed_lines_are_counted_exactly() -> None:
    repeats = RateLimit[str]()
    passed = reported = 0
    for step in range(5_000):
        reported += sum(each.times for each in repeats.due(step / 10))
        passed += repeats.passes(step % 7, lambda: "", step / 10)
    reported += sum(each.times for each in repeats.due(500, all_of_them=True))
    assert passed + reported == 5_000
    assert repeats.due(10_000) == []


# ------------------------------------------------------------ what never leaves


@pytest.mark.parametrize("style", ["json", "console"])
def test_control_characters_of_user_data_are_escaped(make: Make, style: str) -> None:
    out = make(style=style)
    hostile = 'a\x1b]0;owned\x07\r\n{"event": "forged"}\x7f\x9b2J\u202e\u2028\ud800'
    log.info("value %s", hostile, extra={"field": hostile, f"key{hostile}": 1, "deep": [hostile]})
    assert out.text.count("\n") == 1
    assert all(c.isprintable() for c in out.text.rstrip("\n"))
    assert "\\x1b]0;owned\\x07" in out.text.replace("\\\\", "\\")


def test_fields_named_like_secrets_are_hidden_however_deep(make: Make) -> None:
    out = make()
    log.info(
        "connecting",
        extra={
            "password": "hunter2",
            "sasl_plain_password": "hunter2",
            "settings": {"redis": [{"auth_token": "hunter2", "host": "h"}], "apiKey": "hunter2"},
            "tokens": 12,
        },
    )
    assert "hunter2" not in out.text
    line = out.lines[0]
    assert line["password"] == HIDDEN
    assert line["settings"]["redis"][0]["host"] == "h"
    assert line["tokens"] == 12


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@host:6379/0 refused",
        "rediss://:hunter2@host",
        "password=hunter2, user=u",
        "{'sasl_plain_password': 'hunter2'}",
        'sasl.jaas.config: password="hunter2 and more";',
        "token: hunter2",
        "API-KEY=hunter2",
    ],
)
def test_a_secret_with_its_name_is_hidden_in_a_text(text: str) -> None:
    shown = clean_text(text)
    assert "hunter2" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    ["http://host:80/a@b", "5 tokens: a b", "the password is wrong", "at 10:30:00 me@host"],
)
def test_a_text_without_secrets_stays(text: str) -> None:
    assert clean_text(text) == text


def test_a_long_text_is_cut_in_time_that_is_linear_in_it() -> None:
    for text in (
        "x" * 10**6,
        "://a:" * 10**5,
        "token" * 10**5,
        "password " * 10**5,
        "sasl" * 10**5,
    ):
        shown = clean_text(text)
        assert len(shown) <= MAX_CHARS + 1
    assert len(clean(list(range(1_000)))) == 100  # type: ignore[arg-type]

"""The worker's log: one line an event on standard error, as JSON or for people.

The package logs by the standard library's loggers (``stream_dedup.…``), and so do aiokafka and
redis. structlog, which only this module imports, shapes their records: fields in a fixed order,
times in UTC, an exception in one field, ``extra=`` as fields of their own.

Identical messages are rate-limited (`RateLimit`). Secrets and control characters are hidden
(`clean`): a backstop, by the name of a field and by what precedes a value in a text. It may
hide too much, and cannot find a secret without a name.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Generic, Literal, NamedTuple, Self, TypeVar, cast

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, Processor

Style = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error", "critical"]

QUIET = ("aiokafka", "asyncio")
"""Loggers that write several lines about each rebalance and connection: shown from warning on,
whatever the level, unless they are given a level of their own."""

_FIRST = ("timestamp", "level", "logger", "event")
_LAST = ("exception", "stack")


def configure(
    style: Style = "auto",
    level: Level = "info",
    *,
    levels: Mapping[str, Level] | None = None,
    stream: IO[str] | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> Logs:
    """Send all log messages to a stream, and nowhere else.

    Args:
        style: `json`, `console`, or `auto`: for people when the stream is a terminal.
        level: the lowest level that is logged.
        levels: another level for some loggers and their children, `aiokafka` for example.
        stream: without one, `sys.stderr`, looked up for each line.
        now_s: seconds on a monotonic clock, for the rate limit.

    Returns:
        The log: call `tick` each second and `close` at the end.
    """
    terminal = is_terminal(stream or sys.stderr)
    people = style == "console" or (style == "auto" and terminal)
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler = _Handler(_formatter(people=people, colours=colours), stream, now_s)
    own = {**dict.fromkeys(QUIET, "warning"), **(levels or {})}
    levels_set = {name: _number(each) for name, each in own.items()}
    return Logs(handler, _number(level), levels_set, as_json=not people)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; a closed or missing one is not."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def context(**fields: object) -> AbstractContextManager[None]:
    """Add fields to all that is logged inside, in this task and those it starts."""
    return structlog.contextvars.bound_contextvars(**fields)


class Logs:
    """The configured log. As a context manager, it closes itself.

    Attributes:
        as_json: whether its lines are JSON.
    """

    def __init__(
        self, handler: _Handler, level: int, levels: dict[str, int], *, as_json: bool
    ) -> None:
        self.as_json = as_json
        self._handler = handler
        root = logging.getLogger()
        self._before = root.handlers[:], root.level
        self._levels_before = {name: logging.getLogger(name).level for name in levels}
        root.handlers[:] = [handler]
        root.setLevel(level)
        for name, least in levels.items():
            logging.getLogger(name).setLevel(least)
        logging.captureWarnings(capture=True)

    def tick(self) -> None:
        """Log due repetitions. Without this call, the next line does."""
        self._handler.log_repeated()

    def log_repeated(self) -> None:
        """Log all repetitions, so that the next line is the last one."""
        self._handler.log_repeated(all_of_them=True)

    def close(self) -> None:
        """Log all repetitions, and restore the loggers as they were."""
        self.log_repeated()
        logging.captureWarnings(capture=False)
        root = logging.getLogger()
        if self._handler in root.handlers:
            root.handlers[:], level = self._before
            root.setLevel(level)
        for name, least in self._levels_before.items():
            logging.getLogger(name).setLevel(least)
        self._handler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(logging.Handler):
    """Writes lines, rate-limited."""

    def __init__(
        self, formatter: logging.Formatter, stream: IO[str] | None, now_s: Callable[[], float]
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._stream = stream
        self._now_s = now_s
        self._limit = RateLimit[_Held]()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless it repeats too often; the base class holds the lock."""
        now_s = self._now_s()
        self._write_repeated(self._limit.due(now_s))
        key = (record.name, record.levelno, str(record.msg)[:200])
        if record.levelno <= logging.DEBUG or self._limit.passes(
            key, lambda: _Held(record.name, record.levelno, _message(record)), now_s
        ):
            self._write(record)

    def log_repeated(self, *, all_of_them: bool = False) -> None:
        """Write how often messages were repeated: those that are due, or all."""
        with cast(AbstractContextManager[object], self.lock):
            self._write_repeated(self._limit.due(self._now_s(), all_of_them=all_of_them))

    def _write_repeated(self, due: list[Repeated[_Held]]) -> None:
        for held, times, _ in due:
            text = f"{held.message} … repeated {times} {'time' if times == 1 else 'times'}"
            record = _record(held.name, held.level, text)
            record.__dict__["repeated"] = times
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001 -- a bad log call must not stop the work
            text = f"a log line cannot be made of {str(record.msg)!r}: {error!r}"
            line = self.format(_record(record.name, record.levelno, text))
        try:
            stream: IO[str] | None = self._stream or sys.stderr
            if stream is not None:
                stream.write(f"{line}\n")
                stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads the log


class _Held(NamedTuple):
    """What is kept of a suppressed record: nothing that keeps other objects alive."""

    name: str
    level: int
    message: str


def _record(name: str, level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, text, (), None)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- as in `_write`
        return str(record.msg)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


# ------------------------------------------------------------ the shape of a line


def _formatter(*, people: bool, colours: bool) -> ProcessorFormatter:
    renderer: Processor
    if people:
        # structlog's own choice would show local variables, and with them secrets.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(
            colors=colours, exception_formatter=plain, sort_keys=False
        )
    else:
        renderer = structlog.processors.JSONRenderer()
    return ProcessorFormatter(
        foreign_pre_chain=[_with_context, ExtraAdder()],
        processors=[structlog.processors.format_exc_info, _shaped, renderer],
    )


def _with_context(logger: object, method: str, event: EventDict) -> EventDict:
    """Add the fields of `context`, and protect the message from fields of its name."""
    event["_message"] = event["event"]
    if hasattr(event["_record"], "repeated"):  # written in another context than its own
        return event
    return structlog.contextvars.merge_contextvars(logger, method, event)


def _shaped(_: object, __: str, event: EventDict) -> EventDict:
    """Order and clean the fields."""
    record: logging.LogRecord = event.pop("_record")
    del event["_from_structlog"]
    message = event.pop("_message")
    if event["event"] == message:
        del event["event"]
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    shaped: dict[str, Any] = {
        "timestamp": when.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": clean_text(message),
    }
    stack = event.pop("stack_info", None)
    trace = {"exception": event.pop("exception", None), "stack": stack}
    for name, value in event.items():
        field = f"{name}_" if name in (*_FIRST, *_LAST) else name
        shaped[clean_text(field)] = HIDDEN if is_secret(name) else clean(value)
    shaped |= {name: clean(text, lines=True) for name, text in trace.items() if text}
    return shaped


# ------------------------------------------------------------ values that are safe to log

HIDDEN = "[hidden]"

MAX_CHARS = 20_000
"""Characters logged of one text: twice a long traceback."""

_MAX_DEPTH = 6
_MAX_ITEMS = 100

_SECRET_NAME = re.compile(
    r"passw|passphrase|pwd|secret|sasl|credential|(?:api|private|access)[-_.]?key|authorization"
    r"|(?:^|[^a-z])token(?:$|[^a-z])|[a-z]Token$|^auth$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(?=@)")
_IN_TEXT = re.compile(
    r"""((?:passwords?|passwd|passphrase|pwd|secret|token|sasl[\w.]{0,40}password|api[-_]?key)"""
    r"""["']?\s{0,3}[=:]\s{0,3})(?:"[^"]*"|'[^']*'|[^\s,;&'"]+)""",
    re.IGNORECASE,
)


def clean(value: object, *, lines: bool = False, depth: int = 0) -> object:
    """Make a value safe to log: plain types, secrets hidden, texts escaped and cut.

    >>> clean({"user": "sam", "password": "hunter2", "line": b"a\\x1b[2Jb"})
    {'user': 'sam', 'password': '[hidden]', 'line': 'a\\\\x1b[2Jb'}

    Args:
        value: anything.
        lines: whether line ends and tabs are kept, as in a traceback.
        depth: how deep it is nested in a field.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, str | bytes) or depth >= _MAX_DEPTH:
        return clean_text(_as_text(value), lines=lines)
    if isinstance(value, Mapping):
        return {
            clean_text(str(key)): HIDDEN if is_secret(str(key)) else clean(item, depth=depth + 1)
            for key, item in list(value.items())[:_MAX_ITEMS]
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth=depth + 1) for item in list(value)[:_MAX_ITEMS]]
    return clean_text(_as_text(value), lines=lines)


def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret.

    >>> list(map(is_secret, ("user", "tokens", "token", "sasl.password", "authToken")))
    [False, False, True, True, True]
    """
    return _SECRET_NAME.search(name) is not None


def clean_text(text: str, *, lines: bool = False) -> str:
    r"""Hide secrets in a text, and escape what is not printable.

    >>> clean_text("redis://me:hunter2@host/0\x1b[2J\n")
    'redis://me:[hidden]@host/0\\x1b[2J\\n'
    """
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}…"
    text = _IN_URL.sub(rf"\1{HIDDEN}", text)
    text = _IN_TEXT.sub(rf"\1{HIDDEN}", text)
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 -- a log line must not stop the work
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"


# ------------------------------------------------------------ identical messages

PASSED = 5
"""Identical messages that pass in a window."""

WINDOW_S = 60.0

MAX_KEYS = 1_000
"""Windows kept at once; beyond it the oldest ends early. Keys may come from data."""

Item = TypeVar("Item")


@dataclass(slots=True)
class _Window(Generic[Item]):
    began_s: float
    seen: int = 0
    first: Item | None = None


class Repeated(NamedTuple, Generic[Item]):
    """What was suppressed in a window.

    Attributes:
        item: the first that was suppressed.
        times: how many were, including that one.
        for_s: how long the window was open.
    """

    item: Item
    times: int
    for_s: float


class RateLimit(Generic[Item]):
    """Lets identical messages pass a few times a minute, and counts the rest. Pure.

    A key's window of `WINDOW_S` begins with its first message; `PASSED` messages pass in it. When
    it is over, the number of the others is due, and the next message begins a new window. Windows
    are kept in the order of their beginnings, so those that are over come first.

    >>> limit = RateLimit[str]()
    >>> [limit.passes("k", lambda: "disk full", now_s=0) for _ in range(7)]
    [True, True, True, True, True, False, False]
    >>> limit.due(now_s=60)
    [Repeated(item='disk full', times=2, for_s=60)]
    """

    def __init__(self) -> None:
        self._windows: dict[Hashable, _Window[Item]] = {}

    def passes(self, key: Hashable, item: Callable[[], Item], now_s: float) -> bool:
        """Whether a message passes now. Call `due` first.

        Args:
            key: equal for messages that count as identical.
            item: makes what is kept of it, if it is the first to be suppressed.
            now_s: the time.
        """
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now_s)
        window.seen += 1
        if window.seen <= PASSED:
            return True
        if window.first is None:
            window.first = item()
        return False

    def due(self, now_s: float, *, all_of_them: bool = False) -> list[Repeated[Item]]:
        """End the windows that are over, or all, and return what was suppressed in them."""
        due: list[Repeated[Item]] = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            for_s = now_s - window.began_s
            if for_s < WINDOW_S and len(self._windows) <= MAX_KEYS and not all_of_them:
                break
            del self._windows[key]
            if window.first is not None:
                due.append(Repeated(window.first, window.seen - PASSED, for_s))
        return due

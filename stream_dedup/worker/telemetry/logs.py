"""The worker's log: one line an event on standard error, as JSON or for people.

The package logs by the standard library's loggers (``stream_dedup.…``), and so do aiokafka and
redis. Here, once, their records get their shape by structlog, which nothing else imports: fields in
a fixed order, times in UTC, an exception in one field, ``extra=`` as fields of their own. What
repeats is held back (see `repeats`), and no secret or control character leaves (see `log_fields`).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import IO, Any, Literal, NamedTuple, Self, cast

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, Processor

from stream_dedup.worker.telemetry.log_fields import HIDDEN, clean, clean_text, is_secret
from stream_dedup.worker.telemetry.rate_limit import Repeated, Repeats

Style = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error", "critical"]

QUIET = ("aiokafka", "asyncio")
"""Loggers that tell each rebalance and connection in several lines: from warning on, whatever the
level, unless they are given one of their own."""

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
    """Send all that is logged from now on to a stream, in place of where it went before.

    Args:
        style: `json`, `console`, or `auto`: for people when the stream is a terminal.
        level: the least level that is logged.
        levels: another level for some loggers and those below them, `aiokafka` for example.
        stream: where to; without one, what `sys.stderr` is at the time.
        now_s: seconds on a clock that never goes back, for what repeats.

    Returns:
        What to `tick` each second and to `close` at the end.
    """
    terminal = is_terminal(stream or sys.stderr)
    people = style == "console" or (style == "auto" and terminal)
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler = _Handler(_formatter(people=people, colours=colours), stream, now_s)
    own = {**dict.fromkeys(QUIET, "warning"), **(levels or {})}
    return Logs(handler, _number(level), {name: _number(each) for name, each in own.items()})


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; one that was closed, or was never there, is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def context(**fields: object) -> AbstractContextManager[None]:
    """Add fields to whatever is logged inside, in this task and those it starts."""
    return structlog.contextvars.bound_contextvars(**fields)


class Logs:
    """The log while it stands; made by `configure`. As a context manager, it closes itself."""

    def __init__(self, handler: _Handler, level: int, levels: dict[str, int]) -> None:
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
        """Tell what repeated and is due; called each second or so, else the next line tells it."""
        self._handler.tell()

    def close(self) -> None:
        """Tell all that repeated, and put everything back as it was."""
        self._handler.tell(all_of_them=True)
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
    """Writes lines, and holds back what repeats."""

    def __init__(
        self, formatter: logging.Formatter, stream: IO[str] | None, now_s: Callable[[], float]
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._stream = stream
        self._now_s = now_s
        self._repeats = Repeats[_Held]()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless it repeats; the base class holds the lock."""
        now_s = self._now_s()
        self._tell(self._repeats.due(now_s))
        key = (record.name, record.levelno, str(record.msg)[:200])
        # What is being looked for is not held back.
        if record.levelno <= logging.DEBUG or self._repeats.passes(
            key, lambda: _Held(record.name, record.levelno, _message(record)), now_s
        ):
            self._write(record)

    def tell(self, *, all_of_them: bool = False) -> None:
        """Write how often something was repeated, of what is due or of all."""
        with cast(AbstractContextManager[object], self.lock):
            self._tell(self._repeats.due(self._now_s(), all_of_them=all_of_them))

    def _tell(self, due: list[Repeated[_Held]]) -> None:
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
            pass  # nobody reads the log: there is nowhere to say so


class _Held(NamedTuple):
    """What is kept of a record that is held back: nothing that keeps other things alive."""

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
    """Add the fields of `context`, and keep the message from fields that have its name."""
    event["_message"] = event["event"]
    if hasattr(event["_record"], "repeated"):  # told from some other's context than its own
        return event
    return structlog.contextvars.merge_contextvars(logger, method, event)


def _shaped(_: object, __: str, event: EventDict) -> EventDict:
    """Fields in order, as they may be logged."""
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

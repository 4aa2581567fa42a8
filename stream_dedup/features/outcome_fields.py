"""Fields of JSON events that say how an event ended, beside its text.

Problem: of a JSON event the text is compared. ``{"level": "error", "msg": "sync of node 7"}`` and
the same with ``info`` have one text; so have a request with status 200 and one with 503. As lines
of text they have different variants (`variants`), and never share a cluster.

Idea: put in front of the text, in angle quotes, what would be in the variant of such a line, by
field::

    {"level": "error", "msg": "sync of node 7"}                ‹error› sync of node 7
    {"msg": "GET /a", "status": 503, "user": "ann"}            ‹status=5xx› GET /a
    {"severity": 6, "msg": "job ended", "success": false}      ‹info success=false› job ended

This is what an index keeps, and what people read. Whoever hashes it, or reads its words, splits it
again. The *outcomes* in the quotes belong to the variant only: they are no words of the event, and
two texts are as near as they are without them. Quotes with anything else are text.

Fields come in the order of the tables below, whatever their order in the event is. What gives no
variant is left out: a status that is no HTTP status, a result that is not one protected word. A
stack trace in a field of its own follows the text, as it does in a file.

Only the recipe decides what is taken: levels where ``match.variants`` has ``level``, statuses and
exit codes for ``status``, traces for ``frames``, and words that are protected.

What the fields of an event say is remembered by their values, as few are usual. Events are hostile:
of one that has more fields than anybody writes, only the first by the order of the tables count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypeGuard

from stream_dedup.columnar import split_quoted
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.traces import (
    CAUSES,
    TRACEBACKS,
    WRITTEN_LINE_END,
    has_lines,
    trace_of,
)
from stream_dedup.features.variants import LEVELS
from stream_dedup.native import native_or


def spellings(words: str) -> Iterator[str]:
    """Yield the usual spellings of a name.

    >>> sorted(spellings("log level"))  # doctest: +NORMALIZE_WHITESPACE
    ['LOGLEVEL', 'LOG_LEVEL', 'LogLevel', 'log-level', 'logLevel', 'log_level', 'loglevel']
    """
    parts = words.split()
    pascal = "".join(part.capitalize() for part in parts)
    yield from dict.fromkeys(
        (
            *(separator.join(parts) for separator in ("", "_", "-")),
            *(separator.join(parts).upper() for separator in ("", "_")),
            pascal,
            pascal[0].lower() + pascal[1:],
        )
    )


def _names(names: str) -> list[str]:
    """Return all spellings of names that are separated by commas."""
    return list(chain.from_iterable(map(spellings, names.split(","))))


LEVEL_FIELDS = (
    *_names("level name,severity text,error severity,log level,level,lvl,severity,sev"),
    *("@l", "@level"),  # Serilog; HashiCorp's
    *("PRIORITY", *_names("syslog severity"), "syslogseverity-text"),  # journald; rsyslog
    *_names("severity number,severity level,severity label,level display name,levelno"),
    *_names("priority name,priority,label"),
    *("l", "s"),  # s: MongoDB
)
"""Names of levels; the first one counts whose value is a level."""

WORD_FIELDS = tuple(
    _names(
        "status,state,result,outcome,success,succeeded,successful,ok,passed,failed,error,err,res,"
        "action,allowed,blocked,decision,verdict,conclusion,disposition,health,healthy,cache,"
        "job result,grpc code,type,kind"
    )
)
"""Names of fields whose value, if it is one protected word, says how an event ended."""

STATUS_FIELDS = tuple(
    _names(
        "status,status code,http status,http status code,http response status code,response,"
        "response status,response code,http code,http response code,sc status,upstream status,"
        "downstream status,origin status,elb status code,code"
    )
)
"""Names of HTTP statuses."""

EXIT_FIELDS = tuple(
    _names(
        "exit code,exit status,exit value,process exit code,container exit code,return code,"
        "ret code,retval,rc,err,errno,err code,grpc status,failed,failures,errors"
    )
)
"""Names of exit codes, error numbers and counts of failures."""

TRACE_FIELDS = (
    "thrown",  # Log4j's
    *_names("stack trace,error stack trace,extended stack trace,exc info,exc text,exception"),
    *_names("traceback,backtrace,stack,full message"),
    "@x",  # Serilog
)
"""Names of stack traces; the first one counts that holds one."""

LOG4J_FRAMES = "extendedStackTrace"
"""Name of the frames of an object that is an exception, as Log4j writes it."""

PARENTS = (
    *("res", "response", "http", "httpRequest", "http.response", "responseStatus", "log", "event"),
    *("err", "error", "exception", "thrown", "fields", "attributes", "attr", "alert", "process"),
    *("properties", "Properties", "context", "jsonPayload", "record"),
)
"""Names of objects that may hold such fields, also before a dot and a field's name."""

MAX_FIELDS = (32, 16, 8)
"""Fields of an object that are looked at, by its depth."""

MAX_OUTCOMES = 8
"""Outcomes of one event that are compared."""

MAX_TRACES = 2
"""Fields of one event that are looked at for a trace."""

MAX_KNOWN = 4_096
"""Combinations of values that are remembered."""

MAX_REMEMBERED = 12
"""Values of one such combination."""

SYSLOG = dict(enumerate("emerg alert crit err warning notice info debug".split()))
"""Names of the levels that syslog writes as numbers."""

PINO = {
    10 * number: name for number, name in enumerate("trace debug info warn error fatal".split(), 1)
}
"""Those of Pino and Bunyan."""

PYTHON = {
    10 * number: name for number, name in enumerate("debug info warning error critical".split(), 1)
}
"""Those of Python's `logging`."""

OPENTELEMETRY = dict(
    enumerate((name for name in PINO.values() for _ in range(4)), 1)  # TRACE, TRACE2, …
)
"""Those of OpenTelemetry."""

AZURE = dict(enumerate("trace info warning error critical".split()))
"""Those of Azure's Application Insights."""

NO_NUMBERS: dict[int, str] = {}
"""Levels of events of other loggers, whose numbers are not known."""

NUMBERED = {
    **dict.fromkeys(["PRIORITY", *_names("syslog severity,severity,sev")], SYSLOG),
    **dict.fromkeys(_names("severity number"), OPENTELEMETRY),
    **dict.fromkeys(_names("severity level"), AZURE),
    **dict.fromkeys(_names("levelno"), PYTHON),
}
"""Names of levels by their numbers, by the name of the field."""

OTHER_NAMES = dict(
    pair.split("=")
    for pair in (
        "information=info informational=info verbose=trace vrb=trace emergency=emerg dpanic=panic "
        "config=debug fine=debug finer=trace finest=trace"  # java.util.logging's
    ).split()
)
"""Levels by other names than `variants.LEVELS`, in lower case."""

LETTERS = dict(
    pair.split("=")
    for pair in (
        "t=trace v=trace d=debug d1=debug d2=debug d3=debug d4=debug d5=debug "
        "i=info n=notice w=warning e=error c=critical f=fatal"
    ).split()
)
"""Levels by the letters that some loggers write for them, in lower case."""

_LETTERED = frozenset(["s", "l", "@l", *_names("level,lvl,severity,sev,log level")])
_OF_GELF = "short_message"
_OF_PINO = frozenset(["time", "pid", "hostname", "v"])
MARKS = _OF_PINO | {_OF_GELF}
"""Names of fields that need not have a value: they tell which logger wrote an event."""


_QUOTES = "`'"
_MAX_WORD = 48
_LARGEST = 10**20
OPENS, CLOSES = "‹", "› "
"""Around the outcomes of an event, before its text."""

FIRST_BYTE = OPENS.encode()[:1]
"""The first byte of an event that may have outcomes."""

_OPENS, _CLOSES = OPENS.encode(), CLOSES.encode()
_MAX_OUTCOMES_BYTES = 1_024
_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,16}m")
_WHOLE = re.compile(r"(-?[0-9]{1,20})\.0")  # as data frames write whole numbers beside missing ones
_ADJUSTED = re.compile(r"([A-Za-z]{3,8})[+-][0-9]{1,3}")  # Go's slog
_DIGITS = re.compile(r"[0-9]{1,3}")
_STATUS = re.compile(r"([1-5])[0-9]{2}(?:\Z| [A-Z]|, )")  # with its reason, or others behind it
_EXIT = re.compile(r"-?(?:0[xX][0-9A-Fa-f]{1,16}|[0-9]{1,20})")

_FIELDS = tuple(
    dict.fromkeys((*LEVEL_FIELDS, *WORD_FIELDS, *STATUS_FIELDS, *EXIT_FIELDS, *TRACE_FIELDS))
)
_OWN_NAMES = (
    dict(zip(_FIELDS, _FIELDS, strict=True))
    | {f"_{name}": name for name in _FIELDS}  # GELF's own
    | {f"{parent}.{name}": name for parent in PARENTS for name in _FIELDS}
    | {"process.exit.code": "exit_code"}  # OpenTelemetry's, as the next
    | {"rpc.grpc.status_code": "grpc_status", "grpc.code": "grpc_code"}
)
"""Of each name that is looked at, the part that is the field's own."""

_RANKS = {name: rank for rank, name in enumerate((*_FIELDS, *_OWN_NAMES, *PARENTS))}
_NAMES = frozenset(_RANKS)
_OWN_RANKS = {name: rank for rank, name in enumerate(_FIELDS)}
_LEVEL_FIELDS, _WORD_FIELDS = frozenset(LEVEL_FIELDS), frozenset(WORD_FIELDS)
_STATUS_FIELDS, _EXIT_FIELDS = frozenset(STATUS_FIELDS), frozenset(EXIT_FIELDS)

_LEVEL, _TRACE, _TEXT, _PARENT = 1, 2, 4, 8
_ROLES = {
    name: (
        (_LEVEL if own in _LEVEL_FIELDS else 0)
        | (_TRACE if own in TRACE_FIELDS else 0)
        | (_TEXT if own is None else 0)  # if it is no object
        | (_PARENT if name in PARENTS else 0)
    )
    for name in _RANKS
    for own in (_OWN_NAMES.get(name),)
}
"""What the value of each name may be."""


class OutcomeFields:
    """Finds what a recipe takes of the fields beside an event's text.

    Args:
        recipe: what counts as near.
    """

    def __init__(self, recipe: Recipe) -> None:
        kinds = recipe.match.variants
        self._levels = frozenset(LEVELS) if "level" in kinds else frozenset()
        outcomes = recipe.protected - recipe.levels
        self._outcomes = frozenset(map(bytes.decode, outcomes))
        self._has_status = "status" in kinds
        self._has_traces = "frames" in kinds
        self._takes = takes_outcomes(recipe)
        self._look = fastest_look()
        self._known: dict[tuple[object, ...], bytes] = {}
        self._are_traces: dict[bytes, bool] = {}

    def columns(self, names: Collection[str]) -> list[str]:
        """Return which fields of events have to be given, of all that there are."""
        if not self._takes or _NAMES.isdisjoint(names):
            return []
        return [name for name in names if name in _NAMES or name in MARKS]

    def compared(self, document: dict[str, Any], text: bytes) -> bytes:
        """Return what is compared of an event: its text, and what its other fields say.

        Args:
            document: the event.
            text: its text, a field of it.

        >>> from stream_dedup.features.recipe import load_recipe
        >>> fields = OutcomeFields(load_recipe("logs"))
        >>> event = {"msg": "GET /a", "status": 503, "lvl": "error"}
        >>> print(fields.compared(event, b"GET /a").decode())
        ‹error status=5xx› GET /a
        """
        values: list[object] = [0]
        traces: list[tuple[str, object]] = []
        if not self._takes or not text.strip() or not self._look(document, values, traces):
            return text
        level = document.get("level")
        numbered: Mapping[int, str] = NO_NUMBERS
        if level is not None and (not isinstance(level, str) or level[:1].isdigit()):
            numbered = _numbered(document)
        values[0] = id(numbered)
        given = tuple(values)
        said = self._known.get(given)
        if said is None:
            said = self._said(given, numbered)
            self._remember(given, said)
        if traces and self._has_traces:
            text = self._with_trace(text, traces)
        return said + text

    def knows(self, document: dict[str, Any], name: str) -> bool:
        """Return whether a field of an event gives an outcome."""
        alone = {each: document[each] for each in (name, *MARKS) if each in document}
        return self.compared(alone, b"text") != b"text"

    def _remember(self, given: tuple[object, ...], said: bytes) -> None:
        numbers = (value for value in given if type(value) is int)
        if len(given) > 1 + 4 * MAX_REMEMBERED or any(abs(each) >= _LARGEST for each in numbers):
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[given] = said

    def _said(self, given: tuple[object, ...], numbered: Mapping[int, str]) -> bytes:
        fields = []
        for at in range(1, len(given), 4):
            name, depth, _, value = given[at : at + 4]
            word = _word(value)
            if word is not None:
                own = _OWN_NAMES[str(name)]
                fields.append((_OWN_RANKS[own], depth, _RANKS[str(name)], own, word))
        words = [(own, word) for *_, own, word in sorted(fields)]
        levels = (self._level(own, word, numbered) for own, word in words if own in _LEVEL_FIELDS)
        level = next(filter(None, levels), None)
        outcomes = dict.fromkeys(filter(None, (self._outcome(*each) for each in words)))
        said = " ".join(filter(None, (level, *islice(outcomes, MAX_OUTCOMES))))
        return f"{OPENS}{said}{CLOSES}".encode() if said else b""

    def _level(self, name: str, word: str, numbered: Mapping[int, str]) -> str | None:
        """Return a level's name, in lower case.

        Args:
            name: the field's own name.
            word: its value.
            numbered: the levels of a field that is called ``level``, by their numbers.
        """
        if not self._levels:
            return None
        adjusted = _ADJUSTED.fullmatch(word)
        word = adjusted[1] if adjusted else word
        lower = word.lower()
        if lower in self._levels:
            return lower
        if _DIGITS.fullmatch(word):
            return NUMBERED.get(name, numbered if name == "level" else NO_NUMBERS).get(int(word))
        return OTHER_NAMES.get(lower) or (LETTERS.get(lower) if name in _LETTERED else None)

    def _outcome(self, name: str, word: str) -> str | None:
        """Return what a field says, if it belongs to the variant."""
        if name in _WORD_FIELDS or (name in _LEVEL_FIELDS and not self._levels):
            lower = word.lower()
            if lower in self._outcomes or (lower in self._levels and name in _WORD_FIELDS):
                return f"{name}={lower}"
        if not self._has_status:
            return None
        status = _STATUS.match(word) if name in _STATUS_FIELDS else None
        if status:
            return f"{name}={status[1]}xx"
        if name in _EXIT_FIELDS and _EXIT.fullmatch(word):
            return f"{name}={'nonzero' if word.strip('-0xX') else 'zero'}"
        return None

    def _with_trace(self, text: bytes, traces: list[tuple[str, object]]) -> bytes:
        """Return a text with the first stack trace of the fields, unless it has that."""
        found = [
            (_OWN_RANKS[_OWN_NAMES[name]], _RANKS[name], _lines(value)) for name, value in traces
        ]
        for _, _, trace in sorted(found)[:MAX_TRACES]:
            if b"\n" in trace and self._is_trace(trace) and trace not in text:
                if has_lines(text) and b"\n" not in text:  # as rsyslog writes them
                    return text + WRITTEN_LINE_END + trace.replace(b"\n", WRITTEN_LINE_END)
                return b"%b\n%b" % (text, trace)
        return text

    def _is_trace(self, trace: bytes) -> bool:
        found = self._are_traces.get(trace)
        if found is None:
            found = trace_of(b"event\n" + trace) is not None  # Go's follows a line of the log
            if len(trace) <= 1 << 14:
                if len(self._are_traces) >= 256:
                    self._are_traces.clear()
                self._are_traces[trace] = found
        return found


class Event(NamedTuple):
    """What is compared of an event, in its parts.

    Attributes:
        outcomes: what its other fields say; empty for nothing.
        text: its text.
    """

    outcomes: bytes
    text: bytes


def split(value: bytes) -> Event:
    """Split what is compared of an event into outcomes and text.

    >>> split(b"GET /a")
    Event(outcomes=b'', text=b'GET /a')
    >>> split("‹error status=5xx› GET /a".encode())
    Event(outcomes=b'error status=5xx', text=b'GET /a')
    """
    (text,), outcomes = split_all([value])
    return Event(outcomes.get(0, b""), text)


def split_all(values: Sequence[bytes]) -> tuple[list[bytes], dict[int, bytes]]:
    """Do the same for many: return their texts, and the outcomes of the rows that have some."""
    texts = list(values)
    found = split_quoted(values, _OPENS, _CLOSES, _MAX_OUTCOMES_BYTES)
    known = {each for each in set(found[1]) if _are_outcomes(each)}
    outcomes: dict[int, bytes] = {}
    for row, quoted, text in zip(*found, strict=True):
        if quoted in known:
            texts[row], outcomes[row] = text, quoted
    return texts, outcomes


@lru_cache(MAX_KNOWN)
def _are_outcomes(quoted: bytes) -> bool:
    """Return whether `OutcomeFields` writes such outcomes."""
    if not quoted.isascii():
        return False
    level, *rest = words = quoted.decode().split(" ")
    fields = [word.partition("=") for word in (rest if level in LEVELS else words)]
    return len(fields) <= MAX_OUTCOMES and all(
        name in _OWN_RANKS and word and word == word.lower() for name, _, word in fields
    )


def takes_outcomes(recipe: Recipe) -> bool:
    """Return whether a recipe takes fields beside the text."""
    return not recipe.input.fields and bool(recipe.match.variants or recipe.protected)


def _numbered(document: Mapping[str, object]) -> Mapping[int, str]:
    """Return the levels of an event's field ``level`` by their numbers."""
    if _OF_GELF in document:
        return SYSLOG
    return NO_NUMBERS if _OF_PINO.isdisjoint(document) else PINO


def look(
    document: dict[str, Any],
    values: list[object],
    traces: list[tuple[str, object]],
    depth: int = 0,
) -> int:
    """Look at the fields of an object, and of those in it.

    Args:
        document: the object.
        values: is given name, depth, type and value of each; the type, as 1 equals true.
        traces: is given names and values of those that may be a stack trace.
        depth: of the object.

    Returns:
        How many names are known.
    """
    names: Collection[str] = _NAMES.intersection(document)
    if len(names) > MAX_FIELDS[depth]:
        names = sorted(names, key=_RANKS.__getitem__)[: MAX_FIELDS[depth]]
    for name in names:
        value, role = document[name], _ROLES[name]
        kind = value.__class__
        if kind is str or kind is bytes:
            if role & _TRACE:
                traces.append((name, value))
                continue
            if len(value) > _MAX_WORD or role & _TEXT:
                continue
        elif kind is dict:
            if role & _TRACE and LOG4J_FRAMES in value:
                traces.append((name, value))
            if role & _PARENT and depth + 1 < len(MAX_FIELDS):
                look(value, values, traces, depth + 1)
            if not role & _LEVEL:
                continue
            value, kind = value.get("name"), str  # Loguru's level
            if not isinstance(value, str):
                continue
        elif kind is list:
            if role & _TRACE:
                traces.append((name, value))
            continue
        elif role & _TEXT or value is None or (kind is float and not value.is_integer()):
            continue
        values += name, depth, kind, value
    return len(names)


Look = Callable[[dict[str, Any], list[object], list[tuple[str, object]]], int]


def fastest_look() -> Look:
    """Return `look`, natively where that was compiled: for up to `MAX_FIELDS`."""
    native_look: Callable[..., int] | None = native_or("features._outcome_fields", "look", None)
    if native_look is None:
        return look

    def looked(
        document: dict[str, Any], values: list[object], traces: list[tuple[str, object]]
    ) -> int:
        found = native_look(document, _ROLES, MAX_FIELDS, _MAX_WORD, values, traces)
        if found < 0:
            del values[1:], traces[:]
            found = look(document, values, traces)
        return found

    return looked


def _lines(value: object) -> bytes:
    """Return a trace, which may be given as a list, or as an object."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        value = "\n".join(_lines_of_log4j(value))
    elif isinstance(value, list):
        if any(isinstance(each, dict) and "frames" in each for each in value):
            value = value[::-1]  # structlog's: an exception comes before its cause
        value = "\n".join(chain.from_iterable(map(_lines_of, value)))
    return str(value).encode("utf-8", "surrogatepass")


def _lines_of(element: object) -> Iterator[str]:
    """Yield the lines of an element of a list that is a trace, as a trace in a file has them."""
    if isinstance(element, str):
        place, _, name = element.partition(":in ")
        if element.startswith("at "):  # Elasticsearch leaves out the indents
            yield f"\t{element}"
        elif name and place[-1:].isdigit():  # Ruby's: app/cart.rb:7:in 'Cart#add'
            yield f"\tat {name.strip(_QUOTES)} ({place}:0)"
        else:
            yield element
    elif isinstance(element, dict):
        frames = element.get("frames")
        if isinstance(frames, list):  # structlog's, as Python prints them
            yield TRACEBACKS[0].decode()
            for frame in filter(_is_dict, frames):
                place = f'{frame.get("filename")}", line {frame.get("lineno")}'
                yield f'  File "{place}, in {frame.get("name")}'
            yield f"{element.get('exc_type')}: {element.get('exc_value')}"
        elif "class" in element and "method" in element:  # Log4j's
            yield f"\tat {element['class']}.{element['method']}({element.get('file')})"
        elif "func" in element:  # zerolog's
            yield f"\tat {element['func']} ({element.get('source')}:{element.get('line')}:0)"


def _lines_of_log4j(thrown: dict[str, object]) -> Iterator[str]:
    """Yield the lines of an exception and its causes that are objects."""
    exception: object = thrown
    begin = ""
    while isinstance(exception, dict):
        yield f"{begin}{exception.get('name')}: {exception.get('message')}"
        frames = exception.get(LOG4J_FRAMES)
        if isinstance(frames, list):
            yield from chain.from_iterable(map(_lines_of, frames))
        exception, begin = exception.get("cause"), CAUSES[0].decode()


def _is_dict(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _word(value: object) -> str | None:
    """Return a value as the word that a line of text would have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else None
    if isinstance(value, bytes):
        value = value[: _MAX_WORD + 1].decode("ascii", "replace")
    if not isinstance(value, str) or len(value) > _MAX_WORD or not value.isascii():
        return None
    word = _ESCAPE.sub("", value).strip()
    whole = _WHOLE.fullmatch(word)
    return whole[1] if whole else word

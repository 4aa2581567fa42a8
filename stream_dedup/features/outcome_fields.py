"""Fields of JSON events that say how an event ended, beside its text.

Problem: of a JSON event the text is compared. ``{"level": "error", "msg": "sync of node 7"}`` and
the same with ``info`` have one text; so have a request with status 200 and one with 503. As lines
of text they have different variants (`variants`), and never share a cluster.

Idea: write in front of the text what such a line would have there, and compare that::

    {"level": "error", "msg": "sync of node 7"}                error sync of node 7
    {"msg": "GET /a", "status": 503, "user": "ann"}            status=503 GET /a
    {"severity": 6, "msg": "job ended", "success": false}      info success=false job ended

So the level, the status class, the exit code and the outcome belong to the variant by the rules for
text, and patterns and samples show them. Fields come in the order of the tables below, whatever
their order in the event is. What gives no variant is left out: a status that is no HTTP status, a
result that is not one protected word.

A stack trace in a field of its own follows the text, as it does in a file.

Only the recipe decides what is taken: levels where ``match.variants`` has ``level``, statuses and
exit codes for ``status``, traces for ``frames``, and words that are protected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from stream_dedup.features.recipe import Recipe
from stream_dedup.features.traces import trace_of
from stream_dedup.features.variants import LEVELS


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
    *_names("level name,severity text,log level,level,lvl,severity,sev"),
    *("@l", "@level"),  # Serilog; HashiCorp's
    *("PRIORITY", *_names("syslog severity")),  # journald; rsyslog
    *_names("severity number"),  # OpenTelemetry
    *("priority", "l", "s"),  # s: MongoDB
)
"""Names of levels; the first one counts whose value is a level."""

STATUS_FIELDS = frozenset(
    _names(
        "status,status code,http status,http status code,http response status code,"
        "response status,response code,http code,http response code,sc status,upstream status,"
        "downstream status,origin status,elb status code,code"
    )
)
"""Names of HTTP statuses."""

EXIT_FIELDS = frozenset(
    _names(
        "exit code,exit status,exit value,return code,ret code,retval,rc,errno,err code,"
        "grpc status,failed,failures,errors"
    )
)
"""Names of exit codes, error numbers and counts of failures."""

WORD_FIELDS = frozenset(
    _names(
        "status,state,result,outcome,success,succeeded,successful,ok,failed,error,action,decision,"
        "verdict,conclusion,disposition,health,healthy,type,kind"
    )
)
"""Names of fields whose value, if it is one protected word, says how an event ended."""

TRACE_FIELDS = (
    *_names("stack trace,exc info,exception,traceback,stack"),
    "@x",  # Serilog
)
"""Names of stack traces; the first one counts that holds one."""

PARENTS = (
    *("res", "response", "http", "httpRequest", "log", "event", "err", "error", "fields"),
    *("attributes", "properties", "Properties", "process"),
)
"""Names of objects that may hold such fields, also before a dot and a field's name."""

_DEPTH = 3
"""Objects within each other that are looked into, the event included: ``http.response.status``."""

MAX_OUTCOMES = 8
"""Outcomes of one event that are compared."""

MAX_KNOWN = 4_096
"""Combinations of values that are remembered."""

SYSLOG = tuple("emerg alert crit err warning notice info debug".split())
"""Names of the levels that syslog numbers from 0 on."""

PINO = {
    10 * number: name for number, name in enumerate("trace debug info warn error fatal".split(), 1)
}
"""Names of the levels that Pino and Bunyan write as numbers."""

OPENTELEMETRY = tuple("trace debug info warn error fatal".split())
"""Names of the levels that OpenTelemetry numbers from 1 on, four numbers each."""

OTHER_NAMES = dict(
    pair.split("=")
    for pair in (
        "information=info informational=info verbose=trace emergency=emerg "
        "t=trace v=trace d=debug d1=debug d2=debug d3=debug d4=debug d5=debug "
        "i=info n=notice w=warning e=error c=critical f=fatal"
    ).split()
)
"""Levels by other names than `variants.LEVELS`, in lower case."""

_OF_SYSLOG = frozenset(("PRIORITY", *_names("syslog severity,severity,sev")))
_OF_OPENTELEMETRY = frozenset(_names("severity number"))
_OF_GELF = "short_message"
_MAX_WORD = 24
_LINE_END = ord("\n")
_LARGEST = 10**20
_DIGITS = re.compile(r"[0-9]{1,3}")
_STATUS = re.compile(r"[1-5][0-9]{2}")
_EXIT = re.compile(r"-?[0-9]{1,20}")
_OWN = (
    *LEVEL_FIELDS,
    *sorted(STATUS_FIELDS | EXIT_FIELDS | WORD_FIELDS),
    *TRACE_FIELDS,
    *PARENTS,
)
_OWN_NAMES = dict(zip(_OWN, _OWN, strict=True)) | {
    f"{parent}.{name}": name for parent in (*PARENTS, "http.response") for name in _OWN
}
"""Of each name that is looked at, the part that is the field's own, in the order that counts."""

_RANKS = {name: rank for rank, name in enumerate(_OWN_NAMES)}
_LEVELS = frozenset(LEVEL_FIELDS)
_OUTCOMES = STATUS_FIELDS | EXIT_FIELDS | WORD_FIELDS
_TRACES = frozenset(name for name, own in _OWN_NAMES.items() if own in TRACE_FIELDS)
_PARENTS = frozenset(PARENTS)
_TEXTS = _PARENTS - _LEVELS - _OUTCOMES - _TRACES  # what these are, if they are no objects


class _Found(NamedTuple):
    """A field that may say how an event ended.

    Attributes:
        name: its own name, without those of what is around it.
        value: its value.
    """

    name: str
    value: object


class OutcomeFields:
    """Finds what a recipe takes of the fields beside an event's text.

    Args:
        recipe: what counts as near.

    Attributes:
        names: names of fields of an event that are looked at; none if the recipe takes nothing.
    """

    def __init__(self, recipe: Recipe) -> None:
        kinds = recipe.match.variants
        self._levels = LEVELS if "level" in kinds else frozenset()
        self._words = frozenset(map(bytes.decode, recipe.protected))
        self._has_status = "status" in kinds
        self._has_traces = "frames" in kinds
        takes_none = recipe.input.fields or not (kinds or self._words)
        self.names = frozenset() if takes_none else frozenset(_RANKS)
        self._known: dict[tuple[object, ...], bytes] = {}

    def compared(self, document: Mapping[str, object], text: bytes) -> bytes:
        """Return what is compared of an event: its text, and what its other fields say.

        Args:
            document: the event.
            text: its text, a field of it.

        >>> from stream_dedup.features.recipe import load_recipe
        >>> fields = OutcomeFields(load_recipe("logs"))
        >>> fields.compared({"msg": "GET /a", "status": 503, "level": 50}, b"GET /a")
        b'error status=503 GET /a'
        """
        names = self.names.intersection(document)
        if not names or not text.strip():
            return text
        is_gelf = _OF_GELF in document
        may_have_trace = False
        values: list[object] = [is_gelf]
        for name in names:
            value = document[name]
            if isinstance(value, str) and (len(value) > _MAX_WORD or name in _TEXTS):
                may_have_trace |= name in _TRACES
            else:
                values += name, value.__class__, value  # numbers equal truth values
        given = tuple(values)
        try:
            said = self._known.get(given)
        except TypeError:  # a list or an object
            said = self._said(_fields(document, names, _DEPTH), is_gelf=is_gelf)
            may_have_trace = True
        if said is None:
            said = self._said(_fields(document, names, _DEPTH), is_gelf=is_gelf)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[given] = said
        if may_have_trace:
            text = self._with_trace(text, _fields(document, names, _DEPTH))
        if not said:
            return text
        # A trace begins in its own line.
        return b"%b\n%b" % (said, text) if _LINE_END in text else b"%b %b" % (said, text)

    def _said(self, fields: Iterable[_Found], *, is_gelf: bool) -> bytes:
        found = list(fields)
        level = self._level(found, is_gelf=is_gelf)
        outcomes = dict.fromkeys(filter(None, map(self._outcome, found)))
        return " ".join(filter(None, (level, *islice(outcomes, MAX_OUTCOMES)))).encode()

    def _level(self, found: Iterable[_Found], *, is_gelf: bool) -> str | None:
        if not self._levels:
            return None
        levels = (
            self._level_of(name, value, is_gelf=is_gelf) for name, value in found if name in _LEVELS
        )
        return next(filter(None, levels), None)

    def _level_of(self, name: str, value: object, *, is_gelf: bool) -> str | None:
        """Return a level's name, as it is written or as its number stands for."""
        word = _word(value)
        if word is None or len(word) > _MAX_WORD:
            return None
        lower = word.lower()
        if lower in self._levels:
            return word
        if not _DIGITS.fullmatch(word):
            return OTHER_NAMES.get(lower)
        number = int(word)
        if name in _OF_OPENTELEMETRY:
            return OPENTELEMETRY[(number - 1) // 4] if 1 <= number <= 24 else None
        if name in _OF_SYSLOG or (is_gelf and name == "level"):
            return SYSLOG[number] if number < len(SYSLOG) else None
        return PINO.get(number) if name == "level" else None

    def _outcome(self, field: _Found) -> str | None:
        """Return a field as a line of text would have it, if it belongs to the variant."""
        name, value = field
        word = _word(value) if name in _OUTCOMES else None
        if word is None or len(word) > _MAX_WORD:
            return None
        is_taken = (
            (name in WORD_FIELDS and word.lower() in self._words)
            or (self._has_status and name in STATUS_FIELDS and _STATUS.fullmatch(word))
            or (self._has_status and name in EXIT_FIELDS and _EXIT.fullmatch(word))
        )
        return f"{name}={word}" if is_taken else None

    def _with_trace(self, text: bytes, fields: Iterable[_Found]) -> bytes:
        """Return a text with the first stack trace of the fields, unless it has that."""
        if self._has_traces:
            for name, value in fields:
                if name in TRACE_FIELDS and isinstance(value, str) and "\n" in value:
                    trace = value.encode("utf-8", "surrogatepass")
                    if trace not in text and trace_of(trace) is not None:
                        return b"%b\n%b" % (text, trace)
        return text


def without_outcomes(text: str) -> str:
    """Return an event, or its pattern, without what `OutcomeFields` may have put before its text.

    A line of text that begins likewise loses it too.

    >>> without_outcomes("error status=<5xx> sync of node <number>")
    'sync of node <number>'
    >>> without_outcomes("errors of node 7")
    'errors of node 7'
    """
    head, _, rest = text.replace("\n", " ", 1).partition(" ")
    if head.lower() in LEVELS:
        text = rest
    for _ in range(MAX_OUTCOMES):
        head, _, rest = text.replace("\n", " ", 1).partition(" ")
        if head.partition("=")[0] not in _OUTCOMES or "=" not in head:
            break
        text = rest
    return text


def _fields(document: Mapping[str, object], names: Iterable[str], depth: int) -> Iterator[_Found]:
    """Yield the fields that are looked at, also those of objects in it: by rank, not as written."""
    rank: Callable[[str], int] = _RANKS.__getitem__
    for name in sorted(names, key=rank):
        value = document[name]
        if name in _PARENTS and isinstance(value, dict):
            if depth > 1:
                yield from _fields(value, _RANKS.keys() & value.keys(), depth - 1)
        else:
            yield _Found(_OWN_NAMES[name], value)


def _word(value: object) -> str | None:
    """Return a value as the word that a line of text would have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else None
    return value if isinstance(value, str) else None

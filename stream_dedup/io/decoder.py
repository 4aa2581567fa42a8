"""Decoding lines and Kafka records to events: text or JSON, event times, groups.

Every line or record becomes an event. An event that cannot be decoded as asked is marked as passed,
with the reason. Lines may be joined to events of several lines, and their original bytes are kept
beside the decoded values. A record is decoded independently of others, so a record that is
delivered again becomes the same event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import re2

from stream_dedup.clock import US_PER_MS
from stream_dedup.columnar import column_stats, multiplied, rows_beginning
from stream_dedup.columnar.reference import ColumnStats
from stream_dedup.errors import InputError
from stream_dedup.features.fields import UNDECODABLE, decoded, parse_path, select, shortened
from stream_dedup.features.masks import compile_pattern
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.base import Records
from stream_dedup.io.files import Lines
from stream_dedup.io.joining import Joiner, PrefixJoiner, StartJoiner, TraceJoiner
from stream_dedup.io.timestamps import TimeFormat, field_time, known_time
from stream_dedup.model import Batch, Partition

TEXT_FIELDS = (
    "message",
    "msg",
    "MESSAGE",  # journald
    "short_message",  # Graylog
    "log",  # Docker, Fluent Bit
    "text",
    "body",  # OpenTelemetry
    "event",  # structlog
    "line",
    "textPayload",  # Google Cloud
    "@message",  # HashiCorp's
    "@m",  # Serilog
    "@mt",
    "RenderedMessage",  # Serilog, NLog
    "Message",  # .NET
)
"""Fields of a JSON event that may hold its text, if neither recipe nor option names one."""

TEXT_PATHS = (
    ("fields", "message"),  # Rust's tracing
    ("jsonPayload", "message"),  # Google Cloud
    ("body", "stringValue"),  # OpenTelemetry
)
"""Those in an object of the event, if it has none of `TEXT_FIELDS`."""

KNOWN_TIME = "auto"
"""The `time_field` that stands for the fields that common tools use (`timestamps.TIME_FIELDS`)."""

MAX_RECORD_BYTES = 1 << 20
"""Maximum bytes of one record, by default."""

TOO_LONG = "line too long"
NOT_JSON = "not JSON"
NO_OBJECT = "not a JSON object"
NO_TEXT = "field missing"
TOO_LARGE = "too large"
TOMBSTONE = "tombstone"
COMPRESSED = "compressed"
UNREADABLE = "unreadable batch"

INVALID = frozenset({NOT_JSON, NO_OBJECT, NO_TEXT, TOO_LARGE})
"""Reasons for an *invalid* record: it is not what the settings promise."""

RECORD_REASONS = INVALID | {TOMBSTONE, COMPRESSED, UNREADABLE}
"""All reasons for which a record is passed without reading its text."""

_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00sNaPpY", b"BZh")
"""The first bytes of gzip, Zstandard, LZ4, framed Snappy and bzip2."""

_SUSPICIOUS = frozenset(magic[:1] for magic in _MAGIC)
"""First bytes of values that may have to be passed."""

MAX_GROUPS_CACHED = 10_000

PREFIX_LINES = 10
"""The first lines of an input, among which a prefix of pods or containers is looked for."""

_NAME = r"[a-z0-9][a-z0-9_.-]*"  # in capitals it may be a level, as in "INFO  | up"
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_ENDING = (
    rf"(?:(?:-{_RANDOM}{{6,10}})?-{_RANDOM}{{5}}|-[0-9]{{1,4}})?"  # as Kubernetes makes it
)

PREFIXES = {
    "source": (
        rf"^\[pod/(?P<pod>{_NAME})/(?P<container>{_NAME})\] ",  # kubectl logs --prefix
        rf"^(?P<container>{_NAME}) {{2,}}\| ",  # docker compose logs
    ),
    "service": (
        rf"^\[pod/(?P<workload>{_NAME}?){_POD_ENDING}/(?P<container>{_NAME})\] ",
        rf"^(?P<service>{_NAME}?)(?:-[0-9]{{1,4}})? {{2,}}\| ",
    ),
}
"""Patterns of what tools write before the lines of several pods or containers: for each of these a
group, or for each service with all its replicas."""

Format = Literal["auto", "text", "jsonl"]


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """How to decode lines.

    Attributes:
        format: text, JSON lines, or decided by each input's first line.
        text_field: path of the JSON field with the text.
        time_field: path of the JSON field with the event's time, or `KNOWN_TIME`.
        time_format: how times are written, in that field or in the text.
        group_fields: paths of JSON fields; only events with equal values are compared.
        group_pattern: RE2 pattern, for text; only events with equal named groups are compared.
        group_prefix: whether lines with the prefix of a pod or container form groups, and which
            (see `PREFIXES`); unless other groups are given.
        start_pattern: RE2 pattern of an event's first line; lines that do not match belong to
            the event before them.
        join: whether stack traces and indented lines of text belong to the line before them,
            unless a start pattern is given (see `joining`).
        encoding: of files, as for `InputFile`.
    """

    format: Format = "auto"
    text_field: str = ""
    time_field: str = ""
    time_format: str = ""
    group_fields: tuple[str, ...] = ()
    group_pattern: str = ""
    group_prefix: Literal["", "source", "service"] = ""
    start_pattern: str = ""
    join: bool = False
    encoding: str = ""

    @property
    def takes_json(self) -> bool:
        """Whether an option names a JSON field."""
        return bool(self.text_field or self.time_field or self.group_fields)

    @property
    def event_times(self) -> bool:
        """Whether times are read from the events."""
        return bool(self.time_field or self.time_format)


@dataclass(slots=True)
class Events:
    """Events decoded together.

    Attributes:
        batch: the events for the engine.
        raws: the events' original bytes.
        numbers: number of each event's first line.
        documents: the decoded JSON objects; None for an event that is not one.
        lines: lines read for these events.
        piece: a piece of a line that is too long (its beginning or middle), which follows the
            events. It is written as it is; the line is counted with its last piece.
        piece_number: number of the line that `piece` belongs to.
        goes_on: whether the first event, or without events `piece`, continues a line that began
            with an earlier `piece`.
    """

    batch: Batch
    raws: list[bytes]
    numbers: Sequence[int]
    documents: list[dict[str, Any] | None]
    lines: int
    piece: bytes = b""
    piece_number: int = 0
    goes_on: bool = False

    def rows(self, rows: Sequence[int]) -> Events:
        """Return some of the events, and the piece that follows them."""
        batch = self.batch
        return replace(
            self,
            batch=Batch(
                partition=batch.partition,
                offsets=[batch.offsets[row] for row in rows],
                values=[batch.values[row] for row in rows],
                times_us=[batch.times_us[row] for row in rows] if batch.times_us else None,
                groups=[batch.groups[row] for row in rows] if batch.groups else None,
                documents=[batch.documents[row] for row in rows] if batch.documents else None,
                passed={
                    new: batch.passed[row] for new, row in enumerate(rows) if row in batch.passed
                },
            ),
            raws=[self.raws[row] for row in rows],
            numbers=[self.numbers[row] for row in rows],
            documents=[self.documents[row] for row in rows],
        )


def split_by_time(events: Events, step_us: int, most: int) -> Iterator[Events]:
    """Split `events` wherever their time enters the next step of `step_us`, and after `most`.

    When the parts are decided one after the other, clusters close and their summaries are written
    at the right place among the events, and few summaries wait at any time.
    """
    times = events.batch.times_us
    count = len(events.raws)
    if count <= most and (
        times is None or count < 2 or max(times) // step_us == min(times) // step_us
    ):
        yield events
        return
    starts: list[int] = []
    latest = -1 << 62
    for index in range(count):
        time_us = latest if times is None else times[index]
        if not starts or time_us // step_us > latest // step_us:
            starts.append(index)
            latest = time_us
        elif index - starts[-1] == most:
            starts.append(index)
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        part = slice(start, end)
        yield Events(
            batch=events.batch.part(start, end),
            raws=events.raws[part],
            numbers=events.numbers[part],
            documents=events.documents[part],
            lines=events.lines if end == count else 0,
            piece=events.piece if end == count else b"",
            goes_on=events.goes_on and start == 0,
            piece_number=events.piece_number,
        )


@dataclass(frozen=True, slots=True)
class Times:
    """From when to when events are taken; all by default.

    Attributes:
        since_us: the earliest time.
        until_us: the first time that is too late.
    """

    since_us: int = -1 << 62
    until_us: int = 1 << 62

    def chosen(self, events: Events) -> Events:
        """Return the events of these times. Without event times that is all of them."""
        times = events.batch.times_us
        if times is None:
            return events
        # The last piece of a line too long is written, as its first was.
        kept = [
            row
            for row, time_us in enumerate(times)
            if self.since_us <= time_us < self.until_us or (row == 0 and events.goes_on)
        ]
        return events if len(kept) == len(times) else events.rows(kept)


ALL_TIMES = Times()

_BEFORE_JSON = frozenset((b"{", *(bytes([byte]) for byte in b" \t\n\r\x0b\x0c")))
"""First bytes of lines that may be a JSON object."""


class Decoder:
    """Makes events from the lines of one input.

    Args:
        options: how to decode.
        partition: names the input in positions.
        recipe: decides which fields of JSON events are compared; None: their text alone.

    Raises:
        InputError: an option is wrong.
    """

    def __init__(
        self, options: DecoderOptions, partition: Partition, recipe: Recipe | None
    ) -> None:
        self._options = options
        self._partition = partition
        self._takes_fields = recipe is not None and bool(recipe.input.fields)
        self._outcomes = None if recipe is None else OutcomeFields(recipe)
        self._json = {"text": False, "jsonl": True}.get(options.format)
        # Programs write text among their JSON: what libraries and the system say.
        self._may_be_text = self._json is None and not options.text_field and not self._takes_fields
        self._time_format = TimeFormat(options.time_format) if options.time_format else None
        try:
            own = options.time_field if options.time_field != KNOWN_TIME else ""
            self._time_path = parse_path(own) if own else None
            self._text_path = parse_path(options.text_field) if options.text_field else None
            self._group_paths = [(path, parse_path(path)) for path in options.group_fields]
        except ValueError as error:
            raise InputError(f"JSON field {error}") from error
        self._group_pattern = _compiled(options.group_pattern, "group pattern")
        start = _compiled(options.start_pattern, "start pattern")
        self._joiner: Joiner | None = None
        if start is not None:
            self._joiner = StartJoiner(start.search)
        elif options.join and not self._json:
            self._joiner = TraceJoiner()
        if self._group_pattern is not None and not self._group_pattern.groupindex:
            raise InputError(
                f"group pattern {options.group_pattern!r} has no named group; "
                "write one as (?P<service>[a-z]+)"
            )
        self._groups_prefixes = options.group_prefix and not (
            options.group_fields or options.group_pattern
        )
        looks_for_prefix = self._groups_prefixes or isinstance(self._joiner, TraceJoiner)
        self._unprefixed = PREFIX_LINES if looks_for_prefix else 0
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
        self._groups: dict[tuple[object, ...], str] = {}
        self._last_us: int | None = None
        self.timeless = 0
        """Events so far without a time, though times were asked for."""

    @property
    def json(self) -> bool:
        """Whether the input is JSON lines; text until its first line has been seen."""
        return bool(self._json)

    @property
    def held(self) -> int:
        """The number of the first line that is held back for more lines; 0 if none is."""
        return self._joiner.held if self._joiner is not None else 0

    def decode(self, lines: Lines, now_us: int) -> Events:
        """Decode lines to events. The last event may be held back until its end is known."""
        values = lines.values
        piece = values.pop() if lines.pieces else b""
        numbers: Sequence[int] = range(lines.first, lines.first + len(values))
        count = len(values)
        too_long = {0} if lines.tails and values else set()
        if self._json is None:
            whole = values[1:] if too_long else values
            first = next((value for value in whole if value.strip()), None)
            self._json = None if first is None else isinstance(decoded(first), dict)
            if self._json and isinstance(self._joiner, TraceJoiner):
                self._joiner = None  # blank lines are never held back
        if self._unprefixed:
            self._find_prefix(values)
        if self._joiner is not None:
            values, numbers = self._joined(values, numbers, begin=len(too_long), flush=bool(piece))
        events = self._events(values, numbers, too_long, now_us)
        events.lines = count
        events.piece = piece
        events.piece_number = lines.first + count
        events.goes_on = lines.goes_on
        return events

    def fill(self, batch: Batch, now_us: int, begins: AbstractSet[bytes | None]) -> None:
        """Decode a batch in which each value is one event, as messages are.

        Replaces the batch's values by their texts, and its times where events have their own; adds
        groups, documents, and the reasons of passed events.

        Args:
            batch: the events.
            now_us: the clock.
            begins: the first bytes of all values; extra entries do no harm.
        """
        raws = batch.values
        documents: list[dict[str, Any] | None] = [None] * len(raws)
        if self._json or (self._json is None and not _BEFORE_JSON.isdisjoint(begins)):
            batch.values = self._texts(raws, documents, batch.passed)
        if self._options.event_times and batch.times_us is not None:
            batch.times_us = [
                own if (found := self._time(raw, document, now_us)) is None else found
                for own, raw, document in zip(batch.times_us, raws, documents, strict=True)
            ]
        batch.groups = self._groups_of(raws, documents)
        batch.documents = documents if self._takes_fields else None

    def flush(self, now_us: int) -> Events:
        """Return the event that is held back, as its input has ended or paused."""
        if self._joiner is None:
            return self._events([], [], set(), now_us)
        return self._events(*self._joiner.join([], (), flush=True), set(), now_us)

    def _joined(
        self, values: list[bytes], numbers: Sequence[int], *, begin: int, flush: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        """Join lines to events, from the index `begin` on; what is before it is an event."""
        assert self._joiner is not None
        events, firsts = self._joiner.join(values[begin:], numbers[begin:], flush=flush)
        if not begin:
            return events, firsts
        return values[:begin] + events, [*numbers[:begin], *firsts]

    def _events(
        self, raws: list[bytes], numbers: Sequence[int], too_long: set[int], now_us: int
    ) -> Events:
        documents: list[dict[str, Any] | None] = [None] * len(raws)
        passed = dict.fromkeys(too_long, TOO_LONG)
        texts = raws
        if self._json:
            texts = self._texts(raws, documents, passed)
        batch = Batch(
            partition=self._partition,
            offsets=numbers,
            values=texts,
            times_us=self._times(raws, documents, now_us),
            groups=self._groups_of(raws, documents),
            documents=documents if self._takes_fields else None,
            passed=passed,
        )
        return Events(batch, raws, numbers, documents, 0)

    # ------------------------------------------------------------ JSON

    def _texts(
        self, raws: list[bytes], documents: list[dict[str, Any] | None], passed: dict[int, str]
    ) -> list[bytes]:
        texts = list(raws)
        compared = None if self._outcomes is None else self._outcomes.compared
        guessed = self._json is None  # then values that are not JSON are text
        may_be_text = guessed or self._may_be_text
        for index, raw in enumerate(raws):
            if index in passed or not raw.strip():
                continue
            if may_be_text and raw.lstrip()[:1] != b"{":
                continue
            try:
                document = self._decode(raw)
            except UNDECODABLE:
                if not guessed:
                    passed[index] = NOT_JSON
                continue
            if not isinstance(document, dict):
                passed[index] = NO_OBJECT
                continue
            documents[index] = document
            if self._takes_fields:
                continue
            text = self._text(document)
            if text is None:
                passed[index] = NO_TEXT
            else:
                texts[index] = text if compared is None else compared(document, text)
        return texts

    def _text(self, document: dict[str, Any]) -> bytes | None:
        if self._text_path is not None:
            return next((value.text for value in select(document, self._text_path)), None)
        return usual_text(document)

    # ------------------------------------------------------------ times and groups

    def _times(
        self, raws: list[bytes], documents: list[dict[str, Any] | None], now_us: int
    ) -> list[int] | None:
        if not self._options.event_times:
            return None
        found = [
            self._time(raw, document, now_us) for raw, document in zip(raws, documents, strict=True)
        ]
        # A line without a time gets that of the line before; before the first time, the first. If
        # nothing that was read yet has one, it gets the least: the present would be later than all
        # events of a log that is replayed.
        self.timeless += found.count(None)
        last = self._last_us
        if last is None:
            last = next((time for time in found if time is not None), 0)
        times = []
        for time in found:
            last = last if time is None else time
            times.append(last)
        if any(time is not None for time in found):
            self._last_us = last
        return times

    def _time(self, raw: bytes, document: dict[str, Any] | None, now_us: int) -> int | None:
        if self._time_path is not None:
            if document is None:
                return None
            value = _first(document, self._time_path)
            return field_time(value, self._time_format, now_us)
        if document is not None:
            time_us = known_time(document, self._time_format, now_us)
            if time_us is not None:
                return time_us
        return None if self._time_format is None else self._time_format.find(raw, now_us)

    def _groups_of(
        self, raws: list[bytes], documents: list[dict[str, Any] | None]
    ) -> list[str] | None:
        if self._group_paths:
            return [self._field_group(document) for document in documents]
        if self._group_pattern is not None:
            return [self._pattern_group(raw) for raw in raws]
        return None

    def _find_prefix(self, values: Sequence[bytes]) -> None:
        """Look for the prefix of a pod or container in the first lines of an input of text."""
        prefixes = PREFIXES[self._options.group_prefix or "source"]
        patterns = [compile_pattern(each) for each in prefixes]
        for value in values:
            if not self._unprefixed or self._json:
                self._unprefixed = 0
                return
            found = next((pattern for pattern in patterns if pattern.search(value)), None)
            if found is not None:
                if self._groups_prefixes:
                    self._group_pattern = found
                if isinstance(self._joiner, TraceJoiner):
                    self._joiner = PrefixJoiner(found, self._joiner)
            self._unprefixed = 0 if found else self._unprefixed - bool(value.strip())

    def _field_group(self, document: dict[str, Any] | None) -> str:
        if document is None:
            return ""
        found = [
            next((value.text.decode("utf-8", "replace") for value in select(document, steps)), None)
            for _, steps in self._group_paths
        ]
        return self._group_text([name for name, _ in self._group_paths], tuple(found))

    def _pattern_group(self, raw: bytes) -> str:
        assert self._group_pattern is not None
        match = self._group_pattern.search(raw)
        if match is None:
            return ""
        found = {
            name.decode(): None if value is None else value.decode("utf-8", "replace")
            for name, value in match.groupdict().items()
        }
        return self._group_text(list(found), tuple(found.values()))

    def _group_text(self, names: list[str], values: tuple[str | None, ...]) -> str:
        text = self._groups.get(values)
        if text is None:
            if len(self._groups) >= MAX_GROUPS_CACHED:
                self._groups.clear()
            text = self._groups[values] = group_text(dict(zip(names, values, strict=True)))
        return text


def group_text(values: Mapping[str, str | None]) -> str:
    """Return the group of an event.

    Args:
        values: of the fields, by name; None for one that the event lacks.

    >>> group_text({"service": "web", "pod": None})
    '{"service":"web"}'
    """
    present = {name: shortened(value) for name, value in values.items() if value is not None}
    return msgspec.json.encode(present, order="sorted").decode() if present else ""


def usual_text(document: Mapping[str, Any]) -> bytes | None:
    """Return the text of a JSON event, if no field is named: see `TEXT_FIELDS`."""
    for name in TEXT_FIELDS:
        value = document.get(name)
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if name == "MESSAGE" and isinstance(value, list):
            try:
                return bytes(value)  # as journald writes text with escapes or other encodings
            except (TypeError, ValueError):
                continue
    for name, inner in TEXT_PATHS:
        around = document.get(name)
        value = around.get(inner) if isinstance(around, dict) else None
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
    return None


class RecordDecoder:
    """Decodes records into batches of events.

    Args:
        reading: how values are read; `auto` reads those that begin with a brace as JSON.
        recipe: what counts as near.
        max_event_bytes: longer values are invalid.

    Raises:
        InputError: an option is wrong.
    """

    def __init__(
        self,
        reading: DecoderOptions,
        recipe: Recipe,
        *,
        max_event_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._decoder = Decoder(reading, Partition("", 0), recipe)
        self._max_event_bytes = max_event_bytes

    def decode(self, partition: Partition, records: Records, now_us: int) -> Batch:
        """Decode the records of one partition."""
        values: list[Any] = list(records.values)
        passed: dict[int, str] = {}
        seen = column_stats(values)
        for index in self._suspects(values, seen):
            value = values[index]
            if value is None:
                values[index] = b""
                lost = records.unreadable and records.offsets[index] in records.unreadable
                passed[index] = UNREADABLE if lost else TOMBSTONE
            elif value.startswith(_MAGIC):
                passed[index] = COMPRESSED
            elif len(value) > self._max_event_bytes:
                passed[index] = TOO_LARGE
        times = multiplied(records.timestamps, US_PER_MS)
        if min(times) < 0:  # the record has no timestamp
            times = [now_us if time < 0 else time for time in times]
        batch = Batch(partition, records.offsets, values, times, raws=records.values, passed=passed)
        self._decoder.fill(batch, now_us, seen.begins)
        if passed:  # nothing of them is kept
            batch.values = [b"" if i in passed else value for i, value in enumerate(batch.values)]
        return batch

    def _suspects(self, values: Sequence[Any], seen: ColumnStats) -> Sequence[int]:
        """Return the rows of all values that may be invalid, and maybe of others."""
        if None in seen.begins or seen.longest > self._max_event_bytes:
            return range(len(values))
        begins = _SUSPICIOUS & seen.begins  # a text may begin so, too
        return rows_beginning(values, b"".join(begins)) if begins else ()


def _first(document: dict[str, Any], steps: tuple[str, ...]) -> object:
    """Return the value at a path without converting it."""
    node: object = document
    for step in steps:
        if isinstance(node, list) and step.isdecimal() and len(step) < 10:
            node = node[int(step)] if int(step) < len(node) else None
        else:
            node = node.get(step) if isinstance(node, dict) else None
    return node


def _compiled(pattern: str, name: str) -> re2._Regexp | None:
    if not pattern:
        return None
    try:
        return compile_pattern(pattern)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise InputError(f"{name} {pattern!r} is not RE2 syntax: {reason}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{name} {pattern!r} is not UTF-8; type it in a UTF-8 terminal") from error

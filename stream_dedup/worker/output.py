"""Output of a pipeline: the records to write for a batch and its decisions, and for summaries.

The same events and decisions always give the same bytes in the same partitions, so what is sent
again after a crash equals the first copy.

An *invalid event* cannot be read as configured: it is not JSON, lacks the text's field, or is too
large. A *refused event* is one that the output topic does not accept, however often it is sent. The
settings say whether such an event goes to the dead-letter topic, passes, or stops the pipeline.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from stream_dedup.changes.events import shortened_line
from stream_dedup.config import PipelineConfig
from stream_dedup.emit.events import (
    DecisionHeaders,
    dead_letter_headers,
    json_with_decision,
    kept,
    parameters_header,
    passed_headers,
    reserved_names,
    without_reserved,
)
from stream_dedup.emit.summaries import shortened_summary, summary_record
from stream_dedup.errors import BrokerRefused, TooManyInvalidEvents
from stream_dedup.features.values import SlotReader
from stream_dedup.io.base import Outgoing, Record, Records, Refusal, Refused, Topic
from stream_dedup.io.decoder import INVALID, UNREADABLE
from stream_dedup.model import Batch, Decision, Kind, Partition, Position, Summary

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""How many records are tried in place of a refused one before the topic itself must be at fault."""

SHORTENED_ROOM_BYTES = 4096
"""Room for headers and key of a record whose value is shortened to what its topic takes."""

MAX_KEY_BYTES = 1024
"""A longer key does not stay with a record that is shortened."""

_MEANING = {
    "not JSON": "the value could not be read as JSON",
    "not a JSON object": "the value is JSON, but not an object",
    "field missing": "no field holds the text; set text_field",
    "too large": "the value is larger than max_event_bytes",
}
"""What a reason for an invalid event means; for error messages."""


_REFUSED = {
    Refusal.TOO_LARGE: "with its decision it is larger than the {limit_bytes:,} bytes of {topic}",
    Refusal.TIMESTAMP: "its timestamp is further from now than {topic} allows",
    Refusal.NO_KEY: "it has no key, and {topic} is compacted",
    Refusal.OTHER: "it breaks a rule of {topic}",
}
"""The same of a refused event."""


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """The output of a batch.

    Attributes:
        outgoing: the records.
        events: the events among them, as they were read.
        dead_letters: the number of dead letters by reason, without refused events.
        withheld: events that are not written, by the kind of the rule that says so.
        refused: offset → why, of the events that the output topic refused while they were sent.
    """

    outgoing: list[Outgoing]
    events: Records
    dead_letters: Mapping[str, int]
    withheld: Mapping[str, int] = field(default_factory=dict)
    refused: dict[int, Refusal] = field(default_factory=dict)

    def event_of(self, record: Record) -> Record:
        """The event, as it was read, that leaves as this record."""
        return self.events[self.events.offsets.index(record.offset)]


class OutputBuilder:
    """Builds the records that leave a pipeline.

    Args:
        config: what leaves, and for which topics.
        width: bits of a fingerprint.
        topics: what is known of all input and output topics; see `EventSink.topics`.
    """

    def __init__(
        self,
        config: PipelineConfig,
        width: int,
        topics: Mapping[str, Topic],
    ) -> None:
        self._config = config
        self._mode = config.mode
        self._width = width
        self._known = topics
        self._headers = DecisionHeaders(width)
        self._slots = SlotReader(config.load_recipe()) if config.annotate_parameters else None
        # Unreadable events cannot pass: they have no value.
        self._refused = {UNREADABLE} if config.on_poison == "pass" else {*INVALID, UNREADABLE}

    # ------------------------------------------------------------ events

    def batch(
        self,
        records: Records,
        batch: Batch,
        decisions: Sequence[Decision],
        *,
        withholds: bool = False,
    ) -> BatchOutput:
        """The records that leave for a batch.

        Args:
            records: the events, as they were read.
            batch: the events.
            decisions: theirs.
            withholds: whether events may be withheld; see `Decision.withheld`.

        Raises:
            TooManyInvalidEvents: an event is invalid, and on_poison is stop.
        """
        config, mode = self._config, self._mode
        invalid: list[int] = []
        if batch.passed:
            invalid = sorted(index for index, why in batch.passed.items() if why in self._refused)
        if invalid and config.on_poison == "stop":
            for index in invalid:
                if batch.passed[index] in INVALID:
                    raise TooManyInvalidEvents(self._stopped(batch, index))
        records = self._without_reserved(records)
        events, decided, texts = records, decisions, batch.values
        withheld: Sequence[str] = ()
        if withholds and mode.duplicates:
            withheld = [decision.withheld for decision in decisions]
        if invalid or any(withheld) or not mode.duplicates:
            leaves = [True] * len(decisions) if mode.duplicates else kept(decisions)
            if any(withheld):
                leaves = [not why for why in withheld]
            for index in invalid:
                leaves[index] = False
            events, decided = records.chosen(leaves), list(compress(decisions, leaves))
            if self._slots is not None:
                texts = list(compress(texts, leaves))
        outgoing: list[Outgoing] = []
        if events:
            if mode.decisions:
                leaving = self._annotated(events, decided, texts)
            else:
                leaving = self._with_reasons(events, decided)
            outgoing = self._partitioned(batch.partition, leaving, decided)
        if invalid:
            reasons = [batch.passed[index] for index in invalid]
            letters = [
                _of_unreadable(records, index, batch.partition)
                if why == UNREADABLE
                else _dead_letter(records[index], batch.partition, why, _MEANING[why])
                for index, why in zip(invalid, reasons, strict=True)
            ]
            outgoing.append(self._dead_letters(batch.partition, letters))
            return BatchOutput(outgoing, events, Counter(reasons), _kinds(withheld))
        return BatchOutput(outgoing, events, {}, _kinds(withheld))

    def _without_reserved(self, records: Records) -> Records:
        """Records without the reserved headers of their producers: no decision can be forged."""
        own = records.headers
        reserved = reserved_names(own) if any(own) else None
        if not reserved:
            return records
        rename = self._config.reserved_headers == "rename"
        headers = [without_reserved(each, reserved, rename=rename) for each in own]
        return Records(
            records.offsets,
            records.timestamps,
            records.keys,
            records.values,
            headers,
            unreadable=records.unreadable,
        )

    def _annotated(
        self, records: Records, decisions: Sequence[Decision], texts: Sequence[bytes]
    ) -> Records:
        """Events with their decisions, in headers or in their JSON values."""
        values, added, own = records.values, self._headers.of_all(decisions), records.headers
        parameters = self._parameters(decisions, texts)
        for row, values_of in parameters.items():
            added[row] = [*added[row], parameters_header(values_of)]
        headers = added
        if self._config.annotate_into == "json":
            values, headers = list(values), list(own)
            for row, value in enumerate(values):
                written = value and json_with_decision(
                    value, decisions[row], self._width, parameters.get(row)
                )
                if written:
                    values[row] = written
                else:  # not a JSON object: the decision goes into its headers
                    headers[row] = [*own[row], *added[row]]
        elif any(own):
            headers = [[*first, *more] for first, more in zip(own, added, strict=True)]
        return Records(records.offsets, records.timestamps, records.keys, values, headers)

    def _with_reasons(self, records: Records, decisions: Sequence[Decision]) -> Records:
        """Events without decisions, but for those that are passed: why they are."""
        rows = [row for row, each in enumerate(decisions) if each.kind is Kind.PASSED]
        if not rows:
            return records
        headers = list(records.headers)
        for row in rows:
            headers[row] = [*headers[row], *passed_headers(decisions[row].reason)]
        return Records(records.offsets, records.timestamps, records.keys, records.values, headers)

    def _parameters(
        self, decisions: Sequence[Decision], texts: Sequence[bytes]
    ) -> dict[int, tuple[tuple[str, str], ...]]:
        """The values of variables by row, where they are wanted."""
        slots = self._slots
        if slots is None:
            return {}
        return {
            row: slots.parameters(text, decision.varied)
            for row, (text, decision) in enumerate(zip(texts, decisions, strict=True))
            if decision.cluster is not None
        }

    def _partitioned(
        self, source: Partition, records: Records, decisions: Sequence[Decision]
    ) -> list[Outgoing]:
        """Events by output partition; None for the partition that a record's key selects."""
        topic, by = self._config.output_topic, self._config.partition_by
        count = self._known[topic].partitions
        if by == "same" or (by == "auto" and count == self._known[source.source].partitions):
            return [Outgoing(topic, source.number % count, records)]
        rows_of: dict[int | None, list[int]] = {}
        for row, (key, decision) in enumerate(zip(records.keys, decisions, strict=True)):
            number: int | None = None
            if by == "cluster" and decision.cluster is not None:
                number = decision.cluster % count
            elif key is None:
                number = source.number % count
            rows_of.setdefault(number, []).append(row)
        return [Outgoing(topic, number, records.rows(rows)) for number, rows in rows_of.items()]

    # ------------------------------------------------------------ dead letters

    def _dead_letters(self, source: Partition, letters: list[Record]) -> Outgoing:
        topic = self._config.dead_letter_topic
        return Outgoing(topic, source.number % self._known[topic].partitions, Records.of(letters))

    def instead(
        self, refused: Refused, output: BatchOutput, source: Partition, now_ms: int
    ) -> Outgoing:
        """The replacement for a record that its topic refuses.

        A refused event becomes a dead letter or passes: too large with its decision, it leaves as
        it was read. What is refused even so is corrected, and then shortened.

        Raises:
            TooManyInvalidEvents: on_poison is stop.
            BrokerRefused: the topic takes not even the shortened record.
        """
        config = self._config
        topic, partition, record, why, limit_bytes, attempt = refused
        position = Position(source.source, source.number, record.offset)
        if topic != config.dead_letter_topic:
            event = output.event_of(record)
            output.refused.setdefault(record.offset, why)
            if config.on_poison == "dead_letter":
                message = _REFUSED[why].format(topic=topic, limit_bytes=limit_bytes)
                return self._dead_letters(source, [_dead_letter(event, source, why, message)])
            if config.on_poison == "stop":
                raise TooManyInvalidEvents(
                    f"{_place(position)}: {why}, {topic}, and on_poison is stop; correct the "
                    "topic's settings, or set on_poison to dead_letter or pass"
                )
            if attempt == 1 and why is Refusal.TOO_LARGE:
                return Outgoing(topic, partition, Records.of([event]))
            if attempt > 1 or why is Refusal.OTHER:
                record = event._replace(headers=passed_headers(output.refused[record.offset]))
        elif attempt == 1 and why is Refusal.TOO_LARGE:
            size = b"%d" % len(record.value or b"")
            headers = [*record.headers, ("sd-truncated", size)]
            record = record._replace(value=None, headers=headers)
            return Outgoing(topic, partition, Records.of([record]))
        if attempt > MAX_ATTEMPTS:
            raise BrokerRefused(
                f"{topic} does not take even the shortened record of {_place(position)}: {why}; "
                "correct its max.message.bytes, cleanup.policy and limits of timestamps"
            )
        corrected = _corrected(refused._replace(record=record), _place(position).encode(), now_ms)
        return Outgoing(topic, partition, Records.of([corrected]))

    def _stopped(self, batch: Batch, index: int) -> str:
        why = batch.passed[index]
        position = Position(*batch.partition, batch.offsets[index])
        return f"{_place(position)}: {why} ({_MEANING[why]}), and on_poison is stop"

    # ------------------------------------------------------------ summaries

    def summaries(self, summaries: Sequence[Summary]) -> list[Outgoing]:
        """Summaries as records, keyed by their clusters."""
        records = [self._summary(summary) for summary in summaries]
        return [Outgoing(self._config.summary_topic, None, Records.of(records))]

    def _summary(self, summary: Summary) -> Record:
        key, value, timestamp_ms = summary_record(summary, self._config.namespace)
        return Record(-1, timestamp_ms, key, value, [("sd-type", b"summary")])

    def patterns(self, records: Sequence[Record]) -> list[Outgoing]:
        """Events about patterns, keyed by these."""
        return [Outgoing(self._config.pattern_topic, None, Records.of(records))]

    def pattern_instead(self, refused: Refused, now_ms: int) -> Outgoing:
        """The record to write in place of an event about a pattern that its topic refuses.

        Raises:
            BrokerRefused: the topic takes not even the shortened event.
        """
        record = refused.record
        shortened = record._replace(value=shortened_line(record.value or b"{}"))
        return _shortened_instead(refused, shortened, "event of pattern", now_ms)

    def summary_instead(
        self, refused: Refused, summaries: Sequence[Summary], now_ms: int
    ) -> Outgoing:
        """The record to write in place of a summary that its topic refuses.

        Raises:
            BrokerRefused: the topic takes not even the shortened summary.
        """
        name = (refused.record.key or b"").decode()
        summary = next(each for each in summaries if each.cluster_hex == name)
        shortened = self._summary(shortened_summary(summary))
        return _shortened_instead(refused, shortened, "summary of cluster", now_ms)


def _shortened_instead(refused: Refused, shortened: Record, what: str, now_ms: int) -> Outgoing:
    """The record to write in place of one of ours: shortened, with another time, or both."""
    topic, partition, record, why, _, attempt = refused
    if attempt > MAX_ATTEMPTS:
        raise BrokerRefused(
            f"{topic} does not take even the shortened {what} {(record.key or b'').decode()}: "
            f"{why}; correct its max.message.bytes and limits of timestamps"
        )
    if why is not Refusal.TIMESTAMP or attempt > 1:
        record = shortened
    if why is not Refusal.TOO_LARGE or attempt > 1:
        record = _with_time(record, now_ms)
    return Outgoing(topic, partition, Records.of([record]))


def _kinds(withheld: Sequence[str]) -> Mapping[str, int]:
    return Counter(filter(None, withheld)) if withheld else {}


def _place(position: Position) -> str:
    return f"{position.source}-{position.partition} offset {position.offset}"


def _with_time(record: Record, now_ms: int) -> Record:
    headers = [*record.headers, ("sd-timestamp", b"%d" % record.timestamp)]
    return record._replace(timestamp=now_ms, headers=headers)


def _corrected(refused: Refused, place: bytes, now_ms: int) -> Record:
    """A record without what its topic refuses; shortened, if that is not known or not enough."""
    record = refused.record
    if refused.attempt == 1 and refused.why is Refusal.TIMESTAMP:
        return _with_time(record, now_ms)
    if refused.attempt == 1 and refused.why is Refusal.NO_KEY:
        return record._replace(key=place)
    key, value = record.key, record.value
    ours = reserved_names([record.headers])
    headers = [header for header in record.headers if header[0] in ours]
    if value is not None:
        limit_bytes = refused.limit_bytes
        most = max(limit_bytes - SHORTENED_ROOM_BYTES, limit_bytes // 4)
        if len(value) > most:
            headers.append(("sd-truncated", b"%d" % len(value)))
            value = value[:most]
    if key is None or len(key) > MAX_KEY_BYTES:
        key = place
    shortened = record._replace(key=key, value=value, headers=headers)
    if refused.why is Refusal.TOO_LARGE and refused.attempt < MAX_ATTEMPTS:
        return shortened  # so far nothing else is known of it
    return _with_time(shortened, now_ms)


def _dead_letter(record: Record, source: Partition, why: str, message: str) -> Record:
    position = Position(source.source, source.number, record.offset)
    headers = dead_letter_headers(list(record.headers), position, why, message)
    return record._replace(headers=headers)


def _of_unreadable(records: Records, index: int, source: Partition) -> Record:
    """One dead letter for all events of an unreadable batch: no value, but where they are."""
    record = records[index]
    first, reason, _ = records.unreadable[record.offset]
    letter = _dead_letter(record._replace(offset=first), source, UNREADABLE, reason)
    return letter._replace(headers=[*letter.headers, ("sd-last-offset", b"%d" % record.offset)])


class InvalidEventMonitor:
    """Warns where most events are invalid, and stops the pipeline if its settings say so.

    Args:
        config: its settings: the share of invalid events that is accepted.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._events = self._invalid = 0
        self._last_reason = ""

    def count(self, batch: Batch) -> None:
        """Count the events of a batch.

        Raises:
            TooManyInvalidEvents: their share is larger than poison_share.
        """
        self._events += len(batch.values)
        for why in batch.passed.values():
            if why in INVALID:
                self._invalid += 1
                self._last_reason = why
        if self._events < self._config.poison_least:
            return
        name, reason = self._config.name, self._last_reason
        if self._invalid > self._config.poison_share * self._events:
            raise TooManyInvalidEvents(
                f"pipeline {name}: {self._invalid:,} of the last {self._events:,} "
                f"events are invalid (the last one: {reason}), more than poison_share "
                "allows; are format and text_field right for these topics?"
            )
        if self._invalid > self._events / 2:
            log.warning(
                "pipeline %s: more than half of the events are invalid (the last one: %s); are "
                "format and text_field right for these topics?",
                name,
                reason,
            )
        self._events = self._invalid = 0

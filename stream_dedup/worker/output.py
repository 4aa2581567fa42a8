"""Output of a pipeline: the records to write for a batch and its decisions, and for summaries.

The same events and decisions always give the same bytes in the same partitions, so what is sent
again after a crash equals the first copy.

An *invalid event* is not what the settings promise: not JSON, without the text's field, too large.
It goes to the dead-letter topic, passes, or stops the pipeline, as the settings say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from stream_dedup.config import PipelineConfig
from stream_dedup.emit.events import (
    DecisionHeaders,
    dead_letter_headers,
    json_with_decision,
    kept,
)
from stream_dedup.emit.summaries import summary_record
from stream_dedup.errors import TooManyInvalidEvents
from stream_dedup.io.base import Outgoing, Record, Records
from stream_dedup.io.decoder import INVALID
from stream_dedup.model import Batch, Decision, Partition, Position, Summary

TOO_LARGE_TO_WRITE = "too large for the topic"

_MEANING = {
    "not JSON": "the value could not be read as JSON",
    "not a JSON object": "the value is JSON, but not an object",
    "field missing": "no field holds the text; set text_field",
    "too large": "the value is larger than max_event_bytes",
}
"""What a reason for an invalid event means; for error messages."""


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """What leaves for a batch.

    Attributes:
        outgoing: the records.
        events: the events among them, as they were read.
        dead_letters: the number of dead letters by reason.
    """

    outgoing: list[Outgoing]
    events: Records
    dead_letters: Mapping[str, int]

    def event_of(self, record: Record) -> Record:
        """The event, as it was read, that leaves as this record."""
        return self.events[self.events.offsets.index(record.offset)]


class OutputBuilder:
    """Builds the records that leave a pipeline.

    Args:
        config: what leaves, and for which topics.
        width: bits of a fingerprint.
        partition_counts: the number of partitions of topics that are known already.
    """

    def __init__(
        self,
        config: PipelineConfig,
        width: int,
        partition_counts: Mapping[str, int] | None = None,
    ) -> None:
        self._config = config
        self._width = width
        self._counts = dict(partition_counts or {})
        self._headers = DecisionHeaders(width)

    @property
    def topics(self) -> list[str]:
        """The topics that output goes to."""
        return sorted(self._config.output_topics)

    def set_partition_count(self, topic: str, count: int) -> None:
        """Set the number of partitions of a topic; needed of every input and output topic."""
        self._counts[topic] = count

    # ------------------------------------------------------------ events

    def batch(self, records: Records, batch: Batch, decisions: Sequence[Decision]) -> BatchOutput:
        """The records that leave for a batch.

        Raises:
            TooManyInvalidEvents: an event is invalid, and on_poison is stop.
        """
        config = self._config
        invalid: list[int] = []
        if batch.passed and config.on_poison != "pass":
            invalid = sorted(index for index, why in batch.passed.items() if why in INVALID)
        if invalid and config.on_poison == "stop":
            raise TooManyInvalidEvents(self._stopped(batch, invalid[0]))
        events, decided = records, decisions
        if invalid or config.emit != "annotate":
            leaves = [True] * len(decisions) if config.emit == "annotate" else kept(decisions)
            for index in invalid:
                leaves[index] = False
            events, decided = records.chosen(leaves), list(compress(decisions, leaves))
        outgoing: list[Outgoing] = []
        if events:
            leaving = events if config.emit == "drop" else self._annotated(events, decided)
            outgoing = self._partitioned(batch.partition, leaving, decided)
        if invalid:
            reasons = [batch.passed[index] for index in invalid]
            letters = [
                _dead_letter(records[index], batch.partition, why, _MEANING[why])
                for index, why in zip(invalid, reasons, strict=True)
            ]
            outgoing.append(self._dead_letters(batch.partition, letters))
            return BatchOutput(outgoing, events, Counter(reasons))
        return BatchOutput(outgoing, events, {})

    def _annotated(self, records: Records, decisions: Sequence[Decision]) -> Records:
        """Events with their decisions, in headers or in their JSON values."""
        values, added, own = records.values, self._headers.of_all(decisions), records.headers
        headers = added
        if self._config.annotate_into == "json":
            values, headers = list(values), list(own)
            for row, value in enumerate(values):
                written = value and json_with_decision(value, decisions[row], self._width)
                if written:
                    values[row] = written
                else:  # not a JSON object: the decision goes into its headers
                    headers[row] = [*own[row], *added[row]]
        elif any(own):
            headers = [[*first, *more] for first, more in zip(own, added, strict=True)]
        return Records(records.offsets, records.timestamps, records.keys, values, headers)

    def _partitioned(
        self, source: Partition, records: Records, decisions: Sequence[Decision]
    ) -> list[Outgoing]:
        """Events by output partition; None for the partition that a record's key selects."""
        topic, by = self._config.output_topic, self._config.partition_by
        count = self._counts[topic]
        if by == "same" or (by == "auto" and count == self._counts.get(source.source)):
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
        return Outgoing(topic, source.number % self._counts[topic], Records.of(letters))

    def too_large(
        self, topic: str, record: Record, output: BatchOutput, source: Partition
    ) -> Outgoing:
        """The record to write in place of one that is too large for its topic: a dead letter.

        A dead letter that is too large leaves without its value.

        Raises:
            TooManyInvalidEvents: there is no dead-letter topic.
        """
        config = self._config
        size = len(record.value or b"")
        if topic == config.dead_letter_topic:
            headers = [*record.headers, ("sd-truncated", b"%d" % size)]
            return self._dead_letters(source, [record._replace(value=None, headers=headers)])
        event = output.event_of(record)
        if not config.dead_letter_topic:
            raise TooManyInvalidEvents(
                f"{source.source}-{source.number} offset {event.offset}: with its decision the "
                f"record of {size} bytes is too large for {topic}; raise its max.message.bytes, or "
                "give the pipeline a dead_letter_topic"
            )
        message = f"{size} bytes and their headers are more than {topic} takes"
        return self._dead_letters(
            source, [_dead_letter(event, source, TOO_LARGE_TO_WRITE, message)]
        )

    def _stopped(self, batch: Batch, index: int) -> str:
        source, number = batch.partition
        why = batch.passed[index]
        return (
            f"{source}-{number} offset {batch.offsets[index]}: {why} ({_MEANING[why]}), and "
            "on_poison is stop"
        )

    # ------------------------------------------------------------ summaries

    def summaries(self, summaries: Sequence[Summary]) -> list[Outgoing]:
        """Summaries as records, keyed by their clusters."""
        records = []
        for summary in summaries:
            key, value, timestamp_ms = summary_record(summary, self._config.namespace)
            records.append(Record(-1, timestamp_ms, key, value, [("sd-type", b"summary")]))
        return [Outgoing(self._config.summary_topic, None, Records.of(records))]


def _dead_letter(record: Record, source: Partition, why: str, message: str) -> Record:
    position = Position(source.source, source.number, record.offset)
    headers = dead_letter_headers(list(record.headers), position, why, message)
    return record._replace(headers=headers)


class InvalidEventMonitor:
    """Stops a pipeline when so many events are invalid that its settings must be wrong.

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
            TooManyInvalidEvents: the share of invalid events is too large.
        """
        self._events += len(batch.values)
        for why in batch.passed.values():
            if why in INVALID:
                self._invalid += 1
                self._last_reason = why
        if self._events < self._config.poison_least:
            return
        if self._invalid > self._config.poison_share * self._events:
            raise TooManyInvalidEvents(
                f"pipeline {self._config.name}: {self._invalid:,} of the last {self._events:,} "
                f"events are bad (the last one: {self._last_reason}), more than poison_share "
                "allows; are format and text_field right for these topics?"
            )
        self._events = self._invalid = 0

"""Shaping: from a batch and what was decided of it to the records that leave.

The same events and decisions always give the same bytes, in the same partitions, so what is sent
again after a crash is what was sent before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

from stream_dedup.emit.records import (
    DecisionHeaders,
    dead_letter_headers,
    json_with_decision,
    summary_record,
)
from stream_dedup.errors import TooManyInvalidEvents
from stream_dedup.io.base import Outgoing, Record, Records
from stream_dedup.io.record_decoder import POISON
from stream_dedup.model import Batch, Decision, Kind, Partition, Position, Summary
from stream_dedup.worker.policy import Emission

TOO_LARGE_TO_WRITE = "too large for the topic"


class Shaped:
    """What leaves of a batch.

    Args:
        outgoing: the records.
        came: the events among them, as they came.
        dead: dead letters, by reason.
    """

    def __init__(
        self,
        outgoing: list[Outgoing],
        came: Records,
        dead: Mapping[str, int],
    ) -> None:
        self.outgoing = outgoing
        self.dead = dict(dead)
        self._came = came

    @property
    def events(self) -> int:
        """How many events leave."""
        return len(self._came)

    def came_as(self, record: Record) -> Record:
        """The event that leaves as this record, which is one of the events."""
        return self._came[self._came.offsets.index(record.offset)]


class Shaper:
    """Shapes what leaves a pipeline.

    Args:
        emission: what leaves, and where to.
        namespace: named in summaries.
        width: bits of a fingerprint.
        counts: how many partitions each topic has, of input and output.
    """

    def __init__(
        self, emission: Emission, namespace: str, width: int, counts: Mapping[str, int]
    ) -> None:
        self._emission = emission
        self._namespace = namespace
        self._width = width
        self._counts = counts
        self._headers = DecisionHeaders(width)

    def shape(self, records: Records, batch: Batch, decisions: Sequence[Decision]) -> Shaped:
        """The records that leave, and where to.

        Raises:
            TooManyInvalidEvents: poison stops the pipeline, and there is some.
        """
        emission = self._emission
        poison = [i for i, why in batch.passed.items() if why in POISON] if batch.passed else []
        chosen = records
        decided = decisions
        dead: list[Record] = []
        reasons: dict[str, int] = {}
        if poison and emission.on_poison == "stop":
            raise TooManyInvalidEvents(self._stopped(batch, records, min(poison)))
        lost = set(poison) if emission.on_poison == "dead_letter" else set()
        for index in sorted(lost):
            why = batch.passed[index]
            reasons[why] = reasons.get(why, 0) + 1
            dead.append(self._dead(records[index], batch.partition, why, _MEANING[why]))
        if lost or emission.emit != "annotate":
            duplicate = Kind.DUPLICATE if emission.emit != "annotate" else None
            leaves = [d.kind is not duplicate for d in decisions]
            for index in lost:
                leaves[index] = False
            chosen, decided = records.chosen(leaves), list(compress(decisions, leaves))
        leaving = self._annotated(chosen, decided) if emission.emit != "drop" else chosen
        outgoing = self._placed(batch.partition, leaving, decided) if leaving else []
        if dead:
            outgoing.append(self._letters(batch.partition, dead))
        return Shaped(outgoing, chosen, reasons)

    def _annotated(self, records: Records, decisions: Sequence[Decision]) -> Records:
        """Events with what was decided of them."""
        came, told = records.headers, self._headers.of_all(decisions)
        values, headers = records.values, told
        if self._emission.into_json:
            values, headers = list(values), list(came)
            for row, value in enumerate(values):
                written = value and json_with_decision(value, decisions[row], self._width)
                if written:
                    values[row] = written
                else:  # no JSON object: its headers tell
                    headers[row] = [*came[row], *told[row]]
        elif any(came):
            headers = [[*own, *more] for own, more in zip(came, told, strict=True)]
        return Records(records.offsets, records.timestamps, records.keys, values, headers)

    def _placed(
        self, source: Partition, records: Records, decisions: Sequence[Decision]
    ) -> list[Outgoing]:
        """Where each goes; by its key alone if the partition is left open."""
        topic, by = self._emission.output_topic, self._emission.partition_by
        count = self._counts[topic]
        if by == "same" or (by == "auto" and count == self._counts.get(source.source)):
            return [Outgoing(topic, source.number % count, records)]
        places: dict[int | None, list[int]] = {}
        for row, (key, decision) in enumerate(zip(records.keys, decisions, strict=True)):
            place: int | None = None
            if by == "cluster" and decision.cluster is not None:
                place = decision.cluster % count
            elif key is None:
                place = source.number % count
            places.setdefault(place, []).append(row)
        return [Outgoing(topic, place, records.rows(rows)) for place, rows in places.items()]

    def _letters(self, source: Partition, dead: list[Record]) -> Outgoing:
        topic = self._emission.dead_letter_topic
        return Outgoing(topic, source.number % self._counts[topic], Records.of(dead))

    def _dead(self, record: Record, source: Partition, why: str, message: str) -> Record:
        position = Position(source.source, source.number, record.offset)
        headers = dead_letter_headers(list(record.headers), position, why, message)
        return record._replace(headers=headers)

    def too_large(
        self, topic: str, record: Record, shaped: Shaped, source: Partition
    ) -> Outgoing | None:
        """What leaves in the place of a record too large for its topic.

        Raises:
            TooManyInvalidEvents: nothing can, and poison is not to pass.
        """
        emission = self._emission
        size = len(record.value or b"")
        if topic == emission.dead_letter_topic:
            headers = [*record.headers, ("sd-truncated", b"%d" % size)]
            return self._letters(source, [record._replace(value=None, headers=headers)])
        event = shaped.came_as(record)
        if not emission.dead_letter_topic:
            raise TooManyInvalidEvents(
                f"{source.source}-{source.number} offset {event.offset}: with what was decided of "
                f"it the record of {size} bytes is too large for {topic}; raise its "
                "max.message.bytes, or give the pipeline a dead_letter_topic"
            )
        message = f"{size} bytes and their headers are more than {topic} takes"
        return self._letters(source, [self._dead(event, source, TOO_LARGE_TO_WRITE, message)])

    def summaries(self, summaries: Sequence[Summary]) -> list[Outgoing]:
        """Summaries as records, keyed by their clusters."""
        made = []
        for summary in summaries:
            key, value, timestamp_ms = summary_record(summary, self._namespace)
            made.append(Record(-1, timestamp_ms, key, value, [("sd-type", b"summary")]))
        return [Outgoing(self._emission.summary_topic, None, Records.of(made))]

    def _stopped(self, batch: Batch, records: Records, index: int) -> str:
        source, number = batch.partition
        why = batch.passed[index]
        return (
            f"{source}-{number} offset {records.offsets[index]}: {why} ({_MEANING[why]}), and "
            "on_poison is stop"
        )


_MEANING = {
    "not JSON": "the value could not be read as JSON",
    "not a JSON object": "the value is JSON, but not an object",
    "field missing": "no field holds the text; set text_field",
    "too large": "the value is larger than max_event_bytes",
}

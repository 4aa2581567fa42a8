"""Shaping: from a batch and what was decided of it to the records that leave.

The same events and decisions always give the same bytes, in the same partitions, so what is sent
again after a crash is what was sent before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import cast

from stream_dedup.connectors.base import Headers, Outgoing, Output, Record, Records
from stream_dedup.connectors.records import POISON
from stream_dedup.emit.records import (
    DecisionHeaders,
    dead_letter_headers,
    json_with_decision,
    summary_record,
)
from stream_dedup.errors import TooMuchPoison
from stream_dedup.model import Batch, Decision, Kind, Partition, Position, Summary
from stream_dedup.worker.policy import Emission

TOO_LARGE_TO_WRITE = "too large for the topic"


class Shaped:
    """What leaves of a batch.

    Args:
        outgoing: the records.
        records: the events among them, as they came.
        outputs: as they leave.
        dead: dead letters, by reason.
    """

    def __init__(
        self,
        outgoing: list[Outgoing],
        records: Records,
        outputs: Sequence[Output],
        dead: Mapping[str, int],
    ) -> None:
        self.outgoing = outgoing
        self.dead = dict(dead)
        self._records = records
        self._outputs = outputs
        self._places: dict[int, int] | None = None

    @property
    def events(self) -> int:
        """How many events leave."""
        return len(self._outputs)

    def came_as(self, output: Output) -> Record | None:
        """The event that leaves as this very output; None for another."""
        if self._places is None:
            self._places = {id(each): place for place, each in enumerate(self._outputs)}
        place = self._places.get(id(output))
        return None if place is None else self._records[place]


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
            TooMuchPoison: poison stops the pipeline, and there is some.
        """
        emission = self._emission
        poison = [i for i, why in batch.passed.items() if why in POISON] if batch.passed else []
        chosen = records
        decided = decisions
        dead: list[Output] = []
        reasons: dict[str, int] = {}
        if poison and emission.on_poison == "stop":
            raise TooMuchPoison(self._stopped(batch, records, min(poison)))
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
        outputs = self._events(chosen, decided)
        outgoing = self._placed(batch.partition, outputs, decided) if outputs else []
        if dead:
            outgoing.append(self._letters(batch.partition, dead))
        return Shaped(outgoing, chosen, outputs, reasons)

    def _events(self, records: Records, decisions: Sequence[Decision]) -> list[Output]:
        # Plain tuples, made for every event, cost a fifth of what `Output` does.
        emission = self._emission
        keys, values, timestamps = records.keys, records.values, records.timestamps
        headers: Sequence[Headers] = records.headers
        if emission.emit != "drop":
            own = self._headers.of_all(decisions)
            if emission.into_json:
                return self._into_json(records, decisions, own)
            if any(headers):
                headers = [[*came, *told] for came, told in zip(headers, own, strict=True)]
            else:
                headers = own
        return cast(list[Output], list(zip(keys, values, timestamps, headers, strict=True)))

    def _into_json(
        self, records: Records, decisions: Sequence[Decision], headers: Sequence[Headers]
    ) -> list[Output]:
        outputs = []
        for r, decision, own in zip(records, decisions, headers, strict=True):
            value = r.value and json_with_decision(r.value, decision, self._width)
            if value:
                outputs.append(Output(r.key, value, r.timestamp, r.headers))
            else:  # no JSON object: its headers tell
                outputs.append(Output(r.key, r.value, r.timestamp, [*r.headers, *own]))
        return outputs

    def _placed(
        self, source: Partition, outputs: list[Output], decisions: Sequence[Decision]
    ) -> list[Outgoing]:
        """Where each goes; by its key alone if the partition is left open."""
        topic, by = self._emission.output_topic, self._emission.partition_by
        count = self._counts[topic]
        if by == "same" or (by == "auto" and count == self._counts.get(source.source)):
            return [Outgoing(topic, source.number % count, outputs)]
        places: dict[int | None, list[Output]] = {}
        for output, decision in zip(outputs, decisions, strict=True):
            place: int | None = None
            if by == "cluster" and decision.cluster is not None:
                place = decision.cluster % count
            elif output[0] is None:
                place = source.number % count
            places.setdefault(place, []).append(output)
        return [Outgoing(topic, place, some) for place, some in places.items()]

    def _letters(self, source: Partition, dead: list[Output]) -> Outgoing:
        topic = self._emission.dead_letter_topic
        return Outgoing(topic, source.number % self._counts[topic], dead)

    def _dead(self, record: Record, source: Partition, why: str, message: str) -> Output:
        position = Position(source.source, source.number, record.offset)
        headers = dead_letter_headers(list(record.headers), position, why, message)
        return Output(record.key, record.value, record.timestamp, headers)

    def too_large(
        self, topic: str, output: Output, shaped: Shaped, source: Partition
    ) -> Outgoing | None:
        """What leaves in the place of a record too large for its topic.

        Raises:
            TooMuchPoison: nothing can, and poison is not to pass.
        """
        emission, record = self._emission, shaped.came_as(output)
        output = Output(*output)
        size = len(output.value or b"")
        if topic == emission.dead_letter_topic or record is None:
            headers = [*output.headers, ("sd-truncated", b"%d" % size)]
            return self._letters(source, [output._replace(value=None, headers=headers)])
        if not emission.dead_letter_topic:
            raise TooMuchPoison(
                f"{source.source}-{source.number} offset {record.offset}: with what was decided of "
                f"it the record of {size} bytes is too large for {topic}; raise its "
                "max.message.bytes, or give the pipeline a dead_letter_topic"
            )
        message = f"{size} bytes and their headers are more than {topic} takes"
        return self._letters(source, [self._dead(record, source, TOO_LARGE_TO_WRITE, message)])

    def summaries(self, summaries: Sequence[Summary]) -> list[Outgoing]:
        """Summaries as records, keyed by their clusters."""
        made = []
        for summary in summaries:
            key, value, timestamp_ms = summary_record(summary, self._namespace)
            made.append(Output(key, value, timestamp_ms, [("sd-type", b"summary")]))
        return [Outgoing(self._emission.summary_topic, None, made)]

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

"""Which records a topic does not take: by its settings, and as learned from refused batches.

A broker refuses a batch as a whole, and this driver does not learn which of its records was the
cause. Records that break a setting of their topic are found before they are sent. Where settings
may not be seen, or a clock differs, the broker refuses a batch all the same; then the records of
the refused batch are sent in batches of a sixty-fourth, and so on, until those that are refused
alone are known (`Suspects`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokafka import errors

from stream_dedup.io.base import Record, Records, Refusal
from stream_dedup.kafka.errors import InvalidRecordError

DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's default for a topic's ``max.message.bytes``."""

NO_LIMIT_MS = (1 << 63) - 1
"""The settings of time limits that do not limit."""

NO_TIMESTAMP = -1
"""The timestamp of a record without one, which every topic takes."""

SPLIT = 64
"""A refused batch is sent again in so many parts: a single record of 4,000 is found after two
further deliveries."""


REFUSALS = {
    errors.MessageSizeTooLargeError: Refusal.TOO_LARGE,
    errors.RecordListTooLargeError: Refusal.TOO_LARGE,
    errors.InvalidTimestampError: Refusal.TIMESTAMP,
    InvalidRecordError: Refusal.OTHER,
}
"""Errors of a batch that a record in it causes, so that a retry cannot help."""


class TopicLimits(NamedTuple):
    """Which records a topic takes.

    Attributes:
        max_bytes: how large a batch may be, as the broker sees it.
        needs_key: whether every record needs a key, as in a compacted topic.
        before_ms: how far before the broker's clock a timestamp may be.
        after_ms: how far after it.
    """

    max_bytes: int = DEFAULT_MAX_BYTES
    needs_key: bool = False
    before_ms: int = NO_LIMIT_MS
    after_ms: int = NO_LIMIT_MS

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicLimits:
        """Read the settings of a topic; what is missing does not limit."""
        widest = _milliseconds(settings, "message.timestamp.difference.max.ms")  # before Kafka 4
        before_ms = min(widest, _milliseconds(settings, "message.timestamp.before.max.ms"))
        after_ms = min(widest, _milliseconds(settings, "message.timestamp.after.max.ms"))
        if settings.get("message.timestamp.type") == "LogAppendTime":
            before_ms = after_ms = NO_LIMIT_MS
        return cls(
            int(settings.get("max.message.bytes") or DEFAULT_MAX_BYTES),
            "compact" in (settings.get("cleanup.policy") or ""),
            before_ms,
            after_ms,
        )

    def refused(self, records: Records, now_ms: int) -> dict[int, Refusal]:
        """Find the records that break another limit than that of size: row → why."""
        found: dict[int, Refusal] = {}
        if not records:
            return found
        times = records.timestamps
        first_ms, last_ms = now_ms - self.before_ms, now_ms + self.after_ms
        if max(times) > last_ms or min(times) < first_ms:
            found = {
                row: Refusal.TIMESTAMP
                for row, time_ms in enumerate(times)
                if time_ms != NO_TIMESTAMP and not first_ms <= time_ms <= last_ms
            }
        if self.needs_key and None in records.keys:
            found |= {row: Refusal.NO_KEY for row, key in enumerate(records.keys) if key is None}
        return found

    def learn(self, record: Record, why: Refusal, now_ms: int) -> TopicLimits:
        """Return limits under which a record that was refused alone is found before it is sent."""
        if why is Refusal.TIMESTAMP:
            ahead_ms = record.timestamp - now_ms
            if ahead_ms > 0:
                return self._replace(after_ms=min(self.after_ms, ahead_ms - 1))
            return self._replace(before_ms=min(self.before_ms, -ahead_ms - 1))
        if why is Refusal.OTHER and record.key is None:
            return self._replace(needs_key=True)
        return self


def _milliseconds(settings: Mapping[str, str], name: str) -> int:
    return int(settings.get(name) or NO_LIMIT_MS)


class _Range(NamedTuple):
    """Offsets, both included, of events whose records share batches of at most `most` records."""

    first: int
    last: int
    most: int


class Suspects:
    """What the refused batches of one delivery have shown about its records."""

    def __init__(self) -> None:
        self._ranges: dict[str, _Range] = {}
        self._known: dict[tuple[str, int, bytes | None], list[Refusal]] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self._ranges)

    def learn(self, refused: Sequence[tuple[str, Records, Refusal]]) -> None:
        """Learn from the batches (topic, records, why) that were refused when all were sent."""
        self._ranges = {}
        for topic, batch, why in refused:
            first, last = batch.offsets[0], batch.offsets[-1]
            if len(batch) == 1:
                self._known.setdefault(_place(topic, batch[0]), []).append(why)
                continue
            most = -(-len(batch) // SPLIT)
            if topic in self._ranges:
                known = self._ranges[topic]
                first, last = min(first, known.first), max(last, known.last)
                most = min(most, known.most)
            self._ranges[topic] = _Range(first, last, most)

    def of(self, topic: str, record: Record) -> Sequence[Refusal]:
        """Why a record was refused, and then what was written in its place, and so on."""
        return self._known.get(_place(topic, record), ())

    def together(self, topic: str, left: Records) -> Records:
        """The first of these records that may share a batch."""
        if topic not in self._ranges:
            return left
        first, last, most = self._ranges[topic]
        if first <= left.offsets[0] <= last:
            return left.part(0, most)
        return left.part(0, bisect_left(left.offsets, first)) if left.offsets[0] < first else left


def _place(topic: str, record: Record) -> tuple[str, int, bytes | None]:
    """What identifies a record within a delivery: a summary has no offset, but a key."""
    return topic, record.offset, None if record.offset >= 0 else record.key

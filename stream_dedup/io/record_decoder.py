"""From Kafka's records to events: what is decided on, and what is not worth deciding on.

Whatever a record holds, it becomes an event. A *tombstone* (no value) and a compressed value pass
as they are. What is not what was promised (not JSON, no such field, too large) is *poison*: it
passes with the reason, and its pipeline says what becomes of it. Nothing here depends on other
events, so a record that is delivered again becomes the same event.
"""

from __future__ import annotations

from typing import Any

from stream_dedup.clock import US_PER_MS
from stream_dedup.columnar import column_stats, multiplied
from stream_dedup.io.base import Records
from stream_dedup.io.decoder import NO_OBJECT, NO_TEXT, NOT_JSON, Decoder, Reading
from stream_dedup.model import Batch, Partition

TOMBSTONE = "tombstone"
COMPRESSED = "compressed"
TOO_LARGE = "too large"

POISON = frozenset({NOT_JSON, NO_OBJECT, NO_TEXT, TOO_LARGE})
"""Reasons that speak of what came, or of wrong settings."""

REASONS = POISON | {TOMBSTONE, COMPRESSED}
"""All reasons for which an event is passed without a look at its text."""

MAX_EVENT_BYTES = 1 << 20

_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00sNaPpY", b"BZh")
"""What gzip, Zstandard, LZ4, framed Snappy and bzip2 begin with."""

_SUSPICIOUS = frozenset((None, *(magic[:1] for magic in _MAGIC)))
"""What a value begins with that may have to be passed."""


class RecordDecoder:
    """Makes batches of records.

    Args:
        reading: how values are read; `auto` takes for JSON what begins with a brace.
        takes_fields: whether the recipe looks at fields of JSON events.
        max_event_bytes: longer values are poison.

    Raises:
        InputError: an option is wrong.
    """

    def __init__(
        self, reading: Reading, *, takes_fields: bool, max_event_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        self._decoder = Decoder(reading, Partition("", 0), takes_fields=takes_fields)
        self._max_event_bytes = max_event_bytes

    def decode(self, partition: Partition, records: Records, now_us: int) -> Batch:
        """The events of records of one partition."""
        values: list[Any] = list(records.values)
        passed: dict[int, str] = {}
        seen = column_stats(values)
        if not seen.begins.isdisjoint(_SUSPICIOUS) or seen.longest > self._max_event_bytes:
            for index, value in enumerate(values):
                if value is None:
                    values[index] = b""
                    passed[index] = TOMBSTONE
                elif value.startswith(_MAGIC):
                    passed[index] = COMPRESSED
                elif len(value) > self._max_event_bytes:
                    passed[index] = TOO_LARGE
        times = multiplied(records.timestamps, US_PER_MS)
        if min(times) < 0:  # the broker keeps none
            times = [now_us if time < 0 else time for time in times]
        batch = Batch(partition, records.offsets, values, times, passed=passed)
        self._decoder.fill(batch, now_us, seen.begins)
        if passed:  # nothing is to be kept of them
            batch.values = [b"" if i in passed else value for i, value in enumerate(batch.values)]
        return batch

"""Decodes Kafka records into batches of events, and says which events are passed unread.

Every record becomes an event. A *tombstone* (no value) and a compressed value pass. An *invalid*
event is not what the settings promise (not JSON, without the text's field, too large): it passes
with the reason, and the pipeline's settings say what becomes of it. An event depends on no other,
so a record that is delivered again becomes the same event.
"""

from __future__ import annotations

from typing import Any

from stream_dedup.clock import US_PER_MS
from stream_dedup.columnar import column_stats, multiplied
from stream_dedup.io.base import Records
from stream_dedup.io.decoder import NO_OBJECT, NO_TEXT, NOT_JSON, Decoder, DecoderOptions
from stream_dedup.model import Batch, Partition

TOMBSTONE = "tombstone"
COMPRESSED = "compressed"
TOO_LARGE = "too large"

INVALID = frozenset({NOT_JSON, NO_OBJECT, NO_TEXT, TOO_LARGE})
"""Reasons for an invalid event."""

REASONS = INVALID | {TOMBSTONE, COMPRESSED}
"""All reasons for which an event is passed without reading its text."""

MAX_EVENT_BYTES = 1 << 20

_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00sNaPpY", b"BZh")
"""The first bytes of gzip, Zstandard, LZ4, framed Snappy and bzip2."""

_SUSPICIOUS = frozenset((None, *(magic[:1] for magic in _MAGIC)))
"""First bytes of values that may have to be passed."""


class RecordDecoder:
    """Decodes records into batches of events.

    Args:
        reading: how values are read; `auto` reads those that begin with a brace as JSON.
        takes_fields: whether the recipe uses fields of JSON events.
        max_event_bytes: longer values are invalid.

    Raises:
        InputError: an option is wrong.
    """

    def __init__(
        self, reading: DecoderOptions, *, takes_fields: bool, max_event_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        self._decoder = Decoder(reading, Partition("", 0), takes_fields=takes_fields)
        self._max_event_bytes = max_event_bytes

    def decode(self, partition: Partition, records: Records, now_us: int) -> Batch:
        """Decode the records of one partition."""
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
        if min(times) < 0:  # the record has no timestamp
            times = [now_us if time < 0 else time for time in times]
        batch = Batch(partition, records.offsets, values, times, passed=passed)
        self._decoder.fill(batch, now_us, seen.begins)
        if passed:  # nothing of them is kept
            batch.values = [b"" if i in passed else value for i, value in enumerate(batch.values)]
        return batch

"""Looks whether so much of what comes is poison that the settings must be wrong."""

from __future__ import annotations

from stream_dedup.errors import TooManyInvalidEvents
from stream_dedup.io.record_decoder import POISON
from stream_dedup.model import Batch
from stream_dedup.worker.policy import Tolerance


class InvalidEventMonitor:
    """Counts a pipeline's events and how many of them are bad.

    Args:
        pipeline: its name.
        tolerance: how much is borne.
    """

    def __init__(self, pipeline: str, tolerance: Tolerance) -> None:
        self._pipeline = pipeline
        self._tolerance = tolerance
        self._events = self._bad = 0
        self._last = ""

    def look_at(self, batch: Batch) -> None:
        """Count a batch.

        Raises:
            TooManyInvalidEvents: more than is borne.
        """
        self._events += len(batch.values)
        for why in batch.passed.values():
            if why in POISON:
                self._bad += 1
                self._last = why
        if self._events < self._tolerance.least:
            return
        if self._bad > self._tolerance.share * self._events:
            raise TooManyInvalidEvents(
                f"pipeline {self._pipeline}: {self._bad:,} of the last {self._events:,} events are "
                f"bad (the last one: {self._last}), more than poison_share allows; are format and "
                "text_field right for these topics?"
            )
        self._events = self._bad = 0

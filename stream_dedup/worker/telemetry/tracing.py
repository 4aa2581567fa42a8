"""The port for traces of batches; a pipeline without traces has None in its place.

A batch is reported when it is taken, after each stage and when it is delivered: a few calls for
thousands of events. A stage is reported when it is over, with its times, so nothing stays open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stream_dedup.io.base import Records
from stream_dedup.model import Decision, Partition


class StageTrace(Protocol):
    """Takes stages."""

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        """Report a stage that is over.

        Args:
            name: as in `metrics.FIXED`.
            started_s: on the clock of `clock.monotonic_s`, as is `ended_s`.
            ended_s: the stage's end.
            error: what ended it, if it failed. A batch goes no further then.
        """


class PollTrace(StageTrace, Protocol):
    """One poll, which may bring events of many partitions."""

    def brought(self, found: Mapping[Partition, Records]) -> None:
        """Report what it brought; a poll that brings nothing leaves no trace."""


class BatchTrace(StageTrace, Protocol):
    """One batch on its way."""

    def failed(self, error: Exception) -> None:
        """Report an error after which the worker retries."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Report the decisions of its events."""

    def delivered(self, next_offset: int, *, committed: bool) -> None:
        """Report that it was delivered.

        Args:
            next_offset: the offset after its last event.
            committed: whether its offset is stored too; if not, a later `Traces.commit` covers it.
        """


class Traces(Protocol):
    """Takes traces of a pipeline. Calls come from one thread and do no I/O."""

    def poll(self) -> PollTrace:
        """Begin a poll."""

    def batch(self, partition: Partition, records: Records, size: int) -> BatchTrace | None:
        """Begin a batch; None if it is not traced.

        Args:
            partition: where its events come from.
            records: its events, at least one.
            size: bytes of their values.
        """

    def commit(self, offsets: Mapping[Partition, int]) -> StageTrace | None:
        """Begin a commit of offsets; it is a stage of each traced batch that it covers.

        None if it covers none.
        """

    def summaries(self, count: int) -> StageTrace:
        """Begin the sending and confirming of summaries."""

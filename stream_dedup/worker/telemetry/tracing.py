"""Traces: what is told of a batch's way, stage by stage; the port, and what takes it to nowhere.

A batch is told of when it is taken, after each stage, and when it is delivered: a few calls for
thousands of events. A stage is told of afterwards, with its times, so that nothing stands open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stream_dedup.io.base import Records
from stream_dedup.model import Decision, Partition


class Stages(Protocol):
    """Is told of stages."""

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        """A stage is over.

        Args:
            name: as in `metrics.FIXED`.
            started_s: on the clock of `clock.monotonic_s`, as is `ended_s`.
            ended_s: when it was over.
            error: what ended it, if it failed. A batch goes no further then.
        """


class Poll(Stages, Protocol):
    """One poll, which may bring events of many partitions."""

    def brought(self, found: Mapping[Partition, Records]) -> None:
        """What it brought; one that brings nothing is not told of."""


class BatchTrace(Stages, Protocol):
    """One batch on its way."""

    def failed(self, error: Exception) -> None:
        """Something failed, and is tried again."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """What was decided of its events."""

    def delivered(self, next_offset: int, *, committed: bool) -> None:
        """It was delivered.

        Args:
            next_offset: behind its last event.
            committed: whether its offset is stored too; if not, a commit will tell.
        """


class Traces(Protocol):
    """What takes traces of a pipeline. Calls come from one thread, and do no I/O."""

    def poll(self) -> Poll:
        """Events are asked for."""

    def batch(self, partition: Partition, records: Records, size: int) -> BatchTrace:
        """A batch was taken.

        Args:
            partition: where its events come from.
            records: its events, at least one.
            size: bytes of their values.
        """

    def commit(self, offsets: Mapping[Partition, int]) -> Stages:
        """Offsets are stored of batches that were delivered."""

    def tell(self, summaries: int) -> Stages:
        """So many summaries are sent and confirmed."""


class NoTrace:
    """Is told, and forgets."""

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None: ...
    def brought(self, found: Mapping[Partition, Records]) -> None: ...
    def failed(self, error: Exception) -> None: ...
    def decided(self, decisions: Sequence[Decision]) -> None: ...
    def delivered(self, next_offset: int, *, committed: bool) -> None: ...


NO_TRACE = NoTrace()


class NoTraces:
    """Takes traces to nowhere."""

    def poll(self) -> NoTrace:
        """See `Traces`."""
        return NO_TRACE

    def batch(self, partition: Partition, records: Records, size: int) -> NoTrace:
        """See `Traces`."""
        del partition, records, size
        return NO_TRACE

    def commit(self, offsets: Mapping[Partition, int]) -> NoTrace:
        """See `Traces`."""
        del offsets
        return NO_TRACE

    def tell(self, summaries: int) -> NoTrace:
        """See `Traces`."""
        del summaries
        return NO_TRACE


NO_TRACES = NoTraces()

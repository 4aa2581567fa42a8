"""What a pipeline's parts share: its plan and its connections, and how they try again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stream_dedup.clock import monotonic_s
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import (
    BrokerUnavailable,
    GroupLost,
    IndexReset,
    IndexUnavailable,
    ProducerFenced,
)
from stream_dedup.io.base import EventSink, EventSource
from stream_dedup.io.record_decoder import RecordDecoder
from stream_dedup.metrics import Metrics
from stream_dedup.worker.policy import Plan
from stream_dedup.worker.telemetry.tracing import NO_TRACE, NO_TRACES, BatchTrace, Stages, Traces

log = logging.getLogger(__name__)

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0
"""Pauses between tries, doubled from one to the next."""

T = TypeVar("T")


class Reports(Protocol):
    """Where it is told whether the worker is ready; see `worker.health`."""

    def not_ready(self, name: str, reason: str) -> None:
        """Something is amiss."""

    def ready(self, name: str) -> None:
        """It is well again."""


def no_step(name: str) -> None:
    """Nobody wants to know the steps."""


@dataclass(frozen=True, slots=True)
class Context:
    """A pipeline's plan and connections.

    Attributes:
        plan: what it is.
        source: where events come from.
        sink: where output goes.
        engine: decides.
        decoder: makes events of records.
        metrics: takes the numbers.
        health: is told what is amiss.
        step: called with the name of each step that was done, so that tests can stop there:
            recorded, sent, committed; claimed, told, confirmed.
        traces: takes traces.
    """

    plan: Plan
    source: EventSource
    sink: EventSink
    engine: Engine
    decoder: RecordDecoder
    metrics: Metrics
    health: Reports
    step: Callable[[str], None] = no_step
    traces: Traces = NO_TRACES

    def ready(self, name: str) -> None:
        """A part is well."""
        self.health.ready(f"{self.plan.name}: {name}")

    def not_ready(self, name: str, reason: str) -> None:
        """A part is amiss."""
        self.health.not_ready(f"{self.plan.name}: {name}", reason)

    def warn(self, text: str) -> None:
        """Log what is amiss in this pipeline."""
        log.warning("pipeline %s: %s", self.plan.name, text)

    @contextmanager
    def timed(self, stage: str, trace: Stages = NO_TRACE) -> Iterator[None]:
        """Observe how long a stage takes, and tell a trace of it."""
        failed: BaseException | None = None
        started_s = monotonic_s()
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            ended_s = monotonic_s()
            seconds = ended_s - started_s
            self.metrics.observe("stage_seconds", seconds, pipeline=self.plan.name, stage=stage)
            trace.stage(stage, started_s, ended_s, failed)

    async def with_retries(
        self,
        part: str,
        what: Callable[[], Awaitable[T]],
        wanted: Callable[[], bool] = lambda: True,
        trace: BatchTrace = NO_TRACE,
    ) -> T:
        """Do something until broker and index let it be done.

        Args:
            part: whose readiness it says something of.
            what: what to do.
            wanted: whether it is still to be done.
            trace: is told what fails and is tried again.

        Raises:
            ProducerFenced, GroupLost: it is somebody else's to do now.
            BrokerRefused, IndexRefused, StaleFence: trying again does not help.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                answer = await what()
            except (BrokerUnavailable, IndexUnavailable, IndexReset) as error:
                if isinstance(error, ProducerFenced | GroupLost) or not wanted():
                    raise
                if isinstance(error, IndexUnavailable):
                    self.metrics.add("index_retries_total", pipeline=self.plan.name)
                self.not_ready(part, str(error))
                self.warn(f"{error}; trying again")
                trace.failed(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
            else:
                self.ready(part)
                return answer

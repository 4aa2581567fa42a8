"""What the parts of a pipeline share: its settings, its connections, and how it retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from stream_dedup.clock import monotonic_s
from stream_dedup.config import PipelineConfig, WorkerConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import (
    BrokerUnavailable,
    DeliveryTimeout,
    GroupLost,
    IndexFull,
    IndexReset,
    IndexUnavailable,
    OffsetGone,
    ProducerFenced,
)
from stream_dedup.index.patterns import PatternStore
from stream_dedup.io.base import EventSink, EventSource
from stream_dedup.io.decoder import RecordDecoder
from stream_dedup.metrics import Metrics
from stream_dedup.retries import retry
from stream_dedup.rules.book import RuleBook
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.tracing import BatchTrace, StageTrace, Traces

log = logging.getLogger(__name__)

T = TypeVar("T")

_CAUSES: tuple[tuple[type[Exception], str], ...] = (
    (IndexFull, "index_full"),
    (IndexReset, "index_reset"),
    (IndexUnavailable, "index"),
    (Exception, "broker"),
)
"""Errors after which something is tried again, and the label of `retries_total` for each."""


def no_step(name: str) -> None:
    """Ignore a step."""


class RulesSource(Protocol):
    """Where the rules of a pipeline are kept."""

    async def version(self) -> int:
        """Return what names the rules that are there now."""

    async def read(self) -> RuleBook:
        """Read them."""


@dataclass(frozen=True, slots=True)
class Context:
    """A pipeline's settings and connections.

    Attributes:
        config: the settings of the pipeline.
        worker: the settings that all pipelines share.
        source: events are read from it.
        sink: output is written to it.
        engine: decides the events.
        decoder: makes events of records.
        metrics: takes the numbers.
        health: collects reasons why the worker is not ready.
        step: called with the name of each step done, so that tests can end the worker there:
            recorded, sent, committed; claimed, remembered, emitted, deleted, confirmed.
        traces: takes traces; None without.
        finish: emit the final summary of every cluster on a stop, because the index ends with the
            worker.
        summaries_every_s: time between checks for summaries that are due.
        metadata_max_age_s: time between requests for what the broker knows about the topics.
        rules: where people's rules about patterns are kept; None for nowhere.
        rules_version: of the rules that the engine has.
        patterns: remembers patterns, for events about them; None without.
    """

    config: PipelineConfig
    worker: WorkerConfig
    source: EventSource
    sink: EventSink
    engine: Engine
    decoder: RecordDecoder
    metrics: Metrics
    health: Health
    step: Callable[[str], None] = no_step
    traces: Traces | None = None
    finish: bool = False
    summaries_every_s: float = 1.0
    metadata_max_age_s: float = 60.0
    rules: RulesSource | None = None
    rules_version: int = 0
    patterns: PatternStore | None = None
    _not_ready: dict[str, set[str]] = field(default_factory=dict, init=False)

    def ready(self, part: str, *, by: str = "") -> None:
        """Report that a part of the pipeline works; costs nothing unless it did not.

        Args:
            part: the part.
            by: who has noticed it. The part is ready when all have that reported otherwise.
        """
        waiting = self._not_ready.get(part)
        if waiting is not None:
            waiting.discard(by)
            if not waiting:
                del self._not_ready[part]
                self.health.ready(f"{self.config.name}: {part}")

    def not_ready(self, part: str, reason: str, *, by: str = "") -> None:
        """Report that a part of the pipeline does not work, and why."""
        self._not_ready.setdefault(part, set()).add(by)
        self.health.not_ready(f"{self.config.name}: {part}", reason)

    def count_retry(self, error: Exception) -> None:
        """Count that something is tried again after an error."""
        cause = next(cause for kind, cause in _CAUSES if isinstance(error, kind))
        self.metrics.add("retries_total", pipeline=self.config.name, cause=cause)

    def warn(self, text: str) -> None:
        """Log a warning about this pipeline."""
        log.warning("pipeline %s: %s", self.config.name, text)

    @contextmanager
    def timed(self, stage: str, trace: StageTrace | None = None) -> Iterator[None]:
        """Measure how long a stage takes, for the metrics and a trace."""
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
            self.metrics.observe("stage_seconds", seconds, pipeline=self.config.name, stage=stage)
            if trace:
                trace.stage(stage, started_s, ended_s, failed)

    @asynccontextmanager
    async def delivery_limit(self, what: str) -> AsyncIterator[None]:
        """Limit the time of a delivery, whatever it waits for.

        Raises:
            DeliveryTimeout: the time is over.
        """
        within_s = self.worker.delivery_timeout_s
        try:
            async with asyncio.timeout(within_s) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise DeliveryTimeout(
                f"{what}: the output was not stored within {within_s:g} s "
                "(worker.delivery_timeout_s)"
            ) from error

    async def with_retries(
        self,
        part: str,
        work: Callable[[], Awaitable[T]],
        trace: BatchTrace | None = None,
        *,
        by: str = "",
    ) -> T:
        """Call `work` until the broker and the index answer; the worker is not ready meanwhile.

        Args:
            part: the part of the pipeline whose readiness this shows.
            work: makes the call.
            trace: gets the failures.
            by: who calls, where several call for one part; see `ready`.

        Raises:
            ProducerFenced, GroupLost: another worker has the partition now.
            OffsetGone: the partition must be opened again.
            BrokerRefused, IndexRefused, StaleFence: a retry would not help.
        """

        def report(error: Exception) -> None:
            self.count_retry(error)
            self.not_ready(part, str(error), by=by)
            self.warn(f"{error}; trying again")
            if trace:
                trace.failed(error)

        try:
            answer = await work()
        except Exception as error:
            if not _retryable(error):
                raise
            report(error)
        else:
            self.ready(part, by=by)
            return answer
        answer = await retry(work, _retryable, report)
        self.ready(part, by=by)
        return answer


def _retryable(error: BaseException) -> bool:
    return isinstance(error, BrokerUnavailable | IndexUnavailable | IndexReset) and not isinstance(
        error, ProducerFenced | GroupLost | OffsetGone
    )

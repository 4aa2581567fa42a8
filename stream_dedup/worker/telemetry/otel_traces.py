"""Traces as OpenTelemetry's spans.

A trace is a batch::

    process app-logs          the batch: partition, offsets, events, decisions by kind
    ├── hash
    ├── decide                an event `exception` on the batch for each try that failed
    ├── shape
    ├── deliver
    └── commit                later, with others'; not with exactly-once, where deliver commits

A poll that brought events, and summaries that were told, are traces of their own, of one span: they
serve many batches, or none. Whether a trace is kept is settled with its first span, so a batch that
is not costs no more than that. Spans of stages are made when the batch ends, of times taken before;
a batch that still waits for a stage when its partition goes to another worker leaves none.

Names are those of the semantic conventions for messaging (OpenTelemetry semantic conventions 1.44,
in development), and ``stream_dedup.…`` for what those do not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from stream_dedup.clock import US_PER_S, Clock, SystemClock, monotonic_s
from stream_dedup.io.base import Records
from stream_dedup.model import Decision, Kind, Partition
from stream_dedup.worker.telemetry.log_fields import clean_text
from stream_dedup.worker.telemetry.tracing import NO_TRACE, BatchTrace, Poll, Stages

WAITING = 100
"""Batches kept until their commit, of those that are traced; of more, the last."""

MAX_ERROR_CHARS = 1_000

_OPERATIONS = {
    "process": (SpanKind.CONSUMER, "process"),
    "poll": (SpanKind.CLIENT, "receive"),
    "deliver": (SpanKind.CLIENT, "send"),
    "tell": (SpanKind.CLIENT, "send"),
    "commit": (SpanKind.CLIENT, "settle"),
}
"""The kind of span and the type of operation that the conventions give to what talks to Kafka."""

_NS_PER_US = 1_000

Attributes = dict[str, str | int]


class _Stage(NamedTuple):
    name: str
    started_s: float
    ended_s: float
    error: BaseException | None


class _Times(NamedTuple):
    """How a trace tells the time: by the clock of durations, set by the wall's once.

    Attributes:
        offset_us: from the former to the latter.
    """

    offset_us: int

    def ns(self, at_s: float) -> int:
        """Nanoseconds since 1970, as spans have them."""
        return (self.offset_us + round(at_s * US_PER_S)) * _NS_PER_US


class OtelTraces:
    """Takes traces of one pipeline.

    Args:
        tracer: makes spans.
        pipeline: its name.
        group: its consumer group.
        client_id: how brokers call us.
        clock: tells the time of a trace's beginning.
    """

    def __init__(
        self, tracer: Tracer, pipeline: str, group: str, client_id: str, clock: Clock | None = None
    ) -> None:
        self._tracer = tracer
        self._clock = clock or SystemClock()
        self._common: Attributes = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": group,
            "messaging.client.id": client_id,
            "stream_dedup.pipeline": pipeline,
        }
        self._waiting: deque[_Batch] = deque(maxlen=WAITING)

    def poll(self) -> Poll:
        """See `tracing.Traces`."""
        return _Poll(self)

    def batch(self, partition: Partition, records: Records, size: int) -> BatchTrace:
        """See `tracing.Traces`."""
        source, number = partition
        attributes: Attributes = {
            "messaging.destination.name": source,
            "messaging.destination.partition.id": str(number),
            "messaging.batch.message_count": len(records),
            "stream_dedup.offset.first": records.offsets[0],
            "stream_dedup.offset.last": records.offsets[-1],
            "stream_dedup.batch.bytes": size,
        }
        times = self.times()
        span = self.begin(f"process {source}", "process", attributes, times.ns(monotonic_s()))
        return _Batch(self, span, partition, times) if span.is_recording() else NO_TRACE

    def commit(self, offsets: Mapping[Partition, int]) -> Stages:
        """See `tracing.Traces`."""
        waiting = list(self._waiting)
        done = [each for each in waiting if each.next_offset <= offsets.get(each.partition, -1)]
        for each in done:
            self._waiting.remove(each)
        return _Commit(done) if done else NO_TRACE

    def tell(self, summaries: int) -> Stages:
        """See `tracing.Traces`."""
        return _Alone(self, {"messaging.batch.message_count": summaries})

    def wait(self, batch: _Batch) -> None:
        """Keep a batch until its commit."""
        self._waiting.append(batch)

    def times(self) -> _Times:
        """How a trace that begins now tells the time."""
        return _Times(self._clock.now_us() - round(monotonic_s() * US_PER_S))

    def begin(
        self,
        name: str,
        operation: str,
        attributes: Attributes,
        begun_ns: int,
        parent: Context | None = None,
    ) -> Span:
        """Begin a span; without a parent, a trace."""
        kind = SpanKind.INTERNAL
        attributes = self._common | attributes
        if operation in _OPERATIONS:
            kind, attributes["messaging.operation.type"] = _OPERATIONS[operation]
            attributes["messaging.operation.name"] = operation
        return self._tracer.start_span(
            name,
            context=Context() if parent is None else parent,
            kind=kind,
            attributes=attributes,
            start_time=begun_ns,
        )

    def make(
        self, stage: _Stage, times: _Times, attributes: Attributes, parent: Context | None = None
    ) -> None:
        """Make the span of a stage that is over."""
        name, started_s, ended_s, error = stage
        span = self.begin(name, name, attributes, times.ns(started_s), parent)
        ended_ns = times.ns(ended_s)
        if error is not None:
            _tell(span, error, ended_ns)
            _fail(span, error)
        span.end(ended_ns)


class _Batch:
    """One batch that is traced."""

    def __init__(self, traces: OtelTraces, span: Span, partition: Partition, times: _Times) -> None:
        self.partition = partition
        self.next_offset = 0
        self._traces = traces
        self._span = span
        self._context = set_span_in_context(span, Context())
        self._times = times
        self._stages: list[_Stage] = []

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        self._stages.append(_Stage(name, started_s, ended_s, error))
        if error is not None:
            _fail(self._span, error)
            self._end(ended_s)

    def failed(self, error: Exception) -> None:
        _tell(self._span, error, self._times.ns(monotonic_s()))

    def decided(self, decisions: Sequence[Decision]) -> None:
        kinds = [decision.kind for decision in decisions]
        for kind in Kind:
            self._span.set_attribute(f"stream_dedup.decisions.{kind.value}", kinds.count(kind))

    def delivered(self, next_offset: int, *, committed: bool) -> None:
        self._end(monotonic_s())
        if not committed:
            self.next_offset = next_offset
            self._traces.wait(self)

    def committed(self, stage: _Stage) -> None:
        """The commit that was to store its offset is over."""
        self._traces.make(stage, self._times, {}, self._context)

    def _end(self, ended_s: float) -> None:
        for stage in self._stages:
            self._traces.make(stage, self._times, {}, self._context)
        self._span.end(self._times.ns(ended_s))


class _Commit:
    """A commit of batches that are traced."""

    def __init__(self, batches: Sequence[_Batch]) -> None:
        self._batches = batches

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        for batch in self._batches:
            batch.committed(_Stage(name, started_s, ended_s, error))


class _Alone:
    """A stage that is a trace of its own."""

    def __init__(self, traces: OtelTraces, attributes: Attributes) -> None:
        self._traces = traces
        self._attributes = attributes

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        stage = _Stage(name, started_s, ended_s, error)
        self._traces.make(stage, self._traces.times(), self._attributes)


class _Poll(_Alone):
    """A poll."""

    def __init__(self, traces: OtelTraces) -> None:
        super().__init__(traces, {})

    def brought(self, found: Mapping[Partition, Records]) -> None:
        self._attributes["messaging.batch.message_count"] = sum(map(len, found.values()))

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        if self._attributes.get("messaging.batch.message_count"):
            super().stage(name, started_s, ended_s, error)


def _text(error: BaseException) -> str:
    """An error as it may leave: secrets hidden, not too long."""
    return clean_text(str(error))[:MAX_ERROR_CHARS]


def _fail(span: Span, error: BaseException) -> None:
    """Mark what an error has ended."""
    name = type(error).__name__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, _text(error) or name))


def _tell(span: Span, error: BaseException, at_ns: int) -> None:
    """Note an error."""
    attributes = {"exception.type": type(error).__name__, "exception.message": _text(error)}
    span.add_event("exception", attributes, at_ns)

"""Deduplication inside a Faust app.

`FaustDedup` decides the events of a stream in batches, as the worker ``stream-dedup run`` does; the
app chooses what to do with them::

    app = faust.App("spam", broker="kafka://localhost")
    messages = app.topic("messages", value_serializer="raw")
    dedup = FaustDedup(app, recipe="text", index="redis://localhost")

    @app.agent(messages)
    async def look(stream):
        async for batch in dedup.batches(stream):
            for event, decision in batch:
                ...

Theory of operation
-------------------
Faust commits offsets every few seconds. After a crash or a rebalance it delivers the events after
the committed offset again. The journal of the index holds their decisions, so they are decided as
before and counted once. Decisions below the committed offset, as Faust's monitor shows it, are
dropped from the journal. When a partition is revoked, this worker drops its ownership; the next
worker claims it with a higher fence, and events that this one still holds are left out of its
batches.

Faust acknowledges a batch when the loop asks for the next one, *even if the loop's body failed*. So
the body must send what must not be lost before anything else can fail. Faust flushes sends before
it commits offsets.

While Redis is away, a batch waits and the app consumes nothing. It stays a member of its group as
long as Faust's own limits allow.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stream_dedup.clock import US_PER_S, Clock, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable, StaleFence
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import Index
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Batch, Decision, Partition, Summary
from stream_dedup.retries import with_retries

if TYPE_CHECKING:
    from stream_dedup.index.redis.client import RedisClient

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BATCH = 1_000
"""Events of a batch at most."""

WITHIN_S = 0.1
"""How long a batch waits for more events."""

MAX_CLAIMED = 200
"""Summaries claimed at once."""


class Decided(NamedTuple):
    """A Faust event and its decision.

    Attributes:
        event: Faust's event; `event.value` is the value as the topic decodes it.
        decision: new, duplicate or passed; its cluster; its distance.
    """

    event: Any
    decision: Decision


def raw_value(event: Any) -> bytes | None:  # noqa: ANN401 -- Faust's event
    """The event's value as it is in Kafka."""
    value = event.message.value
    return value if value is None or isinstance(value, bytes) else str(value).encode()


class FaustDedup:
    """Decides the events of a Faust app.

    Args:
        app: the app; its signals report revoked partitions and its end.
        recipe: what counts as near: a recipe, its name, or a TOML file.
        index: where clusters are kept: a Redis URL, shared by all workers of the app; or None for
            the memory of this process, which suits a single worker and is lost when it ends.
        namespace: the namespace in Redis; the recipe's name by default.
        windows: when clusters close.
        summaries: when summaries are due, and how many samples a cluster keeps.
        text: returns the part of an event that is compared, or None to pass the event; by default
            the raw value.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401 -- a Faust app, which is not typed
        *,
        recipe: Recipe | str | os.PathLike[str] = "logs",
        index: str | None = None,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        text: Callable[[Any], bytes | None] = raw_value,
    ) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
        self._app = app
        self._url = index
        self._namespace = namespace
        self._windows = windows or Windows()
        self._summaries = summaries or Summaries()
        self._text = text
        self._engine: Engine | None = None
        self._server: RedisClient | None = None
        self._opening = asyncio.Lock()
        self._first_offsets: dict[Partition, int] = {}
        self._handlers = (self._revoked, self._closed)  # Faust keeps only weak references
        app.on_partitions_revoked.connect(self._revoked)
        app.on_before_shutdown.connect(self._closed)

    async def engine(self) -> Engine:
        """The engine; the first call creates it and waits until the index can be reached.

        Raises:
            IndexRefused, RecipeMismatch: Redis refuses, or the namespace has another recipe.
        """
        async with self._opening:
            if self._engine is None:
                index, clock = await _with_retries(self._open_index)
                self._engine = Engine(
                    self.recipe,
                    index,
                    windows=self._windows,
                    summaries=self._summaries,
                    clock=clock,
                    offload=asyncio.to_thread,
                )
            return self._engine

    async def _open_index(self) -> tuple[Index, Clock]:
        if self._url is None:
            memory = MemoryIndex(self.recipe, windows=self._windows, summaries=self._summaries)
            return memory, SystemClock()
        from stream_dedup.index.redis.client import RedisClient  # noqa: PLC0415 -- an extra
        from stream_dedup.index.redis.store import RedisIndex  # noqa: PLC0415

        if self._server is None:
            self._server = RedisClient(self._url)
        index = await RedisIndex.open(
            self._server,
            self.recipe,
            namespace=self._namespace,
            windows=self._windows,
            summaries=self._summaries,
        )
        return index, index.clock

    # ------------------------------------------------------------ deciding

    async def batches(
        self,
        stream: Any,  # noqa: ANN401 -- a Faust stream
        max_events: int = MAX_BATCH,
        within_s: float = WITHIN_S,
    ) -> AsyncIterator[list[Decided]]:
        """The events of a stream in batches, each event with its decision.

        The events of one partition are in order. Events of a partition that another worker has
        claimed are left out: that worker gets them.

        Args:
            stream: the agent's stream.
            max_events: events of a batch at most.
            within_s: how long a batch waits for more events.
        """
        async for events in stream.take_events(max_events, within_s):
            yield [each for part in _by_partition(events) for each in await self._decide(*part)]

    async def _decide(self, partition: Partition, events: Sequence[Any]) -> list[Decided]:
        engine = await self.engine()
        batch = self._batch(partition, events)
        hashed = await asyncio.to_thread(engine.hash, batch)
        committed = self._committed(partition, events[0].message.offset)
        try:
            decisions = await _with_retries(lambda: engine.process(hashed, committed=committed))
        except StaleFence as error:
            log.info("%s: left to the worker that has claimed it: %s", partition, error)
            return []
        return [Decided(*pair) for pair in zip(events, decisions, strict=True)]

    def _batch(self, partition: Partition, events: Sequence[Any]) -> Batch:
        texts = [self._text(event) for event in events]
        return Batch(
            partition,
            [event.message.offset for event in events],
            [text or b"" for text in texts],
            [int(event.message.timestamp * US_PER_S) for event in events],
            passed={index: "no text" for index, text in enumerate(texts) if text is None},
        )

    def _committed(self, partition: Partition, offset: int) -> int:
        """A lower bound of the offset that Faust has committed."""
        first = self._first_offsets.setdefault(partition, offset)
        known = self._app.monitor.tp_committed_offsets.get(partition)
        return first if known is None else max(first, min(known, offset))

    # ------------------------------------------------------------ summaries

    def emit_summaries(self, send: Callable[[Summary], Any], every_s: float = 1.0) -> None:
        """Send summaries when they are due. Call this where the app's agents are defined.

        Args:
            send: an asynchronous function that sends one and returns once Kafka has stored it.
            every_s: how often to check for due summaries.
        """

        @self._app.timer(interval=every_s)  # type: ignore[untyped-decorator]
        async def emit_summaries() -> None:
            if self._engine is not None:
                await self.emit_due_summaries(send)

    async def emit_due_summaries(self, send: Callable[[Summary], Any]) -> int:
        """Send the summaries that are due now, and return their number.

        While the index is away the rest waits for the next call.
        """
        engine, sent = await self.engine(), 0
        while True:
            try:
                await engine.index.expire(engine.clock.now_us())
                due = await engine.claim_summaries(MAX_CLAIMED)
                for summary in engine.describe(due):
                    await send(summary)
                await engine.confirm_summaries(due)
            except IndexUnavailable as error:
                log.warning("summaries have to wait: %s", error)
                return sent
            sent += len(due)
            if len(due) < MAX_CLAIMED:
                return sent

    # ------------------------------------------------------------ the app's signals

    async def _revoked(self, _app: Any, revoked: Iterable[Any], **_: Any) -> None:  # noqa: ANN401
        for topic, number in revoked:
            partition = Partition(topic, number)
            self._first_offsets.pop(partition, None)
            if self._engine is not None:
                self._engine.drop_ownership(partition)

    async def _closed(self, _app: Any, **_: Any) -> None:  # noqa: ANN401
        if self._server is not None:
            await self._server.aclose()


async def _with_retries(work: Callable[[], Awaitable[T]]) -> T:
    """Call `work` until the index can be reached."""

    def report(error: Exception) -> None:
        log.warning("%s; trying again", error)

    return await with_retries(work, lambda error: isinstance(error, IndexUnavailable), report)


def _by_partition(events: Sequence[Any]) -> list[tuple[Partition, list[Any]]]:
    """Events by partition, in order, without offsets that are repeated."""
    parts: dict[Partition, list[Any]] = {}
    for event in events:
        message = event.message
        part = parts.setdefault(Partition(message.topic, message.partition), [])
        if not part or message.offset > part[-1].message.offset:
            part.append(event)
    return list(parts.items())

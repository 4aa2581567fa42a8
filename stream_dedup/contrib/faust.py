"""Near-duplicates inside a Faust app.

A `FaustDedup` decides the events of a stream in batches, as a worker of ``stream-dedup run`` does,
and leaves it to the app what becomes of them::

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
A position is Kafka's: topic, partition, offset. Faust stores offsets every few seconds, and after a
crash or a rebalance hands out again what was not stored. The index holds what was decided of it, so
it is decided as before and counted once; decisions below the offset that Faust has stored, as its
monitor tells, are dropped. A partition that is revoked is given up; who reads on claims it with a
higher fence, and what this worker still held of it is left out of its batches.

Faust acknowledges a batch when the loop asks for the next, *also when the loop's body failed*. So
what the body must not lose it has to send before it may fail. Sends are flushed before offsets are
stored.

While Redis is away a batch waits: the app consumes nothing then, and stays a member of its group as
long as Faust's own limits let it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable, StaleFence
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import Index
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Batch, Decision, Partition, Summary

if TYPE_CHECKING:
    from stream_dedup.index.redis.server import Server

log = logging.getLogger(__name__)

MAX_BATCH = 1_000
"""Events decided together at most."""

WITHIN_S = 0.1
"""How long a batch waits to be filled."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0
"""Between two tries while the index is away."""

CLAIM_BATCH = 200
"""Summaries claimed at once."""


class Decided(NamedTuple):
    """An event of Faust's and what was decided of it.

    Attributes:
        event: Faust's event; `event.value` is the value as the topic decodes it.
        decision: new, duplicate or passed; its cluster; its distance.
    """

    event: Any
    decision: Decision


def raw_value(event: Any) -> bytes | None:  # noqa: ANN401 -- Faust's event
    """The event's value as it stands in Kafka."""
    value = event.message.value
    return value if value is None or isinstance(value, bytes) else str(value).encode()


class FaustDedup:
    """Decides the events of a Faust app.

    Args:
        app: the app; its signals tell of partitions and of its end.
        recipe: what counts as near: a recipe, its name, or a TOML file.
        index: where clusters live: a Redis URL, shared by all workers of the app; or None for this
            process's memory, which is right for a single worker and forgets with it.
        namespace: in Redis; the recipe's name without.
        windows: when clusters close.
        summaries: how often they are told of, and how many samples are kept.
        text: what of an event is compared; the raw value without. None passes it.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401 -- a Faust app, which has no types of its own to speak of
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
        self._server: Server | None = None
        self._opening = asyncio.Lock()
        self._firsts: dict[Partition, int] = {}
        # Faust keeps weak references to what it tells.
        self._listeners = (self._revoked, self._closed)
        app.on_partitions_revoked.connect(self._revoked)
        app.on_before_shutdown.connect(self._closed)

    async def engine(self) -> Engine:
        """The engine, made at its first use.

        Raises:
            IndexRefused, RecipeMismatch: Redis will not serve, or the namespace is another's.
        """
        async with self._opening:
            if self._engine is None:
                index = await self._with_retries(self._open)
                self._engine = Engine(
                    self.recipe,
                    index,
                    windows=self._windows,
                    summaries=self._summaries,
                    clock=SystemClock(),
                    offload=asyncio.to_thread,
                )
            return self._engine

    async def _open(self) -> Index:
        if self._url is None:
            return MemoryIndex(self.recipe, windows=self._windows, summaries=self._summaries)
        from stream_dedup.index.redis.server import Server  # noqa: PLC0415 -- an extra
        from stream_dedup.index.redis.store import RedisIndex  # noqa: PLC0415

        if self._server is None:
            self._server = Server(self._url)
        return await RedisIndex.open(
            self._server,
            self.recipe,
            namespace=self._namespace,
            windows=self._windows,
            summaries=self._summaries,
        )

    # ------------------------------------------------------------ deciding

    async def batches(
        self,
        stream: Any,  # noqa: ANN401 -- a Faust stream
        max_events: int = MAX_BATCH,
        within_s: float = WITHIN_S,
    ) -> AsyncIterator[list[Decided]]:
        """The events of a stream in batches, each with what was decided of it.

        Those of one partition stand in order. Left out are events of partitions that another
        worker has claimed meanwhile: it will see them.

        Args:
            stream: the agent's.
            max_events: of a batch, at most.
            within_s: how long a batch waits to be filled.
        """
        async for events in stream.take_events(max_events, within_s):
            yield [each for part in _by_partition(events) for each in await self._decide(*part)]

    async def _decide(self, partition: Partition, events: Sequence[Any]) -> list[Decided]:
        engine = await self.engine()
        batch = self._batch(partition, events)
        hashed = await asyncio.to_thread(engine.hash, batch)
        committed = self._committed(partition, events[0].message.offset)
        try:
            decisions = await self._with_retries(
                lambda: engine.process(hashed, committed=committed)
            )
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
        """The next offset that Faust has stored, at the least."""
        first = self._firsts.setdefault(partition, offset)
        known = self._app.monitor.tp_committed_offsets.get(partition)
        return first if known is None else max(first, min(known, offset))

    async def _with_retries(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 -- what it gives
        """Do something as soon as the index lets it be done."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except IndexUnavailable as error:
                log.warning("%s; trying again", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)

    # ------------------------------------------------------------ summaries

    def tell(self, send: Callable[[Summary], Any], every_s: float = 1.0) -> None:
        """Have summaries told as they fall due. Call it where the app's agents are defined.

        Args:
            send: an asynchronous function that sends one; it returns once Kafka has stored it.
            every_s: how often they are looked for.
        """

        @self._app.timer(interval=every_s)  # type: ignore[untyped-decorator]
        async def tell_summaries() -> None:
            if self._engine is not None:
                await self.tell_due(send)

    async def tell_due(self, send: Callable[[Summary], Any]) -> int:
        """Tell the summaries that are due now; how many they were."""
        engine, told = await self.engine(), 0
        while True:
            try:
                await engine.index.expire(engine.clock.now_us())
                due = await engine.claim_summaries(CLAIM_BATCH)
                for summary in due:
                    await send(summary)
                await engine.confirm_summaries(due)
            except IndexUnavailable as error:
                log.warning("summaries have to wait: %s", error)
                return told
            told += len(due)
            if len(due) < CLAIM_BATCH:
                return told

    # ------------------------------------------------------------ the app's signals

    async def _revoked(self, _app: Any, revoked: Iterable[Any], **_: Any) -> None:  # noqa: ANN401
        for topic, number in revoked:
            partition = Partition(topic, number)
            self._firsts.pop(partition, None)
            if self._engine is not None:
                self._engine.drop_ownership(partition)

    async def _closed(self, _app: Any, **_: Any) -> None:  # noqa: ANN401
        if self._server is not None:
            await self._server.aclose()


def _by_partition(events: Sequence[Any]) -> list[tuple[Partition, list[Any]]]:
    """Events by partition, in order; an offset that comes again is left out."""
    parts: dict[Partition, list[Any]] = {}
    for event in events:
        message = event.message
        part = parts.setdefault(Partition(message.topic, message.partition), [])
        if not part or message.offset > part[-1].message.offset:
            part.append(event)
    return list(parts.items())

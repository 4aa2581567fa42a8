"""Assembly: make a worker from its configuration. The only module that knows all adapters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from stream_dedup import __version__, signals
from stream_dedup.clock import Clock, SystemClock, monotonic_s
from stream_dedup.config import Config, PipelineConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import (
    ConfigError,
    ConfigProblem,
    IndexUnavailable,
    StreamDedupError,
    WorkerEnded,
)
from stream_dedup.index.base import Index
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.patterns import MemoryPatterns, PatternStore
from stream_dedup.io.decoder import RecordDecoder
from stream_dedup.kafka.consumer import KafkaConsumer
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.listening import HostNames
from stream_dedup.metrics import Metrics
from stream_dedup.native import extension, warn_if_not_compiled
from stream_dedup.retries import with_retries
from stream_dedup.units import counted
from stream_dedup.worker.app import StopRequest, run_every_second, run_pipelines
from stream_dedup.worker.context import Context, RulesSource, log, no_step
from stream_dedup.worker.http import HttpServer, Pages
from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.logs import configure
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.snapshots import RecentMetrics, Snapshot
from stream_dedup.worker.telemetry.status_line import Status, StatusLine
from stream_dedup.worker.telemetry.status_page import StatusPage
from stream_dedup.worker.telemetry.tracing import Traces

if TYPE_CHECKING:
    from stream_dedup.index.redis.client import RedisClient
    from stream_dedup.index.redis.store import RedisIndex
    from stream_dedup.worker.telemetry.otel import Telemetry

T = TypeVar("T")

SWITCH_S = 0.001
"""How long one thread may run Python while others wait: short, as the event loop waits for the
kernel's thread."""

GARBAGE_THRESHOLDS = (100_000, 50, 100)
"""The garbage collector looks for cycles rarely: each look visits all events in progress, and
neither they nor their decisions form cycles."""


def tune() -> None:
    """Set up the interpreter for a worker. Call it after all imports."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()


def run_worker(config: Config, *, once: bool = False) -> None:
    """Run a worker until a signal, or with `once` until it has read all there is.

    Raises:
        StreamDedupError: it cannot go on.
        WorkerEnded: the same, where the log is JSON: its last line is the error then.
    """
    tune()
    with configure(config.log.format, config.log.level) as logs:
        try:
            with StatusLine() as line:
                asyncio.run(_run(config, once=once, tick=logs.tick, line=line))
        except StreamDedupError as error:
            if not logs.as_json:
                raise
            logs.log_repeated()
            log.critical("%s", error)
            raise WorkerEnded from error


async def _run(config: Config, *, once: bool, tick: Callable[[], None], line: StatusLine) -> None:
    metrics = PrometheusMetrics()
    telemetry = make_telemetry(config, metrics)
    warn_if_not_compiled()
    kernel = "native" if extension("fingerprint._kernel") else "reference"
    metrics.set("info", 1, version=__version__, kernel=kernel)
    health, stop = Health(metrics), StopRequest()
    recent = RecentMetrics(metrics.snapshot, monotonic_s)
    page = StatusPage(config, health, recent, SystemClock(), kernel=kernel, version=__version__)
    names = HostNames([*config.http.allowed_hosts, config.http.host])
    pages = Pages(health, metrics.exposition, page.html, names)
    http = HttpServer(config.http.host, config.http.port, pages)
    http.start()
    pipelines: list[Pipeline] = []
    started_s = monotonic_s()

    def show_status() -> None:
        not_ready = next((f"waits: {reason.name}" for reason in health.reasons()), "")
        line.show(Status.of([each.stats() for each in pipelines], not_ready), monotonic_s())

    async def make_pipelines(server: RedisClient | None) -> None:
        made = []
        for section in config.pipelines:
            traces: Traces | None = None
            if telemetry is not None:
                traces = telemetry.traces(section.name, section.group_id, config.kafka.client_id)
            made.append(
                await make_pipeline(config, section, metrics, health, server, traces=traces)
            )
        pipelines.extend(made)

    every_second = asyncio.create_task(
        run_every_second(health.beat, tick, recent.update, show_status)
    )
    try:
        with signals.handled(stop.signalled):
            async with connect_redis(config) as server:
                if await signals.ended_before(stop, make_pipelines(server)):
                    await run_pipelines(pipelines, health, stop, once=once)
                    _log_totals(pipelines, metrics.snapshot(), monotonic_s() - started_s)
    finally:
        every_second.cancel()
        await asyncio.to_thread(http.stop)
        if telemetry is not None:
            await asyncio.to_thread(telemetry.stop)


def _log_totals(pipelines: Sequence[Pipeline], totals: Snapshot, seconds: float) -> None:
    """Log what each pipeline has done since the start."""
    for pipeline in pipelines:
        name, stats = pipeline.context.config.name, pipeline.stats()
        summaries = round(totals.value("outputs_total", pipeline=name, kind="summary"))
        dead_letters = round(totals.value("dead_letters_total", pipeline=name))
        log.info(
            "pipeline %s: ended after %.1f s: %s, %s, %s, %s not compared; %s, %s",
            name,
            seconds,
            counted(stats.delivered, "event"),
            counted(stats.counts.new, "new cluster"),
            counted(stats.counts.duplicates, "duplicate"),
            f"{sum(stats.counts.passed.values()):,}",
            f"{summaries:,} {'summary' if summaries == 1 else 'summaries'}",
            counted(dead_letters, "dead letter"),
        )


def make_telemetry(config: Config, metrics: PrometheusMetrics) -> Telemetry | None:
    """Return what sends traces and metrics to a collector; None if nothing is sent.

    Raises:
        ConfigError: the extra is not installed, or one of OpenTelemetry's variables is wrong.
    """
    if not config.otel.enabled:
        return None
    try:
        from stream_dedup.worker.telemetry.otel import Telemetry  # noqa: PLC0415 -- an extra
    except ImportError as error:
        text = f"is true, but {error.name} is not installed"
        remedy = "pip install 'stream-dedup[otel]', or set it to false"
        problem = ConfigProblem("configuration", "otel.enabled", text, remedy)
        raise ConfigError(problem) from error
    try:
        return Telemetry(config.otel, metrics, instance=config.kafka.group_instance_id)
    except (ValueError, RuntimeError) as error:
        text = f"a variable of OpenTelemetry's cannot be used ({error})"
        problem = ConfigProblem("environment", "", text, "correct it, or leave it out")
        raise ConfigError(problem) from error


@contextlib.asynccontextmanager
async def connect_redis(config: Config) -> AsyncIterator[RedisClient | None]:
    """Connect to Redis; None if the index is in memory. Connects lazily, so nothing waits here."""
    index = config.index
    if index.kind == "memory":
        yield None
        return
    async with contextlib.aclosing(index.client()) as server:
        yield server


async def make_pipeline(
    config: Config,
    section: PipelineConfig,
    metrics: Metrics,
    health: Health,
    server: RedisClient | None,
    step: Callable[[str], None] = no_step,
    traces: Traces | None = None,
) -> Pipeline:
    """Make a pipeline; waits for an index that cannot be reached.

    Args:
        config: the whole configuration.
        section: the settings of the pipeline.
        metrics: takes the metrics.
        health: collects reasons why the worker is not ready.
        server: Redis; None for an index in memory.
        step: called with the name of each step done.
        traces: takes traces, if they are wanted.

    Raises:
        IndexRefused, RecipeMismatch: the index cannot be used.
    """
    index, clock = await _open_index(config, section, server, metrics, health)
    engine = Engine(
        section.load_recipe(),
        index,
        windows=section.windows(),
        summaries=section.summaries(),
        clock=clock,
        near_cache_size=config.index.near_cache_size,
        offload=asyncio.to_thread,
        templates=section.names_templates,
        parameters=section.annotate_parameters,
        duplicates_leave=section.mode.duplicates,
    )
    rules, version = None, 0
    if server is not None:
        rules, version = await _read_rules(section, server, engine, health)
    kafka, exactly = config.kafka, config.worker.guarantee == "exactly_once"
    return Pipeline(
        Context(
            config=section,
            worker=config.worker,
            source=KafkaConsumer(
                section.topics,
                group_id=section.group_id,
                options=kafka.consumer_options(),
                start=kafka.start,
                max_unpacked_bytes=kafka.max_unpacked_bytes,
            ),
            sink=KafkaProducer(
                options=kafka.producer_options(),
                group_id=section.group_id,
                transactional_prefix=(
                    f"{kafka.transactional_id_prefix}-{section.name}" if exactly else ""
                ),
            ),
            engine=engine,
            decoder=RecordDecoder(
                section.reading(),
                engine.recipe,
                max_event_bytes=section.max_event_bytes,
            ),
            metrics=metrics,
            health=health,
            step=step,
            traces=traces,
            finish=server is None,
            metadata_max_age_s=kafka.metadata_max_age_s,
            rules=rules,
            rules_version=version,
            patterns=_pattern_store(config, section, server),
        )
    )


def _pattern_store(
    config: Config, section: PipelineConfig, server: RedisClient | None
) -> PatternStore | None:
    """Return what remembers patterns, where events about them are wanted."""
    if not section.pattern_topic:
        return None
    if server is None:
        return MemoryPatterns(config.index.max_clusters)
    from stream_dedup.index.redis.namespace import ttl_ms  # noqa: PLC0415 -- an extra
    from stream_dedup.index.redis.patterns import RedisPatterns  # noqa: PLC0415 -- an extra

    return RedisPatterns(
        server,
        section.namespace,
        max_patterns=config.index.max_clusters,
        ttl_ms=ttl_ms(section.windows(), section.summaries()),
    )


async def _read_rules(
    section: PipelineConfig, server: RedisClient, engine: Engine, health: Health
) -> tuple[RulesSource, int]:
    """Give the engine the rules of its namespace; waits for Redis if it cannot be reached."""
    from stream_dedup.index.redis.rules import RedisRules  # noqa: PLC0415 -- an extra

    rules, part = RedisRules(server, section.namespace), f"{section.name}: rules"
    book = await _when_available(rules.read, section, part, health)
    engine.use_rules(book.compiled())
    return rules, book.version


async def _open_index(
    config: Config,
    section: PipelineConfig,
    server: RedisClient | None,
    metrics: Metrics,
    health: Health,
) -> tuple[Index, Clock]:
    """Open the pipeline's index, and its clock; waits for Redis if it cannot be reached."""
    if server is None:
        memory = MemoryIndex(
            section.load_recipe(),
            namespace=section.namespace,
            windows=section.windows(),
            summaries=section.summaries(),
            limits=config.index.limits(),
        )
        return memory, SystemClock()
    index = await _when_available(
        partial(open_redis_index, config, section, server),
        section,
        f"{section.name}: index",
        health,
    )
    index.report(
        partial(metrics.observe, "redis_seconds", pipeline=section.name),
        partial(metrics.add, "index_rollbacks_total", pipeline=section.name),
    )
    return index, index.clock


async def open_redis_index(
    config: Config, section: PipelineConfig, server: RedisClient
) -> RedisIndex:
    """Open the pipeline's namespace in Redis, or create it.

    Raises:
        IndexRefused, RecipeMismatch: it cannot be used.
        IndexUnavailable: the server cannot be reached.
    """
    from stream_dedup.index.redis.spread_store import SpreadIndex  # noqa: PLC0415 -- an extra
    from stream_dedup.index.redis.store import RedisIndex  # noqa: PLC0415 -- an extra

    by_fingerprint = config.index.shard_by == "fingerprint"
    return await (SpreadIndex if by_fingerprint else RedisIndex).open(
        server,
        section.load_recipe(),
        namespace=section.namespace,
        windows=section.windows(),
        summaries=section.summaries(),
        limits=config.index.limits(),
        shards=config.index.shards,
        mirror_size=config.index.mirror_size,
    )


async def _when_available(
    call: Callable[[], Awaitable[T]], section: PipelineConfig, part: str, health: Health
) -> T:
    """Make a call to Redis, until it is there; the worker is not ready meanwhile."""

    def report(error: Exception) -> None:
        health.not_ready(part, str(error))
        log.warning("pipeline %s: %s; trying again", section.name, error)

    answer = await with_retries(call, lambda error: isinstance(error, IndexUnavailable), report)
    health.ready(part)
    return answer

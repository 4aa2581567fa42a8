"""Assembly: from a configuration to a worker that runs. The one place that knows all adapters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from stream_dedup import __version__
from stream_dedup.clock import SystemClock, monotonic_s
from stream_dedup.config import Config, PipelineConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import ConfigError, ConfigProblem, IndexUnavailable
from stream_dedup.fingerprint.kernel import native_module
from stream_dedup.index.base import Index
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.io.record_decoder import RecordDecoder
from stream_dedup.kafka.consumer import KafkaConsumer
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.metrics import Metrics
from stream_dedup.retries import with_retries
from stream_dedup.worker.app import StopRequest, run_every_second, run_pipelines
from stream_dedup.worker.context import Context, log, no_step
from stream_dedup.worker.http import HttpServer, Pages
from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.logs import configure
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.snapshots import RecentMetrics
from stream_dedup.worker.telemetry.status_line import Status, StatusLine
from stream_dedup.worker.telemetry.status_page import StatusPage
from stream_dedup.worker.telemetry.tracing import NO_TRACES, Traces

if TYPE_CHECKING:
    from stream_dedup.index.redis.client import RedisClient
    from stream_dedup.worker.telemetry.otel import Telemetry

SWITCH_S = 0.001
"""How long one thread may keep others from Python: short, as the kernel's waits for the loop's."""


GARBAGE_EVERY = (100_000, 50, 100)
"""How often the interpreter looks for garbage in cycles: rarely. Each look goes over the events on
their way, and neither they nor what is decided of them are in any."""


def tune() -> None:
    """Set the interpreter up for a worker, once all is imported."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE_EVERY)
    gc.freeze()


def run_worker(config: Config, *, once: bool = False) -> None:
    """Run a worker until a signal, or with `once` until it has read all there is.

    Raises:
        StreamDedupError: it cannot go on.
    """
    tune()
    with configure(config.log.format, config.log.level) as logs, StatusLine() as line:
        asyncio.run(_run(config, once=once, tick=logs.tick, line=line))


async def _run(config: Config, *, once: bool, tick: Callable[[], None], line: StatusLine) -> None:
    metrics = PrometheusMetrics()
    telemetry = make_telemetry(config, metrics)
    kernel = "native" if native_module() else "reference"
    metrics.set("info", 1, version=__version__, kernel=kernel)
    health, stop = Health(metrics), StopRequest()
    recent = RecentMetrics(metrics.snapshot, monotonic_s)
    page = StatusPage(config, health, recent, SystemClock(), kernel=kernel, version=__version__)
    http = HttpServer(
        config.http.host, config.http.port, Pages(health, metrics.exposition, page.html)
    )
    http.start()
    pipelines: list[Pipeline] = []

    def show() -> None:
        _show(line, pipelines, health)

    seconds = asyncio.create_task(run_every_second(health.beat, tick, recent.update, show))
    try:
        with stop.on_signals():
            async with contextlib.AsyncExitStack() as stack:
                making = asyncio.create_task(_make(config, metrics, health, stack, telemetry))
                asked = asyncio.create_task(stop.wait())
                await asyncio.wait({making, asked}, return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                if not making.done():
                    making.cancel()
                    return
                pipelines += making.result()
                await run_pipelines(pipelines, health, stop, once=once)
    finally:
        seconds.cancel()
        await asyncio.to_thread(http.stop)
        if telemetry is not None:
            await asyncio.to_thread(telemetry.stop)


async def _make(
    config: Config,
    metrics: Metrics,
    health: Health,
    stack: contextlib.AsyncExitStack,
    telemetry: Telemetry | None,
) -> list[Pipeline]:
    server = await stack.enter_async_context(_server(config)) if _shared(config) else None
    if telemetry is not None:
        metrics = telemetry.metrics
    made = []
    for section in config.pipelines:
        traces: Traces = NO_TRACES
        if telemetry is not None:
            traces = telemetry.traces(section.name, section.group_id, config.kafka.client_id)
        made.append(await make_pipeline(config, section, metrics, health, server, traces=traces))
    return made


def make_telemetry(config: Config, metrics: PrometheusMetrics) -> Telemetry | None:
    """What sends traces and metrics to a collector; None where nothing is sent.

    Raises:
        ConfigError: the extra is not installed, or a variable of OpenTelemetry's is wrong.
    """
    section = config.otel
    if not section.enabled:
        return None
    try:
        from stream_dedup.worker.telemetry.otel import Exporting, Telemetry  # noqa: PLC0415 -- an extra
    except ImportError as error:
        text = f"is true, but {error.name} is not installed"
        remedy = "pip install 'stream-dedup[otel]', or set it to false"
        problem = ConfigProblem("configuration", "otel.enabled", text, remedy)
        raise ConfigError(problem) from error
    exporting = Exporting(
        section.traces_url,
        section.metrics_url,
        section.read_headers(),
        section.sample_ratio,
        section.metrics_every_s,
        section.timeout_s,
        config.kafka.group_instance_id,
    )
    try:
        return Telemetry(exporting, metrics)
    except (ValueError, RuntimeError) as error:
        text = f"a variable of OpenTelemetry's cannot be used ({error})"
        problem = ConfigProblem("environment", "", text, "mend it, or leave it out")
        raise ConfigError(problem) from error


def _shared(config: Config) -> bool:
    return config.index.kind == "redis"


@contextlib.asynccontextmanager
async def _server(config: Config) -> AsyncIterator[RedisClient]:
    from stream_dedup.index.redis.client import RedisClient  # noqa: PLC0415 -- an extra

    section = config.index
    server = RedisClient(
        section.redis_url,
        retry_policy=section.retry_policy(),
        tls=section.tls(),
        sentinel_password=section.secret("sentinel_password"),
    )
    try:
        yield server
    finally:
        await server.aclose()


async def make_pipeline(
    config: Config,
    section: PipelineConfig,
    metrics: Metrics,
    health: Health,
    server: RedisClient | None,
    step: Callable[[str], None] = no_step,
    traces: Traces = NO_TRACES,
) -> Pipeline:
    """A pipeline of a configuration.

    Args:
        config: the whole of it.
        section: the pipeline's part.
        metrics: takes the numbers.
        health: is told what is amiss.
        server: Redis; None for an index in memory.
        step: is told each step done.
        traces: takes traces.

    Raises:
        IndexRefused, RecipeMismatch: the index will not serve.
    """
    recipe, windows, summaries = section.load_recipe(), section.windows(), section.summaries()
    index = await _index(config, section, server, metrics, health)
    engine = Engine(
        recipe,
        index,
        windows=windows,
        summaries=summaries,
        clock=SystemClock(),
        near_cache_size=config.index.near_cache_size,
        offload=asyncio.to_thread,
    )
    kafka, exactly = config.kafka, config.worker.guarantee == "exactly_once"
    prefix = f"{kafka.transactional_id_prefix}-{section.name}" if exactly else ""
    source = KafkaConsumer(
        section.topics,
        group_id=section.group_id,
        options=kafka.consumer_options(),
        start=kafka.start,
    )
    sink = KafkaProducer(
        options=kafka.producer_options(), group_id=section.group_id, transactional_prefix=prefix
    )
    decoder = RecordDecoder(
        section.reading(),
        takes_fields=engine.takes_fields,
        max_event_bytes=section.max_event_bytes,
    )
    return Pipeline(
        Context(
            config=section,
            worker=config.worker,
            source=source,
            sink=sink,
            engine=engine,
            decoder=decoder,
            metrics=metrics,
            health=health,
            step=step,
            traces=traces,
            finish=server is None,
        )
    )


async def _index(
    config: Config,
    section: PipelineConfig,
    server: RedisClient | None,
    metrics: Metrics,
    health: Health,
) -> Index:
    """The pipeline's index; waits for one that is away."""
    recipe, windows, summaries = section.load_recipe(), section.windows(), section.summaries()
    limits, namespace = config.index.limits(), section.namespace
    if server is None:
        return MemoryIndex(
            recipe, namespace=namespace, windows=windows, summaries=summaries, limits=limits
        )
    from stream_dedup.index.redis.store import RedisIndex  # noqa: PLC0415 -- an extra

    name = f"{section.name}: index"

    async def connect() -> RedisIndex:
        return await RedisIndex.open(
            server,
            recipe,
            namespace=namespace,
            windows=windows,
            summaries=summaries,
            limits=limits,
            shards=config.index.shards,
            mirror_size=config.index.mirror_size,
        )

    def report(error: Exception) -> None:
        health.not_ready(name, str(error))
        log.warning("pipeline %s: %s; trying again", section.name, error)

    index = await with_retries(connect, lambda error: isinstance(error, IndexUnavailable), report)
    health.ready(name)
    index.report(
        partial(metrics.observe, "redis_seconds", pipeline=section.name),
        partial(metrics.add, "index_rollbacks_total", pipeline=section.name),
    )
    return index


def _show(line: StatusLine, pipelines: list[Pipeline], health: Health) -> None:
    """Show the worker's current state on the status line."""
    not_ready = next((reason.name for reason in health.reasons()), "")
    index = f"waits: {not_ready}" if not_ready else ""
    line.show(Status.of([pipeline.stats() for pipeline in pipelines], index), monotonic_s())

"""Check that Kafka, Redis and the OpenTelemetry collector fit the configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from stream_dedup.config.model import Config
from stream_dedup.config.pipeline import PipelineConfig
from stream_dedup.config.sections import OtelConfig
from stream_dedup.errors import BrokerRefused, BrokerUnavailable, IndexRefused, IndexUnavailable
from stream_dedup.index.redis.advice import (
    advise,
    compare_settings,
    judge_shards,
    refused_commands,
)
from stream_dedup.index.redis.client import RedisClient, RetryPolicy
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.namespace import describe_settings, read_layout, stored_identity
from stream_dedup.kafka.admin import KafkaAdmin, Topic, connected
from stream_dedup.kafka.packing import TopicLimits
from stream_dedup.model import Partition

CHECK_SUFFIX = "config-check"
"""Ends the transactional id that the check opens; no worker uses it."""

MAX_OTEL_S = 3.0
"""Limit for one request to the collector: the exporter would retry until its timeout."""

OTEL_REMEDY = (
    "look whether an OTLP receiver for HTTP listens there, at port 4318 mostly, and takes our "
    "headers; the worker would go on without it"
)


_WHEN_REFUSED = {
    "dead_letter": "becomes a dead letter",
    "pass": "is written undecided, shortened or with another timestamp",
    "stop": "stops the worker",
}
"""What happens to an event that the output topic refuses, by `on_poison`."""


class Finding(NamedTuple):
    """The result of checking one thing.

    Attributes:
        level: warning: a worker would run, but perhaps not as intended; error: it would stop, or
            not start.
        subject: what was checked.
        text: what was found; if it is not ok, with a remedy after a semicolon.
    """

    level: Literal["ok", "warning", "error"]
    subject: str
    text: str


def _ok(subject: str, text: str) -> Finding:
    return Finding("ok", subject, text)


def _warning(subject: str, text: str) -> Finding:
    return Finding("warning", subject, text)


def _error(subject: str, text: str) -> Finding:
    return Finding("error", subject, text)


async def check(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Check everything that a worker needs, one after the other.

    Args:
        config: the configuration.
        within_s: how long each request may take.
    """
    for sentence in config.warnings():
        yield _warning("configuration", sentence)
    async for found in check_kafka(config, within_s):
        yield found
    if config.index.kind == "redis":
        async for found in check_redis(config, within_s):
            yield found
    if config.otel.enabled:
        async for found in check_otel(config.otel, within_s):
            yield found


# ------------------------------------------------------------ Kafka


async def check_kafka(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Check brokers, topics, groups and permissions."""
    kafka = config.kafka
    subject = f"kafka {','.join(kafka.bootstrap_servers)}"
    if kafka.security_protocol.startswith("SASL"):
        identity = f"as {kafka.sasl_username} with {kafka.sasl_mechanism}"
    else:
        identity = "with a certificate" if kafka.ssl_cert_file else "without credentials"
    try:
        async with connected(kafka.client_options(), within_s) as admin:
            yield _ok(subject, f"connected, {identity}, {kafka.security_protocol}")
            for pipeline in config.pipelines:
                try:
                    async for found in _check_pipeline(config, pipeline, admin):
                        yield found
                except (BrokerUnavailable, BrokerRefused) as failed:
                    yield _error(f"pipeline {pipeline.name}", str(failed))
    except (BrokerUnavailable, BrokerRefused) as failed:
        yield _error(subject, "\n".join([str(failed), *getattr(failed, "__notes__", ())]))


async def _check_pipeline(
    config: Config, pipeline: PipelineConfig, admin: KafkaAdmin
) -> AsyncIterator[Finding]:
    """Check a pipeline's topics, group and transactional ids."""
    names = [*pipeline.topics, *pipeline.output_topics]
    topics = await admin.topics(list(dict.fromkeys(names)))
    for name in pipeline.topics:
        yield _check_access(name, topics.get(name), "read", "topics")
    for name, key in pipeline.output_topics.items():
        yield (access := _check_access(name, topics.get(name), "write", key))
        if access.level != "error":
            async for found in _check_topic_settings(pipeline, name, admin):
                yield found
            if key == "output_topic":
                async for found in _compare_limits(pipeline, topics, admin):
                    yield found
    for found in _compare_partitions(pipeline, topics):
        yield found
    yield await _check_group(config.kafka.start, pipeline, topics, admin)
    if config.worker.guarantee == "exactly_once":
        prefix = f"{config.kafka.transactional_id_prefix}-{pipeline.name}"
        subject = f"transactional ids {prefix}*"
        try:
            await admin.try_transactions(f"{prefix}-{CHECK_SUFFIX}")
            yield _ok(subject, "may be used")
        except BrokerRefused as denied:
            yield _error(subject, str(denied))


def _check_access(
    name: str, topic: Topic | None, operation: Literal["read", "write"], key: str
) -> Finding:
    """Check that a topic exists and may be read or written."""
    subject = f"topic {name}"
    if topic is None:
        remedy = f"create it, correct {key}, or let the user see it (Describe on the topic)"
        return _error(subject, f"is not there; {remedy}")
    if topic.allowed is not None and operation not in topic.allowed:
        permission = operation.capitalize()
        return _error(subject, f"the user may not {operation} it; allow {permission} on the topic")
    if topic.leaderless:
        text = f"{topic.leaderless} of {topic.partitions} partitions have no leader now"
        return _warning(subject, f"{text}; see that all brokers run")
    done = "read" if operation == "read" else "written"
    unknown = "" if topic.allowed is not None else " (the broker does not report permissions)"
    return _ok(subject, f"may be {done}, {topic.partitions} partition(s){unknown}")


async def _check_topic_settings(
    pipeline: PipelineConfig, name: str, admin: KafkaAdmin
) -> AsyncIterator[Finding]:
    subject = f"topic {name}"
    try:
        settings = await admin.settings(name)
    except BrokerRefused:
        yield _ok(subject, "its settings may not be seen; they were not checked")
        return
    largest = int(settings.get("max.message.bytes") or 1 << 31)
    if largest < pipeline.max_event_bytes and name != pipeline.pattern_topic:
        text = (
            f"takes records of {largest:,} bytes, less than pipelines.{pipeline.name}."
            f"max_event_bytes ({pipeline.max_event_bytes:,}): larger events cannot be written; "
            "raise the topic's max.message.bytes, or lower max_event_bytes"
        )
        yield _warning(subject, text)
    compacts = "compact" in (settings.get("cleanup.policy") or "")
    if name in {pipeline.output_topic, pipeline.dead_letter_topic} and compacts:
        text = (
            "is compacted: it refuses events without a key, and of those with the same key keeps "
            "only the last; set cleanup.policy to delete"
        )
        yield _warning(subject, text)
    elif name == pipeline.pattern_topic and compacts:
        text = (
            "is compacted: of each pattern, which is the key, it keeps only the last event; set "
            "cleanup.policy to delete"
        )
        yield _warning(subject, text)
    elif name == pipeline.summary_topic != pipeline.output_topic and not compacts:
        text = (
            "holds summaries, each with its cluster as key: with cleanup.policy compact it "
            "keeps the last of each cluster"
        )
        yield _ok(subject, text)


async def _compare_limits(
    pipeline: PipelineConfig, topics: Mapping[str, Topic], admin: KafkaAdmin
) -> AsyncIterator[Finding]:
    """Compare what the output topic takes with what its input topics take."""
    subject = f"topic {pipeline.output_topic}"
    try:
        output = TopicLimits.of(await admin.settings(pipeline.output_topic))
        settings = {name: await admin.settings(name) for name in pipeline.topics if name in topics}
    except BrokerRefused as denied:
        yield _ok(subject, f"was not compared with the topics that are read: {denied}")
        return
    then = _WHEN_REFUSED[pipeline.on_poison]
    for name, given in settings.items():
        limits = TopicLimits.of(given)
        if output.max_bytes < limits.max_bytes:
            text = (
                f"takes {output.max_bytes:,} bytes, and {name} takes {limits.max_bytes:,}: a "
                f"larger event {then}; raise its max.message.bytes"
            )
            yield _warning(subject, text)
        narrower = [
            setting
            for setting, ours, theirs in (
                ("message.timestamp.before.max.ms", output.before_ms, limits.before_ms),
                ("message.timestamp.after.max.ms", output.after_ms, limits.after_ms),
            )
            if ours < theirs and given.get("message.timestamp.type") != "LogAppendTime"
        ]
        if narrower:
            text = (
                f"refuses timestamps that {name} takes ({' and '.join(narrower)}): such an event "
                f"{then}; give both topics the same limits"
            )
            yield _warning(subject, text)


def _compare_partitions(pipeline: PipelineConfig, topics: Mapping[str, Topic]) -> Iterator[Finding]:
    output = topics.get(pipeline.output_topic)
    if pipeline.partition_by not in {"auto", "same"} or output is None or not output.partitions:
        return
    for name in pipeline.topics:
        found = topics.get(name)
        if found is None or found.partitions in {0, output.partitions}:
            continue
        subject = f"topic {output.name}"
        text = f"has {output.partitions} partition(s), and {name} has {found.partitions}"
        if pipeline.partition_by == "auto":
            yield _ok(subject, f"{text}: events go to partitions by their key")
        elif output.partitions < found.partitions:
            remedy = "give it as many, or set partition_by to key"
            yield _error(subject, f"{text}, but partition_by is same; {remedy}")
        else:
            yield _warning(subject, f"{text}: the others stay empty; give it as many")


async def _check_group(
    start: str, pipeline: PipelineConfig, topics: Mapping[str, Topic], admin: KafkaAdmin
) -> Finding:
    name = pipeline.group_id
    subject = f"group {name}"
    partitions = [
        Partition(topic, number)
        for topic in pipeline.topics
        if topic in topics
        for number in range(topics[topic].partitions)
    ]
    try:
        group = await admin.group(name)
        if group.allowed is not None and "read" not in group.allowed:
            return _error(subject, "the user may not join it; allow Read on the group")
        committed = await admin.committed(name, partitions)
    except BrokerRefused as denied:
        return _error(subject, str(denied))
    missing = sum(partition not in committed for partition in partitions)
    if missing and start == "fail":
        text = (
            f"has stored no offset for {missing} of {len(partitions)} partitions, and "
            "kafka.start is fail; set it to earliest or latest, or set the group's offsets"
        )
        return _error(subject, text)
    state = f"{group.members} member(s)" if group.members else "no members"
    begins = f"begins at the {start} in {missing} of {len(partitions)} partitions"
    continues = f"goes on where it stopped in all {len(partitions)} partitions"
    if not partitions:  # its topics are not there
        return _ok(subject, state)
    return _ok(subject, f"{state}; {begins if missing else continues}")


# ------------------------------------------------------------ Redis


async def check_redis(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Check the server and the namespaces. Nothing is created or changed."""
    index = config.index
    subject = f"redis {index.address}"
    retry_policy = RetryPolicy(within_s=min(within_s, index.within_s), timeout_s=min(within_s, 5.0))
    try:
        client = index.client(retry_policy)
    except IndexRefused as failed:
        yield _error(subject, str(failed))
        return
    try:
        named = {pipeline.namespace: pipeline for pipeline in config.pipelines}
        keys = [ShardKeys(name, number).meta for name in named for number in range(index.shards)]
        missing = sorted({name for key in keys for name in await refused_commands(client, key)})
        if missing:
            text = (
                f"the user may not run {', '.join(missing)}; give the permissions that "
                "docs/how-to/redis-security.md lists"
            )
            yield _error(subject, text)
        else:
            yield _ok(subject, "connected, with the permissions that a worker needs")
        advice = dict.fromkeys([each for key in keys for each in await advise(client, key)])
        if index.shard_by == "group":
            advice |= dict.fromkeys(judge_shards(index.shards, index.max_clusters))
        for sentence in advice:
            yield _warning(subject, sentence)
        for pipeline in named.values():
            async for found in _check_namespace(config, pipeline, client):
                yield found
    except (IndexUnavailable, IndexRefused) as failed:
        yield _error(subject, str(failed))
    finally:
        await client.aclose()


async def _check_namespace(
    config: Config, pipeline: PipelineConfig, client: RedisClient
) -> AsyncIterator[Finding]:
    name, recipe = pipeline.namespace, pipeline.load_recipe()
    subject = f"namespace {name}"
    meta = ShardKeys(name, 0).meta
    digest, maker, stored = await client.command(meta, "HMGET", meta, "digest", "recipe", "layout")
    if stored is None:
        yield _ok(subject, f"is new; the first worker makes it, with recipe {recipe.name}")
        return
    try:
        layout = read_layout(name, meta, stored)
    except IndexRefused as failed:
        yield _error(subject, str(failed))
        return
    by_fingerprint = config.index.shard_by == "fingerprint"
    own_digest, own_name = stored_identity(recipe, spread=by_fingerprint)
    its_digest = (digest or b"").decode("utf-8", "backslashreplace")
    if its_digest == stored_identity(recipe, spread=not by_fingerprint)[0]:
        other = "group" if by_fingerprint else "fingerprint"
        text = f"was made with index.shard_by {other}; give that, or another namespace"
        yield _error(subject, text)
        return
    if its_digest != own_digest:
        theirs = (maker or b"?").decode("utf-8", "backslashreplace")
        text = (
            f"was made with another recipe ({theirs}) than {own_name} ({own_digest}); give "
            "that recipe, or another namespace"
        )
        yield _error(subject, text)
        return
    if layout.shards != config.index.shards:
        text = f"was made with {layout.shards} shard(s), and index.shards is {config.index.shards}"
        yield _error(subject, f"{text}; give that number, or another namespace")
        return
    settings = describe_settings(pipeline.windows(), pipeline.summaries(), config.index.limits())
    yield _ok(subject, f"was made with this recipe, {recipe.name} ({recipe.digest})")
    for sentence in await compare_settings(client, name, settings):
        yield _warning(subject, sentence)


# ------------------------------------------------------------ OpenTelemetry


async def check_otel(otel: OtelConfig, within_s: float) -> AsyncIterator[Finding]:
    """Send empty traces and metrics, in the same way as a worker, and see whether they arrive.

    A worker runs without a collector, so a failure is a warning.
    """
    try:
        from opentelemetry.sdk.metrics.export import MetricsData  # noqa: PLC0415 -- an extra

        from stream_dedup.io.otlp import (  # noqa: PLC0415 -- an extra
            metric_exporter,
            span_exporter,
        )
    except ImportError as missing:
        remedy = "pip install 'stream-dedup[otel]', or set otel.enabled to false"
        yield _error("otel", f"{missing.name} is not installed; {remedy}")
        return
    timeout_s = min(within_s, otel.timeout_s, MAX_OTEL_S)
    headers = otel.read_headers()
    try:
        if otel.traces_url:
            spans = span_exporter(otel.traces_url, headers, timeout_s)
            yield await _export("traces", otel.traces_url, lambda: spans.export([]))
        if otel.metrics_url:
            metrics = metric_exporter(otel.metrics_url, headers, timeout_s)
            yield await _export(
                "metrics", otel.metrics_url, lambda: metrics.export(MetricsData([]))
            )
    except (ValueError, RuntimeError) as failed:
        text = f"a variable of OpenTelemetry's cannot be used ({failed})"
        yield _error("otel", f"{text}; correct it, or leave it out")


async def _export(what: str, url: str, export: Callable[[], object]) -> Finding:
    """Export. The exporter reports an error only in its log, so the log is read."""
    warnings = _FirstWarning()
    logger = logging.getLogger("opentelemetry.exporter")
    logger.addHandler(warnings)
    try:
        await asyncio.to_thread(export)
    finally:
        logger.removeHandler(warnings)
    subject = f"otel {url}"
    if warnings.first:
        return _warning(subject, f"takes no {what}: {warnings.first.rstrip('.')}; {OTEL_REMEDY}")
    return _ok(subject, f"takes {what}")


class _FirstWarning(logging.Handler):
    """Keeps the first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()

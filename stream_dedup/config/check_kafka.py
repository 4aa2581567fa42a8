"""Whether Kafka is as the configuration takes it to be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

from stream_dedup.config.findings import Finding, error, ok, warning
from stream_dedup.config.model import Config
from stream_dedup.config.pipeline import Pipeline
from stream_dedup.errors import BrokerRefused, BrokerUnavailable
from stream_dedup.kafka.admin import KafkaAdmin, Topic, connected
from stream_dedup.kafka.options import client_options

CHECK_SUFFIX = "config-check"
"""Ends the transactional id that is tried; no worker has it."""


async def check_kafka(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Look at brokers, topics, groups and permissions.

    Args:
        config: what is to hold.
        within_s: how long an answer may take.
    """
    subject = f"kafka {','.join(config.kafka.bootstrap_servers)}"
    try:
        async with connected(client_options(config.kafka), within_s) as admin:
            yield ok(subject, f"connected, {_identity(config)}")
            for pipeline in config.pipelines:
                try:
                    async for found in _Pipeline(config, pipeline, admin).check():
                        yield found
                except (BrokerUnavailable, BrokerRefused) as failed:
                    yield error(f"pipeline {pipeline.name}", str(failed))
    except (BrokerUnavailable, BrokerRefused) as failed:
        yield error(subject, "\n".join([str(failed), *getattr(failed, "__notes__", ())]))


def _identity(config: Config) -> str:
    kafka = config.kafka
    if kafka.security_protocol.startswith("SASL"):
        return f"as {kafka.sasl_username} with {kafka.sasl_mechanism}, {kafka.security_protocol}"
    certified = "with a certificate" if kafka.ssl_cert_file else "without credentials"
    return f"{certified}, {kafka.security_protocol}"


class _Pipeline:
    """The check of one pipeline."""

    def __init__(self, config: Config, pipeline: Pipeline, admin: KafkaAdmin) -> None:
        self._config = config
        self._pipeline = pipeline
        self._admin = admin

    async def check(self) -> AsyncIterator[Finding]:
        """Look at its topics, its group and its transactional ids."""
        pipeline = self._pipeline
        names = [*pipeline.topics, *pipeline.output_topics]
        topics = await self._admin.topics(list(dict.fromkeys(names)))
        for name in pipeline.topics:
            yield _usable(name, topics.get(name), "read", "topics")
        for name in pipeline.output_topics:
            yield (usable := _usable(name, topics.get(name), "write", self._key_of(name)))
            if usable.level != "error":
                async for found in self._settings(name):
                    yield found
        for found in self._partitions(topics):
            yield found
        yield await self._group(topics)
        if self._config.worker.guarantee == "exactly_once":
            yield await self._transactions()

    def _key_of(self, topic: str) -> str:
        keys = ("output_topic", "summary_topic", "dead_letter_topic")
        return next(key for key in keys if getattr(self._pipeline, key) == topic)

    async def _settings(self, name: str) -> AsyncIterator[Finding]:
        pipeline, subject = self._pipeline, f"topic {name}"
        try:
            settings = await self._admin.settings(name)
        except BrokerRefused:
            yield ok(subject, "its settings may not be seen; nothing was checked of them")
            return
        largest = int(settings.get("max.message.bytes") or 1 << 31)
        if largest < pipeline.max_event_bytes:
            text = (
                f"takes records of {largest:,} bytes, less than pipelines.{pipeline.name}."
                f"max_event_bytes ({pipeline.max_event_bytes:,}): larger events cannot be written; "
                "raise the topic's max.message.bytes, or lower max_event_bytes"
            )
            yield warning(subject, text)
        compacts = "compact" in (settings.get("cleanup.policy") or "")
        if name in {pipeline.output_topic, pipeline.dead_letter_topic} and compacts:
            text = (
                "is compacted: events without a key are refused, and of those with the same key "
                "only the last is kept; set cleanup.policy to delete"
            )
            yield warning(subject, text)
        elif name == pipeline.summary_topic != pipeline.output_topic and not compacts:
            text = (
                "holds summaries, each with its cluster as key: with cleanup.policy compact it "
                "keeps the last of each cluster"
            )
            yield ok(subject, text)

    def _partitions(self, topics: Mapping[str, Topic]) -> Iterator[Finding]:
        pipeline = self._pipeline
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
                yield ok(subject, f"{text}: events go to partitions by their key")
            elif output.partitions < found.partitions:
                remedy = "give it as many, or set partition_by to key"
                yield error(subject, f"{text}, but partition_by is same; {remedy}")
            else:
                yield warning(subject, f"{text}: the others stay empty; give it as many")

    async def _group(self, topics: Mapping[str, Topic]) -> Finding:
        name = self._pipeline.group_id
        subject = f"group {name}"
        try:
            group = await self._admin.group(name)
            if group.allowed is not None and "read" not in group.allowed:
                return error(subject, "the user may not join it; allow Read on the group")
            committed = await self._admin.committed(name)
        except BrokerRefused as refused:
            return error(subject, f"{refused} (Read on the group)")
        partitions = [
            (topic, number)
            for topic in self._pipeline.topics
            if topic in topics
            for number in range(topics[topic].partitions)
        ]
        missing = sum(partition not in committed for partition in partitions)
        start = self._config.kafka.start
        if missing and start == "fail":
            text = (
                f"has stored no offset for {missing} of {len(partitions)} partitions, and "
                "kafka.start is fail; set it to earliest or latest, or set the group's offsets"
            )
            return error(subject, text)
        state = f"{group.members} member(s)" if group.members else "no members"
        begins = f"begins at the {start} in {missing} of {len(partitions)} partitions"
        goes_on = f"goes on where it stopped in all {len(partitions)} partitions"
        return ok(subject, f"{state}; {begins if missing else goes_on}")

    async def _transactions(self) -> Finding:
        prefix = f"{self._config.kafka.transactional_id_prefix}-{self._pipeline.name}"
        subject = f"transactional ids {prefix}*"
        try:
            await self._admin.begin_transactions(f"{prefix}-{CHECK_SUFFIX}")
        except BrokerRefused as refused:
            return error(subject, f"{refused} (Write on transactional ids that begin so)")
        return ok(subject, "may be used")


def _usable(name: str, topic: Topic | None, operation: str, key: str) -> Finding:
    """Whether there is a topic, and it may be read or written."""
    subject = f"topic {name}"
    if topic is None:
        remedy = f"create it, mend {key}, or let the user see it (Describe on the topic)"
        return error(subject, f"is not there; {remedy}")
    if topic.allowed is not None and operation not in topic.allowed:
        permission = operation.capitalize()
        return error(subject, f"the user may not {operation} it; allow {permission} on the topic")
    if topic.leaderless:
        text = f"{topic.leaderless} of {topic.partitions} partitions have no leader now"
        return warning(subject, f"{text}; see that all brokers run")
    known = "" if topic.allowed is not None else " (permissions are not told)"
    return ok(subject, f"may be {_DONE[operation]}, {topic.partitions} partition(s){known}")


_DONE = {"read": "read", "write": "written"}

"""The whole configuration, and the checks between its sections."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from stream_dedup.config.kafka import KafkaConfig
from stream_dedup.config.pipeline import PipelineConfig
from stream_dedup.config.sections import (
    HttpConfig,
    IndexConfig,
    LogConfig,
    OtelConfig,
    WorkerConfig,
)
from stream_dedup.config.values import Section, wrong
from stream_dedup.index.spread.protocol import not_spread

PREFIX = "STREAM_DEDUP__"
"""Prefix of environment variables."""

DELIMITER = "__"
"""Separates the parts of their names."""


class Config(BaseSettings):
    """All settings of a worker. `load` makes one from file, environment and flags.

    A `Config` that is made directly takes its arguments only, and ignores the environment.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=False,
        use_attribute_docstrings=True,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
    )

    kafka: KafkaConfig = KafkaConfig()
    """Brokers, credentials, and how topics are read."""
    index: IndexConfig = IndexConfig()
    """Where clusters are stored."""
    worker: WorkerConfig = WorkerConfig()
    """How a worker reads and commits events."""
    http: HttpConfig = HttpConfig()
    """The port of metrics, health and status page."""
    log: LogConfig = LogConfig()
    """What the worker logs."""
    otel: OtelConfig = OtelConfig()
    """Traces and metrics to an OpenTelemetry collector."""
    pipelines: Annotated[tuple[PipelineConfig, ...], Field(min_length=1)]
    """Topics to read, what counts as near, and where the output goes. Repeatable."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take arguments only: `load` calls the sources, to know which of them gave a value."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator("pipelines")
    @classmethod
    def _complete(
        cls, pipelines: tuple[PipelineConfig, ...], info: ValidationInfo
    ) -> tuple[PipelineConfig, ...]:
        """Fill in the groups and namespaces that are not given."""
        kafka: KafkaConfig | None = info.data.get("kafka")  # None: it is wrong
        prefix = "" if kafka is None else kafka.group_id
        return tuple(
            pipeline.model_copy(
                update={
                    "group_id": pipeline.group_id or f"{prefix}-{pipeline.name}",
                    "namespace": pipeline.namespace or pipeline.load_recipe().name,
                }
            )
            for pipeline in pipelines
        )

    @model_validator(mode="after")
    def _check(self) -> Config:
        for key, problem, remedy in self._contradictions():
            raise wrong(problem, remedy, key)
        return self

    def _contradictions(self) -> Iterator[tuple[str, str, str]]:
        """Yield (key, problem, remedy) of what one section alone cannot check."""
        kafka, worker = self.kafka, self.worker
        if worker.drain_s >= kafka.max_poll_interval_s:
            remedy = "give less: a rebalance waits no longer"
            yield "worker.drain_s", "is not below kafka.max_poll_interval_s", remedy
        if worker.delivery_timeout_s < kafka.request_timeout_s:
            problem = "is less than kafka.request_timeout_s: one slow answer would end a delivery"
            yield "worker.delivery_timeout_s", problem, "give as much, or more"
        if worker.guarantee == "exactly_once":
            if self.index.kind == "memory":
                problem = (
                    "is exactly_once, but index.kind is memory: what it holds is gone after a "
                    "crash, and an event delivered again would be decided and counted again"
                )
                yield "worker.guarantee", problem, "set index.kind to redis, or take at_least_once"
            if kafka.isolation != "read_committed":
                problem = "is read_uncommitted, but worker.guarantee is exactly_once"
                yield "kafka.isolation", problem, "set it to read_committed"
        if self.index.shard_by == "fingerprint":
            yield from self._spread()
        yield from self._between_pipelines()
        loop = self._loop()
        if loop:
            problem = f"make a loop of topics: {' -> '.join(loop)}; events would go round for ever"
            yield "pipelines", problem, "write to a topic that leads to no input"

    def _spread(self) -> Iterator[tuple[str, str, str]]:
        """Check what goes with `index.shard_by = "fingerprint"`."""
        key, remedy = "index.shard_by", "set index.shard_by to group"
        if self.index.kind == "memory":
            yield key, "is fingerprint, but index.kind is memory, which has no shards", remedy
        if self.index.shards == 1:
            problem = "is fingerprint, but index.shards is 1: one shard would do all the work"
            yield key, problem, f"give as many shards as Redis has nodes, or more; or {remedy}"
        for at, pipeline in enumerate(self.pipelines):
            recipe = pipeline.load_recipe()
            reason = not_spread(recipe)
            if reason:
                problem = (
                    f"is {recipe.name!r}, which cannot be used with index.shard_by fingerprint: "
                    f"it {reason}"
                )
                remedy = f"use one of simhash or minhash that learns nothing, or {remedy}"
                yield f"pipelines.{at}.recipe", problem, remedy

    def _between_pipelines(self) -> Iterator[tuple[str, str, str]]:
        for index, pipeline in enumerate(self.pipelines):
            for other in self.pipelines[:index]:
                where = f"pipelines.{index}."
                if pipeline.name == other.name:
                    yield where + "name", f"is {pipeline.name!r} twice", "name each differently"
                if pipeline.group_id == other.group_id:
                    problem = f"is {pipeline.group_id!r}, as that of pipeline {other.name!r}"
                    yield where + "group_id", problem, "give each pipeline a group of its own"
                if pipeline.namespace != other.namespace:
                    continue
                ours, theirs = pipeline.load_recipe(), other.load_recipe()
                if ours.digest != theirs.digest:
                    problem = (
                        f"is {pipeline.namespace!r}, as that of pipeline {other.name!r}, but the "
                        "recipes differ"
                    )
                    yield where + "namespace", problem, "give another namespace, or one recipe"
                if pipeline.pattern_topic != other.pattern_topic:
                    problem = (
                        f"is {pipeline.pattern_topic!r}, but {other.pattern_topic!r} of pipeline "
                        f"{other.name!r}, which shares its namespace: each event about a pattern "
                        "would be written to one of them, by chance"
                    )
                    yield where + "pattern_topic", problem, "give both the same"
                shared = sorted({*pipeline.topics} & {*other.topics})
                if shared:
                    problem = (
                        f"holds {shared[0]!r}, which pipeline {other.name!r} reads into the same "
                        "namespace: the two would take the partitions from each other"
                    )
                    yield where + "topics", problem, "give one of them another namespace"

    def _loop(self) -> list[str]:
        """Return topics that form a loop, the first repeated at the end; empty if none do."""
        inputs_of: dict[str, list[str]] = {}
        for pipeline in self.pipelines:
            for topic in pipeline.output_topics:
                inputs_of.setdefault(topic, []).extend(pipeline.topics)
        try:
            TopologicalSorter(inputs_of).prepare()
        except CycleError as error:
            loop: list[str] = error.args[1][:-1]
            first = loop.index(min(loop))
            return [*loop[first:], *loop[: first + 1]]
        return []

    def warnings(self) -> list[str]:
        """Return sentences on settings that are allowed but risky, each with a remedy."""
        found = []
        if self.index.kind == "memory":
            found.append(
                "index.kind is memory: clusters are lost when the worker stops, and other workers "
                "do not see them; set it to redis"
            )
        kafka = self.kafka
        if kafka.security_protocol == "SASL_PLAINTEXT" and kafka.sasl_mechanism == "PLAIN":
            found.append(
                "kafka.security_protocol is SASL_PLAINTEXT with PLAIN: the password goes over the "
                "network in clear; use SASL_SSL, or a SCRAM mechanism"
            )
        checks = {
            "kafka.ssl_check_hostname": kafka.ssl_check_hostname,
            "index.check_hostname": self.index.check_hostname,
        }
        found += [
            f"{key} is false: any host with a certificate of a trusted authority is accepted; set "
            "it to true"
            for key, on in checks.items()
            if not on
        ]
        return found


def _model_of(info: FieldInfo) -> type[Section]:
    kinds = (info.annotation, *get_args(info.annotation))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section))


SECTIONS = {name: _model_of(info) for name, info in Config.model_fields.items()}
"""The model of each section."""

"""The whole configuration, and what must hold between its parts."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from stream_dedup.config.fields import wrong
from stream_dedup.config.kafka import Kafka
from stream_dedup.config.otel import Otel
from stream_dedup.config.pipeline import Pipeline
from stream_dedup.config.sections import Http, Index, Log, Worker

PREFIX = "STREAM_DEDUP__"
"""How the names of environment variables begin."""

DELIMITER = "__"
"""What stands between the parts of their names."""


class Config(BaseSettings):
    """All that a worker is told. `load` makes one out of file, environment and flags.

    Made directly it takes what it is given, and does not look at the environment.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=False,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
    )

    kafka: Kafka = Field(
        default=Kafka(), description="Brokers, credentials, and how topics are read."
    )
    index: Index = Field(default=Index(), description="Where clusters live.")
    worker: Worker = Field(default=Worker(), description="How a worker takes its events.")
    http: Http = Field(default=Http(), description="The port of metrics and health.")
    log: Log = Field(default=Log(), description="What the worker says of itself.")
    otel: Otel = Field(
        default=Otel(), description="Traces and metrics to a collector of OpenTelemetry's."
    )
    pipelines: tuple[Pipeline, ...] = Field(
        description="Topics that are read, what counts as near, and where it goes. Repeatable.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is given: `load` merges the sources, so that it can tell which gave what."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @model_validator(mode="after")
    def _check(self) -> Config:
        for pipeline in self.pipelines:
            if not pipeline.group_id:
                pipeline.__dict__["group_id"] = f"{self.kafka.group_id}-{pipeline.name}"
        for key, problem, remedy in self._contradictions():
            raise wrong(problem, remedy, key)
        return self

    def _contradictions(self) -> Iterator[tuple[str, str, str]]:
        """(key, problem, remedy) of all that one section alone cannot tell."""
        if not self.pipelines:
            yield "pipelines", "is empty", "add a table [[pipelines]]"
        kafka, worker = self.kafka, self.worker
        if worker.drain_s >= kafka.max_poll_interval_s:
            remedy = "give less: a rebalance waits no longer"
            yield "worker.drain_s", "is not below kafka.max_poll_interval_s", remedy
        if worker.guarantee == "exactly_once":
            if self.index.kind == "memory":
                problem = (
                    "is exactly_once, but index.kind is memory: what it holds is gone after a "
                    "crash, and an event delivered again would be decided and counted anew"
                )
                yield "worker.guarantee", problem, "set index.kind to redis, or take at_least_once"
            if kafka.isolation != "read_committed":
                problem = "is read_uncommitted, but worker.guarantee is exactly_once"
                yield "kafka.isolation", problem, "set it to read_committed"
        yield from self._between_pipelines()
        loop = self._loop()
        if loop:
            problem = f"make a loop of topics: {' -> '.join(loop)}; events would go round for ever"
            yield "pipelines", problem, "write to a topic that leads to no input"

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
                shared = sorted({*pipeline.topics} & {*other.topics})
                if shared:
                    problem = (
                        f"holds {shared[0]!r}, which pipeline {other.name!r} reads into the same "
                        "namespace: the two would take the partitions from each other"
                    )
                    yield where + "topics", problem, "give one of them another namespace"

    def _loop(self) -> list[str]:
        """Topics that lead from one to the next and back to the first."""
        leads: dict[str, set[str]] = {}
        for pipeline in self.pipelines:
            for topic in pipeline.topics:
                leads.setdefault(topic, set()).update(pipeline.output_topics)
        done: set[str] = set()

        def walk(topic: str, way: list[str]) -> list[str]:
            if topic in way:
                return [*way[way.index(topic) :], topic]
            if topic in done:
                return []
            for following in sorted(leads.get(topic, ())):
                found = walk(following, [*way, topic])
                if found:
                    return found
            done.add(topic)
            return []

        return next(filter(None, (walk(topic, []) for topic in leads)), [])

    def warnings(self) -> list[str]:
        """What may be meant, but should be known; each with a remedy."""
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
        checks = {"kafka.ssl_check_hostname": kafka.ssl_check_hostname,
                  "index.check_hostname": self.index.check_hostname}  # fmt: skip
        found += [
            f"{key} is false: any host with a certificate of a trusted authority is believed; set "
            "it to true"
            for key, on in checks.items()
            if not on
        ]
        return found

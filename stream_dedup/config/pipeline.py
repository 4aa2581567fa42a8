"""The tables ``[[pipelines]]``: what is read, what counts as near, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from stream_dedup.clustering.summaries import MAX_SAMPLES, Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.config.fields import (
    FOREVER,
    Seconds,
    SecondsOrOff,
    SecondsOrZero,
    Section,
    Size,
    Words,
    microseconds,
    wrong,
)
from stream_dedup.errors import InputError, RecipeError
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import check_width
from stream_dedup.index.redis.keys import check_namespace
from stream_dedup.io.decoder import Decoder, Reading
from stream_dedup.model import Partition

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

_TOPIC_KEYS = ("output_topic", "summary_topic", "dead_letter_topic")

_OPTION_OF = {"time format": "time_format", "group pattern": "group_regex"}
"""How the decoder's errors begin, and what they are about."""


class Pipeline(Section):
    """Topics that are read, what counts as near, and where it goes."""

    name: str = Field(
        default="main", description="Names the pipeline in logs, metrics and its group."
    )
    topics: Words = Field(min_length=1, description="Topics to read.")
    recipe: str = Field(
        default="logs", description="What counts as near: a shipped recipe or a TOML file."
    )
    namespace: str = Field(
        default="",
        description="Where in the index its clusters live; the recipe's name without. Pipelines "
        "with one namespace share clusters.",
    )
    group_id: str = Field(
        default="", max_length=249, description="Its consumer group; kafka.group_id-NAME without."
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="What events are: auto looks at each."
    )
    text_field: str = Field(default="", description="JSON field that holds the text.")
    time_field: str = Field(
        default="", description="JSON field that holds the time; the record's timestamp without."
    )
    time_format: str = Field(
        default="",
        description="How times are written: iso, syslog, epoch, or as for strptime; in time_field, "
        "or in the text.",
    )
    group_fields: Words = Field(
        default=(), description="JSON fields that must be equal for events to be compared."
    )
    group_regex: str = Field(
        default="",
        description="Named groups (RE2) that must be equal for events to be compared, as in "
        "'(?P<app>[a-z]+):'.",
    )
    emit: Literal["annotate", "drop", "merge"] = Field(
        default="merge",
        description="merge: first events at once, repeats as summaries. drop: first events only. "
        "annotate: every event, with what was decided.",
    )
    output_topic: str = Field(description="Topic that events go to.")
    summary_topic: str = Field(
        default="",
        description='Topic that summaries go to; for merge output_topic without. If "" is given, '
        "or with drop and annotate without, there are none.",
    )
    dead_letter_topic: str = Field(
        default="",
        description="Topic that bad events go to, untouched, with the reason in headers.",
    )
    annotate_into: Literal["headers", "json"] = Field(
        default="headers",
        description="Where annotate writes: headers sd-…, or an object dedup in the JSON value.",
    )
    partition_by: Literal["auto", "same", "key", "cluster"] = Field(
        default="auto",
        description="Partition of output_topic: the event's own number (same), by its key, or by "
        "its cluster. auto: same if the topics have as many partitions, else key.",
    )
    on_poison: Literal["dead_letter", "pass", "stop"] = Field(
        default="pass",
        description="What is done with a bad event: sent to dead_letter_topic (the default if one "
        "is given), passed on undecided, or the worker stops.",
    )
    max_event_bytes: Size = Field(default=1 << 20, ge=1, description="A larger event is a bad one.")
    poison_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="If more than this share of the last poison_least events is bad, the settings "
        "must be wrong and the worker stops; 1 for never.",
    )
    poison_least: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Events that poison_share is judged by."
    )
    summary_every_s: SecondsOrOff = Field(
        default=60.0,
        description="How often a growing cluster is told of; off: only when it closes.",
    )
    idle_s: SecondsOrOff = Field(
        default=3600.0, description="A cluster that had no event for so long is closed."
    )
    max_age_s: SecondsOrOff = Field(
        default=86_400.0,
        description="A cluster is closed so long after its first event, however busy.",
    )
    max_future_s: SecondsOrZero = Field(
        default=600.0, description="A time further ahead of the clock is taken as that far ahead."
    )
    quiet_after_s: SecondsOrOff = Field(
        default=60.0,
        description="A partition with no event for so long no longer holds stream time back.",
    )
    retention_s: SecondsOrZero = Field(
        default=86_400.0,
        description="How long a closed cluster's count is kept, for late redeliveries.",
    )
    lease_s: Seconds = Field(
        default=30.0, description="A summary not known to be stored within this time is sent again."
    )
    samples: int = Field(
        default=3,
        ge=0,
        le=MAX_SAMPLES,
        description="Later events kept a cluster, shown in summaries.",
    )
    max_value_bytes: Size = Field(
        default=4096, ge=0, description="Bytes kept of a first event and of each sample."
    )

    _recipe: Recipe = PrivateAttr()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            remedy = "give up to 63 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"
            raise wrong(f"is {name!r}", remedy)
        return name

    @field_validator("topics")
    @classmethod
    def _check_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if topics.count(topic) > 1:
                raise wrong(f"names {topic!r} twice", "name each topic once")
            _check_topic(topic)
        return topics

    @field_validator("output_topic", "summary_topic", "dead_letter_topic")
    @classmethod
    def _check_output(cls, topic: str) -> str:
        if topic:
            _check_topic(topic)
        return topic

    @model_validator(mode="after")
    def _check(self) -> Pipeline:
        self._recipe = self._loaded()
        if not self.output_topic:
            raise wrong("is empty", "name a topic", "output_topic")
        derived: dict[str, object] = {}
        if "summary_topic" not in self.model_fields_set and self.emit == "merge":
            derived["summary_topic"] = self.output_topic
        if "on_poison" not in self.model_fields_set and self.dead_letter_topic:
            derived["on_poison"] = "dead_letter"
        if not self.namespace:
            derived["namespace"] = self._recipe.name
        self.__dict__.update(derived)
        for key, problem, remedy in self._contradictions():
            raise wrong(problem, remedy, key)
        return self

    def _loaded(self) -> Recipe:
        try:
            recipe = load_recipe(self.recipe)
            check_width(recipe)
        except RecipeError as error:
            problem, _, remedy = str(error).rpartition("; ")
            raise wrong(f"is refused: {problem}", remedy, "recipe") from None
        return recipe

    def _contradictions(self) -> Iterator[tuple[str, str, str]]:
        """(key, problem, remedy) of all that types alone cannot tell."""
        for name in self.output_topics:
            key = next(key for key in _TOPIC_KEYS if getattr(self, key) == name)
            if name in self.topics:
                problem = f"is {name!r}, which is read from: each event would come back for ever"
                yield key, problem, "write to another topic"
        if self.dead_letter_topic and self.dead_letter_topic in (
            self.output_topic, self.summary_topic
        ):  # fmt: skip
            yield "dead_letter_topic", "is an output topic too", "name a topic of its own"
        if self.on_poison == "dead_letter" and not self.dead_letter_topic:
            yield "on_poison", "is dead_letter, but no dead_letter_topic is given", "name one"
        if self.group_fields and self.group_regex:
            yield "group_regex", "and group_fields exclude each other", "leave one out"
        if self.format == "text":
            for key in ("text_field", "time_field", "group_fields"):
                if getattr(self, key):
                    yield key, "names JSON fields, but format is text", "set format to json"
            if self.annotate_into == "json":
                yield "annotate_into", "is json, but format is text", "set it to headers"
        if self.annotate_into == "json" and self.emit != "annotate":
            yield "annotate_into", f"is json, but emit is {self.emit}", "leave it out"
        try:
            check_namespace(self.namespace)
        except ValueError as error:
            yield "namespace", f"is refused: {error}", "give another name"
        try:
            Decoder(self.reading(), Partition("", 0), takes_fields=False)
        except InputError as error:
            known = (key for text, key in _OPTION_OF.items() if str(error).startswith(text))
            yield next(known, ""), str(error), "mend it"

    @property
    def output_topics(self) -> tuple[str, ...]:
        """All topics that are written to, each once."""
        topics = (getattr(self, key) for key in _TOPIC_KEYS)
        return tuple(dict.fromkeys(topic for topic in topics if topic))

    def load_recipe(self) -> Recipe:
        """What counts as near."""
        return self._recipe

    def reading(self) -> Reading:
        """How events are read."""
        return Reading(
            format="jsonl" if self.format == "json" else self.format,
            text_field=self.text_field,
            time_field=self.time_field,
            time_format=self.time_format,
            group_fields=self.group_fields,
            group_pattern=self.group_regex,
        )

    def windows(self) -> Windows:
        """When clusters close."""
        return Windows(
            idle_us=microseconds(self.idle_s),
            max_age_us=microseconds(self.max_age_s),
            max_future_us=microseconds(self.max_future_s),
            quiet_after_us=microseconds(self.quiet_after_s),
        )

    def summaries(self) -> Summaries:
        """When clusters are told of."""
        told = bool(self.summary_topic) and self.summary_every_s != FOREVER
        return Summaries(
            every_us=microseconds(self.summary_every_s) if told else None,
            samples=self.samples,
            max_value_bytes=self.max_value_bytes,
            lease_us=microseconds(self.lease_s),
            retention_us=microseconds(self.retention_s),
        )


def _check_topic(topic: str) -> None:
    if not _TOPIC.fullmatch(topic):
        remedy = "a topic has 1 to 249 letters, digits, '.', '_' or '-'"
        raise wrong(f"holds {topic!r}", remedy)

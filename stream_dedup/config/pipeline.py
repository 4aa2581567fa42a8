"""The tables ``[[pipelines]]``: topics to read, what counts as near, where the output goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from stream_dedup.clustering.summaries import MAX_SAMPLES, Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.config.values import (
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
from stream_dedup.emit.modes import MODES, EmitMode, Mode
from stream_dedup.errors import InputError, RecipeError
from stream_dedup.features.masks import compile_pattern
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import check_width
from stream_dedup.index.redis.keys import check_namespace
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.model import Partition

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

OnPoison = Literal["dead_letter", "pass", "stop"]
OnUnreadable = Literal["dead_letter", "pause"]

_OPTION_OF = {"time format": "time_format", "group pattern": "group_regex"}
"""How the decoder's errors begin, and the key that each is about."""


def _default_summary_topic(given: dict[str, Any]) -> str:
    mode = MODES.get(given.get("emit", ""))
    return str(given.get("output_topic", "")) if mode and mode.summaries else ""


def _default_on_poison(given: dict[str, Any]) -> OnPoison:
    return "dead_letter" if given.get("dead_letter_topic") else "pass"


def _default_on_unreadable(given: dict[str, Any]) -> OnUnreadable:
    return "dead_letter" if given.get("dead_letter_topic") else "pause"


class PipelineConfig(Section):
    """Topics to read, what counts as near, and where the output goes."""

    name: str = "main"
    """Name of the pipeline in logs, metrics and its consumer group."""
    topics: Annotated[Words, Field(min_length=1)]
    """Topics to read."""
    recipe: str = "logs"
    """What counts as near: the name of a shipped recipe, or a TOML file."""
    namespace: str = ""
    """Part of the index that holds the clusters of the pipeline; the recipe's name if empty.
    Pipelines with the same namespace share clusters."""
    group_id: Annotated[str, Field(max_length=249)] = ""
    """Consumer group; if empty, kafka.group_id, a hyphen and the pipeline's name."""
    format: Literal["auto", "text", "json"] = "auto"
    """Format of the events; auto: decided for each event."""
    text_field: str = ""
    """JSON field that holds the text; if empty, the first of message, msg, log and other common
    names that holds text."""
    time_field: str = ""
    """JSON field that holds the time; auto: the first of time, timestamp, ts and other common names
    that holds one. If empty, the record's timestamp counts."""
    time_format: str = ""
    """How times are written, in time_field or in the text: iso, syslog, epoch, or a format of
    strptime."""
    group_fields: Words = ()
    """JSON fields that must be equal for events to be compared. Levels, status classes and outcomes
    need no group with the recipe logs: it keeps such JSON events apart."""
    group_regex: str = ""
    """Named groups (RE2) that must be equal for events to be compared, as in
    '(?P<app>[a-z]+):'."""
    emit: EmitMode = "merge"
    """What is written. merge: the first event of each cluster at once, its duplicates as summaries.
    drop: first events only. annotate: every event, with its decision."""
    output_topic: str
    """Topic to write events to."""
    summary_topic: str = Field(default_factory=_default_summary_topic)
    """Topic to write summaries to. Without this key, summaries go to output_topic if emit is merge,
    and are not written if it is drop or annotate. Give "" for no summaries."""
    pattern_topic: str = ""
    """Topic to write events about patterns to: which patterns are new, spike or have vanished. With
    this key, clusters of one event have a summary after summary_every_s, too."""
    dead_letter_topic: str = ""
    """Topic to write invalid events to, unchanged, with the reason in headers."""
    annotate_into: Literal["headers", "json"] = "headers"
    """Where annotate writes decisions: into headers sd-…, or into an object dedup in the JSON
    value."""
    annotate_template: bool = True
    """Whether the id of the cluster's template is added to each event (header sd-template)."""
    annotate_parameters: bool = False
    """Whether the values of an event's variables are added (header sd-parameters, JSON): at most 16
    values of at most 64 characters each. Takes some 0.3 ms an event."""
    partition_by: Literal["auto", "same", "key", "cluster"] = "auto"
    """How the partition of output_topic is chosen. same: the number of the event's own partition.
    key: by the event's key. cluster: by its cluster. auto: same if the topics have equally many
    partitions, else key."""
    on_poison: OnPoison = Field(default_factory=_default_on_poison)
    """What happens to an invalid event, and to an event that the output topic refuses. dead_letter
    (the default if dead_letter_topic is given): it is written there. pass: it is written to the
    output without a decision. stop: the worker stops."""
    reserved_headers: Literal["remove", "rename"] = "remove"
    """What happens to an input event's own headers whose names begin with sd-, which are reserved
    for the worker: they are removed, or original- is put before their names."""
    max_event_bytes: Annotated[Size, Field(ge=1)] = 1 << 20
    """A larger event is invalid."""
    on_unreadable: OnUnreadable = Field(default_factory=_default_on_unreadable)
    """What happens to a batch of records that cannot be unpacked, or that would unpack to more than
    kafka.max_unpacked_bytes. dead_letter (the default if dead_letter_topic is given): one dead
    letter without value names the offsets. pause: the worker stops reading its partition."""
    poison_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """If more than this share of the last poison_least events is invalid, the worker stops; 1: it
    never stops. Below 1, anybody who may write to the topics can stop the worker."""
    poison_least: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Number of events over which poison_share is measured."""
    summary_every_s: SecondsOrOff = 60.0
    """Time between summaries of a growing cluster; off: one summary, when it closes."""
    idle_s: SecondsOrOff = 3600.0
    """A cluster that receives no event for this long is closed."""
    max_age_s: SecondsOrOff = 86_400.0
    """A cluster is closed this long after its first event, even if events still arrive."""
    max_future_s: SecondsOrZero = 600.0
    """An event's time is taken as at most this far ahead of the clock."""
    quiet_after_s: SecondsOrOff = 60.0
    """A partition that receives no event for this long no longer holds back stream time, the event
    time that closes clusters."""
    retention_s: SecondsOrZero = 86_400.0
    """How long the count of a closed cluster is kept, in case its events are delivered again."""
    lease_s: Seconds = 30.0
    """A summary that is not confirmed as stored within this time is sent again."""
    samples: Annotated[int, Field(ge=0, le=MAX_SAMPLES)] = 3
    """Later events of a cluster that are kept and shown in its summaries."""
    values: Annotated[int, Field(ge=0, le=MAX_SAMPLES)] = 32
    """Events of a cluster, chosen at random, whose values its summaries count; 0: none."""
    values_every: Annotated[int, Field(ge=1)] = 16
    """On average one event in this many can be among the `values` events. A larger number costs
    less, but small clusters then have no values."""
    max_value_bytes: Annotated[Size, Field(ge=0)] = 4096
    """Bytes kept of a cluster's first event and of each sample."""

    _recipe: Recipe = PrivateAttr()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            remedy = "give up to 63 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"
            raise wrong(f"{name!r} is not a name", remedy)
        return name

    @field_validator("topics")
    @classmethod
    def _check_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if topics.count(topic) > 1:
                raise wrong(f"names {topic!r} twice", "name each topic once")
            _check_topic(topic)
        return topics

    @field_validator("output_topic", "summary_topic", "pattern_topic", "dead_letter_topic")
    @classmethod
    def _check_output(cls, topic: str) -> str:
        if topic:
            _check_topic(topic)
        return topic

    @model_validator(mode="after")
    def _check(self) -> PipelineConfig:
        self._recipe = self._loaded()
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
        """Yield (key, problem, remedy) of what types alone do not check."""
        if not self.output_topic:
            yield "output_topic", "is empty", "name a topic"
        for name, key in self.output_topics.items():
            if name in self.topics:
                problem = f"is {name!r}, which is read from: each event would come back for ever"
                yield key, problem, "write to another topic"
        if self.dead_letter_topic and self.dead_letter_topic in (
            self.output_topic, self.summary_topic
        ):  # fmt: skip
            yield "dead_letter_topic", "is an output topic too", "name a topic of its own"
        if self.pattern_topic and self.pattern_topic in (
            self.output_topic, self.summary_topic, self.dead_letter_topic
        ):  # fmt: skip
            yield "pattern_topic", "is another output topic too", "name a topic of its own"
        if self.pattern_topic and self.summary_every_s == FOREVER:
            problem = "is given, but summary_every_s is off: nothing says how often patterns come"
            yield "pattern_topic", problem, "give summary_every_s, or leave pattern_topic out"
        if self.on_poison == "dead_letter" and not self.dead_letter_topic:
            yield "on_poison", "is dead_letter, but no dead_letter_topic is given", "name one"
        if self.on_unreadable == "dead_letter" and not self.dead_letter_topic:
            yield "on_unreadable", "is dead_letter, but no dead_letter_topic is given", "name one"
        if self.group_fields and self.group_regex:
            yield "group_regex", "and group_fields exclude each other", "leave one out"
        if self.format == "text":
            for key in ("text_field", "time_field", "group_fields"):
                if getattr(self, key):
                    yield key, "names JSON fields, but format is text", "set format to json"
            if self.annotate_into == "json":
                yield "annotate_into", "is json, but format is text", "set it to headers"
        if self.annotate_parameters and not self.names_templates:
            key = "annotate_template is false" if self.mode.decisions else f"emit is {self.emit}"
            yield "annotate_parameters", f"is true, but {key}", "leave it out"
        if self.annotate_into == "json" and not self.mode.duplicates:
            yield "annotate_into", f"is json, but emit is {self.emit}", "leave it out"
        try:
            check_namespace(self.namespace or self._recipe.name)
        except ValueError as error:
            yield "namespace", f"is refused: {error}", "give another name"
        try:
            Decoder(self.reading(), Partition("", 0), self._recipe)
        except InputError as error:
            known = (key for text, key in _OPTION_OF.items() if str(error).startswith(text))
            yield next(known, ""), str(error), "correct it"

    @property
    def mode(self) -> Mode:
        """What is written."""
        return MODES[self.emit]

    @property
    def names_templates(self) -> bool:
        """Whether decisions name templates."""
        return self.annotate_template and self.mode.decisions

    @property
    def output_topics(self) -> dict[str, str]:
        """The topics to write to, each with the key that names it."""
        topics: dict[str, str] = {}
        for key in ("output_topic", "summary_topic", "pattern_topic", "dead_letter_topic"):
            if topic := getattr(self, key):
                topics.setdefault(topic, key)
        return topics

    def load_recipe(self) -> Recipe:
        """Return the recipe."""
        return self._recipe

    def reading(self) -> DecoderOptions:
        """Return how events are decoded."""
        return DecoderOptions(
            format="jsonl" if self.format == "json" else self.format,
            text_field=self.text_field,
            time_field=self.time_field,
            time_format=self.time_format,
            group_fields=self.group_fields,
            group_pattern=self.group_regex,
        )

    def group_names(self) -> tuple[str, ...]:
        """Return the names of the values that must be equal for events to be compared."""
        if self.group_regex:
            return tuple(name.decode() for name in compile_pattern(self.group_regex).groupindex)
        return self.group_fields

    def windows(self) -> Windows:
        """Return when clusters close."""
        return Windows(
            idle_us=microseconds(self.idle_s),
            max_age_us=microseconds(self.max_age_s),
            max_future_us=microseconds(self.max_future_s),
            quiet_after_us=microseconds(self.quiet_after_s),
        )

    def summaries(self) -> Summaries:
        """Return when summaries are emitted, and what they contain."""
        wanted = bool(self.summary_topic or self.pattern_topic)
        periodic = wanted and self.summary_every_s != FOREVER
        return Summaries(
            every_us=microseconds(self.summary_every_s) if periodic else None,
            final=wanted,
            samples=self.samples,
            values=self.values if self.summary_topic else 0,
            values_every=self.values_every,
            max_value_bytes=self.max_value_bytes,
            lease_us=microseconds(self.lease_s),
            retention_us=microseconds(self.retention_s),
            of_single=bool(self.pattern_topic),
        )


def _check_topic(topic: str) -> None:
    if not _TOPIC.fullmatch(topic):
        remedy = "a topic has 1 to 249 letters, digits, '.', '_' or '-'"
        raise wrong(f"holds {topic!r}", remedy)

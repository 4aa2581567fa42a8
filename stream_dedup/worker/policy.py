"""Policies of a pipeline: frozen settings, without state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Emit = Literal["annotate", "drop", "merge"]
PartitionBy = Literal["auto", "same", "key", "cluster"]
OnPoison = Literal["dead_letter", "pass", "stop"]


@dataclass(frozen=True, slots=True)
class Emission:
    """What leaves, and where to.

    Attributes:
        emit: annotate: every event, with what was decided; drop: all but duplicates, as they came;
            merge: all but duplicates, with what was decided, and summaries.
        output_topic: where events go.
        summary_topic: where summaries go; "": nowhere.
        dead_letter_topic: where poison goes.
        into_json: decisions go into a ``dedup`` object of the JSON value, not into headers.
        partition_by: same: the output partition has the input's number; key, cluster: by a hash of
            it; auto: same where both topics have as many partitions, else key.
        on_poison: what becomes of events that are not what was promised.
    """

    emit: Emit
    output_topic: str
    summary_topic: str = ""
    dead_letter_topic: str = ""
    into_json: bool = False
    partition_by: PartitionBy = "auto"
    on_poison: OnPoison = "pass"


@dataclass(frozen=True, slots=True)
class Flow:
    """How much is on its way at once.

    Attributes:
        max_batch_events: events of a batch.
        max_batch_bytes: bytes of its values, about.
        batch_wait_s: how long an event may wait for others to share its batch.
        ahead_batches: batches of a partition on their way between reading and delivery.
        commit_every_s: how often offsets are stored, where that is not done with the output.
        drain_s: how long a stop or a rebalance waits for what is on its way.
        tell_every_s: how often it is looked for summaries that are due.
    """

    max_batch_events: int = 4_000
    max_batch_bytes: int = 4 << 20
    batch_wait_s: float = 0.02
    ahead_batches: int = 2
    commit_every_s: float = 0.5
    drain_s: float = 10.0
    tell_every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much poison is borne before the settings must be wrong.

    Attributes:
        share: of the last events; 1: any.
        least: looked at no sooner than after so many events.
    """

    share: float = 0.5
    least: int = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pipeline is.

    Attributes:
        name: its name, in metrics and logs.
        namespace: named in summaries.
        emission: what leaves, and where to.
        flow: how much is on its way at once.
        tolerance: how much poison is borne.
        finish: tell the last of every cluster when it stops, as an index that ends with it needs.
    """

    name: str
    namespace: str
    emission: Emission
    flow: Flow = field(default_factory=Flow)
    tolerance: Tolerance = field(default_factory=Tolerance)
    finish: bool = False

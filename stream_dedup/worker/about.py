"""What a worker is and was told to do, as its status page shows it. Holds no secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AboutPipeline:
    """What a pipeline was told to do.

    Attributes:
        name: its name.
        group: its consumer group.
        topics: what it reads.
        recipe: what counts as near: its name and digest.
        namespace: where its clusters live.
        emit: what leaves.
        output_topic: where events go.
        summary_topic: where summaries go; "" for nowhere.
        dead_letter_topic: where poison goes; "" for nowhere.
    """

    name: str
    group: str
    topics: Sequence[str]
    recipe: str
    namespace: str
    emit: str
    output_topic: str
    summary_topic: str
    dead_letter_topic: str


@dataclass(frozen=True, slots=True)
class About:
    """What a worker is and was told to do. Holds no secrets.

    Attributes:
        version: of the program.
        kernel: native or reference.
        since_us: when it was started.
        brokers: addresses of Kafka.
        index: the address of Redis, or "memory".
        guarantee: at_least_once or exactly_once.
        pipelines: its pipelines.
    """

    version: str
    kernel: str
    since_us: int
    brokers: Sequence[str]
    index: str
    guarantee: str
    pipelines: Sequence[AboutPipeline]

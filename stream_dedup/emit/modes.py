"""Output modes: which events are written, with what, and whether their repeats are counted.

What depends on the mode asks its properties, so a new mode is a row of `MODES`; what a worker and a
pipe write of an event is in `worker.output` and `cli.output`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

EmitMode = Literal["annotate", "drop", "merge"]


class Mode(NamedTuple):
    """What a mode writes.

    Attributes:
        duplicates: whether duplicates are written, too.
        decisions: whether records of Kafka are written with their decisions. Lines of text have
            theirs if duplicates are among them, and lines of JSON always.
        summaries: whether repeats are written as summaries; on Kafka, unless `summary_topic` says
            something else.
    """

    duplicates: bool
    decisions: bool
    summaries: bool


MODES: dict[EmitMode, Mode] = {
    "merge": Mode(duplicates=False, decisions=True, summaries=True),
    "drop": Mode(duplicates=False, decisions=False, summaries=False),
    "annotate": Mode(duplicates=True, decisions=True, summaries=False),
}
"""The modes by name."""

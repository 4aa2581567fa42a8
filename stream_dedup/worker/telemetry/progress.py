"""Whether events move: for how long each step of a pipeline stands still. Time is an argument.

Theory of operation
-------------------
Four steps move the events of a partition, each by offsets; the next step follows it::

    poll      reads records, up to the end that the broker names
    decide    decides events that were read
    deliver   delivers the output of decided events
    commit    stores the offsets of delivered events

A step *stands still* while it is behind the one before it (`poll`: behind the partition's end) and
its offset does not grow. A step that has caught up has nothing to do: an idle stream stands nowhere
still. If the broker does not answer, nobody knows the end: then `poll` stands still as long as it
reads nothing. `poll` is excused while the steps after it leave it no room.

Offsets may go back, when a partition that failed is read again. What counts is the furthest offset
of each step: so a partition that fails again and again at the same event stands still all the time.

A fifth step, `emit`, sends the summaries that are due. It asks the index regularly, so it always
has something to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stream_dedup.model import Partition

Step = Literal["poll", "decide", "deliver", "commit", "emit"]

REASONS: dict[Step, str] = {
    "poll": "the broker does not answer, or events wait and none is read",
    "decide": "events were read and none is decided",
    "deliver": "events were decided and their output is not delivered",
    "commit": "output was delivered and its offsets are not committed",
    "emit": "the index does not answer, or summaries that are due are not delivered",
}
"""What it means that a step stands still."""


class Stalled(NamedTuple):
    """A step that stands still.

    Attributes:
        seconds: for how long, beyond what its settings allow; 0 if it moves or has nothing to do.
        partition: of which partition; None: of none.
    """

    seconds: float
    partition: Partition | None

    def reason(self, step: Step) -> str:
        """Why the worker is not ready."""
        where = f"{self.partition.source}-{self.partition.number}: " if self.partition else ""
        return f"{where}{REASONS[step]}, for {self.seconds:.0f} s"


@dataclass(slots=True)
class _Mark:
    """How far a step has come.

    Attributes:
        reached: its furthest offset.
        goal: the furthest offset of the step before it.
        since_s: when it last moved, or had nothing to do.
        waits: whether it has something to do.
    """

    reached: int
    goal: int
    since_s: float
    waits: bool = True


class Progress:
    """How far each step has come in each partition, and since when it stands still.

    >>> progress = Progress({"deliver": 0.5})
    >>> place = Partition("logs", 0)
    >>> progress.note("deliver", place, 10, 10, now_s=0)  # it has caught up
    >>> progress.note("deliver", place, 10, 90, now_s=20)
    >>> progress.note("deliver", place, 10, 90, now_s=30)
    >>> progress.stalled("deliver", now_s=30)
    Stalled(seconds=29.5, partition=Partition(source='logs', number=0))

    Args:
        allowed_s: how long a step may wait by its settings, for example for more events.
    """

    def __init__(self, allowed_s: Mapping[Step, float]) -> None:
        self._allowed_s = allowed_s
        self._marks: dict[Step, dict[Partition | None, _Mark]] = {}

    def note(
        self,
        step: Step,
        partition: Partition | None,
        reached: int,
        goal: int | None,
        *,
        now_s: float,
        excused: bool = False,
    ) -> None:
        """Note how far a step has come.

        Args:
            step: the step.
            partition: of this partition; None: of the pipeline as a whole.
            reached: the step's next offset, or any number that grows when it moves.
            goal: the next offset of the step before it; None if nobody knows.
            now_s: seconds on a monotonic clock.
            excused: whether it has nothing to do, however far it has come.
        """
        marks = self._marks.setdefault(step, {})
        mark = marks.get(partition)
        if mark is None:
            mark = marks[partition] = _Mark(reached, reached, now_s)
        if goal is not None:
            mark.goal = max(mark.goal, goal)
        mark.waits = not excused and (goal is None or reached < mark.goal)
        if reached > mark.reached or not mark.waits:
            mark.since_s = now_s
        mark.reached = max(mark.reached, reached)

    def restart(self, partition: Partition) -> None:
        """Forget a partition's offsets: its topic was created again, so they begin at 0."""
        for marks in self._marks.values():
            if partition in marks:
                marks[partition] = _Mark(0, 0, marks[partition].since_s)

    def keep(self, partitions: Collection[Partition]) -> None:
        """Forget all other partitions: they are not assigned any more."""
        for step, marks in self._marks.items():
            self._marks[step] = {
                place: mark for place, mark in marks.items() if place is None or place in partitions
            }

    def stalled(
        self, step: Step, partitions: Collection[Partition] | None = None, *, now_s: float
    ) -> Stalled:
        """For how long a step stands still: in the partition where that is longest.

        A partition is named before the pipeline as a whole where both stand still as long.

        Args:
            step: the step.
            partitions: those that are assigned now; all that are known without.
            now_s: seconds on a monotonic clock.
        """
        waiting = [
            (mark.since_s, place)
            for place, mark in self._marks.get(step, {}).items()
            if mark.waits and (place is None or partitions is None or place in partitions)
        ]
        if not waiting:
            return Stalled(0.0, None)
        since_s, partition = min(waiting, key=lambda each: (each[0], each[1] is None))
        seconds = max(0.0, now_s - since_s - self._allowed_s.get(step, 0.0))
        return Stalled(seconds, partition if seconds else None)

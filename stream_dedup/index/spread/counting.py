"""Count a commit on many shards, all or nothing: what the owner of a partition asks, without I/O.

One shard is the partition's *home*. The others that hold clusters of the commit keep their part
aside (`Prepare`) and hold its clusters open. The home counts its own part and decides in one step
(`Decide`); then the others count what they keep (`Finish`), or drop it (`Drop`).
`docs/sharding-by-fingerprint.md` says why one ``record`` on each shard is not enough.

An owner that dies leaves what is prepared. Whoever finds it asks the home whether the attempt was
decided (`Settle`): if it was not, it never will be.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from stream_dedup.model import Partition


class Number(NamedTuple):
    """Of an attempt to commit: unique, and greater than those of earlier attempts of the partition.

    Attributes:
        fence: of the claim under which it is made.
        attempt: to commit, under that fence.
    """

    fence: int
    attempt: int


class Answer(Enum):
    """What a shard may answer instead of the clusters that have closed.

    If another owner has claimed the partition, the call fails with `StaleFence`.
    """

    DONE = "done"
    WAIT = "the commit that opens a cluster named here is not decided: ask again"
    LOST = "the attempt was given up: it never counts"
    BEFORE = "the events were counted before"


# ------------------------------------------------------------ requests


class Prepare(NamedTuple):
    """At another shard than the home: keep a part aside and hold its clusters open, or refuse.

    Answer: `Answer`, or the clusters that are not open. A `patient` caller waits for the commits
    that open clusters named here; one that is not closes what those have opened.
    """

    shard: int
    partition: Partition
    number: Number
    part: Any
    patient: bool = True


class Decide(NamedTuple):
    """At the home: count its part and write the journal; the commit is made. Answer: as before."""

    shard: int
    partition: Partition
    number: Number
    part: Any
    patient: bool = True


class Finish(NamedTuple):
    """At another shard: count what it keeps of an attempt that was decided. Answer: `DONE`."""

    shard: int
    partition: Partition
    number: Number
    part: Any = None


class Drop(NamedTuple):
    """At any shard: drop what it keeps of an attempt that was not. Answer: `DONE`."""

    shard: int
    partition: Partition
    number: Number
    part: Any = None


class Settle(NamedTuple):
    """At the home: was the attempt decided? If it was not, it never will be. Answer: a bool."""

    shard: int
    partition: Partition
    number: Number


class ReadPrepared(NamedTuple):
    """At another shard: what does it keep? Answer: the number of the attempt, or None."""

    shard: int
    partition: Partition


Request = Prepare | Decide | Finish | Drop | Settle | ReadPrepared

Rounds = Generator[Sequence[Request], Sequence[Any], Any]
"""Yields the requests of each round, which may be carried out in any order, and is sent their
answers. A request whose answer was lost has to be sent again."""


# ------------------------------------------------------------ the caller


def recover(partition: Partition, home: int, shards: Sequence[int]) -> Rounds:
    """Finish or drop what shards keep of a partition, whoever owns it."""
    kept = yield [ReadPrepared(shard, partition) for shard in shards]
    for shard, number in zip(shards, kept, strict=True):
        if number is not None:
            (decided,) = yield [Settle(home, partition, number)]
            yield [(Finish if decided else Drop)(shard, partition, number)]


@dataclass
class Owner:
    """The owner of a partition: makes its commits, one after the other.

    Attributes:
        partition: the partition.
        home: the number of the shard that decides.
        others: those of the other shards.
        fence: of the claim.
    """

    partition: Partition
    home: int
    others: Sequence[int]
    fence: int = 0
    _attempts: count[int] = field(default_factory=lambda: count(1))
    _open: Number | None = None  # an attempt that was not ended on all shards

    def recover(self) -> Rounds:
        """Once the partition is claimed on all shards: finish or drop what was left before."""
        self._open = None
        yield from recover(self.partition, self.home, self.others)

    def settle(self) -> Rounds:
        """End an attempt that a call has left because a shard did not answer."""
        if self._open is not None:
            (decided,) = yield [Settle(self.home, self.partition, self._open)]
            yield from self._end(self._open, {}, decided=decided)

    def commit(self, parts: Mapping[int, Any], *, patient: bool) -> Rounds:
        """Make a commit, if everything that it names is open.

        Args:
            parts: of each shard, of the home too.
            patient: whether to wait for commits of other partitions; see `Prepare`.

        Returns:
            `Answer`; or clusters that have closed: resolve their events again. Nothing was counted
            unless it is `DONE` (or, of `BEFORE`, by an earlier call).
        """
        yield from self.settle()
        number = self._open = Number(self.fence, next(self._attempts))
        answers = yield [
            Prepare(shard, self.partition, number, parts[shard], patient) for shard in self.others
        ]
        if all(answer is Answer.DONE for answer in answers):
            home = Decide(self.home, self.partition, number, parts[self.home], patient)
            answers = yield [home]
            if answers[0] is Answer.DONE:
                yield from self._end(number, parts, decided=True)
                return Answer.DONE
            if answers[0] is Answer.BEFORE:  # maybe by this call, and its answer was lost
                yield from self.settle()
                return Answer.BEFORE
        # Nothing may be held meanwhile, or two commits could wait for each other.
        yield from self._end(number, parts, decided=False)
        for answer in (Answer.BEFORE, Answer.LOST):
            if answer in answers:
                return answer
        closed = [each for each in answers if not isinstance(each, Answer)]
        return frozenset().union(*closed) or Answer.WAIT

    def _end(self, number: Number, parts: Mapping[int, Any], *, decided: bool) -> Rounds:
        end = Finish if decided else Drop
        # Of a refusal the home may not know yet: the partition holds stream time back everywhere.
        shards = self.others if decided else [*self.others, self.home]
        yield [end(shard, self.partition, number, parts.get(shard)) for shard in shards]
        self._open = None

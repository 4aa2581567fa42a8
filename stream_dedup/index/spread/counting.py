"""Count a commit on many nodes, all or nothing: what the caller asks, and what a node answers.

Each shard that holds clusters of the commit keeps its deltas aside (`Prepare`); the partition's
shard decides in one step (`Decide`); then the shards count what they keep (`Finish`). A shard that
keeps deltas of a commit that was not decided drops them when it hears of a later one.
`docs/giant-domain.md` says why one `record` on each shard is not enough.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dedup.index.spread.node import Cluster
from stream_dedup.index.spread.protocol import Answer, Entry, Found
from stream_dedup.model import Partition


class Number(NamedTuple):
    """Of a commit: unique, and greater than those of earlier commits of the partition.

    Attributes:
        fence: of the claim under which it is made.
        attempt: to commit, under that fence.
    """

    fence: int
    attempt: int


NEVER = Number(0, 0)
"""Before the first commit of a partition."""


class Delta(NamedTuple):
    """What a commit adds to a cluster.

    Attributes:
        entry: names the cluster, as it was opened.
        events: how many.
        is_representative: whether the event that opened the cluster is one of them.
    """

    entry: Entry
    events: int
    is_representative: bool


class Prepare(NamedTuple):
    """At a shard: keep deltas aside and hold their clusters open, or refuse.

    Answer: `DONE`; the entries of clusters that are not open; `WAIT` while the commit that opens
    one of them is not decided, unless the caller is not `patient`; or `LOST`, if the fence or the
    number is not the latest.
    """

    shard: int
    partition: Partition
    number: Number
    deltas: tuple[Delta, ...]
    patient: bool = True


class Decide(NamedTuple):
    """At the partition's shard: the commit is made, with its decisions. Answer: `DONE`, `LOST`."""

    shard: int
    partition: Partition
    number: Number
    decisions: tuple[tuple[int, Entry, bool], ...]


class Finish(NamedTuple):
    """At a shard: count what is kept if it is the decided commit's, else drop it.

    Raises the shard's fence. Answer: `DONE`.
    """

    shard: int
    partition: Partition
    fence: int
    decided: Number


class Claim(NamedTuple):
    """At the partition's shard: raise the fence. Answer: `Claimed`."""

    shard: int
    partition: Partition


class Claimed(NamedTuple):
    """What the owner of a partition learns: its fence, the last decided commit, the journal."""

    fence: int
    decided: Number
    journal: Mapping[int, tuple[Entry, bool]]


Request = Prepare | Decide | Finish | Claim


@dataclass(slots=True)
class _State:
    """A partition on one shard; `decided` and `journal` on its own shard only."""

    fence: int = 0
    seen: Number = NEVER
    kept: tuple[Delta, ...] = ()
    decided: Number = NEVER
    journal: dict[int, tuple[Entry, bool]] = field(default_factory=dict)


class Counter:
    """What one shard does; each method is one atomic step.

    Args:
        clusters: of the shard.
    """

    def __init__(self, clusters: dict[int, Cluster]) -> None:
        self._clusters = clusters
        self._states: dict[Partition, _State] = {}

    def holds(self, identity: int) -> bool:
        """Return whether a cluster may not close: a commit that names it may be decided."""
        return any(d.entry.identity == identity for s in self._states.values() for d in s.kept)

    def carry_out(self, request: Request) -> object:
        """Carry out a request, and return its answer."""
        state = self._states.setdefault(request.partition, _State())
        match request:
            case Claim():
                state.fence += 1
                return Claimed(state.fence, state.decided, dict(state.journal))
            case Prepare():
                return self._prepare(state, request)
            case Decide(_, _, number, decisions):
                if number.fence < state.fence or number < state.decided:
                    return Answer.LOST
                state.decided = number
                state.journal |= {offset: (entry, new) for offset, entry, new in decisions}
            case Finish(_, _, fence, decided):
                state.fence = max(state.fence, fence)
                self._settle(state, decided)
        return Answer.DONE

    def _settle(self, state: _State, decided: Number) -> None:
        if state.kept and state.seen > decided and state.seen.fence >= state.fence:
            return  # a late request: the commit that is kept came after it
        if state.seen == decided:
            for entry, events, _ in state.kept:
                self._clusters[entry.identity].count += events
        state.kept = ()

    def _prepare(self, state: _State, request: Prepare) -> object:
        number = request.number
        if number.fence < state.fence or number < state.seen:
            return Answer.LOST
        if number == state.seen:
            return Answer.DONE if state.kept or not request.deltas else Answer.LOST
        closed, waits = [], False
        for entry, _, is_representative in request.deltas:
            cluster = self._clusters.get(entry.identity)
            if cluster is None or not cluster.is_open or cluster.ticket != entry.ticket:
                closed.append(entry)
            elif not cluster.count and not is_representative:
                if request.patient or self.holds(entry.identity):
                    waits = True
                else:
                    cluster.is_open = False
                    closed.append(entry)
        if closed or waits:
            return closed or Answer.WAIT
        state.seen, state.kept = number, request.deltas
        return Answer.DONE


Rounds = Generator[Sequence[Request], Sequence[object], object]
"""Yields the requests of each round, and is sent their answers; None for one that was lost."""


Answers = Generator[Sequence[Request], Sequence[object], list[object]]
"""The same, and returns all answers."""


def _until_answered(requests: Sequence[Request]) -> Answers:
    """Send requests again until all are answered."""
    answers: dict[Request, object] = {}
    while missing := [request for request in requests if request not in answers]:
        got = yield missing
        answers |= {r: a for r, a in zip(missing, got, strict=True) if a is not None}
    return [answers[request] for request in requests]


class Owner:
    """The owner of a partition: makes its commits, one after the other.

    Args:
        partition: the partition.
        shards: how many there are.
    """

    def __init__(self, partition: Partition, shards: int) -> None:
        self.partition = partition
        self.journal: dict[int, tuple[Entry, bool]] = {}
        self._shards = range(shards)
        self._home = partition.number % shards
        self._number = NEVER
        self._prepared: set[int] = set()  # shards that may keep something

    def claim(self) -> Rounds:
        """Claim the partition, and finish or drop what its former owner left."""
        claims = yield from _until_answered([Claim(self._home, self.partition)])
        (claimed,) = claims
        assert isinstance(claimed, Claimed)
        self._number = Number(claimed.fence, 0)
        self.journal = dict(claimed.journal)
        yield from self._finish(self._shards, claimed.decided)
        return None

    def _finish(self, shards: Sequence[int], decided: Number) -> Rounds:
        fence = self._number.fence
        yield from _until_answered(
            [Finish(shard, self.partition, fence, decided) for shard in shards]
        )
        return None

    def commit(self, decided: Mapping[int, tuple[Found, bool]], *, patient: bool) -> Rounds:
        """Commit events: offset → its cluster, and whether it is the representative.

        Returns:
            True if it was counted; False if another owner has the partition, or it is not known:
            claim again; None if it has to wait; else the entries of clusters that have closed.
        """
        deltas: dict[int, dict[Entry, Delta]] = {}
        for found, new in decided.values():
            of_shard = deltas.setdefault(found.entry.identity & 0xFF, {})
            before = of_shard.get(found.entry, Delta(found.entry, 0, False))
            is_new = before.is_representative or new
            of_shard[found.entry] = Delta(found.entry, before.events + 1, is_new)
        answers = yield from self._prepare(deltas, patient=patient)
        if Answer.LOST in answers:
            return False
        closed = [entry for answer in answers if isinstance(answer, list) for entry in answer]
        if closed or Answer.WAIT in answers:
            # Nothing may be held meanwhile, or two commits could wait for each other.
            yield from self._prepare({}, patient=patient)
            return closed or None
        decisions = tuple((offset, f.entry, new) for offset, (f, new) in decided.items())
        (answer,) = yield [Decide(self._home, self.partition, self._number, decisions)]
        if answer is not Answer.DONE:
            return False
        self.journal |= {offset: (entry, new) for offset, entry, new in decisions}
        yield from self._finish(sorted(self._prepared), self._number)
        self._prepared.clear()
        return True

    def _prepare(self, deltas: Mapping[int, Mapping[Entry, Delta]], *, patient: bool) -> Answers:
        """Prepare an attempt; shards without deltas drop what they keep of the former one."""
        number = self._number = self._number._replace(attempt=self._number.attempt + 1)
        self._prepared |= deltas.keys()
        return (
            yield from _until_answered(
                [
                    Prepare(
                        shard,
                        self.partition,
                        number,
                        tuple(deltas.get(shard, {}).values()),
                        patient,
                    )
                    for shard in sorted(self._prepared)
                ]
            )
        )

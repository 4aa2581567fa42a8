"""What a shard does with the parts of commits, in memory: each method is one atomic step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dedup.errors import StaleFence
from stream_dedup.index.spread import counting
from stream_dedup.index.spread.counting import (
    Answer,
    Decide,
    Drop,
    Finish,
    Number,
    Prepare,
    ReadPrepared,
    Settle,
)
from stream_dedup.index.spread.protocol import Entry, Found
from stream_dedup.model import Partition
from tests.unit.index.spread.node import Cluster


class Claim(NamedTuple):
    """At each shard, the home first: raise the fence, to one if that is given.

    Answer: `Claimed`.
    """

    shard: int
    partition: Partition
    fence: int | None = None


class Claimed(NamedTuple):
    """What the owner of a partition learns: its fence, and the journal of the home."""

    fence: int
    journal: Mapping[int, tuple[Entry, bool]]


Request = counting.Request | Claim

NEVER = Number(0, 0)
"""Before the first attempt of a partition."""


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


class Part(NamedTuple):
    """A shard's part of a commit: deltas; for the home the decisions, by offset."""

    deltas: tuple[Delta, ...] = ()
    decisions: tuple[tuple[int, Entry, bool], ...] = ()


def parts_of(decided: Mapping[int, tuple[Found, bool]], home: int, shards: int) -> dict[int, Part]:
    """Cut a commit into parts: offset → its cluster, and whether it is the representative."""
    deltas: dict[int, dict[Entry, Delta]] = {}
    for found, new in decided.values():
        of_shard = deltas.setdefault(found.entry.identity & 0xFF, {})
        before = of_shard.get(found.entry, Delta(found.entry, 0, False))
        is_new = before.is_representative or new
        of_shard[found.entry] = Delta(found.entry, before.events + 1, is_new)
    decisions = tuple((offset, found.entry, new) for offset, (found, new) in decided.items())
    return {
        shard: Part(tuple(deltas.get(shard, {}).values()), decisions if shard == home else ())
        for shard in range(shards)
    }


@dataclass(slots=True)
class _State:
    """A partition on one shard; `decided` and `journal` on its home only."""

    fence: int = 0
    latest: Number = NEVER
    kept: tuple[Number, Part] | None = None
    decided: Number = NEVER
    journal: dict[int, tuple[Entry, bool]] = field(default_factory=dict)


class Shard:
    """One shard.

    Args:
        clusters: of the shard.
    """

    def __init__(self, clusters: dict[int, Cluster]) -> None:
        self._clusters = clusters
        self._states: dict[Partition, _State] = {}

    def holds(self, identity: int) -> bool:
        """Return whether a cluster may not close: a commit that names it may be decided."""
        kept = [state.kept[1] for state in self._states.values() if state.kept]
        return any(delta.entry.identity == identity for part in kept for delta in part.deltas)

    def carry_out(self, request: Request) -> object:
        """Carry out a request, and return its answer."""
        state = self._states.setdefault(request.partition, _State())
        match request:
            case Claim(fence=fence):
                state.fence = state.fence + 1 if fence is None else max(state.fence, fence)
                return Claimed(state.fence, dict(state.journal))
            case Prepare():
                return self._prepare(state, request)
            case Decide():
                return self._decide(state, request)
            case Finish(number=number):
                if state.kept and state.kept[0] == number:
                    self._count(state.kept[1])
                    state.kept = None
            case Drop(number=number):
                self._give_up(state, number)
                if state.kept and state.kept[0] == number:
                    state.kept = None
            case Settle(number=number):
                self._give_up(state, number)
                return state.decided == number
            case ReadPrepared():
                return state.kept and state.kept[0]
        return Answer.DONE

    def _give_up(self, state: _State, number: Number) -> None:
        state.latest = max(state.latest, number)

    def _prepare(self, state: _State, request: Prepare) -> object:
        number = request.number
        if number.fence != state.fence:
            return StaleFence(f"{number.fence} is not {state.fence}")
        if number <= state.latest:
            return Answer.DONE if state.kept and state.kept[0] == number else Answer.LOST
        answer = self._check(request)
        if answer is Answer.DONE:
            state.latest, state.kept = number, (number, request.part)
        return answer

    def _decide(self, state: _State, request: Decide) -> object:
        number, part = request.number, request.part
        if number.fence != state.fence:
            return StaleFence(f"{number.fence} is not {state.fence}")
        if any(offset in state.journal for offset, *_ in part.decisions):
            return Answer.BEFORE
        if number <= state.latest:
            return Answer.LOST
        answer = self._check(request)
        if answer is Answer.DONE:
            state.latest = state.decided = number
            self._count(part)
            state.journal |= {offset: (entry, new) for offset, entry, new in part.decisions}
        return answer

    def _count(self, part: Part) -> None:
        for entry, events, _ in part.deltas:
            self._clusters[entry.identity].count += events

    def _check(self, request: Prepare | Decide) -> object:
        closed, waits = [], False
        for entry, _, is_representative in request.part.deltas:
            cluster = self._clusters.get(entry.identity)
            if cluster is None or not cluster.is_open or cluster.ticket != entry.ticket:
                closed.append(entry)
            elif not cluster.count and not is_representative:
                if request.patient or self.holds(entry.identity):
                    waits = True
                else:
                    cluster.is_open = False
                    closed.append(entry)
        return closed or (Answer.WAIT if waits else Answer.DONE)

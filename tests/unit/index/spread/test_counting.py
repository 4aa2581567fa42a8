"""Counting on many nodes: each event counts once, whatever goes wrong between any two steps."""

from __future__ import annotations

import collections
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from stream_dedup.errors import StaleFence
from stream_dedup.index.base import Query
from stream_dedup.index.groups import opened_id
from stream_dedup.index.spread import counting, protocol
from stream_dedup.index.spread.counting import (
    Answer,
    Decide,
    Drop,
    Finish,
    Owner,
    Prepare,
    ReadPrepared,
    Settle,
)
from stream_dedup.index.spread.protocol import Call, Places, Ticket
from stream_dedup.model import Partition, Position
from tests.unit.index.spread.shard import Claim, Part, Request, Shard, parts_of
from tests.unit.index.spread.world import KEY, LAYOUT, make_nodes, query

LOST = object()
"""Instead of an answer."""

PARTITIONS, EVENTS, NODES, BATCH, PATIENCE, MOST_DEATHS = 3, 6, 20, 3, 4, 8

Requests = Sequence[protocol.Request | Request]
Rounds = Generator[Sequence[Request], Sequence[Any], Any]
Work = Generator[Requests, Sequence[Any], None]


class MiscountedError(AssertionError):
    """The counts of clusters are not those of the journals."""


@dataclass(eq=False)
class Worker:
    """A worker of one partition: the round it is in, and the answers that it has."""

    partition: int
    work: Work
    asked: Requests = ()
    answers: dict[int, Any] = field(default_factory=dict)
    zombie: bool = False
    owns: bool = True


def one(request: Request) -> Rounds:
    return (yield [request])


def until_answered(rounds: Rounds) -> Any:
    """Send requests again until all of a round are answered."""
    asked = next(rounds)
    while True:
        answers: dict[int, Any] = {}
        while missing := [at for at in range(len(asked)) if at not in answers]:
            got = yield [asked[at] for at in missing]
            answers |= {at: a for at, a in zip(missing, got, strict=True) if a is not LOST}
        try:
            asked = rounds.send([answers[at] for at in range(len(asked))])
        except StopIteration as stop:
            return stop.value


class Workers:
    """Workers on twenty nodes; anything may go wrong, by a seed.

    Args:
        seed: of what happens.
        shard: what shards do.
        faulty: whether anything goes wrong.
    """

    def __init__(self, seed: int, shard: type[Shard] = Shard) -> None:
        self.random = Random(seed)
        self.nodes = make_nodes(NODES)
        self.places = Places(KEY, NODES)
        self.shards = [shard(node.clusters) for node in self.nodes]
        self.now_us = self.calls = self.deaths = 0
        self.late: list[Any] = []
        self.finals: dict[tuple[int, Ticket], int] = {}  # counts of clusters when they closed
        texts = [self.random.getrandbits(LAYOUT.width) for _ in range(3)]
        self.events = [
            [
                query(self.random.choice(texts) ^ 1 << self.random.randrange(4), at)._replace(
                    position=Position("in", partition, at)
                )
                for at in range(EVENTS)
            ]
            for partition in range(PARTITIONS)
        ]
        self.workers = [self.start(partition) for partition in range(PARTITIONS)]

    def start(self, partition: int) -> Worker:
        others = [shard for shard in range(NODES) if shard != partition % NODES]
        owner = Owner(Partition("in", partition), partition % NODES, others)
        worker = Worker(partition, self.work(owner, self.events[partition]))
        worker.asked = next(worker.work)
        return worker

    def work(self, owner: Owner, events: list[Query]) -> Any:
        """Resolve and commit all events of a partition."""
        journal = yield from self.claim(owner)
        while left := [at for at in range(EVENTS) if at not in journal][:BATCH]:
            decided = yield from self.resolve([events[at] for at in left])
            parts = parts_of(dict(zip(left, decided, strict=True)), owner.home, NODES)
            try:
                done = yield from self.commit(owner, parts)
            except StaleFence:
                journal = yield from self.claim(owner)
                continue
            if done is Answer.DONE:
                journal |= dict.fromkeys(left)
            elif isinstance(done, Answer):
                journal = yield from self.claim(owner)

    def commit(self, owner: Owner, parts: dict[int, Any]) -> Any:
        for attempt in range(1 << 10):
            done = yield from until_answered(owner.commit(parts, patient=attempt < PATIENCE))
            if done not in (Answer.WAIT, Answer.LOST):
                break
        return done

    def claim(self, owner: Owner) -> Any:
        (claimed,) = yield from until_answered(one(Claim(owner.home, owner.partition)))
        owner.fence = claimed.fence
        for shard in owner.others:
            yield from until_answered(one(Claim(shard, owner.partition, claimed.fence)))
        yield from until_answered(owner.recover())
        return dict(claimed.journal)

    def resolve(self, batch: list[Query]) -> Any:
        self.calls += 1
        identities = [
            self.places.identity(opened_id("test", "", event.position), event) for event in batch
        ]
        call = Call(batch, identities, LAYOUT, since_us=self.now_us, caller=self.calls)
        while not call.done:
            requests = call.requests()
            for request, answer in zip(requests, (yield requests), strict=True):
                call.lost(request) if answer is LOST else call.answer(request, answer)
        return [(found, opened) for found, opened, _ in call.answers]

    def carry_out(self, request: Any) -> Any:
        if isinstance(request, Prepare | Decide | Finish | Drop | Settle | ReadPrepared | Claim):
            return self.shards[request.shard].carry_out(request)
        return self.nodes[self.places.of(request)].carry_out(request, self.now_us)

    def step(self) -> None:
        random = self.random
        self.now_us += 1_000
        if self.late and random.random() < 0.1:
            self.carry_out(self.late.pop(random.randrange(len(self.late))))
        worker = random.choice(self.workers)
        chance = random.random()
        if (
            chance < 0.003 and self.deaths < MOST_DEATHS and worker.owns
        ):  # it dies, and another one takes over; or it does not know yet
            self.workers.append(self.start(worker.partition))
            self.deaths += 1
            worker.zombie = True
            if random.random() < 0.5:
                self.workers.remove(worker)
                return
        elif chance < 0.006 and worker.owns:  # somebody finishes or drops what it has prepared
            partition = Partition("in", worker.partition)
            home = worker.partition % NODES
            others = [shard for shard in range(NODES) if shard != home]
            rounds = until_answered(counting.recover(partition, home, others))
            self.workers.append(Worker(worker.partition, rounds, next(rounds), owns=False))
        elif chance < 0.013:
            self.close(random.choice(self.nodes).clusters)
        self.advance(worker)

    def advance(self, worker: Worker) -> None:
        random = self.random
        left = [at for at in range(len(worker.asked)) if at not in worker.answers]
        at = random.choice(left)
        request, chance = worker.asked[at], random.random()
        if chance < 0.03:
            self.late.append(request)
            worker.answers[at] = LOST
        else:
            answer = self.carry_out(request)
            worker.answers[at] = LOST if chance < 0.06 else answer
        if len(worker.answers) < len(worker.asked):
            return
        answers = [worker.answers[at] for at in range(len(worker.asked))]
        worker.answers = {}
        refused = next((each for each in answers if isinstance(each, StaleFence)), None)
        try:
            worker.asked = worker.work.throw(refused) if refused else worker.work.send(answers)
        except StopIteration:
            self.workers.remove(worker)
            return
        if worker.zombie and isinstance(worker.asked[0], Claim):
            self.workers.remove(worker)  # its fence is stale

    def close(self, clusters: dict[int, Any]) -> None:
        for identity, cluster in clusters.items():
            if cluster.count and not self.shards[identity & 0xFF].holds(identity):
                cluster.is_open = False
                self.finals.setdefault((identity, cluster.ticket), cluster.count)

    def run(self) -> None:
        for _ in range(200_000):
            if not self.workers:
                break
            self.step()
        assert not self.workers, "the workers make no progress"
        for partition in range(PARTITIONS):  # finishes what is left
            worker = self.start(partition)
            self.workers = [worker]
            while self.workers:
                self.advance(worker)

    def check(self) -> None:
        """Check that counts are those of the journals, and every event is in one."""
        journaled: collections.Counter[int] = collections.Counter()
        for partition in range(PARTITIONS):
            request = Claim(partition % NODES, Partition("in", partition))
            claimed = self.carry_out(request)
            assert sorted(claimed.journal) == list(range(EVENTS))
            journaled.update(entry.identity for entry, _ in claimed.journal.values())
        counted = {i: c.count for node in self.nodes for i, c in node.clusters.items() if c.count}
        if counted != journaled:
            raise MiscountedError(f"{counted} are counted, {journaled} in the journals")
        for (identity, ticket), count in self.finals.items():
            cluster = self.nodes[identity & 0xFF].clusters[identity]
            if cluster.ticket == ticket and cluster.count != count:
                raise MiscountedError(f"{identity:x} has counted after it was closed")


@pytest.mark.parametrize("seed", range(30))
def test_every_event_counts_once(seed: int) -> None:
    workers = Workers(seed)
    workers.run()
    workers.check()


class CountsAtOnce(Shard):
    """Counts what it is to keep, before the commit is decided."""

    def _prepare(self, state: Any, request: Prepare) -> object:
        before = state.kept
        answer = super()._prepare(state, request)
        if state.kept and not before:
            self._count(state.kept[1])
            state.kept = state.kept[0], Part()
        return answer


class ForgetsFences(Shard):
    """Lets a former owner go on."""

    def carry_out(self, request: Request) -> object:
        if isinstance(request, Prepare | Decide):
            state = self._states[request.partition]
            fence, state.fence = state.fence, request.number.fence
            answer = super().carry_out(request)
            state.fence = fence
            return answer
        return super().carry_out(request)


class DecidesLate(Shard):
    """Decides an attempt that was given up."""

    def _give_up(self, state: Any, number: counting.Number) -> None:
        pass


class HoldsNothing(Shard):
    """Lets clusters close between prepare and finish."""

    def holds(self, identity: int) -> bool:
        del identity
        return False


@pytest.mark.slow
@pytest.mark.parametrize("broken", [CountsAtOnce, ForgetsFences, DecidesLate, HoldsNothing])
def test_the_check_finds_a_broken_shard(broken: type[Shard]) -> None:
    with pytest.raises(AssertionError, match=r"are counted|has counted|no progress"):
        run_seeds(broken)


def run_seeds(shard: type[Shard]) -> None:
    for seed in range(200):  # until it is found
        workers = Workers(seed, shard)
        workers.run()
        workers.check()

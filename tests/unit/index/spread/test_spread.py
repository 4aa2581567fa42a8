"""The spread protocol: one caller alone, and many at once with everything that may go wrong.

`test_every_order…` go through all orders of the requests of a few callers. The others run eight
callers on a hundred nodes in orders chosen by chance, from seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from functools import partial
from random import Random

import pytest

from stream_dedup.features.recipe import Fingerprint, Match, Recipe
from stream_dedup.fingerprint.simhash import distance
from stream_dedup.index.base import Query
from stream_dedup.index.groups import opened_id
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.spread.protocol import (
    LEASE_US,
    SWEEP_AFTER_US,
    Answer,
    Call,
    Entry,
    Found,
    Judge,
    Key,
    Neighbour,
    _Row,
)
from stream_dedup.tables.permutation import Layout
from tests.unit.index.spread.node import Node
from tests.unit.index.spread.world import (
    LAYOUT,
    ByChance,
    Chances,
    Chosen,
    TwinsError,
    World,
    make_nodes,
    query,
)

NODES = 100
ALL = Chances(lost=0.05, given_up=0.05, death=0.01, sleep=0.01)
SMALL = Layout(4, 1, 2)
NO_FAULT = Chances()
FAULTS = [Chances(lost=1), Chances(given_up=1), Chances(death=1), Chances(sleep=1)]
RECIPE = Recipe(fingerprint=Fingerprint(width=32), match=Match(k=LAYOUT.k))


def near_events(random: Random, count: int) -> list[Query]:
    """Events around three texts, so that most are near others; some are matched when equal only."""
    texts = [random.getrandbits(LAYOUT.width) for _ in range(3)]
    events = []
    for offset in range(count):
        bits = random.sample(range(6), random.choice((0, 1, 2, 3)))
        fingerprint = random.choice(texts) ^ sum(1 << 5 * bit for bit in bits)
        events.append(query(fingerprint, offset, near=random.random() < 0.9))
    return events


# ------------------------------------------------------------ one caller


@pytest.mark.parametrize("seed", range(20))
def test_one_caller_decides_as_the_index_in_memory(seed: int) -> None:
    random = Random(seed)
    events = near_events(random, 30)
    world = World(make_nodes(NODES), ByChance(seed))
    memory = MemoryIndex(RECIPE, namespace="test")
    opener: dict[int, Query] = {}
    for at in range(0, len(events), 5):
        batch = events[at : at + 5]
        caller = world.start(*batch)
        world.run_in_rounds()
        expected = asyncio.run(memory.resolve(batch, 0))
        for event, one, (found, opened, found_by) in zip(
            batch, expected, caller.call.answers, strict=True
        ):
            assert opened is one.new
            assert found_by is one.found_by
            opener |= {found.entry.identity: event} if opened else {}
            representative = opener[found.entry.identity]
            assert opened_id("test", "", representative.position) == one.cluster
            assert found.distance == one.distance


def test_an_opening_takes_three_rounds() -> None:
    world = World(make_nodes(NODES), ByChance(0))
    world.start(query(0, 0))
    assert world.run_in_rounds() == 3
    assert sum(node.steps for node in world.nodes) == LAYOUT.tables + 2


def test_a_join_by_fingerprint_takes_six_rounds() -> None:
    world = World(make_nodes(NODES), ByChance(0))
    world.start(query(0, 0))
    world.run()
    before = sum(node.steps for node in world.nodes)
    world.start(query(1, 1))
    assert world.run_in_rounds() == 6
    assert sum(node.steps for node in world.nodes) == before + 2 * LAYOUT.tables + 5 + 1


def test_an_event_equal_to_an_alias_takes_five_rounds() -> None:
    world = World(make_nodes(NODES), ByChance(0))
    for offset, fingerprint in enumerate((0, 1)):
        world.start(query(fingerprint, offset))
        world.run()
    before = sum(node.steps for node in world.nodes)
    world.start(query(1, 2))
    assert world.run_in_rounds() == 5
    assert sum(node.steps for node in world.nodes) == before + 5


def test_an_equal_event_takes_one_request() -> None:
    world = World(make_nodes(NODES), ByChance(0))
    world.start(query(0, 0))
    world.run()
    before = sum(node.steps for node in world.nodes)
    world.start(query(0, 1))
    assert world.run_in_rounds() == 1
    assert sum(node.steps for node in world.nodes) == before + 1


def test_an_alias_leaves_the_other_names_of_its_cluster() -> None:
    world = World(make_nodes(NODES), ByChance(0), make_call=partial(Call, aliases=True))
    # The last is as near to the first as the second is, but not near to that one.
    for offset, fingerprint in enumerate((0b0000, 0b0011, 0b1100)):
        world.start(query(fingerprint, offset))
        world.run()
    assert len(world.open_clusters()) == 1


def test_a_call_ends_whose_leases_end_long_before_it_does() -> None:
    random = Random(1)
    world = World(make_nodes(NODES), ByChance(0))
    call = world.start(*(query(random.getrandbits(LAYOUT.width), row) for row in range(200))).call
    requests = 0
    while not call.done:
        world.now_us += LEASE_US // 10
        for request in call.requests()[:20]:
            call.answer(request, world.carry_out(request))
            requests += 1
        assert requests <= 200 * (LAYOUT.tables + 2)  # none has to begin again
    assert len(world.open_clusters()) == 200


def test_no_more_names_lead_to_a_cluster_than_the_cap_allows() -> None:
    world = World(make_nodes(NODES), ByChance(0), make_call=partial(Call, max_names=3))
    world.start(query(0, 0))
    world.run()
    own = LAYOUT.tables + 1
    stored = []
    for offset in range(1, 8):
        world.start(query(1 << offset, offset))
        world.run()
        stored.append(sum(world.stored().values()))
        world.start(query(1 << offset, offset + 100))  # an equal one is not a new name
        world.run()
    assert stored == [own + 1, own + 2, *[own + 3] * 5]


@pytest.mark.parametrize("nodes", [1, 2, 4, 10, 100])
def test_each_node_has_its_share_of_the_work(nodes: int) -> None:
    random = Random(1)
    world = World(make_nodes(nodes), ByChance(0))
    for at in range(0, 600, 100):
        batch = [query(random.getrandbits(LAYOUT.width), at + row) for row in range(100)]
        world.start(*batch)
        world.run_in_rounds()
    steps = [node.steps for node in world.nodes]
    assert sum(steps) >= 600 * (LAYOUT.tables + 2)
    assert max(steps) < 1.6 * sum(steps) / nodes


# ------------------------------------------------------------ many at once


def run_many(seed: int, node: type[Node] = Node, call: type[Call] = Call) -> World:
    """Run eight callers of three events each, with everything that may go wrong."""
    world = World(make_nodes(NODES, node), ByChance(seed), chances=ALL, make_call=call)
    events = near_events(Random(seed), 24)
    for at in range(0, 24, 3):
        world.start(*events[at : at + 3])
    world.run()
    return world


@pytest.mark.parametrize("seed", range(40))
def test_many_callers_never_both_admit_near_twins(seed: int) -> None:
    world = run_many(seed)
    assert len(world.answered) == 24
    events = near_events(Random(seed), 24)
    opened = dict(world.open_clusters())
    for event in events:
        for identity, new in world.answered[event.position]:
            assert distance(opened[identity].fingerprint, event.fingerprint) <= LAYOUT.k
            assert new == (opened[identity] == event)


@pytest.mark.parametrize("seed", range(10))
def test_an_event_that_is_delivered_again_is_new_again(seed: int) -> None:
    world = run_many(seed)
    opened = dict(world.open_clusters())
    world.chances = Chances()
    for identity, event in opened.items():
        caller = world.start(event)
        world.run()
        ((found, new, _),) = caller.call.answers
        assert (found.entry.identity, new) == (identity, True)
    assert dict(world.open_clusters()) == opened


@pytest.mark.parametrize("seed", range(10))
def test_what_dead_callers_leave_is_swept(seed: int) -> None:
    world = run_many(seed)
    for request in world.late:
        world.carry_out(request)
    world.now_us += SWEEP_AFTER_US + 1
    world.sweep()
    identities = {identity for identity, _ in world.open_clusters()}
    assert world.stored().keys() == identities
    assert not any(node.begun for node in world.nodes)


@pytest.mark.parametrize("seed", range(20))
def test_clusters_close_while_others_join_them(seed: int) -> None:
    random = Random(seed)
    world = World(make_nodes(NODES), ByChance(seed), chances=ALL)
    events = near_events(random, 24)
    for at in range(0, 24, 2):
        world.start(*events[at : at + 2])
    while world.callers:
        world.step()
        opened = world.open_clusters()
        if opened and random.random() < 0.05:
            world.close(random.choice(opened)[0])
    assert len(world.answered) == 24


# ------------------------------------------------------------ every interleaving


def run_all(
    events: list[Query],
    chances: Chances = NO_FAULT,
    node: type[Node] = Node,
    call: type[Call] = Call,
) -> Iterator[World]:
    """Run a caller for each event through every order of their requests; return what they reach.

    Of what may go wrong one thing does, at every place. A state that was reached before is not
    gone on from again.
    """
    choices: list[int] | None = []
    states: set[Hashable] = set()
    while choices is not None:
        chooser = Chosen(choices, faults=1)
        world = World(make_nodes(2, node, SMALL), chooser, SMALL, chances, call)
        for event in events:
            world.start(event)

        def known(world: World, chooser: Chosen = chooser, replayed: int = len(choices)) -> bool:
            if len(chooser.made) < replayed:
                return False
            before = len(states)
            states.add((world.state(), chooser.faults))
            return len(states) == before

        world.run(known=known)
        if not world.callers:
            yield world
        choices = chooser.following()


TWINS = [query(0b0000, 0), query(0b0001, 1)]


def test_every_order_of_two_near_twins_admits_one() -> None:
    reached = {world.open_clusters()[0][0] for world in run_all(TWINS) if _one_is_open(world)}
    assert len(reached) == 2  # either of them


def _one_is_open(world: World) -> bool:
    assert len(world.open_clusters()) == 1
    return True


def test_every_order_of_two_equal_events_admits_one() -> None:
    assert all(map(_one_is_open, run_all([query(0b0000, 0), query(0b0000, 1)])))


def test_every_order_of_two_owners_of_an_event_opens_it() -> None:
    for world in run_all([TWINS[0], TWINS[0]]):
        ((identity, _),) = world.open_clusters()
        assert world.answered == {TWINS[0].position: [(identity, True)] * 2}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_order_with_a_fault_admits_one_twin(fault: Chances) -> None:
    assert all(map(_one_is_open, run_all(TWINS, fault)))


@pytest.mark.slow
def test_every_order_of_three_in_a_chain_admits_no_twins() -> None:
    chain = [query(0b0000, 0), query(0b0001, 1), query(0b0011, 2)]
    reached = {len(world.open_clusters()) for world in run_all(chain)}
    assert reached == {1, 2}  # the one in the middle, or those at the ends


# ------------------------------------------------------------ what the check finds


class ReadsFirst(Node):
    """Reads what lies beside an entry before it is inserted: insertion comes when it opens."""

    def offer(self, key: Key, entry: Entry, fingerprint: int) -> list[Neighbour]:
        neighbours = super().offer(key, entry, fingerprint)
        self.slices[key].remove(Neighbour(entry, fingerprint))
        return neighbours


class LetsBothGoOn(Node):
    """Passes over an attempt that has to yield, and leaves it its ticket."""

    def judge(self, request: Judge, now_us: int) -> Found | Answer:
        intents = dict(self.intents)
        answer = super().judge(request, now_us)
        self.intents = intents
        return answer


class NeverWaits(Node):
    """Passes over an attempt that goes first."""

    def judge(self, request: Judge, now_us: int) -> Found | Answer:
        answer = super().judge(request, now_us)
        return Answer.ABSENT if answer is Answer.WAIT else answer


class OpensWithoutTicket(Node):
    """Opens a cluster whether or not its attempt still has the ticket."""

    def open(self, entry: Entry, query: Query, now_us: int) -> Found | Answer:
        self.intents[entry.identity] = entry.ticket, now_us + 1
        return super().open(entry, query, now_us)


class TicketsForever(Node):
    """Passes over an attempt whose lease has ended, but lets it open."""

    def judge(self, request: Judge, now_us: int) -> Found | Answer:
        intent = self.intents.get(request.entry.identity)
        answer = super().judge(request, now_us)
        if intent and now_us >= intent[1]:
            self.intents[request.entry.identity] = intent[0], now_us + LEASE_US
        return answer


class ReadsOnce(Call):
    """Opens after another attempt made it yield, without reading the slices again."""

    def _begin(self, row: _Row) -> None:
        super()._begin(row)
        row.complete |= row.entry.ticket.attempt > 1


def run_with_faults(node: type[Node] = Node, call: type[Call] = Call) -> None:
    """Run near twins through every order, with every fault."""
    for fault in (NO_FAULT, *FAULTS):
        for world in run_all(TWINS, fault, node, call):
            assert world.answered


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", [ReadsFirst, LetsBothGoOn, NeverWaits, OpensWithoutTicket, TicketsForever]
)
def test_the_check_finds_a_broken_node(broken: type[Node]) -> None:
    with pytest.raises(TwinsError):
        run_with_faults(broken)


def test_the_check_finds_that_slices_are_not_read_again() -> None:
    with pytest.raises(TwinsError):
        run_with_faults(call=ReadsOnce)

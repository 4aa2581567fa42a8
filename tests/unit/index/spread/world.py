"""A hundred nodes, callers that resolve events on them, and everything that may go wrong.

The world carries out one request at a time, in an order that a `Chooser` decides: so every
interleaving of the callers' requests can come up. A request may be carried out and its answer be
lost; or be given up by its caller and be carried out much later; a caller may die at any time.
Whenever a cluster opens, the world checks that it is not a near twin of another open one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from stream_dedup.fingerprint.simhash import distance
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import Query
from stream_dedup.index.groups import opened_id
from stream_dedup.index.spread.protocol import (
    LEASE_US,
    Add,
    Call,
    Found,
    Open,
    Places,
    Remove,
    Request,
    Withdraw,
)
from stream_dedup.model import Position
from stream_dedup.tables.permutation import Layout
from tests.unit.index.spread.node import Node

LAYOUT = Layout(32, 2, 4)
KEY = HashKey(bytes(range(16)))
STEP_US = 1_000


def query(fingerprint: int, offset: int, *, exact: int | None = None, near: bool = True) -> Query:
    """Make a query; equal fingerprints are equal texts unless another exact hash is given."""
    hashed = fingerprint * 0x9E3779B9 & (1 << 64) - 1 if exact is None else exact
    return Query("", hashed, fingerprint, b"", near, offset, offset, Position("in", 0, offset))


class Chooser(Protocol):
    """Decides what happens next."""

    def choose(self, count: int) -> int:
        """Return a number below `count`."""

    def happens(self, chance: float) -> bool:
        """Return whether something that happens by chance does."""


class Chosen:
    """Chooses as a list says, then the first; so that all lists can be gone through.

    Args:
        choices: the list.
        faults: how often something that happens by chance may happen.
    """

    def __init__(self, choices: Sequence[int], faults: int = 0) -> None:
        self.made: list[tuple[int, int]] = []
        self._choices = choices
        self.faults = faults

    def choose(self, count: int) -> int:
        if count == 1:
            return 0
        at = len(self.made)
        choice = self._choices[at] if at < len(self._choices) else 0
        self.made.append((choice, count))
        return choice

    def happens(self, chance: float) -> bool:
        happens = chance > 0 and self.faults > 0 and self.choose(2) == 1
        self.faults -= happens
        return happens

    def following(self) -> list[int] | None:
        """The next list; None after the last."""
        choices = list(self.made)
        while choices:
            choice, count = choices.pop()
            if choice + 1 < count:
                return [before for before, _ in choices] + [choice + 1]
        return None


class ByChance:
    """Chooses at random, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, count: int) -> int:
        return self._random.randrange(count)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance


class TwinsError(AssertionError):
    """Two open clusters are near twins."""


@dataclass(frozen=True)
class Chances:
    """How likely what goes wrong is, at each step."""

    lost: float = 0.0
    given_up: float = 0.0
    death: float = 0.0
    sleep: float = 0.0


@dataclass(eq=False)
class Caller:
    """One call on its way; `events` are resolved again by another one if it dies."""

    events: Sequence[Query]
    call: Call
    polled_at: int = -1


@dataclass
class World:
    """Nodes and callers.

    Attributes:
        nodes: the nodes.
        chooser: decides what happens next.
        layout: the tables.
        chances: of what goes wrong.
        make_call: makes a call; tests give broken ones.
        now_us: the clock of all nodes.
        callers: calls that are not done.
        late: requests that were given up and may still be carried out.
        answered: for each event the clusters that callers were answered, and whether it was new.
        steps: carried out so far.
        deaths: of callers.
    """

    nodes: list[Node]
    chooser: Chooser
    layout: Layout = LAYOUT
    chances: Chances = field(default_factory=Chances)
    make_call: Callable[..., Call] = Call
    now_us: int = 0
    callers: list[Caller] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    answered: dict[Position, list[tuple[int, bool]]] = field(default_factory=dict)
    steps: int = 0
    deaths: int = 0
    _callers: int = 0
    _worked_at: int = 0

    def __post_init__(self) -> None:
        self.places = Places(KEY, len(self.nodes))

    def identity(self, event: Query) -> int:
        return self.places.identity(opened_id("test", event.group, event.position), event)

    def start(self, *events: Query) -> Caller:
        """Start a call."""
        self._callers += 1
        caller = Caller(
            events,
            self.make_call(
                events,
                [self.identity(event) for event in events],
                self.layout,
                since_us=self._callers,
                caller=self._callers,
            ),
        )
        self.callers.append(caller)
        return caller

    def run(self, most: int = 20_000, known: Callable[[World], bool] | None = None) -> None:
        """Go on until all calls are done, or the world is in a known state."""
        while self.callers:
            if known is not None and known(self):
                return
            assert self.steps < most, "the callers make no progress"
            self.step()

    def run_in_rounds(self) -> int:
        """Go on as one caller does, a round of requests at a time; return how many rounds."""
        (caller,) = self.callers
        rounds = 0
        while not caller.call.done:
            rounds += 1
            asked = caller.call.requests()
            for request, answer in zip(asked, map(self.carry_out, asked), strict=True):
                caller.call.answer(request, answer)
        self._end(caller)
        return rounds

    def step(self) -> None:
        """Carry out one request, or let something go wrong."""
        self.steps += 1
        self.now_us += STEP_US
        if self.chooser.happens(self.chances.sleep):
            self.now_us += LEASE_US
        if self.late and self.chooser.choose(4) == 0:
            self.carry_out(self.late.pop(self.chooser.choose(len(self.late))))
            return
        # One that waits asks again when another one has done something, or nobody else can.
        busy = [c for c in self.callers if not c.call.waits or c.polled_at < self._worked_at]
        if not busy:
            self.now_us += LEASE_US
        caller = self._pick(busy or self.callers)
        if self.chooser.happens(self.chances.death):
            self._die(caller)
            return
        requests = caller.call.requests()
        # What is tidied needs no order: all of it leads nowhere.
        tidies = isinstance(requests[0], Add | Remove | Withdraw)
        request = requests[0 if tidies else self.chooser.choose(len(requests))]
        if caller.call.waits:
            caller.polled_at = self.steps
        else:
            self._worked_at = self.steps
        if self.chooser.happens(self.chances.given_up):
            self.late.append(request)
            caller.call.lost(request)
            return
        answer = self.carry_out(request)
        if self.chooser.happens(self.chances.lost):
            caller.call.lost(request)
            return
        caller.call.answer(request, answer)
        if caller.call.done:
            self._end(caller)

    def _pick(self, callers: list[Caller]) -> Caller:
        return callers[self.chooser.choose(len(callers))]

    def _die(self, caller: Caller) -> None:
        """A caller dies; what it has sent may still be carried out. Another one takes over."""
        self.deaths += 1
        self.callers.remove(caller)
        self.late += [r for r in caller.call.requests() if self.chooser.happens(0.5)]
        self.start(*caller.events)

    def _end(self, caller: Caller) -> None:
        self.callers.remove(caller)
        for event, (found, opened, _) in zip(caller.events, caller.call.answers, strict=True):
            self.answered.setdefault(event.position, []).append((found.entry.identity, opened))

    def carry_out(self, request: Request) -> object:
        """Carry out a request on its node, and check what it has done."""
        node = self.nodes[self.places.of(request)]
        answer = node.carry_out(request, self.now_us)
        if isinstance(request, Open) and isinstance(answer, Found):
            self.check(request.entry.identity)
        return answer

    def check(self, identity: int) -> None:
        """Check that an open cluster is not a near twin of another one."""
        one = self.nodes[identity & 0xFF].clusters[identity].query
        for other_identity, other in self.open_clusters():
            bits = distance(one.fingerprint, other.fingerprint)
            is_near = one.near and other.near and bits <= self.layout.k
            if other_identity != identity and (is_near or one.exact == other.exact):
                raise TwinsError(f"{identity:x} and {other_identity:x} are near twins")

    def open_clusters(self) -> list[tuple[int, Query]]:
        """The open clusters: id, and the representative's query."""
        return [
            (identity, cluster.query)
            for node in self.nodes
            for identity, cluster in node.clusters.items()
            if cluster.is_open
        ]

    def close(self, identity: int) -> None:
        """Close a cluster and purge its entries."""
        for place in self.nodes[identity & 0xFF].close(identity):
            self.carry_out(Remove(*place))

    def state(self) -> Hashable:
        """Return all that decides how this world can go on."""
        nodes = [
            (
                frozenset((key, *one) for key, others in node.slices.items() for one in others),
                frozenset((i, c.ticket, c.is_open) for i, c in node.clusters.items()),
                frozenset((i, t, self.now_us < until) for i, (t, until) in node.intents.items()),
            )
            for node in self.nodes
        ]
        callers = [(_state(c.call), c.polled_at < self._worked_at) for c in self.callers]
        return tuple(nodes), frozenset(callers), tuple(self.late)

    def sweep(self) -> None:
        """Remove what dead callers have left."""
        for node in self.nodes:
            litter = node.litter(self.now_us)
            for place in litter:
                self.carry_out(Remove(*place))
            for entry in {entry for _, entry, _ in litter}:
                self.carry_out(Withdraw(entry))

    def stored(self) -> dict[int, int]:
        """How many entries lead to each cluster's id."""
        counts: dict[int, int] = {}
        for node in self.nodes:
            for entries in node.slices.values():
                for entry, _ in entries:
                    counts[entry.identity] = counts.get(entry.identity, 0) + 1
        return counts


def make_nodes(count: int, node: type[Node] = Node, layout: Layout = LAYOUT) -> list[Node]:
    """Make nodes."""
    return [node(layout) for _ in range(count)]


def _state(call: Call) -> Hashable:
    """Return all that decides how a call goes on."""
    return tuple(
        (row.entry, row.step, frozenset(row.asked), frozenset(row.waits), frozenset(row.seen),
         frozenset(row.judged), frozenset(row.found), frozenset(row.stale), row.answer)
        for row in call._rows
    )  # fmt: skip

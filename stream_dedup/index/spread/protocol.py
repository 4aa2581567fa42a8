"""Resolve queries whose tables are spread over many nodes: the caller's side, without I/O.

Problem: the tables of a group lie on one node, because a script that finds or opens a cluster has
to be atomic. A stream without groups is one group, so one core decides all of it.

Idea: tables and clusters lie on many nodes, by hash. A caller first inserts its own entries, under
a *ticket*, and reads what lies beside each of them, in one atomic step a slice. Of two events
within k bits one is the later one in a slice that they share, so it sees the other. Only the node
of a cluster's id decides whether that cluster opens: it holds the ticket of the attempt (its
*intent*), and whoever sees an attempt that has to yield deletes the ticket there. An attempt
without its ticket opens nothing, and begins again.

Each row of a call goes through these steps. Each request may be sent again, because it does the
same again; except `Begin`, which takes another ticket each time::

    1 Begin ──► 2 Judge (equal events) ──► 3 Offer ──► 4 Judge (near ones) ──► 5 Open ──► 7 Remove
       │            │                                      │                     │
       └ Joined     └───────────► 6 Join ◄─────────────────┘   lost: 7, then 1 ◄─┘
                                  │  gone: the next one, or 5
                                  └──► 7 Remove, Add ──► 8 Withdraw

`docs/sharding-by-fingerprint.md` has the proof, and what a crash between any two steps leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.simhash import distance
from stream_dedup.fingerprint.siphash import HashKey, fastest_siphash
from stream_dedup.index.base import Query
from stream_dedup.model import FoundBy
from stream_dedup.tables.permutation import Layout

EXACT = -1
"""The number of the table of exact hashes."""

MAX_NAMES = 256
"""As `Match.aliases` has it."""

MAX_VERIFIED = 64
"""As `Limits.max_verified` has it."""

NUMBER_BITS = 8
"""The last bits of a cluster's id: the number of its shard."""

LEASE_US = 2_000_000
"""How long an intent holds. An attempt takes three or four calls, some milliseconds; a caller that
takes longer than this only has to begin again."""

SWEEP_AFTER_US = 60_000_000
"""How old an attempt is when its entries are removed: no request of it is under way any more."""


class Ticket(NamedTuple):
    """Names one attempt to open a cluster; no other attempt ever has the same.

    Of two attempts the one with the lesser rank goes first. An attempt that begins again keeps its
    rank, so in the end it is the oldest, and nobody can make it yield.

    Attributes:
        since_us: the caller's clock when its call began.
        caller: a random number of the call.
        row: of the call.
        attempt: how often the row has begun.
    """

    since_us: int
    caller: int
    row: int
    attempt: int


class Entry(NamedTuple):
    """What leads to a cluster: its id, and the ticket under which it was or is to be opened.

    A cluster that is opened again has another ticket, so nothing of before leads to it.
    """

    identity: int
    ticket: Ticket


class Key(NamedTuple):
    """Where an entry is stored: entries with equal keys lie in one slice, on one node.

    Attributes:
        group: of the event.
        table: the table, or `EXACT`.
        bits: the fingerprint without the bits behind the table's prefix; or the exact hash.
    """

    group: str
    table: int
    bits: int


class Found(NamedTuple):
    """An open cluster that takes an event.

    Attributes:
        entry: its own.
        distance: of the fingerprints.
        similarity: of the sketches; 0 if the recipe does not verify.
        opened_us: when it was opened.
        last_us: when it was last seen.
        recorded: whether its opening was recorded.
        names: names of events that lead to it, so far; no more are counted than one beyond the cap.
    """

    entry: Entry
    distance: int
    similarity: float
    opened_us: int
    last_us: int
    recorded: bool
    names: int


class Answered(NamedTuple):
    """The answer to a query.

    Attributes:
        found: the cluster.
        opened: whether it was opened for the query's event, now or before.
        found_by: how it was found.
    """

    found: Found
    opened: bool
    found_by: FoundBy


class Neighbour(NamedTuple):
    """An entry that lies beside another one, with its fingerprint."""

    entry: Entry
    fingerprint: int


class Beside(list[Neighbour]):
    """Entries beside one, of which some were left out because there are too many."""


class Answer(Enum):
    """What a node may answer instead of a cluster."""

    WAIT = "an attempt that goes first is not decided yet: ask again"
    ABSENT = "nothing is open under this ticket, nor will be; or it does not take the event"
    STALE = "as ABSENT, and the entry may be removed"
    LOST = "the attempt has lost its ticket"
    FULL = "no cluster may be opened: too many closed ones wait for their final summary"
    DONE = "done"


def not_spread(recipe: Recipe) -> str:
    """Say why clusters of a recipe cannot lie on many nodes; nothing if they can."""
    if recipe.match.learn:
        return "learns words (match.learn), and so merges clusters, which lie on different shards"
    if recipe.fingerprint.kind == "bands":
        return "has fingerprints of kind bands, and near events need not share a slice of a table"
    return ""


# ------------------------------------------------------------ requests


class Begin(NamedTuple):
    """At the cluster's node: join the open cluster of an equal event there, or begin to open one.

    Notes the intent, with a lease, and inserts the event's entry into the table of exact hashes.
    Answer: `Found`; or a list of `Neighbour`, the other entries for the exact hash; or `WAIT`,
    while another caller that goes first is about to open the same cluster.
    """

    entry: Entry
    query: Query


class Offer(NamedTuple):
    """At a slice's node: insert an entry, and read those beside it within k bits.

    Answer: a list of `Neighbour`, without the entry itself.
    """

    key: Key
    entry: Entry
    fingerprint: int


class Judge(NamedTuple):
    """At the node of another cluster: does it take the event, or does its opener have to yield?

    Deletes the intent of an attempt that has to yield to the asker's, or whose lease has ended.
    Answer: `Found`, `WAIT`, `ABSENT` or `STALE`.
    """

    entry: Entry
    asker: Ticket
    query: Query
    equal: bool


class Open(NamedTuple):
    """At the cluster's node: open it, if its intent still has the ticket.

    Answer: `Found`, if it is open under this ticket; `LOST`; `FULL`; or `WAIT`, if it is open under
    another one and a commit that is not decided counts there.
    """

    entry: Entry
    query: Query
    is_cut: bool = False


class Join(NamedTuple):
    """At the node of another cluster: keep it live for the event, and count a name, if it is new.

    Answer: `Found`, as it was before, or `ABSENT` if it has closed meanwhile.
    """

    entry: Entry
    query: Query
    is_named: bool
    is_cut: bool = False


class Add(NamedTuple):
    """At a slice's node: insert an alias of a cluster. Answer: `DONE`."""

    key: Key
    entry: Entry
    fingerprint: int


class Remove(NamedTuple):
    """At a slice's node: remove an entry that leads nowhere. Answer: `DONE`."""

    key: Key
    entry: Entry
    fingerprint: int


class Withdraw(NamedTuple):
    """At the cluster's node: forget an attempt whose entries are removed. Answer: `DONE`."""

    entry: Entry


Request = Begin | Offer | Judge | Open | Join | Add | Remove | Withdraw


class Places:
    """Which node holds what.

    Args:
        key: of the namespace's hashes: nobody else can aim at one node.
        shards: how many there are.
    """

    def __init__(self, key: HashKey, shards: int) -> None:
        self.key = key
        self.shards = shards
        self._hash = fastest_siphash()

    def hash_of(self, key: Key) -> int:
        """Return the hash of a slice's name, of 64 bits."""
        packed = f"{key.table}:{key.bits}:{key.group}".encode("utf-8", "surrogatepass")
        return self._hash(self.key, packed)

    def of_key(self, key: Key) -> int:
        """Return the shard of a slice."""
        return self.hash_of(key) % self.shards

    def identity(self, opened_id: int, query: Query) -> int:
        """Return the id of the cluster that a query would open: it ends with its shard's number.

        That is the shard of its exact hash, so one request finds an equal event, or begins.
        """
        number = self.of_key(exact_key(query))
        return opened_id & ~((1 << NUMBER_BITS) - 1) | number

    def of(self, request: Request) -> int:
        """Return the shard to which a request goes."""
        if isinstance(request, Offer | Add | Remove):
            return self.of_key(request.key)
        return request.entry.identity & (1 << NUMBER_BITS) - 1


def exact_key(query: Query) -> Key:
    """Return where the exact hash of a query is stored."""
    return Key(query.group, EXACT, query.exact)


def table_keys(query: Query, layout: Layout) -> list[Key]:
    """Return where the fingerprint of a query is stored: nowhere, if it is not to be matched."""
    if not query.near:
        return []
    return [
        Key(query.group, table, query.fingerprint & mask) for table, mask in enumerate(layout.masks)
    ]


# ------------------------------------------------------------ the caller


class Step(Enum):
    """Where a row is; see the picture above."""

    BEGIN = 1
    JUDGE_EQUAL = 2
    OFFER = 3
    JUDGE_NEAR = 4
    OPEN = 5
    JOIN = 6
    TIDY = 7
    WITHDRAW = 8
    END = 9


@dataclass(slots=True)
class _Row:
    """A query on its way.

    Attributes:
        query: the query.
        entry: its own: the id, and the ticket of the attempt.
        step: the current step.
        asked: requests of the step that are not answered.
        waits: those of them that were last answered by `WAIT`.
        seen: entries beside its own; for each the keys where it was found, with its fingerprints.
        judged: those of them that were asked about.
        verified: how many of those were open, and did not have an equal event.
        is_cut: whether some were left out.
        found: open clusters that take the event.
        named: entries of those that an equal event has joined before: its names lead there.
        stale: of the entries it has seen, those that lead nowhere.
        offered: keys at which its own entries lie.
        complete: whether all of them were inserted, so that it may open.
        answer: the cluster.
        opened: whether it was opened for the query.
        found_by: how it was found.
    """

    query: Query
    entry: Entry
    step: Step = Step.BEGIN
    asked: dict[Request, None] = field(default_factory=dict)
    waits: set[Request] = field(default_factory=set)
    seen: dict[Entry, list[tuple[Key, int]]] = field(default_factory=dict)
    judged: set[Entry] = field(default_factory=set)
    verified: int = 0
    is_cut: bool = False
    found: list[Found] = field(default_factory=list)
    named: set[Entry] = field(default_factory=set)
    stale: list[Remove] = field(default_factory=list)
    offered: list[Key] = field(default_factory=list)
    complete: bool = False
    answer: Found | None = None
    opened: bool = False
    found_by: FoundBy = FoundBy.NEW


class Call:
    """Resolves queries: says what to ask the nodes, and takes their answers.

    While `done` is false: send `requests` in any order, give each answer to `answer`, and each
    request whose answer was lost to `lost`. While `waits` is true nothing else can be done than to
    ask again after a pause.

    Args:
        queries: the queries, in order; an earlier one goes first.
        identities: for each the id of the cluster that it would open.
        layout: the tables.
        since_us: the caller's clock.
        caller: a random number that no other call has.
        aliases: whether the fingerprints of joined events lead to their clusters: where sketches
            are verified.
        max_names: names of events that lead to a cluster, besides its representative's.
        max_verified: clusters that are judged for their fingerprints, if they are open: the
            nearest. At most four times as many entries are looked at. `Open` and `Join` say if
            some were left out.

    Attributes:
        full: whether a node may open no cluster: the call is to be given up.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        identities: Sequence[int],
        layout: Layout,
        *,
        since_us: int,
        caller: int,
        aliases: bool = False,
        max_names: int = MAX_NAMES,
        max_verified: int = MAX_VERIFIED,
    ) -> None:
        self._max_verified = max_verified
        self._layout = layout
        self._aliases = aliases
        self._max_names = max_names
        self._rows = [
            _Row(query, Entry(identity, Ticket(since_us, caller, row, 1)))
            for row, (query, identity) in enumerate(zip(queries, identities, strict=True))
        ]
        self._asking: dict[Request, list[_Row]] = {}  # two may ask the same of a stale entry
        self._attempts: dict[Entry, _Row] = {}
        self._seen_by: dict[Entry, list[_Row]] = {}
        self.full = False
        for row in self._rows:
            self._begin(row)

    @property
    def done(self) -> bool:
        """Whether every query is answered, and nothing is left to be tidied."""
        return not self._asking

    @property
    def waits(self) -> bool:
        """Whether all that is left to be asked waits for other callers."""
        rows = [row for row in self._rows if row.step is not Step.END]
        return bool(rows) and all(row.waits == row.asked.keys() for row in rows)

    @property
    def answers(self) -> list[Answered]:
        """The answer to each query."""
        answers = []
        for row in self._rows:
            assert row.answer is not None
            answers.append(Answered(row.answer, row.opened, row.found_by))
        return answers

    def requests(self) -> list[Request]:
        """Return what to ask now, rows in order: if some has to wait, earlier rows end first."""
        return list(dict.fromkeys(request for row in self._rows for request in row.asked))

    def lost(self, request: Request) -> None:
        """Note that the answer to a request was lost: it may be carried out, now or later."""
        if isinstance(request, Begin):
            # It may be carried out long after it was given up: nobody goes on under its ticket.
            for row in self._asking.get(request, ()):
                self._again(row)

    def answer(self, request: Request, answer: object) -> None:
        """Take an answer to a request."""
        rows = self._asking.get(request, ())  # none, if it was given up
        if answer is Answer.WAIT or (answer is Answer.ABSENT and self._may_change(rows, request)):
            for row in rows:
                row.waits.add(request)
            return
        self._asking.pop(request, None)
        for row in rows:
            row.waits.discard(request)
            del row.asked[request]
            self._take(row, request, answer)
            if isinstance(request, Judge) and not request.equal and answer is not Answer.STALE:
                row.verified += 1
            if not row.asked:
                self._advance(row)

    def _may_change(self, rows: Sequence[_Row], request: Request) -> bool:
        """Return whether a row before may join a cluster, so that it lives on for this one."""
        if not isinstance(request, Judge):
            return False
        last = min(row.entry.ticket.row for row in rows) if rows else 0
        return any(
            other.entry.ticket.row < last and other.step is not Step.END
            for other in self._seen_by.get(request.entry, ())
        )

    # ------------------------------------------------------------ one row

    def _begin(self, row: _Row) -> None:
        self._attempts[row.entry] = row
        row.seen, row.judged, row.found, row.stale, row.offered = {}, set(), [], [], []
        row.named = set()
        row.verified, row.is_cut = 0, False
        row.complete = not row.query.near
        self._go(row, Step.BEGIN, [Begin(row.entry, row.query)])

    def _again(self, row: _Row) -> None:
        """Begin again under another ticket."""
        for request in row.asked:
            del self._asking[request]  # a `Begin`, which no other row asks
        ticket = row.entry.ticket
        row.entry = row.entry._replace(ticket=ticket._replace(attempt=ticket.attempt + 1))
        self._begin(row)

    def _go(self, row: _Row, step: Step, requests: Sequence[Request]) -> None:
        row.step, row.asked, row.waits = step, dict.fromkeys(requests), set()
        for request in row.asked:
            self._asking.setdefault(request, []).append(row)
        if not requests:
            self._advance(row)

    def _take(self, row: _Row, request: Request, answer: object) -> None:
        match request, answer:
            case ((Begin() | Open() | Join()), Found() as found):
                row.answer, row.opened = found, found.entry.identity == row.entry.identity
                if isinstance(request, Join):
                    row.found_by = (
                        FoundBy.EXACT if found.entry in row.named else FoundBy.FINGERPRINT
                    )
                else:
                    # Another text at its position may have opened it before.
                    its_own = row.opened and not found.distance
                    row.found_by = FoundBy.NEW if its_own else FoundBy.EXACT
            case Open(), Answer.FULL:
                self.full = True
            case Begin(), list() as neighbours:
                row.offered = [exact_key(row.query)]
                self._see(row, row.offered[0], neighbours)
            case Offer(), list() as neighbours:
                self._see(row, request.key, neighbours)
            case Judge(), Found() as found:
                row.found.append(found)
                if request.equal:
                    row.named.add(found.entry)
            case Judge(), Answer.STALE:
                row.stale += [
                    Remove(key, request.entry, fingerprint)
                    for key, fingerprint in row.seen[request.entry]
                ]
                self._follow(row, request)
            case Join(), _:
                row.found = [found for found in row.found if found.entry != request.entry]

    def _see(self, row: _Row, key: Key, neighbours: Sequence[Neighbour]) -> None:
        row.is_cut = row.is_cut or isinstance(neighbours, Beside)
        for entry, fingerprint in neighbours:
            if entry not in row.seen:
                row.seen[entry] = []
                self._seen_by.setdefault(entry, []).append(row)
            row.seen[entry].append((key, fingerprint))

    def _follow(self, row: _Row, request: Judge) -> None:
        """If an earlier row of this call has joined a cluster, that one may take this event too."""
        other = self._attempts.get(request.entry)
        if other is None or other.answer is None or other.opened:
            return
        entry = other.answer.entry
        if entry not in row.seen:
            row.seen[entry] = []
            self._seen_by.setdefault(entry, []).append(row)
            row.judged.add(entry)
            judge = request._replace(entry=entry)
            row.asked[judge] = None
            self._asking[judge] = [row]

    def _advance(self, row: _Row) -> None:
        """Go to the next step: all requests of this one are answered."""
        match row.step:
            case Step.BEGIN if row.answer is None:
                self._judge(row, Step.JUDGE_EQUAL)
            case Step.JUDGE_NEAR if row.verified < self._max_verified and self._left(row):
                self._judge(row, Step.JUDGE_NEAR)
            case Step.JUDGE_EQUAL | Step.JUDGE_NEAR:
                row.is_cut = row.is_cut or (
                    row.step is Step.JUDGE_NEAR and bool(self._unjudged(row))
                )
                self._settle(row)
            case Step.OFFER:
                row.complete = True
                self._judge(row, Step.JUDGE_NEAR)
            case Step.JOIN if row.answer is None:  # it has closed since it was judged
                self._settle(row)
            case Step.OPEN | Step.JOIN:
                self._tidy(row)
            case Step.TIDY if row.answer is None:
                self._again(row)
            case Step.TIDY if row.answer and row.answer.entry != row.entry:
                self._go(row, Step.WITHDRAW, [Withdraw(row.entry)])
            case _:
                row.step = Step.END

    def _judge(self, row: _Row, step: Step) -> None:
        """Judge the entries that were seen and are not judged: first those of equal events."""
        entries = self._unjudged(row)
        if step is Step.JUDGE_NEAR:
            entries = self._nearest(row, entries)
        row.judged.update(entries)
        ticket, equal = row.entry.ticket, step is Step.JUDGE_EQUAL
        self._go(row, step, [Judge(entry, ticket, row.query, equal) for entry in entries])

    def _unjudged(self, row: _Row) -> list[Entry]:
        return [entry for entry in row.seen if entry not in row.judged]

    def _left(self, row: _Row) -> bool:
        return len(row.judged) < 4 * self._max_verified and bool(self._unjudged(row))

    def _nearest(self, row: _Row, entries: list[Entry]) -> list[Entry]:
        """Of too many entries the nearest, and of equally near ones those that go first."""
        most = self._max_verified - row.verified
        if len(entries) <= most:
            return entries
        own = row.query.fingerprint

        def nearness(entry: Entry) -> tuple[int, Ticket]:
            bits = min(distance(own, fingerprint) for _, fingerprint in row.seen[entry])
            return bits, entry.ticket

        return sorted(entries, key=nearness)[:most]

    def _settle(self, row: _Row) -> None:
        """Join the best cluster that takes the event, or go on to open one."""
        if row.found:
            best = min(
                row.found, key=lambda f: (-f.similarity, f.distance, f.opened_us, f.entry.identity)
            )
            named = best.entry in row.named
            self._go(row, Step.JOIN, [Join(best.entry, row.query, named, row.is_cut)])
        elif row.complete:
            self._go(row, Step.OPEN, [Open(row.entry, row.query, row.is_cut)])
        else:
            keys, fingerprint = table_keys(row.query, self._layout), row.query.fingerprint
            row.offered += keys
            self._go(row, Step.OFFER, [Offer(key, row.entry, fingerprint) for key in keys])

    def _tidy(self, row: _Row) -> None:
        """Remove the entries that lead nowhere; the names of a joined event lead to its cluster."""
        query, fingerprint = row.query, row.query.fingerprint
        requests: list[Request] = list(row.stale)
        if row.answer is None or row.answer.entry != row.entry:
            requests += [Remove(key, row.entry, fingerprint) for key in row.offered]
        answer = row.answer
        is_joined = answer is not None and answer.entry not in (row.entry, *row.named)
        if answer is not None and is_joined and answer.names <= self._max_names:
            names = [exact_key(query)]
            if self._aliases and answer.distance:
                names += table_keys(query, self._layout)
            requests += [Add(key, answer.entry, fingerprint) for key in names]
        self._go(row, Step.TIDY, requests)

"""The engine decides alike over every index, and goes on when one loses its data."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable
from stream_dedup.features.recipe import load_recipe
from stream_dedup.features.recipe import replace as replace_recipe
from stream_dedup.features.values import SlotReader
from stream_dedup.index.base import Index
from stream_dedup.model import Batch, Decision, Kind, Partition, Summary
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.rules.ruleset import RuleSet
from tests.contract.driver import ADAPTERS, START_US, WIDE, S, Setup
from tests.services.redis import RedisServer
from tests.strategies import HOSTILE_TEXTS

EXAMPLES = Path(__file__).parents[2] / "examples" / "logs"
HERE = Partition("input", 0)
LINES = [
    line
    for file in sorted(EXAMPLES.glob("*.log.gz"))
    for line in gzip.decompress(file.read_bytes()).splitlines()[:700]
]
BATCH = 500
SETUP = Setup(load_recipe("logs"))
TEXTS = Setup(load_recipe("text"))
LEARNS = Setup(replace_recipe(load_recipe("logs"), match__learn=5, match__jaccard=0.9))


def batches() -> list[Batch]:
    return [
        Batch(
            HERE,
            range(start, start + len(LINES[start : start + BATCH])),
            LINES[start : start + BATCH],
            groups=[
                "" if n % 3 else '{"host":"a"}' for n in range(len(LINES[start : start + BATCH]))
            ],
        )
        for start in range(0, len(LINES), BATCH)
    ]


def over(index: Index, near_cache_size: int = 10_000, setup: Setup = SETUP) -> Engine:
    return Engine(
        setup.recipe,
        index,
        windows=setup.windows,
        summaries=setup.summaries,
        clock=ManualClock(START_US),
        near_cache_size=near_cache_size,
    )


def expected(setup: Setup) -> tuple[list[Decision], list[Summary]]:
    dedup = Deduplicator(setup.recipe, windows=setup.windows, clock=ManualClock(START_US))
    decisions = [decision for batch in batches() for decision in dedup.process_batch(batch)]
    return decisions, dedup.close(patterns=False)


@pytest.mark.parametrize("setup", [SETUP, LEARNS], ids=["logs", "learns"])
@pytest.mark.parametrize("near_cache_size", [0, 50, 10_000])
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "memory"])
def test_real_logs_are_decided_and_counted_as_in_memory(
    name: str, near_cache_size: int, setup: Setup, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def through() -> tuple[list[Decision], list[Summary]]:
        async with opens(setup) as index:
            engine = over(index, near_cache_size, setup)
            decisions = [d for batch in batches() for d in await engine.process(batch)]
            await index.finish(START_US)
            summaries = []
            while due := await engine.claim_summaries():
                await engine.confirm_summaries(due)
                summaries += due
            return decisions, summaries

    decisions, summaries = expected(setup)
    got_decisions, got_summaries = asyncio.run(through())
    # What is learned in the middle of a batch is seen by events that the near cache does not know.
    assert decisions == [decision._replace(template=None) for decision in got_decisions]
    assert _counts(summaries) == _counts(got_summaries)


@pytest.mark.parametrize("name", ADAPTERS)
def test_variants_are_kept_apart_and_groups_stay_as_given(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    text = b"job nightly-backup of volume data on host web finished with status"
    values = [text + b" OK", text + b" FAILED", b'GET "/a HTTP/1.1" 200', b'GET "/a HTTP/1.1" 503']
    group = '{"host":"a"}'

    async def through() -> tuple[list[Decision], list[Summary]]:
        async with opens(SETUP) as index:
            engine = over(index)
            batch = Batch(HERE, range(8), values * 2, groups=[group] * 8)
            decisions = await engine.process(batch)
            await index.finish(START_US)
            return decisions, await engine.claim_summaries()

    decisions, summaries = asyncio.run(through())
    assert [decision.kind for decision in decisions] == [Kind.NEW] * 4 + [Kind.DUPLICATE] * 4
    assert [(summary.group, summary.count) for summary in summaries] == [(group, 2)] * 4


@pytest.mark.parametrize("name", ADAPTERS)
def test_hostile_texts_are_decided_and_counted(name: str, request: pytest.FixtureRequest) -> None:
    opens, count = ADAPTERS[name].bind(request), len(HOSTILE_TEXTS)

    async def through() -> tuple[list[Decision], list[Summary]]:
        async with opens(TEXTS) as index:
            engine = over(index, near_cache_size=0, setup=TEXTS)
            values = [*HOSTILE_TEXTS, *(text + b" and more" for text in HOSTILE_TEXTS)]
            decisions = await engine.process(Batch(HERE, range(2 * count), values))
            decisions += await engine.process(Batch(HERE, range(2 * count, 4 * count), values))
            await index.finish(START_US)
            return decisions, engine.describe(await engine.claim_summaries())

    decisions, summaries = asyncio.run(through())
    first, second = decisions[: 2 * count], decisions[2 * count :]
    assert {decision.kind for decision in first[:count]} == {Kind.NEW}
    assert [decision.cluster for decision in first] == [decision.cluster for decision in second]
    assert {decision.kind for decision in second} == {Kind.DUPLICATE}
    assert sum(summary.count for summary in summaries) == len(decisions)
    assert all(summary.pattern for summary in summaries)


@pytest.mark.parametrize("name", ADAPTERS)
def test_templates_are_the_same_for_all_workers_and_redelivered_ones(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    users = [f"ERROR session closed for user {u}".encode() for u in ("al", "bo", "cy", "di", "ed")]
    other = Partition("input", 1)

    async def through() -> None:
        async with opens(LEARNS) as index:
            first, second = over(index, setup=LEARNS), over(index, setup=LEARNS)
            opened = [
                (await first.process(Batch(HERE, range(n, n + 1), [user]), 0))[0]
                for n, user in enumerate(users)
            ]
            (joined,) = await second.process(Batch(other, range(1), [users[0]]))
            (learned,) = await second.process(Batch(other, range(1, 2), [b"INFO" + users[0][5:]]))
            again = await second.process(Batch(HERE, range(5), users), 0)
            third = Partition("input", 2)
            later = await first.process(Batch(third, range(2), [users[1], users[4]]))
            await index.finish(START_US)
            due = first.describe(await first.claim_summaries())

            templates = [decision.template for decision in opened]
            assert (
                len(set(templates)) == 5
            )  # each time a user more is known, and at last a variable
            assert [decision.template for decision in again] == templates
            assert joined.template == templates[4] != learned.template
            assert [decision.template for decision in later] == [templates[4]] * 2
            roots = [each for each in due if each.merged_into is None]
            assert {each.template for each in roots} == {templates[4], learned.template}
            assert {each.variant for each in roots} == {("ERROR",), ("INFO",)}

    asyncio.run(through())


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_event_of_a_cluster_not_recorded_yet_has_its_own_template(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    other = Partition("input", 1)

    async def through() -> tuple[Decision, Decision]:
        async with opens(SETUP) as index:
            both: Any = LosesAnswers(index, "resolve")
            first, second = over(both), over(index)
            with pytest.raises(IndexUnavailable):
                await first.process(Batch(HERE, range(1), [b"disk 7 is full"]))
            (joined,) = await second.process(Batch(other, range(1), [b"disk 8 is full"]))
            (again,) = await first.process(Batch(HERE, range(1), [b"disk 7 is full"]))
            return joined, again

    joined, again = asyncio.run(through())
    assert joined.template == again.template is not None


@pytest.mark.parametrize("name", ADAPTERS)
def test_parameters_are_of_the_event_and_its_decision_alone(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    users = [f"session 7 closed for user {u}".encode() for u in ("al", "bo", "cy", "di", "ed")]
    reader = SlotReader(LEARNS.recipe)

    def shown(decisions: list[Decision]) -> list[list[str]]:
        pairs = zip(users, decisions, strict=True)
        return [[value for _, value in reader.parameters(user, d.varied)] for user, d in pairs]

    def engine(index: Index) -> Engine:
        return Engine(
            LEARNS.recipe, index, windows=LEARNS.windows, summaries=LEARNS.summaries,
            clock=ManualClock(START_US), parameters=True,
        )  # fmt: skip

    async def through() -> tuple[list[Decision], list[Decision], list[Decision]]:
        async with opens(LEARNS) as index:
            first, second = engine(index), engine(index)
            opened = [
                (await first.process(Batch(HERE, range(n, n + 1), [user]), 0))[0]
                for n, user in enumerate(users)
            ]
            again = await second.process(Batch(HERE, range(5), users), 0)
            later = await second.process(Batch(HERE, range(5, 10), users), 0)
            return opened, again, later

    opened, again, later = asyncio.run(through())
    assert shown(opened) == [["7"], ["7"], ["7"], ["7"], ["7", "ed"]]
    assert opened == again
    assert shown(later) == [["7", user] for user in ("al", "bo", "cy", "di", "ed")]


class LosesAnswers:
    """An index of which the answer of one call gets lost."""

    def __init__(self, index: Index, call: str) -> None:
        self._index = index
        self._call = call

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._index, name)
        if name != self._call:
            return method
        self._call = ""

        async def lost(*args: Any) -> None:
            await method(*args)
            raise IndexUnavailable("the answer was lost")

        return lost

    def lose(self, call: str) -> None:
        """Lose the next answer of a call."""
        self._call = call


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("call", ["resolve", "record"])
def test_the_first_event_that_is_recorded_is_new(
    name: str, call: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    first = Batch(HERE, range(1), [b"disk 1 is full"])
    like = Batch(Partition("input", 1), range(2), [b"disk 2 is full", b"disk 3 is full"])

    async def through() -> None:
        async with opens(SETUP) as index:
            both: Any = LosesAnswers(index, call)
            engine = Engine(
                SETUP.recipe, both, windows=SETUP.windows, summaries=SETUP.summaries,
                clock=ManualClock(START_US),
            )  # fmt: skip
            with pytest.raises(IndexUnavailable):
                await engine.process(first)
            kinds = [d.kind for d in await engine.process(like) + await engine.process(first)]
            order = [0, 1, 2] if call == "resolve" else [2, 0, 1]  # who was recorded first
            expected = [Kind.NEW, Kind.DUPLICATE, Kind.DUPLICATE]
            assert [kinds[place] for place in order] == expected
            await engine.process(Batch(HERE, range(1, 2), [b"disk 4 is full"]))
            await index.finish(START_US)
            assert [summary.count for summary in await engine.claim_summaries()] == [4]

    asyncio.run(through())


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("committed", [None, 0])
def test_a_commit_whose_answer_was_lost_decides_the_retry(
    name: str, committed: int | None, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    setup = replace(SETUP, limits=replace(SETUP.limits, max_clusters=1))
    lines = [
        b"disk 1 is full",
        b"user bob has logged in",
        b"disk 2 is full",
        b"",
        b"disk 3 is full",
    ]

    async def through() -> None:
        async with opens(setup) as index:
            lossy: Any = LosesAnswers(index, "")
            one, other = over(lossy), over(index)
            await one.process(Batch(HERE, range(1), lines[:1]), committed=committed)
            lossy.lose("record")
            batch = Batch(HERE, range(1, 5), lines[1:])
            with pytest.raises(IndexUnavailable):
                await one.process(batch, committed=committed)
            # Closes what the commit has counted.
            await other.process(Batch(Partition("input", 1), range(1), [b"out of memory"]))
            decisions = await one.process(batch, committed=committed)
            await index.finish(START_US)
            summaries = {s.cluster: s.count for s in await one.claim_summaries()}
            kinds = [decision.kind for decision in decisions]
            assert kinds == [Kind.NEW, Kind.DUPLICATE, Kind.PASSED, Kind.DUPLICATE]
            assert decisions[1] == decisions[3]
            counts = one.counts
            assert (counts.events, counts.new, counts.duplicates) == (5, 2, 2)
            assert (sum(counts.passed.values()), counts.redelivered, counts.replayed) == (1, 0, 0)
            assert summaries[decisions[1].cluster or 0] == 3
            assert len(summaries) == 3

    asyncio.run(through())


USERS = ["alice", "bob", "carol", "dave", "erin", "frank", "gina", "hugo"]


def sessions(partition: int, offset: int, *users: str) -> Batch:
    values = [b"session closed for user %b" % user.encode() for user in users]
    offsets, times_us = range(offset, offset + len(users)), [START_US - partition] * len(users)
    return Batch(Partition("input", partition), offsets, values, times_us)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_lost_commit_of_an_opening_that_merged_stays_new(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def through() -> tuple[list[Decision], list[Summary]]:
        async with opens(LEARNS) as index:
            lossy: Any = LosesAnswers(index, "")
            one, other = over(lossy, setup=LEARNS), over(index, setup=LEARNS)
            await other.process(sessions(1, 0, "alice"), committed=0)
            lossy.lose("record")
            with pytest.raises(IndexUnavailable):
                await one.process(sessions(0, 0, "bob", "bob"), committed=0)
            await other.process(sessions(1, 1, *USERS[2:5]), committed=0)
            decisions = await one.process(sessions(0, 0, "bob", "bob"), committed=0)
            decisions += await one.process(sessions(0, 2, "bob"), committed=0)
            await index.finish(START_US)
            return decisions, await one.claim_summaries()

    decisions, summaries = asyncio.run(through())
    kinds = [decision.kind for decision in decisions]
    bob = next(summary for summary in summaries if summary.cluster == decisions[0].cluster)
    assert kinds == [Kind.NEW, Kind.DUPLICATE, Kind.DUPLICATE]
    assert (bob.count, bob.merged_into) == (2, decisions[2].cluster)
    assert sum(summary.count for summary in summaries) == 7


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ADAPTERS)
def test_counts_add_up_however_workers_merge_and_lose_answers(
    name: str, seed: int, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    draw = random.Random(seed)

    async def through() -> tuple[int, list[Summary]]:
        summaries: list[Summary] = []
        async with opens(LEARNS) as index:
            lossy = [LosesAnswers(index, "") for _ in range(3)]
            engines = [over(each, setup=LEARNS) for each in lossy]
            offsets = [0, 0, 0]
            for _ in range(60):
                number = draw.randrange(3)
                users = [f"{draw.choice(USERS)}{draw.choice('abc')}" for _ in range(4)]
                batch = sessions(number, offsets[number], *users)
                offsets[number] += 4
                if draw.random() < 0.4:
                    lossy[number].lose(draw.choice(["resolve", "record"]))
                if draw.random() < 0.2:  # another worker takes the partition over
                    await engines[number].claim_partition(batch.partition)
                try:
                    await engines[number].process(batch, committed=0)
                except IndexUnavailable:
                    await engines[number].process(batch, committed=0)
                if draw.random() < 0.2:
                    due = await engines[number].claim_summaries()
                    await engines[number].confirm_summaries(due)
                    summaries += due
            await index.finish(START_US)
            while due := await engines[0].claim_summaries():
                await engines[0].confirm_summaries(due)
                summaries += due
        return sum(offsets), summaries

    events, summaries = asyncio.run(through())
    assert sum(summary.new_count for summary in summaries) == events
    assert len({(summary.cluster, summary.revision) for summary in summaries}) == len(summaries)
    gone = {s.cluster: s.count for s in summaries if s.merged_into is not None}
    assert gone == dict(entry for summary in summaries for entry in summary.merged)


SHORT = Setup(LEARNS.recipe, Windows(idle_us=100 * S), Summaries(every_us=None))
OF_JSON = replace(
    SHORT,
    recipe=replace_recipe(SHORT.recipe, input__fields=[{"path": "text"}], match__variants=[]),
)
BARELY_KEPT = replace(SHORT, summaries=Summaries(every_us=None, max_value_bytes=20))


class Closed(NamedTuple):
    """The final summaries of a line that came early, as often as they were claimed; the root's.

    Also how many summaries the first claim returned.
    """

    early: list[Summary]
    root: Summary
    first: int


async def closed_early(engine: Engine, setup: Setup, *rules: PatternRule) -> Closed:
    """Let a line close that came before its words were known to vary together.

    The rules are given just before it is claimed.
    """
    names = [f"{letter}oe" for letter in ascii_lowercase]
    pairs = [("nobody", "music"), *((name, "logs") for name in names[:5])]
    pairs += [(name, f"{name}-bucket") for name in names]
    lines = [f"user {user} uploaded a file to {bucket}" for user, bucket in pairs]
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    for offset, line in enumerate([*lines, "the end"]):
        clock.advance({1: 90, len(lines): 60}.get(offset, 0))
        document = {"text": line}
        value = json.dumps(document) if engine.takes_fields else line
        await engine.process(Batch(HERE, [offset], [value.encode()], documents=[document]))
    engine.use_rules(RuleSet(rules))
    claimed = await engine.claim_summaries()
    first = len(claimed)
    clock.advance(setup.summaries.lease_us / S + 1)
    claimed += await engine.claim_summaries()
    await engine.confirm_summaries(claimed)
    await engine.index.finish(clock.now_us())
    early = [one for one in claimed if one.position.offset == 0]
    (root,) = [one for one in await engine.claim_summaries() if one.learned]
    return Closed(early, root, first)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("setup", [SHORT, OF_JSON], ids=["lines", "json"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_line_from_before_words_varied_merges_as_it_closes(
    name: str, setup: Setup, request: pytest.FixtureRequest, *, is_lost: bool
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def through() -> Closed:
        async with opens(setup) as index:
            lossy = LosesAnswers(index, "merge_fitting" if is_lost else "")
            return await closed_early(over(lossy, setup=setup), setup)

    early, root, first = asyncio.run(through())
    assert first  # other summaries do not wait
    assert [one.merged_into for one in early] == [root.cluster] * (1 if is_lost else 2)
    assert (early[0].cluster, 1) in root.merged


APART = PatternRule(
    RuleKind.NEVER_MERGE,
    ("user nobody uploaded a file to music", "user <*> uploaded a file to <*>"),
)


@pytest.mark.parametrize(
    ("setup", "rules"), [(BARELY_KEPT, []), (SHORT, [APART])], ids=["cut short", "by a rule"]
)
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_line_that_is_cut_short_or_kept_apart_stays(
    name: str, setup: Setup, rules: list[PatternRule], request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)

    async def through() -> Closed:
        async with opens(setup) as index:
            return await closed_early(over(index, setup=setup), setup, *rules)

    early, root, _ = asyncio.run(through())
    assert [one.merged_into for one in early] == [None, None]
    assert early[0].cluster not in dict(root.merged)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("tombstone", [False, True])
def test_times_of_a_cluster_do_not_depend_on_the_order(
    name: str, tombstone: bool, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    setup = replace(SETUP, windows=WIDE, summaries=Summaries(samples=0))
    disk, user = b"disk %d is full", b"user %d has logged in"
    batches = [
        [(disk, 40), (user, 41), (disk, 42), (user, 43)],
        [(disk, 50), (user, 10), (disk, 20), (user, 90)],
        [(user, 60), (disk, 15), (user, 95), (disk, 70)],
    ]

    async def through() -> dict[bytes, tuple[int, float, float]]:
        async with opens(setup) as index:
            engine = Engine(
                setup.recipe, index, windows=setup.windows, summaries=setup.summaries,
                clock=ManualClock(START_US + 100 * S),
            )  # fmt: skip
            for number, events in enumerate(batches):
                times = [START_US + second * S for _, second in events]
                values = [text % second for text, second in events]
                batch = Batch(HERE, range(4 * number, 4 * number + 4), values, times)
                if tombstone:
                    batch.passed = {2: "tombstone"}
                await engine.process(batch)
            await index.finish(START_US)
            return {
                s.representative: (s.count, s.first_time_us / S, s.last_time_us / S)
                for s in await engine.claim_summaries()
            }

    def reported(text: bytes) -> tuple[int, float, float]:
        seconds = [
            second
            for events in batches
            for place, (each, second) in enumerate(events)
            if each is text and not (tombstone and place == 2)
        ]
        return len(seconds), START_US / S + min(seconds), START_US / S + max(seconds)

    assert {disk % 40: reported(disk), user % 41: reported(user)} == asyncio.run(through())


def test_an_index_that_lost_its_data_starts_again_empty(redis_server: RedisServer) -> None:
    async def through() -> tuple[int, int, int]:
        async with ADAPTERS["redis"].opens(SETUP, redis_server) as index:
            engine = over(index)
            first, second, *_ = batches()
            await engine.process(first)
            redis_server.command("FLUSHALL")
            decisions = await engine.process(second)
            await index.finish(START_US)
            summaries = await engine.claim_summaries()
            return index.resets, len(decisions), sum(summary.count for summary in summaries)

    passed = sum(not line.strip() for line in LINES[BATCH : 2 * BATCH])
    assert asyncio.run(through()) == (1, BATCH, BATCH - passed)


def _counts(summaries: list[Summary]) -> dict[int, tuple[int, bytes, int, str]]:
    return {s.cluster: (s.count, s.representative, len(s.samples), s.group) for s in summaries}


def unlike_lines(count: int) -> list[bytes]:
    """Lines of six words, of which no two have one in common."""
    draw = random.Random(7)
    return [
        " ".join("".join(draw.choices(ascii_lowercase, k=8)) for _ in range(6)).encode()
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", ADAPTERS)
def test_messages_behind_a_level_and_a_dash_are_no_more_alike(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    messages = ("Received packet from peer", "Received malformed packet from peer")
    lines = [
        b"2024-05-01 10:00:0%d INFO Session - %b" % (number % 10, messages[number % 2].encode())
        for number in range(20)
    ]

    async def through() -> tuple[int, int]:
        async with opens(SETUP) as index:
            engine = over(index)
            await engine.process(Batch(HERE, range(len(lines)), lines))
            return engine.counts.new, engine.counts.duplicates

    assert asyncio.run(through()) == (2, 18)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "memory"])
def test_partitions_that_begin_together_ask_about_equal_events_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens, lines = ADAPTERS[name].bind(request), unlike_lines(100)

    async def through() -> tuple[int, int, int]:
        async with opens(SETUP) as index:
            engine = over(index)
            parts = [Batch(Partition("input", n), range(len(lines)), lines) for n in range(4)]
            await asyncio.gather(*map(engine.process, parts))
            return engine.counts.asked, engine.counts.new, engine.counts.duplicates

    assert asyncio.run(through()) == (100, 100, 300)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "memory"])
def test_partitions_that_join_ask_about_equal_events_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens, lines = ADAPTERS[name].bind(request), unlike_lines(120)

    async def through() -> tuple[int, int, int]:
        async with opens(SETUP) as index:
            engine = over(index)
            await engine.process(Batch(Partition("input", 4), range(100), lines[:100]))
            parts = [Batch(Partition("input", n), range(len(lines)), lines) for n in range(4)]
            await asyncio.gather(*(engine.claim_partition(part.partition) for part in parts))
            await asyncio.gather(*map(engine.process, parts))
            return engine.counts.asked, engine.counts.new, engine.counts.duplicates

    assert asyncio.run(through()) == (120, 120, 460)

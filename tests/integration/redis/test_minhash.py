"""By least hashes over every index: the same clusters as in memory, one look-up an item."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import IndexUnavailable
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Index, Limits
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.namespace import plan_layout
from stream_dedup.model import Batch, Decision, Kind, Partition
from tests.contract.driver import ADAPTERS, START_US, WIDE, Setup
from tests.integration.redis.helpers import NAMESPACE, keys_of, opened
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]

HERE = Partition("input", 0)
RECIPE = replace(
    load_recipe("logs"),
    fingerprint__kind="minhash",
    fingerprint__least=3,
    match__k=0,
    match__jaccard=0.0,
    match__learn=0,
)
LIMITS = Limits(max_clusters=20_000)
SETUP = Setup(RECIPE, windows=WIDE, limits=LIMITS)

EXAMPLES = Path(__file__).parents[3] / "examples" / "logs"
LINES = [
    line
    for file in sorted(EXAMPLES.glob("*.log.gz"))
    for line in gzip.decompress(file.read_bytes()).splitlines()[:300]
]
GROUPS = ["" if number % 3 else '{"host":"a"}' for number in range(len(LINES))]


def engine_over(index: Index, near_cache_size: int = 10_000) -> Engine:
    return Engine(
        RECIPE,
        index,
        windows=WIDE,
        summaries=Summaries(),
        clock=ManualClock(START_US),
        near_cache_size=near_cache_size,
    )


async def fed(
    engine: Engine, order: Sequence[int], size: int, groups: Sequence[str] = GROUPS
) -> list[Decision]:
    """The decisions of the lines, put in in an order, so many at a time."""
    decisions: list[Decision] = []
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        batch = Batch(
            HERE,
            range(start, start + len(chosen)),
            [LINES[number] for number in chosen],
            groups=[groups[number] for number in chosen],
        )
        decisions += await engine.process(batch)
    return decisions


def together(order: Sequence[int], decisions: Sequence[Decision]) -> set[frozenset[int]]:
    clusters: dict[int | None, set[int]] = defaultdict(set)
    for number, decision in zip(order, decisions, strict=True):
        if decision.cluster is not None:
            clusters[decision.cluster].add(number)
    return {frozenset(numbers) for numbers in clusters.values()}


# ---------------------------------------------------------------- over every index


@pytest.mark.parametrize("near_cache_size", [0, 10_000])
@pytest.mark.parametrize("name", ADAPTERS)
def test_real_logs_are_decided_as_in_memory(
    name: str, near_cache_size: int, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    dedup = Deduplicator(RECIPE, windows=WIDE, clock=ManualClock(START_US), templates=True)
    expected = dedup.process(LINES, groups=GROUPS)

    async def through() -> list[Decision]:
        async with opens(SETUP) as index:
            return await fed(engine_over(index, near_cache_size), range(len(LINES)), 400)

    assert asyncio.run(through()) == expected


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_order_of_items_does_not_change_their_clusters(
    name: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    rng = random.Random(4)
    order = list(range(0, len(LINES), 2))

    async def through() -> set[frozenset[int]]:
        async with opens(SETUP) as index:
            size = rng.randrange(50, 600)
            return together(order, await fed(engine_over(index), order, size))

    expected = asyncio.run(through())
    assert 100 < len(expected) < len(order) / 2
    for _ in range(3):
        rng.shuffle(order)
        assert asyncio.run(through()) == expected


@pytest.mark.parametrize("name", ADAPTERS)
def test_one_item_more_never_moves_another(name: str, request: pytest.FixtureRequest) -> None:
    opens = ADAPTERS[name].bind(request)
    rng = random.Random(5)
    order = rng.sample(range(len(LINES)), 400)
    (extra,) = rng.sample(sorted(set(range(len(LINES))) - {*order}), 1)

    async def through(numbers: list[int]) -> set[frozenset[int]]:
        async with opens(SETUP) as index:
            return together(numbers, await fed(engine_over(index), numbers, 100))

    before = asyncio.run(through(order))
    for place in (0, 200, 400):
        after = asyncio.run(through([*order[:place], extra, *order[place:]]))
        assert {numbers - {extra} for numbers in after} - {frozenset()} == before


class LosesAnswer:
    """An index of which the answer of one call gets lost."""

    def __init__(self, index: Index, call: str) -> None:
        self._index = index
        self._call = call

    def __getattr__(self, name: str) -> object:
        method = getattr(self._index, name)
        if name != self._call:
            return method
        self._call = ""

        async def lost(*args: object) -> None:
            await method(*args)
            raise IndexUnavailable("the answer was lost")

        return lost


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("call", ["resolve", "record"])
def test_the_first_item_that_is_recorded_is_new_again(
    name: str, call: str, request: pytest.FixtureRequest
) -> None:
    opens = ADAPTERS[name].bind(request)
    first = Batch(HERE, range(1), [b"disk sda is full"])
    like = Batch(Partition("input", 1), range(2), [b"full is disk sda", b"disk is full sda"])

    async def through() -> list[list[Kind]]:
        async with opens(SETUP) as index:
            dying = engine_over(LosesAnswer(index, call))  # type: ignore[arg-type]
            other, next_one = engine_over(index), engine_over(index)
            with pytest.raises(IndexUnavailable):
                await dying.process(first, committed=0)
            decided = [
                await other.process(like),
                await next_one.process(first, committed=0),
                await engine_over(index).process(first, committed=0),
            ]
            await index.finish(START_US)
            assert [summary.count for summary in await next_one.claim_summaries()] == [3]
            return [[decision.kind for decision in decisions] for decisions in decided]

    new, duplicate = Kind.NEW, Kind.DUPLICATE
    if call == "resolve":  # others are recorded first
        expected = [[new, duplicate], [duplicate], [duplicate]]
    else:
        expected = [[duplicate] * 2, [new], [new]]
    assert asyncio.run(through()) == expected


# ---------------------------------------------------------------- what it costs Redis


def different(start: int, count: int) -> list[bytes]:
    """Texts of which each has five words of its own."""
    letters = str.maketrans("0123456789", "abcdefghij")
    return [
        " ".join(f"{number * 5 + i:07d}" for i in range(5)).translate(letters).encode()
        for number in range(start, start + count)
    ]


def commands_of(server: RedisServer) -> dict[str, int]:
    """How often each command was called, those within scripts too."""
    stats = server.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): int(numbers.split("calls=")[1].split(",")[0])
        for name, numbers in stats.items()
    }


def test_the_commands_an_item_takes_do_not_grow_with_the_index(
    make_redis: MakeRedis,
) -> None:
    redis = make_redis()

    async def through() -> list[tuple[dict[str, int], dict[str, int]]]:
        async with opened(redis.url, RECIPE, windows=WIDE, limits=LIMITS) as index:
            engine = engine_over(index, near_cache_size=0)

            async def put(lines: list[bytes]) -> dict[str, int]:
                before = commands_of(redis)
                for start in range(0, len(lines), 500):
                    chosen = lines[start : start + 500]
                    first = engine.counts.events
                    batch = Batch(HERE, range(first, first + len(chosen)), chosen)
                    await engine.process(batch)
                after = commands_of(redis)
                called = {name: after[name] - before.get(name, 0) for name in after}
                return {name: calls for name, calls in called.items() if calls and name != "info"}

            costs = []
            for stored in (1_000, 10_000):
                await put(different(engine.counts.new, stored - engine.counts.new))
                costs.append(
                    (await put(different(90_000 + stored, 500)), await put(different(0, 500)))
                )
            assert engine.counts.new == 10_500
            assert (await index.size()).fingerprints == 0
            return costs

    (new, known), (later_new, later_known) = asyncio.run(through())
    assert "zrange" not in {*new, *known, *later_new, *later_known}  # nothing is searched
    assert new["zadd"] == later_new["zadd"] < 50  # two a call, to expire and to evict: no table
    assert not [key for key in keys_of(redis) if b":t:" in key]
    assert sum(later_new.values()) <= 1.02 * sum(new.values()) < 12 * 500
    assert sum(later_known.values()) <= 1.02 * sum(known.values()) < 7.5 * 500


def test_keys_fill_the_slices_of_redis_evenly() -> None:
    layout = plan_layout(RECIPE, 20_000, shards=1)
    packer, shard = Packer(NAMESPACE, layout, PUBLIC_KEY), ShardKeys(NAMESPACE, 0)
    hashed = engine_over(MemoryIndex(RECIPE)).hash(Batch(HERE, range(20_000), different(0, 20_000)))
    filled: dict[bytes, int] = defaultdict(int)
    for key in hashed.exact:
        filled[shard.exact(packer._exact_slice(key, 0))] += 1

    assert layout.exact_slices == len(filled)
    assert max(filled.values()) < 2 * 20_000 / layout.exact_slices

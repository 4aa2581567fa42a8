"""Rules in Redis: kept, changed by two people at once, and followed as in memory."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dedup import Deduplicator
from stream_dedup.cli.main import cli
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import RuleConflict, RuleError, RulesChanged
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.model import Batch, Kind, Partition
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind, Undoing
from stream_dedup.rules.ruleset import RuleSet
from tests.contract.driver import HOUR
from tests.integration.redis.helpers import STEADY, in_loop, opened
from tests.services.redis import RedisServer

MERGE = PatternRule(RuleKind.MERGE, ("job <*> ended now", "task <*> is over here"), time_us=1)
APART = PatternRule(RuleKind.NEVER_MERGE, ("user ann logged in here", "user bob logged in here"))
BY_PORT = PatternRule(RuleKind.NEVER_VARIABLE, ("port <number> is closed now",), 1)
LINES = [
    line.encode()
    for n in range(3)
    for line in (
        *(f"job {name} ended now" for name in "abcdefg"),
        "task x is over here",
        *(f"user {name} logged in here" for name in "ann bob cid dan eve fay gus hal".split()),
        *(f"port {port} is closed now" for port in (7, 8, 9, 7)),
        f"something else {n}",
    )
]


def rules_of(redis: RedisServer, namespace: str) -> tuple[RedisClient, RedisRules]:
    client = RedisClient(redis.url, retry_policy=STEADY)
    return client, RedisRules(client, namespace)


@in_loop
async def test_of_two_who_edit_at_once_the_second_is_refused(redis_server: RedisServer) -> None:
    client, rules = rules_of(redis_server, f"n{secrets.token_hex(4)}")
    one, two = await rules.read(), await rules.read()
    written = await rules.write(one.add(MERGE))
    with pytest.raises(RulesChanged, match="changed by somebody else"):
        await rules.write(two.add(APART))
    read = await rules.read()
    await client.aclose()

    assert written == read == RuleBook((MERGE,), written.version)


@in_loop
async def test_a_version_does_not_come_again_after_a_deletion(redis_server: RedisServer) -> None:
    namespace = f"n{secrets.token_hex(4)}"
    client, rules = rules_of(redis_server, namespace)
    before = await rules.write(RuleBook((MERGE,)))
    key = ShardKeys(namespace, 0).rules
    await client.command(key, "DEL", key)
    await asyncio.sleep(0.002)  # versions are milliseconds
    after = await rules.write(RuleBook((APART,)))
    version = await rules.version()
    await client.aclose()

    assert before.version < after.version == version


@in_loop
async def test_edits_at_the_same_time_are_all_there(redis_server: RedisServer) -> None:
    client, rules = rules_of(redis_server, f"n{secrets.token_hex(4)}")
    made = [PatternRule(RuleKind.MUTE, (f"word{n} here",)) for n in range(8)]

    def adding(rule: PatternRule, book: RuleBook) -> RuleBook:
        return book.add(rule)

    await asyncio.gather(*(rules.change(partial(adding, rule)) for rule in made))
    read = await rules.read()
    with pytest.raises(RuleError):
        await rules.change(partial(adding, made[0]))
    await client.aclose()

    assert set(read.rules) == set(made)


@in_loop
async def test_rules_survive_the_loss_of_all_clusters(redis_server: RedisServer) -> None:
    namespace = f"n{secrets.token_hex(4)}"
    client, rules = rules_of(redis_server, namespace)
    await rules.change(lambda book: book.add(MERGE))
    async with opened(redis_server.url, load_recipe("logs"), namespace=namespace):
        await client.command(b"", "DEL", ShardKeys(namespace, 0).meta)
    async with opened(redis_server.url, load_recipe("logs"), namespace=namespace):
        pass
    key = ShardKeys(namespace, 0).rules
    read, ttl = await rules.read(), await client.command(key, "PTTL", key)
    await client.aclose()

    assert (read.rules, ttl) == ((MERGE,), -1)


@in_loop
async def test_a_contradiction_is_not_written(redis_server: RedisServer) -> None:
    client, rules = rules_of(redis_server, f"n{secrets.token_hex(4)}")
    await rules.change(lambda book: book.add(MERGE))
    apart = replace(MERGE, kind=RuleKind.NEVER_MERGE, id="r-other")
    with pytest.raises(RuleConflict):
        await rules.change(lambda book: book.add(apart))
    undone = await rules.change(lambda book: book.undo(MERGE.id, Undoing("bob", 5)).add(apart))
    await client.aclose()

    assert [rule.id for rule in undone.acting()] == ["r-other"]


async def decided(engine: Engine, partition: Partition, first: int = 0) -> list[int | None]:
    """Return the clusters of all lines, numbered as they come."""
    batch = Batch(partition, range(first, first + len(LINES)), LINES)
    numbers: dict[int | None, int | None] = {}
    decisions = await engine.process(batch)
    return [numbers.setdefault(each.cluster, len(numbers)) for each in decisions]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("rules", [[MERGE], [APART], [BY_PORT], [MERGE, APART, BY_PORT]])
def test_rules_act_over_redis_as_in_memory(
    redis_server: RedisServer, rules: list[PatternRule], shards: int
) -> None:
    @in_loop
    async def over_redis() -> None:
        namespace = f"n{secrets.token_hex(4)}"
        recipe = load_recipe("logs")
        async with opened(redis_server.url, recipe, namespace=namespace, shards=shards) as index:
            engine = Engine(recipe, index, windows=HOUR, summaries=Summaries(), clock=SystemClock())
            engine.use_rules(RuleSet(rules))
            found.extend(await decided(engine, Partition("a", 0)))

    found: list[int | None] = []
    over_redis()
    memory = Deduplicator(rules=rules).process(LINES)
    numbers: dict[int | None, int] = {}

    assert found == [numbers.setdefault(each.cluster, len(numbers)) for each in memory]


@in_loop
async def test_what_was_opened_under_other_rules_is_not_found_again(
    redis_server: RedisServer,
) -> None:
    """A caller dies between the search and the commit, and a rule changes meanwhile."""
    recipe, namespace = load_recipe("logs"), f"n{secrets.token_hex(4)}"
    split = PatternRule(RuleKind.SPLIT, ("port <number> is closed now",), 1, "7")
    lines = [b"port 7 is closed now", b"port 8 is closed now"]
    async with opened(redis_server.url, recipe, namespace=namespace) as index:

        def engine(rules: list[PatternRule]) -> Engine:
            made = Engine(recipe, index, windows=HOUR, summaries=Summaries(), clock=SystemClock())
            made.use_rules(RuleSet(rules))
            return made

        class Dies(Exception):  # noqa: N818 -- it is none
            pass

        async def dies(*_: object) -> frozenset[int]:
            raise Dies

        first = engine([])
        record = index.record
        index.record = dies  # type: ignore[method-assign, assignment]
        with pytest.raises(Dies):
            await first.process(Batch(Partition("a", 0), [0, 1], lines))
        index.record = record  # type: ignore[method-assign]
        second = engine([split])
        ruled = await second.process(Batch(Partition("a", 0), [0, 1], lines))
        third = engine([])
        again = await third.process(Batch(Partition("a", 0), [0, 1], lines))
        later = await third.process(Batch(Partition("a", 0), [2, 3], lines))

    assert [each.kind for each in ruled] == [Kind.NEW, Kind.NEW]
    assert ruled[0].cluster != ruled[1].cluster
    assert [each.cluster for each in again] == [each.cluster for each in ruled]
    assert later[0].cluster == later[1].cluster == ruled[1].cluster
    assert second.counts.events == 2
    assert (third.counts.events, third.counts.redelivered) == (2, 2)


def test_rules_are_brought_to_a_namespace_of_another_recipe(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    recipes = load_recipe("logs"), load_recipe("words")
    names = [f"n{secrets.token_hex(4)}" for _ in recipes]
    rules = [MERGE, APART]
    exported = tmp_path / "rules.toml"

    def command(*arguments: str) -> str:
        options = ["rules", *arguments, "--redis", redis_server.url]
        done = CliRunner().invoke(cli, options, catch_exceptions=False)
        notes.append(done.stderr)
        return done.stdout

    @in_loop
    async def old() -> None:
        client, of_old = rules_of(redis_server, names[0])
        await of_old.change(lambda book: book.add(*rules))
        await client.aclose()
        found.append(await clusters_under_rules(redis_server.url, names[0], recipes[0]))

    @in_loop
    async def new() -> None:
        found.append(await clusters_under_rules(redis_server.url, names[1], recipes[1]))

    notes: list[str] = []
    found: list[dict[bytes, int | None]] = []
    old()
    exported.write_text(command("export", "--namespace", names[0]))
    assert command("import", str(exported), "--namespace", names[1]) == "2 added, 0 undone\n"
    assert f"no worker has used namespace {names[1]} yet" in notes[-1]
    new()
    assert command("import", str(exported), "--namespace", names[1]) == "0 added, 0 undone\n"
    assert notes[-1] == ""

    for clusters in found:
        joined = {clusters[line] for line in LINES if line.startswith((b"job", b"task"))}
        assert len(joined) == 1
        assert clusters[b"user ann logged in here"] != clusters[b"user bob logged in here"]


async def clusters_under_rules(url: str, namespace: str, recipe: Recipe) -> dict[bytes, int | None]:
    """Return the cluster of each line in a namespace, under its own rules."""
    async with opened(url, recipe, namespace=namespace) as index:
        engine = Engine(recipe, index, windows=HOUR, summaries=Summaries(), clock=SystemClock())
        client = RedisClient(url, retry_policy=STEADY)
        engine.use_rules((await RedisRules(client, namespace).read()).compiled())
        await client.aclose()
        decisions = await engine.process(Batch(Partition("a", 0), range(len(LINES)), LINES))
        return {line: each.cluster for line, each in zip(LINES, decisions, strict=True)}

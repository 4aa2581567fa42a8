"""The pages about Redis say what is so: their sessions, users, keys and code are tried.

What needs a server is in ``text`` and ``python`` blocks, which `test_docs` leaves alone or only
defines. A ``text`` block that begins with ``$`` is a session: run in order, on a server that holds
what the page says, in the place of redis://127.0.0.1:6379.
"""

from __future__ import annotations

import asyncio
import doctest
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from docs.blocks import EXAMPLES, ROOT, Block, blocks, steps
from docs.commands import commands, options
from stream_dedup import Limits, Summaries, Windows, load_recipe
from stream_dedup.cli.main import cli
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import RecipeMismatch
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import RedisClient, RetryPolicy
from stream_dedup.index.redis.keys import ShardKeys, kind_of
from stream_dedup.index.redis.maintenance import SWEEP_STEPS
from stream_dedup.index.redis.namespace import (
    CALL_WORK,
    LEAST_TTL_US,
    SLICE_ENTRIES,
    plan_layout,
    ttl_ms,
)
from stream_dedup.index.redis.store import (
    CLAIMS,
    CONFIRMS,
    LIMITS,
    RedisIndex,
)
from stream_dedup.model import Batch, Partition
from stream_dedup.testing import ManualClock
from tests.integration.redis import scenario
from tests.integration.redis.helpers import opened
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]

HOW_TO = ROOT / "docs" / "how-to"
LIBRARY = ROOT / "docs" / "library.md"
PAGES = sorted(HOW_TO.glob("redis-*.md"))
NAMESPACE = "app-logs"
LIKE = doctest.OutputChecker()
HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
"""What is sampled differs a little from run to run, and with it the width of columns."""

START_US = 1_763_717_850 * 1_000_000
"""2025-11-21 09:37:30 UTC."""


def text_of(name: str) -> str:
    return (HOW_TO / name).read_text("utf-8")


def sessions(page: Path) -> list[Block]:
    return [b for b in blocks(page) if b.language == "text" and b.text.startswith("$ ")]


# ------------------------------------------------------------ sessions


async def fill(url: str) -> None:
    """Have the namespace see the nine lines of the example, a second apart."""
    server, recipe = RedisClient(url), load_recipe("logs")
    windows, summaries = Windows(), Summaries()
    clock = ManualClock(START_US + 10_000_000)
    try:
        index = await RedisIndex.open(
            server,
            recipe,
            namespace=NAMESPACE,
            windows=windows,
            summaries=summaries,
        )
        engine = Engine(recipe, index, windows=windows, summaries=summaries, clock=clock)
        lines = (EXAMPLES / "auth.log").read_bytes().splitlines()
        offsets = range(len(lines))
        times_us = [START_US + offset * 1_000_000 for offset in offsets]
        batch = Batch(Partition("auth.log", 0), offsets, lines, times_us)
        await engine.process(batch, committed=len(lines))
    finally:
        await server.aclose()


def run(command: str, port: int) -> str:
    """What a command prints when Redis is at a port, as the page shows it."""
    done = subprocess.run(
        ["bash", "-c", command.replace("redis-cli ", f"redis-cli -p {port} ")],
        env={
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "STREAM_DEDUP_REDIS": f"redis://127.0.0.1:{port}",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = done.stdout.replace(f":{port}", ":6379").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines).strip("\n") + "\n"


@pytest.mark.parametrize("page", [p for p in PAGES if sessions(p)], ids=lambda p: p.name)
def test_commands_print_what_the_page_shows(page: Path, make_redis: MakeRedis) -> None:
    server = make_redis(appendonly=True)
    # The pages show four slices; under 1 of 80 of the keys that a namespace chooses at random, two
    # of the four exact hashes share one.
    while server.command("EVAL", "return #redis.call('KEYS', '*}:e:*')", "0") != 4:
        server.command("FLUSHALL")
        asyncio.run(fill(server.url))
    wrong = []
    for block in sessions(page):
        for step in steps(block.text):
            if step.command.startswith("redis-cli") and not shutil.which("redis-cli"):
                continue
            printed = run(step.command, server.port)
            if not LIKE.check_output(step.expected.strip("\n") + "\n", printed, HOW):
                wrong.append(f"line {block.line}: $ {step.command}{printed}")
    assert wrong == []


def named_commands(page: Path) -> Iterator[str]:
    """Commands that a page names in its blocks and between backticks."""
    text = page.read_text("utf-8")
    for block in blocks(page):
        yield from re.findall(r"^(?:\$ )?(stream-dedup .+)$", block.text, re.MULTILINE)
    yield from re.findall(r"`(stream-dedup [^`]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_options_exist(page: Path) -> None:
    known = dict(commands(cli, "stream-dedup"))
    for line in named_commands(page):
        words = line.split()
        name = max((n for n in known if words[: len(n.split())] == n.split()), key=len)
        found = known[name]
        assert (
            len(name.split()) == len(words)
            or not isinstance(found, click.Group)
            or words[len(name.split())].startswith("-")
        ), line
        for option in re.findall(r"(?<= )--?[a-z-]+", line):
            assert any(option in o.opts for o in options(found)), f"{option} in {line}"
    of_index = {
        o for name, c in known.items() if " index" in name for p in options(c) for o in p.opts
    }
    for option in re.findall(r"`(--[a-z-]+)[ `]", page.read_text("utf-8")):
        assert option in of_index | {"--scan"}, option


# ------------------------------------------------------------ keys


def test_the_table_of_keys_names_every_kind_with_its_type() -> None:
    rows = dict(
        re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", text_of("redis-inspect.md"), re.MULTILINE)
    )
    shard, layout = ShardKeys(NAMESPACE, 0), plan_layout(load_recipe("logs"), 20_000, 1)
    filled = {
        "<id>": "0" * 16,
        "<slice>": "1",
        "<table>": "2",
        "<source>": "a:b",
        "<partition>": "3",
    }
    redis_types = {"hash": "hash", "sorted set": "zset", "list": "list", "string": "string"}
    kinds = set()
    for pattern, shown in rows.items():
        name = re.sub(r"<[a-z]+>", lambda match: filled[match[0]], pattern)
        kind = kind_of(shard, shard.prefix + name.encode(), layout)
        assert redis_types[shown] == kind.type, pattern
        kinds.add(kind.name)
    here = Partition("a", 0)
    made = {
        *(
            getattr(shard, name)
            for name in "meta expiry recency due leases gone garbage inserted heads rules".split()
        ),
        shard.cluster(bytes(8)),
        shard.values(bytes(8)),
        shard.exact(0),
        shard.postings_slice(0),
        shard.prefixes.table + b"0:0",
        shard.partition(here),
        shard.journal(here),
    }
    assert {kind_of(shard, key, layout).name for key in made} == kinds


def test_the_refusal_of_another_recipe_reads_as_shown() -> None:
    logs, words = load_recipe("logs"), load_recipe("words")
    error = RecipeMismatch(
        NAMESPACE, f"{logs.name} ({logs.digest})", f"{words.name} ({words.digest})"
    )
    shown = f"{type(error).__module__}.{type(error).__name__}: {error}"
    assert shown in text_of("redis-inspect.md")


# ------------------------------------------------------------ users


def user_line(name: str) -> str:
    line = re.search(
        rf"^user {name} on >CHANGE-ME (.+)$", text_of("redis-security.md"), re.MULTILINE
    )
    assert line is not None
    return f"{name} on >secret {line[1]}"


@pytest.mark.parametrize(
    ("keys", "database", "more"), [("~sd:*", 0, ""), ("~sd:{tests:*", 1, " +select")]
)
def test_the_worker_may_do_all_it_needs_and_nothing_else(
    make_redis: MakeRedis, keys: str, database: int, more: str
) -> None:
    line = user_line("worker").replace("~sd:*", keys) + more
    server = make_redis(acl=f"default off\n{line}")

    async def use() -> None:
        async with opened(
            server.url_as("worker", "secret").removesuffix("0") + str(database),
            namespace="tests",
            windows=scenario.WINDOWS,
            summaries=scenario.SUMMARIES,
            limits=scenario.LIMITS,
        ) as index:
            await scenario.use_everything(index)

    asyncio.run(use())
    allowed = set(re.findall(r" \+([a-z|@]+)", user_line("worker")))
    inside = {
        name.lower()
        for script in scripts.ALL
        for name in re.findall(r"call\('([A-Z]+)'", script.text)
    }
    assert inside | {"client|setname", "evalsha", "script|load"} == allowed


@pytest.mark.parametrize("rights", ["", " -unlink"])
def test_the_operator_may_look_and_delete(make_redis: MakeRedis, rights: str) -> None:
    server = make_redis(
        acl=f"default off\n{user_line('operator')}{rights}\nfill on >secret ~* +@all",
        appendonly=True,
    )
    asyncio.run(fill(server.url_as("fill", "secret")))
    url = server.url_as("operator", "secret")
    for arguments in (
        "stats",
        f"stats -n {NAMESPACE}",
        f"check -n {NAMESPACE}",
        f"clusters -n {NAMESPACE}",
        f"show 03adec7dacb6a398 -n {NAMESPACE}",
    ):
        done = run(f"stream-dedup index {arguments} --redis {url}; echo exit $?", server.port)
        assert done.endswith("exit 0\n"), done
    command = (
        f"stream-dedup index delete-namespace -n {NAMESPACE} --yes --redis {url}; echo exit $?"
    )
    assert run(command, server.port).endswith("exit 2\n" if rights else "exit 0\n")


# ------------------------------------------------------------ figures and defaults


def test_the_page_says_what_stops_when_memory_is_full() -> None:
    listed = re.search(r"deciding and counting\s+stop \((.*?)\)", text_of("redis-availability.md"))
    assert listed is not None
    waiting = {s.name for s in scripts.ALL if "allow-oom" not in s.text.partition("\n")[0]}
    assert set(re.findall(r"`([a-z_]+)`", listed[1])) == waiting


def test_the_documented_defaults_are_those_of_the_code() -> None:
    page = text_of("redis-availability.md")
    for name in RetryPolicy.__slots__:
        assert f"| `{name}` | {getattr(RetryPolicy(), name):g} |" in page
    assert LEAST_TTL_US == 7 * 24 * 3600 * 1_000_000
    assert ttl_ms(Windows(), Summaries()) == LEAST_TTL_US // 1000
    assert len(scripts.ALL) == 16  # "Sixteen scripts", redis-security.md


def test_the_documented_constants_are_those_of_the_code() -> None:
    sizing = " ".join(text_of("redis-sizing.md").split())
    assert f"meant to hold {SLICE_ENTRIES // 2} to {SLICE_ENTRIES} entries" in sizing
    assert f"({LIMITS.max_clusters:,} unless given)" in sizing
    assert f"calls of some {CALL_WORK:,} commands" in sizing
    works = " ".join((ROOT / "docs" / "how-it-works.md").read_text("utf-8").split())
    assert f"limited to about {CALL_WORK:,} commands" in works
    assert f"A `sweep` looks at {SWEEP_STEPS} clusters" in works
    assert f"`claim` takes {CLAIMS} summaries and one of `confirm` {CONFIRMS}" in works
    assert f"`Limits.max_verified` ({LIMITS.max_verified})" in works


# ------------------------------------------------------------ the library's example


@pytest.fixture(autouse=True)
def _quiet_example() -> Iterator[None]:
    """Let the example's logger say nothing, and as much as before afterwards."""
    logger = logging.getLogger("app")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


class Sent(list[str]):
    async def send(self, line: bytes) -> None:
        self.append(line.decode())


def example() -> dict[str, Any]:
    """The names that the library page's example defines."""
    names: dict[str, Any] = {}
    (block,) = (b for b in blocks(LIBRARY) if "async def deduplicate(" in b.text)
    exec(compile(block.text, f"{block.page}:{block.line}", "exec"), names)  # noqa: S102 -- ours
    return names


async def run_example(
    names: dict[str, Any], url: str, input_name: str, *batches: list[bytes]
) -> list[str]:
    async def source() -> AsyncIterator[list[bytes]]:
        for batch in batches:
            yield batch
            await asyncio.sleep(0.05)

    sent = Sent()
    await names["deduplicate"](url, input_name, source(), sent.send, 0.01)
    return sent


def test_the_example_shares_clusters_and_goes_on_where_it_stopped(make_redis: MakeRedis) -> None:
    server = make_redis(appendonly=True)
    names = example()

    def go(input_name: str, *batches: list[bytes]) -> list[str]:
        return asyncio.run(run_example(names, server.url, input_name, *batches))

    first = go("a", [b"disk 1 full", b"disk 2 full"], [b"worker 3 is lost", b"", b"disk 5 full"])
    assert first == ["disk 1 full", "worker 3 is lost", ""]
    assert go("b", [b"disk 7 full"], [b"out of paper"]) == ["out of paper"]
    assert go("a", [b"disk 8 full", b"it is raining"]) == ["it is raining"]

    async def counted() -> dict[str, int]:
        async with opened(
            server.url, load_recipe("logs"), namespace=NAMESPACE, limits=Limits(20_000)
        ) as index:
            await index.finish(START_US)
            summaries = await index.claim(100, START_US)
            return {s.representative.decode(): s.count for s in summaries}

    expected = {"disk 1 full": 5, "worker 3 is lost": 1, "out of paper": 1, "it is raining": 1}
    assert asyncio.run(counted()) == expected


def test_the_example_counts_and_survives_the_loss_of_the_index(
    make_redis: MakeRedis,
) -> None:
    server = make_redis(appendonly=True)
    names = example()
    names["Summaries"] = lambda: Summaries(every_us=1)
    sent = Sent()

    async def source() -> AsyncIterator[list[bytes]]:
        for number in range(3):
            if number == 2:
                server.command("FLUSHALL")
            yield [b"disk %d full" % number]
            await asyncio.sleep(0.2)

    asyncio.run(names["deduplicate"](server.url, "a", source(), sent.send, 0.01))
    firsts = [line for line in sent if "more of" not in line]
    assert firsts == ["disk 0 full", "disk 2 full"]
    assert any(re.fullmatch(r"2 more of [0-9a-f]{16}: disk <number> full", line) for line in sent)

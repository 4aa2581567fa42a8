"""``stream-dedup index`` over real servers: what it shows, finds and deletes."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import IndexSize, Limits
from stream_dedup.index.redis import layouts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import KEY_GROUPS, ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Partition
from tests.integration.command import COMMAND, Done, run
from tests.services.redis import RedisCluster, RedisSentinel, RedisServer

LOGS = Path(__file__).parents[2] / "examples" / "logs"


def with_many_words(line: bytes) -> bytes:
    """A line with so many words that its fingerprint is searched: each again, in other forms."""
    words = line.split()
    return b" ".join([*words, *(form + word for form in (b"a", b"b", b"c") for word in words)])


LINES = [
    with_many_words(line)
    for name in ("nginx", "postgresql", "syslog")
    for line in gzip.decompress((LOGS / f"{name}.log.gz").read_bytes()).splitlines()[:400]
]
HOSTILE = b"\x1b]0;owned\x07 disk \xff\x00 full of \xe2\x80\xae things"
GROUP = '{"app":"web"}'
NOW_US = 1_700_000_000_000_000


async def _fill(url: str, namespace: str, shards: int, clusters: int, number: int) -> IndexSize:
    recipe, windows, summaries = load_recipe("logs"), Windows(), Summaries()
    server = RedisClient(url)
    index = await RedisIndex.open(
        server,
        recipe,
        namespace=namespace,
        windows=windows,
        summaries=summaries,
        limits=Limits(max_clusters=clusters),
        shards=shards,
    )
    engine = Engine(recipe, index, windows=windows, summaries=summaries, clock=ManualClock(NOW_US))
    lines = [*LINES, HOSTILE, HOSTILE]
    for start in range(0, len(lines), 300):
        values = lines[start : start + 300]
        groups = [GROUP if n % 4 == 0 else f'{{"host":{n % 3}}}' for n in range(len(values))]
        partition = Partition("a:b\x1b", number)
        offsets = range(start, start + len(values))
        await engine.process(Batch(partition, offsets, values, groups=groups))
        due = await engine.claim_summaries(20)
        await engine.confirm_summaries(due if number else due[:10])
        while number and (due := await engine.claim_summaries()):
            await engine.confirm_summaries(due)
    size = await index.size()
    await server.aclose()
    return size


def fill(
    url: str, namespace: str, shards: int = 1, clusters: int = 60, number: int = 0
) -> IndexSize:
    """Put real lines, of several groups, into a namespace whose clusters do not all fit."""
    return asyncio.run(_fill(url, namespace, shards, clusters, number))


def index(url: str, *args: str, env: dict[str, str] | None = None) -> Done:
    return run("index", *args, env={"STREAM_DEDUP_REDIS": url, **(env or {})})


def loaded(done: Done) -> Any:
    assert done.code == 0, done.err
    return msgspec.json.decode(done.out)


def found(done: Done) -> dict[str, int]:
    """The kinds of findings of a check, with their counts."""
    assert done.code in {0, 1}, done.err
    report = msgspec.json.decode(done.out)
    assert bool(report["problems"]) == (done.code == 1)
    return {problem["kind"]: problem["count"] for problem in report["problems"]}


def checked(url: str, namespace: str, *args: str) -> dict[str, int]:
    return found(index(url, "check", "-n", namespace, "--format", "json", *args))


@pytest.fixture(scope="module", params=["redis_server", "redis_sentinel", "redis_cluster"])
def filled(request: pytest.FixtureRequest) -> tuple[str, str, IndexSize]:
    """(URL, namespace, size) of each way to deploy Redis; its tests only read."""
    service: RedisServer | RedisSentinel | RedisCluster = request.getfixturevalue(request.param)
    name = f"filled-{request.param}"
    return service.url, name, fill(service.url, name, shards=3)


@pytest.fixture
def own(make_redis: Callable[..., RedisServer]) -> RedisServer:
    """A server that a test may damage, with the namespace ``logs``."""
    server = make_redis()
    fill(server.url, "logs")
    return server


# ------------------------------------------------------------ stats


def test_stats_counts_as_the_index_does(filled: tuple[str, str, IndexSize]) -> None:
    url, name, size = filled
    stats = loaded(index(url, "stats", "-n", name, "--format", "json"))
    total = stats["total"]
    assert (
        total["open"],
        total["fingerprints"],
        total["waiting"],
        total["evicted"],
    ) == (size.clusters, size.fingerprints, size.waiting, size.evicted)
    # Aliases of a cluster with equal fingerprints share their entries.
    fingerprints, rest = divmod(stats["memory"]["tables"]["entries"], stats["layout"]["tables"])
    assert rest == 0
    assert size.fingerprints * 0.9 < fingerprints <= size.fingerprints
    assert len(stats["shards"]) == 3
    assert total["gone"] > 0
    for shard in stats["shards"]:
        (partition,) = shard["partitions"]
        assert (partition["source"], partition["partition"]) == ("a:b\x1b", 0)
        assert len(LINES) + 1 == partition["high_water"]


def test_stats_measures_memory(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    memory = loaded(index(url, "stats", "-n", name, "--format", "json"))["memory"]
    assert memory.keys() == {*KEY_GROUPS}
    assert all(kind["bytes"] > 50 * kind["keys"] for kind in memory.values())


def test_stats_lists_the_namespaces(filled: tuple[str, str, IndexSize]) -> None:
    url, name, size = filled
    listed = loaded(index(url, "stats", "--format", "json"))["namespaces"]
    row = next(row for row in listed if row["namespace"] == name)
    digest = load_recipe("logs").digest
    assert (
        row["recipe"],
        row["digest"],
        row["shards"],
        row["clusters"],
    ) == ("logs", digest, 3, size.clusters)
    assert row["bytes"] > 100 * size.clusters


def test_a_truncated_search_for_namespaces_is_reported(own: RedisServer) -> None:
    own.command("EVAL", "for i = 1, 20000 do redis.call('SET', i, i) end", 0)
    cut = index(own.url, "stats", "--limit", "1000")
    assert (
        cut.code,
        cut.err,
    ) == (0, "stream-dedup: --limit was reached; there may be more namespaces\n")
    assert [
        loaded(index(own.url, "stats", "--format", "json", "--limit", limit))["whole"]
        for limit in ("1000", "0")
    ] == [False, True]


@pytest.mark.parametrize("command", ["stats", "check", "clusters"])
def test_tables_are_safe_to_print(filled: tuple[str, str, IndexSize], command: str) -> None:
    url, name, _ = filled
    done = index(url, command, "-n", name, *(["--limit", "500"] if command == "clusters" else []))
    assert (done.code, done.err) == (0, "")
    printed = done.out.decode().replace("\n", "")
    assert printed.isprintable()
    assert len(printed) > 50


def test_a_limit_that_was_reached_is_reported(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    for command in ("stats", "check"):
        assert b"--limit" in index(url, command, "-n", name, "--limit", "10").out
        assert b"--limit" not in index(url, command, "-n", name, "--limit", "0").out


# ------------------------------------------------------------ clusters and show


def test_clusters_come_largest_first(filled: tuple[str, str, IndexSize]) -> None:
    url, name, size = filled
    args = ("clusters", "-n", name, "--format", "json", "--limit", "1000")
    clusters = loaded(index(url, *args))["clusters"]
    counts = [cluster["count"] for cluster in clusters]
    assert size.clusters == len(clusters) == len({cluster["cluster"] for cluster in clusters})
    assert sorted(counts, reverse=True) == counts
    few = loaded(index(url, *args[:-1], "7"))["clusters"]
    assert counts[:7] == [cluster["count"] for cluster in few]
    opened = [each["opened"] for each in loaded(index(url, *args, "--sort", "opened"))["clusters"]]
    assert sorted(opened, reverse=True) == opened


def test_clusters_of_a_group_alone(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    args = ("clusters", "-n", name, "--format", "json", "--limit", "1000", "--group")
    clusters = loaded(index(url, *args, GROUP))["clusters"]
    assert {cluster["group"] for cluster in clusters} == {GROUP}
    assert loaded(index(url, *args, "none"))["clusters"] == []


def test_clusters_show_patterns_of_the_recipe(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    (first,) = loaded(index(url, "clusters", "-n", name, "--limit", "1", "--format", "json"))[
        "clusters"
    ]
    assert "<number>" in first["pattern"]
    assert "<number>" not in first["representative"]


def test_every_open_cluster_can_be_shown(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    args = ("clusters", "-n", name, "--limit", "3", "--format", "json")
    for brief in loaded(index(url, *args))["clusters"]:
        whole = loaded(index(url, "show", brief["cluster"], "-n", name, "--format", "json"))
        same = ("cluster", "count", "first", "last", "representative", "pattern", "revision")
        assert [brief[key] for key in same] == [whole[key] for key in same]
        assert whole["state"] == "open"
        assert "recency" in whole["queues"]
        names = whole["names"]
        assert all(each["leads_here"] and not each["missing_in"] for each in names)
        assert (0, whole["fingerprint"]) == (names[0]["distance"], names[0]["fingerprint"])
        text = index(url, "show", brief["cluster"].upper(), "-n", name)
        assert text.out.decode().replace("\n", "").isprintable()


def test_an_unknown_cluster_is_said_to_be_unknown(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    done = index(url, "show", "0123456789abcdef", "-n", name)
    assert (done.code, done.out) == (1, b"")
    assert "has no cluster 0123456789abcdef" in done.err


def test_an_invalid_id_is_refused(redis_server: RedisServer) -> None:
    done = index(redis_server.url, "show", "123", "-n", "logs")
    assert done.code == 2
    assert "'123' is not 16 hex digits" in done.err


def test_another_recipe_is_refused(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    done = index(url, "clusters", "-n", name, "-r", "json")
    assert (done.code, done.out) == (2, b"")
    assert "holds fingerprints of recipe logs" in done.err


# ------------------------------------------------------------ check


def test_a_sound_namespace_is_found_sound(filled: tuple[str, str, IndexSize]) -> None:
    url, name, _ = filled
    assert checked(url, name) == {}
    assert b"all is well" in index(url, "check", "-n", name).out


SHARD = ShardKeys("logs", 0)


def first_key(server: RedisServer, pattern: bytes) -> bytes:
    keys = server.command("KEYS", pattern.replace(b"{", b"\\{"))
    assert isinstance(keys, list)
    return min(key for key in keys if isinstance(key, bytes))


def first_of(server: RedisServer, key: bytes) -> bytes:
    members = server.command("ZRANGE", key, 0, 0)
    assert isinstance(members, list)
    assert isinstance(members[0], bytes)
    return members[0]


Damage = Callable[[RedisServer], object]


def with_another_fingerprint(server: RedisServer, key: bytes) -> None:
    """Change the first byte of a cluster's fingerprint, which stands behind its length."""
    at = layouts.CLUSTER.struct.size + 1
    first = server.command("GETRANGE", key, at, at)
    assert isinstance(first, bytes)
    server.command("SETRANGE", key, at, bytes([first[0] ^ 1]))


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (lambda s: s.command("DEL", first_key(s, b"sd:{logs:0}:t:3:*")), {"unsearchable"}),
        (lambda s: s.command("DEL", first_key(s, b"sd:{logs:0}:e:*")), {"unnamed"}),
        (lambda s: s.command("DEL", SHARD.recency), {"queue"}),
        (lambda s: s.command("ZREM", SHARD.recency, first_of(s, SHARD.recency)), {"queue"}),
        (lambda s: s.command("DEL", SHARD.due), {"unscheduled"}),
        (lambda s: s.command("DEL", SHARD.leases), {"unscheduled"}),
        (lambda s: s.command("DEL", SHARD.gone), {"unburied"}),
        (
            lambda s: s.command("DEL", SHARD.cluster(first_of(s, SHARD.recency))),
            {"entry", "exact", "counter"},
        ),
        (
            lambda s: s.command("SET", SHARD.cluster(first_of(s, SHARD.recency)), "x", "EX", 999),
            {"cluster", "entry", "exact", "counter"},
        ),
        (
            lambda s: with_another_fingerprint(s, SHARD.cluster(first_of(s, SHARD.recency))),
            {"cluster"},
        ),
        (lambda s: s.command("ZADD", SHARD.prefix + b"t:2:0", 0, "short"), {"misplaced"}),
        (lambda s: s.command("ZADD", SHARD.prefix + b"t:2:0", 0, b"\xee" * 21), {"misplaced"}),
        (lambda s: s.command("HSET", SHARD.prefix + b"e:0", "short", "x"), {"misplaced"}),
        (lambda s: s.command("HINCRBY", SHARD.meta, "fingerprints", 1), {"counter"}),
        (lambda s: s.command("HINCRBY", SHARD.meta, "waiting", -1), {"counter"}),
        (lambda s: s.command("PERSIST", SHARD.meta), {"ttl"}),
        (lambda s: s.command("SET", SHARD.prefix + b"\xff\x1b", 1, "EX", 999), {"key"}),
        (lambda s: s.command("SADD", SHARD.prefix + b"c:00000000000000ff", 1), {"type", "ttl"}),
        (
            lambda s: s.command("SET", SHARD.prefix + b"t:6:0", 1, "EX", 999),
            {"type", "unsearchable"},
        ),
    ],
)  # fmt: skip
def test_damage_is_found_and_named(own: RedisServer, damage: Damage, kinds: set[str]) -> None:
    damage(own)
    assert checked(own.url, "logs").keys() == kinds


def test_findings_come_with_meaning_and_remedy(own: RedisServer) -> None:
    for n in range(15):
        own.command("SET", SHARD.prefix + b"\xff\x1b%d" % n, 1)
    done = index(own.url, "check", "-n", "logs")
    assert done.code == 1
    text = done.out.decode()
    assert text.replace("\n", "").isprintable()
    assert "15 × keys of no known kind\n  means " in text
    assert 2 == text.count("  remedy ") == text.count("… and 5 more")


def test_shards_with_different_layouts_are_found(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis()
    fill(server.url, "logs", shards=2)
    server.command("HSET", ShardKeys("logs", 1).meta, "digest", "other")
    assert checked(server.url, "logs") == {"stamp": 1}


def test_a_namespace_is_checked_while_workers_change_it(own: RedisServer) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.integration.test_index_command import fill
n = 0
while True:
    n += 1
    fill({own.url!r}, "logs", number=n)
"""
    worker = subprocess.Popen([sys.executable, "-c", script])
    try:
        before = own.command("HGET", SHARD.meta, "evicted")
        for _ in range(4):
            assert checked(own.url, "logs") == {}
        assert worker.poll() is None
        assert own.command("HGET", SHARD.meta, "evicted") != before
    finally:
        worker.kill()
        worker.wait()


# ------------------------------------------------------------ who may look, and how


ACL = """
reader on >s3cret/@: ~sd:* +@read +@connection
default off
"""


def test_a_user_who_may_only_read_is_enough(
    make_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = make_redis(acl=ACL, extra={"enable-debug-command": "yes"})
    server.command("ACL", "SETUSER", "writer", "on", ">pw", "~*", "+@all")
    fill(server.url_as("writer", "pw"), "logs")
    password = tmp_path / "password"
    password.write_text("s3cret/@:\n")
    url = f"redis://reader@127.0.0.1:{server.port}"
    args = ("-n", "logs", "--password-file", str(password))
    before = server.command("DEBUG", "DIGEST")
    for command in ("stats", "check", "clusters"):
        assert index(url, command, *args).code == 0
    assert index(url, "stats", "--password-file", str(password)).code == 0
    assert server.command("DEBUG", "DIGEST") == before
    refused = index(url, "delete-namespace", "--yes", *args)
    assert refused.code == 2
    assert "permissions" in refused.err
    password.write_text("wrong\n")
    refused = index(url, "stats", *args)
    assert refused.code == 2
    assert "check user and password" in refused.err


def test_two_passwords_are_refused_and_none_is_shown(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("from-file\n")
    done = index("redis://me:from-url@h", "stats", "--password-file", str(password))
    assert done.code == 2
    assert "leave one out" in done.err
    assert "from-" not in done.err


def test_tls_is_spoken(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis(tls=True)
    assert index(server.url, "stats", "--ca-file", str(server.ca_file)).code == 0
    refused = index(server.url, "stats", "--timeout", "0.2")
    assert refused.code == 2
    assert "certificate verify failed" in refused.err


def test_a_server_that_is_away_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{closed.getsockname()[1]}"
        done = index(url, "check", "-n", "logs", "--timeout", "0.2")
    assert (done.code, done.out) == (2, b"")
    assert f"{url}: " in done.err
    assert "; check host and port, and that the server runs" in done.err


@pytest.mark.parametrize(
    "url", ["http://h", "redis://[::1", "redis://a,b", "redis://h/x", "redis://h:x"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    done = index(url, "stats", "--timeout", "0.2")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("stream-dedup: ")


def test_a_namespace_that_is_none_is_refused(redis_server: RedisServer) -> None:
    for name, says in (("no such", "is not a name"), ("nosuch", "there is no namespace 'nosuch'")):
        for command in ("stats", "check", "clusters"):
            done = index(redis_server.url, command, "-n", name)
            assert (done.code, done.out) == (2, b"")
            assert says in done.err


INTERRUPTED_WITHIN_S = 60.0
"""For the slowest machine; a command that swallows the interrupt waits for its 600 s."""


def interrupted(url: str, wait: Callable[[], object]) -> None:
    """Interrupt a check once something has come to pass, and see it end at once and quietly."""
    # A test run in a shell's background ignores the signal, and would hand that on.
    command = ["env", "--default-signal=INT", str(COMMAND), "index", "check", "-n", "logs"]
    command += ["--redis", url, "--timeout", "600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            wait()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=INTERRUPTED_WITHIN_S)
        finally:
            process.kill()
    assert (process.returncode, err.strip()) == (130, b"")


def test_an_interrupt_while_it_connects_ends_it_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        accepted: list[socket.socket] = []
        try:
            interrupted(url, lambda: accepted.append(silent.accept()[0]))
        finally:
            for each in accepted:
                each.close()


def test_an_interrupt_while_the_server_hangs_ends_it_at_once(
    make_redis: Callable[..., RedisServer],
) -> None:
    server = make_redis()
    server.pause()
    try:
        interrupted(server.url, lambda: wait_for_bytes(server.port))
    finally:
        server.resume()


def wait_for_bytes(port: int) -> None:
    """Wait until a connection to a local port holds bytes that the server has not read."""
    for _ in range(3_000):
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            unread = int(queues.partition(":")[2], 16)
            if state == "01" and int(local.partition(":")[2], 16) == port and unread:
                return
        time.sleep(0.01)
    pytest.fail("the command sends nothing")


# ------------------------------------------------------------ delete


@pytest.mark.parametrize("service", ["redis_server", "redis_sentinel", "redis_cluster"])
def test_a_namespace_is_deleted_and_nothing_else(
    request: pytest.FixtureRequest, service: str
) -> None:
    url = request.getfixturevalue(service).url
    fill(url, "goes", shards=3)
    fill(url, "goes-not")
    stays = checked(url, "goes-not")
    dry = loaded(index(url, "delete-namespace", "-n", "goes", "--dry-run", "--format", "json"))
    assert {"namespace": "goes", "keys": dry["keys"], "deleted": False} == dry
    done = index(url, "delete-namespace", "-n", "goes", "--yes", "--format", "json")
    assert {"namespace": "goes", "keys": dry["keys"], "deleted": True} == loaded(done)
    assert index(url, "stats", "-n", "goes").code == 2
    again = index(url, "delete-namespace", "-n", "goes", "--yes")
    assert (again.code, b"nothing to delete" in again.out) == (0, True)
    assert checked(url, "goes-not") == stays


def test_deleting_asks_for_the_name(own: RedisServer) -> None:
    args = ("index", "delete-namespace", "-n", "logs", "--redis", own.url)
    keys = own.command("DBSIZE")
    refused = run(*args, stdin=b"log\n")
    assert (refused.code, own.command("DBSIZE")) == (2, keys)
    assert "nothing was deleted" in refused.err
    assert run(*args, stdin=b"logs\n").code == 0
    assert own.command("DBSIZE") == 0


def test_deleting_warns_where_workers_were_just_now(own: RedisServer) -> None:
    own.command("HSET", SHARD.meta, "seen", time.time_ns() // 1000)
    done = index(own.url, "delete-namespace", "-n", "logs", "--yes")
    assert re.search(r"workers were at 'logs' \d+ s ago; stop them first", done.err)


def test_a_damaged_layout_is_named_and_can_be_deleted(own: RedisServer) -> None:
    layout = own.command("HGET", SHARD.meta, "layout")
    assert isinstance(layout, bytes)
    sound = json.loads(layout)
    for wrong in (b"\xff", b"[]", b"{}", json.dumps(sound | {"slices": 3}).encode(),
                  json.dumps(sound | {"format": 99}).encode()):  # fmt: skip
        own.command("HSET", SHARD.meta, "layout", wrong)
        done = index(own.url, "check", "-n", "logs")
        assert done.code == 2
        assert "'logs'" in done.err
        assert index(own.url, "stats").code == 0
    assert index(own.url, "delete-namespace", "-n", "logs", "--yes").code == 0
    assert own.command("DBSIZE") == 0


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "redis.py").write_text("raise ImportError('No module named redis')\n")
    done = run("index", "stats", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.code, done.out) == (2, b"")
    assert "pip install 'stream-dedup[redis]'" in done.err

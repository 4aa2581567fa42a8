"""`stream-dedup index seed`: known patterns are duplicates, restarts, what is refused."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyspark.sql import SparkSession

from stream_dedup import assembly
from stream_dedup.cli.main import cli
from stream_dedup.config import Config, load
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import InputError, StaleFence
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.io.base import Records
from stream_dedup.io.decoder import DecoderOptions, RecordDecoder
from stream_dedup.model import Batch, Kind, Partition, Summary
from stream_dedup.rules import file
from stream_dedup.spark import teaching
from stream_dedup.spark.backfill import Backfill, Settings
from stream_dedup.spark.teaching import TeachingLines
from stream_dedup.testing import ManualClock
from stream_dedup.tools.index_seeder import seeding
from stream_dedup.tools.index_seeder.seeding import Seeded, partition_of, seed
from tests.integration.command import COMMAND, TIMEOUT_S, Done, run
from tests.integration.spark.test_frames import example_lines
from tests.integration.worker.running import Trial, wait_for
from tests.services.kafka import Kafka
from tests.services.redis import RedisCluster, RedisServer

pytestmark = pytest.mark.timeout(4 * TIMEOUT_S)  # Java starts several times in a test

LINES = example_lines()[:4_000]
SERVICES = [f"s{number % 3}" for number in range(len(LINES))]
GROUPS = [json.dumps({"service": each}, separators=(",", ":")) for each in SERVICES]
PASSED = sum(not line.strip() for line in LINES)
_names = count()


class KilledError(Exception):
    """Ends a seeding at some point."""


def backfilled(spark: SparkSession, folder: Path, recipe: str = "logs", **columns: Any) -> Path:
    """Backfill the lines of a column `body`, grouped by the others."""
    columns["id"] = [f"{number:09}" for number in range(len(columns["body"]))]
    parquet.write_table(pa.table(columns), folder / "events.parquet")
    groups = tuple(columns.keys() - {"id", "body"})
    chosen = Settings(
        (str(folder / "events.parquet"),), str(folder / "out"), id="id", groups=groups
    )
    Backfill(spark, chosen, load_recipe(recipe), ManualClock(), lambda _: None).run()
    return folder / "out"


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backfill of the example lines, which nobody changes."""
    folder = tmp_path_factory.mktemp("stored")
    return backfilled(spark, folder, body=LINES, service=SERVICES)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "BATCH_LINES", 100)


def settings(server: RedisServer, *more: str) -> list[str]:
    return [
        f"index.url={server.url}",
        "pipelines.0.topics=logs",
        "pipelines.0.output_topic=out",
        f"pipelines.0.namespace=seed-{next(_names)}",
        *more,
    ]


def configured(server: RedisServer, *more: str) -> Config:
    return load(None, settings(server, "pipelines.0.group_fields=service", *more)).config


def seeded(
    config: Config,
    lines: TeachingLines,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    *,
    again: bool = False,
) -> Seeded:
    async def whole() -> Seeded:
        async with assembly.connect_redis(config) as server:
            assert server is not None
            section = config.pipelines[0]
            return await seed(config, section, server, lines, progress, again=again)

    return asyncio.run(whole())


def with_engine(config: Config, work: Callable[[Engine, RedisIndex], Awaitable[Any]]) -> Any:
    """Run work with the engine of another worker of the namespace."""

    async def whole() -> Any:
        async with assembly.connect_redis(config) as server:
            assert server is not None
            return await work(*await engine_of(config, server))

    return asyncio.run(whole())


async def engine_of(config: Config, server: RedisClient) -> tuple[Engine, RedisIndex]:
    section = config.pipelines[0]
    index = await assembly.open_redis_index(config, section, server)
    windows, summaries = section.windows(), section.summaries()
    engine = Engine(
        section.load_recipe(), index, windows=windows, summaries=summaries, clock=index.clock
    )
    return engine, index


def live(number: int = 0) -> Batch:
    partition = Partition("logs", number)
    return Batch(partition, range(len(LINES)), list(LINES), None, list(GROUPS))


def records_of(values: Sequence[bytes]) -> Records:
    number = len(values)
    return Records(list(range(number)), [0] * number, [None] * number, list(values), [()] * number)


def clusters(config: Config) -> list[tuple[str, bytes, int]]:
    """End the namespace: group, representative and count of each cluster, with what merged."""

    async def ended(engine: Engine, index: RedisIndex) -> list[Summary]:
        await index.finish(engine.clock.now_us())
        found: list[Summary] = []
        while summaries := await engine.claim_summaries():
            await engine.confirm_summaries(summaries)
            found += summaries
        return found

    summaries = with_engine(config, ended)
    merged = {each.cluster: each.merged_into for each in summaries}
    totals: Counter[int] = Counter()
    for each in summaries:
        root = each.cluster
        while merged[root] is not None:
            root = merged[root]
        totals[root] += each.count
    return sorted(
        (each.group, each.representative, totals[each.cluster])
        for each in summaries
        if each.merged_into is None
    )


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, stored: Path, redis_server: RedisServer
) -> list[tuple[str, bytes, int]]:
    """The clusters of a seeding that was not interrupted."""
    config = configured(redis_server)
    seeded(config, TeachingLines(spark, str(stored)))
    return clusters(config)


@pytest.mark.parametrize("shards", [1, 3])
def test_known_patterns_are_duplicates_at_once(
    spark: SparkSession, stored: Path, redis_server: RedisServer, shards: int
) -> None:
    config = configured(redis_server, f"index.shards={shards}")
    done = seeded(config, TeachingLines(spark, str(stored)))
    assert done.counts.events == done.lines > done.counts.new > 100
    decisions = with_engine(config, lambda engine, _: engine.process(live()))
    assert Counter(each.kind for each in decisions) == {
        Kind.DUPLICATE: len(LINES) - PASSED,
        Kind.PASSED: PASSED,
    }
    report = json.loads((stored / "backfill.json").read_text())
    assert len({each.cluster for each in decisions} - {None}) == report["clusters"]


@pytest.mark.parametrize("step", ["before record", "after record", "after resolve"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_killed_seeding_goes_on_where_it_ended(
    spark: SparkSession,
    stored: Path,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    expected: list[tuple[str, bytes, int]],
    step: str,
    shards: int,
) -> None:
    config = configured(redis_server, f"index.shards={shards}")
    lines = TeachingLines(spark, str(stored))
    calls = count()
    when, _, method = step.partition(" ")
    original = getattr(RedisIndex, method)

    async def dying(self: RedisIndex, *args: Any) -> Any:
        dies = next(calls) % 3 == 1
        if dies and when == "before":
            raise KilledError
        answer = await original(self, *args)
        if dies:
            raise KilledError
        return answer

    monkeypatch.setattr(RedisIndex, method, dying)
    killed, done = 0, None
    while done is None:
        try:
            done = seeded(config, lines)
        except KilledError:
            killed += 1
    monkeypatch.undo()
    assert killed >= 2
    assert done.before > 0
    assert done.counts.events == done.lines - done.before
    assert clusters(config) == expected


def test_a_command_that_is_killed_goes_on_where_it_ended(
    spark: SparkSession, tmp_path: Path, make_redis: Callable[..., RedisServer]
) -> None:
    """Each line is a cluster of its own."""
    words = list(map("".join, product("abcdefghij", repeat=5)))[:12_000]
    body = [f"{word} {word[::-1]} {word}x {word}y {word}z started".encode() for word in words]
    out, server = backfilled(spark, tmp_path, body=body), make_redis()
    given = settings(server)
    args = ["index", "seed", "--from", str(out), "--format", "json", "--master", "local[2]"]
    for each in given:
        args += ["--set", each]
    with subprocess.Popen([COMMAND, *args], stdout=subprocess.DEVNULL) as first:
        end_s = time.monotonic() + TIMEOUT_S
        while not recorded(server):
            assert first.poll() is None
            assert time.monotonic() < end_s
            time.sleep(0.05)  # nobody signals that Redis has recorded lines
        first.kill()
    before = recorded(server)
    result = msgspec.json.decode(run(*args).out)
    report = json.loads((out / "backfill.json").read_text())
    assert 0 < before <= result["seeded_before"] < result["lines"] == report["clusters"]
    found = clusters(load(None, given).config)
    assert len(found) == report["clusters"]
    assert {each[2] for each in found} == {1}


def recorded(server: RedisServer) -> int:
    """Lines whose counts are recorded, as the partition of the seeding says."""
    keys = server.command("KEYS", "*:p:seed:*")
    assert isinstance(keys, list)
    for key in keys:
        assert isinstance(key, bytes)
        number = server.command("HGET", key, "high_water")
        return int(number) + 1 if isinstance(number, bytes) else 0
    return 0


def test_a_second_run_seeds_nothing_unless_asked_to(
    spark: SparkSession, stored: Path, redis_server: RedisServer
) -> None:
    config = configured(redis_server)
    lines = TeachingLines(spark, str(stored))
    first = seeded(config, lines)
    second = seeded(config, lines)
    assert (second.before, second.counts.events) == (first.lines, 0)
    before = clusters(config)  # all have closed since
    assert sum(each[2] for each in before) == first.lines
    again = seeded(config, lines, again=True)
    assert (again.before, again.counts.events) == (0, first.lines)
    assert {each[:2] for each in clusters(config)} == {each[:2] for each in before}


def test_a_namespace_in_use_is_seeded(
    spark: SparkSession,
    stored: Path,
    redis_server: RedisServer,
    expected: list[tuple[str, bytes, int]],
) -> None:
    config = configured(redis_server)
    lines = TeachingLines(spark, str(stored))

    async def worker(server: RedisClient) -> None:
        engine, _ = await engine_of(config, server)
        batch = live(7)
        for start in range(0, len(LINES), 50):
            await engine.process(batch.part(start, start + 50))
            await asyncio.sleep(0)

    async def both() -> Seeded:
        section = config.pipelines[0]
        async with assembly.connect_redis(config) as one, assembly.connect_redis(config) as two:
            assert one is not None
            assert two is not None
            done, _ = await asyncio.gather(
                seed(config, section, one, lines, lambda *_: None), worker(two)
            )
            return done

    done = asyncio.run(both())
    found = clusters(config)
    assert sum(each[2] for each in found) == done.lines + len(LINES) - PASSED
    assert len(found) == len(expected)


def test_a_second_seeding_that_is_cut_goes_on(
    spark: SparkSession, stored: Path, redis_server: RedisServer
) -> None:
    config = configured(redis_server)
    lines = TeachingLines(spark, str(stored))
    total = seeded(config, lines).lines
    before = clusters(config)  # all have closed since

    def dying(done: int, _total: int) -> None:
        if done >= 200:
            raise KilledError

    with pytest.raises(KilledError):
        seeded(config, lines, dying, again=True)
    rest = seeded(config, lines)
    assert (rest.before, rest.counts.events) == (200, total - 200)
    assert clusters(config) == [(group, text, 2 * number) for group, text, number in before]


def test_a_running_worker_and_a_seeding_share_a_namespace(
    spark: SparkSession, tmp_path: Path, kafka: Kafka, redis_server: RedisServer
) -> None:
    """Each event of Kafka and each seeded line is counted once; no pattern has two clusters."""
    texts = [line for line in LINES if line.strip()][:1_500]
    out = backfilled(spark, tmp_path, body=texts)
    lines = TeachingLines(spark, str(out))
    trial = Trial(kafka, redis_server.url)
    given = [f"{key.replace('__', '.')}={value}" for key, value in trial.settings.items()]
    config = load(None, given).config
    seen: list[int] = []

    def progress(done: int, _total: int) -> None:
        seen.append(trial.committed())
        if done == 100:
            trial.write(texts)  # in the midst of the seeding

    with trial.worker() as worker:
        wait_for(worker.ready, "the worker is ready")
        done = seeded(config, lines, progress)
        wait_for(lambda: trial.committed() == len(texts), "all events are committed")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    assert seen[0] == 0
    found = clusters(config)
    assert sum(each[2] for each in found) == done.counts.events + len(texts)
    report = json.loads((out / "backfill.json").read_text())
    assert len(found) == report["clusters"]


def test_a_redis_cluster_is_seeded(
    spark: SparkSession,
    stored: Path,
    redis_cluster: RedisCluster,
    expected: list[tuple[str, bytes, int]],
) -> None:
    """Its shards lie on several nodes."""
    more = (f"index.url={redis_cluster.url}", "pipelines.0.group_fields=service", "index.shards=6")
    config = load(None, [*settings(redis_cluster.nodes[0]), *more]).config
    lines = TeachingLines(spark, str(stored))

    def dying(done: int, _total: int) -> None:
        if done >= 200:
            raise KilledError

    with pytest.raises(KilledError):
        seeded(config, lines, dying)
    done = seeded(config, lines)
    assert (done.before, done.counts.events) == (200, done.lines - 200)
    holding = [node for node in redis_cluster.masters() if node.command("DBSIZE") != 0]
    assert len(holding) > 1
    assert clusters(config) == expected


def test_rules_that_change_act_from_the_next_batch_on(
    spark: SparkSession, tmp_path: Path, redis_server: RedisServer
) -> None:
    words = list(map("".join, product("abcdefghij", repeat=5)))[:300]
    body = [f"{word} {word[::-1]} {word}x {word}y {word}z started".encode() for word in words]
    out = backfilled(spark, tmp_path, body=body)
    config = load(None, settings(redis_server)).config
    lines = TeachingLines(spark, str(out))
    namespace = config.pipelines[0].namespace
    pattern = "<*> <*> <*> <*> <*> started"
    text = f'[[rules]]\nkind = "always_variable"\npattern = "{pattern}"\nauthor = "ada"\n'
    rule = file.read(f"{text}time = 2026-05-07T09:30:00Z\n", "here").rules

    async def added() -> None:
        async with assembly.connect_redis(config) as server:
            assert server is not None
            await RedisRules(server, namespace).change(lambda book: book.add(*rule))

    def progress(done: int, _total: int) -> None:
        if done == 100:
            thread = threading.Thread(target=lambda: asyncio.run(added()))
            thread.start()
            thread.join()

    done = seeded(config, lines, progress)
    assert done.lines == 300
    assert (done.counts.new, done.counts.duplicates) == (101, 199)


@pytest.mark.parametrize("after", [100, 200])
def test_after_a_loss_of_data_all_lines_are_seeded(
    spark: SparkSession,
    stored: Path,
    make_redis: Callable[..., RedisServer],
    expected: list[tuple[str, bytes, int]],
    after: int,
) -> None:
    """Noticed where the index is kept alive, after the first batch; or else by the next batch."""
    server = make_redis()
    config = configured(server)
    lost: list[int] = []

    def lose(done: int, _total: int) -> None:
        if done >= after and not lost:
            lost.append(done)
            server.command("FLUSHALL")

    lines = TeachingLines(spark, str(stored))
    assert seeded(config, lines, lose).counts.events == lines.count()
    assert lost == [after]
    assert clusters(config) == expected


def test_of_two_seedings_at_once_one_ends(
    spark: SparkSession, stored: Path, redis_server: RedisServer
) -> None:
    config = configured(redis_server)
    lines = TeachingLines(spark, str(stored))

    async def taken(engine: Engine, index: RedisIndex) -> None:
        await engine.claim_partition(partition_of(lines.digest, index))

    def other(done: int, _total: int) -> None:
        if done == 100:
            thread = threading.Thread(target=with_engine, args=(config, taken))
            thread.start()
            thread.join()

    with pytest.raises(StaleFence):
        seeded(config, lines, other)


def test_lines_that_were_cut_are_counted(
    spark: SparkSession, tmp_path: Path, redis_server: RedisServer
) -> None:
    long = b"\n".join(
        b"at frame " + bytes([97 + number % 26]) * (number % 90 + 2) for number in range(400)
    )
    body = [b"disk full on drive", long, b"x" * 5_000, "ümlaut of 4096 bytes".encode()]
    out = backfilled(spark, tmp_path, body=body)
    config = load(None, settings(redis_server)).config
    done = seeded(config, TeachingLines(spark, str(out)))
    assert done.counts.passed == {seeding.TOO_LONG: 2}
    assert done.counts.new == 2


def test_recipes_of_fields_take_documents(
    spark: SparkSession, tmp_path: Path, redis_server: RedisServer
) -> None:
    body = [msgspec.json.encode({"user": f"u{n % 7}", "what": f"w{n % 5}"}) for n in range(70)]
    out = backfilled(spark, tmp_path, "json", body=body)
    more = ("pipelines.0.recipe=json", "pipelines.0.format=json")
    config = load(None, settings(redis_server, *more)).config
    seeded(config, TeachingLines(spark, str(out)))
    decoder = RecordDecoder(config.pipelines[0].reading(), load_recipe("json"))
    batch = decoder.decode(Partition("logs", 0), records_of(body), 0)
    batch.times_us = None
    decisions = with_engine(config, lambda engine, _: engine.process(batch))
    assert {each.kind for each in decisions} == {Kind.DUPLICATE}


def test_levels_beside_the_text_are_those_of_live_events(
    spark: SparkSession, tmp_path: Path, redis_server: RedisServer
) -> None:
    events = [
        {"body": f"{word} of node {number}", "level": level, "status": status}
        for number, word in enumerate(["sync", "start of a scan", "loss"])
        for level, status in (("info", 200), ("error", 200), ("error", 503), (None, None))
    ]
    parquet.write_table(pa.Table.from_pylist(events), tmp_path / "events.parquet")
    chosen = Settings((str(tmp_path / "events.parquet"),), str(tmp_path / "out"))
    report = Backfill(spark, chosen, load_recipe("logs"), ManualClock(), lambda _: None).run()
    assert report["clusters"] == len(events)
    config = load(None, settings(redis_server, "pipelines.0.format=json")).config
    seeded(config, TeachingLines(spark, str(tmp_path / "out")))
    decoder = RecordDecoder(config.pipelines[0].reading(), load_recipe("logs"))
    batch = decoder.decode(
        Partition("logs", 0), records_of(list(map(msgspec.json.encode, events))), 0
    )
    batch.times_us = None
    decisions = with_engine(config, lambda engine, _: engine.process(batch))
    assert {each.kind for each in decisions} == {Kind.DUPLICATE}
    assert len({each.cluster for each in decisions}) == len(events)


ODD = ["", "a/b", 'q"\\', "\x07\x1f\x7f\n", "ünïcode €", "\U0001f600", "<&>'", "x" * 300, " "]


def test_groups_are_those_of_the_decoder(spark: SparkSession, tmp_path: Path) -> None:
    values: Sequence[str | None] = [*ODD, None]
    rows = [{"body": f"disk full {'abcdefghij'[n]}", "service": v} for n, v in enumerate(values)]
    bodies = [row["body"] for row in rows]
    numbers = [7, -3, None, 0, 1, 2, 3, 4, 5, 6]
    out = backfilled(spark, tmp_path, body=bodies, service=values, pod=numbers)
    found = [
        group
        for batch in TeachingLines(spark, str(out)).batches(load_recipe("logs"))
        for group in batch.groups
    ]
    options = DecoderOptions(format="jsonl", group_fields=("service", "pod"))
    decoder = RecordDecoder(options, load_recipe("logs"))
    events = [
        msgspec.json.encode({**row, "pod": number})
        for row, number in zip(rows, numbers, strict=True)
    ]
    batch = decoder.decode(Partition("logs", 0), records_of(events), 0)
    assert batch.groups is not None
    assert sorted(found) == sorted(batch.groups)


def refusal(spark: SparkSession, folder: Path) -> str:
    def read() -> None:
        lines = TeachingLines(spark, str(folder))
        lines.count()
        list(lines.batches(load_recipe("logs")))

    with pytest.raises(InputError) as caught:
        read()
    return str(caught.value)


def test_unfinished_backfills_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert "there is no such folder" in refusal(spark, tmp_path / "none")
    assert "was never written to it" in refusal(spark, tmp_path)
    out = backfilled(spark, tmp_path, body=LINES[:500])
    report = (out / "backfill.json").read_text()
    (out / "backfill.json").write_text(report[:50])
    assert f"{out}/backfill.json: cannot be read, or is damaged" in refusal(spark, out)
    (out / ".backfill.json.crc").unlink()
    assert f"{out}/backfill.json: cannot be read (" in refusal(spark, out)
    (out / "backfill.json").unlink()
    assert "has not ended: start it again" in refusal(spark, out)
    (out / "backfill.json").write_text(report)
    success = out / "stages/clusters/_SUCCESS"
    success.unlink()
    assert f"{out}/stages/clusters: is missing, half written" in refusal(spark, out)
    success.touch()
    of_stage = out / "stages/fingerprints/_settings"
    of_stage.write_text("others")
    (of_stage.parent / "._settings.crc").unlink()
    assert f"{out}/stages/fingerprints: is missing, half written" in refusal(spark, out)


def test_stages_with_damaged_files_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    out = backfilled(spark, tmp_path, body=LINES[:500])
    part = next((out / "stages/fingerprints").glob("*.parquet"))
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    (part.parent / f".{part.name}.crc").unlink(missing_ok=True)
    assert "Spark failed: " in refusal(spark, out)
    part.unlink()
    said = refusal(spark, out)
    assert "files are missing" in said or "Spark failed" in said


def run_here(*args: str) -> Done:
    """Run a command in this process, whose Spark session it uses."""
    result = CliRunner().invoke(cli, args)
    return Done(result.exit_code, result.stdout_bytes, result.stderr)


def test_the_command_seeds_and_says_what_it_did(
    spark: SparkSession,
    stored: Path,
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = settings(redis_server, "pipelines.0.group_fields=service")
    options = ["-n", given[3].partition("=")[2], "--master", "local[2]"]
    for each in given:
        options += ["--set", each]
    args = ["index", "seed", "--from", str(stored), "--format", "json", *options]
    done = run(*args)
    assert done.code == 0, done.err
    result = msgspec.json.decode(done.out)
    assert result["lines"] == result["new_clusters"] + result["joined_clusters"]
    again = msgspec.json.decode(run_here(*args).out)
    assert (again["seeded_before"], again["new_clusters"]) == (result["lines"], 0)

    other = run_here(*args, "--set", "pipelines.0.recipe=text")
    assert (other.code, other.out) == (2, b"")
    assert f"{stored}/backfill.json: recipe_digest is " in other.err
    grouped = run_here(*args, "--set", "pipelines.0.group_fields=service,pod")
    assert (grouped.code, grouped.out) == (2, b"")
    assert "--group-field pod --group-field service" in grouped.err
    memory = run(*args, "--set", "index.kind=memory")
    assert memory.code == 2
    assert "index.kind is memory" in memory.err
    away = ["--set", "index.url=redis://me:s3cret@127.0.0.1:1", "--set", "index.within_s=0.1"]
    with monkeypatch.context() as counting:
        counting.delattr(TeachingLines, "count")  # Redis is asked first
        done = run_here(*args, *away)
    assert done.code == 2
    assert "127.0.0.1:1" in done.err
    assert "Start the same command again" in done.err
    assert "s3cret" not in done.err
    unknown = run(*args, "-n", "nosuch")
    assert unknown.code == 2
    assert "no pipeline has 'nosuch'" in unknown.err
    (tmp_path / "pyspark.py").write_text("raise ImportError('No module named pyspark')\n")
    missing = run(*args, env={"PYTHONPATH": str(tmp_path)})
    assert missing.code == 2
    assert "pip install 'stream-dedup[spark]'" in missing.err
    assert spark.range(3).count() == 3  # the session is left as it was

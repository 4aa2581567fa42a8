"""`stream_dedup.spark`: the clusters of the embedded engine, whatever the partitions."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from benchmarks.datasets import Dataset, load_datasets
from benchmarks.varying_words import made_lines
from stream_dedup import Deduplicator
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.errors import InputError, RecipeError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import Lines
from stream_dedup.model import Kind, Partition
from stream_dedup.spark import candidates, dedup, find_pairs, fingerprint, frames
from stream_dedup.spark.frames import selected
from stream_dedup.spark.lines import distinct_lines

ROOT = Path(__file__).parents[3]
KEY = bytes(range(16))
ENDLESS = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)


def example_lines() -> list[bytes]:
    files = sorted((ROOT / "examples/logs").glob("*.log.gz"))
    return [line for path in files for line in gzip.open(path).read().splitlines()]


def frame_of(
    spark: SparkSession, texts: Sequence[bytes | None], groups: Sequence[str] | None = None
) -> DataFrame:
    named = groups or [""] * len(texts)
    rows = [(number, *row) for number, row in enumerate(zip(texts, named, strict=True))]
    random.Random(3).shuffle(rows)
    return spark.createDataFrame(rows, "id long, body binary, app string").repartition(3)


def in_spark(frame: DataFrame, recipe: str, group: str | None = None) -> list[int | None]:
    """Return for each row the first row of its cluster."""
    found = dedup(frame, recipe=recipe, group=group, key=KEY)
    rows = found.select("id", "representative_id").collect()
    return [first for _, first in sorted((row.id, row.representative_id) for row in rows)]


def embedded(
    texts: Sequence[bytes], recipe: str, groups: Sequence[str] | None = None
) -> list[int | None]:
    """Return the same of the embedded engine."""
    limits = Limits(max_clusters=1_000_000)
    engine = Deduplicator(recipe, windows=ENDLESS, limits=limits, key=KEY)
    decisions = engine.process(texts, times_us=range(len(texts)), groups=groups)
    finals = engine.close(patterns=False)
    into = {each.cluster: each.merged_into for each in finals if each.merged_into is not None}
    firsts: dict[int, int] = {}
    found: list[int | None] = []
    for row, decision in enumerate(decisions):
        cluster = decision.cluster
        while cluster in into:
            cluster = into[cluster]
        found.append(None if cluster is None else firsts.setdefault(cluster, row))
    return found


def texts_of_campaigns(count: int) -> list[bytes]:
    chance = random.Random(7)
    words = [f"word{number}" for number in range(3_000)]
    campaigns = [chance.choices(words, k=chance.randint(20, 60)) for _ in range(count // 8)]
    texts = []
    for _ in range(count):
        text = list(chance.choice(campaigns))
        for _ in range(chance.randint(0, 6)):
            text[chance.randrange(len(text))] = chance.choice(words)
        texts.append(" ".join(text).encode())
    return texts


@pytest.fixture(autouse=True)
def all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the steps that millions of rows take."""
    monkeypatch.setattr(frames, "DECIDED_AT_ONCE", 0)
    monkeypatch.setattr(frames, "LINKED_AT_ONCE", 0)


@pytest.fixture
def several_tasks(spark: SparkSession) -> Iterator[None]:
    """Decide few rows in several tasks, too, which Spark would give to one."""
    name = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("several_tasks")
def test_real_logs_cluster_as_in_the_embedded_engine(spark: SparkSession) -> None:
    lines = example_lines()
    assert in_spark(frame_of(spark, lines), "logs") == embedded(lines, "logs")


def labelled_sets() -> list[Dataset]:
    """Those of the repository, and LogHub's where the folder that shares them is there."""
    shared = [folder / "shared/data/loghub" for folder in ROOT.parents]
    found = [folder for folder in shared if folder.is_dir()][:1]
    folders = [ROOT / "benchmarks/located/sets", *found]
    return [one for folder in folders for one in load_datasets(folder)]


@pytest.mark.parametrize("order", ["as they are", "shuffled"])
def test_labelled_logs_cluster_as_in_the_embedded_engine(spark: SparkSession, order: str) -> None:
    """All sets at once, each a group of its own; so each set's clusters are compared."""
    lines = [(one.name, line) for one in labelled_sets() for line in one.lines]
    if order == "shuffled":
        random.Random(9).shuffle(lines)
    names, texts = [name for name, _ in lines], [line for _, line in lines]
    groups = [f'{{"app":"{name}"}}' for name in names]
    found = in_spark(frame_of(spark, texts, names), "logs", "app")
    assert found == embedded(texts, "logs", groups)


def json_events() -> list[dict[str, Any]]:
    """Events whose levels, statuses and traces are fields beside the text."""
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in {}\nValueError: bad'
    beside: list[dict[str, Any]] = [
        {"level": "info"},
        {"level": "error"},
        {"level": "error", "status": 503, "res": {"statusCode": 503}},
        {"level": "info", "status": "200", "res": {"statusCode": 204}},
        {"level": "error", "exc_info": trace.format("f")},
        {"level": "error", "exc_info": trace.format("g")},
        {"level": "INFO", "success": False, "other": [1, {"a": 2}]},
        {"severity": 4.0, "success": True},
        {},
    ]
    texts = ["sync of node {}", "request {} done", ""]
    pairs = product(range(3), texts, beside)
    return [{"msg": text.format(number), **fields} for number, text, fields in pairs]


def test_json_events_cluster_as_in_the_embedded_engine(spark: SparkSession, tmp_path: Path) -> None:
    rows = [json.dumps({"id": number} | event) for number, event in enumerate(json_events())]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    decoder = Decoder(DecoderOptions("jsonl"), Partition("a", 0), load_recipe("logs"))
    values = decoder.decode(Lines([row.encode() for row in rows], 1), 0).batch.values
    found = dedup(spark.read.json(str(tmp_path / "a.jsonl")), text="msg", key=KEY)
    firsts = [row.representative_id for row in found.orderBy("id").collect()]
    assert firsts == embedded(values, "logs")
    assert len(set(firsts) - {None}) == 18


def test_numbered_levels_of_gelf_are_known_by_its_text(spark: SparkSession) -> None:
    rows = [(number, "disk 1 full", Decimal(level)) for number, level in enumerate((6, 3, 6))]
    frame = spark.createDataFrame(rows, "id int, short_message string, level decimal(5, 0)")
    found = dedup(frame, text="short_message", key=KEY).orderBy("id").collect()
    assert [row.representative_id for row in found] == [0, 1, 0]


def test_fingerprints_of_a_field_of_a_struct(spark: SparkSession) -> None:
    frame = spark.sql("select named_struct('message', 'disk 1 is full') as log, 'x' as level")
    (row,) = fingerprint(frame, "log.message").collect()
    (other,) = fingerprint(spark.sql("select 'disk 2 is full' as body")).collect()
    assert row.fingerprint == other.fingerprint


def test_more_or_fewer_partitions_change_nothing(spark: SparkSession) -> None:
    lines = example_lines()[:3_000]
    frame = frame_of(spark, lines)
    found = [
        sorted((row.id, row.cluster, row.distance) for row in dedup(part, key=KEY).collect())
        for part in (frame.coalesce(1), frame.repartition(7))
    ]
    assert found[0] == found[1]


def test_rows_far_apart_in_time_are_compared(spark: SparkSession) -> None:
    """A stream has closed the cluster by then: here nothing closes one."""
    rows = [(1, 0, "disk 1 full"), (2, 10**15, "disk 2 full")]
    frame = spark.createDataFrame(rows, "id int, at long, body string")
    assert {row.representative_id for row in dedup(frame, time="at").collect()} == {1}
    engine = Deduplicator("logs")
    texts, times_us = [text.encode() for _, _, text in rows], [at for _, at, _ in rows]
    assert [each.kind for each in engine.process(texts, times_us=times_us)] == [Kind.NEW] * 2


def test_a_key_that_half_of_all_rows_share_is_hot(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the window its rows are chained: one task decides them, with the same clusters."""
    monkeypatch.setattr(candidates, "WINDOW", 5)
    chance = random.Random(4)
    usual = ["".join(chance.choices("abcdefgh", k=7)) for _ in range(80)]
    texts = [line for line in example_lines() if len(line) > 60][:400]
    for _ in range(400):
        words = list(usual)
        words[chance.randrange(80)] = "".join(chance.choices("abcdefgh", k=9))
        texts.append(" ".join(words).encode())
    chance.shuffle(texts)
    frame = frame_of(spark, texts)
    assert in_spark(frame, "logs") == embedded(texts, "logs")
    recipe = load_recipe("logs")
    lines = distinct_lines(selected(frame, "body", "id", None, None, recipe), recipe, KEY)
    hot, largest = candidates.hot_buckets(lines, recipe, len(texts))
    assert hot > 0
    assert largest >= 200


def test_shuffled_lines_cluster_as_in_the_embedded_engine(spark: SparkSession) -> None:
    lines = example_lines() * 2
    random.Random(5).shuffle(lines)
    lines = lines[:100_000]
    assert in_spark(frame_of(spark, lines), "logs") == embedded(lines, "logs")


@pytest.mark.usefixtures("several_tasks")
def test_lines_of_many_variables_cluster_as_in_the_embedded_engine(spark: SparkSession) -> None:
    lines = [line for _, line in made_lines(3, 6_000)]
    found = in_spark(frame_of(spark, lines), "logs")
    assert found == embedded(lines, "logs")
    assert len(set(found)) < 60  # also those that came before their words were known to vary


@pytest.mark.usefixtures("several_tasks")
def test_words_that_vary_in_whole_lines_vary_in_all_tasks(spark: SparkSession) -> None:
    chance = random.Random(4)
    letters = "abdegiklmnorstuz"
    names = [f"{one}{two}u" for one in letters[:10] for two in letters]
    lines = [
        "task {} assigned to worker {} by scheduler {}".format(*chance.choices(names, k=3)).encode()
        for _ in range(200)
    ]
    found = in_spark(frame_of(spark, lines), "logs")
    assert found == embedded(lines, "logs")
    assert len(set(found)) == 1


@pytest.mark.parametrize("recipe", ["text", "documents", "words", "minhash-n", "md5-128"])
def test_texts_cluster_as_in_the_embedded_engine(spark: SparkSession, recipe: str) -> None:
    texts = texts_of_campaigns(1_500)
    assert in_spark(frame_of(spark, texts), recipe) == embedded(texts, recipe)


@pytest.mark.parametrize(
    ("limit", "recipe"),
    [
        ("DECIDED_AT_ONCE", "text"),
        ("DECIDED_AT_ONCE", "logs"),
        ("LINKED_AT_ONCE", "text"),
        ("LINKED_AT_ONCE", "messages"),
        ("LINKED_AT_ONCE", "logs"),
    ],
)
def test_few_rows_cluster_as_in_the_embedded_engine(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: str, recipe: str
) -> None:
    monkeypatch.setattr(frames, limit, 10**6)
    texts = [*texts_of_campaigns(1_500), *example_lines()[:500], b"", b"\xff"]
    assert in_spark(frame_of(spark, texts), recipe) == embedded(texts, recipe)


def test_only_rows_of_a_group_are_compared(spark: SparkSession) -> None:
    lines = example_lines()[:4_000]
    apps = [f"app{number % 3}" for number in range(len(lines))]
    groups = [f'{{"app":"{app}"}}' for app in apps]
    frame = frame_of(spark, lines, apps)
    assert in_spark(frame, "logs", "app") == embedded(lines, "logs", groups)


def test_rows_keep_their_columns_and_gain_four(spark: SparkSession) -> None:
    texts = ["disk sda1 is 91% full", "disk sdb7 is 64% full", "out of memory", None, " "]
    frame = spark.createDataFrame(
        [(f"row-{number}", text, number * 0.5) for number, text in enumerate(texts)],
        "id string, body string, size double",
    )
    rows = sorted(dedup(frame).collect(), key=lambda row: row.id)
    assert list(rows[0].asDict()) == [
        "id", "body", "size", "cluster", "representative_id", "is_duplicate", "distance",
    ]  # fmt: skip
    assert [row.size for row in rows] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert [(row.representative_id, row.is_duplicate) for row in rows] == [
        ("row-0", False),
        ("row-0", True),
        ("row-2", False),
        (None, False),
        (None, False),
    ]
    assert [row.distance for row in rows] == [0, 0, 0, None, None]
    assert rows[0].cluster == rows[1].cluster != rows[2].cluster


def test_the_first_row_is_the_one_of_the_least_time(spark: SparkSession) -> None:
    rows = [(1, 30, "disk 1 full"), (2, 10, "disk 2 full"), (3, 20, "disk 3 full")]
    frame = spark.createDataFrame(rows, "id int, at int, body string")
    assert {row.representative_id for row in dedup(frame, time="at").collect()} == {2}
    assert {row.representative_id for row in dedup(frame).collect()} == {1}


@pytest.mark.parametrize("partitions", [1, 4])
def test_rows_without_a_time_come_first(spark: SparkSession, partitions: int) -> None:
    rows = [(1, 30, "disk 1 full"), (2, 10, "disk 2 full"), (4, None, "disk 4 full")]
    rows.append((3, None, "disk 3 full"))
    frame = spark.createDataFrame(rows, "id int, at int, body string").repartition(partitions)
    assert {row.representative_id for row in dedup(frame, time="at").collect()} == {3}


def test_cluster_ids_are_the_same_in_every_run(spark: SparkSession) -> None:
    frame = frame_of(spark, example_lines()[:500])
    first, second = ({row.id: row.cluster for row in dedup(frame).collect()} for _ in range(2))
    assert first == second


def test_a_frame_that_dedup_cannot_take_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "text", 2)], "id int, body string, cluster int")
    with pytest.raises(InputError, match="columns that are added to it: cluster"):
        dedup(frame)
    with pytest.raises(InputError, match="no column is named 'message'"):
        dedup(frame.drop("cluster"), text="message")
    with pytest.raises(InputError, match="column 'id' holds int, no texts"):
        dedup(frame.drop("cluster"), text="id")


def test_fingerprints_are_those_of_the_embedded_engine(spark: SparkSession) -> None:
    lines = example_lines()[:300]
    frame = frame_of(spark, [*lines, None, b""])
    rows = sorted((row.id, row.fingerprint) for row in fingerprint(frame).collect())
    decisions = Deduplicator("logs").process(lines)
    expected = [f"{decision.fingerprint:016x}" for decision in decisions]
    assert [shown for _, shown in rows] == [*expected, None, None]
    with pytest.raises(RecipeError, match="never shown"):
        fingerprint(frame, recipe="text")


def test_near_pairs_are_those_that_comparing_all_finds(spark: SparkSession) -> None:
    texts = texts_of_campaigns(400)
    recipe = replace(load_recipe("md5-128"), match=replace(load_recipe("md5-128").match, k=8))
    found = find_pairs(frame_of(spark, texts), recipe=recipe).collect()
    decisions = Deduplicator(recipe).process(texts)
    prints = [decision.fingerprint or 0 for decision in decisions]
    distinct = sorted({text: row for row, text in reversed(list(enumerate(texts)))}.values())
    expected = {
        (one, other, (prints[one] ^ prints[other]).bit_count())
        for one, other in combinations(distinct, 2)
        if (prints[one] ^ prints[other]).bit_count() <= recipe.match.k
    }
    assert {(row.id_a, row.id_b, row.distance) for row in found} == expected
    assert len(found) == len(expected) > 0

"""What `benchmarks.spark` measures: ``python -m benchmarks.spark_runs TOOL KIND IN OUT``.

Each run is a process of its own. It reads Parquet with the columns ``id`` and ``body``, and writes
Parquet with ``is_duplicate`` besides: whether an earlier row is near. It prints ``ready`` when
Spark and the libraries are loaded, and at its end a JSON object with the seconds since, and the
bytes that Spark wrote for shuffles.

All tools get the same texts. MLlib and datasketch compare features, which their users choose; here
those that serve them best on these rows:

- of log lines the words, without digits (`WORDS`), so that lines which differ in numbers are equal;
- of texts each two words in a row.

Rows whose features are equal are one row to both: else MLlib would compare each two repeats. With
``--plain`` MLlib gets every row, as its documentation shows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_MEMORY = "3g"
CORES = 2
RECIPES = {"logs": "logs", "texts": "text"}
WORDS = r"[^A-Za-z]+"
"""What is between two words."""

FEATURES = 1 << 20
"""Of HashingTF: so many that hardly any two words share one."""

PERMUTATIONS = 128


def main() -> None:
    """Run one tool once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_runs")
    parser.add_argument("tool", choices=[*SPARK_TOOLS, "datasketch"])
    parser.add_argument("kind", choices=list(RECIPES))
    parser.add_argument("given", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--jaccard", type=float, default=0.5)
    parser.add_argument("--tables", type=int, default=1, help="of MLlib")
    parser.add_argument("--plain", action="store_true", help="give MLlib every row")
    options = parser.parse_args()
    if options.tool == "datasketch":
        _datasketch(options)
        return
    spark = _session()
    frame = spark.read.parquet(str(options.given)).select("id", "body")
    print("ready", flush=True)
    begun_s = time.perf_counter()
    SPARK_TOOLS[options.tool](frame, options).write.mode("overwrite").parquet(str(options.output))
    _done(begun_s, _shuffle_bytes(spark))
    spark.stop()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- datasketch's run needs no Java

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("bench-spark")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "32")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _shuffle_bytes(spark: SparkSession) -> int:
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 -- no UI to ask
    return int(store.executorSummary("driver").totalShuffleWrite())


def _done(begun_s: float, shuffle_bytes: int) -> None:
    seconds = time.perf_counter() - begun_s
    print(json.dumps({"seconds": seconds, "shuffle_bytes": shuffle_bytes}), flush=True)


def _ours(frame: DataFrame, options: argparse.Namespace) -> DataFrame:
    from stream_dedup.spark import dedup  # noqa: PLC0415 -- an extra

    return dedup(frame, recipe=RECIPES[options.kind])


def _mllib(frame: DataFrame, options: argparse.Namespace) -> DataFrame:
    from pyspark.ml.feature import HashingTF, MinHashLSH, NGram, RegexTokenizer  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- an extra

    split = RegexTokenizer(inputCol="body", outputCol="words", pattern=WORDS)
    words = split.transform(frame).withColumn("key", F.array_join("words", " "))
    if options.kind == "texts":
        words = NGram(n=2, inputCol="words", outputCol="features").transform(words)
    else:
        words = words.withColumnRenamed("words", "features")
    if options.plain:
        words = words.withColumn("key", F.col("id").cast("string"))
    keys = words.select("id", "key")
    distinct = words.groupBy("key").agg(
        F.min("id").alias("first"), F.first("features").alias("features")
    )
    vectors = (
        HashingTF(numFeatures=FEATURES, binary=True, inputCol="features", outputCol="vector")
        .transform(distinct.where(F.size("features") > 0))
        .select("first", "vector")
        .cache()
    )
    model = MinHashLSH(
        inputCol="vector", outputCol="hashes", numHashTables=options.tables, seed=1
    ).fit(vectors)
    pairs = model.approxSimilarityJoin(vectors, vectors, 1 - options.jaccard, "distance")
    near = (
        pairs.where("datasetA.first < datasetB.first")
        .select(F.col("datasetB.first").alias("first"))
        .distinct()
        .withColumn("near", F.lit(True))
    )
    of_key = distinct.select("key", "first").join(near, "first", "left")
    found = keys.join(of_key, "key", "left").select(
        "id", (F.col("near").isNotNull() | (F.col("id") != F.col("first"))).alias("is_duplicate")
    )
    return frame.join(found, "id")


def _datasketch(options: argparse.Namespace) -> None:
    import datasketch  # noqa: PLC0415 -- Spark's runs do not need it
    import pandas as pd  # noqa: PLC0415 -- as above

    print("ready", flush=True)
    begun_s = time.perf_counter()
    frame = pd.read_parquet(options.given, columns=["id", "body"]).sort_values("id")
    between = re.compile(WORDS)
    index: Any = datasketch.MinHashLSH(threshold=options.jaccard, num_perm=PERMUTATIONS)
    keys = frame["body"].map(lambda body: " ".join(between.split(body.lower())).strip())
    is_repeat = keys.duplicated()
    is_near: dict[str, bool] = {}
    for key in keys[~is_repeat]:
        words = key.split(" ")
        if options.kind == "texts":
            words = [f"{one} {other}" for one, other in pairwise(words)]
        sketch: Any = datasketch.MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch([word.encode() for word in words])
        is_near[key] = bool(index.query(sketch))
        if not is_near[key]:
            index.insert(key, sketch, check_duplication=False)
    frame["is_duplicate"] = is_repeat | keys.map(is_near)
    options.output.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(options.output / "rows.parquet")
    _done(begun_s, 0)


SPARK_TOOLS: dict[str, Callable[[DataFrame, argparse.Namespace], DataFrame]] = {
    "ours": _ours,
    "mllib": _mllib,
}

if __name__ == "__main__":
    main()

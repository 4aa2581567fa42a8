"""What a finished backfill teaches an index: one line for each thing that it learned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it

from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import group_text
from stream_dedup.spark.backfill import (
    CLUSTERS,
    FINGERPRINTS,
    KEY,
    REPORT,
    SETTINGS,
    reason,
    stages_digest,
)
from stream_dedup.spark.lines import exact_hash
from stream_dedup.spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_LINES = 10_000


class Report(msgspec.Struct, frozen=True):
    """What `TeachingLines` needs of a backfill's report."""

    recipe: str
    recipe_digest: str
    clusters: int
    distinct_lines: int
    group_fields: list[str]


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines in order.

    Attributes:
        first: the number of the first one.
        texts: their texts; None where the backfill kept only a part.
        groups: of each, as `io.decoder` writes them.
    """

    first: int
    texts: list[bytes | None]
    groups: list[str]


class TeachingLines:
    """The lines of a finished backfill that taught its index something, in order of time and id.

    An index that is given these lines in this order finds the same clusters. The order is always
    the same, so a line's number names it.

    Args:
        spark: the session.
        folder: the backfill's output.

    Attributes:
        report: the backfill's.
        digest: names the backfill: its settings, input files and secret key.

    Raises:
        InputError: there is no backfill, or it is not finished.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._storage = Storage(spark, folder)
        try:
            self.report = self._read_report()
            self._key, self.digest = self._check_stages()
        except (PySparkException, Py4JError) as error:
            raise self._failed(error) from error

    def _read_report(self) -> Report:
        text = self._storage.read(REPORT)
        if text is None:
            if not self._storage.exists(""):
                raise InputError(
                    f"{self._folder}: there is no such folder; give the --output of a "
                    "stream-dedup backfill"
                )
            problem = (
                "has not ended: start it again, and it goes on"
                if self._storage.exists(SETTINGS)
                else "was never written to it: give the --output of a stream-dedup backfill"
            )
            raise InputError(f"{self._folder}: has no {REPORT}; the backfill {problem}")
        try:
            return msgspec.json.decode(text, type=Report)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self._folder}/{REPORT}: cannot be read ({error}); start the same backfill "
                "again, which writes it again"
            ) from error

    def _check_stages(self) -> tuple[bytes, str]:
        """Return the key of the backfill's hashes, and its digest."""
        settings, secret = self._storage.read(SETTINGS), self._storage.read(KEY)
        for name, found in ((SETTINGS, settings), (KEY, secret)):
            if found is None:
                raise InputError(
                    f"{self._folder}/{name}: is missing; run the backfill again, with --overwrite"
                )
        assert settings is not None
        assert secret is not None
        try:
            key = bytes.fromhex(secret)
            digest = stages_digest(settings, key)
        except ValueError as error:
            raise InputError(
                f"{self._folder}/{KEY}: holds no key; run the backfill again, with --overwrite"
            ) from error
        for stage in (FINGERPRINTS, CLUSTERS):
            if not self._storage.is_done(stage, digest):
                raise InputError(
                    f"{self._folder}/{stage}: is missing, half written, or of other settings than "
                    f"{SETTINGS}; start the same backfill again, and it goes on with that stage"
                )
        return key, digest

    def count(self) -> int:
        """Return how many lines there are.

        Raises:
            InputError: a stage holds other lines than the backfill wrote, or cannot be read.
        """
        try:
            for stage in (FINGERPRINTS, CLUSTERS):
                found = self._stage(stage).count()
                if found != self.report.distinct_lines:
                    raise InputError(
                        f"{self._folder}/{stage}: holds {found:,} lines, but {REPORT} counts "
                        f"{self.report.distinct_lines:,}; files are missing: start the backfill "
                        "again, with --overwrite"
                    )
            return int(self._stage(CLUSTERS).where("teaches").count())
        except (PySparkException, Py4JError) as error:
            raise self._failed(error) from error

    def batches(self, recipe: Recipe, first: int = 0) -> Iterator[Lines]:
        """Yield the lines, `BATCH_LINES` at a time. Blocks; holds a few batches at any time.

        Args:
            recipe: that of the backfill.
            first: the number of the first line that is wanted.

        Raises:
            InputError: a stage cannot be read.
        """
        taught = self._stage(CLUSTERS).where("teaches").select("group", "exact")
        is_whole = exact_hash(recipe, self._key, F.col("text")) == F.col("exact")
        lines = (
            self._stage(FINGERPRINTS)
            .join(taught, ["group", "exact"])
            .orderBy("time", "id")
            .select("group", F.when(is_whole, F.col("text")).alias("text"))
        )
        groups: dict[str, str] = {}
        try:
            rows = islice(lines.toLocalIterator(prefetchPartitions=True), first, None)
            while batch := list(islice(rows, BATCH_LINES)):
                if len(groups) > BATCH_LINES:
                    groups.clear()
                texts = [None if row.text is None else bytes(row.text) for row in batch]
                for row in batch:
                    if row.group not in groups:
                        groups[row.group] = _group(row.group)
                yield Lines(first, texts, [groups[row.group] for row in batch])
                first += len(batch)
        except (PySparkException, Py4JError) as error:
            raise self._failed(error) from error

    def cancel(self) -> None:
        """End what Spark is doing: a call that waits for it in another thread fails."""
        self._spark.sparkContext.cancelAllJobs()

    def _stage(self, name: str) -> DataFrame:
        return self._spark.read.parquet(self._storage.path(name))

    def _failed(self, error: Exception) -> InputError:
        return InputError(f"{self._folder}: Spark failed: {reason(error)}")


def _group(text: str) -> str:
    """Return a group as the decoder of events writes it, from a group as Spark does."""
    values: dict[str, Any] = json.loads(text) if text else {}
    return group_text(values)

"""What a finished backfill teaches an index: one line for each thing that it learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

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
from stream_dedup.spark.lines import hash_rows, hasher_of, signed
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
        packed = (
            self._stage(FINGERPRINTS)
            .join(taught, ["group", "exact"])
            .orderBy("time", "id")
            .select("group", "exact", "text")
            .mapInArrow(partial(_packed, recipe, self._key), "rows binary")
        )
        try:
            rows = islice(_unpacked(packed.toLocalIterator(prefetchPartitions=True)), first, None)
            while batch := list(islice(rows, BATCH_LINES)):
                groups, texts = zip(*batch, strict=True)
                yield Lines(first, list(texts), list(map(_group, groups)))
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


def _packed(
    recipe: Recipe, key: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Pack batches of lines, each into one row: of rows, Spark pickles each on its own.

    A text of which the backfill kept a part has another exact hash than its line: it becomes null.
    """
    for batch in batches:
        hashed, compared = hash_rows(hasher_of(recipe, key), batch.column("text"))
        is_whole = pc.and_(pa.array(compared), pc.equal(signed(hashed.exact), batch["exact"]))
        texts = pc.if_else(is_whole, batch.column("text"), None)
        part = pa.RecordBatch.from_arrays([batch.column("group"), texts], ["group", "text"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as stream:
            stream.write_batch(part)
        rows = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([rows], ["rows"])


def _unpacked(packed: Iterable[Any]) -> Iterator[tuple[str, bytes | None]]:
    """Yield the lines of packed rows: group and text."""
    for row in packed:
        table = pa.ipc.open_stream(row.rows).read_all()
        yield from zip(table["group"].to_pylist(), table["text"].to_pylist(), strict=True)


@lru_cache(BATCH_LINES)
def _group(text: str) -> str:
    """Return a group as the decoder of events writes it, from a group as Spark does."""
    values: dict[str, Any] = json.loads(text) if text else {}
    return group_text(values)

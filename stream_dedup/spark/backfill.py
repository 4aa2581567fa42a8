"""A backfill: near-duplicates of stored events, in stages that are written as Parquet.

Stages, each a folder below the output::

    stages/input         the events with ids: only if the input has no column of ids
    stages/fingerprints  the distinct lines (`lines`)
    stages/candidates    which of them are connected (`candidates`, `components`)
    stages/clusters      the cluster of each (`clusters`)
    rows                 all events, with the columns that `dedup` adds

A stage is done when its folder has Spark's ``_SUCCESS`` and, written after that, ``_settings``
with the digest of all that decides the result: the recipe, the columns, the secret key of the
hashes, and names, sizes and times of the input files. Whatever else is found was half written; it
is written again, and so are all stages after it. So a run that is killed and started again goes on
with the stage that it was in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it

from stream_dedup.clock import Clock
from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.spark.candidates import hot_buckets, links
from stream_dedup.spark.clusters import decided
from stream_dedup.spark.components import components
from stream_dedup.spark.frames import check_added, labelled, selected
from stream_dedup.spark.lines import distinct_lines
from stream_dedup.spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["parquet", "jsonl", "text"]

REPORT = "backfill.json"
FINGERPRINTS, CLUSTERS = "stages/fingerprints", "stages/clusters"
SETTINGS, KEY = "_settings", "_key"
OWN_ID, OWN_TEXT = "id", "body"
"""The columns of ids and texts, where the input has none."""

REPLACED = (SETTINGS, "stages", "rows", REPORT)
"""What is deleted where a backfill with other settings gives way."""

LOOKED_AT = 100
"""Files of text or JSON lines whose first bytes are looked at."""

UNREADABLE = (
    *(".xz", ".lzma", ".zip", ".7z", ".rar", ".tar", ".tgz", ".lz4", ".csv", ".tsv", ".avro"),
    *(".orc", ".xlsx"),
)
"""Ends of names of files that are read as nothing that this can read."""

_BEGINNINGS = (
    (b"\x1f\x8b", "gzip", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", ".zst"),
    (b"BZh", "bzip2", ".bz2"),
    (b"\xfd7zX", "xz", ""),
    (b"PK\x03\x04", "a zip archive", ""),
    (b"PAR1", "Parquet", ".parquet"),
    (b"\xff\xfe", "UTF-16", ""),
    (b"\xfe\xff", "UTF-16", ""),
)
"""First bytes, what they say, and how the names of such files have to end; nothing: no way."""

_CORRUPT = "_corrupt_record"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a backfill reads, and how.

    Attributes:
        inputs: paths, globs, or URIs that Spark reads.
        output: the folder for all that is written.
        form: how the input is read; None: as the names of the files end.
        text: the column of texts; None: `OWN_TEXT`.
        id: the column of ids; None: ids are made of file and line.
        time: the column of times, or None.
        groups: the columns that must be equal.
        overwrite: whether a backfill with other settings gives way.
    """

    inputs: tuple[str, ...]
    output: str
    form: Format | None = None
    text: str | None = None
    id: str | None = None
    time: str | None = None
    groups: tuple[str, ...] = ()
    overwrite: bool = False


class Backfill:
    """One run.

    Args:
        spark: the session.
        settings: what is read, and how.
        recipe: what counts as near.
        clock: measures the stages.
        say: called with lines about the progress.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        recipe: Recipe,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._recipe = recipe
        self._clock = clock
        self._say = say
        self._storage = Storage(spark, settings.output)
        self._digest = ""
        self._again = False  # whether a stage was written, so that all later ones are
        self._stages: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Run the stages that are not done, and write and return the report.

        Raises:
            InputError: an input cannot be read, or does not fit the settings; the output belongs to
                other settings; ids are not unique; or Spark failed. Stages that are done stay.
        """
        try:
            return self._run()
        except (PySparkException, Py4JError) as error:
            raise InputError(f"Spark failed: {reason(error)}") from error

    def _run(self) -> dict[str, Any]:
        settings = self._settings
        files = self._storage.files(settings.inputs)
        form = settings.form or form_of(files)
        frame = self._read(files, form)  # nothing is replaced before all of this is right
        with self._storage.locked():
            return self._write(frame, files, form)

    def _write(
        self, frame: DataFrame, files: Sequence[tuple[str, int, int]], form: Format
    ) -> dict[str, Any]:
        settings, recipe = self._settings, self._recipe
        key = self._begin(files, form)
        events = self._with_ids(frame)
        text, named = settings.text or OWN_TEXT, settings.id or OWN_ID
        rows = selected(events, text, named, settings.groups, settings.time, recipe)
        lines = self._stage(FINGERPRINTS, lambda: distinct_lines(rows, recipe, key, texts=True))
        count = lines.count()
        roots = self._stage("stages/candidates", lambda: components(links(lines, recipe, count)))
        clusters = self._stage(CLUSTERS, lambda: decided(lines, roots, recipe, count))
        output = self._stage(
            "rows",
            lambda: labelled(events, clusters, count, text, named, settings.groups, recipe, key),
        )
        report = self._report(lines, clusters, output, count)
        self._storage.write(REPORT, json.dumps(report, indent=2) + "\n")
        return report

    def _begin(self, files: Sequence[tuple[str, int, int]], form: Format) -> bytes:
        """Check that the output is free or of these settings; return the key of the hashes."""
        made = asdict(self._settings)
        del made["overwrite"], made["output"], made["inputs"]
        made |= {"form": form, "recipe": self._recipe.digest, "files": files}
        ours = blake2b(json.dumps(made).encode(), digest_size=16).hexdigest()
        theirs = self._storage.read(SETTINGS)
        if self._settings.overwrite:
            theirs = None
        elif theirs is not None and theirs != ours:
            raise InputError(
                f"{self._settings.output}: holds a backfill of other files, columns or another "
                "recipe: give another --output, or --overwrite"
            )
        if theirs is None:
            for name in ("rows", "stages", REPORT):
                if not self._settings.overwrite and self._storage.exists(name):
                    raise InputError(
                        f"{self._settings.output}: is not a backfill, but has {name}: give another "
                        "--output, or --overwrite"
                    )
            replaced = tuple(f"{self._storage.whole_path(name)}/" for name in REPLACED)
            for path, _, _ in files:
                if f"{path}/".startswith(replaced):
                    raise InputError(
                        f"{path}: is below --output, where --overwrite replaces it: give another "
                        "--output"
                    )
            for name in REPLACED:
                self._storage.delete(name)
            self._storage.write(KEY, HashKey.random().secret().hex(), private=True)
            self._storage.write(SETTINGS, ours)
        try:
            key = HashKey(bytes.fromhex(self._storage.read(KEY) or "")).secret()
        except ValueError as error:
            raise InputError(
                f"{self._settings.output}/{KEY}: the key of its hashes is missing or damaged: give "
                "--overwrite"
            ) from error
        self._digest = stages_digest(ours, key)
        return key

    def _read(self, files: Sequence[tuple[str, int, int]], form: Format) -> DataFrame:
        """Return the input as it is, after checks that all of it is read as it is meant."""
        settings, read = self._settings, self._spark.read
        inputs = list(settings.inputs)
        if not any("=" in path.rpartition("/")[0] for path, _, _ in files):
            read = read.option("recursiveFileLookup", "true")  # else folders are columns
        if form == "parquet":
            frame = read.option("mergeSchema", "true").parquet(*inputs)
        elif form == "jsonl":
            self._check_texts(files)
            frame = read.option("columnNameOfCorruptRecord", _CORRUPT).json(inputs)
            if set(frame.columns) <= {_CORRUPT}:
                raise InputError(f"{', '.join(inputs)}: has no JSON object in any line")
        else:
            self._check_texts(files)
            frame = read.text(inputs).withColumnRenamed("value", settings.text or OWN_TEXT)
        found = {_bare(unquote(path)) for path in frame.inputFiles()}
        for path, _, _ in files:
            if _bare(path) not in found:
                raise InputError(
                    f"{path}: is not read by Spark, which leaves out names that begin with _ or "
                    "., and folders beside others that are columns: rename it, or name its folder"
                )
        if settings.id is None and OWN_ID in frame.columns:
            raise InputError(
                f"the input has a column {OWN_ID!r}: name it, or another, with --id-field"
            )
        check_added(frame)
        whole = frame if settings.id else frame.withColumn(OWN_ID, F.lit(""))
        text, named = settings.text or OWN_TEXT, settings.id or OWN_ID
        selected(whole, text, named, settings.groups, settings.time, self._recipe)
        return frame

    def _check_texts(self, files: Sequence[tuple[str, int, int]]) -> None:
        for path, _, _ in files[:LOOKED_AT]:
            check_text(path, self._storage.head(path, 4))

    def _with_ids(self, frame: DataFrame) -> DataFrame:
        """Return the events, with an id each."""
        if self._settings.id is not None:
            return frame
        # File, where the task's part of it begins, and the row in the task: in order of the file.
        row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
        own = F.format_string(
            "%s:%015d:%010d",
            F.col("_metadata.file_path"),
            F.col("_metadata.file_block_start"),
            row,
        )
        return self._stage("stages/input", lambda: frame.select(own.alias(OWN_ID), *frame.columns))

    def _stage(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Return a stage's DataFrame, computed unless it is done."""
        path, storage = self._storage.path(name), self._storage
        if storage.is_done(name, self._digest) and not self._again:
            self._say(f"{name}: done before")
            self._stages.append({"name": name, "seconds": 0.0, "done_before": True})
            return self._spark.read.parquet(path)
        self._again = True
        begun_us = self._clock.now_us()
        make().write.mode("overwrite").parquet(path)
        storage.write(f"{name}/{SETTINGS}", self._digest)
        seconds = round((self._clock.now_us() - begun_us) / 1e6, 3)
        self._say(f"{name}: done in {seconds:.1f} s")
        self._stages.append({"name": name, "seconds": seconds, "done_before": False})
        return self._spark.read.parquet(path)

    def _report(
        self, lines: DataFrame, clusters: DataFrame, output: DataFrame, count: int
    ) -> dict[str, Any]:
        rows, events, repeated = output.agg(
            F.count("*"), F.count("cluster"), F.count_if("is_duplicate")
        ).first() or (0, 0, 0)
        hashed = lines.agg(F.sum("count")).first()[0] or 0
        found = clusters.select("cluster").distinct().count()
        if events != hashed or repeated != events - found:
            raise InputError(
                f"the ids are not unique: {events:,} events are in {found:,} clusters, and "
                f"{repeated:,} of them have another id than the first of theirs; name a column of "
                "unique ids with --id-field"
            )
        hot, largest = hot_buckets(lines, self._recipe, count)
        return {
            "recipe": self._recipe.name,
            "recipe_digest": self._recipe.digest,
            "group_fields": sorted(self._settings.groups),
            "rows": rows,
            "passed": rows - events,
            "events": events,
            "clusters": found,
            "duplicates": repeated,
            "distinct_lines": count,
            "hot_keys": {"count": hot, "largest": largest},
            "stages": self._stages,
        }


def stages_digest(settings: str, key: bytes) -> str:
    """Return the digest that stages carry which were written with these settings and this key."""
    return blake2b(settings.encode(), key=key, digest_size=16).hexdigest()


def _bare(path: str) -> str:
    """Return a URI with one slash behind its scheme, as Hadoop and Spark write them differently."""
    scheme, colon, rest = path.partition(":")
    return f"{scheme}{colon}/{rest.lstrip('/')}"


def check_text(path: str, head: bytes) -> None:
    """Raise `InputError` if a file that is read as text begins like another.

    >>> check_text("a.log.gz", bytes.fromhex("1f8b0800"))  # its name says so
    >>> check_text("a.log.1", bytes.fromhex("1f8b0800"))
    Traceback (most recent call last):
    stream_dedup.errors.InputError: a.log.1: is gzip, but its name does not end with .gz
    """
    for begin, what, ending in _BEGINNINGS:
        if head.startswith(begin) and not (ending and path.lower().endswith(ending)):
            remedy = f"its name does not end with {ending}" if ending else "Spark cannot read that"
            raise InputError(f"{path}: is {what}, but {remedy}")


def form_of(files: Sequence[tuple[str, int, int]]) -> Format:
    """Return the format of files by how their names end.

    Raises:
        InputError: they differ, or one says that it is something else.

    >>> form_of([("a.jsonl.gz", 1, 1)])
    'jsonl'
    """
    forms: dict[Format, str] = {}
    for path, _, _ in files:
        if path.lower().endswith(UNREADABLE):
            raise InputError(
                f"{path}: is none of Parquet, JSON lines and text, or compressed in a way that "
                "Spark does not know: convert it; or, if it is text, say --input-format text"
            )
        name = path.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2")
        form: Format = "text"
        if name.endswith(".parquet"):
            form = "parquet"
        elif name.endswith((".jsonl", ".json", ".ndjson")):
            form = "jsonl"
        forms.setdefault(form, path)
    if len(forms) > 1:
        named = ", ".join(f"{path} ({form})" for form, path in forms.items())
        raise InputError(f"the input has several formats: {named}; give one, or --input-format")
    return next(iter(forms))


def reason(error: Exception) -> str:
    """Return what an error of Spark says about its cause, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if line.startswith("ValueError: ")]
    # Its cause is only that the socket was closed.
    raised += [line for line in lines if "Python worker exited unexpectedly" in line]
    said = (raised or causes or lines or [type(error).__name__])[-1 if raised or causes else 0]
    return said[:500]

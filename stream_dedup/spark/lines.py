"""Distinct lines: what is left of a DataFrame when equal lines are one row.

The kernel runs on Arrow batches: the exact hash of every row, and the fingerprint, the sketch and
the keys of words of one row of each exact hash. As online, a line that repeats costs its hash only:
an executor sums up some ten thousand rows before it sends anything to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it
from pyspark.sql import types as T  # noqa: N812 -- as above

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.engine.hashing import HashedBatch, Hasher, inline
from stream_dedup.features.fields import decoded
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.combinations import LEAST_LEFT
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.one_off import WORDS_BITS
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.groups import with_variant
from stream_dedup.index.memory import run
from stream_dedup.model import Batch, Partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHUNK_ROWS, CHUNK_BYTES = 50_000, 64 << 20
"""Rows whose repeats are summed up before anything is sent to another executor."""

_PARTITION = Partition("spark", 0)


_hashers: dict[tuple[str, bytes], Hasher] = {}


def hasher_of(recipe: Recipe, key: bytes) -> Hasher:
    """Return what hashes lines in this process: made once for the batches of all tasks."""
    name = recipe.digest, key
    hasher = _hashers.get(name)
    if hasher is None:
        _hashers.clear()
        hasher = _hashers[name] = Hasher(recipe, HashKey(key), inline)
    return hasher


def hash_rows(
    hasher: Hasher, texts: pa.Array | pa.ChunkedArray, groups: Sequence[str] | None = None
) -> tuple[HashedBatch, np.ndarray]:
    """Hash a column of texts.

    Args:
        hasher: what hashes.
        texts: strings or bytes; JSON objects where the recipe takes fields.
        groups: of each row.

    Returns:
        The batch, and for each row whether it has anything to compare: a row without a text, or
        whose text has no token, or is not the JSON object that the recipe takes, is passed.
    """
    values: list[bytes | None] = texts.cast(pa.binary()).to_pylist()
    compared = np.fromiter((value is not None for value in values), bool, len(values))
    known = [value or b"" for value in values]
    documents: list[object] | None = None
    if hasher.takes_fields:
        found = map(decoded, known)
        documents = [each if isinstance(each, dict) else None for each in found]
        compared &= np.fromiter((each is not None for each in documents), bool, len(values))
    hashed = hasher.hash(Batch(_PARTITION, range(len(known)), known, None, groups, documents))
    exact = np.array(hashed.exact, np.uint64)
    return hashed, compared & (exact != hashed.fingerprinter.empty_exact)


def signed(numbers: Sequence[int]) -> pa.Array:
    """Return 64-bit numbers as Spark holds them, which has no unsigned ones."""
    return pa.array(np.array(numbers, np.uint64).view(np.int64))


def compared(df: DataFrame, recipe: Recipe, text: str) -> Column:
    """Return the column of what is compared of rows: texts, and what other columns say.

    As of JSON events: see `features.outcome_fields`.
    """
    texts = F.col(f"`{text}`" if text in df.columns else text)
    spelt = Counter(name.lower() for name in df.columns)  # Spark cannot tell "A" from "a"
    names = [name for name in OutcomeFields(recipe).columns(df.columns) if spelt[name.lower()] == 1]
    if not names:
        return texts

    def with_outcomes(texts: pa.Array, documents: pa.Array) -> pa.Array:
        outcomes = OutcomeFields(recipe)
        pairs = zip(texts.cast(pa.binary()).to_pylist(), documents.to_pylist(), strict=True)
        return pa.array(
            [
                None if value is None else outcomes.compared(msgspec.json.decode(document), value)
                for value, document in pairs
            ],
            pa.binary(),
        )

    binary = {field.name for field in df.schema if isinstance(field.dataType, T.BinaryType)}
    columns = (F.col(f"`{name}`") for name in names)
    texts_of_binary = (
        column.cast("string").alias(name) if name in binary else column
        for name, column in zip(names, columns, strict=True)
    )
    document = F.to_json(F.struct(*texts_of_binary))
    return F.arrow_udf(with_outcomes, T.BinaryType())(texts, document)


def exact_hash(recipe: Recipe, key: bytes, text: Column) -> Column:
    """Return the column of the exact hashes of texts; null for rows that are passed."""

    def hashes(texts: pa.Array) -> pa.Array:
        hashed, compared = hash_rows(hasher_of(recipe, key), texts)
        exact = np.array(hashed.exact, np.uint64).view(np.int64)
        return pa.array(exact, pa.int64(), mask=~compared)

    return F.arrow_udf(hashes, T.LongType())(text)


def fingerprint_hex(recipe: Recipe, text: Column) -> Column:
    """Return the column of the fingerprints of texts; null for rows that are passed."""
    digits = recipe.fingerprint.bits // 4

    def fingerprints(texts: pa.Array) -> pa.Array:
        hasher = hasher_of(recipe, bytes(16))  # fingerprints do not depend on it
        hashed, compared = hash_rows(hasher, texts)
        numbers = run(hasher.fingerprints(hashed, range(len(texts))))
        shown = [
            f"{numbers.fingerprint(row):0{digits}x}" if is_compared else None
            for row, is_compared in enumerate(compared)
        ]
        return pa.array(shown, pa.string())

    return F.arrow_udf(fingerprints, T.StringType())(text)


def distinct_lines(
    rows: DataFrame, recipe: Recipe, key: bytes, *, texts: bool = False
) -> DataFrame:
    """Return the distinct lines of rows: one for each group and exact hash.

    Args:
        rows: the columns `time`, `id`, `text` and `group`.
        recipe: what counts as near.
        key: of the hashes.
        texts: whether to keep the texts, which nothing compares: they make rows wide.

    Returns:
        `node` (a hash of group and exact hash), `group`, `exact`, `count`, `first_time` and
        `last_time` of all its rows; of the first one, by time and id, `time`, `id`, `text`
        (capped; null unless they are kept), `scope` (group and variant), `near`, `low`, `high`,
        `bands`, `sketch`, `one_off`, and `word_keys`, the keys of its words and of its shape. What
        a recipe has no use for is empty.
    """
    kinds = {field.name: field.dataType for field in rows.schema}
    line = T.StructType(
        [
            T.StructField("time", kinds["time"]),
            T.StructField("id", kinds["id"]),
            T.StructField("text", T.BinaryType()),
            T.StructField("scope", T.StringType()),
            T.StructField("near", T.BooleanType()),
            T.StructField("low", T.LongType()),
            T.StructField("high", T.LongType()),
            T.StructField("bands", T.BinaryType()),
            T.StructField("sketch", T.BinaryType()),
            T.StructField("one_off", T.BinaryType()),
            T.StructField("word_keys", T.ArrayType(T.LongType())),
        ]
    )
    parts = T.StructType(
        [
            T.StructField("group", T.StringType()),
            T.StructField("exact", T.LongType()),
            T.StructField("count", T.LongType()),
            T.StructField("first_time", kinds["time"]),
            T.StructField("last_time", kinds["time"]),
            *line.fields,
        ]
    )
    partial_lines = rows.select("time", "id", "text", "group").mapInArrow(
        partial(_distinct_parts, recipe, key, texts), parts
    )
    return (
        partial_lines.groupBy("group", "exact")
        .agg(
            F.sum("count").alias("count"),
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.min_by(F.struct(*line.names), F.struct("time", "id")).alias("line"),
        )
        .select(
            F.xxhash64("group", "exact").alias("node"),
            "group",
            "exact",
            "count",
            "first_time",
            "last_time",
            "line.*",
        )
    )


def _distinct_parts(
    recipe: Recipe, key: bytes, texts: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    hasher = hasher_of(recipe, key)
    for chunk in _chunks(batches):
        yield from _distinct(hasher, chunk, texts).to_batches()


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(kept)


def _distinct(hasher: Hasher, rows: pa.Table, texts: bool) -> pa.Table:
    """Return the distinct lines of some rows."""
    if rows.column("id").null_count:
        raise ValueError("the column of ids has rows without an id")
    groups: list[str] = rows.column("group").to_pylist()
    hashed, compared = hash_rows(hasher, rows.column("text"), groups)
    keyed = pa.table(
        {
            "group": rows.column("group"),
            "exact": signed(hashed.exact),
            "timed": pc.is_valid(rows.column("time")),
            "time": rows.column("time"),
            "id": rows.column("id"),
            "row": np.arange(rows.num_rows),
        }
    ).filter(pa.array(compared))
    # Rows without a time come first, as in Spark's own orders.
    keyed = keyed.sort_by([("timed", "ascending"), ("time", "ascending"), ("id", "ascending")])
    found = keyed.group_by(["group", "exact"], use_threads=False).aggregate(
        [("row", "first"), ("row", "count"), ("time", "min"), ("time", "max")]
    )
    firsts: list[int] = found.column("row_first").to_pylist()
    numbers = run(hasher.fingerprints(hashed, firsts))
    kept = Summaries().kept  # of a text, as workers keep of a cluster's first event
    chosen = rows.take(pa.array(firsts, pa.int64()))
    columns = {
        "group": found.column("group"),
        "exact": found.column("exact"),
        "count": found.column("row_count"),
        "first_time": found.column("time_min"),
        "last_time": found.column("time_max"),
        "time": chosen.column("time"),
        "id": chosen.column("id"),
        "text": pa.array(
            [kept(hashed.batch.values[row]) if texts else None for row in firsts], pa.binary()
        ),
    }
    return pa.table(columns | _numbers(hasher, numbers, [groups[row] for row in firsts]))


def _numbers(hasher: Hasher, numbers: Fingerprints, groups: Sequence[str]) -> dict[str, pa.Array]:
    count = len(groups)
    pairs = zip(groups, numbers.variants, strict=True)
    scopes = [with_variant(group, variant) for group, variant in pairs]
    sketches = numbers.sketches or [b""] * count
    one_offs = numbers.one_offs or [b""] * count
    keys, ends = _word_keys(one_offs)
    return {
        "scope": pa.array(scopes, pa.string()),
        "near": pa.array([words >= hasher.min_search_words for words in numbers.words]),
        "low": signed(numbers.low or [0] * count),
        "high": signed(numbers.high or [0] * count),
        "bands": pa.array([numbers.keys(row) for row in range(count)], pa.binary()),
        "sketch": pa.array(sketches, pa.binary()),
        "one_off": pa.array(one_offs, pa.binary()),
        "word_keys": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(keys)),
    }


def _word_keys(one_offs: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of the words of lines, one line after the other, and where each line ends.

    Of what `one_off.pack` packs every second number is a key, and the second one has the number of
    words and the shape. These are a key where words may vary together: more than `LEAST_LEFT`. How
    many words count is left out, as words that vary need not count alike.
    """
    numbers = np.frombuffer(b"".join(one_offs), np.int64).copy()
    sizes = np.array([len(each) // numbers.itemsize for each in one_offs], np.int64)
    is_key = np.arange(len(numbers)) % 2 == 0
    lines = np.flatnonzero(sizes)
    shapes = (np.cumsum(sizes) - sizes)[lines] + 1
    numbers[shapes] &= ~0xFF | (1 << WORDS_BITS) - 1
    may_vary = (numbers[shapes] & 0xFF) > LEAST_LEFT
    is_key[shapes[may_vary]] = True
    counts = sizes // 2
    counts[lines[may_vary]] += 1
    return numbers[is_key], np.cumsum([0, *counts])

"""Candidates: which distinct lines may belong together.

Two lines can meet in the index only

- where the recipe learns words, by a key of their words (`fingerprint.one_off`), or by words that
  vary together (`fingerprint.combinations`), for which they have the same shape;
- by fingerprints within k bits: they share the prefix of at least one table
  (`tables.permutation`);
- by a key of bands.

Prefixes and keys, hashed with the group and the variant, are *buckets*. The rows of a bucket lie
beside each other in one sorted partition, where each is compared with those that follow it. Nothing
is held but a window of them, however many there are.

**Hot buckets.** A row is compared with the next `WINDOW` rows of its bucket and no more, or a
bucket of n rows would cost n². The rows of a larger bucket are linked with each other by a chain,
as if all were near (`links`). That may connect lines that do not belong together, which does no
harm: links only say which lines one task decides. `near_pairs`, which gives its pairs to people,
leaves such pairs out instead. `hot_buckets` counts the buckets.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint import bands
from stream_dedup.offline import kernel
from stream_dedup.spark.components import stars
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import CostModel, choose
from stream_dedup.tables.sketches import fastest_alike

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW, BANDS_WINDOW = 2_000, 100
"""Rows of its bucket with which a row is compared; of bands each takes a look at two sketches."""

AT_ONCE_BUCKET = bands.CROWD
"""Rows of the largest bucket whose pairs `linked_at_once` compares: it holds all pairs of a band.
Rows of a larger one are linked: a key of an index leads to the first so many rows that have it,
whichever they are, so one task decides them all."""

LINKED_AT = 3
"""Lines that share so many keys of bands are linked without verification. Texts of a similarity of
.05 share so many once in 10⁹ pairs, those of .8 eight on average; with fewer keys, chance would
connect most of a million texts."""

SPARK = CostModel("spark", 0.0, 1.0, 0.005, 0, 0, 0, alike=0.12, agree=0.685)
"""A row of a table is shuffled and sorted; comparing is native. Similarity is as of `REDIS`."""

_PART = 1 << 20
_PART_ROWS = 1 << 15
_PAIR_SCHEMA = "src long, dst long"


def window_of(recipe: Recipe) -> int:
    """Return with how many rows of its bucket a row is compared."""
    return BANDS_WINDOW if recipe.fingerprint.kind == "bands" else WINDOW


def links(lines: DataFrame, recipe: Recipe, count: int) -> DataFrame:
    """Return links between all lines that can meet in the index: `src` and `dst`, two nodes.

    Args:
        lines: as `distinct_lines` returns them.
        recipe: what counts as near.
        count: how many lines there are; decides the layout of tables.
    """
    spark = lines.sparkSession
    found = spark.createDataFrame([], _PAIR_SCHEMA)
    if recipe.match.learn:
        found = found.union(_linked_by_words(lines))
    if recipe.fingerprint.kind == "bands":
        met = _pairs_in_buckets(_buckets(lines, recipe, count), recipe, chain=True)
        is_sure = F.col("shared") >= LINKED_AT
        found = found.union(met.where(is_sure).select("src", "dst"))
        found = found.union(_verified(met.where(~is_sure), lines, recipe).select("src", "dst"))
    elif recipe.fingerprint.kind != "minhash":
        met = _pairs_in_buckets(_buckets(lines, recipe, count), recipe, chain=True)
        found = found.union(met.select("src", "dst"))
    return found


def linked_at_once(lines: DataFrame, recipe: Recipe) -> DataFrame:
    """Return the components of the links between texts, found by one task; for bands.

    Returns:
        `node` and `root`, as `components` does of `links`. Where many texts share a key, more of
        them are linked: of a bucket of more than `AT_ONCE_BUCKET` rows all.
    """
    return (
        lines.where("near")
        .select("node", "scope", "bands", "sketch")
        .coalesce(1)
        .mapInArrow(partial(_linked, recipe), "node long, root long")
    )


def _linked(recipe: Recipe, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Link texts, one band after the other; texts that are connected already are not compared.

    Pairs that share a key are compared by their sketches, and linked if they are alike. Those that
    are not are counted, and linked if they share `LINKED_AT` keys.
    """
    nodes, sketches, keys, scopes = _columns(batches)
    count = len(nodes)
    joined = kernel.Components(64)
    numbers = joined.numbers(nodes.tobytes())
    label = np.arange(count)
    alike, least = fastest_alike(), Linkage(recipe).least
    unlike: list[np.ndarray] = []  # of each band, ascending
    for band in range(bands.BANDS if count else 0):
        bucket = scopes << 32 | keys[:, band]
        order = np.argsort(bucket, kind="stable")
        near, chained = _neighbours(bucket[order], order, label)
        pairs = array("I", _ends(near).astype(np.uint32).tobytes())
        found = np.frombuffer(alike(pairs, sketches, least), np.uint32).astype(np.int64)
        verified = _codes(found[::2], found[1::2])
        is_unlike = np.ones(len(near), bool)
        is_unlike[np.searchsorted(near, verified)] = False
        unlike.append(near[is_unlike])
        joined.join(nodes[_ends(np.concatenate((verified, chained)))].tobytes())
        label = _labels(joined, numbers, count)
    for first in range(0, count, _PART_ROWS):
        joined.join(nodes[_ends(_often(unlike, first, first + _PART_ROWS))].tobytes())
    yield from stars(joined)


def _columns(
    batches: Iterable[pa.RecordBatch],
) -> tuple[np.ndarray, list[bytes], np.ndarray, np.ndarray]:
    """Return nodes, sketches, keys and the numbers of scopes of texts."""
    kept = list(batches)
    if not kept:
        return (
            np.empty(0, np.int64),
            [],
            np.empty((0, bands.BANDS), np.int64),
            np.empty(0, np.int64),
        )
    table = pa.Table.from_batches(kept)
    keys = np.frombuffer(b"".join(table.column("bands").to_pylist()), ">u4").astype(np.int64)
    scopes = table.column("scope").combine_chunks().dictionary_encode().indices
    return (
        table.column("node").to_numpy(),
        table.column("sketch").to_pylist(),
        keys.reshape(-1, bands.BANDS),
        scopes.to_numpy().astype(np.int64),
    )


def _neighbours(
    bucket: np.ndarray, order: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of small buckets, and a chain through each large one, as codes.

    Args:
        bucket: ascending.
        order: the row of each; those of a bucket ascend.
        label: of each row; pairs of small buckets with the same one are left out.

    Returns:
        The pairs of small buckets, ascending, and those of chains.
    """
    _, sizes = np.unique(bucket, return_counts=True)
    is_large = np.repeat(sizes > AT_ONCE_BUCKET, sizes)
    pairs = [np.empty(0, np.int64)]
    places = np.flatnonzero(~is_large)
    for offset in range(1, AT_ONCE_BUCKET):
        places = places[places >= offset]
        places = places[bucket[places] == bucket[places - offset]]
        ours, theirs = order[places], order[places - offset]
        is_new = label[ours] != label[theirs]
        pairs.append(_codes(theirs[is_new], ours[is_new]))
    near = np.concatenate(pairs)
    near.sort()
    chained = np.flatnonzero(is_large[1:] & (bucket[1:] == bucket[:-1]))
    return near, _codes(order[chained], order[chained + 1])


def _codes(earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Return a number for each pair of rows; in their order a row's pairs lie beside each other."""
    codes: np.ndarray = later << 32 | earlier
    return codes


def _ends(codes: np.ndarray) -> np.ndarray:
    """Return the rows of each pair, the earlier one first."""
    return np.stack((codes & 0xFFFFFFFF, codes >> 32), axis=1)


def _often(unlike: Sequence[np.ndarray], first: int, stop: int) -> np.ndarray:
    """Return the pairs of `LINKED_AT` bands or more, whose later row is in `first` … `stop - 1`."""
    ends = np.array([first, stop]) << 32
    parts = [codes[slice(*np.searchsorted(codes, ends))] for codes in unlike]
    codes = np.sort(np.concatenate(parts))
    is_often = codes[LINKED_AT - 1 :] == codes[: max(len(codes) - LINKED_AT + 1, 0)]
    often: np.ndarray = codes[LINKED_AT - 1 :][is_often]
    return often


def _labels(joined: kernel.Components, numbers: array[int], count: int) -> np.ndarray:
    """Return a number of the component of each row, the same for connected ones."""
    positions, ends = joined.grouped(numbers)
    label = np.arange(count)
    stops = np.frombuffer(ends, np.uint64).astype(np.int64)
    sizes = np.diff(stops, prepend=0)
    members = np.frombuffer(positions, np.uint64).astype(np.int64)
    label[members] = np.repeat(members[stops - sizes], sizes)
    return label


def near_pairs(lines: DataFrame, recipe: Recipe, count: int) -> DataFrame:
    """Return all pairs of lines that the recipe takes for near.

    Returns:
        `src`, `dst`, `distance` and `similarity` (0 where the recipe does not verify), each pair
        once; but for those that lie too far apart in hot buckets.
    """
    met = _pairs_in_buckets(_buckets(lines, recipe, count), recipe, chain=False)
    return _verified(met, lines, recipe)


def hot_buckets(lines: DataFrame, recipe: Recipe, count: int) -> tuple[int, int]:
    """Return how many buckets are hot, and how many rows the largest has."""
    if recipe.fingerprint.kind == "minhash":
        return 0, 0
    sizes = (
        _buckets(lines, recipe, count)
        .groupBy("bucket")
        .count()
        .where(F.col("count") > window_of(recipe))
    )
    hot, largest = sizes.agg(F.count("*"), F.max("count")).first() or (0, 0)
    return hot, largest or 0


def _linked_by_words(lines: DataFrame) -> DataFrame:
    """Link all lines that share a key of their words, or their shape, with the least of them."""
    keyed = lines.select("node", F.explode("word_keys").alias("key"), "scope").select(
        "node", F.xxhash64("scope", "key").alias("bucket")
    )
    least = F.first("node").over(Window.partitionBy("bucket").orderBy("node"))
    return keyed.select(F.col("node").alias("src"), least.alias("dst")).where("src != dst")


def _buckets(lines: DataFrame, recipe: Recipe, count: int) -> DataFrame:
    """Return the buckets of all lines: `bucket`, `node`, `low` and `high`."""
    if recipe.fingerprint.kind == "bands":
        size = bands.KEY_BYTES
        keys = [
            F.xxhash64("scope", F.lit(band), F.substring("bands", band * size + 1, size))
            for band in range(bands.BANDS)
        ]
    else:
        layout = choose(recipe.fingerprint.width, recipe.match.k, max(count, 1), SPARK, 1e9).layout
        keys = _prefixes(layout)
    return lines.where("near").select(
        F.explode(F.array(*keys)).alias("bucket"), "node", "low", "high"
    )


def _prefixes(layout: Layout) -> list[Column]:
    keys = []
    for table, mask in enumerate(layout.masks):
        low, high = (
            F.col(name).bitwiseAND(F.lit(_signed(mask >> shift)))
            for name, shift in (("low", 0), ("high", 64))
        )
        keys.append(F.xxhash64("scope", F.lit(table), low, high))
    return keys


def _signed(mask: int) -> int:
    mask &= (1 << 64) - 1
    return mask - (1 << 64) if mask >> 63 else mask


def _pairs_in_buckets(buckets: DataFrame, recipe: Recipe, *, chain: bool) -> DataFrame:
    """Return the pairs that meet: `src` < `dst`, and in how many buckets they are `shared`.

    A pair that is chained counts as one that meets in `LINKED_AT` buckets.
    """
    most = None if recipe.fingerprint.kind == "bands" else recipe.match.k
    window = window_of(recipe)
    return (
        buckets.repartition("bucket")
        .sortWithinPartitions("bucket", "node")
        .mapInArrow(partial(_compared, most, window, chain), f"{_PAIR_SCHEMA}, met int")
        .groupBy("src", "dst")
        .agg(F.sum("met").alias("shared"))
    )


def _compared(
    most: int | None, window: int, chain: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compare each row of sorted buckets with those that follow it.

    Args:
        most: bits in which two may differ; None: every two are a pair.
        window: with how many.
        chain: whether to link the rows that are too far apart to be compared.
        batches: rows, sorted by bucket.
    """
    names = ("bucket", "node", "low", "high")
    kept = [np.empty(0, np.int64) for _ in names]
    for batch in batches:
        begun = len(kept[0])
        columns = [
            np.concatenate((old, batch.column(name).to_numpy()))
            for old, name in zip(kept, names, strict=True)
        ]
        yield from _compared_with_earlier(columns, begun, most, window, chain)
        kept = [column[-window:] for column in columns]


def _compared_with_earlier(
    columns: list[np.ndarray], begun: int, most: int | None, window: int, chain: bool
) -> Iterator[pa.RecordBatch]:
    """Compare the rows from `begun` on with those before them in their bucket."""
    bucket, node = columns[:2]
    low, high = (column.view(np.uint64) for column in columns[2:])  # NumPy counts bits of |x|
    rows = np.arange(begun, len(bucket))
    for offset in range(1, window + 1):
        rows = rows[rows >= offset]
        rows = rows[bucket[rows] == bucket[rows - offset]]
        if not len(rows):
            return
        near = rows
        if most is not None:
            apart = np.bitwise_count(low[rows] ^ low[rows - offset])
            apart += np.bitwise_count(high[rows] ^ high[rows - offset])
            near = rows[apart <= most]
        yield from _pairs(node[near - offset], node[near], met=1)
    if chain:  # with these all rows that were not compared with each other are connected
        yield from _pairs(node[rows - 1], node[rows], met=LINKED_AT)
        yield from _pairs(node[rows - window], node[rows], met=LINKED_AT)


def _pairs(src: np.ndarray, dst: np.ndarray, *, met: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(src), _PART):
        part = slice(start, start + _PART)
        yield pa.RecordBatch.from_arrays(
            [*map(pa.array, (src[part], dst[part], np.full(len(src[part]), met, np.int32)))],
            ["src", "dst", "met"],
        )


def _verified(pairs: DataFrame, lines: DataFrame, recipe: Recipe) -> DataFrame:
    """Return the pairs that the recipe takes for near, with distance and similarity."""
    numbers = lines.select("node", "low", "high", "bands", "sketch")
    for side in ("src", "dst"):
        renamed = numbers.select(
            F.col("node").alias(side),
            *(F.col(name).alias(f"{side}_{name}") for name in numbers.columns[1:]),
        )
        pairs = pairs.join(renamed, side)
    return pairs.mapInArrow(
        partial(_admitted, recipe), "src long, dst long, distance int, similarity double"
    )


def _admitted(recipe: Recipe, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    linkage = Linkage(recipe)
    for batch in batches:
        ours, theirs = (
            [batch.column(f"{side}_sketch").to_pylist(), fingerprints(batch, f"{side}_")]
            for side in ("src", "dst")
        )
        kept: list[tuple[int, int, float]] = []
        for row, (left, one, right, other) in enumerate(zip(*ours, *theirs, strict=True)):
            similarity = linkage.jaccard(left, right) if linkage.verifies else 0.0
            distance = linkage.distance(one, other)
            if linkage.admits(left, right, similarity, distance):
                kept.append((row, distance, similarity))
        chosen = batch.take(pa.array([row for row, _, _ in kept], pa.int64()))
        yield pa.RecordBatch.from_arrays(
            [
                chosen.column("src"),
                chosen.column("dst"),
                pa.array([distance for _, distance, _ in kept], pa.int32()),
                pa.array([similarity for _, _, similarity in kept], pa.float64()),
            ],
            ["src", "dst", "distance", "similarity"],
        )


def fingerprints(batch: pa.RecordBatch, prefix: str = "") -> list[int]:
    """Return the fingerprints of a batch of lines as the index takes them."""
    keys: list[bytes] = batch.column(f"{prefix}bands").to_pylist()
    if any(keys):
        return [int.from_bytes(each, "big") for each in keys]
    low, high = (
        batch.column(f"{prefix}{name}").to_numpy().view(np.uint64).tolist()
        for name in ("low", "high")
    )
    return [below | above << 64 for below, above in zip(low, high, strict=True)]

"""Connected components of a graph in a DataFrame.

Problem: given edges between 64-bit nodes, find for each node the least node that it is connected
with, however many edges there are.

Idea (Kiveris, Lattanzi, Mirrokni, Rastogi, Vassilvitskii: "Connected components in MapReduce and
beyond", SoCC 2014): repeat two operations until nothing changes. *Large-star* connects every
neighbour of a node that is larger than the node to the least of the node and its neighbours;
*small-star* does so with the node and its smaller neighbours. Both keep what is connected, and each
component becomes a star around its least node after some log² n rounds, in practice four to six.

Worked example, a path of four nodes::

    edges          1-2  2-3  3-4
    large-star     1-2  1-3  2-4     of 2: {1, 3}, the larger one, 3, goes to 1; of 3: 4 goes to 2
    small-star     1-2  1-3  1-4     of 4: {2}, of 2: {1}: then of (2-4), both go to 1 a round later

Deviation: each round costs Spark two shuffles, however small the graph. So where the edges are few
enough for one task (`AT_ONCE`), it joins them with the native union-find of `offline`.

Plans do not grow: after each round the edges are checkpointed, reliably where the session has a
checkpoint directory, else on the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it

from stream_dedup.offline import kernel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT_ONCE = 5_000_000
"""Edges that one task joins: some 40 bytes and a microsecond each."""


def components(edges: DataFrame, at_once: int = AT_ONCE) -> DataFrame:
    """Return the least node that each node of a graph is connected with.

    Args:
        edges: the columns `src` and `dst`, of 64 bits, in any order, with repeats or not.
        at_once: edges above which they are joined in rounds, as DataFrames.

    Returns:
        `node` and `root`, for each node but the roots themselves.
    """
    edges = checkpointed(edges.where("src != dst"))
    while True:
        count = edges.count()
        if count <= at_once:
            return edges.coalesce(1).mapInArrow(_joined, "node long, root long")
        starred = checkpointed(_small_star(_large_star(edges)))
        if _same(edges, starred):
            return starred.select(F.col("src").alias("node"), F.col("dst").alias("root"))
        edges = starred


def _same(ours: DataFrame, theirs: DataFrame) -> bool:
    """Return whether two sets of edges are equal, by count and sums of hashes."""
    sums = [F.count("*"), F.sum(F.xxhash64("src", "dst").cast("decimal(38,0)"))]
    equal: bool = ours.agg(*sums).first() == theirs.agg(*sums).first()
    return equal


def _large_star(edges: DataFrame) -> DataFrame:
    back = edges.select(F.col("dst").alias("src"), F.col("src").alias("dst"))
    both = edges.select("src", "dst").union(back)
    least = both.groupBy("src").agg(F.least(F.min("dst"), F.col("src")).alias("least"))
    return (
        both.join(least, "src")
        .where("dst > src")
        .select(F.col("dst").alias("src"), F.col("least").alias("dst"))
        .distinct()
    )


def _small_star(edges: DataFrame) -> DataFrame:
    down = edges.select(F.greatest("src", "dst").alias("src"), F.least("src", "dst").alias("dst"))
    least = down.groupBy("src").agg(F.min("dst").alias("least"))
    others = down.join(least, "src").where("dst != least")
    return (
        least.select("src", F.col("least").alias("dst"))
        .union(others.select(F.col("dst").alias("src"), F.col("least").alias("dst")))
        .where("src != dst")
        .distinct()
    )


def checkpointed(frame: DataFrame) -> DataFrame:
    """Compute a DataFrame now, and forget how."""
    if frame.sparkSession.sparkContext.getCheckpointDir() is not None:
        return frame.checkpoint()
    return frame.localCheckpoint()


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    joined = kernel.Components(64)
    for batch in batches:
        pairs = np.empty(2 * batch.num_rows, np.int64)
        pairs[::2], pairs[1::2] = batch.column("src"), batch.column("dst")
        joined.join(pairs.tobytes())
    yield from stars(joined)


def stars(joined: kernel.Components) -> Iterator[pa.RecordBatch]:
    """Yield `node` and `root`, as `components` returns them, of nodes that are joined as words."""
    words = joined.words()
    nodes = np.frombuffer(words, np.int64)
    positions, ends = joined.grouped(joined.numbers(words))
    members = nodes[np.frombuffer(positions, np.uint64).astype(np.int64)]
    stops = np.frombuffer(ends, np.uint64).astype(np.int64)
    if len(stops) == 0:
        return
    starts = np.concatenate(([0], stops[:-1]))
    roots = np.repeat(np.minimum.reduceat(members, starts), stops - starts)
    members, roots = members[members != roots], roots[members != roots]
    for start in range(0, len(members), 1 << 20):
        part = slice(start, start + (1 << 20))
        yield pa.RecordBatch.from_arrays(
            [pa.array(members[part]), pa.array(roots[part])], ["node", "root"]
        )

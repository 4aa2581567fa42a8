"""Clusters: distinct lines are decided by the embedded engine's index, each task with its own.

Lines that could meet in an index (`candidates.links`) are connected, so they lie in one partition,
in the order of their times. The index there sees them as one index that holds everything would, and
lines that cannot meet do not change each other's answers. So the clusters are those of the embedded
engine, however many tasks there are; and a learned word is learned from the same values.

Events of a stream have windows; here no cluster ever closes, and none is evicted. A line's time is
its place in the order, so no two are equally old.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it
from pyspark.sql import types as T  # noqa: N812 -- as above

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Query, Resolution
from stream_dedup.index.groups import cluster_id
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.model import Partition, Position
from stream_dedup.spark.candidates import fingerprints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENDLESS = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
"""No cluster closes."""

SENT_ROOTS = 2_000_000
"""Lines whose roots are sent to all executors, some 30 bytes each: no line travels twice."""

_PARTITION = Partition("spark", 0)
_CLAIMED = 1_000


def decided(lines: DataFrame, roots: DataFrame | None, recipe: Recipe, count: int) -> DataFrame:
    """Return the cluster of each distinct line.

    Args:
        lines: as `distinct_lines` returns them.
        roots: as `components` returns them; None: one task decides all lines.
        recipe: what counts as near.
        count: how many lines there are.

    Returns:
        For each line `group`, `exact`, `cluster` (16 hex digits), `representative_id`, `distance`
        from it, and `teaches`: whether the line taught the index something. With lines that only
        repeat what is known left out, another index learns the same words, and the same clusters up
        to `Match.aliases` of one.
    """
    schema = T.StructType(
        [
            T.StructField("group", T.StringType()),
            T.StructField("exact", T.LongType()),
            T.StructField("cluster", T.StringType()),
            T.StructField("representative_id", lines.schema["id"].dataType),
            T.StructField("distance", T.IntegerType()),
            T.StructField("teaches", T.BooleanType()),
        ]
    )
    columns = ["group", "exact", "scope", "id", "near", "low", "high", "bands", "sketch", "one_off"]
    if roots is None:
        parted = lines.coalesce(1)
    else:
        if count <= SENT_ROOTS:
            roots = F.broadcast(roots)
        parted = (
            lines.join(roots, "node", "left")
            .withColumn("root", F.coalesce("root", "node"))
            .repartition("root")
        )
    return (
        parted.sortWithinPartitions("time", "id")
        .select(*columns)
        .mapInArrow(partial(_decided, recipe, count), schema)
    )


def _decided(
    recipe: Recipe, count: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decide the lines of a partition, in order."""
    index = PartitionIndex(recipe, count)
    kept: list[tuple[pa.RecordBatch, array[int], list[bool]]] = []
    for batch in batches:
        clusters, teach = index.decide(batch)
        kept.append((batch.select(["group", "exact", "low", "high", "bands"]), clusters, teach))
    roots = index.roots()
    for batch, clusters, teach in kept:
        yield index.labelled(batch, [roots[each] for each in clusters], teach)


class PartitionIndex:
    """The index of one partition.

    Args:
        recipe: what counts as near.
        count: at most so many lines.
    """

    def __init__(self, recipe: Recipe, count: int) -> None:
        self._recipe = recipe
        self._distance = Linkage(recipe).distance
        self._index = MemoryIndex(
            recipe,
            windows=ENDLESS,
            summaries=Summaries(every_us=None, samples=0, values=0),
            limits=Limits(max_clusters=max(1, count)),
            key=HashKey(bytes(16)),  # the lines are hashed already
            cap_waiting=False,
        )
        self._fence = run(self._index.claim_partition(_PARTITION, None, 0)).fence
        self._offset = 0
        # cluster → the id of its first line, and that line's fingerprint
        self._firsts: dict[int, tuple[object, int]] = {}
        self._names: dict[int, str] = {}
        self._id_type: pa.DataType = pa.null()

    def decide(self, batch: pa.RecordBatch) -> tuple[array[int], list[bool]]:
        """Return the clusters of lines as of now, and whether each has taught the index."""
        clusters: array[int] = array("Q")
        if not batch.num_rows:
            return clusters, []
        self._id_type = batch.schema.field("id").type
        numbers, ids = fingerprints(batch), batch.column("id").to_pylist()
        first = self._offset
        columns = (
            batch.column(name).to_pylist()
            for name in ("scope", "exact", "sketch", "near", "one_off")
        )
        queries = [
            Query(
                group=scope,
                exact=exact,
                fingerprint=number,
                sketch=sketch,
                near=near,
                first_us=offset,
                last_us=offset,
                position=Position(*_PARTITION, offset),
                one_off=one_off,
            )
            for offset, (number, scope, exact, sketch, near, one_off) in enumerate(
                zip(numbers, *columns, strict=True), first
            )
        ]
        self._offset += len(queries)
        answers = run(self._index.resolve(queries, first))
        self._record(first, answers)
        for answer, number, line_id in zip(answers, numbers, ids, strict=True):
            clusters.append(answer.cluster)
            if answer.new:
                self._firsts[answer.cluster] = line_id, number
        return clusters, self._index.taught

    def _record(self, first: int, answers: Sequence[Resolution]) -> None:
        """Record what was opened: an opening that is not recorded closes when it merges."""
        deltas: dict[int, ClusterDelta] = {}
        for offset, answer in enumerate(answers, first):
            delta = deltas.get(answer.cluster)
            if delta is None:
                delta = ClusterDelta(answer.cluster, 0, offset, offset)
                deltas[answer.cluster] = delta
            delta.count += 1
            delta.last_us = offset
            if answer.new:
                delta.representative = b""
        last = self._offset - 1
        commit = Commit(_PARTITION, self._fence, first, last, last + 1, last, list(deltas.values()))
        closed = run(self._index.record(commit, last))
        assert not closed

    def roots(self) -> dict[int, int]:
        """Close all clusters, and return the oldest part of those that have merged."""
        self._index.merge_all_fitting()
        run(self._index.finish(self._offset))
        into: dict[int, int] = {}
        while summaries := run(self._index.claim(_CLAIMED, self._offset)):
            names = [(each.cluster, each.revision) for each in summaries]
            run(self._index.confirm(names, self._offset))
            into |= {
                each.cluster: each.merged_into for each in summaries if each.merged_into is not None
            }
        oldest: dict[int, int] = {}
        roots = {}
        for cluster in self._firsts:  # in the order of their first lines
            root = cluster
            while root in into:
                root = into[root]
            roots[cluster] = oldest.setdefault(root, cluster)
        return roots

    def labelled(
        self, batch: pa.RecordBatch, clusters: Sequence[int], teach: Sequence[bool]
    ) -> pa.RecordBatch:
        """Return lines with their clusters."""
        firsts = [self._firsts[cluster] for cluster in clusters]
        distances = [
            self._distance(number, first)
            for number, (_, first) in zip(fingerprints(batch), firsts, strict=True)
        ]
        columns = {
            "group": batch.column("group"),
            "exact": batch.column("exact"),
            "cluster": pa.array([self._name(cluster) for cluster in clusters], pa.string()),
            "representative_id": pa.array([first for first, _ in firsts], self._id_type),
            "distance": pa.array(distances, pa.int32()),
            "teaches": pa.array(teach, pa.bool_()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _name(self, cluster: int) -> str:
        """Return a cluster's id, which the id of its first line alone decides."""
        name = self._names.get(cluster)
        if name is None:
            position = Position(str(self._firsts[cluster][0]), 0, 0)
            name = self._names[cluster] = f"{cluster_id(self._recipe.name, position):016x}"
        return name

"""`stream_dedup.spark.components`: in rounds and at once, the same as a plain search."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from stream_dedup.spark.components import components


def least_of_each(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    parents: dict[int, int] = {}

    def root(node: int) -> int:
        while parents.setdefault(node, node) != node:
            node = parents[node]
        return node

    for one, other in edges:
        least, most = sorted((root(one), root(other)))
        parents[most] = least
    return {node: root(node) for node in list(parents) if root(node) != node}


@pytest.mark.parametrize("at_once", [0, 1_000_000])
def test_components_are_those_of_a_plain_search(spark: SparkSession, at_once: int) -> None:
    chance = random.Random(11)
    path = [(number, number + 1) for number in range(30)]
    star = [(-7, chance.randrange(1_000, 2_000)) for _ in range(60)]
    edges = [*path, *star, (5, 5), (3, 4), (-(1 << 63), (1 << 63) - 1)]
    edges += [(chance.randrange(3_000, 3_200), chance.randrange(3_000, 3_200)) for _ in range(120)]
    chance.shuffle(edges)
    found = components(spark.createDataFrame(edges, "src long, dst long"), at_once)
    assert {row.node: row.root for row in found.collect()} == least_of_each(edges)


def test_no_edges_are_no_components(spark: SparkSession) -> None:
    edges = spark.createDataFrame([(1, 1)], "src long, dst long")
    assert components(edges).collect() == []

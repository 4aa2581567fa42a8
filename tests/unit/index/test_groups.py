"""Ids of clusters, and groups that are joined with what else keeps clusters apart."""

from __future__ import annotations

from stream_dedup.index.groups import cluster_id, opened_id, with_rules, with_variant
from stream_dedup.model import Position

HERE = Position("app.log", 0, 17)


def test_ids_differ_by_every_part_of_namespace_and_position() -> None:
    positions = [
        Position("a", 0, 0),
        Position("a", 0, 1),
        Position("a", 1, 0),
        Position("a", 10, 1),
        Position("a", 1, 1),
        Position("b", 0, 0),
    ]
    ids = {cluster_id(namespace, p) for namespace in ("x", "y") for p in positions}
    assert len(ids) == 2 * len(positions)
    assert all(0 <= identity < 2**64 for identity in ids)


def test_ids_never_change() -> None:
    assert cluster_id("logs", Position("app.log", 0, 17)) == 0xE3E788EC37CE54A9
    assert cluster_id("logs", Position("\udcff.log", 0, 1))  # a file name that is not text


def test_rules_change_the_id_of_what_is_opened_and_variants_do_not() -> None:
    plain = opened_id("logs", "g", HERE)
    assert plain == opened_id("logs", with_variant("g", 5), HERE) == cluster_id("logs", HERE)
    under_rules = {opened_id("logs", with_rules("g", scope), HERE) for scope in (5, 6)}
    assert len(under_rules | {plain}) == 3

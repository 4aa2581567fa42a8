"""Labels by cluster and by template."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.grouping import group, seeded
from stream_dedup.features.recipe import load_recipe

LINES = [
    b'10.0.0.1 "GET /a/7 HTTP/1.1" 200 512',
    b'10.0.0.2 "GET /b/9 HTTP/1.1" 503 17',
    b"ERROR the disk sda1 is nearly full",
    b"WARN the disk sdb7 is nearly full",
    b"job 7 finished with status OK",
    b"job 8 finished with status FAILED",
    b"job 9 finished with status FAILED",
    b'learner {"id": "a7", "ready": false}',
    b'learner {"id": "b8", "ready": true}',
]


def same(labels: Sequence[object]) -> list[int]:
    """For each label, where it comes first."""
    return [labels.index(label) for label in labels]


def test_a_template_holds_the_clusters_of_its_variants() -> None:
    found = group(LINES, "logs")
    assert same(found.clusters.final) == [0, 1, 2, 3, 4, 5, 5, 7, 8]
    assert same(found.templates) == [0, 0, 2, 2, 4, 5, 5, 7, 8]
    assert same(found.online_templates) == [0, 0, 2, 2, 4, 5, 5, 7, 8]


def test_levels_are_words_where_the_recipe_has_no_variants() -> None:
    found = group(LINES[2:4], "logs-1")
    assert same(found.templates) == same(found.clusters.final)


def test_the_text_of_a_template_shows_its_variables() -> None:
    texts = group(LINES, "logs").texts
    assert texts[4:7] == [
        "job <*> finished with status OK",
        "job <*> finished with status FAILED",
        "job <*> finished with status FAILED",
    ]


def test_passed_lines_are_alone() -> None:
    recipe, _ = seeded("logs", 0)
    found = group([b"", b"", b"fine words here"], recipe)
    assert len(set(found.templates)) == len(set(found.clusters.final))


def test_a_seed_changes_both_hash_and_key() -> None:
    logs = load_recipe("logs")
    first, key = seeded(logs, 1)
    second, other_key = seeded(logs, 2)
    assert (first.fingerprint.seed, second.fingerprint.seed) == (1, 2)
    assert key != other_key


def test_variants_share_a_template_once_both_have_learned_the_word() -> None:
    users = ("ann", "bob", "cid", "dan", "eve")
    lines = [f"{level} session opened for {u}" for level in ("INFO", "DEBUG") for u in users]
    found = group([line.encode() for line in lines], "logs")
    assert same(found.clusters.final) == [0] * 5 + [5] * 5
    assert same(found.templates) == [0] * 10
    assert same(found.online_templates) == [0, 1, 2, 3, 0, 0, 1, 2, 3, 0]

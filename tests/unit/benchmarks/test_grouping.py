"""Labels by cluster and by template."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks.grouping import _joined, group, seeded
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


def test_a_template_is_that_of_all_clusters_that_merged_into_it() -> None:
    into = {1: None, 2: 1, 3: 2, 4: None, 5: 4, 6: None}
    summaries: Any = {one: SimpleNamespace(merged_into=root) for one, root in into.items()}
    # 3 became part of 1, and 5 of 4: 1 and 4 are variants of one template, which 3 and 5 share.
    templates = {1: 11, 2: 12, 3: 13, 4: 14, 5: 13, 6: 16}
    found = _joined(templates, summaries)
    assert found[1] == found[4] != found[6]
    assert sorted(found) == [1, 4, 6]

"""stream-dedup as it groups lines: the one place where these benches call the product.

Four labels for each line:

* *online*: its cluster when it was emitted, each line decided alone, as the strictest: within a
  batch a line already has the cluster with which its own has merged; and *final*: its cluster in
  the end, after merges of clusters;
* of each, the cluster itself, and its *template* (`fingerprint.templates`): in the end by the id
  that its final summary gives; when emitted by the id that it was opened with, as a group does not
  change when its name does. So `GET /a HTTP/1.1" 200` and `… 503` are two clusters of one template,
  and so are `ERROR disk …` and `WARN disk …`; `… OK` and `… FAILED` are two templates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from benchmarks.metrics import Labels
from stream_dedup import Deduplicator
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.fingerprint.templates import Templates
from stream_dedup.model import Decision, Summary

_PLACEHOLDER = re.compile(r"<(?:\*|[a-z0-9_]+)>")


class Clusters(NamedTuple):
    """The cluster of each line. A line passed without one has a label of its own, below zero.

    Attributes:
        online: when it was emitted.
        final: in the end.
        summaries: of each cluster, the final one.
    """

    online: list[int]
    final: list[int]
    summaries: dict[int, Summary]


class Groups(NamedTuple):
    """The labels of each line, see the module, and what its template reads like.

    Attributes:
        clusters: the cluster of each line.
        online_templates: the template of the cluster when it was emitted.
        templates: the template of the cluster in the end.
        online_texts: how the template read when it was emitted, `<*>` for what varies.
        texts: how it reads in the end.
    """

    clusters: Clusters
    online_templates: Labels
    templates: Labels
    online_texts: list[str]
    texts: list[str]


def seeded(recipe: str | Recipe, seed: int) -> tuple[Recipe, bytes]:
    """A recipe with a seed of its fingerprints' hash, and a key of the hashes that decide."""
    loaded = load_recipe(recipe) if isinstance(recipe, str) else recipe
    key = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    return replace(loaded, fingerprint__seed=seed), key


def group_clusters(
    batches: Sequence[Sequence[bytes]], recipe: str | Recipe, seed: int = 0
) -> Clusters:
    """Group lines that come in batches, without patterns.

    Args:
        batches: the lines in the order of the stream.
        recipe: or its name.
        seed: of the hashes.
    """
    chosen, key = seeded(recipe, seed)
    dedup = Deduplicator(chosen, key=key)
    decisions = list(chain.from_iterable(map(dedup.process, batches)))
    return _clusters(decisions, dedup.close(patterns=False))


def _clusters(decisions: Sequence[Decision], closed: Sequence[Summary]) -> Clusters:
    """The clusters of lines, from their decisions and the final summaries of all clusters."""
    online = [
        -1 - number if decision.cluster is None else decision.cluster
        for number, decision in enumerate(decisions)
    ]
    summaries = {summary.cluster: summary for summary in closed}
    roots = {cluster: _root(cluster, summaries) for cluster in summaries}
    return Clusters(online, [roots.get(cluster, cluster) for cluster in online], summaries)


def group(lines: Sequence[bytes], recipe: str | Recipe, seed: int = 0) -> Groups:
    """Group lines with stream-dedup, by cluster and by template.

    Args:
        lines: in the order of the stream.
        recipe: or its name.
        seed: of the hashes.
    """
    chosen, key = seeded(recipe, seed)
    dedup = Deduplicator(chosen, key=key)
    clusters = _clusters([dedup.process_one(line) for line in lines], dedup.close())
    online, final, summaries = clusters
    templates = {cluster: one.template for cluster, one in summaries.items()}
    unlearned = Templates(chosen).ids([one.representative for one in summaries.values()])
    opened = dict(zip(summaries, unlearned, strict=True))
    return Groups(
        clusters,
        [_label(opened.get(cluster), number) for number, cluster in enumerate(online)],
        [_label(templates.get(cluster), number) for number, cluster in enumerate(final)],
        _texts(online, lines, summaries),
        _texts(final, lines, summaries),
    )


def _label(template: int | None, number: int) -> int:
    return -1 - number if template is None else template


def _texts(
    clusters: Sequence[int], lines: Sequence[bytes], summaries: dict[int, Summary]
) -> list[str]:
    """The text of each line's template; of a line without a cluster, the line."""
    shown = {cluster: _PLACEHOLDER.sub("<*>", one.pattern) for cluster, one in summaries.items()}
    return [
        shown[cluster] if cluster in shown else line.decode("utf-8", "replace")
        for cluster, line in zip(clusters, lines, strict=True)
    ]


def _root(cluster: int, summaries: dict[int, Summary]) -> int:
    """The cluster of which a cluster is a part in the end."""
    while (into := summaries[cluster].merged_into) is not None:
        cluster = into
    return cluster

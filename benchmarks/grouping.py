"""stream-dedup as it groups lines: the one place where these benches call the product.

Four labels for each line:

* *online*: its cluster when it was emitted, each line decided alone, as the strictest: within a
  batch a line already has the cluster with which its own has merged; and *final*: its cluster in
  the end, after merges of clusters;
* of each, the cluster itself, and its *template*: clusters are of one template if their first
  events, or those of clusters that merged into them, have the same pattern without log level and
  HTTP status class. In detail: the same exact hash under the recipe whose `match.variants` have
  neither, log levels replaced by one word where the recipe has them. So `GET /a HTTP/1.1" 200` and
  `… 503` are two clusters of one template, and so are `ERROR disk …` and `WARN disk …`; `… OK` and
  `… FAILED` are two templates.
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
from stream_dedup.features.variants import LEVELS, protected_word
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.model import Decision, Summary

_LEVELS = frozenset(level.encode() for level in LEVELS)
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
    templates = _templates(chosen, lines, summaries)
    joined = _joined(templates, summaries)
    return Groups(
        clusters,
        [templates.get(cluster, cluster) for cluster in online],
        [joined.get(cluster, cluster) for cluster in final],
        _texts(online, lines, summaries),
        _texts(final, lines, summaries),
    )


def _joined(templates: dict[int, int], summaries: dict[int, Summary]) -> dict[int, int]:
    """Cluster to template, where the template is that of all clusters that merged into it."""
    parent: dict[int, int] = {}

    def top(item: int) -> int:
        while (above := parent.get(item, item)) != item:
            parent[item] = item = parent.get(above, above)
        return item

    first: dict[int, int] = {}  # root to the first of its templates
    for cluster, template in templates.items():
        parent[top(template)] = top(first.setdefault(_root(cluster, summaries), template))
    return {root: top(template) for root, template in first.items()}


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


def _templates(
    recipe: Recipe, lines: Sequence[bytes], summaries: dict[int, Summary]
) -> dict[int, int]:
    """Cluster to template: the hash of its first event's pattern without level and status."""
    firsts = [lines[summary.position.offset] for summary in summaries.values()]
    if "level" in recipe.match.variants:
        firsts = [recipe.split.sub(_levelled, line) for line in firsts]
    others = [name for name in recipe.match.variants if name not in {"level", "status"}]
    plain = replace(recipe, match__variants=others)
    fingerprinter = Fingerprinter(plain, HashKey(bytes(16)))
    prepared = fingerprinter.prepare(firsts, None)
    hashes = fingerprinter.fingerprints(prepared, full=False).exact
    return dict(zip(summaries, hashes, strict=True))


def _levelled(token: re.Match[bytes]) -> bytes:
    """A token, or the one word that takes the place of log levels."""
    return b"level" if protected_word(token.group(), _LEVELS) else token.group()

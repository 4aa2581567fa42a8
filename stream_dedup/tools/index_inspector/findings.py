"""What a check may find: its words for people, and the report that gathers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

EXAMPLES = 10
"""Kept of each kind of finding."""

KINDS = {
    "stamp": (
        "the shards of the namespace are not stamped alike",
        "a shard was lost, or made anew by workers with other settings",
        "stop the workers, delete the namespace and start them again",
    ),
    "key": (
        "keys of no known kind",
        "something else writes under this namespace's prefix, or another version did",
        "find out who writes them; delete them by hand if nobody needs them",
    ),
    "type": (
        "keys of another type than their name says",
        "something else has written them; the scripts fail on them",
        "delete the namespace, and keep others from writing under sd:",
    ),
    "ttl": (
        "keys without a time to live",
        "nothing removes them when the namespace is used no more",
        "if they stay so while workers run, delete the namespace when you no longer need it",
    ),
    "cluster": (
        "damaged clusters",
        "their fields do not fit together; something else has written them",
        "delete these keys; events like theirs open a new cluster",
    ),
    "unsearchable": (
        "open clusters that are missing in tables",
        "events near to them may open a second cluster; the server has lost or evicted keys",
        "set maxmemory-policy to noeviction; it heals as clusters close",
    ),
    "unnamed": (
        "open clusters whose exact hashes lead to no open cluster",
        "events equal to theirs are searched by fingerprint, or open a second cluster",
        "set maxmemory-policy to noeviction; it heals as clusters close",
    ),
    "queue": (
        "open clusters that are not in expiry or recency",
        "they are not closed in time, and their final counts come late or never",
        "set maxmemory-policy to noeviction; delete the namespace if they stay",
    ),
    "untold": (
        "clusters with news that are neither due nor on their way",
        "their counts are not told",
        "set maxmemory-policy to noeviction; delete the namespace if they stay",
    ),
    "unburied": (
        "tombstones that are not in gone",
        "they take memory until their time to live is over; nothing else is wrong with them",
        "none is needed",
    ),
    "entry": (
        "table entries that lead to no open cluster, and are not in the garbage",
        "they take memory and candidates; a worker's purge was lost",
        "none at once; if they grow, delete the namespace",
    ),
    "misplaced": (
        "entries in the wrong slice",
        "they are found by no look-up; the layout was changed or something else wrote them",
        "delete the namespace",
    ),
    "exact": (
        "exact hashes that lead to no open cluster, and are not in the garbage",
        "they take memory; a worker's purge was lost",
        "none at once; if they grow, delete the namespace",
    ),
    "counter": (
        "counters that differ from what is counted",
        "the metrics of this namespace are off; keys were lost or evicted",
        "set maxmemory-policy to noeviction; delete the namespace to count anew",
    ),
}
"""Kind of finding → what it is, what it means, the remedy."""


class Suspect(NamedTuple):
    """Something that looks wrong.

    Attributes:
        kind: of `KINDS`.
        subject: what is looked at again.
        text: what is wrong, with the key.
    """

    kind: str
    subject: Any
    text: str


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        counts: findings by kind.
        examples: some of each.
        notes: what was not looked at, and why.
        looked_at: keys, by kind.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    def add(self, suspect: Suspect) -> None:
        """Note a finding."""
        self.counts[suspect.kind] = self.counts.get(suspect.kind, 0) + 1
        kept = self.examples.setdefault(suspect.kind, [])
        if len(kept) < EXAMPLES:
            kept.append(suspect.text)

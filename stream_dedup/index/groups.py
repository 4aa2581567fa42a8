"""What keeps clusters apart: the group of an event as an index takes it, and the ids of clusters.

Events whose groups differ are never compared. So whatever must keep events apart is joined to the
group that a person configured: the variant of the event, or what the rules of people say of it. An
index need not know which. Rules are also part of the ids of clusters; the variant need not be, as
it follows from the event.
"""

from __future__ import annotations

from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.model import Position

VARIANT_MARK = "\x1f"
"""Separates group and variant. It is in no group: JSON escapes control characters."""

RULE_MARK = "r"
"""Ends the group of events that rules act on: no group nor variant does."""


def with_variant(group: str, variant: int) -> str:
    """Join the variant of an event to its group.

    >>> plain_group(with_variant('{"app":"a"}', 255))
    '{"app":"a"}'
    """
    return f"{group}{VARIANT_MARK}{variant:016x}" if variant else group


def with_rules(group: str, scope: int) -> str:
    """Join what rules say of an event to its group.

    >>> plain_group(with_rules('{"app":"a"}', 255))
    '{"app":"a"}'
    """
    return f"{group}{VARIANT_MARK}{scope:016x}{RULE_MARK}"


def plain_group(group: str) -> str:
    """Return the group without what was joined to it."""
    return group.partition(VARIANT_MARK)[0]


def cluster_id(namespace: str, position: Position) -> int:
    """Return the id of the cluster that the event at `position` would represent.

    The id depends on nothing else, so an event that is delivered again gets the same one.

    >>> f"{cluster_id('logs', Position('app.log', 0, 17)):016x}"
    'e3e788ec37ce54a9'
    """
    source, partition, offset = position
    text = f"{namespace}\0{source}\0{partition}\0{offset}"
    return hash128(text.encode("utf-8", "surrogateescape"))[0]


def opened_id(namespace: str, group: str, position: Position) -> int:
    """Return the id of the cluster that an event would open.

    What rules say of the event is part of it: while rules change, an event may be resolved twice,
    and must not find what it opened under other rules.

    Args:
        namespace: of the index.
        group: of the event, with what was joined to it.
        position: of the event.
    """
    if not group.endswith(RULE_MARK) or VARIANT_MARK not in group:
        return cluster_id(namespace, position)
    return cluster_id(f"{namespace}\0{group.rpartition(VARIANT_MARK)[2]}", position)

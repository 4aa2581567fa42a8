"""How many events of a pattern leave a minute: the rule ``keep``.

Problem: the same events, delivered again after a crash, have to leave or stay as before, whoever
decides them then. So what left cannot be counted in a process alone, nor by the clock.

Idea: events are counted by rule and minute of event time, within one partition, in the order of
their offsets. The counts are a part of the partition's state in the index: they are recorded with
the decisions that they led to, all or nothing, so whoever claims the partition goes on from there.

A minute begins at a full minute of event time, UTC. Partitions are counted apart: they are decided
at the same time by different workers. The first event of a cluster leaves always; it counts, too.

Events come late: the last `MINUTES` minutes of a rule are counted apart, and an event from before
counts in the oldest of them. So the counts are bounded, and no minute within that time gets more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_dedup.clock import US_PER_S
from stream_dedup.rules.model import PatternRule

MINUTES = 10
"""Minutes of a rule that are counted apart."""

MINUTE_US = 60 * US_PER_S

KeptCounts = Mapping[str, Mapping[int, int]]
"""By the id of a rule, by minute since 1970: the events that left."""


class Keeping:
    """Counts what leaves, from what was counted before.

    Args:
        kept: counted before; stays as it is.
        acting: ids of the rules that act: others are forgotten.

    Attributes:
        kept: counted before and since.
    """

    def __init__(self, kept: KeptCounts, acting: Iterable[str]) -> None:
        self.kept = {rule: dict(kept[rule]) for rule in acting if rule in kept}

    def leaves(self, rule: PatternRule, time_us: int, *, first: bool) -> bool:
        """Count one event if it leaves; return whether it does.

        Args:
            rule: the rule that limits its pattern.
            time_us: its time.
            first: whether it is the first one of a cluster.
        """
        minutes = self.kept.setdefault(rule.id, {})
        minute = time_us // MINUTE_US
        oldest = max(minutes, default=minute) - MINUTES + 1
        if minute > oldest + MINUTES - 1:
            for past in [each for each in minutes if each <= minute - MINUTES]:
                del minutes[past]
        else:
            minute = max(minute, oldest)
        left = minutes.get(minute, 0)
        if left >= rule.per_minute and not first:
            return False
        minutes[minute] = left + 1
        return True


def joined(counts: Iterable[KeptCounts]) -> KeptCounts:
    """Return what was counted, from several copies: of each minute the largest count."""
    found: dict[str, dict[int, int]] = {}
    for kept in counts:
        for rule, minutes in kept.items():
            known = found.setdefault(rule, {})
            for minute, left in minutes.items():
                known[minute] = max(left, known.get(minute, 0))
    return found

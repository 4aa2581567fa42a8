"""Two workers with one `group_instance_id` take its place from each other, and are told so."""

from __future__ import annotations

import pytest

from stream_dedup.kafka.consumer import REJOINS, RepeatedJoins
from stream_dedup.model import Partition

BOTH = [Partition("in", 0), Partition("in", 1)]


def warnings(times_s: list[float], assigned: list[list[Partition]]) -> list[bool]:
    """Whether each of these joins gives a warning."""
    joins = RepeatedJoins("group", "worker-0", 60)
    return [
        bool(joins.warning(partitions, now_s))
        for now_s, partitions in zip(times_s, assigned, strict=True)
    ]


def test_repeated_joins_for_the_same_partitions_name_the_setting() -> None:
    joins = RepeatedJoins("group", "worker-0", 60)
    *before, text = [joins.warning(BOTH, 6.0 * number) for number in range(REJOINS)]
    assert before == [""] * (REJOINS - 1)
    assert "another worker have the same kafka.group_instance_id, 'worker-0'?" in text


@pytest.mark.parametrize(
    ("step_s", "assigned"),
    [(60.0, [BOTH] * 9), (6.0, [BOTH, BOTH[:1]] * 4), (1.0, [BOTH] * (REJOINS - 1))],
    ids=["rare joins", "rebalances", "few joins"],
)
def test_usual_rebalances_give_no_warning(step_s: float, assigned: list[list[Partition]]) -> None:
    times_s = [step_s * number for number in range(len(assigned))]
    assert not any(warnings(times_s, assigned))

"""The oracle accepts correct records and detects each kind of manipulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from tests.faults.oracle import ROUTED_MS, Verdict, judge
from tests.services.kafka_records import Record

HOST = ("host", b"a")
CLUSTER, OTHER = "00000000000000aa", "00000000000000bb"


def event(offset: int, value: bytes | None = b"text") -> Record:
    return Record("in", 0, offset, b"id-%d" % offset, value, (HOST,), 1_000 + offset)


def left(came: Record, offset: int, **said: bytes) -> Record:
    headers = ((f"sd-{name}", value) for name, value in said.items())
    return replace(came, topic="out", offset=offset, headers=(*came.headers, *headers))


def letter(came: Record, offset: int) -> Record:
    said = (("sd-error", b"too large"), ("sd-error-message", b"it is"), ("sd-topic", b"in"))
    place = (("sd-partition", b"0"), ("sd-offset", b"%d" % came.offset))
    headers = (*came.headers, *said, *place)
    return replace(came, topic="dead", offset=offset, headers=headers)


def summary(revision: int, count: int, new_count: int, *, final: bool, **more: Any) -> Record:
    position = {"source": "in", "partition": 0, "offset": 0}
    fields: dict[str, Any] = {"cluster": CLUSTER, "revision": revision, "final": final}
    fields |= {"closing": "expired" if final else None, "position": position}
    fields |= {"count": count, "new_count": new_count}
    fields |= more
    return Record(
        "sum", 0, revision, fields["cluster"].encode(), msgspec.json.encode(fields), (), 0
    )


@dataclass
class Case:
    """Five events: a new one, two duplicates, one that passed, and an invalid one."""

    inputs: list[Record] = field(default_factory=lambda: [event(n) for n in range(5)])
    outputs: list[Record] = field(default_factory=list)
    summaries: list[Record] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    once: bool = False

    def __post_init__(self) -> None:
        cluster = {"cluster": CLUSTER.encode()}
        self.outputs = [
            left(self.inputs[0], 0, decision=b"new", **cluster),
            left(self.inputs[1], 1, decision=b"duplicate", **cluster),
            left(self.inputs[2], 2, decision=b"duplicate", **cluster),
            left(self.inputs[3], 3, decision=b"passed", reason=b"tombstone"),
        ]
        self.dead = [letter(self.inputs[4], 0)]
        self.summaries = [summary(1, 2, 2, final=False), summary(2, 3, 1, final=True)]

    def judged(self, *, reset: bool = False) -> Verdict:
        return judge(
            self.inputs, self.outputs, self.summaries, self.dead,
            exactly_once=self.once, index_was_reset=reset,
        )  # fmt: skip


@pytest.mark.parametrize("once", [False, True])
def test_correct_records_are_accepted(once: bool) -> None:
    verdict = Case(once=once).judged()
    assert verdict.good, str(verdict)
    assert verdict.figures["inputs"] == 5
    assert str(verdict) == "all promises were kept"


def test_copies_are_accepted_and_counted_at_least_once() -> None:
    case = Case()
    case.outputs += [replace(case.outputs[1], offset=4), replace(case.outputs[2], offset=5)]
    case.dead.append(replace(case.dead[0], offset=1))
    case.summaries.append(case.summaries[0])
    verdict = case.judged()
    assert verdict.good, str(verdict)
    resent = ("outputs re-sent", "dead letters re-sent", "summaries re-sent")
    assert [verdict.figures[name] for name in resent] == [2, 1, 1]


def headers(record: Record, name: str, value: bytes) -> Record:
    changed = tuple((n, value if n == name else v) for n, v in record.headers)
    return replace(record, headers=changed)


def missing(case: Case) -> None:
    del case.outputs[2]


def letter_missing(case: Case) -> None:
    case.dead.clear()


def both_ways(case: Case) -> None:
    case.dead.append(letter(case.inputs[3], 1))


def double(case: Case) -> None:
    case.once = True
    case.outputs.append(replace(case.outputs[3], offset=4))


def letter_double(case: Case) -> None:
    case.once = True
    case.dead.append(replace(case.dead[0], offset=1))


def another_decision(case: Case) -> None:
    copy = headers(case.outputs[1], "sd-decision", b"new")
    case.outputs.append(replace(copy, offset=4))


def test_order_is_excused_of_events_that_took_another_route() -> None:
    case = Case()
    out_of_order(case)
    came_ms = case.inputs[1].timestamp_ms

    def judged(grown_ms: int, *, once: bool = False, outage_ms: int = 0) -> Verdict:
        lists = (case.inputs, case.outputs, case.summaries, case.dead)
        return judge(*lists, exactly_once=once, grown_ms=[grown_ms], outage_ms=outage_ms)

    near = judged(came_ms + ROUTED_MS - 1)
    assert near.good, str(near)
    assert near.figures["outputs out of order as partitions were added"] == 1
    assert set(judged(came_ms + ROUTED_MS).broken) == {"order"}
    assert judged(came_ms + ROUTED_MS, outage_ms=1).good
    assert set(judged(came_ms, once=True).broken) == {"order"}


def another_time(case: Case) -> None:
    case.outputs.append(replace(case.outputs[1], offset=4, timestamp_ms=7))


def changed_value(case: Case) -> None:
    case.outputs[1] = replace(case.outputs[1], value=b"other")


def changed_headers(case: Case) -> None:
    case.outputs[1] = headers(case.outputs[1], "host", b"b")


def other_partition(case: Case) -> None:
    case.outputs[1] = replace(case.outputs[1], partition=1)


def letter_of_another_place(case: Case) -> None:
    case.dead[0] = headers(case.dead[0], "sd-offset", b"3")


def no_decision(case: Case) -> None:
    case.outputs[1] = headers(case.outputs[1], "sd-decision", b"maybe")


def decided_again(case: Case) -> None:
    copy = case.outputs[1]
    case.outputs[1] = replace(copy, headers=(*copy.headers, ("sd-reason", b"replayed")))


def out_of_order(case: Case) -> None:
    case.outputs[1], case.outputs[2] = case.outputs[2], case.outputs[1]


def from_nowhere(case: Case) -> None:
    case.outputs.append(left(event(9), 4, decision=b"passed"))


def new_twice(case: Case) -> None:
    case.outputs[1] = headers(case.outputs[1], "sd-decision", b"new")


def no_new(case: Case) -> None:
    case.outputs[0] = headers(case.outputs[0], "sd-decision", b"duplicate")


def summaries_differ(case: Case) -> None:
    case.summaries.append(summary(2, 3, 1, final=True, pattern="another"))


def counted_twice(case: Case) -> None:
    case.summaries[1] = summary(2, 4, 2, final=True)


def counted_short(case: Case) -> None:
    case.summaries[1] = summary(2, 3, 0, final=True)


def not_final(case: Case) -> None:
    case.summaries[1] = summary(2, 3, 1, final=False)


def revision_missing(case: Case) -> None:
    case.summaries = [summary(2, 3, 3, final=True)]


def no_summary(case: Case) -> None:
    case.summaries.clear()


def other_representative(case: Case) -> None:
    place = {"source": "in", "partition": 0, "offset": 1}
    case.summaries = [summary(1, 3, 3, final=True, position=place)]


def another_key(case: Case) -> None:
    case.summaries[0] = replace(case.summaries[0], key=b"other")


def merged_case() -> Case:
    """The third event was of a cluster of its own, which merged into the first."""
    case = Case()
    case.outputs[2] = headers(case.outputs[2], "sd-cluster", OTHER.encode())
    case.outputs[2] = headers(case.outputs[2], "sd-decision", b"new")
    place = {"source": "in", "partition": 0, "offset": 2}
    into = {"closing": "merged", "merged_into": CLUSTER, "cluster": OTHER, "position": place}
    named = [{"cluster": OTHER, "count": 1}]
    case.summaries = [
        summary(1, 1, 1, final=False),
        summary(1, 1, 1, final=True, **into),
        summary(2, 2, 1, final=True, merged=named),
    ]
    return case


def test_clusters_that_merge_name_each_other() -> None:
    case = merged_case()
    verdict = case.judged()
    assert verdict.good, str(verdict)
    assert verdict.figures["clusters merged"] == 1
    case.summaries[2] = summary(2, 2, 1, final=True)
    assert set(case.judged().broken) == {"merged"}


def merged_twice(case: Case) -> None:
    vars(case).update(vars(merged_case()))
    named = [{"cluster": OTHER, "count": 1}]
    case.summaries[0] = summary(1, 1, 1, final=False, merged=named)


def merged_with_another_count(case: Case) -> None:
    vars(case).update(vars(merged_case()))
    named = [{"cluster": OTHER, "count": 2}]
    case.summaries[2] = summary(2, 2, 1, final=True, merged=named)


def merged_but_open(case: Case) -> None:
    case.summaries[1] = summary(2, 3, 1, final=True, merged=[{"cluster": OTHER, "count": 1}])


def id_twice(case: Case) -> None:
    case.inputs.append(replace(case.inputs[0], offset=5))


MANIPULATED: list[tuple[Callable[[Case], None], str]] = [
    (missing, "lost"),
    (letter_missing, "lost"),
    (both_ways, "left both ways"),
    (double, "double"),
    (letter_double, "double"),
    (another_decision, "copies differ"),
    (another_time, "copies differ"),
    (changed_value, "changed"),
    (changed_headers, "changed"),
    (other_partition, "changed"),
    (letter_of_another_place, "changed"),
    (no_decision, "decision"),
    (decided_again, "decision"),
    (out_of_order, "order"),
    (from_nowhere, "from nowhere"),
    (new_twice, "new twice"),
    (no_new, "no new"),
    (summaries_differ, "summaries differ"),
    (counted_twice, "counts"),
    (counted_twice, "cluster counts"),
    (counted_short, "cluster counts"),
    (not_final, "not final"),
    (revision_missing, "revisions"),
    (no_summary, "no summary"),
    (other_representative, "representative"),
    (another_key, "summaries"),
    (merged_twice, "merged"),
    (merged_with_another_count, "merged"),
    (merged_but_open, "merged"),
    (id_twice, "the test itself"),
]


@pytest.mark.parametrize(
    ("change", "kind"),
    MANIPULATED,
    ids=[f"{change.__name__}: {kind}" for change, kind in MANIPULATED],
)
def test_manipulated_records_are_detected(change: Callable[[Case], None], kind: str) -> None:
    case = Case()
    change(case)
    verdict = case.judged()
    assert not verdict.good
    assert verdict.broken[kind], str(verdict)
    assert kind in str(verdict)


def test_a_verdict_is_conclusive_unless_summaries_may_follow() -> None:
    case = Case()
    assert case.judged().conclusive
    case.summaries.pop()
    assert not case.judged().conclusive
    del case.outputs[2]
    assert case.judged().conclusive


def test_a_reset_index_excuses_wrong_counts_but_no_lost_event() -> None:
    case = Case()
    case.outputs[1] = headers(case.outputs[1], "sd-decision", b"new")
    case.summaries.pop()
    assert case.judged(reset=True).good
    del case.outputs[2]
    assert set(case.judged(reset=True).broken) == {"lost"}

"""Values of a pattern's variables, and what a sample says of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.lines import ALL_ASSIGNED
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.features.values import MAX_SLOTS, MAX_VALUE, SlotReader, error_of
from stream_dedup.model import SlotValues
from tests.strategies import raw_bytes

LOGS = load_recipe("logs")
READER = SlotReader(LOGS)
SESSION = b"Nov 23 10:52:55 demo su[24310]: session closed for user alice by (uid=0)"
ALICE = 1 << 5


def test_values_stand_between_the_words_of_the_pattern() -> None:
    slots = READER.slots(SESSION, ALICE)
    assert slots.names == ["<timestamp> <*>", "<number>", "<*>", "<number>"]
    assert slots.values(SESSION) == [b"Nov 23 10:52:55 demo", b"24310", b"alice", b"0"]
    other = b"Nov 24 00:00:01 demo su[7]: session closed for user bob by (uid=1001)"
    assert slots.values(other) == [b"Nov 24 00:00:01 demo", b"7", b"bob", b"1001"]


@pytest.mark.parametrize(
    ("event", "values"),
    [
        (b"job:  bob, of 9 took 42 s today", [b"bob", b"9", b"42 s"]),
        (b"job of 9 took 42 s today", [b"", b"9", b"42 s"]),
        (b"job bob really of 8 took 42 s today now", [b"bob really", b"8", b"42 s"]),
        (b"job bob took 42 s today", None),
        (b"another", None),
    ],
)
def test_events_with_other_delimiters_are_cut_at_the_words(
    event: bytes, values: list[bytes] | None
) -> None:
    slots = READER.slots(b"job alice of 7 took 3 ms today", 1 << 1)
    assert slots.names == ["<*>", "<number>", "<number> <unit>"]
    assert slots.values(event) == values


def test_values_of_keys_that_are_learned_together_are_values() -> None:
    slots = READER.slots(b"login refused uid=root tty=console state=up", 1 << ALL_ASSIGNED)
    assert slots.names == ["<*>", "<*>"]
    assert slots.values(b"login refused uid=ann tty=web state=up") == [b"ann", b"web"]


def test_an_empty_value_has_a_slot() -> None:
    slots = READER.slots(b"queued from=<>, to=<ann> size 7")
    assert slots.names == ["<*>", "<*>", "<number>"]
    assert slots.values(b"queued from=<bob>, to=<> size 9") == [b"bob", b"", b"9"]


def test_a_value_that_is_always_empty_is_not_described() -> None:
    slots = READER.slots(b"called f(a=[], b=7) now")
    assert slots.names == ["<*>", "<number>"]
    described = slots.describe([b"called f(a=[], b=7) now", b"called f(a=[], b=9) now"], 2)
    assert described is not None
    assert [each.slot for each in described.slots] == ["<number>"]


def test_a_pattern_without_variables_has_no_values() -> None:
    slots = READER.slots(b"all is well")
    assert slots.values(b"all is well") == []
    assert slots.describe([b"all is well"], 1) is None


def test_recipes_with_fields_have_no_slots() -> None:
    reader = SlotReader(replace(LOGS, input__fields=[{"path": "a"}], match__variants=["level"]))
    assert not reader.has_slots
    assert reader.slots(b'{"a": "disk 7"}').names == []


def test_the_commonest_values_come_first_with_their_shares() -> None:
    events = [b"disk %b is %d%% full" % (disk, n) for n, disk in enumerate([b"sda1", b"sdb1"] * 3)]
    found = READER.slots(events[0]).describe([*events, b"disk sda1 is 9% full"], 7)
    assert found is not None
    assert (found.sampled, found.error) == (7, 0)
    assert found.slots[0] == SlotValues("<*>", (("sda1", 4 / 7), ("sdb1", 3 / 7)), 2)
    assert (found.slots[1].slot, found.slots[1].distinct) == ("<number>", 7)


def test_slots_values_and_their_lengths_are_bounded() -> None:
    first = b" ".join(b"w%b %d" % (chr(97 + n).encode(), n) for n in range(26))
    found = READER.slots(first).describe([first], 1)
    assert found is not None
    assert len(found.slots) == MAX_SLOTS
    long = READER.slots(b"value 7 found").describe([b"value " + b"7" * 600 + b" found"], 1)
    assert long is not None
    assert {len(value) for value, _ in long.slots[0].values} == {MAX_VALUE}


@pytest.mark.parametrize(("sampled", "events"), [(16, 20), (32, 1000), (64, 10**6)])
def test_shares_are_within_the_error_in_95_of_100_samples(sampled: int, events: int) -> None:
    choose, within = random.Random(7), 0
    for _ in range(400):
        hits = sum(each < events // 2 for each in choose.sample(range(events), sampled))
        within += abs(hits / sampled - 0.5) <= error_of(sampled, events)
    assert within >= 0.88 * 400  # hits are whole numbers
    assert error_of(sampled, events) < 1.3 / sampled**0.5


@given(raw_bytes, raw_bytes, st.integers(0, 2**48 - 1))
def test_any_bytes_can_be_read(first: bytes, event: bytes, learned: int) -> None:
    slots = READER.slots(first, learned)
    values = slots.values(event)
    assert values is None or len(values) == len(slots.names)
    own = slots.values(first)
    assert own is None or len(own) == len(slots.names)
    found = slots.describe([first, event], 2)
    assert found is None or found.sampled <= 2


def test_hosts_beside_times_are_counted_without_them() -> None:
    slots = READER.slots(SESSION, ALICE)
    hosts = (b"atlas", b"zeus", b"atlas", b"node-7")
    line = b"Nov 23 10:52:%02d %b su[%d]: session closed for user bob by (uid=0)"
    described = slots.describe([line % (n, host, n) for n, host in enumerate(hosts)], 4)
    assert described is not None
    assert described.slots[0] == SlotValues(
        "<*>", (("atlas", 0.5), ("node-7", 0.25), ("zeus", 0.25)), 3
    )


def test_words_that_events_lack_are_named() -> None:
    def lacking(first: bytes, learned: int, *events: bytes) -> int:
        return READER.lacking(first, READER.slots(first, learned), events)

    first = b"job begun by alice on node 7"
    assert lacking(first, 0, b"job begun by alice on node 9") == 0
    assert lacking(first, 0, first, b"job begun by bob on node 9") == 1 << 3
    assert lacking(first, 1 << 3, b"job begun by bob on node 9") == 0
    assert lacking(first, 1 << 3, b"task begun by alice on node 9") == 1
    assert lacking(first, 0, b"job begun by alice late on node 9") == 0
    assert lacking(b"begun by alice", 0, b"begun by bob") == 1 << 2

"""The records of the one-off index in memory: what names a cluster, each once."""

from __future__ import annotations

from functools import partial
from operator import is_

from stream_dedup.fingerprint.one_off import pattern_keys
from stream_dedup.index.lookup import Slot
from stream_dedup.index.records import Ready, Records

NOTHING = Ready(set(), {})
KEYS = pattern_keys([101, 102, 103, 104, 105], [False] * 5)


def cluster(number: int) -> Slot:
    return Slot(number, number, "", number, b"", number)


def named_by_two_in_turn() -> tuple[Records, Slot]:
    """Records of two clusters of one pattern, each noted while the other does not count."""
    records, one, other = Records(5), cluster(1), cluster(2)
    for owner in (one, other, one):
        records.note(KEYS, owner, NOTHING, partial(is_, owner), first=False)
    return records, one


def test_a_cluster_that_is_noted_again_lists_no_key_twice() -> None:
    _, one = named_by_two_in_turn()
    assert one.records == [KEYS.own, *(slot.key for slot in KEYS.slots)]


def test_what_names_a_cluster_is_saved_and_restored_once() -> None:
    records, one = named_by_two_in_turn()
    saved, again, restored = records.leads(one), Records(5), cluster(1)
    again.restore(restored, saved)
    assert len(saved) == 1 + len(KEYS.slots)
    assert again.leads(restored) == saved
    assert restored.records == one.records


def test_a_cluster_that_merges_hands_on_no_key_twice() -> None:
    records, one = named_by_two_in_turn()
    root = cluster(3)
    records.move(one, root)
    records.note(KEYS, root, NOTHING, lambda _: True, first=False)
    assert root.records == [KEYS.own, *(slot.key for slot in KEYS.slots)]
    assert one.records == []

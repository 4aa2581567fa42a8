"""The records of the one-off index in memory: what names a cluster, each once."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import partial
from operator import is_

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.combinations import PatternWords
from stream_dedup.fingerprint.one_off import pack, pattern_keys
from stream_dedup.index.records import NOTHING_READY, Found, Records, Slot

KEYS = pattern_keys([101, 102, 103, 104, 105], [False] * 5)


def cluster(number: int) -> Slot:
    return Slot(number, number, "", number, b"", number)


def named_by_two_in_turn() -> tuple[Records, Slot]:
    """Records of two clusters of one pattern, each noted while the other does not count."""
    records, one, other = Records(5), cluster(1), cluster(2)
    for owner in (one, other, one):
        records.note(pack(KEYS), owner, NOTHING_READY, partial(is_, owner))
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


def test_words_that_vary_together_are_saved_and_restored() -> None:
    records, opened = Records(5), replace(cluster(1), one_off=pack(KEYS), learned=0b11)
    records.open(opened, lambda _: True)
    nothing = Found(None, False, [])
    ready = NOTHING_READY._replace(alike={opened.cluster})
    assert records.note_together(opened.one_off, opened, nothing, ready, lambda _: True)
    again, restored = Records(5), replace(cluster(1), learned=0b11)
    again.restore(restored, records.leads(opened))
    line = pack(pattern_keys([901, 902, 103, 104, 105], [False] * 5))
    found = again.find("", line, lambda _: True)
    assert (found.owner, found.is_variable) == (restored, True)


def test_words_that_vary_together_are_said_once() -> None:
    records = Records(5)
    one, other = (replace(cluster(number), one_off=pack(KEYS), learned=0b11) for number in (1, 2))
    for owner in (one, other, one):  # each is noted while the other does not count
        ready = NOTHING_READY._replace(alike={owner.cluster})
        nothing = Found(None, False, [])
        records.note_together(owner.one_off, owner, nothing, ready, partial(is_, owner))
    found = records.find("", pack(KEYS), lambda _: True)
    assert [entry.owner for entry in found.together[0b11]] == [one]


def test_what_other_clusters_say_stays() -> None:
    records = Records(5)
    one, other = (replace(cluster(number), one_off=pack(KEYS), learned=0b11) for number in (1, 2))
    for owner in (one, other, other):
        ready = NOTHING_READY._replace(alike={owner.cluster})
        nothing = Found(None, False, [])
        records.note_together(owner.one_off, owner, nothing, ready, lambda _: True)
    found = records.find("", pack(KEYS), lambda _: True)
    assert [entry.owner for entry in found.together[0b11]] == [one, other]


def test_values_that_can_never_be_enough_are_not_noted() -> None:
    records = Records(5)
    words = PatternWords(array("Q", pack(pattern_keys(list(range(101, 121)), [False] * 20))))
    for varying, noted in ((6, False), (5, True)):  # with one more word, of ten values each
        owner = replace(cluster(varying), one_off=pack(KEYS))
        found = Found(None, False, [], {(1 << varying) - 1 << 1: []}, words)
        records.assume(owner, found, lambda _: True)
        assert bool(owner.records) is noted


def test_so_many_records_of_a_cluster_that_merges_are_looked_at() -> None:
    records, one, root = Records(5), replace(cluster(1), one_off=pack(KEYS)), cluster(2)
    records.open(one, lambda _: True)
    records.move(one, root, looks=0)
    assert root.records == []


def test_a_cluster_that_merges_hands_on_no_key_twice() -> None:
    records, one = named_by_two_in_turn()
    root = cluster(3)
    records.move(one, root)
    records.note(pack(KEYS), root, NOTHING_READY, lambda _: True)
    assert root.records == [KEYS.own, *(slot.key for slot in KEYS.slots)]
    assert one.records == []


@given(
    words=st.lists(st.integers(101, 105), min_size=2, max_size=6),
    before=st.lists(st.integers(101, 105), min_size=2, max_size=6),
)
def test_the_pattern_that_opens_a_cluster_is_noted_like_any_other(
    words: list[int], before: list[int]
) -> None:
    packed = pack(pattern_keys(words, [False] * len(words)))
    earlier = replace(cluster(1), one_off=pack(pattern_keys(before, [False] * len(before))))
    opened, noted = replace(cluster(2), one_off=packed), cluster(2)
    records, others = Records(5), Records(5)
    for each in (records, others):
        each.open(replace(earlier, records=[]), lambda _: True)
    records.open(opened, lambda _: True)
    others.note(packed, noted, NOTHING_READY, lambda _: True, first=True)
    assert opened.records == noted.records
    assert records.leads(opened) == others.leads(noted)


def test_a_cluster_that_closes_leaves_no_record() -> None:
    records, opened = Records(5), replace(cluster(1), one_off=pack(KEYS))
    records.open(opened, lambda _: True)
    records.remove(opened)
    assert records.find("", pack(KEYS), lambda _: True) == Found(None, False, [])
    assert opened.records == []

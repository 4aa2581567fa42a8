"""The postings of the one-off index in memory: what names a cluster, each once."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import partial
from operator import is_

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.combinations import PatternWords
from stream_dedup.fingerprint.one_off import pack, pattern_keys
from stream_dedup.index.memory.posting_lists import Handle
from stream_dedup.index.memory.postings import Postings
from stream_dedup.index.memory.word_search import NOTHING_READY, Found

KEYS = pattern_keys([101, 102, 103, 104, 105], [False] * 5)


def cluster(number: int) -> Handle:
    return Handle(number, number, "", number, b"", number)


def named_by_two_in_turn() -> tuple[Postings, Handle]:
    """Postings of two clusters of one pattern, each noted while the other does not count."""
    postings, one, other = Postings(5), cluster(1), cluster(2)
    for owner in (one, other, one):
        postings.note(pack(KEYS), owner, NOTHING_READY, partial(is_, owner))
    return postings, one


def test_a_cluster_that_is_noted_again_lists_no_key_twice() -> None:
    _, one = named_by_two_in_turn()
    assert one.posting_keys == [KEYS.own, *(slot.key for slot in KEYS.slots)]


def test_what_names_a_cluster_is_saved_and_restored_once() -> None:
    postings, one = named_by_two_in_turn()
    saved, again, restored = postings.leads(one), Postings(5), cluster(1)
    again.restore(restored, saved)
    assert len(saved) == 1 + len(KEYS.slots)
    assert again.leads(restored) == saved
    assert restored.posting_keys == one.posting_keys


def test_words_that_vary_together_are_saved_and_restored() -> None:
    postings, opened = Postings(5), replace(cluster(1), one_off=pack(KEYS), learned=0b11)
    postings.open(opened, lambda _: True)
    nothing = Found(None, False, [])
    ready = NOTHING_READY._replace(alike={opened.cluster})
    assert postings.note_together(opened.one_off, opened, nothing, ready, lambda _: True)
    again, restored = Postings(5), replace(cluster(1), learned=0b11)
    again.restore(restored, postings.leads(opened))
    line = pack(pattern_keys([901, 902, 103, 104, 105], [False] * 5))
    found = again.find("", line, lambda _: True)
    assert (found.owner, found.is_variable) == (restored, True)


def test_words_that_vary_together_are_said_once() -> None:
    postings = Postings(5)
    one, other = (replace(cluster(number), one_off=pack(KEYS), learned=0b11) for number in (1, 2))
    for owner in (one, other, one):  # each is noted while the other does not count
        ready = NOTHING_READY._replace(alike={owner.cluster})
        nothing = Found(None, False, [])
        postings.note_together(owner.one_off, owner, nothing, ready, partial(is_, owner))
    found = postings.find("", pack(KEYS), lambda _: True)
    assert [entry.owner for entry in found.together[0b11]] == [one]


def test_what_other_clusters_say_stays() -> None:
    postings = Postings(5)
    one, other = (replace(cluster(number), one_off=pack(KEYS), learned=0b11) for number in (1, 2))
    for owner in (one, other, other):
        ready = NOTHING_READY._replace(alike={owner.cluster})
        nothing = Found(None, False, [])
        postings.note_together(owner.one_off, owner, nothing, ready, lambda _: True)
    found = postings.find("", pack(KEYS), lambda _: True)
    assert [entry.owner for entry in found.together[0b11]] == [one, other]


def test_values_that_can_never_be_enough_are_not_noted() -> None:
    postings = Postings(5)
    words = PatternWords(array("Q", pack(pattern_keys(list(range(101, 121)), [False] * 20))))
    for varying, noted in ((6, False), (5, True)):  # with one more word, of ten values each
        owner = replace(cluster(varying), one_off=pack(KEYS))
        found = Found(None, False, [], {(1 << varying) - 1 << 1: []}, words)
        postings.assume(owner, found, lambda _: True)
        assert bool(owner.posting_keys) is noted


def test_so_many_postings_of_a_cluster_that_merges_are_looked_at() -> None:
    postings, one, root = Postings(5), replace(cluster(1), one_off=pack(KEYS)), cluster(2)
    postings.open(one, lambda _: True)
    postings.move(one, root, looks=0)
    assert root.posting_keys == []


def test_a_cluster_that_merges_hands_on_no_key_twice() -> None:
    postings, one = named_by_two_in_turn()
    root = cluster(3)
    postings.move(one, root)
    postings.note(pack(KEYS), root, NOTHING_READY, lambda _: True)
    assert root.posting_keys == [KEYS.own, *(slot.key for slot in KEYS.slots)]
    assert one.posting_keys == []


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
    postings, others = Postings(5), Postings(5)
    for each in (postings, others):
        each.open(replace(earlier, posting_keys=[]), lambda _: True)
    postings.open(opened, lambda _: True)
    others.note(packed, noted, NOTHING_READY, lambda _: True, first=True)
    assert opened.posting_keys == noted.posting_keys
    assert postings.leads(opened) == others.leads(noted)


def test_a_cluster_that_closes_leaves_no_posting() -> None:
    postings, opened = Postings(5), replace(cluster(1), one_off=pack(KEYS))
    postings.open(opened, lambda _: True)
    postings.remove(opened)
    assert postings.find("", pack(KEYS), lambda _: True) == Found(None, False, [])
    assert opened.posting_keys == []

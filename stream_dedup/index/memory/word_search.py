"""Finds the cluster of a pattern by its words, and the clusters that merge with an event.

`postings` says in which order is asked, and why; nothing is noted here. But a cluster's pattern
shows from now on what a search has found to vary in it (`Handle.learned`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from stream_dedup.clustering.learning import (
    COMBINATION,
    LEARNED,
    LEAST_SAME,
    MAX_COMBINATIONS,
    MAX_MERGED,
    MAX_MOVED,
    OWN,
    may_be_missing,
    wanted_values,
)
from stream_dedup.fingerprint.combinations import PatternWords, learned_of, list_keys, numbers_of
from stream_dedup.fingerprint.one_off import (
    ALL_GAPS,
    REPEATED,
    WordSlot,
    counted_of,
    gaps_of,
    is_beside_gap,
    slot_keys,
    word_count,
    word_slot,
)
from stream_dedup.index.memory.posting_lists import Handle, IsLive, Posting, PostingLists, older


class Seen(NamedTuple):
    """A slot of a pattern, and the posting list of its key."""

    slot: WordSlot
    posting_list: list[Posting]


class Found(NamedTuple):
    """What is known of a pattern.

    Attributes:
        owner: the cluster that it belongs to by its words, if there is one.
        is_variable: whether one of the pattern's own words is a known variable, so that no values
            are noted.
        seen: the slots of which something is known.
        together: combination that the pattern may have → postings of the clusters whose pattern
            fits; none if it is not known whether these words vary in it.
        words: the pattern's, if there are combinations.
        shown: the variables of the cluster whose pattern fits and shows the most, as
            `Handle.learned`: a cluster that shows another one stays apart. All, if none fits.
    """

    owner: Handle | None
    is_variable: bool
    seen: list[Seen]
    together: Mapping[int, list[Posting]] = MappingProxyType({})
    words: PatternWords | None = None
    shown: int = ~0

    def narrowed(self) -> Found:
        """Return it without the clusters that stay apart."""
        assert self.words is not None
        widest = next(
            (combination for combination in self.together if self.together[combination]), 0
        )
        if not widest:
            return self
        shown = learned_of(widest)
        for posting in self.together[widest]:
            shown |= posting.owner.learned
        found = self._replace(shown=shown)
        together = {
            combination: [
                posting
                for posting in postings
                if combination == widest
                or found.may_merge(learned_of(combination) | posting.owner.learned)
            ]
            for combination, postings in self.together.items()
        }
        return found._replace(together=together)

    def may_merge(self, learned: int) -> bool:
        """Return whether a cluster that shows these variables merges with the one that fits.

        So it does where its own and theirs can be no combination: nothing else would tell that they
        vary together.
        """
        if not learned & ~self.shown:
            return True
        assert self.words is not None
        return not self.words.combination(learned | self.shown)

    def takes(self, slot: WordSlot, owner: Handle) -> bool:
        """Return whether a cluster merges that has a posting for a slot."""
        return self.may_merge(1 << slot.number % REPEATED | owner.learned)


class Ready(NamedTuple):
    """What an event's values bring about.

    Attributes:
        numbers: slots that are learned, now or before.
        merging: the clusters found there.
        alike: those of them whose representative differs from the event in learned words alone, so
            that these slots are in its pattern.
        together: slots of the words that vary together in their patterns.
    """

    numbers: set[int]
    merging: dict[int, Handle]
    alike: set[int]
    together: set[int]

    def show(self, root: Handle) -> None:
        """Let the pattern of the cluster that is left show the slots."""
        if root.cluster in self.alike:
            for number in self.numbers | self.together:
                root.learned |= 1 << number % REPEATED

    def has_room(self, more: Iterable[Handle]) -> bool:
        """Return whether more clusters can merge, or are too much for this event."""
        owners = self.merging | {owner.cluster: owner for owner in more}
        sizes = [len(owner.posting_keys) for owner in owners.values()]
        moved = sum(sizes) - max(sizes, default=0)
        return not self.merging or (len(owners) <= MAX_MERGED and moved <= MAX_MOVED)


NOTHING_READY = Ready(set(), {}, set(), set())
"""Of a pattern that opens a cluster."""


# ------------------------------------------------------------ the cluster of a pattern


def find_by_words(
    lists: PostingLists, numbers: array[int], is_live: IsLive, *, has_combinations: bool
) -> Found:
    """Find the cluster of a pattern by its words.

    Args:
        lists: of the pattern's group.
        numbers: the keys of the pattern.
        is_live: tells whether a cluster takes the event.
        has_combinations: whether combinations may be listed for such patterns.
    """
    seen = [
        Seen(word_slot(numbers, index), lists.postings(key))
        for index, key in enumerate(slot_keys(numbers))
        if key in lists
    ]
    found = Found(None, False, seen)
    if has_combinations:
        found = find_together(lists, numbers, found, is_live)
    if not seen and not any(found.together.values()) and numbers[0] not in lists:
        return found
    own = [posting for posting in lists.postings(numbers[0]) if is_live(posting.owner)]
    owner = older(posting.owner for posting in own if posting.value == LEARNED)
    if owner is not None:  # a cluster in whose pattern the word varies that this one lacks
        return found._replace(owner=owner)
    in_slots = _postings_in_slots(found, is_live)
    owner = _by_variable(found, in_slots)
    if owner is not None:
        return found._replace(owner=owner, is_variable=True)
    owner = _by_same_words(numbers, own) or _by_one_word_off(numbers, own, in_slots)
    return found._replace(owner=owner)


def find_together(lists: PostingLists, numbers: array[int], found: Found, is_live: IsLive) -> Found:
    """Find the combinations that a pattern may have, and the clusters that it fits.

    Args:
        lists: of the pattern's group.
        numbers: the keys of the pattern.
        found: what else is known of it.
        is_live: tells whether a cluster is to be found.
    """
    keys = [key for key in list_keys(numbers) if key in lists]
    if not keys:
        return found
    words = PatternWords(numbers)
    together: dict[int, list[Posting]] = {}
    listed = chain.from_iterable(lists.postings(key) for key in keys)
    of_most_words_first = sorted(
        (posting for posting in listed if posting.number == COMBINATION),
        key=lambda posting: -posting.value.bit_count(),
    )
    for posting in of_most_words_first:
        combination = posting.value
        if (
            combination not in together
            and len(together) < MAX_COMBINATIONS
            and words.is_possible(combination)
            and is_live(posting.owner)
        ):
            posting_list = lists.postings(words.key(combination))
            live = [each for each in posting_list if is_live(each.owner)]
            known = any(each.number == OWN for each in live)
            together[combination] = live if known else []
    return found._replace(together=together, words=words).narrowed()


def _postings_in_slots(found: Found, is_live: IsLive) -> list[tuple[WordSlot, Posting]]:
    """Return, for the slots of a pattern, the postings that may lead to its cluster.

    In the list of a slot's key these are the postings of the slot, and those of the patterns that
    lack its word.
    """
    return [
        (slot, posting)
        for slot, posting_list in found.seen
        for posting in posting_list
        if posting.number in (slot.number, OWN)
        and is_live(posting.owner)
        and found.takes(slot, posting.owner)
    ]


def _by_variable(found: Found, in_slots: list[tuple[WordSlot, Posting]]) -> Handle | None:
    """Return the oldest cluster in whose pattern a word varies that the pattern has."""
    alone = (posting.owner for _, posting in in_slots if posting.value == LEARNED)
    together = (posting.owner for posting in chain.from_iterable(found.together.values()))
    return older(chain(alone, together))


def _by_same_words(numbers: array[int], own: list[Posting]) -> Handle | None:
    """Return the cluster of the pattern with the same words, if they are enough."""
    if word_count(numbers) < LEAST_SAME:
        return None
    return next((posting.owner for posting in own if posting.number == OWN), None)


def _by_one_word_off(
    numbers: array[int], own: list[Posting], in_slots: list[tuple[WordSlot, Posting]]
) -> Handle | None:
    """Return the oldest cluster whose pattern has one word more or less.

    If the pattern lacks a word of the cluster's representative, the cluster's pattern shows from
    now on that the word varies.
    """
    words, known = word_count(numbers), (counted_of(numbers), gaps_of(numbers))
    more = [
        posting
        for posting in own
        if posting.first
        and may_be_missing(
            posting.number, words + 1, *known, beside_gap=is_beside_gap(posting.value)
        )
    ]
    less = [posting for slot, posting in in_slots if _may_lack(slot, words, posting)]
    owner = older(posting.owner for posting in more + less)
    for posting in more:
        if posting.owner is owner:
            owner.learned |= 1 << posting.number
    return owner


def _may_lack(slot: WordSlot, words: int, posting: Posting) -> bool:
    """Return whether a cluster's pattern may lack the word that a pattern of `words` has in a slot.

    Args:
        slot: of the word.
        words: how many the pattern has.
        posting: what the posting list of the slot's key says of the cluster.
    """
    if posting.number == OWN:  # the cluster's pattern has no word there
        return may_be_missing(
            slot.number, words, slot.around, posting.value, beside_gap=is_beside_gap(slot.value)
        )
    shows_variable = posting.first and posting.owner.learned >> posting.number & 1
    return bool(shows_variable) and may_be_missing(
        slot.number, words, slot.around, ALL_GAPS, beside_gap=False
    )


# ------------------------------------------------------------ the clusters that merge


def ready_slots(found: Found, learn: int, is_live: IsLive) -> Ready:
    """Return the slots that are learned with these values, and the clusters found there.

    The patterns of these clusters show the slots from now on.

    Args:
        found: what is known of the event's pattern.
        learn: as `Match.learn`.
        is_live: tells whether a cluster takes the event.
    """
    ready = Ready(set(), {}, set(), set())
    if found.is_variable:  # else the cluster that it lacks a word of is nearer
        _add_together(ready, found)
    for slot, posting_list in found.seen:
        postings = _merging_postings(slot, posting_list, learn, ready, found, is_live)
        if not postings:
            continue
        owners = [posting.owner for posting in postings]
        if not ready.has_room(owners):
            break
        ready.numbers.add(slot.number)
        ready.merging.update((owner.cluster, owner) for owner in owners)
        for posting in postings:
            if posting.first and posting.number == slot.number:
                posting.owner.learned |= 1 << slot.number % REPEATED
                ready.alike.add(posting.owner.cluster)
    return ready


def _add_together(ready: Ready, found: Found) -> None:
    """Add the words that vary together, and the clusters whose patterns fit."""
    for combination, postings in found.together.items():
        if not postings:
            continue
        ready.together.update(numbers_of(combination))
        for posting in postings:
            if not ready.has_room([posting.owner]):
                break
            ready.merging[posting.owner.cluster] = posting.owner
            if posting.first:
                ready.alike.add(posting.owner.cluster)


def _merging_postings(
    slot: WordSlot,
    posting_list: list[Posting],
    learn: int,
    ready: Ready,
    found: Found,
    is_live: IsLive,
) -> list[Posting]:
    """Return the postings whose clusters merge as a slot is learned; none if it is not."""
    postings = [posting for posting in posting_list if posting.number == slot.number]
    known = slot.number in ready.together or (postings and postings[0].value == LEARNED)
    if not known and len(postings) + 1 < wanted_values(learn, slot.around):
        return []
    live = [
        posting
        for posting in postings
        if is_live(posting.owner)
        and found.takes(slot, posting.owner)
        and (known or shows_no_other(posting.owner, slot))
    ]
    if known or not live:
        return live
    if not completes(slot, live, learn):
        return []
    return live + [
        posting for posting in posting_list if posting.number == OWN and is_live(posting.owner)
    ]


def completes(slot: WordSlot, live: list[Posting], learn: int) -> bool:
    """Return whether the value of a slot is the last that is wanted, beside those noted."""
    enough = len(live) + 1 >= wanted_values(learn, slot.around)
    return enough and all(posting.value != slot.value for posting in live)


def shows_no_other(owner: Handle, slot: WordSlot) -> bool:
    """Return whether no other word than that of a slot varies in a cluster's pattern."""
    return not owner.learned & ~(1 << slot.number % REPEATED)

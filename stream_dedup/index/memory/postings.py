"""The one-off index in memory: which words occur in a place, between the same words.

It finds patterns that are one word off: for each pattern of n words it has n keys, each the hash of
the pattern without one of its words. As in an inverted index, what is stored under a key is a
*posting list*, and each of its entries is a *posting*, which names a cluster. `posting_lists` keeps
them, `word_search` finds clusters by them, and here they are noted.

Theory of operation
-------------------
A posting list belongs to a key of patterns (`fingerprint.one_off`). Each of its postings names an
open cluster, and says what is known of it:

- `OWN`: the words of its representative, or of a pattern that differs from that in learned words
  alone, are those of the key;
- a slot and a value: a pattern of the cluster has that word more, in that place;
- a slot and `LEARNED`: so many values were seen there that the word is a variable; all patterns
  with the words of the key, and any word in that place or none, belong to the cluster.

For a pattern that no exact hash knows, `find` asks in this order:

1. a slot that was learned, in the list of the pattern's own key or of a slot's key;
2. the same words, if they are four or more; or one word more or less. If a placeholder replaces
   the word, three other words have to be common, of which two count; if nothing does, six that
   count, and it must not be the last. Log levels and what has no letters do not count. The first
   word is never missing. What has joined a cluster in this way leads no other
   pattern to it: clusters do not drift. But a word of the representative that was missing is shown
   as a variable, so another may be in its place. Of patterns of equal words, the list says where
   the first one has placeholders.

Then the pattern's values are noted in the lists of all its slots. A slot that thereby sees the
last value that is wanted is learned, and the clusters found there merge (`ready`, `note`).

Where one of the pattern's own words is a known variable, no values are noted: a variable of a
million values takes no memory. But slots that are thereby complete are learned, and clusters merge,
all the same (`learn`): the line ``bob wrote to images`` fits two clusters, ``<*> wrote to images``
and ``bob wrote to <*>``, so they merge, unless such words are learned together.

Words that vary together
------------------------
Where several words of a pattern vary, a pattern may be new in all of them. So all words that vary
in a cluster's pattern are noted as a *combination* (`fingerprint.combinations`), with two postings:

- `COMBINATION`, in the list of what may vary in patterns of this shape and anchor; each combination
  is there for a few clusters, so that the others are found when one closes;
- `OWN`, in the list of the pattern without these words: whoever has this list fits.

`find` tries what is listed for a pattern, and takes a cluster so found like one by a slot that was
learned. It is noted when an event joins whose own words are known variables (`note_together`).

Of such patterns, few differ in one word alone. So values are noted beside a combination, too: in
the list of the pattern without the combination and one other word, that word's value and those of
the combination's words. Once each of these words has enough values, they are a longer combination,
and the clusters merge with the next event that fits. Each needs its own: in ``user <*> copied table
users``, many users say nothing of the verb. A cluster's values are noted beside its own combination
(`note_together`), and those of a pattern that opens a cluster beside the first ones that are listed
for it (`assume`).

A pattern may fit several clusters. Of their combinations the one of the most words counts; the
clusters of the others merge with its cluster if they show no other variable. If they do, they stay
apart: ``user zoe <*> table users``, of five verbs, never joins ``user <*> copied table <*>``. Both
fit ``user zoe copied table users``, but the verbs of one user would merge those of all. For the
same reason a cluster that shows a variable has no value for a slot of another word. Only where the
variables of both can be no combination, as too few words are left, they merge.

`Handle.learned` numbers the words of a cluster's representative. For a pattern with one word more
or less the numbers do not match, so such a merge may be decided either way.

Bounds
------
Postings name open clusters only: they leave with a cluster that closes. They follow one that merges
if they say more than a value.
Those of a cluster that is open, but has passed its window for an event, do not count: they give
way to the event's own where they have its value, or where there is no room.

Limits: `MAX_POSTINGS` of a list, one value less than a slot wants and as many as each word of a
combination does, `MAX_POSTING_LISTS` that name a cluster, `MAX_MERGED` clusters that one event
merges and `MAX_MOVED` of their lists, `MAX_COMBINATIONS` that are tried for a pattern and
`MAX_ASSUMED` beside which its values are noted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import NamedTuple

from stream_dedup.clustering.learning import (
    COMBINATION,
    LEARNED,
    MAX_ASSUMED,
    MAX_COMBINATIONS,
    MAX_LISTED,
    MAX_POSTING_LISTS,
    MAX_POSTINGS,
    OWN,
    wanted_together,
    wanted_values,
)
from stream_dedup.fingerprint.combinations import (
    SHAPE_NUMBERS,
    PatternWords,
    learned_of,
    shape_key,
    shape_number,
)
from stream_dedup.fingerprint.one_off import REPEATED, WordSlot, gaps_of, slot_keys, word_slot
from stream_dedup.index.memory.posting_lists import Handle, IsLive, Posting, PostingLists, older
from stream_dedup.index.memory.word_search import (
    NOTHING_READY,
    Found,
    Ready,
    Seen,
    completes,
    find_by_words,
    find_together,
    ready_slots,
    shows_no_other,
)


class _Noting(NamedTuple):
    """Where a pattern of a cluster is noted: the posting lists of its group; and for whom."""

    lists: PostingLists
    words: PatternWords
    owner: Handle
    is_live: IsLive


class Postings:
    """All posting lists of an index.

    Args:
        learn: as `Match.learn`.

    Attributes:
        has_combinations: whether any words were known to vary together.
    """

    def __init__(self, learn: int) -> None:
        self._learn = learn
        self._of_group: dict[str, PostingLists] = {}
        self._listed = bytearray(SHAPE_NUMBERS)  # of which combinations may be listed
        self.has_combinations = False

    def lists_combinations(self, numbers: array[int]) -> bool:
        """Return whether combinations may be listed for patterns such as that with these keys."""
        return bool(numbers) and bool(self._listed[shape_number(shape_key(numbers))])

    def _lists(self, group: str) -> PostingLists:
        lists = self._of_group.get(group)
        if lists is None:
            lists = self._of_group[group] = PostingLists()
        return lists

    def find(self, group: str, one_off: bytes, is_live: IsLive) -> Found:
        """Find the cluster of a pattern by its words.

        Args:
            group: only clusters of it are found.
            one_off: the packed keys of the pattern.
            is_live: tells whether a cluster takes the event.
        """
        lists = self._of_group.get(group)
        if lists is None:
            return Found(None, False, [])
        numbers = array("Q", one_off)
        has_combinations = self.lists_combinations(numbers)
        return find_by_words(lists, numbers, is_live, has_combinations=has_combinations)

    def find_fitting(self, group: str, one_off: bytes, is_live: IsLive) -> Handle | None:
        """Find the cluster whose pattern a pattern fits by words that vary together.

        Args:
            group: only clusters of it are found.
            one_off: the packed keys of the pattern.
            is_live: tells whether a cluster is to be found.
        """
        numbers = array("Q", one_off)
        lists = self._of_group.get(group)
        if lists is None or not self.lists_combinations(numbers):
            return None
        found = find_together(lists, numbers, Found(None, False, []), is_live)
        return older(posting.owner for posting in chain.from_iterable(found.together.values()))

    def ready(self, found: Found, is_live: IsLive) -> Ready:
        """Return the slots that are learned with these values, and the clusters found there.

        The patterns of these clusters show the slots from now on.
        """
        return ready_slots(found, self._learn, is_live)

    def open(self, owner: Handle, is_live: IsLive) -> None:
        """Note the values of the pattern that opens a cluster.

        Args:
            owner: how the cluster is found.
            is_live: tells whether a cluster takes the event.
        """
        if not self._lists(owner.group).open(owner):
            self.note(owner.one_off, owner, NOTHING_READY, is_live, first=True)

    def note(
        self,
        one_off: bytes,
        owner: Handle,
        ready: Ready,
        is_live: IsLive,
        *,
        first: bool = False,
        outside: bool = False,
    ) -> None:
        """Note the values of a pattern of a cluster.

        Args:
            one_off: the packed keys of the pattern.
            owner: how the cluster is found.
            ready: as returned before; the clusters there have merged into this one.
            is_live: tells whether a cluster takes the event.
            first: whether it is the pattern of the cluster's representative.
            outside: whether it differs from that in more than learned words. Then it teaches values
                but leads no other pattern to the cluster, which would drift.
        """
        numbers = array("Q", one_off)
        own, keys = numbers[0], slot_keys(numbers)
        if len(owner.posting_keys) + 1 + len(keys) > MAX_POSTING_LISTS:
            return
        lists = self._lists(owner.group)
        posting_list = lists.postings(own)
        named = any(posting.number == OWN and is_live(posting.owner) for posting in posting_list)
        if not outside and not named:
            kept = [posting for posting in posting_list if posting.number != OWN]
            posting = Posting(OWN, gaps_of(numbers), owner, first)
            lists.put(own, kept, posting, is_live)
        for index, key in enumerate(keys):
            slot = word_slot(numbers, index)
            if key not in lists and slot.number not in ready.numbers:
                lists[key] = [Posting(slot.number, slot.value, owner, first)]
                if first or key not in owner.posting_keys:
                    owner.posting_keys.append(key)
            else:
                self._note(lists, slot, owner, ready, is_live, first=first)

    def note_together(
        self, one_off: bytes, owner: Handle, found: Found, ready: Ready, is_live: IsLive
    ) -> bool:
        """Note which words vary in a cluster's pattern, as a combination.

        Args:
            one_off: the packed keys of a pattern of the cluster.
            owner: how the cluster is found.
            found: as returned before.
            ready: likewise; the clusters there have merged into this one.
            is_live: tells whether a cluster takes the event.

        Returns:
            Whether that was not known.
        """
        if owner.cluster not in ready.alike:
            return False  # its pattern has other words
        noting = self._noting(found.words or PatternWords(array("Q", one_off)), owner, is_live)
        combination = noting.words.combination(owner.learned)
        if not combination:
            return False
        if found.together.get(combination):
            self._list_combination(noting, combination)
            return False
        if combination not in found.together and len(found.together) >= MAX_COMBINATIONS:
            return False
        if len(owner.posting_keys) + 2 > MAX_POSTING_LISTS:
            return False
        self._vary(noting, combination)
        self._note_beside(noting, combination)
        return True

    def combine(self, one_off: bytes, owner: Handle, combination: int, is_live: IsLive) -> None:
        """Note that words of the pattern that opened a cluster vary together.

        Nothing changes if the cluster shows other variables.

        Args:
            one_off: the packed keys of the pattern.
            owner: how the cluster is found.
            combination: of these words.
            is_live: tells whether a cluster takes the event.
        """
        if owner.learned or len(owner.posting_keys) + 2 > MAX_POSTING_LISTS:
            return
        owner.learned = learned_of(combination)
        noting = self._noting(PatternWords(array("Q", one_off)), owner, is_live)
        self._vary(noting, combination)
        self._note_beside(noting, combination)

    def assume(self, owner: Handle, found: Found, is_live: IsLive) -> None:
        """Note the values of the pattern that opens a cluster, as if other words of it varied.

        Args:
            owner: how the cluster is found.
            found: as returned before.
            is_live: tells whether a cluster takes the event.
        """
        if found.words is not None:
            noting = self._noting(found.words, owner, is_live)
            for combination in islice(found.together, MAX_ASSUMED):
                self._note_beside(noting, combination)

    def _noting(self, words: PatternWords, owner: Handle, is_live: IsLive) -> _Noting:
        return _Noting(self._lists(owner.group), words, owner, is_live)

    def _note_beside(self, noting: _Noting, combination: int) -> None:
        """Note the values of each other word, and beside it those of the words that vary."""
        lists, words, owner, is_live = noting
        wanted, varying = wanted_together(self._learn), words.slots_of(combination)
        if (len(varying) + 1) * wanted > MAX_POSTINGS:
            return
        for slot, more, key in words.beside(combination):
            if len(owner.posting_keys) + 2 > MAX_POSTING_LISTS:
                return
            known = {
                (posting.number, posting.value)
                for posting in lists.postings(key)
                if is_live(posting.owner)
            }
            if any(number == OWN for number, _ in known):
                continue
            values = [(each.number, each.value) for each in (slot, *varying)]
            counts = Counter(number for number, _ in known.union(values))
            if all(counts[number] >= wanted for number, _ in values):
                self._vary(noting, more)
                continue
            for number, value in values:
                if (number, value) not in known and counts[number] <= wanted:
                    lists.replace(key, Posting(number, value, owner, first=True), is_live)

    def _vary(self, noting: _Noting, combination: int) -> None:
        """Note that the words of a combination vary in a cluster's pattern."""
        self._list_combination(noting, combination)
        lists, words, owner, is_live = noting
        lists.replace(words.key(combination), Posting(OWN, 0, owner, first=True), is_live)

    def _list_combination(self, noting: _Noting, combination: int) -> None:
        """List a combination, unless enough clusters do."""
        lists, words, owner, is_live = noting
        for key in words.list_keys_of(combination):
            posting_list = lists.postings(key)
            same = [e for e in posting_list if e.value == combination and is_live(e.owner)]
            if len(same) >= MAX_LISTED or len(owner.posting_keys) >= MAX_POSTING_LISTS:
                continue
            if all(posting.owner is not owner for posting in same):
                kept = [e for e in posting_list if e.value != combination or is_live(e.owner)]
                posting = Posting(COMBINATION, combination, owner, first=False)
                lists.put(key, kept, posting, is_live)
                self._note_shape(key)

    def _note_shape(self, key: int) -> None:
        """Note that combinations are listed under a key."""
        self._listed[shape_number(key)] = self.has_combinations = True

    def learn(self, seen: Iterable[Seen], owner: Handle, ready: Ready, is_live: IsLive) -> bool:
        """Note which slots are learned, without values.

        Args:
            seen: as returned by `find`.
            owner: the cluster that is left of those in `ready`.
            ready: as returned before.
            is_live: tells whether a cluster takes the event.

        Returns:
            Whether a slot is learned now that was not.
        """
        lists = self._lists(owner.group)
        learned = False
        for slot, _ in seen:
            if slot.number not in ready.numbers or any(
                posting.number == slot.number
                and posting.value == LEARNED
                and is_live(posting.owner)
                for posting in lists.postings(slot.key)
            ):
                continue
            if slot.key in owner.posting_keys or len(owner.posting_keys) < MAX_POSTING_LISTS:
                self._note(lists, slot, owner, ready, is_live, first=False)
                learned = True
        return learned

    def _note(
        self,
        lists: PostingLists,
        slot: WordSlot,
        owner: Handle,
        ready: Ready,
        is_live: IsLive,
        *,
        first: bool,
    ) -> None:
        """Note the value of a slot in a posting list that exists."""
        posting_list = lists.postings(slot.key)
        postings = [posting for posting in posting_list if posting.number == slot.number]
        others = [posting for posting in posting_list if posting.number != slot.number]
        live = [posting for posting in postings if is_live(posting.owner)]
        values = {posting.value for posting in live}
        if LEARNED in values:
            return
        if slot.number in ready.numbers:
            shown = first or owner.cluster in ready.alike
            posting = Posting(slot.number, LEARNED, owner, shown)
            lists.put(slot.key, others, posting, is_live)
            if shown:
                owner.learned |= 1 << slot.number % REPEATED
        elif slot.value not in values:
            postings = [
                posting for posting in postings if posting.value not in (LEARNED, slot.value)
            ]
            if len(postings) + 1 >= wanted_values(self._learn, slot.around):
                if completes(slot, [e for e in live if shows_no_other(e.owner, slot)], self._learn):
                    return  # too many clusters to merge at once
                postings = live
            posting = Posting(slot.number, slot.value, owner, first)
            lists.put(slot.key, others + postings, posting, is_live)

    def move(self, loser: Handle, root: Handle, looks: int = MAX_POSTING_LISTS) -> None:
        """Let the lists that name a cluster name another one of its group.

        Values do not follow: they would say of two words that vary in turns that one of them varies
        beside the other.

        Args:
            loser: the cluster.
            root: the other one.
            looks: only so many of them, the first ones, do.
        """
        lists = self._of_group.get(loser.group)
        if lists is not None:
            lists.move(loser, root, looks)

    def remove(self, owner: Handle) -> None:
        """Remove what names a cluster."""
        lists = self._of_group.get(owner.group)
        if lists is None:
            return
        lists.remove(owner)
        if not lists:
            del self._of_group[owner.group]

    def leads(self, owner: Handle) -> list[tuple[int, int, int, bool]]:
        """Return what names a cluster: key, number, value, and whether `Posting.first`."""
        lists = self._of_group.get(owner.group)
        return [] if lists is None else lists.leads(owner)

    def restore(self, owner: Handle, leads: Iterable[tuple[int, int, int, bool]]) -> None:
        """Name a cluster again as `leads` has returned it."""
        for key, number, value, first in leads:
            lists = self._lists(owner.group)
            posting = Posting(number, value, owner, first)
            lists.put(key, lists.postings(key), posting, lambda _: True)
            if number == COMBINATION:
                self._note_shape(key)

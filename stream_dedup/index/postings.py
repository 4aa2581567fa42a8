"""The one-off index in memory: which words occur in a place, between the same words.

It finds patterns that are one word off: for each pattern of n words it has n keys, each the hash of
the pattern without one of its words. As in an inverted index, what is stored under a key is a
*posting list*, and each of its entries is a *posting*, which names a cluster.

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
   the word, three other words have to be common; if nothing does, six, and it must not be the
   last. The first word is never missing. What has joined a cluster in this way leads no other
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

Most lists hold one posting, of the pattern that opened a cluster. Such a list is that cluster's
handle itself, which keeps the keys of the pattern; the posting is made when it is asked for. So all
postings of a pattern are noted at once, and take no memory but their places in the dictionary.

Limits: `MAX_POSTINGS` of a list, one value less than a slot wants and as many as each word of a
combination does, `MAX_POSTING_LISTS` that name a cluster, `MAX_MERGED` clusters that one event
merges and `MAX_MOVED` of their lists, `MAX_COMBINATIONS` that are tried for a pattern and
`MAX_ASSUMED` beside which its values are noted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

from stream_dedup.clustering.learning import (
    COMBINATION,
    LEARNED,
    LEAST_SAME,
    MAX_ASSUMED,
    MAX_COMBINATIONS,
    MAX_LISTED,
    MAX_MERGED,
    MAX_MOVED,
    MAX_POSTING_LISTS,
    MAX_POSTINGS,
    OWN,
    may_be_missing,
    wanted_together,
    wanted_values,
)
from stream_dedup.fingerprint.combinations import (
    SHAPE_NUMBERS,
    PatternWords,
    learned_of,
    list_keys,
    numbers_of,
    shape_key,
    shape_number,
)
from stream_dedup.fingerprint.one_off import (
    ALL_GAPS,
    REPEATED,
    WordSlot,
    gaps_of,
    is_beside_gap,
    slot_keys,
    word_count,
    word_slot,
)


@dataclass(slots=True, eq=False)
class Handle:
    """How one open cluster is found; see `lookup`.

    Attributes:
        owner: its owner number in the tables.
        cluster: its id.
        group: only events of this group find it.
        fingerprint: of its representative.
        sketch: of its representative.
        opened_us: event time at which it was opened.
        one_off: the keys of its representative's pattern, if it opened the cluster here.
        exacts: the (group, exact hash) keys that lead to it; its representative's first.
        entries: its entries in the tables.
        posting_keys: the keys of the posting lists that name it.
        learned: bit i for the word i of its representative, if that varies: it is learned, or
            events lack it.
    """

    owner: int
    cluster: int
    group: str
    fingerprint: int
    sketch: bytes
    opened_us: int
    one_off: bytes = b""
    exacts: list[tuple[str, int]] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    posting_keys: list[int] = field(default_factory=list)
    learned: int = 0


IsLive = Callable[[Handle], bool]
"""Whether a cluster takes the event in question."""


class Posting(NamedTuple):
    """What a posting list says of one cluster.

    Attributes:
        number: the slot's; or `OWN`.
        value: of the word in the slot; or `LEARNED`. Of `OWN`: where the pattern has placeholders
            (`one_off.gaps_of`), 0 if it is a combination's.
        owner: the cluster.
        first: whether the cluster's representative has that slot, so that its pattern shows it.
    """

    number: int
    value: int
    owner: Handle
    first: bool

    @property
    def is_learned(self) -> bool:
        """Whether it says more than that its cluster has a value."""
        return self.number in (OWN, COMBINATION) or self.value == LEARNED


PostingLists = dict[int, list[Posting] | Handle]
"""The posting lists of a group by their keys. A cluster's handle stands for its only posting."""


def older(owners: Iterable[Handle]) -> Handle | None:
    """Return the cluster that was opened first; of several the one of the least id."""
    return min(owners, key=lambda owner: (owner.opened_us, owner.cluster), default=None)


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


class _Noting(NamedTuple):
    """Where a pattern of a cluster is noted: the posting lists of its group; and for whom."""

    lists: PostingLists
    words: PatternWords
    owner: Handle
    is_live: IsLive


NOTHING_READY = Ready(set(), {}, set(), set())
"""Of a pattern that opens a cluster."""


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
        seen = [
            Seen(word_slot(numbers, index), _posting_list(lists, key))
            for index, key in enumerate(slot_keys(numbers))
            if key in lists
        ]
        found = Found(None, False, seen)
        if self.lists_combinations(numbers):
            found = self._find_together(lists, numbers, found, is_live)
        if not seen and not any(found.together.values()) and numbers[0] not in lists:
            return found
        own = [posting for posting in _posting_list(lists, numbers[0]) if is_live(posting.owner)]
        owner = older(posting.owner for posting in own if posting.value == LEARNED)
        if owner is not None:  # a cluster in whose pattern the word varies that this one lacks
            return found._replace(owner=owner)
        in_slots = _postings_in_slots(found, is_live)
        owner = _by_variable(found, in_slots)
        if owner is not None:
            return found._replace(owner=owner, is_variable=True)
        owner = _by_same_words(numbers, own) or _by_one_word_off(numbers, own, in_slots)
        return found._replace(owner=owner)

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
        found = self._find_together(lists, numbers, Found(None, False, []), is_live)
        return older(posting.owner for posting in chain.from_iterable(found.together.values()))

    @staticmethod
    def _find_together(
        lists: PostingLists, numbers: array[int], found: Found, is_live: IsLive
    ) -> Found:
        """Find the combinations that a pattern may have, and the clusters that it fits."""
        keys = [key for key in list_keys(numbers) if key in lists]
        if not keys:
            return found
        words = PatternWords(numbers)
        together: dict[int, list[Posting]] = {}
        listed = chain.from_iterable(_posting_list(lists, key) for key in keys)
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
                posting_list = _posting_list(lists, words.key(combination))
                live = [each for each in posting_list if is_live(each.owner)]
                known = any(each.number == OWN for each in live)
                together[combination] = live if known else []
        return found._replace(together=together, words=words).narrowed()

    def ready(self, found: Found, is_live: IsLive) -> Ready:
        """Return the slots that are learned with these values, and the clusters found there.

        The patterns of these clusters show the slots from now on.
        """
        ready = Ready(set(), {}, set(), set())
        if found.is_variable:  # else the cluster that it lacks a word of is nearer
            self._add_together(ready, found)
        for slot, posting_list in found.seen:
            postings = self._ready_postings(slot, posting_list, ready, found, is_live)
            if not postings:
                continue
            owners = [posting.owner for posting in postings]
            if not self._has_room(ready, owners):
                break
            ready.numbers.add(slot.number)
            ready.merging.update((owner.cluster, owner) for owner in owners)
            for posting in postings:
                if posting.first and posting.number == slot.number:
                    posting.owner.learned |= 1 << slot.number % REPEATED
                    ready.alike.add(posting.owner.cluster)
        return ready

    def _add_together(self, ready: Ready, found: Found) -> None:
        """Add the words that vary together, and the clusters whose patterns fit."""
        for combination, postings in found.together.items():
            if not postings:
                continue
            ready.together.update(numbers_of(combination))
            for posting in postings:
                if not self._has_room(ready, [posting.owner]):
                    break
                ready.merging[posting.owner.cluster] = posting.owner
                if posting.first:
                    ready.alike.add(posting.owner.cluster)

    def _ready_postings(
        self,
        slot: WordSlot,
        posting_list: list[Posting],
        ready: Ready,
        found: Found,
        is_live: IsLive,
    ) -> list[Posting]:
        """Return the postings whose clusters merge as a slot is learned; none if it is not."""
        postings = [posting for posting in posting_list if posting.number == slot.number]
        known = slot.number in ready.together or (postings and postings[0].value == LEARNED)
        if not known and len(postings) + 1 < wanted_values(self._learn, slot.around):
            return []
        live = [
            posting
            for posting in postings
            if is_live(posting.owner)
            and found.takes(slot, posting.owner)
            and (known or _shows_no_other(posting.owner, slot))
        ]
        if known or not live:
            return live
        if not self._completes(slot, live):
            return []
        return live + [
            posting for posting in posting_list if posting.number == OWN and is_live(posting.owner)
        ]

    @staticmethod
    def _has_room(ready: Ready, more: Iterable[Handle]) -> bool:
        """Return whether more clusters can merge, or are too much for this event."""
        owners = ready.merging | {owner.cluster: owner for owner in more}
        sizes = [len(owner.posting_keys) for owner in owners.values()]
        moved = sum(sizes) - max(sizes, default=0)
        return not ready.merging or (len(owners) <= MAX_MERGED and moved <= MAX_MOVED)

    def _completes(self, slot: WordSlot, live: list[Posting]) -> bool:
        enough = len(live) + 1 >= wanted_values(self._learn, slot.around)
        return enough and all(posting.value != slot.value for posting in live)

    def open(self, owner: Handle, is_live: IsLive) -> None:
        """Note the values of the pattern that opens a cluster.

        Args:
            owner: how the cluster is found.
            is_live: tells whether a cluster takes the event.
        """
        lists = self._of_group.setdefault(owner.group, {})
        numbers = array("Q", owner.one_off)
        keys = [numbers[0], *slot_keys(numbers)]
        noted = dict.fromkeys(keys, owner)
        if len(noted) == len(keys) and lists.keys().isdisjoint(noted):  # most often
            lists.update(noted)
            owner.posting_keys = keys
        else:
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
        lists = self._of_group.setdefault(owner.group, {})
        posting_list = _posting_list(lists, own)
        named = any(posting.number == OWN and is_live(posting.owner) for posting in posting_list)
        if not outside and not named:
            kept = [posting for posting in posting_list if posting.number != OWN]
            posting = Posting(OWN, gaps_of(numbers), owner, first)
            self._put(lists, own, kept, posting, is_live)
        for index, key in enumerate(keys):
            slot = word_slot(numbers, index)
            if key not in lists and slot.number not in ready.numbers:
                lists[key] = [Posting(slot.number, slot.value, owner, first)]
                if first or key not in owner.posting_keys:
                    owner.posting_keys.append(key)
            else:
                known = _posting_list(lists, key)
                self._note(lists, slot, known, owner, ready, is_live, first=first)

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
        return _Noting(self._of_group.setdefault(owner.group, {}), words, owner, is_live)

    def _note_beside(self, noting: _Noting, combination: int) -> None:
        """Note the values of each other word, and beside it those of the words that vary."""
        lists, words, owner, is_live = noting
        wanted, varying = wanted_together(self._learn), words.slots_of(combination)
        if (len(varying) + 1) * wanted > MAX_POSTINGS:
            return
        for slot, more, key in words.beside(combination):
            if len(owner.posting_keys) + 2 > MAX_POSTING_LISTS:
                return
            posting_list = _posting_list(lists, key)
            known = {
                (posting.number, posting.value)
                for posting in posting_list
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
                    posting = Posting(number, value, owner, first=True)
                    posting_list = _without(_posting_list(lists, key), posting, is_live)
                    self._put(lists, key, posting_list, posting, is_live)

    def _vary(self, noting: _Noting, combination: int) -> None:
        """Note that the words of a combination vary in a cluster's pattern."""
        self._list_combination(noting, combination)
        lists, words, owner, is_live = noting
        key, posting = words.key(combination), Posting(OWN, 0, owner, first=True)
        self._put(
            lists, key, _without(_posting_list(lists, key), posting, is_live), posting, is_live
        )

    def _list_combination(self, noting: _Noting, combination: int) -> None:
        """List a combination, unless enough clusters do."""
        lists, words, owner, is_live = noting
        for key in words.list_keys_of(combination):
            posting_list = _posting_list(lists, key)
            same = [e for e in posting_list if e.value == combination and is_live(e.owner)]
            if len(same) >= MAX_LISTED or len(owner.posting_keys) >= MAX_POSTING_LISTS:
                continue
            if all(posting.owner is not owner for posting in same):
                kept = [e for e in posting_list if e.value != combination or is_live(e.owner)]
                posting = Posting(COMBINATION, combination, owner, first=False)
                self._put(lists, key, kept, posting, is_live)
                self._note_shape(key)

    def _note_shape(self, key: int) -> None:
        """Note that combinations are listed under a key."""
        self._listed[shape_number(key)] = self.has_combinations = True

    def learn(
        self, group: str, seen: Iterable[Seen], owner: Handle, ready: Ready, is_live: IsLive
    ) -> bool:
        """Note which slots are learned, without values.

        Args:
            group: the pattern's.
            seen: as returned by `find`.
            owner: the cluster that is left of those in `ready`.
            ready: as returned before.
            is_live: tells whether a cluster takes the event.

        Returns:
            Whether a slot is learned now that was not.
        """
        lists = self._of_group.setdefault(group, {})
        learned = False
        for slot, _ in seen:
            posting_list = _posting_list(lists, slot.key)
            if slot.number not in ready.numbers or any(
                posting.number == slot.number
                and posting.value == LEARNED
                and is_live(posting.owner)
                for posting in posting_list
            ):
                continue
            if slot.key in owner.posting_keys or len(owner.posting_keys) < MAX_POSTING_LISTS:
                self._note(lists, slot, posting_list, owner, ready, is_live, first=False)
                learned = True
        return learned

    def _note(
        self,
        lists: PostingLists,
        slot: WordSlot,
        posting_list: list[Posting],
        owner: Handle,
        ready: Ready,
        is_live: IsLive,
        *,
        first: bool,
    ) -> None:
        """Note the value of a slot in a posting list that exists."""
        postings = [posting for posting in posting_list if posting.number == slot.number]
        others = [posting for posting in posting_list if posting.number != slot.number]
        live = [posting for posting in postings if is_live(posting.owner)]
        values = {posting.value for posting in live}
        if LEARNED in values:
            return
        if slot.number in ready.numbers:
            shown = first or owner.cluster in ready.alike
            posting = Posting(slot.number, LEARNED, owner, shown)
            self._put(lists, slot.key, others, posting, is_live)
            if shown:
                owner.learned |= 1 << slot.number % REPEATED
        elif slot.value not in values:
            postings = [
                posting for posting in postings if posting.value not in (LEARNED, slot.value)
            ]
            if len(postings) + 1 >= wanted_values(self._learn, slot.around):
                if self._completes(slot, [e for e in live if _shows_no_other(e.owner, slot)]):
                    return  # too many clusters to merge at once
                postings = live
            posting = Posting(slot.number, slot.value, owner, first)
            self._put(lists, slot.key, others + postings, posting, is_live)

    @staticmethod
    def _put(
        lists: PostingLists,
        key: int,
        kept: list[Posting],
        posting: Posting,
        is_live: IsLive,
    ) -> None:
        """Add a posting; in a full posting list, in place of the oldest that do not count."""
        while len(kept) >= MAX_POSTINGS:
            if is_live(kept[0].owner):
                return
            kept = kept[1:]
        if key not in posting.owner.posting_keys:  # or the list has dropped it meanwhile
            posting.owner.posting_keys.append(key)
        lists[key] = [*kept, posting]

    def move(self, loser: Handle, root: Handle, looks: int = MAX_POSTING_LISTS) -> None:
        """Let the lists that name a cluster name another one of its group.

        Values do not follow: they would say of two words that vary in turns that one of them varies
        beside the other.

        Args:
            loser: the cluster.
            root: the other one.
            looks: only so many of them, the first ones, do.
        """
        lists = self._of_group.get(loser.group, {})
        for place, key in enumerate(loser.posting_keys):
            posting_list = _posting_list(lists, key)
            if all(posting.owner is not loser for posting in posting_list):
                continue
            named = any(posting.owner is root for posting in posting_list)
            has_room = place < looks and (named or len(root.posting_keys) < MAX_POSTING_LISTS)
            moved = [
                posting._replace(owner=root, first=False) if posting.owner is loser else posting
                for posting in posting_list
                if posting.owner is not loser or (has_room and posting.is_learned)
            ]
            if moved:
                lists[key] = moved
            else:
                del lists[key]
            if any(posting.owner is root for posting in moved) and key not in root.posting_keys:
                root.posting_keys.append(key)
        loser.posting_keys = []

    def remove(self, owner: Handle) -> None:
        """Remove what names a cluster."""
        lists = self._of_group.get(owner.group)
        if lists is None:
            return
        for key in owner.posting_keys:
            if lists.get(key) is owner:
                del lists[key]
                continue
            kept = [posting for posting in _posting_list(lists, key) if posting.owner is not owner]
            if kept:
                lists[key] = kept
            else:
                lists.pop(key, None)
        if not lists:
            del self._of_group[owner.group]
        owner.posting_keys = []

    def leads(self, owner: Handle) -> list[tuple[int, int, int, bool]]:
        """Return what names a cluster: key, number, value, and whether `Posting.first`."""
        lists = self._of_group.get(owner.group, {})
        return [
            (key, posting.number, posting.value, posting.first)
            for key in owner.posting_keys
            for posting in _posting_list(lists, key)
            if posting.owner is owner
        ]

    def restore(self, owner: Handle, leads: Iterable[tuple[int, int, int, bool]]) -> None:
        """Name a cluster again as `leads` has returned it."""
        for key, number, value, first in leads:
            lists = self._of_group.setdefault(owner.group, {})
            posting = Posting(number, value, owner, first)
            self._put(lists, key, _posting_list(lists, key), posting, lambda _: True)
            if number == COMBINATION:
                self._note_shape(key)


def _posting_list(lists: PostingLists, key: int) -> list[Posting]:
    """Return the postings of a posting list; none if there is no such posting list."""
    stored = lists.get(key)
    if stored is None:
        return []
    if isinstance(stored, list):
        return stored
    numbers = array("Q", stored.one_off)
    number, value = OWN, gaps_of(numbers)
    if key != numbers[0]:
        slot = word_slot(numbers, slot_keys(numbers).index(key))
        number, value = slot.number, slot.value
    postings = lists[key] = [Posting(number, value, stored, first=True)]
    return postings


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
    words, gaps = word_count(numbers), gaps_of(numbers)
    more = [
        posting
        for posting in own
        if posting.first
        and may_be_missing(posting.number, words + 1, gaps, beside_gap=is_beside_gap(posting.value))
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
            slot.number, words, posting.value, beside_gap=is_beside_gap(slot.value)
        )
    shows_variable = posting.first and posting.owner.learned >> posting.number & 1
    return bool(shows_variable) and may_be_missing(slot.number, words, ALL_GAPS, beside_gap=False)


def _shows_no_other(owner: Handle, slot: WordSlot) -> bool:
    """Return whether no other word than that of a slot varies in a cluster's pattern."""
    return not owner.learned & ~(1 << slot.number % REPEATED)


def _without(posting_list: list[Posting], new: Posting, is_live: IsLive) -> list[Posting]:
    """Return a list without what a posting replaces: the same of its cluster, or of the past."""
    return [
        posting
        for posting in posting_list
        if (posting.number, posting.value) != (new.number, new.value)
        or (posting.owner is not new.owner and is_live(posting.owner))
    ]

"""The one-off index in memory: which words occur in a place, between the same words.

It finds patterns that are one word off: for each pattern of n words it has n keys, each the hash of
the pattern without one of its words. What is stored under a key is called a record in this module;
that has nothing to do with Kafka's records, or with `Index.record`.

Theory of operation
-------------------
A *record* belongs to a key of patterns (`fingerprint.one_off`) and holds entries. Each names an
open cluster:

- `OWN`: the words of its representative, or of a pattern that differs from that in learned words
  alone, are those of the key;
- a slot and a value: a pattern of the cluster has that word more, in that place;
- a slot and `LEARNED`: so many values were seen there that the word is a variable; all patterns
  with the words of the key, and any word in that place or none, belong to the cluster.

For a pattern that no exact hash knows, `find` asks in this order:

1. a slot that was learned, in the record of the pattern's own key or of a slot's key;
2. the same words, if they are four or more; or one word more or less. If a placeholder replaces
   the word, three other words have to be common; if nothing does, six, and it must not be the
   last. The first word is never missing. What has joined a cluster in this way leads no other
   pattern to it: clusters do not drift. But a word of the representative that was missing is shown
   as a variable, so another may be in its place. Of patterns of equal words, the record says where
   the first one has placeholders.

Then the pattern's values are noted in the records of all its slots. A slot that thereby sees the
last value that is wanted is learned, and the clusters found there merge (`ready`, `note`).

Where one of the pattern's own words is a known variable, no values are noted: a variable of a
million values takes no memory. But slots that are thereby complete are learned, and clusters merge,
all the same (`learn`): the line ``bob wrote to images`` fits two clusters, ``<*> wrote to images``
and ``bob wrote to <*>``, so they merge, unless such words are learned together.

Words that vary together
------------------------
Where several words of a pattern vary, a pattern may be new in all of them. So all words that vary
in a cluster's pattern are noted as a *combination* (`fingerprint.combinations`), with two entries:

- `COMBINATION`, in the list of what may vary in patterns of this shape and anchor; each combination
  is there for a few clusters, so that the others are found when one closes;
- `OWN`, in the record of the pattern without these words: whoever has this record fits.

`find` tries what is listed for a pattern, and takes a cluster so found like one by a slot that was
learned. It is noted when an event joins whose own words are known variables (`note_together`).

Of such patterns, few differ in one word alone. So values are noted beside a combination, too: in
the record of the pattern without the combination and one other word, that word's value and those of
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

`Slot.learned` numbers the words of a cluster's representative. For a pattern with one word more or
less the numbers do not match, so such a merge may be decided either way.

Bounds
------
Entries name open clusters only: they leave with a cluster that closes. They follow one that merges
if they say more than a value.
Those of a cluster that is open, but has passed its window for an event, do not count: they give
way to the event's own where they have its value, or where there is no room.

Most records hold one entry, of the pattern that opened a cluster. Such a record is that cluster's
slot itself, which keeps the keys of the pattern; the entry is made when it is asked for. So all
records of a pattern are noted at once, and take no memory but their places in the dictionary.

Limits: `MAX_ENTRIES` of a record, one value less than a slot wants and as many as each word of a
combination does, `MAX_RECORDS` that name a cluster, `MAX_MERGED` clusters that one event merges and
`MAX_MOVED` of their records, `MAX_COMBINATIONS` that are tried for a pattern and `MAX_ASSUMED`
beside which its values are noted.
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
    MAX_ENTRIES,
    MAX_LISTED,
    MAX_MERGED,
    MAX_MOVED,
    MAX_RECORDS,
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
class Slot:
    """How one open cluster is found.

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
        records: the keys of the records that name it.
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
    records: list[int] = field(default_factory=list)
    learned: int = 0


IsLive = Callable[[Slot], bool]
"""Whether a cluster takes the event in question."""


class Entry(NamedTuple):
    """What a record says of one cluster.

    Attributes:
        number: the slot's; or `OWN`.
        value: of the word in the slot; or `LEARNED`. Of `OWN`: where the pattern has placeholders
            (`one_off.gaps_of`), 0 if it is a combination's.
        owner: the cluster.
        first: whether the cluster's representative has that slot, so that its pattern shows it.
    """

    number: int
    value: int
    owner: Slot
    first: bool

    @property
    def is_learned(self) -> bool:
        """Whether it says more than that its cluster has a value."""
        return self.number in (OWN, COMBINATION) or self.value == LEARNED


def older(slots: Iterable[Slot]) -> Slot | None:
    """Return the cluster that was opened first; of several the one of the least id."""
    return min(slots, key=lambda slot: (slot.opened_us, slot.cluster), default=None)


class Seen(NamedTuple):
    """A slot of a pattern, and the record of its key."""

    slot: WordSlot
    record: list[Entry]


class Found(NamedTuple):
    """What is known of a pattern.

    Attributes:
        owner: the cluster that it belongs to by its words, if there is one.
        is_variable: whether one of the pattern's own words is a known variable, so that no values
            are noted.
        seen: the slots of which something is known.
        together: combination that the pattern may have → entries of the clusters whose pattern
            fits; none if it is not known whether these words vary in it.
        words: the pattern's, if there are combinations.
        shown: the variables of the cluster whose pattern fits and shows the most, as
            `Slot.learned`: a cluster that shows another one stays apart. All, if none fits.
    """

    owner: Slot | None
    is_variable: bool
    seen: list[Seen]
    together: Mapping[int, list[Entry]] = MappingProxyType({})
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
        for entry in self.together[widest]:
            shown |= entry.owner.learned
        found = self._replace(shown=shown)
        together = {
            combination: [
                entry
                for entry in entries
                if combination == widest
                or found.may_merge(learned_of(combination) | entry.owner.learned)
            ]
            for combination, entries in self.together.items()
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

    def takes(self, slot: WordSlot, owner: Slot) -> bool:
        """Return whether a cluster merges that has an entry for a slot."""
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
    merging: dict[int, Slot]
    alike: set[int]
    together: set[int]

    def show(self, root: Slot) -> None:
        """Let the pattern of the cluster that is left show the slots."""
        if root.cluster in self.alike:
            for number in self.numbers | self.together:
                root.learned |= 1 << number % REPEATED


class _Noting(NamedTuple):
    """Where a pattern of a cluster is noted: the records of its group; and for whom."""

    records: dict[int, list[Entry] | Slot]
    words: PatternWords
    owner: Slot
    is_live: IsLive


NOTHING_READY = Ready(set(), {}, set(), set())
"""Of a pattern that opens a cluster."""


class Records:
    """All records of an index.

    Args:
        learn: as `Match.learn`.

    Attributes:
        has_combinations: whether any words were known to vary together.
    """

    def __init__(self, learn: int) -> None:
        self._learn = learn
        self._of_group: dict[str, dict[int, list[Entry] | Slot]] = {}
        self._listed = bytearray(SHAPE_NUMBERS)  # of which combinations may be listed
        self.has_combinations = False

    def lists(self, numbers: array[int]) -> bool:
        """Return whether combinations may be listed for patterns such as that with these keys."""
        return bool(numbers) and bool(self._listed[shape_number(shape_key(numbers))])

    def find(self, group: str, one_off: bytes, is_live: IsLive) -> Found:
        """Find the cluster of a pattern by its words.

        Args:
            group: only clusters of it are found.
            one_off: the packed keys of the pattern.
            is_live: tells whether a cluster takes the event.
        """
        records = self._of_group.get(group)
        if records is None:
            return Found(None, False, [])
        numbers = array("Q", one_off)
        seen = [
            Seen(word_slot(numbers, index), _entries(records, key))
            for index, key in enumerate(slot_keys(numbers))
            if key in records
        ]
        found = Found(None, False, seen)
        if self.lists(numbers):
            found = self._find_together(records, numbers, found, is_live)
        if not seen and not any(found.together.values()) and numbers[0] not in records:
            return found
        own = [entry for entry in _entries(records, numbers[0]) if is_live(entry.owner)]
        owner = older(entry.owner for entry in own if entry.value == LEARNED)
        if owner is not None:  # a cluster in whose pattern the word varies that this one lacks
            return found._replace(owner=owner)
        in_slots = _entries_in_slots(found, is_live)
        owner = _by_variable(found, in_slots)
        if owner is not None:
            return found._replace(owner=owner, is_variable=True)
        owner = _by_same_words(numbers, own) or _by_one_word_off(numbers, own, in_slots)
        return found._replace(owner=owner)

    def find_fitting(self, group: str, one_off: bytes, is_live: IsLive) -> Slot | None:
        """Find the cluster whose pattern a pattern fits by words that vary together.

        Args:
            group: only clusters of it are found.
            one_off: the packed keys of the pattern.
            is_live: tells whether a cluster is to be found.
        """
        numbers = array("Q", one_off)
        records = self._of_group.get(group)
        if records is None or not self.lists(numbers):
            return None
        found = self._find_together(records, numbers, Found(None, False, []), is_live)
        return older(entry.owner for entry in chain.from_iterable(found.together.values()))

    @staticmethod
    def _find_together(
        records: dict[int, list[Entry] | Slot], numbers: array[int], found: Found, is_live: IsLive
    ) -> Found:
        """Find the combinations that a pattern may have, and the clusters that it fits."""
        keys = [key for key in list_keys(numbers) if key in records]
        if not keys:
            return found
        words = PatternWords(numbers)
        together: dict[int, list[Entry]] = {}
        listed = chain.from_iterable(_entries(records, key) for key in keys)
        of_most_words_first = sorted(
            (entry for entry in listed if entry.number == COMBINATION),
            key=lambda entry: -entry.value.bit_count(),
        )
        for entry in of_most_words_first:
            combination = entry.value
            if (
                combination not in together
                and len(together) < MAX_COMBINATIONS
                and words.is_possible(combination)
                and is_live(entry.owner)
            ):
                record = _entries(records, words.key(combination))
                live = [each for each in record if is_live(each.owner)]
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
        for slot, record in found.seen:
            entries = self._ready_entries(slot, record, ready, found, is_live)
            if not entries:
                continue
            owners = [entry.owner for entry in entries]
            if not self._has_room(ready, owners):
                break
            ready.numbers.add(slot.number)
            ready.merging.update((owner.cluster, owner) for owner in owners)
            for entry in entries:
                if entry.first and entry.number == slot.number:
                    entry.owner.learned |= 1 << slot.number % REPEATED
                    ready.alike.add(entry.owner.cluster)
        return ready

    def _add_together(self, ready: Ready, found: Found) -> None:
        """Add the words that vary together, and the clusters whose patterns fit."""
        for combination, entries in found.together.items():
            if not entries:
                continue
            ready.together.update(numbers_of(combination))
            for entry in entries:
                if not self._has_room(ready, [entry.owner]):
                    break
                ready.merging[entry.owner.cluster] = entry.owner
                if entry.first:
                    ready.alike.add(entry.owner.cluster)

    def _ready_entries(
        self, slot: WordSlot, record: list[Entry], ready: Ready, found: Found, is_live: IsLive
    ) -> list[Entry]:
        """Return the entries whose clusters merge as a slot is learned; none if it is not."""
        entries = [entry for entry in record if entry.number == slot.number]
        known = slot.number in ready.together or (entries and entries[0].value == LEARNED)
        if not known and len(entries) + 1 < wanted_values(self._learn, slot.around):
            return []
        live = [
            entry
            for entry in entries
            if is_live(entry.owner)
            and found.takes(slot, entry.owner)
            and (known or _shows_no_other(entry.owner, slot))
        ]
        if known or not live:
            return live
        if not self._completes(slot, live):
            return []
        return live + [entry for entry in record if entry.number == OWN and is_live(entry.owner)]

    @staticmethod
    def _has_room(ready: Ready, more: Iterable[Slot]) -> bool:
        """Return whether more clusters can merge, or are too much for this event."""
        owners = ready.merging | {owner.cluster: owner for owner in more}
        sizes = [len(owner.records) for owner in owners.values()]
        moved = sum(sizes) - max(sizes, default=0)
        return not ready.merging or (len(owners) <= MAX_MERGED and moved <= MAX_MOVED)

    def _completes(self, slot: WordSlot, live: list[Entry]) -> bool:
        enough = len(live) + 1 >= wanted_values(self._learn, slot.around)
        return enough and all(entry.value != slot.value for entry in live)

    def open(self, owner: Slot, is_live: IsLive) -> None:
        """Note the values of the pattern that opens a cluster.

        Args:
            owner: how the cluster is found.
            is_live: tells whether a cluster takes the event.
        """
        records = self._of_group.setdefault(owner.group, {})
        numbers = array("Q", owner.one_off)
        keys = [numbers[0], *slot_keys(numbers)]
        noted = dict.fromkeys(keys, owner)
        if len(noted) == len(keys) and records.keys().isdisjoint(noted):  # most often
            records.update(noted)
            owner.records = keys
        else:
            self.note(owner.one_off, owner, NOTHING_READY, is_live, first=True)

    def note(
        self,
        one_off: bytes,
        owner: Slot,
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
        if len(owner.records) + 1 + len(keys) > MAX_RECORDS:
            return
        records = self._of_group.setdefault(owner.group, {})
        record = _entries(records, own)
        named = any(entry.number == OWN and is_live(entry.owner) for entry in record)
        if not outside and not named:
            kept = [entry for entry in record if entry.number != OWN]
            entry = Entry(OWN, gaps_of(numbers), owner, first)
            self._put(records, own, kept, entry, is_live)
        for index, key in enumerate(keys):
            slot = word_slot(numbers, index)
            if key not in records and slot.number not in ready.numbers:
                records[key] = [Entry(slot.number, slot.value, owner, first)]
                if first or key not in owner.records:
                    owner.records.append(key)
            else:
                known = _entries(records, key)
                self._note(records, slot, known, owner, ready, is_live, first=first)

    def note_together(
        self, one_off: bytes, owner: Slot, found: Found, ready: Ready, is_live: IsLive
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
            self._list(noting, combination)
            return False
        if combination not in found.together and len(found.together) >= MAX_COMBINATIONS:
            return False
        if len(owner.records) + 2 > MAX_RECORDS:
            return False
        self._vary(noting, combination)
        self._note_beside(noting, combination)
        return True

    def combine(self, one_off: bytes, owner: Slot, combination: int, is_live: IsLive) -> None:
        """Note that words of the pattern that opened a cluster vary together.

        Nothing changes if the cluster shows other variables.

        Args:
            one_off: the packed keys of the pattern.
            owner: how the cluster is found.
            combination: of these words.
            is_live: tells whether a cluster takes the event.
        """
        if owner.learned or len(owner.records) + 2 > MAX_RECORDS:
            return
        owner.learned = learned_of(combination)
        noting = self._noting(PatternWords(array("Q", one_off)), owner, is_live)
        self._vary(noting, combination)
        self._note_beside(noting, combination)

    def assume(self, owner: Slot, found: Found, is_live: IsLive) -> None:
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

    def _noting(self, words: PatternWords, owner: Slot, is_live: IsLive) -> _Noting:
        return _Noting(self._of_group.setdefault(owner.group, {}), words, owner, is_live)

    def _note_beside(self, noting: _Noting, combination: int) -> None:
        """Note the values of each other word, and beside it those of the words that vary."""
        records, words, owner, is_live = noting
        wanted, varying = wanted_together(self._learn), words.slots_of(combination)
        if (len(varying) + 1) * wanted > MAX_ENTRIES:
            return
        for slot, more, key in words.beside(combination):
            if len(owner.records) + 2 > MAX_RECORDS:
                return
            record = _entries(records, key)
            known = {(entry.number, entry.value) for entry in record if is_live(entry.owner)}
            if any(number == OWN for number, _ in known):
                continue
            values = [(each.number, each.value) for each in (slot, *varying)]
            counts = Counter(number for number, _ in known.union(values))
            if all(counts[number] >= wanted for number, _ in values):
                self._vary(noting, more)
                continue
            for number, value in values:
                if (number, value) not in known and counts[number] <= wanted:
                    entry = Entry(number, value, owner, first=True)
                    record = _without(_entries(records, key), entry, is_live)
                    self._put(records, key, record, entry, is_live)

    def _vary(self, noting: _Noting, combination: int) -> None:
        """Note that the words of a combination vary in a cluster's pattern."""
        self._list(noting, combination)
        records, words, owner, is_live = noting
        key, entry = words.key(combination), Entry(OWN, 0, owner, first=True)
        self._put(records, key, _without(_entries(records, key), entry, is_live), entry, is_live)

    def _list(self, noting: _Noting, combination: int) -> None:
        """List a combination, unless enough clusters do."""
        records, words, owner, is_live = noting
        for key in words.list_keys_of(combination):
            record = _entries(records, key)
            same = [e for e in record if e.value == combination and is_live(e.owner)]
            if len(same) >= MAX_LISTED or len(owner.records) >= MAX_RECORDS:
                continue
            if all(entry.owner is not owner for entry in same):
                kept = [e for e in record if e.value != combination or is_live(e.owner)]
                entry = Entry(COMBINATION, combination, owner, first=False)
                self._put(records, key, kept, entry, is_live)
                self._note_shape(key)

    def _note_shape(self, key: int) -> None:
        """Note that combinations are listed under a key."""
        self._listed[shape_number(key)] = self.has_combinations = True

    def learn(
        self, group: str, seen: Iterable[Seen], owner: Slot, ready: Ready, is_live: IsLive
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
        records = self._of_group.setdefault(group, {})
        learned = False
        for slot, _ in seen:
            record = _entries(records, slot.key)
            if slot.number not in ready.numbers or any(
                entry.number == slot.number and entry.value == LEARNED and is_live(entry.owner)
                for entry in record
            ):
                continue
            if slot.key in owner.records or len(owner.records) < MAX_RECORDS:
                self._note(records, slot, record, owner, ready, is_live, first=False)
                learned = True
        return learned

    def _note(
        self,
        records: dict[int, list[Entry] | Slot],
        slot: WordSlot,
        record: list[Entry],
        owner: Slot,
        ready: Ready,
        is_live: IsLive,
        *,
        first: bool,
    ) -> None:
        """Note the value of a slot in a record that exists."""
        entries = [entry for entry in record if entry.number == slot.number]
        others = [entry for entry in record if entry.number != slot.number]
        live = [entry for entry in entries if is_live(entry.owner)]
        values = {entry.value for entry in live}
        if LEARNED in values:
            return
        if slot.number in ready.numbers:
            shown = first or owner.cluster in ready.alike
            entry = Entry(slot.number, LEARNED, owner, shown)
            self._put(records, slot.key, others, entry, is_live)
            if shown:
                owner.learned |= 1 << slot.number % REPEATED
        elif slot.value not in values:
            entries = [entry for entry in entries if entry.value not in (LEARNED, slot.value)]
            if len(entries) + 1 >= wanted_values(self._learn, slot.around):
                if self._completes(slot, [e for e in live if _shows_no_other(e.owner, slot)]):
                    return  # too many clusters to merge at once
                entries = live
            entry = Entry(slot.number, slot.value, owner, first)
            self._put(records, slot.key, others + entries, entry, is_live)

    @staticmethod
    def _put(
        records: dict[int, list[Entry] | Slot],
        key: int,
        kept: list[Entry],
        entry: Entry,
        is_live: IsLive,
    ) -> None:
        """Add an entry; in a full record, in place of the oldest that do not count."""
        while len(kept) >= MAX_ENTRIES:
            if is_live(kept[0].owner):
                return
            kept = kept[1:]
        if key not in entry.owner.records:  # or the record has dropped it meanwhile
            entry.owner.records.append(key)
        records[key] = [*kept, entry]

    def move(self, loser: Slot, root: Slot, looks: int = MAX_RECORDS) -> None:
        """Let the records that name a cluster name another one of its group.

        Values do not follow: they would say of two words that vary in turns that one of them varies
        beside the other.

        Args:
            loser: the cluster.
            root: the other one.
            looks: only so many of them, the first ones, do.
        """
        records = self._of_group.get(loser.group, {})
        for place, key in enumerate(loser.records):
            record = _entries(records, key)
            if all(entry.owner is not loser for entry in record):
                continue
            named = any(entry.owner is root for entry in record)
            has_room = place < looks and (named or len(root.records) < MAX_RECORDS)
            moved = [
                entry._replace(owner=root, first=False) if entry.owner is loser else entry
                for entry in record
                if entry.owner is not loser or (has_room and entry.is_learned)
            ]
            if moved:
                records[key] = moved
            else:
                del records[key]
            if any(entry.owner is root for entry in moved) and key not in root.records:
                root.records.append(key)
        loser.records = []

    def remove(self, slot: Slot) -> None:
        """Remove what names a cluster."""
        records = self._of_group.get(slot.group)
        if records is None:
            return
        for key in slot.records:
            if records.get(key) is slot:
                del records[key]
                continue
            kept = [entry for entry in _entries(records, key) if entry.owner is not slot]
            if kept:
                records[key] = kept
            else:
                records.pop(key, None)
        if not records:
            del self._of_group[slot.group]
        slot.records = []

    def leads(self, slot: Slot) -> list[tuple[int, int, int, bool]]:
        """Return what names a cluster: key, number, value, and whether `Entry.first`."""
        records = self._of_group.get(slot.group, {})
        return [
            (key, entry.number, entry.value, entry.first)
            for key in slot.records
            for entry in _entries(records, key)
            if entry.owner is slot
        ]

    def restore(self, slot: Slot, leads: Iterable[tuple[int, int, int, bool]]) -> None:
        """Name a cluster again as `leads` has returned it."""
        for key, number, value, first in leads:
            records = self._of_group.setdefault(slot.group, {})
            entry = Entry(number, value, slot, first)
            self._put(records, key, _entries(records, key), entry, lambda _: True)
            if number == COMBINATION:
                self._note_shape(key)


def _entries(records: dict[int, list[Entry] | Slot], key: int) -> list[Entry]:
    """Return the entries of a record; none if there is no such record."""
    record = records.get(key)
    if record is None:
        return []
    if isinstance(record, list):
        return record
    numbers = array("Q", record.one_off)
    number, value = OWN, gaps_of(numbers)
    if key != numbers[0]:
        slot = word_slot(numbers, slot_keys(numbers).index(key))
        number, value = slot.number, slot.value
    entries = records[key] = [Entry(number, value, record, first=True)]
    return entries


def _entries_in_slots(found: Found, is_live: IsLive) -> list[tuple[WordSlot, Entry]]:
    """Return, for the slots of a pattern, the entries that may lead to its cluster.

    In the record of a slot's key these are the entries of the slot, and those of the patterns that
    lack its word.
    """
    return [
        (slot, entry)
        for slot, record in found.seen
        for entry in record
        if entry.number in (slot.number, OWN)
        and is_live(entry.owner)
        and found.takes(slot, entry.owner)
    ]


def _by_variable(found: Found, in_slots: list[tuple[WordSlot, Entry]]) -> Slot | None:
    """Return the oldest cluster in whose pattern a word varies that the pattern has."""
    alone = (entry.owner for _, entry in in_slots if entry.value == LEARNED)
    together = (entry.owner for entry in chain.from_iterable(found.together.values()))
    return older(chain(alone, together))


def _by_same_words(numbers: array[int], own: list[Entry]) -> Slot | None:
    """Return the cluster of the pattern with the same words, if they are enough."""
    if word_count(numbers) < LEAST_SAME:
        return None
    return next((entry.owner for entry in own if entry.number == OWN), None)


def _by_one_word_off(
    numbers: array[int], own: list[Entry], in_slots: list[tuple[WordSlot, Entry]]
) -> Slot | None:
    """Return the oldest cluster whose pattern has one word more or less.

    If the pattern lacks a word of the cluster's representative, the cluster's pattern shows from
    now on that the word varies.
    """
    words, gaps = word_count(numbers), gaps_of(numbers)
    more = [
        entry
        for entry in own
        if entry.first
        and may_be_missing(entry.number, words + 1, gaps, beside_gap=is_beside_gap(entry.value))
    ]
    less = [entry for slot, entry in in_slots if _may_lack(slot, words, entry)]
    owner = older(entry.owner for entry in more + less)
    for entry in more:
        if entry.owner is owner:
            owner.learned |= 1 << entry.number
    return owner


def _may_lack(slot: WordSlot, words: int, entry: Entry) -> bool:
    """Return whether a cluster's pattern may lack the word that a pattern of `words` has in a slot.

    Args:
        slot: of the word.
        words: how many the pattern has.
        entry: what the record of the slot's key says of the cluster.
    """
    if entry.number == OWN:  # the cluster's pattern has no word there
        return may_be_missing(slot.number, words, entry.value, beside_gap=is_beside_gap(slot.value))
    shows_variable = entry.first and entry.owner.learned >> entry.number & 1
    return bool(shows_variable) and may_be_missing(slot.number, words, ALL_GAPS, beside_gap=False)


def _shows_no_other(owner: Slot, slot: WordSlot) -> bool:
    """Return whether no other word than that of a slot varies in a cluster's pattern."""
    return not owner.learned & ~(1 << slot.number % REPEATED)


def _without(record: list[Entry], new: Entry, is_live: IsLive) -> list[Entry]:
    """Return a record without what an entry replaces: the same of its cluster, or of the past."""
    return [
        entry
        for entry in record
        if (entry.number, entry.value) != (new.number, new.value)
        or (entry.owner is not new.owner and is_live(entry.owner))
    ]

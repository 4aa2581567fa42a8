"""Posting lists in memory: what the keys of patterns say of which clusters.

`postings` says what postings mean, and when they are noted.

Most lists hold one posting, of the pattern that opened a cluster. Such a list is that cluster's
handle itself, which keeps the keys of the pattern; the posting is made when it is asked for. So all
postings of a pattern are noted at once, and take no memory but their places in the dictionary.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dedup.clustering.learning import (
    COMBINATION,
    LEARNED,
    MAX_POSTING_LISTS,
    MAX_POSTINGS,
    OWN,
)
from stream_dedup.fingerprint.one_off import gaps_of, slot_keys, word_slot


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


def older(owners: Iterable[Handle]) -> Handle | None:
    """Return the cluster that was opened first; of several the one of the least id."""
    return min(owners, key=lambda owner: (owner.opened_us, owner.cluster), default=None)


class PostingLists(dict[int, "list[Posting] | Handle"]):
    """The posting lists of a group by their keys; a handle stands for its only posting."""

    def postings(self, key: int) -> list[Posting]:
        """Return the postings of a list; none if there is no such list."""
        stored = self.get(key)
        if stored is None:
            return []
        if isinstance(stored, list):
            return stored
        numbers = array("Q", stored.one_off)
        number, value = OWN, gaps_of(numbers)
        if key != numbers[0]:
            slot = word_slot(numbers, slot_keys(numbers).index(key))
            number, value = slot.number, slot.value
        postings = self[key] = [Posting(number, value, stored, first=True)]
        return postings

    def open(self, owner: Handle) -> bool:
        """Let a cluster's handle stand for all postings of the pattern that opens it.

        Returns:
            Whether it does; nothing is noted where one of the lists exists.
        """
        numbers = array("Q", owner.one_off)
        keys = [numbers[0], *slot_keys(numbers)]
        noted = dict.fromkeys(keys, owner)
        if len(noted) != len(keys) or not self.keys().isdisjoint(noted):
            return False
        self.update(noted)
        owner.posting_keys = keys
        return True

    def put(self, key: int, kept: list[Posting], posting: Posting, is_live: IsLive) -> None:
        """Write a list with one more posting; of a full one, the oldest that do not count give way.

        Nothing is written if the list is full and its oldest posting counts.

        Args:
            key: of the list.
            kept: the postings that stay, the oldest first.
            posting: the new one.
            is_live: tells whether a cluster takes the event.
        """
        while len(kept) >= MAX_POSTINGS:
            if is_live(kept[0].owner):
                return
            kept = kept[1:]
        if key not in posting.owner.posting_keys:  # or the list has dropped it meanwhile
            posting.owner.posting_keys.append(key)
        self[key] = [*kept, posting]

    def replace(self, key: int, new: Posting, is_live: IsLive) -> None:
        """Put a posting in place of those that say the same of its cluster, or of the past."""
        kept = [
            posting
            for posting in self.postings(key)
            if (posting.number, posting.value) != (new.number, new.value)
            or (posting.owner is not new.owner and is_live(posting.owner))
        ]
        self.put(key, kept, new, is_live)

    def move(self, loser: Handle, root: Handle, looks: int) -> None:
        """Let the lists that name a cluster name another one, if they say more than values.

        Args:
            loser: the cluster.
            root: the other one.
            looks: only so many of the lists, the first ones, follow.
        """
        for place, key in enumerate(loser.posting_keys):
            posting_list = self.postings(key)
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
                self[key] = moved
            else:
                del self[key]
            if any(posting.owner is root for posting in moved) and key not in root.posting_keys:
                root.posting_keys.append(key)
        loser.posting_keys = []

    def remove(self, owner: Handle) -> None:
        """Remove what names a cluster."""
        for key in owner.posting_keys:
            if self.get(key) is owner:
                del self[key]
                continue
            kept = [posting for posting in self.postings(key) if posting.owner is not owner]
            if kept:
                self[key] = kept
            else:
                self.pop(key, None)
        owner.posting_keys = []

    def leads(self, owner: Handle) -> list[tuple[int, int, int, bool]]:
        """Return what names a cluster: key, number, value, and whether `Posting.first`."""
        return [
            (key, posting.number, posting.value, posting.first)
            for key in owner.posting_keys
            for posting in self.postings(key)
            if posting.owner is owner
        ]

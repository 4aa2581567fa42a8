"""Queues of clusters by a time that moves later."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sized

_ID_BITS = 64
_FIRST_COMPACTION = 1024


class LazyHeap:
    """A queue of 64-bit ids by time, least first, ties by id. Times only move later.

    A cluster's expiry moves with every event, and moving its entry each time would cost more than
    all the rest. So an entry keeps the time it was pushed with, a lower bound. When it reaches the
    top, its current time is looked up; if that is later, the entry goes back down.

    Args:
        time_of: returns an id's current time, never earlier than before; None if the id is gone.
        ids: holds all ids that are not gone, and maybe more.
    """

    def __init__(self, time_of: Callable[[int], int | None], ids: Sized) -> None:
        self._time_of = time_of
        self._ids = ids
        # Time and id in one integer: a third of a tuple's memory, and compared as fast.
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time_us: int, identity: int) -> None:
        """Add an id that is not in the queue."""
        heapq.heappush(self._heap, time_us << _ID_BITS | identity)
        # Then at least half of the entries are of ids that are gone.
        if len(self._heap) >= max(_FIRST_COMPACTION, 2 * len(self._ids)):
            self._compact()

    def _compact(self) -> None:
        """Drop the entries of ids that are gone."""
        ids = {entry & (1 << _ID_BITS) - 1 for entry in self._heap}
        times = ((self._time_of(identity), identity) for identity in ids)
        self._heap = [time << _ID_BITS | identity for time, identity in times if time is not None]
        heapq.heapify(self._heap)

    def least(self) -> tuple[int, int] | None:
        """Return (time, id) of the least without removing it."""
        while self._heap:
            entry = self._heap[0]
            identity = entry & (1 << _ID_BITS) - 1
            current = self._time_of(identity)
            if current is None:
                heapq.heappop(self._heap)
            elif current > entry >> _ID_BITS:
                heapq.heapreplace(self._heap, current << _ID_BITS | identity)
            else:
                return current, identity
        return None

    def pop_until(self, time_us: int, limit: int) -> Iterator[int]:
        """Remove and yield ids whose time is at or before `time_us`, at most `limit`."""
        for _ in range(limit):
            least = self.least()
            if least is None or least[0] > time_us:
                return
            heapq.heappop(self._heap)
            yield least[1]

"""A queue of ids by a time that only moves later: one heap entry an id, corrected when it surfaces.

A cluster's expiry moves with every event. Re-sorting it each time would cost more than all the
rest, so its entry keeps the time it was pushed with, which is a lower bound; when the entry comes
to the top its true time is asked for, and if that is later it goes back down.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

_ID_BITS = 64
_FIRST_COMPACTION = 1024


class LazyHeap:
    """Ids of up to 64 bits, least time first, ties by id.

    Args:
        time_of: an id's true time, never earlier than it was before; None when the id is gone.
    """

    def __init__(self, time_of: Callable[[int], int | None]) -> None:
        self._time_of = time_of
        # Time and id in one integer: a third of a tuple's memory, and compared as fast.
        self._heap: list[int] = []
        self._compact_at = _FIRST_COMPACTION

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time_us: int, identity: int) -> None:
        """Add an id; once, until it has been popped or is gone."""
        heapq.heappush(self._heap, time_us << _ID_BITS | identity)
        if len(self._heap) >= self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Drop the entries of ids that are gone: half of all at least, or the heap grows on."""
        ids = {entry & (1 << _ID_BITS) - 1 for entry in self._heap}
        times = ((self._time_of(identity), identity) for identity in ids)
        self._heap = [time << _ID_BITS | identity for time, identity in times if time is not None]
        heapq.heapify(self._heap)
        self._compact_at = max(_FIRST_COMPACTION, 2 * len(self._heap))

    def least(self) -> tuple[int, int] | None:
        """(time, id) of the least, left where it is."""
        while self._heap:
            entry = self._heap[0]
            identity = entry & (1 << _ID_BITS) - 1
            true = self._time_of(identity)
            if true is None:
                heapq.heappop(self._heap)
            elif true > entry >> _ID_BITS:
                heapq.heapreplace(self._heap, true << _ID_BITS | identity)
            else:
                return true, identity
        return None

    def pop_until(self, time_us: int, limit: int) -> Iterator[int]:
        """Take out ids whose time is at or before `time_us`, at most `limit`."""
        for _ in range(limit):
            least = self.least()
            if least is None or least[0] > time_us:
                return
            heapq.heappop(self._heap)
            yield least[1]

"""Lists of clusters: each is found again only after a while."""

from __future__ import annotations

import asyncio

from stream_dedup.clock import monotonic_s
from stream_dedup.ui.patterns import Found, Query, choices, find_in_steps
from stream_dedup.ui.sources import Source

REFRESH_S = 2.0
"""How often a page asks for news, at most."""

MAX_SHARE = 0.01
"""Of a core that finding one list again may take: a list that takes long is found less often."""


class Lists:
    """Finds lists, and keeps each as long as the time to find it again is worth.

    A list of 10⁵ clusters takes some tenths of a second. It is found in steps, between which other
    requests are answered.

    Args:
        source: where.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[Query, tuple[float, Found]] = {}
        self._choices: tuple[float, tuple[list[str], list[str]]] = (0.0, ([], []))
        self._entries = source.entries
        self._finding = asyncio.Lock()

    async def find(self, query: Query) -> Found:
        """Find a list, or return that of a moment ago."""
        async with self._finding:  # whoever waited may find it here
            self._forget_others()
            now_s = monotonic_s()
            until_s, found = self._found.get(query, (0.0, None))
            if found is not None and now_s < until_s:
                return found
            found, took_s = await self._find(query)
            self._found = {each: kept for each, kept in self._found.items() if kept[0] > now_s}
            self._found[query] = monotonic_s() + max(REFRESH_S / 2, took_s / MAX_SHARE), found
            return found

    async def _find(self, query: Query) -> tuple[Found, float]:
        """Find a list; return it, and the time that it took."""
        source = self._source
        entries = list(source.entries.values())
        steps = find_in_steps(entries, query, source.axis, has_times=source.has_times)
        took_s = 0.0
        while True:
            begun_s = monotonic_s()
            try:
                next(steps)
            except StopIteration as done:
                return done.value, took_s
            finally:
                took_s += monotonic_s() - begun_s
            await asyncio.sleep(0)

    def choices(self) -> tuple[list[str], list[str]]:
        """The groups and levels to choose from."""
        self._forget_others()
        until_s, found = self._choices
        now_s = monotonic_s()
        if now_s >= until_s:
            found = choices(list(self._source.entries.values()))
            took_s = monotonic_s() - now_s
            # There are seldom others: among many clusters, looking for them takes less of a core.
            self._choices = now_s + max(REFRESH_S / 2, 5 * took_s / MAX_SHARE), found
        return found

    def _forget_others(self) -> None:
        """Forget what was found among entries that others have replaced."""
        if self._source.entries is not self._entries:
            self._entries = self._source.entries
            self._found.clear()
            self._choices = 0.0, ([], [])

"""How often the same may be said: a few times a minute, then once how often it was repeated. Pure.

Theory of operation: what is the same (a key) has a window of a minute, which begins with its first
saying. In it `PASSED` sayings pass; further ones are only counted. When the window is over, what
was counted is due to be told, and the next saying begins a window anew. Windows are kept in the
order of their beginning, so those that are over stand in front.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

PASSED = 5
"""Sayings that pass in a window."""

WINDOW_S = 60.0

MAX_KEYS = 1_000
"""Windows kept at once; past it the oldest ends early. Keys may come from data."""

Item = TypeVar("Item")


@dataclass(slots=True)
class _Window(Generic[Item]):
    began_s: float
    seen: int = 0
    first: Item | None = None


class Repeated(NamedTuple, Generic[Item]):
    """What was held back in a window.

    Attributes:
        item: the first that was held back.
        times: how many were, that one included.
        for_s: how long the window was open.
    """

    item: Item
    times: int
    for_s: float


class Repeats(Generic[Item]):
    """Counts sayings by key.

    >>> repeats = Repeats[str]()
    >>> [repeats.passes("k", lambda: "disk full", now_s=0) for _ in range(7)]
    [True, True, True, True, True, False, False]
    >>> repeats.due(now_s=60)
    [Repeated(item='disk full', times=2, for_s=60)]
    """

    def __init__(self) -> None:
        self._windows: dict[Hashable, _Window[Item]] = {}

    def passes(self, key: Hashable, item: Callable[[], Item], now_s: float) -> bool:
        """Whether it is to be said now. Tell what is `due` first.

        Args:
            key: what makes two sayings the same.
            item: makes what is kept of it, if it is the first to be held back.
            now_s: the time.
        """
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now_s)
        window.seen += 1
        if window.seen <= PASSED:
            return True
        if window.first is None:
            window.first = item()
        return False

    def due(self, now_s: float, *, all_of_them: bool = False) -> list[Repeated[Item]]:
        """End the windows that are over, or all; what was held back in them."""
        told: list[Repeated[Item]] = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            for_s = now_s - window.began_s
            if for_s < WINDOW_S and len(self._windows) <= MAX_KEYS and not all_of_them:
                break
            del self._windows[key]
            if window.first is not None:
                told.append(Repeated(window.first, window.seen - PASSED, for_s))
        return told

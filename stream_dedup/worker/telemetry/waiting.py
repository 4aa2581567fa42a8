"""When to log that a worker still waits."""

from __future__ import annotations

FIRST_S = 10.0
"""A group with running members assigns its partitions within a few seconds."""

MAX_PAUSE_S = 600.0


class Waiting:
    """Says when to log that something is still waited for, at growing intervals. Pure.

    >>> waiting = Waiting()
    >>> [now_s for now_s in range(100) if waiting.due(True, now_s=now_s)]
    [10, 20, 40, 80]

    Attributes:
        for_s: how long it has been waited for; 0 while it is not.
    """

    def __init__(self) -> None:
        self.for_s = 0.0
        self._since_s: float | None = None
        self._next_s = FIRST_S

    def due(self, waits: bool, now_s: float) -> bool:
        """Note whether it is waited for; return whether to log it now."""
        if not waits:
            self._since_s, self._next_s, self.for_s = None, FIRST_S, 0.0
            return False
        if self._since_s is None:
            self._since_s = now_s
        self.for_s = now_s - self._since_s
        if self.for_s < self._next_s:
            return False
        self._next_s = self.for_s + min(self.for_s, MAX_PAUSE_S)
        return True

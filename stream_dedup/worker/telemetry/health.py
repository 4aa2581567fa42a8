"""Whether the worker lives and is ready: two questions, which an orchestrator asks.

*Alive* is a worker whose event loop turns: it calls `Health.beat` again and again. One that stopped
beating is stuck and should be started anew. *Ready* is a worker that does its work: nobody has
given a reason why not. One that waits for Redis is alive and not ready: a restart helps nothing.

Pure, apart from a lock and the clock it is given; any thread may call it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stream_dedup.metrics import Metrics, NoMetrics

STUCK_AFTER_S = 30.0
"""Without a beat for so long the loop is stuck. It beats each second; what takes the processor for
long runs in threads, and a garbage collection or a paused container takes seconds at most."""

START = "start"
"""The reason a worker begins with, until it says that it has started."""

LOOP = "loop"
"""The reason that stands while the loop is stuck."""


class Unready(NamedTuple):
    """A reason why the worker is not ready.

    Attributes:
        name: what of it is not: `start`, `index`, `broker`, …
        reason: a sentence for people.
        for_s: seconds since the name was first given, though the sentence may have changed.
    """

    name: str
    reason: str
    for_s: float


class Health:
    """What is known of the worker's health.

    >>> health = Health()
    >>> health.ready(START)
    >>> health.not_ready("index", "redis is away")
    >>> [reason.name for reason in health.reasons()]
    ['index']
    >>> health.ready("index")
    >>> health.reasons()
    []

    Args:
        metrics: where `ready` is shown.
        stuck_after_s: without a beat for so long the worker is not alive.
        now_s: seconds on a clock that never goes back.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        stuck_after_s: float = STUCK_AFTER_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics or NoMetrics()
        self._stuck_after_s = stuck_after_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._beat_s = now_s()
        self._reasons: dict[str, tuple[str, float]] = {}
        self.not_ready(START, "the worker is starting")

    def beat(self) -> None:
        """The event loop turns. Costs a reading of the clock."""
        self._beat_s = self._now_s()

    def silent_s(self) -> float:
        """Seconds since the last beat, or since the start."""
        return max(0.0, self._now_s() - self._beat_s)

    def alive(self) -> bool:
        """Whether the event loop turned lately."""
        return self.silent_s() < self._stuck_after_s

    def not_ready(self, name: str, reason: str) -> None:
        """Give a reason why the worker is not ready, or another sentence for one that stands."""
        with self._lock:
            _, since_s = self._reasons.get(name, ("", self._now_s()))
            self._reasons[name] = (reason, since_s)
            self._metrics.set("ready", 0)

    def ready(self, name: str) -> None:
        """Take a reason back; one that was not given is no error."""
        with self._lock:
            self._reasons.pop(name, None)
            if not self._reasons:
                self._metrics.set("ready", 1)

    def reasons(self) -> list[Unready]:
        """Why the worker is not ready, the oldest reason first; empty when it is."""
        now_s = self._now_s()
        with self._lock:
            given = [
                Unready(name, reason, max(0.0, now_s - since_s))
                for name, (reason, since_s) in self._reasons.items()
            ]
        silent_s = self.silent_s()
        if silent_s >= self._stuck_after_s:
            given.append(Unready(LOOP, f"the event loop is stuck for {silent_s:.0f} s", silent_s))
        return sorted(given, key=lambda each: -each.for_s)

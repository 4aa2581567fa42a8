"""Whether the worker is alive and ready: the two questions of an orchestrator.

A worker is *alive* while its event loop runs and calls `Health.beat`. Without beats it is stuck and
should be restarted. It is *ready* while no part of it has given a reason why not. A worker that
waits for Redis is alive but not ready: a restart does not help.

Pure, apart from a lock and the clock it is given; any thread may call it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stream_dedup.metrics import Metrics, NoMetrics

STUCK_AFTER_S = 30.0
"""How long without a beat until the loop counts as stuck. It beats every second; long computations
run in threads, and a garbage collection or a paused container takes seconds at most."""

START = "start"
"""The reason that a worker begins with, until it has started."""

LOOP = "loop"
"""The reason while the loop is stuck."""


class Unready(NamedTuple):
    """A reason why the worker is not ready.

    Attributes:
        name: the part that is not ready: `start`, `index`, `broker`, …
        reason: a sentence for people.
        for_s: seconds since the name was first given; the sentence may have changed since.
    """

    name: str
    reason: str
    for_s: float


class Health:
    """The worker's health.

    >>> health = Health()
    >>> health.ready(START)
    >>> health.not_ready("index", "redis is away")
    >>> [reason.name for reason in health.reasons()]
    ['index']
    >>> health.ready("index")
    >>> health.reasons()
    []

    Args:
        metrics: gets the gauge `ready`.
        now_s: seconds on a monotonic clock.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics or NoMetrics()
        self._now_s = now_s
        self._lock = threading.Lock()
        self._beat_s = now_s()
        self._reasons: dict[str, tuple[str, float]] = {}
        self.not_ready(START, "the worker is starting")

    def beat(self) -> None:
        """Report that the event loop runs. Costs one reading of the clock."""
        self._beat_s = self._now_s()

    def silent_s(self) -> float:
        """Seconds since the last beat, or since the start."""
        return max(0.0, self._now_s() - self._beat_s)

    def alive(self) -> bool:
        """Whether the event loop ran recently."""
        return self.silent_s() < STUCK_AFTER_S

    def not_ready(self, name: str, reason: str) -> None:
        """Add a reason why the worker is not ready, or update its sentence."""
        with self._lock:
            _, since_s = self._reasons.get(name, ("", self._now_s()))
            self._reasons[name] = (reason, since_s)
            self._metrics.set("ready", 0)

    def ready(self, name: str) -> None:
        """Remove a reason; nothing happens if it was not given."""
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
        if silent_s >= STUCK_AFTER_S:
            given.append(Unready(LOOP, f"the event loop is stuck for {silent_s:.0f} s", silent_s))
        return sorted(given, key=lambda each: -each.for_s)

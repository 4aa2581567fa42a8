"""One line on the terminal that says how the worker does; nothing where nobody looks.

It stands below the log, which goes on above it. The runner feeds it each second with plain numbers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stream_dedup.worker.telemetry.log_fields import clean_text
from stream_dedup.worker.telemetry.logs import is_terminal

_SMOOTHING = 0.3
"""Weight of the last second in the rate shown: it settles within some five seconds."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the worker stands. None: not known yet.

    Attributes:
        events: events counted since the start.
        duplicates: how many of them were duplicates.
        lag: events that wait in Kafka.
        clusters: live clusters in the index.
        batches: batches on their way, read and not yet delivered.
        index: the index's state in a word or two; empty when all is well.
    """

    events: int = 0
    duplicates: int = 0
    lag: int | None = None
    clusters: int | None = None
    batches: int = 0
    index: str = ""


class Rate:
    """Events a second, smoothed. Pure.

    >>> rate = Rate()
    >>> rate.after(0, now_s=10.0), rate.after(500, now_s=10.5)
    (0.0, 1000.0)
    """

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._rate: float | None = None

    def after(self, events: int, now_s: float) -> float:
        """The rate, now that so many events were counted in all."""
        if self._last is None:
            self._last = events, now_s
            return 0.0
        events_before, before_s = self._last
        if now_s > before_s:
            rate = max(0, events - events_before) / (now_s - before_s)
            known = rate if self._rate is None else self._rate
            self._rate = known + _SMOOTHING * (rate - known)
            self._last = events, now_s
        return self._rate or 0.0


def line(status: Status, events_per_s: float) -> Text:
    """The status line, its most important parts first: a narrow terminal cuts it.

    >>> line(Status(2000, 1900, 12, 40, 2), 950.4).plain
    '950 events/s  95.0% duplicates  lag 12  40 clusters  2 batches  index ok'
    """
    share = 100 * status.duplicates / status.events if status.events else 0.0
    parts = [
        Text(f"{events_per_s:,.0f} events/s", style="bold"),
        Text(f"{share:.1f}% duplicates"),
        Text(f"lag {_number(status.lag)}"),
        Text(f"{_number(status.clusters)} clusters"),
        Text(f"{status.batches} {'batch' if status.batches == 1 else 'batches'}"),
        Text(f"index {clean_text(status.index) or 'ok'}", style="red" if status.index else "green"),
    ]
    if status.index:  # trouble is not to be cut off
        parts.insert(0, parts.pop())
    return Text("  ").join(parts)


def _number(value: int | None) -> str:
    return "…" if value is None else f"{value:,}"


class StatusLine:
    """Shows the line while it is open, if the stream is a terminal that can move its cursor.

    While it stands, what is written to `sys.stderr` goes above it: a log that looks there each
    time, as `logs.configure` does without a stream, does not break it.

    Args:
        stream: where to show it; standard error without.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        stream = stream or sys.stderr
        self._rate = Rate()
        self._live: Live | None = None
        if is_terminal(stream):
            console = Console(file=stream, highlight=False, force_terminal=True)
            if not console.is_dumb_terminal:
                self._live = Live(
                    console=console, auto_refresh=False, transient=True, redirect_stdout=False
                )

    @property
    def interactive(self) -> bool:
        """Whether anything is shown at all."""
        return self._live is not None

    def show(self, status: Status, now_s: float) -> None:
        """Show how it stands; opens the line at the first call.

        Args:
            status: the numbers.
            now_s: seconds on a clock that never goes back.
        """
        if self._live is None:
            return
        shown = line(status, self._rate.after(status.events, now_s))
        shown.no_wrap = True
        shown.overflow = "ellipsis"
        if not self._live.is_started:
            self._live.start()
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

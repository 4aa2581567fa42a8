"""The worker's live status line: below the log on a terminal, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stream_dedup.worker.telemetry.logs import clean_text, is_terminal

if TYPE_CHECKING:
    from stream_dedup.worker.telemetry.reporter import PipelineStats

_SMOOTHING = 0.3
"""Weight of the last second in the rate shown: it adapts within some five seconds."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the line shows. None: not known yet.

    Attributes:
        events: events counted since the start.
        duplicates: how many of them were duplicates.
        lag: events not delivered yet.
        clusters: live clusters in the index.
        batches: batches in flight.
        index: what is wrong with the index, in a word or two; empty if nothing is.
    """

    events: int = 0
    duplicates: int = 0
    lag: int | None = None
    clusters: int | None = None
    batches: int = 0
    index: str = ""

    @classmethod
    def of(cls, pipelines: Iterable[PipelineStats], index: str = "") -> Status:
        """The status of all pipelines together; unknown where one of them is."""
        stats = list(pipelines)
        return cls(
            events=sum(each.counts.events for each in stats),
            duplicates=sum(each.counts.duplicates for each in stats),
            lag=_sum([each.lag for each in stats]),
            clusters=_sum([each.clusters for each in stats]),
            batches=sum(each.batches for each in stats),
            index=index,
        )


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
        """The rate, given the number of events counted in all."""
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
    """The status line, most important parts first: a narrow terminal truncates it.

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
    if status.index:  # must not be cut
        parts.insert(0, parts.pop())
    return Text("  ").join(parts)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _number(value: int | None) -> str:
    return "…" if value is None else f"{value:,}"


class StatusLine:
    """Shows the line while it is open, if the stream is a terminal that can move its cursor.

    While it is shown, what is written to `sys.stderr` goes above it. So does a log that looks
    `sys.stderr` up for each line, as that of `logs.configure` without a stream.

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

    def show(self, status: Status, now_s: float) -> None:
        """Show a status; the first call opens the line.

        Args:
            status: the numbers.
            now_s: seconds on a monotonic clock.
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
        """Remove the line."""
        if self._live is not None:
            self._live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""A handler for Python's `logging` that merges an application's own near-duplicate records.

The first record of each kind goes on to another handler at once; its repeats are counted, and
written from time to time as one record::

    WARNING app.db: slow query: 1830 ms
    WARNING app.db: … repeated 412× until 10:32:11 [5d41402abc4b2a76] slow query: <number> <unit>

Records of different loggers or levels are never merged, nor are those with different exceptions.

No record is lost: one that cannot be compared goes on as it is. A timer thread writes what is due,
also while the application is silent, and `close`, which `logging` calls at exit, writes the rest. A
forked process begins with no clusters of its own; the counts so far remain with its parent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec

from stream_dedup.clock import US_PER_S, Clock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.summaries import repeats, time_text
from stream_dedup.errors import IndexFull
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.model import Kind, Summary

MAX_CLUSTERS = 5_000
"""An application has fewer kinds of messages; each takes some 2 kB."""

MAX_TICK_S = 1.0
"""How often the timer looks for what is due, at least."""


class MergingHandler(logging.Handler):
    """Passes first records on to another handler, and their repeats as counts.

    Example:
        >>> import sys
        >>> shown = logging.StreamHandler(sys.stdout)
        >>> log = logging.Logger("app.db")
        >>> merging = MergingHandler(shown)
        >>> log.addHandler(merging)
        >>> for took_ms in (1830, 977, 1204):
        ...     log.warning("slow query: %d ms", took_ms)
        slow query: 1830 ms
        >>> merging.close()  # doctest: +ELLIPSIS
        … repeated 2× until ... [...] slow query: <number> <unit>

    Args:
        target: writes records; its formatter and level apply. It is not closed with this handler.
        every_s: how often the repeats of a kind of record are written.
        recipe: what counts as near.
        windows: when a kind is forgotten, so that its next record is written again; by default
            after an hour without one, or a day.
        max_clusters: kinds of records kept.
        clock: gives the time.
    """

    def __init__(
        self,
        target: logging.Handler,
        *,
        every_s: float = 60.0,
        recipe: str | os.PathLike[str] | Recipe = "logs",
        windows: Windows | None = None,
        max_clusters: int = MAX_CLUSTERS,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(target, logging.Handler):
            raise TypeError(
                f"target is {type(target).__name__}, not a logging.Handler; in a dictConfig write "
                "cfg://handlers.NAME, where NAME comes before this handler's own in the alphabet"
            )
        self.target = target
        self._every_s = every_s
        self._recipe = recipe
        # Records have the times at which they arrive, so the clock alone says what is due.
        self._windows = replace(windows or Windows(), quiet_after_us=1)
        self._max_clusters = max_clusters
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._dedup = Deduplicator(
            self._recipe,
            windows=self._windows,
            summaries=Summaries(every_us=round(self._every_s * US_PER_S), samples=0, values=0),
            limits=Limits(max_clusters=self._max_clusters),
            clock=self._clock,
            source="logging",
        )
        self._process = os.getpid()
        self._stopped = threading.Event()
        self._timer: threading.Thread | None = None

    def _begin_after_fork(self) -> None:
        if os.getpid() != self._process:
            self._begin()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on to the target, unless it repeats an earlier one."""
        if not self._repeats(record):
            self.target.handle(record)

    def flush(self) -> None:
        """Write the repeats that are due, and flush the target."""
        self.report()
        self.target.flush()

    def report(self) -> None:
        """Write the repeats that are due."""
        self._begin_after_fork()
        self._write(self._dedup.due(patterns=False))

    def close(self) -> None:
        """Write all repeats not written yet; later records pass unchanged."""
        self._begin_after_fork()
        self.acquire()  # no record is counted after the counts were taken
        try:
            self._stopped.set()
            summaries = self._dedup.close(patterns=False)
        finally:
            self.release()
        self._write(summaries)
        super().close()

    def _repeats(self, record: logging.LogRecord) -> bool:
        """Count a record, and return whether it repeats an earlier one."""
        try:
            self._begin_after_fork()
            if self._stopped.is_set():
                return False
            text, group = _text(record), _group(record.name, record.levelno)
            try:
                decision = self._dedup.process_one(text, group=group)
            except IndexFull:
                self.report()
                decision = self._dedup.process_one(text, group=group)
            if self._timer is None:
                self._timer = threading.Thread(
                    target=self._run, name="stream-dedup logging", daemon=True
                )
                self._timer.start()
        except Exception:  # noqa: BLE001 -- a record must not be lost because it cannot be compared
            return False
        return decision.kind is Kind.DUPLICATE

    def _run(self) -> None:
        stopped = self._stopped
        while not stopped.wait(min(self._every_s / 4, MAX_TICK_S)):
            self.report()

    def _write(self, summaries: Iterable[Summary]) -> None:
        for summary in summaries:
            if repeats(summary) > 0:
                self.target.handle(self._record(summary))

    def _record(self, summary: Summary) -> logging.LogRecord:
        group, summary = msgspec.json.decode(summary.group), self._dedup.describe(summary)
        until = time_text(summary.last_time_us, summary.first_time_us, None)
        record = logging.LogRecord(
            name=group["logger"],
            level=group["level"],
            pathname="",
            lineno=0,
            msg="… repeated %d× until %s [%s] %s",
            args=(repeats(summary), until, summary.cluster_hex, summary.pattern),
            exc_info=None,
        )
        record.dedup = {
            "cluster": summary.cluster_hex,
            "template": summary.template_hex,
            "revision": summary.revision,
            "count": summary.count,
            "new_count": summary.new_count,
        }
        return record


@lru_cache(MAX_CLUSTERS)
def _group(name: str, level: int) -> str:
    return msgspec.json.encode({"level": level, "logger": name}).decode()


def _text(record: logging.LogRecord) -> str:
    """Return what is compared: the message, and what was raised."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        kind, error, _ = record.exc_info
        text += f"\n{kind.__module__}.{kind.__qualname__}: {error}"
    return text

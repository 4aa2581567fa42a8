"""The loop of ``stream-dedup dedup``: reads inputs, decides, and writes the output."""

from __future__ import annotations

import gc
import heapq
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from typing import BinaryIO, Literal

import click

from stream_dedup.cli.common import write_whole
from stream_dedup.cli.notes import Notes
from stream_dedup.clock import SystemClock
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.events import (
    PASSED,
    annotated_text,
    decision_object,
    event_json,
    kept,
    kept_text,
)
from stream_dedup.emit.summaries import summary_json, summary_text, time_text
from stream_dedup.errors import InputError
from stream_dedup.io.decoder import Decoder, DecoderOptions, Events, split_by_time
from stream_dedup.io.files import InputFile
from stream_dedup.model import Decision, Kind, Partition, Summary

LARGEST = 10
"""Clusters listed in the statistics."""

POLL_S = 0.5
"""How often due summaries are collected while a live input is silent; also how long an event of
several lines waits for its next line."""

PIECE = Decision(Kind.PASSED, reason="piece of a line too long")


@dataclass(frozen=True, slots=True)
class Output:
    """What is written, and how.

    Attributes:
        emit: every event, new events, or new events and counts.
        format: text or JSON lines; None for the format of each input.
        stats: whether to collect statistics.
        limit: maximum number of lines to read; None for all.
        step_us: event time between two checks for due summaries.
    """

    emit: Literal["annotate", "drop", "merge"]
    format: Literal["text", "jsonl"] | None
    stats: bool
    limit: int | None
    step_us: int


class Interrupt:
    """The first signal that arrives, as a flag and as a file descriptor to wait for."""

    def __init__(self) -> None:
        self.signal = 0
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    @property
    def fd(self) -> int:
        """Readable once a signal has arrived."""
        return self._ours.fileno()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note SIGINT, SIGTERM and SIGHUP; a second one ends the process at once."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, self._note) for number in numbers]
        wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            self._ours.close()
            self._theirs.close()

    def _note(self, number: int, _frame: object) -> None:
        if self.signal:
            os._exit(128 + number)
        self.signal = number


class Pipe:
    """One run over all inputs.

    Attributes:
        lines: lines read.
        failed: whether an input could not be read.
        timeless: events without a time, though times were asked for.
        largest: (count, -cluster, summary) of the largest clusters, as a heap.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        reading: DecoderOptions,
        output: Output,
        out: BinaryIO,
        progress: Callable[[int], None],
    ) -> None:
        self.lines = 0
        self.failed = False
        self.timeless = 0
        self.largest: list[tuple[int, int, Summary]] = []
        self._dedup = dedup
        self._reading = reading
        self._output = output
        self._out = out
        self._progress = progress
        self._clock = SystemClock()
        self._interrupt = Interrupt()
        self._json = output.format == "jsonl"
        self._names: Counter[str] = Counter()
        self._polled_s = 0.0
        # The line where a cluster was last seen, for inputs without times.
        self._last_seen: dict[int | None, str | int] = {}
        self._live = False
        self._notes = Notes(dedup, reading, self._note)

    def run(self, paths: Sequence[str]) -> int:
        """Read all inputs and write the output.

        Returns:
            The number of the signal that ended the run early, or 0.

        Raises:
            OSError: the output cannot be written.
        """
        # Decisions and counters live long and have no cycles: collect garbage less often.
        gc.set_threshold(50_000, 20, 100)
        several = len(paths) > 1
        with self._interrupt.watch():
            for path in paths:
                if self._interrupt.signal or self._limit_reached():
                    break
                try:
                    source = InputFile(path, encoding=self._reading.encoding)
                except InputError as error:
                    self._report(error)
                    continue
                with source:
                    self._read(source, path, several=several)
            self._finish()
        self._notes.ended(self.timeless)
        return self._interrupt.signal

    def _read(self, source: InputFile, path: str, *, several: bool) -> None:
        # A path given twice is two inputs: their lines are different positions.
        partition = Partition(path, self._names[path])
        self._names[path] += 1
        self._live = source.live
        prefix = f"{path}:" if several else "line "
        takes_fields = self._dedup.engine.takes_fields
        decoder = Decoder(self._reading, partition, takes_fields=takes_fields)
        size = 0
        try:
            while not self._interrupt.signal and not self._limit_reached():
                if not source.wait(self._interrupt.fd, POLL_S):
                    if not self._interrupt.signal:
                        self._idle(decoder, prefix)
                    continue
                lines = source.read()
                if lines is None:
                    break
                if self._output.limit is not None:
                    left = self._output.limit - self.lines
                    if left < len(lines.values):
                        lines.values = lines.values[:left]
                        lines.pieces = set()
                events = decoder.decode(lines, self._clock.now_us())
                for part in split_by_time(events, self._output.step_us):
                    self._handle(part, decoder, prefix)
                    self._write_due()
                self._progress(lines.size - size)
                size = lines.size
            rest = source.rest() if self._interrupt.signal else None
            # A file was interrupted in the middle of a line; a pipe has nothing more to give.
            if rest is not None and (source.live or rest.goes_on):
                self._handle(decoder.decode(rest, self._clock.now_us()), decoder, prefix)
        except InputError as error:
            self._report(error)
        self._handle(decoder.flush(self._clock.now_us()), decoder, prefix)
        self._dedup.release(partition)
        self.timeless += decoder.timeless
        if self.lines and not decoder.json and self._reading.takes_json:
            self._note(f"{source.name} is text; options that name a JSON field do nothing there")

    def _idle(self, decoder: Decoder, prefix: str) -> None:
        """Handle a pause of a live input: decide the event that waits for more lines."""
        if decoder.holds:
            self._handle(decoder.flush(self._clock.now_us()), decoder, prefix)
        self._write_due()

    def _limit_reached(self) -> bool:
        return self._output.limit is not None and self.lines >= self._output.limit

    # ------------------------------------------------------------ writing

    def _handle(self, events: Events, decoder: Decoder, prefix: str) -> None:
        self.lines += events.lines
        self._notes.decoded(events)
        decisions = self._dedup.process_batch(events.batch)
        if self._output.format is None:
            self._json = decoder.json
        if self._json:
            text = self._json_lines(events, decisions)
        elif self._output.emit == "annotate":
            text = b"".join(map(annotated_text, events.raws, decisions))
            if events.goes_on and decisions:
                text = text.removeprefix(PASSED)
        else:
            text = kept_text(events.raws, decisions)
        if events.piece:
            text += self._piece(events)
        if self._by_time:
            if self._last_seen:  # set by an earlier input without times
                for decision in decisions:
                    self._last_seen.pop(decision.cluster, None)
        elif self._output.emit == "merge" and not self._json:
            clusters = [decision.cluster for decision in decisions]
            places = events.numbers
            if prefix != "line ":
                places = [f"{prefix}{number}" for number in places]  # type: ignore[misc]
            self._last_seen.update(zip(clusters, places, strict=True))
        self._write(text)

    def _json_lines(self, events: Events, decisions: list[Decision]) -> bytes:
        annotate = self._output.emit == "annotate"
        chosen = [True] * len(decisions) if annotate else kept(decisions)
        indexes = [index for index, leaves in enumerate(chosen) if leaves]
        patterns = self._dedup.patterns([decisions[index] for index in indexes])
        width = self._dedup.recipe.fingerprint.width
        return b"".join(
            event_json(
                events.numbers[index],
                events.raws[index],
                events.documents[index],
                decision_object(decisions[index], pattern, width),
            )
            for index, pattern in zip(indexes, patterns, strict=True)
        )

    def _piece(self, events: Events) -> bytes:
        """Format a piece of a line that is too long, without its line end."""
        if self._json:
            passed = decision_object(PIECE, None, self._dedup.recipe.fingerprint.width)
            return event_json(events.piece_number, events.piece, None, passed)
        begins = not events.goes_on or bool(events.raws)
        if self._output.emit == "annotate" and begins:
            return PASSED + events.piece
        return events.piece

    def _write(self, text: bytes) -> None:
        if text:
            write_whole(self._out, text)

    # ------------------------------------------------------------ summaries

    @property
    def _by_time(self) -> bool:
        return self._reading.event_times or self._live

    def _write_due(self) -> None:
        now_s = time.monotonic()
        if self._live and now_s - self._polled_s < POLL_S and not self._dedup.waiting:
            return
        self._polled_s = now_s
        if self._live:
            self._notes.waiting()
        self._write_summaries(self._dedup.due(patterns=False))

    def _finish(self) -> None:
        self._write_due()
        if self._output.emit == "merge" or self._output.stats:
            self._write_summaries(self._dedup.close(patterns=False))

    def _write_summaries(self, summaries: Iterator[Summary] | list[Summary]) -> None:
        parts: list[bytes] = []
        for summary in summaries:
            if summary.final:
                self._rank(summary)
            if self._output.emit == "merge":
                parts.append(self._summary(summary))
            if len(parts) > 1000:
                self._write(b"".join(parts))
                parts.clear()
        self._write(b"".join(parts))

    def _summary(self, summary: Summary) -> bytes:
        if not self._json and summary.new_count < 2 and summary.revision == 1:
            self._last_seen.pop(summary.cluster, None)
            return b""
        summary = self._with_pattern(summary)
        if self._json:
            return summary_json(summary, self._dedup.recipe.name)
        place = self._last_seen.get(summary.cluster)
        if summary.final:
            self._last_seen.pop(summary.cluster, None)
        if place is None:
            zone = UTC if self._reading.event_times else None
            until = time_text(summary.last_time_us, summary.first_time_us, zone)
        else:
            until = f"line {place}" if isinstance(place, int) else place
        return summary_text(summary, until)

    def _with_pattern(self, summary: Summary) -> Summary:
        return replace(summary, pattern=self._dedup.pattern(summary))

    def _rank(self, summary: Summary) -> None:
        if not self._output.stats:
            return
        entry = (summary.count, -summary.cluster, summary)
        if len(self.largest) < LARGEST:
            heapq.heappush(self.largest, entry)
        else:
            heapq.heappushpop(self.largest, entry)

    def _report(self, error: InputError) -> None:
        self.failed = True
        self._note(str(error))

    @staticmethod
    def _note(text: str) -> None:
        click.echo(f"stream-dedup: {text}", file=sys.stderr)

"""The loop of ``stream-dedup dedup``: reads inputs, decides, and writes the output."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from stream_dedup import signals
from stream_dedup.cli.inputs import POLL_S, Input, open_input, turns
from stream_dedup.cli.notes import Notes
from stream_dedup.cli.output import Output, Writer
from stream_dedup.cli.terminal import note
from stream_dedup.clock import SystemClock, monotonic_s
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError
from stream_dedup.io.decoder import (
    ALL_TIMES,
    DecoderOptions,
    Events,
    Times,
    split_by_time,
)
from stream_dedup.model import Partition, Summary


class OpeningEndedError(Exception):
    """A signal arrived while an input was opened."""


class Interrupt:
    """The first signal that arrives, as a flag and as a file descriptor to wait for."""

    def __init__(self) -> None:
        self.signal = 0
        self._opening = False
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
        numbers = signals.ending()
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

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let the first signal end what waits inside: a named pipe opens when a writer does."""
        self._opening = True
        try:
            if self.signal:
                raise OpeningEndedError
            yield
        finally:
            self._opening = False

    def _note(self, number: int, _frame: object) -> None:
        if self.signal:
            os._exit(128 + number)
        self.signal = number
        if self._opening:
            raise OpeningEndedError


class Pipe:
    """One run over all inputs.

    Attributes:
        lines: lines read.
        text_bytes: bytes of them and of their line ends, unpacked and in UTF-8.
        failed: whether an input could not be read.
        timeless: events without a time, though times were asked for.
        outside: events that were left out because of their time.
        writer: what writes the output.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        reading: DecoderOptions,
        output: Output,
        out: BinaryIO,
        progress: Callable[[int], None],
        times: Times = ALL_TIMES,
    ) -> None:
        self.lines = 0
        self.text_bytes = 0
        self.failed = False
        self.timeless = 0
        self.outside = 0
        self.writer = Writer(dedup, output, out, note)
        self._dedup = dedup
        self._reading = reading
        self._output = output
        self._times = times
        self._progress = progress
        self._clock = SystemClock()
        self._interrupt = Interrupt()
        self._names: Counter[str] = Counter()
        self._polled_s = 0.0
        self._live = False
        self._notes = Notes(dedup, reading, note)

    def run(self, paths: Sequence[str], *, follow: bool = False) -> int:
        """Read all inputs and write the output.

        Args:
            paths: the inputs, read one after the other.
            follow: whether to read all at once, and what is added to them, until a signal.

        Returns:
            The number of the signal that ended the run early, or 0.

        Raises:
            OSError: the output cannot be written.
        """
        # Decisions and counters live long and have no cycles: collect garbage less often.
        gc.set_threshold(50_000, 20, 100)
        several = len(paths) > 1
        with self._interrupt.watch():
            if follow:
                self._read([self._open(path, several=several, follow=True) for path in paths])
            else:
                for path in paths:
                    if self._ended():
                        break
                    self._read([self._open(path, several=several)])
            self._write_due()
            output = self._output
            reports = bool(output.ranking or output.volume or output.patterns)
            if output.mode.summaries or output.stats or reports:
                self._write_summaries(self._dedup.close(patterns=False))
        self._notes.ended(self.timeless, self.outside)
        return self._interrupt.signal

    # ------------------------------------------------------------ reading

    def _open(self, path: str, *, several: bool, follow: bool = False) -> Input | None:
        """Open an input; None if that fails, which is reported, or if a signal ends it."""
        # A path given twice is two inputs: their lines are different positions.
        partition = Partition(path, self._names[path])
        self._names[path] += 1
        recipe = self._dedup.recipe
        try:
            with self._interrupt.opening():
                found = open_input(partition, self._reading, recipe, note, follow=follow)
        except OpeningEndedError:
            return None
        except InputError as error:
            self._report(error)
            return None
        self.writer.places.begin(partition, f"{path}:" if several else "line ", self.lines)
        return found

    def _read(self, opened: Sequence[Input | None]) -> None:
        """Read inputs to their ends, whichever has more lines; close them."""
        inputs = [each for each in opened if each is not None]
        self._live = any(each.source.live for each in inputs)
        with ExitStack() as stack:
            for one in inputs:
                stack.enter_context(one.source)
            for each, reads in turns(inputs, self._interrupt.fd):
                if each is None:
                    if not self._interrupt.signal:
                        self._write_due()
                elif not reads:
                    self._handle(each.decoder.flush(self._clock.now_us()), each)
                elif not self._read_some(each):
                    self._end(each)
                    inputs.remove(each)
                if self._ended():
                    break
            for rest in inputs:
                self._end(rest)

    def _read_some(self, each: Input) -> bool:
        """Read and handle the next lines of an input; whether there may be more."""
        try:
            lines = each.source.read()
        except InputError as error:
            self._report(error)
            return False
        if lines is None:
            return False
        if self._output.limit is not None:
            left = self._output.limit - self.lines
            if left < len(lines.values):
                lines.values = lines.values[:left]
                lines.pieces = set()
        self.text_bytes += lines.text
        events = each.decoder.decode(lines, self._clock.now_us())
        for part in split_by_time(events, self._output.step_us, self._dedup.part_events):
            self._handle(part, each)
            self._write_due()
        self._progress(lines.size - each.size)
        each.size = lines.size
        return not self._ended()

    def _end(self, each: Input) -> None:
        """Handle what is left of an input."""
        rest = each.source.rest() if self._interrupt.signal else None
        # A file was interrupted in the middle of a line; a pipe has nothing more to give.
        if rest is not None and (each.source.live or rest.goes_on):
            self.text_bytes += rest.text
            self._handle(each.decoder.decode(rest, self._clock.now_us()), each)
        self._handle(each.decoder.flush(self._clock.now_us()), each)
        self._dedup.release(each.partition)
        self.timeless += each.decoder.timeless
        if self.lines and not each.decoder.json and self._reading.takes_json:
            name = each.source.name
            note(f"{name} is text; options that name a JSON field do nothing there")

    def _ended(self) -> bool:
        """Whether to read no more."""
        limit = self._output.limit
        return bool(self._interrupt.signal) or (limit is not None and self.lines >= limit)

    # ------------------------------------------------------------ writing

    def _handle(self, events: Events, each: Input) -> None:
        self.lines += events.lines
        self._notes.decoded(events)
        if self._times is not ALL_TIMES:
            read = len(events.raws)
            events = self._times.chosen(events)
            self.outside += read - len(events.raws)
        decisions = self._dedup.process_batch(events.batch)
        self._notes.decided(events, decisions)
        by_time = self._reading.event_times or self._live
        self.writer.events(events, decisions, json=each.decoder.json, by_time=by_time)

    def _write_due(self) -> None:
        now_s = monotonic_s()
        if self._live and now_s - self._polled_s < POLL_S and not self._dedup.waiting:
            return
        self._polled_s = now_s
        if self._live:
            self._notes.waiting()
        self._write_summaries(self._dedup.due(patterns=False))

    def _write_summaries(self, summaries: Sequence[Summary]) -> None:
        self.writer.summaries(summaries, event_times=self._reading.event_times)

    def _report(self, error: InputError) -> None:
        self.failed = True
        note(str(error))

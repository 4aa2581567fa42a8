"""``stream-dedup diff``: which patterns are new, vanished or more frequent in other files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import click

from stream_dedup.changes.rates import (
    LEAST_FACTOR,
    Counts,
    Exposure,
    RateChange,
    changes,
)
from stream_dedup.cli.common import (
    MAX_NAME,
    Failed,
    Parsed,
    bytes_of_files,
    color_option,
    named_inputs,
    parse_moment,
    quiet_option,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
    shown,
    write_report,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.datasets import format_of, refuse_options_of_lines, table_events
from stream_dedup.cli.diff_report import Per, Report, Row, Side, json_lines, text_lines
from stream_dedup.cli.notes import Notes
from stream_dedup.cli.reading import max_clusters_option, read_events, reading_of, reading_options
from stream_dedup.cli.terminal import note
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.summaries import iso_time
from stream_dedup.errors import InputError
from stream_dedup.index.base import Limits
from stream_dedup.io.datasets import TableFormat
from stream_dedup.io.decoder import ALL_TIMES, DecoderOptions, Events, Times
from stream_dedup.io.files import expand
from stream_dedup.model import Partition, Summary

EXIT_CHANGED = 1


@click.command()
@click.argument("files", nargs=-1, metavar="OLD NEW", shell_complete=complete_file)
@click.option(
    "--split",
    "split_us",
    type=Parsed("time", parse_moment),
    metavar="TIME",
    help="Compare the events of one FILE before this time with those from it on: "
    "2024-05-07T09:30, 2024-05-07, or 1h for an hour ago.",
)
@recipe_option
@set_option
@click.option(
    "--top",
    "most",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="N",
    help="Show the N changes that are least likely by chance.",
)
@click.option(
    "--factor",
    "least_factor",
    type=click.FloatRange(1.0),
    default=LEAST_FACTOR,
    show_default=True,
    help="A rate counts as changed if it is so many times as high, or as low.",
)
@click.option(
    "--per",
    type=click.Choice(["auto", "time", "events"]),
    default="auto",
    show_default=True,
    help="Rates are counts divided by the time from a side's first to its last event, or by its "
    "events. auto: by time, if both sides tell it.",
)
@reading_options()
@max_clusters_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines: the sides, then changes.")
@color_option
@quiet_option
@click.pass_context
def diff(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Compare the patterns of two logs: new ones, vanished ones, and changed rates.

    Reads OLD and NEW as dedup does, with one engine, so that a pattern is the same in both. Each is
    a file (plain or compressed), a quoted pattern such as 'monday/*.gz', or "-" for standard input.
    The changes that are least likely by chance come first; new and vanished patterns with too few
    events to be sure of come last.

    \b
    stream-dedup diff yesterday.log today.log
    stream-dedup diff 'monday/*.gz' 'tuesday/*.gz'
    stream-dedup diff --split 2024-05-07T09:30 app.log     before and after a release
    kubectl logs deploy/api | stream-dedup diff --json before.log - | jq .pattern

    Exit codes are those of diff: 0 no significant change, 1 changes, 2 trouble.
    """
    try:
        ctx.exit(_diff(ctx, files, options))
    except InputError as error:
        raise Failed(str(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failed(f"cannot write the output: {error.strerror}") from error


def _diff(ctx: click.Context, files: Sequence[str], options: dict[str, Any]) -> int:
    split_us: int | None = options["split_us"]
    wanted = 2 if split_us is None else 1
    if len(files) != wanted:
        what = "OLD and NEW" if wanted == 2 else "with --split, one FILE"
        raise click.UsageError(
            f"give {what}; quote a pattern that matches several files, as in 'logs/*.gz'"
        )
    if files.count("-") > 1:
        raise click.UsageError("OLD and NEW cannot both be standard input")
    sides = [list(expand([each])) for each in files]
    form = format_of([path for paths in sides for path in paths], options["input_format"])
    if form is not None:
        refuse_options_of_lines(ctx, form)
        if split_us is not None:
            raise click.UsageError(f"--split is for lines; the input is a table ({form})")
    by_events = options["per"] == "events" and split_us is None
    guesses = not (options["time_field"] or by_events or form)
    reading = reading_of(options, guesses_times=guesses)
    comparison = Comparison(options, reading, form)
    bar = not options["quiet"] and sys.stderr.isatty()
    total = bytes_of_files([path for paths in sides for path in paths])
    with reading_progress(total, shown=bar) as advance:
        if split_us is None:
            for side, paths in zip(comparison.sides, sides, strict=True):
                comparison.read(paths, [(side, None)], advance)
        else:
            old, new = comparison.sides
            halves = [(old, Times(until_us=split_us)), (new, Times(since_us=split_us))]
            comparison.read(sides[0], halves, advance)
            if all(side.first_us is None for side in comparison.sides):
                raise InputError(
                    f"{shown(os.fsencode(files[0]), MAX_NAME)}: no event has a time that could be "
                    "read; name the format of times with --time-format, or their JSON field with "
                    "--time-field"
                )
    report = comparison.report()
    most: int = options["most"]
    write_report(options, json_lines(report, most), partial(text_lines, report, most))
    return EXIT_CHANGED if report.changed else 0


# ---------------------------------------------------------------- counting


class Comparison:
    """Counts the events of two inputs by pattern.

    Args:
        options: those of the command.
        reading: how inputs are read.
        form: of tables; None for lines.
    """

    def __init__(
        self, options: dict[str, Any], reading: DecoderOptions, form: TableFormat | None
    ) -> None:
        self.sides = Side(), Side()
        self._dedup = Deduplicator(
            recipe_of(options["recipe"], options["settings"]),
            # A pattern is the same however long ago it was.
            windows=Windows(FOREVER_US, FOREVER_US, FOREVER_US, FOREVER_US),
            summaries=Summaries(every_us=None, samples=0, values=0),
            limits=Limits(max_clusters=options["max_clusters"]),
        )
        self._reading = reading
        self._form = form
        self._least_factor: float = options["least_factor"]
        self._per: Literal["auto", "time", "events"] = options["per"]
        self._notes = Notes(self._dedup, reading, note)
        self._inputs = 0
        self._now_us = SystemClock().now_us()
        self._closed: dict[int, Summary] = {}

    def read(
        self,
        paths: Sequence[str],
        parts: Sequence[tuple[Side, Times | None]],
        advance: Callable[[int], None],
    ) -> None:
        """Read files.

        Args:
            paths: the files.
            parts: the sides that their events belong to, and by which times; None for all.
            advance: learns how many bytes were read.

        Raises:
            InputError: one cannot be read to its end.
        """
        for side, times in parts:
            side.name = named_inputs(paths) + ("" if times is None else f" {_period(times)}")
        for path in paths:
            # A file given twice is two inputs: its events are counted twice.
            partitions = [Partition(path, self._inputs + part) for part in range(len(parts))]
            self._inputs += len(parts)
            for events in self._events(path, advance):
                self._notes.decoded(events)
                for partition, (side, times) in zip(partitions, parts, strict=True):
                    self._count(events if times is None else times.chosen(events), partition, side)
            for partition in partitions:
                self._dedup.release(partition)

    def _events(self, path: str, advance: Callable[[int], None]) -> Iterator[Events]:
        if self._form is not None:
            return table_events(
                path, self._form, self._reading, self._dedup.recipe, advance=advance
            )
        return read_events(
            path, self._reading, self._dedup.recipe, advance=advance, now_us=self._now_us
        )

    def _count(self, events: Events, partition: Partition, side: Side) -> None:
        events.batch.partition = partition
        step = self._dedup.part_events
        for start in range(0, len(events.raws), step):
            part = events.batch.part(start, start + step)
            # Only the report needs the times: clusters never close.
            times_us, part.times_us = part.times_us, None
            side.add(self._dedup.process_batch(part), times_us)
            self._closed.update((each.cluster, each) for each in self._dedup.due(patterns=False))

    def report(self) -> Report:
        """Compare what was read."""
        self._notes.ended(0, 0)
        self._closed.update((each.cluster, each) for each in self._dedup.close(patterns=False))
        for side in self.sides:
            del side.counts[None]  # events that have no pattern
            for cluster in list(side.counts):
                root = self._root(cluster)
                if root != cluster:
                    side.counts[root] += side.counts.pop(cluster)
            side.events = side.counts.total()
        old, new = self.sides
        clusters = [each for each in old.counts | new.counts if each is not None]
        counts = [Counts(old.counts[each], new.counts[each]) for each in clusters]
        per, exposure = self._exposure()
        rows = changes(counts, exposure, self._least_factor)
        return Report(
            self.sides,
            per,
            (self._row(each, clusters[each.row]) for each in rows),
            len(rows),
            len(clusters),
            sum(each.sure for each in rows),
        )

    def _row(self, found: RateChange, cluster: int) -> Row:
        summary = self._dedup.describe(self._closed[cluster])
        return Row(summary, found.counts, found.kind, found.times, found.log_p, found.sure)

    def _root(self, cluster: int | None) -> int | None:
        """The cluster that goes on for one."""
        while cluster is not None and (into := self._closed[cluster].merged_into) is not None:
            cluster = into
        return cluster

    def _exposure(self) -> tuple[Per, Exposure | None]:
        """What rates are divided by; None if one of the sides has no event."""
        old, new = self.sides
        timed = bool(old.length_s and new.length_s)
        per: Per = "time" if timed and self._per != "events" else "events"
        if not old.events or not new.events:
            return per, None
        if self._per == "time" and not timed:
            side = new if old.length_s else old
            raise InputError(
                f"{side.name}: its events tell no length of time; name the format of times with "
                "--time-format, or give --per events"
            )
        if per == "time":
            return per, Exposure(old.length_s, new.length_s)
        return per, Exposure(old.events, new.events)


def _period(times: Times) -> str:
    if times.since_us > ALL_TIMES.since_us:
        return f"from {iso_time(times.since_us)}"
    return f"before {iso_time(times.until_us)}"

"""``stream-dedup volume``: which patterns take how many bytes, and what would save them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from stream_dedup.cli.common import (
    bytes_of_files,
    color_option,
    quiet_option,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
    write_report,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.datasets import (
    format_of,
    refuse_options_of_lines,
    refuse_recipe_of_fields,
    table_events,
)
from stream_dedup.cli.notes import Notes
from stream_dedup.cli.output import Output
from stream_dedup.cli.pipe import Pipe
from stream_dedup.cli.reading import max_clusters_option, reading_of, reading_options
from stream_dedup.cli.rules import rules_of, rules_option
from stream_dedup.cli.terminal import note
from stream_dedup.cli.volume_count import VolumeCount
from stream_dedup.cli.volume_report import Report, json_lines, text_lines
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FILES_MAX_FUTURE_US, FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.modes import MODES
from stream_dedup.errors import InputError
from stream_dedup.index.base import Limits
from stream_dedup.io.datasets import TableFormat
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.io.files import expand
from stream_dedup.model import Partition
from stream_dedup.rules.model import MAX_PER_MINUTE
from stream_dedup.volume.savings import PER_MINUTE


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@recipe_option
@set_option
@rules_option
@click.option(
    "--top",
    "most",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the N patterns that take most bytes; the others are one line.",
)
@click.option(
    "--per-minute",
    type=click.IntRange(1, MAX_PER_MINUTE),
    default=PER_MINUTE,
    show_default=True,
    metavar="N",
    help="Estimate what a rule saves that keeps so many events of a pattern a minute.",
)
@reading_options()
@max_clusters_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines: all, then patterns.")
@color_option
@quiet_option
@click.pass_context
def volume(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """List the patterns that take most bytes, and what dropping their repeats would save.

    Reads FILEs as dedup does, or standard input. For each pattern it writes the bytes of its events
    as they were read, and what is saved if its repeats are dropped (dedup --emit drop), or if a
    rule keeps some events of it a minute (rules add keep); "-" if no event has a time. The last
    line is all that was read, unpacked; the lines before it add up to it. Of a table, the bytes are
    those of the column that is compared.

    With --rules, another column shows what is left under these rules.

    \b
    stream-dedup volume app.log
    stream-dedup volume --per-minute 60 'logs/*.gz'
    stream-dedup volume --rules rules.toml --json app.log | jq .bytes_out
    kubectl logs deploy/api | stream-dedup volume --top 5
    """
    paths = list(expand(files)) or ["-"]
    form = format_of(paths, options["input_format"])
    count = VolumeCount(options["most"], options["per_minute"])
    rules = rules_of(options["rules_path"])
    deduplicator = Deduplicator(
        recipe_of(options["recipe"], options["settings"]),
        # A pattern is the same however long ago it was.
        windows=Windows(FOREVER_US, FOREVER_US, FILES_MAX_FUTURE_US, FOREVER_US),
        summaries=Summaries(every_us=None, samples=0, values=0),
        limits=Limits(max_clusters=options["max_clusters"]),
        rules=rules,
    )
    if form is not None:
        refuse_options_of_lines(ctx, form)
        refuse_recipe_of_fields(deduplicator)
    reading = reading_of(options, guesses_times=not (options["time_field"] or form))
    output = Output(MODES["merge"], None, stats=False, limit=None, step_us=FOREVER_US, volume=count)
    total = bytes_of_files(paths)
    bar = not options["quiet"] and sys.stderr.isatty() and total is not None
    with reading_progress(total, shown=bar) as advance:
        if form is None:
            pipe = Pipe(deduplicator, reading, output, sys.stdout.buffer, advance)
            signal = pipe.run(paths)
            read, failed = pipe.text_bytes, pipe.failed
        else:
            tables = _Tables(deduplicator, count, reading, form)
            tables.run(paths, advance)
            signal, read, failed = 0, count.taken, tables.failed
    described = [
        row._replace(summary=deduplicator.describe(row.summary)) for row in count.largest()
    ]
    report = Report(count, read, described, bool(rules))
    write_report(options, json_lines(report), partial(text_lines, report))
    ctx.exit(128 + signal if signal else int(failed))


class _Tables:
    """One run over tables.

    Attributes:
        failed: whether one could not be read to its end.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        count: VolumeCount,
        reading: DecoderOptions,
        form: TableFormat,
    ) -> None:
        self.failed = False
        self._dedup = dedup
        self._count = count
        self._reading = reading
        self._form = form

    def run(self, paths: Sequence[str], advance: Callable[[int], None]) -> None:
        """Read all tables and count their events."""
        dedup, count = self._dedup, self._count
        for number, path in enumerate(paths):
            try:
                for events in table_events(
                    path, self._form, self._reading, dedup.recipe, advance=advance
                ):
                    events.batch.partition = Partition(path, number)
                    count.add(events, dedup.process_batch(events.batch))
                    count.ended(dedup.due(patterns=False))
            except InputError as error:
                self.failed = True
                note(str(error))
        count.ended(dedup.close(patterns=False))
        Notes(dedup, self._reading, note).ended(0, 0)

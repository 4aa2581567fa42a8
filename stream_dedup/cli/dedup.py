"""``stream-dedup dedup``: removes near-duplicates from files and pipes."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import (
    DurationOption,
    bytes_of_files,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.pipe import POLL_S, Output, Pipe
from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError
from stream_dedup.index.base import Limits
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import expand, is_live
from stream_dedup.io.formats import Transcoder
from stream_dedup.model import Partition

MAX_FUTURE_US = 24 * 3600 * US_PER_S
"""A time without a zone is read as UTC, but its zone may be up to 14 hours ahead of it."""


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option(
    "-e",
    "--emit",
    type=click.Choice(["merge", "drop", "annotate"]),
    default="merge",
    show_default=True,
    help="merge writes first lines at once and repeats as counts; drop leaves duplicates out; "
    "annotate writes every event with its decision.",
)
@recipe_option
@set_option
@click.option(
    "--input-format",
    type=click.Choice(["auto", "text", "jsonl"]),
    default="auto",
    show_default=True,
    help="auto decides by each input's first line.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "jsonl"]),
    help="By default the format of the input.",
)
@click.option(
    "--encoding",
    default="",
    metavar="NAME",
    help="Encoding of the input, such as utf-16 or latin-1; the output is UTF-8. Without it, "
    "UTF-16 is recognised, and other bytes are taken as they are.",
)
@click.option(
    "--text-field",
    default="",
    metavar="PATH",
    help="JSON field with the text; by default message, msg, log or another common name.",
)
@click.option(
    "--time-field",
    default="",
    metavar="PATH|auto",
    help="JSON field with the time; auto: time, timestamp, ts or another common name.",
)
@click.option(
    "--time-format",
    default="",
    metavar="FORMAT",
    help="How times are written: iso, syslog, epoch, or a format as for strptime, such as "
    "'%d/%b/%Y:%H:%M:%S %z'. Without it and without --time-field, the time is that of arrival.",
)
@click.option(
    "--group-field",
    "group_fields",
    multiple=True,
    metavar="PATH",
    help="JSON field: only events with equal values are compared. Repeatable.",
)
@click.option(
    "--group-regex",
    default="",
    metavar="RE2",
    help="Only lines with equal named groups are compared, as in '(?P<app>[a-z]+):'.",
)
@click.option(
    "--start-regex",
    default="",
    metavar="RE2",
    help="Matches the first line of an event; other lines (a stack trace) belong to the event "
    "before.",
)
@click.option(
    "--summary-every",
    type=DurationOption(off=None),
    default="60s",
    show_default=True,
    help="How often the count of a growing cluster is written; off: only when it closes.",
)
@click.option(
    "--idle",
    type=DurationOption(off=FOREVER_US),
    default="1h",
    show_default=True,
    help="A cluster without an event for this long is closed; a similar line then opens a new one.",
)
@click.option(
    "--max-age",
    type=DurationOption(off=FOREVER_US),
    default="24h",
    show_default=True,
    help="A cluster is closed this long after its first event, even if it is still growing.",
)
@click.option(
    "--max-clusters",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="With more clusters, the least recently seen is closed. Each takes 2 to 3 kB.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Read at most N lines.")
@click.option("--stats", is_flag=True, help="Print statistics on standard error.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress bar.")
@click.pass_context
def dedup(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Remove near-duplicates from files, pipes, or standard input.

    Reads text or JSON lines from FILEs (plain, gzip, Zstandard, xz or bzip2; also patterns such as
    'logs/*.gz'), or from standard input, live, without FILE or for "-". Writes to standard output.

    \b
    stream-dedup dedup app.log
    kubectl logs -f deploy/api | stream-dedup dedup --summary-every 10s
    stream-dedup dedup --emit drop --stats 'logs/*.gz' > short.log
    stream-dedup dedup --emit annotate --output-format jsonl app.log
    stream-dedup dedup --time-field ts --group-field service events.jsonl
    """
    reading = DecoderOptions(
        format=options["input_format"],
        text_field=options["text_field"],
        time_field=options["time_field"],
        time_format=options["time_format"],
        group_fields=options["group_fields"],
        group_pattern=options["group_regex"],
        start_pattern=options["start_regex"],
        encoding=options["encoding"],
    )
    try:
        Decoder(reading, Partition("", 0), takes_fields=False)  # checks the options
        Transcoder(reading.encoding)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    if reading.group_fields and reading.group_pattern:
        raise click.UsageError("--group-field and --group-regex exclude each other")
    every_us = options["summary_every"] if options["emit"] == "merge" else None
    wants_samples = options["emit"] == "merge" and options["output_format"] != "text"
    output = Output(
        options["emit"],
        options["output_format"],
        options["stats"],
        options["limit"],
        step_us=min(every_us or FOREVER_US, options["idle"], options["max_age"]),
    )
    paths = list(expand(files)) or ["-"]
    deduplicator = Deduplicator(
        recipe_of(options["recipe"], options["settings"]),
        windows=Windows(
            idle_us=options["idle"],
            max_age_us=options["max_age"],
            max_future_us=MAX_FUTURE_US,
            # Time passes while a pipe is silent, but not while a file waits for a slow reader.
            quiet_after_us=round(POLL_S * US_PER_S) if is_live(paths) else FOREVER_US,
        ),
        summaries=Summaries(every_us=every_us, samples=3 if wants_samples else 0),
        limits=Limits(max_clusters=options["max_clusters"]),
    )
    total = bytes_of_files(paths)
    shown = not options["quiet"] and sys.stderr.isatty() and not sys.stdout.isatty()
    with reading_progress(total, shown=shown and total is not None) as advance:
        pipe = Pipe(deduplicator, reading, output, sys.stdout.buffer, advance)
        signal = pipe.run(paths)
    if output.stats:
        _print_stats(pipe, deduplicator)
    ctx.exit(128 + signal if signal else int(pipe.failed))


def _print_stats(pipe: Pipe, deduplicator: Deduplicator) -> None:
    counts, size = deduplicator.counts, deduplicator.size()
    width = None if sys.stderr.isatty() else 120
    console = Console(stderr=True, highlight=False, width=width)
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    rows: list[tuple[str, str]] = [
        ("lines", f"{pipe.lines:,}"),
        ("events", f"{counts.events:,}"),
        ("clusters", f"{counts.new:,}"),
        ("duplicates", f"{counts.duplicates:,}"),
        ("share removed", f"{counts.removed:.1%}"),
        *((f"passed: {reason}", f"{n:,}") for reason, n in sorted(counts.passed.items())),
    ]
    if size.evicted:
        rows.append(("clusters closed for want of room", f"{size.evicted:,}"))
    if size.new_again:
        rows.append(("events new again for that", f"{size.new_again:,}"))
    if pipe.timeless:
        rows.append(("events that told no time", f"{pipe.timeless:,}"))
    if size.truncated:
        rows.append(("searches cut short", f"{size.truncated:,}"))
    if counts.clamped:
        rows.append(("times in the future", f"{counts.clamped:,}"))
    for name, value in rows:
        grid.add_row(name, value)
    console.print(grid)
    table = Table("count", "cluster", "pattern", title="largest clusters", title_justify="left")
    table.columns[0].justify = "right"
    for count, _, summary in sorted(pipe.largest, reverse=True):
        pattern = Text(deduplicator.pattern(summary), overflow="ellipsis", no_wrap=True)
        table.add_row(f"{count:,}", summary.cluster_hex, pattern)
    if pipe.largest:
        console.print(table)

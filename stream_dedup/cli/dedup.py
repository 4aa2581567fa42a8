"""``stream-dedup dedup``: near-duplicates out of files and pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.options import Duration, recipe_of, recipe_option, set_option
from stream_dedup.cli.pipe import POLL_S, Output, Pipe
from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError
from stream_dedup.index.base import Limits
from stream_dedup.io.decoder import Decoder, Reading
from stream_dedup.io.files import expand, is_live
from stream_dedup.model import Partition

MAX_FUTURE_US = 24 * 3600 * US_PER_S
"""Times without a zone are taken as UTC and may be of another, up to 14 hours ahead."""


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option(
    "-e",
    "--emit",
    type=click.Choice(["merge", "drop", "annotate"]),
    default="merge",
    show_default=True,
    help="merge writes first lines at once and repeats as counts; drop leaves duplicates out; "
    "annotate writes every event with what was decided.",
)
@recipe_option
@set_option
@click.option(
    "--input-format",
    type=click.Choice(["auto", "text", "jsonl"]),
    default="auto",
    show_default=True,
    help="auto looks at each input's first line.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "jsonl"]),
    help="As the input is, if not given.",
)
@click.option("--text-field", default="", metavar="PATH", help="JSON field that holds the text.")
@click.option("--time-field", default="", metavar="PATH", help="JSON field that holds the time.")
@click.option(
    "--time-format",
    default="",
    metavar="FORMAT",
    help="How times are written: iso, syslog, epoch, or as for strptime, as in "
    "'%d/%b/%Y:%H:%M:%S %z'. Without it, and without --time-field, time is when a line arrives.",
)
@click.option(
    "--group-field",
    "group_fields",
    multiple=True,
    metavar="PATH",
    help="JSON field that must be equal for events to be compared. Repeatable.",
)
@click.option(
    "--group-regex",
    default="",
    metavar="RE2",
    help="Named groups that must be equal for lines to be compared, as in '(?P<app>[a-z]+):'.",
)
@click.option(
    "--start-regex",
    default="",
    metavar="RE2",
    help="An event's first line matches it; other lines (a stack trace) belong to the one before.",
)
@click.option(
    "--summary-every",
    type=Duration(off=None),
    default="60s",
    show_default=True,
    help="How often the count of a growing cluster is written; off: only at its end.",
)
@click.option(
    "--idle",
    type=Duration(off=FOREVER_US),
    default="1h",
    show_default=True,
    help="A cluster that had no event for so long is closed; later lines like it start anew.",
)
@click.option(
    "--max-age",
    type=Duration(off=FOREVER_US),
    default="24h",
    show_default=True,
    help="A cluster is closed so long after its first event, however busy it is.",
)
@click.option(
    "--max-clusters",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Above it the least recently seen cluster is closed. Each takes 2 to 3 kB.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Read N lines at most.")
@click.option("--stats", is_flag=True, help="Print what was found, on standard error.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
@click.pass_context
def dedup(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Take near-duplicates out of files, pipes, or standard input.

    Reads text or JSON lines from FILEs (plain, gzip or Zstandard; patterns such as 'logs/*.gz'
    too) or, without FILE or for "-", from standard input as it comes. Writes to standard output.

    \b
    stream-dedup dedup app.log
    kubectl logs -f deploy/api | stream-dedup dedup --summary-every 10s
    stream-dedup dedup --emit drop --stats 'logs/*.gz' > short.log
    stream-dedup dedup --emit annotate --output-format jsonl app.log
    stream-dedup dedup --time-field ts --group-field service events.jsonl
    """
    reading = Reading(
        format=options["input_format"],
        text_field=options["text_field"],
        time_field=options["time_field"],
        time_format=options["time_format"],
        group_fields=options["group_fields"],
        group_pattern=options["group_regex"],
        start_pattern=options["start_regex"],
    )
    try:
        Decoder(reading, Partition("", 0), takes_fields=False)  # its options are checked here
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
            # While a pipe is silent time goes on; while a file waits for a slow reader it does not.
            quiet_after_us=round(POLL_S * US_PER_S) if is_live(paths) else FOREVER_US,
        ),
        summaries=Summaries(every_us=every_us, samples=3 if wants_samples else 0),
        limits=Limits(max_clusters=options["max_clusters"]),
    )
    with _progress(paths, quiet=options["quiet"]) as advance:
        pipe = Pipe(deduplicator, reading, output, sys.stdout.buffer, advance)
        signal = pipe.run(paths)
    if output.stats:
        _print_stats(pipe, deduplicator)
    ctx.exit(128 + signal if signal else int(pipe.failed))


@contextmanager
def _progress(paths: list[str], *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of files, where a person looks on and the output goes elsewhere."""
    # Not pathlib's: its is_file raises where a name is too long.
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]  # noqa: PTH113, PTH202
    shown = sys.stderr.isatty() and not sys.stdout.isatty() and len(sizes) == len(paths)
    if quiet or not shown:
        yield lambda _: None
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=sum(sizes))
        yield lambda size: progress.advance(task, size)


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

"""``stream-dedup dedup``: removes near-duplicates from files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import click
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import (
    Parsed,
    bytes_of_files,
    console,
    named_inputs,
    parse_duration,
    parse_mark,
    parse_moment,
    quiet_option,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
    write_whole,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.datasets import TableRun, check_output, format_of, refuse_options_of_lines
from stream_dedup.cli.inputs import POLL_S
from stream_dedup.cli.notes import Notes
from stream_dedup.cli.output import Output, PatternFile
from stream_dedup.cli.pipe import Pipe
from stream_dedup.cli.reading import reading_of, reading_options
from stream_dedup.cli.report import HTML_ROWS, Ranking, page
from stream_dedup.cli.rules import rules_of, rules_option
from stream_dedup.cli.terminal import note, wants_colour
from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import VALUES_EVERY, Summaries
from stream_dedup.clustering.windows import FILES_MAX_FUTURE_US, FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.modes import MODES
from stream_dedup.emit.summaries import MARK, label, variables_lines
from stream_dedup.errors import InputError
from stream_dedup.index.base import Limits
from stream_dedup.io.datasets import TableFormat
from stream_dedup.io.decoder import Times
from stream_dedup.io.files import expand, is_live, whole_file
from stream_dedup.model import FoundBy

BIN_US = 60 * US_PER_S
"""How often events of patterns are counted, for events about them."""


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option(
    "-e",
    "--emit",
    type=click.Choice(list(MODES)),
    help="merge writes first lines at once and repeats as counts; drop leaves duplicates out; "
    "annotate writes every event with its decision. By default merge; for a table, drop.",
)
@recipe_option
@set_option
@rules_option
@reading_options()
@click.option(
    "--output-format",
    type=click.Choice(["text", "jsonl"]),
    help="By default the format of the input.",
)
@click.option(
    "--since",
    type=Parsed("time", parse_moment),
    metavar="TIME",
    help="Only events from this time on: 2024-05-07T09:30, 2024-05-07, or 15m for fifteen minutes "
    "ago. Without --time-format and --time-field, times are found as by --time-format auto.",
)
@click.option(
    "--until",
    type=Parsed("time", parse_moment),
    metavar="TIME",
    help="Only events before this time.",
)
@click.option(
    "--summary-every",
    type=Parsed("duration", partial(parse_duration, off=None)),
    default="60s",
    show_default=True,
    help="How often the count of a growing cluster is written; off: only when it closes.",
)
@click.option(
    "--idle",
    type=Parsed("duration", partial(parse_duration, off=FOREVER_US)),
    default="1h",
    show_default=True,
    help="A cluster without an event for this long is closed; a similar line then opens a new one.",
)
@click.option(
    "--max-age",
    type=Parsed("duration", partial(parse_duration, off=FOREVER_US)),
    default="24h",
    show_default=True,
    help="A cluster is closed this long after its first event, even if it is still growing.",
)
@click.option(
    "--max-clusters",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="With more clusters, the least recently seen is closed. Each takes 2 to 4 kB.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Read at most N lines.")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Read the FILEs, and what is added to them until Ctrl-C, also after a rotation, as tail "
    "-F does.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Instead of lines, write a report at the end of the input: the N largest clusters.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["count", "first", "last"]),
    help="The order of this report: the largest clusters first, those that began last, or those "
    "seen last. --top N takes the first N of this order.",
)
@click.option(
    "--html",
    type=click.Path(),
    metavar="FILE",
    shell_complete=complete_file,
    help="Instead of lines, write this report to a page of HTML, which needs no other file.",
)
@click.option(
    "--patterns-out",
    type=click.Path(),
    metavar="FILE",
    shell_complete=complete_file,
    help="Write to this file, as JSON lines, which patterns are new, spike, or have vanished. "
    "Without --time-format and --time-field, times are found as by --time-format auto.",
)
@click.option(
    "--ids",
    is_flag=True,
    help="In text, write the ids of the cluster and the template before each first line.",
)
@click.option(
    "--parameters",
    is_flag=True,
    help="In JSON, write the values of each event's variables.",
)
@click.option(
    "--mark",
    type=Parsed("text", parse_mark),
    default=MARK,
    show_default=True,
    metavar="TEXT",
    help="What a summary in text begins with. If a line of the input may look like a summary, give "
    "a mark that nobody can guess.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour variables and counts in text; auto: on a terminal, unless NO_COLOR is set. On a "
    "terminal, and with colour, control characters are shown as escapes.",
)
@click.option("--stats", is_flag=True, help="Print statistics on standard error.")
@quiet_option
@click.pass_context
def dedup(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Merge near-duplicates in files, pipes, or standard input.

    Reads text or JSON lines from FILEs (plain, gzip, Zstandard, xz or bzip2; also patterns such as
    'logs/*.gz'), or from standard input, live, without FILE or for "-". Writes to standard output.
    Of a table (CSV, or Parquet with the extra "arrow") it compares one column, and writes the rows
    that it keeps as they were.

    \b
    stream-dedup dedup app.log
    kubectl logs -f deploy/api | stream-dedup dedup --summary-every 10s
    stream-dedup dedup --emit drop --stats 'logs/*.gz' > short.log
    stream-dedup dedup --emit annotate --output-format jsonl app.log
    stream-dedup dedup --time-field ts --group-field service events.jsonl
    stream-dedup dedup --follow /var/log/app.log
    stream-dedup dedup --top 20 app.log
    stream-dedup dedup --html report.html app.log
    stream-dedup dedup --patterns-out events.jsonl --follow app.log
    stream-dedup dedup -r text --text-field body comments.csv > clean.csv
    """
    paths = list(expand(files)) or ["-"]
    form = format_of(paths, options["input_format"])
    options["emit"] = options["emit"] or ("drop" if form else "merge")
    if form is not None:
        _dedup_tables(ctx, form, paths, options)
    chooses = options["since"] is not None or options["until"] is not None
    chooses = chooses or options["patterns_out"] is not None
    reading = reading_of(options, guesses_times=chooses and not options["time_field"])
    if options["follow"] and (not files or "-" in files):
        raise click.UsageError("--follow takes FILEs; a pipe is followed anyway")
    output = _output(options)
    deduplicator = _deduplicator(options, output, live=options["follow"] or is_live(paths))
    total = None if options["follow"] else bytes_of_files(paths)
    bar = not options["quiet"] and sys.stderr.isatty() and total is not None
    # Lines and a bar on one terminal would spoil each other.
    bar = bar and (not sys.stdout.isatty() or output.ranking is not None)
    times = Times(**{
        f"{name}_us": options[name] for name in ("since", "until") if options[name] is not None
    })  # fmt: skip
    with ExitStack() as stack:
        if options["patterns_out"]:
            file = stack.enter_context(_opened(options["patterns_out"]))
            output = replace(output, patterns=PatternFile(file, BIN_US, options["max_clusters"]))
        html = stack.enter_context(whole_file(options["html"])) if options["html"] else None
        with reading_progress(total, shown=bar) as advance:
            pipe = Pipe(deduplicator, reading, output, sys.stdout.buffer, advance, times)
            signal = pipe.run(paths, follow=options["follow"])
        if output.ranking is not None:
            rows = pipe.writer.rows(output.ranking, event_times=reading.event_times)
            if html is None:
                pipe.writer.report(rows, output.ranking)
                passed = sum(deduplicator.counts.passed.values())
                if passed:
                    note(f"{passed:,} of the events are in no cluster: nothing to compare")
            else:
                facts = _facts(deduplicator, *_read_by(pipe), output.ranking)
                text = page(named_inputs(paths), facts, rows, output.ranking.left_out())
                write_whole(html, text.encode("utf-8", "backslashreplace"))
    if output.stats:
        _print_stats(deduplicator, *_read_by(pipe), pipe.writer.largest)
    ctx.exit(128 + signal if signal else int(pipe.failed))


def _dedup_tables(
    ctx: click.Context, form: TableFormat, paths: list[str], options: dict[str, Any]
) -> None:
    """Leave out near-duplicate rows of tables, and end the command."""
    refuse_options_of_lines(ctx, form)
    check_output(form, options)
    reading = reading_of(options)
    limits = Limits(max_clusters=options["max_clusters"])
    recipe = recipe_of(options["recipe"], options["settings"])
    deduplicator = Deduplicator(
        recipe, limits=limits, keep_summaries=False, rules=rules_of(options["rules_path"])
    )
    run = TableRun(deduplicator, form, options, note)
    bar = not options["quiet"] and sys.stderr.isatty() and not sys.stdout.isatty()
    with reading_progress(bytes_of_files(paths), shown=bar) as advance:
        run.run(paths, sys.stdout.buffer, advance)
    Notes(deduplicator, reading, note).ended(0, 0)
    if options["stats"]:
        _print_stats(deduplicator, [("rows", run.rows)], [], Ranking(0))
    ctx.exit(int(run.failed))


def _output(options: dict[str, Any]) -> Output:
    ranking = None
    if options["top"] or options["order"] or options["html"]:
        if not MODES[options["emit"]].summaries:
            raise click.UsageError(
                f"--top, --sort and --html report clusters, not lines: leave out --emit "
                f"{options['emit']}"
            )
        most = HTML_ROWS if options["html"] else options["max_clusters"]
        ranking = Ranking(options["top"] or most, options["order"] or "count")
    if options["parameters"] and (options["output_format"] == "text" or ranking is not None):
        raise click.UsageError("--parameters is of events in JSON: give --output-format jsonl")
    colour = wants_colour(options["color"])
    return Output(
        MODES[options["emit"]],
        options["output_format"],
        options["stats"],
        options["limit"],
        step_us=min(_every_us(options) or FOREVER_US, options["idle"], options["max_age"]),
        mark=options["mark"],
        ids=options["ids"],
        parameters=options["parameters"],
        colour=colour,
        escape=colour or sys.stdout.isatty(),
        ranking=ranking,
    )


def _every_us(options: dict[str, Any]) -> int | None:
    """How often the counts of clusters are collected; None for only when they close."""
    every_us: int | None = options["summary_every"]
    lines = MODES[options["emit"]].summaries and not (
        options["top"] or options["order"] or options["html"]
    )
    if options["patterns_out"]:
        return min(every_us or BIN_US, BIN_US) if lines else BIN_US
    return every_us if lines else None


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open the file for events about patterns, unbuffered.

    Raises:
        InputError: it cannot be written.
    """
    try:
        file = open(path, "wb", buffering=0)  # noqa: SIM115, PTH123 -- closed below; any name
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    with file:
        yield file


def _deduplicator(options: dict[str, Any], output: Output, *, live: bool) -> Deduplicator:
    merges = output.mode.summaries
    wants_samples = options["html"] or (merges and output.format != "text")
    # Where the format is that of the input, summaries may turn out to be JSON.
    counts_values = output.stats or output.ranking is not None or (merges and output.format)
    values = VALUES if wants_samples or counts_values else 0
    return Deduplicator(
        recipe_of(options["recipe"], options["settings"]),
        windows=Windows(
            idle_us=options["idle"],
            max_age_us=options["max_age"],
            max_future_us=FILES_MAX_FUTURE_US,
            # Time passes while a pipe is silent, but not while a file waits for a slow reader.
            quiet_after_us=round(POLL_S * US_PER_S) if live else FOREVER_US,
        ),
        summaries=Summaries(
            every_us=_every_us(options),
            samples=3 if wants_samples else 0,
            values=values if output.format != "text" or output.stats or output.ranking else 0,
            values_every=1 if counts_values else VALUES_EVERY,
        ),
        limits=Limits(max_clusters=options["max_clusters"]),
        templates=output.ids,
        rules=rules_of(options["rules_path"]),
    )


VALUES = 64
"""Events of a cluster whose values are counted; every event may be one of them."""

JOINED_BY = {
    FoundBy.LEARNED: "found by learned word",
    FoundBy.WORDS: "found by its words",
    FoundBy.FINGERPRINT: "found by fingerprint",
}
"""How patterns that were not known joined a cluster."""


Numbers = Sequence[tuple[str, int]]


def _read_by(pipe: Pipe) -> tuple[Numbers, Numbers]:
    """What a pipe has read, and what else a person should know if it is not 0."""
    return [("lines", pipe.lines)], [
        ("events outside --since and --until", pipe.outside),
        ("events without a time", pipe.timeless),
        *((f"withheld: {kind}", count) for kind, count in sorted(pipe.writer.withheld.items())),
    ]


def _facts(
    deduplicator: Deduplicator, read: Numbers, others: Numbers, ended: Ranking
) -> list[tuple[str, str]]:
    """What was read, and what was found in it."""
    counts, size = deduplicator.counts, deduplicator.size()
    facts = [
        *((name, f"{number:,}") for name, number in read),
        ("events", f"{counts.events:,}"),
        ("clusters", f"{counts.new:,}"),
        ("duplicates", f"{counts.duplicates:,}"),
        ("share removed", f"{counts.removed:.1%}"),
        *((f"passed: {reason}", f"{n:,}") for reason, n in sorted(counts.passed.items())),
    ]
    if ended.clusters:  # they were ranked
        if deduplicator.recipe.match.learn:
            facts.append(("clusters in the end", f"{ended.clusters:,}"))
        facts.append(("clusters of one event", f"{ended.single:,}"))
    if deduplicator.recipe.match.learn:
        facts += [
            (name, f"{counts.rules.get(found_by, 0):,}") for found_by, name in JOINED_BY.items()
        ]
    for name, number in (
        *others,
        ("clusters closed for want of room", size.evicted),
        ("events new again because of it", size.new_again),
        ("searches cut short", size.truncated),
        ("times in the future", counts.clamped),
    ):
        if number:
            facts.append((name, f"{number:,}"))
    return facts


def _print_stats(
    deduplicator: Deduplicator, read: Numbers, others: Numbers, largest: Ranking
) -> None:
    out = console(err=True)
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    for name, value in _facts(deduplicator, read, others, largest):
        grid.add_row(name, value)
    out.print(grid)
    table = Table("count", "cluster", "pattern", title="largest clusters", title_justify="left")
    table.columns[0].justify = "right"
    for summary, _, _ in largest.entries():
        summary = deduplicator.describe(summary)  # noqa: PLW2901 -- the same, with its pattern
        text = f"{label(summary)} {summary.pattern}".strip()
        pattern = Text(text, overflow="ellipsis", no_wrap=True)
        table.add_row(f"{summary.count:,}", summary.cluster_hex, pattern)
        for line in variables_lines(summary.variables):
            table.add_row("", "", Text(f"  {line}", overflow="ellipsis", no_wrap=True))
    if table.row_count:
        out.print(table)

"""Options of commands that read events from files and pipes, and what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import click

from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import Decoder, DecoderOptions, Events
from stream_dedup.io.files import InputFile
from stream_dedup.io.formats import Transcoder
from stream_dedup.io.timestamps import GUESSED
from stream_dedup.model import Partition

T = TypeVar("T")

_input_format_option = click.option(
    "--input-format",
    type=click.Choice(["auto", "text", "jsonl", "csv", "parquet"]),
    default="auto",
    show_default=True,
    help="auto decides by each input's first line. A file is a table if its name ends in .csv or "
    ".tsv, also compressed, or if it begins as Parquet does.",
)

_encoding_option = click.option(
    "--encoding",
    default="",
    metavar="NAME",
    help="Encoding of the input, such as utf-16 or latin-1; the output is UTF-8. Without it, "
    "UTF-16 is recognised, and other bytes are taken as they are.",
)

_text_field_option = click.option(
    "--text-field",
    default="",
    metavar="PATH",
    help="JSON field with the text; by default message, msg, log or another common name.",
)

_time_field_option = click.option(
    "--time-field",
    default="",
    metavar="PATH|auto",
    help="JSON field with the time; auto: time, timestamp, ts or another common name.",
)

_time_format_option = click.option(
    "--time-format",
    default="",
    metavar="FORMAT",
    help="How times are written: iso, syslog, epoch, a format as for strptime, such as "
    "'%d/%b/%Y:%H:%M:%S %z', or auto: iso, syslog or that of access logs. Without it and without "
    "--time-field, the time is that of arrival.",
)

_group_field_option = click.option(
    "--group-field",
    "group_fields",
    multiple=True,
    metavar="PATH",
    help="JSON field: only events with equal values are compared. Repeatable.",
)

_group_regex_option = click.option(
    "--group-regex",
    default="",
    metavar="RE2",
    help="Only lines with equal named groups are compared, as in '(?P<app>[a-z]+):'.",
)

_group_prefix_option = click.option(
    "--group-prefix",
    type=click.Choice(["auto", "service", "off"]),
    default="auto",
    show_default=True,
    help="Lines with the prefix of kubectl logs --prefix or docker compose logs are compared only "
    "with lines of the same pod or container (auto), of the same service with all its replicas, or "
    "with all.",
)

_start_regex_option = click.option(
    "--start-regex",
    default="",
    metavar="RE2",
    help="Matches the first line of an event; other lines belong to the event before.",
)

_join_option = click.option(
    "--join",
    type=click.Choice(["auto", "off"]),
    default="auto",
    show_default=True,
    help="auto: in text, a stack trace is one event, with the line before it, and indented lines "
    "belong to the line before them. off: every line is an event.",
)

_TEXT_OPTIONS = (_input_format_option, _encoding_option, _text_field_option)
_TIME_OPTIONS = (_time_field_option, _time_format_option)
_EVENT_OPTIONS = (
    _group_field_option,
    _group_regex_option,
    _group_prefix_option,
    _start_regex_option,
    _join_option,
)

max_clusters_option = click.option(
    "--max-clusters",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="With more patterns, the least recently seen is closed. Each takes 2 to 4 kB.",
)


def reading_options(*, times: bool = True) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options that say how input is read, for `reading_of`.

    Args:
        times: whether the command needs the events' times.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        options = (*_TEXT_OPTIONS, *(_TIME_OPTIONS if times else ()), *_EVENT_OPTIONS)
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def reading_of(options: dict[str, Any], *, guesses_times: bool = False) -> DecoderOptions:
    """Return what the options say about reading; options that a command lacks are at defaults.

    Args:
        options: by their names, as click passes them.
        guesses_times: whether times are looked for where no option says how they are written.

    Raises:
        click.UsageError: an option is wrong, or two do not go together.
    """
    prefix: dict[str, Literal["", "source", "service"]] = {"auto": "source", "service": "service"}
    reading = DecoderOptions(
        format=options["input_format"],
        text_field=options["text_field"],
        time_field=options.get("time_field", ""),
        time_format=options.get("time_format", "") or (GUESSED if guesses_times else ""),
        group_fields=options["group_fields"],
        group_pattern=options["group_regex"],
        group_prefix=prefix.get(options["group_prefix"], ""),
        start_pattern=options["start_regex"],
        join=options["join"] == "auto",
        encoding=options["encoding"],
    )
    try:
        Decoder(reading, Partition("", 0), None)  # checks the options
        Transcoder(reading.encoding)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    if reading.group_fields and reading.group_pattern:
        raise click.UsageError("--group-field and --group-regex exclude each other")
    return reading


def read_events(
    path: str,
    reading: DecoderOptions,
    recipe: Recipe | None,
    *,
    limit: int = sys.maxsize,
    advance: Callable[[int], None] = lambda _: None,
    now_us: int = 0,
) -> Iterator[Events]:
    """Yield the events of an input.

    Args:
        path: a file's path; ``-`` for standard input.
        reading: how it is read.
        recipe: what counts as near; None: the texts alone are wanted.
        limit: lines read at most.
        advance: learns how many bytes were read.
        now_us: the clock, where times of events matter: a time may lack its year.

    Raises:
        InputError: it cannot be read to its end; all that could be read was yielded.
    """
    decoder = Decoder(reading, Partition(path, 0), recipe)
    size = 0
    with InputFile(path, encoding=reading.encoding) as source:
        while limit > 0 and (lines := source.read()) is not None:
            if len(lines.values) > limit:
                lines.values = lines.values[:limit]
                lines.pieces = set()
            limit -= len(lines.values)
            yield decoder.decode(lines, now_us)
            advance(lines.size - size)
            size = lines.size
        yield decoder.flush(now_us)

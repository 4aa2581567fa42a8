"""``stream-dedup find-all`` and ``find-clusters``: near fingerprints of whole files."""

from __future__ import annotations

import functools
import signal
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, TypeVar

import click
import msgspec
from rich.progress import TaskProgressColumn, TimeElapsedColumn

from stream_dedup import signals
from stream_dedup.cli.common import (
    Parsed,
    check_writable,
    parse_quantity,
    progress_bar,
    recipe_of,
    recipe_option,
    set_option,
    write_whole,
)
from stream_dedup.cli.datasets import open_table
from stream_dedup.cli.reading import read_events
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.datasets import table_format
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.io.files import InputFile, Lines, whole_file
from stream_dedup.offline import kernel
from stream_dedup.offline.clusters import cluster_words, merge_into
from stream_dedup.offline.lines import LineClusters, TextClusters, connected
from stream_dedup.offline.pairs import Effort, LinePairs, pair_words
from stream_dedup.offline.reading import BadFingerprintError, Format, read_words
from stream_dedup.offline.reference import Bytes, word_bytes
from stream_dedup.offline.sorting import Sorter
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import offline_layout
from stream_dedup.units import read_size

T = TypeVar("T")

PAIRS_A_BATCH = 4096
CLUSTERS_A_BATCH = 1024


# ---------------------------------------------------------------- options of both commands


def _size(text: str) -> int:
    """Parse a size such as ``512MiB`` or ``2GB``, in bytes."""
    return parse_quantity(text, read_size, "size; write 512MiB, 2GiB or 100000")


def _shard(text: str) -> tuple[int, int]:
    """Parse the number of a shard and how many there are, as in ``1/4``."""
    number, slash, count = text.partition("/")
    if slash and all(part.isascii() and part.isdigit() for part in (number, count)):
        shard, shards = int(number[:9]), int(count[:9])
        if 1 <= shard <= shards:
            return shard, shards
    raise ValueError(f"{text!r} is not a shard; write I/N, from 1/N to N/N, as in 2/4")


@dataclass(frozen=True, slots=True)
class FindOptions:
    """The options of both commands.

    Attributes:
        input: path, or ``-``.
        output: path, or ``-``.
        blocks: None for the planner's choice.
        distance: k; None for the recipe's.
        width: bits of a fingerprint.
        form: how the input writes numbers.
        json: whether the output is JSON, otherwise TSV.
        effort: threads, memory, and shards.
        quiet: whether to show no progress.
    """

    input: str
    output: str
    blocks: int | None
    distance: int | None
    width: int
    form: Format
    json: bool
    effort: Effort
    quiet: bool

    def layout(self, k: int, width: int, count: int) -> Layout:
        """Choose the layout for `count` fingerprints.

        Raises:
            click.UsageError: distance, blocks and width do not fit together.
        """
        try:
            return offline_layout(width, k, count, self.blocks)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    def words(self) -> Iterator[Bytes]:
        """Read the fingerprints of the input.

        Raises:
            click.UsageError: something in it is not a fingerprint.
        """
        try:
            yield from read_words(self.input, self.form, self.width)
        except BadFingerprintError as error:
            raise click.UsageError(str(error)) from error


_PATH = click.Path(dir_okay=False, allow_dash=True)
_OUTPUT = click.Path(allow_dash=True)

_OPTIONS = (
    click.option("-i", "--input", "input_path", type=_PATH, default="-", show_default=True,
                 metavar="FILE", help="Fingerprints, one a line; - is standard input."),
    click.option("-o", "--output", "output_path", type=_OUTPUT, default="-", show_default=True,
                 metavar="FILE",
                 help="The file appears under this name when it is complete; - is standard "
                 "output."),
    click.option("-b", "--blocks", type=click.IntRange(1, 128), metavar="M",
                 help="Blocks that fingerprints are cut into; by default the planner chooses."),
    click.option("--width", type=click.Choice(["32", "64", "128"]), default="64",
                 show_default=True, help="Bits of a fingerprint."),
    click.option("--input-format", type=click.Choice(["decimal", "hex", "binary"]),
                 default="decimal", show_default=True,
                 help="binary has 8 bytes for each fingerprint (16 at 128 bits) in the machine's "
                 "byte order. With hex the output is hexadecimal too."),
    click.option("--output-format", type=click.Choice(["json", "tsv"]), default="json",
                 show_default=True, help="json writes one array a line."),
    click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True,
                 metavar="N",
                 help="Threads that compare, or hash texts; the output does not depend on it."),
    click.option("--memory", type=Parsed("size", _size), default="1GiB",
                 show_default=True, metavar="SIZE",
                 help="Approximate limit on memory; the rest goes to temporary files (TMPDIR)."),
    click.option("--shards", type=Parsed("shard", _shard), default="1/1",
                 show_default=True, metavar="I/N",
                 help="Do the I-th of N equal parts of the work. All parts together give the "
                 "whole result."),
    click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
)  # fmt: skip


def find_options(*, distance_required: bool) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options of both commands, passed as one argument, ``options``."""

    def decorated(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def gathered(**given: Any) -> T:  # noqa: ANN401 -- as click passes it
            for number in signals.ending():
                if number != signal.SIGINT:
                    signal.signal(number, _exit)
            shard, shards = given.pop("shards")
            options = FindOptions(
                input=given.pop("input_path"),
                output=given.pop("output_path"),
                blocks=given.pop("blocks"),
                distance=given.pop("distance"),
                width=int(given.pop("width")),
                form=given.pop("input_format"),
                json=given.pop("output_format") == "json",
                effort=Effort(given.pop("threads"), given.pop("memory"), shard, shards),
                quiet=given.pop("quiet"),
            )
            check_writable(options.output)
            return command(options=options, **given)

        distance = click.option(
            "-d",
            "--distance",
            type=click.IntRange(0, 127),
            required=distance_required,
            metavar="K",
            help="The largest distance that counts as near"
            + ("." if distance_required else "; with --text, the recipe's if not given."),
        )
        decorated: Callable[..., T] = gathered
        for option in reversed((*_OPTIONS[:3], distance, *_OPTIONS[3:])):
            decorated = option(decorated)
        return decorated

    return decorated


def _exit(number: int, _frame: object) -> None:
    """End as the signal asks, but remove a half-written output."""
    raise SystemExit(128 + number)


def comparing_progress(*, quiet: bool) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show how many ranges are compared; what it gives is called with those done, and all."""
    columns = TaskProgressColumn(), TimeElapsedColumn()
    return progress_bar("ranges are compared", "comparing", *columns, quiet=quiet)


# ---------------------------------------------------------------- find-all


@click.command("find-all")
@find_options(distance_required=True)
@click.option("--max-pairs", type=click.IntRange(0), metavar="N",
              help="Write at most N pairs; a message on standard error says if there are "
              "more.")  # fmt: skip
@click.option("--lines", is_flag=True,
              help="Write pairs of line numbers (from 1), also of lines with equal fingerprints: n "
              "equal lines give n(n-1)/2 pairs.")  # fmt: skip
def find_all(options: FindOptions, max_pairs: int | None, lines: bool) -> None:
    """Find all pairs of near fingerprints in a file.

    A pair is two different fingerprints within the distance, the smaller first; equal fingerprints
    count once. Pairs are written as JSON arrays, or as TSV with the distance, always in the same
    order. Memory: 8 bytes a fingerprint, and 16 more for each fingerprint that a thread works on.

    \b
    stream-dedup find-all --distance 3 --input fingerprints.txt --output pairs.json
    stream-dedup find-all -d 6 -i part.bin --input-format binary --shards 2/4 >pairs-2.json
    """
    assert options.distance is not None
    options.layout(options.distance, options.width, 1)
    sorter = Sorter(options.width, options.effort.memory_bytes)
    by_line = LinePairs(options.width) if lines else None
    for words in options.words():
        sorter.add(words)
        if by_line is not None:
            by_line.add(words)
    with (
        sorter.finish() as distinct,
        whole_file(options.output) as out,
        comparing_progress(quiet=options.quiet) as progress,
    ):
        layout = options.layout(options.distance, options.width, distinct.count)
        found = pair_words(distinct, layout, options.effort, progress)
        if by_line is None:
            texts = _pair_texts(found, options, max_pairs)
        else:
            pairs = by_line.pairs(found, equal=options.effort.shard == 1)
            texts = _line_texts(pairs, options.json, max_pairs)
        for text in texts:
            write_whole(out, text)


def _pair_texts(found: Iterator[bytes], options: FindOptions, most: int | None) -> Iterator[bytes]:
    """Format pairs as text, in batches."""
    width, hexadecimal = options.width, options.form == "hex"
    size = 2 * word_bytes(width)
    left = most
    for pairs in found:
        if left is not None and len(pairs) > left * size:
            yield kernel.rows(pairs[: left * size], None, width, hexadecimal, options.json)
            _say_more(most)
            return
        if left is not None:
            left -= len(pairs) // size
        yield kernel.rows(pairs, None, width, hexadecimal, options.json)


def _line_texts(
    pairs: Iterator[tuple[int, int, int]], json: bool, most: int | None
) -> Iterator[bytes]:
    row = "[{}, {}]\n" if json else "{}\t{}\t{}\n"
    wanted = islice(pairs, most)
    while batch := list(islice(wanted, PAIRS_A_BATCH)):
        yield "".join(row.format(*pair) for pair in batch).encode()
    if most is not None and next(pairs, None) is not None:
        _say_more(most)


def _say_more(most: int | None) -> None:
    click.echo(f"stream-dedup: there are more than {most} pairs (--max-pairs)", err=True)


# ---------------------------------------------------------------- find-clusters


@click.command("find-clusters")
@find_options(distance_required=False)
@click.option("--lines", is_flag=True,
              help="Write clusters of line numbers (from 1); lines with equal fingerprints are in "
              "one cluster.")  # fmt: skip
@click.option("--text", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="Fingerprint the lines of this file, instead of reading --input, and write "
              "clusters of line numbers; of a table (CSV, Parquet) its rows, and row "
              "numbers.")  # fmt: skip
@click.option("--text-field", default="", metavar="PATH",
              help="With --text: column of the table, or field of the JSON lines, with the "
              "text.")  # fmt: skip
@recipe_option
@set_option
@click.option("--merge", "parts", type=click.Path(dir_okay=False), multiple=True, metavar="FILE",
              help="Join the clusters of shards (JSON), instead of reading --input. "
              "Repeatable.")  # fmt: skip
@click.pass_context
def find_clusters(
    ctx: click.Context,
    options: FindOptions,
    lines: bool,
    text: str | None,
    text_field: str,
    recipe: str,
    settings: tuple[str, ...],
    parts: tuple[str, ...],
) -> None:
    """Find the clusters of near fingerprints in a file.

    A cluster is a connected component of two or more fingerprints: each member is within the
    distance of another member. Clusters are written as JSON arrays, or as TSV, one a line; members
    ascend, and clusters are ordered by their smallest member.

    With --text the recipe decides fingerprint, width and distance. Lines without words are in no
    cluster. Two lines connect only if the recipe's verification confirms that they are alike.
    Recipes of bands take neither --distance, --blocks nor --shards.

    A file is a table if its name ends in .csv or .tsv, also compressed, or if it begins as Parquet
    does; its rows count from 1, without the header.

    \b
    stream-dedup find-clusters --distance 3 --input fingerprints.txt
    stream-dedup find-clusters --text app.log --recipe logs
    stream-dedup find-clusters --text comments.csv --text-field body --recipe text
    stream-dedup find-clusters --merge part-1.json --merge part-2.json
    """
    _check_given(ctx, options, text is not None, bool(parts))
    if parts:
        with whole_file(options.output) as out:
            _write_clusters(out, *_merged(parts, options), options)
    elif text is not None:
        _clusters_of_text(text, text_field, recipe_of(recipe, settings), options)
    else:
        assert options.distance is not None
        options.layout(options.distance, options.width, 1)
        _clusters_of_fingerprints(options, options.distance, lines)


def _check_given(ctx: click.Context, options: FindOptions, text: bool, merge: bool) -> None:
    """Refuse options that would have no effect."""
    given = {
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    }
    of_text = {"recipe": "--recipe", "settings": "--set", "text_field": "--text-field"}
    of_input = {"input_path": "--input", "width": "--width", "input_format": "--input-format",
                "lines": "--lines"}  # fmt: skip
    if merge:
        only = {**of_text, "input_path": "--input", "lines": "--lines", "text": "--text",
                "distance": "--distance", "blocks": "--blocks", "shards": "--shards"}  # fmt: skip
        _refuse(given, only, "--merge")
    elif text:
        _refuse(given, of_input, "--text")
    else:
        if options.distance is None:
            raise click.UsageError("give --distance K, or lines with --text FILE")
        for name, option in of_text.items():
            if name in given:
                raise click.UsageError(f"{option} goes with --text FILE alone")


def _refuse(given: set[str], options: dict[str, str], beside: str) -> None:
    for name, option in options.items():
        if name in given:
            raise click.UsageError(f"{option} does not go with {beside}")


def _clusters_of_fingerprints(options: FindOptions, k: int, lines: bool) -> None:
    width, effort = options.width, options.effort
    if lines:
        by_line = LineClusters(width, effort.memory_bytes)
        line = 1
        for words in options.words():
            count = len(words) // word_bytes(width)
            by_line.add(words, range(line, line + count))
            line += count
        _write_line_clusters(by_line, k, options)
        return
    sorter = Sorter(width, effort.memory_bytes)
    for words in options.words():
        sorter.add(words)
    with sorter.finish() as distinct, whole_file(options.output) as out:
        layout = options.layout(k, width, distinct.count)
        with comparing_progress(quiet=options.quiet) as progress:
            components = connected(distinct, layout, effort, progress)
        _write_clusters(out, *cluster_words(components, width), options)


def _clusters_of_text(path: str, text_field: str, recipe: Recipe, options: FindOptions) -> None:
    k = recipe.match.k if options.distance is None else options.distance
    if recipe.fingerprint.kind == "bands":
        given = {"--distance": options.distance, "--blocks": options.blocks,
                 "--shards": options.effort.shards > 1}  # fmt: skip
        for name, value in given.items():
            if value is not None and value is not False:
                raise click.UsageError(f"{name} does not go with recipe {recipe.name}, of bands")
    else:
        options.layout(k, recipe.fingerprint.width, 1)
    by_line = TextClusters(recipe, options.effort.memory_bytes, options.effort.threads)
    for values, numbers in _texts(path, text_field, recipe):
        by_line.add(values, numbers)
    _write_line_clusters(by_line, k, options)


def _texts(path: str, text_field: str, recipe: Recipe) -> Iterator[tuple[list[bytes], list[int]]]:
    """Yield what is compared of a file's texts, and the numbers of their lines or rows."""
    form = table_format(path)
    if form is not None:
        with open_table(path, form, text_field, recipe=recipe) as table:
            for rows in table.rows():
                kept = [row for row in range(len(rows.texts)) if row not in rows.passed]
                yield [rows.values[row] for row in kept], [rows.first + row for row in kept]
            for note in table.notes:
                click.echo(f"stream-dedup: {note}", err=True)
    elif text_field:
        reading = DecoderOptions("jsonl", text_field)
        for events in read_events(path, reading, recipe):
            batch = events.batch
            kept = [row for row in range(len(batch.values)) if row not in batch.passed]
            yield [batch.values[row] for row in kept], [events.numbers[row] for row in kept]
    else:
        with InputFile(path) as source:
            while (lines := source.read()) is not None:
                yield _whole_lines(lines)


def _whole_lines(lines: Lines) -> tuple[list[bytes], list[int]]:
    """Return the complete lines and their numbers; pieces of longer ones are left out."""
    values = []
    numbers = []
    number = lines.first
    for index, value in enumerate(lines.values):
        if index not in lines.pieces and index not in lines.tails:
            values.append(value)
            numbers.append(number)
        number += index not in lines.pieces
    return values, numbers


def _write_line_clusters(
    by_line: LineClusters | TextClusters, k: int, options: FindOptions
) -> None:
    with whole_file(options.output) as out:
        with comparing_progress(quiet=options.quiet) as progress:
            positions, ends = by_line.find(k, options.blocks, options.effort, progress)
        _write_clusters(out, memoryview(positions).cast("B"), ends, options, line_numbers=True)


def _write_clusters(
    out: BinaryIO,
    words: Bytes,
    ends: array[int],
    options: FindOptions,
    *,
    line_numbers: bool = False,
) -> None:
    """Write clusters as text, in batches."""
    width = 64 if line_numbers else options.width
    hexadecimal = options.form == "hex" and not line_numbers
    size = word_bytes(width)
    view = memoryview(words)
    start = 0
    for first in range(0, len(ends), CLUSTERS_A_BATCH):
        some = ends[first : first + CLUSTERS_A_BATCH]
        relative = array("Q", (end - start for end in some))
        part = view[start * size : some[-1] * size]
        write_whole(out, kernel.rows(part, relative, width, hexadecimal, options.json))
        start = some[-1]


def _merged(parts: tuple[str, ...], options: FindOptions) -> tuple[bytearray, array[int]]:
    """Join the clusters of several files."""
    components = kernel.Components(options.width)
    for path in parts:
        merge_into(components, _arrays(path, options), options.width)
    return cluster_words(components, options.width)


def _arrays(path: str, options: FindOptions) -> Iterator[list[int]]:
    hexadecimal = options.form == "hex"
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(
        list[str] if hexadecimal else list[int]
    )
    with InputFile(path, max_line_bytes=sys.maxsize) as source:  # a cluster is one line
        while (lines := source.read()) is not None:
            for number, value in enumerate(lines.values, lines.first):
                try:
                    members = decoder.decode(value)
                    numbers = [int(member, 16) for member in members] if hexadecimal else members
                    good = all(0 <= member < 1 << options.width for member in numbers)
                except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
                    good = False
                if not good:
                    kind = '"hexadecimal"' if hexadecimal else "decimal"
                    raise click.UsageError(
                        f"{path}: line {number}: is no JSON array of {kind} numbers of "
                        f"{options.width} bits; --width and --input-format must be those of the "
                        "parts"
                    )
                yield numbers

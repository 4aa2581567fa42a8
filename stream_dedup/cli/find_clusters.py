"""``stream-dedup find-clusters``: what near fingerprints of a file connect."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from stream_dedup.cli.find_options import Run, find_options, progress_bar
from stream_dedup.cli.options import recipe_of, recipe_option, set_option
from stream_dedup.cli.show import write_whole
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.io.files import InputFile, Lines
from stream_dedup.offline.clusters import (
    LineClusters,
    cluster_words,
    connected,
    merge_into,
    text_words,
)
from stream_dedup.offline.kernel import kernel
from stream_dedup.offline.reading import BadFingerprintError, read_words
from stream_dedup.offline.spill import Sorter
from stream_dedup.offline.words import Bytes, word_bytes
from stream_dedup.offline.writing import whole_file

ROWS = 1024
"""Clusters written at once."""


@click.command("find-clusters")
@find_options(distance_required=False)
@click.option("--lines", is_flag=True,
              help="Clusters of line numbers (from 1), equal ones too.")  # fmt: skip
@click.option("--text", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="Fingerprint the lines of this file, instead of --input; gives clusters of line "
              "numbers.")  # fmt: skip
@recipe_option
@set_option
@click.option("--merge", "parts", type=click.Path(dir_okay=False), multiple=True, metavar="FILE",
              help="Make the clusters of shards (JSON) whole, instead of --input. "
              "Repeatable.")  # fmt: skip
@click.pass_context
def find_clusters(
    ctx: click.Context,
    run: Run,
    lines: bool,
    text: str | None,
    recipe: str,
    settings: tuple[str, ...],
    parts: tuple[str, ...],
) -> None:
    """Find the clusters that near fingerprints in a file make.

    A cluster is a connected component of two or more: each member is within the distance of
    another member. As JSON arrays, or as TSV, one cluster a line; members ascend, and clusters
    follow their smallest.

    With --text the recipe gives fingerprint, width and distance; lines without words are in no
    cluster, and the recipe's verification takes no part.

    \b
    stream-dedup find-clusters --distance 3 --input fingerprints.txt
    stream-dedup find-clusters --text app.log --recipe logs
    stream-dedup find-clusters --merge part-1.json --merge part-2.json
    """
    _check_given(ctx, run, text is not None, bool(parts))
    if parts:
        with whole_file(run.output) as out:
            _write(out, *_merged(parts, run), run.width, run)
    elif text is not None:
        _of_text(text, recipe_of(recipe, settings), run)
    else:
        assert run.distance is not None
        run.layout(run.distance, run.width, 1)
        try:
            _of_fingerprints(run, run.distance, lines)
        except BadFingerprintError as error:
            raise click.UsageError(str(error)) from error


def _check_given(ctx: click.Context, run: Run, text: bool, merge: bool) -> None:
    """Options that would be passed over are an error."""
    given = {
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    }
    of_text = {"recipe": "--recipe", "settings": "--set"}
    of_input = {"input_path": "--input", "width": "--width", "input_format": "--input-format",
                "lines": "--lines"}  # fmt: skip
    if merge:
        only = {**of_text, "input_path": "--input", "lines": "--lines", "text": "--text",
                "distance": "--distance", "blocks": "--blocks", "shards": "--shards"}  # fmt: skip
        _refuse(given, only, "--merge")
    elif text:
        _refuse(given, of_input, "--text")
    else:
        if run.distance is None:
            raise click.UsageError("give --distance K, or lines with --text FILE")
        for name, option in of_text.items():
            if name in given:
                raise click.UsageError(f"{option} goes with --text FILE alone")


def _refuse(given: set[str], options: dict[str, str], beside: str) -> None:
    for name, option in options.items():
        if name in given:
            raise click.UsageError(f"{option} does not go with {beside}")


def _of_fingerprints(run: Run, k: int, lines: bool) -> None:
    if lines:
        by_line = LineClusters(run.width, run.effort.memory_bytes)
        line = 1
        for words in read_words(run.input, run.form, run.width):
            count = len(words) // word_bytes(run.width)
            by_line.add(words, range(line, line + count))
            line += count
        _write_lines(by_line, k, run)
        return
    sorter = Sorter(run.width, run.effort.memory_bytes)
    for words in read_words(run.input, run.form, run.width):
        sorter.add(words)
    with sorter.finish() as distinct, whole_file(run.output) as out:
        layout = run.layout(k, run.width, distinct.count)
        with progress_bar(quiet=run.quiet) as progress:
            components = connected(distinct, layout, run.effort, progress)
        _write(out, *cluster_words(components, run.width), run.width, run)


def _of_text(path: str, recipe: Recipe, run: Run) -> None:
    width = recipe.fingerprint.width
    k = recipe.match.k if run.distance is None else run.distance
    run.layout(k, width, 1)
    fingerprinter = Fingerprinter(recipe)
    by_line = LineClusters(width, run.effort.memory_bytes)
    source = InputFile(path)
    try:
        while (lines := source.read()) is not None:
            values, numbers = _whole_lines(lines)
            words, chosen = text_words(fingerprinter, values)
            by_line.add(words, (numbers[index] for index in chosen))
    finally:
        source.close()
    _write_lines(by_line, k, run)


def _whole_lines(lines: Lines) -> tuple[list[bytes], list[int]]:
    """The lines that came whole, and their numbers; pieces of a longer one are passed over."""
    values = []
    numbers = []
    number = lines.first
    for index, value in enumerate(lines.values):
        if index not in lines.pieces and index not in lines.tails:
            values.append(value)
            numbers.append(number)
        number += index not in lines.pieces
    return values, numbers


def _write_lines(by_line: LineClusters, k: int, run: Run) -> None:
    with whole_file(run.output) as out:
        with progress_bar(quiet=run.quiet) as progress:
            positions, ends = by_line.find(k, run.blocks, run.effort, progress)
        _write(out, memoryview(positions).cast("B"), ends, 64, run, decimal=True)


def _write(
    out: Any,  # noqa: ANN401 -- a binary file
    words: Bytes,
    ends: array[int],
    width: int,
    run: Run,
    *,
    decimal: bool = False,
) -> None:
    """Clusters as text, in batches."""
    size = word_bytes(width)
    view = memoryview(words)
    start = 0
    for first in range(0, len(ends), ROWS):
        some = ends[first : first + ROWS]
        relative = array("Q", (end - start for end in some))
        hexadecimal = run.form == "hex" and not decimal
        part = view[start * size : some[-1] * size]
        write_whole(out, kernel().rows(part, relative, width, hexadecimal, run.json))
        start = some[-1]


def _merged(parts: tuple[str, ...], run: Run) -> tuple[bytearray, array[int]]:
    """The clusters that those of the files make together."""
    components = kernel().Components(run.width)
    for path in parts:
        merge_into(components, _arrays(path, run), run.width)
    return cluster_words(components, run.width)


def _arrays(path: str, run: Run) -> Iterator[list[int]]:
    source = InputFile(path)
    hexadecimal = run.form == "hex"
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(
        list[str] if hexadecimal else list[int]
    )
    try:
        while (lines := source.read()) is not None:
            for number, value in enumerate(lines.values, lines.first):
                try:
                    members = decoder.decode(value)
                    numbers = [int(member, 16) for member in members] if hexadecimal else members
                    good = all(0 <= member < 1 << run.width for member in numbers)
                except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
                    good = False
                if not good:
                    kind = '"hexadecimal"' if hexadecimal else "decimal"
                    raise click.UsageError(
                        f"{path}: line {number}: is no JSON array of {kind} numbers of {run.width} "
                        "bits; --width and --input-format must be those of the parts"
                    )
                yield numbers
    finally:
        source.close()

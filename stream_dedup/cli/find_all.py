"""``stream-dedup find-all``: all pairs of near fingerprints in a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from stream_dedup.cli.find_options import Run, find_options, progress_bar
from stream_dedup.cli.show import write_whole
from stream_dedup.offline.kernel import kernel
from stream_dedup.offline.pairs import LinePairs, pair_words
from stream_dedup.offline.reading import BadFingerprintError, read_words
from stream_dedup.offline.spill import Sorter
from stream_dedup.offline.words import word_bytes
from stream_dedup.offline.writing import whole_file

_BATCH = 4096


@click.command("find-all")
@find_options(distance_required=True)
@click.option("--max-pairs", type=click.IntRange(0), metavar="N",
              help="Stop after so many; standard error says if there were more.")  # fmt: skip
@click.option("--lines", is_flag=True,
              help="Pairs of line numbers (from 1), those of equal fingerprints too: n equal lines "
              "are n(n-1)/2 pairs.")  # fmt: skip
def find_all(run: Run, max_pairs: int | None, lines: bool) -> None:
    """Find all pairs of near fingerprints in a file.

    A pair is two different fingerprints within the distance, the smaller first; equal ones count
    as one. As JSON arrays, or as TSV with the distance. The order is always the same. Memory: 8
    bytes a fingerprint, and 16 more for each thread's share of them.

    \b
    stream-dedup find-all --distance 3 --input fingerprints.txt --output pairs.json
    stream-dedup find-all -d 6 -i part.bin --input-format binary --shards 2/4 >pairs-2.json
    """
    assert run.distance is not None
    run.layout(run.distance, run.width, 1)
    sorter = Sorter(run.width, run.effort.memory_bytes)
    by_line = LinePairs(run.width) if lines else None
    try:
        for words in read_words(run.input, run.form, run.width):
            sorter.add(words)
            if by_line is not None:
                by_line.add(words)
    except BadFingerprintError as error:
        raise click.UsageError(str(error)) from error
    with (
        sorter.finish() as distinct,
        whole_file(run.output) as out,
        progress_bar(quiet=run.quiet) as progress,
    ):
        layout = run.layout(run.distance, run.width, distinct.count)
        found = pair_words(distinct, layout, run.effort, progress)
        if by_line is None:
            texts = _texts(found, run, max_pairs)
        else:
            texts = _line_texts(
                by_line.pairs(found, equal=run.effort.shard == 1), run.json, max_pairs
            )
        for text in texts:
            write_whole(out, text)


def _texts(found: Iterator[bytes], run: Run, most: int | None) -> Iterator[bytes]:
    """The pairs as text, in batches."""
    rows = kernel().rows
    size = 2 * word_bytes(run.width)
    left = most
    for pairs in found:
        if left is not None and len(pairs) > left * size:
            yield rows(pairs[: left * size], None, run.width, run.form == "hex", run.json)
            _say_more(most)
            return
        if left is not None:
            left -= len(pairs) // size
        yield rows(pairs, None, run.width, run.form == "hex", run.json)


def _line_texts(
    pairs: Iterator[tuple[int, int, int]], json: bool, most: int | None
) -> Iterator[bytes]:
    row = "[{}, {}]\n" if json else "{}\t{}\t{}\n"
    wanted = islice(pairs, most)
    while batch := list(islice(wanted, _BATCH)):
        yield "".join(row.format(*pair) for pair in batch).encode()
    if most is not None and next(pairs, None) is not None:
        _say_more(most)


def _say_more(most: int | None) -> None:
    click.echo(f"stream-dedup: there are more than {most} pairs (--max-pairs)", err=True)

"""``stream-dedup vocabulary``: weights learnt from a corpus, once."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.options import recipe_of, recipe_option, set_option
from stream_dedup.errors import InputError
from stream_dedup.features.vocabulary import Counts, Origin, table
from stream_dedup.io.decoder import Decoder, Reading
from stream_dedup.io.files import InputFile, expand
from stream_dedup.model import Batch, Partition

MAX_FEATURES = 900_000
"""A table of weights has a million lines at most."""


@click.group()
def vocabulary() -> None:
    """Learn weights from a corpus, once; recipes read them from the file."""


@vocabulary.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@click.option("-o", "--output", required=True, metavar="FILE", shell_complete=complete_file,
              help="The table to write.")  # fmt: skip
@recipe_option
@set_option
@click.option(
    "--weights",
    "formula",
    type=click.Choice(["idf", "smooth"]),
    default="idf",
    show_default=True,
    help="How a document frequency becomes a weight; smooth leaves common features a say.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Leave out features of fewer documents.",
)
@click.option(
    "--max-words",
    type=click.IntRange(1, MAX_FEATURES),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Keep the N most frequent features.",
)
@click.option(
    "--input-format",
    type=click.Choice(["auto", "text", "jsonl"]),
    default="auto",
    show_default=True,
    help="auto looks at each input's first line.",
)
@click.option("--text-field", default="", metavar="PATH", help="JSON field that holds the text.")
@click.option(
    "--start-regex",
    default="",
    metavar="RE2",
    help="A document's first line matches it; other lines belong to the one before.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Write over a table that is there. Recipes that name it get another digest.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar, and no last line.")
def build(files: tuple[str, ...], output: str, **options: Any) -> None:  # noqa: ANN401
    """Count in how many documents each feature stands, and write weights.

    Each line of FILEs, or JSON event, is a document (plain, gzip or Zstandard; patterns such as
    'logs/*.gz' too; "-" is standard input). Features are taken as the recipe takes them: words,
    n-grams, letters, syllables. The rarer, the heavier: from 1 to 1000.

    Give the table to the recipe as features.weights.file, with features.weights.default = 1000 for
    what is not in it. It stays as it is: weights that went on learning would give one text other
    fingerprints from day to day.

    \b
    stream-dedup vocabulary build --recipe words -o vocab.tsv 'archive/*.txt'
    stream-dedup vocabulary build -r words --set features.extractor=syllables -o pairs.tsv a.jsonl
    """
    chosen = recipe_of(options["recipe"], options["settings"])
    reading = Reading(
        format=options["input_format"],
        text_field=options["text_field"],
        start_pattern=options["start_regex"],
    )
    try:
        Decoder(reading, Partition("", 0), takes_fields=False)  # its options are checked here
    except InputError as error:
        raise click.UsageError(str(error)) from error
    place = _place(output, force=options["force"])
    counts = Counts(chosen)
    paths = list(expand(files))
    passed: Counter[str] = Counter()
    with _progress(paths, quiet=options["quiet"]) as advance:
        for path in paths:
            _count(counts, path, reading, passed, advance)
    for reason, number in sorted(passed.items()):
        click.echo(f"stream-dedup: left out, {reason}: {number:,}", err=True)
    if not counts.documents:
        raise InputError("no document has a feature: the inputs are empty, or none is as expected")
    found = counts.frequent(options["min_count"], options["max_words"])
    if not found:
        raise InputError(f"no feature stands in {options['min_count']} documents; give --min-count")
    origin = Origin(chosen, options["formula"], options["min_count"])
    write_atomically(place, table(counts, found, origin))
    if not options["quiet"]:
        click.echo(f"{output}: {len(found):,} features of {counts.documents:,} documents", err=True)


def _place(output: str, *, force: bool) -> Path:
    """Where the table is to be written; it is better to know before hours of counting.

    Raises:
        click.BadParameter: it cannot be, or must not.
    """
    place = os.path.realpath(output)
    problem = ""
    if not os.path.isdir(os.path.dirname(place)):  # noqa: PTH112, PTH120 -- pathlib's may raise
        problem = "lies in no folder that is there; make it first"
    elif os.path.lexists(place) and not os.path.isfile(place):  # noqa: PTH113 -- as above
        problem = "is no file; give a file's name"
    elif os.path.lexists(place) and not force:
        problem = "is there already; give another name, or --force"
    elif not os.access(os.path.dirname(place), os.W_OK):  # noqa: PTH120 -- as above
        problem = "cannot be written; check the folder's permissions"
    if problem:
        raise click.BadParameter(f"{output!r} {problem}", param_hint="'--output'")
    return Path(place)


def _count(
    counts: Counts,
    path: str,
    reading: Reading,
    passed: Counter[str],
    advance: Callable[[int], None],
) -> None:
    """Count the documents of one input, and the lines that are none by their reasons.

    Raises:
        InputError: it cannot be read to its end.
    """
    source = InputFile(path)
    decoder = Decoder(reading, Partition(path, 0), takes_fields=counts.takes_fields)
    size = 0
    try:
        while (lines := source.read()) is not None:
            _add(counts, decoder.decode(lines, 0).batch, passed)
            advance(lines.size - size)
            size = lines.size
        _add(counts, decoder.flush(0).batch, passed)
    finally:
        source.close()


def _add(counts: Counts, batch: Batch, passed: Counter[str]) -> None:
    documents = batch.documents or [None] * len(batch.values)
    passed.update(batch.passed.values())
    for index, (value, document) in enumerate(zip(batch.values, documents, strict=True)):
        if index in batch.passed:
            continue
        try:
            counts.add(value, document)
        except Exception as error:  # noqa: BLE001 -- another's code: one event must not stop all
            passed[f"extractor failed with {type(error).__name__}"] += 1


def write_atomically(place: Path, lines: Iterable[str]) -> None:
    """Write a file that is whole or not there at all, whatever happens meanwhile.

    Raises:
        InputError: it cannot be written.
    """
    scratch = ""
    try:
        handle, scratch = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:64]}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(scratch).replace(place)
        scratch = ""
    except (OSError, ValueError) as error:  # ValueError: a name that holds a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{place}: cannot be written: {reason}") from error
    finally:
        if scratch:
            Path(scratch).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _progress(paths: list[str], *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes read, where a person looks on."""
    # Not pathlib's: its is_file raises where a name is too long.
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]  # noqa: PTH113, PTH202
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        total = sum(sizes) if len(sizes) == len(paths) else None
        task = progress.add_task("reading", total=total)
        yield lambda size: progress.advance(task, size)

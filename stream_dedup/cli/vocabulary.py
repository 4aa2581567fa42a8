"""``stream-dedup vocabulary``: files that recipes read, learned from a corpus once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import click

from stream_dedup.cli.common import (
    bytes_of_files,
    check_output,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
)
from stream_dedup.cli.completion import complete_file, complete_recipe
from stream_dedup.cli.datasets import open_table
from stream_dedup.cli.group import Group
from stream_dedup.cli.reading import read_events
from stream_dedup.errors import InputError
from stream_dedup.features.boilerplate import MIN_DOCUMENTS, Corpus, listed
from stream_dedup.features.recipe import MAX_PASSAGES, Recipe
from stream_dedup.features.vocabulary import Counts, Origin, table
from stream_dedup.io.datasets import table_format
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import expand, whole_file
from stream_dedup.model import Partition

MAX_FEATURES = 900_000
"""A table of weights has at most a million lines."""


@click.group(cls=Group)
def vocabulary() -> None:
    """Learn weights or boilerplate from a corpus, once. Recipes read them from the file."""


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
    help="Formula from document frequency to weight; smooth gives common features more weight.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Leave out features that occur in fewer documents.",
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
    help="auto decides by each input's first line.",
)
@click.option("--text-field", default="", metavar="PATH", help="JSON field that holds the text.")
@click.option(
    "--start-regex",
    default="",
    metavar="RE2",
    help="Matches the first line of a document; other lines belong to the document before.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite an existing table. Recipes that use it get another digest.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress bar and no summary line.")
def build(files: tuple[str, ...], output: str, **options: Any) -> None:  # noqa: ANN401
    """Count the documents that contain each feature, and write a table of weights.

    Each line of the FILEs, or each JSON event, is a document. FILEs may be plain or compressed, or
    patterns such as 'logs/*.gz'; "-" is standard input. The recipe decides what the features are:
    words, n-grams, letters, syllables. Weights are from 1 to 1000; the rarer a feature, the higher
    its weight.

    To use the table, name it in the recipe as features.weights.file, and set
    features.weights.default = 1000 for features that it does not have. The table does not change
    afterwards: if weights changed, the same text would get another fingerprint.

    \b
    stream-dedup vocabulary build --recipe words -o vocab.tsv 'archive/*.txt'
    stream-dedup vocabulary build -r words --set features.extractor=syllables -o pairs.tsv a.jsonl
    """
    chosen = recipe_of(options["recipe"], options["settings"])
    reading = DecoderOptions(
        format=options["input_format"],
        text_field=options["text_field"],
        start_pattern=options["start_regex"],
    )
    try:
        Decoder(reading, Partition("", 0), chosen)  # checks the options
    except InputError as error:
        raise click.UsageError(str(error)) from error
    check_output(output, force=options["force"])
    counts = Counts(chosen)
    paths = list(expand(files))
    passed: Counter[str] = Counter()
    shown = not options["quiet"] and sys.stderr.isatty()
    with reading_progress(bytes_of_files(paths), shown=shown) as advance:
        for path in paths:
            _count(counts, chosen, path, reading, passed, advance)
    for reason, number in sorted(passed.items()):
        click.echo(f"stream-dedup: left out, {reason}: {number:,}", err=True)
    if not counts.documents:
        raise InputError("no document has a feature: the inputs are empty, or none is as expected")
    found = counts.frequent(options["min_count"], options["max_words"])
    if not found:
        raise InputError(f"no feature is in {options['min_count']} documents; give --min-count")
    origin = Origin(chosen, options["formula"], options["min_count"])
    with whole_file(output) as file:
        file.writelines(line.encode() for line in table(counts, found, origin))
    if not options["quiet"]:
        click.echo(f"{output}: {len(found):,} features of {counts.documents:,} documents", err=True)


@vocabulary.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@click.option("-o", "--output", required=True, metavar="FILE", shell_complete=complete_file,
              help="The list to write.")  # fmt: skip
@click.option("-r", "--recipe", default="text", show_default=True, metavar="NAME|FILE",
              shell_complete=complete_recipe,
              help="Decides which texts are alike: text, messages, documents, or a TOML file "
              "with text.fold = 'look-alikes' or 'look-alikes+words'.")  # fmt: skip
@set_option
@click.option("--text-field", default="", metavar="PATH",
              help="Column of the tables, or JSON field, that holds the text.")  # fmt: skip
@click.option(
    "--min-count",
    type=click.IntRange(2),
    default=None,
    metavar="N",
    help="Leave out passages of fewer documents.  [default: a thousandth of the documents, and "
    f"{MIN_DOCUMENTS} at least]",
)
@click.option("--force", is_flag=True,
              help="Overwrite an existing list. Recipes that use it get another "
              "digest.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Show no progress bar and no summary line.")
def boilerplate(
    files: tuple[str, ...],
    output: str,
    recipe: str,
    settings: tuple[str, ...],
    text_field: str,
    min_count: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Find what many unlike texts end with: signatures, footers, notices. Write it as a list.

    Unrelated texts that have a long footer in common share most of their letters, and merge. A
    recipe that names the list as text.boilerplate_file leaves these passages out of all texts,
    wherever they appear and however they are written. A text that consists only of them stays
    whole.

    Each line of the FILEs, each JSON event, or each row of a table is a document; a text may have
    several lines. A passage is the end of a line, in whole words. It is listed if enough documents
    have it, and if these documents are not similar without it: the words that copies of one text
    have in common are not boilerplate.

    Read the list before you use it, and remove passages that distinguish your texts. Do not change
    it afterwards: the same text would get another fingerprint.

    \b
    stream-dedup vocabulary boilerplate -o footers.txt comments.csv --text-field body
    stream-dedup dedup -r text --set 'text.boilerplate_file="footers.txt"' more.txt
    """
    corpus = Corpus(recipe_of(recipe, settings))
    check_output(output, force=force)
    paths = list(expand(files))
    shown = not quiet and sys.stderr.isatty()
    with reading_progress(bytes_of_files(paths), shown=shown) as advance:
        for path in paths:
            for texts in _texts(path, text_field, advance):
                corpus.add(texts)
    found = corpus.learn(min_count)[:MAX_PASSAGES]
    if not found:
        raise InputError(
            f"no passage is in enough of the {corpus.seen:,} documents; give more documents, or a "
            "smaller --min-count"
        )
    with whole_file(output) as file:
        file.writelines(line.encode() for line in listed(found, corpus))
    if not quiet:
        click.echo(f"{output}: passages: {len(found):,}, documents: {corpus.seen:,}", err=True)


def _texts(path: str, text_field: str, advance: Callable[[int], None]) -> Iterator[list[bytes]]:
    """Yield the texts of one input.

    Raises:
        InputError: it cannot be read to its end.
    """
    form = table_format(path)
    if form is not None:
        with open_table(path, form, text_field) as rows:
            for some in rows.rows():
                yield [text for row, text in enumerate(some.texts) if row not in some.passed]
        return
    reading = DecoderOptions(text_field=text_field)
    for events in read_events(path, reading, None, advance=advance):
        batch = events.batch
        yield [value for row, value in enumerate(batch.values) if row not in batch.passed]


def _count(
    counts: Counts,
    recipe: Recipe,
    path: str,
    reading: DecoderOptions,
    passed: Counter[str],
    advance: Callable[[int], None],
) -> None:
    """Count the documents of one input, and the lines that are not documents by reason.

    Raises:
        InputError: it cannot be read to its end.
    """
    of_fields = recipe if recipe.input.fields else None
    for events in read_events(path, reading, of_fields, advance=advance):
        batch = events.batch
        documents = batch.documents or [None] * len(batch.values)
        passed.update(batch.passed.values())
        for index, (value, document) in enumerate(zip(batch.values, documents, strict=True)):
            if index in batch.passed:
                continue
            try:
                counts.add(value, document)
            except Exception as error:  # noqa: BLE001 -- foreign code: one event must not stop the command
                passed[f"extractor failed with {type(error).__name__}"] += 1

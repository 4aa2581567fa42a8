"""``stream-dedup recipes`` and ``vocabulary``: recipes, and the weights that they read."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import click
import msgspec
import tomli_w
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import (
    bytes_of_files,
    check_output,
    console,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
)
from stream_dedup.cli.completion import complete_file, complete_recipe
from stream_dedup.cli.reading import read_events
from stream_dedup.errors import InputError
from stream_dedup.features.extractors import KERNEL_EXTRACTORS, load_extractor
from stream_dedup.features.recipe import Recipe, load_recipe, shipped
from stream_dedup.features.vocabulary import Counts, Origin, table
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import expand, whole_file
from stream_dedup.model import Batch, Partition

MAX_FEATURES = 900_000
"""A table of weights has at most a million lines."""


@click.group()
def recipes() -> None:
    """List, show and check recipes. A recipe decides what counts as near."""


@recipes.command("list")
def list_recipes() -> None:
    """List the recipes that come with stream-dedup."""
    table = Table("name", "digest", "description", box=None, padding=(0, 2, 0, 0))
    for name in shipped():
        recipe = load_recipe(name)
        table.add_row(name, recipe.digest, Text(recipe.description))
    console().print(table)


@recipes.command()
@click.argument("recipe", metavar="NAME|FILE", shell_complete=complete_recipe)
@set_option
@click.option("--all", "everything", is_flag=True, help="Show the defaults too.")
def show(recipe: str, settings: tuple[str, ...], everything: bool) -> None:
    """Show a recipe as TOML: the settings that differ from the defaults, or all of them."""
    chosen = recipe_of(recipe, settings)
    click.echo(f"# digest {chosen.digest}")
    click.echo(to_toml(chosen, everything=everything), nl=False)


@recipes.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="NAME|FILE...", shell_complete=complete_recipe
)
def check(files: tuple[str, ...]) -> None:
    """Check recipes. Stops at the first error and prints its key, its value and a remedy."""
    for name in files:
        recipe = load_recipe(name)
        if recipe.features.extractor not in KERNEL_EXTRACTORS:
            load_extractor(recipe.features.extractor, name)
        click.echo(f"{name}: good, digest {recipe.digest}")


def to_toml(recipe: Recipe, *, everything: bool = False) -> str:
    """Write a recipe as a TOML document, which gives the same recipe when it is read."""
    document = _whole(recipe) if everything else msgspec.to_builtins(recipe)
    return tomli_w.dumps(document)


def _whole(value: Any) -> Any:  # noqa: ANN401 -- any part of a recipe
    """Return the recipe's parts as dictionaries, with the defaults."""
    if isinstance(value, msgspec.Struct):
        return {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_whole(part) for part in value]
    return value


# ---------------------------------------------------------------- vocabularies


@click.group()
def vocabulary() -> None:
    """Learn weights from a corpus, once. Recipes read them from the file."""


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
        Decoder(reading, Partition("", 0), takes_fields=False)  # checks the options
    except InputError as error:
        raise click.UsageError(str(error)) from error
    check_output(output, force=options["force"])
    counts = Counts(chosen)
    paths = list(expand(files))
    passed: Counter[str] = Counter()
    shown = not options["quiet"] and sys.stderr.isatty()
    with reading_progress(bytes_of_files(paths), shown=shown) as advance:
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
    with whole_file(output) as file:
        file.writelines(line.encode() for line in table(counts, found, origin))
    if not options["quiet"]:
        click.echo(f"{output}: {len(found):,} features of {counts.documents:,} documents", err=True)


def _count(
    counts: Counts,
    path: str,
    reading: DecoderOptions,
    passed: Counter[str],
    advance: Callable[[int], None],
) -> None:
    """Count the documents of one input, and the lines that are not documents by reason.

    Raises:
        InputError: it cannot be read to its end.
    """
    fields, every = counts.takes_fields, sys.maxsize
    for events in read_events(path, reading, takes_fields=fields, limit=every, advance=advance):
        _add(counts, events.batch, passed)


def _add(counts: Counts, batch: Batch, passed: Counter[str]) -> None:
    documents = batch.documents or [None] * len(batch.values)
    passed.update(batch.passed.values())
    for index, (value, document) in enumerate(zip(batch.values, documents, strict=True)):
        if index in batch.passed:
            continue
        try:
            counts.add(value, document)
        except Exception as error:  # noqa: BLE001 -- foreign code: one event must not stop the command
            passed[f"extractor failed with {type(error).__name__}"] += 1

"""``stream-dedup tune``: which settings matter on a person's own lines, and a recipe with them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.progress import MofNCompleteColumn

from stream_dedup.cli.common import (
    Parsed,
    bytes_of_files,
    check_output,
    console,
    named_inputs,
    progress_bar,
    quiet_option,
    reading_progress,
    recipe_of,
    recipe_option,
    set_option,
    shown,
    write_whole,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.datasets import format_of, refuse_options_of_lines, table_events
from stream_dedup.cli.reading import read_events, reading_of, reading_options
from stream_dedup.cli.recipes import to_toml
from stream_dedup.cli.terminal import escaped_json
from stream_dedup.cli.tune_report import Numbered, ReportView
from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.datasets import TableFormat
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.io.files import expand, whole_file
from stream_dedup.tuning.questions import Tuner
from stream_dedup.tuning.sample import MAX_PATTERNS, Sample, finest
from stream_dedup.tuning.trials import Grouping

MAX_LINES = 1_000_000
"""Lines read, by default: enough to see every kind of line, in some seconds."""

SUGGESTED = "suggested"


def _accepted(text: str) -> list[int] | None:
    """Parse the numbers of questions, as in ``1,3``; None for the suggested ones."""
    if text.strip() == SUGGESTED:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() and int(part[:9]) > 0 for part in parts):
        raise ValueError(f"{text!r} are not numbers of questions; write 1,3 or {SUGGESTED}")
    return sorted({int(part[:9]) for part in parts})


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@recipe_option
@set_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write a recipe with the accepted answers to this TOML file.",
)
@click.option(
    "--accept",
    type=Parsed("numbers", _accepted),
    default=SUGGESTED,
    show_default=True,
    metavar="N,N…",
    help="The questions whose answer is yes: their numbers; '' for none.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--questions",
    "wanted",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the first N questions. JSON has all.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=MAX_LINES,
    show_default=True,
    metavar="N",
    help="Read at most N lines.",
)
@click.option(
    "--patterns",
    type=click.IntRange(1),
    default=MAX_PATTERNS,
    show_default=True,
    metavar="N",
    help="Look at the first N different patterns; memory and time depend on it.",
)
@reading_options(times=False)
@quiet_option
@click.pass_context
def tune(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Find the settings that matter on your own lines, and write a recipe with your answers.

    Reads FILEs as dedup does, tables too, or standard input to its end, and changes nothing. It
    runs the engine some twenty times, each time with one setting changed. If clusters become
    different, it asks you: are these one kind of event, or several? Questions that move most
    events come first. Every figure is counted in such a run. You need not label anything.

    Before the questions it shows how the recipe reads your lines: how many tokens are words or
    variables of each class, and the places where too few different words were seen for a variable.

    Answer the numbers of the questions with --accept and --output, or at the prompt on a terminal.
    The file is a recipe for -r, and for a worker. A few answers are suggested, with the reason.

    \b
    stream-dedup tune app.log
    kubectl logs deploy/api | stream-dedup tune
    stream-dedup tune --accept 1,4 --output recipe.toml app.log
    stream-dedup dedup -r recipe.toml --top 20 app.log
    stream-dedup tune --json 'logs/*.gz' | jq '.questions[0]'
    """
    reading = reading_of(options)
    recipe = recipe_of(options["recipe"], options["settings"])
    place: str | None = options["output"]
    if place is not None:
        check_output(place, force=options["force"])
    paths = list(expand(files)) or ["-"]
    form = format_of(paths, options["input_format"])
    if form is not None:
        refuse_options_of_lines(ctx, form)
    bar = not options["quiet"] and sys.stderr.isatty()
    sample = Sample(
        recipe, max_patterns=options["patterns"], grouped_by=_names(reading.group_fields)
    )
    failed, lines = _read(sample, recipe, paths, reading, form, options["limit"], bar=bar)
    if not len(sample):
        what = ", ".join(f"{count:,} {reason}" for reason, count in sorted(sample.passed.items()))
        raise InputError(f"there is no event to look at{': ' + what if what else ''}")
    doing, quiet = "trying settings", options["quiet"]
    with progress_bar("settings are tried", doing, MofNCompleteColumn(), quiet=quiet) as progress:
        tuner = Tuner(recipe, sample, progress)
        report = tuner.report()
    view = ReportView(sample, report, named_inputs(paths), lines, options["limit"], files)
    accepted = view.accepted(options["accept"])
    after = tuner.run([question.change for _, question in accepted]) if accepted else report.base
    if options["as_json"]:
        data = msgspec.json.encode(view.document(accepted, after)) + b"\n"
        write_whole(sys.stdout.buffer, escaped_json(data) if sys.stdout.isatty() else data)
    else:
        with console() as out:
            view.print(out, options["wanted"], accepted, after)
    if place is None and not options["as_json"] and sys.stdin.isatty() and sys.stdout.isatty():
        place, accepted = _asked(view)
        after = tuner.run([question.change for _, question in accepted])
    if place is not None:
        _write(place, view, accepted, after)
    ctx.exit(int(failed))


# ---------------------------------------------------------------- reading


def _names(paths: Sequence[str]) -> list[str]:
    return [path.removeprefix("/") for path in paths]


def _read(
    sample: Sample,
    recipe: Recipe,
    paths: Sequence[str],
    reading: DecoderOptions,
    form: TableFormat | None,
    limit: int,
    *,
    bar: bool,
) -> tuple[bool, int]:
    """Read all inputs; return whether one could not be read, and the lines or rows read."""
    failed, lines = False, 0
    with reading_progress(bytes_of_files(paths), shown=bar) as advance:
        for path in paths:
            events: Iterator[Events]
            if form is not None:
                events = table_events(
                    path,
                    form,
                    reading,
                    finest(recipe),
                    limit=limit - lines,
                    advance=advance,
                    texts_alone=True,
                )
            else:
                of_fields = recipe if recipe.input.fields else None  # else each trial decides
                events = read_events(path, reading, of_fields, limit=limit - lines, advance=advance)
            try:
                for part in events:
                    lines += part.lines
                    sample.add(part)
            except InputError as error:
                failed = True
                click.echo(f"stream-dedup: {error}", err=True)
    return failed, lines


# ---------------------------------------------------------------- writing a recipe


def _asked(view: ReportView) -> tuple[str | None, Numbered]:
    """Ask on a terminal which answers to write, and where."""
    if not view.report.questions:
        return None, []
    text = "Numbers of the questions that you answer with yes, as in 1,3 (Enter to write nothing)"
    accept = click.prompt(
        text, default="", show_default=False, type=Parsed("numbers", _accepted), err=True
    )
    accepted = view.accepted(accept) if accept != [] else []
    if not accepted:
        return None, []
    name = click.prompt("Write the recipe to", default="recipe.toml", err=True)
    force = os.path.lexists(name) and click.confirm(f"{name} is there. Overwrite it?", err=True)
    check_output(name, force=force)
    return name, accepted


def _write(place: str, view: ReportView, accepted: Numbered, after: Grouping) -> None:
    recipe = after.recipe
    stem = os.path.splitext(os.path.basename(place))[0]  # noqa: PTH119, PTH122 -- any name
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in stem)
    before = view.report.base.recipe
    said = "; ".join(question.change.described() for _, question in accepted) or "unchanged"
    recipe = msgspec.structs.replace(
        recipe,
        name=name.lstrip("_.-")[:64] or "own",
        description=f"{before.name}, tuned: {said}.",
    )
    head = [
        f"# Made by `stream-dedup tune` of {view.sample.events:,} events of {view.files}.",
        f"# Clusters with {before.name}: {len(view.report.base):,}; with this: {len(after):,}.",
    ]
    groups = [argument for _, q in accepted if q.change.group for argument in q.change.options()]
    if groups:
        head.append(f"# Groups are not part of a recipe. Give as well: {shlex.join(groups)}")
    text = "\n".join(head) + "\n\n" + to_toml(recipe)
    with whole_file(place) as file:
        file.write(text.encode())
    numbers = ", ".join(str(number) for number, _ in accepted)
    answers = f"the answers {numbers}" if accepted else f"{before.name} unchanged, as none is yes"
    click.echo(f"stream-dedup: {shown(os.fsencode(place), 400)}: a recipe with {answers}", err=True)
    if any(question.change.ungroup for _, question in accepted):
        click.echo("stream-dedup: to compare across groups, give no --group option, and "
                   "--group-prefix off", err=True)  # fmt: skip

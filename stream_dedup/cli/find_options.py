"""What ``find-all`` and ``find-clusters`` share: options, checks, progress."""

from __future__ import annotations

import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from stream_dedup.offline.pairs import Effort
from stream_dedup.offline.planning import layout_for
from stream_dedup.offline.reading import Format
from stream_dedup.tables.permutation import Layout
from stream_dedup.units import read_size

T = TypeVar("T")

LINE_EVERY_S = 30.0
"""Where standard error is no terminal, progress is a line so often."""


class Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A size such as ``512MiB`` or ``2GB``, in bytes."""

    name = "size"

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click hands it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        try:
            size = read_size(value)
        except ValueError:
            size = 0
        if size < 1:
            self.fail(f"{value!r} is no size; write 512MiB, 2GiB or 100000", param, ctx)
        return size


class Shard(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A share and how many there are, as in ``1/4``."""

    name = "shard"

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click hands it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[int, int]:
        if not isinstance(value, str):
            return cast("tuple[int, int]", value)
        number, slash, count = value.partition("/")
        if slash and all(part.isascii() and part.isdigit() for part in (number, count)):
            shard, shards = int(number[:9]), int(count[:9])
            if 1 <= shard <= shards:
                return shard, shards
        return self.fail(
            f"{value!r} is no shard; write I/N, from 1/N to N/N, as in 2/4", param, ctx
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What both commands were asked to do.

    Attributes:
        input: path, or ``-``.
        output: path, or ``-``.
        blocks: as asked for; None for the planner's choice.
        distance: k; None where a recipe is to say.
        width: bits of a fingerprint.
        form: how the input writes numbers.
        json: whether the output is JSON, or TSV.
        effort: threads, memory, and shards.
        quiet: whether there is no progress bar.
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
        """The layout for so many fingerprints.

        Raises:
            click.UsageError: distance, blocks and width do not go together.
        """
        try:
            return layout_for(width, k, count, self.blocks)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def _end(number: int, _frame: object) -> None:
    """End as a signal wants, but put away what is half written."""
    raise SystemExit(128 + number)


_PATH = click.Path(dir_okay=False, allow_dash=True)

_OPTIONS = (
    click.option("-i", "--input", "input_path", type=_PATH, default="-", show_default=True,
                 metavar="FILE", help="Fingerprints, one a line; - is standard input."),
    click.option("-o", "--output", "output_path", type=_PATH, default="-", show_default=True,
                 metavar="FILE", help="Takes its name when it is whole; - is standard output."),
    click.option("-b", "--blocks", type=click.IntRange(1, 128), metavar="M",
                 help="Blocks that fingerprints are cut into; else as planned."),
    click.option("--width", type=click.Choice(["32", "64", "128"]), default="64",
                 show_default=True, help="Bits of a fingerprint."),
    click.option("--input-format", type=click.Choice(["decimal", "hex", "binary"]),
                 default="decimal", show_default=True,
                 help="binary is 8 bytes each (16 at 128 bits) in the machine's order; hex leads "
                 "to hex output."),
    click.option("--output-format", type=click.Choice(["json", "tsv"]), default="json",
                 show_default=True, help="json is one array a line."),
    click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True,
                 metavar="N", help="Ranges compared at the same time; the output stays the same."),
    click.option("--memory", type=Size(), default="1GiB", show_default=True, metavar="SIZE",
                 help="About as much is held; what does not fit goes to temporary files (TMPDIR)."),
    click.option("--shards", type=Shard(), default="1/1", show_default=True, metavar="I/N",
                 help="Do the I-th of N equal parts of the work: the parts together are all."),
    click.option("-q", "--quiet", is_flag=True, help="No progress bar, or lines."),
)  # fmt: skip


def find_options(*, distance_required: bool) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The options of both commands, handed on as one argument, ``run``."""

    def decorated(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def run(**given: Any) -> T:  # noqa: ANN401 -- as click hands it
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                    signal.signal(number, _end)
            shard, shards = given.pop("shards")
            wanted = Run(
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
            return command(run=wanted, **given)

        distance = click.option(
            "-d",
            "--distance",
            type=click.IntRange(0, 127),
            required=distance_required,
            metavar="K",
            help="The largest distance that counts as near"
            + ("." if distance_required else "; with --text, else as the recipe has it."),
        )
        decorated: Callable[..., T] = run
        for option in reversed((*_OPTIONS[:3], distance, *_OPTIONS[3:])):
            decorated = option(decorated)
        return decorated

    return decorated


def _lines() -> Callable[[int, int], None]:
    """Tells on standard error, every `LINE_EVERY_S` seconds at most."""
    told_s = time.monotonic()

    def tell(done: int, whole: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= LINE_EVERY_S:
            told_s = time.monotonic()
            click.echo(f"stream-dedup: {done} of {whole} ranges are compared", err=True)

    return tell


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, told how many ranges are done, of how many; elsewhere lines."""
    if quiet or not sys.stderr.isatty():
        yield (lambda _done, _all: None) if quiet else _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("comparing", total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)

"""Options and output that several commands share."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import re
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from stream_dedup.cli.completion import complete_file, complete_recipe
from stream_dedup.cli.terminal import escaped_json, note, wants_colour
from stream_dedup.clock import SystemClock, monotonic_s
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.errors import IndexRefused, IndexUnavailable, InputError
from stream_dedup.features.patterns import readable
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.io.timestamps import TimeFormat
from stream_dedup.units import OFF, read_duration_us

if TYPE_CHECKING:
    from stream_dedup.config import Loaded
    from stream_dedup.index.redis.client import RedisClient

T = TypeVar("T")
C = TypeVar("C")
N = TypeVar("N", int, float)

LINE_EVERY_S = 30.0
"""Seconds between two lines of progress where standard error is not a terminal."""

MAX_SHOWN = 60
"""Characters shown of a feature."""

UNCUT = 1_000_000
"""Width of a table that is not cut."""

MAX_NAMES = 3
"""Inputs that are named together."""

MAX_NAME = 80
"""Characters shown of the name of an input."""


class Failed(click.ClickException):
    """A service or a file that a command needs is unavailable or refuses it."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ANN401 -- as click has it
        if file is None:
            note(self.message)
        else:
            click.echo(f"stream-dedup: {self.message}", file=file)


# ---------------------------------------------------------------- options


# Generic since click 8.4, which Faust does not accept.
class Parsed(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The type of an option whose text a function parses.

    Args:
        name: what click calls it.
        parse: parses the text; the message of its ValueError is the user's.
    """

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click passes it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> object:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_duration(text: str, off: int | None) -> int | None:
    """Parse a duration such as ``90s``, ``5m`` or ``1h``, in microseconds, or ``off``.

    Args:
        text: what the user has written.
        off: what ``off`` means.

    Raises:
        ValueError: it is neither; the message names the remedy.
    """
    if text in OFF:
        return off
    length_us = parse_quantity(text, read_duration_us, "duration; write 90s, 5m, 1h, 2d or off")
    return FOREVER_US if length_us >= FOREVER_US else round(length_us)


def parse_quantity(text: str, read: Callable[[str], N], what: str) -> N:
    """Parse a number with a unit that is 1 or more.

    Args:
        text: what the user has written.
        read: reads it; raises ValueError if it cannot.
        what: what it should be, and the remedy.

    Raises:
        ValueError: it is not.
    """
    with suppress(ValueError):
        found = read(text)
        if found >= 1:
            return found
    raise ValueError(f"{text!r} is not a {what}")


def parse_moment(text: str) -> int:
    """Parse a time, or how long ago it was, as microseconds since 1970.

    Raises:
        ValueError: it is neither; the message names the remedy.
    """
    now_us = SystemClock().now_us()
    try:
        return now_us - round(read_duration_us(text))
    except (ValueError, OverflowError):
        pass
    dated = f"{text}T00:00" if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else text
    found = TimeFormat("iso").find(os.fsencode(dated), now_us)
    if found is None:
        raise ValueError(
            f"{text!r} is not a time; write 2024-05-07T09:30, 2024-05-07, or 15m for fifteen "
            "minutes ago"
        )
    return found


def parse_mark(text: str) -> str:
    """Parse the mark of summaries: printable, and not empty.

    Raises:
        ValueError: it is not.
    """
    if not text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} is not a printable text")
    return text


recipe_option = click.option(
    "-r",
    "--recipe",
    default="logs",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=complete_recipe,
    help="Decides what counts as near: a shipped recipe or a TOML file (see: stream-dedup "
    "recipes).",
)

color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour text; auto: on a terminal, unless NO_COLOR is set.",
)

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress bar.")

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe, as in match.k=4 or text.masks=['ipv4']. Repeatable.",
)


def recipe_of(name: str, settings: tuple[str, ...]) -> Recipe:
    """Load the recipe that the options name.

    Raises:
        RecipeError: there is no such recipe, or it is not valid.
        click.BadParameter: a setting is not of the form ``key=value``.
    """
    recipe = load_recipe(name)
    changes: dict[str, Any] = {}
    for setting in settings:
        if any("\ud800" <= character <= "\udfff" for character in setting):
            raise click.BadParameter(f"{setting!r} is not UTF-8", param_hint="'--set'")
        key, equals, value = setting.partition("=")
        if not equals or not re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", key.strip()):
            raise click.BadParameter(
                f"{setting!r} is not KEY=VALUE, as in match.k=4", param_hint="'--set'"
            )
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value.strip()  # a bare word
        changes[key.strip().replace(".", "__")] = parsed
    return replace(recipe, **changes) if changes else recipe


_FILE = click.Path(exists=True, dir_okay=False)

_CONNECTION_OPTIONS = (
    click.option(
        "--redis",
        envvar="STREAM_DEDUP_REDIS",
        default="redis://127.0.0.1:6379",
        show_default=True,
        metavar="URL",
        help="Redis server; if not given, the environment variable STREAM_DEDUP_REDIS: redis://, "
        "rediss://, unix://, redis+cluster:// or redis+sentinel:// with hosts (see: stream-dedup "
        "index --help).",
    ),
    click.option("--ca-file", type=_FILE, metavar="FILE",
                 help="Certificates of authorities, PEM, for rediss://; by default the system's."),
    click.option("--cert-file", type=_FILE, metavar="FILE",
                 help="The client's certificate, PEM, if the server asks for one."),
    click.option("--key-file", type=_FILE, metavar="FILE", help="The key of --cert-file, PEM."),
    click.option("--no-check-hostname", is_flag=True,
                 help="Accept a certificate that names another host."),
    click.option("--password-file", type=_FILE, metavar="FILE",
                 help="File whose first line is the password, which keeps it out of process "
                 "lists."),
    click.option("--timeout", type=click.FloatRange(0.1), default=10.0, show_default=True,
                 metavar="SECONDS", help="How long a failing call is retried."),
)  # fmt: skip

_CONNECTION_NAMES = (
    "redis", "ca_file", "cert_file", "key_file", "no_check_hostname", "password_file", "timeout",
)  # fmt: skip


def connection_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that name a Redis service, passed as one argument, ``options``."""
    return _gather(function, _CONNECTION_OPTIONS, _CONNECTION_NAMES)


def _gather(
    function: Callable[..., T],
    options: Sequence[Callable[[Callable[..., T]], Callable[..., T]]],
    names: Sequence[str],
) -> Callable[..., T]:
    @functools.wraps(function)
    def gathered(**arguments: Any) -> T:  # noqa: ANN401 -- as click passes them
        own = {name: arguments.pop(name) for name in names}
        return function(options=own, **arguments)

    for option in reversed(options):
        gathered = option(gathered)
    return gathered


def redis_options(*, namespace: bool = True) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options of commands over Redis, passed as one argument, ``options``.

    Args:
        namespace: whether a namespace has to be given.
    """
    named = click.option(
        "-n",
        "--namespace",
        required=namespace,
        default=None if namespace else "",
        metavar="NAME",
        help="The namespace (see: stream-dedup index stats)."
        if namespace
        else "The namespace; without it, all are listed.",
    )

    form = click.option("--format", type=click.Choice(["table", "json"]), default="table",
                        show_default=True, help="json is one object.")  # fmt: skip

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        options = (named, *_CONNECTION_OPTIONS, form)
        return _gather(function, options, (*_CONNECTION_NAMES, "namespace", "format"))

    return decorate


def redis_client(options: dict[str, Any], kind: Callable[..., C]) -> C:
    """Make a client of the service that the options of `redis_options` name.

    Raises:
        ValueError: the address is none.
    """
    from stream_dedup.index.redis.client import RetryPolicy  # noqa: PLC0415 -- an extra
    from stream_dedup.index.redis.connection import Tls  # noqa: PLC0415

    timeout_s: float = options["timeout"]
    policy = RetryPolicy(within_s=timeout_s, timeout_s=max(1.0, min(timeout_s, 5.0)))
    tls = Tls(
        ca_file=options["ca_file"],
        cert_file=options["cert_file"],
        key_file=options["key_file"],
        check_hostname=not options["no_check_hostname"],
    )
    return kind(_url(options), retry_policy=policy, tls=tls)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. SIGINT cancels it, and once it has ended this raises KeyboardInterrupt.

    `asyncio.run` alone cancels within its signal handler, so also in the middle of a callback of
    the loop that has just found its future pending and will set it, which prints a traceback. Here
    the loop cancels, between two callbacks. A second SIGINT does not wait for the end.
    """
    former = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if former in (signal.SIG_IGN, None) or not in_main_thread:
        return asyncio.run(work)
    came = False
    task: asyncio.Task[T] | None = None

    def on_signal(*_: object) -> None:
        nonlocal came
        if came or task is None or task.done():
            raise KeyboardInterrupt
        came = True
        task.get_loop().call_soon_threadsafe(task.cancel)

    async def run() -> T:
        nonlocal task
        task = asyncio.current_task()
        return await work

    signal.signal(signal.SIGINT, on_signal)
    try:
        result = asyncio.run(run())
    except asyncio.CancelledError:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, former)
        work.close()  # if it did not begin
    if came:
        raise KeyboardInterrupt
    return result


def run_on_redis(options: dict[str, Any], work: Callable[[RedisClient], Awaitable[T]]) -> T:
    """Run work on the service that the options name, and return its result.

    Raises:
        Failed: the service cannot be reached, or refuses.
    """
    with worker_extra():
        from stream_dedup.index.redis.client import RedisClient  # noqa: PLC0415 -- an extra

    async def whole() -> T:
        async with aclosing(redis_client(options, RedisClient)) as client:
            return await work(client)

    try:
        return run_async(whole())
    except (IndexUnavailable, IndexRefused, ValueError) as error:
        raise Failed(str(error)) from error


def _url(options: dict[str, Any]) -> str:
    """The URL, with the password of the file.

    Raises:
        IndexRefused: there are two passwords, or the URL cannot be read.
    """
    url: str = options["redis"]
    try:
        split = urlsplit(url)
    except ValueError:
        raise IndexRefused("the Redis URL cannot be read; see --help for its forms") from None
    if not options["password_file"]:
        return url
    credentials, _, hosts = split.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if colon:
        raise IndexRefused("the URL and --password-file both give a password; leave one out")
    try:
        lines = Path(options["password_file"]).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IndexRefused(f"--password-file cannot be read: {error}") from error
    password = quote(lines[0] if lines else "", safe="")
    return split._replace(netloc=f"{user}:{password}@{hosts}").geturl()


# ---------------------------------------------------------------- a worker's configuration


EXTRA = frozenset(
    {"aiokafka", "hiredis", "prometheus_client", "pydantic", "pydantic_settings", "redis"}
    | {"aiohttp", "structlog", "tenacity"}
)
"""What the extra ``worker`` brings."""

config_option = click.option(
    "-c",
    "--config",
    "file",
    envvar="STREAM_DEDUP_CONFIG",
    metavar="FILE",
    shell_complete=complete_file,
    help="The TOML file, else what STREAM_DEDUP_CONFIG says (see: stream-dedup config init).",
)

set_config_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Give a setting, as in kafka.group_id=audit or pipelines.0.topics=a,b. Repeatable.",
)


@contextmanager
def imports_of_extra(extra: str, packages: Container[str]) -> Iterator[None]:
    """Imports that need an extra: without it, says what to install.

    Args:
        extra: its name.
        packages: what it brings.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise Failed(
            f"{error.name} is not installed; pip install 'stream-dedup[{extra}]'"
        ) from error


def worker_extra() -> AbstractContextManager[None]:
    """Imports that need the extra ``worker``."""
    return imports_of_extra("worker", EXTRA)


def load_config(file: str | None, settings: tuple[str, ...]) -> Loaded:
    """The configuration that options and environment give.

    Raises:
        ConfigError: it is wrong.
        Failed: the extra is not installed.
    """
    with worker_extra():
        from stream_dedup.config import load  # noqa: PLC0415 -- an extra
    return load(file, settings)


# ---------------------------------------------------------------- output


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 -- the BrokenPipeError, whose exit code is ours; rich would exit with 1


def console(*, err: bool = False) -> Console:
    """Standard output for tables: as wide as the terminal, or as COLUMNS says.

    In files and pipes without COLUMNS nothing is cut or broken. As a context manager it writes
    everything at its end, at once.

    Args:
        err: whether to write to standard error instead.
    """
    stream = sys.stderr if err else sys.stdout
    fits = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return _Console(stderr=err, highlight=False, width=None if fits else UNCUT)


def write_whole(out: BinaryIO, data: bytes) -> None:
    """Write all of `data`, and flush.

    Under PYTHONUNBUFFERED standard output is the raw file, whose `write` may write a part only:
    when a signal arrives, or the disk is full.
    """
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]
    out.flush()


def write_report(
    options: dict[str, Any], documents: Iterable[bytes], lines: Callable[..., Iterable[str]]
) -> None:
    """Write a report to standard output, as --json and --color say.

    Args:
        options: those of the command.
        documents: the lines of JSON.
        lines: makes the lines of text, of the width of the terminal (None elsewhere) and `colour`.
    """
    terminal = sys.stdout.isatty()
    if options["as_json"]:
        data = b"".join(documents)
        write_whole(sys.stdout.buffer, escaped_json(data) if terminal else data)
        return
    width = shutil.get_terminal_size().columns if terminal else None
    text = "".join(f"{line}\n" for line in lines(width, colour=wants_colour(options["color"])))
    write_whole(sys.stdout.buffer, text.encode("utf-8", "backslashreplace"))


def check_output(output: str, *, force: bool) -> None:
    """Check that a file can be written, before long work.

    Raises:
        InputError: it cannot be written.
        click.BadParameter: it is there already.
    """
    check_writable(output)
    if os.path.isfile(output) and not force:  # noqa: PTH113 -- pathlib's may raise
        problem = f"{output!r} is there already; give another name, or --force"
        raise click.BadParameter(problem, param_hint="'--output'")


def check_writable(output: str) -> None:
    """Check that `whole_file` can write a file, before long work.

    Raises:
        InputError: it cannot be written.
    """
    if output == "-":
        return
    place = os.path.realpath(output)
    folder = os.path.dirname(place)  # noqa: PTH120 -- pathlib's may raise, as below
    if os.path.isdir(place):  # noqa: PTH112
        problem = errno.EISDIR
    elif os.path.exists(place) and not os.path.isfile(place):  # noqa: PTH110, PTH113 -- a device
        problem = 0 if os.access(place, os.W_OK) else errno.EACCES
    elif not os.path.exists(folder):  # noqa: PTH110
        problem = errno.ENOENT
    elif not os.path.isdir(folder):  # noqa: PTH112
        problem = errno.ENOTDIR
    else:
        problem = 0 if os.access(folder, os.W_OK) else errno.EACCES
    if problem:
        raise InputError(f"{output}: cannot be written: {os.strerror(problem)}")


def shown(text: bytes, limit: int = MAX_SHOWN) -> str:
    """Return bytes as one short printable text."""
    return readable(text, limit)


def named_inputs(paths: Sequence[str]) -> str:
    """Return the names of the first `MAX_NAMES` inputs, and how many there are more."""
    names = [
        "standard input" if path == "-" else shown(os.fsencode(path), MAX_NAME)
        for path in paths[:MAX_NAMES]
    ]
    rest = len(paths) - len(names)
    return ", ".join(names) + (f" and {rest:,} more" if rest else "")


def hexadecimal(fingerprint: int, width: int) -> str:
    """Return a fingerprint in hexadecimal, with leading zeros."""
    return f"{fingerprint:0{-(-width // 4)}x}"


def bytes_of_files(paths: Sequence[str]) -> int | None:
    """Return the size of all files together; None if one of the paths is not a regular file."""
    # Not pathlib's: its is_file raises where a name is too long.
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]  # noqa: PTH113, PTH202
    return sum(sizes) if len(sizes) == len(paths) else None


def progress_lines(what: str) -> Callable[[int, int], None]:
    """Return a function that says how far long work is, a line every `LINE_EVERY_S` at most.

    Args:
        what: what is done, after "3 of 28".
    """
    last_s = monotonic_s()

    def show(done: int, total: int) -> None:
        nonlocal last_s
        if monotonic_s() - last_s >= LINE_EVERY_S:
            last_s = monotonic_s()
            click.echo(f"stream-dedup: {done} of {total} {what}", err=True)

    return show


@contextmanager
def progress_bar(
    lines: str, doing: str, *columns: ProgressColumn, quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, else a line now and then.

    Args:
        lines: what is done, as for `progress_lines`.
        doing: what is being done; it stands before the bar.
        columns: what stands behind the bar.
        quiet: show nothing.

    Yields:
        A function to call with the number that are done, and of all.
    """
    if quiet or not sys.stderr.isatty():
        yield (lambda _done, _total: None) if quiet else progress_lines(lines)
        return
    shown = (TextColumn(doing), BarColumn(), *columns)
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def reading_progress(total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over the bytes read, on standard error.

    Yields:
        A function to call with the bytes just read.
    """
    if not shown:
        yield lambda _: None
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=total)
        yield lambda size: progress.advance(task, size)

"""Runs the commands of ``stream-dedup index``: server, progress, recipe, and how they fail."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from stream_dedup.cli.common import Failed
from stream_dedup.errors import IndexRefused, RecipeError, RecipeMismatch, StreamDedupError
from stream_dedup.features.recipe import Recipe, load_recipe, shipped

if TYPE_CHECKING:
    from stream_dedup.index.redis.inspection import Progress, Reader

T = TypeVar("T")


def run(options: dict[str, Any], work: Callable[[Reader, Progress], Awaitable[T]]) -> T:
    """Do work on the server that the options name; what it returns.

    Raises:
        Failed: the server is away, or will not serve.
    """
    try:
        from stream_dedup.index.redis import clients, inspection, server  # noqa: PLC0415 -- an extra
    except ImportError as error:
        _fail(f"the Redis client is not installed ({error}); pip install 'stream-dedup[redis]'")
    timeout_s: float = options["timeout"]
    patience = server.Patience(within_s=timeout_s, timeout_s=max(1.0, min(timeout_s, 5.0)))
    tls = clients.Tls(
        ca_file=options["ca_file"],
        cert_file=options["cert_file"],
        key_file=options["key_file"],
        check_hostname=not options["no_check_hostname"],
    )

    async def whole(progress: Progress) -> T:
        reader = inspection.Reader(_url(options), patience=patience, tls=tls)
        try:
            return await work(reader, progress)
        finally:
            await reader.aclose()

    try:
        with _progress() as progress:
            return asyncio.run(whole(progress))
    except RecipeError:
        raise
    except (StreamDedupError, ValueError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    raise Failed(message)


def _url(options: dict[str, Any]) -> str:
    """The URL, with the password of the file.

    Raises:
        IndexRefused: there are two passwords, or the URL is none.
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


@contextmanager
def _progress() -> Iterator[Progress]:
    """Tells a person at a terminal how far it is."""
    if not sys.stderr.isatty():
        yield lambda _what, _keys: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("connecting")

        def progress(what: str, keys: int) -> None:
            bar.update(task, description=f"{what}: {keys:,}")

        yield progress


def recipe_of_namespace(namespace: str, name: str, digest: str, given: str) -> Recipe | None:
    """The namespace's recipe: the one given, or a shipped one; None if it is neither.

    Raises:
        RecipeError: the one given cannot be read.
        RecipeMismatch: the one given is another.
    """
    if not given:
        chosen = load_recipe(name) if name in shipped() else None
        return chosen if chosen and chosen.digest == digest else None
    chosen = load_recipe(given)
    if chosen.digest != digest:
        raise RecipeMismatch(namespace, f"{name} ({digest})", f"{chosen.name} ({chosen.digest})")
    return chosen

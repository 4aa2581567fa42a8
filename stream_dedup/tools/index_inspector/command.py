"""``stream-dedup index``: look at, check, seed and delete what an index over Redis holds."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from stream_dedup.cli.common import Failed, redis_client, redis_options, run_async, shown
from stream_dedup.cli.completion import complete_recipe
from stream_dedup.cli.group import Group
from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.errors import RecipeError, RecipeMismatch, StreamDedupError
from stream_dedup.features.recipe import Recipe, load_recipe, shipped
from stream_dedup.tools.index_seeder.command import seed

if TYPE_CHECKING:
    from stream_dedup.tools.index_inspector.check import Report
    from stream_dedup.tools.index_inspector.clusters import Brief, Details
    from stream_dedup.tools.index_inspector.reader import Namespace, Progress, Reader
    from stream_dedup.tools.index_inspector.stats import ShardState

T = TypeVar("T")

EXIT_WRONG = 1

IN_USE_US = 120 * US_PER_S
"""A namespace whose stream time was moved on so lately is in use."""


@click.group(cls=Group)
def index() -> None:
    """Show, check, seed and delete the namespaces that workers keep in Redis.

    Needs the extra: pip install 'stream-dedup[redis]'. All commands except delete-namespace and
    seed only read: they need a user with +@read, +@connection and the keys sd:* (in a Redis
    Cluster also +cluster). Workers may run meanwhile.

    A server is named by a URL: redis://HOST:6379/0, rediss://HOST:6379 for TLS, unix:///PATH,
    redis+cluster://HOST:6379,HOST:6379 or redis+sentinel://HOST:26379,HOST:26379/NAME (rediss+ for
    TLS), with USER@ before the host where needed; give the password with --password-file.

    Exit codes: 0 all went well; 1 check found something wrong, show found no such cluster, or
    workers created again what was deleted; 2 an option is wrong, or the server cannot be reached or
    refuses.
    """


@index.command()
@redis_options(namespace=False)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1_000_000,
    show_default=True,
    help="Keys looked at in each shard, or scanned in search of namespaces; 0 for all.",
)
def stats(options: dict[str, Any], limit: int) -> None:
    """Show how much a namespace holds, and the memory that takes.

    Without --namespace: which namespaces there are. Figures marked ~ are scaled from a sample.

    \b
    stream-dedup index stats
    stream-dedup index stats --namespace logs
    """

    async def listed(reader: Reader, progress: Progress) -> tuple[list[dict[str, Any]], bool, str]:
        from stream_dedup.tools.index_inspector import namespaces  # noqa: PLC0415 -- an extra

        rows = []
        found, whole = await namespaces.find_all(reader, limit)
        for name, meta in found:
            rows.append(await namespaces.describe(reader, name, meta))
            progress("namespaces", len(rows))
        return rows, whole, str(reader.address)

    async def measured(
        reader: Reader, progress: Progress
    ) -> tuple[Namespace, list[ShardState], list[str]]:
        from stream_dedup.index.redis import advice  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.reader import Namespace  # noqa: PLC0415
        from stream_dedup.tools.index_inspector.stats import measure  # noqa: PLC0415

        namespace = await Namespace.find(reader, options["namespace"])
        advised = await advice.advise(reader, namespace.shards[0].meta)
        return namespace, await measure(namespace, limit, progress), advised

    if options["namespace"]:
        result = call(options, measured)
        from stream_dedup.tools.index_inspector.stats import print_stats  # noqa: PLC0415 -- an extra

        print_stats(*result, options["format"])
    else:
        rows = call(options, listed)
        from stream_dedup.tools.index_inspector import namespaces  # noqa: PLC0415 -- an extra

        namespaces.print_namespaces(*rows, options["format"])


@index.command()
@redis_options()
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Keys looked at in each shard; 0 for all. A shard takes about a minute a million entries.",
)
@click.pass_context
def check(ctx: click.Context, options: dict[str, Any], limit: int) -> None:
    """Check that what a namespace holds fits together, and say what does not.

    Suspicious entries are checked again before they are reported, as workers may just have changed
    them.
    Exits with 1 if something is wrong.

    \b
    stream-dedup index check --namespace logs
    """

    async def work(reader: Reader, progress: Progress) -> tuple[Namespace, Report]:
        from stream_dedup.tools.index_inspector.check import check as look  # noqa: PLC0415
        from stream_dedup.tools.index_inspector.reader import Namespace  # noqa: PLC0415 -- an extra

        namespace = await Namespace.find(reader, options["namespace"])
        return namespace, await look(namespace, limit, progress)

    namespace, report = call(options, work)
    from stream_dedup.tools.index_inspector.check import print_report  # noqa: PLC0415 -- an extra

    print_report(namespace, report, options["format"])
    ctx.exit(EXIT_WRONG if report.counts else 0)


_recipe_option = click.option(
    "-r",
    "--recipe",
    default="",
    metavar="NAME|FILE",
    shell_complete=complete_recipe,
    help="Makes the patterns; needed if the namespace's recipe is not a shipped one.",
)


@index.command()
@redis_options()
@click.option(
    "--sort",
    type=click.Choice(["count", "last", "opened"]),
    default="count",
    show_default=True,
    help="The most events first, or the latest seen or opened.",
)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
    help="Clusters shown.",
)  # fmt: skip
@click.option("--group", metavar="TEXT", help="Only clusters of this group, as it is shown.")
@_recipe_option
def clusters(
    options: dict[str, Any], sort: str, limit: int, group: str | None, recipe: str
) -> None:
    """List the largest open clusters.

    \b
    stream-dedup index clusters --namespace logs
    stream-dedup index clusters --namespace logs --sort last --limit 100 --format json
    """

    async def work(
        reader: Reader, progress: Progress
    ) -> tuple[list[Brief], Recipe | None, Namespace]:
        from stream_dedup.tools.index_inspector.clusters import largest  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.reader import Namespace  # noqa: PLC0415 -- an extra

        namespace = await Namespace.find(reader, options["namespace"])
        chosen = recipe_of_namespace(namespace.name, namespace.recipe, namespace.digest, recipe)
        wanted = None if group is None else group.encode("utf-8", "surrogateescape")
        return await largest(namespace, sort, limit, wanted, progress), chosen, namespace

    found, chosen, namespace = call(options, work)
    from stream_dedup.tools.index_inspector.clusters import print_clusters  # noqa: PLC0415 -- an extra

    print_clusters(found, chosen, options["format"])
    if not chosen and found and options["format"] == "table":
        click.echo(
            f"stream-dedup: recipe {shown(namespace.recipe.encode())} is not a shipped one; give "
            "--recipe FILE for patterns instead of texts",
            err=True,
        )


@index.command("show")
@click.argument("identity", metavar="ID")
@redis_options()
@_recipe_option
@click.pass_context
def show_cluster(ctx: click.Context, identity: str, options: dict[str, Any], recipe: str) -> None:
    """Show everything about the cluster with an ID (16 hex digits).

    \b
    stream-dedup index show e3e788ec37ce54a9 --namespace logs
    """
    if len(identity) != 16 or not set(identity.lower()) <= set("0123456789abcdef"):
        raise click.BadParameter(f"{identity!r} is not 16 hex digits", param_hint="'ID'")

    async def work(
        reader: Reader, progress: Progress
    ) -> tuple[Namespace, Details | None, Recipe | None]:
        from stream_dedup.tools.index_inspector.clusters import details  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.reader import Namespace  # noqa: PLC0415 -- an extra

        del progress
        namespace = await Namespace.find(reader, options["namespace"])
        chosen = recipe_of_namespace(namespace.name, namespace.recipe, namespace.digest, recipe)
        try:
            return namespace, await details(namespace, int(identity, 16)), chosen
        except ValueError as error:
            raise Failed(
                f"cluster {identity}: {error}; stream-dedup index check says more"
            ) from error

    namespace, found, chosen = call(options, work)
    if found is None:
        click.echo(
            f"stream-dedup: namespace {namespace.name!r} has no cluster {identity.lower()}: it was "
            "emitted and forgotten, or never existed",
            err=True,
        )
        ctx.exit(EXIT_WRONG)
    from stream_dedup.tools.index_inspector.clusters import print_details  # noqa: PLC0415 -- an extra

    print_details(namespace, found, chosen, options["format"])


@index.command("delete-namespace")
@redis_options()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Count the keys, and delete nothing.")
@click.pass_context
def delete_namespace(ctx: click.Context, options: dict[str, Any], yes: bool, dry_run: bool) -> None:
    """Delete a namespace: all its clusters, counts and journals.

    Its rules go too (see: stream-dedup rules export). Counts that were not emitted yet are lost.
    Stop the workers before, or they create it again.

    \b
    stream-dedup index delete-namespace --namespace logs
    """
    name = options["namespace"]

    async def look(reader: Reader, progress: Progress) -> tuple[int, int | None, str]:
        from stream_dedup.tools.index_inspector import namespaces  # noqa: PLC0415 -- an extra

        keys = await namespaces.count(reader, name, progress)
        return keys, await namespaces.last_seen_us(reader, name), str(reader.address)

    async def delete(reader: Reader, progress: Progress) -> tuple[int, bool]:
        from stream_dedup.tools.index_inspector import namespaces  # noqa: PLC0415 -- an extra

        return await namespaces.delete(reader, name, progress)

    keys, seen_us, address = call(options, look)
    from stream_dedup.tools.index_inspector.namespaces import print_deleted  # noqa: PLC0415 -- an extra

    if not keys or dry_run:
        print_deleted(name, keys, options["format"], dry_run=True)
        return
    ago_us = IN_USE_US if seen_us is None else SystemClock().now_us() - seen_us
    if ago_us < IN_USE_US:
        click.echo(
            f"stream-dedup: workers were at {name!r} {max(0, ago_us) // US_PER_S} s ago; stop "
            "them first, or they create it again",
            err=True,
        )
    if not yes:
        question = f"{keys:,} keys on {address} will go. Type the namespace's name"
        if click.prompt(question, err=True, default="", show_default=False) != name:
            raise Failed(f"that is not {name!r}; nothing was deleted")
    removed, gone = call(options, delete)
    print_deleted(name, removed, options["format"], dry_run=False)
    if not gone:
        click.echo(
            f"stream-dedup: workers have created {name!r} again meanwhile; stop them, then delete "
            "it again",
            err=True,
        )
        ctx.exit(EXIT_WRONG)


index.add_command(seed)


# ------------------------------------------------------------ the service


def call(options: dict[str, Any], work: Callable[[Reader, Progress], Awaitable[T]]) -> T:
    """Run work on the service that the options name, and return its result.

    Raises:
        Failed: the service cannot be reached, or refuses.
    """
    reader_of = reader_factory(options)

    async def whole(progress: Progress) -> T:
        async with aclosing(reader_of()) as reader:
            return await work(reader, progress)

    try:
        with _progress() as progress:
            return run_async(whole(progress))
    except RecipeError:
        raise
    except (StreamDedupError, ValueError) as error:
        raise Failed(str(error)) from error


def reader_factory(options: dict[str, Any]) -> Callable[[], Reader]:
    """Return what makes a reader of the service that the options name, on an event loop.

    Raises:
        Failed: the extra is not installed.
    """
    try:
        from stream_dedup.tools.index_inspector.reader import Reader  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise Failed(
            f"the Redis client is not installed ({error}); pip install 'stream-dedup[redis]'"
        ) from error
    return lambda: redis_client(options, Reader)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show the progress to a person at a terminal."""
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
    """Load the namespace's recipe: the one given, or a shipped one; None if it is neither.

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

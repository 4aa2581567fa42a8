"""``stream-dedup index``: look at, check and delete what an index over Redis holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stream_dedup.cli.common import Failed, redis_options, shown
from stream_dedup.cli.completion import complete_recipe
from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.features.recipe import Recipe
from stream_dedup.tools.index_inspector import output
from stream_dedup.tools.index_inspector.clusters_output import print_clusters, print_details
from stream_dedup.tools.index_inspector.session import recipe_of_namespace, run
from stream_dedup.tools.index_inspector.stats_output import print_stats

if TYPE_CHECKING:
    from stream_dedup.index.redis.inspection import Namespace, Progress, Reader
    from stream_dedup.tools.index_inspector.details import Brief, Details
    from stream_dedup.tools.index_inspector.findings import Report
    from stream_dedup.tools.index_inspector.measure import ShardState

EXIT_WRONG = 1

IN_USE_US = 120 * US_PER_S
"""A namespace that workers moved on so lately is in use."""


@click.group()
def index() -> None:
    """Look at, check and delete what an index over Redis holds.

    Needs the extra: pip install 'stream-dedup[redis]'. All but delete-namespace only read: a user
    with +@read, +@connection and the keys sd:* will do (+cluster too in a Redis Cluster). Workers
    may go on meanwhile.

    A server is named by a URL: redis://HOST:6379/0, rediss://HOST:6379 for TLS, unix:///PATH,
    redis+cluster://HOST:6379,HOST:6379 or redis+sentinel://HOST:26379,HOST:26379/NAME (rediss+ for
    TLS), with USER@ before the host where needed; the password comes out of --password-file.

    Exit codes: 0 all went well; 1 check found something wrong, show found no such cluster, or
    workers made anew what was deleted; 2 an option is wrong, or the server is away or refuses.
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
        from stream_dedup.index.redis import inspection  # noqa: PLC0415 -- an extra

        rows = []
        found, whole = await inspection.namespaces(reader, limit)
        for name, meta in found:
            rows.append(await output.listed(reader, name, meta))
            progress("namespaces", len(rows))
        return rows, whole, str(reader.address)

    async def measured(
        reader: Reader, progress: Progress
    ) -> tuple[Namespace, list[ShardState], list[str]]:
        from stream_dedup.index.redis import advice, inspection  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector import measure  # noqa: PLC0415

        namespace = await inspection.Namespace.find(reader, options["namespace"])
        advised = await advice.advise(reader, namespace.shards[0].meta)
        return namespace, await measure.measure(namespace, limit, progress), advised

    if options["namespace"]:
        print_stats(*run(options, measured), options["format"])
    else:
        output.print_namespaces(*run(options, listed), options["format"])


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

    What looks wrong is looked at again before it is told of, as workers may just have changed it.
    Exits with 1 if something is wrong.

    \b
    stream-dedup index check --namespace logs
    """

    async def work(reader: Reader, progress: Progress) -> tuple[Namespace, Report]:
        from stream_dedup.index.redis.inspection import Namespace  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.check import check as look  # noqa: PLC0415 -- an extra

        namespace = await Namespace.find(reader, options["namespace"])
        return namespace, await look(namespace, limit, progress)

    namespace, report = run(options, work)
    output.print_report(namespace, report, options["format"])
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
        from stream_dedup.index.redis.inspection import Namespace  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.details import largest  # noqa: PLC0415 -- an extra

        namespace = await Namespace.find(reader, options["namespace"])
        chosen = recipe_of_namespace(namespace.name, namespace.recipe, namespace.digest, recipe)
        wanted = None if group is None else group.encode("utf-8", "surrogateescape")
        return await largest(namespace, sort, limit, wanted, progress), chosen, namespace

    found, chosen, namespace = run(options, work)
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
        from stream_dedup.index.redis.inspection import Namespace  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_inspector.details import details  # noqa: PLC0415 -- an extra

        del progress
        namespace = await Namespace.find(reader, options["namespace"])
        chosen = recipe_of_namespace(namespace.name, namespace.recipe, namespace.digest, recipe)
        try:
            return namespace, await details(namespace, int(identity, 16)), chosen
        except ValueError as error:
            raise Failed(
                f"cluster {identity}: {error}; stream-dedup index check says more"
            ) from error

    namespace, found, chosen = run(options, work)
    if found is None:
        click.echo(
            f"stream-dedup: namespace {namespace.name!r} has no cluster {identity.lower()}: it was "
            "told of and forgotten, or never was",
            err=True,
        )
        ctx.exit(EXIT_WRONG)
    print_details(namespace, found, chosen, options["format"])


@index.command("delete-namespace")
@redis_options()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Count the keys, and delete nothing.")
@click.pass_context
def delete_namespace(ctx: click.Context, options: dict[str, Any], yes: bool, dry_run: bool) -> None:
    """Delete a namespace: all its clusters, counts and journals.

    Counts that were not told of yet are lost. Stop the workers before: those that go on make it
    anew.

    \b
    stream-dedup index delete-namespace --namespace logs
    """
    name = options["namespace"]

    async def look(reader: Reader, progress: Progress) -> tuple[int, int | None, str]:
        from stream_dedup.tools.index_inspector import removal  # noqa: PLC0415 -- an extra

        keys = await removal.count(reader, name, progress)
        return keys, await removal.last_seen_us(reader, name), str(reader.address)

    async def delete(reader: Reader, progress: Progress) -> tuple[int, bool]:
        from stream_dedup.tools.index_inspector import removal  # noqa: PLC0415 -- an extra

        return await removal.delete(reader, name, progress)

    keys, seen_us, address = run(options, look)
    if not keys or dry_run:
        output.print_deleted(name, keys, options["format"], dry_run=True)
        return
    ago_us = IN_USE_US if seen_us is None else SystemClock().now_us() - seen_us
    if ago_us < IN_USE_US:
        click.echo(
            f"stream-dedup: workers were at {name!r} {max(0, ago_us) // US_PER_S} s ago; stop "
            "them first, or they make it anew",
            err=True,
        )
    if not yes:
        question = f"{keys:,} keys on {address} will go. Type the namespace's name"
        if click.prompt(question, err=True, default="", show_default=False) != name:
            raise Failed(f"that is not {name!r}; nothing was deleted")
    removed, gone = run(options, delete)
    output.print_deleted(name, removed, options["format"], dry_run=False)
    if not gone:
        click.echo(
            f"stream-dedup: workers have made {name!r} anew meanwhile; stop them, then delete "
            "it again",
            err=True,
        )
        ctx.exit(EXIT_WRONG)

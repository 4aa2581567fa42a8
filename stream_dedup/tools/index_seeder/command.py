"""``stream-dedup index seed``: teach a namespace what a backfill found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from stream_dedup.cli.common import (
    Failed,
    config_option,
    load_config,
    progress_bar,
    run_async,
    set_config_option,
    worker_extra,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.spark import spark_extra, spark_options, spark_session
from stream_dedup.errors import (
    ConfigError,
    IndexFull,
    IndexUnavailable,
    StaleFence,
    StreamDedupError,
)
from stream_dedup.features.patterns import readable

if TYPE_CHECKING:
    from stream_dedup.config import Config, PipelineConfig
    from stream_dedup.spark.teaching import TeachingLines
    from stream_dedup.tools.index_seeder.seeding import Seeded


@click.command()
@click.option(
    "--from",
    "folder",
    required=True,
    metavar="DIR",
    shell_complete=complete_file,
    help="The --output of a backfill that has ended, a path or URI; with its stages.",
)
@config_option
@set_config_option
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="The namespace of one of the configuration's pipelines; needed if there are several.",
)
@spark_options
@click.option(
    "--again",
    is_flag=True,
    help="Seed all lines once more, because their clusters have closed since. In clusters that "
    "are still open, the lines are counted twice. If it is interrupted, continue without --again.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json is one object.")  # fmt: skip
def seed(
    folder: str,
    file: str | None,
    settings: tuple[str, ...],
    namespace: str | None,
    master: str | None,
    conf: tuple[str, ...],
    again: bool,
    form: str,
) -> None:
    """Fill a namespace with what a backfill found: its patterns are then not new for workers.

    Reads the lines of the backfill that opened a cluster or taught it something, and gives them
    to the index, in order, with the recipe, the rules and the limits of the configuration.
    Workers may run meanwhile. The lines count as events of the time of the seeding: a cluster
    that no event joins closes idle_s later, and workers send its final summary as usual.

    If a run was interrupted, start the same command again: it continues where it ended, and
    counts no line twice.

    The backfill must have used the recipe of the namespace, and one --group-field of the same
    name for each of the pipeline's group_fields (or named groups of group_regex).

    Needs the extras: pip install 'stream-dedup[spark,worker]'.

    \b
    stream-dedup backfill -o out --text-field message 'events/*.jsonl.gz'
    stream-dedup index seed --from out --config stream-dedup.toml
    stream-dedup index seed --from hdfs:///out -c stream-dedup.toml -n logs --master yarn
    """
    config = load_config(file, settings).config
    pipelines = _pipelines(config, namespace)
    if config.index.kind == "memory":
        raise Failed("index.kind is memory: there is nothing to seed; set it to redis")
    with spark_extra():
        from stream_dedup.spark.teaching import TeachingLines  # noqa: PLC0415 -- an extra
    with spark_session("stream-dedup index seed", master, conf) as spark:
        try:
            lines = TeachingLines(spark, folder)
            section = _fitting(pipelines, lines, folder)
            _warn(config, section, lines, folder)
            columns = MofNCompleteColumn(), TimeRemainingColumn()
            with progress_bar("lines seeded", "seeding", *columns) as progress:
                seeded = _run(config, section, lines, progress, again=again)
        except ConfigError:
            raise
        except IndexFull as error:
            remedy = "start a worker, which emits them, or raise index.max_clusters"
            _interrupted(f"{error}; {remedy}", again=again)
        except IndexUnavailable as error:
            _interrupted(str(error), again=again)
        except StaleFence as error:
            raise Failed(f"another process seeds from {folder} now; this one ended") from error
        except StreamDedupError as error:
            raise Failed(str(error)) from error
    _print(section, seeded, form)


def _pipelines(config: Config, namespace: str | None) -> list[PipelineConfig]:
    """Return the pipelines of the namespace; they have one recipe."""
    names = sorted({pipeline.namespace for pipeline in config.pipelines})
    if namespace is None:
        if len(names) > 1:
            raise click.UsageError(
                f"the pipelines have several namespaces: {', '.join(names)}; give one with -n"
            )
        namespace = names[0]
    elif namespace not in names:
        raise click.BadParameter(
            f"no pipeline has {readable(namespace.encode('utf-8', 'replace'), 60)!r}; there are "
            f"{', '.join(names)}",
            param_hint="'--namespace'",
        )
    return [pipeline for pipeline in config.pipelines if pipeline.namespace == namespace]


def _fitting(pipelines: list[PipelineConfig], lines: TeachingLines, folder: str) -> PipelineConfig:
    """Return the pipeline whose recipe and groups are those of the backfill."""
    from stream_dedup.spark.backfill import REPORT  # noqa: PLC0415 -- an extra

    report, recipe, namespace = lines.report, pipelines[0].load_recipe(), pipelines[0].namespace
    if report.recipe_digest != recipe.digest:
        raise Failed(
            f"{folder}/{REPORT}: recipe_digest is {report.recipe_digest} (recipe {report.recipe}), "
            f"but the recipe of namespace {namespace!r} is {recipe.name} ({recipe.digest}); seed a "
            "namespace of that recipe, or run a backfill with this one"
        )
    for pipeline in pipelines:
        if sorted(pipeline.group_names()) == report.group_fields:
            return pipeline
    wanted = sorted(pipelines[0].group_names())
    raise Failed(
        f"{folder}/{REPORT}: group_fields is {report.group_fields}, but events of namespace "
        f"{namespace!r} are grouped by {wanted}, so none would join what is seeded; run a backfill "
        + (f"with {' '.join(f'--group-field {name}' for name in wanted)}" if wanted else
           "without --group-field")
    )  # fmt: skip


def _warn(config: Config, section: PipelineConfig, lines: TeachingLines, folder: str) -> None:
    clusters, most = lines.report.clusters, config.index.max_clusters
    if clusters > most:
        click.echo(
            f"stream-dedup: {folder} has {clusters:,} clusters, but index.max_clusters is "
            f"{most:,}: the least recently seen will be closed; raise it, before namespace "
            f"{section.namespace!r} is created, as its tables are laid out for it",
            err=True,
        )


def _run(
    config: Config,
    section: PipelineConfig,
    lines: TeachingLines,
    progress: Callable[[int, int], None],
    *,
    again: bool,
) -> Seeded:
    with worker_extra():
        from stream_dedup.assembly import connect_redis  # noqa: PLC0415 -- an extra
        from stream_dedup.tools.index_seeder.seeding import seed as seed_from  # noqa: PLC0415

    async def run() -> Seeded:
        async with connect_redis(config) as server:
            assert server is not None
            return await seed_from(config, section, server, lines, progress, again=again)

    return run_async(run())


def _interrupted(problem: str, *, again: bool) -> NoReturn:
    command = "the command without --again" if again else "the same command again"
    raise Failed(f"{problem}. Start {command}: it goes on where it ended")


def _print(section: PipelineConfig, seeded: Seeded, form: str) -> None:
    from stream_dedup.tools.index_inspector.output import print_rows, write_json  # noqa: PLC0415
    from stream_dedup.tools.index_seeder.seeding import TOO_LONG  # noqa: PLC0415 -- an extra

    counts = seeded.counts
    too_long = counts.passed.get(TOO_LONG, 0)
    result = {
        "namespace": section.namespace,
        "lines": seeded.lines,
        "seeded_before": seeded.before,
        "new_clusters": counts.new,
        "joined_clusters": counts.duplicates,
        "too_long": too_long,
        "passed": sum(counts.passed.values()) - too_long,
    }
    if too_long:
        click.echo(
            f"stream-dedup: {too_long:,} lines are not seeded: they are longer than the 4,096 "
            "bytes that a backfill keeps of a line; the first live event of each is new",
            err=True,
        )
    if form == "json":
        write_json(result)
        return
    print_rows(
        (name.replace("_", " "), value if isinstance(value, str) else f"{value:,}")
        for name, value in result.items()
    )

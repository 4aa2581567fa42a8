"""``stream-dedup backfill``: near-duplicates of stored events, on Apache Spark."""

from __future__ import annotations

import click

from stream_dedup.cli.common import recipe_of, recipe_option, set_option
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.spark import spark_extra, spark_options, spark_session
from stream_dedup.clock import SystemClock


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", shell_complete=complete_file)
@click.option(
    "--output",
    "-o",
    required=True,
    metavar="DIR",
    help="Folder for the result and the stages. A run that was interrupted goes on there.",
)
@recipe_option
@set_option
@click.option(
    "--input-format",
    type=click.Choice(["auto", "parquet", "jsonl", "text"]),
    default="auto",
    show_default=True,
    help="How inputs are read. auto: by how their names end.",
)
@click.option("--text-field", metavar="NAME", help="Column of the texts; body by default.")
@click.option(
    "--id-field",
    metavar="NAME",
    help="Column of unique ids; by default ids are made of file and line, which takes one more "
    "copy of the input.",
)
@click.option(
    "--time-field",
    metavar="NAME",
    help="Column by which events are ordered; ids decide between equal ones.",
)
@click.option(
    "--group-field",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Only events with equal values in this column are compared; may be repeated.",
)
@spark_options
@click.option(
    "--overwrite",
    is_flag=True,
    help="Begin again, and replace the backfill in the folder. Leave it out of retries, which go "
    "on where the run ended.",
)
def backfill(
    inputs: tuple[str, ...],
    output: str,
    recipe: str,
    settings: tuple[str, ...],
    input_format: str,
    text_field: str | None,
    id_field: str | None,
    time_field: str | None,
    groups: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Find the near-duplicates of stored events, on Apache Spark.

    INPUT is a file, a folder, a glob, or a URI that Spark reads: Parquet, JSON lines or text,
    compressed or not. DIR/rows gets all events with the columns cluster, representative_id,
    is_duplicate and distance, as Parquet; DIR/backfill.json the counts. The clusters are those of
    stream-dedup dedup for the same events in order, without windows.

    \b
    stream-dedup backfill --output out 'logs/*.log.gz'
    stream-dedup backfill -o out --id-field id --time-field at --group-field service events.parquet
    stream-dedup backfill -o out --master 'local[2]' --conf spark.driver.memory=4g logs
    """
    loaded = recipe_of(recipe, settings)
    with spark_extra():
        from stream_dedup.spark.backfill import Backfill, Settings  # noqa: PLC0415 -- an extra
    with spark_session("stream-dedup backfill", master, conf) as spark:
        chosen = Settings(
            inputs=inputs,
            output=output,
            form=None if input_format == "auto" else input_format,  # type: ignore[arg-type]
            text=text_field,
            id=id_field,
            time=time_field,
            groups=groups,
            overwrite=overwrite,
        )
        say = lambda line: click.echo(line, err=True)  # noqa: E731 -- used once
        report = Backfill(spark, chosen, loaded, SystemClock(), say).run()
    for name in ("rows", "passed", "events", "clusters", "duplicates", "distinct_lines"):
        click.echo(f"{name.replace('_', ' '):<16}{report[name]:>14,}", err=True)

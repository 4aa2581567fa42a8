"""``stream-dedup run``: the Kafka worker."""

from __future__ import annotations

import click

from stream_dedup.cli.common import (
    config_option,
    load_config,
    set_config_option,
    worker_extra,
)
from stream_dedup.errors import ConfigError, StreamDedupError, WorkerEnded

EXIT_CONFIG = 2


class Stopped(click.ClickException):
    """The worker ended with an error."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        del file
        click.echo(f"stream-dedup: {self.message}", err=True)


@click.command()
@config_option
@set_config_option
@click.option("--once", is_flag=True, help="Read to the ends that the topics have now, then stop.")
@click.pass_context
def run(ctx: click.Context, file: str | None, settings: tuple[str, ...], once: bool) -> None:
    """Merge near-duplicates of Kafka topics.

    Reads the topics of every pipeline in the configuration, decides each event against the index,
    and writes to the output topics. Runs until SIGTERM, SIGINT or SIGHUP: then it finishes the
    batches in progress; a second signal ends it at once. Nothing is lost either way.

    Needs the extra: pip install 'stream-dedup[worker]'. Metrics and health are at
    http://127.0.0.1:9464 (http.host, http.port).

    Exit codes: 0 stopped by a signal, or at the end with --once; 1 stopped by an error, which the
    last line names, in JSON if log.format says so; 2 the configuration is wrong.

    \b
    stream-dedup config init -o stream-dedup.toml
    stream-dedup config check --config stream-dedup.toml
    stream-dedup run --config stream-dedup.toml
    """
    with worker_extra():
        from stream_dedup.assembly import run_worker  # noqa: PLC0415 -- an extra
    config = load_config(file, settings).config
    try:
        run_worker(config, once=once)
    except WorkerEnded as error:
        ctx.exit(EXIT_CONFIG if isinstance(error.__cause__, ConfigError) else Stopped.exit_code)
    except ConfigError:
        raise
    except StreamDedupError as error:
        raise Stopped(str(error)) from error

"""``stream-dedup config``: write, show and check a worker's configuration."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import (
    Failed,
    config_option,
    console,
    load_config,
    run_async,
    set_config_option,
    worker_extra,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.group import Group
from stream_dedup.errors import InputError

if TYPE_CHECKING:
    from stream_dedup.config import Config
    from stream_dedup.config.checks import Finding

EXIT_WRONG = 1

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


@click.group(cls=Group)
def config() -> None:
    """Write, show and check the configuration of a worker.

    Needs the extra: pip install 'stream-dedup[worker]'. A setting is taken from --set, else
    from the environment (STREAM_DEDUP__KAFKA__GROUP_ID=audit), else from the file.

    Exit codes: 0 all went well; 1 check found something that prevents a worker from running, or
    init cannot write its file; 2 the configuration is wrong, or the file of init is there already.
    """


@config.command()
@click.option("-o", "--output", metavar="FILE", shell_complete=complete_file,
              help="Write to this file; standard output if not given.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(output: str | None, force: bool) -> None:
    """Write a template of the configuration: every key, with its default and its meaning.

    \b
    stream-dedup config init -o stream-dedup.toml
    """
    with worker_extra():
        from stream_dedup.config.document import template  # noqa: PLC0415 -- an extra
    if output is None:
        click.echo(template(), nl=False)
        return
    try:
        with Path(output).open("w" if force else "x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError as error:
        raise Failed(f"{output} is there already; give --force to write over it") from error
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from error


@config.command()
@config_option
@set_config_option
@click.option("--format", "shape", type=click.Choice(["toml", "json"]), default="toml",
              show_default=True, help="json: an object of value and origin by key.")  # fmt: skip
def show(file: str | None, settings: tuple[str, ...], shape: str) -> None:
    """Show the configuration that a worker would use, and the origin of each value.

    Secrets are not shown.

    \b
    stream-dedup config show --config stream-dedup.toml --set worker.drain_s=30s
    """
    loaded = load_config(file, settings)
    from stream_dedup.config.document import effective, effective_toml  # noqa: PLC0415 -- an extra

    if shape == "toml":
        click.echo(effective_toml(loaded), nl=False)
        return
    rows = {key: {"value": value, "origin": origin} for key, value, origin in effective(loaded)}
    click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())


@config.command()
@config_option
@set_config_option
@click.option("--timeout", type=click.FloatRange(0.1), default=10.0, show_default=True,
              metavar="SECONDS", help="Limit for each answer.")  # fmt: skip
@click.option("--format", "shape", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json is a list of objects.")  # fmt: skip
@click.pass_context
def check(
    ctx: click.Context, file: str | None, settings: tuple[str, ...], timeout: float, shape: str
) -> None:
    """Check the configuration against Kafka and Redis.

    Checks that both accept the credentials; that the topics exist, may be read or written, and fit
    together; groups, transactional ids and namespaces; and, if otel.enabled is true, that the
    collector accepts traces and metrics. Changes nothing, except that with exactly_once it opens a
    transactional id that ends in -config-check.

    Exits with 1 if something prevents a worker from running, with 2 if the configuration is wrong.

    \b
    stream-dedup config check --config stream-dedup.toml
    """
    loaded = load_config(file, settings)
    found = run_async(_checked(loaded.config, timeout))
    if shape == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([f._asdict() for f in found])).decode())
    else:
        table = Table("", "what", "found", box=None, padding=(0, 2, 0, 0))
        for level, subject, text in found:
            table.add_row(Text(level, _STYLES[level]), _text(subject), _text(text))
        console().print(table)
    ctx.exit(EXIT_WRONG if any(each.level == "error" for each in found) else 0)


async def _checked(config: Config, timeout_s: float) -> list[Finding]:
    with worker_extra():
        from stream_dedup.config.checks import check  # noqa: PLC0415 -- an extra
    logging.getLogger().addHandler(logging.NullHandler())  # the findings say it all
    return [found async for found in check(config, timeout_s)]


def _text(text: str) -> Text:
    """Escape control characters in a text from elsewhere."""
    return Text("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text))

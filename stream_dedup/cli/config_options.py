"""What the commands that take a configuration share: options, loading, and the extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from stream_dedup.cli.common import Failed
from stream_dedup.cli.completion import complete_file

if TYPE_CHECKING:
    from stream_dedup.config import Loaded

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
def worker_extra() -> Iterator[None]:
    """Imports that need the extra: without it, says what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise Failed(
            f"{error.name} is not installed; pip install 'stream-dedup[worker]'"
        ) from error


def load_config(file: str | None, settings: tuple[str, ...]) -> Loaded:
    """The configuration that options and environment give.

    Raises:
        ConfigError: it is wrong.
        Failed: the extra is not installed.
    """
    with worker_extra():
        from stream_dedup.config import load  # noqa: PLC0415 -- an extra
    return load(file, settings)

"""Options of commands that run on Apache Spark, and the session that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from stream_dedup.cli.common import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def spark_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options `master` and `conf`."""
    conf = click.option(
        "--conf",
        "conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark; may be repeated.",
    )
    master = click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn. Without it, as spark-submit "
        "or Spark's configuration says, or else on all cores of this machine.",
    )
    return master(conf(function))


@contextmanager
def spark_extra() -> Iterator[None]:
    """Imports that need the extra: without it, says what to install.

    Any failed import counts: what PySpark raises without pyarrow names no module.
    """
    try:
        yield
    except ImportError as error:
        raise Failed(
            f"this needs PySpark and pyarrow: pip install 'stream-dedup[spark]' ({error})"
        ) from error


@contextmanager
def spark_session(name: str, master: str | None, conf: tuple[str, ...]) -> Iterator[SparkSession]:
    """Start Spark as the options say, and end it. A session that runs already is used, and stays.

    Args:
        name: the application's.
        master: where it runs.
        conf: its settings.
    """
    with spark_extra():
        from pyspark.sql import SparkSession  # noqa: PLC0415 -- an extra
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="'--conf'")
        builder = builder.config(key, value)
    runs_already = SparkSession.getActiveSession() is not None
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # PySpark's own, Java's, or the system's
        said = str(error).splitlines() or [type(error).__name__]
        raise Failed(
            f"Spark does not start: {said[0]}: it needs Java 17 or 21 "
            "(JAVA_HOME), and --master and --conf as it knows them"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if not runs_already:
            spark.stop()

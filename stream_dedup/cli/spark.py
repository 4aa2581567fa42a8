"""Options of commands that run on Apache Spark, and the session that they name."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from stream_dedup.cli.common import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

CANCEL_EVERY_S = 0.2


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
        from pyspark import SparkContext  # noqa: PLC0415 -- an extra
        from pyspark.sql import SparkSession  # noqa: PLC0415 -- as above
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="'--conf'")
        builder = builder.config(key, value)
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 -- no public way sees other threads
        yield builder.getOrCreate()
        return
    with _Interrupts() as interrupts:
        spark = _started(builder)
        try:
            interrupts.cancel_jobs_of(spark)  # raises what came during the start
            yield spark
        finally:
            interrupts.forget_jobs()
            spark.stop()


def _started(builder: SparkSession.Builder) -> SparkSession:
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            started.set_result(builder.getOrCreate())
        except BaseException as error:  # noqa: BLE001 -- `result` raises it
            started.set_exception(error)

    # In another thread Spark sets no handler of SIGINT.
    threading.Thread(target=start, daemon=True).start()
    try:
        spark = started.result()
    except Exception as error:  # PySpark's own, Java's, or the system's
        said = str(error).splitlines() or [type(error).__name__]
        raise Failed(
            f"Spark does not start: {said[0]}: it needs Java 17 or 21 "
            "(JAVA_HOME), and values of --master and --conf that it accepts"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class _Interrupts:
    """SIGINT within a `with` block: raises KeyboardInterrupt at the end of the block.

    Raised at once, as Spark's own handler does it, KeyboardInterrupt comes in the middle of an
    answer from Java: that prints tracebacks, and during the start leaves Java behind. So the first
    SIGINT only cancels Spark's jobs, which ends what waits for them. A second one is raised at
    once.
    """

    def __init__(self) -> None:
        self._former: Any = None
        self._came = False
        self._spark: SparkSession | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = signal.getsignal(signal.SIGINT)
            if self._former not in (signal.SIG_IGN, None):
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)
        if self._came and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt from None

    def cancel_jobs_of(self, spark: SparkSession) -> None:
        """Cancel a session's jobs from now on; raises KeyboardInterrupt if SIGINT came before."""
        self._spark = spark
        if self._came:
            raise KeyboardInterrupt

    def forget_jobs(self) -> None:
        """Cancel no more jobs: the session ends."""
        self._ended.set()

    def _on_signal(self, *_: object) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True
        if self._spark is not None:
            threading.Thread(target=self._cancel_jobs, args=(self._spark,), daemon=True).start()

    def _cancel_jobs(self, spark: SparkSession) -> None:
        with suppress(Exception):  # of whatever kind, as Spark may be gone: its end is all we want
            spark.sparkContext.setLogLevel("OFF")  # else it logs what was cancelled, as errors
            while not self._ended.wait(CANCEL_EVERY_S):  # also what begins later
                spark.sparkContext.cancelAllJobs()

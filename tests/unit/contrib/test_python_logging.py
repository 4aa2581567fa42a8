"""Merging an application's own log records: by logger and level, and none lost."""

from __future__ import annotations

import io
import logging
import logging.config
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.contrib.python_logging import MergingHandler

NOW_US = 1_700_000_000 * 10**6


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [f"{r.levelname} {r.name}: {r.getMessage()}" for r in self.records]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def handler(kept: Kept, clock: ManualClock) -> Iterator[MergingHandler]:
    handler = MergingHandler(kept, every_s=3600, clock=clock)
    yield handler
    handler.close()


@pytest.fixture
def logger(handler: MergingHandler) -> Callable[[str], logging.Logger]:
    def of(name: str) -> logging.Logger:
        logger = logging.Logger(name)  # noqa: LOG001 -- not of the tests' own tree
        logger.addHandler(handler)
        return logger

    return of


def test_repeats_are_written_as_a_count(
    handler: MergingHandler, kept: Kept, logger: Callable[[str], logging.Logger]
) -> None:
    for took_ms in (1830, 977, 1204):
        logger("app.db").warning("slow query: %d ms", took_ms)
    assert kept.lines == ["WARNING app.db: slow query: 1830 ms"]
    handler.close()
    repeat = kept.records[1]
    assert (repeat.name, repeat.levelno) == ("app.db", logging.WARNING)
    assert repeat.getMessage().startswith("… repeated 2× until ")
    assert repeat.getMessage().endswith("] slow query: <number> <unit>")
    assert repeat.dedup["count"] == 3  # type: ignore[attr-defined]
    assert len(kept.records) == 2


def test_loggers_levels_and_exceptions_are_kept_apart(
    handler: MergingHandler, kept: Kept, logger: Callable[[str], logging.Logger]
) -> None:
    for name in ("app.a", "app.b"):
        log = logger(name)
        log.warning("disk 1 full")
        log.error("disk 2 full")
        for error in (ValueError("x"), OSError("y"), OSError("y")):
            log.error("disk 3 full", exc_info=error)
    assert len(kept.records) == 8
    handler.close()
    assert sum("repeated 1×" in line for line in kept.lines) == 2


def test_counts_are_written_when_due_also_in_silence(kept: Kept) -> None:
    handler = MergingHandler(kept, every_s=0.01)
    written = threading.Event()

    def seen(record: logging.LogRecord) -> bool:
        if "repeated" in record.msg:
            written.set()
        return True

    kept.addFilter(seen)
    log = logging.Logger("app")  # noqa: LOG001
    log.addHandler(handler)
    for number in range(5):
        log.info("job %d done", number)
    assert written.wait(30)
    handler.close()
    repeats = [record.args[0] for record in kept.records if isinstance(record.args, tuple)][1:]
    assert sum(n for n in repeats if isinstance(n, int)) == 4


def test_a_record_that_cannot_be_compared_is_passed_on(
    handler: MergingHandler,
    kept: Kept,
    logger: Callable[[str], logging.Logger],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = logger("app")
    log.info("a %d b", "no number")
    log.info("")
    log.info("")
    monkeypatch.setattr(handler._dedup, "process_one", lambda *_, **__: 1 / 0)
    log.info("disk 1 full")
    log.info("disk 1 full")
    assert [record.msg for record in kept.records] == [
        "a %d b", "", "", "disk 1 full", "disk 1 full"
    ]  # fmt: skip


def test_records_after_close_pass_unchanged(
    handler: MergingHandler, kept: Kept, logger: Callable[[str], logging.Logger]
) -> None:
    handler.close()
    handler.close()
    for _ in range(3):
        logger("app").info("disk 1 full")
    assert len(kept.records) == 3


def test_many_kinds_at_once_never_lose_a_record(kept: Kept, clock: ManualClock) -> None:
    handler = MergingHandler(kept, max_clusters=1, clock=clock, every_s=3600)
    log = logging.Logger("app")  # noqa: LOG001
    log.addHandler(handler)
    letters = str.maketrans("0123456789", "abcdefghij")
    texts = [f"{n:05} x{n:05} {n * 7919:08}".translate(letters) for n in range(3_000)]
    for text in texts:
        log.info(text)
        log.info(text)
    handler.close()
    shown = [record for record in kept.records if not hasattr(record, "dedup")]
    repeats = [record.args for record in kept.records if hasattr(record, "dedup")]
    counts = [args[0] for args in repeats if isinstance(args, tuple)]
    assert len(shown) + sum(n for n in counts if isinstance(n, int)) == 6_000


def test_threads_may_log_at_the_same_time(kept: Kept, clock: ManualClock) -> None:
    handler = MergingHandler(kept, clock=clock, every_s=3600)
    log = logging.Logger("app")  # noqa: LOG001
    log.addHandler(handler)

    def work() -> None:
        for number in range(500):
            log.info("job %d done", number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    assert len(kept.records) == 2
    assert kept.records[1].dedup["count"] == 2000  # type: ignore[attr-defined]


def test_a_forked_process_reports_only_its_own() -> None:
    ours, theirs = os.pipe()
    stream = io.StringIO()
    target = logging.StreamHandler(stream)
    handler = MergingHandler(target, every_s=3600)
    log = logging.Logger("app")  # noqa: LOG001
    log.addHandler(handler)
    for number in range(5):
        log.info("job %d done", number)
    child = os.fork()
    if child == 0:  # pragma: no cover -- in the child
        stream.truncate(0)
        stream.seek(0)
        log.info("job %d done", 9)
        log.info("job %d done", 9)
        handler.close()
        os.write(theirs, stream.getvalue().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    lines = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    handler.close()
    assert lines[0] == "job 9 done"
    assert lines[1].startswith("… repeated 1× until ")
    assert "… repeated 4× until " in stream.getvalue()


def test_it_is_configured_by_a_dictionary() -> None:
    merging = {
        "()": "stream_dedup.contrib.python_logging.MergingHandler",
        "target": "cfg://handlers.console",
        "every_s": 3600,
    }
    console = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
    config = {"version": 1, "handlers": {"console": console, "merging": merging}}
    logging.config.dictConfig({**config, "disable_existing_loggers": False})
    found = logging.getHandlerByName("merging") if hasattr(logging, "getHandlerByName") else None
    assert found is None or isinstance(found, MergingHandler)
    wrong = {"a_merging": merging, "console": console}
    with pytest.raises(ValueError, match="Unable to configure handler 'a_merging'") as caught:
        logging.config.dictConfig({"version": 1, "handlers": wrong})
    assert "comes before this handler's own in the alphabet" in str(caught.value.__cause__)

"""The oracle for health: polls every worker each second, and compares its answers with progress.

It knows what the documentation says of ``/healthz``, ``/readyz`` and ``/metrics``, and from the
faults when nothing could move: while the broker or the index is away, nothing is delivered.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import NamedTuple, Protocol

from tests.faults.oracle import Verdict

EVERY_S = 1.0
ANSWER_S = 5.0
"""The longest wait for an answer, on a machine that is busy."""

NOTICE_S = 15.0
"""A worker may be ready for so long after everything has stopped, and after it was given other
partitions: what it has to do begins then."""

MOVING_S = 30.0
"""A worker that delivers all the time is ready again within so long. It may say before that one of
its partitions stands still."""

START_S = 30.0
"""The longest time from the start of a process until it answers."""

SILENT = 3
"""Polls in a row that may stay without an answer; the machine may be busy."""

_DELIVERED = re.compile(rb"^stream_dedup_events_total\{[^}]*\} (\S+)", re.MULTILINE)
_PARTITIONS = re.compile(rb"^stream_dedup_assigned_partitions\{[^}]*\} (\S+)", re.MULTILINE)
_READY = re.compile(rb"^stream_dedup_ready (\S+)", re.MULTILINE)


class Sample(NamedTuple):
    """What a worker answered; None where it did not.

    Attributes:
        at_s: when, on the monotonic clock.
        worker: its name.
        start: the number of its start.
        alive: the status of ``/healthz``.
        ready: the status of ``/readyz``.
        gauge: the metric `ready`.
        delivered: the events that it has delivered since its start.
        reasons: why it is not ready, as it says.
        partitions: how many it has.
    """

    at_s: float
    worker: str
    start: int
    alive: int | None = None
    ready: int | None = None
    gauge: float | None = None
    delivered: float | None = None
    reasons: str = ""
    partitions: float | None = None


class Stop(NamedTuple):
    """A time in which nothing could be delivered.

    Attributes:
        kind: the fault.
        from_s: its beginning, on the monotonic clock.
        to_s: its end.
    """

    kind: str
    from_s: float
    to_s: float


class Polled(Protocol):
    """A worker process."""

    name: str
    starts: int
    port: int

    @property
    def answering(self) -> bool:
        """Whether it runs, and is neither paused nor asked to end."""


class HealthWatch:
    """Polls workers until it is stopped; in a thread for each of them.

    Attributes:
        samples: what they answered.
        stops: the times in which nothing could be delivered.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.stops: list[Stop] = []
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()

    def add(self, worker: Polled) -> None:
        """Poll a worker from now on."""
        thread = threading.Thread(target=self._poll, args=(worker,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(4 * ANSWER_S)

    @contextmanager
    def stopped(self, kind: str) -> Iterator[None]:
        """Note that nothing can be delivered in this block."""
        from_s = time.monotonic()
        try:
            yield
        finally:
            self.stops.append(Stop(kind, from_s, time.monotonic()))

    def _poll(self, worker: Polled) -> None:
        while not self._stopping.wait(EVERY_S):
            if worker.answering:
                sample = ask(worker)
                if (sample.start, True) == (worker.starts, worker.answering):
                    self.samples.append(sample)


def ask(worker: Polled) -> Sample:
    """Poll a worker once."""
    at_s, start = time.monotonic(), worker.starts
    alive, _ = _get(worker.port, "/healthz")
    ready, reasons = _get(worker.port, "/readyz")
    _, metrics = _get(worker.port, "/metrics")
    gauge = _READY.search(metrics)
    return Sample(
        at_s,
        worker.name,
        start,
        alive,
        ready,
        float(gauge[1]) if gauge else None,
        sum(map(float, _DELIVERED.findall(metrics))) if metrics else None,
        reasons.decode(errors="replace").strip(),
        sum(map(float, _PARTITIONS.findall(metrics))) if metrics else None,
    )


def _get(port: int, path: str) -> tuple[int | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None, b""
    finally:
        connection.close()


def judge_health(samples: Sequence[Sample], stops: Sequence[Stop]) -> Verdict:
    """Compare answers with progress.

    Args:
        samples: what the workers answered.
        stops: the times in which nothing could be delivered.
    """
    verdict = Verdict()
    in_order = sorted(samples, key=lambda each: (each.worker, each.start, each.at_s))
    runs = [list(run) for _, run in groupby(in_order, key=lambda each: (each.worker, each.start))]
    for run in runs:
        _judge_answers(run, verdict)
        _judge_moving(run, verdict)
        _judge_gauge(run, verdict)
    noticed = [_judge_stop(stop, runs, verdict) for stop in stops]
    verdict.figures = {
        "polls of health": len(samples),
        "of them not ready": sum(each.ready == 503 for each in samples),
        "times in which nothing could move": len(stops),
        "seconds until readiness followed, at most": round(max(noticed, default=0)),
    }
    return verdict


def _judge_answers(run: Sequence[Sample], verdict: Verdict) -> None:
    """Once it has answered, a worker answers always, and is alive."""
    began_s, answered, silent = run[0].at_s, False, 0
    for sample in run:
        answered = answered or sample.alive is not None
        silent = silent + 1 if None in (sample.alive, sample.ready, sample.delivered) else 0
        late = sample.at_s - began_s > START_S
        if silent > SILENT and (answered or late):
            verdict.found("no answer", f"{_name(sample)} for {silent} polls")
        if sample.alive not in (None, 200):
            verdict.found("not alive", f"{_name(sample)}: {sample.alive}")


def _judge_moving(run: Sequence[Sample], verdict: Verdict) -> None:
    """A worker that delivers is ready, at least from time to time."""
    since_s = run[0].at_s
    for before, sample in pairwise(run):
        moved = (sample.delivered or 0) > (before.delivered or 0)
        if not moved or sample.ready != 503:
            since_s = sample.at_s
        elif sample.at_s - since_s >= MOVING_S:
            verdict.found(
                "not ready while events moved",
                f"{_name(sample)} delivers, and is not ready since {sample.at_s - since_s:.0f} s: "
                f"{sample.reasons}",
            )


def _judge_gauge(run: Sequence[Sample], verdict: Verdict) -> None:
    """The metric says what the page says; a change may come between the two polls."""
    differ = 0
    for sample in run:
        known = sample.gauge is not None and sample.ready is not None
        differ = differ + 1 if known and (sample.ready == 200) != (sample.gauge == 1) else 0
        if differ >= SILENT:
            verdict.found(
                "the metric ready differs",
                f"{_name(sample)}: {sample.gauge} and {sample.ready}",
            )


def _judge_stop(stop: Stop, runs: Sequence[Sequence[Sample]], verdict: Verdict) -> float:
    """While nothing can move, no worker is ready; return the seconds until that was so."""
    last_s = stop.from_s
    for run in runs:
        since_s, had = stop.from_s, run[0].partitions
        for sample in run:
            if sample.partitions != had:
                since_s, had = max(since_s, sample.at_s), sample.partitions
            if not stop.from_s <= sample.at_s < stop.to_s - 2 * EVERY_S or sample.ready != 200:
                continue
            last_s = max(last_s, sample.at_s)
            if sample.at_s - since_s > NOTICE_S:
                verdict.found(
                    "ready while nothing could move",
                    f"{_name(sample)}, {sample.at_s - stop.from_s:.0f} s after {stop.kind}",
                )
    return last_s - stop.from_s


def _name(sample: Sample) -> str:
    return f"{sample.worker} (start {sample.start})"

"""What the fault tests break: a broker, a Redis, links to both, and workers."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.faults.lines import MAX_EVENT_BYTES, PARTITIONS
from tests.faults.oracle import Verdict, judge
from tests.services.kafka import KafkaBroker, Record
from tests.services.processes import PortReservation, ServiceError, spawn, wait_until
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Proxy, Toxiproxy

Guarantee = Literal["at_least_once", "exactly_once"]
GUARANTEES: tuple[Guarantee, ...] = ("at_least_once", "exactly_once")

SESSION_S = 6.0
IDLE_S, QUIET_S, LEASE_S, EVERY_S, MAX_AGE_S = 4.0, 3.0, 3.0, 1.0, 20.0
STOP_S = 120.0
"""The longest time until a worker has ended after SIGTERM, whatever is away meanwhile."""

RESUMED_S = 3.0
"""A worker that was paused may look stuck for so long after it goes on."""

START = "--- start"
"""The beginning of the line that the harness writes into a worker's log at its start."""

COMMAND = Path(sys.executable).with_name("stream-dedup")


class Site:
    """A broker, a Redis that syncs every write, and links to both; a context manager.

    Attributes:
        broker: the broker.
        link: the proxy between workers and the broker.
        redis: the Redis.
        redis_link: the proxy between workers and Redis.
    """

    broker: KafkaBroker
    link: Proxy
    redis: RedisServer
    redis_link: Proxy

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            toxiproxy = stack.enter_context(Toxiproxy())
            self.broker = stack.enter_context(KafkaBroker(proxied=toxiproxy))
            self.link = self.broker.link
            self.redis = RedisServer(appendonly=True, extra={"appendfsync": "always"})
            stack.enter_context(self.redis)
            self.redis_link = toxiproxy.proxy(self.redis.port)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.redis_link.port}/0"


class Stage:
    """Fresh topics, a group and a namespace at a site, for one guarantee.

    Args:
        site: the servers.
        guarantee: the guarantee of delivery.
        folder: takes the workers' logs.
        settings: further settings of the workers.
        partitions: of the input and the output topic.
        outage_s: for how long the broker may be dead.

    Attributes:
        partitions: the numbers of partitions of the topics.
        grown_ms: when the input or output topic got one.
    """

    def __init__(
        self,
        site: Site,
        guarantee: Guarantee,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        partitions: int = PARTITIONS,
        outage_s: float = 0,
    ) -> None:
        self.site = site
        self.guarantee = guarantee
        self.folder = folder
        self.name = f"faults-{secrets.token_hex(4)}"
        self.topics = {
            use: f"{self.name}-{use}" for use in ("input", "output", "summaries", "dead")
        }
        counts = (partitions, partitions, 2, 1)
        self.partitions = dict(zip(self.topics, counts, strict=True))
        for use, count in self.partitions.items():
            site.broker.create_topic(self.topics[use], count)
        self.grown_ms: list[int] = []
        self._settings = dict(settings or {})
        self._outage_s = outage_s
        self._old_outputs: list[tuple[Record, bool]] = []  # of deleted topics; whether in doubt

    @property
    def input(self) -> str:
        return self.topics["input"]

    @property
    def group(self) -> str:
        return f"{self.name}-main"

    def settings(self, client_id: str) -> list[str]:
        """The configuration of a worker as command-line options."""
        one = "pipelines.0."
        values: dict[str, object] = {
            "kafka.bootstrap_servers": self.site.broker.bootstrap,
            "kafka.client_id": client_id,
            "kafka.group_id": self.name,
            "kafka.session_timeout_s": SESSION_S,
            "kafka.heartbeat_interval_s": 1,
            "kafka.request_timeout_s": 10,
            "kafka.max_poll_interval_s": 30,
            "kafka.metadata_max_age_s": 2,
            "index.url": self.site.redis_url,
            "worker.guarantee": self.guarantee,
            "worker.max_batch_events": 40,
            "worker.commit_every_s": 0.2,
            one + "topics": self.input,
            one + "output_topic": self.topics["output"],
            one + "summary_topic": self.topics["summaries"],
            one + "dead_letter_topic": self.topics["dead"],
            one + "emit": "annotate",
            one + "namespace": self.name,
            one + "max_event_bytes": MAX_EVENT_BYTES,
            one + "idle_s": IDLE_S,
            one + "max_age_s": MAX_AGE_S,
            one + "quiet_after_s": QUIET_S,
            one + "lease_s": LEASE_S,
            one + "summary_every_s": EVERY_S,
            **self._settings,
        }
        return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]

    def worker(self, name: str, program: list[str] | None = None) -> Worker:
        """Start a worker."""
        command = [*(program or [str(COMMAND), "run"]), *self.settings(name)]
        return Worker(name, command, self.folder / f"{name}.log")

    def add_partition(self, use: str) -> None:
        """Give the input or output topic another partition."""
        self.grown_ms.append(time.time_ns() // 1_000_000)
        self.partitions[use] += 1
        self.site.broker.add_partitions(self.topics[use], self.partitions[use])

    def delete_output(self) -> None:
        """Delete the output topic, and keep for the oracle what it held.

        Nobody may write to it meanwhile, so that this is exactly what is gone.
        """
        kafka, topic = self.site.broker, self.topics["output"]
        before: dict[int, int] = {}
        while before != (before := kafka.end_offsets(topic)):
            time.sleep(0.5)  # the broker may be storing what it has received
        once = self.guarantee == "exactly_once"
        certain = kafka.consume(topic, read_committed=once, timeout_s=120)
        self._old_outputs += [(each, False) for each in certain]
        if once:
            stable = kafka.end_offsets(topic, read_committed=True)
            every = kafka.consume(topic, read_committed=False, timeout_s=120)
            in_doubt = [each for each in every if each.offset >= stable[each.partition]]
            self._old_outputs += [(each, True) for each in in_doubt]
        kafka.delete_topic(topic)

    def create_output(self) -> None:
        """Create the output topic again."""
        self.site.broker.create_topic(self.topics["output"], self.partitions["output"])

    def wait_for_output(self, *, seconds: float) -> None:
        """Wait until the first events have left.

        Raises:
            ServiceError: it takes too long.
        """
        ends = partial(self.site.broker.end_offsets, self.topics["output"])
        wait_until(lambda: any(ends().values()), what="events leave", seconds=seconds)

    def read_to_the_end(self, *, seconds: float) -> None:
        """Wait until all input is committed.

        Raises:
            ServiceError: it takes too long.
        """
        kafka = self.site.broker
        ends = {(self.input, part): end for part, end in kafka.end_offsets(self.input).items()}

        def done() -> bool:
            known = kafka.committed(self.group)
            time.sleep(0.2)
            return all(known.get(place, 0) >= end for place, end in ends.items())

        try:
            wait_until(done, what="all is committed", seconds=seconds)
        except ServiceError as error:
            raise ServiceError(f"{error}: {kafka.committed(self.group)} of {ends}") from error

    def verdict_in_the_end(self, *, seconds: float) -> Verdict:
        """Wait until all input is committed, then for a verdict that nothing to come changes."""
        self.read_to_the_end(seconds=seconds)
        end_s = time.monotonic() + seconds
        verdict = self.verdict()
        while not verdict.conclusive and time.monotonic() < end_s:
            time.sleep(0.5)
            verdict = self.verdict()
        return verdict

    def judged(self, *, tries: int = 4) -> Verdict:
        """The oracle's verdict once the final summaries have been sent."""
        time.sleep(IDLE_S + QUIET_S)
        for left in reversed(range(tries)):
            self._wait_for_summaries()
            verdict = self.verdict()
            if verdict.conclusive or not left:
                return verdict
            time.sleep(LEASE_S)
        raise AssertionError("unreachable")

    def _wait_for_summaries(self) -> None:
        kafka, topic = self.site.broker, self.topics["summaries"]
        end_s = time.monotonic() + 180
        before = kafka.end_offsets(topic)
        while time.monotonic() < end_s:
            time.sleep(EVERY_S + 2)
            now = kafka.end_offsets(topic)
            if now == before:
                return
            before = now

    def verdict(self) -> Verdict:
        """The oracle's verdict now."""
        kafka, once = self.site.broker, self.guarantee == "exactly_once"
        inputs, outputs, summaries, dead = (
            kafka.consume(topic, read_committed=once or use == "input", timeout_s=120)
            for use, topic in self.topics.items()
        )
        verdict = judge(
            inputs,
            [*self._gone(outputs), *outputs],
            summaries,
            dead,
            exactly_once=once,
            partitions_kept=not self.grown_ms,
            grown_ms=self.grown_ms,
            outage_ms=round(1000 * self._outage_s),
        )
        if once:
            every = kafka.consume(self.topics["output"], read_committed=False, timeout_s=120)
            verdict.figures["outputs of aborted transactions"] = len(every) - len(outputs)
        return verdict

    def _gone(self, outputs: Sequence[Record]) -> list[Record]:
        """What deleted topics held.

        A transaction that was open at the deletion was committed later if its events were not
        written again: then its output is gone with the topic.
        """
        known = {each.key for each, in_doubt in self._old_outputs if not in_doubt}
        known |= {each.key for each in outputs}
        return [
            each for each, in_doubt in self._old_outputs if not in_doubt or each.key not in known
        ]


class Worker:
    """A worker process.

    Args:
        name: its client id.
        command: what it runs.
        log: takes its output.

    Attributes:
        starts: how often it was started.
        wanted: whether it should run; if it does not, it ended by itself.
        port: where it serves health and metrics.
    """

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.starts = 0
        self.wanted = False
        self._reservation = PortReservation()
        self.port = self._reservation.port
        self._command = [*command, "--set", f"http.port={self.port}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._polled_from_s = 0.0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.wanted = True
        with self.log.open("a") as log:
            log.write(f"{START} {self.starts} at {time.strftime('%H:%M:%S')}\n")
        self._process = spawn(self._command, directory=self.log.parent, log=self.log)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def answering(self) -> bool:
        """Whether it runs, and is neither paused nor asked to end."""
        return self.wanted and self.code is None and time.monotonic() >= self._polled_from_s

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Let it hang (SIGSTOP)."""
        self._polled_from_s = float("inf")
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)
        self._polled_from_s = time.monotonic() + RESUMED_S

    def kill(self) -> None:
        """End it like a crash."""
        self.wanted = False
        self.signal(signal.SIGKILL)
        self.wait(60)

    def close(self) -> None:
        """Kill it if it runs, and give up its port."""
        self.kill()
        self._reservation.release()

    def stop(self) -> int | None:
        """End it like an operator.

        Returns:
            Its exit code; None if it did not end and was killed.
        """
        self.wanted = False
        self.signal(signal.SIGTERM)
        code = self.wait(STOP_S)
        if code is None:
            self.kill()
        return code

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it still runs."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def silent(self) -> bool:
        """Whether it has written nothing since its start; it may not handle signals yet."""
        return self.last_lines(1).startswith(START)

    def last_lines(self, lines: int = 12) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])

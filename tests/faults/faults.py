"""The faults. Each one breaks servers, links or workers, and repairs them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.faults.harness import SESSION_S, Stage, Worker
from tests.faults.health import HealthWatch, ask
from tests.faults.lines import Producing
from tests.faults.members import members
from tests.services.processes import ServiceError, wait_until

LEAST, MOST = 2, 4
"""Workers at a time."""

LONG_S = 25.0
"""Long enough for readiness to follow."""

READY_S = 120.0
"""The longest time until all workers are ready after the previous faults."""

TAKEN_S = 120.0
"""The longest time until a group has dropped a silent member and is stable again."""


class Crew:
    """The workers of a stage.

    Args:
        stage: their topics and settings.
        rng: makes random choices.
        producing: writes the events.
        watch: polls their health.
        dead_s: how long a broker is dead.

    Attributes:
        workers: the workers that should run.
        deaths: workers that ended when they should not.
    """

    def __init__(
        self,
        stage: Stage,
        rng: random.Random,
        producing: Producing,
        watch: HealthWatch,
        dead_s: float,
    ) -> None:
        self.stage = stage
        self.rng = rng
        self.producing = producing
        self.watch = watch
        self.dead_s = dead_s
        self.workers: list[Worker] = []
        self.deaths: list[str] = []
        self.starts = 0
        self._names = 0

    def join(self) -> Worker:
        self._names += 1
        self.starts += 1
        worker = self.stage.worker(f"worker-{self._names}")
        self.workers.append(worker)
        self.watch.add(worker)
        return worker

    def leave(self, worker: Worker) -> None:
        """End a worker in an orderly way, and do not replace it."""
        self.workers.remove(worker)
        self.stop(worker)
        worker.close()

    def stop(self, worker: Worker) -> None:
        code = worker.stop()
        if code is None:
            self._died(worker, "did not end after SIGTERM")
        elif code and not (code == -signal.SIGTERM and worker.silent):
            self._died(worker, f"ended after SIGTERM with code {code}")

    def restart(self, worker: Worker) -> None:
        self.starts += 1
        worker.start()

    def one(self) -> Worker:
        return self.rng.choice(self.workers)

    def check_workers(self) -> None:
        """Report and restart workers that ended by themselves."""
        for worker in self.workers:
            if worker.wanted and worker.code is not None:
                self._died(worker, f"ended by itself with code {worker.code}")
                self.restart(worker)

    def _died(self, worker: Worker, how: str) -> None:
        self.deaths.append(f"{worker.name} {how}; its last lines:\n{worker.last_lines()}")


Fault = Callable[[Crew], None]


def kill_worker(crew: Crew) -> None:
    """Kill a worker (SIGKILL); restart it a little later."""
    worker = crew.one()
    worker.kill()
    time.sleep(crew.rng.choice((0, 0, 1, SESSION_S + 1)))
    crew.restart(worker)


def restart_worker(crew: Crew) -> None:
    """Stop a worker (SIGTERM); restart it at once."""
    worker = crew.one()
    crew.stop(worker)
    crew.restart(worker)


def worker_joins(crew: Crew) -> None:
    """Start another worker; with the most workers already, one leaves first."""
    if len(crew.workers) >= MOST:
        crew.leave(crew.one())
    crew.join()


def worker_leaves(crew: Crew) -> None:
    """Stop a worker (SIGTERM) without a replacement; with the fewest workers, one joins first."""
    if len(crew.workers) <= LEAST:
        crew.join()
        time.sleep(2)
    crew.leave(crew.one())


def zombie_worker(crew: Crew) -> None:
    """Pause a worker until its partitions are reassigned, then let it go on as if it owned them."""
    where = crew.stage.site.broker.bootstrap, crew.stage.group
    worker = crew.one()
    end_s = time.monotonic() + 30
    while not members(*where)[worker.name] and time.monotonic() < end_s:
        time.sleep(0.2)  # it has no partitions yet
    worker.pause()
    try:
        end_s = time.monotonic() + TAKEN_S
        while time.monotonic() < end_s:
            held = members(*where)
            if worker.name not in held and held.total():
                time.sleep(crew.rng.uniform(0.5, 2))  # the others go on meanwhile
                return
            time.sleep(0.2)
        raise ServiceError(f"the group did not give up {worker.name} within {TAKEN_S:g} s")
    finally:
        worker.resume()


def pause_broker(crew: Crew) -> None:
    """Pause the broker (SIGSTOP): connections stay open without answers."""
    broker = crew.stage.site.broker
    broker.pause()
    time.sleep(crew.rng.choice((0.5, 2, 4, SESSION_S + 2)))
    broker.resume()


def restart_broker(crew: Crew) -> None:
    """Stop or kill the broker, then start it with its data."""
    broker = crew.stage.site.broker
    if crew.rng.random() < 0.5:
        broker.stop()
    else:
        broker.kill()
    time.sleep(crew.rng.choice((0, 2)))
    _start_broker(crew)


def kill_broker_for_long(crew: Crew) -> None:
    """Kill the broker, and start it with its data only after a long time."""
    broker = crew.stage.site.broker
    with crew.watch.stopped("the broker died"):
        broker.kill()
        time.sleep(crew.dead_s)
    _start_broker(crew)


def _start_broker(crew: Crew) -> None:
    broker = crew.stage.site.broker
    for tries_left in (2, 1, 0):
        try:
            broker.start()
        except ServiceError:  # busy machine
            if not tries_left:
                raise
        else:
            return


def cut_broker(crew: Crew) -> None:
    """Cut all connections of workers to the broker, and refuse new ones for a while."""
    link = crew.stage.site.link
    link.disable()
    time.sleep(crew.rng.choice((0, 1, 3)))
    link.enable()


def slow_sink(crew: Crew) -> None:
    """Slow down and delay what workers send to the broker."""
    link = crew.stage.site.link
    link.add_toxic("latency", "upstream", latency=crew.rng.choice((200, 700)), jitter=100)
    link.add_toxic("bandwidth", "upstream", rate=crew.rng.choice((15, 40)))
    time.sleep(crew.rng.uniform(2, 5))
    link.remove_toxics()


def restart_redis(crew: Crew) -> None:
    """Kill or stop Redis, then start it with its data."""
    redis = crew.stage.site.redis
    if crew.rng.random() < 0.7:
        redis.kill()
    else:
        redis.stop()
    time.sleep(crew.rng.choice((0, 1)))
    redis.start()


def cut_redis(crew: Crew) -> None:
    """Cut the connections to Redis, or hold its answers back."""
    link = crew.stage.site.redis_link
    if crew.rng.random() < 0.5:
        link.disable()
        time.sleep(crew.rng.choice((0, 1, 3)))
        link.enable()
    else:
        link.add_toxic("timeout", "downstream", timeout=0)
        time.sleep(crew.rng.uniform(0.2, 2))
        # Held-back answers must not arrive later, so the connections are cut.
        link.remove_toxics()
        link.disable()
        link.enable()


def fill_redis(crew: Crew) -> None:
    """Leave Redis no memory for writes for a while."""
    redis = crew.stage.site.redis
    with crew.watch.stopped("Redis was full"):
        redis.command("CONFIG", "SET", "maxmemory", "1")
        time.sleep(crew.rng.choice((2, 5, LONG_S)))
    redis.command("CONFIG", "SET", "maxmemory", "0")


def grow_input(crew: Crew) -> None:
    """Add a partition to the input topic, and write to it."""
    crew.stage.add_partition("input")
    crew.producing.grown()


def grow_output(crew: Crew) -> None:
    """Add a partition to the output topic."""
    crew.stage.add_partition("output")


def remake_output(crew: Crew) -> None:
    """Delete the output topic under the workers, and create it again a little later.

    They are cut off while what is about to be gone is read for the oracle: so it knows exactly
    what that was. A worker that starts without the topic ends, and says so; so all have started.
    """
    link = crew.stage.site.link
    wait_until(
        lambda: all(ask(worker).ready == 200 for worker in crew.workers),
        what="all workers are ready",
        seconds=READY_S,
    )
    with crew.watch.stopped("the output topic was deleted"):
        link.disable()
        try:
            crew.stage.delete_output()
        finally:
            link.enable()
        time.sleep(crew.rng.choice((0, 3, LONG_S)))
    crew.stage.create_output()


FAULTS: dict[str, Fault] = {
    "worker killed": kill_worker,
    "worker restarted": restart_worker,
    "worker joined": worker_joins,
    "worker left": worker_leaves,
    "zombie worker": zombie_worker,
    "broker paused": pause_broker,
    "broker restarted": restart_broker,
    "broker cut off": cut_broker,
    "slow sink": slow_sink,
    "Redis restarted": restart_redis,
    "Redis cut off": cut_redis,
    "Redis full": fill_redis,
    "broker dead": kill_broker_for_long,
    "input grown": grow_input,
    "output grown": grow_output,
    "output re-made": remake_output,
}

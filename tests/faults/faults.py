"""The faults: each is done to the site or its workers, and mended again, when its turn comes."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.faults.harness import SESSION_S, Stage, Worker
from tests.faults.members import members
from tests.services.processes import ServiceError

LEAST, MOST = 2, 4
"""Workers at a time."""

TAKEN_S = 40.0
"""A group has lost a silent member by then, and has settled again."""


class Crew:
    """The workers of a stage, and what is done to them.

    Args:
        stage: where they work.
        rng: makes the choices.

    Attributes:
        workers: those there are.
        deaths: what was found amiss with them.
    """

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self.stage = stage
        self.rng = rng
        self.workers: list[Worker] = []
        self.deaths: list[str] = []
        self.starts = 0
        self._names = 0

    def join(self) -> Worker:
        self._names += 1
        self.starts += 1
        worker = self.stage.worker(f"worker-{self._names}")
        self.workers.append(worker)
        return worker

    def leave(self, worker: Worker) -> None:
        """One ends in good order, and is not replaced."""
        self.workers.remove(worker)
        self.stop(worker)

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

    def look_after(self) -> None:
        """Nobody may end by himself; who did is started anew, and told of."""
        for worker in self.workers:
            if worker.wanted and worker.code is not None:
                self._died(worker, f"ended by itself with code {worker.code}")
                self.restart(worker)

    def _died(self, worker: Worker, how: str) -> None:
        self.deaths.append(f"{worker.name} {how}; its last words:\n{worker.last_words()}")


Fault = Callable[[Crew], None]


def kill_worker(crew: Crew) -> None:
    """SIGKILL, and started anew a little later."""
    worker = crew.one()
    worker.kill()
    time.sleep(crew.rng.choice((0, 0, 1, SESSION_S + 1)))
    crew.restart(worker)


def restart_worker(crew: Crew) -> None:
    """SIGTERM, and started anew at once."""
    worker = crew.one()
    crew.stop(worker)
    crew.restart(worker)


def worker_joins(crew: Crew) -> None:
    """Another worker; if there are many, one has to go first."""
    if len(crew.workers) >= MOST:
        crew.leave(crew.one())
    crew.join()


def worker_leaves(crew: Crew) -> None:
    """SIGTERM, and nobody in its place; if there are few, another has come before."""
    if len(crew.workers) <= LEAST:
        crew.join()
        time.sleep(2)
    crew.leave(crew.one())


def zombie_worker(crew: Crew) -> None:
    """Silent until its partitions are taken from it, then back, and believing they are its own."""
    where = crew.stage.site.broker.bootstrap, crew.stage.group
    worker = crew.one()
    end_s = time.monotonic() + 10
    while not members(*where)[worker.name] and time.monotonic() < end_s:
        time.sleep(0.2)  # it has nothing that could be taken yet
    worker.signal(signal.SIGSTOP)
    try:
        end_s = time.monotonic() + TAKEN_S
        while time.monotonic() < end_s:
            held = members(*where)
            if worker.name not in held and held.total():
                time.sleep(crew.rng.uniform(0.5, 2))  # others read on
                return
            time.sleep(0.2)
        raise ServiceError(f"the group did not give up {worker.name} within {TAKEN_S:g} s")
    finally:
        worker.signal(signal.SIGCONT)


def pause_broker(crew: Crew) -> None:
    """SIGSTOP: connections stay, nothing answers."""
    broker = crew.stage.site.broker
    broker.pause()
    time.sleep(crew.rng.choice((0.5, 2, 4, SESSION_S + 2)))
    broker.resume()


def restart_broker(crew: Crew) -> None:
    """Ended in good order, or killed; then started with what it has on disk."""
    broker = crew.stage.site.broker
    if crew.rng.random() < 0.5:
        broker.stop()
    else:
        broker.kill()
    time.sleep(crew.rng.choice((0, 2)))
    for tries_left in (2, 1, 0):
        try:
            broker.start()
        except ServiceError:  # busy machine
            if not tries_left:
                raise
        else:
            return


def cut_broker(crew: Crew) -> None:
    """All connections of workers to the broker are cut, and refused for a while."""
    link = crew.stage.site.link
    link.disable()
    time.sleep(crew.rng.choice((0, 1, 3)))
    link.enable()


def slow_sink(crew: Crew) -> None:
    """What workers send gets to the broker late, and little at a time."""
    link = crew.stage.site.link
    link.add_toxic("latency", "upstream", latency=crew.rng.choice((200, 700)), jitter=100)
    link.add_toxic("bandwidth", "upstream", rate=crew.rng.choice((15, 40)))
    time.sleep(crew.rng.uniform(2, 5))
    link.remove_toxics()


def restart_redis(crew: Crew) -> None:
    """Killed, or ended in good order; then started with what it has on disk."""
    redis = crew.stage.site.redis
    if crew.rng.random() < 0.7:
        redis.kill()
    else:
        redis.stop()
    time.sleep(crew.rng.choice((0, 1)))
    redis.start()


def cut_redis(crew: Crew) -> None:
    """Connections to Redis are cut; or stay, but answers do not come any more."""
    link = crew.stage.site.redis_link
    if crew.rng.random() < 0.5:
        link.disable()
        time.sleep(crew.rng.choice((0, 1, 3)))
        link.enable()
    else:
        link.add_toxic("timeout", "downstream", timeout=0)
        time.sleep(crew.rng.uniform(0.2, 2))
        # What was held back is not let through later: the connections end.
        link.remove_toxics()
        link.disable()
        link.enable()


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
}

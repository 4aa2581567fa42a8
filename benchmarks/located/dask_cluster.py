"""The log of a Dask cluster that loses workers: `python -m benchmarks.located.dask_cluster FOLDER`.

Needs `pip install distributed`. Scheduler, workers and client run in this process, with all their
loggers at DEBUG.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import socket
import tempfile
import time
from pathlib import Path

import dask
import distributed

from benchmarks.located.labels import write_set
from benchmarks.located.python_logging import Located


def double(number: int) -> int:
    """Succeed quickly."""
    return 2 * number


def fail(number: int) -> int:
    """Fail."""
    raise ValueError(f"cannot double {number}")


def slow(number: int, seconds: float = 0.2) -> int:
    """Succeed slowly."""
    time.sleep(seconds)
    return number


def large(number: int) -> bytes:
    """Take much memory."""
    return bytes(3_000_000 + number)


def unpicklable(number: int) -> object:
    """Return what cannot be sent."""
    return (item for item in range(number))


def talk(number: int) -> None:
    """Log an event."""
    distributed.get_worker().log_event("topic", {"n": number})


async def one_round(client: distributed.Client, cluster: distributed.LocalCluster, n: int) -> None:
    """Compute, fail, lose workers, scale, and clean up."""
    tag = f"r{n}"
    await client.gather(client.map(double, range(40), key=[f"{tag}-d-{i}" for i in range(40)]))
    futures = client.map(fail, range(5), key=[f"{tag}-f-{i}" for i in range(5)], retries=n % 2)
    await distributed.wait(futures)
    await distributed.wait(client.map(talk, range(3), pure=False))
    await distributed.wait(client.map(unpicklable, range(2), pure=False))
    held = client.map(large, range(40), key=[f"{tag}-l-{i}" for i in range(40)])
    await distributed.wait(held)
    waiting = client.map(slow, range(40), key=[f"{tag}-s-{i}" for i in range(40)])
    await asyncio.sleep(0.3)
    workers = list(cluster.workers.values())
    lost = random.Random(n).choice(workers)
    if n % 3 == 0:
        await lost.close()
    elif n % 3 == 1:
        await client.retire_workers([str(worker.address) for worker in workers[:1]])
    else:
        cluster.scale(len(workers) - 1)
    await asyncio.sleep(0.5)
    cluster.scale(4)
    await client.cancel(waiting[20:])
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.gather(waiting[:20]), 10)
    with contextlib.suppress(Exception):
        await client.replicate(held[:4], n=2)
        await client.rebalance()
    with contextlib.suppress(Exception):
        await client.publish_dataset(**{tag: held[0]})
        await client.publish_dataset(**{tag: held[0]})
        await client.unpublish_dataset(f"{tag}-missing")
    with contextlib.suppress(Exception):
        await client.submit(double, 1, workers=["tcp://127.0.0.1:1"], key=f"{tag}-nowhere").result(
            timeout=1
        )
    with contextlib.suppress(Exception):
        await client.run(fail, n)
    if n % 4 == 3:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.restart(timeout=10), 20)
    with contextlib.suppress(Exception):
        async with distributed.Client(
            cluster.scheduler_address, asynchronous=True, name=f"guest-{n}"
        ) as guest:
            guest.submit(slow, n, 3, key=f"{tag}-guest")
            await asyncio.sleep(0.1)


async def work(folder: str, rounds: int) -> None:
    """Run a cluster through its life."""
    starting = distributed.LocalCluster(
        n_workers=4, threads_per_worker=2, processes=False, asynchronous=True,
        memory_limit="120MB", dashboard_address=":0", local_directory=folder,
        protocol="tcp", host="127.0.0.1",
    )  # fmt: skip
    async with starting as cluster, distributed.Client(cluster, asynchronous=True) as client:
        for number in range(rounds):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(one_round(client, cluster, number), 40)


def main() -> None:
    """Write `Distributed.tsv.gz` and its templates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the set")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    located = Located("distributed")
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed"):
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.setLevel(logging.DEBUG)
            logger.propagate = True
    logging.root.addHandler(located)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        dask.config.set(
            {"distributed.worker.memory.pause": 0.8, "distributed.admin.tick.limit": "200ms"}
        )
        asyncio.run(work(name, options.rounds))
        lines = (line._replace(text=line.text.replace(name, "/srv/dask")) for line in located.lines)
        print(write_set(options.folder, "Distributed", lines, [socket.gethostname()]), "lines")


if __name__ == "__main__":
    main()

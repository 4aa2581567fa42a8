"""A long round of events whose rules change while workers are killed, with real Kafka and Redis.

``python -m tests.faults.rules_round --events 1000000``: two workers read; every few seconds one of
them is killed (SIGKILL) and started again, and every second a rule is added and the one before is
undone. Then the oracle of the fault tests checks that no event was lost or counted twice, and no
event has joined a cluster against a rule that acted all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import cast

from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind, Undoing
from tests.faults.harness import GUARANTEES, Guarantee, Site, Stage
from tests.faults.lines import PARTITIONS, line

EVERY_S = 1.0
"""Between two changes of the rules."""

SESSION = "session of user <*> was <*> on this host"
APART = PatternRule(RuleKind.NEVER_VARIABLE, (SESSION,), 2)


def changing(number: int) -> PatternRule:
    kinds = [
        PatternRule(RuleKind.MERGE, (SESSION.replace("was <*>", "was begun"), "rare <*> <*> <*>")),
        PatternRule(RuleKind.SPLIT, ("rare <*> <*> <*> …",), 1, "x"),
        PatternRule(RuleKind.ALWAYS_VARIABLE, ("rare <*> <*> <*>",)),
        PatternRule(RuleKind.NAME, (SESSION,), value="sessions"),
    ]
    rule = kinds[number % len(kinds)]
    return PatternRule(rule.kind, rule.patterns, rule.slot, rule.value, time_us=number + 1)


class Editor(threading.Thread):
    """Adds a rule, and undoes the one before, again and again."""

    def __init__(self, url: str, namespace: str, every_s: float = EVERY_S) -> None:
        super().__init__()
        self.edits = 0
        self._url, self._namespace, self._every_s = url, namespace, every_s
        self._stop_it = threading.Event()
        self._ready = threading.Event()
        self.start()
        self._ready.wait(30)

    def run(self) -> None:
        asyncio.run(self._edit())

    async def _edit(self) -> None:
        client = RedisClient(self._url)
        rules = RedisRules(client, self._namespace)
        await rules.change(lambda book: book.add(APART))
        self._ready.set()
        while not self._stop_it.is_set():
            added = changing(self.edits)

            def edit(book: RuleBook, added: PatternRule = added) -> RuleBook:
                for rule in book.acting():
                    if rule.id != APART.id:
                        book = book.undo(rule.id, Undoing("editor", rule.time_us))
                return book.add(added)

            await rules.change(edit)
            self.edits += 1
            await asyncio.sleep(self._every_s)
        await client.aclose()

    def end(self) -> None:
        self._stop_it.set()
        self.join()


def clusters_by_state(stage: Stage) -> dict[str, set[bytes]]:
    """Return the clusters of events that a rule keeps apart all the time."""
    found: dict[str, set[bytes]] = {}
    for record in stage.site.broker.consume(stage.topics["output"], timeout_s=120):
        words = (record.value or b"").split()
        if words[:3] == [b"session", b"of", b"user"] and words[5] != b"refused":
            cluster = dict(record.headers)["sd-cluster"]
            found.setdefault(words[5].decode(), set()).add(cluster or b"")
    return found


LARGE = {
    "worker.max_batch_events": 2_000,
    "worker.commit_every_s": 0.5,
}
"""Settings of the workers: of the usual ones, batches are so small that events take long."""


def produce(stage: Stage, rng: random.Random, first: int, count: int) -> None:
    """Write events, in order over the partitions."""
    for part in range(PARTITIONS):
        numbers = [number for number in range(first, first + count) if number % PARTITIONS == part]
        stage.site.broker.produce(
            stage.input,
            [line(rng, number) for number in numbers],
            partition=part,
            keys=[b"id-%d" % number for number in numbers],
            headers=[(("host", b"a"),) for _ in numbers],
        )


def play(
    site: Site, guarantee: Guarantee, folder: Path, *, events: int, rate: int, kill_s: float,
    seed: int, wait_s: float,
) -> bool:  # fmt: skip
    """Play a round, print what came out, and return whether all was kept."""
    stage = Stage(site, guarantee, folder, LARGE)
    rng = random.Random(seed)
    editor = Editor(site.redis_url, stage.name)  # its first rule acts from the beginning
    workers = [stage.worker(f"{stage.name}-{number}") for number in range(2)]
    written = kills = 0
    begun_s = killed_s = time.monotonic()
    try:
        while written < events:
            count = min(rate, events - written)
            produce(stage, rng, written, count)
            written += count
            if time.monotonic() - killed_s > kill_s:
                victim = rng.choice(workers)
                victim.kill()
                victim.start()
                kills, killed_s = kills + 1, time.monotonic()
            time.sleep(max(0.0, begun_s + written / rate - time.monotonic()))
        stage.read_to_the_end(seconds=wait_s)
        edits = editor.edits
        verdict = stage.judged(tries=12)
        clusters = clusters_by_state(stage)
    finally:
        editor.end()
        for worker in workers:
            worker.close()
    apart = clusters["begun"] & clusters["kept"] == set()
    sys.stdout.write(
        f"{guarantee}, seed {seed}: {written:,} events, {edits} changes of rules, {kills} kills, "
        f"{time.monotonic() - begun_s:.0f} s\n{verdict}\n"
        f"merges against a rule: {'none' if apart else clusters}\n"
    )
    sys.stdout.flush()
    return verdict.good and apart


def main() -> None:
    """Play one round for each guarantee."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=4_000, help="events a second")
    parser.add_argument("--kill-s", type=float, default=10.0, help="between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait-s", type=float, default=3_600.0, help="for the end")
    parser.add_argument("--guarantee", choices=[*GUARANTEES, "both"], default="both")
    given = parser.parse_args()
    chosen = GUARANTEES if given.guarantee == "both" else [cast("Guarantee", given.guarantee)]
    folder = Path(tempfile.mkdtemp(prefix="rules-round-"))
    good = True
    for guarantee in chosen:
        with Site() as site:
            good &= play(
                site, guarantee, folder, events=given.events, rate=given.rate,
                kill_s=given.kill_s, seed=given.seed, wait_s=given.wait_s,
            )  # fmt: skip
    sys.stdout.write(f"the workers' logs: {folder}\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()

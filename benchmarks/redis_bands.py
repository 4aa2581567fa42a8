"""Phase G of `redis_index`: keys of bands, of messages and at their largest."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.console import Console
from rich.table import Table

from benchmarks.redis_meter import BATCH, NOW_US, Cost, Meter, cost_table, memory_usage, opened
from benchmarks.speed import Target, at_most
from stream_dedup.features.recipe import load_recipe
from stream_dedup.fingerprint.bands import BITS
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import Query, Resolution
from stream_dedup.index.redis.maintenance import RENEWED_AT_ONCE
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Position
from stream_dedup.tables.sketches import SKETCH, sketch
from tests.services.redis import RedisServer

RECIPE = load_recipe("text")
ROUNDS, ROUND = 5, 5 * BATCH
WORDS = 20_000
LENGTHS = (2, 3, 4, 4, 5, 5, 6, 7, 8, 10)
LETTERS = {
    "e": 12, "t": 9, "a": 8, "o": 8, "i": 7, "n": 7, "s": 6, "h": 6, "r": 6, "d": 4, "l": 4,
    "c": 3, "u": 3, "m": 2, "w": 2, "f": 2, "g": 2, "y": 2, "p": 2, "b": 1, "v": 1, "k": 1,
}  # fmt: skip
"""Letters of English words, about as frequent as they are."""
LARGER_FORM = ("hash-max-listpack-value", "1024")
"""The setting of Redis that the sizing page advises."""

KINDS = {"tables": "sd:*:t:*", "clusters": "sd:*:c:*", "exact hashes": "sd:*:e:*"}


class Messages:
    """Messages of 8 to 20 words, in which a few words are frequent and most are rare."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        letters, shares = (*LETTERS,), (*LETTERS.values(),)
        self._words = [
            "".join(self._rng.choices(letters, shares, k=self._rng.choice(LENGTHS)))
            for _ in range(WORDS)
        ]
        self._weights = [*accumulate(1 / (place + 3) for place in range(WORDS))]

    def make(self, count: int) -> list[bytes]:
        """Make as many messages."""
        chosen = self._rng.choices
        return [
            " ".join(
                chosen(self._words, cum_weights=self._weights, k=self._rng.randint(8, 20))
            ).encode()
            for _ in range(count)
        ]

    def changed(self, message: bytes) -> bytes:
        """Return a message with one word of ten replaced, one at least."""
        words = message.split()
        for place in self._rng.sample(range(len(words)), max(1, len(words) // 10)):
            words[place] = self._rng.choice(self._words).encode()
        return b" ".join(words)


def queries_of(index: RedisIndex, messages: Sequence[bytes], first: int) -> list[Query]:
    """Hash messages under the key of an index."""
    fingerprinter = Fingerprinter(RECIPE, index.key)
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(messages, None), full=True)
    return [
        _query(first + n, numbers.exact[n], numbers.fingerprint(n), numbers.sketches[n],
               near=numbers.words[n] >= RECIPE.match.min_features)
        for n in range(len(messages))
    ]  # fmt: skip


def largest(rng: random.Random, first: int, count: int) -> list[Query]:
    """Queries of long texts that have nothing in common."""
    return [
        _query(first + n, rng.getrandbits(64), rng.getrandbits(BITS), _sketch(rng), near=True)
        for n in range(count)
    ]


def _sketch(rng: random.Random) -> bytes:
    return sketch(rng.getrandbits(32) for _ in range(2 * SKETCH))


def _query(offset: int, exact: int, fingerprint: int, sketch: bytes, *, near: bool) -> Query:
    time_us = NOW_US + 1_000 * offset
    position = Position("bench", 0, offset)
    return Query("", exact, fingerprint, sketch, near, time_us, time_us, position)


async def bench_bands(
    server: RedisServer, meter: Meter, out: Console, *, sizes: Sequence[int]
) -> list[Target]:
    """What an event costs that opens a cluster, and one that joins by its keys; the memory."""
    table = cost_table(
        f"G. keys of bands, laid out for as many clusters as are stored, batches of {BATCH}",
        "server, µs", "client, µs", "commands", "opened, %", "bytes a cluster",
        *(f"{name}, bytes" for name in KINDS),
    )  # fmt: skip
    targets: list[Target] = []
    for size in sizes:
        for name, form in (("messages", ""), ("messages", LARGER_FORM[1]), ("long texts", "")):
            if form:
                server.command("CONFIG", "SET", LARGER_FORM[0], form)
            async with opened(server, meter, RECIPE, max_clusters=size) as index:
                empty = meter.used_memory()
                stored = _stored(index, name, size + 2 * ROUNDS * ROUND)
                queries = [query for _ in range(size // BATCH) for query in next(stored)]
                for start in range(0, size, BATCH):
                    await index.resolve(queries[start : start + BATCH], NOW_US)
                await _renew(index)
                clusters = (await index.size()).clusters
                used = (meter.used_memory() - empty) / clusters
                parts = [memory_usage(server, pattern) / clusters for pattern in KINDS.values()]
                memory = [f"{used:.0f}", *(f"{part:.0f}" for part in parts)]
                title = f"{name}, {size:,}" + (f", {LARGER_FORM[0]} {form}" if form else "")
                new, share = await _timed(index, meter, _rounds(stored))
                _row(table, f"{title}: new", new, share, memory)
                if name == "messages":
                    known, share = await _timed(index, meter, _near(index, size))
                    _row(table, f"{title}: near", known, share, [""] * len(memory))
                    if size == sizes[-1] and not form:
                        targets += [
                            at_most("G. messages: new, server", new.server_us, 120, "µs"),
                            at_most("G. messages: near, server", known.server_us, 90, "µs"),
                        ]
                if not form:
                    async with opened(
                        server, meter, RECIPE, max_clusters=size, mirror_size=0, empty=False
                    ) as without:
                        new, share = await _timed(without, meter, _rounds(stored))
                    _row(table, f"{title}: new, no mirror", new, share, [""] * len(memory))
                if size == sizes[-1] and (form or name != "messages"):
                    targets.append(at_most(f"G. {title}: a cluster", used, 900, "bytes"))
            if form:
                server.command("CONFIG", "SET", LARGER_FORM[0], "64")
    out.print(table)
    return targets


async def _renew(index: RedisIndex) -> None:
    """Have a round renew all slices, as workers do: then inserting need not."""
    slices = (index.layout.table_layout.tables + 1) * index.layout.slices
    for _ in range(slices // RENEWED_AT_ONCE + 2):
        await index.expire(NOW_US)


def _stored(index: RedisIndex, name: str, count: int) -> Iterator[list[Query]]:
    rng, messages = random.Random(7), Messages(7)
    for first in range(0, count, BATCH):
        if name == "messages":
            yield queries_of(index, messages.make(BATCH), first)
        else:
            yield largest(rng, first, BATCH)


def _rounds(stored: Iterator[list[Query]]) -> list[list[Query]]:
    """What the rounds of a measurement resolve."""
    return [[q for _ in range(ROUND // BATCH) for q in next(stored)] for _ in range(ROUNDS)]


def _near(index: RedisIndex, size: int) -> list[list[Query]]:
    """Changed copies of stored messages."""
    messages = Messages(7)
    stored = [message for _ in range(ROUNDS * ROUND // BATCH) for message in messages.make(BATCH)]
    first = size + 2 * ROUNDS * ROUND
    rounds = []
    for start in range(0, len(stored), ROUND):
        changed = [messages.changed(message) for message in stored[start : start + ROUND]]
        rounds.append(queries_of(index, changed, first + start))
    return rounds


async def _timed(
    index: RedisIndex, meter: Meter, rounds: Sequence[list[Query]]
) -> tuple[Cost, float]:
    costs, answers = [], list[Resolution]()
    for queries in rounds:

        async def work(queries: list[Query] = queries) -> None:
            for start in range(0, len(queries), BATCH):
                answers.extend(await index.resolve(queries[start : start + BATCH], NOW_US))

        costs.append(await meter.time(len(queries), work()))
    return Cost.best(costs), sum(answer.new for answer in answers) / len(answers)


def _row(table: Table, name: str, cost: Cost, share: float, memory: Sequence[str]) -> None:
    table.add_row(
        name, f"{cost.server_us:.1f}", f"{cost.client_us:.0f}", f"{cost.commands:.1f}",
        f"{100 * share:.1f}", *memory,
    )  # fmt: skip

"""Phase D of `redis_index`: the longest single call of each script, which others wait for."""

from __future__ import annotations

import random
from array import array

from rich.console import Console

from benchmarks.redis_meter import NOW_US, Meter, opened, random_query
from benchmarks.reporting import Target, at_most, cost_table
from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.windows import Windows
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import DELTA_BYTES, MAX_DELTAS, ClusterDelta, Commit, Query
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Partition
from tests.services.redis import RedisServer

RECIPE = Recipe(match=Match(k=6, jaccard=0.7))
HOUR_US = 3600 * US_PER_S
WINDOWS = Windows(idle_us=HOUR_US, max_age_us=HOUR_US)
HERE = Partition("bench", 0)
WANTED_MS = 5.0
LINE = b"a line of a log, as long as most are"


async def bench_expiry(server: RedisServer, meter: Meter, out: Console, *, clusters: int) -> None:
    """Clusters with aliases expire at once; their summaries are claimed and confirmed."""
    async with opened(server, meter, RECIPE, windows=WINDOWS) as index:
        owned = await index.claim_partition(HERE, None, NOW_US)
        offset = await _open(index, owned.fence, clusters)
        later = NOW_US + 2 * HOUR_US
        late = Commit(HERE, owned.fence, offset, offset, offset + 1, later, ())
        cost = await meter.time(clusters, index.record(late, later))
        swept = await meter.time(clusters, _expire(index, later))
        emitted = await meter.time(clusters, _emit(index, later))
        size = await index.size()
    out.print(
        f"D. {clusters:,} clusters with an alias each expire at once: "
        f"{cost.server_us + swept.server_us:.0f} µs of the server a cluster to close and purge, "
        f"{emitted.server_us:.0f} µs to claim and confirm; {size.expired:,} expired, "
        f"{size.waiting:,} wait, {size.fingerprints:,} fingerprints are left"
    )


async def _open(index: RedisIndex, fence: int, clusters: int) -> int:
    """Open clusters, give each an alias, record both, then one event more of each; the next offset.

    A record counts as many as the engine lets one of clusters that become due.
    """
    rng = random.Random(13)
    opened: list[int] = []
    with_values = MAX_DELTAS * DELTA_BYTES // (2 * DELTA_BYTES + len(LINE))
    for start in range(0, clusters, with_values):
        first = 2 * start
        queries: list[Query] = []
        for number in range(min(with_values, clusters - start)):
            sketch = array("Q", sorted(rng.getrandbits(64) for _ in range(12))).tobytes()
            fingerprint = rng.getrandbits(64)
            near = fingerprint ^ 1 << rng.randrange(64)
            queries += (
                random_query(first + 2 * number, fingerprint, sketch),
                random_query(first + 2 * number + 1, near, sketch),
            )
        answers = await index.resolve(queries, NOW_US)
        deltas: dict[int, ClusterDelta] = {}
        for answer in answers:
            delta = deltas.setdefault(
                answer.cluster, ClusterDelta(answer.cluster, 0, answer.opened_us, answer.last_us)
            )
            delta.count += 1
            delta.representative = delta.representative or LINE
        last = first + len(queries) - 1
        await index.record(
            Commit(HERE, fence, first, last, last + 1, queries[-1].last_us, list(deltas.values())),
            NOW_US,
        )
        opened += deltas
    for number, start in enumerate(range(0, clusters, MAX_DELTAS), 2 * clusters):
        bare = [
            ClusterDelta(identity, 1, NOW_US, NOW_US) for identity in opened[start:][:MAX_DELTAS]
        ]
        await index.record(Commit(HERE, fence, number, number, number + 1, NOW_US, bare), NOW_US)
    return number + 1


async def _expire(index: RedisIndex, now_us: int) -> None:
    while (await index.size()).clusters:
        await index.expire(now_us)


async def _emit(index: RedisIndex, now_us: int) -> None:
    while summaries := await index.claim(1_000, now_us):
        await index.confirm([(one.cluster, one.revision) for one in summaries], now_us)


def report_longest(meter: Meter, out: Console) -> list[Target]:
    """The longest call of each script, over all phases so far."""
    table = cost_table(
        "D. the longest calls of each script, by the processor time of the server's thread",
        "calls", "longest, ms", "second", "tenth", "99 %", "median",
    )  # fmt: skip
    for name, took in sorted(meter.calls.items()):
        took.sort(reverse=True)
        places = (0, 1, 9, len(took) // 100, len(took) // 2)
        shown = (f"{took[place] / 1e6:.2f}" if place < len(took) else "" for place in places)
        table.add_row(name, f"{len(took):,}", *shown)
    out.print(table)
    longest = max((took[0] for took in meter.calls.values()), default=0)
    return [at_most("D. longest call of a script", longest / 1e6, WANTED_MS, "ms")]

"""Measuring: the numbers that are looked up once a second, rather than told as things happen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from stream_dedup.engine.engine import Counts
from stream_dedup.errors import BrokerUnavailable, IndexReset, IndexUnavailable
from stream_dedup.index.base import IndexSize
from stream_dedup.worker.assignment import Assignment
from stream_dedup.worker.context import Context
from stream_dedup.worker.partition import PartitionState, State


class Standing(NamedTuple):
    """Where a pipeline stands.

    Attributes:
        partitions: partitions that are read.
        lag: events not delivered yet, as far as is known.
        backlog: of these, events read.
        batches: batches on their way.
        delivered: events delivered since it was started.
        counts: what was decided.
    """

    partitions: int
    lag: int
    backlog: int
    batches: int
    delivered: int
    counts: Counts


class Measuring:
    """Looks the numbers of a pipeline up.

    Args:
        context: what the pipeline's parts share.
        assignment: its partitions.
    """

    def __init__(self, context: Context, assignment: Assignment) -> None:
        self._context = context
        self._assignment = assignment
        self._told = Counts()
        self._size: IndexSize | None = None
        self._resets = 0

    async def run(self) -> None:
        """Measure, once a second, for ever."""
        while True:
            await asyncio.sleep(1)
            try:
                self._decisions()
                await self._lag()
                await self._index()
            except (BrokerUnavailable, IndexUnavailable, IndexReset):
                continue  # the stages say what is amiss

    async def standing(self) -> Standing:
        """Where it stands now."""
        states = list(self._assignment)
        lag = sum(behind for _, behind in await self._behind())
        backlog = sum(state.events for state in states)
        partitions = sum(state.state is State.OPEN for state in states)
        counts = self._context.engine.counts
        batches = sum(state.in_flight for state in states)
        delivered = self._assignment.events_delivered
        return Standing(partitions, lag, backlog, batches, delivered, counts)

    async def _behind(self) -> list[tuple[PartitionState, int]]:
        states = list(self._assignment)
        ends = await self._context.source.ends([state.partition for state in states])
        return [
            (state, max(0, ends.get(state.partition, state.end) - state.delivered))
            for state in states
        ]

    def _decisions(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        counts, told = self._context.engine.counts, self._told
        self._told = replace(counts, passed=dict(counts.passed))
        passed, passed_before = sum(counts.passed.values()), sum(told.passed.values())
        for decision, value in (
            ("new", counts.new - told.new),
            ("duplicate", counts.duplicates - told.duplicates),
            ("passed", passed - passed_before),
        ):
            metrics.add("decisions_total", value, pipeline=name, decision=decision)
        for reason, value in counts.passed.items():
            more = value - told.passed.get(reason, 0)
            metrics.add("passed_total", more, pipeline=name, reason=reason)
        hits = (counts.events - passed - counts.asked) - (told.events - passed_before - told.asked)
        metrics.add("near_cache_hits_total", max(0, hits), pipeline=name)
        metrics.add("redelivered_total", counts.redelivered - told.redelivered, pipeline=name)
        metrics.add("replayed_total", counts.replayed - told.replayed, pipeline=name)
        metrics.add("clamped_total", counts.clamped - told.clamped, pipeline=name)
        metrics.set("near_cache_entries", self._context.engine.near_cache_entries, pipeline=name)

    async def _lag(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        for state, behind in await self._behind():
            if not state.gone:
                topic, number = state.partition
                metrics.set("lag_events", behind, pipeline=name, topic=topic, partition=number)
        states = list(self._assignment)
        metrics.set("backlog_events", sum(state.events for state in states), pipeline=name)
        open_states = sum(state.state is State.OPEN for state in states)
        metrics.set("assigned_partitions", open_states, pipeline=name)

    async def _index(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        index = self._context.engine.index
        metrics.add("index_resets_total", index.resets - self._resets, pipeline=name)
        self._resets = index.resets
        metrics.set("mirror_entries", index.mirrored, pipeline=name)
        size = await index.size()
        before, self._size = self._size or size, size
        metrics.set("clusters", size.clusters, pipeline=name)
        metrics.set("fingerprints", size.fingerprints, pipeline=name)
        metrics.set("waiting_clusters", size.waiting, pipeline=name)
        # Those of an index that was begun anew start at nothing.
        more = max(0, size.evicted - before.evicted)
        metrics.add("clusters_evicted_total", more, pipeline=name)
        more = max(0, size.expired - before.expired)
        metrics.add("clusters_expired_total", more, pipeline=name)
        more = max(0, size.truncated - before.truncated)
        metrics.add("truncated_searches_total", more, pipeline=name)

"""Metrics that are read once a second, rather than counted as things happen."""

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


class PipelineStats(NamedTuple):
    """The current state of a pipeline.

    Attributes:
        partitions: partitions that are read.
        lag: events not delivered yet; None until it is known.
        backlog: of these, events read.
        batches: batches in flight.
        delivered: events delivered since the start.
        counts: the decisions.
        clusters: live clusters in the index; None until it is known.
    """

    partitions: int
    lag: int | None
    backlog: int
    batches: int
    delivered: int
    counts: Counts
    clusters: int | None


class MetricsReporter:
    """Reports a pipeline's metrics once a second.

    Args:
        context: what the pipeline's parts share.
        assignment: its partitions.
    """

    def __init__(self, context: Context, assignment: Assignment) -> None:
        self._context = context
        self._assignment = assignment
        self._reported = Counts()
        self._resets = 0
        self._lag: int | None = None
        self._size: IndexSize | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(1)
            try:
                self._report_decisions()
                await self._report_lag()
                await self._report_index()
            except (BrokerUnavailable, IndexUnavailable, IndexReset):
                continue  # the stages report it

    def stats(self) -> PipelineStats:
        """The current state; lag and clusters as they were last reported."""
        states = list(self._assignment)
        return PipelineStats(
            partitions=_open(states),
            lag=self._lag,
            backlog=sum(state.events for state in states),
            batches=sum(state.in_flight for state in states),
            delivered=self._assignment.events_delivered,
            counts=self._context.engine.counts,
            clusters=self._size.clusters if self._size is not None else None,
        )

    def _report_decisions(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        counts, before = self._context.engine.counts, self._reported
        self._reported = replace(counts, passed=dict(counts.passed))
        passed, passed_before = sum(counts.passed.values()), sum(before.passed.values())
        for decision, value in (
            ("new", counts.new - before.new),
            ("duplicate", counts.duplicates - before.duplicates),
            ("passed", passed - passed_before),
        ):
            metrics.add("decisions_total", value, pipeline=name, decision=decision)
        for reason, value in counts.passed.items():
            more = value - before.passed.get(reason, 0)
            metrics.add("passed_total", more, pipeline=name, reason=reason)
        hits = counts.events - passed - counts.asked
        hits_before = before.events - passed_before - before.asked
        metrics.add("near_cache_hits_total", max(0, hits - hits_before), pipeline=name)
        metrics.add("redelivered_total", counts.redelivered - before.redelivered, pipeline=name)
        metrics.add("replayed_total", counts.replayed - before.replayed, pipeline=name)
        metrics.add("clamped_total", counts.clamped - before.clamped, pipeline=name)
        metrics.set("near_cache_entries", self._context.engine.near_cache_entries, pipeline=name)

    async def _report_lag(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        states = list(self._assignment)
        ends = await self._context.source.ends([state.partition for state in states])
        self._lag = 0
        for state in states:
            behind = max(0, ends.get(state.partition, state.end) - state.delivered)
            self._lag += behind
            if not state.gone:
                topic, number = state.partition
                metrics.set("lag_events", behind, pipeline=name, topic=topic, partition=number)
        states = list(self._assignment)
        metrics.set("backlog_events", sum(state.events for state in states), pipeline=name)
        metrics.set("assigned_partitions", _open(states), pipeline=name)

    async def _report_index(self) -> None:
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
        # The counts of an index that lost its data begin at zero again.
        more = max(0, size.evicted - before.evicted)
        metrics.add("clusters_evicted_total", more, pipeline=name)
        more = max(0, size.expired - before.expired)
        metrics.add("clusters_expired_total", more, pipeline=name)
        more = max(0, size.truncated - before.truncated)
        metrics.add("truncated_searches_total", more, pipeline=name)


def _open(states: list[PartitionState]) -> int:
    return sum(state.state is State.OPEN for state in states)

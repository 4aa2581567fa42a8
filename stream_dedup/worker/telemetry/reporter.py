"""Metrics that are read regularly, rather than counted as things happen; readiness by progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from stream_dedup.clock import US_PER_S, monotonic_s
from stream_dedup.engine.engine import Counts
from stream_dedup.errors import BrokerRefused, BrokerUnavailable, IndexReset, IndexUnavailable
from stream_dedup.index.base import IndexSize
from stream_dedup.model import Partition
from stream_dedup.worker.assignment import Assignment
from stream_dedup.worker.context import Context
from stream_dedup.worker.partition import PartitionState, State
from stream_dedup.worker.summaries import SummaryEmitter
from stream_dedup.worker.telemetry.progress import REASONS, Progress
from stream_dedup.worker.telemetry.waiting import Waiting

log = logging.getLogger(__name__)

ENDS_EVERY_S = 2.0
"""How often the broker is asked for the ends of the partitions: one request to each broker, and
Prometheus scrapes every 15 s."""

ENDS_TIMEOUT_S = 5.0
"""Longest wait for the answer. A broker first answers a fetch that waits on the same connection,
which takes half a second; the driver asks again while a partition has no leader."""


class PipelineStats(NamedTuple):
    """The current state of a pipeline.

    Attributes:
        partitions: partitions that are read.
        lag: events not delivered yet; None until it is known.
        batches: batches in flight.
        delivered: events delivered since the start.
        counts: the decisions.
        clusters: live clusters in the index; None until it is known.
    """

    partitions: int
    lag: int | None
    batches: int
    delivered: int
    counts: Counts
    clusters: int | None


class MetricsReporter:
    """Reports a pipeline's metrics regularly, and whether its events move.

    Three tasks do it: one for what the process itself knows, one asks the broker, one the index. So
    a service that does not answer holds up nothing but its own figures.

    Args:
        context: what the pipeline's parts share.
        assignment: its partitions.
        summaries: emits its summaries.
    """

    def __init__(self, context: Context, assignment: Assignment, summaries: SummaryEmitter) -> None:
        self._context = context
        self._assignment = assignment
        self._summaries = summaries
        self._reported = Counts()
        self._resets = self._refused_commits = 0
        self._lags: dict[Partition, int] = {}
        self._size: IndexSize | None = None
        self._waiting = Waiting()
        worker = context.worker
        self._progress = Progress(
            {
                "poll": 2 * ENDS_EVERY_S,
                "decide": worker.batch_wait_s,
                "commit": worker.commit_every_s,
                "emit": 2 * context.summaries_every_s,
            }
        )

    async def run(self) -> None:
        """Report until cancelled.

        Raises:
            IndexRefused: the server refuses, as after a change of the password.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_regularly(1.0, self._report_process))
                tasks.create_task(_regularly(ENDS_EVERY_S, self._ask_ends))
                tasks.create_task(_regularly(1.0, self._report_index))
        except ExceptionGroup as group:  # the first says why
            raise group.exceptions[0] from None

    def stats(self) -> PipelineStats:
        """The current state; lag and clusters as they were last reported."""
        states = list(self._assignment)
        return PipelineStats(
            partitions=_open(states),
            lag=sum(self._lags.values()) if self._lags else None,
            batches=sum(state.in_flight for state in states),
            delivered=self._assignment.events_delivered,
            counts=self._context.engine.counts,
            clusters=self._size.clusters if self._size is not None else None,
        )

    def _report_decisions(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        counts, before = self._context.engine.counts, self._reported
        self._reported = replace(counts, passed=dict(counts.passed), rules=dict(counts.rules))
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
        for found_by, value in counts.rules.items():
            more = value - before.rules.get(found_by, 0)
            metrics.add("matches_total", more, pipeline=name, rule=found_by)
        hits = counts.events - passed - counts.asked
        hits_before = before.events - passed_before - before.asked
        metrics.add("near_cache_hits_total", max(0, hits - hits_before), pipeline=name)
        metrics.add("redelivered_total", counts.redelivered - before.redelivered, pipeline=name)
        metrics.add("replayed_total", counts.replayed - before.replayed, pipeline=name)
        refused = self._context.engine.refused_commits
        metrics.add("refused_commits_total", refused - self._refused_commits, pipeline=name)
        self._refused_commits = refused
        metrics.add("clamped_total", counts.clamped - before.clamped, pipeline=name)
        metrics.set("near_cache_entries", self._context.engine.near_cache_entries, pipeline=name)

    # ------------------------------------------------------------ what the process knows

    async def _report_process(self) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        self._report_decisions()
        self._report_progress(monotonic_s())
        self._log_waiting(monotonic_s())
        states = list(self._assignment)
        metrics.set("backlog_events", sum(state.events for state in states), pipeline=name)
        metrics.set("assigned_partitions", _open(states), pipeline=name)
        metrics.set("paused_partitions", sum(bool(s.paused) for s in states), pipeline=name)

    def _report_progress(self, now_s: float) -> None:
        """Report for how long each step stands still; the worker is not ready if that is long."""
        context, assignment, progress = self._context, self._assignment, self._progress
        partitions = assignment.partitions
        if not assignment.rebalancing:
            progress.keep(partitions)
        for state in assignment:
            place, is_open = state.partition, state.state is State.OPEN
            full = is_open and not state.has_room
            progress.note("poll", place, state.read, None, now_s=now_s, excused=full)
            if is_open:
                progress.note("decide", place, state.decided, state.read, now_s=now_s)
                progress.note("commit", place, state.committed, state.delivered, now_s=now_s)
            if is_open or state.owed:
                goal = max(state.decided, state.owed)
                progress.note("deliver", place, state.delivered, goal, now_s=now_s)
        # The pipeline as a whole moves while its partitions do. If one stands still and is then
        # lost, the time goes on from where it was.
        is_stalled = progress.stalled("poll", partitions, now_s=now_s).partition is not None
        moves = bool(partitions) and not assignment.rebalancing and not is_stalled
        progress.note("poll", None, 0, None, now_s=now_s, excused=moves)
        progress.note("emit", None, self._summaries.rounds, None, now_s=now_s)
        for step in REASONS:
            stalled = progress.stalled(step, partitions, now_s=now_s)
            context.metrics.set(
                "stalled_seconds", stalled.seconds, pipeline=context.config.name, step=step
            )
            if stalled.seconds >= context.worker.stalled_after_s:
                context.not_ready(step, stalled.reason(step))
            else:
                context.ready(step)

    def _log_waiting(self, now_s: float) -> None:
        """Log now and then that the group has assigned nothing yet."""
        if self._waiting.due(self._assignment.waits_for_group, now_s):
            config = self._context.config
            log.info(
                "pipeline %s: has waited %.0f s for group %s to assign partitions of %s; the group "
                "waits for its other members: for one that was killed until "
                "kafka.session_timeout_s is over, for one that is busy until "
                "kafka.max_poll_interval_s is over",
                config.name,
                self._waiting.for_s,
                config.group_id,
                ", ".join(config.topics),
            )

    # ------------------------------------------------------------ what the broker knows

    async def _ask_ends(self) -> None:
        """Ask how far the partitions go; topic by topic, as one that is gone holds up an answer.

        A worker without partitions asks too: its readiness says whether the broker answers.
        """
        by_topic: dict[str, list[Partition]] = {}
        for partition in self._assignment.partitions:
            by_topic.setdefault(partition.source, []).append(partition)
        if not by_topic:
            topic = self._context.source.topics[0]
            by_topic[topic] = [Partition(topic, 0)]
        await asyncio.gather(*map(self._ask_ends_of, by_topic.values()))
        self._lags = {
            partition: behind
            for partition, behind in self._lags.items()
            if partition in self._assignment.partitions
        }

    async def _ask_ends_of(self, partitions: list[Partition]) -> None:
        assignment, read = (
            self._assignment,
            {state.partition: state.read for state in self._assignment},
        )
        try:
            async with asyncio.timeout(ENDS_TIMEOUT_S):
                ends = await self._context.source.ends(partitions)
                for partition, end in ends.items():
                    state = assignment.get(partition)
                    if state is not None and state.state is State.OPEN:
                        if end < read.get(partition, 0):
                            self._progress.restart(partition)
                        await self._note_end(state, end)
        except (BrokerRefused, BrokerUnavailable, TimeoutError) as error:
            self._context.count_retry(error)
            return
        if not assignment.partitions and not assignment.rebalancing:
            self._progress.note("poll", None, 0, None, now_s=monotonic_s(), excused=True)

    async def _note_end(self, state: PartitionState, end: int) -> None:
        """Note the end of an open partition."""
        reached = state.read
        if reached < end and state.idle:
            # The last offsets may be markers of transactions, which are never read.
            reached = max(reached, await self._context.source.position(state.partition))
        if state.gone:
            return
        self._progress.note("poll", state.partition, reached, end, now_s=monotonic_s())
        behind = 0 if state.idle and reached >= end else max(0, end - state.delivered)
        self._lags[state.partition] = behind
        topic, number = state.partition
        name = self._context.config.name
        self._context.metrics.set(
            "lag_events", behind, pipeline=name, topic=topic, partition=number
        )

    # ------------------------------------------------------------ what the index knows

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
        if size.stream_us is not None:
            lag_us = self._context.engine.clock.now_us() - size.stream_us
            metrics.set("stream_time_seconds", size.stream_us / US_PER_S, pipeline=name)
            metrics.set("stream_time_lag_seconds", lag_us / US_PER_S, pipeline=name)
        # The counts of an index that lost its data begin at zero again.
        more = max(0, size.evicted - before.evicted)
        metrics.add("clusters_evicted_total", more, pipeline=name)
        more = max(0, size.expired - before.expired)
        metrics.add("clusters_expired_total", more, pipeline=name)
        more = max(0, size.truncated - before.truncated)
        metrics.add("truncated_searches_total", more, pipeline=name)


async def _regularly(every_s: float, report: Callable[[], Awaitable[None]]) -> None:
    """Report without end; what a service does not answer is left out."""
    while True:
        with suppress(BrokerUnavailable, IndexUnavailable, IndexReset):  # the stages report it
            await report()
        await asyncio.sleep(every_s)


def _open(states: list[PartitionState]) -> int:
    return sum(state.state is State.OPEN for state in states)

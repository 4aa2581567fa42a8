"""Who owns partitions, and how far their events are counted: fences, high-water marks, journals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stream_dedup.errors import PartitionUnclaimed, StaleFence
from stream_dedup.index.base import Commit, Ownership
from stream_dedup.model import Decision, Partition
from stream_dedup.rules.keeping import KeptCounts


@dataclass(slots=True)
class PartitionState:
    """What the index keeps of a partition; see `base.Ownership`."""

    fence: int = 0
    high_water: int = -1
    committed: int = 0
    journal: dict[int, Decision] = field(default_factory=dict)
    identity: str = ""
    kept: KeptCounts = field(default_factory=dict)

    def record(self, commit: Commit) -> None:
        """Note that the events of a commit are counted."""
        self.high_water = commit.last_offset
        if commit.kept is not None:
            self.kept = commit.kept
        self.journal.update(zip(commit.offsets, commit.decisions, strict=True))
        self.commit(commit.committed)

    def commit(self, offset: int) -> None:
        """Forget the decisions of events before an offset, which are not read again."""
        self.committed = offset
        for before in [each for each in self.journal if each < offset]:
            del self.journal[before]

    def reset(self) -> None:
        """Forget what is counted: the partition was created again."""
        self.high_water, self.committed, self.kept = -1, 0, {}
        self.journal.clear()

    def ownership(self) -> Ownership:
        """Return what its owner learns."""
        committed = None if self.high_water < 0 else self.committed
        journal = dict(self.journal)
        return Ownership(self.fence, self.high_water, journal, committed=committed, kept=self.kept)


class Partitions:
    """The states of all partitions that were claimed."""

    def __init__(self) -> None:
        self._states: dict[Partition, PartitionState] = {}

    def claim(self, partition: Partition, end_offset: int | None, identity: str) -> Ownership:
        """Give a partition to a new owner; see `base.Index.claim_partition`."""
        state = self._states.setdefault(partition, PartitionState())
        state.fence += 1
        created_again = bool(identity and state.identity) and identity != state.identity
        state.identity = identity or state.identity
        reset = created_again or (end_offset is not None and state.high_water >= end_offset)
        if reset:
            state.reset()
        return state.ownership()._replace(reset=reset, created_again=created_again)

    def claimed(self, partition: Partition, fence: int) -> PartitionState:
        """Return the state of a partition that is claimed under this fence.

        Raises:
            PartitionUnclaimed: nobody has claimed it.
            StaleFence: another fence is the latest.
        """
        state = self._states.get(partition)
        if state is None:
            raise PartitionUnclaimed(f"{partition}: nobody has claimed it")
        if fence != state.fence:
            raise StaleFence(
                f"{partition}: fence {fence} is not the latest, which is {state.fence}"
            )
        return state

    def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        """Note a committed offset, if the fence is the latest."""
        state = self._states.get(partition)
        if state is not None and state.fence == fence:
            state.commit(max(state.committed, min(offset, state.high_water + 1)))

    def high_waters(self) -> list[tuple[Partition, int]]:
        """Return all partitions with their high-water marks."""
        return [(partition, state.high_water) for partition, state in self._states.items()]

    def restore(self, high_waters: Iterable[tuple[Partition, int]]) -> None:
        """Take over partitions with their high-water marks."""
        for partition, high_water in high_waters:
            self._states[partition] = PartitionState(
                high_water=high_water, committed=high_water + 1
            )

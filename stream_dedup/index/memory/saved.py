"""What is saved of an index in memory, and loaded again: plain values, checked when they come back.

A saved index may come from anywhere, so its types say what is valid, and `SavedCluster.check` what
types cannot. Texts are bytes, because names of files and values of events need not be UTF-8.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from stream_dedup.clustering.learning import LEARNED, MAX_POSTING_LISTS, MAX_POSTINGS, OWN
from stream_dedup.clustering.summaries import MAX_SAMPLES
from stream_dedup.features.recipe import BANDS_BITS, Recipe
from stream_dedup.fingerprint.kernel import SKETCH_SIZE
from stream_dedup.index.base import MAX_MERGED_NAMED
from stream_dedup.index.memory.cluster import Cluster
from stream_dedup.index.memory.lookup import Lookup
from stream_dedup.index.memory.posting_lists import Handle
from stream_dedup.model import Closing, Partition, Position

MAX_TEXT_BYTES = 1 << 20

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Time = Annotated[int, Meta(ge=-(1 << 61), le=1 << 61)]
Hash = Annotated[int, Meta(ge=0)]  # up to 64 bits, as no more can be encoded
Text = Annotated[bytes, Meta(max_length=MAX_TEXT_BYTES)]
Fingerprint = Annotated[bytes, Meta(min_length=16, max_length=BANDS_BITS // 8)]
Lead = tuple[Hash, Annotated[int, Meta(ge=0, le=OWN)], Annotated[int, Meta(ge=0, le=LEARNED)], bool]
Name = tuple[Text, Count]
"""A partition: its source and number."""


def saved_bytes(recipe: Recipe) -> int:
    """Return the bytes of a saved fingerprint."""
    return max(16, recipe.fingerprint.bits // 8)


class SavedCluster(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A cluster, open or waiting for its final summary.

    Attributes:
        identity: its id.
        partition: of its representative.
        offset: of its representative.
        group: only events of this group find it.
        fingerprint: of its representative, big-endian.
        sketch: of its representative.
        opened_us: when it was opened.
        last_us: when it was last seen, also by events that were not counted.
        first_us: earliest event time counted.
        latest_us: latest event time counted.
        count: events counted.
        reported: the count in its last summary.
        reported_us: stream time of that.
        revision: of its last summary.
        representative: its first event's value.
        samples: values of later events.
        closing: why it closed; None while it is open.
        exacts: the exact hashes that lead to it while it is open.
        fingerprints: the fingerprints that lead to it.
        postings: what the one-off index says of it: see `postings.Postings.leads`.
        learned: the words of its representative that are learned variables.
        merged_into: the cluster into which it merged.
        merged: clusters that merged into it since its last summary, with their counts.
        sampled: events chosen by chance, each behind its priority.
        since_us: earliest event time counted since its last summary; None if nothing was.
    """

    identity: Hash
    partition: Name
    offset: Count
    group: Text
    fingerprint: Fingerprint
    sketch: Annotated[bytes, Meta(max_length=8 * SKETCH_SIZE)]
    opened_us: Time
    last_us: Time
    first_us: Time
    latest_us: Time
    count: Annotated[int, Meta(ge=1, le=1 << 62)]
    reported: Count
    reported_us: Time
    revision: Count
    representative: bytes
    samples: Annotated[tuple[bytes, ...], Meta(max_length=MAX_SAMPLES)]
    closing: Closing | None
    exacts: list[Hash]
    fingerprints: list[Fingerprint]
    postings: Annotated[list[Lead], Meta(max_length=MAX_POSTING_LISTS * MAX_POSTINGS)]
    learned: Hash
    merged_into: Hash | None
    merged: Annotated[tuple[tuple[Hash, Count], ...], Meta(max_length=MAX_MERGED_NAMED)]
    sampled: Annotated[tuple[tuple[Hash, bytes], ...], Meta(max_length=MAX_SAMPLES)] = ()
    since_us: Time | None = None

    def check(self, recipe: Recipe) -> None:
        """Check what the types do not say.

        Raises:
            ValueError: a value is not one that an index with this recipe can have.
        """
        width, most = recipe.fingerprint.bits, recipe.match.aliases + 1
        numbers = (self.fingerprint, *self.fingerprints)
        hash_bytes = 2 if recipe.fingerprint.kind == "bands" else 8
        good = (
            all(len(number) == saved_bytes(recipe) for number in numbers)
            and all(int.from_bytes(number, "big") >> width == 0 for number in numbers)
            and len(self.sketch) % hash_bytes == 0
            and self.reported <= self.count
            and self.first_us <= self.latest_us
            and (self.since_us is None or self.first_us <= self.since_us <= self.latest_us)
            and len(self.exacts) <= most
            and len(self.fingerprints) <= most
            and (recipe.match.learn > 0 or not self.postings)
        )
        if not good:
            raise ValueError(f"cluster {self.identity:016x} has impossible values")


class SavedIndex(Struct, frozen=True, forbid_unknown_fields=True):
    """What an index holds besides its clusters.

    Attributes:
        namespace: makes cluster ids, with positions.
        partitions: each with its high-water mark, -1 for none.
        heads: partitions that hold stream time back, each with its latest event time and when it
            was last active.
        stream_us: stream time.
        seen_us: the clock when that was last moved.
        tombstones: of closed clusters: id, revision, count, and how long to keep them.
        evicted: clusters closed for lack of room.
        expired: clusters closed by time.
        new_again: events new again for lack of room.
        truncated: searches cut short.
    """

    namespace: str
    partitions: list[tuple[Name, Annotated[int, Meta(ge=-1)]]]
    heads: list[tuple[Name, Time, Time]]
    stream_us: Time | None
    seen_us: Time | None
    tombstones: list[tuple[Hash, Count, Count, Time]]
    evicted: Count
    expired: Count
    new_again: Count
    truncated: Count


def saved_cluster(cluster: Cluster, lookup: Lookup, width: int) -> SavedCluster | None:
    """Return a cluster as it was before it became provisional; None if it was nothing then.

    Args:
        cluster: the cluster.
        lookup: finds it, if it is open.
        width: bytes of a saved fingerprint.
    """
    handle, position, closing = cluster.handle, cluster.position, cluster.closing
    if closing is None and cluster.provisional:
        closing = cluster.before
        if closing is None:
            return None
    exacts, fingerprints = lookup.leads(handle) if closing is None else ([], [])
    return SavedCluster(
        identity=cluster.identity,
        partition=saved_name(Partition(position.source, position.partition)),
        offset=position.offset,
        group=_bytes(handle.group),
        fingerprint=handle.fingerprint.to_bytes(width, "big"),
        sketch=handle.sketch,
        opened_us=handle.opened_us,
        last_us=cluster.last_us,
        first_us=cluster.first_us,
        latest_us=cluster.latest_us,
        count=cluster.count,
        reported=cluster.reported,
        reported_us=cluster.reported_us,
        revision=cluster.revision,
        representative=cluster.representative,
        samples=cluster.samples,
        closing=closing,
        exacts=exacts,
        fingerprints=[number.to_bytes(width, "big") for number in fingerprints],
        postings=lookup.postings.leads(handle) if closing is None else [],
        learned=handle.learned,
        merged_into=cluster.merged_into,
        merged=cluster.merged,
        sampled=cluster.sampled,
        since_us=cluster.since_us,
    )


def loaded_cluster(saved: SavedCluster) -> Cluster:
    """Return a cluster as it was saved, without what leads to it, and what it keeps by chance."""
    fingerprint = int.from_bytes(saved.fingerprint, "big")
    handle = Handle(
        -1, saved.identity, _text(saved.group), fingerprint, saved.sketch, saved.opened_us,
        learned=saved.learned,
    )  # fmt: skip
    return Cluster(
        saved.identity, Position(*loaded_name(saved.partition), saved.offset), handle,
        saved.last_us, saved.first_us, saved.latest_us, saved.count,
        reported=saved.reported, reported_us=saved.reported_us, revision=saved.revision,
        representative=saved.representative, samples=saved.samples, closing=saved.closing,
        merged_into=saved.merged_into, merged=saved.merged, since_us=saved.since_us,
    )  # fmt: skip


def saved_name(partition: Partition) -> Name:
    """Return the name of a partition as it is saved."""
    return _bytes(partition.source), partition.number


def loaded_name(name: Name) -> Partition:
    """Return the partition of a saved name."""
    return Partition(_text(name[0]), name[1])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # names of files need not be UTF-8


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")

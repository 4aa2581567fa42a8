"""All pairs of fingerprints within k bits, of a whole file at once.

Problem: among N fingerprints find all pairs within k bits, each once, in little memory.

Idea: as in `tables.permutation`, two fingerprints within k bits share the prefix of at least one
table. So one table after the other is permuted and sorted by its prefix; in each run of equal
prefixes every two are compared. A pair is told only by the first table whose prefix it shares:
the bits in which the two differ say which that is, so nothing need be remembered, and no table
knows of another.

One word serves threads, shards and memory alike: a *range*, the fingerprints of one table whose
prefixes lie between two bounds. Runs never cross ranges. A table is cut by counting how many
fingerprints each beginning of a prefix has (16 bits at most): into equal shards for machines, then
into ranges that fit the memory and feed the threads. Each range is filled by a pass over all
fingerprints, which may lie in a file.

Worked bits, W = 8, k = 1, m = 2, the fingerprints 1011 0010, 1011 0110 and 0011 0010::

    table 1   0011|0010  1011|0010  1011|0110     one run of two: they differ in one bit, a pair
    table 2   0010|0011  0010|1011  0110|1011     one run of two: a pair
    a table's two shards: prefixes 0000 to 0111, and 1000 to 1111

Memory: N words (8 bytes, 16 beyond 64 bits), and for each thread two words a fingerprint of its
range. A run that alone is larger than that is held all the same. Time: a few nanoseconds a
fingerprint and table, and less than one a comparison.

Source: Manku, Jain, Das Sarma (WWW 2007), section 4, the batch version; there each fingerprint of
a small batch is looked up in the large table, here the table is joined with itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, combinations, islice, product
from threading import Event
from typing import NamedTuple

from stream_dedup.offline.kernel import Part, kernel
from stream_dedup.offline.planning import layout_for
from stream_dedup.offline.spill import MIN_MEMORY_BYTES, Sorter, Words
from stream_dedup.offline.words import Bytes, packed, unpacked, word_bytes
from stream_dedup.tables.permutation import Layout

MEMORY_BYTES = 1 << 30
"""What is taken if nothing is said."""

STEP_PAIRS = 1 << 16
"""Pairs found before they are handed on."""

STEP_COMPARED = 1 << 26
"""Comparisons before it is looked whether to go on: some 50 ms."""

_BATCH = 1 << 16


class Pair(NamedTuple):
    """Two fingerprints within k bits.

    Attributes:
        first: the smaller.
        second: the larger.
        distance: the bits in which they differ.
    """

    first: int
    second: int
    distance: int


@dataclass(frozen=True, slots=True)
class Effort:
    """With what, and of what, pairs are searched.

    Attributes:
        threads: compare at the same time.
        memory_bytes: about as much is held.
        shard: the share of every table that is searched, from 1.
        shards: how many such shares there are.
    """

    threads: int = 1
    memory_bytes: int = MEMORY_BYTES
    shard: int = 1
    shards: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.shard <= self.shards:
            raise ValueError(f"there is no shard {self.shard} of {self.shards}")
        if self.threads < 1:
            raise ValueError(f"{self.threads} threads do no work; give 1 or more")


class Range(NamedTuple):
    """A part of a table: beginnings of prefixes from `low` to before `high`."""

    table: int
    low: int
    high: int


def _ignore(_done: int, _all: int) -> None:
    """Tell nobody of progress."""


def ranges_of(words: Words, layout: Layout, effort: Effort) -> list[Range]:
    """The ranges that are searched, in order."""
    free = max(effort.memory_bytes, MIN_MEMORY_BYTES) - words.memory_bytes
    most = max(1, free // effort.threads // 2 // word_bytes(layout.width))
    if effort.threads > 1:
        most = min(most, max(1, -(-words.count // effort.threads)))
    ranges = []
    for table in range(layout.tables):
        if effort.shards == 1 and words.count <= most:
            ranges.append(Range(table, 0, 1 << 16))
            continue
        counts = _histogram(words, layout, table)
        up_to = array("Q", accumulate(counts))
        low = _cut(up_to, effort.shard - 1, effort.shards)
        end = _cut(up_to, effort.shard, effort.shards)
        while low < end:
            before = up_to[low - 1] if low else 0
            high = min(max(low + 1, bisect_right(up_to, before + most)), end)
            ranges.append(Range(table, low, high))
            low = high
    return ranges


def _cut(up_to: Sequence[int], shard: int, shards: int) -> int:
    """Where a shard ends: behind the beginnings that hold its share of all."""
    if shard == 0:
        return 0
    if shard == shards:
        return len(up_to)
    return bisect_left(up_to, up_to[-1] * shard / shards) + 1


def _histogram(words: Words, layout: Layout, table: int) -> array[int]:
    native = kernel()
    total: array[int] | None = None
    for piece in words.pieces():
        counts = native.histogram(piece, layout, table)
        total = counts if total is None else array("Q", map(int.__add__, total, counts))
    assert total is not None
    return total


class _Search:
    """Fills and compares ranges; `stop` ends it within some 50 ms."""

    def __init__(self, words: Words, layout: Layout) -> None:
        self.stop = Event()
        self._words = words
        self._layout = layout
        self._part = kernel().Part

    def begin(self, wanted: Range) -> tuple[Part, bytes]:
        """A range, and the first pairs in it."""
        part = self._part(self._layout, *wanted)
        for piece in self._words.pieces():
            if self.stop.is_set():
                return part, b""
            part.add(piece)
        part.sort()
        return part, self.go_on(part)

    def go_on(self, part: Part) -> bytes:
        """The next pairs of a range; none where it has no more."""
        found = b""
        while not (found or part.done or self.stop.is_set()):
            found = part.step(STEP_PAIRS, STEP_COMPARED)
        return found


def pair_words(
    words: Words,
    layout: Layout,
    effort: Effort,
    progress: Callable[[int, int], None] = _ignore,
) -> Iterator[bytes]:
    """All pairs within k bits, as words two by two, in batches.

    The order is that of tables, prefixes, first and second word, whatever the threads and the
    memory; other shards have other pairs.

    Args:
        words: what is searched; stays open until the end.
        layout: the tables.
        effort: with what, and of what.
        progress: is told how many ranges are done, of how many.
    """
    ranges = ranges_of(words, layout, effort)
    search = _Search(words, layout)
    if effort.threads == 1:
        for done, wanted in enumerate(ranges):
            progress(done, len(ranges))
            part, found = search.begin(wanted)
            while found:
                yield found
                found = search.go_on(part)
            del part  # before the next is made
        progress(len(ranges), len(ranges))
        return
    waiting = iter(ranges)
    with ThreadPoolExecutor(effort.threads) as pool:
        try:
            begun: deque[Future[tuple[Part, bytes]]] = deque(
                pool.submit(search.begin, wanted) for wanted in islice(waiting, effort.threads)
            )
            done = 0
            while begun:
                progress(done, len(ranges))
                part, found = begun[0].result()
                while found:
                    yield found
                    found = pool.submit(search.go_on, part).result()
                del begun[0], part
                done += 1
                begun.extend(pool.submit(search.begin, wanted) for wanted in islice(waiting, 1))
            progress(done, len(ranges))
        finally:
            search.stop.set()


class LinePairs:
    """Pairs of lines instead of fingerprints; holds a dictionary of all, some 150 bytes a line."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: dict[int, list[int]] = {}
        self._count = 0

    def add(self, words: Bytes) -> None:
        """Take in the words of the next lines."""
        for number in unpacked(words, self._width):
            self._count += 1
            self._lines.setdefault(number, []).append(self._count)

    def pairs(self, found: Iterable[bytes], *, equal: bool) -> Iterator[tuple[int, int, int]]:
        """(line, later line, distance) of all pairs.

        Args:
            found: pairs of words, as of `pair_words`.
            equal: whether lines of equal fingerprints are paired too; they come first.
        """
        if equal:
            for lines in self._lines.values():
                for first, second in combinations(lines, 2):
                    yield first, second, 0
        for words in found:
            numbers = unpacked(words, self._width)
            for one, other in zip(numbers[::2], numbers[1::2], strict=True):
                distance = (one ^ other).bit_count()
                for first, second in product(self._lines[one], self._lines[other]):
                    yield min(first, second), max(first, second), distance


def sorted_words(fingerprints: Iterable[int], width: int, memory_bytes: int) -> Words:
    """Whole numbers as words, sorted and distinct.

    Raises:
        ValueError: one is no fingerprint of that width.
    """
    sorter = Sorter(width, memory_bytes)
    numbers = iter(fingerprints)
    while batch := list(islice(numbers, _BATCH)):
        least, most = min(batch), max(batch)
        if least < 0 or most >> width:
            wrong = least if least < 0 else most
            raise ValueError(f"{wrong} is no fingerprint of {width} bits")
        sorter.add(packed(batch, width))
    return sorter.finish()


def find_pairs(
    fingerprints: Iterable[int],
    k: int,
    *,
    width: int = 64,
    blocks: int | None = None,
    effort: Effort | None = None,
) -> Iterator[Pair]:
    """All pairs of distinct fingerprints within k bits, each once, in a fixed order.

    >>> list(find_pairs([8, 9, 255, 9], k=1))
    [Pair(first=8, second=9, distance=1)]

    Args:
        fingerprints: whole numbers, in any order; repeats count once.
        k: the largest distance that is found.
        width: bits of a fingerprint, at most 128.
        blocks: into which fingerprints are cut; the planner's choice where not given.
        effort: threads, memory, and shards.

    Raises:
        ValueError: a number is no fingerprint, or width, k and blocks do not go together.
    """
    effort = effort or Effort()
    if not 1 <= width <= 128:
        raise ValueError(f"fingerprints have 1 to 128 bits, not {width}")
    layout_for(width, k, 1, blocks)  # what is wrong is told before anything is read
    with sorted_words(fingerprints, width, effort.memory_bytes) as words:
        layout = layout_for(width, k, words.count, blocks)
        for found in pair_words(words, layout, effort):
            numbers = unpacked(found, width)
            for first, second in zip(numbers[::2], numbers[1::2], strict=True):
                yield Pair(first, second, (first ^ second).bit_count())

"""All pairs of fingerprints within k bits, of a whole file at once.

Problem: among N fingerprints find all pairs within k bits, each once, in little memory.

Idea: as in `tables.permutation`, two fingerprints within k bits share the prefix of at least one
table. So the tables are permuted and sorted by their prefixes, one after the other, and in each run
of equal prefixes every two are compared. A pair is reported only by the first table whose prefix it
shares. The bits in which the two differ say which table that is, so no pair has to be remembered
and tables are independent of each other.

Threads, shards and the memory limit all use the same unit, a *range*: the fingerprints of one table
whose prefixes lie between two bounds. Runs never cross ranges. A table is divided by counting its
fingerprints by the first bits of the prefix (16 at most): into equal shards for machines, then into
ranges that fit the memory and keep the threads busy. Each range is filled in one pass over all
fingerprints, which may be in a file.

Worked bits, W = 8, k = 1, m = 2, the fingerprints 1011 0010, 1011 0110 and 0011 0010::

    table 1   0011|0010  1011|0010  1011|0110     one run of two: they differ in one bit, a pair
    table 2   0010|0011  0010|1011  0110|1011     one run of two: a pair
    a table's two shards: prefixes 0000 to 0111, and 1000 to 1111

Memory: N words (8 bytes, 16 beyond 64 bits), and for each thread two words a fingerprint of its
range. A single run that is larger than the limit is held nevertheless. Time: a few nanoseconds a
fingerprint and table, and less than one a comparison.

Deviation: Manku, Jain and Das Sarma (WWW 2007, section 4) look up each fingerprint of a small batch
in a large table; here the table is joined with itself.
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

from stream_dedup.offline import kernel
from stream_dedup.offline.reference import Bytes, Part, packed, unpacked, word_bytes
from stream_dedup.offline.sorting import MIN_MEMORY_BYTES, SortedWords, Sorter
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import offline_layout

MEMORY_BYTES = 1 << 30
"""Default limit on memory."""

STEP_PAIRS = 1 << 16
"""Pairs of one batch, about."""

STEP_COMPARED = 1 << 26
"""Comparisons between two checks of whether to stop: some 50 ms."""

_BATCH = 1 << 16

Progress = Callable[[int, int], None]
"""Called with the ranges that are done, and their total."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


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
    """Resources for a search, and the share of the work to do.

    Attributes:
        threads: number of threads that compare.
        memory_bytes: approximate limit on memory.
        shard: the share of every table to search, from 1.
        shards: number of shares.
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
    """A part of a table, by the first bits of the prefix: from `low` to before `high`."""

    table: int
    low: int
    high: int


def ranges_of(words: SortedWords, layout: Layout, effort: Effort) -> list[Range]:
    """Return the ranges to search, in order."""
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
        low = _shard_end(up_to, effort.shard - 1, effort.shards)
        end = _shard_end(up_to, effort.shard, effort.shards)
        while low < end:
            before = up_to[low - 1] if low else 0
            high = min(max(low + 1, bisect_right(up_to, before + most)), end)
            ranges.append(Range(table, low, high))
            low = high
    return ranges


def _shard_end(up_to: Sequence[int], shard: int, shards: int) -> int:
    """Return where a shard ends: after the prefixes that hold its share of all words."""
    if shard == 0:
        return 0
    if shard == shards:
        return len(up_to)
    return bisect_left(up_to, up_to[-1] * shard / shards) + 1


def _histogram(words: SortedWords, layout: Layout, table: int) -> array[int]:
    total: array[int] | None = None
    for piece in words.pieces():
        counts = kernel.histogram(piece, layout, table)
        total = counts if total is None else array("Q", map(int.__add__, total, counts))
    assert total is not None
    return total


class _Search:
    """Fills and compares ranges. Once `stop` is set, calls return within some 50 ms."""

    def __init__(self, words: SortedWords, layout: Layout) -> None:
        self.stop = Event()
        self._words = words
        self._layout = layout

    def begin(self, wanted: Range) -> tuple[Part, bytes]:
        """Fill a range; return it with its first pairs."""
        part = kernel.Part(self._layout, *wanted)
        for piece in self._words.pieces():
            if self.stop.is_set():
                return part, b""
            part.add(piece)
        part.sort()
        return part, self.go_on(part)

    def go_on(self, part: Part) -> bytes:
        """Return the next pairs of a range; nothing at its end."""
        found = b""
        while not (found or part.done or self.stop.is_set()):
            found = part.step(STEP_PAIRS, STEP_COMPARED)
        return found


def pair_words(
    words: SortedWords,
    layout: Layout,
    effort: Effort,
    progress: Progress = no_progress,
) -> Iterator[bytes]:
    """Yield all pairs within k bits of one shard, as words two by two, in batches.

    They are ordered by table, prefix, first and second word, whatever the threads and the memory.
    `words` must stay open until the end.
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
            del part  # free its memory before the next is made
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
    """Pairs of lines instead of fingerprints. Takes some 150 bytes of memory a line."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: dict[int, list[int]] = {}
        self._count = 0

    def add(self, words: Bytes) -> None:
        """Add the words of the next lines."""
        for number in unpacked(words, self._width):
            self._count += 1
            self._lines.setdefault(number, []).append(self._count)

    def pairs(self, found: Iterable[bytes], *, equal: bool) -> Iterator[tuple[int, int, int]]:
        """Yield (line, later line, distance) of all pairs.

        Args:
            found: pairs of words, from `pair_words`.
            equal: whether to yield pairs of lines with equal fingerprints too; they come first.
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


def sorted_words(fingerprints: Iterable[int], width: int, memory_bytes: int) -> SortedWords:
    """Sort integers as words and remove repeats.

    Raises:
        ValueError: a number is not a fingerprint of that width.
    """
    sorter = Sorter(width, memory_bytes)
    numbers = iter(fingerprints)
    while batch := list(islice(numbers, _BATCH)):
        least, most = min(batch), max(batch)
        if least < 0 or most >> width:
            wrong = least if least < 0 else most
            raise ValueError(f"{wrong} is not a fingerprint of {width} bits")
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
    """Find all pairs of distinct fingerprints within k bits, each once, in a fixed order.

    >>> list(find_pairs([8, 9, 255, 9], k=1))
    [Pair(first=8, second=9, distance=1)]

    Args:
        fingerprints: integers in any order; repeats count once.
        k: the largest distance to find.
        width: bits of a fingerprint, at most 128.
        blocks: blocks that fingerprints are cut into; by default the planner chooses.
        effort: threads, memory, and shards.

    Raises:
        ValueError: a number is not a fingerprint, or width, k and blocks do not fit together.
    """
    effort = effort or Effort()
    if not 1 <= width <= 128:
        raise ValueError(f"fingerprints have 1 to 128 bits, not {width}")
    offline_layout(width, k, 1, blocks)  # checks the arguments before anything is read
    with sorted_words(fingerprints, width, effort.memory_bytes) as words:
        layout = offline_layout(width, k, words.count, blocks)
        for found in pair_words(words, layout, effort):
            numbers = unpacked(found, width)
            for first, second in zip(numbers[::2], numbers[1::2], strict=True):
                yield Pair(first, second, (first ^ second).bit_count())

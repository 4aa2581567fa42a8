"""Log corpora of any size for the timing benches, made from a few real lines.

Problem: a bench of throughput wants a million lines with a known share of duplicates, but the
real samples at hand hold some thousands, and simply repeating them makes exact copies, which a
cache of whole lines answers without any work.

Idea: *replay* the real lines, with new digits or, for the *novel* ones, with new words; see
`stream_dedup.tools.load_generator.events`.

Lengths: real lines are joined with their successors and cut, so that the stems' lengths go in even
steps from half to one and a half times the average asked for. New digits and new words keep them.

Bounds: the stems that replay are few (`MAX_STEMS`, and never more than half a percent of the
lines), because the first showing of each is new as well and adds to the novel share. Memory is
that of the stems, however many lines are made.

The same arguments give the same bytes, on every machine with the same Python.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stream_dedup.tools.load_generator.events import Stem, novel

AVERAGE_LENGTH = 119
DUPLICATE_SHARE = 0.95
MAX_STEMS = 400
LINES_A_STEM = 200

_CONTINUATION = range(0x80, 0xC0)  # the bytes of a UTF-8 character after its first


def replayed_log(
    lines: Sequence[bytes],
    total: int,
    duplicate_share: float = DUPLICATE_SHARE,
    average_length: int = AVERAGE_LENGTH,
    seed: int = 0,
) -> list[bytes]:
    """Makes a corpus in memory; see the module for how.

    Args:
        lines: Real lines to replay, at least one that is not blank.
        total: How many lines to make.
        duplicate_share: The share of lines that replay a pattern, from 0 to 1.
        average_length: Bytes a line, without the newline, on average.
        seed: Another seed, another corpus.

    Returns:
        The lines, without newlines.

    Raises:
        ValueError: An argument is out of its range, or there is no line to replay.

    >>> corpus = replayed_log([b"worker 12 took 340 ms"], total=3, average_length=21, seed=1)
    >>> corpus == replayed_log([b"worker 12 took 340 ms"], total=3, average_length=21, seed=1)
    True
    """
    return list(iter_replayed(lines, total, duplicate_share, average_length, seed))


def write_corpus(path: Path, corpus: Iterable[bytes]) -> int:
    """Writes lines to a file as they come: `write_corpus(path, iter_replayed(lines, 1_000_000))`.

    Args:
        path: The file; what it held is lost.
        corpus: Lines without newlines; none is kept.

    Returns:
        The bytes written, newlines included.
    """
    with path.open("wb") as file:
        return sum(file.write(line + b"\n") for line in corpus)


def iter_replayed(
    lines: Sequence[bytes],
    total: int,
    duplicate_share: float = DUPLICATE_SHARE,
    average_length: int = AVERAGE_LENGTH,
    seed: int = 0,
) -> Iterator[bytes]:
    """Makes a corpus one line at a time; arguments and errors as in `replayed_log`.

    The arguments are checked at the call, not at the first line.
    """
    return (line for _, line in iter_labelled(lines, total, duplicate_share, average_length, seed))


def iter_labelled(
    lines: Sequence[bytes],
    total: int,
    duplicate_share: float = DUPLICATE_SHARE,
    average_length: int = AVERAGE_LENGTH,
    seed: int = 0,
) -> Iterator[tuple[int | None, bytes]]:
    """Makes the same corpus, each line with the number of the stem it replays; None if novel."""
    if total < 0 or average_length < 1 or not 0 <= duplicate_share <= 1:
        raise ValueError(
            f"out of range: total={total}, average_length={average_length}, "
            f"duplicate_share={duplicate_share}"
        )
    rng = random.Random(seed)
    count = max(1, min(MAX_STEMS, total // LINES_A_STEM))
    sources = _stem_texts(lines, count, average_length, rng)
    return _generate(sources, total, duplicate_share, rng)


def _generate(
    texts: list[bytes], total: int, duplicate_share: float, rng: random.Random
) -> Iterator[tuple[int | None, bytes]]:
    stems = list(enumerate(map(Stem.of, texts)))
    for _ in range(total):
        if rng.random() < duplicate_share:
            number, stem = rng.choice(stems)
            yield number, stem.replay(rng)
        else:
            yield None, novel(rng.choice(texts), rng)


def _stem_texts(
    lines: Sequence[bytes], count: int, average_length: int, rng: random.Random
) -> list[bytes]:
    """Take `count` stems, each from a random place of the sources."""
    usable = [b" ".join(line.split()) for line in lines if line.strip()]
    if not usable:
        raise ValueError("no line to replay: every one is blank")
    # In even steps, not drawn: few stems drawn at random would miss the average by some bytes.
    lengths = [average_length * (2 * step + 1 + count) // (2 * count) for step in range(count)]
    return [_joined(usable, rng.randrange(len(usable)), length) for length in lengths]


def _joined(lines: Sequence[bytes], start: int, length: int) -> bytes:
    """The line at `start` and as many after it as `length` needs, cut to that length."""
    text = lines[start]
    while len(text) < length:
        start = (start + 1) % len(lines)
        text += b" " + lines[start]
    # Not inside a character: the byte after the cut must not be a continuation of UTF-8.
    while 0 < length < len(text) and text[length] in _CONTINUATION:
        length -= 1
    return text[:length].rstrip()

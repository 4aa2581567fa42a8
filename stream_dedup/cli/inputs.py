"""Inputs that are read as they grow: files, pipes, and files that are followed."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from stream_dedup.clock import monotonic_s
from stream_dedup.features.recipe import Recipe
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import InputFile, is_live
from stream_dedup.io.following import FollowedFile
from stream_dedup.model import Partition

POLL_S = 0.5
"""How often due summaries are collected while a live input is silent."""

PAUSE_S = 0.1
"""How long an input must be silent until the lines that are held back are an event."""

MAX_HELD_S = 1.0
"""How long the first line of an event is held back at most, though more lines arrive."""


@dataclass(slots=True, eq=False)
class Input:
    """An input that is being read."""

    source: InputFile | FollowedFile
    decoder: Decoder
    partition: Partition
    size: int = 0
    read_s: float = 0.0
    held: int = 0
    held_s: float = 0.0

    def waited(self, now_s: float, *, has_read: bool) -> bool:
        """Return whether its lines were held back for long enough.

        Args:
            now_s: the clock.
            has_read: whether lines were read just now.
        """
        held = self.decoder.held
        if held != self.held:
            self.held, self.held_s = held, now_s
        if has_read:
            self.read_s = now_s
        paused = now_s - self.read_s >= PAUSE_S or now_s - self.held_s >= MAX_HELD_S
        return bool(held) and self.source.live and paused


def open_input(
    partition: Partition,
    reading: DecoderOptions,
    recipe: Recipe,
    note: Callable[[str], None],
    *,
    follow: bool,
) -> Input:
    """Open the input that a partition names.

    Args:
        partition: a file's path, ``-`` for standard input, and a number.
        reading: how it is read.
        recipe: what counts as near.
        note: writes a message to the user.
        follow: whether to follow it, if it is a file.

    Raises:
        InputError: it cannot be opened.
    """
    path = partition.source
    opened = partial(InputFile, encoding=reading.encoding)
    source: InputFile | FollowedFile
    if follow and not is_live([path]):
        source = FollowedFile(path, note, partial(opened, growing=True))
    else:
        source = opened(path)
    return Input(source, Decoder(reading, partition, recipe), partition)


def turns(inputs: list[Input], wakeup_fd: int) -> Iterator[tuple[Input | None, bool]]:
    """Wait for inputs, and yield what there is to do, until the caller has removed all of them.

    An input and True: it can be read, or has ended. An input and False: its lines were held back
    for long enough. None: all are silent.

    Args:
        inputs: those that are read.
        wakeup_fd: ends waiting once it is readable; the caller then stops.
    """
    live = any(each.source.live for each in inputs)
    while inputs:
        busy = False
        wait_s = PAUSE_S if any(each.decoder.held for each in inputs) else POLL_S
        for each in list(inputs):
            reads = each.source.wait(wakeup_fd, 0 if len(inputs) > 1 else wait_s)
            busy = busy or reads
            if reads:
                yield each, True
            if live and each in inputs and each.waited(monotonic_s(), has_read=reads):
                yield each, False
        if not busy:
            if len(inputs) > 1:
                select.select([wakeup_fd], [], [], wait_s)
            yield None, False

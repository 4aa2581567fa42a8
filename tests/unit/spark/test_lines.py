"""`stream_dedup.spark.lines`: the keys by which lines that belong together meet."""

from __future__ import annotations

import numpy as np

from stream_dedup.fingerprint.one_off import pack, pattern_keys
from stream_dedup.spark.lines import _word_keys


def keys_of(words: list[int], *, uncounted: int) -> set[int]:
    flags = [each == uncounted for each in words]
    keys, ends = _word_keys([pack(pattern_keys(words, [False] * len(words), uncounted=flags))])
    assert np.array_equal(ends, [0, len(keys)])
    return {*keys.tolist()}


def test_lines_of_a_shape_meet_however_many_of_their_words_count() -> None:
    ours = keys_of([1, 2, 3, 4, 5, 6], uncounted=-1)
    theirs = keys_of([1, 7, 3, 4, 8, 6], uncounted=7)
    assert len(ours & theirs) == 1

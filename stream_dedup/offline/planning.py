"""How many blocks a whole file of fingerprints is best cut into: the planner, with other costs.

A table costs each fingerprint its share of permuting and sorting (`insert_us`), and half a
comparison a candidate, as each pair is compared once (`candidate_us`). Both were measured on one
core among 10^6 fingerprints; fewer, longer runs win until the comparisons outweigh the sorting.
"""

from __future__ import annotations

from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import CostModel, choose

OFFLINE = CostModel("offline", 0.0, 0.03, 0.0003, 16, 0, 0)
"""Sorted arrays, one table at a time."""


def layout_for(width: int, k: int, count: int, blocks: int | None = None) -> Layout:
    """The layout for so many fingerprints; with as many blocks as are asked for, if any.

    >>> layout_for(64, 3, 1_000_000).blocks
    4

    Raises:
        ValueError: not 0 <= k < blocks <= width, or the tables would be too many.
    """
    if not 0 <= k < width:
        raise ValueError(f"distance {k} is not from 0 to {width - 1}, the width less one")
    if blocks is None:
        return choose(width, k, max(count, 1), OFFLINE).layout
    if blocks > width:
        raise ValueError(f"{blocks} blocks are more than the width has bits, {width}")
    if blocks <= k:
        raise ValueError(f"{blocks} blocks are not more than the distance, {k}")
    return Layout(width, k, blocks)

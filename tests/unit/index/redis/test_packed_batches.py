"""The journal of a batch in few bytes."""

from __future__ import annotations

from stream_dedup.index.redis.codec import pack_journal, unpack_journal
from stream_dedup.model import Decision, Kind


def test_offsets_in_a_row_cost_the_journal_no_bytes() -> None:
    decision = Decision(Kind.DUPLICATE, 7, 1, 9)
    row = range(10**9, 10**9 + 100)
    packed = pack_journal(row, [decision] * 100)
    assert dict.fromkeys(row, decision) == unpack_journal(packed)
    assert len(packed) < 300

"""What closed clusters have left, packed natively and by the reference: the same calls."""

from __future__ import annotations

import random
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.bands import BITS
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.redis import layouts
from stream_dedup.index.redis._garbage import pack_garbage
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.garbage import Call, reference_pack_garbage
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.namespace import FORMAT

KEY = HashKey(b"a" * 16)
SHARD = ShardKeys("logs", 0)
OF_SIMHASH = NamespaceLayout(FORMAT, 64, 6, 7, 512, 512, 1)
OF_BANDS = NamespaceLayout(FORMAT, BITS, 15, 16, 512, 512, 1)
RNG = random.Random(11)


def piece(layout: NamespaceLayout, lists: int, flags: list[bool], equal: int = 0) -> bytes:
    """Of a cluster with so many posting lists, and a name for each flag; some share a slice."""
    keys = [RNG.randbytes(8)] * equal + [RNG.randbytes(8) for _ in range(lists - equal)]
    width = layout.name_bytes - layouts.NAME_OTHER_BYTES
    names = [RNG.randbytes(8) + RNG.randbytes(width) + bytes([flag]) for flag in flags]
    head = layouts.PIECE.struct.pack(RNG.getrandbits(64), lists)
    return b"".join([head, *keys, RNG.randbytes(layout.names_at), *names])


def pieces(layout: NamespaceLayout) -> st.SearchStrategy[list[bytes]]:
    """Pieces of a namespace; one in a few is cut off."""
    counts = st.sampled_from([0, 1, 5, 12, 128, 129])
    whole = st.builds(
        lambda lists, flags: piece(layout, lists, flags, lists // 3),
        counts,
        st.lists(st.booleans(), max_size=7),
    )
    cut = st.builds(lambda each, size: each[:size], whole, st.integers(0, 150))
    return st.lists(whole | cut, max_size=6)


def packed(layout: NamespaceLayout, some: list[bytes], call_work: int = 1_000) -> list[Call]:
    """What both make of pieces."""
    arrange = Packer("logs", layout, KEY).entries.arrange
    expected = reference_pack_garbage(some, SHARD, layout, arrange, call_work)
    assert pack_garbage(some, SHARD, layout, arrange, call_work) == expected
    return expected


@given(pieces(OF_SIMHASH), st.integers(11, 300))
def test_names_with_fingerprints_are_packed_as_by_the_reference(
    some: list[bytes], call_work: int
) -> None:
    packed(OF_SIMHASH, some, call_work)


@given(pieces(OF_BANDS), st.integers(20, 300))
def test_names_with_keys_of_bands_are_packed_as_by_the_reference(
    some: list[bytes], call_work: int
) -> None:
    packed(OF_BANDS, some, call_work)


@pytest.mark.parametrize("slices", [1, 2, 1 << 20])
def test_any_number_of_slices_is_packed(slices: int) -> None:
    layout = OF_SIMHASH._replace(slices=slices, exact_slices=slices)
    packed(layout, [piece(layout, 9, [True, False]) for _ in range(9)])


def test_a_large_cluster_is_shared_out_to_calls() -> None:
    large = piece(OF_SIMHASH, 120, [True] * 8)
    calls = packed(OF_SIMHASH, [large], call_work=60)
    heads = [arguments[:3] for _, arguments in calls]
    assert heads == [[large, 5, 0], [large, 3, 0], [large, 0, 0], [large, 0, 1]]
    fields = [each for _, arguments in calls for each in arguments if isinstance(each, bytes)]
    group = large[10 + 8 * 120 : 10 + 8 * 120 + 4]
    posting_keys = [large[at : at + 8] for at in range(10, 10 + 8 * 120, 8)]
    of_lists = {
        each[at : at + 12]
        for each in fields
        if not len(each) % 12
        for at in range(0, len(each), 12)
    }
    assert {group + key for key in posting_keys} <= of_lists


def test_a_piece_that_is_cut_off_is_only_removed_from_the_list() -> None:
    whole = piece(OF_SIMHASH, 3, [True])
    ((keys, arguments),) = packed(OF_SIMHASH, [whole[:30], whole[:9], b""])
    assert keys == [SHARD.cluster(whole[:8]), SHARD.cluster(whole[:8]), SHARD.cluster(b"")]
    assert arguments == [
        *chain.from_iterable((each, 0, 1, 0) for each in (whole[:30], whole[:9], b""))
    ]

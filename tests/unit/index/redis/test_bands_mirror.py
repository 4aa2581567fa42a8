"""The mirror of keys of bands: what it sends, and when it has the tables searched."""

from __future__ import annotations

import random
import struct

import pytest

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.fingerprint.bands import BANDS, BITS, CROWD, KEY_BYTES
from stream_dedup.index.redis.bands_mirror import LARGEST_CROWD, BandsMirror
from stream_dedup.index.redis.mirror import UNKNOWN
from stream_dedup.tables.sketches import reference_jaccard, reference_pack
from tests.contract.driver import BANDED, sketch_of

RNG = random.Random(7)
KEY = 8 * KEY_BYTES


@pytest.fixture
def mirror() -> BandsMirror:
    return BandsMirror(Linkage(BANDED))


ALIKE, OTHER = sketch_of(range(30)), sketch_of(range(100, 130))


def sharing(fingerprint: int, band: int) -> int:
    """Another fingerprint that shares the key of a band."""
    shift = KEY * (BANDS - 1 - band)
    key = (fingerprint >> shift & (1 << KEY) - 1) << shift
    rest = RNG.getrandbits(BITS)
    return rest ^ (rest & ((1 << KEY) - 1) << shift) | key


FIRST = RNG.getrandbits(BITS)


def packed(
    fingerprint: int, cluster: int, full: int = 0, sketch: bytes = ALIKE, similarity: float = 1
) -> bytes:
    compared = reference_pack(sketch)
    return (
        full.to_bytes(2, "big")
        + cluster.to_bytes(8, "big")
        + fingerprint.to_bytes(BITS // 8, "big")
        + struct.pack(">dH", similarity, len(compared))
        + compared
    )


@pytest.mark.parametrize("band", [0, 7, 15])
def test_who_shares_a_key_and_is_alike_is_sent(mirror: BandsMirror, band: int) -> None:
    mirror.take_clusters([(3, FIRST, 42, ALIKE)])
    assert mirror.near(3, sharing(FIRST, band), ALIKE) == packed(FIRST, 42)
    assert mirror.near(3, RNG.getrandbits(BITS), ALIKE) == b""
    assert mirror.near(4, sharing(FIRST, band), ALIKE) == b""


def test_a_stranger_who_shares_a_key_is_not_sent(mirror: BandsMirror) -> None:
    mirror.take_clusters([(0, FIRST, 42, OTHER)])
    assert mirror.near(0, sharing(FIRST, 3), ALIKE) == b""


def test_a_cluster_whose_sketch_is_not_known_is_sent(mirror: BandsMirror) -> None:
    mirror.take([(0, FIRST, 42)])
    assert mirror.near(0, sharing(FIRST, 3), ALIKE) == packed(FIRST, 42, 0, b"", 0)


def test_how_similar_a_cluster_is_is_sent_with_what_was_compared(mirror: BandsMirror) -> None:
    known = sketch_of(range(5, 33))
    mirror.take_clusters([(0, FIRST, 42, known)])
    expected = packed(FIRST, 42, 0, known, reference_jaccard(known, ALIKE))
    assert mirror.near(0, sharing(FIRST, 3), ALIKE) == expected


def test_what_is_about_to_be_inserted_has_the_tables_searched(mirror: BandsMirror) -> None:
    held = mirror.expect(0, FIRST, OTHER)
    second = mirror.expect(0, FIRST, ALIKE)
    near = sharing(FIRST, 9)
    assert mirror.near(0, near, ALIKE) == UNKNOWN
    mirror.assign(held, None)
    assert (mirror.near(0, near, ALIKE), len(mirror)) == (UNKNOWN, 0)
    mirror.assign(second, 42)
    assert (mirror.near(0, near, ALIKE), len(mirror)) == (packed(FIRST, 42), 1)


def test_a_pending_stranger_is_no_reason_to_search(
    mirror: BandsMirror,
) -> None:
    mirror.take_clusters([(0, FIRST, 7, ALIKE)])
    near, band = sharing(FIRST, 9), 1 << BANDS - 10
    for number in range(CROWD):
        assert mirror.near(0, near, ALIKE) == packed(FIRST, 7, band * (number == CROWD - 1))
        mirror.expect(0, sharing(FIRST, 9), OTHER)


def test_keys_that_may_be_full_are_named_and_larger_ones_searched(mirror: BandsMirror) -> None:
    crowd = [sharing(FIRST, 5) for _ in range(LARGEST_CROWD + 3)]
    for number, fingerprint in enumerate(crowd, 1):
        mirror.take_clusters([(0, fingerprint, number, OTHER)])
        expected = b"" if number < CROWD else (1 << BANDS - 6).to_bytes(2, "big")
        if number >= LARGEST_CROWD:
            expected = UNKNOWN
        assert mirror.near(0, sharing(FIRST, 5), ALIKE) == expected
    few = BandsMirror(Linkage(BANDED))
    few.take_clusters((0, each, n, OTHER) for n, each in enumerate(crowd[:CROWD]))
    few.take_clusters([(0, FIRST, 99, ALIKE)])
    assert few.near(0, FIRST, ALIKE) == packed(FIRST, 99, 1 << BANDS - 6)

"""The mirror by itself: what it says is near, while calls are on their way and afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack

import pytest

from stream_dedup.index.redis.mirror import NOTHING_YET, SPARE, UNKNOWN, Call, Mirror
from stream_dedup.tables.permutation import Layout

LAYOUT = Layout(64, 3, 6)
NAME = b"firstone"
OTHER = b"another1"
F = 0x0F0F_0F0F_0F0F_0F0F


def mirror_of(*entries: tuple[int, int, int], base: bytes = NAME, turn: float = 1) -> Mirror:
    mirror = Mirror(LAYOUT, max_candidates=100)
    mirror.begin(base, turn, entries)
    return mirror


def near(*found: tuple[int, int]) -> bytes:
    return b"".join(pack(">QB", *item) for item in found)


def standing(turn: float, last: bytes, *, known: bool = True, entries: float = 1) -> bytes:
    return pack("<Bdd8s", known, turn, entries, last)


def told(name: bytes, turn: float, entries: Iterable[tuple[int, int, int]]) -> bytes:
    return name + pack("<d", turn) + b"".join(pack(">HQQ", *entry) for entry in entries)


def test_it_tells_clusters_of_the_group_within_k_bits_with_their_distances() -> None:
    mirror = mirror_of((7, F, 1), (7, F ^ 0b11, 2), (7, F ^ 0b1111, 3), (8, F, 4))
    assert {near((1, 0)), near((2, 2))} == {
        mirror.near(7, F)[at : at + 9] for at in range(0, len(mirror.near(7, F)), 9)
    }
    assert b"" == mirror.near(9, F)


def test_of_a_cluster_with_several_entries_the_nearest_counts() -> None:
    assert near((1, 1)) == mirror_of((0, F ^ 0b11, 1), (0, F ^ 1, 1)).near(0, F)


def test_nothing_is_said_of_what_has_too_many_candidates() -> None:
    assert UNKNOWN == mirror_of(*((0, F, n) for n in range(101))).near(0, F)


def test_what_is_on_its_way_is_met_by_the_queries_after_it() -> None:
    mirror = mirror_of(base=NOTHING_YET, turn=0)
    call = Call(mirror)
    assert [b"", UNKNOWN] == [call.look(0, F), call.look(0, F ^ 1)]
    assert UNKNOWN == Call(mirror).look(0, F)


def test_an_answer_settles_what_was_inserted_and_for_whom() -> None:
    mirror = mirror_of(base=NOTHING_YET, turn=0)
    call = Call(mirror)
    for fingerprint in (F, F ^ 1, ~F & (1 << 64) - 1):
        call.look(0, fingerprint)
    call.skip()
    call.answered([11, None, None, None], [standing(1, call.name)])
    assert (1, near((11, 1))) == (len(mirror), mirror.near(0, F ^ 1))
    assert call.name == Call(mirror).seen


def test_what_the_script_left_unanswered_was_not_inserted() -> None:
    mirror = mirror_of()
    call = Call(mirror)
    call.look(0, F)
    call.look(0, ~F & (1 << 64) - 1)
    call.answered([11], [standing(2, call.name)])
    assert 1 == len(mirror)


def test_it_says_what_it_has_seen_and_which_calls_of_its_own_are_on_their_way() -> None:
    mirror = mirror_of()
    first = Call(mirror)
    second = Call(mirror)
    assert (NAME, NAME + first.name) == (first.seen, second.seen)
    second.answered([], [standing(3, second.name)])
    # The first left before: should its answer come late, it tells of nothing newer.
    first.answered([], [standing(2, first.name)])
    assert second.name == Call(mirror).seen


def test_it_learns_what_others_inserted_once() -> None:
    mirror = mirror_of()
    first, second = Call(mirror), Call(mirror)
    unseen = told(OTHER, 2, [(0, F, 5), (3, F ^ 1, 6)])
    first.answered([], [standing(2, OTHER), unseen])
    second.answered([], [standing(2, OTHER), unseen])
    assert 2 == len(mirror)
    assert (near((5, 0)), near((6, 1))) == (mirror.near(0, F), mirror.near(3, F))
    assert OTHER == Call(mirror).seen


def test_it_is_of_no_use_once_the_shard_does_not_know_what_it_has_seen() -> None:
    mirror = mirror_of()
    call = Call(mirror)
    call.answered([], [standing(9, OTHER, known=False)])
    assert not mirror.sound


def test_a_call_that_failed_may_have_inserted() -> None:
    mirror = mirror_of()
    Call(mirror).failed()
    assert not mirror.sound


def test_it_is_worn_once_much_of_it_is_closed() -> None:
    mirror = mirror_of(*((0, n << 32, n) for n in range(SPARE)))
    for entries, worn in ((1, False), (0, False)):
        call = Call(mirror)
        call.answered([], [standing(1, NAME, entries=entries)])
        assert worn == mirror.worn
    call = Call(mirror)
    call.look(0, F)
    call.answered([12], [standing(2, call.name, entries=0)])
    assert mirror.worn
    assert mirror.sound


def test_without_a_mirror_the_tables_are_to_be_searched() -> None:
    call = Call(None)
    assert (b"", UNKNOWN) == (call.seen, call.look(0, F))
    call.answered([1], [standing(1, call.name)])
    call.failed()


@pytest.mark.parametrize("width", [32, 64, 128])
def test_fingerprints_of_every_width_are_learnt(width: int) -> None:
    mirror = Mirror(Layout(width, 2, 4), max_candidates=10)
    mirror.begin(NOTHING_YET, 0, ())
    fingerprint = (1 << width) - 6
    unseen = OTHER + pack("<d", 1) + pack(">H", 4) + fingerprint.to_bytes(width // 8, "big")
    Call(mirror).answered([], [standing(1, OTHER), unseen + pack(">Q", 77)])
    assert near((77, 0)) == mirror.near(4, fingerprint)

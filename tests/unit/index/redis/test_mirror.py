"""The mirror by itself: what it says is near, while calls are on their way and afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from struct import iter_unpack, pack

import pytest

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.redis.mirror import (
    NOTHING_YET,
    PENDING,
    PENDING_HERE,
    SPARE,
    UNKNOWN,
    Call,
    Mirror,
)
from stream_dedup.tables.permutation import Layout

LAYOUT = Layout(64, 3, 6)
NAME = b"firstone"
OTHER = b"another1"
F = 0x0F0F_0F0F_0F0F_0F0F


def mirror_of(*entries: tuple[int, int, int], base: bytes = NAME, turn: float = 1) -> Mirror:
    mirror = Mirror(LAYOUT, max_candidates=100)
    mirror.take(entries)
    mirror.begin(base, turn)
    return mirror


def call_of(mirror: Mirror) -> tuple[Call, bytes]:
    """A call that has left, and its name."""
    call = Call(mirror)
    return call, call.attempt()


def near(*found: tuple[int, int]) -> bytes:
    """Clusters and fingerprints as the script gets them."""
    return b"".join(pack(">QQ", *item) for item in found)


def shard_state(turn: float, last: bytes, *, known: bool = True, entries: float = 1) -> bytes:
    return pack("<Bdd8s", known, turn, entries, last)


def call_log(name: bytes, turn: float, entries: Iterable[tuple[int, int, int]]) -> bytes:
    return name + pack("<d", turn) + b"".join(pack(">HQQ", *entry) for entry in entries)


def test_near_returns_clusters_of_the_group_within_k_bits() -> None:
    mirror = mirror_of((7, F, 1), (7, F ^ 0b11, 2), (7, F ^ 0b1111, 3), (8, F, 4))
    found = mirror.near(7, F)
    assert {near((1, F)), near((2, F ^ 0b11))} == {found[:16], found[16:]}
    assert mirror.near(9, F) == b""


@pytest.mark.parametrize("entries", [101, 11])
def test_nothing_is_said_where_too_many_are_near(entries: int) -> None:
    mirror = Mirror(LAYOUT, max_candidates=100, most_near=10)
    mirror.take((0, F, n) for n in range(entries))
    mirror.begin(NAME, 1)
    assert mirror.near(0, F) == UNKNOWN


def test_what_is_on_its_way_is_met_by_the_queries_after_it() -> None:
    mirror = mirror_of(base=NOTHING_YET, turn=0)
    call, _ = call_of(mirror)
    assert [call.look(0, F), call.look(0, F ^ 1)] == [b"", near((PENDING_HERE, F))]
    found = Call(mirror).look(0, F ^ 2)
    assert {near((PENDING, F)), near((PENDING, F ^ 1))} == {found[:16], found[16:]}
    Call(mirror).look(0, F ^ 1)
    assert Call(mirror).look(0, F ^ 2) == UNKNOWN, "the script may find only one of two calls"


def sketch(*hashes: int) -> bytes:
    return pack(f"={len(hashes)}Q", *hashes)


def test_clusters_whose_sketch_does_not_admit_the_event_are_left_out() -> None:
    linkage = Linkage(Recipe(match=Match(k=3, jaccard=0.5)))
    mirror = Mirror(LAYOUT, max_candidates=100, linkage=linkage)
    mirror.take([(0, F ^ 8, 5)])  # another process has opened it
    mirror.begin(NAME, 1)
    call, name = call_of(mirror)
    for fingerprint in (F, F ^ 1, F ^ 2):
        call.look(0, fingerprint, sketch(1, 2, 3))
    opened, joined, none = (11, True), (12, False), None
    call.answered([opened, joined, none], [shard_state(2, name, entries=3)])
    alike, other = mirror.near(0, F, sketch(1, 2, 4)), mirror.near(0, F, sketch(4, 5, 6))
    assert {5, 11, 12} == {cluster for cluster, _ in iter_unpack(">QQ", alike)}
    assert {5, 12} == {cluster for cluster, _ in iter_unpack(">QQ", other)}


def test_an_answer_confirms_which_entries_were_inserted() -> None:
    mirror = mirror_of(base=NOTHING_YET, turn=0)
    call, name = call_of(mirror)
    for fingerprint in (F, F ^ 1, ~F & (1 << 64) - 1):
        call.look(0, fingerprint)
    call.skip()
    call.answered([(11, True), None, None, None], [shard_state(1, name)])
    assert (1, near((11, F))) == (len(mirror), mirror.near(0, F ^ 1))
    assert Call(mirror).seen == name


def test_what_the_script_left_unanswered_was_not_inserted() -> None:
    mirror = mirror_of()
    call, name = call_of(mirror)
    call.look(0, F)
    call.look(0, ~F & (1 << 64) - 1)
    call.answered([(11, True)], [shard_state(2, name)])
    assert len(mirror) == 1


def test_a_call_that_was_refused_has_inserted_nothing() -> None:
    mirror = mirror_of()
    call, _ = call_of(mirror)
    call.look(0, F)
    call.refused()
    assert (len(mirror), Call(mirror).seen, mirror.sound) == (0, NAME, True)


def test_a_call_names_what_was_seen_and_its_own_calls_under_way() -> None:
    mirror = mirror_of()
    first, its_name = call_of(mirror)
    second, other_name = call_of(mirror)
    assert (NAME, NAME + its_name) == (first.seen, second.seen)
    second.answered([], [shard_state(3, other_name)])
    # The first left before: should its answer come late, it contains nothing newer.
    first.answered([], [shard_state(2, its_name)])
    assert Call(mirror).seen == other_name


def test_it_learns_what_others_inserted_once() -> None:
    mirror = mirror_of()
    (first, _), (second, _) = call_of(mirror), call_of(mirror)
    unseen = call_log(OTHER, 2, [(0, F, 5), (3, F ^ 1, 6)])
    first.answered([], [shard_state(2, OTHER), unseen])
    second.answered([], [shard_state(2, OTHER), unseen])
    assert len(mirror) == 2
    assert (near((5, F)), near((6, F ^ 1))) == (mirror.near(0, F), mirror.near(3, F))
    assert Call(mirror).seen == OTHER


def test_a_call_with_the_number_of_a_lost_one_is_learnt_by_name() -> None:
    mirror = mirror_of()
    (first, its_name), (second, other_name) = call_of(mirror), call_of(mirror)
    first.answered([], [shard_state(2, its_name)])  # the server loses it, and takes another's
    second.answered([], [shard_state(3, other_name), call_log(OTHER, 2, [(0, F, 5)])])
    assert near((5, F)) == mirror.near(0, F)


def test_a_mirror_is_unsound_if_the_shard_does_not_know_its_calls() -> None:
    mirror = mirror_of()
    call, _ = call_of(mirror)
    call.answered([], [shard_state(9, OTHER, known=False)])
    assert not mirror.sound


def test_a_call_that_failed_may_have_inserted() -> None:
    mirror = mirror_of()
    call_of(mirror)[0].failed()
    assert not mirror.sound


@pytest.mark.parametrize("end", ["answered", "refused"])
def test_a_call_that_was_made_again_may_have_inserted_twice(end: str) -> None:
    mirror = mirror_of()
    call, first = call_of(mirror)
    second = call.attempt()
    assert (first == second, mirror.sound) == (False, False)
    if end == "answered":
        call.answered([], [shard_state(2, second)])
    else:
        call.refused()
    assert not mirror.sound


def test_it_is_worn_once_much_of_it_is_closed() -> None:
    mirror = mirror_of()
    for step, worn in ((SPARE, False), (1, True)):
        call, name = call_of(mirror)
        for n in range(step):
            call.look(0, (n + step) << 32)
        call.answered([(each, True) for each in range(step)], [shard_state(2, name, entries=0)])
        assert worn == mirror.worn
    assert mirror.sound


def test_it_is_not_worn_by_what_it_was_read_with() -> None:
    mirror = mirror_of(*((0, n << 32, n) for n in range(2 * SPARE)))
    call, name = call_of(mirror)
    call.answered([], [shard_state(1, name, entries=0)])  # what was counted has been lost
    assert not mirror.worn


def test_without_a_mirror_the_tables_are_to_be_searched() -> None:
    call = Call(None)
    assert (call.seen, call.look(0, F)) == (b"", UNKNOWN)
    name = call.attempt()
    call.answered([(1, True)], [shard_state(1, name)])
    call.refused()
    call.failed()


@pytest.mark.parametrize("width", [32, 64, 128])
def test_fingerprints_of_every_width_are_learnt(width: int) -> None:
    mirror = Mirror(Layout(width, 2, 4), max_candidates=10)
    mirror.begin(NOTHING_YET, 0)
    fingerprint = (1 << width) - 6
    packed = fingerprint.to_bytes(width // 8, "big")
    unseen = OTHER + pack("<d", 1) + pack(">H", 4) + packed + pack(">Q", 77)
    call_of(mirror)[0].answered([], [shard_state(1, OTHER), unseen])
    assert pack(">Q", 77) + packed == mirror.near(4, fingerprint)

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.tables import _native as native
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.sketches import sketch
from stream_dedup.tables.store import (
    Bands,
    ReferenceBandTables,
    ReferenceTables,
    Tables,
    make_band_tables,
    make_tables,
)
from tests.effort import scaled

KINDS: dict[str, Any] = {"native": native.NativeTables, "reference": ReferenceTables}
LAYOUTS = [
    Layout(32, 2, 4),
    Layout(64, 3, 5),
    Layout(64, 6, 8),
    Layout(128, 4, 6),
    Layout(64, 0, 1),
]
MANY = 10**9


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def scan(
    stored: dict[int, tuple[int, int, int]], fingerprint: int, group: int, k: int
) -> list[tuple[int, int]]:
    """(owner, distance) of every near fingerprint, by looking at all."""
    return sorted(
        (owner, (other ^ fingerprint).bit_count())
        for other, owned_group, owner in stored.values()
        if owned_group == group and (other ^ fingerprint).bit_count() <= k
    )


@given(st.data())
@settings(max_examples=scaled(40))
def test_tables_find_what_a_scan_finds_under_inserts_and_deletes(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS))
    bases = data.draw(st.lists(st.integers(0, 2**layout.width - 1), min_size=1, max_size=3))
    near = st.builds(
        lambda base, bits: base ^ sum(1 << bit for bit in bits),
        st.sampled_from(bases),
        st.sets(st.integers(0, layout.width - 1), max_size=layout.k + 1),
    )
    tables: list[Tables] = [kind(layout) for kind in KINDS.values()]
    entries: list[tuple[int, ...]] = []  # the entry's number in each of the tables
    stored: dict[int, tuple[int, int, int]] = {}
    for step in range(data.draw(st.integers(1, 40))):
        fingerprint, group = data.draw(near), data.draw(st.integers(0, 1))
        action = data.draw(st.sampled_from(["insert", "insert", "delete", "query"]))
        if action == "insert":
            stored[len(entries)] = (fingerprint, group, step)
            entries.append(tuple(table.insert(fingerprint, group, step) for table in tables))
        elif action == "delete" and stored:
            gone = data.draw(st.sampled_from(sorted(stored)))
            del stored[gone]
            for table, entry in zip(tables, entries[gone], strict=True):
                table.delete(entry)
        expected = scan(stored, fingerprint, group, layout.k)
        for table in tables:
            found = table.query(fingerprint, group, MANY)
            assert sorted(zip(found.owners, found.distances, strict=True)) == expected
            assert not found.truncated
        assert [len(stored)] * 2 == [len(table) for table in tables]
        first, second = (table.query(fingerprint, group, MANY).candidates for table in tables)
        assert first == second


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nothing_is_lost_as_tables_grow_and_entries_are_reused(make: Any, layout: Layout) -> None:
    generator = random.Random(layout.width)
    tables: Tables = make(layout)
    stored: dict[int, tuple[int, int, int]] = {}
    count = 3000  # several doublings from 256
    for owner in range(count):
        fingerprint = generator.getrandbits(layout.width)
        stored[tables.insert(fingerprint, owner % 3, owner)] = (fingerprint, owner % 3, owner)
        if owner % 3 == 2:
            gone = generator.choice(list(stored)[-50:])
            tables.delete(gone)
            del stored[gone]
    assert len(stored) == len(tables)
    for fingerprint, group, owner in list(stored.values())[::10]:
        bits = generator.sample(range(layout.width), layout.k)
        asked = fingerprint ^ sum(1 << bit for bit in bits)
        found = tables.query(asked, group, MANY)
        assert (owner, layout.k) in zip(found.owners, found.distances, strict=True)
        assert scan(stored, asked, group, layout.k) == sorted(
            zip(found.owners, found.distances, strict=True)
        )
    for entry in stored:
        tables.delete(entry)
    assert len(tables) == 0
    assert tables.query(fingerprint, group, MANY).owners == []


def test_room_of_deleted_entries_is_used_again() -> None:
    tables = native.NativeTables(Layout(64, 3, 5))
    entries = [tables.insert(n * 0x9E3779B97F4A7C15 % 2**64, 0, n) for n in range(200)]
    before = tables.nbytes()
    for _ in range(20):
        for entry in entries:
            tables.delete(entry)
        entries = [tables.insert(n, 0, n) for n in range(200)]
    assert set(entries) == set(range(200))
    assert tables.nbytes() == before


def test_memory_grows_with_what_is_stored(make: Any) -> None:
    tables: Tables = make(Layout(64, 3, 4))
    empty = tables.nbytes()
    for number in range(2000):
        tables.insert(number << 20, 0, number)
    assert empty < tables.nbytes() <= 2000 * 1000


@pytest.mark.parametrize("cap", [0, 1, 5, 39, 40, 41])
def test_the_cap_on_candidates_truncates_and_reports_it(make: Any, cap: int) -> None:
    layout = Layout(64, 3, 4)
    tables: Tables = make(layout)
    for owner in range(10):
        tables.insert(0, 0, owner)
    found = tables.query(0, 0, cap)
    assert (found.candidates, found.truncated) == (min(cap, 40), cap < 40)
    # Each is in all four tables, which are searched side by side, the newest entries first.
    assert list(range(9, -1, -1))[: -(-cap // 4)] == found.owners


def test_entries_of_other_groups_are_not_candidates(make: Any) -> None:
    tables: Tables = make(Layout(64, 3, 4))
    for group in range(50):
        tables.insert(0, group, group)
    found = tables.query(0, 17, 4)
    assert (found.owners, found.distances, found.truncated) == ([17], [0], False)


def test_deleting_a_missing_entry_is_refused(make: Any) -> None:
    tables: Tables = make(Layout(64, 3, 4))
    entry = tables.insert(1, 0, 1)
    tables.delete(entry)
    for gone in (entry, 12345):
        with pytest.raises(KeyError):
            tables.delete(gone)
    assert len(tables) == 0


def test_all_bits_set_is_a_fingerprint_like_any_other(make: Any) -> None:
    for width in (32, 64, 128):
        tables: Tables = make(Layout(width, 3, 4))
        tables.insert(2**width - 1, 2**32 - 1, 2**32 - 2)
        found = tables.query((2**width - 1) ^ 0b111, 2**32 - 1, MANY)
        assert (found.owners, found.distances) == ([2**32 - 2], [3])


def test_many_equal_fingerprints_cost_no_more_than_others() -> None:
    tables = native.NativeTables(Layout(64, 6, 8))
    start = time.perf_counter()
    entries = [tables.insert(0x1234, 0, owner) for owner in range(20_000)]
    for _ in range(100):
        assert tables.query(0x1234, 0, 10_000).candidates == 10_000
    for entry in entries[::2]:  # from the old end of the chains, where a walk would be longest
        tables.delete(entry)
    assert len(tables) == 10_000
    found = tables.query(0x1234, 0, MANY)
    assert (len(found.owners), found.candidates) == (10_000, 280_000)
    assert time.perf_counter() - start < 5  # some 0.2 s; a walk an insert would take minutes


SMALL = Bands(keys=4, key_bytes=1, crowd=3)
BAND_KINDS: list[Any] = [native.NativeBandTables, ReferenceBandTables]


@given(st.data())
def test_tables_of_bands_equal_the_reference(data: st.DataObject) -> None:
    tables: list[Tables] = [kind(SMALL) for kind in BAND_KINDS]
    key = st.sampled_from([0, 1, 255])
    fingerprints = st.lists(key, min_size=4, max_size=4).map(bytes)
    entries: list[tuple[int, ...]] = []
    for _ in range(data.draw(st.integers(1, 60))):
        fingerprint = int.from_bytes(data.draw(fingerprints), "big")
        group, owner = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9))
        action = data.draw(st.sampled_from(["insert", "insert", "delete"]))
        if action == "insert":
            entries.append(tuple(each.insert(fingerprint, group, owner) for each in tables))
            assert [fingerprint] * 2 == [
                each.fingerprint(entry) for each, entry in zip(tables, entries[-1], strict=True)
            ]
        elif entries:
            gone = entries.pop(data.draw(st.integers(0, len(entries) - 1)))
            for each, entry in zip(tables, gone, strict=True):
                each.delete(entry)
        found = [each.query(fingerprint, group, MANY) for each in tables]
        first, second = (sorted(zip(f.owners, f.distances, strict=True)) for f in found)
        assert first == second
        assert found[0].candidates == found[1].candidates
        assert tables[0].crowded == tables[1].crowded
        assert [len(entries)] * 2 == [len(each) for each in tables]


@pytest.mark.parametrize("make_bands", BAND_KINDS)
def test_a_key_of_bands_leads_to_a_bounded_crowd(make_bands: Any) -> None:
    tables: Tables = make_bands(SMALL)
    entries = [tables.insert(0x00_00_00_00, 0, owner) for owner in range(1000)]

    found = tables.query(0x00_00_00_FF, 0, MANY)

    assert (sorted(found.owners), found.distances) == ([0, 1, 2], [1, 1, 1])
    assert tables.crowded == 997
    for entry in entries:
        tables.delete(entry)
    assert tables.query(0, 0, MANY).owners == []


@pytest.mark.parametrize("make_bands", BAND_KINDS)
def test_a_bands_distance_is_the_keys_by_which_it_is_not_found(make_bands: Any) -> None:
    tables: Tables = make_bands(SMALL)
    tables.insert(0x01_02_03_04, 0, 7)
    tables.insert(0x01_FF_FF_FF, 0, 7)  # an alias, whose first key is there already
    tables.insert(0x01_02_03_04, 1, 8)

    found = tables.query(0x01_02_FF_00, 0, MANY)

    assert (found.owners, found.distances, found.candidates) == ([7], [1], 3)


def test_a_million_equal_keys_of_bands_lead_to_no_more_than_a_crowd() -> None:
    tables = make_band_tables(Bands(1, 6, 16))
    assert isinstance(tables, native.NativeBandTables)
    count = 1_000_000
    for owner in range(count):  # a walk over all of them would take hours
        tables.insert(7, 0, owner)
    found = [tables.query(7, 0, MANY) for _ in range(1_000)]

    assert {(tuple(sorted(each.owners)), each.candidates) for each in found} == {
        (tuple(range(16)), 16)
    }
    assert (len(tables), tables.crowded) == (count, count - 16)
    assert tables.nbytes() < 100 * count


def test_nothing_is_lost_as_tables_of_bands_grow() -> None:
    generator = random.Random(1)
    tables = make_band_tables(Bands(16, 4, 16))
    assert isinstance(tables, native.NativeBandTables)
    stored = {owner: generator.getrandbits(512) for owner in range(3000)}
    entries = {owner: tables.insert(value, owner % 3, owner) for owner, value in stored.items()}
    for owner in range(0, 3000, 2):
        tables.delete(entries[owner])

    for owner, value in stored.items():
        one_key = value & ~((1 << 480) - 1)
        found = tables.query(one_key, owner % 3, MANY)
        assert ([owner] * (owner % 2), [15] * (owner % 2)) == (found.owners, found.distances)
    assert len(tables) == 1500


def test_a_missing_entry_of_bands_is_refused() -> None:
    for make_bands in BAND_KINDS:
        tables: Tables = make_bands(SMALL)
        tables.delete(tables.insert(1, 0, 1))
        for gone in (0, 12345):
            with pytest.raises(KeyError):
                tables.delete(gone)


def test_the_environment_chooses_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(64, 3, 4)
    monkeypatch.delenv("STREAM_DEDUP_PURE_PYTHON", raising=False)
    assert isinstance(make_tables(layout), native.NativeTables)
    monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")
    assert isinstance(make_tables(layout), ReferenceTables)
    assert isinstance(make_band_tables(SMALL), ReferenceBandTables)


def some_sketches(generator: random.Random, count: int) -> list[bytes]:
    """Sketches that are alike, unlike, of few features, of many, and not known."""
    base = [generator.getrandbits(32) for _ in range(300)]
    found = []
    for _ in range(count):
        size = generator.choice([0, 10, 60, 60, 60, 200])
        kept = base[: int(size * generator.choice([0.3, 0.7, 1]))]
        found.append(sketch([*kept, *(generator.getrandbits(32) for _ in range(size - len(kept)))]))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_native_bands_find_who_is_alike_as_the_reference(seed: int) -> None:
    generator = random.Random(seed)
    bands = Bands(3, 1, generator.choice([2, 5, 1000]))  # few keys, of which many are equal
    pair = native.NativeBandTables(bands), ReferenceBandTables(bands)
    sketches = some_sketches(generator, 400)
    for tables in pair:
        keys = random.Random(seed)
        for owner in range(400):
            tables.insert(keys.getrandbits(24), 0, owner)
    for one in sketches:
        fingerprint = generator.getrandbits(24)
        first, second = (tables.similar(fingerprint, 0, one, sketches, 0.42) for tables in pair)
        assert (set(first.owners), first.shared) == (set(second.owners), second.shared)


def test_only_the_group_of_an_event_is_compared() -> None:
    for make_bands in BAND_KINDS:
        tables = make_bands(SMALL)
        tables.insert(1, 7, 0)
        alike = [sketch(range(0, 40 << 16, 1 << 16))]
        assert tables.similar(1, 7, alike[0], alike, 0.42).owners == [0]
        assert tables.similar(1, 8, alike[0], alike, 0.42).owners == []

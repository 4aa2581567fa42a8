from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.bands import BANDS, BITS
from stream_dedup.tables import _native as native
from stream_dedup.tables.entries import (
    MAX_SLICES,
    Entries,
    Prefixes,
    ReferenceBandEntries,
    ReferenceEntries,
    Row,
    make_entries,
    parts,
    slice_of,
)
from stream_dedup.tables.permutation import MAX_TABLES, Layout
from stream_dedup.tables.sketches import sketch

KINDS: dict[str, Any] = {"native": native.NativeEntries, "reference": ReferenceEntries}
BAND_LAYOUT = Layout(BITS, BANDS - 1, BANDS)
BAND_KINDS: dict[str, Any] = {
    "reference": ReferenceBandEntries,
    "native": native.NativeBandEntries,
}
GROUPS = st.sampled_from([0, 1, 7, 2**16, 2**32 - 1]) | st.integers(0, 2**32 - 1)
OWNERS = st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
SLICES = st.sampled_from([1, 2, 16, 1024, MAX_SLICES])
SLICES_THAT_CANNOT_BE = [-4, -1, 0, 3, 12, 1023, MAX_SLICES + 1, 2 * MAX_SLICES]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    width = draw(st.sampled_from([32, 64, 128]) | st.integers(1, 128))
    k = draw(st.integers(0, min(6, width - 1)))
    most = max(m for m in range(k + 1, min(width, k + 6) + 1) if comb(m, k) <= min(MAX_TABLES, 100))
    return Layout(width, k, draw(st.integers(k + 1, most)))


def fingerprints(layout: Layout) -> st.SearchStrategy[int]:
    every = 2**layout.width - 1
    return st.sampled_from([0, 1, every]) | st.integers(0, every)


def cut(entries: Entries, members: bytes) -> list[bytes]:
    size = entries.member_bytes
    return [members[start : start + size] for start in range(0, len(members), size)]


def buckets(entries: Entries, fingerprint: int, group: int) -> list[tuple[bytes, bytes]]:
    keys, members = entries.arrange(fingerprint, group, 0, b"")
    beginnings = (member[: entries.prefix_bytes] for member in cut(entries, members))
    return list(zip(keys, beginnings, strict=True))


@given(layouts(), SLICES, st.data(), GROUPS, OWNERS, st.binary(max_size=40))
def test_the_native_entries_equal_the_reference(
    layout: Layout, slices: int, data: st.DataObject, group: int, owner: int, key_prefix: bytes
) -> None:
    fingerprint = data.draw(fingerprints(layout))
    reference, other = (kind(layout, slices) for kind in (ReferenceEntries, native.NativeEntries))
    assert reference.prefix_bytes == other.prefix_bytes
    assert reference.member_bytes == other.member_bytes
    expected = reference.arrange(fingerprint, group, owner, key_prefix)
    assert other.arrange(fingerprint, group, owner, key_prefix) == expected


TIMES = st.floats(-(2**52), 2**52)
HASHES = st.lists(OWNERS, max_size=64).map(lambda hashes: array("Q", hashes).tobytes())
TEXTS = st.just(b"") | st.binary(max_size=300)
PREFIXES = Prefixes(b"c:", b"e:", b"t:")


@given(layouts(), SLICES, st.data(), st.builds(Prefixes, TEXTS, TEXTS, TEXTS))
def test_the_native_entries_pack_rows_as_the_reference(
    layout: Layout, slices: int, data: st.DataObject, prefixes: Prefixes
) -> None:
    row = st.tuples(
        TIMES, TIMES, OWNERS, GROUPS, OWNERS, st.integers(0, MAX_SLICES - 1), fingerprints(layout),
        st.booleans(), HASHES, TEXTS, TEXTS, TEXTS,
    )  # fmt: skip
    rows = data.draw(st.lists(row, max_size=5))
    reference, other = (kind(layout, slices) for kind in (ReferenceEntries, native.NativeEntries))
    assert reference.pack(rows, prefixes) == other.pack(rows, prefixes)


@pytest.mark.parametrize("searchable", [True, False])
def test_a_packed_row_is_numbers_then_parts_with_their_lengths(make: Any, searchable: bool) -> None:
    entries: Entries = make(Layout(64, 3, 4), 16)
    row = (
        1.5, -2.0, 0xABC, 7, 2**64 - 1, 12, 0x0123456789ABCDEF, searchable,
        array("Q", [1, 2]).tobytes(), b"group", b"", b"near",
    )  # fmt: skip
    tables, members = entries.arrange(0x0123456789ABCDEF, 7, 0xABC, b"t:")
    if not searchable:
        tables, members = [], b""
    keys, packed = entries.pack([row], PREFIXES)
    assert [b"c:0000000000000abc", b"e:12", *tables] == keys
    parts = [
        bytes.fromhex("0123456789abcdef"), bytes.fromhex("00000000000000010000000000000002"),
        b"group", b"", members, b"near",
    ]  # fmt: skip
    behind = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    assert struct.pack(">I2dQIQ", 1, 1.5, -2.0, 0xABC, 7, 2**64 - 1) + behind == packed


def row(**changed: Any) -> Row:
    fields: dict[str, Any] = {
        "first": 0, "last": 0, "owner": 1, "group": 2, "exact": 3, "slice": 4, "fingerprint": 5,
        "searchable": True, "hashes": b"", "one": b"", "other": b"", "third": b"",
    }  # fmt: skip
    return tuple((fields | changed).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"owner": 2**64}, {"owner": -1}, {"group": 2**32}, {"exact": 2**64}, {"exact": -1},
        {"fingerprint": 2**40}, {"fingerprint": -1},
        {"fingerprint": 2**40, "searchable": False}, {"fingerprint": 2**128},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_of_rows_that_do_not_fit_are_refused(make: Any, changed: dict[str, Any]) -> None:
    entries: Entries = make(Layout(40, 2, 3), 16)
    assert entries.pack([row()], PREFIXES)
    with pytest.raises(OverflowError):
        entries.pack([row(**changed)], PREFIXES)


@given(SLICES, st.integers(0, 2**BITS - 1), GROUPS, OWNERS, st.binary(max_size=40))
def test_native_members_of_bands_equal_the_reference(
    slices: int, fingerprint: int, group: int, owner: int, key_prefix: bytes
) -> None:
    reference, other = (kind(BAND_LAYOUT, slices) for kind in BAND_KINDS.values())
    expected = reference.arrange(fingerprint, group, owner, key_prefix)
    assert other.arrange(fingerprint, group, owner, key_prefix) == expected
    assert (reference.prefix_bytes, reference.member_bytes) == (3, 11)
    assert (other.prefix_bytes, other.member_bytes) == (3, 11)


SKETCHES = st.sets(st.integers(0, 2**32 - 1), max_size=200).map(sketch)


@given(SLICES, st.data(), st.builds(Prefixes, TEXTS, TEXTS, TEXTS))
def test_native_rows_of_bands_are_packed_as_the_reference(
    slices: int, data: st.DataObject, prefixes: Prefixes
) -> None:
    row = st.tuples(
        TIMES, TIMES, OWNERS, GROUPS, OWNERS, st.integers(0, MAX_SLICES - 1),
        st.integers(0, 2**BITS - 1), st.booleans(), SKETCHES, TEXTS, TEXTS, TEXTS,
    )  # fmt: skip
    rows = data.draw(st.lists(row, max_size=5))
    reference, other = (kind(BAND_LAYOUT, slices) for kind in BAND_KINDS.values())
    assert reference.pack(rows, prefixes) == other.pack(rows, prefixes)


@pytest.mark.parametrize("kind", BAND_KINDS)
def test_two_with_one_key_in_common_meet_in_one_table(kind: str) -> None:
    entries: Entries = BAND_KINDS[kind](BAND_LAYOUT, 64)
    first = sum(number << 32 * number for number in range(16))
    second = sum((number + 100 * (number != 5)) << 32 * number for number in range(16))
    there = set(buckets(entries, first, 7)) & set(buckets(entries, second, 7))
    assert len(there) == 1
    assert not there & set(buckets(entries, second, 8))


@given(layouts(), SLICES, st.data(), GROUPS, OWNERS)
def test_the_slice_of_a_member_is_where_it_was_arranged(
    layout: Layout, slices: int, data: st.DataObject, group: int, owner: int
) -> None:
    entries = make_entries(layout, slices)
    fingerprint = data.draw(fingerprints(layout))
    keys, members = entries.arrange(fingerprint, group, owner, b"t:")
    found = [entries.slice_key(m, table, b"t:") for table, m in enumerate(cut(entries, members))]
    assert found == keys


@pytest.mark.parametrize("kind", BAND_KINDS)
def test_a_member_of_bands_gives_neither_fingerprint_nor_slice(kind: str) -> None:
    entries: Entries = BAND_KINDS[kind](BAND_LAYOUT, 64)
    with pytest.raises(ValueError, match="holds a mark"):
        entries.fingerprint(bytes(12), 0)
    with pytest.raises(ValueError, match="holds a mark"):
        entries.slice_key(bytes(12), 0, b"t:")


@pytest.mark.parametrize("kind", BAND_KINDS)
def test_slice_and_mark_tell_the_keys_of_a_band_apart(kind: str) -> None:
    entries: Entries = BAND_KINDS[kind](BAND_LAYOUT, 2**16)
    keys = [*range(5_000), *(number << 19 for number in range(1, 5_000))]
    found = {(buckets(entries, key, group)[-1]) for key in keys for group in (0, 7)}
    assert len(found) == 2 * len(keys)


@pytest.mark.parametrize("kind", BAND_KINDS)
def test_keys_of_bands_have_one_layout(kind: str) -> None:
    with pytest.raises(ValueError, match="not a layout of the keys"):
        BAND_KINDS[kind](Layout(64, 3, 5), 64)
    with pytest.raises(ValueError, match="two bytes each"):
        BAND_KINDS[kind](BAND_LAYOUT, 64).pack([row(hashes=bytes(5))], PREFIXES)
    with pytest.raises(OverflowError):
        BAND_KINDS[kind](BAND_LAYOUT, 64).pack([row(fingerprint=2**BITS)], PREFIXES)


def test_hashes_that_are_cut_off_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        make(Layout(64, 3, 4), 1).pack([row(hashes=bytes(9))], PREFIXES)


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("width", [4, 31, 32, 63, 64, 65, 127, 128])
def test_every_number_of_blocks_is_arranged_alike(width: int, k: int) -> None:
    fingerprint = 0xF0E1D2C3B4A5968778695A4B3C2D1E0F & (1 << width) - 1
    for blocks in range(k + 1, min(width, k + 12) + 1):
        layout = Layout(width, k, blocks)
        expected = ReferenceEntries(layout, 4096).arrange(fingerprint, 3, 4, b"key:")
        assert native.NativeEntries(layout, 4096).arrange(fingerprint, 3, 4, b"key:") == expected


@given(layouts(), SLICES, st.data(), GROUPS)
def test_near_fingerprints_share_a_key_and_prefix_in_some_table(
    layout: Layout, slices: int, data: st.DataObject, group: int
) -> None:
    entries = make_entries(layout, slices)
    first = data.draw(fingerprints(layout))
    flips = data.draw(st.sets(st.integers(0, layout.width - 1), max_size=layout.k))
    second = first ^ sum(1 << bit for bit in flips)
    shared = zip(buckets(entries, first, group), buckets(entries, second, group), strict=True)
    assert any(one == other for one, other in shared)


@given(layouts(), SLICES, st.data(), GROUPS, GROUPS)
def test_entries_begin_alike_only_if_prefix_and_group_are_equal(
    layout: Layout, slices: int, data: st.DataObject, group: int, other_group: int
) -> None:
    entries = make_entries(layout, slices)
    first, second = data.draw(fingerprints(layout)), data.draw(fingerprints(layout))
    shared = zip(buckets(entries, first, group), buckets(entries, second, other_group), strict=True)
    for mask, (one, other) in zip(layout.masks, shared, strict=True):
        together = (group - other_group) % 2**16 == 0 and first & mask == second & mask
        assert (one[1] == other[1]) == together
        assert one[0] == other[0] or not together


@given(layouts(), st.data(), OWNERS, OWNERS)
def test_in_a_bucket_members_differ_in_as_many_bits_as_fingerprints(
    layout: Layout, data: st.DataObject, owner: int, other_owner: int
) -> None:
    entries = make_entries(layout, 64)
    first = data.draw(fingerprints(layout))
    table = data.draw(st.integers(0, layout.tables - 1))
    second = first ^ data.draw(fingerprints(layout)) & ~layout.masks[table]
    ones, others = (
        cut(entries, entries.arrange(fingerprint, 5, who, b"")[1])[table]
        for fingerprint, who in ((first, owner), (second, other_owner))
    )
    assert ones[: entries.prefix_bytes] == others[: entries.prefix_bytes]
    rest, other_rest = (
        int.from_bytes(member[entries.prefix_bytes : entries.member_bytes - 8], "big")
        for member in (ones, others)
    )
    assert (first ^ second).bit_count() == (rest ^ other_rest).bit_count()


@pytest.mark.parametrize("kind", KINDS)
@given(layouts(), st.data(), GROUPS, OWNERS)
def test_each_table_member_gives_back_fingerprint_group_and_owner(
    kind: str, layout: Layout, data: st.DataObject, group: int, owner: int
) -> None:
    entries: Entries = KINDS[kind](layout, 8)
    fingerprint = data.draw(fingerprints(layout))
    members = cut(entries, entries.arrange(fingerprint, group, owner, b"")[1])
    assert layout.tables == len(members)
    for table, member in enumerate(members):
        assert entries.fingerprint(member, table) == fingerprint
        assert parts(member) == (group % 2**16, owner)


@given(layouts(), SLICES, st.data(), GROUPS)
def test_a_key_is_prefix_then_table_then_a_slice_in_range(
    layout: Layout, slices: int, data: st.DataObject, group: int
) -> None:
    entries = make_entries(layout, slices)
    keys, _ = entries.arrange(data.draw(fingerprints(layout)), group, 0, b"\x00dedup:{a}:")
    for table, key in enumerate(keys):
        match = re.fullmatch(rb"\x00dedup:\{a\}:(0|[1-9]\d*):(0|[1-9]\d*)", key)
        assert match is not None
        assert int(match[1]) == table
        assert int(match[2]) in range(slices)


def test_numbers_of_tables_with_four_digits_are_written_in_full(make: Any) -> None:
    layout = Layout(64, 4, 15)
    keys, _ = make(layout, MAX_SLICES).arrange(2**64 - 1, 0, 0, b"")
    assert [int(key.split(b":")[0]) for key in keys] == list(range(1365))


@pytest.mark.parametrize("shift", [0, 16, 40], ids=lambda shift: f"from bit {shift}")
@pytest.mark.parametrize("width", [64, 128])
def test_fingerprints_that_follow_each_other_spread_evenly(width: int, shift: int) -> None:
    slices, mean = 256, 64
    entries = make_entries(Layout(width, 1, 2), slices)
    loads = [Counter[bytes](), Counter[bytes]()]
    for number in range(slices * mean):
        fingerprint = (number << shift) % 2**width
        for load, key in zip(loads, entries.arrange(fingerprint, 0, 0, b"")[0], strict=True):
            load[key] += 1
    # All differ in the same half: in the other's table they are one bucket, so one slice.
    equal, load = sorted(loads, key=len)
    assert len(equal) == 1
    assert len(load) == slices
    assert max(load.values()) <= 2 * mean


@pytest.mark.parametrize("step", [1, 2, 4])
def test_groups_spread_one_fingerprint_evenly(step: int) -> None:
    slices, mean = 256, 64
    entries = make_entries(Layout(64, 3, 4), slices)
    for fingerprint in (0, 0x1234567890ABCDEF):
        load = Counter(
            entries.arrange(fingerprint, group * step, 0, b"")[0][0]
            for group in range(slices * mean)
        )
        assert len(load) == slices
        assert max(load.values()) <= 2 * mean


@given(st.integers(1, 128), st.integers(0, 2**128 - 1), GROUPS, st.integers(1, 24))
def test_doubling_the_slices_splits_each_in_two(
    prefix_bits: int, prefix: int, group: int, bits: int
) -> None:
    prefix %= 2**prefix_bits
    doubled = slice_of(prefix, prefix_bits, group, bits)
    assert slice_of(prefix, prefix_bits, group, bits - 1) == doubled >> 1


@given(st.integers(1, 12), GROUPS, st.integers(0, 12))
def test_every_slice_gets_as_many_buckets_of_a_group(
    prefix_bits: int, group: int, slice_bits: int
) -> None:
    load = Counter(
        slice_of(prefix, prefix_bits, group, slice_bits) for prefix in range(2**prefix_bits)
    )
    assert {2 ** max(0, prefix_bits - slice_bits)} == set(load.values())
    assert min(2**prefix_bits, 2**slice_bits) == len(load)


@pytest.mark.parametrize("slices", SLICES_THAT_CANNOT_BE)
def test_slices_must_be_a_power_of_two_in_range(make: Any, slices: int) -> None:
    with pytest.raises(ValueError, match=f"not {slices}$"):
        make(Layout(64, 3, 4), slices)


def test_fingerprints_of_more_than_128_bits_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="not 129"):
        make(Layout(129, 3, 4), 1)


@pytest.mark.parametrize(("group", "owner"), [(2**32, 0), (-1, 0), (0, 2**64), (0, -1)])
def test_groups_and_owners_that_do_not_fit_are_refused(make: Any, group: int, owner: int) -> None:
    with pytest.raises(OverflowError):
        make(Layout(64, 3, 4), 1).arrange(0, group, owner, b"")


def test_bits_beyond_the_width_do_not_count(make: Any) -> None:
    entries: Entries = make(Layout(40, 2, 3), 16)
    expected = entries.arrange(0xFEDCBA9876, 1, 2, b"")
    assert entries.arrange(0xFEDCBA9876 | 3 << 40 | 1 << 64 | 1 << 140, 1, 2, b"") == expected


def test_a_member_of_another_length_has_no_fingerprint(make: Any) -> None:
    entries: Entries = make(Layout(64, 3, 4), 1)
    for size in (0, 17, 19):
        with pytest.raises(ValueError, match=f"18 bytes, not {size}"):
            entries.fingerprint(bytes(size), 0)


@pytest.mark.parametrize(
    ("layout", "prefix_bytes", "member_bytes"),
    [
        (Layout(32, 3, 4), 3, 14),
        (Layout(64, 0, 1), 10, 18),
        (Layout(64, 3, 4), 4, 18),
        (Layout(64, 6, 8), 4, 18),
        (Layout(64, 3, 5), 6, 19),
        (Layout(128, 0, 1), 18, 26),
        (Layout(128, 4, 6), 8, 27),
    ],
    ids=str,
)
def test_parts_are_as_wide_as_the_widest_table_needs(
    make: Any, layout: Layout, prefix_bytes: int, member_bytes: int
) -> None:
    entries: Entries = make(layout, 1)
    assert (prefix_bytes, member_bytes) == (entries.prefix_bytes, entries.member_bytes)


# What is stored must be found by later versions: these do not change.
GOLDEN = [
    (
        Layout(8, 1, 2),
        16,
        0xB2,
        7,
        9,
        ["0:5", "1:11"],
        ["0007b0200000000000000009", "000720b00000000000000009"],
    ),
    (
        Layout(32, 1, 3),
        1,
        0xDEADBEEF,
        0,
        1,
        ["0:0", "1:0", "2:0"],
        [
            "0000deadbcbbc00000000000000001",
            "0000deb7786de00000000000000001",
            "00006df778dea00000000000000001",
        ],
    ),
    (
        Layout(64, 3, 4),
        1024,
        0x0123456789ABCDEF,
        42,
        2**40 + 5,
        ["0:704", "1:714", "2:70", "3:938"],
        [
            "002a0123456789abcdef0000010000000005",
            "002a4567012389abcdef0000010000000005",
            "002a89ab01234567cdef0000010000000005",
            "002acdef0123456789ab0000010000000005",
        ],
    ),
    (
        Layout(128, 2, 3),
        2**24,
        0x00112233445566778899AABBCCDDEEFF,
        2**32 - 1,
        2**64 - 1,
        ["0:5854285", "1:6421893", "2:7427783"],
        [
            "ffff001122334440ab33bc44cd55de66ef77f8ffffffffffffffff",
            "ffffab33bc44cd40001122334455de66ef77f8ffffffffffffffff",
            "ffffaef3377bbfc000112233445566778899a8ffffffffffffffff",
        ],
    ),
    (
        Layout(128, 0, 1),
        256,
        0xF0E1D2C3B4A5968778695A4B3C2D1E0F,
        1,
        2,
        ["0:213"],
        ["0001f0e1d2c3b4a5968778695a4b3c2d1e0f0000000000000002"],
    ),
]


@pytest.mark.parametrize(
    ("layout", "slices", "fingerprint", "group", "owner", "keys", "members"), GOLDEN
)
def test_the_stored_format_has_not_changed(
    make: Any,
    layout: Layout,
    slices: int,
    fingerprint: int,
    group: int,
    owner: int,
    keys: list[str],
    members: list[str],
) -> None:
    entries: Entries = make(layout, slices)
    found_keys, found_members = entries.arrange(fingerprint, group, owner, b"")
    assert [key.decode() for key in found_keys] == keys
    assert [member.hex() for member in cut(entries, found_members)] == members


def test_the_environment_chooses_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(64, 3, 4)
    monkeypatch.delenv("STREAM_DEDUP_PURE_PYTHON", raising=False)
    assert isinstance(make_entries(layout, 4), native.NativeEntries)
    monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")
    assert isinstance(make_entries(layout, 4), ReferenceEntries)

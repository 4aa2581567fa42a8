from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.index.base import ClusterDelta
from stream_dedup.index.redis import codec as wire
from stream_dedup.index.redis import layouts
from stream_dedup.index.redis.keys import NamespaceLayout
from stream_dedup.model import Decision, Kind, Position

ids = st.integers(0, 2**64 - 1)
decisions = st.one_of(
    st.builds(
        Decision,
        st.sampled_from([Kind.NEW, Kind.DUPLICATE]),
        ids,
        st.integers(0, 128),
        st.integers(0, 2**128 - 1),
        st.just(""),
        st.none() | ids,
        st.integers(0, 2**48 - 1),
    ),
    st.builds(lambda reason: Decision(Kind.PASSED, reason=reason), st.text(max_size=20)),
)


@given(st.dictionaries(st.integers(0, 2**53), decisions, max_size=20))
def test_a_journal_holds_what_was_decided(journal: dict[int, Decision]) -> None:
    offsets = sorted(journal)
    packed = wire.pack_journal(offsets, [journal[offset] for offset in offsets])
    assert (wire.unpack_journal(packed) if packed else {}) == journal


def test_a_journal_holds_a_shared_decision_once() -> None:
    shared = Decision(Kind.DUPLICATE, 2**64 - 1, 3, 2**64 - 1)
    one, many = (wire.pack_journal(range(count), [shared] * count) for count in (1, 1001))
    assert len(many) - len(one) < 6 * 1000


def test_a_journal_is_written_as_it_was_ever_read() -> None:
    new, like = Decision(Kind.NEW, 255, 0, 0x1FF), Decision(Kind.DUPLICATE, 255, 3, 0, "", 9)
    passed = Decision(Kind.PASSED, reason="no")
    different = [["new", 255, 0, b"\x01\xff", ""], ["duplicate", 255, 3, b"", "", 9]]
    different.append(["passed", None, None, None, "no"])
    places = b"\0\0\1\0\1\0\2\0"

    in_a_row, apart = (
        msgspec.msgpack.decode(wire.pack_journal(offsets, [new, like, like, passed]))
        for offsets in ([7, 8, 9, 10], [7, 8, 9, 11])
    )

    assert [different, [7], places] == in_a_row
    assert [different, [7, 8, 9, 11], places] == apart


@pytest.mark.parametrize(("count", "bytes_each"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_a_journal_holds_any_number_of_different_decisions(count: int, bytes_each: int) -> None:
    decisions = [Decision(Kind.PASSED, reason=str(number)) for number in range(count)]
    packed = wire.pack_journal(range(count), decisions)
    assert dict(enumerate(decisions)) == wire.unpack_journal(packed)
    assert len(msgspec.msgpack.decode(packed)[2]) == count * bytes_each


@given(st.text(), st.integers(0, 2**31), st.integers(0, 2**53))
def test_a_position_comes_back(source: str, partition: int, offset: int) -> None:
    position = Position(source.encode("utf-8", "replace").decode(), partition, offset)
    assert wire.unpack_position(wire.pack_position(position)) == position


def test_a_path_that_is_not_text_is_restored() -> None:
    position = Position("log\udcff:1:x", 0, 5)
    assert wire.unpack_position(wire.pack_position(position)) == position


@given(st.integers(-(2**63), 2**63), st.integers(1, FOREVER_US))
def test_clamped_times_and_their_sums_are_exact_in_doubles(time_us: int, idle_us: int) -> None:
    clamped = wire.clamp_us(time_us)
    total = clamped + min(idle_us, wire.LATEST_US)
    assert int(float(total)) == total
    if abs(time_us) <= wire.LATEST_US:
        assert time_us == clamped


def test_settings_name_no_period_by_a_negative_number() -> None:
    packed = wire.pack_settings(5, Windows(), Summaries(every_us=None), 7, 9)
    names = layouts.SETTINGS.names
    values = dict(zip(names, layouts.SETTINGS.struct.unpack(packed), strict=True))
    picked = {name: values[name] for name in ("now_us", "every_us", "ttl_ms", "max_clusters")}
    assert picked == {"now_us": 5.0, "every_us": -1.0, "ttl_ms": 7.0, "max_clusters": 9.0}


def test_a_delta_carries_no_more_than_is_kept() -> None:
    delta = ClusterDelta(7, 3, 1, 2, b"x" * 100, [b"y" * 100, b"z", b"w"])
    numbers, identity, representative, *samples = wire.pack_delta(delta, 2, 10)
    assert layouts.DELTA.struct.unpack(numbers) == (3.0, 1.0, 2.0, 0.0, 2, 0, 1)
    assert (7).to_bytes(8, "big") == identity
    assert (representative, samples) == (b"x" * 10, [b"y" * 10, b"z"])


@pytest.mark.parametrize("width", [32, 64, 128])
def test_entries_come_apart(width: int) -> None:
    raws = [bytes(8) + b"\x01" * (width // 8) + bytes([flag]) for flag in (1, 0)]
    layout = NamespaceLayout(3, width, 3, 4, 16, 16, 1)
    group, entries = wire.unpack_names(b"grou" + b"".join(raws), layout)
    assert wire.tables_of(b"grou" + b"".join(raws), layout) == [0, 1, 2, 3]
    assert group == b"grou"
    assert [entry.raw for entry in entries] == raws
    assert [entry.searchable for entry in entries] == [True, False]
    assert {int.from_bytes(b"\x01" * (width // 8), "big")} == {e.fingerprint for e in entries}


def test_names_of_bands_come_apart() -> None:
    layout = NamespaceLayout(3, 512, 15, 16, 16, 16, 1)
    raws = [bytes(8) + bytes([flag]) for flag in (1, 0)]
    packed = b"grou" + bytes(range(64)) + (0b101 << 13).to_bytes(2, "big") + b"".join(raws)
    group, entries = wire.unpack_names(packed, layout)
    assert group == b"grou"
    assert [entry.raw for entry in entries] == raws
    assert [entry.searchable for entry in entries] == [True, False]
    assert [e.fingerprint for e in entries] == [int.from_bytes(bytes(range(64)), "big"), None]
    assert wire.tables_of(packed, layout) == [0, 2]


def test_times_of_bare_deltas_are_clamped() -> None:
    packed, others = wire.pack_bare(
        [
            ClusterDelta(1, 2, -(1 << 60), 1 << 60, size=9),
            ClusterDelta(3, 4, wire.LATEST_US, wire.LATEST_US + 1),
        ]
    )
    assert others == []
    assert [
        (2, -wire.LATEST_US, wire.LATEST_US, 9, wire.pack_id(1), b"0000000000000001"),
        (4, wire.LATEST_US, wire.LATEST_US, 0, wire.pack_id(3), b"0000000000000003"),
    ] == list(layouts.BARE_DELTA.struct.iter_unpack(packed))


def test_a_delta_whose_representative_is_empty_has_values() -> None:
    one = ClusterDelta(1, 1, 0, 0)
    one.representative = b""
    assert wire.pack_bare([one]) == (b"", [one])

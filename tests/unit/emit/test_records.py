"""Headers of decisions, kept while what they were made of is."""

from __future__ import annotations

import pytest

from stream_dedup.emit import records
from stream_dedup.emit.records import DecisionHeaders
from stream_dedup.model import Decision, Kind

NEW = Decision(Kind.NEW, 0xAB, 0, 0x12)
DUPLICATE = Decision(Kind.DUPLICATE, 0xAB, 3, 0x13)
PASSED = Decision(Kind.PASSED, reason="not JSON")


def test_headers_tell_what_was_decided() -> None:
    cluster = ("sd-cluster", b"00000000000000ab")
    new, first, passed, second = DecisionHeaders(64).of_all([NEW, DUPLICATE, PASSED, DUPLICATE])

    assert [
        ("sd-decision", b"new"),
        cluster,
        ("sd-distance", b"0"),
        ("sd-fingerprint", b"0000000000000012"),
    ] == new
    assert [
        ("sd-decision", b"duplicate"),
        cluster,
        ("sd-distance", b"3"),
        ("sd-fingerprint", b"0000000000000013"),
    ] == first
    assert passed == [("sd-decision", b"passed"), ("sd-reason", b"not JSON")]
    assert first is second


def test_those_of_a_shared_decision_are_made_once_and_those_of_a_new_event_are_not_kept() -> None:
    headers = DecisionHeaders(64)
    (new, shared), (again, same) = (headers.of_all([NEW, DUPLICATE]) for _ in range(2))

    assert shared is same
    assert new is not again


@pytest.mark.parametrize("kept", [1, 3, 1_000])
def test_a_decision_never_has_the_headers_of_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(records, "KEPT", kept)
    headers = DecisionHeaders(64)
    for distance in range(100):  # each where one before it may have stood
        own = Decision(Kind.DUPLICATE, 0xAB, distance, 0x13)
        assert headers.of_all([own])[0][2:3] == [("sd-distance", b"%d" % distance)]
        del own

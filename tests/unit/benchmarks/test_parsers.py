"""Other log parsers, where they are installed (`make quality` installs them)."""

from __future__ import annotations

import pytest

from benchmarks.parsers import PARSERS
from benchmarks.peers import PeerMissingError, import_peer

LINES = [
    line
    for number in range(20)
    for line in (b"disk %d is full" % number, b"session %d of eve was closed at last" % number)
]


def test_a_parser_that_is_not_installed_is_named_with_the_remedy() -> None:
    with pytest.raises(PeerMissingError) as caught:
        import_peer("no_such_parser.main", "no-such-parser")
    assert str(caught.value) == "no-such-parser is not installed: pip install no-such-parser"


@pytest.mark.parametrize("name", PARSERS)
def test_each_parser_groups_lines_of_two_templates(name: str) -> None:
    pytest.importorskip("drain3")
    pytest.importorskip("logparser")
    found = PARSERS[name]("Linux_2k", LINES)
    assert found is not None
    assert [found.labels.index(label) for label in found.labels] == [0, 1] * 20
    assert {*found.templates} == {"disk <*> is full", "session <*> of eve was closed at last"}


def test_nothing_is_published_for_other_systems() -> None:
    pytest.importorskip("logparser")
    assert PARSERS["drain3 published"]("KafkaBroker", LINES) is None
    assert PARSERS["brain published"]("KafkaBroker", LINES) is None

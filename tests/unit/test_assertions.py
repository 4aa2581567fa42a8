"""What a failed comparison of long sequences says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.assertions import long_difference

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

# pytest's own diff of these lists takes six minutes.
LONG_LISTS = """
    from random import Random

    def items(random: Random) -> list[str]:
        return [f"{random.getrandbits(40)} {random.getrandbits(40)}" for _ in range(2_400)]

    def test_lists() -> None:
        assert items(Random(1)) == items(Random(2))
"""


@dataclass(frozen=True)
class Item:
    number: int
    text: str = "a"


ITEMS = [Item(number) for number in range(2_400)]


def test_the_first_three_places_are_shown() -> None:
    right = [replace(item, text="b") if item.number % 1000 == 7 else item for item in ITEMS]
    right[100:200] = [replace(item, number=0) for item in right[100:200]]

    assert long_difference(ITEMS, right) == [
        "list of 2,400 == list of 2,400: 103 places differ; the first of them:",
        "[7]",
        "  left:  Item(number=7, text='a')",
        "  right: Item(number=7, text='b')",
        "[100]",
        "  left:  Item(number=100, text='a')",
        "  right: Item(number=0, text='a')",
        "[101]",
        "  left:  Item(number=101, text='a')",
        "  right: Item(number=0, text='a')",
    ]


def test_places_after_the_end_of_the_shorter_differ() -> None:
    assert long_difference(tuple(range(60)), tuple(range(58))) == [
        "tuple of 60 == tuple of 58: 2 places differ; the first of them:",
        "[58]",
        "  left:  58",
        "  right: nothing: it ends before",
        "[59]",
        "  left:  59",
        "  right: nothing: it ends before",
    ]


def test_long_items_are_cut_to_where_they_differ() -> None:
    items = ["x" * 1_000] * 60

    lines = long_difference(items, [*items[:59], "x" * 500 + "y" * 500])

    assert lines[2:] == [
        "  left:  …" + "x" * 160 + "…",
        "  right: …" + "x" * 80 + "y" * 80 + "…",
    ]


def test_of_long_bytes_the_surroundings_are_shown() -> None:
    data = bytes(10_000)

    lines = long_difference(data, data[:5_000] + b"!" + data[5_001:])

    assert lines == [
        "bytes of 10,000 == bytes of 10,000: 1 places differ; the first of them:",
        "[5000]",
        f"  left:  {bytes(160)!r}",
        f"  right: {bytes(40) + b'!' + bytes(119)!r}",
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1] * 50, [2] * 50),
        ("a" * 5_000, "b"),
        ([1] * 60, (2,) * 60),
        (ITEMS, list(ITEMS)),
        ({*range(60)}, {*range(70)}),
        ([1] * 60, None),
    ],
    ids=["short lists", "short texts", "of two kinds", "equal", "sets", "of one only"],
)
def test_other_comparisons_are_left_to_pytest(left: object, right: object) -> None:
    assert long_difference(left, right) == []


def test_pytest_shows_it_and_does_not_make_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "from tests.conftest import pytest_assertrepr_compare, pytest_runtest_call"
    )
    pytester.makepyfile(LONG_LISTS)

    result = pytester.runpytest_subprocess("-vv", timeout=100)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       assert items(Random(1)) == items(Random(2))",
            "E       tests.assertions.LongDifferenceError: list of 2,400 == list of 2,400: 2,400 *",
            "E       [[]0]",
            "E         left:  '*",
            "test_*.py:7: LongDifferenceError",
        ]
    )
    result.stdout.no_fnmatch_line("*_hookexec*")

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.columnar import _native as native
from stream_dedup.columnar import reference

ROOT = Path(__file__).parents[3]
KINDS: dict[str, Any] = {"native": native, "reference": reference}
WIDE = (1 << 16) + 1

columns = st.lists(st.integers(0, 12), max_size=60).map(
    lambda numbers: [OBJECTS[number] for number in numbers]
)
# Equal, and not the same: only which object it is counts.
OBJECTS: list[object] = [None, *([number // 4] for number in range(12))]
numbers = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.integers())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@given(columns)
def test_a_column_is_taken_apart_alike_and_put_together_again(column: list[object]) -> None:
    values, places = native.dictionary_encode(column)
    expected, as_places = reference.dictionary_encode(column)

    assert list(map(id, expected)) == list(map(id, values))
    assert as_places == places
    assert as_places.typecode == places.typecode
    for whole in (native.take(values, places), reference.take(values, places)):
        assert list(map(id, column)) == list(map(id, whole))


@given(columns, st.data())
def test_numbers_span_alike(column: list[object], data: st.DataObject) -> None:
    values, places = reference.dictionary_encode(column)
    given_ = data.draw(st.lists(numbers, min_size=len(column), max_size=len(column)))

    found = native.group_min_max(places, given_, len(values))

    assert reference.group_min_max(places, given_, len(values)) == found
    assert [
        (len(own), min(own), max(own))
        for value in values
        for own in [[n for n, each in zip(given_, column, strict=True) if each is value]]
    ] == found


@given(columns, st.lists(st.booleans(), min_size=13, max_size=13))
def test_rows_are_found_alike(column: list[object], wanted: list[bool]) -> None:
    values, places = reference.dictionary_encode(column)

    rows = native.rows_of(places, wanted)

    assert reference.rows_of(places, wanted) == rows
    chosen = {id(value) for value, wish in zip(values, wanted, strict=False) if wish}
    assert [row for row, each in enumerate(column) if id(each) in chosen] == rows


def test_the_page_s_example_is_true(kind: Any) -> None:
    a, b, c = "a", "b", "c"
    values, places = kind.dictionary_encode((a, a, b, a, c, b))

    assert (values, places) == ([a, b, c], array("H", [0, 0, 1, 0, 2, 1]))
    assert kind.group_min_max(places, [5, 7, 6, 4, 9, 8], 3) == [(3, 4, 7), (2, 6, 8), (1, 9, 9)]
    assert kind.take(["A", "B", "C"], places) == ["A", "A", "B", "A", "C", "B"]
    assert kind.rows_of(places, [False, True, False]) == [2, 5]


@pytest.mark.parametrize(("count", "typecode"), [(WIDE - 1, "H"), (WIDE, "I")])
def test_places_are_as_wide_as_they_have_to_be(kind: Any, count: int, typecode: str) -> None:
    column = [object() for _ in range(count)] * 2
    values, places = kind.dictionary_encode(column)

    assert typecode == places.typecode
    assert column[:count] == values
    assert [*range(count), *range(count)] == list(places)
    assert kind.take(values, places) == column
    assert kind.rows_of(places, [*[False] * (count - 1), True]) == [count - 1, 2 * count - 1]
    assert [(2, row, count + row) for row in range(count)] == kind.group_min_max(
        places, range(2 * count), count
    )


def test_a_place_without_a_row_spans_nothing(kind: Any) -> None:
    assert kind.group_min_max(array("H", [1]), [-7], 2) == [(0, 0, 0), (1, -7, -7)]
    assert kind.group_min_max(array("H"), [], 0) == []


@pytest.mark.parametrize("given_", [[1, 2], [1, 2, 3, 4]])
def test_too_few_numbers_or_too_many_are_refused(kind: Any, given_: Sequence[int]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        kind.group_min_max(array("H", [0, 0, 0]), given_, 1)


@pytest.mark.parametrize("typecode", ["H", "I"])
def test_a_place_beyond_the_values_is_refused(kind: Any, typecode: str) -> None:
    places = array(typecode, [0, 1])
    with pytest.raises(IndexError):
        kind.take(["a"], places)
    with pytest.raises(IndexError):
        kind.group_min_max(places, [1, 2], 1)
    with pytest.raises(IndexError):
        kind.rows_of(places, [True])


def test_what_is_no_number_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError):
        kind.group_min_max(array("H", [0, 0]), [1, "2"], 1)


def test_no_reference_is_lost_or_kept(kind: Any) -> None:
    held: list[object] = [object() for _ in range(50)]
    column = held * 20
    given_ = [10**15 + row for row in range(len(column))]
    gc.collect()
    before = [sys.getrefcount(each) for each in (*held, *given_)]

    for _ in range(20):
        values, places = kind.dictionary_encode(column)
        whole = kind.take(values, places)
        kind.group_min_max(places, given_, 50)
        with pytest.raises(IndexError):
            kind.take(values[:9], places)
    del values, whole

    assert [sys.getrefcount(each) for each in (*held, *given_)] == before


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "stream_dedup.columnar._native"),
        ({"STREAM_DEDUP_PURE_PYTHON": "1"}, "stream_dedup.columnar.reference"),
    ],
)
def test_the_native_columns_serve_unless_they_are_not_wanted(
    environment: dict[str, str], expected: str
) -> None:
    assert served("", environment) == [expected] * 6


def test_the_reference_serves_where_the_native_columns_were_not_built() -> None:
    hidden = "sys.modules['stream_dedup.columnar._native'] = None; "
    assert served(hidden, {}) == ["stream_dedup.columnar.reference"] * 6


def served(first: str, environment: dict[str, str]) -> list[str]:
    """The modules whose functions serve, in a process of its own: the choice is made once."""
    script = (
        f"import json, sys; {first}from stream_dedup import columnar; "
        "print(json.dumps([getattr(columnar, name).__module__ for name in columnar.__all__]))"
    )
    kept = {k: v for k, v in os.environ.items() if k != "STREAM_DEDUP_PURE_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    modules: list[str] = json.loads(done.stdout)
    return modules


def test_the_table_of_objects_goes_round() -> None:
    rng = random.Random(1)
    pool = [bytes(rng.randrange(400)) + b"x" for _ in range(2_000)]
    for _ in range(20_000):
        column = rng.sample(pool, 4) * 2
        assert reference.dictionary_encode(column) == native.dictionary_encode(column)


@pytest.mark.parametrize("typecode", "BbhLQd")
def test_places_of_another_width_are_refused(typecode: str) -> None:
    places = array(typecode, [0, 1])
    for use in (
        lambda: native.take(["a", "b"], places),
        lambda: native.rows_of(places, [True, True]),
        lambda: native.group_min_max(places, [1, 2], 2),
    ):
        with pytest.raises(TypeError, match="places are"):
            use()


@given(st.lists(st.none() | st.binary(max_size=3)))
def test_an_outline_is_drawn_alike(column: list[bytes | None]) -> None:
    begins, longest, size = native.column_stats(column)

    assert reference.column_stats(column) == (begins, longest, size)
    assert all(value is None or value[:1] in begins for value in column)
    assert (None in begins) == (None in column)
    sizes = [len(value) for value in column if value is not None]
    assert (longest, size) == (max([0, *sizes]), sum(sizes))


def test_an_outline_is_of_bytes() -> None:
    wrong: list[Any] = [b"", "text"]
    with pytest.raises(TypeError, match="row 1 is str, not bytes"):
        native.column_stats(wrong)


@given(st.lists(numbers), st.lists(st.integers(0, 9)), numbers)
def test_numbers_are_scaled_alike(some: list[int], rows: list[int], factor: int) -> None:
    column = [some[row % len(some)] for row in sorted(rows)] if some else []

    found = native.multiplied(column, factor)

    assert reference.multiplied(column, factor) == found == [number * factor for number in column]

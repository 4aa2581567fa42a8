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
def test_native_encoding_equals_the_reference_and_take_reverses_it(column: list[object]) -> None:
    values, codes = native.dictionary_encode(column)
    expected, expected_codes = reference.dictionary_encode(column)

    assert list(map(id, values)) == list(map(id, expected))
    assert codes == expected_codes
    assert codes.typecode == expected_codes.typecode
    for whole in (native.take(values, codes), reference.take(values, codes)):
        assert list(map(id, whole)) == list(map(id, column))


numbers_of_64_bits = st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))


@given(st.lists(numbers_of_64_bits, max_size=60))
def test_native_encoding_of_numbers_equals_the_reference(column: list[int]) -> None:
    values, codes = native.encode_numbers(array("Q", column))
    expected, expected_codes = reference.encode_numbers(array("Q", column))

    assert (expected, expected_codes) == (values, codes)
    assert expected_codes.typecode == codes.typecode
    assert column == [values[code] for code in codes]


def test_only_numbers_of_64_bits_are_encoded() -> None:
    with pytest.raises(TypeError):
        native.encode_numbers(array("q", [1]))


words = st.lists(st.sampled_from([b"err", b"Err", b"info", b"x", b" ", b"=", b".", b"!", b"\xff"]))


@given(st.lists(words.map(b"".join), max_size=5))
def test_native_replacing_of_words_equals_the_reference(column: list[bytes]) -> None:
    wanted = frozenset((b"err", b"info"))
    found = native.replace_words(column, wanted, b" =", b"level")
    assert found == reference.replace_words(column, wanted, b" =", b"level")


def test_words_are_replaced_between_separators_whatever_their_case(kind: Any) -> None:
    column = [b"ERR! disk=err.err. terr info", b"", b"disk"]
    found = kind.replace_words(column, frozenset((b"err", b"info")), b" =", b"level")
    assert found == [b"level disk=err.err. terr level", b"", b"disk"]


@given(columns, st.data())
def test_native_group_min_max_equals_the_reference(
    column: list[object], data: st.DataObject
) -> None:
    values, codes = reference.dictionary_encode(column)
    given_ = data.draw(st.lists(numbers, min_size=len(column), max_size=len(column)))

    found = native.group_min_max(codes, given_, len(values))

    assert found == reference.group_min_max(codes, given_, len(values))
    assert found == [
        (len(own), min(own), max(own))
        for value in values
        for own in [[n for n, each in zip(given_, column, strict=True) if each is value]]
    ]


@given(columns, st.data())
def test_native_group_sizes_equal_the_reference(column: list[object], data: st.DataObject) -> None:
    values, codes = reference.dictionary_encode(column)
    sizes = st.lists(st.one_of(st.none(), st.binary()), min_size=len(codes), max_size=len(codes))
    given_ = data.draw(sizes)

    found = native.group_sizes(codes, given_, len(values))

    assert found == reference.group_sizes(codes, given_, len(values))
    assert sum(found) == sum(len(each or b"") for each in given_)


@given(columns, st.lists(st.booleans(), min_size=13, max_size=13))
def test_native_rows_of_equals_the_reference(column: list[object], wanted: list[bool]) -> None:
    values, codes = reference.dictionary_encode(column)

    rows = native.rows_of(codes, wanted)

    assert rows == reference.rows_of(codes, wanted)
    chosen = {id(value) for value, wish in zip(values, wanted, strict=False) if wish}
    assert rows == [row for row, each in enumerate(column) if id(each) in chosen]


def test_the_example_of_the_module_holds(kind: Any) -> None:
    a, b, c = "a", "b", "c"
    values, codes = kind.dictionary_encode((a, a, b, a, c, b))

    assert (values, codes) == ([a, b, c], array("H", [0, 0, 1, 0, 2, 1]))
    assert kind.group_min_max(codes, [5, 7, 6, 4, 9, 8], 3) == [(3, 4, 7), (2, 6, 8), (1, 9, 9)]
    assert kind.group_sizes(codes, [b"1", b"22", None, b"4", b"55555", b""], 3) == [4, 0, 5]
    assert kind.take(["A", "B", "C"], codes) == ["A", "A", "B", "A", "C", "B"]
    assert kind.rows_of(codes, [False, True, False]) == [2, 5]


@pytest.mark.parametrize(("count", "typecode"), [(WIDE - 1, "H"), (WIDE, "I")])
def test_codes_have_two_bytes_or_four(kind: Any, count: int, typecode: str) -> None:
    column = [object() for _ in range(count)] * 2
    values, codes = kind.dictionary_encode(column)

    assert codes.typecode == typecode
    assert values == column[:count]
    assert list(codes) == [*range(count), *range(count)]
    assert kind.take(values, codes) == column
    assert kind.rows_of(codes, [*[False] * (count - 1), True]) == [count - 1, 2 * count - 1]
    spans = kind.group_min_max(codes, range(2 * count), count)
    assert spans == [(2, row, count + row) for row in range(count)]


def test_group_min_max_is_zero_for_a_code_without_rows(kind: Any) -> None:
    assert kind.group_min_max(array("H", [1]), [-7], 2) == [(0, 0, 0), (1, -7, -7)]
    assert kind.group_min_max(array("H"), [], 0) == []


@pytest.mark.parametrize("given_", [[1, 2], [1, 2, 3, 4]])
def test_too_few_or_too_many_numbers_are_refused(kind: Any, given_: Sequence[int]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        kind.group_min_max(array("H", [0, 0, 0]), given_, 1)
    with pytest.raises(ValueError, match=r".+"):
        kind.group_sizes(array("H", [0, 0, 0]), [b""] * len(given_), 1)


@pytest.mark.parametrize("typecode", ["H", "I"])
def test_a_code_beyond_the_values_is_refused(kind: Any, typecode: str) -> None:
    codes = array(typecode, [0, 1])
    with pytest.raises(IndexError):
        kind.take(["a"], codes)
    with pytest.raises(IndexError):
        kind.group_min_max(codes, [1, 2], 1)
    with pytest.raises(IndexError):
        kind.rows_of(codes, [True])


def test_a_value_that_is_not_a_number_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError):
        kind.group_min_max(array("H", [0, 0]), [1, "2"], 1)


def test_reference_counts_stay_balanced(kind: Any) -> None:
    held: list[object] = [object() for _ in range(50)]
    column = held * 20
    given_ = [10**15 + row for row in range(len(column))]
    gc.collect()
    before = [sys.getrefcount(each) for each in (*held, *given_)]

    for _ in range(20):
        values, codes = kind.dictionary_encode(column)
        whole = kind.take(values, codes)
        kind.group_min_max(codes, given_, 50)
        with pytest.raises(IndexError):
            kind.take(values[:9], codes)
    del values, whole

    assert [sys.getrefcount(each) for each in (*held, *given_)] == before


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "stream_dedup.columnar._native"),
        ({"STREAM_DEDUP_PURE_PYTHON": "1"}, "stream_dedup.columnar.reference"),
    ],
)
def test_native_functions_serve_unless_pure_python_is_set(
    environment: dict[str, str], expected: str
) -> None:
    assert served("", environment) == [expected] * 13


def test_the_reference_serves_without_the_extension() -> None:
    hidden = "sys.modules['stream_dedup.columnar._native'] = None; "
    assert served(hidden, {}) == ["stream_dedup.columnar.reference"] * 13


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


def test_the_hash_table_wraps_around() -> None:
    rng = random.Random(1)
    pool = [bytes(rng.randrange(400)) + b"x" for _ in range(2_000)]
    for _ in range(20_000):
        column = rng.sample(pool, 4) * 2
        assert native.dictionary_encode(column) == reference.dictionary_encode(column)


@pytest.mark.parametrize("typecode", "BbhLQd")
def test_codes_of_another_width_are_refused(typecode: str) -> None:
    codes = array(typecode, [0, 1])
    for use in (
        lambda: native.take(["a", "b"], codes),
        lambda: native.rows_of(codes, [True, True]),
        lambda: native.group_min_max(codes, [1, 2], 2),
    ):
        with pytest.raises(TypeError, match="codes are"):
            use()


@given(st.lists(st.none() | st.binary(max_size=3)))
def test_native_column_stats_equal_the_reference(column: list[bytes | None]) -> None:
    begins, longest, size = native.column_stats(column)

    assert (begins, longest, size) == reference.column_stats(column)
    assert all(value is None or value[:1] in begins for value in column)
    assert (None in begins) == (None in column)
    sizes = [len(value) for value in column if value is not None]
    assert (longest, size) == (max([0, *sizes]), sum(sizes))


@given(st.lists(st.binary(max_size=3)), st.binary(max_size=4), st.binary(min_size=1, max_size=1))
def test_native_rows_by_bytes_equal_the_reference(
    column: list[bytes], begins: bytes, byte: bytes
) -> None:
    found = native.rows_beginning(column, begins)
    assert found == reference.rows_beginning(column, begins)
    assert found == [row for row, value in enumerate(column) if value and value[0] in begins]
    found = native.rows_containing(column, byte)
    assert found == reference.rows_containing(column, byte)
    assert found == [row for row, value in enumerate(column) if byte in value]


quotes = st.sampled_from([b"<", b">", b"<<", b">>", b"> ", b"><>"])


@given(
    st.lists(st.lists(st.sampled_from([b"<", b">", b" ", b"a"]), max_size=9).map(b"".join)),
    quotes,
    quotes,
    st.integers(0, 12),
)
def test_native_split_quoted_equals_the_reference(
    column: list[bytes], opens: bytes, closes: bytes, most: int
) -> None:
    found = native.split_quoted(column, opens, closes, most)
    assert found == reference.split_quoted(column, opens, closes, most)
    rows, quoted, rest = found
    for row, inner, behind in zip(rows, quoted, rest, strict=True):
        assert column[row] == opens + inner + closes + behind
        assert closes not in inner + closes[:-1]
        assert len(opens + inner + closes) <= most


@pytest.mark.parametrize("functions", [native, reference])
def test_quotes_are_not_empty(functions: Any) -> None:
    for opens, closes in ((b"", b">"), (b"<", b"")):
        with pytest.raises(ValueError, match="quotes are empty"):
            functions.split_quoted([b"a"], opens, closes, 9)


@pytest.mark.parametrize("functions", [native, reference])
def test_rows_are_looked_for_by_a_single_byte(functions: Any) -> None:
    with pytest.raises(ValueError, match="one byte"):
        functions.rows_containing([b"a"], b"ab")


def test_columns_of_bytes_refuse_anything_else() -> None:
    wrong: list[Any] = [b"", "text"]
    for use in (
        lambda: native.column_stats(wrong),
        lambda: native.rows_beginning(wrong, b"a"),
        lambda: native.rows_containing(wrong, b"a"),
        lambda: native.split_quoted(wrong, b"a", b"b", 9),
    ):
        with pytest.raises(TypeError, match="row 1 is str, not bytes"):
            use()


@given(st.lists(numbers), st.lists(st.integers(0, 9)), numbers)
def test_native_multiplied_equals_the_reference(
    some: list[int], rows: list[int], factor: int
) -> None:
    column = [some[row % len(some)] for row in sorted(rows)] if some else []

    found = native.multiplied(column, factor)

    assert found == reference.multiplied(column, factor) == [number * factor for number in column]

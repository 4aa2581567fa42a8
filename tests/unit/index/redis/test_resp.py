"""Commands packed natively are those that hiredis packs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.index.redis._resp import pack_command

ROOT = Path(__file__).parents[3]


class Named(bytes):
    """Bytes by another name."""


lengths = st.sampled_from([9, 10, 11, 99, 100, 101, 999, 1_000, 70_000])
arguments = st.one_of(
    st.binary(max_size=20),
    st.builds(bytes, lengths),
    st.binary(max_size=9).map(Named),
    st.text(max_size=9),
    st.integers(),
)
commands = st.one_of(
    st.lists(arguments, min_size=1, max_size=12),
    # Enough of them for a number of four digits.
    st.lists(st.binary(max_size=3), min_size=1, max_size=3).map(lambda some: some * 500),
)


@given(commands)
def test_a_command_is_packed_as_hiredis_does(command: list[Any]) -> None:
    assert hiredis.pack_command(tuple(command)) == pack_command(tuple(command))


@pytest.mark.parametrize("argument", [1.5, None, True, bytearray(b"x")])
def test_nothing_else_is_packed(argument: Any) -> None:
    with pytest.raises(TypeError, match=f"argument 1 is {type(argument).__name__}"):
        pack_command(("PING", argument))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("", "stream_dedup.index.redis._resp"),
        ("sys.modules['stream_dedup.index.redis._resp'] = None; ", "None"),
        ("os.environ['STREAM_DEDUP_PURE_PYTHON'] = '1'; ", "None"),
    ],
)
def test_the_driver_packs_where_it_was_not_built_or_is_not_wanted(
    first: str, expected: str
) -> None:
    script = (
        f"import os, sys; {first}from stream_dedup.index.redis import connection; "
        "print(getattr(connection.pack_command, '__module__', None)); "
        "made = connection._Tcp(socket_timeout=1.0); "
        "print(b''.join(made.pack_command('SCRIPT LOAD', b'x', 7)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    packed = b"*4\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n$1\r\n7\r\n"
    assert done.stdout.splitlines() == [expected, repr(packed)]

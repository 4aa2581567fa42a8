"""The hashes of other systems: published values, and independent implementations."""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.tokens import SPACE_SPLIT, tokenise
from stream_dedup.fingerprint.hashing import codepoint, cyclic, java, lookup3, md5, rotate
from tests.services.kafka_jars import find_compiler, find_java

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1

# ---------------------------------------------------------------- Java's strings


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),  # a text known for the least of all ints
        ("\uffff\uffff", 65535 * 32),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # a surrogate pair is two units
    ],
)
def test_javas_hash_of_known_strings(text: str, expected: int) -> None:
    assert signed(java(text.encode())) == expected


@given(text=st.text())
def test_javas_hash_is_a_polynomial_of_the_utf_16_units(text: str) -> None:
    encoded = text.encode("utf-16-be")
    units = [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
    powers = (unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units))

    assert sum(powers) % 2**32 == java(text.encode())


# Java sees other bounds in encoded surrogates; the byte 0x1A begins a mask's placeholder here.
OTHERWISE = re.compile(rb"\xed[\xa0-\xbf]|\x1a")


def java_samples() -> list[bytes]:
    random_ = random.Random(31)
    alphabets = ["ab ", " ", "aé漢😀\U0010ffff ", "".join(map(chr, range(0x20, 0x7F)))]
    texts = [
        "".join(random_.choices(random_.choice(alphabets), k=random_.randrange(30)))
        for _ in range(1_500)
    ]
    corners = ["", " ", "  ", " a", "a ", "a  b", "  a  b  ", "a\tb", "a\u00a0b", "x" * 5_000]
    # Bytes that are no UTF-8: cut off, overlong, beyond the last character.
    pieces = [b"\x80", b"\xc0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xff"]
    pieces += [b" ", b"a", b"\xc3\xa9", b"\xf0\x9f\x98\x80"]
    broken = [b"".join(random_.choices(pieces, k=random_.randrange(8))) for _ in range(1_500)]
    broken += [random_.randbytes(random_.randrange(12)) for _ in range(1_500)]
    return [*map(str.encode, texts + corners), *(b for b in broken if not OTHERWISE.search(b))]


def test_java_itself_hashes_and_splits_alike() -> None:
    find_compiler()  # a single source file is run by java alone, where there is a compiler
    samples = java_samples()
    done = subprocess.run(
        [find_java(), Path(__file__).with_name("Strings.java")],
        input="".join(f"{text.hex()}\n" for text in samples),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

    ours = [
        " ".join(
            [
                str(signed(java(text))),
                *(f"{java(t.text):b}" for t in tokenise(text, SPACE_SPLIT, classes=False)),
            ]
        )
        for text in samples
    ]
    assert done.stdout.split("\n")[:-1] == ours


# ---------------------------------------------------------------- MD5


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        # RFC 1321, A.5
        (b"", "d41d8cd98f00b204e9800998ecf8427e"),
        (b"a", "0cc175b9c0f1b6a831c399e269772661"),
        (b"message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        (b"1234567890" * 8, "57edf4a22be3c955ac49da2e2107b67a"),
    ],
)
def test_md5_of_the_standards_examples(text: bytes, digest: str) -> None:
    assert int(digest, 16) == md5(text)


@given(data=st.binary())
def test_md5_equals_the_systems(data: bytes) -> None:
    assert hashlib.md5(data).hexdigest() == f"{md5(data):032x}"  # noqa: S324 -- what is tested


# ---------------------------------------------------------------- lookup3 and the cyclic hash


def hashlittle2(key: bytes) -> int:
    """lookup3 byte by byte, every step of its rounds written out, seeds 0."""

    def rot(x: int, k: int) -> int:
        return (x << k | x >> (32 - k)) & MASK32

    def mix(x: int, y: int, z: int, k: int) -> tuple[int, int]:
        return (x - z) & MASK32 ^ rot(z, k), (z + y) & MASK32

    def end(x: int, y: int, k: int) -> int:
        return ((x ^ y) - rot(y, k)) & MASK32

    a = b = c = (0xDEADBEEF + len(key)) & MASK32
    while len(key) > 12:
        a = (a + int.from_bytes(key[:4], "little")) & MASK32
        b = (b + int.from_bytes(key[4:8], "little")) & MASK32
        c = (c + int.from_bytes(key[8:12], "little")) & MASK32
        a, c = mix(a, b, c, 4)
        b, a = mix(b, c, a, 6)
        c, b = mix(c, a, b, 8)
        a, c = mix(a, b, c, 16)
        b, a = mix(b, c, a, 19)
        c, b = mix(c, a, b, 4)
        key = key[12:]
    if not key:
        return c << 32 | b
    a = (a + int.from_bytes(key[:4], "little")) & MASK32
    b = (b + int.from_bytes(key[4:8], "little")) & MASK32
    c = (c + int.from_bytes(key[8:], "little")) & MASK32
    c = end(c, b, 14)
    a = end(a, c, 11)
    b = end(b, a, 25)
    c = end(c, b, 16)
    a = end(a, c, 4)
    b = end(b, a, 14)
    c = end(c, b, 24)
    return c << 32 | b


def test_lookup3_of_its_authors_examples() -> None:
    # As driver5 of lookup3.c prints them.
    assert lookup3(b"") == 0xDEADBEEF_DEADBEEF
    assert lookup3(b"Four score and seven years ago") == 0x17770551_CE7226E6


@given(data=st.binary(max_size=100))
def test_lookup3_equals_an_independent_implementation(data: bytes) -> None:
    assert hashlittle2(data) == lookup3(data)


def test_lookup3_of_every_length_equals_an_independent_implementation() -> None:
    random_ = random.Random(3)
    for length in range(64):
        for data in (b"\xff" * length, bytes(length), random_.randbytes(length)):
            assert hashlittle2(data) == lookup3(data)


@given(hashes=st.lists(st.integers(0, MASK64), min_size=1, max_size=80), window=st.integers(1, 70))
def test_the_cyclic_hash_moves_on_by_one_turn_and_two_xors(hashes: list[int], window: int) -> None:
    # As the moving window is kept: what leaves it is XORed out, turned as often as it was.
    current, kept = 0, [0] * window
    for at, value in enumerate(hashes):
        leaving = rotate(kept[at % window], window % 64, 64) if kept[at % window] else 0
        current = rotate(current, 1, 64) ^ leaving ^ value
        kept[at % window] = value
        assert cyclic(hashes[max(0, at + 1 - window) : at + 1]) == current


@given(hashes=st.lists(st.integers(0, MASK64), max_size=70))
def test_the_cyclic_hash_is_the_sum_of_turned_hashes(hashes: list[int]) -> None:
    bits = [0] * 64
    for back, value in enumerate(reversed(hashes)):
        for bit in range(64):
            bits[(bit + back) % 64] ^= value >> bit & 1

    assert sum(bit << place for place, bit in enumerate(bits)) == cyclic(hashes)


# ---------------------------------------------------------------- code points


@given(character=st.characters(exclude_categories=["Cs"]), rest=st.text(max_size=3))
def test_the_code_point_is_the_first_characters(character: str, rest: str) -> None:
    assert ord(character) == codepoint((character + rest).encode())


@given(data=st.binary(max_size=6))
def test_any_bytes_have_a_code_point(data: bytes) -> None:
    assert 0 <= codepoint(data) < 1 << 21
    if data[:1] and data[0] < 128:
        assert data[0] == codepoint(data)

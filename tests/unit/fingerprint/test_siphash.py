"""SipHash: the published vectors, Python's own, and the native function."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.siphash import KEY_BYTES, PUBLIC_KEY, HashKey, siphash
from stream_dedup.native import extension

COUNTING = HashKey(bytes(range(16)))
"""The key of the published vectors; their texts are 00, 00 01, 00 01 02 …"""

# From the authors' reference implementation, vectors.h: SipHash-2-4 of texts of 0 to 63 bytes.
VECTORS_2_4 = """
726fdb47dd0e0e31 74f839c593dc67fd 0d6c8009d9a94f5a 85676696d7fb7e2d cf2794e0277187b7
18765564cd99a68d cbc9466e58fee3ce ab0200f58b01d137 93f5f5799a932462 9e0082df0ba9e4b0
7a5dbbc594ddb9f3 f4b32f46226bada7 751e8fbc860ee5fb 14ea5627c0843d90 f723ca908e7af2ee
a129ca6149be45e5 3f2acc7f57c29bdb 699ae9f52cbe4794 4bc1b3f0968dd39c bb6dc91da77961bd
bed65cf21aa2ee98 d0f2cbb02e3b67c7 93536795e3a33e88 a80c038ccd5ccec8 b8ad50c6f649af94
bce192de8a85b8ea 17d835b85bbb15f3 2f2e6163076bcfad de4daaaca71dc9a5 a6a2506687956571
ad87a3535c49ef28 32d892fad841c342 7127512f72f27cce a7f32346f95978e3 12e0b01abb051238
15e034d40fa197ae 314dffbe0815a3b4 027990f029623981 cadcd4e59ef40c4d 9abfd8766a33735c
0e3ea96b5304a7d0 ad0c42d6fc585992 187306c89bc215a9 d4a60abcf3792b95 f935451de4f21df2
a9538f0419755787 db9acddff56ca510 d06c98cd5c0975eb e612a3cb9ecba951 c766e62cfcadaf96
ee64435a9752fe72 a192d576b245165a 0a8787bf8ecb74b2 81b3e73d20b49b6f 7fa8220ba3b2ecea
245731c13ca42499 b78dbfaf3a8d83bd ea1ad565322a1a0b 60e61c23a3795013 6606d7e446282b93
6ca4ecb15c5f91e1 9f626da15c9625f3 e51b38608ef25f57 958a324ceb064572
""".split()

# SipHash-1-3, as in the tests of OCaml (key of zeros) and of Rust (the counting key).
VECTORS_1_3 = [
    (PUBLIC_KEY, b"", 0xD1FBA762150C532C),
    (PUBLIC_KEY, b"\0", 0x68A914128E01E473),
    (COUNTING, b"", 0xABAC0158050FC4DC),
    (COUNTING, b"\0", 0xC9F49BF37D57CA93),
]

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES).map(HashKey)


def native_siphash(key: HashKey, data: bytes) -> int:
    module = extension("fingerprint._kernel")
    assert module is not None, "these tests compare the native function: build it first"
    value: int = module.siphash(key, data)
    return value


def test_the_published_vectors_of_2_4() -> None:
    actual = [f"{siphash(COUNTING, bytes(range(n)), 2, 4):016x}" for n in range(64)]

    assert actual == VECTORS_2_4


@pytest.mark.parametrize(("key", "text", "expected"), VECTORS_1_3)
def test_published_vectors_of_1_3(key: HashKey, text: bytes, expected: int) -> None:
    assert siphash(key, text) == expected
    assert native_siphash(key, text) == expected


def test_pythons_own_hash_is_the_same_function() -> None:
    # With PYTHONHASHSEED=0 its key is zeros; from Python 3.11 on it is SipHash-1-3.
    texts = [bytes(range(65, 65 + n)) for n in range(1, 60)]
    program = (
        f"import sys; assert sys.hash_info.algorithm == 'siphash13'; print(*map(hash, {texts}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )

    assert [siphash(PUBLIC_KEY, text) for text in texts] == [
        int(value) % 2**64 for value in done.stdout.split()
    ]


@given(key=keys, data=st.binary(max_size=100))
def test_the_native_function_equals_the_reference(key: HashKey, data: bytes) -> None:
    assert native_siphash(key, data) == siphash(key, data)


@pytest.mark.parametrize("length", [*range(40), 255, 256, 257, 65_536])
def test_texts_of_any_length_equal_the_reference(length: int) -> None:
    data = bytes(n % 251 for n in range(length))

    assert native_siphash(COUNTING, data) == siphash(COUNTING, data)


def test_a_key_is_not_shown() -> None:
    key = HashKey(b"sixteen secrets!")

    assert [str(key), repr(key), f"{key}"] == ["HashKey(...)"] * 3
    assert not hasattr(key, "__dict__")


@pytest.mark.parametrize("secret", [b"", b"fifteen secrets", b"x" * 17, "x" * 16, None])
def test_a_key_of_another_length_is_refused_unseen(secret: object) -> None:
    with pytest.raises(ValueError, match="a hash key is 16 bytes") as caught:
        HashKey(secret)  # type: ignore[arg-type]

    assert "fifteen" not in str(caught.value)


def test_keys_are_equal_if_their_secrets_are() -> None:
    key = HashKey(b"sixteen secrets!")

    assert key == copy.copy(key) == HashKey(b"sixteen secrets!")
    assert key != PUBLIC_KEY
    assert len({HashKey.random() for _ in range(100)}) == 100


@pytest.mark.parametrize("key", [None, b"sixteen secrets!", 0])
def test_the_native_function_takes_only_a_key(key: object) -> None:
    with pytest.raises(TypeError, match="HashKey"):
        native_siphash(key, b"")  # type: ignore[arg-type]

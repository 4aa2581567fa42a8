"""MurmurHash3 x64-128: golden vectors, `mmh3`, and a third implementation written out here."""

from __future__ import annotations

import random
import struct

import mmh3
import pytest

from stream_dedup.features.prepare import NO_SALT
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.fingerprint.hashing import hash128, hash_sequence
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.native import extension

MASK = (1 << 64) - 1


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def finish(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def murmur(data: bytes, seed: int) -> tuple[int, int]:
    """MurmurHash3_x64_128 after Austin Appleby's MurmurHash3.cpp, independent of the package."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed
    blocks = len(data) // 16
    for block in range(blocks):
        k1, k2 = struct.unpack_from("<QQ", data, 16 * block)
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & MASK
    tail = data[16 * blocks :]
    k1, k2 = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:], "little")
    h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
    h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    h1, h2 = finish(h1), finish(h2)
    h1 = (h1 + h2) & MASK
    return h1, (h2 + h1) & MASK


def samples() -> list[bytes]:
    random_ = random.Random(1)
    lengths = [*range(65), *(random_.randrange(65, 2_000) for _ in range(40))]
    made = [random_.randbytes(length) for length in lengths]
    return [*made, *(b"\xff" * length for length in range(40)), *(bytes(n) for n in range(40))]


def test_golden_vectors() -> None:
    golden = {
        (b"", 0): (0, 0),
        (b"", 1): (0x4610ABE56EFF5CB5, 0x51622DAA78F83583),
        (b"hello", 0): (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19),
        (b"The quick brown fox jumps over the lazy dog", 0): (
            0xE34BBC7BBC071B6C,
            0x7A433CA9C49A9347,
        ),
    }

    assert {key: hash128(*key) for key in golden} == golden
    assert {key: murmur(*key) for key in golden} == golden


@pytest.mark.parametrize("seed", [0, 1, 0x9747B28C, 2**32 - 1])
def test_hash128_equals_mmh3_and_the_independent_implementation(seed: int) -> None:
    for data in samples():
        assert murmur(data, seed) == hash128(data, seed)
        assert mmh3.hash64(data, seed, x64arch=True, signed=False) == hash128(data, seed)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_a_sequence_hashes_as_its_little_endian_bytes(seed: int) -> None:
    random_ = random.Random(2)
    for count in range(20):
        lows = [random_.getrandbits(64) for _ in range(count)]
        data = b"".join(low.to_bytes(8, "little") for low in lows)
        assert murmur(data, seed) == hash_sequence(lows, seed)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_the_kernel_hashes_one_token_of_any_length_alike(seed: int) -> None:
    # One feature of weight 1 is its own simhash: the fingerprint is the feature's hash.
    recipe = replace(Recipe(), fingerprint__width=128, fingerprint__seed=seed)
    kernel = extension("fingerprint._kernel").Kernel(recipe, PUBLIC_KEY)
    data = samples()

    numbers = kernel.fold([[(text, 1, NO_SALT)] for text in data], full=True)

    assert [murmur(text, seed) for text in data] == list(
        zip(numbers.low, numbers.high, strict=True)
    )


def test_the_kernel_hashes_scanned_words_alike() -> None:
    words = [b"x" * length for length in range(1, 65)]
    numbers = extension("fingerprint._kernel").Kernel(Recipe(), PUBLIC_KEY).scan(words, full=True)

    assert [murmur(word, 0)[0] for word in words] == list(numbers.low)


def test_the_kernel_reads_nothing_beyond_a_token() -> None:
    # The same token at every offset of a text, before bytes that differ.
    kernel = extension("fingerprint._kernel").Kernel(Recipe(), PUBLIC_KEY)
    for length in range(1, 33):
        token = bytes(range(65, 65 + length)).replace(b"[", b"a").replace(b"]", b"b")
        texts = [b" " * pad + token + b" " + end for pad in range(9) for end in (b"", b" " * 40)]
        numbers = kernel.scan(texts, full=True)
        assert {murmur(token, 0)[0]} == set(numbers.low)

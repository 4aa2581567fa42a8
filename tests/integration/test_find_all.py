"""``stream-dedup find-all``: formats, bad input, whole outputs, and the C++ library's pairs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import simhash_cpp
from tests.integration.command import COMMAND, TIMEOUT_S, run, run_measured

NEAR = [8, 9, 255, 9, 1 << 63]
PAIRS = [[8, 9]]

peer = pytest.mark.skipif(
    not simhash_cpp.SOURCES.is_dir(), reason="the C++ library's sources are not beside the checkout"
)


def text_of(numbers: list[int], form: str = "{}") -> bytes:
    return "".join(form.format(number) + "\n" for number in numbers).encode()


def clustered(count: int, seed: int, width: int = 64) -> list[int]:
    generator = random.Random(seed)
    out = [generator.getrandbits(width) for _ in range(count // 2)]
    while len(out) < count:
        near = generator.choice(out)
        for _ in range(generator.randint(0, 6)):
            near ^= 1 << generator.randrange(width)
        out.append(near)
    return out


def pairs_of(numbers: list[int], k: int) -> list[list[int]]:
    distinct = sorted(set(numbers))
    return [[a, b] for a, b in combinations(distinct, 2) if (a ^ b).bit_count() <= k]


def arrays(out: bytes) -> list[list[int]]:
    return sorted(json.loads(line) for line in out.splitlines())


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ([], text_of(NEAR), b"[8, 9]\n"),
        (["--output-format", "tsv"], text_of(NEAR), b"8\t9\t1\n"),
        ([], text_of(NEAR).rstrip(b"\n"), b"[8, 9]\n"),
        ([], text_of(NEAR).replace(b"\n", b"\r\n"), b"[8, 9]\n"),
        (
            ["--input-format", "hex"],
            text_of(NEAR, "{:x}"),
            b'["0000000000000008", "0000000000000009"]\n',
        ),
        (
            ["--input-format", "hex", "--width", "32", "--output-format", "tsv"],
            b"0xF0\nf1\n",
            b"000000f0\t000000f1\t1\n",
        ),
        (
            ["--input-format", "binary"],
            b"".join(n.to_bytes(8, "little") for n in NEAR),
            b"[8, 9]\n",
        ),
        (
            ["--input-format", "binary", "--width", "128"],
            b"".join((n << 64).to_bytes(16, "little") for n in (8, 9)),
            b"[147573952589676412928, 166020696663385964544]\n",
        ),
        (["--lines"], text_of(NEAR), b"[2, 4]\n[1, 2]\n[1, 4]\n"),
        (["--lines", "--output-format", "tsv"], b"7\n7\n", b"1\t2\t0\n"),
        (["--blocks", "9", "--threads", "2"], text_of(NEAR), b"[8, 9]\n"),
    ],
)
def test_formats_in_and_out(options: list[str], data: bytes, expected: bytes) -> None:
    done = run("find-all", "--distance", "1", *options, stdin=data)

    assert (done.code, done.out, done.err) == (0, expected, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "standard input: holds no fingerprints"),
        (b"12\nabc\n", "line 2: abc is hexadecimal; give --input-format hex"),
        (b"12\nxyz\n", "line 2: 'xyz' is not a decimal number"),
        (b"12\n-4\n", "line 2: -4 is negative"),
        (b"12\n18446744073709551616\n", "line 2: 18446744073709551616 takes more than 64 bits"),
        (b"12\n\n13\n", "line 2: is empty"),
        (b"\n", "line 1: is empty"),
        (b"1 2\n", "line 1: '1 2' is not a decimal number"),
        (b"\x00\xff\x1b[31m\n", "line 1: "),
        (b"7" * 5_000_000, "more than 4096 bytes"),
        (b"1\n" * 700_000 + b"no\n", "line 700001: 'no'"),
    ],
)
def test_bad_input_is_reported_by_line_and_nothing_is_written(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    before = tmp_path / "pairs"
    before.write_bytes(b"what was there\n")

    to_file = run("find-all", "-d", "3", "-o", before, stdin=data)
    to_stdout = run("find-all", "-d", "3", stdin=data)

    for done in (to_file, to_stdout):
        assert (done.code, done.out) == (2, b"")
        assert problem in " ".join(done.err.split())
        assert "\x1b" not in done.err
        assert "Traceback" not in done.err
    assert before.read_bytes() == b"what was there\n"
    assert list(tmp_path.iterdir()) == [before]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--distance", "4", "--blocks", "4"], "4 blocks are not more than the distance, 4"),
        (["--distance", "9", "--blocks", "4"], "4 blocks are not more than the distance, 9"),
        (["--distance", "3", "--blocks", "65"], "65 blocks are more than the width has bits, 64"),
        (["--distance", "64"], "distance 64 is not from 0 to 63"),
        (["--distance", "-1"], "--distance"),
        (["--distance", "40", "--width", "32"], "distance 40"),
        (["--distance", "10", "--blocks", "30"], "more than 2000 tables"),
        ([], "Missing option '-d' / '--distance'"),
        (["--distance", "3", "--shards", "3/2"], "'3/2' is not a shard"),
        (["--distance", "3", "--shards", "0/2"], "'0/2' is not a shard"),
        (["--distance", "3", "--memory", "much"], "'much' is not a size"),
        (["--distance", "3", "--width", "48"], "'48' is not one of"),
        (["--distance", "3", "--threads", "0"], "--threads"),
    ],
)
def test_wrong_options_are_reported_and_nothing_is_written(
    tmp_path: Path, options: list[str], problem: str
) -> None:
    done = run("find-all", *options, "--output", tmp_path / "pairs", stdin=text_of(NEAR))

    assert (done.code, done.out) == (2, b"")
    assert problem in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "width", "data", "problem"),
    [
        ("binary", "64", b"12345678abc", "ends after 3 of the 8 bytes"),
        ("binary", "32", (1 << 32).to_bytes(8, "little"), "fingerprint 1: 4294967296 takes more"),
        ("binary", "64", b"", "holds no fingerprints"),
        ("hex", "64", b"1" + b"0" * 16 + b"\n", "takes more than 64 bits"),
        ("hex", "64", b"g\n", "'g' is not a hexadecimal number"),
        ("decimal", "32", b"4294967296\n", "takes more than 32 bits"),
    ],
)
def test_bad_input_of_other_formats_is_reported(
    form: str, width: str, data: bytes, problem: str
) -> None:
    done = run("find-all", "-d", "3", "--input-format", form, "--width", width, stdin=data)

    assert (done.code, done.out) == (2, b"")
    assert problem in " ".join(done.err.split())


def test_one_line_and_a_million_equal_ones_have_no_pairs() -> None:
    for data in (b"5\n", b"5\n" * 1_000_000):
        done = run("find-all", "--distance", "3", stdin=data)
        assert (done.code, done.out, done.err) == (0, b"", "")


def test_quadratic_output_is_streamed_and_can_be_cut_short() -> None:
    done = run("find-all", "-d", "3", "--lines", "--max-pairs", "5", stdin=b"5\n" * 100_000)
    near = text_of(list(range(4096)))
    some = run("find-all", "-d", "12", "--max-pairs", "100000", stdin=near)
    all_of_it = run("find-all", "-d", "1", "--max-pairs", "1", stdin=text_of(NEAR))
    none = run("find-all", "-d", "1", "--max-pairs", "0", stdin=text_of(NEAR))

    assert len(done.lines) == 5
    assert "more than 5 pairs (--max-pairs)" in done.err
    assert len(some.lines) == 100_000
    assert "more than 100000 pairs" in some.err
    assert (all_of_it.out, all_of_it.err) == (b"[8, 9]\n", "")
    assert none.out == b""
    assert "more than 0 pairs" in none.err


def test_files_are_read_and_written_whole(tmp_path: Path) -> None:
    given, made = tmp_path / "in", tmp_path / "out"
    given.write_bytes(text_of(NEAR))

    done = run("find-all", "-d", "1", "-i", given, "-o", made)

    assert (done.code, done.out, done.err) == (0, b"", "")
    assert made.read_bytes() == b"[8, 9]\n"
    assert 0o077 & made.stat().st_mode == 0o044 or made.stat().st_mode & 0o600 == 0o600
    assert set(tmp_path.iterdir()) == {given, made}


def test_unreadable_inputs_and_unwritable_outputs_are_reported(tmp_path: Path) -> None:
    missing = run("find-all", "-d", "1", "-i", tmp_path / "none")
    folder = run("find-all", "-d", "1", "-o", tmp_path / "none" / "out", stdin=b"1\n")

    assert (missing.code, missing.out) == (1, b"")
    assert "none: cannot be read: No such file" in missing.err
    assert (folder.code, folder.out) == (1, b"")
    assert "out: cannot be written: No such file" in folder.err


def test_shards_together_are_the_whole_and_memory_changes_nothing() -> None:
    numbers = clustered(3_000, 11)
    data = text_of(numbers)
    whole = run("find-all", "-d", "3", stdin=data)
    parts = [run("find-all", "-d", "3", "--shards", f"{i}/3", stdin=data) for i in (1, 2, 3)]
    little = run("find-all", "-d", "3", "--memory", "1", "--threads", "2", stdin=data)

    assert pairs_of(numbers, 3) == arrays(whole.out) == arrays(b"".join(p.out for p in parts))
    assert all(part.out for part in parts)
    assert whole.out == little.out


def test_memory_stays_bounded_when_the_input_is_larger(tmp_path: Path) -> None:
    count = 2_000_000
    generator = random.Random(1)
    data = generator.randbytes(8 * count)
    small, base = tmp_path / "small", tmp_path / "base"
    options = ("find-all", "-d", "3", "--blocks", "5", "--input-format", "binary")

    little, base_mb = run_measured(iter([data[:800]]), base, *options)
    done, peak_mb = run_measured(iter([data]), small, *options, "--memory", "4MiB")

    assert 0 == little.code == done.code
    assert peak_mb - base_mb < 16  # the memory allowed, and what is read at once; 16 MB lie on disk


def test_pure_python_finds_the_same() -> None:
    data = text_of(clustered(300, 3))
    native = run("find-all", "-d", "3", stdin=data)
    pure = run("find-all", "-d", "3", stdin=data, env={"STREAM_DEDUP_PURE_PYTHON": "1"})

    assert (native.code, native.out, native.err) == (pure.code, pure.out, pure.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_signal_ends_it_and_no_file_is_left(
    tmp_path: Path, number: signal.Signals, threads: str
) -> None:
    given, made = tmp_path / "in", tmp_path / "out"
    made.mkdir()
    given.write_bytes(random.Random(1).randbytes(8 * 400_000))
    options = ("-d", "20", "-b", "21", "--input-format", "binary", "--threads", threads)
    command: list[str | Path] = [COMMAND, "find-all", *options]
    command += ["-i", given, "-o", made / "pairs"]
    # As from a terminal, though the tests themselves may run where signals are ignored.
    as_usual = "import os, signal, sys\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_DFL)\n"
    as_usual += "os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", as_usual, *command]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + TIMEOUT_S
        while not list(made.iterdir()):  # it has read all, and begun to write
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)

    assert 128 + number == process.returncode
    assert b"Traceback" not in err
    assert list(made.iterdir()) == []


@peer
@pytest.mark.parametrize("seed", range(4))
def test_the_pairs_are_those_of_the_cpp_library(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    kinds = [
        clustered(2_000, seed),
        [generator.getrandbits(64) for _ in range(2_000)],
        clustered(800, seed, width=24),
        [generator.getrandbits(10) << generator.randrange(54) for _ in range(1_500)],
    ]
    for number, numbers in enumerate(kinds):
        k = generator.randint(1, 6)
        blocks = generator.randint(k + 1, k + 3)
        given = tmp_path / "in"
        given.write_bytes(text_of(numbers))
        options = ("--blocks", str(blocks), "--distance", str(k), "--input", given)
        theirs = subprocess.run(
            [simhash_cpp.command("simhash-find-all"), *options, "--output", "-"],
            capture_output=True,
            check=True,
            timeout=60,
        )
        ways = (options, options[2:], (*options, "--threads", "2", "--memory", "1"))
        done = run("find-all", *ways[(seed + number) % len(ways)])  # each kind in each way

        expected = [sorted(pair) for pair in arrays(theirs.stdout)]
        assert arrays(done.out) == sorted(expected)

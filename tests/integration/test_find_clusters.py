"""``stream-dedup find-clusters``: of fingerprints, of text, of shards; and the C++ library's."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from benchmarks import simhash_cpp
from stream_dedup.io.files import MAX_LINE_BYTES
from tests.integration.command import run
from tests.integration.test_find_all import arrays, clustered, peer, text_of

LINES = b"""\
connection from 10.0.0.7 port 4422 closed by peer

disk /dev/sda1 is full
connection from 10.0.0.9 port 17 closed by peer
disk /dev/sda1 is full
nothing is like this line at all
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], b"[8, 9, 11]\n[254, 255]\n"),
        (["--output-format", "tsv"], b"8\t9\t11\n254\t255\n"),
        (["--lines"], b"[1, 2, 5, 6]\n[3, 4]\n[7, 8]\n"),
        (["--threads", "2", "--memory", "1"], b"[8, 9, 11]\n[254, 255]\n"),
    ],
)
def test_clusters_of_fingerprints(options: list[str], expected: bytes) -> None:
    data = text_of([8, 9, 254, 255, 9, 11, 1 << 40, 1 << 40])

    done = run("find-clusters", "--distance", "1", *options, stdin=data)

    assert (done.code, done.out, done.err) == (0, expected, "")


def test_hexadecimal_in_hexadecimal_out_but_lines_stay_numbers() -> None:
    data = b"f0\nf1\n"

    values = run("find-clusters", "-d", "1", "--input-format", "hex", "--width", "128", stdin=data)
    lines = run("find-clusters", "-d", "1", "--input-format", "hex", "--lines", stdin=data)

    assert [json.loads(line) for line in values.lines] == [["0" * 30 + "f0", "0" * 30 + "f1"]]
    assert lines.out == b"[1, 2]\n"


def test_from_text_straight_to_clusters(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(LINES)

    done = run("find-clusters", "--text", log, "--recipe", "logs")
    piped = run("find-clusters", "--text", "-", "--output-format", "tsv", stdin=LINES)
    nearer = run("find-clusters", "--text", log, "-r", "words", "--set", "match.k=63")
    settings = ("--set", "match.k=63", "--set", "match.jaccard=0")
    unverified = run("find-clusters", "--text", log, "-r", "words", *settings)

    assert (done.code, done.out, done.err) == (0, b"[1, 4]\n[3, 5]\n", "")
    assert piped.out == b"1\t4\n3\t5\n"
    assert nearer.out == b"[1, 4]\n[3, 5]\n"
    assert unverified.out == b"[1, 3, 4, 5, 6]\n"


def test_lines_too_long_to_be_compared_are_counted_all_the_same() -> None:
    data = b"disk is full\n" + b"x y " * 5_000_000 + b"\ndisk is full\n"

    done = run("find-clusters", "--text", "-", stdin=data)

    assert (done.code, done.out) == (0, b"[1, 3]\n")


def test_the_clusters_of_shards_are_merged(tmp_path: Path) -> None:
    data = text_of(clustered(2_000, 4))
    whole = run("find-clusters", "-d", "3", stdin=data)
    parts: list[str | Path] = []
    for shard in (1, 2, 3):
        part = tmp_path / f"part-{shard}"
        done = run("find-clusters", "-d", "3", "--shards", f"{shard}/3", "-o", part, stdin=data)
        assert done.code == 0
        assert whole.out != part.read_bytes()
        parts += ["--merge", part]
    pairs = tmp_path / "pairs"
    run("find-all", "-d", "3", "-o", pairs, stdin=data)

    merged = run("find-clusters", *parts)
    of_pairs = run("find-clusters", "--merge", pairs)

    assert (merged.code, merged.out, merged.err) == (0, whole.out, "")
    assert whole.out == of_pairs.out


def test_a_part_may_have_a_cluster_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"[%b]\n" % b", ".join(b"%d" % (1 << 60 | n) for n in range(500_000)))
    assert path.stat().st_size > MAX_LINE_BYTES
    done = run("find-clusters", "--merge", path)
    assert (done.code, done.out.count(b"\n"), done.out.count(b",")) == (0, 1, 499_999)


@pytest.mark.parametrize(
    "part",
    [b"[1, 2\n", b"[-1, 2]\n", b'["a", "b"]\n', b"7\n", b"[1, 18446744073709551616]\n", b"\xff"],
)
def test_parts_that_are_not_clusters_are_reported(tmp_path: Path, part: bytes) -> None:
    path, out = tmp_path / "part", tmp_path / "out"
    path.write_bytes(b"[1, 2]\n" + part)

    done = run("find-clusters", "--merge", path, "--output", out)

    assert (done.code, done.out) == (2, b"")
    assert "line 2: is no JSON array of decimal numbers" in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "give --distance K"),
        (["-d", "4", "-b", "4"], "4 blocks are not more than the distance"),
        (["-d", "4", "--recipe", "logs"], "--recipe goes with --text"),
        (["--text", "-", "--width", "32"], "--width does not go with --text"),
        (["--text", "-", "--input", "-"], "--input does not go with --text"),
        (["--text", "-", "--recipe", "no-such"], "no-such"),
        (["--text", "-", "-d", "64"], "distance 64"),
        (["--text", "-", "-r", "text", "-d", "0"], "--distance does not go with recipe text, of"),
        (["--text", "-", "-r", "text", "-b", "9"], "--blocks does not go with recipe text, of"),
        (["--text", "-", "-r", "text", "--shards", "1/2"], "--shards does not go with recipe text"),
        (["--merge", __file__, "-d", "3"], "--distance does not go with --merge"),
    ],
)
def test_wrong_options_are_reported(options: list[str], problem: str) -> None:
    done = run("find-clusters", *options, stdin=b"1\n2\n")

    assert (done.code, done.out) == (2, b"")
    assert problem in " ".join(done.err.split())


@pytest.mark.parametrize("data", [b"", b"12\nabc\n", b"-1\n"])
def test_bad_input_leaves_no_output(tmp_path: Path, data: bytes) -> None:
    done = run("find-clusters", "-d", "3", "-o", tmp_path / "out", stdin=data)

    assert (done.code, done.out) == (2, b"")
    assert "standard input: " in done.err
    assert list(tmp_path.iterdir()) == []


@peer
@pytest.mark.parametrize("seed", range(4))
def test_the_clusters_are_those_of_the_cpp_library(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    for numbers in (clustered(2_000, seed), [generator.getrandbits(22) for _ in range(1_500)]):
        k = generator.randint(1, 4)
        given = tmp_path / "in"
        given.write_bytes(text_of(numbers))
        options = ("--blocks", str(k + 2), "--distance", str(k), "--input", given)
        theirs = subprocess.run(
            [simhash_cpp.command("simhash-find-clusters"), *options, "--output", "-"],
            capture_output=True,
            check=True,
            timeout=60,
        )

        ours = run("find-clusters", *options)

        assert sorted(sorted(cluster) for cluster in arrays(theirs.stdout)) == arrays(ours.out)

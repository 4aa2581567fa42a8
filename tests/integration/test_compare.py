"""compare: two texts' hashes and fingerprints, as numbers that other systems print too."""

from __future__ import annotations

from operator import ne

import pytest

from stream_dedup.features.recipe import load_recipe, shipped
from stream_dedup.fingerprint.bands import BANDS, KEY_BYTES
from tests.integration.command import run


def test_compare_prints_what_the_java_source_printed() -> None:
    done = run("compare", "--recipe", "java32", "this is string1", "this is string2")

    assert (done.code, done.err) == (0, "")
    head = [
        "  feature  weight                              hash",
        "  this          1            1101100100111010011110",
        "  is            1                      110100101010",
    ]
    ends = ["fingerprint  1445386", "binary       101100000111000001010", ""]
    expected = [
        "first        this is string1",
        *head,
        "  string1       1  10001111110101101010001001000000",
        *ends,
        "second       this is string2",
        *head,
        "  string2       1  10001111110101101010001001000001",
        *ends,
        "distance     0 of 32 bits",
    ]
    assert done.out.decode().splitlines() == expected


def test_a_negative_int_of_javas_has_a_sign() -> None:
    (found,) = run("compare", "-r", "java32", "polygenelubricants", "6", "--format", "json").objects

    assert (found["texts"][0]["fingerprint"]) == {
        "decimal": "-2147483648",
        "binary": "1" + "0" * 31,
        "hex": "80000000",
    }
    assert (found["texts"][1]["features"][0]["hash"]) == {
        "decimal": "54",
        "binary": "110110",
        "hex": "00000036",
    }


def test_other_numbers_have_all_their_binary_digits_and_no_sign() -> None:
    text = run("compare", "--recipe", "letters5", "banana", "bozo").out.decode()

    assert "  b             1  00010\n  a             1  00001\n  n             1  01110\n" in text
    assert "fingerprint  3\nbinary       00011\n" in text
    assert "fingerprint  15\nbinary       01111\n" in text
    assert text.endswith("distance     2 of 5 bits\n")


@pytest.mark.parametrize("name", shipped())
def test_compare_says_the_same_as_json_and_as_fingerprint_does(name: str) -> None:
    texts = ("disk sda1 is 91% full of the cat", '{"a": "disk sdb7 is 64% full of the cat"}')
    done = run("compare", "--recipe", name, *texts)
    (found,) = run("compare", "--recipe", name, "--format", "json", *texts).objects
    looks = run("fingerprint", "--recipe", name, "--json", *texts).objects

    recipe = load_recipe(name)
    assert (found["recipe"], found["digest"]) == (name, recipe.digest)
    values = [int(text["fingerprint"]["binary"], 2) for text in found["texts"]]
    if recipe.fingerprint.kind == "bands":
        keys = [value.to_bytes(BANDS * KEY_BYTES, "big") for value in values]
        starts = range(0, BANDS * KEY_BYTES, KEY_BYTES)
        left, right = ([each[at : at + KEY_BYTES] for at in starts] for each in keys)
        apart, of = sum(map(ne, left, right)), f"{BANDS} keys"
    else:
        apart, of = (values[0] ^ values[1]).bit_count(), f"{recipe.fingerprint.width} bits"
    assert apart == found["distance"]
    assert f"distance     {apart} of {of}" in done.out.decode()
    for text, look in zip(found["texts"], looks, strict=True):
        assert f"fingerprint  {text['fingerprint']['decimal']}\n" in done.out.decode()
        assert look["fingerprint"] == text["fingerprint"]["hex"]
        assert [feature["text"] for feature in look["features"]] == [
            feature["text"] for feature in text["features"]
        ]
        assert all(
            int(feature["hash"]["hex"], 16) == int(feature["hash"]["binary"], 2)
            for feature in text["features"]
        )


@pytest.mark.parametrize(
    "texts",
    [
        ("", " "),
        (b"\xff\xfe \x1a \xed\xa0\x80" + b"a" * 100_000, "日本 😀".encode()),
    ],
)
@pytest.mark.parametrize("name", ["java32", "md5-128", "window-cyclic", "letters5", "minhash-n"])
def test_any_text_can_be_compared(name: str, texts: tuple[str | bytes, str | bytes]) -> None:
    for form in ("text", "json"):
        done = run("compare", "--recipe", name, "--format", form, *texts)
        assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--recipe", "jawa32", "a", "b"], "jawa32: no such recipe"),
        (["--format", "xml", "a", "b"], "'xml' is not one of"),
        (["a"], "Missing argument 'SECOND'"),
        (["--recipe", "java32", "--set", "fingerprint.width=64", "a", "b"], "use 5 or 32"),
    ],
)
def test_what_cannot_be_compared_is_refused(args: list[str], says: str) -> None:
    done = run("compare", *args)

    assert (done.code, done.out) == (2, b"")
    assert says in done.err


def test_five_bits_are_refused_where_clusters_are_held() -> None:
    done = run("dedup", "--recipe", "letters5", stdin=b"banana\n")

    assert (done.code, done.out) == (2, b"")
    assert "fingerprint.width: is 5, which is to be looked at only" in done.err


@pytest.mark.parametrize("name", ["java32", "md5-128", "window-cyclic", "minhash-n"])
def test_lines_are_merged_by_the_recipes_of_other_systems(name: str) -> None:
    words = b"the disk of the host in the cellar is full since the night before the last"
    done = run(
        "dedup", "-r", name, "-e", "annotate", stdin=b"\n".join([words, words, b"an other line"])
    )

    assert done.code == 0
    assert [line.split()[0] for line in done.lines] == [b"new", b"duplicate", b"new"]

"""Nobody can hide a line behind another one: the hashes that decide are keyed."""

from __future__ import annotations

import json

import pytest

from stream_dedup import Deduplicator
from stream_dedup.features.recipe import load_recipe, replace, shipped
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from tests.forged import ANY_SEED, HIDDEN, KNOWN, without_key
from tests.integration.command import run as command_line

PAIRS = [(KNOWN, HIDDEN), ANY_SEED]


def test_the_lines_collide_without_a_key() -> None:
    assert without_key(KNOWN) == without_key(HIDDEN)
    assert all(without_key(ANY_SEED[0], seed) == without_key(ANY_SEED[1], seed) for seed in (0, 7))


@pytest.mark.parametrize(("known", "hidden"), PAIRS)
def test_a_forged_line_opens_its_own_cluster(known: bytes, hidden: bytes) -> None:
    for recipe in ("logs", "logs-1", "words", "minhash-n"):
        first, forged, again = Deduplicator(recipe).process([known, hidden, known])

        assert forged.kind.value == "new"
        assert forged.cluster != first.cluster == again.cluster


@pytest.mark.parametrize(("known", "hidden"), PAIRS)
def test_no_recipe_takes_a_forged_line_for_an_equal_one(known: bytes, hidden: bytes) -> None:
    for name in shipped():
        for kind in ({}, {"fingerprint__seed": 7}):
            recipe = load_recipe(name)
            if kind and recipe.fingerprint.hash != "murmur3":
                continue
            fingerprinter = Fingerprinter(replace(recipe, **kind), HashKey.random())
            numbers = fingerprinter.fingerprints(
                fingerprinter.prepare([known, hidden], [None] * 2), full=True
            )
            assert numbers.exact[0] != numbers.exact[1]


@pytest.mark.parametrize("emit", ["drop", "merge"])
@pytest.mark.parametrize(("known", "hidden"), PAIRS)
def test_both_lines_leave_a_pipe(emit: str, known: bytes, hidden: bytes) -> None:
    done = command_line("dedup", "--emit", emit, stdin=b"\n".join([known, hidden, known]))

    assert known in done.out
    assert hidden in done.out


def test_decisions_and_ids_are_the_same_under_any_key() -> None:
    lines = [b"user %d did %s" % (n, b"abcdefg"[n % 7 :]) for n in range(200)]
    runs = [Deduplicator("logs", key=bytes([n]) * 16).process(lines) for n in range(3)]

    assert runs[0] == runs[1] == runs[2]


def test_equal_keys_give_equal_hashes_and_others_do_not() -> None:
    recipe = load_recipe("logs")
    one, same, other = (
        Fingerprinter(recipe, HashKey(secret)).fingerprints([KNOWN], full=True)
        for secret in (b"a" * 16, b"a" * 16, b"b" * 16)
    )

    assert one == same
    assert (one.exact[0] != other.exact[0], one.sketches != other.sketches) == (True, True)
    assert (one.low, one.words) == (other.low, other.words)  # fingerprints have no key


def test_names_of_fields_cannot_be_forged_either() -> None:
    recipe = replace(load_recipe("json"), input__fields=[{"path": "**"}])
    numbers = Fingerprinter(recipe, HashKey.random())
    documents = [{"message": "disk is full"}, {"massage": "disk is full"}]
    prepared = numbers.prepare([json.dumps(d).encode() for d in documents], documents)
    exact = numbers.fingerprints(prepared, full=False).exact

    assert exact[0] != exact[1]

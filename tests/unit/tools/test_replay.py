from __future__ import annotations

import random
import re
from datetime import time
from ipaddress import ip_address
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.model import Kind
from stream_dedup.tools.load_generator.events import Sample, Stem, novel, replayed

SAMPLES = [
    Sample(b"Connection from 10.0.0.7 port 4422 refused by policy", "ssh"),
    Sample(b"worker 12 finished batch 9 in 340 ms with warnings", "api"),
    Sample(b"payment for the cart was declined by the gateway", "shop"),
    Sample(b"checkpoint complete: wrote 34 buffers in 1.2 s to disk", "db"),
]


def drawn(duplicates: float, count: int, seed: int = 0) -> list[bytes]:
    return [text for _, text in islice(replayed(SAMPLES, duplicates, seed), count)]


@given(st.binary(max_size=60))
def test_a_replay_keeps_the_length_and_all_but_the_digits(line: bytes) -> None:
    again = Stem.of(line).replay(random.Random(1))
    assert re.sub(rb"[0-9]", b"0", line) == re.sub(rb"[0-9]", b"0", again)


@given(st.integers(0, 10**12), st.integers(0, 99))
def test_a_number_stays_a_number_of_json(number: int, seed: int) -> None:
    line = msgspec.json.encode({"n": number, "m": [number, 7]})
    again = msgspec.json.decode(Stem.of(line).replay(random.Random(seed)))
    assert set(again) == {"n", "m"}


def test_a_line_of_very_many_digits_is_replayed_too() -> None:
    line = b"7" * 20_000
    again = Stem.of(line).replay(random.Random(1))
    assert (len(again), again != line) == (20_000, True)


def test_the_same_arguments_make_the_same_events() -> None:
    assert drawn(0.9, 500) == drawn(0.9, 500)
    assert drawn(0.9, 500) != drawn(0.9, 500, seed=1)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_the_share_of_duplicates_is_the_one_asked_for(share: float) -> None:
    decisions = Deduplicator(recipe="logs").process(drawn(share, 4_000))
    found = sum(decision.kind is Kind.DUPLICATE for decision in decisions) / 4_000
    assert pytest.approx(share, abs=0.02) == found


def test_new_events_are_first_the_lines_as_they_are() -> None:
    assert [sample.text for sample in SAMPLES] == drawn(0, 4)


@given(st.binary(max_size=80), st.integers(0, 9))
def test_a_novel_line_is_as_long_as_its_sample(line: bytes, seed: int) -> None:
    assert len(line) == len(novel(line, random.Random(seed)))


@given(st.integers(0, 99))
def test_addresses_and_times_of_day_stay_valid(seed: int) -> None:
    line = b"Nov 21 09:37:30 from 127.0.0.254 port 9:99 at 12:30, in 1.2.3.456.7"
    again = Stem.of(line).replay(random.Random(seed))
    found = re.fullmatch(
        rb"Nov ([0-9]{2}) ([0-9:]{8}) from ([0-9.]+) port [0-9]:[0-9]{2} at ([0-9:]{5}), in .*",
        again,
    )
    assert found
    assert int(found[1]) < 30
    ip_address(found[3].decode())
    time.fromisoformat(found[2].decode())
    time.fromisoformat(found[4].decode())

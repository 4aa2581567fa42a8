from __future__ import annotations

import re
from io import StringIO

from rich.console import Console

from benchmarks.random_messages import RandomMessages
from benchmarks.text_speed import bench_index
from stream_dedup.features.recipe import load_recipe


def test_equal_seeds_make_equal_messages_of_the_length_asked_for() -> None:
    one, same, other = (RandomMessages(seed, 5, 7).make(20) for seed in (1, 1, 2))
    assert one == same != other
    assert {len(message.split()) for message in one} <= {5, 6, 7}


def test_a_changed_copy_differs_in_one_word_of_ten() -> None:
    messages = RandomMessages(3, 20, 20)
    (message,) = messages.make(1)
    pairs = zip(message.split(), messages.changed(message).split(), strict=True)
    assert 1 <= sum(one != other for one, other in pairs) <= 2


def test_copies_are_looked_up_in_an_index_of_each_size() -> None:
    shown = StringIO()
    targets = bench_index(load_recipe("text"), [100, 300], Console(file=shown, width=120))
    assert targets == []  # of two other sizes
    assert re.findall(r"│ (\d+) clusters +│", shown.getvalue()) == ["100", "300"]
    found = [float(share) for share in re.findall(r"([\d.]+) % │", shown.getvalue())]
    assert len(found) == 2
    assert min(found) > 90

"""Words that vary together in patterns that opened clusters lately."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from random import Random

import pytest

from stream_dedup.clustering import openings
from stream_dedup.clustering.openings import OpenedPatterns
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import pack, pattern_keys


def keys(line: str, gaps: int = 0) -> bytes:
    """The keys of a line of words; those in capitals never vary."""
    words = line.split()
    hashes = [mix(int.from_bytes(word.encode(), "big") % (2**61 - 1)) for word in words]
    return pack(pattern_keys(hashes, [word.isupper() for word in words], gaps=gaps))


def found(lines: Iterable[str], learn: int = 5) -> dict[int, int]:
    """The combinations that are found, each with the number of the line that shows it first."""
    opened, combinations = OpenedPatterns(learn, FOREVER_US), dict[int, int]()
    for number, line in enumerate(lines):
        combination = opened.add("", keys(line), number)
        if combination:
            combinations.setdefault(combination, number)
    return combinations


def names(line: str, lines: int = 400, of: int = 50, verbs: int = 9) -> list[str]:
    """Lines with names in place of braces, and of a verb, at random."""
    random = Random(1)
    return [
        line.format(
            *(f"name{random.randrange(of)}" for _ in range(9)),
            verb=f"verb{random.randrange(verbs)}",
        )
        for _ in range(lines)
    ]


def test_three_words_that_vary_in_every_line_are_found() -> None:
    combinations = found(names("task {} assigned to worker {} by scheduler {}"))
    first, *others = combinations  # of lines that share a name, fewer words vary
    assert first == 1 << 1 | 1 << 5 | 1 << 8
    assert not any(other & ~first for other in others)
    assert 20 <= combinations[first] < 80


@pytest.mark.parametrize("line", ["{} joined the group {} today", "{} joined the group {} ON {}"])
def test_first_and_last_words_may_vary(line: str) -> None:
    assert found(names(line))


@pytest.mark.parametrize(
    "line",
    [
        "the only word that varies is {}",
        "{} saw {} near {} at {} here",  # four vary, and as many stay
        "saw {} at {}",
        "{} {} {} joined the group of all users today at noon",  # no anchor is left
        f"{'word ' * 22} and {{}} and {{}} behind them",  # too far behind
    ],
)
def test_too_few_words_or_too_many_are_no_combination(line: str) -> None:
    assert not found(names(line, of=1000) if "only" not in line else names(line))


def test_a_word_that_stands_twice_does_not_vary_together() -> None:
    lines = (f"user {n} gave the role of user {n} to team {n + 1000} now" for n in range(400))
    assert not found(lines)


@pytest.mark.parametrize("verbs", [9, 17])
def test_verbs_are_not_part_of_what_varies(verbs: int) -> None:
    lines = names("user {} {verb} a file of bucket {} again", lines=9000, verbs=verbs)
    assert {*found(lines)} == {1 << 1 | 1 << 7}


def test_few_values_in_a_place_are_no_names() -> None:
    assert not found(names("zone {} takes a lot of packets from gate {} now", lines=2000, of=17))


@pytest.mark.parametrize(("count", "enough"), [(59, False), (130, True)])
def test_words_that_come_once_need_more_lines(count: int, *, enough: bool) -> None:
    """Unlike messages of one form have such words, too."""
    lines = [f"the server cannot a{n} the file b{n} of today" for n in range(count)]
    assert bool(found(lines)) == enough


@pytest.mark.parametrize(("learn", "least"), [(2, 7), (5, 18), (8, 28)])
def test_as_many_values_are_wanted_as_the_recipe_says(learn: int, least: int) -> None:
    lines = names("user {} wrote the file {} of team {} again", of=40)
    number = min(found(lines, learn).values())
    assert least < number < 5 * least


def test_a_list_is_emptied_when_something_was_found() -> None:
    opened, lines = OpenedPatterns(5, FOREVER_US), names("task {} of worker {} is over now")
    hits = [n for n, line in enumerate(lines) if opened.add("", keys(line), n)]
    gaps = [later - one for one, later in itertools.pairwise(hits)]
    assert len(hits) > 3
    assert min(gaps) >= 8


def test_lines_that_come_again_say_nothing() -> None:
    opened, lines = OpenedPatterns(5, FOREVER_US), names("task {} of worker {} is over now", 15)
    assert not any(opened.add("", keys(line), n) for n, line in enumerate(lines * 20))
    assert len(opened) == 15


@pytest.mark.parametrize(("idle_us", "enough"), [(100, True), (10, False)])
def test_lines_of_long_ago_do_not_count(idle_us: int, *, enough: bool) -> None:
    opened, lines = OpenedPatterns(5, idle_us), names("task {} of worker {} is over now")
    assert any(opened.add("", keys(line), n) for n, line in enumerate(lines)) == enough


@pytest.mark.parametrize("of", [lambda n: (f"{n % 40}", 0), lambda n: ("", n % 40)])
def test_only_lines_of_a_group_and_a_shape_are_compared(
    of: Callable[[int], tuple[str, int]],
) -> None:
    opened = OpenedPatterns(5, FOREVER_US)
    for number in range(200):
        group, gaps = of(number)
        line = f"user a{number} wrote the file b{number} of team c{number}"
        assert not opened.add(group, keys(line, gaps), number)


def test_a_pattern_of_one_word_is_not_compared() -> None:
    opened = OpenedPatterns(5, FOREVER_US)
    assert not any(opened.add("", keys(f"A NEW word{number}"), number) for number in range(100))
    assert not len(opened)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "MAX_PATTERNS", 300)
    opened = OpenedPatterns(5, FOREVER_US)
    for number in range(2000):
        opened.add("", keys(f"all of a{number} b{number} c{number} d{number} differ"), number)
        opened.add("other", keys(f"the user a{number % 7} wrote to b{number} again"), number)
        assert len(opened) <= 300
    assert len(opened) > 150

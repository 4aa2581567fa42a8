from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import load_recipe
from stream_dedup.rules.ruleset import is_outcome
from stream_dedup.rules.template import Reading, Template, read_event, read_pattern, with_value

WORDS = st.sampled_from(["a", "b", "job", "failed", None])
ELEMENTS = st.lists(st.tuples(WORDS, st.integers(1, 3)), min_size=1, max_size=6)


def slow_match(template: Template, words: tuple[str | None, ...]) -> bool:
    """Try every way to match: by the definition, in exponential time."""

    def go(element: int, at: int) -> bool:
        if element == len(template.elements):
            return at == len(words) or template.rest
        word = template.elements[element]
        if word is not None:
            return at < len(words) and words[at] == word and go(element + 1, at + 1)
        free = element in template.free
        for width in range(1, template.widths[element] + 1):
            taken = words[at : at + width]
            if len(taken) < width:
                return False
            if not free and any(each is not None and is_outcome(each) for each in taken):
                return False
            if go(element + 1, at + width):
                return True
        return False

    return go(0, 0)


@given(
    elements=ELEMENTS,
    words=st.lists(WORDS, max_size=8).map(tuple),
    rest=st.booleans(),
    free=st.booleans(),
)
def test_matching_equals_the_slow_reference(
    elements: list[tuple[str | None, int]],
    words: tuple[str | None, ...],
    rest: bool,
    free: bool,
) -> None:
    names = tuple(word for word, _ in elements)
    widths = tuple(width if word is None else 1 for word, width in elements)
    slots = frozenset(at for at, word in enumerate(names) if word is None and free)
    template = Template(names, widths, rest, slots)
    event = Reading(words, [word or "7" for word in words])

    values = template.match(event, is_outcome)

    assert (values is not None) == slow_match(template, words)
    if values is not None:
        assert len(values) == names.count(None)
        assert all(values)


LINES = st.lists(
    st.sampled_from(
        (
            "user ann bob 42 10.0.0.7 failed ERROR /var/log/x a=b (uid=0) [1, 2] 'x y' HTTP/1.1\" "
            '503 17 … ... -- 3 ms é \x1b[31mred <b> Jan 5 10:00:01 {"k": 1} x@y.z\n '
            "0/SUCCESS 1/FAILURE a=2/FAILURE, can't java.io.IOException"
        ).split(" ")
    )
    | st.just("E1126 10:00:01"),  # many make a pattern that is cut, with an ellipsis before it
    min_size=1,
    max_size=12,
).map(" ".join)


@pytest.mark.parametrize("recipe", ["logs", "text", "java32", "letters5", "words"])
@example(line="user E1126 10:00:01 … " + "user E1126 10:00:01 " * 8)
@given(line=LINES)
def test_an_event_matches_the_pattern_that_is_shown_of_it(recipe: str, line: str) -> None:
    patterns = Patterns(load_recipe(recipe))
    value = line.encode()
    event = read_event(patterns.pieces(value))
    shown = patterns.pattern(value)
    try:
        template = read_pattern(shown)
    except ValueError:
        return  # it has no words
    if recipe not in ("logs", "text"):  # placeholders of masks stand in the text itself
        return

    assert template.match(event, lambda _: False) is not None, (shown, event, template)


def test_slots_hold_the_values_of_the_event() -> None:
    template = read_pattern("session opened for user <*> by (uid=<number>)")
    patterns = Patterns(load_recipe("logs"))
    event = read_event(patterns.pieces(b"session opened for user bob by (uid=7)"))

    assert template.match(event, is_outcome) == ("bob", "7")


def test_a_slot_never_stands_for_an_outcome() -> None:
    template = read_pattern("job <*> ended <*>")
    patterns = Patterns(load_recipe("logs"))

    def matches(line: bytes) -> bool:
        return template.match(read_event(patterns.pieces(line)), is_outcome) is not None

    assert matches(b"job backup ended early")
    assert not matches(b"job backup ended failed")


def test_the_pattern_of_a_long_event_matches_by_its_beginning() -> None:
    patterns = Patterns(load_recipe("logs"))
    value = b"cannot open " + b" ".join(b"w" + b"x" * (n % 7) for n in range(200)) + b" today"
    shown = patterns.pattern(value)
    template = read_pattern(shown)

    assert len(shown) == 300
    assert template.rest
    assert template.match(read_event(patterns.pieces(value)), is_outcome) is not None


@pytest.mark.parametrize("pattern", ["<*>", "", "<*> <number> (<ipv4>)", " … ", "- -- ="])
def test_a_pattern_of_everything_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="has no word"):
        read_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [("word " * 100_000, "characters"), ("a <*> b " * 490, "words and slots")],
)
def test_a_pattern_that_is_too_long_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_pattern(pattern)


def test_matching_takes_bounded_steps_on_hostile_patterns() -> None:
    template = read_pattern("a <*> <*> <*> <*> <*> <*> <*> <*> " * 40)
    event = Reading(["a"] * 2_000, ["a"] * 2_000)

    assert template.match(event, is_outcome) is None


@pytest.mark.parametrize(
    ("pattern", "slot", "shown"),
    [
        ("job <*> ended <*>", 1, "job x ended <*>"),
        ("job <*> ended <*>", 2, "job <*> ended x"),
        ("job <*>, <*> ended <*>", 1, "job x ended <*>"),
        ("port <number> of <*>", 1, "port <number> of <*>"),
        ("got <5xx> <*> of <*>", 1, "got <5xx> x of <*>"),
    ],
)
def test_a_value_is_shown_where_it_stands(pattern: str, slot: int, shown: str) -> None:
    assert with_value(pattern, slot, "x") == shown


@given(st.lists(st.sampled_from(["<*>", "<number>", "<2xx>", "job", ",", "of"]), min_size=1))
def test_slots_are_counted_as_rules_count_them(parts: list[str]) -> None:
    pattern = "at " + " ".join(parts)
    slots = read_pattern(pattern).slots

    for slot in range(1, slots + 1):
        assert with_value(pattern, slot, "x").count("x") <= pattern.count("x") + 1
        assert read_pattern(with_value(pattern, slot, "x")).slots in {slots, slots - 1}
    assert with_value(pattern, slots + 1, "x") == pattern

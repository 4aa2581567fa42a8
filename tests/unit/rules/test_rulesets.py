from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.errors import RuleConflict, RuleError
from stream_dedup.rules import file
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind, Undoing
from stream_dedup.rules.ruleset import RuleSet
from tests.effort import scaled

MERGE = PatternRule(RuleKind.MERGE, ("job <*> ended now", "task <*> is over here"))
APART = PatternRule(RuleKind.NEVER_MERGE, ("user ann logged in here", "user bob logged in here"))


def clusters(lines: list[str], *rules: PatternRule) -> list[int | None]:
    """Return the cluster of each line, as the numbers of those that came first."""
    decisions = Deduplicator(rules=rules).process(lines)
    numbers: dict[int | None, int] = {}
    return [numbers.setdefault(decision.cluster, len(numbers)) for decision in decisions]


def keep(per_minute: int) -> PatternRule:
    return PatternRule(RuleKind.KEEP, ("task <*> is over here",), per_minute=per_minute)


def withheld(lines: list[str], seconds: list[int], *rules: PatternRule) -> list[str]:
    """Return by which kind of rule each line is withheld."""
    times_us = [second * 1_000_000 for second in seconds]
    return [d.withheld for d in Deduplicator(rules=rules).process(lines, times_us=times_us)]


def test_merged_patterns_are_one_cluster() -> None:
    lines = ["job a ended now", "task b is over here", "job c ended now", "other line 7"]

    assert clusters(lines, MERGE) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "pattern",
    ["<error> <timestamp> <number> …", "<error> <timestamp> <number> a.go:<number>] sync was late"],
)
def test_a_rule_about_errors_of_klog_takes_no_others(pattern: str) -> None:
    lines = [f"{letter}1126 10:00:01.5 7 a.go:5] sync was late" for letter in "EIWFEIWF"]

    mute = PatternRule(RuleKind.MUTE, (pattern,))
    assert withheld(lines, [0] * 8, mute) == [*[""] * 4, "mute", "", "", ""]


def test_merged_patterns_may_differ_in_outcome() -> None:
    rule = PatternRule(RuleKind.MERGE, ("job <*> ended OK", "job <*> ended FAILED"))

    assert clusters(["job 1 ended OK", "job 2 ended FAILED"]) == [0, 1]
    assert clusters(["job 1 ended OK", "job 2 ended FAILED"], rule) == [0, 0]


def test_patterns_kept_apart_share_no_cluster() -> None:
    lines = [f"user {name} logged in here" for name in "ann bob cid dan eve fay gus hal".split()]
    learned = clusters(lines * 2)
    apart = clusters(lines * 2, APART)

    assert learned[-8:] == [learned[-1]] * 8
    assert apart[8] != apart[9]
    assert {apart[8], apart[9]} & set(apart[10:]) == set()


@pytest.mark.parametrize(
    ("pattern", "slot", "value", "lines"),
    [
        ("port <number> is closed", 1, "22", ["port 22 is closed", "port 23 is closed"]),
        ("job <*> ended", 1, "backup", ["job backup ended", "job x ended"]),
    ],
)
def test_a_value_is_split_off(pattern: str, slot: int, value: str, lines: list[str]) -> None:
    rule = PatternRule(RuleKind.SPLIT, (pattern,), slot, value)

    assert clusters([*lines, lines[0]], rule) == [0, 1, 0]


def test_a_slot_that_is_never_variable_makes_clusters_by_value() -> None:
    rule = PatternRule(RuleKind.NEVER_VARIABLE, ("port <number> is closed",), 1)
    lines = ["port 1 is closed", "port 2 is closed", "port 1 is closed"]

    assert clusters(lines) == [0, 0, 0]
    assert clusters(lines, rule) == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "others", "slot", "value", "shown"),
    [
        (RuleKind.NEVER_MERGE, ["a task"], 0, "", "job <*> left <*> now"),
        (RuleKind.SPLIT, [], 2, "home", "job <*> left home now"),
        (RuleKind.NEVER_VARIABLE, [], 2, "", "job <*> left home now"),
    ],
)
def test_what_is_kept_apart_is_shown_with_its_variables(
    kind: RuleKind, others: list[str], slot: int, value: str, shown: str
) -> None:
    rule = PatternRule(kind, ("job <*> left <*> now", *others), slot, value)
    dedup = Deduplicator(rules=[rule])
    decisions = dedup.process(["job a left home now", "job b left home now"])
    (summary,) = dedup.close()

    assert (summary.count, summary.pattern) == (2, shown)
    assert dedup.pattern(summary) == shown
    assert decisions[0].cluster == decisions[1].cluster


def test_a_word_that_is_always_variable_joins_at_once() -> None:
    rule = PatternRule(RuleKind.ALWAYS_VARIABLE, ("job x ended OK",), value="OK")

    assert clusters(["job x ended OK", "job x ended FAILED"]) == [0, 1]
    assert clusters(["job x ended OK", "job x ended FAILED"], rule) == [0, 0]


def test_groups_are_never_joined() -> None:
    dedup = Deduplicator(rules=[MERGE])
    one, two = dedup.process(["job a ended now", "task b is over here"], groups=["x", "y"])

    assert one.cluster != two.cluster


def test_a_name_holds_for_all_that_is_merged_with_the_pattern() -> None:
    name = PatternRule(RuleKind.NAME, ("task <*> is over here",), value="the end")
    dedup = Deduplicator(rules=[MERGE, name])
    dedup.process(["job a ended now", "task b is over here", "other"])

    assert sorted((s.name, s.pattern, s.count) for s in dedup.close()) == [
        ("", "other", 1),
        ("the end", "job <*> ended now", 2),
    ]


def test_repeats_of_a_muted_pattern_are_withheld() -> None:
    mute = PatternRule(RuleKind.MUTE, ("task <*> is over here",))
    lines = ["job a ended now", "task b is over here"] * 2

    assert withheld(lines, [0] * 4, mute) == ["", "", "", "mute"]


def test_so_many_leave_a_minute_as_a_rule_keeps() -> None:
    lines, times = ["task a is over here", "job a ended now"] * 5, [0] * 8 + [60, 60]

    assert withheld(lines, times, keep(2)) == [*[""] * 4, "keep", "", "keep", "", "", ""]


def test_the_first_event_of_each_cluster_leaves_and_counts() -> None:
    never = PatternRule(RuleKind.NEVER_VARIABLE, ("task <*> is over here",), 1)
    lines = [f"task {name} is over here" for name in ("a", "b", "c", "a", "b")]

    assert withheld(lines, [0] * 5, never, keep(2)) == ["", "", "", "keep", "keep"]


def test_a_limit_holds_for_all_that_is_merged() -> None:
    lines = ["job a ended now", "task b is over here"] * 2

    assert withheld(lines, [0] * 4, MERGE, keep(2)) == ["", "", "keep", "keep"]


def test_of_two_limits_that_of_the_narrower_pattern_acts() -> None:
    wide = PatternRule(RuleKind.MUTE, ("task <*> is over <*>",))

    assert withheld(["task a is over here"] * 3, [0] * 3, wide, keep(2)) == ["", "", "keep"]


def test_one_event_at_a_time_is_limited_too() -> None:
    dedup = Deduplicator(rules=[keep(2)])
    decisions = [dedup.process_one("task a is over here", time_us=0) for _ in range(4)]

    assert [decision.withheld for decision in decisions] == ["", "", "keep", "keep"]
    assert sum(summary.count for summary in dedup.close()) == 4


def test_changed_limits_act_on_what_follows() -> None:
    dedup = Deduplicator(rules=[keep(1)])
    line = ["task a is over here"] * 2
    before = dedup.process(line, times_us=[0, 0])
    dedup.use_rules([keep(2)])
    after = dedup.process(line, times_us=[0, 0])
    dedup.use_rules([])
    last = dedup.process(line, times_us=[0, 0])

    assert [each.withheld for each in (*before, *after, *last)] == ["", "keep", *[""] * 4]


@pytest.mark.parametrize(
    "other", [PatternRule(RuleKind.MUTE, ("task <number> is over, here",)), keep(3)]
)
def test_two_limits_of_one_pattern_are_refused_and_named(other: PatternRule) -> None:
    book = RuleBook().add(keep(2))
    with pytest.raises(RuleConflict) as raised:
        book.add(other)

    assert sorted(raised.value.rules) == sorted([keep(2).id, other.id])
    assert "limit one pattern" in str(raised.value)


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (keep(0), "per_minute"),
        (keep(1_000_001), "per_minute"),
        (PatternRule(RuleKind.MUTE, ("task a here",), per_minute=2), "per_minute"),
        (PatternRule(RuleKind.KEEP, ("task a here",), value="2", per_minute=2), "value"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_key(rule: PatternRule, key: str) -> None:
    with pytest.raises(RuleError) as raised:
        RuleBook().add(rule)

    assert raised.value.key == key


def test_a_limit_is_read_as_it_was_written() -> None:
    text = file.written([keep(20)])

    assert "per_minute = 20" in text
    assert file.read(text, "rules.toml").rules == (keep(20),)
    with pytest.raises(RuleError, match="per_minute: '2' is not a number"):
        file.read(text.replace("20", "'2'"), "rules.toml")


def test_one_event_at_a_time_follows_rules_too() -> None:
    dedup = Deduplicator(rules=[MERGE])
    lines = ["job a ended now", "task b is over here"] * 5
    decisions = [dedup.process_one(line) for line in lines]

    assert len({decision.cluster for decision in decisions}) == 1
    dedup.use_rules([])
    assert dedup.process_one(lines[0]).kind == "new"


def test_a_number_that_is_split_off_stays_apart_where_others_merge() -> None:
    split = PatternRule(RuleKind.SPLIT, ("job <*> ended",), 1, "7", id="r1")
    merge = PatternRule(RuleKind.MERGE, ("job <*> ended", "job a ended"), id="r2")
    dedup = Deduplicator(rules=[split, merge])
    lines = ["job a ended", "job 7 ended", "job 8 ended"] * 2
    a, seven, eight, *again = [dedup.process([line])[0].cluster for line in lines]

    assert a == eight != seven
    assert again == [a, seven, eight]


RULES = st.lists(
    st.one_of(
        st.builds(
            PatternRule,
            st.sampled_from([RuleKind.MERGE, RuleKind.NEVER_MERGE]),
            st.lists(
                st.sampled_from(
                    ["job <*> ended", "job a ended", "job b ended", "<*> a ended", "task <*> ended",
                     "<*> <*> ended", "job <number> ended", "job a …"]
                ),
                min_size=2, max_size=3, unique=True,
            ).map(tuple),
        ),
        st.builds(
            PatternRule, st.just(RuleKind.SPLIT),
            st.sampled_from([("job <*> ended",), ("<*> <*> ended",), ("<*> a ended",)]),
            st.just(1), st.sampled_from(["a", "b", "7", "task"]),
        ),
        st.builds(
            PatternRule, st.just(RuleKind.NEVER_VARIABLE),
            st.sampled_from([("job <*> ended",), ("task <*> ended",)]), st.just(1),
        ),
        st.builds(
            PatternRule, st.just(RuleKind.ALWAYS_VARIABLE),
            st.sampled_from([("job a ended",), ("task b ended",)]), st.just(0),
            st.sampled_from(["ended", "job", "task"]),
        ),
    ),
    max_size=5,
)  # fmt: skip
EVENTS = st.lists(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["job", "task", "x"]),
        st.sampled_from(["a", "b", "c", "7", "8"]),
        st.sampled_from(["ended", "ended", "over"]),
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=scaled(300))
@given(rules=RULES, lines=EVENTS)
def test_what_a_rule_keeps_apart_never_shares_a_cluster(
    rules: list[PatternRule], lines: list[str]
) -> None:
    chosen: list[PatternRule] = []
    for number, rule in enumerate(rules):
        try:
            RuleSet([*chosen, replace(rule, time_us=number, id=f"r{number}")])
        except RuleError:
            continue
        chosen.append(replace(rule, time_us=number, id=f"r{number}"))
    acting = Deduplicator(rules=chosen)
    found = {line: acting.process([line])[0].cluster for line in lines * 2}
    alone = {
        line: [_sides(rule, line) for rule in chosen if rule.kind in _KEEP_APART] for line in found
    }

    for one, sides in alone.items():
        for two, others in alone.items():
            if found[one] == found[two]:
                for mine, theirs in zip(sides, others, strict=True):
                    assert not (mine and theirs and not mine & theirs), (one, two, chosen)


_KEEP_APART = (RuleKind.NEVER_MERGE, RuleKind.SPLIT, RuleKind.NEVER_VARIABLE)


def _sides(rule: PatternRule, line: str) -> set[str]:
    """Return the sides of one rule on which a line is, by the slow definition."""
    words = line.split()
    sides = set()
    for pattern in rule.patterns:
        elements = pattern.split()
        rest = elements[-1] == "…"
        elements = elements[:-1] if rest else elements
        # In these patterns several slots side by side stand for as many words or fewer.
        least = 0
        for element in elements:
            least += not element.startswith("<")
        slots = [at for at, element in enumerate(elements) if element.startswith("<")]
        if len(elements) != len(words) and not (rest and len(words) > len(elements)):
            continue
        if not all(
            element.startswith("<") or element == word
            for element, word in zip(elements, words, strict=False)
        ):
            continue
        if rule.kind is RuleKind.NEVER_MERGE:
            sides.add(pattern)
            continue
        value = " ".join(words[at] for at in slots)
        if rule.kind is RuleKind.NEVER_VARIABLE:
            sides.add(value)
        else:
            sides.add("split off" if value == rule.value else "rest")
    return sides


@settings(max_examples=scaled(200))
@given(rules=RULES, lines=EVENTS)
def test_the_identity_of_an_event_depends_on_nothing_before_it(
    rules: list[PatternRule], lines: list[str]
) -> None:
    named = [replace(rule, time_us=at, id=f"r{at}") for at, rule in enumerate(rules)]
    try:
        RuleSet(named)
    except RuleError:
        return
    dedup = Deduplicator(rules=named)
    acting = dedup.engine.rules
    if acting is None:
        return
    together = [acting.one(n, line.encode(), None) for n, line in enumerate(lines)]
    for number, line in enumerate(lines):
        fresh = Deduplicator(rules=named, key=dedup._index.key.secret()).engine.rules
        assert fresh is not None
        assert fresh.one(number, line.encode(), None) == together[number]


# ---------------------------------------------------------------- contradictions


def _rule(kind: str, *patterns: str, slot: int = 0, value: str = "") -> PatternRule:
    return PatternRule(RuleKind(kind), patterns, slot, value)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (_rule("merge", "a b", "c d"), _rule("never_merge", "c d", "a b")),
        (_rule("merge", "job a end", "job b end"), _rule("never_variable", "job <*> end", slot=1)),
        (_rule("merge", "job <*> end", "x y"), _rule("never_variable", "job <*> end", slot=1)),
        (
            _rule("merge", "job a end", "job <*> end"),
            _rule("split", "job <*> end", slot=1, value="a"),
        ),
        (
            _rule("always_variable", "job a end", value="a"),
            _rule("never_variable", "job <*> end", slot=1),
        ),
        (
            _rule("always_variable", "job <*> end"),
            _rule("split", "job <*> end", slot=1, value="a"),
        ),
        (
            _rule("always_variable", "job x end", value="x"),
            _rule("never_merge", "job a end", "job b end"),
        ),
        (_rule("name", "job <*> end", value="x"), _rule("name", "job <number> end", value="y")),
    ],
)
def test_rules_that_contradict_each_other_are_refused(one: PatternRule, two: PatternRule) -> None:
    for first, second in ((one, two), (two, one)):
        with pytest.raises(RuleConflict) as caught:
            RuleBook().add(first).add(second)

        assert set(caught.value.rules) == {one.id, two.id}
        assert all(rule.id in str(caught.value) for rule in (one, two))


def test_what_is_merged_by_way_of_others_contradicts_too() -> None:
    merges = [_rule("merge", "a b", "c d"), _rule("merge", "c d", "e f")]

    with pytest.raises(RuleConflict, match="merge would join what never_merge keeps apart"):
        RuleBook().add(*merges, _rule("never_merge", "a b", "e f"))


# ---------------------------------------------------------------- books and files


def test_an_undone_rule_stays_in_the_audit_list() -> None:
    rule = replace(MERGE, author="ann", time_us=1_000_000, reason="one program")
    book = RuleBook().add(rule).undo(rule.id, Undoing("bob", 2_000_000, "two programs"))

    assert [(e.time_us, e.action, e.author, e.reason) for e in book.audit()] == [
        (1_000_000, "add", "ann", "one program"),
        (2_000_000, "undo", "bob", "two programs"),
    ]
    assert book.acting() == []
    with pytest.raises(RuleError, match="was undone before"):
        book.undo(rule.id, Undoing("bob", 3_000_000))


def test_a_file_gives_back_what_was_written() -> None:
    rules = [
        replace(MERGE, author="ann", time_us=1_700_000_000_123_456, reason='"quoted" \\ ü'),
        replace(APART, undone=Undoing("bob", 5_000_000, "no")),
        _rule("split", "port <number> is closed", slot=1, value="22"),
        _rule("name", "a b", value="x"),
        _rule("always_variable", "job x end", value="x"),
        _rule("mute", "a b c"),
    ]

    assert file.read(file.written(rules), "rules.toml").rules == tuple(rules)


def test_a_file_holds_nothing_that_a_terminal_obeys() -> None:
    hostile = _rule("mute", "job \x1b[2J \x9b31m \u202e gone \u200b here \U000e0001 \x7f end")
    text = file.written([hostile])

    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert file.read(text, "rules.toml").rules == (hostile,)


@pytest.mark.parametrize("name", ["r-\x1b[2J", "a/b", "a b", "é", "-r", "x" * 65, "r\n"])
def test_an_id_that_is_no_plain_word_is_refused(name: str) -> None:
    text = f"[[rules]]\nkind = 'mute'\npattern = 'a b'\nid = {json.dumps(name)}\n"
    with pytest.raises(RuleError, match=r"id: .* is not an id; give at most 64 of"):
        file.read(f"{text}undone = {{ author = 'ann' }}\n", "rules.toml")


def test_a_pattern_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RuleError, match=r"pattern: 'job \\udcff ended' is not UTF-8"):
        RuleBook().add(_rule("mute", "job \udcff ended"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules = 7", "rules.toml: rules: is not a list of tables; write"),
        (
            "[[rules]]\nkind = 'join'",
            "rules.toml: rules[0]: kind: 'join' is not one of merge, split, never_merge",
        ),
        ("[[rules]]\nkind = 'mute'\npattern = 7", "rules.toml: rules[0]: patterns: are not a list"),
        ("[[rules]]\nkind = 'mute'\npattern = '<*>'", "pattern: '<*>' has no word"),
        ("[[rules]]\nkind = 'mute'\npattern = 'a'\nslot = 1", "slot: is 1; leave it out of mute"),
        ("[[rules]]\nkind = 'split'\npattern = 'a'\nslot = 1\nvalue = 'x'", "slot: is 1, and"),
        ("[[rules]]\nkind = 'name'\npattern = 'a'\nname = \"\\u001b[2J\"", "name: '\\x1b[2J'"),
        ("[[rules]]\nkind = 'merge'\npatterns = ['a']", "patterns: has 1; give 2 to 16"),
        ("x", "rules.toml: is not TOML"),
    ],
)
def test_errors_of_a_file_name_key_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        file.read(text, "rules.toml")

    assert message in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_importing_again_changes_nothing() -> None:
    book = RuleBook().add(MERGE)
    undone = replace(MERGE, undone=Undoing("bob", 1))

    assert book.merged([MERGE, APART]).merged([MERGE, APART]).rules == (MERGE, APART)
    assert book.merged([undone]).rules == (undone,)
    assert book.merged([undone]).merged([MERGE]).rules == (undone,)

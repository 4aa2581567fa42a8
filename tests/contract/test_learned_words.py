"""What every index does where a recipe learns words: find by words, learn slots, merge clusters."""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import pytest

from stream_dedup.clustering.learning import MAX_MOVED, MAX_POSTINGS
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.features.recipe import Match, Recipe, replace
from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import pack, pattern_keys
from stream_dedup.index.base import ClusterDelta, Limits, Query, Resolution
from stream_dedup.index.redis import namespace
from stream_dedup.model import Closing, Decision, FoundBy, Kind, Partition, Position, Summary
from tests.contract.driver import ADAPTERS, HERE, START_US, THERE, Driver, S, Setup, delta
from tests.effort import scaled

pytestmark = [pytest.mark.simhash, pytest.mark.one_node]

Start = Callable[..., Driver]
LEARNS = Recipe(match=Match(k=3, jaccard=0.9, learn=5))
NO_ALIASES = Recipe(match=Match(k=3, jaccard=0.9, aliases=0, learn=5))
FINAL_ONLY = Summaries(every_us=None)
HOUR_S = 3600
PAST_S = 30 * 24 * HOUR_S
NAMES = ["alice", "bob", "carol", "dave", "erin", "frank", "gina"]


def hash_of(word: str) -> int:
    return mix(int.from_bytes(word.encode(), "big") % (2**61 - 1))


def without_placeholders(tokens: list[str]) -> tuple[list[str], int]:
    """The words of a line, and where its placeholders are, as `pattern_keys` takes it."""
    gaps, words = 0, list[str]()
    for each in tokens:
        if each == "#":
            gaps |= 1 << len(words)
        else:
            words.append(each)
    return words, gaps


def asked(
    offset: int,
    line: str,
    at_s: float = 0,
    *,
    group: str = "",
    partition: Partition = HERE,
    variables: str = "",
    assigned: tuple[bool, ...] = (),
) -> Query:
    """The query of a line of words; no two different lines have fingerprints that are near.

    The word `#` is a placeholder. `INFO` is a log level, and so is not learned; it does not count,
    and neither does a dash.
    """
    words, gaps = without_placeholders(line.split())
    hashes = [hash_of(word) for word in words]
    exact = hash_of(line + variables)
    fingerprint = mix(exact)
    time_us = START_US + round(at_s * S)
    position = Position(partition.source, partition.number, offset)
    sketch = array("Q", sorted(set(hashes))).tobytes()
    levels, uncounted = (
        [word == "INFO" for word in words],
        [word in ("INFO", "-") for word in words],
    )
    one_off = pack(pattern_keys(hashes, levels, assigned, levels, uncounted, gaps))
    return Query(group, exact, fingerprint, sketch, True, time_us, time_us, position, one_off)


def add(index: Driver, offset: int, line: str, at_s: float = 0, **more: object) -> Resolution:
    """Resolve and record one line."""
    (answer,) = index.resolve(asked(offset, line, at_s, **more))  # type: ignore[arg-type]
    assert index.count(offset, delta(answer, at_s=at_s), at_s=at_s) == frozenset()
    return answer


def session(name: str) -> str:
    return f"session closed for user {name}"


def by_cluster(summaries: list[Summary]) -> dict[int, Summary]:
    return {summary.cluster: summary for summary in summaries}


def finals(index: Driver) -> dict[int, Summary]:
    index.finish()
    return by_cluster(index.confirm_all())


def late(query: Query, at_us: int) -> Query:
    """The query of the representative of a cluster that was last seen then."""
    return query._replace(first_us=at_us, last_us=at_us)


# ---------------------------------------------------------------- finding


@pytest.mark.parametrize(
    ("line", "wanted"), [("unpacking {}", 20), ("unpacking package {}", 10), ("a b c {}", 5)]
)
def test_fewer_words_around_want_more_values(start: Start, line: str, wanted: int) -> None:
    index = start(recipe=LEARNS)
    answers = [add(index, n, line.format(f"name{n}"), n) for n in range(wanted + 2)]
    assert [answer.found_by for answer in answers] == [FoundBy.NEW] * (wanted - 1) + [
        FoundBy.LEARNED
    ] * 3
    assert {answer.cluster for answer in answers[wanted - 1 :]} == {answers[0].cluster}
    closed = finals(index)
    merged = [one for one in closed.values() if one.closing is Closing.MERGED]
    assert [one.merged_into for one in merged] == [answers[0].cluster] * (wanted - 2)
    assert sum(one.count for one in closed.values()) == wanted + 2


def upload(user: str, bucket: str) -> str:
    return f"user {user} uploaded a file to {bucket}"


BUCKETS = ["logs", "images", "backups", "reports", "exports", "imports"]


def put(user: str, bucket: str) -> str:
    """A line of which two words are too few to find those that are new in both others."""
    return f"put {user} {bucket} now"


def test_a_line_that_fits_two_patterns_merges_them(start: Start) -> None:
    index = start(recipe=LEARNS)
    offset = iter(range(100))
    for name in NAMES[:5]:
        by_user = add(index, next(offset), put(name, "logs"))
    for bucket in BUCKETS[1:]:
        by_bucket = add(index, next(offset), put("gina", bucket))
    assert by_user.cluster != by_bucket.cluster
    assert (by_user.found_by, by_bucket.found_by) == (FoundBy.LEARNED, FoundBy.LEARNED)
    both = add(index, next(offset), put("gina", "logs"), 1)
    assert (both.cluster, both.found_by) == (by_user.cluster, FoundBy.LEARNED)
    assert add(index, next(offset), put("gina", "music"), 2).cluster == by_user.cluster
    assert add(index, next(offset), put("hugo", "logs"), 2).cluster == by_user.cluster
    closed = finals(index)
    assert closed[by_bucket.cluster].merged_into == by_user.cluster
    assert closed[by_user.cluster].learned == 1 << 1 | 1 << 2  # the user, the bucket
    assert sum(one.count for one in closed.values()) == next(offset)


def test_a_line_of_a_known_variable_completes_another_place(start: Start) -> None:
    index = start(recipe=LEARNS)
    offset = iter(range(100))
    for bucket in BUCKETS[1:5]:
        waiting = add(index, next(offset), put("gina", bucket))
    for name in NAMES[:5]:
        by_user = add(index, next(offset), put(name, "logs"), 1)
    assert waiting.found_by is FoundBy.NEW
    add(index, next(offset), put("gina", "logs"), 2)  # the fifth bucket
    root = add(index, next(offset), put("gina", "images"), 3)
    assert add(index, next(offset), put("gina", "music"), 3).cluster == root.cluster
    assert add(index, next(offset), put("hugo", "logs"), 3).cluster == root.cluster
    closed = finals(index)
    assert len([one for one in closed.values() if one.merged_into is None]) == 1
    assert closed[by_user.cluster].merged_into == root.cluster
    assert closed[root.cluster].learned == 1 << 1 | 1 << 2
    assert sum(one.count for one in closed.values()) == next(offset)


def test_five_words_beside_one_that_varies_are_too_few(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for name in NAMES[:5]:
        root = add(index, next(offset), upload(name, "logs"))
    for bucket in BUCKETS[1:5]:
        assert add(index, next(offset), upload("gina", bucket)).new
    assert add(index, next(offset), upload("gina", "logs")).cluster == root.cluster  # the fifth
    assert finals(index)[root.cluster].learned == 1 << 1


def test_a_cluster_of_another_variable_is_no_value(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for bucket in BUCKETS[:5]:
        by_bucket = add(index, next(offset), upload("alice", bucket))
    others = [add(index, next(offset), upload(name, "logs")) for name in NAMES[1:5]]
    assert all(answer.new for answer in others)  # with that of alice the fifth user
    fifth = add(index, next(offset), upload("frank", "logs"))
    assert (fifth.cluster, fifth.found_by) == (others[0].cluster, FoundBy.LEARNED)
    learned = {one.cluster: one.learned for one in finals(index).values()}
    assert (learned[by_bucket.cluster], learned[fifth.cluster]) == (1 << 6, 1 << 1)


def test_a_line_of_a_known_variable_notes_no_values(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES):
        root = add(index, n, upload(name, "logs"))
    for n, bucket in enumerate(BUCKETS[1:5]):
        other = add(index, 10 + n, upload("gina", bucket))  # four, and "logs" of the root
    assert other.found_by is FoundBy.NEW
    assert root.cluster != other.cluster


def test_a_word_in_the_place_of_a_placeholder_is_the_same_cluster(start: Start) -> None:
    index = start(recipe=LEARNS)
    masked = add(index, 0, "connection # refused")
    word = add(index, 1, "connection localhost refused")
    assert (masked.found_by, word.found_by) == (FoundBy.NEW, FoundBy.NEW)  # two words in common
    masked = add(index, 2, "new connection from # refused")
    word = add(index, 3, "new connection from localhost refused")
    assert (word.cluster, word.found_by) == (masked.cluster, FoundBy.WORDS)
    word = add(index, 4, "lost the connection to localhost")  # at the end, the word first
    masked = add(index, 5, "lost the connection to #")
    assert (masked.cluster, masked.found_by) == (word.cluster, FoundBy.WORDS)


def test_a_placeholder_elsewhere_is_not_in_its_place(start: Start) -> None:
    index = start(recipe=LEARNS)
    lines = ["job # of backup done", "job # of nightly backup done", "job of backup # done"]
    assert all(add(index, n, line).new for n, line in enumerate(lines[:2]))
    assert not add(index, 2, lines[2]).new  # equal words
    assert add(index, 3, "job nightly of backup done").cluster == add(index, 4, lines[0]).cluster


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("session closed for uid #", "session closed for uid # unexpectedly"),
        ("copied # files from the disk", "copied # hidden files from the disk"),
        ("reply came in # from the cache", "reply came in directly # from the cache"),
    ],
)
@pytest.mark.parametrize("longer_first", [False, True])
def test_a_word_beside_a_placeholder_is_not_replaced_by_it(
    start: Start, line: str, more: str, *, longer_first: bool
) -> None:
    index = start(recipe=LEARNS)
    lines = [more, line] if longer_first else [line, more]
    assert all(add(index, n, each).new for n, each in enumerate(lines))


def test_six_other_words_let_a_word_be_missing(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "connection to server closed by the peer")
    more = add(index, 1, "connection to server was closed by the peer")
    less = add(index, 2, "connection to server closed by peer")
    assert [more.cluster, less.cluster] == [first.cluster] * 2
    assert [first.found_by, more.found_by, less.found_by] == [
        FoundBy.NEW,
        FoundBy.WORDS,
        FoundBy.WORDS,
    ]
    assert add(index, 3, "connection server closed by peer").new  # five


@pytest.mark.parametrize("longer_first", [False, True])
@pytest.mark.parametrize(
    ("line", "longer", "merges"),
    [
        # Nothing replaces the word: of the others five count, or six.
        ("INFO peer - got packet from bob", "INFO peer - got bad packet from bob", False),
        ("INFO peer - got packet from user bob", "INFO peer - got bad packet from user bob", True),
        ("INFO peer got packet from bob", "INFO peer got - packet from bob", False),
        ("INFO peer got packet from user bob", "INFO peer got - packet from user bob", True),
        # A placeholder does: of three others two count, or one.
        ("INFO # shut down", "INFO worker shut down", True),
        ("INFO - # stopped", "INFO - worker stopped", False),
        ("- worker # -", "- worker stopped -", False),
    ],
)
def test_levels_and_dashes_are_no_words_in_common(
    start: Start, line: str, longer: str, *, merges: bool, longer_first: bool
) -> None:
    index = start(recipe=LEARNS)
    lines = [longer, line] if longer_first else [line, longer]
    first, second = (add(index, n, each) for n, each in enumerate(lines))
    assert (second.cluster == first.cluster) == merges


def test_the_last_word_is_not_missing_with_nothing_in_its_place(start: Start) -> None:
    index = start(recipe=LEARNS)
    lines = ["user session for the tenant acme closed", "mail to the user in queue delivered late"]
    lines += [f"{lines[0]} unexpectedly", lines[1].removesuffix(" late")]
    assert all(add(index, n, line).new for n, line in enumerate(lines))


def test_what_has_joined_by_one_word_leads_no_other_line_there(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "payment for the last order is processed")
    longer = add(index, 1, "payment for the last order is now processed")
    longest = add(index, 2, "payment for the last order is now manually processed")
    shorter = add(index, 3, "payment for the order is now processed")
    assert longer.cluster == first.cluster
    assert len({first.cluster, longest.cluster, shorter.cluster}) == 3


def test_a_word_that_may_be_missing_may_be_another(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "invalid user alice from the host", 0)
    other = add(index, 1, "invalid user bob from the host", 1)
    shorter = add(index, 2, "invalid user # from the host", 2)  # the pattern shows the place
    another = add(index, 3, "invalid user carol from the host", 3)
    elsewhere = add(index, 4, "invalid user # from the new host", 4)
    assert shorter.cluster == another.cluster == first.cluster
    assert another.found_by == FoundBy.WORDS
    assert len({first.cluster, other.cluster, elsewhere.cluster}) == 3


def test_a_learned_pattern_leads_lines_of_one_word_more(start: Start) -> None:
    index = start(recipe=LEARNS)
    line = "session # closed for user {}"
    answers = [add(index, n, line.format(name)) for n, name in enumerate(NAMES[:5])]
    root = answers[-1].cluster
    assert add(index, 5, "session today closed for user bob").cluster == root


def test_words_of_a_near_line_of_one_call_lead_to_its_cluster(start: Start) -> None:
    index = start(recipe=replace(LEARNS, match__jaccard=0.5))
    first = asked(0, "alpha beta gamma delta epsilon zeta eta theta")
    near = asked(1, "alpha beta gamma delta epsilon one two theta")
    opening, joining = index.resolve(first, near._replace(fingerprint=first.fingerprint ^ 1))
    assert (joining.cluster, joining.found_by) == (opening.cluster, FoundBy.FINGERPRINT)
    assert index.count(1, delta(opening, 2)) == frozenset()
    line = "alpha beta gamma delta epsilon {} two theta"
    others = [add(index, 2 + n, line.format(name)).cluster for n, name in enumerate(NAMES[:4])]
    assert others[-1] == opening.cluster  # the fifth value


def test_a_pattern_shows_which_word_may_be_missing(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "connection to server closed by peer today")
    add(index, 1, "connection to server was closed by peer today")
    assert [known and known.learned for known in index.representatives(first.cluster)] == [0]
    add(index, 2, "connection to server closed peer today")
    assert [known and known.learned for known in index.representatives(first.cluster)] == [1 << 4]
    add(index, 3, "connection to server closed by peer #")
    assert [s.learned for s in finals(index).values()] == [1 << 4 | 1 << 6]


def test_of_a_repeated_word_the_first_one_is_not_missing(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "retry retry of the upload to storage gave up")
    less = add(index, 1, "retry of the upload to storage gave up")
    assert (less.cluster, less.found_by) == (first.cluster, FoundBy.WORDS)
    assert [s.learned for s in finals(index).values()] == [1 << 1]


def test_the_first_word_is_never_missing(start: Start) -> None:
    index = start(recipe=LEARNS)
    first = add(index, 0, "# authentication failure for the last user")
    more = add(index, 1, "another authentication failure for the last user")
    assert more.cluster != first.cluster


def test_another_word_is_another_cluster_at_first(start: Start) -> None:
    index = start(recipe=LEARNS)
    answers = [add(index, n, session(name)) for n, name in enumerate(NAMES[:4])]
    assert [answer.found_by for answer in answers] == [FoundBy.NEW] * 4


def test_equal_words_with_other_placeholders_are_one_cluster(start: Start) -> None:
    index = start(recipe=LEARNS)
    first, second = index.resolve(
        asked(0, session("alice")), asked(1, session("alice"), variables="7")
    )
    assert (second.cluster, second.found_by) == (first.cluster, FoundBy.WORDS)


def test_groups_learn_apart(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES[:4]):
        add(index, n, session(name))
    assert add(index, 4, session("erin"), group="other").new


def test_between_two_words_twice_as_many_values_are_wanted(start: Start) -> None:
    index = start(recipe=LEARNS)
    words = [f"job {name} done" for name in [*NAMES, "hugo", "ida", "jan", "kim"]]
    answers = [add(index, n, line) for n, line in enumerate(words)]
    assert [answer.new for answer in answers] == [True] * 9 + [False] * 2


# ---------------------------------------------------------------- words that vary together


def both_learned(
    index: Driver,
    offset: Iterator[int],
    at_s: float = 0,
    line: Callable[[str, str], str] = upload,
) -> Resolution:
    """Let users and buckets be learned."""
    for name in NAMES[:5]:
        add(index, next(offset), line(name, "logs"), at_s)
    for n in range(10):
        root = add(index, next(offset), line(f"user{n}", f"bucket{n}"), at_s)
    assert root.found_by is FoundBy.LEARNED
    return root


def test_a_line_new_in_two_learned_words_joins(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    root = both_learned(index, offset)
    new = add(index, next(offset), upload("zoe", "music"))
    again = add(index, next(offset), upload("yan", "films"))
    assert [new.cluster, again.cluster] == [root.cluster] * 2
    assert [new.found_by, again.found_by] == [FoundBy.LEARNED] * 2
    assert new.learned == 1 << 1 | 1 << 6


def test_other_words_beside_learned_ones_are_another_cluster(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    root = both_learned(index, offset)
    for line in (
        "user zoe downloaded a file to music",
        "user zoe uploaded a file to music again",
        "role zoe uploaded a file to music",
    ):
        assert add(index, next(offset), line).new
    assert add(index, next(offset), upload("zoe", "music"), group="other").new
    assert add(index, next(offset), upload("zoe", "music")).cluster == root.cluster


def test_words_vary_together_in_one_call_too(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    lines = [upload(name, "logs") for name in NAMES[:5]]
    lines += [upload(f"user{n}", f"bucket{n}") for n in range(10)]
    answers = index.resolve(
        *(asked(next(offset), line) for line in [*lines, upload("zoe", "music")])
    )
    assert len({answer.cluster for answer in answers}) == 1


def test_few_words_left_say_too_little(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for n in range(10):
        add(index, next(offset), f"move name{n} quickly home")
    for n in range(10):
        root = add(index, next(offset), f"move name0 quickly place{n}")
    assert root.found_by is FoundBy.LEARNED
    assert add(index, next(offset), "move zoe quickly elsewhere").new


def test_each_value_with_another_is_learned_from_twice_as_many(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for name in NAMES[:5]:
        add(index, next(offset), upload(name, "logs"))
    opened = [add(index, next(offset), upload(f"user{n}", f"bucket{n}")) for n in range(12)]
    # Nine buckets of as many users, and the line that was the first, have ten values each.
    assert [answer.new for answer in opened] == [True] * 9 + [False] * 3
    assert opened[-1].found_by is FoundBy.LEARNED
    assert add(index, next(offset), upload("zoe", "logs")).cluster == opened[-1].cluster


def test_few_verbs_beside_learned_words_stay_apart(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    verbs = ["copied", "moved", "listed", "shared", "tagged", "hid"]
    for n in range(1500):  # each user with each bucket, by three verbs at most
        add(index, next(offset), f"user user{n % 25} {verbs[n % 6]} a file of bucket{n % 23}")
    last = [add(index, next(offset), f"user {verb}er {verb} a file of {verb}s") for verb in verbs]
    assert len({answer.cluster for answer in last}) == len(verbs)
    assert not any(answer.new for answer in last)


def test_verbs_of_one_user_and_bucket_are_not_those_of_all(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    verbs = ["copied", "moved", "listed", "shared", "tagged"]

    def line(user: str, verb: str, bucket: str) -> Resolution:
        return add(index, next(offset), f"user {user} {verb} a file of {bucket}")

    for verb in verbs:
        root = line("gina", verb, "logs")  # these verbs are one variable
    for n in range(1500):
        line(f"user{n % 26}", verbs[n % 5], f"bucket{n % 23}")
    for n, verb in enumerate(verbs):  # every other verb has lines of the same user and bucket
        line("gina", verb, f"bucket{n}")
        line(f"user{n}", verb, "logs")
    last = [line(f"{verb}er", verb, f"{verb}s") for verb in verbs]
    assert len({root.cluster, *(answer.cluster for answer in last)}) == 1 + len(verbs)
    assert not any(answer.new for answer in last)


def test_clusters_from_before_words_varied_merge_later(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    early = [add(index, next(offset), upload(f"early{n}", f"bin{n}")) for n in range(7)]
    root = both_learned(index, offset)
    late = [add(index, next(offset), upload(f"early{n}", f"late{n}")) for n in range(7)]
    assert all(answer.new for answer in early)
    assert not any(answer.new for answer in late)
    closed = finals(index)
    (left,) = [one for one in closed.values() if one.merged_into is None]
    assert root.cluster != left.cluster == early[0].cluster  # the oldest of them
    assert sum(one.count for one in closed.values()) == next(offset)


def test_values_do_not_follow_a_cluster_that_merges(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for verb in ("copied", "moved", "listed", "shared"):
        for name in NAMES[:5]:
            root = add(index, next(offset), f"user {name} {verb} a file")
        assert root.found_by is FoundBy.LEARNED
    assert add(index, next(offset), "user carol tagged a file").new  # a fifth verb of hers


def test_the_postings_of_the_largest_cluster_hinder_no_merge(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    words = [f"word{n}x" for n in range(30)]

    def line(place: int, word: str) -> list[str]:
        return [*words[:place], word, *words[place + 1 :]]

    first = line(5, "a0")
    root = add(index, next(offset), " ".join(first))
    for place in range(10, 26, 2):  # each adds 30 posting lists and more
        longer = " ".join([*first[:place], f"more{place}", *first[place:]])
        assert add(index, next(offset), longer).cluster == root.cluster
    for n in range(1, 4):
        assert add(index, next(offset), " ".join(line(5, f"a{n}"))).new
    for n in range(4):
        assert add(index, next(offset), " ".join(line(9, f"b{n}"))).new
    assert add(index, next(offset), " ".join(words)).cluster == root.cluster
    assert index.size().clusters == 1


def test_two_slots_that_one_event_completes_are_learned(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for name in NAMES[:4]:
        add(index, next(offset), f"put {name} logs now")
    for bucket in BUCKETS[1:5]:
        add(index, next(offset), f"put gina {bucket} now")
    root = add(index, next(offset), "put gina logs now")
    # Two words are left, too few to find lines that are new in both.
    assert add(index, next(offset), "put gina films now").cluster == root.cluster
    assert add(index, next(offset), "put zoe logs now").cluster == root.cluster


def test_assigned_words_vary_together_with_others(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()

    def login(host: str, tty: str, user: str) -> Resolution:
        line = f"{host} login accepted on tty {tty} by {user}"
        assigned = tuple(word in (tty, user) for word in line.split())
        return add(index, next(offset), line, assigned=assigned)

    for city in ("oslo", "rome", "bonn", "lima", "kiel"):
        login(city, "ttyalice", "alice")
    for n in range(10):
        root = login(f"host{n}", f"tty{n}", f"user{n}")
    new = login("bern", "console", "zoe")
    assert (new.cluster, new.found_by) == (root.cluster, FoundBy.LEARNED)


def test_what_varies_together_is_forgotten_with_its_cluster(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    both_learned(index, offset)
    late = add(index, next(offset), upload("zoe", "music"), PAST_S)
    assert late.new
    assert add(index, next(offset), upload("yan", "films"), PAST_S + 1).new


def erase(user: str, bucket: str) -> str:
    return f"user {user} erased a file of {bucket}"


def test_words_vary_together_though_another_pattern_closes(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    both_learned(index, offset)  # the combination is listed by this cluster first
    for name in NAMES[:5]:
        add(index, next(offset), erase(name, "logs"))
    for n in range(10):
        root = add(index, next(offset), erase(f"user{n}", f"bucket{n}"))
    for n in range(1, 8):  # an hour after the last one, the other pattern closes
        answer = add(index, next(offset), erase(f"late{n}", f"bin{n}"), n * 1000)
        assert answer.cluster == root.cluster
    assert add(index, next(offset), upload("zoe", "music"), 7000).new


def test_lines_of_three_words_that_are_always_new_join(start: Start) -> None:
    index = start(recipe=LEARNS)
    lines = [
        f"task a{n % 29} assigned to worker b{n % 31} by scheduler c{n % 37}" for n in range(200)
    ]
    answers = [add(index, n, line, n) for n, line in enumerate(lines)]
    opened = sum(answer.new for answer in answers)
    assert 30 <= opened < 150
    last = answers[-1]
    assert [answer.cluster for answer in answers[opened:]] == [last.cluster] * (200 - opened)
    assert (last.found_by, last.learned) == (FoundBy.LEARNED, 1 << 1 | 1 << 5 | 1 << 8)
    (again,) = index.resolve(asked(opened - 1, lines[opened - 1], opened - 1))
    assert (again.cluster, again.new, again.learned) == (last.cluster, True, last.learned)
    assert add(index, 200, "task x canceled by worker y of scheduler z", 201).new
    closed = finals(index)
    assert sum(one.count for one in closed.values()) == 201


def test_lines_of_one_call_note_what_varies_once(start: Start) -> None:
    index = start(recipe=LEARNS)
    lines = [
        f"task a{n % 29} assigned to worker b{n % 31} by scheduler c{n % 37}" for n in range(300)
    ]
    answers = index.resolve(*(asked(n, line, n) for n, line in enumerate(lines)))
    again = index.resolve(*(asked(n, line, n) for n, line in enumerate(lines)))
    assert [answer.cluster for answer in again] == [answer.cluster for answer in answers]
    assert sum(answer.learned > 0 for answer in again) == 1
    assert not index.resolve(asked(300, "task x assigned to worker y by scheduler z", 300))[0].new


def test_what_varies_is_not_noted_for_another_text(start: Start) -> None:
    """All have the same position, as if the topic was created again: each takes the cluster."""
    index = start(recipe=LEARNS)
    lines = [
        f"task a{n % 29} assigned to worker b{n % 31} by scheduler c{n % 37}" for n in range(203)
    ]
    index.resolve(*(asked(0, line, n) for n, line in enumerate(lines)))
    (last,) = index.resolve(asked(0, lines[-1], 202))
    assert (last.new, last.learned) == (True, 0)


def test_lines_of_another_order_of_words_stay_apart(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    line = "user {} copied disk to tape then tape to disk on {}"
    for name in NAMES[:5]:
        add(index, next(offset), line.format(name, "monday"))
    for n in range(10):
        root = add(index, next(offset), line.format(f"user{n}", f"day{n}"))
    other = "user zoe copied tape to disk then disk to tape on demand"
    assert add(index, next(offset), other).new
    assert add(index, next(offset), line.format("zoe", "demand")).cluster == root.cluster


def test_a_value_counts_once_for_a_late_line(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    for name in NAMES[:5]:
        add(index, next(offset), upload(name, "logs"))

    def opened(users: str, buckets: range, at_s: float) -> list[bool]:
        lines = [upload(f"{users}{bucket}", f"bucket{bucket}") for bucket in buckets]
        return [
            index.resolve(asked(next(offset), line, at_s))[0].new for line in lines
        ]  # nothing is recorded: no cluster closes

    assert all(opened("a", range(4), 0))
    index.resolve(
        asked(next(offset), upload("frank", "logs"), 3000)
    )  # it goes on, the others do not
    assert all(opened("b", range(4), 5000))
    assert all(opened("c", range(4, 6), 3100))  # to these all are open: seven values, of ten


def test_lines_new_in_two_learned_words_are_bounded(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    both_learned(index, offset)
    before = index.size()
    for n in range(300):
        assert not add(index, next(offset), upload(f"user{n}", f"bucket{n}")).new
    assert index.size().clusters == before.clusters


TEMPLATES = [
    "user {0} wrote a {1} to {2}",
    "{3} {0} wrote a {1} to {2}",
    "{3} failed job {0} of {1} gave up on {2}",
    "accepted login of tty={0} user={1} at {2}",
    "{0} {1} {2} {3} in a row",
    "{3} {1} to {2} then {2} to {1} by {0}",
]


def random_query(random: Random, offset: int, at_s: float) -> Query:
    """The query of a line of one of a few templates, of which several words vary.

    In some lines a placeholder is in the place of a word, some have a word more, and some words
    that do not count.
    """
    words = ("ada bo cy dee ed flo gus hal ivy jo kit lou".split(), "ab cd ef gh".split())
    values = [random.choice(words[place == 1]) for place in range(4)]
    line = random.choice(TEMPLATES).format(*values)
    tokens = line.split()
    if random.random() < 0.2:
        tokens[random.randrange(len(tokens))] = "#"
    if random.random() < 0.1:
        tokens.insert(random.randrange(len(tokens) + 1), "again")
    if random.random() < 0.2:
        tokens[random.randrange(len(tokens))] = "-"
    kept, gaps = without_placeholders(tokens)
    hashes = [hash_of(word.partition("=")[2] or word) for word in kept]
    protected = [word == "failed" for word in kept]
    assigned = ["=" in word for word in kept]
    exact = mix(hash_of(" ".join(tokens)))
    uncounted = [word == "-" for word in kept]
    one_off = pack(pattern_keys(hashes, protected, assigned, uncounted=uncounted, gaps=gaps))
    late_s = random.choice([0, 0, 0, 100])
    time_us = START_US + round(max(0, at_s - late_s) * S)
    position = Position(HERE.source, HERE.number, offset)
    return Query("", exact, mix(exact), b"", False, time_us, time_us, position, one_off)


def inserted(place: int, word: str, last: str = "w19x") -> str:
    words = [f"w{n}x" for n in range(19)] + [last]
    return " ".join([*words[:place], word, *words[place:]])


def test_values_of_merged_clusters_take_no_room(start: Start) -> None:
    index, offset = start(recipe=LEARNS), count()
    lines = [inserted(1, "x", last="older"), inserted(0, "first"), inserted(1, "x")]
    lines += [inserted(20, f"y{n}") for n in range(3)]
    more = (inserted(place, f"v{place}z{n}") for place in range(2, 20) for n in range(4))
    lines += [next(more) for _ in range(MAX_POSTINGS - 5)]  # of each the other words are the same
    for line in lines:
        assert index.resolve(asked(next(offset), line))[0].new
    for n in range(3):  # the third cluster merges into the first
        (answer,) = index.resolve(asked(next(offset), inserted(1, "x", last=f"last{n}")))
    assert not answer.new
    last = [index.resolve(asked(next(offset), inserted(20, f"y{n}")))[0] for n in (3, 4)]
    assert [answer.new for answer in last] == [True, False]  # the fourth value, and the fifth


@pytest.mark.parametrize("seed", range(scaled(4)))
def test_random_lines_are_answered_as_in_memory(
    start: Start, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In memory one call answers all. Of two calls of a script the second may merge what the first
    # has answered, which `record` refuses.
    monkeypatch.setattr(namespace, "CALL_WORK", 1_000_000)
    random = Random(seed)
    recipe = Recipe(match=Match(k=3, jaccard=0.9, learn=random.choice([2, 3, 5])))
    setup = Setup(recipe, Windows(idle_us=120 * S, max_age_us=400 * S), FINAL_ONLY)
    index = start(recipe=setup.recipe, windows=setup.windows, summaries=setup.summaries)
    other = Driver(ADAPTERS["memory"].opens, setup)
    offset, at_s, sent = 0, 0.0, dict[Position, Query]()
    while offset < 600:
        queries = []
        for _ in range(random.choice([1, 5, 20])):  # one call of the script
            at_s += random.random()
            queries.append(random_query(random, offset, at_s))
            offset += 1
        answers = index.resolve(*queries)
        assert other.resolve(*queries) == answers
        times = {query.position.offset: query.first_us for query in queries}
        for driver in (index, other):
            counted = Counter(answer.cluster for answer in answers)
            deltas = [
                ClusterDelta(cluster, events, min(times.values()), max(times.values()), b"x")
                for cluster, events in counted.items()
            ]
            assert driver.count(offset - 1, *deltas, at_s=at_s) == frozenset()
        sent |= {query.position: query for query in queries}
        if random.random() < 0.3:
            claimed = by_cluster(index.claim())
            assert by_cluster(other.claim()) == claimed
            again = [late(sent[one.position], one.last_time_us) for one in claimed.values()]
            assert index.merge_fitting(*again) == other.merge_fitting(*again)
            for driver in (index, other):
                driver.confirm([*claimed.values()])
    assert index.size().clusters == other.size().clusters
    assert finals(index) == finals(other)
    other.stop()


# ---------------------------------------------------------------- merging


def test_the_fifth_value_of_a_slot_merges_its_clusters(start: Start) -> None:
    index = start(recipe=LEARNS)
    answers = [add(index, n, session(name), n) for n, name in enumerate(NAMES[:4])]
    fifth = add(index, 4, session("erin"), 4)
    later = add(index, 5, session("frank"), 5)
    again = add(index, 6, session("dave"), 6)
    assert [fifth.cluster, later.cluster, again.cluster] == [answers[0].cluster] * 3
    assert [fifth.found_by, later.found_by, again.found_by] == [
        FoundBy.LEARNED,
        FoundBy.LEARNED,
        FoundBy.EXACT,
    ]
    assert index.size().clusters == 1


def test_merged_clusters_close_with_their_own_counts(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    for n, name in enumerate([*NAMES[:4], "bob", "erin", "carol"]):
        add(index, n, session(name), n)
    alice, bob, carol, dave, *rest = finals(index).values()
    root = next(summary for summary in [alice, bob, carol, dave] if summary.merged)
    losers = [s for s in [alice, bob, carol, dave] if s is not root]
    assert not rest
    assert {s.merged_into for s in losers} == {root.cluster}
    assert {s.closing for s in losers} == {Closing.MERGED}
    assert sorted((s.cluster, s.count) for s in losers) == sorted(root.merged)
    assert (root.closing, root.merged_into) == (Closing.ENDED, None)
    assert sorted(s.count for s in losers) == [1, 1, 2]
    assert sum(s.count for s in [*losers, root]) == 7


def test_the_patterns_of_merged_clusters_show_the_slot(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    for n, name in enumerate(NAMES[:5]):
        root = add(index, n, session(name), n)
    (first,) = index.representatives(root.cluster)
    assert first is not None
    assert first.learned == 1 << 4
    assert [summary.learned for summary in finals(index).values()] == [1 << 4] * 4


def test_merged_clusters_are_named_by_one_summary_of_the_root(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=Summaries(every_us=10 * S))
    for n, name in enumerate(NAMES[:5]):
        root = add(index, n, session(name), n)
    add(index, 5, session("alice"), 60)
    emitted = [s for s in index.confirm_all() if s.cluster == root.cluster]
    again = finals(index)[root.cluster]
    assert [len(s.merged) for s in [*emitted, again]] == [3, 0]


def test_the_oldest_recorded_cluster_wins(start: Start) -> None:
    index = start(recipe=LEARNS)
    (older,) = index.resolve(asked(0, session("alice"), partition=THERE))
    recorded = add(index, 0, session("bob"), 1)
    *_, fifth = index.resolve(
        *(asked(1 + n, session(name), 2) for n, name in enumerate(NAMES[2:5]))
    )
    assert older.new
    assert fifth.cluster == recorded.cluster


def test_answers_of_a_call_name_what_is_left_of_a_merge(start: Start) -> None:
    index = start(recipe=LEARNS)
    answers = index.resolve(*(asked(n, session(name), n) for n, name in enumerate(NAMES)))
    assert {answer.cluster for answer in answers} == {answers[0].cluster}
    assert [answer.new for answer in answers] == [True] + [False] * 6
    deltas = delta(answers[0], 7)
    assert index.count(6, deltas, first_offset=0) == frozenset()
    assert [summary.count for summary in finals(index).values()] == [7]


def test_a_commit_that_names_a_merged_cluster_is_resolved_again(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES[:4]):
        add(index, n, session(name), n)
    (stale,) = index.resolve(asked(0, session("bob"), 4, partition=THERE))
    root = add(index, 4, session("erin"), 4)
    assert index.count(0, delta(stale, at_s=4), at_s=4, partition=THERE) == {stale.cluster}
    (again,) = index.resolve(asked(0, session("bob"), 4, partition=THERE))
    assert again.cluster == root.cluster
    assert index.count(0, delta(again, at_s=4), at_s=4, partition=THERE) == frozenset()
    assert sum(summary.count for summary in finals(index).values()) == 6


def test_an_opening_that_merges_before_it_is_recorded_vanishes(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES[:3]):
        add(index, n, session(name), n)
    (opened,) = index.resolve(asked(0, session("dave"), 4, partition=THERE))
    root = add(index, 3, session("erin"), 5)
    assert opened.new
    refused = index.count(0, delta(opened, at_s=4), at_s=5, partition=THERE)
    (again,) = index.resolve(asked(0, session("dave"), 4, partition=THERE))
    assert refused == {opened.cluster}
    assert (again.cluster, again.new) == (root.cluster, False)
    assert opened.cluster not in finals(index)


def test_asked_again_after_a_lost_answer_it_answers_alike(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES[:4]):
        add(index, n, session(name), n)
    query = asked(4, session("erin"), 5)
    first, again = index.resolve(query)[0], index.resolve(query)[0]
    assert (first.cluster, first.new) == (again.cluster, again.new)
    assert index.size().clusters == 1


def test_an_opening_that_merges_may_open_again_in_the_same_call(start: Start) -> None:
    index = start(recipe=NO_ALIASES)
    for n, name in enumerate(NAMES[:3]):
        add(index, n, session(name), n)
    *_, root, again, stale = index.resolve(
        asked(0, session("dave"), 4, partition=THERE),
        asked(3, session("erin"), 5),
        asked(0, "something else entirely", 5, partition=THERE),
        asked(4, session("dave"), 5),
    )
    assert again.new
    assert (stale.cluster, stale.found_by) == (root.cluster, FoundBy.LEARNED)


def test_the_journal_keeps_the_decision_of_a_merged_opening(start: Start) -> None:
    index = start(recipe=LEARNS)
    (bob,) = index.resolve(asked(0, session("bob"), partition=THERE))
    decision = Decision(Kind.NEW, bob.cluster, 0, 7)
    index.count(0, delta(bob), partition=THERE, committed=0, decisions={0: decision})
    for n, name in enumerate(["alice", "carol", "dave", "erin"]):
        add(index, n, session(name), n - 10)
    assert index.claim_partition(THERE).journal == {0: decision}
    (replayed,) = index.resolve(asked(0, session("bob"), partition=THERE))
    assert replayed.cluster != bob.cluster
    assert not replayed.new


def test_a_merged_cluster_opens_again_once_the_root_is_closed(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    answers = [add(index, n, session(name), n) for n, name in enumerate(NAMES[:5])]
    index.wait(10)
    merged = by_cluster(index.claim())
    add(index, 5, "something else entirely happened", 3 * HOUR_S)
    (again,) = index.resolve(asked(1, session("bob"), 3 * HOUR_S))
    assert (again.cluster, again.new) == (answers[1].cluster, True)
    assert merged[again.cluster].merged_into == answers[0].cluster


def test_aliases_of_a_merged_cluster_lead_to_the_root(start: Start) -> None:
    index, line = start(recipe=LEARNS), "session {} closed for user {}"
    for n, name in enumerate(NAMES[:4]):
        add(index, n, line.format("#", name), n)
    alias = add(index, 4, line.format("today", "bob"), 4)
    root = add(index, 5, line.format("#", "erin"), 5)
    (again,) = index.resolve(asked(6, line.format("today", "bob"), 6))
    assert alias.cluster != root.cluster
    assert (again.cluster, again.found_by) == (root.cluster, FoundBy.EXACT)


# ---------------------------------------------------------------- merging what has closed


EARLY = asked(0, upload("zoe", "music"), 100)


def expired(index: Driver, line: str = upload("zoe", "music")) -> tuple[int, int]:
    """Let a line expire that came before users and buckets were learned.

    Returns:
        Its cluster, and that of the learned pattern.
    """
    early = add(index, 0, line, 100)
    assert early.new
    offset = count(1)
    root = both_learned(index, offset, 1000)
    add(index, next(offset), "something else", HOUR_S + 200)
    assert index.size().clusters == 2
    return early.cluster, root.cluster


def test_a_closed_cluster_merges_where_it_fits_by_now(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    assert not index.index.knows_combinations
    assert not index.index.may_fit("", EARLY.one_off)
    early, root = expired(index)
    claimed = by_cluster(index.claim())
    assert index.index.knows_combinations
    assert index.index.may_fit("", EARLY.one_off)
    assert not index.index.may_fit("", asked(0, "something else").one_off)
    assert not index.index.may_fit("", b"")
    assert claimed[early].closing is Closing.EXPIRED
    assert index.merge_fitting(EARLY) == [root]
    assert index.merge_fitting(EARLY, EARLY) == [root, root]  # as after a lost answer
    index.wait(31)  # whoever claimed it has died
    again = by_cluster(index.claim())
    assert again[early] == dataclasses.replace(
        claimed[early], closing=Closing.MERGED, merged_into=root
    )
    assert index.merge_fitting(EARLY) == [root]
    index.confirm([*again.values()])
    closed = finals(index)
    assert (early, 1) in closed[root].merged
    assert sum(summary.count for summary in [*again.values(), *closed.values()]) == 17


def test_a_cluster_that_was_claimed_twice_merges_no_more(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    expired(index)
    claimed = index.claim()
    index.wait(31)
    assert index.claim() == claimed
    assert index.merge_fitting(EARLY) == [None]
    index.wait(31)
    assert index.claim() == claimed


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("user zoe uploaded a file", asked(0, "user zoe uploaded a file", 100)),
        ("user zoe renamed a file to music", asked(0, "user zoe renamed a file to music", 100)),
        (upload("zoe", "music"), asked(0, upload("zoe", "music"), 100, group="other")),
        (upload("zoe", "music"), asked(1000, upload("zoe", "music"), 100)),
        (upload("zoe", "music"), asked(0, upload("zoe", "music"), 3 * HOUR_S)),
        (upload("zoe", "music"), EARLY._replace(one_off=b"")),
    ],
    ids=["other words", "another verb", "another group", "unknown", "past its window", "no words"],
)
def test_a_closed_cluster_that_fits_nothing_stays(start: Start, line: str, query: Query) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    early, _ = expired(index, line)
    claimed = by_cluster(index.claim())
    assert index.merge_fitting(query) == [None]
    index.wait(31)
    again = by_cluster(index.claim())
    assert again == claimed
    assert again[early].closing is Closing.EXPIRED


def test_only_a_claimed_and_closed_cluster_merges(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=Summaries(every_us=10 * S))
    add(index, 0, upload("zoe", "music"), 100)
    add(index, 1, upload("zoe", "music"), 101)
    both_learned(index, offset := count(2), 1000)
    claimed = index.claim()
    assert [summary.closing for summary in claimed if summary.position == EARLY.position] == [None]
    assert index.merge_fitting(EARLY) == [None]  # it is open
    add(index, next(offset), "something else", HOUR_S + 200)
    assert index.merge_fitting(EARLY) == [None]  # it was when this was claimed
    index.confirm(claimed)
    assert index.merge_fitting(EARLY) == [None]  # nobody has claimed the last one
    (last,) = [each for each in index.claim() if each.position == EARLY.position]
    assert (last.revision, last.closing) == (2, Closing.EXPIRED)
    assert index.merge_fitting(EARLY) == [None]  # a summary of it was sent before
    index.confirm([last])
    assert index.merge_fitting(EARLY) == [None]  # it is gone


def test_an_answer_about_a_closed_cluster_is_final(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    add(index, 0, upload("zoe", "music"), 100)
    add(index, 1, "something else", HOUR_S + 200)
    (early,) = index.claim()
    assert index.merge_fitting(EARLY) == [None]
    both_learned(index, count(2), HOUR_S + 50)
    assert index.merge_fitting(EARLY) == [None]
    index.wait(31)
    assert early in index.claim()


@pytest.mark.parametrize(("later_s", "merges"), [(HOUR_S, True), (HOUR_S + 1, False)])
def test_a_cluster_merges_into_one_that_was_opened_in_time(
    start: Start, later_s: int, *, merges: bool
) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    early = add(index, 0, upload("zoe", "music"), 100)
    index.release(HERE)
    root = both_learned(index, offset := count(1), 100 + later_s)
    index.wait(100 + later_s)
    add(index, next(offset), "something else", 200 + later_s)
    closed = by_cluster(index.claim())
    assert closed[early.cluster].closing is Closing.EXPIRED
    assert index.merge_fitting(EARLY) == [root.cluster if merges else None]


def test_a_query_that_names_another_cluster_merges_nothing(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    early, root = expired(index)
    index.claim()
    assert index.merge_fitting(EARLY, clusters=[early ^ 1 << 40]) == [None]
    assert index.merge_fitting(EARLY, clusters=[root]) == [None]
    assert index.merge_fitting(EARLY, clusters=[early]) == [root]


def test_a_closed_cluster_merges_into_what_is_recorded(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    add(index, 0, upload("zoe", "music"), 100)
    lines = [upload(name, "logs") for name in NAMES[:5]]
    lines += [upload(f"user{n}", f"bucket{n}") for n in range(10)]
    opened = [asked(n, line, 1000, partition=THERE) for n, line in enumerate(lines)]
    index.resolve(*opened)
    add(index, 1, "something else", HOUR_S + 200)
    index.claim()
    assert index.merge_fitting(EARLY) == [None]


@pytest.mark.parametrize("shows", [False, True])
def test_a_cluster_that_shows_a_variable_stays_closed(start: Start, *, shows: bool) -> None:
    index, offset = start(recipe=LEARNS, summaries=FINAL_ONLY), count()
    line = "user {} uploaded a large file to {}".format
    early = asked(next(offset), line("zoe", "music"), 100)
    add(index, 0, line("zoe", "music"), 100)
    if shows:
        add(index, next(offset), upload("zoe", "music"), 100)  # lacks a word
    root = both_learned(index, offset, 1000, line)
    add(index, next(offset), "something else", HOUR_S + 200)
    (closed,) = [one for one in index.claim() if one.position == early.position]
    assert closed.learned == shows << 4
    assert index.merge_fitting(early) == [None if shows else root.cluster]


def test_merging_what_has_closed_is_cut_into_calls(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "CALL_WORK", 1)  # one query a call
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    lines = [asked(n, upload(f"zoe{n}", f"music{n}"), 100) for n in range(9)]
    for query in lines:
        (answer,) = index.resolve(query)
        index.count(query.position.offset, delta(answer, at_s=100), at_s=100)
    root = both_learned(index, offset := count(9), 1000)
    add(index, next(offset), "something else", HOUR_S + 200)
    index.claim()
    assert index.merge_fitting(*lines) == [root.cluster] * 9


# ---------------------------------------------------------------- bounds


def test_what_was_learned_ends_with_the_cluster(start: Start) -> None:
    index = start(recipe=LEARNS)
    for n, name in enumerate(NAMES[:5]):
        add(index, n, session(name), n)
    index.finish()
    assert add(index, 5, session("frank"), 6).new
    assert add(index, 6, session("gina"), 7).new


def test_values_of_evicted_clusters_do_not_count(start: Start) -> None:
    index = start(recipe=LEARNS, limits=Limits(max_clusters=2))
    answers = [add(index, n, session(name), n) for n, name in enumerate(NAMES)]
    assert [answer.new for answer in answers] == [True] * 7


def test_values_of_clusters_past_their_window_do_not_count(start: Start) -> None:
    index = start(recipe=LEARNS)
    index.resolve(*(asked(n, session(name)) for n, name in enumerate(NAMES[:4])))
    later = [asked(100 + n, session(name), PAST_S) for n, name in enumerate(NAMES)]
    answers = index.resolve(*later)
    assert {answer.cluster for answer in answers} == {answers[0].cluster}


def test_a_value_past_its_window_gives_way_to_the_same_one(start: Start) -> None:
    index = start(recipe=LEARNS)
    index.resolve(asked(0, session("alice")))
    later = [asked(100 + n, session(name), PAST_S) for n, name in enumerate(NAMES[:5])]
    answers = index.resolve(*later)
    assert {answer.cluster for answer in answers} == {answers[0].cluster}


def test_a_slot_learned_past_its_window_is_learned_again(start: Start) -> None:
    index = start(recipe=LEARNS)
    index.resolve(*(asked(n, session(name)) for n, name in enumerate(NAMES[:5])))
    later = [asked(100 + n, session(f"new-{name}"), PAST_S) for n, name in enumerate(NAMES)]
    first_four, others = index.resolve(*later[:4]), index.resolve(*later[4:])
    assert [answer.found_by for answer in first_four] == [FoundBy.NEW] * 4
    assert [answer.found_by for answer in others] == [FoundBy.LEARNED] * 3


def test_values_past_their_window_leave_a_full_list(start: Start) -> None:
    index = start(recipe=LEARNS)
    words = [f"w{n}x" for n in range(20)]
    for place in range(MAX_POSTINGS // 4):
        lines = [" ".join([*words[:place], value, *words[place:]]) for value in NAMES[:4]]
        answers = index.resolve(*(asked(place * 4 + n, line) for n, line in enumerate(lines)))
        assert [answer.found_by for answer in answers] == [FoundBy.NEW] * 4
    lines = [" ".join([*words[:18], value, *words[18:]]) for value in NAMES[:5]]
    answers = index.resolve(*(asked(900 + n, line, PAST_S) for n, line in enumerate(lines)))
    assert {answer.cluster for answer in answers} == {answers[0].cluster}


def test_a_slot_takes_any_number_of_values(start: Start) -> None:
    index = start(recipe=LEARNS)
    lines = [session(f"u{n:05}") for n in range(600)]
    for first in range(0, 600, 50):
        queries = [asked(first + n, line) for n, line in enumerate(lines[first : first + 50])]
        answers = index.resolve(*queries)
        deltas = delta(answers[0], 50)
        assert index.count(first + 49, deltas, first_offset=first) == frozenset()
    assert index.size().clusters == 1
    assert [summary.count for summary in finals(index).values()] == [600]


def test_one_event_merges_a_bounded_number_of_clusters(start: Start) -> None:
    index = start(recipe=LEARNS)
    words = [f"w{n}x" for n in range(20)]
    lines = [
        " ".join([*words[:place], f"{value}{place}", *words[place + 1 :]])
        for place in range(20)
        for value in "abcd"
    ]
    for offset, line in enumerate(lines):
        assert add(index, offset, line, offset).new
    before = index.size().clusters
    add(index, 100, " ".join(words), 100)
    after = index.size().clusters
    merged = MAX_MOVED // 21 // 4 * 4  # whole slots of four clusters, with 21 posting lists each
    assert (before, before - after) == (80, merged - 1)
    add(index, 101, " ".join([*words[:19], "z19"]), 101)  # learns a slot that was left
    assert after - index.size().clusters == 3
    assert sum(summary.count for summary in finals(index).values()) == 82


def test_a_cluster_of_too_few_words_has_no_searchable_alias(start: Start) -> None:
    index = start(recipe=LEARNS)
    words = "session closed for user"
    (few,) = index.resolve(asked(0, words)._replace(near=False))
    found = asked(1, "something that is quite another line")
    last = asked(6, f"erin {words}")
    found = found._replace(fingerprint=last.fingerprint ^ 1, sketch=last.sketch)
    index.resolve(found, *(asked(n + 2, f"{name} {words}") for n, name in enumerate(NAMES[:4])))
    (answer,) = index.resolve(last)
    assert (answer.cluster, answer.found_by) == (few.cluster, FoundBy.FINGERPRINT)
    other = asked(7, "user closed session for session")
    (answer,) = index.resolve(other._replace(fingerprint=last.fingerprint ^ 2))
    assert answer.new

"""Template ids: what they depend on, and what not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.features.lines import ALL_ASSIGNED
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.fingerprint.templates import Templates
from stream_dedup.model import Decision

LOGS = load_recipe("logs")
TEMPLATES = Templates(LOGS)
USERS = ("ann", "bob", "cid", "dan", "eve")


def ids(*texts: str) -> list[int]:
    return TEMPLATES.ids([text.encode() for text in texts])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"GET /a/7 HTTP/1.1" 200 512', '"GET /b/9 HTTP/1.1" 503 17'),
        ("ERROR disk sda1 is full", "warn. disk sdb7 is full"),
        ("\x1b[31mERROR\x1b[0m disk sda1 is full", "\x1b[33mWARN\x1b[0m disk sda1 is full"),
        ("#033[31mERROR#033[0m disk sda1 is full", "#033[33mWARN#033[0m disk sda1 is full"),
        ("disk 7 is full", "disk 10.0.0.7 10.0.0.8 is full"),
        ("user=ann level=info 7", "user: ann, level (debug) 8"),
        ("I1126 10:02:11.3 7 a.go:5] retry", "E1231 23:02:11.3 8 a.go:6] retry"),
    ],
)
def test_levels_statuses_variables_and_delimiters_do_not_count(one: str, other: str) -> None:
    assert len(set(ids(one, other))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("job 7 ended OK", "job 7 ended FAILED"),
        ("user ann left", "user bob left"),
        ("ERROR disk is full", "disk is full"),
        ('learner {"id": "a7", "ready": false}', 'learner {"id": "b8", "ready": true}'),
        ("a.B: x\n\tat a.B.c(B.java:1)", "a.B: x\n\tat a.B.d(B.java:1)"),
    ],
)
def test_words_outcomes_and_frames_count(one: str, other: str) -> None:
    assert len(set(ids(one, other))) == 2


def test_learned_words_are_found_among_escapes() -> None:
    for line in (b"#033[32mstarted#033[0m job %b now 7", b"starting job %b#012at now 7"):
        firsts = [line % user for user in (b"ann", b"bob")]
        assert len(set(TEMPLATES.ids(firsts))) == 2
        assert len(set(TEMPLATES.ids(firsts, learned=[1 << 2] * 2))) == 1
    firsts = [b"user=\x1b[0m%b logged in 7" % user for user in (b"ann", b"bob")]
    assert len(set(TEMPLATES.ids(firsts, learned=[1 << ALL_ASSIGNED] * 2))) == 1


def test_learned_words_count_no_more_wherever_they_stand() -> None:
    firsts = [f"{user} closed, was opened for {user} by root".encode() for user in USERS]
    learned = [1, 1 << 5, 1, 1 << 5, 1]
    assert len(set(TEMPLATES.ids(firsts))) == 5
    assert len(set(TEMPLATES.ids(firsts, learned=learned))) == 1


def test_an_id_is_the_same_in_every_run() -> None:
    assert [f"{each:016x}" for each in ids("disk sda1 is 91% full", "x")] == [
        "2d5cdeeeab321cf2",
        "5a7b9d7f5a2da65a",
    ]
    assert Deduplicator(templates=True).process_one("x").template == ids("x")[0]


def test_fields_have_templates_in_which_words_are_learned() -> None:
    fields = [{"path": "app"}, {"path": "user"}]
    templates = Templates(replace(LOGS, input__fields=fields, match__variants=["level"]))
    firsts = [
        b'{"app": "web", "user": "%b", "n": %d}' % (u.encode(), i) for i, u in enumerate(USERS)
    ]
    documents = [json.loads(first) for first in firsts]
    assert len(set(templates.ids(firsts, documents))) == 5
    assert len(set(templates.ids(firsts, documents, [2] * 5))) == 1
    assert len(set(templates.ids(firsts, documents, [1] * 5))) == 5


def test_features_of_other_extractors_have_templates() -> None:
    templates = Templates(replace(load_recipe("words"), features__extractor="syllables"))
    assert len(set(templates.ids([b"one text", b"one text", b"another"]))) == 2


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.data())
def test_any_bytes_have_an_id_of_their_own(values: list[bytes], data: st.DataObject) -> None:
    masks = st.integers(0, 2**48 - 1)
    learned = data.draw(st.lists(masks, min_size=len(values), max_size=len(values)))
    alone = [TEMPLATES.ids([v], learned=[m])[0] for v, m in zip(values, learned, strict=True)]
    assert TEMPLATES.ids(values, learned=learned) == alone


def decisions(*texts: str) -> list[Decision]:
    return Deduplicator(templates=True).process(texts)


def test_decisions_name_the_template_of_their_cluster() -> None:
    found = decisions("INFO disk 7 full", "ERROR disk 7 full", "ERROR disk 8 full", "", "job ok")
    info, error, again, passed, other = (each.template_hex for each in found)
    assert info == error == again != other
    assert passed is None
    assert found[0].cluster != found[1].cluster == found[2].cluster


def test_a_learned_word_changes_the_template_of_all_later_events() -> None:
    dedup = Deduplicator(templates=True)
    lines = [f"session closed for user {user}" for user in USERS]
    before = [dedup.process_one(line).template for line in lines]
    after = {dedup.process_one(line).template for line in lines}
    (summary,) = [each for each in dedup.close() if each.merged_into is None]
    assert len(set(before)) == 5
    assert after == {before[4]} == {summary.template}


def test_decisions_name_no_templates_unless_they_are_asked_for() -> None:
    dedup = Deduplicator()
    found = dedup.process(["disk 7 full", ""])
    assert [each.template for each in found] == [None, None]
    assert dedup.templates(found) == [*ids("disk 7 full"), None]


def test_values_that_are_not_kept_have_no_template() -> None:
    dedup = Deduplicator(templates=True, summaries=Summaries(max_value_bytes=0))
    assert [each.template for each in dedup.process(["disk 7 full", "disk 8 full"])] == [None] * 2


def test_recipes_without_variants_tell_levels_apart() -> None:
    plain = Templates(replace(LOGS, match__variants=[], match__protected=[]))
    assert len(set(plain.ids([b"ERROR disk full", b"WARN disk full"]))) == 2

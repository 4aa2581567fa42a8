"""One event of each pattern is kept, with how many there were."""

from __future__ import annotations

import msgspec
import pytest

from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.io.decoder import DecoderOptions, Events
from stream_dedup.model import Batch, Partition
from stream_dedup.tuning.sample import Sample, finest
from stream_dedup.tuning.trials import Grouping
from tests.unit.tuning.helpers import LOGS, sample_of


def json_lines(count: int, **fields: list[str]) -> list[bytes]:
    """JSON events with these values in turn."""
    return [
        msgspec.json.encode({
            "msg": f"disk {n} is full",
            **{name: values[n % len(values)] for name, values in fields.items()},
        })
        for n in range(count)
    ]  # fmt: skip


def decoded_table(texts: list[str], trace: str) -> Events:
    """Rows of a table with a stack trace in another column."""
    values, numbers = [text.encode() for text in texts], range(1, len(texts) + 1)
    batch = Batch(Partition("t", 0), numbers, values)
    return Events(batch, values, numbers, [{"stack_trace": trace} for _ in texts], len(texts))


def test_events_of_one_pattern_are_kept_once_and_counted() -> None:
    sample = sample_of([b"disk 1 is full", b"link 1 is up", b"disk 2 is full", b"link 2 is down"])

    assert sample.texts == [
        b"disk 1 is full",
        b"link 1 is up",
        b"link 2 is down",
    ]
    assert list(sample.counts) == [2, 1, 1]
    assert sample.events == 4


def test_events_that_no_trial_can_tell_apart_are_one() -> None:
    plain = load_recipe("logs-1")
    lines = [b'a "GET /x HTTP/1.1" 200 17', b'a "GET /y HTTP/1.1" 503 17']

    assert len(sample_of(lines, plain)) == 2  # a trial may keep the statuses apart
    assert finest(plain).match.variants == ("level", "status")


@pytest.mark.parametrize("name", ["logs", "logs-1"])
def test_each_trial_decides_what_counts_beside_the_text(name: str) -> None:
    """Also one with levels, if the recipe to begin with has none."""
    sample = sample_of(json_lines(12, level=["info", "warn", "error"]), load_recipe(name))

    assert sample.texts == [b"disk 0 is full", b"disk 1 is full", b"disk 2 is full"]
    assert sample.beside == [{"level": "info"}, {"level": "warn"}, {"level": "error"}]
    assert list(sample.counts) == [4, 4, 4]
    for variants, clusters in ((["level"], 3), (["status"], 1)):
        trial = Grouping(replace(LOGS, match={"variants": variants}), sample, None)
        assert len(trial) == clusters


def test_the_finest_recipe_of_texts_is_the_recipe_itself() -> None:
    assert finest(load_recipe("text")) == load_recipe("text")


def test_events_of_further_patterns_are_counted_and_left_out() -> None:
    sample = sample_of([b"link is up", b"link is down", b"link is ok", b"link is up"],
                       max_patterns=2)  # fmt: skip

    assert (len(sample), sample.events, sample.left_out) == (2, 3, 1)


def test_the_bytes_of_the_events_are_bounded() -> None:
    lines = [b"word " * 100 + b"one", b"short line here", b"word " * 100 + b"two"]
    sample = sample_of(lines, max_bytes=520)

    assert sample.texts == [lines[0], b"short line here"]
    assert sample.left_out == 1


def test_what_is_beside_the_texts_is_bounded_too() -> None:
    trace = "\n".join(["java.io.IOException: a", *["\tat a.b.C(D.java:3)"] * 30])
    table = decoded_table([f"disk {word} is full" for word in ("one", "two", "six")], trace)
    sample = Sample(LOGS, max_patterns=9, max_bytes=2 * len(trace))
    sample.add(table)

    assert (len(sample), sample.left_out) == (1, 2)


def test_what_is_compared_with_nothing_is_counted_by_reason() -> None:
    lines = [b'{"msg":"disk 1 is full"}', b"{broken", b"[1]", b'{"other":1}', b'{"msg":""}']
    sample = sample_of(lines, reading=DecoderOptions(format="jsonl"))

    assert sample.events == 1
    assert dict(sample.passed) == {
        "not JSON": 1, "not a JSON object": 1, "field missing": 1, "nothing to fingerprint": 1,
    }  # fmt: skip


def test_fields_with_few_values_may_become_groups() -> None:
    lines = json_lines(
        40, service=["a", "b"], level=["info", "warn", "error"], host=[f"h{n}" for n in range(40)]
    )
    sample = sample_of(lines)

    assert sample.fields == ("service", "level")
    assert len(sample) == 6  # one of each pair of values
    assert sample.label("service", 0) == "a"


def test_a_text_a_constant_or_a_group_is_no_further_group() -> None:
    lines = json_lines(40, service=["a", "b"], zone=["one"], msg=["disk full", "link down"])
    reading = DecoderOptions(group_fields=("service",))

    assert sample_of(lines, reading=reading).fields == ()


def test_few_events_say_nothing_of_groups() -> None:
    assert sample_of(json_lines(9, service=["a", "b"])).fields == ()


def test_groups_of_the_events_count_unless_they_are_given_up() -> None:
    lines = json_lines(4, service=["a", "b"])
    sample = sample_of(lines, reading=DecoderOptions(group_fields=("service",)))

    assert sample.grouped
    assert sample.groups() == ['{"service":"a"}', '{"service":"b"}']
    assert sample.groups(grouped=False) is None


def test_a_recipe_with_fields_gets_the_decoded_events() -> None:
    recipe = replace(load_recipe("json"), input__fields=[{"path": "msg"}])
    sample = sample_of(json_lines(3), recipe)

    assert sample.takes_fields
    assert sample.documents[0] == {"msg": "disk 0 is full"}
    assert LOGS.input.fields == ()

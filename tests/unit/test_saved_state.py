"""Saving a `Deduplicator` and loading it: it goes on as if it had never stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import saved_state
from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError, StateError
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.index.base import Limits
from stream_dedup.model import Batch, Kind, Partition
from stream_dedup.testing import assert_counts_add_up

S = 1_000_000
NOW_US = 1_700_000_000 * S
KEY = bytes(range(16))
LINES = [
    "disk sda1 is 91% full",
    "disk sdb7 is 64% full",
    "out of memory: killed process 4711",
    "connection from 10.0.0.1 closed by peer after 17 ms",
    "connection from 10.0.0.9 closed by host after 3 ms",
    "user alice logged in from terminal",
    "user bob logged in from terminal",
    "user carol logged in from terminal",
    "user carol logged in again from terminal",
    "ok",
    "12345",
    "",
    "\udcff not UTF-8",
]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(LINES), st.sampled_from(["", "a", "\ud800"])),
        st.sampled_from(["due", "wait"]),
    ),
    max_size=40,
)


def taken(dedup: Deduplicator, clock: ManualClock, steps: list[Any]) -> list[object]:
    """What a deduplicator answers to each step."""
    answers: list[object] = []
    for step in steps:
        if step == "wait":
            clock.advance(50)
        elif step in ("due", "close"):
            summaries = dedup.due() if step == "due" else dedup.close()
            answers.append(sorted(summaries, key=lambda summary: summary.cluster))
        else:
            line, group = step
            answers.append(dedup.process_one(line, group=group))
    return answers


RECIPES = [
    *map(load_recipe, ("logs", "text", "minhash-n")),
    replace(load_recipe("logs"), match__learn=2),
    replace(
        Recipe(),
        features__extractor="characters",
        features__ngram=4,
        fingerprint__kind="bands",
        match__jaccard=0.42,
    ),
]


@given(steps, steps, st.sampled_from([1, 2, 100]), st.sampled_from(RECIPES))
def test_a_loaded_one_answers_as_one_that_never_stopped(
    tmp_path: Path, before: list[Any], after: list[Any], max_clusters: int, recipe: Recipe
) -> None:
    settings: dict[str, Any] = {
        "windows": Windows(idle_us=120 * S, quiet_after_us=10 * S),
        "limits": Limits(max_clusters=max_clusters),
        "summaries": Summaries(every_us=60 * S, samples=0),
    }
    clock, other = ManualClock(NOW_US), ManualClock(NOW_US)
    # Keys of bands, and so distances, are those of the key.
    dedup = Deduplicator(recipe, clock=clock, key=KEY, **settings)
    stopped = Deduplicator(recipe, clock=other, key=KEY, **settings)
    assert taken(stopped, other, before) == taken(dedup, clock, before)
    stopped.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state", recipe, clock=other, **settings)
    assert loaded.counts == dedup.counts
    assert loaded.size()._replace(table_bytes=0) == dedup.size()._replace(table_bytes=0)
    assert taken(loaded, other, after) == taken(dedup, clock, after)
    assert taken(loaded, other, ["close"]) == taken(dedup, clock, ["close"])


def test_counts_add_up_over_a_restart(tmp_path: Path) -> None:
    dedup = Deduplicator(clock=ManualClock(NOW_US), source="\udcff")
    dedup.process(LINES)
    summaries = dedup.due()
    dedup.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state", clock=ManualClock(NOW_US))
    assert loaded.process_one("disk sdc3 is 7% full").kind == Kind.DUPLICATE
    loaded.process(LINES)
    assert_counts_add_up([*summaries, *loaded.close()], loaded.counts)
    assert loaded.counts.events == 2 * len(LINES) + 1


def test_positions_of_other_inputs_are_known_again(tmp_path: Path) -> None:
    dedup = Deduplicator(clock=ManualClock(NOW_US))
    dedup.process_batch(Batch(Partition("file\udcff", 3), range(5), [b"disk 1 full"] * 5))
    dedup.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state", clock=ManualClock(NOW_US))
    loaded.process_batch(Batch(Partition("file\udcff", 3), range(7), [b"disk 1 full"] * 7))
    assert (loaded.counts.events, loaded.counts.replayed) == (7, 5)


def test_hashes_have_the_same_secret_key_again(tmp_path: Path) -> None:
    key = bytes(range(16))
    dedup = Deduplicator(key=key)
    dedup.process(LINES)
    dedup.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state")
    assert loaded.process_one(LINES[0])[:3] == dedup.process_one(LINES[0])[:3]
    assert dedup.engine.index.key == loaded.engine.index.key
    with (tmp_path / "state").open("rb") as file:
        header, _ = saved_state.read_state(file, "state")
    assert header.key == key
    assert repr(key)[2:-1] not in repr(header)


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch(mode=0o666)
    path.chmod(0o666)
    Deduplicator().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state"]  # noqa: PTH208 -- also hidden ones


def test_a_state_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    Deduplicator().save(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="nowhere/state: cannot be written: No such file"):
        Deduplicator().save(tmp_path / "nowhere" / "state")
    assert path.read_bytes() == before


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    Deduplicator("logs").save(tmp_path / "state")
    with pytest.raises(StateError) as caught:
        Deduplicator.load(tmp_path / "state", "text")
    assert f"{tmp_path}/state: was saved with recipe logs (" in str(caught.value)
    assert "not text (" in str(caught.value)


def test_fewer_clusters_may_be_kept_after_loading(tmp_path: Path) -> None:
    dedup = Deduplicator()
    dedup.process(LINES)
    dedup.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state", limits=Limits(max_clusters=1))
    assert loaded.size().clusters == 1
    assert_counts_add_up(loaded.close(), loaded.counts)


def saved(path: Path) -> bytes:
    dedup = Deduplicator(clock=ManualClock(NOW_US), key=bytes(16))
    dedup.process(LINES)
    dedup.save(path)
    return path.read_bytes()


@given(st.data())
def test_damage_anywhere_is_found(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "state"
    body = bytearray(saved(path))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= data.draw(st.integers(1, 255))
    else:
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    path.write_bytes(body)
    with pytest.raises(StateError, match=r"; (load|give|start)"):
        Deduplicator.load(path)


@given(st.data())
def test_forged_contents_are_refused_or_taken_but_never_crash(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "state"
    body = bytearray(saved(path))[:-32]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(len(saved_state.MAGIC), len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    path.write_bytes(body + blake2b(body, digest_size=32).digest())
    try:
        loaded = Deduplicator.load(path, clock=ManualClock(NOW_US))
    except StateError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017 -- it may also be taken
        return
    loaded.process(LINES)
    loaded.close()


def forged(path: Path, change: Callable[[dict[str, Any], list[list[Any]]], None]) -> None:
    """Change the records of a saved state, and give it a right digest."""
    begin = len(saved_state.MAGIC) + 4
    body, records = saved(path)[:-32], []
    at = begin
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "big")
        records.append(msgspec.msgpack.decode(body[at + 4 : at + 4 + length]))
        at += 4 + length
    header, clusters = records[0], records[1:]
    change(header, clusters)
    out = body[:begin]
    for record in (header, *clusters):
        encoded = msgspec.msgpack.encode(record)
        out += len(encoded).to_bytes(4, "big") + encoded
    path.write_bytes(out + blake2b(out, digest_size=32).digest())


def _set(at: int, value: Any) -> Callable[[dict[str, Any], list[list[Any]]], None]:
    def change(_: dict[str, Any], clusters: list[list[Any]]) -> None:
        clusters[0][at] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _, clusters: clusters.append(clusters[0]), "has .+ of .+ clusters|is there twice"),
        (lambda header, _: header.update(offset=0), "its next offset was used before"),
        (lambda header, _: header.update(clusters=10**9), "has .+ of 1000000000 clusters"),
        (lambda header, _: header.update(more=1), "unknown field `more`"),
        (lambda header, _: header.update(key=b"short"), "Expected `bytes` of length >= 16"),
        (_set(4, b"\xff" * 16), "impossible values"),
        (_set(5, b"odd"), "impossible values"),
        (_set(6, 1 << 63), "Expected `int` <= "),
        (_set(10, 0), "Expected `int` >= 1"),
        (_set(11, 1 << 60), "impossible values"),
        (_set(16, "bored"), "Invalid enum value"),
        (_set(17, [1] * 1000), "impossible values"),
        (_set(3, b"\xff"), "is not valid: "),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], list[list[Any]]], None], says: str
) -> None:
    forged(tmp_path / "state", change)
    with pytest.raises(StateError, match=says):
        Deduplicator.load(tmp_path / "state", clock=ManualClock(NOW_US))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "is not a saved state; give a file that `save` has written"),
        (b"PK\x03\x04", "is not a saved state"),
        (
            saved_state.MAGIC + b"\0\0\0\x09",
            "has format 9, and this version of stream-dedup reads 2",
        ),
        (saved_state.MAGIC + b"\0\0\0\x02", "is damaged or cut short"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, body: bytes, says: str) -> None:
    (tmp_path / "state").write_bytes(body)
    with pytest.raises(StateError, match=says):
        Deduplicator.load(tmp_path / "state")


def test_a_record_longer_than_allowed_takes_no_memory(tmp_path: Path) -> None:
    body = saved_state.MAGIC + b"\0\0\0\x02" + b"\xff" * 4 + b"x" * 100
    (tmp_path / "state").write_bytes(body + blake2b(body, digest_size=32).digest())
    with pytest.raises(StateError, match="has a record of 4,294,967,295 bytes"):
        Deduplicator.load(tmp_path / "state")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/nothing: cannot be read: No such file"):
        Deduplicator.load(tmp_path / "nothing")

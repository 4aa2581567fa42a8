"""Which step stands still, and for how long."""

from __future__ import annotations

from stream_dedup.metrics import FIXED
from stream_dedup.model import FoundBy, Partition
from stream_dedup.worker.telemetry.progress import REASONS, Progress, Stalled

HERE, THERE = Partition("logs", 0), Partition("logs", 1)


def test_the_steps_are_those_of_the_metric() -> None:
    assert tuple(REASONS) == FIXED["step"]


def test_the_rules_are_those_of_the_index() -> None:
    assert tuple(FoundBy) == FIXED["rule"]


def test_a_step_that_nobody_noted_does_not_stand_still() -> None:
    assert Progress({}).stalled("poll", now_s=100) == Stalled(0, None)


def test_a_step_stands_still_while_it_is_behind_and_does_not_move() -> None:
    progress = Progress({})
    progress.note("decide", HERE, 5, 9, now_s=0)
    progress.note("decide", HERE, 5, 20, now_s=7)
    assert progress.stalled("decide", now_s=7) == Stalled(7, HERE)
    progress.note("decide", HERE, 6, 20, now_s=8)
    assert progress.stalled("decide", now_s=8) == Stalled(0, None)
    assert progress.stalled("decide", now_s=9) == Stalled(1, HERE)


def test_a_step_that_has_caught_up_has_nothing_to_do() -> None:
    progress = Progress({})
    for now_s in (0, 100):
        progress.note("deliver", HERE, 9, 9, now_s=now_s)
    assert progress.stalled("deliver", now_s=100) == Stalled(0, None)
    assert progress.stalled("deliver", now_s=200) == Stalled(0, None)  # though nobody notes it


def test_a_partition_that_is_revoked_does_not_stand_still() -> None:
    progress = Progress({})
    progress.note("deliver", HERE, 1, 2, now_s=0)
    assert progress.stalled("deliver", {THERE}, now_s=9) == Stalled(0, None)
    progress.note("deliver", HERE, 1, 2, now_s=9)  # it is back
    assert progress.stalled("deliver", {HERE}, now_s=9) == Stalled(9, HERE)


def test_the_partition_that_waits_longest_counts() -> None:
    progress = Progress({})
    progress.note("deliver", HERE, 1, 2, now_s=0)
    progress.note("deliver", THERE, 1, 2, now_s=5)
    assert progress.stalled("deliver", now_s=9) == Stalled(9, HERE)
    progress.note("deliver", HERE, 2, 2, now_s=9)
    assert progress.stalled("deliver", now_s=9) == Stalled(4, THERE)


def test_a_partition_is_named_before_the_pipeline() -> None:
    progress = Progress({})
    progress.note("poll", None, 0, None, now_s=0)
    progress.note("poll", HERE, 5, None, now_s=0)
    assert progress.stalled("poll", {HERE}, now_s=9) == Stalled(9, HERE)
    # It is lost: the pipeline still waits for the broker.
    assert progress.stalled("poll", (), now_s=9) == Stalled(9, None)


def test_what_settings_allow_is_left_out() -> None:
    progress = Progress({"commit": 60})
    progress.note("commit", HERE, 1, 2, now_s=0)
    assert progress.stalled("commit", now_s=60) == Stalled(0, None)
    assert progress.stalled("commit", now_s=61) == Stalled(1, HERE)


def test_a_partition_read_again_and_again_stands_still_all_the_time() -> None:
    progress = Progress({})
    for start_s in range(0, 60, 10):
        for read, decided in ((5, 5), (50, 5), (50, 40)):  # opened, read, decided; then it fails
            progress.note("decide", HERE, decided, read, now_s=start_s)
            progress.note("deliver", HERE, 5, decided, now_s=start_s)
    assert progress.stalled("deliver", now_s=60) == Stalled(60, HERE)


def test_a_step_that_comes_back_to_where_it_was_has_not_moved() -> None:
    progress = Progress({})
    for now_s, reached in ((0, 40), (5, 10), (10, 40)):
        progress.note("deliver", HERE, reached, 50, now_s=now_s)
    assert progress.stalled("deliver", now_s=10) == Stalled(10, HERE)


def test_poll_stands_still_while_the_end_is_unknown() -> None:
    progress = Progress({})
    progress.note("poll", HERE, 9, 9, now_s=0)
    progress.note("poll", HERE, 9, None, now_s=30)
    assert progress.stalled("poll", now_s=30) == Stalled(30, HERE)
    progress.note("poll", HERE, 10, None, now_s=31)
    assert progress.stalled("poll", now_s=31) == Stalled(0, None)
    progress.note("poll", HERE, 10, 12, now_s=40)
    assert progress.stalled("poll", now_s=40) == Stalled(9, HERE)
    progress.note("poll", HERE, 12, 12, now_s=41)
    assert progress.stalled("poll", now_s=41) == Stalled(0, None)


def test_an_excused_step_does_not_stand_still() -> None:
    progress = Progress({})
    progress.note("poll", HERE, 5, 90, now_s=0)
    progress.note("poll", HERE, 5, None, now_s=50, excused=True)
    assert progress.stalled("poll", now_s=50) == Stalled(0, None)


def test_partitions_that_went_are_forgotten() -> None:
    progress = Progress({})
    progress.note("deliver", HERE, 1, 2, now_s=0)
    progress.note("emit", None, 1, None, now_s=0)
    progress.keep({THERE})
    assert progress.stalled("deliver", now_s=9) == Stalled(0, None)
    assert progress.stalled("emit", now_s=9) == Stalled(9, None)


def test_a_topic_created_again_begins_at_0() -> None:
    progress = Progress({})
    progress.note("deliver", HERE, 900, 1_000, now_s=0)
    progress.restart(HERE)
    progress.note("deliver", HERE, 1, 2, now_s=5)
    assert progress.stalled("deliver", now_s=5) == Stalled(0, None)


def test_a_reason_names_the_partition_and_the_time() -> None:
    assert Stalled(12.3, HERE).reason("deliver") == (
        "logs-0: events were decided and their output is not delivered, for 12 s"
    )
    assert Stalled(3, None).reason("emit").startswith("the index does not answer")

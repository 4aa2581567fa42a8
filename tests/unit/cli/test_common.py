"""Durations, settings and interrupts, as a command line has them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.cli.common import parse_duration, recipe_of, run_async
from stream_dedup.cli.main import cli
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("250ms", 250_000),
        ("0.001ms", 1),
        ("90s", 90_000_000),
        ("1.5m", 90_000_000),
        ("1h", 3_600_000_000),
        ("2d", 172_800_000_000),
        ("9" * 400 + "d", FOREVER_US),
        ("off", None),
        ("never", None),
    ],
)
def test_a_duration_is_read(text: str, us: int | None) -> None:
    assert parse_duration(text, off=None) == us


def test_off_means_what_the_option_says() -> None:
    assert parse_duration("off", off=FOREVER_US) == FOREVER_US


@given(st.text() | st.from_regex(r"[0-9.]{1,9}(ms|s|m|h|d|w)?", fullmatch=True))
def test_any_text_is_a_duration_above_nothing_or_refused(text: str) -> None:
    try:
        found = parse_duration(text, off=None)
    except ValueError as error:
        assert "write 90s, 5m, 1h, 2d or off" in str(error)  # noqa: PT017 -- or it is taken
    else:
        assert text in {"off", "never"} if found is None else 1 <= found <= FOREVER_US


_keys = st.sampled_from(
    ["match", "k", "text", "masks", "features", "weights", "table", "name", "_"]
)
_values = st.sampled_from(["1", "-1", "1.5", "true", "[]", "{}", "'x'", "word", "", "[", "\udcff"])


@given(
    st.lists(st.tuples(st.lists(_keys, min_size=1, max_size=3).map(".".join), _values), max_size=3)
)
def test_settings_give_a_recipe_or_a_reason(settings: list[tuple[str, str]]) -> None:
    try:
        recipe = recipe_of("logs", tuple(f"{key}={value}" for key, value in settings))
    except (RecipeError, click.BadParameter) as error:
        assert str(error)  # noqa: PT017 -- or it is taken
    else:
        assert len(recipe.digest) == 16


@pytest.mark.parametrize("setting", ["match.k", "=3", "Match.k=3", "match..k=3", "match.k =3x"])
def test_an_invalid_setting_is_refused(setting: str) -> None:
    with pytest.raises((click.BadParameter, RecipeError)):
        recipe_of("logs", (setting,))


@pytest.fixture
def handled() -> Iterator[None]:
    """SIGINT is handled as in a foreground process: a shell's background ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("handled")
def test_an_interrupt_waits_for_the_callback_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    cleaned_up = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def answered() -> None:  # as the event loop itself does once it is connected
            if not answer.done():
                signal.raise_signal(signal.SIGINT)
                answer.set_result(None)

        loop.call_soon(answered)
        try:
            await answer
            await asyncio.sleep(60)
        finally:
            cleaned_up.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert (cleaned_up, caplog.text) == ([True], "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("handled")
def test_a_second_interrupt_does_not_wait_for_the_end() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            loop.call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())


@pytest.mark.usefixtures("handled")
def test_an_interrupt_that_the_shell_ignores_stays_ignored() -> None:
    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.01)
        return "done"

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert run_async(work()) == "done"


@pytest.mark.usefixtures("handled")
def test_a_second_interrupt_ends_work_that_does_not_wait() -> None:
    passed = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        passed.append("the first")  # the event loop would cancel it, but never gets its turn
        signal.raise_signal(signal.SIGINT)
        passed.append("the second")

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert passed == ["the first"]


@pytest.mark.usefixtures("handled")
def test_an_interrupt_is_raised_also_if_the_work_is_done() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())


# ---------------------------------------------------------------- tables


LONG = " ".join("goes on and on until it is too long for a terminal".split() * 4)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "app.log"
    path.write_text(f"{LONG}\n{LONG}\n")
    return str(path)


def stats(log: str, columns: str | None) -> str:
    arguments = ["dedup", "--stats", log]
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": columns}).stderr


def test_a_pattern_in_a_pipe_is_whole(log: str) -> None:
    assert f" {LONG} " in stats(log, columns=None)


def test_columns_bounds_tables_in_pipes(log: str) -> None:
    *_, row, bottom = stats(log, columns="70").splitlines()
    assert (len(row), len(bottom)) == (70, 70)
    assert "… " in row

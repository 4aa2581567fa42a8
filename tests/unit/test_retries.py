"""Retries: which errors are retried, which pauses are made, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from stream_dedup.errors import IndexRefused, IndexUnavailable
from stream_dedup.retries import FIRST_PAUSE_S, MAX_PAUSE_S, with_retries


class Work:
    """A call that raises these errors, one after the other, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.reported: list[Exception] = []

    async def call(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def with_retries(self) -> str:
        return await with_retries(
            self.call, lambda error: isinstance(error, IndexUnavailable), self.reported.append
        )


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which take no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return made


def test_a_call_that_succeeds_is_made_once(pauses: list[float]) -> None:
    work = Work()
    assert asyncio.run(work.with_retries()) == "done"
    assert (work.reported, pauses) == ([], [])


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_failures_are_reported_and_retried(pauses: list[float], failures: int) -> None:
    errors = [IndexUnavailable(str(number)) for number in range(failures)]
    work = Work(*errors)
    assert asyncio.run(work.with_retries()) == "done"
    assert work.reported == errors
    assert len(pauses) == failures


def test_pauses_are_random_and_limited(pauses: list[float]) -> None:
    asyncio.run(Work(*[IndexUnavailable("away") for _ in range(300)]).with_retries())
    assert min(pauses) >= FIRST_PAUSE_S
    assert MAX_PAUSE_S / 2 < max(pauses) <= MAX_PAUSE_S
    assert len(set(pauses)) > 200
    assert all(pause <= 2 ** (1 + n) * FIRST_PAUSE_S for n, pause in enumerate(pauses[:5]))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_other_errors_are_raised_unchanged(pauses: list[float], before: int) -> None:
    refused = IndexRefused("wrong password")
    work = Work(*[IndexUnavailable("away") for _ in range(before)], refused)
    with pytest.raises(IndexRefused) as raised:
        asyncio.run(work.with_retries())
    assert raised.value is refused
    assert len(work.reported) == len(pauses) == before


@pytest.mark.parametrize("failures", [1, 2])
def test_a_cancellation_ends_the_retries(failures: int) -> None:
    async def cancelled() -> None:
        reported: asyncio.Queue[Exception] = asyncio.Queue()
        work = Work(*[IndexUnavailable("away") for _ in range(1_000)])
        retrying = asyncio.create_task(
            with_retries(work.call, lambda _error: True, reported.put_nowait)
        )
        for _ in range(failures):
            await reported.get()
        retrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await retrying

    asyncio.run(cancelled())

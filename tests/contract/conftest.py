"""Every test of this folder runs over every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stream_dedup.index.redis import store
from tests.contract.driver import ADAPTERS, Driver, Setup


@pytest.fixture(params=ADAPTERS)
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driver]]:
    """Makes an index under test: its arguments are those of `Setup`."""
    drivers: list[Driver] = []
    opens = ADAPTERS[request.param].bind(request)

    def made(**settings: object) -> Driver:
        drivers.append(Driver(opens, Setup(**settings)))  # type: ignore[arg-type]
        return drivers[-1]

    yield made
    for driver in drivers:
        driver.stop()


@pytest.fixture(autouse=True)
def _commits_wait_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened a cluster and has not recorded it has died: tests run one call at a time."""
    monkeypatch.setattr(store, "OPENING_WAIT_S", 0.0)

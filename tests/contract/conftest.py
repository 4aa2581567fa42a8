"""Every test of this folder runs over every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stream_dedup.index.redis import store
from tests.contract.driver import ADAPTERS, Driver, Setup, banded, with_bands


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests by adapter, and by kind of fingerprint unless they are of simhash alone."""
    if "start" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("simhash") is not None
        kinds = ("simhash",) if alone else ("simhash", "bands")
        chosen = [(name, kind) for kind in kinds for name in ADAPTERS]
        ids = [name if kind == "simhash" else f"{name}-{kind}" for name, kind in chosen]
        metafunc.parametrize("start", chosen, ids=ids, indirect=True)


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driver]]:
    """Makes an index under test: its arguments are those of `Setup`."""
    drivers: list[Driver] = []
    name, kind = request.param
    opens = ADAPTERS[name].bind(request)

    def made(**settings: object) -> Driver:
        setup = Setup(**settings)  # type: ignore[arg-type]
        if kind == "bands":
            drivers.append(Driver(opens, with_bands(setup), banded))
        else:
            drivers.append(Driver(opens, setup))
        return drivers[-1]

    yield made
    for driver in drivers:
        driver.stop()


@pytest.fixture(autouse=True)
def _commits_wait_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened a cluster and has not recorded it has died: tests run one call at a time."""
    monkeypatch.setattr(store, "OPENING_WAIT_S", 0.0)

"""Every test of this folder runs over every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stream_dedup.index.redis import store
from tests.contract.driver import ADAPTERS, SPREAD_ADAPTERS, Driver, Setup, banded, with_bands


def marked(metafunc: pytest.Metafunc, mark: str) -> bool:
    return metafunc.definition.get_closest_marker(mark) is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests by adapter, and by kind of fingerprint unless they are of simhash alone."""
    if "start" in metafunc.fixturenames:
        kinds = ("simhash",) if marked(metafunc, "simhash") else ("simhash", "bands")
        adapters = [
            (name, adapter)
            for name, adapter in {**ADAPTERS, **SPREAD_ADAPTERS}.items()
            if (adapter.shards == 1 or not marked(metafunc, "one_shard"))
            and (adapter.any_recipe or not marked(metafunc, "one_node"))
        ]
        chosen = [
            (name, kind)
            for kind in kinds
            for name, adapter in adapters
            if adapter.any_recipe or kind == "simhash"
        ]
        ids = [name if kind == "simhash" else f"{name}-{kind}" for name, kind in chosen]
        metafunc.parametrize("start", chosen, ids=ids, indirect=True)


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driver]]:
    """Makes an index under test: its arguments are those of `Setup`."""
    drivers: list[Driver] = []
    name, kind = request.param
    opens = {**ADAPTERS, **SPREAD_ADAPTERS}[name].bind(request)

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
    monkeypatch.setattr(store, "OPENING_WAITS_S", (0.0, 0.0))

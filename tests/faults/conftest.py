"""Servers that the fault tests share and break; each test leaves them running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.harness import Site


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running

"""The browser of the pages' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.browser import Browser, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def tab(chromium: Browser) -> Browser:
    """An empty tab whose console is empty: the test before may have left a page that renews."""
    chromium.open("about:blank")
    chromium.messages()
    return chromium

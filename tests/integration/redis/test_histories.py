"""More random histories than the contract tests have time for."""

from __future__ import annotations

import pytest

from tests.contract.driver import ADAPTERS
from tests.contract.test_index_equals_model import SCENES, check_histories


@pytest.mark.parametrize("scene_name", SCENES)
@pytest.mark.parametrize("name", ADAPTERS)
def test_many_random_histories_agree_with_the_model(
    name: str, scene_name: str, request: pytest.FixtureRequest
) -> None:
    check_histories(name, scene_name, request, histories=60)

"""What all tests share: real services, how long Hypothesis looks, and how long lists are compared.

HYPOTHESIS_PROFILE names how many examples of a property are tried: `quick` in `make test`, `usual`
elsewhere, `thorough` for a search of hours.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.assertions import LongDifferenceError, long_difference, shorten_traceback
from tests.effort import USUAL_EXAMPLES

pytest_plugins = ["tests.services.fixtures"]

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # by nohup; processes inherit it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ.pop("COLUMNS", None)  # processes of pytest-xdist have it; it cuts tables

settings.register_profile(
    "usual",
    max_examples=USUAL_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("quick", settings.get_profile("usual"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("usual"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> None:
    """Describe a difference of long sequences.

    Raises:
        LongDifferenceError: they differ.
    """
    if op == "==" and (lines := long_difference(left, right)):
        raise LongDifferenceError("\n".join(lines))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Shorten the traceback of such a difference."""
    try:
        return (yield)
    except LongDifferenceError as error:
        shorten_traceback(error)
        raise

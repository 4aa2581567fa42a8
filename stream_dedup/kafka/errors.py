"""How the driver's errors become ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

from aiokafka import errors

from stream_dedup.errors import GroupLost, ProducerFenced
from stream_dedup.kafka.admin import ours

FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced)
"""Another producer has the transactional id."""

NOT_STARTED = (errors.KafkaError, OSError, AssertionError)
"""A client does not start; the last: a broker that is just starting itself named none to it."""

LOST = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.IllegalStateError,
)
"""The group has dealt its partitions anew, or is about to."""


def fail(what: str, error: BaseException) -> NoReturn:
    """Raise our error for the driver's.

    Args:
        what: what was tried.
        error: what the driver raised.
    """
    if isinstance(error, FENCED):
        raise ProducerFenced(f"{what}: {type(error).__name__}: {error}") from error
    raise ours(error, what) from error


def lose(what: str, error: BaseException) -> NoReturn:
    """Raise our error for one of `LOST`."""
    raise GroupLost(f"{what}: {type(error).__name__}: {error}") from error


@asynccontextmanager
async def asking(what: str) -> AsyncIterator[None]:
    """Ask the broker something; what the driver raises becomes ours."""
    try:
        yield
    except (errors.KafkaError, OSError) as error:
        fail(what, error)

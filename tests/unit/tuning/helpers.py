"""Samples for the tests of tuning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.io.decoder import Decoder, DecoderOptions
from stream_dedup.io.files import Lines
from stream_dedup.model import Partition
from stream_dedup.tuning.questions import Report, Tuner
from stream_dedup.tuning.sample import Sample

ACCOUNTS = Path(__file__).parents[3] / "docs" / "examples" / "accounts.log"
LOGS = load_recipe("logs")


def sample_of(
    lines: Iterable[bytes],
    recipe: Recipe = LOGS,
    *,
    reading: DecoderOptions | None = None,
    max_patterns: int = 1_000,
    max_bytes: int = 1 << 20,
) -> Sample:
    """The sample of some lines."""
    reading = reading or DecoderOptions()
    sample = Sample(
        recipe,
        max_patterns=max_patterns,
        max_bytes=max_bytes,
        grouped_by=reading.group_fields,
    )
    decoder = Decoder(reading, Partition("test", 0), recipe if recipe.input.fields else None)
    sample.add(decoder.decode(Lines(list(lines), 1), 0))
    sample.add(decoder.flush(0))
    return sample


def report_of(lines: Iterable[bytes], recipe: Recipe = LOGS) -> Report:
    """What is found out about some lines."""
    return Tuner(recipe, sample_of(lines, recipe), lambda _done, _planned: None).report()


def accounts() -> list[bytes]:
    """The lines of the example."""
    return ACCOUNTS.read_bytes().splitlines()

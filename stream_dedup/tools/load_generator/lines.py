"""Reads the lines that ``stream-dedup produce`` makes events after."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.io.decoder import TEXT_FIELDS
from stream_dedup.io.files import InputFile
from stream_dedup.model import Kind
from stream_dedup.tools.load_generator.replay import Model, Stem

MOST_MODELS = 2_000
"""Lines kept to make events after: more would be new ones for long, whatever share is asked for."""

BATCH = 2_000
MAX_LINE_BYTES = 64 * 1024
"""Longer lines are left out: they are no log lines."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What the inputs hold.

    Attributes:
        models: lines that are not like each other.
        count: lines in all that are not blank.
    """

    models: list[Model]
    count: int


def read_lines(paths: Sequence[str]) -> Lines:
    """Read inputs to their end, and keep of lines like each other the first.

    Lines that shown again are not like themselves, as they hold numbers and names alone, are kept
    only if there are no others.

    Raises:
        InputError: an input cannot be read.
    """
    dedup, rng = Deduplicator(recipe="logs"), random.Random(0)  # noqa: S311 -- a trial's data
    models: list[Model] = []
    others: list[Model] = []
    count = 0
    for path in paths:
        service = "stdin" if path == "-" else Path(path).name.partition(".")[0] or "stdin"
        for batch in _batches(path):
            found = [_model(line, service) for line in batch]
            count += len(found)
            if len(models) >= MOST_MODELS:
                continue
            decisions = dedup.process([model.text for model in found])
            firsts = list(compress(found, (d.kind is Kind.NEW for d in decisions)))
            again = dedup.process([Stem.of(model.text).replay(rng) for model in firsts])
            for model, decision in zip(firsts, again, strict=True):
                (models if decision.kind is Kind.DUPLICATE else others).append(model)
    return Lines((models or others)[:MOST_MODELS], count)


def _batches(path: str) -> Iterator[list[bytes]]:
    source = InputFile(path)
    try:
        while (lines := source.read()) is not None:
            whole = [
                value.rstrip(b"\r")
                for place, value in enumerate(lines.values)
                if place not in lines.pieces and place not in lines.tails
            ]
            kept = [line for line in whole if line.strip() and len(line) <= MAX_LINE_BYTES]
            for start in range(0, len(kept), BATCH):
                yield kept[start : start + BATCH]
    finally:
        source.close()


def _model(line: bytes, service: str) -> Model:
    fields = _object(line)
    if fields is not None:
        name = next((name for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None)
        if name is not None and fields[name].strip():
            told = fields.get("service")
            said_by = told if isinstance(told, str) and told else service
            return Model(fields[name].encode("utf-8", "replace"), said_by, fields, name)
    return Model(line, service)


def _object(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

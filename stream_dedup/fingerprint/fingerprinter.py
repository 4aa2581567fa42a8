"""From a batch of events to numbers: the preparation, extractor and kernel of one recipe."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeGuard

import msgspec

from stream_dedup.columnar import rows_beginning, rows_containing
from stream_dedup.features.outcome_fields import (
    FIRST_BYTE,
    split,
    split_all,
    takes_outcomes,
)
from stream_dedup.features.prepare import NO_SALT, FeatureExtractor, Part, Preparer, Salt
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.traces import WRITTEN_LINE_END, Trace, has_lines, trace_of
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.fingerprint.kernel import (
    Fingerprints,
    Kernel,
    Segments,
    is_native,
)
from stream_dedup.fingerprint.reference import ReferenceKernel, Taken
from stream_dedup.fingerprint.siphash import HashKey, fastest_siphash
from stream_dedup.native import native_or, warn_if_not_compiled

OTHER_EXTRACTOR = "syllables"
"""Name used for every extractor that is not the kernel's own; the kernel treats them alike."""

KernelInput = Sequence[bytes] | Segments | list[list[Part]]
"""A batch in a form that the kernel accepts."""


class WithVariants(NamedTuple):
    """A batch in which some events have more in their variant than the kernel sees.

    Attributes:
        events: the batch; of an event with outcomes, its text; of a stack trace, its header.
        outcomes: by row, the keyed hash of outcomes. It is XORed into the variant and into the
            exact hash, unless there is nothing else to compare.
        frames: by row, the keyed hash of a trace's exceptions and innermost frames, XORed, too.
    """

    events: KernelInput
    outcomes: dict[int, int]
    frames: dict[int, int]


Prepared = KernelInput | WithVariants
"""A batch that was prepared."""

MAX_OUTCOMES = 10_000
"""Outcomes of events whose hashes are remembered."""

MAX_SALTS = 10_000
"""Names of fields whose salts are remembered; they come from the events."""


def is_plain(prepared: Prepared) -> TypeGuard[Sequence[bytes]]:
    """Return whether a batch is a text an event, without fields, features and other variants."""
    if isinstance(prepared, Segments | WithVariants):
        return False
    return not prepared or isinstance(prepared[0], bytes)


class Fingerprinter:
    """Fingerprints batches of events by one recipe, under one key. Threads may share it.

    Args:
        recipe: what counts as near.
        key: of the hashes that decide. Only hashes under the same key can be compared.

    Attributes:
        empty_exact: the exact hash of an event without tokens.
        keyed_hash: hashes bytes under the key.
    """

    def __init__(self, recipe: Recipe, key: HashKey) -> None:
        self.recipe = recipe
        self.key = key
        self._extractor = FeatureExtractor(recipe) if FeatureExtractor.needed(recipe) else None
        self._kernel = make_kernel(recipe if self._extractor is None else _folding(recipe), key)
        self._preparer = Preparer(recipe)
        self.keyed_hash = partial(fastest_siphash(), key)
        self._salts: dict[str, Salt] = {}
        self._takes_frames = "frames" in recipe.match.variants
        self._takes_outcomes = takes_outcomes(recipe)
        self._outcomes_hash = lru_cache(MAX_OUTCOMES)(self._hash_outcomes)
        # Whether the kernel takes events as they are, without outcomes and stack traces.
        self._hashes_text = self._extractor is None and not (
            self._preparer.takes_fields or self._preparer.changes_text
        )
        self.empty_exact = self.keyed_hash(b"")

    @property
    def takes_fields(self) -> bool:
        """Whether events must be given as decoded JSON."""
        return self._preparer.takes_fields

    def prepare(self, values: Sequence[bytes], documents: Sequence[object] | None) -> Prepared:
        """Prepare a batch for the kernel.

        Args:
            values: the events' texts.
            documents: the decoded events, where the recipe takes fields; None for an event
                that could not be decoded, whose text is used instead.
        """
        if self.takes_fields:
            parts = self._preparer.parts
            events = [
                [(text, weight, self._salt(name)) for name, text, weight in parts(document)]
                if document is not None
                else [(self._preparer.text(value), 1, NO_SALT)]
                for value, document in zip(values, documents or [None] * len(values), strict=True)
            ]
            if self._extractor is None:
                return segments_of(events)
            return [self._features(event) for event in events]
        outcomes: dict[int, int] = {}
        if self._takes_outcomes and rows_beginning(values, FIRST_BYTE):
            values, quoted = split_all(values)
            outcomes = {row: self._outcomes_hash(each) for row, each in quoted.items()}
        frames: dict[int, int] = {}
        rows = self._rows_of_lines(values) if self._takes_frames else []
        if rows and (traces := self._traces(values, rows)):
            values = list(values)
            for row, trace in traces.items():
                values[row] = trace.header
            frames = {row: self._frames_hash(each.variant) for row, each in traces.items()}
        prepared = self._prepare_texts(values)
        return WithVariants(prepared, outcomes, frames) if outcomes or frames else prepared

    def _prepare_texts(self, values: Sequence[bytes]) -> KernelInput:
        if self._preparer.changes_text:
            values = self._preparer.texts(values)
        if self._extractor is None:
            return values
        return [self._features([(value, 1, NO_SALT)]) for value in values]

    @staticmethod
    def _rows_of_lines(values: Sequence[bytes]) -> list[int]:
        """Return which values may have several lines."""
        rows = rows_containing(values, WRITTEN_LINE_END[:1])
        written = [row for row in rows if WRITTEN_LINE_END in values[row]]
        return [*rows_containing(values, b"\n"), *written]

    @staticmethod
    def _traces(values: Sequence[bytes], rows: Iterable[int]) -> dict[int, Trace]:
        found = ((row, trace_of(values[row])) for row in rows)
        return {row: trace for row, trace in found if trace is not None}

    def _hash_outcomes(self, outcomes: bytes) -> int:
        return self.keyed_hash(b"outcomes\n" + outcomes)

    def _frames_hash(self, variant: Sequence[bytes]) -> int:
        return self.keyed_hash(b"frames\n" + b"\n".join(variant))

    def _salt(self, name: str) -> Salt:
        salt = self._salts.get(name)
        if salt is None:
            if len(self._salts) >= MAX_SALTS:
                self._salts.clear()
            data = name.encode("utf-8", "surrogatepass")
            salt = hash128(data, self.recipe.fingerprint.seed)[1], self.keyed_hash(data)
            self._salts[name] = salt
        return salt

    def take_apart(self, value: bytes, document: object, kernel: ReferenceKernel) -> Taken:
        """Return one event's tokens and features, to show them to people."""
        documents = [document] if self.takes_fields else None
        prepared = self.prepare([value], documents)
        variant: list[bytes] = []
        if isinstance(prepared, WithVariants):
            outcomes, text = split(value)
            trace = trace_of(text) if self._takes_frames else None
            variant = [*outcomes.split(), *(() if trace is None else trace.variant)]
            prepared = prepared.events
        if isinstance(prepared, Segments):
            return self._take_fields(document, prepared, kernel)
        event = prepared[0]
        if isinstance(event, bytes):
            taken = kernel.take([(event, 1, NO_SALT)])
        else:
            taken = kernel.take_features(event)
        taken.variant.extend(variant)
        return taken

    def _take_fields(self, document: object, prepared: Segments, kernel: ReferenceKernel) -> Taken:
        """Return a JSON event's features, each with the name of its field."""
        names = [part[0] for part in self._preparer.parts(document)]
        taken = Taken([], [], [], [])
        salts = zip(prepared.salts, prepared.identity_salts, strict=True)
        parts = zip(prepared.texts, prepared.weights, salts, strict=True)
        blank = True
        for name, part in zip(names or [""], parts, strict=True):
            one = kernel.take([part])
            blank = blank and one.blank
            head = f"{name}=".encode("utf-8", "replace") if name else b""
            taken.tokens.extend(f._replace(text=head + f.text) for f in one.tokens)
            taken.features.extend(f._replace(text=head + f.text) for f in one.features)
            taken.verbatim.extend(one.verbatim)
            taken.variant.extend(one.variant)
        return taken._replace(blank=blank)

    def fingerprints(
        self, prepared: Prepared, full: bool, sketch_from_bytes: int = 0
    ) -> Fingerprints:
        """Compute exact hashes of a prepared batch; with `full`, fingerprints and sketches too.

        Args:
            prepared: the batch.
            full: whether to compute more than exact hashes.
            sketch_from_bytes: see `Kernel.scan`. It acts on a batch of plain texts (`is_plain`);
                all other events have a sketch.
        """
        if isinstance(prepared, WithVariants):
            numbers = self.fingerprints(prepared.events, full)
            exact, variants, empty = numbers.exact, numbers.variants, self.empty_exact
            for row, frames in prepared.frames.items():
                exact[row] ^= frames
                variants[row] ^= frames
            for row, outcomes in prepared.outcomes.items():
                if exact[row] != empty:
                    exact[row] ^= outcomes
                    variants[row] ^= outcomes
            return numbers
        if isinstance(prepared, Segments):
            return self._kernel.scan_segments(prepared, full)
        if self._extractor is not None:
            return self._kernel.fold(prepared, full)  # type: ignore[arg-type]
        return self._kernel.scan(prepared, full, sketch_from_bytes)  # type: ignore[arg-type]

    def exact_of(self, value: bytes, document: object) -> int:
        """Compute the exact hash of one event, as `fingerprints` does of a prepared batch."""
        is_split = self._takes_outcomes and value[:1] == FIRST_BYTE
        if self._hashes_text and not (is_split or (self._takes_frames and has_lines(value))):
            return self._kernel.exact_of(value)
        prepared = self.prepare([value], [document] if self.takes_fields else None)
        return self.fingerprints(prepared, full=False).exact[0]

    def sketches(self, texts: Sequence[bytes]) -> list[bytes]:
        """Compute the sketches of prepared plain texts alone, under a recipe of bands."""
        return self._kernel.sketches(texts)

    def select(self, prepared: Prepared, indexes: Sequence[int]) -> Prepared:
        """Return the events at `indexes` of a prepared batch."""
        if isinstance(prepared, WithVariants):
            outcomes, frames = (
                {row: old[index] for row, index in enumerate(indexes) if index in old}
                for old in (prepared.outcomes, prepared.frames)
            )
            return WithVariants(self.select(prepared.events, indexes), outcomes, frames)  # type: ignore[arg-type]
        if not isinstance(prepared, Segments):
            return [prepared[index] for index in indexes]  # type: ignore[return-value]
        chosen = segments_of([])
        for index in indexes:
            start = prepared.ends[index - 1] if index else 0
            end = prepared.ends[index]
            chosen.texts.extend(prepared.texts[start:end])
            chosen.weights.extend(prepared.weights[start:end])
            chosen.salts.extend(prepared.salts[start:end])
            chosen.identity_salts.extend(prepared.identity_salts[start:end])
            chosen.ends.append(len(chosen.texts))
        return chosen

    def _features(self, parts: list[Part]) -> list[Part]:
        """Extract an event's features; none if the extractor fails, so that the event passes."""
        try:
            assert self._extractor is not None
            return self._extractor.to_fold(parts)
        except Exception as error:  # noqa: BLE001 -- foreign code: one event must not stop all
            warnings.warn(
                f"extractor {self.recipe.features.extractor} failed on an event, which is passed "
                f"through: {error!r}",
                RuntimeWarning,
                stacklevel=2,
            )
            return []


def _folding(recipe: Recipe) -> Recipe:
    """Return the recipe for a kernel that only folds features taken by another extractor."""
    features = msgspec.structs.replace(recipe.features, extractor=OTHER_EXTRACTOR)
    return msgspec.structs.replace(recipe, features=features)


def segments_of(events: Sequence[Sequence[Part]]) -> Segments:
    """Return the parts of events as columns."""
    segments = Segments([], array("I"), array("I"), array("Q"), array("Q"))
    for event in events:
        for text, weight, (salt, identity_salt) in event:
            segments.texts.append(text)
            segments.weights.append(weight)
            segments.salts.append(salt)
            segments.identity_salts.append(identity_salt)
        segments.ends.append(len(segments.texts))
    return segments


def make_kernel(recipe: Recipe, key: HashKey) -> Kernel:
    """Make the kernel for a recipe: the native one if it is available and supports the recipe."""
    make: type[Kernel] = ReferenceKernel
    if is_native(recipe):
        warn_if_not_compiled()
        make = native_or("fingerprint._kernel", "Kernel", ReferenceKernel)
    return make(recipe, key)

"""What ``stream-dedup dedup`` says on standard error about what it did not compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.segment import NO_TOKENS
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.variants import STATUS_KEYS
from stream_dedup.io.decoder import NO_TEXT, TEXT_FIELDS, DecoderOptions, Events
from stream_dedup.model import Decision

TEXTLESS_NOTED = 100
"""So many JSON events without text are worth a note at once."""

_STATUS = re.compile("[1-5][0-9]{2}")
_SEPARATORS = str.maketrans("", "", "_-")

NAMES_SHOWN = 8
NAME_CHARACTERS = 40

OUTCOME_FIELDS = frozenset("level lvl loglevel levelname severity".split()) | {
    key.decode() for key in STATUS_KEYS - {b"code"}
}
"""Fields that say how an event ended, in lower case and without `_` and `-`."""

OUTCOMES_LOOKED_AT = 10_000
"""JSON events whose levels and statuses are looked at, the first ones."""


class Notes:
    """Notes of one run, each written once.

    Args:
        dedup: what decides.
        reading: how its events are decoded.
        write: writes a note.
    """

    def __init__(
        self, dedup: Deduplicator, reading: DecoderOptions, write: Callable[[str], None]
    ) -> None:
        self._dedup = dedup
        self._reading = reading
        self._write = write
        self._textless = 0
        self._names: list[str] = []  # fields of the first event without text
        self._noted_textless = False
        self._noted_evictions = False
        self._fields = OutcomeFields(dedup.recipe)
        self._looked_at = 0
        self._outcomes: dict[tuple[int, str], str | int] = {}  # of a cluster, the first of a field

    def decoded(self, events: Events) -> None:
        """Note JSON events without text, at the first hundred."""
        if not events.batch.passed or self._noted_textless:
            return
        rows = [row for row, reason in events.batch.passed.items() if reason == NO_TEXT]
        if rows and not self._textless:
            self._names = list(_text_paths(events.documents[rows[0]]))
        self._textless += len(rows)
        if self._textless >= TEXTLESS_NOTED:
            self._note_textless(f"{self._textless} JSON lines so far have")

    def decided(self, events: Events, decisions: Sequence[Decision]) -> None:
        """Note JSON events of one cluster that differ in a level or status, the first time."""
        if self._looked_at >= OUTCOMES_LOOKED_AT or self._dedup.recipe.input.fields:
            return
        if events.documents is None:
            return
        for document, decision in zip(events.documents, decisions, strict=True):
            if document is None or decision.cluster is None:
                continue
            self._looked_at += 1
            for name, value in document.items():
                if not _is_outcome_field(name) or not isinstance(value, str | int) or value == "":
                    continue
                if self._fields.knows(document, name):
                    continue
                first = self._outcomes.setdefault((decision.cluster, name), value)
                if _outcome(value) != _outcome(first):
                    self._looked_at = OUTCOMES_LOOKED_AT
                    self._outcomes.clear()
                    self._write(
                        f"events with {name} {_brief(first)} and {_brief(value)} are counted as "
                        f"one, as the recipe does not know what these mean; --group-field {name} "
                        "keeps them apart"
                    )
                    return

    def waiting(self) -> None:
        """Note that events are new again for want of room, while the input goes on."""
        if not self._noted_evictions and self._dedup.size().new_again:
            self._noted_evictions = True
            self._write(
                "events are new again because their clusters were closed for want of room; raise "
                "--max-clusters"
            )

    def ended(self, timeless: int, outside: int) -> None:
        """Note options that had no effect, and how many events were not compared.

        Args:
            timeless: events without a time, though times were asked for.
            outside: events that were left out because of their time.
        """
        counts, size = self._dedup.counts, self._dedup.size()
        if size.new_again:
            self._write(
                f"at least {size.new_again:,} events were new again because their clusters were "
                f"among the {size.evicted:,} that were closed for want of room; give "
                f"--max-clusters {counts.new - size.new_again} or more"
            )
        if timeless and timeless == counts.events + outside:
            self._write(
                "no event has a time that was recognised (see --time-format, --time-field); all "
                "count as events of the same time"
            )
        if not counts.events:
            return
        if not self._noted_textless and 2 * self._textless >= counts.events:
            self._note_textless(f"{self._textless} of {counts.events} JSON lines have")
        reasons = {why: n for why, n in counts.passed.items() if why != NO_TOKENS.reason}
        if sum(reasons.values()) == counts.events and not self._noted_textless:
            self._write(f"every event was passed through, undecided: {', '.join(reasons)}")

    def _note_textless(self, which: str) -> None:
        self._noted_textless = True
        field = self._reading.text_field
        lacks = f"no field {field!r}" if field else f"no text in {', '.join(TEXT_FIELDS)}"
        remedy = "name the field of their text with --text-field"
        if self._names:
            remedy += f" (the first has {', '.join(self._names)})"
        self._write(f"{which} {lacks}, and pass undecided; {remedy}")


@lru_cache(1_000)
def _is_outcome_field(name: str) -> bool:
    return name.lower().translate(_SEPARATORS) in OUTCOME_FIELDS


def _outcome(value: str | int) -> object:
    """Return what differs between outcomes: a name in any case, or the class of an HTTP status."""
    if isinstance(value, str):
        return int(value[0]) if _STATUS.fullmatch(value) else value.lower()
    return value // 100 if 100 <= value <= 599 else value


def _brief(value: object) -> str:
    text = str(value)[:NAME_CHARACTERS]
    return text if text.isprintable() else ascii(text)


def _text_paths(document: dict[str, object] | None) -> Iterator[str]:
    """Yield the paths of some texts in an event, as --text-field takes them."""
    found: list[tuple[str, ...]] = []
    for name, value in (document or {}).items():
        if isinstance(value, str):
            found.append((name,))
        elif isinstance(value, dict):
            found += [(name, inner) for inner, text in value.items() if isinstance(text, str)]
    for steps in found[:NAMES_SHOWN]:
        path = ".".join(steps)
        if any("." in step or "/" in step or not step for step in steps):
            path = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        if len(path) <= NAME_CHARACTERS and path.isprintable():
            yield path

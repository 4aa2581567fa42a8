"""Template ids: the number that all clusters of one template share.

A cluster's *template* is the pattern of its first event without log level, HTTP status class and
exit code, and with a placeholder for each word that is learned. Its id is the exact hash of that
text (see `reference`), under a key that everybody knows, so it depends on nothing else: the same
template has the same id in every run, namespace, group and cluster of another level or status. What
is not hashed is not part of the template either: delimiters between words, names of placeholders,
how many variables there are in a row, and what JSON events say beside their text. Protected words
of the text and the frames of stack traces are part of it.

When a word of a cluster is learned, or another cluster merges into it, its pattern changes, and so
does its id: it is always the id of the pattern that is shown.

An id is a name, not a decision: whoever wants to can make two texts of equal ids, and nothing
merges by it.

Worked example: levels are one word, learned words and statuses are variables::

    ERROR GET /a/7 HTTP/1.1" 503 by alice      level GET <*> by <*>
    INFO GET /a/9 HTTP/1.1" 200 by bob         level GET <*> by <*>
"""

from __future__ import annotations

from collections.abc import Sequence

from stream_dedup.columnar import replace_words, rows_containing
from stream_dedup.features.lines import LineReader, learned_words
from stream_dedup.features.outcome_fields import split_all, takes_outcomes
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.features.variants import LEVELS
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, KernelInput, WithVariants
from stream_dedup.fingerprint.kernel import Segments
from stream_dedup.fingerprint.siphash import PUBLIC_KEY

_LEVEL = b"level"
_LEVELS = frozenset(name.encode() for name in LEVELS)
_VARIABLE = b"0"


class Templates:
    """Computes the template ids of one recipe. Threads may share it.

    Args:
        recipe: of the clusters.
    """

    def __init__(self, recipe: Recipe) -> None:
        others = [name for name in recipe.match.variants if name not in {"level", "status"}]
        plain = replace(recipe, match__variants=others, match__learn=0)
        self._fingerprinter = Fingerprinter(plain, PUBLIC_KEY)
        self._reader = LineReader(recipe)
        self._has_levels = "level" in recipe.match.variants
        self._takes_outcomes = takes_outcomes(recipe)
        self._delimiters = recipe.delimiters

    def ids(
        self,
        firsts: Sequence[bytes],
        documents: Sequence[object] | None = None,
        learned: Sequence[int] = (),
    ) -> list[int]:
        """Return the ids of clusters' templates.

        Args:
            firsts: the values of their first events, as the index keeps them.
            documents: the same decoded, where the recipe takes fields; None for one that is not
                JSON.
            learned: of each the words that vary, see `Summary.learned`; nothing: none does.
        """
        if self._takes_outcomes:
            firsts, _ = split_all(firsts)
        prepared = self._fingerprinter.prepare(firsts, documents)
        events = prepared.events if isinstance(prepared, WithVariants) else prepared
        if self._has_levels or any(learned):
            events = self._replaced(events, learned)
        if isinstance(prepared, WithVariants):
            prepared = prepared._replace(events=events)
        else:
            prepared = events
        return list(self._fingerprinter.fingerprints(prepared, full=False).exact)

    def _replaced(self, events: KernelInput, learned: Sequence[int]) -> KernelInput:
        """Replace levels, and learned words, in the texts of events."""
        ends: Sequence[int] | None = None  # of each event, behind the last of its texts
        if isinstance(events, Segments):
            texts, ends = list(events.texts), events.ends
        elif events and isinstance(events[0], list):
            return events  # features of another extractor: neither is looked for in them
        else:
            texts = list(events)  # type: ignore[arg-type]
        for row in {*rows_containing(texts, b"\x1b"), *rows_containing(texts, b"#")}:
            texts[row] = self._reader.without_escapes(texts[row])
        for row, mask in enumerate(learned):
            if mask:
                part = slice(row, row + 1)
                if ends is not None:
                    part = slice(ends[row - 1] if row else 0, ends[row])
                texts[part] = self._without_learned(texts[part], mask)
        if self._has_levels:
            texts = replace_words(texts, _LEVELS, self._delimiters, _LEVEL)
        return events._replace(texts=texts) if isinstance(events, Segments) else texts

    def _without_learned(self, texts: list[bytes], mask: int) -> list[bytes]:
        """Put a variable in place of each word that is learned, wherever it appears."""
        readings = [self._reader.read(text) for text in texts]
        is_learned = learned_words([token for one in readings for token in one.tokens], mask)
        replaced = []
        for text in texts:
            out, at = bytearray(), 0
            for token in self._reader.read(text, lists=False).tokens:
                if not token.variable and is_learned(token):
                    out += text[at : token.start] + _VARIABLE
                    at = token.end
            replaced.append(bytes(out + text[at:]))
        return replaced

"""Patterns: the masked text that people read as a cluster's name. Made for representatives only.

Each variable is replaced by a placeholder with the name of the mask that matches it: ``<ipv4>``,
``<uuid>``, ``<number>``; ``<*>`` if none does. An HTTP status that belongs to the variant is shown
as its class, ``<5xx>``. A stack trace is shown as its header, and the innermost frame of the
program: ``… at App.charge``.
"""

from __future__ import annotations

import re

import msgspec

from stream_dedup.features.folding import SYMBOLS
from stream_dedup.features.masks import NAMED, Masker, named
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.tokens import SUBSTITUTE, Token, splitter, tokenise
from stream_dedup.features.traces import trace_of
from stream_dedup.features.variants import statuses

MAX_PATTERN = 300
"""Maximum characters of a pattern."""

MAX_FRAME = 120
"""Maximum characters of a frame in a pattern."""

_MAX_BYTES = 2_048
"""Bytes of a text that are used for its pattern."""

_NAME = re.compile(rb"<[a-z0-9_]+>")
_ALNUM = re.compile(rb"[A-Za-z0-9\x80-\xff]")

_MAX_NAMES = 6
"""A run of more names than this is shown as ``<*>``."""

# The masker puts a substitute between spaces. Where runs of white space were folded afterwards, the
# spaces are the text's own.
_SUBSTITUTES = re.compile(rb" ?\x1a([a-z0-9_]+) ?")
_FOLDED_SUBSTITUTES = re.compile(rb"\x1a([a-z0-9_]+)")


class Patterns:
    """Makes the patterns of a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._preparer = Preparer(_legible(recipe))
        self._split = recipe.split
        # A mask may match a part of a token ("web-3"): then the token has no name.
        self._parts = re.compile(
            rb"(?:<[a-z0-9_]+>|%b)+" % splitter(recipe.delimiters).pattern[:-1]
        )
        self._words = recipe.features.extractor == "words"
        self._classes = recipe.text.classes
        self._status = "status" in recipe.match.variants
        self._takes_frames = "frames" in recipe.match.variants
        self._delimiters = recipe.delimiters
        self._namer = Masker(named(NAMED))

    def pattern(self, value: bytes, document: object = None) -> str:
        """Return the pattern of an event; `document` is the decoded event if there are fields."""
        place = ""
        if self._preparer.takes_fields and document is not None:
            parts = [
                (name.encode("utf-8", "replace") + b"=", part[:_MAX_BYTES])
                for name, part, _ in self._preparer.parts(document)
            ]
        else:
            trace = trace_of(value) if self._takes_frames and b"\n" in value else None
            if trace is not None:
                value = trace.header
                place = f" at {readable(trace.frames[-1], MAX_FRAME)}"
            parts = [(b"", self._preparer.text(value[:_MAX_BYTES]))]
        tokens = [list(tokenise(text, self._split, self._classes)) for _, text in parts]
        if all(token.variable for of_part in tokens for token in of_part):
            # Without words, the text itself is compared.
            tokens = [[] for _ in parts]
        shown = (
            name + self._masked(text, of_part)
            for (name, text), of_part in zip(parts, tokens, strict=True)
        )
        return readable(b" ".join(shown).strip(), MAX_PATTERN - len(place)) + place

    def variables(self, line: bytes) -> list[tuple[int, int]]:
        """Return where the variable parts of a line of text are, in order.

        An event with fields has none. Nor has a line without words: its text itself is compared.
        """
        if self._preparer.takes_fields:
            return []
        line = line[:_MAX_BYTES]
        found = self._preparer.masked(line)
        tokens = list(tokenise(line, self._split, self._classes)) if self._words else []
        if not all(token.variable for token in tokens):
            found += [(token.start, token.end) for token in tokens if token.variable]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _masked(self, text: bytes, tokens: list[Token]) -> bytes:
        if not self._words:
            return _FOLDED_SUBSTITUTES.sub(rb"<\1>", text)
        classes = list(statuses(text, self._split)) if self._status else []
        out: list[bytes] = []
        at = 0
        for token in tokens:
            if token.variable:
                out.append(text[at : token.start])
                at = token.start
                for start, end, status_class in classes:
                    if at <= start < token.end:
                        out += self._between(text[at:start]), b"<" + status_class + b">"
                        at = end
                out.append(self._between(text[at : token.end]))
                at = token.end
        out.append(text[at:])
        return _SUBSTITUTES.sub(rb"<\1>", b"".join(out))

    def _between(self, run: bytes) -> bytes:
        """Name the variables of a run, and keep the delimiters around them."""
        left = run.lstrip(self._delimiters)
        bare = left.rstrip(self._delimiters)
        head = run[: len(run) - len(left)]
        return head + (self.named(bare) if bare else b"") + left[len(bare) :]

    def named(self, run: bytes) -> bytes:
        """Name each variable of a run; consecutive equal names are shown once."""
        text = run if SUBSTITUTE in run else self._namer.rename(run)
        out: list[bytes] = []
        names: list[bytes] = []
        for match in self._parts.finditer(text):
            name = match.group()
            if not (_NAME.fullmatch(name) or name[0] == SUBSTITUTE):
                if not _ALNUM.search(name):
                    continue
                name = b"<*>"
            if names and name == names[-1]:
                end = match.end()
                continue
            if names:
                out.append(text[end : match.start()])
            names.append(name)
            out.append(name)
            end = match.end()
        return b"".join(out) if len(names) <= _MAX_NAMES else b"<*>"


def _legible(recipe: Recipe) -> Recipe:
    """Return the recipe that prepares what people read: folding leaves no spaces."""
    if recipe.text.fold == "keep":
        return recipe
    text = msgspec.structs.replace(recipe.text, fold="keep", masks=tuple(SYMBOLS))
    return msgspec.structs.replace(recipe, text=text)


def readable(text: bytes, limit: int) -> str:
    """Return bytes as one line of text that is safe to print, escaping what is not printable."""
    shown = text.decode("utf-8", "backslashreplace")
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else " " if c in "\n\t" else c.encode("unicode_escape").decode()
            for c in shown
        )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"

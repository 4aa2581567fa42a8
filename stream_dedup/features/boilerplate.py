"""Boilerplate: what many unlike texts end with, such as signatures, notices and footers.

Problem: texts of strangers that have a long footer in common share most of their features, and
merge. The footers could be counted as the texts stream by; but if features were left out from some
day on, a text would get other ones than before, which match nothing that is stored.

Idea: learn once, over a corpus, and freeze. The result is a list of passages for
``text.boilerplate_file``, which is part of the recipe's digest. They are left out of folded texts
wherever they appear, natively (`folding.Passages`).

Learning. A passage is the end of a line, or a whole line, in words. The lines are put into a tree
from their last words to their first. A node is a passage; its lines are those that end with it. A
word more belongs to the passage if a tenth of its lines have it (`SHARE`), so that a common last
word of what people write before their signature is none of it. A passage is learned if enough
documents have it, not counting those that have a longer one of the tree.

A campaign of near-duplicates ends with the same words too, and to leave these out would hide the
campaign. So the documents must be unlike without the passage: up to `COMPARED` of them are compared
with each other by the recipe's features and its Jaccard threshold, and `UNLIKE` must differ. What
is shorter than `LEAST_FEATURES` does not count, as it may be noise that somebody added.

Worked, with two documents wanted, lines from their ends::

    see you | sent from my phone       phone ─ my ─ from ─ sent ┬ you
    at noon | sent from my phone                                ├ noon
    ok | sent from my phone                                     └ ok

"sent from my phone" has three lines. "you", "noon" and "ok" have one each: no longer passage.

Deviation: a tree of all parts of all texts would find passages inside lines too. They are rare
where people write, and a tree of ends is built in one pass over the lines that are left at each
depth, in bounded memory.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stream_dedup.errors import RecipeError
from stream_dedup.features import folding
from stream_dedup.features.prepare import NO_SALT, FeatureExtractor, Preparer
from stream_dedup.features.recipe import MAX_PASSAGE_CHARACTERS, Recipe, replace

MAX_DOCUMENTS = 20_000
"""Documents kept, drawn from all with the same chance: some 20 MB if they are messages."""

MAX_DOCUMENT_BYTES = 2_048
"""Of a longer document, the first half and the last half of so many bytes are kept."""

MIN_DOCUMENTS = 10
"""Documents with a passage, by default: so many, and a thousandth of those kept."""

MIN_BYTES = 12
"""Of a folded passage: shorter ends of lines are what people write."""

MAX_WORDS = 256
"""Of a passage."""

SHARE = 0.1
"""The share of a passage's documents in which a word more belongs to the passage."""

COMPARED = 100
UNLIKE = 10
"""Of `COMPARED` documents with a passage, so many must be unlike each other without it, or as many
as are wanted if these are fewer."""

LEAST_FEATURES = 24
"""Of a document without the passage, for letters four in a row some five words."""

ALIKE = 0.5
"""The threshold of recipes that do not verify."""

# A character by itself where scripts have no spaces: Thai to Khmer, kana, Chinese characters.
_WORD = re.compile(r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
                   r"|[^\s\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")  # fmt: skip


class Learned(NamedTuple):
    """A passage.

    Attributes:
        text: as it stands in a document, in one line.
        documents: how many of the documents kept have it, and no longer one.
    """

    text: str
    documents: int


class _Line(NamedTuple):
    document: int
    words: list[str]


class Corpus:
    """Documents to learn from.

    Args:
        recipe: gives the one that is used.
        max_documents: kept at most.

    Attributes:
        recipe: folds them, and decides which are alike, without boilerplate of its own.
        seen: documents that were added.

    Raises:
        RecipeError: the recipe does not fold look-alikes.
    """

    def __init__(self, recipe: Recipe, max_documents: int = MAX_DOCUMENTS) -> None:
        if not recipe.text.fold.startswith("look-alikes"):
            problem = f"is {recipe.text.fold!r}, and boilerplate is left out of folded texts only"
            raise RecipeError(recipe.name, "text.fold", problem, "use text, or documents")
        recipe = replace(recipe, text__boilerplate=[])
        self.recipe = recipe
        # Passages leave a text without words of its own.
        self._preparer = Preparer(replace(recipe, text__fold="look-alikes"))
        self._extractor = FeatureExtractor(recipe)
        self._jaccard = recipe.match.jaccard or ALIKE
        self._max_documents = max_documents
        self._drawn = random.Random(0)  # noqa: S311 -- equal corpora give equal passages
        self._documents: list[bytes] = []
        self._folded: dict[str, bytes] = {}  # of each word
        self.seen = 0

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, texts: Iterable[bytes]) -> None:
        """Add documents, given as any bytes."""
        for text in texts:
            self.seen += 1
            kept = text
            if len(text) > MAX_DOCUMENT_BYTES:
                half = MAX_DOCUMENT_BYTES // 2
                kept = text[:half] + b"\n" + text[-half:]
            if len(self._documents) < self._max_documents:
                self._documents.append(kept)
                continue
            place = self._drawn.randrange(self.seen)
            if place < self._max_documents:
                self._documents[place] = kept

    def learn(self, min_count: int | None = None) -> list[Learned]:
        """Return the passages that so many documents have, the most frequent first."""
        if min_count is None:
            min_count = max(MIN_DOCUMENTS, len(self) // 1000)
        found: dict[bytes, Learned] = {}
        for folded, line, size, documents in self._passages(list(self._lines()), min_count):
            text = " ".join(line.words[-size:]).lstrip("# ")  # a line with # is a comment
            if len(text) > MAX_PASSAGE_CHARACTERS:
                continue
            if self._unlike(folded, documents, min(UNLIKE, min_count)):
                found.setdefault(folded, Learned(text, len(documents)))
        return sorted(found.values(), key=lambda each: (-each.documents, each.text))

    def _lines(self) -> Iterator[_Line]:
        """Yield the lines of all documents, without words of which folding leaves nothing."""
        known = self._folded
        for number, document in enumerate(self._documents):
            for raw in document.splitlines():
                try:
                    words = _WORD.findall(raw.decode())
                except UnicodeDecodeError:
                    continue
                new = [word for word in words if word not in known]
                known.update(zip(new, folding.folded_passages(new), strict=True))
                words = [word for word in words if known[word]]
                if words:
                    yield _Line(number, words)

    def _passages(
        self, lines: Sequence[_Line], min_count: int
    ) -> Iterator[tuple[bytes, _Line, int, list[int]]]:
        """Yield each passage, folded; a line that ends with it; its words; and its documents."""
        folded = self._folded
        stack: list[tuple[list[_Line], int, int]] = [(list(lines), 0, 0)]
        while stack:
            ending, size, length = stack.pop()
            least = SHARE * len({line.document for line in ending}) if length >= MIN_BYTES else 0
            own, longer = [], defaultdict(list)
            for line in ending:
                if size < min(MAX_WORDS, len(line.words)):
                    longer[folded[line.words[-1 - size]]].append(line)
                else:
                    own.append(line)
            for word, some in longer.items():
                if len({line.document for line in some}) >= max(min_count, least):
                    stack.append((some, size + 1, length + len(word)))
                else:
                    own += some
            documents = sorted({line.document for line in own})
            if length >= MIN_BYTES and len(documents) >= min_count:
                passage = b"".join(folded[word] for word in own[0].words[-size:])
                yield passage, own[0], size, documents

    def _unlike(self, passage: bytes, documents: Sequence[int], wanted: int) -> bool:
        """Return whether so many documents are unlike each other without a passage."""
        step = -(-len(documents) // COMPARED)
        texts = self._preparer.texts([self._documents[number] for number in documents[::step]])
        passages = folding.fastest().Passages([passage])
        unlike: list[set[bytes]] = []
        for text, rest in zip(texts, passages.leave_out(texts), strict=True):
            found = {part for part, _, _ in self._extractor.features([(rest, 1, NO_SALT)])}
            if rest == text or len(found) < LEAST_FEATURES:
                continue  # the passage alone, or little more
            if not any(_jaccard(found, other) >= self._jaccard for other in unlike):
                unlike.append(found)
                if len(unlike) == wanted:
                    return True
        return False


def _jaccard(one: set[bytes], other: set[bytes]) -> float:
    common = len(one & other)
    return common / max(1, len(one) + len(other) - common)


def listed(passages: Sequence[Learned], corpus: Corpus) -> Iterator[str]:
    """Yield the lines of a file of passages: comments, then a passage each."""
    recipe = corpus.recipe
    number = f"{len(passages)} passage{'' if len(passages) == 1 else 's'}"
    yield f"# Boilerplate: {number} of {corpus.seen} documents, learnt once, frozen.\n"
    yield f"# Recipe {recipe.name}, digest {recipe.digest}.\n"
    yield "# Use as text.boilerplate_file. Remove what tells your texts apart.\n"
    before = 0
    for each in passages:
        if each.documents != before:
            yield f"# {each.documents} documents:\n"
            before = each.documents
        yield f"{each.text}\n"

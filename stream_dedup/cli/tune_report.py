"""What ``stream-dedup tune`` has found out, as people and programs read it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click
from rich.console import Console
from rich.text import Text

from stream_dedup.cli.common import shown
from stream_dedup.cli.recipes import to_toml
from stream_dedup.cli.terminal import PLACEHOLDER
from stream_dedup.features.patterns import readable
from stream_dedup.features.recipe import Recipe
from stream_dedup.tuning.places import PROTECTED, WORD, Place
from stream_dedup.tuning.questions import Change, Question, Report
from stream_dedup.tuning.sample import Sample
from stream_dedup.tuning.trials import Difference, Grouping
from stream_dedup.units import counted

Numbered = list[tuple[int, Question]]
"""Questions with their numbers."""

CLASSES_SHOWN = 8
PLACES_SHOWN = 8
VALUES_SHOWN = 6
DIFFERENCES_SHOWN = 3
PARTS_SHOWN = 4

CONTEXT_WORDS = 3
"""Words shown at both sides of where patterns differ."""

IN_JSON = 50
"""Places, values, differences and parts of each, at most, in JSON."""

TITLES = {
    (True, False): "Are these one kind of event?",
    (False, True): "Are these different kinds of event?",
    (True, True): "Are these better grouped so?",
}
"""By whether clusters merge, and whether they part."""

_PIECE = re.compile(r"[^ ,;]*[ ,;]+|[^ ,;]+")
_TITLE = re.compile(r"[0-9]+\. |[A-Z]")

VARIANTS = {
    "level": "log levels",
    "status": "HTTP statuses and exit codes",
    "frames": "frames of stack traces",
}


class ReportView:
    """A report, as people and programs read it.

    Args:
        sample: the events.
        report: what was found out about them.
        files: names of the inputs, to be shown.
        lines: lines read.
        limit: lines read at most.
        given: the inputs as they were given, for commands.
    """

    def __init__(
        self,
        sample: Sample,
        report: Report,
        files: str,
        lines: int,
        limit: int,
        given: Sequence[str],
    ) -> None:
        self.sample = sample
        self.report = report
        self.files = files
        self._lines = lines
        self._limit = limit
        self._given = given
        self._classes = report.words.classes()
        self._open = [place for place in report.words.places if not place.learned]

    def accepted(self, numbers: list[int] | None) -> Numbered:
        """Return the questions with these numbers; None for the suggested ones.

        Raises:
            click.UsageError: there is no such question.
        """
        numbered = list(enumerate(self.report.questions, 1))
        if numbers is None:
            return [(number, question) for number, question in numbered if question.why]
        if numbers and numbers[-1] > len(numbered):
            raise click.UsageError(f"there is no question {numbers[-1]}; there are {len(numbered)}")
        return [numbered[number - 1] for number in numbers]

    # ------------------------------------------------------------ text

    def print(self, out: Console, wanted: int, accepted: Numbered, after: Grouping) -> None:
        """Print it."""
        whole = not sys.stdout.isatty()
        for line in self._text(wanted, accepted, after):
            text = Text(line, "bold" if _TITLE.match(line) else "")
            text.highlight_regex(PLACEHOLDER, "cyan")
            cut: Literal["ignore", "ellipsis"] = "ignore" if whole else "ellipsis"
            out.print(text, soft_wrap=whole, no_wrap=True, overflow=cut)

    def _text(self, wanted: int, accepted: Numbered, after: Grouping) -> Iterator[str]:
        yield from self._head()
        yield from self._tokens()
        yield from self._places()
        questions = self.report.questions
        if questions:
            yield "Questions, each of them tried on these events:"
        else:
            yield "No setting that was tried moves an event."
        for number, question in enumerate(questions[:wanted], 1):
            yield ""
            yield from self._question(number, question)
        if len(questions) > wanted:
            rest = len(questions) - wanted
            yield ""
            yield f"and {counted(rest, 'question')} more: --questions {len(questions)}"
        yield from self._tail(accepted, after)

    def _head(self) -> Iterator[str]:
        sample, base = self.sample, self.report.base
        yield (
            f"{self.files}: {counted(sample.events, 'event')} of {counted(len(sample), 'pattern')} "
            f"in {counted(len(base), 'cluster')} with the recipe {base.recipe.name}"
        )
        if self._lines >= self._limit:
            yield f"  only the first {self._limit:,} lines were read: --limit"
        if sample.left_out:
            share = sample.events / (sample.events + sample.left_out)
            yield (
                f"  the first {len(sample):,} patterns are {share:.1%} of the events; others were "
                "left out: --patterns"
            )
        for reason, number in sorted(sample.passed.items()):
            yield f"  not compared, {reason}: {number:,}"
        yield ""

    def _tokens(self) -> Iterator[str]:
        classes = self._classes
        if self.report.base.recipe.features.extractor != "words" or not classes.counts:
            return
        total = classes.counts.total()
        covered = "" if classes.covered == 1 else f" (of {classes.covered:.1%} of the events)"
        yield f"What the words are{covered}:"
        ranked = classes.counts.most_common()
        for name, number in ranked[:CLASSES_SHOWN]:
            what = name
            if name == WORD:
                what = "words"
            elif name == PROTECTED:
                what = f"protected words: {_values(classes.protected.most_common())}"
            elif name == "<*>":
                what = "<*>, variables of other shapes"
            yield f"  {number / total:6.1%}  {what}"
        if len(ranked) > CLASSES_SHOWN:
            rest = sum(number for _, number in ranked[CLASSES_SHOWN:])
            yield f"  {rest / total:6.1%}  others"
        yield ""

    def _places(self) -> Iterator[str]:
        if not self._open:
            return
        yield "Places where words differ that are no variables, shown as <*>:"
        for place in self._open[:PLACES_SHOWN]:
            yield f"  {place.pattern}"
            words = f"{len(place.values)} of {place.wanted} words"
            if len(place.values) >= place.wanted:
                words = f"{len(place.values)} words, apart by other variables,"
            events = counted(place.events, "event")
            yield f"      {words} in {events}: {_values(list(place.counts.items()))}"
        if len(self._open) > PLACES_SHOWN:
            yield f"  and {counted(len(self._open) - PLACES_SHOWN, 'place')} more"
            apart = self.report.words.words_apart().most_common()
            yield f"  the words that most events have in such places: {_values(apart)}"
        yield ""

    def _question(self, number: int, question: Question) -> Iterator[str]:
        title = TITLES[bool(question.merges), bool(question.splits)]
        moved = counted(question.moved, "event")
        verb = "move" if question.splits else "join others"
        yield f"{number}. {title} {moved} would {verb}."
        both, group = question.merges and question.splits, question.change.group
        if both:
            yield "     These would be one cluster:"
        for difference in question.merges[:DIFFERENCES_SHOWN]:
            yield from self._difference(difference, question.after, question.before, "")
        if both:
            yield "     These would part:"
        for difference in question.splits[:DIFFERENCES_SHOWN]:
            yield from self._difference(difference, question.before, question.after, group)
        rest = [*question.merges[DIFFERENCES_SHOWN:], *question.splits[DIFFERENCES_SHOWN:]]
        if rest:
            events = counted(sum(each.events for each in rest), "event")
            yield f"     and {counted(len(rest), 'more cluster')} of {events}, in --json"
        yield f"   If so: {self._answer(number, question.change)}"
        yield f"     {self._meaning(question)}"
        if question.why:
            yield f"     suggested: {question.why}"
        for change in question.also:
            yield f"     the same with: {self._answer(number, change)}"

    def _difference(
        self, difference: Difference, of_whole: Grouping, of_parts: Grouping, group: str
    ) -> Iterator[str]:
        """Show a cluster, and below it its parts: where they differ, or by their groups."""
        whole = of_whole.pattern(difference.whole)
        yield f"     {difference.events:9,}  {whole}"
        parts = difference.parts[:PARTS_SHOWN]
        if group:
            named = [
                f"{group} {shown(self.sample.label(group, p.rows[0]).encode())}" for p in parts
            ]
        else:
            named = differing(whole, [of_parts.pattern(part.cluster) for part in parts])
        for part, name in zip(parts, named, strict=True):
            yield f"       {part.events:9,}  {name}"
        rest = difference.parts[PARTS_SHOWN:]
        if rest:
            events = sum(part.events for part in rest)
            yield f"       {events:9,}  in {counted(len(rest), 'more cluster')}"

    @staticmethod
    def _answer(number: int, change: Change) -> str:
        if change.ungroup:
            return "compare across groups: give no --group option, and --group-prefix off"
        options = shlex.join(change.options())
        return options or f"--accept {number} --output recipe.toml ({change.described()})"

    def _meaning(self, question: Question) -> str:
        """Say what a change does, and how many clusters it leaves."""
        beyond = ""
        if question.beyond is not None:
            step = next(
                number
                for number, other in enumerate(self.report.questions, 1)
                if question.beyond in (other.change, *other.also)
            )
            beyond = f" with those of question {step}"
        return (
            f"{_explained(question.change, self.report.base.recipe)}; "
            f"{len(self.report.base):,} clusters become {question.clusters:,}{beyond}"
        )

    def _tail(self, accepted: Numbered, after: Grouping) -> Iterator[str]:
        without = self.report.without_effect
        if without:
            yield ""
            yield f"No event moves with: {_summed_up(without)}"
        yield f"(from {counted(self.report.trials, 'run')} of the engine)"
        if not self.report.questions:
            return
        yield ""
        if accepted:
            numbers = ",".join(str(number) for number, _ in accepted)
            yield (
                f"With {numbers} answered by yes, {len(self.report.base):,} clusters become "
                f"{len(after):,}."
            )
        files = [name if name.isprintable() else "FILE" for name in self._given]
        tried = [*(question for _, question in accepted), *self.report.questions]
        options = next(filter(None, (question.change.options() for question in tried)), None)
        if options:
            command = ["stream-dedup", "dedup", "--top", "20", *options, *files]
            yield f"Try one:        {shlex.join(command)}"
        numbers = ",".join(str(number) for number, _ in accepted) or "1"
        command = ["stream-dedup", "tune", "--accept", numbers, "--output", "recipe.toml", *files]
        yield f"Write a recipe: {shlex.join(command)}"

    # ------------------------------------------------------------ JSON

    def document(self, accepted: Numbered, after: Grouping) -> dict[str, Any]:
        """Return all of it as one JSON object."""
        sample, base = self.sample, self.report.base
        return {
            "recipe": base.recipe.name,
            "digest": base.recipe.digest,
            "lines": self._lines,
            "events": sample.events,
            "patterns": len(sample),
            "clusters": len(base),
            "left_out": sample.left_out,
            "passed": dict(sorted(sample.passed.items())),
            "trials": self.report.trials,
            "tokens": {
                "classes": dict(self._classes.counts.most_common()),
                "protected": {
                    _shown(word): count
                    for word, count in self._classes.protected.most_common(IN_JSON)
                },
                "covered": self._classes.covered,
            },
            "places": [_place_object(place) for place in self._open[:IN_JSON]],
            "words_apart": {
                _shown(word): count
                for word, count in self.report.words.words_apart().most_common(IN_JSON)
            },
            "questions": [
                self._question_object(number, question)
                for number, question in enumerate(self.report.questions, 1)
            ],
            "without_effect": [change.described() for change in self.report.without_effect],
            "accepted": {
                "questions": [number for number, _ in accepted],
                "clusters": len(after),
                "recipe": to_toml(after.recipe),
            },
        }

    @staticmethod
    def _question_object(number: int, question: Question) -> dict[str, Any]:
        change, beyond = question.change, question.beyond
        return {
            "question": number,
            "change": change.described(),
            "options": change.options(),
            "same_effect": [other.described() for other in question.also],
            "beyond": None if beyond is None else beyond.described(),
            "suggested": question.why or None,
            "moved": question.moved,
            "clusters": question.clusters,
            "merges": [
                _difference_object(difference, question.after, question.before)
                for difference in question.merges[:IN_JSON]
            ],
            "splits": [
                _difference_object(difference, question.before, question.after)
                for difference in question.splits[:IN_JSON]
            ],
            "more": max(0, len(question.merges) - IN_JSON) + max(0, len(question.splits) - IN_JSON),
        }


def differing(whole: str, parts: Sequence[str]) -> list[str]:
    """Return patterns without the words that all have in common at both ends, but for a few.

    >>> differing("a b c d e f <*>", ["a b c d e f one", "a b c d e f two"])
    ['… d e f one', '… d e f two']
    """
    every = [_PIECE.findall(pattern) for pattern in (whole, *parts)]
    least = min(map(len, every))
    left = next((i for i in range(least) if len({words[i] for words in every}) > 1), least)
    most = least - left
    right = next((i for i in range(most) if len({words[-1 - i] for words in every}) > 1), most)
    left, right = max(0, left - CONTEXT_WORDS), max(0, right - CONTEXT_WORDS)
    head, tail = "… " if left else "", "…" if right else ""
    return [head + "".join(words[left : len(words) - right]) + tail for words in every[1:]]


def _explained(change: Change, recipe: Recipe) -> str:
    """Say what a change does."""
    if change.group:
        return f"only events of one {change.group} are compared"
    if change.ungroup:
        return "events of different groups are compared"
    if change.protect:
        return "these words never vary within a cluster"
    if change.unprotect:
        return "these words may vary within a cluster"
    key, value = change.settings[0]
    if key == "match.learn":
        now = recipe.match.learn or "none"
        return f"{value} different words in one place make a variable, now {now}"
    if key == "match.jaccard":
        what = "words" if recipe.features.extractor == "words" else "features"
        now = f"{recipe.match.jaccard:.0%}"
        return f"events that are near share at least {value:.0%} of their {what}, now {now}"
    if key == "match.k":
        return f"fingerprints differ in at most {value} bits, now {recipe.match.k}"
    if key == "match.variants":
        had = recipe.match.variants
        gone = [VARIANTS[name] for name in had if name not in value]
        if gone:
            return f"{gone[0]} may vary within a cluster"
        return f"{VARIANTS[next(name for name in value if name not in had)]} are kept apart"
    return "outcomes such as ok, failed, not are kept apart"


def _summed_up(changes: Sequence[Change]) -> str:
    """Name changes, those of one setting together."""
    values: dict[str, list[str]] = {}
    others: list[str] = []
    for change in changes:
        if change.settings:
            (key, value), *_ = change.settings
            values.setdefault(key, []).append(_brief(value))
        else:
            others.append(change.described())
    return "; ".join([*(f"{key} {', '.join(all_)}" for key, all_ in values.items()), *others])


def _brief(value: object) -> str:
    return f"[{' '.join(value)}]" if isinstance(value, list) else str(value)


def _shown(word: bytes) -> str:
    return readable(word, 40)


def _values(counts: Sequence[tuple[bytes, int]]) -> str:
    """List values with their events, the most frequent ones."""
    named = [f"{_shown(word)} {count:,}" for word, count in counts[:VALUES_SHOWN]]
    rest = len(counts) - VALUES_SHOWN
    return ", ".join(named) + (f" and {rest:,} more" if rest > 0 else "")


def _place_object(place: Place) -> dict[str, Any]:
    return {
        "pattern": place.pattern,
        "wanted": place.wanted,
        "distinct": len(place.values),
        "events": place.events,
        "values": [
            {"word": _shown(word), "events": count}
            for word, count in list(place.counts.items())[:IN_JSON]
        ],
    }


def _difference_object(
    difference: Difference, of_whole: Grouping, of_parts: Grouping
) -> dict[str, Any]:
    return {
        "pattern": of_whole.pattern(difference.whole),
        "events": difference.events,
        "parts": [
            {"pattern": of_parts.pattern(part.cluster), "events": part.events}
            for part in difference.parts[:IN_JSON]
        ],
        "more_parts": max(0, len(difference.parts) - IN_JSON),
    }

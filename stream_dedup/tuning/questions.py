"""The questions that a person's own events raise about a recipe, each answered by a real run.

A *trial* is the recipe with one setting changed, run on the sample. Where the clusters of a trial
differ from those before it, there is a question: are these one kind of event, or several? Those
that move most events come first. Settings with an order (`match.learn`, `match.k`,
`match.jaccard`) are changed in steps, and each step is compared with the one before it, so that the
events just merged and just not merged are seen by themselves.

Some answers are suggested; there are two rules:

- fewer values make a variable, if all words that merge thereby vary in another place, too, where
  enough values were seen: names of users vary wherever they appear;
- words are protected that were taken for values of a variable, if nearly all of them end in *-ed*
  or *-ing*: such words say what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_dedup.errors import RecipeError
from stream_dedup.features.patterns import readable
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.features.variants import LEVELS, MAX_WORD_BYTES, OUTCOMES
from stream_dedup.tuning.places import Place, Words
from stream_dedup.tuning.sample import Sample
from stream_dedup.tuning.trials import Difference, Grouping, merged

LEARN = 5
"""What is tried for a recipe that learns no words."""

LEARN_STEPS = ((4, 3, 2), (6, 8))
K_STEP = 3
JACCARD_STEP = 0.1

MAX_PLACES = 5
"""Places whose values are tried as protected words."""

MAX_PROTECTED = 12
"""Places with more values are not tried so: a list of all values would never be complete."""

MAX_SETS = 4
"""Sets of protected words that are tried as ordinary ones."""

ENDED_SHARE = 0.8
"""Of the values of a place, so many end in -ed or -ing where it is suggested to protect them."""

Progress = Callable[[int, int], None]
"""Called with the number of trials that were run, and of all that are known of."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the settings, as a person decides on it.

    Attributes:
        settings: keys of the recipe and their new values.
        protect: words to protect.
        unprotect: words to protect no longer.
        group: the JSON field that makes groups; empty for none.
        ungroup: whether groups are given up.
    """

    settings: tuple[tuple[str, Any], ...] = ()
    protect: tuple[str, ...] = ()
    unprotect: tuple[str, ...] = ()
    group: str = ""
    ungroup: bool = False

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the changed recipe.

        Raises:
            RecipeError: the change does not fit with the recipe's other settings.
        """
        changes = {key.replace(".", "__"): value for key, value in self.settings}
        if self.protect or self.unprotect:
            given = recipe.match.protected
            words = {*(OUTCOMES if given == "outcomes" else given), *self.protect}
            changes["match__protected"] = sorted(words - {*self.unprotect})
        return replace(recipe, **changes) if changes else recipe

    def described(self) -> str:
        """Say in a few words what changes."""
        if self.group:
            return f"--group-field {self.group}"
        if self.ungroup:
            return "no groups"
        if self.protect:
            return f"protect {', '.join(self.protect)}"
        if self.unprotect:
            return f"do not protect {', '.join(self.unprotect)}"
        return ", ".join(f"{key} = {_written(value)}" for key, value in self.settings)

    def options(self) -> list[str]:
        """Return the options that do it, as arguments; none if it takes a recipe's file."""
        if self.group:
            return ["--group-field", self.group]
        return [
            argument
            for key, value in self.settings
            for argument in ("--set", f"{key}={_written(value)}")
        ]


def _written(value: object) -> str:
    """Return a setting's value as in TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(slots=True)
class Question:
    """What a change would do.

    Attributes:
        change: the change.
        beyond: the step before it, which the differences are counted from; None: the recipe.
        clusters: clusters with the change.
        merges: clusters that would be one.
        splits: clusters that would part; their parts are those of the trial.
        before: the grouping that it is compared with.
        after: its own.
        also: other changes with the same effect.
        why: why it is suggested; empty if it is not.
    """

    change: Change
    beyond: Change | None
    clusters: int
    merges: list[Difference]
    splits: list[Difference]
    before: Grouping
    after: Grouping
    also: list[Change] = field(default_factory=list)
    why: str = ""

    def add(self, change: Change) -> None:
        """Add a change with the same effect. One that names words takes a step's place."""
        if change.protect and not self.change.protect and self.beyond is None:
            change, self.change = self.change, change
        self.also.append(change)

    @property
    def moved(self) -> int:
        """The events that would be elsewhere."""
        return sum(each.moved for each in (*self.merges, *self.splits))


@dataclass(slots=True)
class Report:
    """What was found out about a recipe and a sample.

    Attributes:
        words: the words of the sample.
        base: the clusters of the recipe as it is.
        questions: by the events that they move.
        without_effect: changes that were tried and move no event.
        trials: runs of the engine.
    """

    words: Words
    base: Grouping
    questions: list[Question]
    without_effect: list[Change]
    trials: int


class Tuner:
    """Tries changes of a recipe on a sample.

    Args:
        recipe: what is changed.
        sample: the events.
        progress: learns how far it is.
    """

    def __init__(self, recipe: Recipe, sample: Sample, progress: Progress) -> None:
        self._recipe = recipe
        self._sample = sample
        self._progress = progress
        self._trials = 0
        self._planned = 1
        self._base = self.run([])
        self._words = Words(sample, self._base)
        self._questions: list[Question] = []
        self._without_effect: list[Change] = []

    def run(self, changes: Sequence[Change]) -> Grouping:
        """Run the engine with some changes.

        Raises:
            RecipeError: they do not fit with each other, or with the recipe.
        """
        recipe = self._recipe
        for change in changes:
            recipe = change.applied(recipe)
        field = next((change.group for change in changes if change.group), "")
        grouped = not any(change.ungroup for change in changes)
        grouping = Grouping(recipe, self._sample, self._sample.groups(field=field, grouped=grouped))
        self._trials += 1
        self._progress(self._trials, max(self._trials, self._planned))
        return grouping

    def report(self) -> Report:
        """Try everything."""
        ladders = list(self._ladders())
        single = [*self._protections(), *self._variants(), *self._groups()]
        self._planned += sum(map(len, ladders)) + len(single) + 1 + MAX_SETS
        for ladder in ladders:
            before, last = self._base, None
            for change in ladder:
                after = self._try(change, last, before)
                if after is not None:
                    before, last = after, change
        for change in single:
            self._try(change, None, self._base)
        for change in self._unprotected():
            self._try(change, None, self._base)
        self._suggest()
        ranked = sorted(self._questions, key=lambda each: (not each.why, -each.moved))
        return Report(self._words, self._base, ranked, self._without_effect, self._trials)

    def _try(self, change: Change, beyond: Change | None, before: Grouping) -> Grouping | None:
        """Run a trial, and ask about it if it changes something; None if it cannot be run."""
        try:
            after = self.run([change])
        except RecipeError:
            return None
        if after.partition == self._base.partition:
            self._without_effect.append(change)
            return after
        for question in self._questions:
            if question.after.partition == after.partition:
                question.add(change)
                return after
        if before.partition == self._base.partition:
            before, beyond = self._base, None
        counts = self._sample.counts
        self._questions.append(
            Question(
                change,
                beyond,
                len(after),
                merged(before, after, counts),
                merged(after, before, counts),
                before,
                after,
            )
        )
        return after

    # ------------------------------------------------------------ what is tried

    def _ladders(self) -> Iterator[list[Change]]:
        """Yield changes of one setting, step by step away from what it is."""
        match, kind = self._recipe.match, self._recipe.fingerprint.kind
        if not match.learn and self._recipe.features.extractor == "words":
            yield [_set("match.learn", LEARN)]
        elif match.learn:
            down, up = LEARN_STEPS
            yield [_set("match.learn", step) for step in down if step < match.learn]
            yield [_set("match.learn", step) for step in up if step > match.learn]
        if kind != "minhash" and match.jaccard:
            steps = [round(match.jaccard + by * JACCARD_STEP, 2) for by in (-1, -2)]
            yield [_set("match.jaccard", step) for step in steps if step > 0]
            more = round(match.jaccard + JACCARD_STEP, 2)
            yield [_set("match.jaccard", more)] if more <= 1 else []
        if kind == "simhash":
            yield [_set("match.k", match.k - K_STEP)] if match.k >= K_STEP else []
            yield [_set("match.k", match.k + K_STEP)]

    def _protections(self) -> list[Change]:
        """Return the values of learned places as words to protect."""
        sets: list[set[str]] = []
        for place in self._words.places:
            words = {word for word in map(_protectable, place.values) if word}
            if not place.learned or not 1 < len(words) <= MAX_PROTECTED:
                continue
            if any(words <= others for others in sets):
                continue
            sets = [others for others in sets if not others < words]
            if len(sets) < MAX_PLACES:
                sets.append(words)
        found = [Change(protect=tuple(sorted(words))) for words in sets]
        if self._recipe.features.extractor == "words" and not self._recipe.match.protected:
            found.append(_set("match.protected", "outcomes"))
        return found

    def _variants(self) -> list[Change]:
        """Return the variants with one less, and with each that the recipe does not have."""
        given = list(self._recipe.match.variants)
        found = [
            _set("match.variants", [other for other in given if other != name]) for name in given
        ]
        if self._recipe.features.extractor == "words":
            missing = [name for name in ("level", "status") if name not in given]
            found += [_set("match.variants", [*given, name]) for name in missing]
        return found

    def _groups(self) -> list[Change]:
        ungroup = [Change(ungroup=True)] if self._sample.grouped else []
        return ungroup + [Change(group=name) for name in self._sample.fields]

    def _unprotected(self) -> list[Change]:
        """Return the sets of protected words that keep most events apart, tried as ordinary words.

        A trial that protects no word at all says which.
        """
        given = self._recipe.match.protected
        if not given:
            return []
        try:
            without = self.run([Change((("match.protected", []),))])
        except RecipeError:
            return []
        kept_apart: Counter[tuple[str, ...]] = Counter()
        for difference in merged(self._base, without, self._sample.counts):
            first, *others = difference.parts
            ours = Counter(self._words.variant(first.rows[0]))
            for part in others:
                theirs = Counter(self._words.variant(part.rows[0]))
                words = {*(ours - theirs), *(theirs - ours)}
                names = sorted(word.decode() for word in words if word.decode() not in LEVELS)
                if names:
                    kept_apart[tuple(names)] += part.events
        return [Change(unprotect=words) for words, _ in kept_apart.most_common(MAX_SETS)]

    # ------------------------------------------------------------ what is suggested

    def _suggest(self) -> None:
        places = self._words.places
        known: dict[bytes, Place] = {}
        for place in places:
            if place.learned:
                for word in place.values:
                    known.setdefault(word, place)
        steps_good = True  # a step is suggested only if those before it are
        for question in self._questions:
            change = question.change
            if change.settings[:1] and change.settings[0][0] == "match.learn":
                steps_good = steps_good and bool(known)
                if question.merges and not question.splits and steps_good:
                    question.why = _vary_elsewhere(question.merges, places, known)
                steps_good = steps_good and bool(question.why)
            elif change.protect:
                ended = sum(word.endswith(("ed", "ing")) for word in change.protect)
                if question.splits and ended >= ENDED_SHARE * len(change.protect):
                    question.why = "words in -ed or -ing usually say what happened"


def _set(key: str, value: object) -> Change:
    return Change(settings=((key, value),))


def _protectable(word: bytes) -> str:
    """Return a word as a recipe can protect it; empty if it cannot."""
    text = word.rstrip(b".!").decode("ascii", "replace").lower()
    plain = all(c.isascii() and (c.isalpha() or c in "_-") for c in text)
    return text if text and plain and len(text) <= MAX_WORD_BYTES else ""


def _vary_elsewhere(
    merges: Iterable[Difference], places: Sequence[Place], known: dict[bytes, Place]
) -> str:
    """Say where the words vary that merge; empty if one of them varies nowhere else."""
    values: dict[int, bytes] = {}  # row of the sample to its word in a place not learned
    for place in places:
        if not place.learned and all(word in known for word in place.values):
            for value, rows in place.values.items():
                values.update(dict.fromkeys(rows, value))
    words: Counter[bytes] = Counter()
    for difference in merges:
        for part in difference.parts:
            word = next((values[row] for row in part.rows if row in values), None)
            if word is None:
                return ""
            words[word] += part.events
    shown = ", ".join(readable(word, 24) for word, _ in words.most_common(3))
    where = known[words.most_common(1)[0][0]]
    verb = "varies" if len(words) == 1 else "vary"
    return f"{shown} {verb} elsewhere too: {readable(where.pattern.encode(), 80)}"

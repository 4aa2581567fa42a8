"""How well predicted groups of lines agree with the true ones.

Problem: a log grouper answers with labels whose values mean nothing; only *which lines share a
label* does. The measures here compare two partitions of the same lines, the truth and the
prediction, each given as one label a line.

Three views of the same agreement, and two of the templates' words:

* `grouping_accuracy` (GA) counts **lines**: a line is right when its predicted group holds
  exactly the lines of its true group. Large groups weigh most, and one stray line spoils its
  whole group.
* `grouping_f1` (FGA) counts **groups**: each exactly found group weighs the same, so the rare
  templates matter as much as the frequent ones.
* `pair_f1` counts **pairs of lines** put together: it forgives a stray line, and weighs a group
  by the square of its size.
* `parsing_accuracy` (PA) counts **lines** whose template reads as the true one.
* `template_f1` (FTA) counts **templates** that read as the true one and hold no other lines.

Sources: GA as in Zhu et al., "Tools and Benchmarks for Automated Log Parsing" (ICSE-SEIP 2019);
FGA and FTA as in Jiang et al., "A Large-Scale Evaluation for Log Parsing Techniques: How Far Are
We?" (ISSTA 2024), which defines LogHub-2.0; PA as in Dai et al., "Logram" (TSE 2020), and there.
Templates are brought into one form before they are compared, as both sides of LogHub-2.0's
evaluation are, by the rules of Khan et al., "Guidelines for Assessing the Accuracy of Log Message
Template Identification Techniques" (ICSE 2022): see `normal_template`.

Worked example, five lines. The prediction finds group `A` and splits `B`:

    truth      A A B B B
    predicted  1 1 2 2 3

GA = 2/5 (only the lines of `A`); FGA: 1 of 3 predicted and 1 of 2 true groups are exact,
2·(1/3)(1/2)/(1/3 + 1/2) = 0.4; pairs: 2 predicted, both right, of 4 true ones: F1 = 2/3.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeAlias

Labels: TypeAlias = Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class PrecisionRecall:
    """Precision, recall and their harmonic mean, each from 0 to 1."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean; 0 when both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True, slots=True)
class _Contingency:
    """The sizes of all groups, and of each overlap of a true with a predicted one."""

    true_sizes: Counter[Hashable]
    predicted_sizes: Counter[Hashable]
    overlaps: Counter[tuple[Hashable, Hashable]]

    @classmethod
    def of(cls, truth: Labels, predicted: Labels) -> "_Contingency":
        if len(truth) != len(predicted):
            raise ValueError(f"{len(truth)} true labels, but {len(predicted)} predicted ones")
        if not truth:
            raise ValueError("no lines: agreement of nothing with nothing is undefined")
        overlaps = Counter(zip(truth, predicted, strict=True))
        return cls(Counter(truth), Counter(predicted), overlaps)

    def exact_sizes(self) -> list[int]:
        """The sizes of the groups that are the same set of lines on both sides."""
        return [
            size
            for (true, predicted), size in self.overlaps.items()
            if size == self.true_sizes[true] == self.predicted_sizes[predicted]
        ]


def grouping_accuracy(truth: Labels, predicted: Labels) -> float:
    """The share of lines whose predicted group is exactly the lines of their true group (GA).

    Args:
        truth: The true label of each line.
        predicted: The predicted label of each line, in the same order.

    Returns:
        The share, from 0 to 1.

    Raises:
        ValueError: The sequences differ in length, or are empty.

    >>> grouping_accuracy("AABBB", [1, 1, 2, 2, 3])
    0.4
    >>> grouping_accuracy("AABBB", [7, 7, 9, 9, 9])  # the labels' values mean nothing
    1.0
    >>> grouping_accuracy("AABBB", [1, 1, 1, 1, 1])  # one group of everything finds no template
    0.0
    """
    return sum(_Contingency.of(truth, predicted).exact_sizes()) / len(truth)


def grouping_f1(truth: Labels, predicted: Labels) -> float:
    """The F1 of finding the true groups exactly (FGA).

    Precision is the share of predicted groups that equal a true one, recall the share of true
    groups that equal a predicted one.

    Args:
        truth: The true label of each line.
        predicted: The predicted label of each line, in the same order.

    Returns:
        The harmonic mean of the two, from 0 to 1.

    Raises:
        ValueError: The sequences differ in length, or are empty.

    >>> round(grouping_f1("AABBB", [1, 1, 2, 2, 3]), 3)
    0.4
    >>> grouping_f1("AABBB", [7, 7, 9, 9, 9])
    1.0
    >>> grouping_f1("AABBB", [1, 2, 3, 4, 5])
    0.0
    """
    counts = _Contingency.of(truth, predicted)
    exact = len(counts.exact_sizes())
    return PrecisionRecall(
        precision=exact / len(counts.predicted_sizes), recall=exact / len(counts.true_sizes)
    ).f1


def pair_f1(truth: Labels, predicted: Labels) -> PrecisionRecall:
    """Precision and recall over the pairs of lines that share a group.

    Pairs are counted, never enumerated: a group of n lines holds n(n-1)/2 of them, and those
    right on both sides are the pairs inside each overlap of a true with a predicted group. So the
    cost is that of counting the lines.

    Args:
        truth: The true label of each line.
        predicted: The predicted label of each line, in the same order.

    Returns:
        Precision, recall and (its property) F1. With no pair predicted, no claim was wrong:
        precision 1; with no true pair, none was missed: recall 1.

    Raises:
        ValueError: The sequences differ in length, or are empty.

    >>> score = pair_f1("AABBB", [1, 1, 2, 2, 3])
    >>> score.precision, score.recall, round(score.f1, 3)
    (1.0, 0.5, 0.667)
    >>> score = pair_f1("AABBB", [1, 1, 1, 1, 1])
    >>> score.precision, score.recall
    (0.4, 1.0)
    >>> pair_f1("AABBB", [1, 2, 3, 4, 5]).f1
    0.0
    """
    counts = _Contingency.of(truth, predicted)
    shared = _pairs(counts.overlaps.values())
    claimed = _pairs(counts.predicted_sizes.values())
    wanted = _pairs(counts.true_sizes.values())
    return PrecisionRecall(
        precision=shared / claimed if claimed else 1.0, recall=shared / wanted if wanted else 1.0
    )


def _pairs(sizes: Iterable[int]) -> int:
    return sum(comb(size, 2) for size in sizes)


_PARTS = re.compile(r"([\s,!;:=|\"'\[\](){}])")
_TOKENS = re.compile(r"([\s,!;:=|\"'\[\](){}.\-+@#$%&])")
_PATH = re.compile(r"(?:/[^/]+)+")
_HELD = re.compile(r"[^\s/]*<\*>[^\s/]*")
_RUN = re.compile(r"<\*>(?:\.?<\*>)+")
_VALUES = frozenset(("true", "false", "null", "root", "admin"))


def normal_template(template: str) -> str:
    """A template in the form in which templates are compared.

    A token that holds a variable is a variable; so are paths, numbers, the words true, false, null,
    root and admin. Variables in a row, or with dots between, are one; so is white space.

    >>> normal_template("took  <*>ms on /var/log for user root at 10.<*>")
    'took <*> on <*> for user <*> at <*>'
    >>> normal_template("from <*>.<*>:<*> is <*><*>")
    'from <*>:<*> is <*>'
    """
    parts = _PARTS.split(" ".join(template.split()))
    text = "".join("<*>" if _PATH.fullmatch(part) else part for part in parts)
    tokens = _TOKENS.split(text)
    return _RUN.sub("<*>", "".join("<*>" if _variable(token) else token for token in tokens))


def _variable(token: str) -> bool:
    return (
        token.lower() in _VALUES
        or (token.isascii() and token.isdigit())
        or (
            token != "<*>/<*>"  # noqa: S105 -- no secret
            and _HELD.fullmatch(token) is not None
        )
    )


def parsing_accuracy(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of lines whose predicted template is their true one (PA).

    Args:
        truth: The true template of each line, as `normal_template` gives it.
        predicted: The predicted one, likewise.

    Returns:
        The share, from 0 to 1.

    Raises:
        ValueError: The sequences differ in length, or are empty.

    >>> parsing_accuracy(["a <*>", "a <*>", "b"], ["a <*>", "a x", "b"])
    0.6666666666666666
    """
    _Contingency.of(truth, predicted)
    return sum(map(str.__eq__, truth, predicted)) / len(truth)


def template_f1(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The F1 of finding the true templates word by word (FTA).

    A predicted template is right when all its lines have one true template, which reads the same.
    Precision is the share of predicted templates that are right, recall of true ones.

    Args:
        truth: The true template of each line, as `normal_template` gives it.
        predicted: The predicted one, likewise.

    Returns:
        The harmonic mean of the two, from 0 to 1.

    Raises:
        ValueError: The sequences differ in length, or are empty.

    >>> template_f1(["a <*>", "a <*>", "b"], ["a <*>", "a x", "b"])
    0.8
    """
    counts = _Contingency.of(truth, predicted)
    held: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for true, template in counts.overlaps:
        held[template].add(true)
    right = sum(true == {template} for template, true in held.items())
    return PrecisionRecall(right / len(held), right / len(counts.true_sizes)).f1

"""What a failed comparison of long sequences says.

pytest writes both sides line by line and compares the lines, which takes minutes for some thousand
items that are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

MANY_ITEMS = 50
LONG_TEXT = 5_000
"""Items, and characters or bytes; up to that many pytest's own diff is quick and says more."""

SHOWN = 3
"""Places that are shown."""

WIDTH = 160
"""Characters of an item that are shown, or of a text around a place."""

_MISSING = object()


class LongDifferenceError(AssertionError):
    """Two long sequences are not equal.

    It is raised where pytest asks for a description: pytest also makes its own if one is returned,
    and that is what takes minutes.
    """


def shorten_traceback(error: LongDifferenceError) -> None:
    """Remove pytest's own frames below the assertion."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        if "_pytest/assertion" in frame.tb_next.tb_frame.f_code.co_filename:
            frame.tb_next = None
        frame = frame.tb_next


def long_difference(left: object, right: object) -> list[str]:
    """Describe where two long sequences differ.

    Returns:
        Lines with the lengths, the number of places that differ, and the first of them; none if
        the two are not of one kind, not long, or equal.
    """
    short = LONG_TEXT if isinstance(left, (str, bytes)) else MANY_ITEMS
    for kind in (str, bytes, list, tuple):
        if isinstance(left, kind) and isinstance(right, kind):
            return _differences(left, right) if max(len(left), len(right)) > short else []
    return []


def _differences(left: Sequence[object], right: Sequence[object]) -> list[str]:
    pairs = enumerate(zip_longest(left, right, fillvalue=_MISSING))
    places = [place for place, (one, other) in pairs if one is not other and one != other]
    if not places:
        return []
    kind = type(left).__name__
    sizes = f"{kind} of {len(left):,} == {kind} of {len(right):,}"
    lines = [f"{sizes}: {len(places):,} places differ; the first of them:"]
    for place in places[:SHOWN]:
        if isinstance(left, (str, bytes)):
            begin = max(0, place - WIDTH // 4)
            one, other = (repr(side[begin : begin + WIDTH]) for side in (left, right))
        else:
            one, other = _excerpts(*(_text(side, place) for side in (left, right)))
        lines += [f"[{place}]", f"  left:  {one}", f"  right: {other}"]
    return lines


def _text(side: Sequence[object], place: int) -> str:
    return repr(side[place]) if place < len(side) else "nothing: it ends before"


def _excerpts(*texts: str) -> tuple[str, ...]:
    """Shorten texts to the part where they differ first."""
    columns = zip(*texts, strict=False)
    same = next((at for at, column in enumerate(columns) if len(set(column)) > 1), 0)
    begin = max(0, same - WIDTH // 2) if max(map(len, texts)) > WIDTH else 0
    return tuple(
        "…" * (begin > 0) + text[begin : begin + WIDTH] + "…" * (len(text) > begin + WIDTH)
        for text in texts
    )

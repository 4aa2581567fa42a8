"""The status page's elements, and how it shows numbers and times. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from stream_dedup.clock import US_PER_S
from stream_dedup.markup import make
from stream_dedup.worker.telemetry.logs import clean_text

MAX_TEXT_CHARS = 400
"""Characters shown of one text."""

MAX_ROWS = 20
"""Items shown of a list, before the number of those left out."""


def shown(text: str) -> str:
    r"""Text from outside, made safe to show: secrets hidden, one line, printable, not too long.

    >>> shown("redis://me:hunter2@host is away\x00\n")
    'redis://me:[hidden]@host is away\\x00\\n'
    """
    text = clean_text(text)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


def names(given: Sequence[str]) -> str:
    """Names from outside, separated by commas.

    >>> names([f"t{number}" for number in range(22)]).partition("t18")[2]
    ', t19, … and 2 more'
    """
    texts = [shown(name) for name in given[:MAX_ROWS]]
    return ", ".join([*texts, *more(len(given) - MAX_ROWS)])


def more(left_out: int, what: str = "") -> list[str]:
    """The note on items left out; empty if there are none."""
    return [f"… and {left_out:,} more {what}".rstrip()] if left_out > 0 else []


def notes(texts: Iterable[str]) -> list[Element]:
    """Paragraphs in small print."""
    return [make("p", text, class_="note") for text in texts]


def facts(*pairs: tuple[str, str]) -> Element:
    """A list of terms and their descriptions."""
    rows = [make("div", make("dt", term), make("dd", text)) for term, text in pairs]
    return make("dl", *rows, class_="facts")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0
) -> Element:
    """A table whose last columns, so many, are numbers; a row's first cell is its heading."""
    first_number = len(heads) - numbers
    kinds = [{"class_": "number"} if at >= first_number else {} for at in range(len(heads))]
    head = make(
        "tr",
        *(make("th", text, scope="col", **kind) for text, kind in zip(heads, kinds, strict=True)),
    )
    body = make("tbody")
    for name, *cells in rows:
        body.append(
            make(
                "tr",
                make("th", name, scope="row"),
                *(make("td", cell, **kind) for cell, kind in zip(cells, kinds[1:], strict=True)),
            )
        )
    above = [make("caption", caption)] if caption else []
    return make("table", *above, make("thead", head), body)


# ---------------------------------------------------------------- numbers and times

UNKNOWN = "–"
"""What is not known, or is a share of nothing."""


def format_count(value: float) -> str:
    """A whole number.

    >>> format_count(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def format_rate(value: float) -> str:
    """How many a second: few of them with a decimal.

    >>> format_rate(1234), format_rate(0.26), format_rate(0.01), format_rate(0)
    ('1,234', '0.3', 'under 0.1', '0')
    """
    if 0 < value < 0.1:
        return "under 0.1"
    return f"{value:.1f}" if 0 < value < 10 else format_count(value)


def format_share(part: float, whole: float) -> str:
    """A part of a whole. Only all of it is shown as 100 %.

    >>> format_share(1, 3), format_share(99_999, 100_000), format_share(5, 5), format_share(0, 0)
    ('33.3 %', '99.9 %', '100 %', '–')
    """
    if not whole:
        return UNKNOWN
    if part >= whole:
        return "100 %"
    return f"{math.floor(1000 * part / whole) / 10:.1f} %"


def format_duration(seconds: float) -> str:
    """How long something takes.

    >>> format_duration(0.00042), format_duration(0.0234), format_duration(2.5), format_duration(90)
    ('0.42 ms', '23.4 ms', '2.5 s', '90 s')
    """
    if math.isnan(seconds):
        return UNKNOWN
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{format_count(seconds)} s"


def format_age(seconds: float) -> str:
    """How long something has lasted: in two units at most.

    >>> format_age(7.9), format_age(150), format_age(7500), format_age(93_600)
    ('7 s', '2 min 30 s', '2 h 5 min', '1 d 2 h')
    """
    whole = max(0, int(seconds))
    for size, unit, small_size, small in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small}"
    return f"{whole} s"


def format_time(time_us: int) -> str:
    """A time of day, UTC.

    >>> format_time(1_700_000_000_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.fromtimestamp(time_us // US_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""Reports on the clusters of a whole input: as a table, and as a page of HTML.

The page is one file without anything from elsewhere, and its policy lets a browser load nothing.
What comes from the input is text in it, never markup.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from itertools import count
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

from rich.cells import cell_len, set_cell_size

from stream_dedup.cli.terminal import cut_to, escaped
from stream_dedup.emit.summaries import label, shares_text, variables_lines
from stream_dedup.markup import as_html, csp_hash, make
from stream_dedup.model import Summary, Variables
from stream_dedup.units import counted

Order = Literal["count", "first", "last"]

HTML_ROWS = 1_000
"""Clusters on a page, unless the user asks for another number."""

MAX_SHOWN_BYTES = 2_000
"""Of an event on a page."""

STYLE = (resources.files(__package__) / "report.css").read_text("utf-8")
SCRIPT = (resources.files(__package__) / "report.js").read_text("utf-8")


POLICY = (
    f"default-src 'none'; style-src {csp_hash(STYLE)}; script-src {csp_hash(SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)


class _Merged(NamedTuple):
    """What merged into a cluster whose final summary is still to come."""

    events: int
    first_time_us: int
    last_time_us: int
    first: int
    last: int | None


class Ranking:
    """The clusters that come first in an order, and how many others there were.

    A cluster that merged into another one counts as part of it.

    Args:
        limit: clusters kept.
        order: largest count, latest first event, or latest last event first.

    Attributes:
        clusters: all that were added.
        single: those of them that have one event.
        events: of all.
    """

    def __init__(self, limit: int, order: Order = "count") -> None:
        self.clusters = 0
        self.single = 0
        self.events = 0
        self._limit = limit
        self._order = order
        self._numbers = count()
        self._merged: dict[int, _Merged] = {}
        self._heap: list[tuple[tuple[int, ...], int, Summary, int, int | None]] = []

    def add(self, summary: Summary, first: int, last: int | None) -> None:
        """Add a cluster, by its final summary.

        Args:
            summary: without a pattern.
            first: number of the line of its first event.
            last: number of the line of its last event; None if times say more than lines.
        """
        into, parts = summary.merged_into, self._merged.pop(summary.cluster, None)
        if into is not None or parts is not None:
            whole = _Merged(summary.count, summary.first_time_us, summary.last_time_us, first, last)
            whole = _together(whole, parts)
            if into is not None:
                self._merged[into] = _together(whole, self._merged.get(into))
                return
            events, first_us, last_us, first, last = whole
            summary = replace(summary, count=events, first_time_us=first_us, last_time_us=last_us)
        self.clusters += 1
        self.single += summary.count == 1
        self.events += summary.count
        key: tuple[int, ...]
        if self._order == "count":
            key = summary.count, -summary.first_time_us, -first
        elif self._order == "first":
            key = summary.first_time_us, first, summary.count
        else:
            key = summary.last_time_us, last or 0, summary.count
        entry = key, next(self._numbers), summary, first, last
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def entries(self) -> Iterator[tuple[Summary, int, int | None]]:
        """Yield the clusters kept, in order, with the lines of their first and last events."""
        for _, _, summary, first, last in sorted(self._heap, reverse=True):
            yield summary, first, last

    def left_out(self) -> str:
        """Say what was not kept; empty if all was."""
        clusters = self.clusters - len(self._heap)
        events = self.events - sum(entry[2].count for entry in self._heap)
        if not clusters:
            return ""
        return f"and {counted(clusters, 'more cluster')} with {counted(events, 'event')}"


def _together(one: _Merged, other: _Merged | None) -> _Merged:
    if other is None:
        return one
    return _Merged(
        one.events + other.events,
        min(one.first_time_us, other.first_time_us),
        max(one.last_time_us, other.last_time_us),
        min(one.first, other.first),
        None if one.last is None or other.last is None else max(one.last, other.last),
    )


class Row(NamedTuple):
    """A cluster of a report.

    Attributes:
        summary: its final summary, with its pattern.
        first, last: when, or in which line, it was first and last seen.
        first_key, last_key: the same as numbers that sort.
    """

    summary: Summary
    first: str
    last: str
    first_key: int
    last_key: int


# ---------------------------------------------------------------- a table


def table_text(rows: Sequence[Row], ranking: Ranking, *, width: int | None) -> str:
    """Return a report as a table of plain text; patterns are cut to the width of a terminal."""
    cells = [("count", "first", "last", "cluster", "pattern")]
    cells += [
        (
            f"{row.summary.count}",
            row.first,
            row.last,
            row.summary.cluster_hex,
            f"{label(row.summary)} {row.summary.pattern}".strip(),
        )
        for row in rows
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)][:-1]
    head, *rest = (_line(row, widths, width) for row in cells)
    lines = [head]
    for row, line in zip(rows, rest, strict=True):
        lines.append(line)
        below = ((*[""] * 4, f"  {text}") for text in variables_lines(row.summary.variables))
        lines += (_line(each, widths, width) for each in below)
    return "".join(f"{line}\n" for line in [*lines, ranking.left_out()] if line)


def _line(cells: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    padded = [set_cell_size(cell, room) for cell, room in zip(cells[1:-1], widths[1:], strict=True)]
    line = "  ".join([cells[0].rjust(widths[0]), *padded, cells[-1]])
    return line if width is None else cut_to(line, width)


# ---------------------------------------------------------------- a page


def page(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[Row], left_out: str) -> str:
    """Return a report as a page of HTML.

    Args:
        title: names the input.
        facts: terms and figures.
        rows: the clusters, in order.
        left_out: what is not among them; empty if nothing is.
    """
    largest = max((row.summary.count for row in rows), default=1)
    heads = [("count", "number"), ("first", ""), ("last", ""), ("pattern", "")]
    table = make(
        "table",
        make(
            "thead",
            make(
                "tr",
                *(
                    make("th", make("button", name, type="button"), scope="col", class_=kind)
                    for name, kind in heads
                ),
            ),
        ),
        make("tbody", *(_page_row(row, largest) for row in rows)),
    )
    body = make(
        "body",
        make("h1", title),
        make("dl", *(make("div", make("dt", term), make("dd", text)) for term, text in facts)),
        make(
            "p",
            make(
                "label",
                "Show patterns that contain ",
                make("input", type="search", id="filter", autocomplete="off"),
            ),
            " ",
            make("span", id="matches", role="status"),
        ),
        table,
        *([make("p", left_out, class_="note")] if left_out else []),
        make("script", SCRIPT),
    )
    head = make(
        "head",
        make("meta", charset="utf-8"),
        make("meta", http_equiv="Content-Security-Policy", content=POLICY),
        make("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make("meta", name="referrer", content="no-referrer"),
        make("title", title),
        make("style", STYLE),
    )
    return f"<!DOCTYPE html>\n{as_html(make('html', head, body, lang='en'))}\n"


def _page_row(row: Row, largest: int) -> Element:
    summary = row.summary
    share = make("progress", max=str(largest), value=str(summary.count), aria_hidden="true")
    events = [summary.representative, *summary.samples]
    details = make(
        "details",
        make("summary", f"{label(summary)} ".lstrip(), make("code", summary.pattern)),
        make("p", f"{_ids(summary)}; {len(events)} of its events:", class_="note"),
        *(make("pre", escaped(event[:MAX_SHOWN_BYTES])) for event in events),
        *_page_variables(summary.variables),
    )
    return make(
        "tr",
        make("td", f"{summary.count:,}", share, class_="number", data_value=str(summary.count)),
        make("td", row.first, data_value=str(row.first_key)),
        make("td", row.last, data_value=str(row.last_key)),
        make("td", details),
    )


def _page_variables(variables: Variables | None) -> Iterator[Element]:
    """The values of a cluster's variables, as a list."""
    if variables is None:
        return
    note = f"values in {counted(variables.sampled, 'event')}"
    if variables.error:
        note += f", chosen at random; shares ±{variables.error:.0%}"
    yield make("p", f"{note}:", class_="note")
    items = ((make("code", slot.slot), f" {shares_text(slot)}") for slot in variables.slots)
    yield make("ul", *(make("li", *item) for item in items))


def _ids(summary: Summary) -> str:
    return f"cluster {summary.cluster_hex}, template {summary.template_hex}"

"""``stream-dedup plan``: the tables for a width, a k and a capacity, and their cost."""

from __future__ import annotations

import click
from click.core import ParameterSource
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table

from stream_dedup.cli.common import console
from stream_dedup.fingerprint.bands import BANDS, BITS
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import (
    BANDS_MEMORY,
    BANDS_REDIS,
    MEMORY,
    REDIS,
    TablePlan,
    choose,
    evaluate,
    nodes_for_twice,
    opening_us,
    plans,
)

SHOWN = 4
"""Layouts shown on each side of the chosen one."""

HEADS = ("", "blocks", "tables", "prefix bits", "candidates", "query", "insert", "bytes each",
         "memory")  # fmt: skip

NAMING = 2
"""The first columns, which a narrow terminal shows with each of the others."""

GAP = 2


@click.command()
@click.option("--kind", type=click.Choice(["simhash", "bands"]), default="simhash",
              show_default=True, help="The kind of the recipe's fingerprint.")  # fmt: skip
@click.option("--k", type=click.IntRange(0, 127), default=6, show_default=True, metavar="K",
              help="The largest distance that counts as near.")  # fmt: skip
@click.option("--width", type=click.Choice(["32", "64", "128"]), default="64", show_default=True,
              help="Bits of a fingerprint.")  # fmt: skip
@click.option("--capacity", type=click.IntRange(1), default=100_000, show_default=True,
              metavar="N", help="Fingerprints to store.")  # fmt: skip
@click.option("--budget", type=click.IntRange(1), default=1200, show_default=True, metavar="BYTES",
              help="Limit on the bytes that a fingerprint takes.")  # fmt: skip
@click.pass_context
def plan(context: click.Context, kind: str, k: int, width: str, capacity: int, budget: int) -> None:
    """Plan tables: blocks, tables, prefix bits, candidates, time and memory.

    Shows the layout that would be chosen (marked *) and its neighbours, for the index in memory and
    for the index in Redis. Times are estimates for one core. Candidates are estimated for random
    fingerprints in memory, and for log lines, which are more similar to each other, in Redis. A
    namespace in Redis is planned half full: give half of index.max_clusters as --capacity. A
    minhash recipe uses no tables: it looks up fingerprints by equality.

    A recipe of bands (text, messages, documents, records; --kind bands) has one layout only:
    sixteen tables of keys, 210 bytes a fingerprint in memory, and at most 256 entries read for a
    query, however many are stored. Its candidates are clusters that share a key and whose sketches
    are compared, estimated for messages; "bytes each" holds their sketches, and in Redis the whole
    cluster.

    The last line says how many clusters of one group a single Redis node opens in a second, and how
    many nodes open twice as many (docs/sharding-by-fingerprint.md).

    \b
    stream-dedup plan --k 3 --capacity 1000000
    """
    if kind == "bands":
        for name in ("k", "width", "budget"):
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                problem = "keys of bands have one layout: leave it out"
                raise click.BadParameter(problem, param_hint=f"'--{name}'")
        _print_bands(capacity)
        return
    bits = int(width)
    if k >= bits:
        raise click.BadParameter(f"{k} is not below the width, {bits}", param_hint="'--k'")
    out = console()
    for model in (MEMORY, REDIS):
        try:
            chosen = choose(bits, k, capacity, model, budget)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--k'") from error
        found = list(plans(bits, k, capacity, model))
        for table in _tables(_rows(found, chosen, capacity), out.width):
            table.title = f"{model.name}: {capacity:,} fingerprints of {bits} bits, k = {k}"
            out.print(table)
            out.print()
        if model is REDIS:
            out.print(_sharding(chosen))


def _sharding(plan: TablePlan) -> str:
    """Say when to shard by fingerprint."""
    return (
        f"One Redis node opens some {_rounded(1e6 / opening_us(plan)):,} clusters of one group a "
        "second, if processes keep mirrors. For twice as many take "
        f'{nodes_for_twice(plan)} nodes, with index.shard_by = "fingerprint" and a recipe that '
        "does not learn words."
    )


def _rounded(number: float) -> int:
    """Round to two digits."""
    return int(float(f"{number:.2g}"))


def _print_bands(capacity: int) -> None:
    out = console()
    layout = Layout(BITS, BANDS - 1, BANDS)
    for model in (BANDS_MEMORY, BANDS_REDIS):
        only = evaluate(layout, capacity, model)
        for table in _tables(_rows([only], only, capacity), out.width):
            table.title = f"{model.name}: {capacity:,} clusters, {BANDS} keys of bands each"
            out.print(table)
            out.print()


def _rows(found: list[TablePlan], chosen: TablePlan, capacity: int) -> list[tuple[str, ...]]:
    """The heads of the columns, and a row for each layout near the chosen one."""
    at = next(i for i, plan in enumerate(found) if plan.layout == chosen.layout)
    rows: list[tuple[str, ...]] = [HEADS]
    for plan in found[max(0, at - SHOWN) : at + SHOWN + 1]:
        prefixes = sorted(plan.layout.prefix_sizes)
        rows.append((
            "*" if plan.layout == chosen.layout else "",
            str(plan.layout.blocks),
            str(plan.layout.tables),
            "–".join(map(str, dict.fromkeys((prefixes[0], prefixes[-1])))),
            f"{plan.candidates:,.1f}",
            f"{plan.query_us:,.1f} µs",
            f"{plan.insert_us:,.1f} µs",
            f"{plan.bytes_each:,.0f}",
            f"{plan.bytes_each * capacity / 1e6:,.1f} MB",
        ))  # fmt: skip
    return rows


def _tables(rows: list[tuple[str, ...]], width: int) -> list[Table]:
    """Tables that fit the width, cells uncut; each begins with the columns that name a layout."""
    widths = [max(map(cell_len, column)) + GAP for column in zip(*rows, strict=True)]
    named = sum(widths[:NAMING])
    groups: list[list[int]] = []
    room = 0
    for at in range(NAMING, len(widths)):
        if not groups or widths[at] > room:
            groups.append([*range(NAMING)])
            room = width - named
        groups[-1].append(at)
        room -= widths[at]
    tables = []
    for group in groups:
        table = Table(title_justify="left", box=None, padding=(0, GAP, 0, 0))
        for at in group:
            justify: JustifyMethod = "right" if at else "left"
            table.add_column(rows[0][at], justify=justify, no_wrap=True)
        for row in rows[1:]:
            table.add_row(*(row[at] for at in group))
        tables.append(table)
    return tables

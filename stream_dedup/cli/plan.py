"""``stream-dedup plan``: the tables for a width, a k and a capacity, and their cost."""

from __future__ import annotations

import click
from rich.table import Table

from stream_dedup.cli.common import console
from stream_dedup.tables.planner import MEMORY, REDIS, CostModel, TablePlan, choose, plans

SHOWN = 4
"""Layouts shown on each side of the chosen one."""


@click.command()
@click.option("--k", type=click.IntRange(0, 127), default=6, show_default=True, metavar="K",
              help="The largest distance that counts as near.")  # fmt: skip
@click.option("--width", type=click.Choice(["32", "64", "128"]), default="64", show_default=True,
              help="Bits of a fingerprint.")  # fmt: skip
@click.option("--capacity", type=click.IntRange(1), default=100_000, show_default=True,
              metavar="N", help="Fingerprints to store.")  # fmt: skip
@click.option("--budget", type=click.IntRange(1), default=1200, show_default=True, metavar="BYTES",
              help="Limit on the bytes that a fingerprint takes.")  # fmt: skip
def plan(k: int, width: str, capacity: int, budget: int) -> None:
    """Plan tables: blocks, tables, prefix bits, candidates, time and memory.

    Shows the layout that would be chosen (marked *) and its neighbours, for the index in memory and
    for the index in Redis. Times are estimates for one core. Candidates are estimated for random
    fingerprints in memory, and for log lines, which are more similar to each other, in Redis. A
    minhash recipe uses no tables: it looks up fingerprints by equality.

    \b
    stream-dedup plan --k 3 --capacity 1000000
    """
    bits = int(width)
    if k >= bits:
        raise click.BadParameter(f"{k} is not below the width, {bits}", param_hint="'--k'")
    out = console()
    for model in (MEMORY, REDIS):
        try:
            chosen = choose(bits, k, capacity, model, budget)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--k'") from error
        out.print(_table(list(plans(bits, k, capacity, model)), chosen, capacity, model))
        out.print()


def _table(found: list[TablePlan], chosen: TablePlan, capacity: int, model: CostModel) -> Table:
    table = Table(
        "", "blocks", "tables", "prefix bits", "candidates", "query", "insert", "bytes each",
        "memory", title=f"{model.name}: {capacity:,} fingerprints of {chosen.layout.width} bits, "
        f"k = {chosen.layout.k}", title_justify="left", box=None, padding=(0, 2, 0, 0),
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    at = next(i for i, plan in enumerate(found) if plan.layout == chosen.layout)
    for plan in found[max(0, at - SHOWN) : at + SHOWN + 1]:
        prefixes = sorted(set(plan.layout.prefix_bits))
        table.add_row(
            "*" if plan.layout == chosen.layout else "",
            str(plan.layout.blocks),
            str(plan.layout.tables),
            "–".join(map(str, dict.fromkeys((prefixes[0], prefixes[-1])))),
            f"{plan.candidates:,.1f}",
            f"{plan.query_us:,.1f} µs",
            f"{plan.insert_us:,.1f} µs",
            f"{plan.bytes_each:,.0f}",
            f"{plan.bytes_each * capacity / 1e6:,.1f} MB",
        )
    return table

"""What the benches print: tables of figures, and targets with what was measured beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach.

    Attributes:
        name: what is measured.
        measured: the figure.
        wanted: as people read it.
        met: whether it was reached.
    """

    name: str
    measured: str
    wanted: str
    met: bool


def at_most(name: str, value: float, limit: float, unit: str) -> Target:
    """A target that is met below a limit."""
    return Target(name, f"{value:,.2f} {unit}", f"≤ {limit:,g} {unit}", value <= limit)


def at_least(name: str, value: float, limit: float, unit: str) -> Target:
    """A target that is met above a limit."""
    return Target(name, f"{value:,.1f} {unit}", f"≥ {limit:,g} {unit}", value >= limit)


def cost_table(title: str, *columns: str) -> Table:
    """A table whose first column says what and whose others hold figures."""
    table = Table("", title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def print_targets(targets: Sequence[Target], out: Console) -> int:
    """Print the targets; the exit status: 1 where one is missed."""
    table = Table("target", "measured", "wanted", "", title="targets", title_justify="left")
    for target in targets:
        verdict = "met" if target.met else "MISSED"
        table.add_row(target.name, target.measured, target.wanted, verdict)
    out.print(table)
    return 0 if all(target.met for target in targets) else 1


def resident_mb() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

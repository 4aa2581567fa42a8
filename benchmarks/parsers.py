"""Log parsers of other projects, as they group labelled sets: Drain3 and Brain.

Each runs with one configuration for all sets, and with the settings that its project published for
each of LogHub's systems, chosen with the labels of these very samples:

* Drain3 as it comes, and with the masks of its project's example: see `benchmarks.peers`.
* Drain3 with the settings published for Drain: masks, similarity threshold, depth.
* Brain (Yu et al., "Brain: Log Parsing With Bidirectional Parallel Tree", TSC 2023) as it comes:
  threshold 2, no masks; and with its published settings. It reads a whole set before it answers.

The published settings are in `logparser3`'s packages, in `benchmark.py` beside each parser: they
are read from there. A set belongs to a system by the first part of its name: `Linux_2k` and
`Linux_full` to Linux.

Brain's part of `logparser3` needs pandas and regex alone; the package asks for more, and for a
regex of 2022 that has no wheel for today's Python. So `make quality` installs it without what it
asks for. XDrain is not in the package: 1.0.4 is its newest.
"""

from __future__ import annotations

import ast
import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from benchmarks.metrics import Labels
from benchmarks.peers import (
    DRAIN3_MASKED,
    DRAIN3_MASKS,
    PeerMissingError,
    add_lines,
    drain3_miner,
    import_peer,
    text_of,
)


class Grouping(NamedTuple):
    """What a contestant made of a set.

    Attributes:
        labels: One a line.
        templates: The template of each line, `<*>` for what varies.
    """

    labels: Labels
    templates: Sequence[str]


Parser = Callable[[str, Sequence[bytes]], Grouping | None]
"""From a set's name and lines to a grouping; None where no settings are published for the set."""


def drain3_as_it_comes(_name: str, lines: Sequence[bytes]) -> Grouping:
    """Drain3's defaults."""
    return _drain3(drain3_miner(), lines)


def drain3_with_masks(_name: str, lines: Sequence[bytes]) -> Grouping:
    """Drain3 with its project's masks and settings."""
    return _drain3(drain3_miner(DRAIN3_MASKED, DRAIN3_MASKS), lines)


def drain3_as_published(name: str, lines: Sequence[bytes]) -> Grouping | None:
    """Drain3 with what was published for Drain on this system."""
    settings = published("Drain", name)
    if settings is None:
        return None
    chosen = {
        "drain_sim_th": settings["st"],
        "drain_depth": settings["depth"],
        "mask_prefix": "<",
        "mask_suffix": ">",
    }
    return _drain3(drain3_miner(chosen, ((mask, "*") for mask in settings["regex"])), lines)


def _drain3(miner: Any, lines: Sequence[bytes]) -> Grouping:  # noqa: ANN401 -- Drain3 carries no types
    labels = add_lines(miner, lines)
    found = {one.cluster_id: one.get_template() for one in miner.drain.clusters}
    templates = [found.get(label, "") for label in labels]  # a cluster may be evicted
    for _, name in DRAIN3_MASKS:
        templates = [template.replace(f"<:{name}:>", "<*>") for template in templates]
    return Grouping(labels, templates)


def brain_as_it_comes(_name: str, lines: Sequence[bytes]) -> Grouping:
    """Brain's defaults."""
    return _brain(lines, "")


def brain_as_published(name: str, lines: Sequence[bytes]) -> Grouping | None:
    """Brain with what was published for it on this system."""
    settings = published("Brain", name)
    if settings is None:
        return None
    return _brain(
        lines,
        _system(name),  # it also cuts lines in ways of their own for some systems
        rex=settings["regex"],
        delimeter=settings["delimiter"],
        threshold=settings["theshold"],
    )


def _brain(lines: Sequence[bytes], system: str, **settings: object) -> Grouping:
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_peer("logparser.Brain.Brain", "logparser3")
    contents = [text_of(line).strip() for line in lines]

    class InMemory(module.LogParser):  # type: ignore[name-defined,misc]
        """Brain without its files."""

        def load_data(self) -> None:
            self.df_log = module.pd.DataFrame({"Content": contents})

        def generateresult(self, found: dict[tuple[str, ...], list[int]], _lines: object) -> None:
            self.found = found

    parser = InMemory(system, "<Content>", outdir=".", **settings)
    with contextlib.redirect_stdout(io.StringIO()):
        parser.parse("")
    templates = [""] * len(lines)
    for words, rows in parser.found.items():
        for row in rows:
            templates[row] = " ".join(words)
    return Grouping(templates, templates)


def published(parser: str, name: str) -> dict[str, Any] | None:
    """The settings published with a parser of logparser3 for a set's system, if there are any."""
    return _published(parser).get(_system(name))


def _system(name: str) -> str:
    return name.partition("_")[0]


@cache
def _published(parser: str) -> dict[str, dict[str, Any]]:
    """Reads `benchmark_settings` in the parser's `benchmark.py`, without running it."""
    try:
        path = resources.files("logparser").joinpath(parser, "benchmark.py")
    except ModuleNotFoundError as error:
        raise PeerMissingError("logparser3 is not installed: make quality installs it") from error
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "benchmark_settings":
            found: dict[str, dict[str, Any]] = ast.literal_eval(node.value)
            return found
    raise AttributeError(f"this logparser3 has no benchmark_settings for {parser}")


PARSERS: dict[str, Parser] = {
    "drain3": drain3_as_it_comes,
    "drain3 masked": drain3_with_masks,
    "drain3 published": drain3_as_published,
    "brain": brain_as_it_comes,
    "brain published": brain_as_published,
}
"""Name to parser, in the order in which they are shown."""

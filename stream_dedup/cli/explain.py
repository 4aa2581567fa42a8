"""``stream-dedup explain``: why two lines would merge, or would not."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.options import recipe_of, recipe_option, set_option
from stream_dedup.cli.show import console, hexadecimal, shown
from stream_dedup.clustering.comparison import Comparison, Inspector
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.reference import Feature


@click.command()
@click.argument("first")
@click.argument("second")
@recipe_option
@set_option
def explain(first: str, second: str, recipe: str, settings: tuple[str, ...]) -> None:
    """Say why two lines would merge, or would not.

    Shows both patterns, the features they share and do not, each bit of the fingerprints that
    differs with the votes on it, the distance against k and the likeness against its threshold.
    Under minhash, instead, how likely lines that share so much are to have the same least hashes.
    Exits with 0 when they merge, with 3 when they do not.

    \b
    stream-dedup explain "disk sda1 is 91% full" "disk sdb7 is 64% full"
    stream-dedup explain --set match.k=3 "user bob logged in" "user eve logged out"
    """
    chosen = recipe_of(recipe, settings)
    found = Inspector(chosen).compare(
        first.encode("utf-8", "surrogateescape"), second.encode("utf-8", "surrogateescape")
    )
    out = console()
    out.print(Text(found.verdict()))
    out.print()
    _print_patterns(out, found)
    _print_features(out, found)
    _print_bits(out, found)
    _print_measures(out, found, chosen)
    click.get_current_context().exit(0 if found.merge else 3)


def _print_patterns(out: Console, found: Comparison) -> None:
    table = Table("", "pattern", "exact hash", "fingerprint", box=None, padding=(0, 2, 0, 0))
    width = found.recipe.fingerprint.width
    for name, look in (("first", found.left), ("second", found.right)):
        fingerprint = hexadecimal(look.fingerprint, width)
        table.add_row(name, Text(look.pattern), f"{look.exact:016x}", fingerprint)
    out.print(table)


def _print_features(out: Console, found: Comparison) -> None:
    shared, left, right = found.features()
    out.print()
    for name, features in (("shared", shared), ("first only", left), ("second only", right)):
        line = f"{name + ' (' + str(len(features)) + ')':17}{_listed(features)}"
        out.print(Text(line), soft_wrap=True)


def _print_bits(out: Console, found: Comparison) -> None:
    bits = found.bits()
    if not bits:
        return
    out.print()
    table = Table("bit", "first", "second", "shared", "the first only", "the second only",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    for bit in bits:
        table.add_row(
            str(bit.number),
            f"{bit.left:+d}",
            f"{bit.right:+d}",
            f"{bit.shared:+d}",
            Text(_votes(bit.left_only)),
            Text(_votes(bit.right_only)),
        )
    out.print(table)
    rule = "above 0" if found.recipe.fingerprint.tie == "zero" else "0 or above"
    note = f"Sums of votes, and single votes not shared. A bit is 1 where its sum is {rule}."
    out.print(Text(note, style="dim"))


def _print_measures(out: Console, found: Comparison, recipe: Recipe) -> None:
    match = recipe.match
    out.print()
    if found.chance is not None:
        least = recipe.fingerprint.least
        out.print(Text(f"least hashes     the same with chance {found.chance:.3f}, n = {least}"))
        out.print(Text(f"Jaccard          {found.jaccard:.3f}, not verified by this recipe"))
        return
    out.print(Text(f"distance         {found.distance} of {recipe.fingerprint.width} bits, "
                   f"k = {match.k}"))  # fmt: skip
    threshold = f"threshold {match.jaccard}" if match.jaccard else "not verified by this recipe"
    out.print(Text(f"Jaccard          {found.jaccard:.3f}, {threshold}"))


def _listed(features: list[Feature]) -> str:
    return "  ".join(
        ("<*>" if f.variable else shown(f.text)) + (f"×{f.weight}" if f.weight != 1 else "")
        for f in features
    )


def _votes(votes: list[tuple[bytes, int]]) -> str:
    return "  ".join(f"{shown(text, 24)} {vote:+d}" for text, vote in votes)

"""``stream-dedup fingerprint``, ``compare`` and ``explain``: what a recipe computes for texts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import (
    console,
    hexadecimal,
    recipe_of,
    recipe_option,
    set_option,
    shown,
    write_whole,
)
from stream_dedup.cli.rules import rules_of, rules_option
from stream_dedup.clustering.comparison import Comparison, Inspector, Look
from stream_dedup.errors import InputError
from stream_dedup.features.fields import decoded
from stream_dedup.features.outcome_fields import OutcomeFields, takes_outcomes
from stream_dedup.features.recipe import Fingerprint, Recipe
from stream_dedup.features.values import SlotReader
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.hashing import MASK64
from stream_dedup.fingerprint.reference import Feature
from stream_dedup.io.decoder import usual_text
from stream_dedup.io.files import MAX_LINE_BYTES
from stream_dedup.rules.acting import ActingRules
from stream_dedup.rules.ruleset import RuleSet

JAVA_INT_BITS = 32
"""Fingerprints of this width by Java's hash are shown as Java's ints."""


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _name(feature: Feature) -> str:
    return "<*>" if feature.variable else shown(feature.text)


def _weights(look: Look) -> list[str]:
    """Return the weight of each feature; ``again`` for a repeat that does not count."""
    counted = {id(feature) for feature in look.counted}
    return [str(f.weight) if id(f) in counted else "again" for f in look.taken.features]


def _plain_table(*columns: str, indent: int = 0) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, indent))


# ---------------------------------------------------------------- fingerprint


@click.command()
@click.argument("lines", nargs=-1, metavar="[LINE]...")
@recipe_option
@set_option
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object for each line.")
def fingerprint(
    lines: tuple[str, ...], recipe: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Show what a recipe computes for lines: masks, tokens, features, weights and bits.

    Takes the LINEs given, or those of standard input; to read a file, use "< FILE".

    \b
    stream-dedup fingerprint "Failed password for root from 10.0.0.7 port 4422 ssh2"
    head -3 app.log | stream-dedup fingerprint --json
    """
    inspector = Inspector(recipe_of(recipe, settings))
    if len(lines) == 1 and os.path.isfile(lines[0]):  # noqa: PTH113 -- pathlib's raises if it is long
        click.echo(
            f"stream-dedup: {shown(_bytes_of(lines[0]), 400)!r} is a file, and fingerprint takes "
            "lines; for the lines of the file: stream-dedup fingerprint < FILE",
            err=True,
        )
    for line in map(_bytes_of, lines) if lines else _standard_input():
        look = inspector.look(line)
        if as_json:
            text = msgspec.json.encode(_fingerprint_object(look, inspector)) + b"\n"
            write_whole(sys.stdout.buffer, text)
        else:
            _print_fingerprint(look, inspector)


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise InputError("standard input: is closed; give LINEs, or something to read")
    while line := sys.stdin.buffer.readline(MAX_LINE_BYTES):
        yield line.rstrip(b"\n")


def _print_fingerprint(look: Look, inspector: Inspector) -> None:
    settings = inspector.recipe.fingerprint
    out = console()
    for name, value in (
        ("text", shown(look.text, 400)),
        ("pattern", look.pattern),
        ("exact hash", f"{look.exact:016x}"),
        *_fingerprint_rows(look, settings),
        *((("key", f"{look.key:016x}"),) if settings.kind == "minhash" else ()),
        ("words", f"{look.words} of {len(look.taken.features)} features"),
    ):
        out.print(Text(f"{name:11}  {value}"), soft_wrap=True)
    table = _plain_table("feature", "weight", "hash", "stands for", indent=2)
    for feature, weight in zip(look.taken.features, _weights(look), strict=True):
        stands_for = f"{inspector.named(feature)}  {shown(feature.text)}"
        table.add_row(
            Text(_name(feature)),
            weight,
            _hexadecimal_hash(feature, settings),
            Text(stands_for if feature.variable else ""),
        )
    out.print(table)
    out.print()


def _hexadecimal_hash(feature: Feature, settings: Fingerprint) -> str:
    if settings.kind == "bands":
        return f"{feature.identity >> 32:08x}"
    return f"{feature.bits & MASK64:016x}"


def _fingerprint_rows(look: Look, settings: Fingerprint) -> list[tuple[str, str]]:
    if settings.kind == "bands":
        return [("keys", " ".join(f"{key:012x}" for key in bands.keys(look.fingerprint)))]
    digits = f"{look.fingerprint:0{settings.width}b}"
    return [
        ("fingerprint", hexadecimal(look.fingerprint, settings.width)),
        ("bits", " ".join(digits[at : at + 8] for at in range(0, settings.width, 8))),
    ]


def _fingerprint_object(look: Look, inspector: Inspector) -> dict[str, object]:
    settings = inspector.recipe.fingerprint
    counted = {id(feature) for feature in look.counted}
    return {
        "text": _text(look.text),
        "pattern": look.pattern,
        "exact": f"{look.exact:016x}",
        "fingerprint": hexadecimal(look.fingerprint, settings.bits),
        **({"key": f"{look.key:016x}"} if settings.kind == "minhash" else {}),
        "words": look.words,
        "features": [
            {
                "text": "<*>" if f.variable else _text(f.text),
                "placeholder": f.variable,
                "stands_for": _text(f.text) if f.variable else None,
                "weight": f.weight,
                "counted": id(f) in counted,
                "hash": _hexadecimal_hash(f, settings),
            }
            for f in look.taken.features
        ],
    }


# ---------------------------------------------------------------- compare


@click.command()
@click.argument("first")
@click.argument("second")
@recipe_option
@set_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="json is one object; long numbers are strings.")  # fmt: skip
def compare(first: str, second: str, recipe: str, settings: tuple[str, ...], form: str) -> None:
    """Compare two texts' fingerprints, number by number.

    Prints the hash of every feature of both texts, their fingerprints in decimal and binary, and
    the number of bits in which they differ. Use it to check against the output of another system:
    the recipes java32, md5-128, minhash-n, window-cyclic and letters5 reproduce five of them.
    Fingerprints of 32 bits by Java's hash are printed as Java prints an int. To see whether two
    lines would merge, use explain.

    \b
    stream-dedup compare --recipe java32 "this is string1" "this is string2"
    stream-dedup compare --recipe letters5 banana cabana --format json
    """
    inspector = Inspector(recipe_of(recipe, settings))
    found = inspector.compare(_bytes_of(first), _bytes_of(second))
    if form == "json":
        write_whole(sys.stdout.buffer, msgspec.json.encode(_comparison_object(found)) + b"\n")
        return
    out = console()
    for line in _comparison_lines(found):
        out.print(Text(line), soft_wrap=True)


def _decimal(value: int, settings: Fingerprint) -> str:
    """A hash or fingerprint in decimal; signed where it is a Java int."""
    if _is_java_int(settings) and value >> (JAVA_INT_BITS - 1):
        value -= 1 << JAVA_INT_BITS
    return str(value)


def _binary(value: int, settings: Fingerprint, bits: int) -> str:
    """The same in binary: all digits, or those of Java's ``Integer.toBinaryString``."""
    return f"{value:b}" if _is_java_int(settings) else f"{value:0{bits}b}"


def _is_java_int(settings: Fingerprint) -> bool:
    return (settings.hash, settings.width) == ("java", JAVA_INT_BITS)


def _hash(feature: Feature, settings: Fingerprint) -> tuple[int, int]:
    """The hash of a feature that makes the fingerprint, and its bits."""
    if settings.kind == "bands":
        return feature.identity >> 32, 32
    return feature.bits & (1 << settings.width) - 1, settings.width


def _comparison_lines(found: Comparison) -> list[str]:
    settings = found.recipe.fingerprint
    lines: list[str] = []
    for name, look in (("first", found.left), ("second", found.right)):
        lines.append(f"{name:11}  {shown(look.text, 400)}")
        lines += _feature_lines(look, settings)
        lines.append(f"fingerprint  {_decimal(look.fingerprint, settings)}")
        binary = _binary(look.fingerprint, settings, settings.bits)
        lines += [f"binary       {binary}", ""]
    note = "; least hashes are equal or tell nothing" if settings.kind == "minhash" else ""
    lines.append(f"distance     {_distance(found)}{note}")
    return lines


def _feature_lines(look: Look, settings: Fingerprint) -> list[str]:
    """One line for each feature: its name, its weight, and the bits of its hash that vote."""
    if not look.taken.features:
        return []
    rows = [("feature", "weight", "hash")]
    for feature, weight in zip(look.taken.features, _weights(look), strict=True):
        value, bits = _hash(feature, settings)
        rows.append((_name(feature), weight, _binary(value, settings, bits)))
    room = max(cell_len(row[0]) for row in rows)
    width = max(len(row[2]) for row in rows[1:])
    return [
        f"  {name}{' ' * (room - cell_len(name))}  {weight:>6}  {value:>{width}}"
        for name, weight, value in rows
    ]


def _comparison_object(found: Comparison) -> dict[str, Any]:
    recipe = found.recipe
    return {
        "recipe": recipe.name,
        "digest": recipe.digest,
        "width": recipe.fingerprint.bits,
        "texts": [_text_object(look, recipe.fingerprint) for look in (found.left, found.right)],
        "distance": found.distance,
    }


def _text_object(look: Look, settings: Fingerprint) -> dict[str, Any]:
    counted = {id(feature) for feature in look.counted}
    return {
        "text": _text(look.text),
        "features": [
            {
                "text": "<*>" if f.variable else _text(f.text),
                "placeholder": f.variable,
                "weight": f.weight,
                "counted": id(f) in counted,
                "hash": _numerals(*_hash(f, settings), settings),
            }
            for f in look.taken.features
        ],
        "fingerprint": _numerals(look.fingerprint, settings.bits, settings),
    }


def _numerals(value: int, bits: int, settings: Fingerprint) -> dict[str, str]:
    return {
        "decimal": _decimal(value, settings),
        "binary": _binary(value, settings, bits),
        "hex": hexadecimal(value, bits),
    }


def _distance(found: Comparison) -> str:
    settings = found.recipe.fingerprint
    if settings.kind == "bands":
        return f"{found.distance} of {bands.BANDS} keys"
    return f"{found.distance} of {settings.width} bits"


# ---------------------------------------------------------------- explain


@click.command()
@click.argument("first")
@click.argument("second")
@recipe_option
@set_option
@rules_option
def explain(
    first: str, second: str, recipe: str, settings: tuple[str, ...], rules_path: str | None
) -> None:
    """Explain why two lines would merge, or would not.

    Shows both patterns, the features that they share and those that they do not, each bit in which
    the fingerprints differ with the votes on it, the distance compared with k, and the Jaccard
    similarity compared with its threshold. With minhash or bands it shows the probability that two
    lines of this similarity get the same minhash fingerprint, or share one of the sixteen keys.

    Of two JSON events the text is compared, as dedup does: the first of message, msg and so on,
    with level, status, outcome and trace. A recipe with input.fields, such as json, takes its
    fields.

    With --rules it begins with the rules that act on the lines. They decide, whatever the rest
    shows.

    Exits with 0 if the lines would merge, with 3 if not.

    \b
    stream-dedup explain "disk sda1 is 91% full" "disk sdb7 is 64% full"
    stream-dedup explain --set match.k=3 "user bob logged in" "user eve logged out"
    """
    inspector = Inspector(recipe_of(recipe, settings))
    lines = [_bytes_of(first), _bytes_of(second)]
    texts = [] if inspector.recipe.input.fields else _texts_of_json(lines, inspector.recipe)
    found = inspector.compare(*(texts or lines))
    merge, said = _by_rules(found, rules_path)
    if texts:
        beside = (
            ", with level, status, outcome and trace" if takes_outcomes(inspector.recipe) else ""
        )
        said.insert(0, f"Of JSON events dedup compares the text{beside}:")
    with console() as out:  # at once: `| head` must not change the exit code
        for line in said:
            out.print(Text(line), soft_wrap=True)
        out.print(Text(found.verdict()))
        out.print()
        _print_patterns(out, found)
        _print_values(out, found)
        _print_features(out, found)
        _print_bits(out, found)
        _print_measures(out, found)
    click.get_current_context().exit(0 if merge else 3)


def _texts_of_json(lines: list[bytes], recipe: Recipe) -> list[bytes]:
    """Return what `dedup` compares of JSON events; nothing if a line is none, or has no text."""
    outcomes = OutcomeFields(recipe)
    texts: list[bytes] = []
    for document in map(decoded, lines):
        if not isinstance(document, dict) or (text := usual_text(document)) is None:
            return []
        texts.append(outcomes.compared(document, text))
    return texts


def _by_rules(found: Comparison, path: str | None) -> tuple[bool, list[str]]:
    """Return whether two lines merge under the rules of a file, and which of them act."""
    rules = ActingRules(RuleSet(rules_of(path)), found.recipe, hash)
    acted = [
        rules.acted(text, decoded(text) if found.recipe.input.fields else None)
        for text in (found.left.text, found.right.text)
    ]
    said = [
        f"rule {rule.id} ({rule.kind.value}) acts on the {which} line"
        + (f": {shown(_bytes_of(rule.reason), 200)}" if rule.reason else "")
        for which, each in zip(("first", "second"), acted, strict=True)
        if each is not None
        for rule in each.rules
    ]
    one, two = ("" if each is None else each.identity for each in acted)
    if not (one or two):
        return found.merge, said
    if one == two:
        return True, [*said, "would merge: rules say so. Without rules:"]
    return False, [*said, "would not merge: rules keep them apart. Without rules:"]


def _print_patterns(out: Console, found: Comparison) -> None:
    columns = ["", "pattern", "template", "exact hash", "fingerprint"]
    table = _plain_table(*columns[: 4 if found.recipe.fingerprint.kind == "bands" else 5])
    settings = found.recipe.fingerprint
    cells: list[str | Text]
    for name, look in (("first", found.left), ("second", found.right)):
        cells = [name, Text(look.pattern), f"{look.template:016x}", f"{look.exact:016x}"]
        if settings.kind != "bands":
            cells.append(hexadecimal(look.fingerprint, settings.width))
        table.add_row(*cells)
    out.print(table)


def _print_values(out: Console, found: Comparison) -> None:
    """Print what is in the variables of both, if they have the same words."""
    slots = SlotReader(found.recipe).slots(found.left.text)
    left, right = slots.values(found.left.text), slots.values(found.right.text)
    if not left or right is None:
        return
    out.print()
    table = _plain_table("variable", "first", "second")
    for name, one, other in zip(slots.names, left, right, strict=True):
        table.add_row(Text(name), Text(shown(one)), Text(shown(other)))
    out.print(table)


def _print_features(out: Console, found: Comparison) -> None:
    shared, left, right = found.features()
    out.print()
    for name, features in (("shared", shared), ("first only", left), ("second only", right)):
        listed = "  ".join(_name(f) + (f"×{f.weight}" if f.weight != 1 else "") for f in features)
        out.print(Text(f"{name + ' (' + str(len(features)) + ')':17}{listed}"), soft_wrap=True)


def _print_bits(out: Console, found: Comparison) -> None:
    bits = found.bits()
    if not bits:
        return
    out.print()
    table = _plain_table("bit", "first", "second", "shared", "the first only", "the second only")
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


def _print_measures(out: Console, found: Comparison) -> None:
    settings, match = found.recipe.fingerprint, found.recipe.match
    out.print()
    threshold = f"threshold {found.threshold}" if match.jaccard else "not verified by this recipe"
    if settings.kind == "bands":
        out.print(Text(f"distance         {_distance(found)}; 15 or fewer are near"))
        out.print(Text(f"chance           {found.chance:.3f}, to have a key in common"))
        out.print(Text(f"Jaccard          {found.jaccard:.3f}, {threshold}"))
        return
    if found.chance is not None:
        chance, least = found.chance, settings.least
        out.print(Text(f"least hashes     the same with chance {chance:.3f}, n = {least}"))
        out.print(Text(f"Jaccard          {found.jaccard:.3f}, not verified by this recipe"))
        return
    out.print(Text(f"distance         {_distance(found)}, k = {match.k}"))
    out.print(Text(f"Jaccard          {found.jaccard:.3f}, {threshold}"))


def _votes(votes: list[tuple[bytes, int]]) -> str:
    return "  ".join(f"{shown(text, 24)} {vote:+d}" for text, vote in votes)

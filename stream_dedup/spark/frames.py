"""`dedup`, `fingerprint` and `find_pairs`: near-duplicates of a DataFrame.

The steps of `dedup`, each in a module of its own:

1. `lines`: equal lines become one row, with the numbers of the kernel.
2. `candidates`: which of these rows could meet in an index.
3. `components`: which rows are connected thereby, and are decided by one task.
4. `clusters`: the tasks decide, each with an index in memory.
5. Every row of the input takes the cluster of its line.

Each step costs Spark seconds, however few the rows. So up to `DECIDED_AT_ONCE` lines one task does
step 4, without steps 2 and 3; and up to `LINKED_AT_ONCE` texts (of bands) one task does steps 2 and
3.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- as everyone calls it
from pyspark.sql import types as T  # noqa: N812 -- as above

from stream_dedup.errors import InputError, RecipeError
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import check_width
from stream_dedup.spark.candidates import linked_at_once, links, near_pairs
from stream_dedup.spark.clusters import decided
from stream_dedup.spark.components import checkpointed, components
from stream_dedup.spark.lines import compared, distinct_lines, exact_hash, fingerprint_hex

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AnyRecipe = str | os.PathLike[str] | Recipe
"""A shipped recipe's name, a TOML file's path, or a recipe."""

ADDED = ("cluster", "representative_id", "is_duplicate", "distance")
"""The columns that `dedup` adds."""

DECIDED_AT_ONCE = 100_000
"""Lines that one task decides, some 40 µs each: as soon as Spark has started the steps between."""

LINKED_AT_ONCE = 1_000_000
"""Texts that one task links, in some ten seconds and one gigabyte, three at most."""

SENT_LINES = 1_000_000
"""Lines whose clusters are sent to all executors, some 200 bytes each, so that no row travels."""


def dedup(
    df: DataFrame,
    text: str = "body",
    id: str = "id",  # noqa: A002 -- the column's usual name
    group: str | Sequence[str] | None = None,
    recipe: AnyRecipe = "logs",
    *,
    time: str | None = None,
    key: bytes | None = None,
) -> DataFrame:
    """Find the near-duplicates of a DataFrame.

    The clusters are those that `Deduplicator` finds in the same rows in order of `time` and `id`,
    with the same key, windows that never close, and no limit on clusters; see docs/backfill.md.

    Distinct lines are decided when this is called; the rows of the result are computed when they
    are used. `df` is read twice: cache it if it is costly, or not the same each time.

    Args:
        df: the rows.
        text: the column of texts, strings or bytes; of JSON objects where the recipe takes fields.
        id: the column that identifies a row: unique, and never null.
        group: columns; only rows with equal values in all of them are compared.
        recipe: what counts as near.
        time: a column; the first row of a cluster is the one of the least time, then of the least
            id. By default the order of ids alone.
        key: 16 secret bytes for the hashes that decide; random by default. See `Deduplicator`.

    Returns:
        The columns of `df`, and

        - `cluster`: 16 hex digits, which follow from the recipe's name and `representative_id`;
          null for a row that has nothing to compare: no text, or no word in it;
        - `representative_id`: the id of the cluster's first row;
        - `is_duplicate`: whether the row is another one than that;
        - `distance`: bits in which its fingerprint differs from that row's; of bands, keys.

    Raises:
        InputError: a column is missing, or `df` has one of the columns that are added.
        RecipeError: the recipe is invalid.
    """
    recipe, key = _loaded(recipe), key or HashKey.random().secret()
    check_added(df)
    rows = selected(df, text, id, group, time, recipe)
    lines = checkpointed(distinct_lines(rows, recipe, key))
    count = lines.count()
    clusters = checkpointed(decided(lines, _roots(lines, recipe, count), recipe, count))
    return labelled(df, clusters, count, text, id, group, recipe, key)


def _roots(lines: DataFrame, recipe: Recipe, count: int) -> DataFrame | None:
    """Return which lines one task decides, in the cheapest way; None: it decides all of them."""
    if count <= DECIDED_AT_ONCE:
        return None
    if count <= LINKED_AT_ONCE and recipe.fingerprint.kind == "bands":
        return linked_at_once(lines, recipe)
    return components(links(lines, recipe, count))


def labelled(
    df: DataFrame,
    clusters: DataFrame,
    count: int,
    text: str,
    id: str,  # noqa: A002 -- as in `dedup`
    group: str | Sequence[str] | None,
    recipe: Recipe,
    key: bytes,
) -> DataFrame:
    """Return rows with the clusters of their lines.

    Args:
        df: the rows.
        clusters: as `decided` returns them.
        count: how many lines there are; decides whether rows are shuffled.
        text: the column of texts.
        id: the column that identifies a row.
        group: columns that are equal in a cluster.
        recipe: what counts as near.
        key: of the hashes.
    """
    theirs = clusters.select(
        F.col("group").alias("_sd_group"), F.col("exact").alias("_sd_exact"), *ADDED[:2], "distance"
    )
    if count <= SENT_LINES:
        theirs = F.broadcast(theirs)
    ours = df.withColumn("_sd_group", group_text(group)).withColumn(
        "_sd_exact", exact_hash(recipe, key, compared(df, recipe, text))
    )
    is_duplicate = F.col("representative_id").isNotNull() & (
        F.col(f"`{id}`") != F.col("representative_id")
    )
    return (
        ours.join(theirs, ["_sd_group", "_sd_exact"], "left")
        .withColumn("is_duplicate", is_duplicate)
        .select(*(F.col(f"`{name}`") for name in df.columns), *ADDED)
    )


def fingerprint(df: DataFrame, text: str = "body", recipe: AnyRecipe = "logs") -> DataFrame:
    """Return a DataFrame with the fingerprints of its texts.

    Args:
        df: the rows.
        text: the column of texts.
        recipe: how they are made.

    Returns:
        The columns of `df`, and `fingerprint`: hexadecimal digits; null for a row that has nothing
        to compare.

    Raises:
        RecipeError: the recipe is invalid, or its fingerprints are secret, as those of bands.
    """
    recipe = _loaded(recipe)
    if recipe.fingerprint.kind == "bands":
        raise RecipeError(
            f"recipe {recipe.name}",
            "fingerprint.kind",
            "is bands, whose fingerprints are made under a key and are never shown",
            "use another recipe, or find_pairs",
        )
    return df.withColumn("fingerprint", fingerprint_hex(recipe, compared(df, recipe, text)))


def find_pairs(
    df: DataFrame,
    text: str = "body",
    id: str = "id",  # noqa: A002 -- the column's usual name
    group: str | Sequence[str] | None = None,
    recipe: AnyRecipe = "logs",
) -> DataFrame:
    """Find all pairs of near lines.

    Lines with an equal exact hash count once, as the row of the least id: pairs of equal lines are
    left out.

    Args:
        df: the rows.
        text: as for `dedup`.
        id: as for `dedup`.
        group: as for `dedup`.
        recipe: what counts as near; learned words play no part.

    Returns:
        `id_a`, `id_b` (the larger), `distance` and `similarity` (0 where the recipe does not
        verify), each pair once.

    Raises:
        InputError: a column is missing.
        RecipeError: the recipe is invalid, or finds equal features only, as minhash.
    """
    recipe = _loaded(recipe)
    if recipe.fingerprint.kind == "minhash":
        raise RecipeError(
            f"recipe {recipe.name}",
            "fingerprint.kind",
            "is minhash, which compares no pairs",
            "use dedup, or another recipe",
        )
    rows = selected(df, text, id, group, None, recipe)
    lines = checkpointed(distinct_lines(rows, recipe, HashKey.random().secret()))
    pairs = near_pairs(lines, recipe, lines.count())
    for side in ("src", "dst"):
        ids = lines.select(F.col("node").alias(side), F.col("id").alias(f"{side}_id"))
        pairs = pairs.join(ids, side)
    return pairs.select(
        F.least("src_id", "dst_id").alias("id_a"),
        F.greatest("src_id", "dst_id").alias("id_b"),
        "distance",
        "similarity",
    )


def check_added(df: DataFrame) -> None:
    """Raise `InputError` if a DataFrame has one of the columns that are added."""
    taken = sorted(set(ADDED) & set(df.columns))
    if taken:
        raise InputError(
            f"the input has columns that are added to it: {', '.join(taken)}; rename them"
        )


def selected(
    df: DataFrame,
    text: str,
    id: str,  # noqa: A002 -- as in `dedup`
    group: str | Sequence[str] | None,
    time: str | None,
    recipe: Recipe,
) -> DataFrame:
    """Return the columns that `distinct_lines` takes.

    Raises:
        InputError: a column is missing, or the text's holds no texts.
    """
    groups = [group] if isinstance(group, str) else list(group or ())
    for name in (text, id, *groups, *([time] if time else [])):
        if name not in df.columns:
            raise InputError(f"no column is named {name!r}: there are {', '.join(df.columns)}")
    kind = df.schema[text].dataType
    if not isinstance(kind, T.StringType | T.BinaryType):
        raise InputError(f"column {text!r} holds {kind.simpleString()}, no texts")
    return df.select(
        (F.col(f"`{time}`") if time else F.lit(0)).alias("time"),
        F.col(f"`{id}`").alias("id"),
        compared(df, recipe, text).alias("text"),
        group_text(groups).alias("group"),
    )


def group_text(group: str | Sequence[str] | None) -> Column:
    """Return the column that is equal where all columns of the group are: a JSON object's text."""
    groups = sorted([group] if isinstance(group, str) else group or ())
    if not groups:
        return F.lit("")
    values = [F.col(f"`{name}`").cast("string").alias(name) for name in groups]
    text = F.to_json(F.struct(*values))
    return F.when(text == "{}", "").otherwise(text)


def _loaded(recipe: AnyRecipe) -> Recipe:
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    check_width(loaded)
    return loaded

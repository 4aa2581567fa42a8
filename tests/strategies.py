"""Hypothesis strategies that all tests share, and a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stream_dedup.features.masks import NAMED
from stream_dedup.features.recipe import HASH_BITS, Recipe, parse_recipe, replace
from stream_dedup.features.tokens import CALENDAR_NAMES
from stream_dedup.fingerprint.fingerprinter import segments_of
from stream_dedup.fingerprint.kernel import Segments

raw_bytes = st.binary(max_size=200)
"""Any bytes at all."""

unicode_text = st.text(max_size=80)
"""Any text, without lone surrogates."""

_digits = st.integers(0, 10**12).map(str)
_octets = st.integers(0, 255).map(str)
_hex = st.text("0123456789abcdef", min_size=1, max_size=12)
_words = st.one_of(
    st.sampled_from(
        ["error", "failed", "user", "password", "for", "from", "port", "GET", "/index", "opened"]
    ),
    st.text("abcdefgXYZ_-$.", min_size=1, max_size=9),
    st.text(min_size=1, max_size=5),
)
_names = st.sampled_from(sorted(name.decode() for name in CALENDAR_NAMES))
_tokens = st.one_of(
    _words,
    _words,
    _digits,
    _names,
    st.tuples(_names, _digits).map(" ".join),
    st.tuples(_names, _names, _digits).map(" ".join),
    st.tuples(_names, _words).map("".join),
    st.builds("{}.{}.{}.{}".format, _octets, _octets, _octets, _octets),
    st.builds("{}-{}".format, _words, _hex),
    st.uuids().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda time: time.strftime("%b %d %H:%M:%S")),
    st.lists(_words, min_size=1, max_size=4).map("/".join),
    st.lists(_words, min_size=1, max_size=4).map(lambda steps: "/" + "/".join(steps)),
    st.lists(_words, min_size=1, max_size=4).map("\\".join),
    st.lists(_words, min_size=2, max_size=4).map(".".join),
    st.builds("{}@{}".format, _words, _words),
    st.builds("{}={}".format, _words, st.one_of(_words, _digits)),
    st.builds('"{}"'.format, _words),
    st.builds("[{}]".format, _digits),
    st.builds('{{"{}": {}}}'.format, _words, _digits),
    st.sampled_from(
        ["/", "\\", "~/", "~/a", "~", "@", "a@", "@a", "a@b", "a.b", "a.b.c.", "...", "-"]
    ),
)
_odd_bytes = st.sampled_from([b"\x00", b"\x1a", b"\x1aip", b"\xff", b"\xc3", b"\x80\xbf", b"\x85"])
_pieces = st.one_of(_tokens.map(str.encode), _tokens.map(str.encode), _odd_bytes)
_gaps = st.sampled_from(
    [b" ", b" ", b" ", b"", b"  ", b"\t", b": ", b", ", b"=", b"|", b"\n", b"; "]
)

log_lines = st.lists(st.tuples(_pieces, _gaps), max_size=14).map(
    lambda pieces: b"".join(part for piece in pieces for part in piece)
)
"""Lines like those of logs: times, addresses, paths, quotes, pairs, and bytes out of place."""

plain_words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=10).map(str.encode)
"""Words that no class takes for variable and that are not calendar names."""

texts = st.one_of(raw_bytes, unicode_text.map(str.encode), log_lines, log_lines)
"""What an event's value may be."""

HOSTILE_TEXTS = [
    ("e" + "\u0301" * 100_000).encode(),
    b"\xff\xfe\xc3" * 30_000,
    "\ud800\udfff lone surrogates \udc80".encode("utf-8", "surrogatepass") * 3_000,
    ("\u202e\u2066right to left\u2069" * 5_000).encode(),
    ("\ufdfa" * 20_000).encode(),
    b"####" * 20_000,
    b"a@" * 30_000,
    b"1!" * 30_000,
    b"ha" * 30_000,
    b"\x00" * 60_000,
    ("\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 3_000).encode(),
]
"""Marks on one letter, no UTF-8, lone surrogates, right to left, one character that is 18 letters,
mask symbols alone, pieces that masks begin with, emoji."""

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
documents = st.recursive(
    _scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=4),
        st.dictionaries(
            st.sampled_from(["a", "b", "a.b", "c/d", "", "0", "*", "é"]), below, max_size=4
        ),
    ),
    max_leaves=12,
)
"""JSON documents, decoded."""

FOLDS = ["look-alikes", "look-alikes+words", "words"]

_own_masks = st.sampled_from(
    [
        {"name": "user", "pattern": r"user-(\w+)"},
        {"name": "either", "pattern": "(foo)|(ba(r|z))"},
        {"name": "digits", "pattern": "[0-9]{2,}"},
    ]
)
_weights = st.integers(0, 1000)


@st.composite
def recipe_documents(draw: st.DrawFn, extractors: tuple[str, ...]) -> dict[str, Any]:
    """TOML documents of valid recipes."""
    extractor = draw(st.sampled_from(extractors))
    words = extractor == "words"
    ngram = draw(st.integers(1, 4))
    weights: dict[str, Any] = {
        "default": draw(st.sampled_from([0, 1, 1, 3, 1000])),
        "placeholder": draw(st.sampled_from([0, 1, 1, 7])),
    }
    if words and ngram == 1:
        names = st.sampled_from(["error", "failed", "user", "a", "", "\x00", "é"])
        weights["table"] = draw(st.dictionaries(names, _weights, max_size=5))
    text = {
        "classes": words and draw(st.sampled_from([False, True, "structured"])),
        "case": draw(st.sampled_from(["keep", "lower"])),
        "unicode": draw(st.sampled_from(["keep", "nfkc"])),
        "mask": draw(st.lists(_own_masks, max_size=2)),
        "masks": draw(st.lists(st.sampled_from(list(NAMED)), max_size=3)),
    }
    kind = draw(st.sampled_from(["simhash", "simhash", "minhash", "bands"]))
    width = 64 if kind == "bands" else draw(st.sampled_from([32, 64, 128]))
    verified = draw(st.sampled_from([0.0, 0.7])) if kind == "simhash" else 0.0
    folds = extractor == "characters" and draw(st.booleans())
    return {
        "name": "drawn",
        "input": {"max_bytes": draw(st.sampled_from([64, 65, 100, 65_536]))},
        "text": {"fold": draw(st.sampled_from(FOLDS))} if folds else text,
        "features": {
            "extractor": extractor,
            "ngram": ngram,
            "delimiters": "log"
            if not folds and text["classes"] == "structured"
            else draw(st.sampled_from(["log", "word", "nonword", "nonalpha"])),
            "repeats": draw(st.sampled_from(["once", "count"])),
            "weights": weights,
        },
        "fingerprint": {
            "kind": kind,
            "width": width,
            "seed": draw(st.sampled_from([0, 1, 2**32 - 1])),
            "least": 4 if kind == "bands" else draw(st.integers(1, 8)),
        },
        "match": {
            "k": {"simhash": draw(st.integers(0, width - 1)), "minhash": 0, "bands": 3}[kind],
            "jaccard": 0.42 if kind == "bands" else verified,
            "learn": draw(st.sampled_from([0, 2, 5])) if words and kind == "simhash" else 0,
            "protected": draw(st.sampled_from(["outcomes", ["user", "for"], []])),
            "variants": draw(st.sampled_from([["level", "status"], []])),
        },
    }


def recipes(
    extractors: tuple[str, ...] = ("words", "characters", "syllables"),
) -> st.SearchStrategy[Recipe]:
    """Valid recipes over some of the built-in extractors."""
    return recipe_documents(extractors).map(
        lambda document: parse_recipe(document, "drawn", Path())
    )


@st.composite
def recipes_of_other_systems(draw: st.DrawFn) -> Recipe:
    """Recipes with what other systems' fingerprints are made of, in any mixture that is valid."""
    document = draw(recipe_documents(("words", "characters")))
    fingerprint, features = document["fingerprint"], document["features"]
    if fingerprint["kind"] == "bands":  # which are nobody else's
        fingerprint["kind"] = "simhash"
    fingerprint["hash"] = draw(st.sampled_from(["murmur3", "java", "md5", "cyclic"]))
    fingerprint["tie"] = draw(st.sampled_from(["zero", "one"]))
    fingerprint["width"] = draw(
        st.sampled_from([w for w in (5, 32, 64, 128) if w <= HASH_BITS[fingerprint["hash"]]])
    )
    if fingerprint["hash"] != "murmur3":
        fingerprint["seed"] = 0
    if features["extractor"] == "words":
        features["window"] = draw(st.sampled_from(["full", "filling"]))
    if (
        not document["text"].get("mask")
        and not document["text"].get("masks")
        and draw(st.booleans())
    ):
        features["delimiters"] = "space"
        if document["text"].get("classes") == "structured":
            document["text"]["classes"] = True
    document["match"]["k"] = min(document["match"]["k"], fingerprint["width"] - 1)
    return parse_recipe(document, "drawn", Path())


@st.composite
def segments(draw: st.DrawFn) -> Segments:
    """Events of none, one or several parts, each with its weight and salt."""
    salt = st.integers(0, 2**64 - 1)
    part = st.tuples(texts, st.integers(0, 1000), st.tuples(salt, salt))
    return segments_of(draw(st.lists(st.lists(part, max_size=4), max_size=5)))


feature_events = st.lists(
    st.lists(
        st.tuples(
            st.binary(max_size=4) | plain_words,
            st.sampled_from([0, 1, 2, 1000, 2**32 - 1]),
            st.sampled_from([(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**64 - 1)]),
        ),
        max_size=40,
    ),
    max_size=5,
)
"""What extractors of one's own may hand to `fold`: (feature, weight, salt) triples."""

RECIPE_OF_BANDS = replace(
    Recipe(),
    text__fold="look-alikes",
    features__extractor="characters",
    features__ngram=4,
    fingerprint__kind="bands",
    match__jaccard=0.42,
    match__min_features=8,
)
"""Folded texts of four letters in a row, for tests of bands."""

"""Recipes: everything that decides a fingerprint and a match, as one frozen object or TOML file.

A recipe's *digest* identifies its decisions: two recipes with equal digests give equal fingerprints
and equal matches, on every platform and in every version. Name and description are not part of it,
nor are settings at their defaults, so a setting added later changes no digest.

A file has only the settings that differ from the defaults; `Recipe` and its sections define all.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import re2
from msgspec import Meta, Struct

from stream_dedup.errors import RecipeError
from stream_dedup.features import masks as named_masks
from stream_dedup.features.extractors import BUILT_IN, is_extractor_name
from stream_dedup.features.fields import parse_path
from stream_dedup.features.folding import MIN_PASSAGE_BYTES, folded_passages
from stream_dedup.features.tokens import DELIMITERS, SPACE_SPLIT, splitter
from stream_dedup.features.variants import LEVELS, MAX_WORD_BYTES, OUTCOMES
from stream_dedup.features.weights import read_passages, read_stop_words, read_weights

MAX_RECIPE_BYTES = 1 << 20
"""A larger file is a mistake."""

HASH_BITS = {"murmur3": 128, "java": 32, "md5": 128, "cyclic": 64, "codepoint": 21}
"""The hashes that a fingerprint can be folded from, and the bits of each."""

BANDS_BITS = 512
"""Bits of a fingerprint of bands."""

STRUCTURE = 2
"""Version of how lines are read where ``text.classes`` is ``structured`` (`lines`); a part of the
digest. Another reading after a release is another value of the setting."""

MAX_LEARNED_WORDS = 48
"""Events with more words are found by exact hash and fingerprint alone."""

SAME_TEXT = 0.7
"""Least `Match.jaccard` with which near lines have the same running text."""

MAX_PASSAGES = 10_000
"""Passages of boilerplate in a recipe: some 3 MB at most in each worker."""

MAX_PASSAGE_CHARACTERS = 1_000

Weight = Annotated[int, Meta(ge=0, le=1000)]

Passage = Annotated[str, Meta(min_length=1, max_length=MAX_PASSAGE_CHARACTERS)]

ProtectedWord = Annotated[
    str, Meta(min_length=1, max_length=MAX_WORD_BYTES, pattern="^[A-Za-z_-]+$")
]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file; unknown keys are an error."""


class Field(_Section, frozen=True):
    """A part of a JSON event, chosen by path.

    Attributes:
        path: keys joined by dots (``user.name``); a number picks an element of an array, ``*``
            matches any key or element, ``**`` everything below. Keys that contain dots are written
            as a JSON pointer (``/a.b/c``).
        weight: multiplies the weights of the features found there.
    """

    path: Annotated[str, Meta(min_length=1, max_length=256)]
    weight: Annotated[int, Meta(ge=1, le=1000)] = 1


class Input(_Section, frozen=True):
    """The parts of an event that are used.

    Attributes:
        fields: parts of a JSON event; none means the whole text.
        max_bytes: bytes of a text that are cut into features; the rest counts as one feature, so
            that it still distinguishes events.
    """

    fields: tuple[Field, ...] = ()
    max_bytes: Annotated[int, Meta(ge=64, le=1 << 24)] = 65_536


class Mask(_Section, frozen=True):
    """A mask defined by the recipe.

    Attributes:
        name: shown in patterns as ``<name>``.
        pattern: RE2 syntax, over bytes.
    """

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,31}$")]
    pattern: Annotated[str, Meta(min_length=1, max_length=4096)]


class Text(_Section, frozen=True):
    """Changes to a text before features are extracted, in this order.

    Attributes:
        unicode: ``nfkc`` folds compatibility forms (full-width letters, ligatures) together.
        case: ``lower`` makes all letters lower case.
        fold: ``look-alikes`` leaves letters and symbols for links, addresses and numbers, whatever
            they are disguised as (`folding`); ``words`` leaves letters and digits, with two spaces
            around each word; ``look-alikes+words`` leaves the text as the first does, and after it
            its words and its numbers. No other setting of this table may be given beside it,
            except boilerplate.
        boilerplate: passages, such as signatures and footers, that are left out of folded texts
            wherever they appear. A text of nothing else stays whole.
        boilerplate_file: lines with one passage each, read into the list; relative to the recipe's
            file.
        mask: masks defined by the recipe, tried before the named ones.
        masks: named masks to apply: url, email, uuid, mac, timestamp, ipv4, ipv6, path, hex,
            number.
        classes: whether tokens are classified as words or variables by their shape (`tokens`);
            ``structured`` has more classes, and reads JSON, ``Name(key=value)``, lists and quoted
            strings inside a line (`lines`).
    """

    unicode: Literal["keep", "nfkc"] = "keep"
    case: Literal["keep", "lower"] = "keep"
    fold: Literal["keep", "look-alikes", "look-alikes+words", "words"] = "keep"
    boilerplate: Annotated[tuple[Passage, ...], Meta(max_length=MAX_PASSAGES)] = ()
    boilerplate_file: Annotated[str, Meta(max_length=4096)] = ""
    mask: tuple[Mask, ...] = ()
    masks: tuple[str, ...] = ()
    classes: bool | Literal["structured"] = False


class Weights(_Section, frozen=True):
    """The weights of features.

    Attributes:
        default: weight of a feature that is not in the table.
        placeholder: weight of a placeholder.
        table: feature → weight; 0 leaves it out of the fingerprint. Multiplied with the weight that
            an extractor gives.
        file: lines ``feature<TAB>weight``, read into the table; relative to the recipe's file.
        stop_words: a shipped list, or a file of words, one a line; read into the table with
            ``stop_weight``, unless the table has a weight for them.
        stop_weight: weight of stop words.
        layout: weight of a path, for the extractors xml, html and json.
        content: weight of a word of the text, for the same extractors.
    """

    default: Weight = 1
    placeholder: Weight = 1
    table: dict[str, Weight] = {}
    file: str = ""
    stop_words: str = ""
    stop_weight: Weight = 0
    layout: Weight = 1
    content: Weight = 1


class Features(_Section, frozen=True):
    """The features that a text is cut into.

    Attributes:
        extractor: ``words``, ``characters``, ``letters`` or ``syllables``; ``xml``, ``html`` or
            ``json``, followed by ``-layout`` or ``-content`` for one of the two; an entry point of
            the group ``stream_dedup.extractors``; or ``module:function``.
        ngram: the number of consecutive words or characters in one feature.
        window: for words, whether there are only n-grams of n words (``full``), or also the shorter
            ones at the beginning, as a moving window has while it fills (``filling``).
        delimiters: what separates words: ``log`` (white space, brackets, quotes, ``= : , ; |``),
            ``word`` (ASCII except letters, digits and ``_``), ``nonword`` (every byte except
            those), ``nonalpha`` (every byte except ASCII letters) or ``space`` (each single space;
            empty words count, except at the end).
        repeats: whether a repeated feature votes again (``count``) or not (``once``).
    """

    extractor: str = "words"
    ngram: Annotated[int, Meta(ge=1, le=16)] = 1
    window: Literal["full", "filling"] = "full"
    delimiters: Literal["log", "word", "space", "nonword", "nonalpha"] = "log"
    repeats: Literal["once", "count"] = "once"
    weights: Weights = Weights()


class Fingerprint(_Section, frozen=True):
    """How features become bits.

    Attributes:
        kind: ``simhash``; ``minhash`` (the n least hashes); or ``bands`` (sixteen keys of three
            minhashes each, one of which two near events share), which takes no ``match.k``.
        width: bits; fingerprints of 5 bits cannot be stored in an index. Bands have 512.
        hash: gives the votes: ``murmur3``; ``java`` (``String.hashCode``, 32 bits), ``md5`` (128
            bits), ``cyclic`` (lookup3 of each word, and the cyclic hash of consecutive words, 64
            bits) or ``codepoint`` (of a single letter). All but ``murmur3`` are computed in Python,
            some hundred times slower.
        tie: the bit for a sum of votes of 0.
        seed: of the hash ``murmur3``. It is not protection: whoever wants two equal hashes computes
            them for any seed, or for all at once. The keyed hashes protect (`fingerprint.siphash`).
        least: for minhash, the number of least hashes that count.
    """

    kind: Literal["simhash", "minhash", "bands"] = "simhash"
    width: Literal[5, 32, 64, 128] = 64
    hash: Literal["murmur3", "java", "md5", "cyclic", "codepoint"] = "murmur3"
    tie: Literal["zero", "one"] = "zero"
    seed: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] = 0
    least: Annotated[int, Meta(ge=1, le=64)] = 4

    @property
    def bits(self) -> int:
        """Bits of a fingerprint."""
        return BANDS_BITS if self.kind == "bands" else self.width


class Match(_Section, frozen=True):
    """When two events say the same thing.

    Attributes:
        k: the largest distance that still counts as near. With bands, texts that share a key are
            near.
        jaccard: verification: the least share of distinct features that two events must have in
            common; 0 for no verification, which minhash requires. With bands, an event of fewer
            than 24 features needs 0.6 or more. Where words are learned in structured lines, 0.7 or
            more also asks for the same running text: only words in brackets and values of keys may
            differ.
        min_features: an event with fewer words is not compared by its fingerprint; with another
            extractor, one with fewer features. Where words are learned, it needs as many words as
            `jaccard` asks for if one of them is another: with 0.9, 19.
        aliases: maximum exact hashes and fingerprints of joined events that a cluster keeps.
        protected: words in which two events of a cluster never differ: ``outcomes`` for the
            built-in list (ok, failed, up, down, not and so on), or words of your own. Case does not
            count. They are looked for by the extractor ``words``.
        variants: what else two events of a cluster never differ in: ``level`` (the names of log
            levels), ``status`` (the class of HTTP statuses, 2xx to 5xx; whether exit codes are 0),
            ``frames`` (the innermost frames of a stack trace; its others are not compared).
        learn: the number of different words in one place, between the same words, after which the
            word in that place counts as variable, and the clusters of these patterns merge; twice
            as many between two words, four times as many beside one. 0: no words are learned.
    """

    k: Annotated[int, Meta(ge=0, le=127)] = 3
    jaccard: Annotated[float, Meta(ge=0, le=1)] = 0.0
    min_features: Annotated[int, Meta(ge=1, le=1000)] = 2
    aliases: Annotated[int, Meta(ge=0, le=4_096)] = 256
    protected: Literal["outcomes"] | tuple[ProtectedWord, ...] = ()
    variants: tuple[Literal["level", "status", "frames"], ...] = ()
    learn: Annotated[int, Meta(ge=0, le=8)] = 0


class Recipe(_Section, frozen=True):
    """Everything that decides a fingerprint and a match."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "custom"
    description: str = ""
    input: Input = Input()
    text: Text = Text()
    features: Features = Features()
    fingerprint: Fingerprint = Fingerprint()
    match: Match = Match()

    @property
    def digest(self) -> str:
        """Sixteen hex digits that identify the recipe's decisions."""
        decided = _decided(self)
        decided.pop("name", None)
        decided.pop("description", None)
        head = b"stream-dedup recipe 1\n"
        if self.text.classes == "structured":
            head += b"structure %d\n" % STRUCTURE
        text = head + msgspec.json.encode(decided, order="deterministic")
        return hashlib.sha256(text).hexdigest()[:16]

    @property
    def min_search_words(self) -> int:
        """The least number of words of an event that is matched by its fingerprint.

        Where words are learned, rules on words decide about events with one word more or less. The
        fingerprint is left to find other words, and it has no chance where `Match.jaccard` admits
        none: of n words one may be another if (n - 1) / (n + 1) is enough. Events with more than
        `MAX_LEARNED_WORDS` learn no words.

        >>> load_recipe("logs").min_search_words
        19
        """
        match = self.match
        if not match.learn:
            return match.min_features
        words = range(match.min_features, MAX_LEARNED_WORDS + 1)
        admitting = (n for n in words if n - 1 >= match.jaccard * (n + 1))
        return max(match.min_features, next(admitting, MAX_LEARNED_WORDS + 1))

    @property
    def compares_text(self) -> bool:
        """Whether lines must have the same running text to be matched by their fingerprints.

        Running text is all that is outside brackets and not the value of a key, and each word that
        is never learned. A recipe with a `Match.jaccard` below `SAME_TEXT` asks for similar texts.
        """
        match = self.match
        is_asked = match.learn > 0 and match.jaccard >= SAME_TEXT
        return is_asked and self.text.classes == "structured"

    @property
    def delimiters(self) -> bytes:
        """The bytes that separate tokens."""
        return DELIMITERS[self.features.delimiters]

    @property
    def split(self) -> re.Pattern[bytes]:
        """The pattern of a token, for `tokenise`."""
        by_spaces = self.features.delimiters == "space"
        return SPACE_SPLIT if by_spaces else splitter(self.delimiters)

    @property
    def protected(self) -> frozenset[bytes]:
        """The words in which events of a cluster never differ, in lower case: `variants`."""
        return self._protected | self.levels

    @property
    def levels(self) -> frozenset[bytes]:
        """Those of the protected words that are log levels and nothing else, in lower case."""
        levels = LEVELS if "level" in self.match.variants else frozenset()
        return frozenset(level.encode() for level in levels) - self._protected

    @property
    def _protected(self) -> frozenset[bytes]:
        given = self.match.protected
        words = OUTCOMES if given == "outcomes" else given
        return frozenset(word.lower().encode() for word in words)

    @property
    def masks(self) -> list[tuple[str, str]]:
        """(name, pattern) of all masks to apply, in order."""
        own = [(mask.name, mask.pattern) for mask in self.text.mask]
        return own + named_masks.named(self.text.masks)


def _decided(section: _Section) -> dict[str, Any]:
    """Return the settings that differ from the defaults."""
    decided: dict[str, Any] = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        # An empty table is the only default made by a factory.
        if value != ({} if field.default is msgspec.NODEFAULT else field.default):
            decided[field.name] = _builtin(value)
    return decided


def _builtin(value: Any) -> Any:  # noqa: ANN401 -- any setting's value
    if isinstance(value, _Section):
        return _decided(value)
    return [_builtin(item) for item in value] if isinstance(value, tuple) else value


def replace(recipe: Recipe, **changes: Any) -> Recipe:  # noqa: ANN401 -- any setting's value
    """Return a copy with changed settings, named ``section__key``, checked as a file is.

    >>> replace(load_recipe("logs"), match__k=3).match.k
    3

    Raises:
        RecipeError: the result is not a valid recipe.
    """
    document: dict[str, Any] = msgspec.to_builtins(recipe)
    for name, value in changes.items():
        *sections, key = name.split("__")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise RecipeError(recipe.name, name, "unknown key", f"{section!r} is not a section")
        table[key] = value
    return parse_recipe(document, recipe.name, Path())


def shipped() -> list[str]:
    """Return the names of the shipped recipes."""
    folder = resources.files("stream_dedup.features") / "recipes"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if ".toml" in entry.name)


def load_recipe(name: str | os.PathLike[str]) -> Recipe:
    """Load a shipped recipe by its name, or a TOML file by its path.

    >>> load_recipe("logs").fingerprint.width
    64

    Raises:
        RecipeError: there is no such recipe, or it is not valid.
    """
    place = os.fspath(name)
    if place in shipped():
        file = resources.files("stream_dedup.features") / "recipes" / f"{place}.toml"
        return parse_recipe(tomllib.loads(file.read_text("utf-8")), f"recipe {place}", Path())
    if os.sep not in place and not place.endswith(".toml"):
        known = ", ".join(shipped())
        raise RecipeError(place, "", "no such recipe", f"use one of {known}, or a .toml file")
    path = Path(place)
    try:
        if path.stat().st_size > MAX_RECIPE_BYTES:
            raise RecipeError(place, "", "larger than 1 MiB", "give a recipe's TOML file")
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise RecipeError(place, "", problem, "check path and permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecipeError(place, "", f"not TOML: {error}", "correct the file there") from error
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip("_.-")[:64]
    document.setdefault("name", name or "own")
    return parse_recipe(document, place, path.parent)


def parse_recipe(document: dict[str, Any], file: str, folder: Path) -> Recipe:
    """Make a recipe of a TOML document.

    Args:
        document: the parsed file.
        file: its name in errors.
        folder: ``features.weights.file`` and the like are relative to it.

    Raises:
        RecipeError: names file, key, value and remedy.
    """
    try:
        recipe = msgspec.convert(document, Recipe)
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, file) from error
    for key, problem, remedy in _contradictions(recipe):
        raise RecipeError(file, key, problem, remedy)
    if recipe.text.boilerplate or recipe.text.boilerplate_file:
        recipe = msgspec.structs.replace(recipe, text=_with_boilerplate(recipe.text, file, folder))
    weights = recipe.features.weights
    if weights.file:
        table = read_weights(folder / weights.file, file) | weights.table
        weights = msgspec.structs.replace(weights, table=table, file="")
    if weights.stop_words:
        words = read_stop_words(weights.stop_words, folder, file)
        table = dict.fromkeys(words, weights.stop_weight) | weights.table
        weights = msgspec.structs.replace(weights, table=table, stop_words="")
    if weights.stop_weight:  # it is in the table now, or has no stop words
        weights = msgspec.structs.replace(weights, stop_weight=0)
    if recipe.text.case == "lower":  # as are the words looked up in the table
        table = {word.lower(): weight for word, weight in weights.table.items()}
        weights = msgspec.structs.replace(weights, table=table)
    if weights is not recipe.features.weights:
        features = msgspec.structs.replace(recipe.features, weights=weights)
        recipe = msgspec.structs.replace(recipe, features=features)
    return recipe


def _with_boilerplate(text: Text, file: str, folder: Path) -> Text:
    """Return the settings with all passages in their list, each once, in one order.

    Raises:
        RecipeError: the file cannot be read, or a passage is too short to be left out.
    """
    key, passages = "text.boilerplate", list(text.boilerplate)
    if text.boilerplate_file:
        key = "text.boilerplate_file"
        passages += read_passages(folder / text.boilerplate_file, file)
    passages = sorted(set(passages))
    if len(passages) > MAX_PASSAGES:
        problem = f"there are {len(passages)} passages, more than {MAX_PASSAGES}"
        raise RecipeError(file, key, problem, "keep the most frequent")
    long = max(map(len, passages), default=0)
    if long > MAX_PASSAGE_CHARACTERS:
        problem = f"a passage has {long} characters, more than {MAX_PASSAGE_CHARACTERS}"
        raise RecipeError(file, key, problem, "cut it, or make several of it")
    for passage, folded in zip(passages, folded_passages(passages), strict=True):
        if len(folded) < MIN_PASSAGE_BYTES:
            problem = f"of {passage!r} only {folded.decode()!r} is left after folding"
            remedy = f"give a passage of which {MIN_PASSAGE_BYTES} bytes or more are left"
            raise RecipeError(file, key, problem, remedy)
    return msgspec.structs.replace(text, boilerplate=tuple(passages), boilerplate_file="")


def _explained(message: str, document: dict[str, Any], file: str) -> RecipeError:
    """Turn the validator's message into ours, with the value or the known keys."""
    problem, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    unknown = re.search(r"unknown field `(.*)`", problem)
    if unknown:
        section: Any = Recipe
        for part in re.findall(r"[a-z_]+", key):
            section = next(f.type for f in msgspec.structs.fields(section) if f.name == part)
            section = getattr(section, "__args__", (section,))[0]
        known = [field.name for field in msgspec.structs.fields(section)]
        close = difflib.get_close_matches(unknown[1].lower(), known, 1, 0.5)
        remedy = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return RecipeError(file, ".".join(filter(None, (key, unknown[1]))), "unknown key", remedy)
    value: Any = document
    for part in re.findall(r"[^.\[\]]+", key):
        value = value[int(part)] if isinstance(value, list | tuple) else value.get(part, {})
    found = "is not a number" if value != value else _plainly(problem, key)  # noqa: PLR0124 -- NaN
    holder = f"{value!r} holds a value that" if key.endswith("[...]") else repr(value)
    return RecipeError(file, key, f"{holder} {found}")


_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "a table with keys",
    "str": "a text",
}
_BOUNDS = {">=": "is less than", "<=": "is more than", ">": "is not more than"}
_LENGTHS = {">=": "is shorter than", "<=": "is longer than"}


def _plainly(problem: str, key: str) -> str:
    """Say in words what the validator finds wrong with a value."""
    if problem.startswith("Invalid enum value"):
        return f"is not one of {', '.join(map(str, _choices(key)))}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return f"has no key {missing[1]!r}"
    if regex := re.fullmatch(r"Expected `str` matching regex (.*)", problem):
        return f"does not match the regex {regex[1]}"
    if bound := re.fullmatch(r"Expected `\w+`( of length)? ([<>]=?) (\S+)", problem):
        bounds = _LENGTHS if bound[1] else _BOUNDS
        return f"{bounds[bound[2]]} {bound[3]}"
    if kinds := re.fullmatch(r"Expected `([\w| ]+)`, got .*", problem):
        return f"is not {' or '.join(_KINDS.get(kind, kind) for kind in kinds[1].split(' | '))}"
    return f"is wrong: {problem[:1].lower()}{problem[1:]}"


def _choices(key: str) -> Iterator[object]:
    """Yield the values that a setting may have, from its type."""
    kinds: list[Any] = [Recipe]
    for part in re.findall(r"[a-z_]+", key):
        kinds = [
            kind
            for section in kinds
            if isinstance(section, type) and issubclass(section, msgspec.Struct)
            for kind in _parts_of(get_type_hints(section)[part])
        ]
    if bool in kinds:
        yield from ("true", "false")
    yield from dict.fromkeys(each for kind in kinds for each in get_args(kind))


def _parts_of(kind: Any) -> Iterator[Any]:  # noqa: ANN401 -- a type, as `typing` has it
    """Yield the literals and classes that a type is made of."""
    if get_origin(kind) is Literal or not get_args(kind):
        yield kind
    else:
        for each in get_args(kind):
            yield from _parts_of(each)


def _reason(error: re2.error) -> str:
    reason = error.args[0]
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _contradictions(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield (key, problem, remedy) of all errors that types do not exclude."""
    features, fingerprint = recipe.features, recipe.fingerprint
    for index, field in enumerate(recipe.input.fields):
        try:
            steps = parse_path(field.path)
        except ValueError as error:
            yield f"input.fields[{index}].path", str(error), "write a path as in user.name"
            continue
        if "**" in steps[:-1]:
            problem = f"is {field.path!r}: ** takes everything below, so nothing can follow it"
            yield f"input.fields[{index}].path", problem, "end the path there, or use * for a step"
    for name in recipe.text.masks:
        if name not in named_masks.NAMED:
            known = ", ".join(named_masks.NAMED)
            yield "text.masks", f"no mask is named {name!r}", f"use some of {known}"
    for index, mask in enumerate(recipe.text.mask):
        try:
            if named_masks.compile_pattern(mask.pattern).search(b"") is not None:
                problem = f"{mask.pattern!r} matches nothing at all, between any two bytes"
                yield f"text.mask[{index}].pattern", problem, "use + where there is *"
        except re2.error as error:
            problem = f"{mask.pattern!r} is not RE2 syntax: {_reason(error)}"
            remedy = "RE2 has no look-around and no back-references"
            yield f"text.mask[{index}].pattern", problem, remedy
    try:
        named_masks.Masker(recipe.masks)
    except re2.error as error:
        problem = f"the masks do not fit together: {_reason(error)}"
        yield "text.mask", problem, "end what \\Q begins with \\E; use fewer or shorter patterns"
    if not is_extractor_name(features.extractor):
        problem = f"no extractor is named {features.extractor!r}"
        known = ", ".join(BUILT_IN)
        yield "features.extractor", problem, f"use one of {known}, an entry point, module:function"
    weights = features.weights
    table = weights.table or weights.file or weights.stop_words
    in_a_row = features.extractor == "words" and features.ngram > 1
    if table and in_a_row and fingerprint.hash == "cyclic":
        remedy = "use ngram 1, or another fingerprint.hash"
        yield "features.weights", "under the hash 'cyclic' a table weights single words", remedy
    yield from _match_contradictions(recipe)
    yield from _text_contradictions(recipe)
    yield from _hash_contradictions(recipe)


def _match_contradictions(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield the errors of what counts as near."""
    features, fingerprint, match = recipe.features, recipe.fingerprint, recipe.match
    if "frames" in match.variants and recipe.input.fields:
        problem = "has 'frames', but with input.fields no stack traces are read"
        yield "match.variants", problem, "leave out 'frames', or input.fields"
    if match.learn == 1:
        yield "match.learn", "is 1, but a single value is not a variable", "give 2 or more, or 0"
    if match.learn and (features.extractor != "words" or fingerprint.kind != "simhash"):
        remedy = "set it to 0, or use the extractor 'words' with simhash"
        yield "match.learn", "only words of a simhash are learned", remedy
    if fingerprint.kind == "bands":
        yield from _bands_contradictions(recipe)
    elif match.k >= fingerprint.width:
        remedy = f"give a k below the width, {fingerprint.width}"
        yield "match.k", f"is {match.k}, which every fingerprint is within", remedy
    if fingerprint.kind == "minhash" and match.k:
        remedy = "set match.k = 0: least hashes are equal or tell nothing"
        yield "match.k", f"is {match.k} with minhash", remedy
    if fingerprint.kind == "minhash" and match.jaccard:
        remedy = "set match.jaccard = 0: events of one key share a cluster, whichever came first"
        yield "match.jaccard", f"is {match.jaccard} with minhash", remedy


def _bands_contradictions(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield the errors of settings that bands do not have."""
    fingerprint, match = recipe.fingerprint, recipe.match
    defaults, default = Fingerprint(), Match()
    if match.k != default.k:
        remedy = "leave it out: events that share one of the sixteen keys are compared"
        yield "match.k", f"is {match.k} with bands", remedy
    if not match.jaccard:
        problem = "is 0 with bands, whose keys unlike texts may share too"
        yield "match.jaccard", problem, "give the least share of features in common, 0.42 for one"
    for name in ("width", "hash", "tie", "least"):
        value = getattr(fingerprint, name)
        if value != getattr(defaults, name):
            yield f"fingerprint.{name}", f"is {value!r} with bands, which have none", "leave it out"


def _text_contradictions(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield the errors of preparations that do not fit with each other or with the extractor."""
    text, extractor = recipe.text, recipe.features.extractor
    if text.classes and extractor != "words":
        remedy = "set it to false, or use text.masks"
        yield "text.classes", "only the extractor 'words' has token classes", remedy
    delimiters = recipe.features.delimiters
    if text.classes == "structured" and delimiters != "log":
        problem = f"is 'structured', but features.delimiters is {delimiters!r}"
        yield "text.classes", problem, "set it to true, or features.delimiters to 'log'"
    if not text.fold.startswith("look-alikes") and (text.boilerplate or text.boilerplate_file):
        key = "text.boilerplate" if text.boilerplate else "text.boilerplate_file"
        problem = f"is left out of folded texts, but text.fold is {text.fold!r}"
        yield key, problem, "set text.fold to 'look-alikes', or leave it out"
    if text.fold == "keep":
        return
    for name, value, default in (
        ("unicode", text.unicode, "keep"),
        ("case", text.case, "keep"),
        ("masks", list(text.masks), []),
        ("mask", [mask.name for mask in text.mask], []),
    ):
        if value != default:
            problem = f"is {value!r} with text.fold = {text.fold!r}, which does all of it itself"
            yield f"text.{name}", problem, f"leave out text.{name}, or text.fold"
    if extractor in BUILT_IN and extractor != "characters":
        problem = f"is {extractor!r}, but text.fold = {text.fold!r} leaves no lines or structure"
        yield "features.extractor", problem, "use 'characters' or your own, or leave out text.fold"


def _hash_contradictions(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield the errors of settings that reproduce other systems' fingerprints."""
    features, fingerprint = recipe.features, recipe.fingerprint
    bits = HASH_BITS[fingerprint.hash]
    if fingerprint.width > bits:
        fitting = [str(width) for width in (5, 32, 64, 128) if width <= bits]
        problem = f"is {fingerprint.width}, but the hash {fingerprint.hash!r} has {bits} bits"
        yield "fingerprint.width", problem, f"use {' or '.join(fitting)}"
    if fingerprint.seed and fingerprint.hash != "murmur3":
        problem = f"is {fingerprint.seed}, but the hash {fingerprint.hash!r} takes none"
        yield "fingerprint.seed", problem, "set it to 0, or fingerprint.hash to 'murmur3'"
    single = features.extractor in {"characters", "letters"} and features.ngram == 1
    if fingerprint.hash == "codepoint" and not single:
        remedy = "use extractor 'characters' and ngram 1"
        yield "fingerprint.hash", "is 'codepoint', which is of single letters", remedy
    if features.window == "filling" and features.extractor != "words":
        remedy = "set it to 'full'"
        yield "features.window", "only over words, a window fills", remedy
    if features.delimiters == "space" and recipe.masks:
        problem = "is 'space', but masks put spaces around what they find"
        yield "features.delimiters", problem, "use other delimiters, or no masks"

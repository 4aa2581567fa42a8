"""Recipes: what is refused and with which error, what the digest names, how files are found."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import RecipeError
from stream_dedup.features.recipe import (
    Mask,
    Recipe,
    load_recipe,
    parse_recipe,
    replace,
    shipped,
)
from tests.strategies import recipe_documents, recipes


def parsed(document: dict[str, Any]) -> Recipe:
    return parse_recipe(document, "my.toml", Path())


OWN = {"name": "a", "pattern": "b"}


@pytest.mark.parametrize(
    ("document", "key", "parts"),
    [
        ({"text": 3}, "text", ["text: 3 is not a table with keys"]),
        ({"match": {"k": "three"}}, "match.k", ["match.k: 'three' is not an integer"]),
        ({"match": {"k": -1}}, "match.k", ["-1 is less than 0"]),
        ({"match": {"k": True}}, "match.k", ["True is not an integer"]),
        ({"match": {"jaccard": 1.5}}, "match.jaccard", ["1.5 is more than 1.0"]),
        ({"match": {"jaccard": float("nan")}}, "match.jaccard", ["nan is not a number"]),
        ({"fingerprint": {"width": 65}}, "fingerprint.width", ["65 is not one of 5, 32, 64, 128"]),
        (
            {"fingerprint": {"seed": 2**32}},
            "fingerprint.seed",
            ["4294967296 is more than 4294967295"],
        ),
        (
            {"fingerprint": {"kind": "sim"}},
            "fingerprint.kind",
            ["'sim' is not one of simhash, minhash, bands"],
        ),
        ({"features": {"ngram": 0}}, "features.ngram", ["0 is less than 1"]),
        ({"input": {"fields": [{"path": ""}]}}, "input.fields[0].path", ["'' is shorter than 1"]),
        ({"input": {"fields": [{}]}}, "input.fields[0]", ["{} has no key 'path'"]),
        ({"input": {"fields": ["a"]}}, "input.fields[0]", ["'a' is not a table with keys"]),
        ({"input": {"max_bytes": 1}}, "input.max_bytes", ["1 is less than 64"]),
        ({"name": "no spaces"}, "name", ["'no spaces' does not match the regex"]),
        ({"text": {"mask": [OWN, {"name": "A", "pattern": "x"}]}}, "text.mask[1].name", ["'A'"]),
        (
            {"features": {"weights": {"table": {"a": 1, "b": 1001}}}},
            "features.weights.table[...]",
            ["1001} holds a value that is more than 1000"],
        ),
        ({"match": {"aliases": 4097}}, "match.aliases", ["4097 is more than 4096"]),
        (
            {"match": {"variants": ["lvl"]}},
            "match.variants[0]",
            ["'lvl' is not one of level, status, frames"],
        ),
        ({"text": {"classes": "s"}}, "text.classes", ["'s' is not one of true, false, structured"]),
        # unknown keys, with the nearest that is known
        ({"matsch": {}}, "matsch", ["unknown key", "did you mean 'match'?"]),
        ({"match": {"jacard": 1}}, "match.jacard", ["unknown key", "did you mean 'jaccard'?"]),
        (
            {"match": {"zzz": 1}},
            "match.zzz",
            ["known keys: k, jaccard, min_features, aliases, protected"],
        ),
        (
            {"text": {"mask": [{"name": "a", "patern": "b"}]}},
            "text.mask[0].patern",
            ["did you mean 'pattern'?"],
        ),
        (
            {"input": {"fields": [{"path": "a", "wieght": 2}]}},
            "input.fields[0].wieght",
            ["did you mean 'weight'?"],
        ),
        (
            {"features": {"weights": {"placehodler": 2}}},
            "features.weights.placehodler",
            ["did you mean 'placeholder'?"],
        ),
        # what types alone cannot check
        ({"text": {"masks": ["ip"]}}, "text.masks", ["no mask is named 'ip'", "ipv4, ipv6"]),
        (
            {"text": {"mask": [OWN, {"name": "b", "pattern": "(a"}]}},
            "text.mask[1].pattern",
            ["'(a' is not RE2 syntax: missing )", "no look-around"],
        ),
        (
            {"text": {"mask": [{"name": "b", "pattern": "(?=a)"}]}},
            "text.mask[0].pattern",
            ["'(?=a)' is not RE2 syntax", "no look-around"],
        ),
        (
            {"text": {"mask": [{"name": "b", "pattern": r"(a)\1"}]}},
            "text.mask[0].pattern",
            ["is not RE2 syntax", "no back-references"],
        ),
        (
            {"text": {"mask": [{"name": "b", "pattern": r"\Qabc"}]}},
            "text.mask",
            ["the masks do not fit together", r"end what \Q begins with \E"],
        ),
        (
            {"input": {"fields": [{"path": "a"}, {"path": "**.b"}]}},
            "input.fields[1].path",
            ["is '**.b'", "nothing can follow", "end the path there"],
        ),
        (
            {"input": {"fields": [{"path": "msg"}]}, "match": {"variants": ["frames"]}},
            "match.variants",
            ["has 'frames'", "no stack traces", "leave out 'frames', or input.fields"],
        ),
        (
            {"features": {"extractor": "word"}},
            "features.extractor",
            ["no extractor is named 'word'", "words, characters, syllables"],
        ),
        (
            {"features": {"extractor": "characters"}, "text": {"classes": True}},
            "text.classes",
            ["only the extractor 'words'", "set it to false"],
        ),
        (
            {"text": {"fold": "look-alikes"}},
            "features.extractor",
            ["is 'words', but text.fold = 'look-alikes' leaves no lines", "use 'characters'"],
        ),
        *(
            (
                {"text": {"fold": "look-alikes", key: value}, "features": {"extractor": "a:b"}},
                f"text.{key}",
                [f"is {shown} with text.fold = 'look-alikes'", f"leave out text.{key}"],
            )
            for key, value, shown in (
                ("case", "lower", "'lower'"),
                ("unicode", "nfkc", "'nfkc'"),
                ("masks", ["url"], "['url']"),
                ("mask", [OWN], f"['{OWN['name']}']"),
            )
        ),
        (
            {
                "features": {"ngram": 2, "weights": {"table": {"a": 2}}},
                "fingerprint": {"hash": "cyclic"},
            },
            "features.weights",
            ["under the hash 'cyclic' a table weights single words", "ngram 1"],
        ),
        (
            {"features": {"weights": {"stop_words": "englisch"}}},
            "features.weights.stop_words",
            ["no list is named 'englisch'", "use english, or a file"],
        ),
        (
            {"fingerprint": {"hash": "java"}},
            "fingerprint.width",
            ["is 64, but the hash 'java' has 32 bits", "use 5 or 32"],
        ),
        (
            {"fingerprint": {"hash": "md5", "seed": 7}},
            "fingerprint.seed",
            ["is 7, but the hash 'md5' takes none", "set it to 0"],
        ),
        (
            {"fingerprint": {"hash": "codepoint", "width": 5}},
            "fingerprint.hash",
            ["single letters", "extractor 'characters' and ngram 1"],
        ),
        (
            {
                "features": {"extractor": "characters", "ngram": 2},
                "fingerprint": {"hash": "codepoint", "width": 5},
            },
            "fingerprint.hash",
            ["single letters", "ngram 1"],
        ),
        (
            {"features": {"extractor": "characters", "window": "filling"}},
            "features.window",
            ["only over words", "set it to 'full'"],
        ),
        (
            {"features": {"delimiters": "space"}, "text": {"masks": ["ipv4"]}},
            "features.delimiters",
            ["is 'space'", "other delimiters, or no masks"],
        ),
        ({"match": {"k": 64}}, "match.k", ["is 64", "below the width, 64"]),
        ({"fingerprint": {"width": 32}, "match": {"k": 32}}, "match.k", ["is 32", "width, 32"]),
        ({"fingerprint": {"kind": "minhash"}}, "match.k", ["is 3 with minhash", "set match.k = 0"]),
        (
            {"fingerprint": {"kind": "bands"}},
            "match.jaccard",
            ["is 0 with bands", "unlike texts may share", "0.42 for one"],
        ),
        (
            {"fingerprint": {"kind": "bands"}, "match": {"k": 6, "jaccard": 0.5}},
            "match.k",
            ["is 6 with bands", "leave it out", "share one of the sixteen keys"],
        ),
        *(
            (
                {"fingerprint": {"kind": "bands", key: value}, "match": {"jaccard": 0.5}},
                f"fingerprint.{key}",
                [f"is {value!r} with bands", "leave it out"],
            )
            for key, value in (("width", 128), ("hash", "md5"), ("tie", "one"), ("least", 2))
        ),
        (
            {"fingerprint": {"kind": "bands"}, "match": {"jaccard": 0.5, "learn": 2}},
            "match.learn",
            ["only words of a simhash are learned", "set it to 0"],
        ),
    ],
)
def test_an_error_names_file_key_value_and_remedy(
    document: dict[str, Any], key: str, parts: list[str]
) -> None:
    with pytest.raises(RecipeError) as caught:
        parsed(document)

    error = caught.value
    assert (error.file, error.key) == ("my.toml", key)
    assert str(error).startswith(f"my.toml: {key}: ")
    for part in parts:
        assert part in str(error)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"[match]\nk = x\n", ["not TOML", "line 2"]),
        (b"\xff", ["not TOML", "utf-8"]),
        (b"x = " + b"[" * 200_000, ["not TOML"]),
        (b"#" * (1 << 20) + b"#", ["larger than 1 MiB"]),
    ],
)
def test_a_file_that_is_not_a_recipe_is_named(
    content: bytes, parts: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)

    assert (caught.value.file, caught.value.key) == (str(file), "")
    for part in parts:
        assert part in str(caught.value)


def test_a_missing_file_a_folder_and_an_unknown_name_differ(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.toml: cannot be read \(No such file"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(RecipeError, match=r"cannot be read \(Is a directory\)"):
        load_recipe(tmp_path)
    with pytest.raises(
        RecipeError, match="lgos: no such recipe; use one of documents, java32, json,"
    ):
        load_recipe("lgos")


def test_a_recipe_file_is_named_by_itself_or_by_its_file(tmp_path: Path) -> None:
    def name_of(file: str, content: str = "") -> str:
        (tmp_path / file).write_text(content)
        return load_recipe(tmp_path / file).name

    assert name_of("mine.toml") == "mine"
    assert name_of("other.toml", 'name = "own"') == "own"
    assert name_of("my recipe+1.toml") == "my-recipe-1"
    assert name_of("_é.toml") == "own"
    assert name_of("x" * 100 + ".toml") == "x" * 64


def test_weights_are_read_from_a_file_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "weights.tsv").write_text("# common\nthe\t0\n\ncat\t3\nan old\thouse\t5\nthe\t1\n")
    recipe = '[features.weights]\nfile = "weights.tsv"\n[features.weights.table]\ncat = 7\n'
    (tmp_path / "mine.toml").write_text(recipe)

    loaded = load_recipe(tmp_path / "mine.toml")

    table = {"the": 1, "cat": 7, "an old\thouse": 5}
    assert table == loaded.features.weights.table
    assert loaded.features.weights.file == ""
    assert replace(Recipe(), features__weights__table=table).digest == loaded.digest


@pytest.mark.parametrize(
    "line",
    ["the 1", "the\t-1", "the\t1001", "the\t1.5", "the\t", "\t1", "the\t" + "9" * 5_000, "the\t²"],
)
def test_a_bad_line_of_weights_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "weights.tsv").write_text(f"a\t1\n{line}\n")
    (tmp_path / "mine.toml").write_text('[features.weights]\nfile = "weights.tsv"\n')
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "mine.toml")

    assert caught.value.key == "features.weights.file"
    assert f"{tmp_path / 'weights.tsv'}:2: " in str(caught.value)
    assert "write a whole number from 0 to 1000 behind a tab" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\xff\t1\n", "not UTF-8")]
)
def test_weights_that_cannot_be_read_are_named(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "w.tsv").write_bytes(content)
    (tmp_path / "mine.toml").write_text('[features.weights]\nfile = "w.tsv"\n')

    with pytest.raises(RecipeError, match=rf"features\.weights\.file: .*w\.tsv .*{reason}"):
        load_recipe(tmp_path / "mine.toml")


# ---------------------------------------------------------------- the digest

SPELT_OUT: dict[str, Any] = {
    "name": "custom",
    "description": "",
    "input": {"fields": [], "max_bytes": 65536},
    "text": {
        "unicode": "keep",
        "case": "keep",
        "fold": "keep",
        "boilerplate": [],
        "boilerplate_file": "",
        "mask": [],
        "masks": [],
        "classes": False,
    },
    "features": {
        "extractor": "words",
        "ngram": 1,
        "window": "full",
        "delimiters": "log",
        "repeats": "once",
        "weights": {
            "default": 1,
            "placeholder": 1,
            "table": {},
            "file": "",
            "stop_words": "",
            "stop_weight": 0,
            "layout": 1,
            "content": 1,
        },
    },
    "fingerprint": {
        "kind": "simhash",
        "width": 64,
        "hash": "murmur3",
        "tie": "zero",
        "seed": 0,
        "least": 4,
    },
    "match": {
        "k": 3,
        "jaccard": 0.0,
        "min_features": 2,
        "aliases": 256,
        "protected": [],
        "variants": [],
        "learn": 0,
    },
}

OTHER_VALUES: dict[str, Any] = {
    "input.fields": [{"path": "a"}],
    "input.max_bytes": 64,
    "text.unicode": "nfkc",
    "text.case": "lower",
    "text.fold": "look-alikes",
    "text.boilerplate": ["Sent from my phone"],
    "text.mask": [OWN],
    "text.masks": ["ipv4"],
    "text.classes": True,
    "features.extractor": "characters",
    "features.ngram": 2,
    "features.window": "filling",
    "features.delimiters": "word",
    "features.repeats": "count",
    "features.weights.default": 2,
    "features.weights.placeholder": 0,
    "features.weights.table": {"a": 0},
    "features.weights.layout": 2,
    "features.weights.content": 0,
    "fingerprint.kind": "minhash",
    "fingerprint.width": 128,
    "fingerprint.hash": "md5",
    "fingerprint.tie": "one",
    "fingerprint.seed": 1,
    "fingerprint.least": 5,
    "match.k": 4,
    "match.jaccard": 0.1,
    "match.min_features": 3,
    "match.aliases": 0,
    "match.protected": ["ok", "broken"],
    "match.variants": ["status"],
    "match.learn": 5,
}


def settings_of(document: dict[str, Any], above: str = "") -> list[str]:
    """The dotted paths of all settings."""
    found: list[str] = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            found += settings_of(value, f"{above}{key}.")
        else:
            found.append(above + key)
    return found


def changed(path: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = {"match": {"k": 0}} if path == "fingerprint.kind" else {}
    if value == "look-alikes":  # does not go with words
        document = {"features": {"extractor": "characters"}}
    if path == "text.boilerplate" and value:  # goes with folding alone
        document = changed("text.fold", "look-alikes")
    *sections, key = path.split(".")
    table = document
    for section in sections:
        table = table.setdefault(section, {})
    table[key] = value
    return document


def test_the_tables_of_this_test_know_every_setting() -> None:
    def fields(section: type) -> dict[str, Any]:
        inner: dict[str, Any] = {}
        for field in msgspec.structs.fields(section):
            nested = isinstance(field.default, msgspec.Struct)
            inner[field.name] = fields(type(field.default)) if nested else 0
        return inner

    assert settings_of(fields(Recipe)) == settings_of(SPELT_OUT)
    spared = {"name", "description", "features.weights.file", "text.boilerplate_file"}
    spared |= {"features.weights.stop_words", "features.weights.stop_weight"}  # as the table
    assert set(settings_of(SPELT_OUT)) - spared == set(OTHER_VALUES)


def test_the_digest_does_not_see_defaults_spelt_out() -> None:
    assert Recipe().digest == parsed({}).digest == parsed(SPELT_OUT).digest
    for path in settings_of(SPELT_OUT):
        value: Any = SPELT_OUT
        for step in path.split("."):
            value = value[step]
        recipe = parsed(changed(path, json.loads(json.dumps(value))))
        if path != "fingerprint.kind":
            assert Recipe().digest == recipe.digest, path


def test_the_digest_does_not_see_name_and_description() -> None:
    assert Recipe().digest == parsed({"name": "other", "description": "what it is"}).digest


def test_the_digest_sees_every_other_setting() -> None:
    digests = {path: parsed(changed(path, value)).digest for path, value in OTHER_VALUES.items()}
    digests["nothing"] = Recipe().digest
    digests["k = 0"] = parsed({"match": {"k": 0}}).digest

    assert len(digests) == len(set(digests.values()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"input": {"fields": [{"path": "a"}]}}, {"input": {"fields": [{"path": "b"}]}}),
        (
            {"input": {"fields": [{"path": "a"}]}},
            {"input": {"fields": [{"path": "a", "weight": 2}]}},
        ),
        ({"text": {"mask": [OWN]}}, {"text": {"mask": [OWN | {"name": "c"}]}}),
        ({"text": {"mask": [OWN]}}, {"text": {"mask": [OWN | {"pattern": "c"}]}}),
        (
            {"text": {"mask": [OWN, OWN | {"name": "c"}]}},
            {"text": {"mask": [OWN | {"name": "c"}, OWN]}},
        ),
    ],
)
def test_the_digest_sees_inside_lists(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert parsed(one).digest != parsed(other).digest


def test_a_fields_weight_of_one_may_be_spelt_out() -> None:
    short, long = (
        parsed({"input": {"fields": [field]}})
        for field in ({"path": "a"}, {"path": "a", "weight": 1})
    )

    assert short.digest == long.digest


def shuffled(value: Any, random_: random.Random) -> Any:
    if not isinstance(value, dict):
        return value
    items = [(key, shuffled(item, random_)) for key, item in value.items()]
    random_.shuffle(items)
    return dict(items)


@given(
    document=recipe_documents(("words", "characters", "syllables")),
    random_=st.randoms(use_true_random=False),
)
def test_the_digest_does_not_see_the_order_of_keys(
    document: dict[str, Any], random_: random.Random
) -> None:
    assert parsed(document).digest == parsed(shuffled(document, random_)).digest


@given(one=recipes(), other=recipes())
def test_digests_are_equal_for_equal_recipes_only(one: Recipe, other: Recipe) -> None:
    assert (one == other) == (one.digest == other.digest)


@given(recipe=recipes())
def test_a_recipe_written_out_and_read_again_is_the_same(recipe: Recipe) -> None:
    again = parsed(json.loads(msgspec.json.encode(recipe)))

    assert (recipe, recipe.digest) == (again, again.digest)
    assert replace(recipe) == recipe


# ---------------------------------------------------------------- shipped recipes, replace


def test_the_shipped_recipes_load_and_are_named_as_their_files() -> None:
    sources = {"java32", "letters5", "md5-128", "minhash-n", "window-cyclic"}
    assert {"json", "logs", "text", "words"} | sources <= set(shipped())
    assert sorted(shipped()) == shipped()
    for name in shipped():
        recipe = load_recipe(name)
        assert name == recipe.name
        assert recipe.description


def test_replace_changes_the_given_settings_and_nothing_else() -> None:
    logs = load_recipe("logs")

    changed_ = replace(logs, match__k=3, features__weights__table={"a": 2}, name="mine")

    assert (
        changed_.match.k,
        changed_.features.weights.table,
        changed_.name,
    ) == (3, {"a": 2}, "mine")
    assert replace(changed_, match__k=6, features__weights__table={}, name="logs") == logs
    assert load_recipe("logs") == logs


def test_replace_takes_sections_parts_as_objects_too() -> None:
    recipe = replace(Recipe(), text__mask=(Mask(name="a", pattern="b"),))

    assert recipe.masks == [("a", "b")]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"match__k": 64}, "match.k"),
        ({"match__kk": 3}, "match.kk"),
        ({"nothing": 3}, "nothing"),
        ({"match__k__x": 3}, "match__k__x"),
        ({"input__fields": ({"path": 5},)}, "input.fields[0].path"),
        ({"text__mask": [{"name": "a", "pattern": "("}]}, "text.mask[0].pattern"),
    ],
)
def test_replace_refuses_what_a_file_may_not_contain(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(RecipeError) as caught:
        replace(load_recipe("logs"), **changes)

    assert (caught.value.file, caught.value.key) == ("logs", key)

"""Boilerplate: what is left out of texts, natively and by the reference, and what is learned."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator, Kind
from stream_dedup.errors import RecipeError
from stream_dedup.features import _folding, boilerplate, folding
from stream_dedup.features.boilerplate import Corpus, Learned
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import MAX_PASSAGES, Recipe, load_recipe, replace

KEY = b"sixteen secrets!"
COMMAND = Path(sys.executable).parent / "stream-dedup"
WORDS = (
    "river window orange bottle market garden silver button coffee dragon engine forest guitar "
    "hammer island jacket kitchen ladder mirror needle ocean pencil quarter rabbit saddle ticket "
    "umbrella valley wallet yellow zipper anchor basket candle dinner eleven father hollow"
).split()
SHORT = "Reply STOP to opt out"
LONG = (
    "This message is confidential and intended only for the person named above; if you are not "
    "that person please delete it now"
)


def sentences(count: int, seed: int = 1) -> list[str]:
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(10, 18))) for _ in range(count)]


def without(*passages: str) -> Recipe:
    return replace(load_recipe("text"), text__boilerplate=list(passages))


def folded(recipe: Recipe, *texts: str) -> list[bytes]:
    return Preparer(recipe).texts([text.encode() for text in texts])


# ---------------------------------------------------------------- leaving out


@pytest.mark.parametrize("kind", [_folding, folding])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"seeyousentfrommyphone", b"seeyou"),
        (b"sentfrommyphoneseeyou", b"seeyou"),
        (b"seesentfrommyphoneyou", b"seeyou"),
        (b"seeyousentfrommyphonesentfrommyphone", b"seeyou"),
        (b"seeyousentfrommyphoneproat", b"seeyouat"),  # the longest
        (b"seeyousentfrommyphoneprat", b"seeyouprat"),
        (b"seeyousentfrommyphon", b"seeyousentfrommyphon"),
        (b"sentfrommyphone", b"sentfrommyphone"),
        (b"sentfrommyphone#/@sentfrommyphone", b"sentfrommyphone#/@sentfrommyphone"),
        (b"ksentfrommyphone", b"k"),
        (b"\xffsentfrommyphone", b"\xff"),
        (b"", b""),
    ],
)
def test_passages_are_left_out_wherever_they_stand(kind: Any, text: bytes, expected: bytes) -> None:
    passages = kind.Passages([b"sentfrommyphone", b"sentfrommyphonepro", b"sentfrom"])
    only_long = kind.Passages([b"sentfrommyphone", b"sentfrommyphonepro"])

    assert [expected, b"see"] == only_long.leave_out([text, b"see"])
    assert passages.leave_out([b"xsentfrom", b"ysentfrommyphonepro"]) == [b"x", b"y"]


@pytest.mark.parametrize("kind", [_folding, folding])
def test_passages_that_are_too_short_are_refused(kind: Any) -> None:
    assert kind.Passages([]).leave_out([b"eightbyt"]) == [b"eightbyt"]
    with pytest.raises(ValueError, match="fewer than 8 bytes"):
        kind.Passages([b"eightbyt", b"sevenby"])
    for wrong in (None, "text", 1):
        with pytest.raises((TypeError, AttributeError)):
            kind.Passages([]).leave_out([wrong])


few_letters = st.text("ab", min_size=8, max_size=14).map(str.encode)
in_parts = st.lists(few_letters | st.sampled_from([b"a", b"b", b"c", b"#", b"/"]), max_size=8)


@given(
    passages=st.lists(few_letters | st.binary(min_size=8, max_size=20), max_size=12),
    texts=st.lists(in_parts.map(b"".join) | st.binary(max_size=60), max_size=5),
    chosen=st.randoms(use_true_random=False),
)
def test_native_passages_leave_out_what_the_reference_does(
    passages: list[bytes], texts: list[bytes], chosen: random.Random
) -> None:
    if passages:
        texts = [*texts, b"".join(chosen.choices([*passages, b"a", b"zz"], k=4))]

    native, reference = _folding.Passages(passages), folding.Passages(passages)

    assert native.leave_out(texts) == reference.leave_out(texts)


def test_the_longest_of_nested_passages_is_left_out() -> None:
    passages = [b"a" * size for size in range(8, 1_000)]
    text = b"a" * 999 * 1_000

    for kind in (_folding, folding):
        left = kind.Passages(passages).leave_out([text + b"b", text + b"aab", text])
        assert left == [b"b", b"aab", text]


def test_a_search_costs_no_more_where_all_passages_begin_alike() -> None:
    alike = [b"a" * 500 + b"b%d" % number for number in range(9_000)]
    text = (b"a" * 499 + b"c") * 400

    # Comparing each passage at each place would take half a day.
    assert _folding.Passages(alike).leave_out([text, text + alike[7]]) == [text, text]


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    "text",
    [
        "See you at the station. Reply STOP to 80888!",
        "See you at the station\n-- \nREPLY STOP\nto 7",
        "Reply STOP to 80888. See you at the station",
        "See you at the station r.e.p.l.y Ｓtop tо 123",  # noqa: RUF001 -- letters that look alike
    ],
)
def test_a_passage_is_left_out_however_it_is_written(text: str) -> None:
    assert folded(without("reply stop to 12"), text) == [b"seeyouatthestation"]


def test_only_the_compared_text_lacks_the_passage() -> None:
    recipe = without(SHORT)
    decision = Deduplicator(recipe, key=KEY).process([f"see you at the station {SHORT}"])[0]

    assert decision.kind is Kind.NEW
    assert SHORT in Patterns(recipe).pattern(f"see you {SHORT}".encode())


@pytest.mark.parametrize("passage", [SHORT, LONG])
def test_strangers_with_a_common_footer_stay_apart(passage: str) -> None:
    bodies = sentences(400)
    texts = [f"{body} {passage}" for body in bodies]
    apart = Deduplicator(without(SHORT, LONG), key=KEY).process(texts)
    merged = Deduplicator("text", key=KEY).process(texts)

    assert len({each.cluster for each in apart}) == 400
    assert (len({each.cluster for each in merged}) == 400) == (passage == SHORT)


def test_words_of_a_text_with_a_passage_are_left_out_too() -> None:
    recipe = replace(load_recipe("messages"), text__boilerplate=["reply stop to 12"])

    assert folded(recipe, "see you at 8", "see you at 8. Reply STOP to 80888!") == [
        b"seeyouat#  see  you  at   8   ",
        b"seeyouat#",
    ]


def test_near_duplicates_with_a_footer_are_still_found() -> None:
    bodies = sentences(400)
    dedup = Deduplicator(without(LONG), key=KEY)
    first = dedup.process([f"{body} {LONG}" for body in bodies])
    changed = [body.replace(" ", " and ", 1) + f"\n{LONG.upper()}" for body in bodies]
    found = dedup.process(changed)

    assert sum(a.cluster == b.cluster for a, b in zip(first, found, strict=True)) >= 396


def test_texts_of_boilerplate_alone_are_no_black_hole() -> None:
    drawn = random.Random(1)
    recipe = without(SHORT, LONG)
    alone = [SHORT, LONG]
    numbers = [f"{drawn.getrandbits(60)} {SHORT}" for _ in range(50)]
    short = [f"{word} {SHORT}" for word in WORDS]
    long = [f"{body} {SHORT}" for body in sentences(200)]
    dedup = Deduplicator(recipe, key=KEY)
    dedup.process([*alone, *numbers])

    assert folded(recipe, SHORT)[0] == folded(load_recipe("text"), SHORT)[0]
    assert len({each.cluster for each in dedup.process(alone)}) == 2
    found = dedup.process([*short, *long])
    assert {each.kind for each in found} == {Kind.NEW}


def test_passages_are_part_of_the_digest_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"# passages\n{LONG}\n\n{SHORT}\n{SHORT}\n")
    recipe = tmp_path / "text.toml"
    recipe.write_text(
        '[text]\nfold = "look-alikes"\nboilerplate_file = "list.txt"\n'
        '[features]\nextractor = "characters"\nngram = 4\n'
        '[fingerprint]\nkind = "bands"\n[match]\njaccard = 0.42\nmin_features = 8\n'
    )
    read = load_recipe(recipe)

    assert read.text.boilerplate == (SHORT, LONG)
    assert without(SHORT, LONG).digest == without(LONG, SHORT).digest == read.digest
    assert len({without().digest, without(SHORT).digest, read.digest}) == 3
    assert without().digest == load_recipe("text").digest


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"text__fold": "keep"}, "left out of folded texts, but text.fold is 'keep'"),
        ({"text__fold": "words"}, "set text.fold to 'look-alikes', or leave it out"),
        ({"text__boilerplate": ["-- 12!"]}, "of '-- 12!' only '#' is left after folding"),
        ({"text__boilerplate": [""]}, "text.boilerplate"),
        ({"text__boilerplate": ["a" * 1_001]}, "text.boilerplate"),
        ({"text__boilerplate": ["long enough"] * (MAX_PASSAGES + 1)}, "text.boilerplate"),
        ({"text__boilerplate_file": "none.txt"}, "none.txt cannot be read"),
    ],
)
def test_errors_name_key_and_remedy(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(RecipeError) as error:
        replace(load_recipe("text"), **{"text__boilerplate": [SHORT]} | changes)

    assert part in str(error.value)


def test_a_file_with_too_many_or_too_long_passages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    for lines, part in (
        (["x" * 1_001], "1001 characters, more than 1000"),
        ([f"passage {number:x} of many" for number in range(MAX_PASSAGES + 1)], "more than 10000"),
    ):
        path.write_text("\n".join(lines))
        with pytest.raises(RecipeError, match=part):
            replace(load_recipe("text"), text__boilerplate_file=str(path))


# ---------------------------------------------------------------- learning


def learned(*texts: str, recipe: str = "text", **options: Any) -> list[Learned]:
    corpus = Corpus(load_recipe(recipe))
    corpus.add(text.encode() for text in texts)
    return corpus.learn(**options)


def test_footers_are_learned_with_their_documents() -> None:
    bodies = sentences(100)
    texts = [f"{body} {SHORT}" for body in bodies[:30]]
    texts += [f"{body}\n-- \n{LONG}" for body in bodies[30:80]]
    texts += bodies[80:]

    assert learned(*texts) == [Learned(LONG, 50), Learned(SHORT, 30)]
    assert learned(*texts, min_count=31) == [Learned(LONG, 50)]


def test_a_line_at_the_beginning_is_learned_too() -> None:
    texts = [f"ACME alerts for you and yours\n{body}" for body in sentences(20)]

    assert learned(*texts) == [Learned("ACME alerts for you and yours", 20)]


def test_numbers_links_and_case_in_a_passage_may_differ() -> None:
    texts = [
        f"{body}. {'Unsubscribe' if n % 2 else 'UNSUBSCRIBE'} at https://a.example/{n} or call {n}"
        for n, body in enumerate(sentences(20))
    ]

    assert [each.documents for each in learned(*texts)] == [20]


def test_a_common_last_word_is_no_part_of_a_passage() -> None:
    bodies = sentences(300)
    texts = [f"{body}{' thanks' if n % 15 == 0 else ''} {SHORT}" for n, body in enumerate(bodies)]

    assert learned(*texts) == [Learned(SHORT, 300)]


def test_passages_that_end_alike_are_learned_each() -> None:
    bodies = sentences(90)
    ends = [f"from the {name} office. {SHORT}" for name in ("Vienna", "Lisbon")]
    texts = [f"{body} {(*ends, SHORT)[n % 3]}" for n, body in enumerate(bodies)]

    assert {each.text: each.documents for each in learned(*texts)} == {
        **dict.fromkeys(ends, 30),
        SHORT: 30,
    }


def test_scripts_without_spaces_have_passages_too() -> None:
    drawn = random.Random(1)
    some = [chr(code) for code in range(0x4E00, 0x5200)]
    texts = ["".join(drawn.choices(some, k=40)) + "退订请回复字母丁" for _ in range(20)]

    assert [each.text.replace(" ", "") for each in learned(*texts)] == ["退订请回复字母丁"]


def test_what_copies_of_a_text_have_in_common_is_not_learned() -> None:
    drawn = random.Random(1)
    copies = []
    for _ in range(300):
        words = LONG.split()
        words[drawn.randrange(12)] = drawn.choice(WORDS)
        copies.append(" ".join(words))
    tagged = [f"{drawn.getrandbits(40):x} {drawn.choice(WORDS)} {LONG}" for _ in range(300)]

    assert learned(*copies) == []
    assert learned(*tagged) == []
    assert learned(*[LONG] * 300) == []


def test_memory_is_bounded_and_the_draw_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{body} {SHORT}".encode() for body in sentences(500)]
    monkeypatch.setattr(boilerplate, "MAX_DOCUMENT_BYTES", 64)
    results = []
    for _ in range(2):
        corpus = Corpus(load_recipe("text"), max_documents=50)
        corpus.add(texts)
        assert (corpus.seen, len(corpus)) == (500, 50)
        assert all(len(document) <= 65 for document in corpus._documents)
        results.append(corpus.learn())

    assert results[0] == results[1] == [Learned(SHORT, 50)]


@given(texts=st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_can_be_learned_from(texts: list[bytes]) -> None:
    corpus = Corpus(load_recipe("text"))
    corpus.add(texts * 2)
    found = corpus.learn(2)

    recipe = without(*(each.text for each in found))
    assert len(recipe.text.boilerplate) == len(found)


def test_a_recipe_that_does_not_fold_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"text.fold: is 'words'.*use text, or documents"):
        Corpus(load_recipe("records"))


# ---------------------------------------------------------------- the command


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False
    )


def learn(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``stream-dedup vocabulary boilerplate`` in a folder."""
    return run(folder, "vocabulary", "boilerplate", *arguments)


def test_a_list_is_learned_and_read_by_a_recipe(tmp_path: Path) -> None:
    bodies = sentences(60)
    (tmp_path / "a.txt").write_text("".join(f"{body} {LONG}\n" for body in bodies[:30]))
    rows = "".join(f'{n},"{body}\n{SHORT}"\n' for n, body in enumerate(bodies[30:]))
    (tmp_path / "b.csv").write_text(f"id,body\n{rows}")

    done = learn(tmp_path, "--text-field", "body", "-o", "list.txt", "a.txt", "b.csv")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "list.txt: passages: 2, documents: 60\n"
    assert (tmp_path / "list.txt").read_text() == (
        "# Boilerplate: 2 passages of 60 documents, learnt once, frozen.\n"
        f"# Recipe text, digest {load_recipe('text').digest}.\n"
        "# Use as text.boilerplate_file. Remove what tells your texts apart.\n"
        f"# 30 documents:\n{SHORT}\n{LONG}\n"
    )
    setting = 'text.boilerplate_file="list.txt"'
    kept = run(tmp_path, "dedup", "-q", "-r", "text", "--set", setting, "--emit", "drop", "a.txt")
    assert len(kept.stdout.splitlines()) == 30


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["-o", "v.txt", "-r", "logs", "a.txt"], 2, "logs: text.fold: is 'keep'"),
        (["-o", "v.txt", "--min-count", "1", "a.txt"], 2, "--min-count"),
        (["-o", "v.txt", "a.txt"], 1, "no passage is in enough of the 2 documents"),
    ],
)
def test_errors_are_reported_and_nothing_is_written(
    arguments: list[str], code: int, part: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\none\n")

    done = learn(tmp_path, *arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert part in " ".join(done.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]

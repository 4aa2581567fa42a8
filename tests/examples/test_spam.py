"""The spam example finds what its page says, prints what it shows, and accepts any input."""

from __future__ import annotations

import doctest
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from docs.blocks import ROOT, blocks, run, says, steps
from stream_dedup import load_recipe
from tests.examples.sessions import beside
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

SPAM = ROOT / "examples" / "spam"
PAGE = SPAM / "README.md"
SMALL = ["--ham", "600", "--each", "1"]
"""For the measurements of the page that take several seconds."""

FLOOR_RECALL = 0.95
"""Of campaigns that nobody disguised."""
FLOOR_PRECISION = 0.6
"""Where chain letters, notices and quotes are a tenth of what is good."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in SPAM.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The example's modules, by name."""
    monkeypatch.syspath_prepend(str(SPAM))
    names = ("folding", "campaigns", "generate", "measure")
    yield {name: _imported(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def _imported(name: str) -> ModuleType:
    return __import__(name)


def shares(printed: str) -> dict[str, list[float | None]]:
    """A table's rows by name; None for a dash."""
    return {
        match[1]: [None if cell == "-" else float(cell) for cell in match[2].split()]
        for match in re.finditer(r"^ *(\D.*?(?: 0\.\d+)?)((?: {3,}(?:[01]\.\d{3}|-))+)$",
                                 printed, re.MULTILINE)
    }  # fmt: skip


SESSION = [
    (step.command, step.expected)
    for block in blocks(PAGE)
    if block.language == "console"
    for step in steps(block.text)
]
MEASURED = [each for each in SESSION if each[0].startswith("python measure.py")]


# ------------------------------------------------------------ the page


@pytest.mark.usefixtures("jq")
def test_the_page_prints_what_it_shows(folder: Path) -> None:
    wrong = []
    for command, expected in SESSION:
        if (command, expected) not in MEASURED:
            printed = run(command, folder)
            if not says(expected, printed):
                wrong.append(f"$ {command}{printed}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("command", "expected"), MEASURED, ids=[c.strip() for c, _ in MEASURED])
def test_the_page_shows_what_was_measured(
    example: dict[str, Any], command: str, expected: str
) -> None:
    options = shlex.split(command.partition("|")[0])[2:]
    long = "--k" not in options
    done = CliRunner().invoke(example["measure"].main, options + SMALL * long)
    assert done.exit_code == 0, done.output
    shown, printed = shares(expected), shares(done.output)
    assert {"precision"} <= shown.keys() <= printed.keys()
    for name, cells in shown.items():
        assert len(cells) == len(printed[name])
        assert long or printed[name] == cells, name


def test_the_page_shows_the_column_of_the_recipe_as_it_is(example: dict[str, Any]) -> None:
    recipe = example["campaigns"].recipe_of(str(SPAM / "spam.toml"))
    done = CliRunner().invoke(example["measure"].main, ["--k", str(recipe.match.k)])
    (expected,) = (shown for command, shown in MEASURED if command == "python measure.py\n")
    assert expected.splitlines()[2].endswith(f"k = {recipe.match.k}")
    column = {name: cells[-1:] for name, cells in shares(expected).items()}
    assert shares(done.output) == column


def test_the_code_of_the_page_does_what_it_shows(
    example: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert example
    monkeypatch.chdir(folder)
    (block,) = (block for block in blocks(PAGE) if block.language == "python")
    test = doctest.DocTestParser().get_doctest(block.text, {}, "README", str(PAGE), block.line)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert report == []


def test_the_page_over_kafka_prints_what_it_shows(
    folder: Path, examples_kafka: KafkaBroker, examples_redis: RedisServer
) -> None:
    wrong = beside(PAGE, folder, examples_kafka, examples_redis)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["campaigns", "folding", "generate"])
def test_the_examples_in_the_code_are_true(example: dict[str, Any], name: str) -> None:
    failed, tried = doctest.testmod(example[name])
    assert failed == 0 < tried


def test_the_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target


# ------------------------------------------------------------ what is found


def test_plain_campaigns_are_found_and_edits_cost_recall(folder: Path) -> None:
    found = shares(run("python measure.py --ham 1500 --k 15 --seed 7", folder))
    recall = {name: cells[0] or 0.0 for name, cells in found.items()}
    assert recall["spam, plain"] >= FLOOR_RECALL
    assert recall["precision"] >= FLOOR_PRECISION
    assert recall["at once"] < recall["recall"]
    of = {
        edit: [recall[f"spam, {edit} {strength}"] for strength in ("0.1", "0.25", "0.5")]
        for edit in ("homoglyphs", "spacing", "noise", "leetspeak")
    }
    assert min(of["spacing"]) >= FLOOR_RECALL
    assert min(of["spacing"]) >= min(of["homoglyphs"]) > max(of["noise"][-1], of["leetspeak"][-1])
    for light, medium, heavy in (of["noise"], of["leetspeak"]):
        assert light > medium > heavy
    for kind in ("chat", "newsletter", "short"):
        assert recall[f"ham, {kind}"] == 0


def test_each_step_of_folding_finds_what_it_is_for(folder: Path) -> None:
    found = shares(run("python measure.py --ham 200 --steps --seed 1", folder))
    recall = {name: [cell or 0.0 for cell in cells] for name, cells in found.items()}
    plain, homoglyphs, squeezed, folded = range(4)
    of = {
        edit: [sum(column) for column in zip(*rows, strict=True)]
        for edit in ("homoglyphs", "spacing", "noise", "leetspeak")
        if (rows := [cells for name, cells in recall.items() if f"spam, {edit} " in name])
    }
    assert of["homoglyphs"][homoglyphs] > of["homoglyphs"][plain]
    assert of["spacing"][squeezed] > of["spacing"][homoglyphs]
    assert of["leetspeak"][folded] > of["leetspeak"][squeezed]
    assert of["noise"][homoglyphs] > of["noise"][folded]


def test_a_labelled_file_is_measured_by_its_own_label(folder: Path) -> None:
    text = "we raised the limit of your credit card, confirm within the hour at our new branch"
    lines = [f"junk\t{text} {name}" for name in "Ada Ben Clara David Emil Fiona Hana".split() * 2]
    lines += [f"fine\tthe {thing} is broken again, who repairs it?" for thing in ("tap", "door")]
    (folder / "own.tsv").write_text("\n".join([*lines, "no label here", ""]))
    printed = run("python measure.py --spam-label junk --k 15 own.tsv", folder)
    assert "16 messages, 14 of them spam" in printed
    assert {name: cells for name, cells in shares(printed).items() if name != "at once"} == {
        "precision": [1.0],
        "recall": [1.0],
    }


def test_a_seed_decides_which_messages_are_generated(folder: Path) -> None:
    one, again, other = (
        run(f"python generate.py --ham 100 --each 1 --messages 3 --seed {seed}", folder)
        for seed in (4, 4, 5)
    )
    assert one == again != other
    kinds = {(m["label"], m["kind"]) for m in map(json.loads, one.splitlines())}
    assert sum(label == "spam" for label, _ in kinds) == 13
    assert {kind for label, kind in kinds if label == "ham"} == {
        "chat",
        "short",
        "newsletter",
        "reply",
        "chain",
        "notice",
    }


def test_two_campaigns_share_one_part_at_most(example: dict[str, Any]) -> None:
    generate = example["generate"]
    templates = [parts for parts, _ in generate.templates(3)]
    assert len({tuple(parts) for parts in templates}) == 39
    for index, one in enumerate(templates):
        for other in templates[:index]:
            assert len(set(one) & set(other)) <= 1


# ------------------------------------------------------------ the rule


def messages(example: dict[str, Any], times_s: list[float], senders: int = 20) -> list[Any]:
    text = "a text of many letters which goes on and on until there are enough of them"
    make = example["campaigns"].Message
    return [
        make(text, f"sender {number % senders}", round(at * 1_000_000))
        for number, at in enumerate(times_s)
    ]


def verdicts(example: dict[str, Any], given: list[Any], **rule: int) -> list[Any]:
    campaigns = example["campaigns"].Campaigns(example["campaigns"].Rule(**rule))
    found = [campaigns.see("c", message) for message in given]
    return [verdict for verdict in found if verdict is not None]


def test_a_verdict_comes_once_when_the_rule_is_met(
    example: dict[str, Any],
) -> None:
    (verdict,) = verdicts(example, messages(example, [10.0 * n for n in range(30)]))
    assert (
        verdict.size,
        verdict.rate,
        verdict.time_us,
        verdict.first.time_us,
    ) == (10, 6, 90_000_000, 0)
    assert [f"sender {n}" for n in range(10)] == verdict.senders


@pytest.mark.parametrize(
    ("times_s", "senders", "rule"),
    [
        ([10.0 * n for n in range(9)], 20, {}),
        ([60.0 * n for n in range(60)], 20, {}),
        ([10.0 * n for n in range(60)], 4, {}),
        ([10.0 * n for n in range(60)], 20, {"letters": 100}),
        ([10.0 * n for n in range(60)], 20, {"window_s": 80}),
    ],
    ids=["too few", "too slow", "too few senders", "too short a text", "too small a window"],
)
def test_no_verdict_comes_of(
    example: dict[str, Any], times_s: list[float], senders: int, rule: dict[str, int]
) -> None:
    assert verdicts(example, messages(example, times_s, senders), **rule) == []


def test_messages_out_of_order_count_by_their_times(example: dict[str, Any]) -> None:
    times = [10.0 * n for n in range(10)]
    assert len(verdicts(example, messages(example, times[::-1]))) == 1


def test_clusters_and_what_is_kept_of_them_are_bounded(example: dict[str, Any]) -> None:
    module = example["campaigns"]
    campaigns = module.Campaigns(module.Rule(), max_clusters=50)
    long = module.Message("x" * 200_000, "s", 0)
    for number in range(500):
        for _ in range(3):
            campaigns.see(str(number), long)
    assert len(campaigns) == 50
    for cluster in campaigns._clusters.values():
        assert len(cluster.newest) <= module.Rule().size
        assert len(cluster.first.text) <= module.KEPT


# ------------------------------------------------------------ any input


def hostile() -> Iterator[bytes]:
    yield b"a" * 1_000_000 + b"\n"
    yield b"\n\n \t \n"
    yield b"\xff\xfe\x00\xc3(\n"
    yield b"{" * 100_000 + b"\n"
    yield b'{"text":"\\ud800 alone"}\n{"text":7}\n{"text":"a","time":"soon"}\n'
    yield b'{"text":"a","time":1e300}\n{"text":"a","time":"9999-12-31T23:59:59-14:00"}\n'
    yield b'{"text":"a","sender":' + b"9" * 5_000 + b',"dedup":{"cluster":[1]}}\n'
    yield b'{"text":"' + "\u0301".encode() * 60_000 + b'"}\n'
    yield b'{"text":"' + b"1|" * 100_000 + b'a"}\n'
    for number in range(20):
        yield b'{"text":"%b","sender":"%d"}\n' % (b"z%d " % number * 10_000, number)


@pytest.mark.parametrize("option", [(), ("--decided",)])
def test_hostile_lines_are_skipped_or_take_bounded_time(option: tuple[str, ...]) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, SPAM / "campaigns.py", *option],
        input=b"".join(hostile()),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - started < 20
    assert done.returncode == 0, done.stderr[-2_000:]
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert "1 longer than 262144 bytes" in said
    assert re.search(r"^\d+ messages, 3 empty, .* not JSON", said), said
    assert done.stdout == b""


def test_clusters_are_bounded_if_every_message_differs(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, chance = example["campaigns"], random.Random(3)
    monkeypatch.setattr(module, "MAX_CLUSTERS", 200)
    decider = module.Decider(module.recipe_of(str(SPAM / "spam.toml")), 3600)
    for number in range(6):
        letters = ["".join(chance.choices("abcdefghijkm", k=60)) for _ in range(500)]
        batch = [module.Message(text, "s", number * 1_000_000) for text in letters]
        assert len(set(decider.clusters(batch))) == 500
        assert decider._dedup.size().clusters <= 200


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["nowhere.jsonl"], ["nowhere.jsonl", "cannot be opened"]),
        (["--rate", "20"], ["--rate is 20", "--size only 10"]),
        (["--recipe", "none.toml"], ["none.toml", "cannot be read"]),
        (["--size", "0"], ["--size"]),
    ],
)
def test_wrong_options_are_named(arguments: list[str], names: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, SPAM / "campaigns.py", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    for name in names:
        assert name in done.stderr


def test_the_extractors_take_any_bytes(example: dict[str, Any]) -> None:
    folding = example["folding"]
    for text in (b"", b"a", b"\x1a", b"\xff\xfe", b"\x1aurl ", "\u0301\u200b".encode()):
        for extract in (folding.homoglyphs, folding.squeezed, folding.folded):
            assert all(weight == 1 and feature for feature, weight in extract(text))


def test_the_recipe_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPAM))
    assert load_recipe(SPAM / "spam.toml").match.k == 15

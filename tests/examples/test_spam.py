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
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from docs.blocks import ROOT, blocks, run, says, steps
from stream_dedup.fingerprint.siphash import PUBLIC_KEY, siphash
from tests.examples.sessions import beside
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

SPAM = ROOT / "examples" / "spam"
PAGE = SPAM / "README.md"
SMALL = ["--ham", "600", "--each", "1"]
"""For the measurements of the page that take several seconds."""

FLOOR_RECALL = 0.9
"""Of campaigns in any disguise the recipe alone leaves less."""
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
    names = ("messages", "counting", "wider", "campaigns", "generate", "measure")
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
    whole = not options
    done = CliRunner().invoke(example["measure"].main, options + SMALL * (not whole))
    assert done.exit_code == 0, done.output
    shown, printed = shares(expected), shares(done.output)
    assert {"precision"} <= shown.keys() <= printed.keys()
    for name, cells in shown.items():
        assert len(cells) == len(printed[name])
        assert not whole or printed[name] == cells, name


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


@pytest.mark.parametrize("name", ["messages", "wider", "generate"])
def test_the_examples_in_the_code_are_true(example: dict[str, Any], name: str) -> None:
    failed, tried = doctest.testmod(example[name])
    assert failed == 0 < tried


def test_the_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target


# ------------------------------------------------------------ what is found


def test_the_wider_search_finds_what_the_recipe_misses(folder: Path) -> None:
    command = "python measure.py --ham 600 --each 1 --seed 7 --set choose"
    found = {
        name: [cell or 0.0 for cell in cells]
        for name, cells in shares(run(command, folder)).items()
    }
    assert min(found["precision"]) >= FLOOR_PRECISION
    for edit in ("homoglyphs", "spacing"):
        assert min(min(found[f"spam, {edit} {s}"]) for s in ("0.1", "0.25", "0.5")) >= FLOOR_RECALL
    for kind in ("noise 0.25", "typos 0.25", "leetspeak 0.25", "leetspeak 0.5"):
        recipe, wider = found[f"spam, {kind}"]
        assert recipe < 0.6
        assert wider >= FLOOR_RECALL
    assert found["precision"][1] > found["precision"][0]
    assert found["unmixed"][1] >= FLOOR_RECALL
    for kind in ("chat", "newsletter", "short"):
        assert found[f"ham, {kind}"] == [0, 0]


def test_a_labelled_file_is_measured_by_its_own_label(folder: Path) -> None:
    text = "we raised the limit of your credit card, confirm within the hour at our new branch"
    lines = [f"junk\t{text} {name}" for name in "Ada Ben Clara David Emil Fiona Hana".split() * 2]
    lines += [f"fine\tthe {thing} is broken again, who repairs it?" for thing in ("tap", "door")]
    (folder / "own.tsv").write_text("\n".join([*lines, "no label here", ""]))
    printed = run("python measure.py --spam-label junk own.tsv", folder)
    assert "16 messages, 14 of them spam" in printed
    assert {name: cells for name, cells in shares(printed).items() if name != "at once"} == {
        "precision": [1.0, 1.0],
        "recall": [1.0, 1.0],
        "unmixed": [None, None],
    }


def test_a_seed_decides_which_messages_are_generated(folder: Path) -> None:
    one, again, other = (
        run(f"python generate.py --ham 100 --each 1 --messages 3 --seed {seed}", folder)
        for seed in (4, 4, 5)
    )
    assert one == again != other
    kinds = {(m["label"], m["kind"]) for m in map(json.loads, one.splitlines())}
    assert sum(label == "spam" for label, _ in kinds) == 16
    assert {kind for label, kind in kinds if label == "ham"} == {
        "chat",
        "short",
        "newsletter",
        "reply",
        "chain",
        "notice",
    }


def test_two_campaigns_share_one_part_at_most(example: dict[str, Any]) -> None:
    maker = example["generate"].Maker("report", random.Random(0))
    templates = [parts for parts, _ in maker.templates(3)]
    assert len({tuple(parts) for parts in templates}) == 48
    for index, one in enumerate(templates):
        for other in templates[:index]:
            assert len(set(one) & set(other)) <= 1


def test_the_sets_have_no_text_in_common(example: dict[str, Any]) -> None:
    generate = example["generate"]
    choose, report = (
        {made.text for made in generate.generated(which, 1, 500, 1, 3)} for which in generate.SETS
    )
    assert choose & report == set()


# ------------------------------------------------------------ the rule


TEXT = "a text of many letters which goes on and on until there are enough of them"


def messages(
    example: dict[str, Any], times_s: Iterable[float], senders: int = 20, text: str = TEXT
) -> list[Any]:
    make = example["messages"].Message
    return [
        make(text, f"sender {number % senders}", round(at * 1_000_000))
        for number, at in enumerate(times_s)
    ]


def watched(example: dict[str, Any], **rule: int) -> Any:
    return example["campaigns"].Campaigns(example["campaigns"].Rule(**rule))


def alerts(campaigns: Any, given: list[Any], cluster: str = "c") -> list[dict[str, Any]]:
    for message in given:
        campaigns.see(cluster, message)
    return [record for record in campaigns.records(60) if record["type"] == "alert"]


def test_an_alert_comes_once_when_the_rule_is_met(example: dict[str, Any]) -> None:
    (alert,) = alerts(watched(example), messages(example, [10.0 * n for n in range(30)]))
    assert (alert["size"], alert["rate_per_minute"]) == (10, 6)
    assert (alert["time"], alert["first"]["time"]) == (
        "1970-01-01T00:01:30Z",
        "1970-01-01T00:00:00Z",
    )
    assert alert["senders"]["newest"] == [f"sender {n}" for n in range(10)]


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
def test_no_alert_comes_of(
    example: dict[str, Any], times_s: list[float], senders: int, rule: dict[str, int]
) -> None:
    assert alerts(watched(example, **rule), messages(example, times_s, senders)) == []


def test_messages_out_of_order_count_by_their_times(example: dict[str, Any]) -> None:
    times = [10.0 * n for n in range(10)]
    assert len(alerts(watched(example), messages(example, times[::-1]))) == 1


def test_records_follow_an_alert_until_the_campaign_ends(example: dict[str, Any]) -> None:
    campaigns = watched(example)
    shown = []
    for start in (0, 30, 100, 10_000):
        for message in messages(example, range(start, start + 20)):
            campaigns.see("c", message)
        shown += [(r["type"], r["size"], r["final"]) for r in campaigns.records(60)]
    shown += [(r["type"], r["size"], r["final"]) for r in campaigns.finish()]
    assert shown == [
        ("alert", 10, False),
        ("campaign", 60, False),
        ("campaign", 60, True),
        ("alert", 10, False),
        ("campaign", 20, True),
    ]


# ------------------------------------------------------------ what is counted


def test_growth_compares_a_window_with_the_one_before(example: dict[str, Any]) -> None:
    growth = example["counting"].Growth(300_000_000)
    for at_s in (10, 20, 290, 310, 320, 330, 340, 599):
        growth.add(at_s * 1_000_000)
    assert growth.until(599_000_000) == (5, 3)
    growth.add(10_000_000_000)
    assert growth.until(10_000_000_000) == (1, 0)
    for at_s in range(0, 100_000, 7):
        growth.add(at_s * 1_000_000)
    assert len(growth._counts) == 2 * example["counting"].PARTS


def test_senders_are_exact_up_to_a_limit_and_then_estimated(example: dict[str, Any]) -> None:
    senders = example["counting"].Senders(partial(siphash, PUBLIC_KEY))
    for number in range(100):
        senders.add(str(number % 40))
    assert (senders.count, senders.exact) == (40, True)
    for number in range(10_000):
        senders.add(str(number))
    assert (senders.count, senders.exact) == (pytest.approx(10_000, rel=0.27), False)
    assert len(senders._heap) == len(senders._least) == example["counting"].SENDERS


def test_values_of_links_amounts_and_names_are_counted(example: dict[str, Any]) -> None:
    make = example["messages"].Message
    texts = [
        f"Dear {name}, claim {amount} in cash before noon: https://{host}/{name}"
        for name, amount, host in [
            ("Ada", "$1,000.50", "a.example"),
            ("Ben", "20 EUR", "a.example"),
            ("Eva", "30€", "B.example"),
            ("Ben", "20 EUR", "b.example"),
        ]
    ]
    slots = example["counting"].Slots(make(texts[0], "s", 0))
    for text in texts[1:]:
        slots.add(text)
    assert {slot: found["values"] for slot, found in slots.shaped().items()} == {
        "links": {
            "https://B.example/Eva": 1,
            "https://a.example/Ada": 1,
            "https://a.example/Ben": 1,
            "https://b.example/Ben": 1,
        },
        "hosts": {"a.example": 2, "b.example": 2},
        "amounts": {"20 EUR": 2, "$1,000.50": 1, "30€": 1},
        "names": {"Ben": 2, "Ada": 1, "Eva": 1},
    }


def test_clusters_and_what_is_kept_of_them_are_bounded(example: dict[str, Any]) -> None:
    module, counting = example["campaigns"], example["counting"]
    make = example["messages"].Message
    campaigns = module.Campaigns(module.Rule(), max_clusters=50, texts=20)
    for number in range(80):
        for copy in range(30):
            text = f"https://{number}-{copy}.example {'x' * 200_000}"
            campaigns.see(str(number), make(text, f"sender {copy}", number))
    assert len(campaigns) == 50
    assert len(campaigns._wider) <= 20
    for campaign, _ in campaigns._clusters.values():
        assert len(campaign.newest) <= module.Rule().size
        assert len(campaign.first.text) <= module.KEPT
        found = (
            campaign.record("campaign", module.Rule())["slots"]["links"] if campaign.slots else {}
        )
        assert len(found.get("values", {})) <= counting.VALUES


# ------------------------------------------------------------ the wider search


def test_similarity_is_a_longest_common_subsequence(example: dict[str, Any]) -> None:
    chance = random.Random(6)
    for _ in range(200):
        left, right = ("".join(chance.choices("abc", k=chance.randrange(30))) for _ in range(2))
        pairs = [[text[at : at + 2] for at in range(len(text) - 1)] for text in (left, right)]
        lengths = [[0] * (len(pairs[1]) + 1)]
        for one in pairs[0]:
            row = [0]
            for at, other in enumerate(pairs[1]):
                row.append(
                    lengths[-1][at] + 1 if one == other else max(lengths[-1][at + 1], row[-1])
                )
            lengths.append(row)
        expected = 2 * lengths[-1][-1] / max(1, len(pairs[0]) + len(pairs[1]))
        assert example["wider"].Compared(left).similarity(right) == expected


def test_the_wider_search_forgets_the_oldest_text(example: dict[str, Any]) -> None:
    wider = example["wider"]
    search = wider.WiderSearch(PUBLIC_KEY, texts=10)
    chance = random.Random(4)
    faces = [
        search.face("".join(chance.choices("abcdefghijkmnopqrstuvwxyz", k=200))) for _ in range(60)
    ]
    for number, face in enumerate(faces):
        search.add(face, number)
        assert search.similar(face) == [number]
    assert len(search) == 10
    assert [search.similar(face) for face in faces[:50]] == [[]] * 50
    assert {number for crowd in search._by_hash.values() for number in crowd} == set(range(50, 60))


def test_the_wider_search_is_bounded_by_its_crowd(example: dict[str, Any]) -> None:
    wider = example["wider"]
    search = wider.WiderSearch(PUBLIC_KEY)
    face = search.face(TEXT)
    for number in range(3 * wider.CROWD):
        search.add(face, number)
    assert {len(crowd) for crowd in search._by_hash.values()} == {wider.CROWD}
    assert len(search.similar(face)) == wider.CANDIDATES


def test_a_campaign_that_was_forgotten_and_returns_is_written(example: dict[str, Any]) -> None:
    module = example["campaigns"]
    campaigns = module.Campaigns(module.Rule(), max_clusters=1)
    (alert,) = alerts(campaigns, messages(example, range(12)))
    campaigns.see("other", example["messages"].Message("another", "s", 0))
    (final,) = campaigns.records(60)
    campaigns.see("again", messages(example, [20])[0])
    (again,) = campaigns.finish()
    assert (final["size"], final["final"]) == (12, True)
    assert (again["size"], again["campaign"]) == (13, alert["campaign"])
    assert again["joined_by_wider_search"] == 1


# ------------------------------------------------------------ the key


def test_a_key_decides_the_hashes_and_is_not_shown(example: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "operator.key"
    path.write_text("000102030405060708090a0b0c0d0e0f\n")
    key = example["campaigns"].key_of(str(path))
    own, public = (example["wider"].WiderSearch(each).face(TEXT) for each in (key, PUBLIC_KEY))
    assert own.letters == public.letters
    assert set(own.hashes) & set(public.hashes) == set()
    assert "0102" not in repr(key)


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


@pytest.mark.parametrize("option", [(), ("--decided",)])
def test_hostile_text_reaches_no_terminal(option: tuple[str, ...]) -> None:
    evil = "\x1b[2J\x9b1m\u202e\u200b"
    text = f"Dear Ada{evil} claim your $1{evil} prize and money now: http://a.example/{evil}x"
    lines = [
        {"text": text, "sender": f"{n}{evil}", "time": n, "dedup": {"cluster": f"c{evil}"}}
        for n in range(20)
    ]
    done = subprocess.run(
        [sys.executable, SPAM / "campaigns.py", *option],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count(b"\n") == 2
    assert all(byte == 10 or 32 <= byte < 127 for byte in done.stdout)
    for line in done.stdout.splitlines():
        assert _strings(json.loads(line)) == []


def test_an_alert_is_written_while_the_input_goes_on() -> None:
    lines = [{"text": TEXT, "sender": f"{n}", "time": n} for n in range(20)]
    with subprocess.Popen(
        [sys.executable, SPAM / "campaigns.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        running.stdin.flush()
        alert = json.loads(running.stdout.readline())
        running.stdin.close()
        final = json.loads(running.stdout.readline())
    assert (alert["type"], alert["size"]) == ("alert", 10)
    assert (final["type"], final["size"], final["final"]) == ("campaign", 20, True)


def _strings(value: object) -> list[str]:
    """The strings within a JSON value that a terminal would obey."""
    if isinstance(value, dict):
        return [each for pair in value.items() for part in pair for each in _strings(part)]
    if isinstance(value, list):
        return [each for part in value for each in _strings(part)]
    return [value] if isinstance(value, str) and not value.isprintable() else []


def test_clusters_are_bounded_if_every_message_differs(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, chance = example["campaigns"], random.Random(3)
    monkeypatch.setattr(module, "MAX_CLUSTERS", 200)
    decider = module.Decider(module.recipe_of("text"), 3600)
    for number in range(6):
        letters = ["".join(chance.choices("abcdefghijkm", k=60)) for _ in range(500)]
        batch = [example["messages"].Message(text, "s", number * 1_000_000) for text in letters]
        assert len(set(decider.clusters(batch))) == 500
        assert decider._dedup.size().clusters <= 200


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["nowhere.jsonl"], ["nowhere.jsonl", "cannot be opened"]),
        (["--rate", "20"], ["--rate is 20", "--size only 10"]),
        (["--recipe", "none.toml"], ["none.toml", "cannot be read"]),
        (["--size", "0"], ["--size"]),
        (["--key-file", "nowhere.key"], ["nowhere.key", "cannot be opened"]),
        (["--key-file", __file__], [__file__, "holds no key of 32 hex digits", "openssl"]),
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

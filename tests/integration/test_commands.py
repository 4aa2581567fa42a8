"""explain, fingerprint, plan and recipes, and the help of every command."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from docs.commands import subcommands
from stream_dedup.cli.main import cli
from stream_dedup.features.recipe import load_recipe, shipped
from tests.integration.command import COMMAND, Done, run, shell

BOB = "user bob logged in from 10.0.0.7 port 4422 over ssh"
EVE = "user eve logged in from 10.0.0.9 port 4423 over ssh"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in subcommands(group).items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [(), *commands(cli)], ids=" ".join)
def test_help_names_every_option(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = subcommands(command)[name]
    long, short = run(*path, "--help"), run(*path, "-h")
    assert (long.code, long.err) == (0, "")
    assert long.out == short.out
    text = long.out.decode()
    assert "\\b" not in text
    assert "..." not in text.partition("\nCommands:")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert all(name in text for name in parameter.opts)
            assert parameter.help is not None
            # Lines are broken at hyphens too, so no white space is compared.
            assert "".join(parameter.help.split()) in "".join(text.split())
    if isinstance(command, click.Group):
        assert all(f"  {name} " in text for name in subcommands(command))


def test_the_design_names_its_commands() -> None:
    assert {"dedup", "explain", "fingerprint", "plan", "recipes"} <= subcommands(cli).keys()


def verdict_of(done: Done) -> str:
    return " ".join(done.out.decode().split("\n\n")[0].split())


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        (["disk sda1 is 91% full", "disk sdb7 is 64% full"],
         "They merge: their words and variables are equal, in order."),
        (["--set", "match.k=20", "--set", "match.jaccard=0.6", BOB, EVE],
         r"They merge: distance \d+ is within k = 20, and Jaccard 0\.\d+ reaches 0\.6\."),
        (["--set", "match.k=20", "--set", "match.jaccard=0.0", BOB, EVE],
         r"They merge: distance \d+ is within k = 20\."),
    ],
)  # fmt: skip
def test_explain_says_why_two_lines_merge(args: list[str], verdict: str) -> None:
    done = run("explain", *args)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(verdict, verdict_of(done))


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        (["the link went away", "user bob came in again"],
         r"They do not merge: the first has only 4 words, and with so few one different .*"),
        (["--set", "match.k=0", "--set", "match.jaccard=0.7", "--set", "match.learn=0", BOB, EVE],
         r"They do not merge: distance \d+ is beyond k = 0, though they are alike enough; .*"),
        (["--set", "match.k=0", BOB, EVE],
         r"They do not merge: the first has .* They differ in one place: once 5 .*"),
        (["--set", "match.k=40", "--set", "match.learn=0",
          "the link went away", "the user came in"],
         r"They do not merge: distance \d+ is within k = 40, but Jaccard 0\.14 is below 0\.9\."),
        (["begun 17", "halted 18"],
         r"They do not merge: the first has 1 word\(s\), below min_features = 2, .*"),
        (["it has stopped", "stopped 18"],
         r"They do not merge: the second has 1 word\(s\), below min_features = 2, .*"),
        (["17", "18"], r"They do not merge: the first has no word, .*"),
        (["a link", ""], r"They do not merge: the second .*"),
    ],
)  # fmt: skip
def test_explain_says_why_two_lines_do_not_merge(args: list[str], verdict: str) -> None:
    done = run("explain", *args)
    assert (done.code, done.err) == (3, "")
    assert re.fullmatch(verdict, verdict_of(done))


@pytest.mark.parametrize(
    ("first", "second"), [(BOB, EVE), ("17", "18"), ("started 17", "started 18"), ("", "a b"),
                          ("link a down", "link b down"), (BOB, BOB + " again")],
)  # fmt: skip
def test_explain_and_dedup_agree(first: str, second: str) -> None:
    done = run("dedup", "-e", "annotate", stdin=f"{first}\n{second}\n".encode())
    merged = done.lines[1].startswith(b"duplicate")
    assert run("explain", "--", first, second).code == (0 if merged else 3)


@pytest.mark.parametrize(("second", "code"), [(BOB, 0), ("the link went away", 3)])
def test_a_reader_of_the_first_line_leaves_explains_verdict(second: str, code: int) -> None:
    script = '"$SD" explain "$1" "$2" | head -1; echo "${PIPESTATUS[0]}"'
    done = shell(script, BOB, second)
    assert done.lines[1:] == [b"%d" % code]


@pytest.mark.parametrize("args", [("explain", BOB, EVE), ("plan",), ("recipes", "list")])
def test_a_reader_that_is_gone_is_exit_code_141(args: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([COMMAND, *args], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_reader_of_the_figures_that_is_gone_is_exit_code_141() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [COMMAND, "dedup", "--stats"],
        input=b"a b\n",
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stdout) == (141, b"a b\n")


def test_explain_shows_patterns_features_bits_and_measures() -> None:
    text = run("explain", BOB, EVE).out.decode()
    assert "user bob logged in from <ipv4> port <number> over ssh" in text
    assert re.search(
        r"^shared \(8\) +user  logged  in  from  <\*>  port  over  ssh$", text, re.MULTILINE
    )
    assert re.search(r"^first only \(1\) +bob$", text, re.MULTILINE)
    assert re.search(r"^second only \(1\) +eve$", text, re.MULTILINE)
    distance = re.search(r"^distance +(\d+) of 64 bits, k = 6$", text, re.MULTILINE)
    assert distance is not None
    assert int(distance[1]) == len(
        re.findall(r"^\d+ +[+-]\d+ +[+-]\d+ .*bob [+-]1", text, re.MULTILINE)
    )
    assert "Jaccard          0.778, threshold 0.9" in text


def test_fingerprint_shows_masks_features_weights_and_bits() -> None:
    text = run("fingerprint", "Failed login for root from 10.0.0.7").out.decode()
    pattern = re.search(r"^pattern +(.*)$", text, re.MULTILINE)
    assert pattern is not None
    assert pattern[1].strip() == "Failed login for root from <ipv4>"
    hexed = re.search(r"^fingerprint +([0-9a-f]{16})$", text, re.MULTILINE)
    bits = re.search(r"^bits +((?:[01]{8} ?){8})$", text, re.MULTILINE)
    assert hexed is not None
    assert bits is not None
    assert int(hexed[1], 16) == int(bits[1].replace(" ", ""), 2)
    assert re.search(r"^words +5 of 6 features$", text, re.MULTILINE)
    for word in ("Failed", "login", "for", "root", "from"):
        assert re.search(rf"^ +{word} +1 +[0-9a-f]{{16}}", text, re.MULTILINE)
    assert re.search(r"^ +<\*> +1 .*<ipv4>  10\.0\.0\.7 *$", text, re.MULTILINE)


def test_fingerprint_says_that_it_takes_lines_not_files(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("link 1 went down\n")
    done = run("fingerprint", path)
    assert done.code == 0
    assert done.err.endswith(
        "app.log' is a file, and fingerprint takes lines; for the lines of the file: stream-dedup "
        "fingerprint < FILE\n"
    )


def test_fingerprint_as_json_is_one_object_a_line_and_equals_dedup() -> None:
    body = f"{BOB}\n\n\n17\n\xff".encode("latin-1")
    found = run("fingerprint", "--json", stdin=body).objects
    assert [look["text"] for look in found] == [BOB, "", "", "17", "\\xff"]
    args = ("dedup", "-e", "annotate", "--output-format", "jsonl")
    made = run(*args, stdin=body).objects[0]["dedup"]
    assert (made["fingerprint"], made["pattern"]) == (found[0]["fingerprint"], found[0]["pattern"])
    assert found[0] == run("fingerprint", "--json", BOB).objects[0]


def test_plan_marks_one_layout_a_model() -> None:
    done = run("plan", "--k", "3", "--capacity", "1000000")
    assert done.code == 0
    text = done.out.decode()
    assert len(re.findall(r"^\* ", text, re.MULTILINE)) == 2
    assert text.count("1,000,000 fingerprints of 64 bits, k = 3") == 2
    for row in re.findall(r"^\*? +(\d+) +(\d+) +[\d–]+ +[\d,.]+ +[\d,.]+ µs", text, re.MULTILINE):
        blocks, tables = map(int, row)
        assert tables == blocks * (blocks - 1) * (blocks - 2) // 6  # C(m, 3)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--k", "64"], "'--k': 64 is not below the width, 64"),
        (["--k", "-1"], "'--k': -1 is not in the range"),
        (["--width", "63"], "'--width': '63' is not one of"),
        (["--capacity", "0"], "'--capacity': 0 is not in the range"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(args: list[str], says: str) -> None:
    done = run("plan", *args)
    assert (done.code, done.out) == (2, b"")
    assert says in done.err


def test_plan_says_when_one_node_is_too_few() -> None:
    for k, opened, nodes in ((3, "28,000", 10), (6, "7,600", 12)):
        text = " ".join(run("plan", "--k", str(k), "--capacity", "20000").out.decode().split())
        assert f"opens some {opened} clusters of one group a second" in text
        assert f"take {nodes} nodes, with index.shard_by" in text


@pytest.mark.parametrize("width", [32, 64, 128])
def test_every_k_has_a_plan_or_a_reason(width: int) -> None:
    for k in (0, 1, width // 4, width - 1):
        done = run("plan", "--width", str(width), "--k", str(k))
        assert done.code in {0, 2}
        assert bool(done.err) == (done.code == 2)


def test_recipes_are_listed_with_their_digests() -> None:
    text = run("recipes", "list").out.decode()
    for name in shipped():
        assert re.search(rf"^{name} +{load_recipe(name).digest} +\S", text, re.MULTILINE)


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("args", [[], ["--all"], ["--set", "match.min_features=5"]])
def test_a_recipe_shown_is_read_back_to_the_same_digest(
    tmp_path: Path, name: str, args: list[str]
) -> None:
    shown = run("recipes", "show", name, *args)
    assert shown.code == 0
    digest = re.match(r"# digest ([0-9a-f]{16})\n", shown.out.decode())
    assert digest is not None
    assert (digest[1] == load_recipe(name).digest) == ("--set" not in args)
    path = tmp_path / "shown.toml"
    path.write_bytes(shown.out)
    assert digest[1] == load_recipe(path).digest
    checked = run("recipes", "check", path, name)
    assert checked.code == 0
    assert checked.lines[0].decode() == f"{path}: good, digest {digest[1]}"


def test_a_recipe_with_a_table_of_weights_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "weights.tsv").write_text('error\t7\ncafé\t3\nquote"d\t2\n')
    path = tmp_path / "mine.toml"
    path.write_text('[features.weights]\nfile = "weights.tsv"\n')
    again = tmp_path / "again" / "mine.toml"
    again.parent.mkdir()
    again.write_bytes(run("recipes", "show", path).out)
    assert load_recipe(path).digest == load_recipe(again).digest
    assert load_recipe(again).features.weights.table["error"] == 7


def test_a_command_that_is_none_is_refused() -> None:
    for args in (["nonsense"], ["recipes", "nonsense"], ["explain", "one"], ["recipes", "check"]):
        done = run(*args)
        assert (done.code, done.out) == (2, b"")
        assert "Usage: stream-dedup" in done.err


def test_json_events_are_explained_and_fingerprinted_by_their_fields() -> None:
    one, two = (msgspec.json.encode({"msg": "link down", "n": n}).decode() for n in (1, 2))
    assert run("explain", "-r", "json", one, two).code == 0
    found = run("fingerprint", "-r", "json", "--json", one).objects[0]
    assert found["pattern"] == "msg=link down n=<number>"


LEVELS = [(1, "info"), (2, "info"), (3, "error")]


def test_explain_compares_the_text_of_json_events_as_dedup_does() -> None:
    events = [f'{{"n":{n},"level":"{level}","msg":"link down"}}' for n, level in LEVELS]
    done = run("explain", *events[:2])
    said = "Of JSON events dedup compares the text, with level, status, outcome and trace:"
    assert done.out.decode().startswith(said)
    assert "They merge: their words and variables are equal" in done.out.decode()
    assert done.code == 0
    done = run("explain", *events[1:])
    assert "They do not merge: outcome, level" in done.out.decode()
    assert done.code == 3
    lines = "\n".join(events).encode()
    kept = run("dedup", "--emit", "drop", stdin=lines).out.splitlines()
    assert len(kept) == 2
    assert run("explain", '{"level":"info"}', '{"level":"error"}').code == 3
    assert run("explain", "-r", "json", *events[1:]).code == 3

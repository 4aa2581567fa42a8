"""Decisions in the pages: rules that are added and undone, who may, and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from starlette.datastructures import Headers
from starlette.types import Message

from stream_dedup.cli.main import cli
from stream_dedup.errors import StreamDedupError
from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.listening import HostNames
from stream_dedup.rules import file as rules_file
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.ui import files
from stream_dedup.ui.deciding import choices_of
from stream_dedup.ui.files import FileSource, Pass
from stream_dedup.ui.rules import InFile, SourceRules
from stream_dedup.ui.security import Access
from tests.integration.redis.helpers import until
from tests.unit.ui.helpers import Answer, application_of, client_of, file_source
from tests.unit.ui.test_app import HOSTILE, TOKEN, Tags, patterns

LINES = [
    *(f"job {name} ended on core {n}".encode() for n, name in enumerate("abcdefgh")),
    *(f"task {name} is over".encode() for name in ("red", "blue")),
    *(b"connection to port %d lost" % port for port in (22, 22, 80, 443)),
]
JOB, TASK, PORT = "job <*> ended on core <number>", "task <*> is over", (
    "connection to port <number> lost")  # fmt: skip
JSON = {"content_type": "application/json"}


class Application:
    """An application whose files are read again when rules have changed."""

    def __init__(self, source: FileSource, rules: Path, **access: Any) -> None:
        self.source = source
        self.rules = rules
        self.client = client_of(source, **access)

    def form_token(self, **headers: str) -> str:
        path = f"/p/files/{self.identity('port')}"
        found = re.search(
            'name="form_token" value="([0-9a-f]+)"', self.client.get(path, **headers).text
        )
        assert found is not None
        return found[1]

    def identity(self, words: str) -> str:
        (row, *_) = patterns(self.client, words=words)["patterns"]
        return str(row["id"])

    def decide(self, *pairs: tuple[str, str], where: str = "", **headers: str) -> Answer:
        fields = [("form_token", self.form_token()), *pairs]
        return self.client.post(f"/r/files{where}", urlencode(fields).encode(), **headers)

    def add(self, **body: Any) -> Answer:
        path = "/api/v1/sources/files/rules"
        return self.client.post(path, json.dumps(body).encode(), **JSON)

    def acting(self) -> list[PatternRule]:
        if not self.rules.exists():
            return []
        return rules_file.read(self.rules.read_text(), "rules").acting()


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return application(tmp_path)


def application(folder: Path, **access: Any) -> Application:
    rules = folder / "rules.toml"
    place = SourceRules(InFile(str(rules)))
    return Application(file_source(folder / "app.log", LINES, place), rules, **access)


# ------------------------------------------------------------ by form


def test_a_form_adds_a_rule_with_author_and_reason(app: Application) -> None:
    answer = app.decide(("kind", "name"), ("pattern", PORT), ("value", "lost connections"),
                        ("author", "ann"), ("reason", "we say so"))  # fmt: skip
    (rule,) = app.acting()
    assert (answer.status, answer.headers["location"]) == (303, f"/r/files#{rule.id}")
    assert (rule.kind, rule.patterns, rule.value, rule.author, rule.reason) == (
        RuleKind.NAME, (PORT,), "lost connections", "ann", "we say so")  # fmt: skip
    assert rule.time_us > 0
    page = app.client.get("/r/files").text
    for each in (rule.id, "lost connections", "ann", "we say so"):
        assert each in page


@pytest.mark.parametrize(
    ("fields", "patterns_of_rule"),
    [
        ([("kind", "name"), ("pattern", JOB), ("value", "jobs")], (JOB,)),
        ([("kind", "mute"), ("pattern", JOB)], (JOB,)),
        ([("kind", "keep"), ("pattern", JOB), ("per_minute", "10")], (JOB,)),
        ([("kind", "merge"), ("pattern", JOB), ("pattern", TASK)], (JOB, TASK)),
        ([("kind", "never_merge"), ("pattern", JOB), ("pattern", TASK)], (JOB, TASK)),
        ([("kind", "split"), ("pattern", PORT), ("slot", "1"), ("value", "22")], (PORT,)),
        ([("kind", "never_variable"), ("pattern", PORT), ("slot", "1")], (PORT,)),
        ([("kind", "always_variable"), ("pattern", PORT), ("value", "lost")], (PORT,)),
    ],
)
def test_each_kind_of_rule_can_be_made(
    app: Application, fields: list[tuple[str, str]], patterns_of_rule: tuple[str, ...]
) -> None:
    assert app.decide(*fields).status == 303
    (rule,) = app.acting()
    assert (rule.kind.value, rule.patterns) == (fields[0][1], patterns_of_rule)


def test_a_pair_offers_the_rule_that_joins_it(tmp_path: Path) -> None:
    lines = [b"cache emptied by hand", b"user bob was refused", b"cache emptied by cron"]
    rules = SourceRules(InFile(str(tmp_path / "rules.toml")))
    apart = PatternRule(
        RuleKind.NEVER_MERGE, ("cache emptied by hand", "cache emptied by cron"), reason="two jobs"
    )
    asyncio.run(rules.change(lambda book: book.add(apart)))
    client = client_of(file_source(tmp_path / "app.log", lines, rules))
    ids = {each["pattern"]: each["id"] for each in patterns(client)["patterns"]}
    hand, cron, other = (ids[each.decode()] for each in (lines[0], lines[2], lines[1]))
    pair = client.get(f"/api/v1/patterns/files/{hand}/with/{cron}").json()
    assert (pair["joining_word"], [each["id"] for each in pair["rules"]]) == ("hand", [apart.id])
    page = client.get(f"/two/files?id={hand}&id={cron}").text
    for each in ('value="merge"', 'value="never_merge"', 'value="always_variable"', "two jobs"):
        assert each in page
    assert client.get(f"/api/v1/patterns/files/{hand}/with/{other}").json()["joining_word"] == ""


def test_an_id_stands_for_the_pattern_of_its_cluster(app: Application) -> None:
    answer = app.decide(("kind", "merge"), ("pattern", PORT), ("pattern", app.identity("job")))
    assert answer.status == 303
    assert app.acting()[0].patterns == (PORT, JOB)


def test_undo_leaves_the_rule_in_the_audit_list(app: Application) -> None:
    app.decide(("kind", "mute"), ("pattern", PORT), ("author", "ann"))
    (rule,) = app.acting()
    answer = app.decide(("id", rule.id), ("author", "bob"), ("reason", "too quiet"), where="/undo")
    assert (answer.status, app.acting()) == (303, [])
    assert rule.id not in app.client.get("/r/files").text
    audit = app.client.get("/api/v1/sources/files/audit").json()
    assert [(each["action"], each["author"]) for each in audit["entries"]] == [
        ("undo", "bob"), ("add", "ann")]  # fmt: skip
    assert "too quiet" in app.client.get("/r/files/audit").text


def undo_in_the_page(app: Application, rule: str) -> None:
    assert app.decide(("id", rule), ("author", "bob"), where="/undo").status == 303


def undo_over_json(app: Application, rule: str) -> None:
    path = f"/api/v1/sources/files/rules/{rule}/undo"
    answer = app.client.post(path, b'{"author":"bob"}', **JSON)
    assert (answer.status, answer.json()["undone"]["author"]) == (200, "bob")


def undo_by_command(app: Application, rule: str) -> None:
    command = ["rules", "undo", rule, "--rules", str(app.rules), "--author", "bob"]
    CliRunner().invoke(cli, command, catch_exceptions=False)


def undo_in_an_editor(app: Application, rule: str) -> None:
    table = '[rules.undone]\nauthor = "bob"\ntime = 2026-05-07T09:30:00Z\n'
    before, found, after = app.rules.read_text().partition(f'id = "{rule}"\n')
    own, more, rest = after.partition("[[rules]]\n")
    app.rules.write_text(f"{before}{found}{own}\n{table}{more}{rest}")


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "name", "patterns": [PORT], "value": "lost connections"},
        {"kind": "mute", "patterns": [PORT]},
        {"kind": "keep", "patterns": [PORT], "per_minute": 2},
        {"kind": "merge", "patterns": [JOB, TASK]},
        {"kind": "never_merge", "patterns": ["task red is over", "task blue is over"]},
        {"kind": "split", "patterns": [PORT], "slot": 1, "value": "22"},
        {"kind": "never_variable", "patterns": [PORT], "slot": 1},
        {"kind": "always_variable", "patterns": [PORT], "value": "lost"},
    ],
    ids=lambda rule: str(rule["kind"]),
)
def test_each_kind_of_rule_is_undone_from_each_place(
    app: Application, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOK_S", 0.01)
    before = patterns(app.client)["patterns"]
    for undo in (undo_in_the_page, undo_over_json, undo_by_command, undo_in_an_editor):
        made = app.add(**rule).json()
        asyncio.run(read_again(app.source))
        assert patterns(app.client)["patterns"] != before
        undo(app, made["id"])
        asyncio.run(app.source.rules.refresh())
        asyncio.run(read_again(app.source))
        assert app.acting() == []
        assert patterns(app.client)["patterns"] == before
        last = app.client.get("/api/v1/sources/files/audit").json()["entries"]
        undone = [each for each in last if each["action"] == "undo"]
        assert made["id"] in {each["rule"]["id"] for each in undone}
        assert {each["author"] for each in undone} == {"bob"}


def test_a_rule_that_contradicts_another_is_refused_with_both_named(app: Application) -> None:
    app.decide(("kind", "merge"), ("pattern", JOB), ("pattern", TASK))
    (first,) = app.acting()
    answer = app.decide(("kind", "never_merge"), ("pattern", JOB), ("pattern", TASK))
    assert answer.status == 409
    assert first.id in answer.text
    assert len(set(re.findall("r-[0-9a-f]{8}", answer.text))) == 2
    assert app.acting() == [first]
    again = app.add(kind="never_merge", patterns=[JOB, TASK])
    assert again.status == 409
    assert first.id in again.json()["error"]


@pytest.mark.parametrize(
    "fields",
    [
        [("kind", "none"), ("pattern", PORT)],
        [("kind", "merge"), ("pattern", PORT)],
        [("kind", "split"), ("pattern", PORT), ("slot", "7"), ("value", "22")],
        [("kind", "split"), ("pattern", PORT), ("slot", "x" * 99), ("value", "22")],
        [("kind", "name"), ("pattern", PORT), ("value", "")],
        [("kind", "name"), ("pattern", PORT), ("value", "x" * 999)],
        [("kind", "name"), ("pattern", PORT), ("value", "\x1b[31m")],
        [("kind", "mute"), ("pattern", "<*>")],
        [("kind", "mute")],
        [("kind", "mute"), *[("pattern", PORT)] * 39],
    ],
)
def test_a_wrong_rule_is_refused(app: Application, fields: list[tuple[str, str]]) -> None:
    answer = app.decide(*fields)
    assert answer.status in {400, 422, 403}
    assert not app.rules.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    app = application(tmp_path)
    app.source.rules.place = InFile(str(tmp_path / "none" / "rules.toml"))
    answer = app.decide(("kind", "mute"), ("pattern", PORT))
    assert answer.status == 503
    assert "rules.toml" in answer.text


# ------------------------------------------------------------ who may


def test_a_form_without_the_token_of_a_page_is_refused(app: Application) -> None:
    body = urlencode({"kind": "mute", "pattern": PORT}).encode()
    for extra in (b"", b"&form_token=", b"&form_token=" + b"0" * 64):
        assert app.client.post("/r/files", body + extra).status == 403
    assert app.acting() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
    ],
)
def test_a_page_of_another_site_cannot_decide(app: Application, headers: dict[str, str]) -> None:
    assert app.decide(("kind", "mute"), ("pattern", PORT), **headers).status == 403
    path, body = "/api/v1/sources/files/rules", b'{"kind":"mute","patterns":["a b"]}'
    assert app.client.post(path, body, **JSON, **headers).status == 403
    assert app.acting() == []


@pytest.mark.parametrize(
    "headers", [{"sec_fetch_site": "same-origin"}, {"origin": "http://127.0.0.1:9465"}]
)
def test_a_page_of_this_site_can_decide(app: Application, headers: dict[str, str]) -> None:
    assert app.decide(("kind", "mute"), ("pattern", PORT), **headers).status == 303


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_what_is_not_named_as_json_changes_nothing(app: Application, kind: str) -> None:
    path, body = "/api/v1/sources/files/rules", b'{"kind":"mute","patterns":["a b"]}'
    assert app.client.post(path, body, content_type=kind).status == 415
    assert app.acting() == []


@pytest.mark.parametrize("where", ["", "/undo"])
def test_a_form_with_too_long_a_reason_is_refused(app: Application, where: str) -> None:
    refused = app.decide(("kind", "mute"), ("pattern", PORT), ("reason", "x" * 10_000), where=where)
    assert refused.status == 400
    assert "10" in refused.text or "length" in refused.text
    assert app.acting() == []


def test_where_only_reading_is_allowed_nothing_is_changed(tmp_path: Path) -> None:
    secret = b"known to the test"
    app = application(tmp_path, changes=False, secret=secret)
    page = app.client.get(f"/p/files/{app.identity('port')}").text
    assert 'action="/r/files"' not in page
    assert "only reads" in page
    assert app.add(kind="mute", patterns=[PORT]).status == 403
    token = Access(HostNames(), secret=secret).form_token(Headers())
    fields = {"kind": "mute", "pattern": PORT, "form_token": token}
    assert app.client.post("/r/files", urlencode(fields).encode()).status == 403
    assert app.acting() == []


def test_without_a_file_of_rules_the_page_says_how(tmp_path: Path) -> None:
    client = client_of(file_source(tmp_path / "app.log", LINES))
    row = patterns(client)["patterns"][0]
    for path in (f"/p/files/{row['id']}", "/r/files"):
        assert "--rules FILE" in client.get(path).text
    answer = client.post("/api/v1/sources/files/rules", b'{"kind":"mute","patterns":["a"]}', **JSON)
    assert answer.status == 403
    assert "--rules FILE" in answer.json()["error"]


def test_changing_needs_what_reading_needs(tmp_path: Path) -> None:
    app = application(tmp_path, token=TOKEN)
    path, body = "/api/v1/sources/files/rules", b'{"kind":"mute","patterns":["a b"]}'
    assert app.client.post(path, body, **JSON).status == 401
    assert app.client.post("/r/files", b"kind=mute").status == 303  # to sign in
    assert app.acting() == []
    bearer = f"Bearer {TOKEN}"
    assert app.client.post(path, body, authorization=bearer, **JSON).status == 200
    assert len(app.acting()) == 1


def test_the_user_of_a_proxy_is_the_author(tmp_path: Path) -> None:
    app = application(tmp_path, user_header="X-User")
    path = "/api/v1/sources/files/rules"
    body = b'{"kind":"mute","patterns":["a b"],"author":"somebody else"}'
    assert app.client.post(path, body, **JSON).status == 401
    assert app.client.post(path, body, x_user="jörg", **JSON).status == 200
    assert app.acting()[0].author == "jörg"


# ------------------------------------------------------------ what rules do


def test_files_are_read_again_under_changed_rules(app: Application) -> None:
    def rows() -> dict[str, dict[str, Any]]:
        return {row["pattern"]: row for row in patterns(app.client)["patterns"]}

    before = {pattern: row["id"] for pattern, row in rows().items()}
    app.decide(("kind", "merge"), ("pattern", JOB), ("pattern", TASK))
    app.decide(("kind", "name"), ("pattern", PORT), ("value", "lost connections"))
    app.decide(("kind", "mute"), ("pattern", PORT))
    asyncio.run(read_again(app.source))
    found = rows()
    assert set(found) == {JOB, PORT}
    assert (found[JOB]["count"], found[JOB]["merged"]) == (10, True)
    assert (found[PORT]["name"], found[PORT]["muted"], found[PORT]["count"]) == (
        "lost connections", True, 4)  # fmt: skip
    assert found[PORT]["id"] == before[PORT]
    assert patterns(app.client, words="LOST conn")["found"] == 1
    html = app.client.get("/s/files").text
    assert "lost connections" in html
    assert "muted" in html
    assert "merged by a rule" in html

    for rule in app.acting():
        app.decide(("id", rule.id), where="/undo")
    asyncio.run(read_again(app.source))
    assert {pattern: row["id"] for pattern, row in rows().items()} == before


def test_a_link_of_before_a_rule_leads_to_its_pattern(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOOK_S", 0.01)
    former = app.identity("job")
    app.add(kind="never_merge", patterns=[JOB, TASK])
    asyncio.run(read_again(app.source))
    assert app.identity("job") != former
    answer = app.client.get(f"/api/v1/patterns/files/{former}")
    assert (answer.status, answer.json()["pattern"]["pattern"]) == (200, JOB)
    assert app.client.get("/p/files/" + "0" * 16).status == 404


def test_the_command_finds_the_events_of_all_that_is_merged(app: Application) -> None:
    app.decide(("kind", "merge"), ("pattern", JOB), ("pattern", TASK))
    asyncio.run(read_again(app.source))
    row = patterns(app.client)["patterns"][0]
    command, *_ = app.client.get(f"/api/v1/patterns/files/{row['id']}").json()["commands"]
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert row["count"] == len(done.stdout.splitlines()) == 10


def test_a_value_that_is_split_off_is_named_in_the_list(app: Application) -> None:
    app.decide(("kind", "split"), ("pattern", PORT), ("slot", "1"), ("value", "22"))
    asyncio.run(read_again(app.source))
    rows = patterns(app.client, words="port")["patterns"]
    assert sorted((row["count"], row["only"]) for row in rows) == [(2, []), (2, ["22"])]


def test_a_rule_is_shown_with_the_patterns_it_is_about(app: Application) -> None:
    app.decide(("kind", "mute"), ("pattern", PORT))
    (rule,) = app.acting()
    assert rule.id in app.client.get(f"/p/files/{app.identity('port')}").text
    assert rule.id not in app.client.get(f"/p/files/{app.identity('task')}").text


async def read_again(source: FileSource) -> None:
    """Let a source take up its rules, as it does by itself."""
    task = asyncio.create_task(source.run())
    await until(lambda: source._shown.done and source._shown.rules == source.rules.book.acting())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_rules_that_become_wrong_are_told_and_leave_those_that_act(app: Application) -> None:
    app.decide(("kind", "mute"), ("pattern", PORT))
    app.rules.write_text("[[rules]]\nkind = 'none'\n")

    async def look() -> None:
        await app.source.rules.refresh()

    asyncio.run(look())
    assert "kind" in app.source.status().problem
    assert len(app.source.rules.book.acting()) == 1
    assert "kind" in app.client.get("/r/files").text


def test_a_change_of_the_page_is_taken_up_once(app: Application) -> None:
    app.decide(("kind", "mute"), ("pattern", PORT))
    book = app.source.rules.book
    asyncio.run(app.source.rules.refresh())
    assert app.source.rules.book is book
    app.rules.write_text("")
    asyncio.run(app.source.rules.refresh())
    assert app.source.rules.book.rules == ()


def test_many_rules_come_in_pages(app: Application) -> None:
    rules = [PatternRule(RuleKind.MUTE, (f"word{n} <*>",), time_us=n + 1) for n in range(120)]
    app.rules.write_text(rules_file.written(RuleBook().add(*rules).rules))
    page = app.client.get("/api/v1/sources/files/rules?page=3").json()
    assert (page["found"], page["pages"], len(page["rules"])) == (120, 3, 20)
    assert page["rules"][-1]["patterns"] == ["word0 <*>"]
    for path in ("/r/files?page=2", "/r/files/audit?page=2"):
        assert "Page 2 of 3" in app.client.get(path).text
    for wrong in ("0", "-1", "x", "9" * 30):
        assert app.client.get(f"/r/files?page={wrong}").status == 200


# ------------------------------------------------------------ what can be decided


def test_values_are_offered_as_split_compares_them(app: Application) -> None:
    choices = choices_of(PORT, LINES[-4:], app.source.inspector.recipe)
    assert [(slot.number, slot.label) for slot in choices.slots] == [(1, "port <*> lost")]
    assert choices.slots[0].values == ["22", "80", "443"]
    assert choices.words == ["connection", "to", "port", "lost"]
    for value in choices.slots[0].values:
        rule = PatternRule(RuleKind.SPLIT, (PORT,), slot=1, value=value)
        assert RuleBook().add(rule).acting() == [rule]


def test_of_a_pattern_without_words_nothing_can_be_decided() -> None:
    assert "no word" in choices_of("<*> <number>", [], None).problem
    assert choices_of("word", [], None).words == []


def test_nothing_hostile_becomes_markup_in_forms_and_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    place = SourceRules(InFile(str(rules)))
    source = file_source(
        tmp_path / "hostile.log", [line for line in HOSTILE for _ in (1, 2)], place
    )
    client = client_of(source)
    bad = "<script>alert(1)</script>'\" onload=x"
    path = "/api/v1/sources/files/rules"
    pages = []
    for row in patterns(client, limit=200)["patterns"]:
        body = {"kind": "name", "patterns": [row["pattern"]], "value": f"{bad} {row['id']}",
                "author": bad, "reason": bad}  # fmt: skip
        assert client.post(path, json.dumps(body).encode(), **JSON).status in {200, 422}
        refused = client.post(path, json.dumps({**body, "value": bad}).encode(), **JSON)
        assert refused.status in {409, 422}
        pages += [client.get(f"/p/files/{row['id']}").text,
                  client.get(f"/p/files/{row['id']}/neighbours").text]  # fmt: skip
    asyncio.run(read_again(source))
    pages += [client.get(each).text for each in ("/r/files", "/r/files/audit", "/s/files")]
    assert len(rules_file.read(rules.read_text(), "rules").acting()) > 5
    for html in pages:
        for tag, attributes in Tags(html).found:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            if tag == "script":
                assert (attributes["src"] or "").startswith("/static/")
            for name in ("href", "src", "action", "hx-get", "hx-post"):
                assert (attributes.get(name) or "/").startswith(("/", "#"))
        for raw in ("\x1b", "\x07", "\u202e", "\u200b", "\x80"):
            assert raw not in html


def test_rules_that_cannot_be_reached_leave_the_page_readable(app: Application) -> None:
    class Away(InFile):
        async def version(self) -> object:
            raise StreamDedupError("the place is away")

    app.decide(("kind", "mute"), ("pattern", PORT), ("reason", "too loud"))
    asyncio.run(app.source.rules.refresh())
    app.source.rules.place = Away("x")
    for path in ("/r/files", "/r/files/audit"):
        page = app.client.get(path)
        assert page.status == 200
        assert "the place is away. What is shown was read before." in page.text
        assert "too loud" in page.text
    assert app.client.get("/api/v1/sources/files/rules").status == 503
    assert app.client.get("/s/files").status == 200
    app.source.rules = SourceRules(Away("x"))  # which nobody has read
    assert app.client.get("/r/files").status == 503


def test_an_error_that_ends_the_reading_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = FileSource([str(tmp_path / "app.log")], load_recipe("logs"), DecoderOptions(), 10)
    monkeypatch.setattr(Pass, "read", lambda _: 1 // 0)
    monkeypatch.setattr(files, "LOOK_S", 0.01)
    pages = application_of(source).asgi()
    messages = [{"type": "lifespan.startup"}]

    async def receive() -> Message:
        if not messages:
            await until(lambda: bool(caplog.records))
            return {"type": "lifespan.shutdown"}
        return messages.pop()

    async def send(_: Message) -> None: ...

    asyncio.run(asyncio.wait_for(pages({"type": "lifespan"}, receive, send), 60))
    (record,) = caplog.records
    assert record.getMessage() == "reading files failed; start the application again"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError

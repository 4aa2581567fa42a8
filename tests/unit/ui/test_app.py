"""The pages of a file: what they show, and that nothing in an event becomes markup."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.io.timestamps import GUESSED
from stream_dedup.ui import openapi
from stream_dedup.ui.files import FileSource
from stream_dedup.ui.rules import InFile, SourceRules
from stream_dedup.ui.views.details import PatternDetails
from stream_dedup.ui.views.patterns import PatternList
from stream_dedup.ui.views.rules import Rule
from tests.integration.command import COMMAND
from tests.unit.ui.helpers import Client, application_of, client_of, file_source

TOKEN = "a token of some length"  # noqa: S105 -- of no server

LINES = [
    *(f"2024-05-07T09:{n % 60:02}:00Z ERROR connection from 10.0.0.{n} lost".encode()
      for n in range(40)),
    *(f"2024-05-07T09:30:{n:02}Z INFO user u{n} logged in".encode() for n in range(20)),
    b"2024-05-07T09:45:00Z INFO cache emptied",
]  # fmt: skip

HOSTILE = [
    b"<script>alert(1)</script> says hello there",
    b"'><img src=x onerror=alert(1)> says hello there",
    b'" autofocus onfocus=alert(1) x=" is an attribute',
    b"{{ 7 * 7 }} ${7*7} <%= 7 %> templates in braces",
    b"</code></a></th></tr></table><h1>heading breaks out</h1>",
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07 terminal escape words",
    "right \u202eto left\u202c mark and \u200b zero width".encode(),
    b"not utf-8 \xff\xfe\x80 bytes in the middle",
    b"javascript:alert(1) data:text/html,<svg/onload=alert(1)> addresses here",
    b"hx-get=/logout hx-trigger=load <div hx-get=/logout hx-trigger=load> htmx",
    b"]]> --> <!-- <![CDATA[ comment ends here",
    b"$(touch /tmp/pwned) `id` ; rm -rf ~ 'quoted' \"double\" && shell words",
    b"long " + b"x" * 1_000_000 + b" end of the long one",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileSource:
    return file_source(tmp_path_factory.mktemp("ui") / "app.log", LINES)


@pytest.fixture(scope="module")
def client(source: FileSource) -> Client:
    return client_of(source)


class Tags(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def patterns(client: Client, **query: object) -> Any:
    return client.post("/api/v1/sources/files/patterns", json.dumps(query).encode()).json()


def test_volume_has_the_bytes_of_the_file_by_pattern(client: Client) -> None:
    found = client.get("/api/v1/sources/files/volume?per_minute=1").json()
    rows = found["patterns"]
    html = client.get("/v/files?per_minute=1").text

    assert found["bytes_in"] == sum(map(len, LINES)) == sum(row["bytes_in"] for row in rows)
    assert rows[0]["bytes_in"] == sum(map(len, LINES[:40])) == rows[0]["bytes_out"]
    assert rows[0]["drop_saves"] == rows[0]["bytes_in"] - rows[0]["bytes_in"] // 40
    assert rows[0]["keep_saves"] == 0  # each is in a minute of its own
    # The others are in one bucket, of 64 seconds, in which two may leave.
    assert rows[1]["keep_saves"] == rows[1]["bytes_in"] - rows[1]["bytes_in"] * 2 // 20
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=1e-5)
    assert found["drop_saves"] == sum(row["drop_saves"] for row in rows)
    assert "keep 1 a minute" in html
    assert html.index("connection from") < html.index("logged in")


def test_a_list_has_the_counts_and_times_of_the_file(client: Client) -> None:
    found = patterns(client)
    rows = {row["pattern"].partition(" ")[2]: row for row in found["patterns"]}
    lost = rows["ERROR connection from <ipv4> lost"]
    assert (found["found"], found["events"], found["source"]["events"]) == (3, 61, 61)
    assert [row["count"] for row in found["patterns"]] == [40, 20, 1]
    assert sum(lost["counts"]) + lost["before"] == 40
    assert lost["variant"] == ["ERROR"]
    assert lost["share"] == pytest.approx(40 / 61, abs=1e-6)
    assert (lost["first"], lost["last"]) == ("2024-05-07T09:00:00Z", "2024-05-07T09:39:00Z")


def test_counts_are_in_the_buckets_of_their_times(client: Client) -> None:
    found = patterns(client)
    axis, (lost, *_) = found["axis"], found["patterns"]
    assert axis["unit"] == "seconds"
    for at, count in enumerate(lost["counts"]):
        start = axis["start"] + at * axis["width"]
        times = [1_715_072_400 + 60 * n for n in range(40)]
        assert count == sum(start <= each < start + axis["width"] for each in times)


def test_lines_stand_for_times_where_there_are_none(tmp_path: Path) -> None:
    source = file_source(tmp_path / "plain.log", [b"one line here"] * 5 + [b"other words"] * 200)
    found = patterns(client_of(source))
    assert found["axis"]["unit"] == "lines"
    other, one = found["patterns"]
    assert (one["first"], one["last"], other["first"], other["last"]) == (
        "line 1", "line 5", "line 6", "line 205")  # fmt: skip
    assert [sum(row["counts"]) for row in (other, one)] == [200, 5]


def test_times_without_a_year_are_of_the_year_before(tmp_path: Path) -> None:
    source = file_source(tmp_path / "syslog", [b"Nov 21 09:36:56 web sshd[1]: session opened"] * 3)
    (row,) = patterns(client_of(source))["patterns"]
    assert row["first"][4:] == "-11-21T09:36:56Z"
    assert int(row["first"][:4]) >= 2025


def test_merged_clusters_count_as_part_of_another_one(tmp_path: Path) -> None:
    names = "ann bob cid dan eve fay gus hal ida jon kim leo".split()
    lines = [f"session of {name} was opened by the door".encode() for name in names]
    source = file_source(tmp_path / "names.log", lines)
    found = patterns(client_of(source))
    assert [(row["pattern"], row["count"]) for row in found["patterns"]] == [
        ("session of <*> was opened by the door", len(names))
    ]
    assert sum(found["patterns"][0]["counts"]) == len(names)


def test_a_page_of_a_pattern_tells_values_and_reasons(client: Client) -> None:
    row = patterns(client)["patterns"][0]
    answer = client.get(f"/api/v1/patterns/files/{row['id']}")
    details = msgspec.json.decode(answer.body, type=PatternDetails)
    assert [slot.slot for slot in details.slots] == ["<timestamp>", "<ipv4>"]
    assert details.slots[1].distinct == 40
    assert all("They merge" in each.verdict for each in details.joined)
    assert len(details.joined) == 3
    record = answer.json()["record"]
    assert (record["cluster"], record["count"]) == (row["id"], 40)
    html = client.get(f"/p/files/{row['id']}").text
    for each in ("10.0.0.", "They merge", "Find its events", row["id"]):
        assert each in html


def test_the_command_finds_all_events_of_a_pattern(client: Client) -> None:
    rows = patterns(client)["patterns"]
    assert rows
    for row in rows:
        command = client.get(f"/api/v1/patterns/files/{row['id']}").json()["commands"][0]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        assert len(done.stdout.splitlines()) == row["count"]


def test_neighbours_are_compared_as_explain_does(client: Client) -> None:
    first, second, *_ = patterns(client)["patterns"]
    html = client.get(f"/p/files/{first['id']}/neighbours").text
    near = client.get(f"/api/v1/patterns/files/{first['id']}/neighbours").json()["neighbours"]
    found = {each["pattern"]["id"]: each for each in near}
    assert second["id"] in found
    inspector = Inspector(load_recipe("logs"))
    expected = inspector.compare(LINES[0], LINES[40])
    assert found[second["id"]]["verdict"] == expected.verdict()
    assert found[second["id"]]["distance"] == expected.distance
    assert second["id"] in html


def test_two_patterns_are_compared_side_by_side(client: Client) -> None:
    one, two, *_ = patterns(client)["patterns"]
    pair = client.get(f"/api/v1/patterns/files/{one['id']}/with/{two['id']}").json()
    near = client.get(f"/api/v1/patterns/files/{one['id']}/neighbours").json()["neighbours"]
    compared = {each["pattern"]["id"]: each for each in near}.get(two["id"])
    inspector = Inspector(load_recipe("logs"))
    first, second = (text.encode() for text in pair["texts"])
    found = inspector.compare(first, second)
    assert (pair["verdict"], pair["distance"]) == (found.verdict(), found.distance)
    assert compared is None or compared["verdict"] == pair["verdict"]
    assert (pair["merge"], pair["limit"]) == (False, inspector.recipe.match.k)
    assert "lost" in pair["first_only"]
    assert "logged" in pair["second_only"]
    page = client.get(f"/two/files?id={one['id']}&id={two['id']}").text
    assert "<mark>lost</mark>" in page
    assert pair["verdict"] in unescape(page)


@pytest.mark.parametrize("ids", [[], [0], [0, 0], [0, 1, 2]])
def test_other_than_two_are_not_side_by_side(client: Client, ids: list[int]) -> None:
    rows = patterns(client)["patterns"]
    found = client.get("/two/files?" + "&".join(f"id={rows[each]['id']}" for each in ids))
    assert (found.status, "choose two patterns" in found.text) == (400, True)


def test_a_period_is_compared_with_another(client: Client) -> None:
    def changes(query: str = "") -> Any:
        return client.get(f"/api/v1/sources/files/changes{query}").json()

    found = changes("?old_start=2024-05-07T09:00&old_end=2024-05-07T09:29"
                    "&new_start=2024-05-07T09:29&new_end=2024-05-07T09:47")  # fmt: skip
    kinds = {each["pattern"]["pattern"]: each for each in found["changes"]}
    user = kinds["<timestamp> INFO user <*> logged in"]
    assert (user["change"], user["old"], user["new"], user["sure"]) == ("new", 0, 20, True)
    assert found["changes"][0] == user
    assert not kinds["<timestamp> INFO cache emptied"]["sure"]
    assert found["old"]["events"] + found["new"]["events"] == len(LINES)
    assert (found["old"]["end"], found["per"]) == (found["new"]["start"], "time")
    whole = changes()  # the last quarter, and all before: nothing is left out or counted twice
    assert whole["old"]["events"] + whole["new"]["events"] == len(LINES)
    page = client.get("/c/files").text
    assert "changed by more than chance" in page


def test_two_files_are_compared_as_diff_does(tmp_path: Path) -> None:
    old = file_source(tmp_path / "old.log", LINES[:40] + LINES[-1:])
    del old
    new = tmp_path / "new.log"
    new.write_bytes(b"\n".join([*LINES[:20], *LINES[40:], b""]))
    source = FileSource(
        [str(tmp_path / "old.log"), str(new)], load_recipe("logs"),
        DecoderOptions(time_format=GUESSED), 1_000,
    )  # fmt: skip
    source.read()
    found = client_of(source).get("/api/v1/sources/files/changes").json()
    shown = [(each["pattern"]["pattern"], each["change"], each["old"], each["new"])
             for each in found["changes"]]  # fmt: skip
    assert shown[0] == ("<timestamp> INFO user <*> logged in", "new", 0, 20)
    assert (found["old"]["name"], found["new"]["name"]) == ("old.log", "new.log")
    assert (found["old"]["events"], found["new"]["events"], found["per"]) == (41, 41, "events")
    done = subprocess.run(
        [COMMAND, "diff", "--json", "--per", "events", tmp_path / "old.log", new],
        capture_output=True, check=False,
    )  # fmt: skip
    _, *lines = map(json.loads, done.stdout.splitlines())
    assert [(each["pattern"], each["change"], each["old"], each["new"]) for each in lines] == shown


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("old_file=1&new_file=7", "choose two of the 0 files"),
        ("new_start=yesterday", "is not a time"),
        ("new_start=2024-05-07T09:40&new_end=2024-05-07T09:20", "ends before it begins"),
        ("old_end=2024-05-07T08:00", "ends before it begins"),
    ],
)
def test_a_period_that_is_none_is_refused(client: Client, query: str, problem: str) -> None:
    found = client.get(f"/api/v1/sources/files/changes?{query}")
    assert (found.status, problem in found.text) == (400, True)
    assert problem in unescape(client.get(f"/c/files?{query}").text)


def test_a_list_that_has_not_changed_is_not_sent_again(client: Client) -> None:
    first = client.post("/s/files/list", b"sort=count&page=1")
    digest = first.text.partition('name="seen_list" value="')[2].partition('"')[0]
    again = client.post("/s/files/list", f"sort=count&page=1&seen_list={digest}".encode())
    assert (first.status, again.status, again.body) == (200, 204, b"")


def test_words_are_taken_from_the_body_only(client: Client) -> None:
    assert patterns(client, words="USER logged")["found"] == 1
    refused = client.get("/api/v1/sources/files/patterns?words=user")
    assert refused.status == 400
    assert "POST" in refused.json()["error"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"page":0}', b'{"sort":"x"}', b'{"other":1}', b"\xff", b'{"page":1e99}']
)
def test_a_wrong_query_is_refused(client: Client, body: bytes) -> None:
    answer = client.post("/api/v1/sources/files/patterns", body)
    assert answer.status == 400
    assert answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/x", "/s/none", "/p/files/0", "/p/files/zzzzzzzzzzzzzzzz", "/p/files/0123456789abcdef",
        "/api/v1/patterns/files/0123456789abcdef", "/static/x/..%2fapp.py", "/static/x/app.py",
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_found(client: Client, path: str) -> None:
    assert client.get(path).status == 404


def test_what_a_page_loads_is_there(client: Client) -> None:
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    loaded = {
        attributes.get("src") or attributes["href"]
        for tag, attributes in Tags(client.get("/s/files").text).found
        if tag in {"script", "link"}
    }
    assert len(loaded) == 6
    for path in loaded:
        assert path is not None
        answer = client.get(path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kinds[path.rpartition(".")[2]])
        assert "immutable" in answer.headers["cache-control"]


# ------------------------------------------------------------ hostile events


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Client:
    lines = [line for line in HOSTILE for _ in range(2)]
    return client_of(file_source(tmp_path_factory.mktemp("ui") / "hostile.log", lines))


def pages_of(client: Client) -> list[str]:
    out = [client.get("/s/files").text, client.post("/s/files/list", b"sort=count").text]
    for row in patterns(client, limit=200)["patterns"]:
        for end in ("", "/facts", "/neighbours"):
            answer = client.get(f"/p/files/{row['id']}{end}")
            assert answer.status == 200
            out.append(answer.text)
    return out


def test_nothing_in_an_event_becomes_markup(hostile: Client) -> None:
    known = {
        "html", "head", "meta", "title", "link", "script", "body", "a", "header", "p", "nav", "ul",
        "li", "main", "h1", "h2", "h3", "form", "label", "input", "select", "option", "button",
        "div", "table", "thead", "tbody", "tr", "th", "td", "svg", "polygon", "time", "footer",
        "code", "span", "strong", "section", "dl", "dt", "dd", "pre", "details", "summary", "meter",
        "datalist",
    }  # fmt: skip
    for html in pages_of(hostile):
        for tag, attributes in Tags(html).found:
            assert tag in known
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            if tag == "script":
                assert (attributes["src"] or "").startswith("/static/")
            for name in ("href", "src", "action", "hx-get", "hx-post"):
                assert (attributes.get(name) or "/").startswith(("/", "#"))


def test_nothing_hostile_becomes_markup_side_by_side(hostile: Client) -> None:
    ids = [each["id"] for each in patterns(hostile)["patterns"]]
    assert len(ids) > 1
    for one, two in pairwise(ids):
        tags = Tags(hostile.get(f"/two/files?id={one}&id={two}").text).found
        assert {tag for tag, _ in tags}.isdisjoint({"img", "svg", "iframe"})
        assert sum(tag == "h1" for tag, _ in tags) == 1
        assert [attrs.get("src") for tag, attrs in tags if tag == "script"] == [
            attrs["src"] for tag, attrs in tags if tag == "script" and attrs.get("src")
        ]
        assert not any(name.startswith("on") for _, attrs in tags for name in attrs)


def test_nothing_of_an_event_is_part_of_an_address(hostile: Client) -> None:
    ids = [each["id"] for each in patterns(hostile)["patterns"]]
    pages = [
        "/s/files",
        "/c/files",
        "/r/files",
        "/r/files/audit",
        f"/two/files?id={ids[0]}&id={ids[1]}",
    ]
    pages += [f"/p/files/{each}{part}" for each in ids for part in ("", "/facts", "/neighbours")]
    known = re.compile(
        r"(#[a-z]+|/|/static/[0-9a-f]+/[a-z.0-9]+|/[a-z]+/files(/[0-9a-f]{16})?(/[a-z]+)?"
        r"|/two/files\?id=[0-9a-f]{16}&id=[0-9a-f]{16}|/api/v1/openapi.json"
        r"|/api/v1/patterns/files/[0-9a-f]{16}/counts)"
    )
    places = {"href", "src", "action", "hx-get", "hx-post", "data-chart"}
    found = [
        value or ""
        for page in pages
        for _, attrs in Tags(hostile.get(page).text).found
        for name, value in attrs.items()
        if name in places
    ]
    assert len(found) > 5 * len(pages)
    assert [each for each in found if not known.fullmatch(each)] == []


def test_what_is_not_printable_is_shown_as_an_escape(hostile: Client) -> None:
    whole = "".join(pages_of(hostile))
    for raw in ("\x1b", "\x07", "\u202e", "\u200b", "\x80"):
        assert raw not in whole
    for shown in ("\\u202e", "\\xff"):
        assert shown in whole


def test_long_events_are_shortened(hostile: Client) -> None:
    assert all(len(html) < 120_000 for html in pages_of(hostile))


def test_commands_run_nothing_that_stands_in_an_event(hostile: Client) -> None:
    for row in patterns(hostile, limit=200)["patterns"]:
        for command in hostile.get(f"/api/v1/patterns/files/{row['id']}").json()["commands"]:
            done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, check=False)
            assert done.returncode == 0
            found = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
            assert found.returncode in {0, 1}  # 1: nothing was found
            assert found.stderr == b""
    assert not Path("/tmp/pwned").exists()  # noqa: S108 -- a hostile event names it


# ------------------------------------------------------------ who may read


@pytest.mark.parametrize("path", ["/", "/s/files", "/api/v1/sources", "/api/v1/openapi.json"])
def test_without_the_token_nothing_is_shown(source: FileSource, path: str) -> None:
    client = client_of(source, token=TOKEN)
    refused, wrong = client.get(path), client.get(path, authorization="Bearer another token")
    right = client.get(path, authorization="Bearer a token of some length")
    expected = 401 if path.startswith("/api/") else 303
    assert (refused.status, wrong.status) == (expected, expected)
    assert right.status in {200, 303}
    assert right.headers.get("location", "") != "/login"
    assert b"lost" not in refused.body + wrong.body


OPEN = {"/healthz", "/login", "/static/{version}/{name}"}
"""What is served to everybody: nothing of events."""


@pytest.mark.parametrize("access", [{"token": TOKEN}, {"user_header": "X-User"}])
def test_no_address_answers_whom_it_does_not_know(source: FileSource, access: Any) -> None:
    routes = application_of(source, **access).routes()
    client = client_of(source, **access)
    row, other, *_ = patterns(client_of(source))["patterns"]
    names = {"source": "files", "identity": row["id"], "other": other["id"], "rule": "r-1"}
    headers = {"content-type": "application/json", "cookie": "stream-dedup=x",
               "authorization": "Bearer x", "x-user": "", "x-forwarded-user": "ann"}  # fmt: skip
    asked = 0
    for route in routes:
        if route.path in OPEN:
            continue
        asked += 1
        path = route.path.format(**names) + f"?id={row['id']}&id={other['id']}"
        for method in route.methods or ():
            refused = client.ask(method, path, b'{"kind":"mute","patterns":["a b"]}', headers)
            to_login = "token" in access and not path.startswith("/api/")
            assert (path, refused.status) == (path, 303 if to_login else 401)
            assert refused.headers.get("location", "/login") == "/login"
            assert b"lost" not in refused.body
            foreign = client.ask(method, path, b"", {"host": "evil.example"})
            assert (path, foreign.status) == (path, 421)
    assert asked > 20
    assert {route.path for route in routes} > OPEN


def test_a_browser_signs_in_with_the_token(source: FileSource) -> None:
    client = client_of(source, token=TOKEN)
    assert client.post("/login", b"token=wrong").status == 403
    answer = client.post("/login", b"token=a+token+of+some+length")
    cookie = answer.headers["set-cookie"]
    assert answer.status == 303
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "some" not in cookie
    assert client.get("/s/files", cookie=cookie.partition(";")[0]).status == 200
    assert client.get("/s/files", cookie="stream-dedup=x").status == 303
    assert client.get("/s/files", cookie='stream-dedup="').status == 303


def test_a_proxy_names_its_user(source: FileSource) -> None:
    client = client_of(source, user_header="X-Forwarded-User")
    assert client.get("/s/files").status == 401
    assert client.get("/s/files", x_forwarded_user=" ").status == 401
    assert client.get("/s/files", x_forwarded_user="ann").status == 200


def test_a_foreign_name_is_refused(client: Client) -> None:
    assert client.get("/s/files", host="evil.example").status == 421
    assert client.get("/api/v1/sources", host="evil.example").status == 421
    assert client.get("/s/files", host="localhost:9465").status == 200


def test_every_answer_has_a_policy_without_inline_script(client: Client) -> None:
    for path in ("/s/files", "/login", "/x", "/api/v1/sources", "/healthz"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["server"] == "stream-dedup"


def test_a_body_that_is_too_long_is_refused(client: Client) -> None:
    path = "/api/v1/sources/files/patterns"
    assert client.post(path, content_length="999999").status == 413
    assert client.post(path, content_length="many").status == 413


def test_another_site_cannot_send_anything(source: FileSource) -> None:
    routes = [route for route in application_of(source).routes()
              if route.methods and "POST" in route.methods]  # fmt: skip
    assert len(routes) > 6
    client = client_of(source)
    for route in routes:
        path = route.path.format(source="files", rule="0" * 16)
        for headers in (
            {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"},
            {"origin": "null"},
        ):  # fmt: skip
            refused = client.ask("POST", path, headers=headers)
            assert (path, refused.status) == (path, 403)


# ------------------------------------------------------------ the interface


def test_the_description_names_all_that_is_served(client: Client, source: FileSource) -> None:
    described = {
        (path, method.upper())
        for path, operations in client.get("/api/v1/openapi.json").json()["paths"].items()
        for method in operations
    }
    served = {
        (route.path, method)
        for route in application_of(source).routes()
        if route.path.startswith("/api/") and not route.path.endswith("/openapi.json")
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert described == served


def test_answers_are_as_they_are_described(tmp_path: Path) -> None:
    rules = SourceRules(InFile(str(tmp_path / "rules.toml")))
    client = client_of(file_source(tmp_path / "app.log", LINES, rules))
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    row, other, *_ = patterns(client)["patterns"]
    names = {"source": "files", "identity": row["id"], "other": other["id"]}
    bodies = {
        "NewRule": {"kind": "mute", "patterns": [row["pattern"]], "reason": "noise"},
        "NewUndo": {"author": "ann"},
    }
    for path, (_, _, kind) in openapi.CHANGES.items():
        body = json.dumps(bodies[kind.__name__]).encode()
        made = client.post(path.format(**names), body, content_type="application/json")
        assert made.status == 200
        names["rule"] = msgspec.json.decode(made.body, type=Rule).id
        assert made.json() == shaped(document, document["paths"][path]["post"], made.json())
    for path, (_, _, answer) in openapi.OPERATIONS.items():
        for method in ("get", "post") if answer is PatternList else ("get",):
            found = client.ask(method.upper(), path.format(**names))
            assert found.status == 200
            msgspec.json.decode(found.body, type=answer)
            operation = document["paths"][path][method]
            assert found.json() == shaped(document, operation, found.json())


def shaped(document: Any, operation: Any, value: Any) -> Any:
    """Return what a description has names for of an answer; all of it must be there."""

    def part(schema: Any, value: Any) -> Any:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if schema.get("type") == "array" and "items" in schema and schema["items"]:
            return [part(schema["items"], each) for each in value]
        if "anyOf" in schema:
            wanted = [each for each in schema["anyOf"] if each.get("type") != "null"]
            return None if value is None else part(wanted[0], value)
        if "properties" not in schema:
            return value
        assert set(schema["required"]) <= set(value)
        return {name: part(schema["properties"][name], value[name])
                for name in schema["properties"]}  # fmt: skip

    return part(operation["responses"]["200"]["content"]["application/json"]["schema"], value)


def test_every_reference_of_the_description_exists(client: Client) -> None:
    text = client.get("/api/v1/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    used = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert used <= set(schemas)
    assert {"Query", "PatternList", "PatternDetails", "Problem"} <= used

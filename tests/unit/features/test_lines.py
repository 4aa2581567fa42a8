"""Structure inside a line; every table holds for the native kernel as well."""

from __future__ import annotations

import struct
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.errors import RecipeError
from stream_dedup.features import _pieces, kinds, pieces
from stream_dedup.features.lines import ALL_ASSIGNED, MAX_GROUP, LineReader
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.features.tokens import PLACEHOLDER
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.siphash import PUBLIC_KEY, siphash
from stream_dedup.native import extension
from tests.effort import scaled
from tests.strategies import log_lines, raw_bytes

LOGS = load_recipe("logs")
READER = LineReader(LOGS, reference=True)
PAIRS = [(bytes([97 + n]), bytes([107 + n])) for n in range(8)]
NATIVE_READER = LineReader(LOGS)
NATIVE = extension("fingerprint._kernel").Kernel(LOGS, PUBLIC_KEY)
REFERENCE = ReferenceKernel(LOGS, PUBLIC_KEY)


def tokens(text: bytes) -> bytes:
    """The tokens, joined; the kernel's exact hash must be that of these tokens."""
    reading = READER.read(READER.without_escapes(b"so " + text))
    hashes = [
        siphash(PUBLIC_KEY, token.text) ^ (2**64 - 1 if token.text == PLACEHOLDER else 0)
        for token in reading.tokens
    ]
    if reading.variant:
        said = [siphash(PUBLIC_KEY, one.word) for one in reading.variant]
        hashes.append(siphash(PUBLIC_KEY, struct.pack(f"<{len(said)}Q", *said)))
    whole = siphash(PUBLIC_KEY, struct.pack(f"<{len(hashes)}Q", *hashes))
    assert [whole] == list(NATIVE.scan([b"so " + text], full=False).exact)
    return b" ".join(token.text for token in reading.tokens[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # units
        (b"took 12 ms.", b"took <*>"),
        (b"read 3 bytes", b"read <*>"),
        (b"3 KB/s up", b"<*> up"),
        (b"12, ms", b"<*> ms"),
        (b"ms 12", b"ms <*>"),
        (b"/a ms", b"<*> ms"),
        (b"12 ms s", b"<*> s"),
        (b"12 sec\x00", b"<*> sec\x00"),
        # half days and time zones
        (b"at 4:00:02 PM UTC x", b"at <*> x"),
        (b"Nov 24 16:00:02 CEST 2025 x", b"<*> x"),
        (b"at 16:00:02.123 PDT x", b"at <*> x"),
        (b"at 16:00:02 POST x", b"at <*> POST x"),
        (b"at 16 PM UTC x", b"at <*> PM UTC x"),
        # media types, and rulers
        (b"sent text/html, image/svg+xml", b"sent <*>"),
        (b"sent text/Html", b"sent text/Html"),
        (b"TASK [a] ******", b"TASK a"),
        (b"##### a", b"a"),
        (b"*** a", b"*** a"),
        (b"key=**** a", b"key **** a"),
        # identifiers of letters alone
        (b"x sPcjGvUEEbbLIeyA, vTHcjnJiLYePXsaB.", b"x <*>"),
        (
            b"NoSuchElementException HttpURLConnectionImplABC",
            b"NoSuchElementException HttpURLConnectionImplABC",
        ),
        (
            b"getXMLHTTPRequestIOError ToDoListItemIdMap",
            b"getXMLHTTPRequestIOError ToDoListItemIdMap",
        ),
        (b"aBcDeFgHiJKlmTimeout aBcDeFgHIjkL", b"aBcDeFgHiJKlmTimeout aBcDeFgHIjkL"),
        (b"aBcDeFgHiJKlmN aBcDeFgHIjKl_", b"<*> aBcDeFgHIjKl_"),
        # threads
        (b"WARN 105 --- [    main] o.h.e.Helper : gone", b"WARN <*> --- <*> gone"),
        (b"INFO [mail sender] com.acme.Orders - a", b"INFO <*> - a"),
        (b"16:00:02.123 [a b] WARN com.acme.Orders - a", b"<*> WARN <*> - a"),
        (b"INFO [app] [main] com.acme.Orders - a", b"INFO <*> - a"),
        (b"INFO [main] orders are late", b"INFO main orders are late"),
        (b"INFO [SSLError] com.acme.a.Orders - a", b"INFO SSLError <*> - a"),
        (b"x " * 63 + b"INFO [main] com.acme.Orders a", b"x " * 63 + b"INFO main <*> a"),
        (b"got [main] com.acme.Orders - a", b"got main <*> - a"),
        (b"INFO [failed x] com.acme.Orders - a", b"INFO <*> - a"),
        (b"INFO [a[b=c](d=e)] com.acme.Orders - a", b"INFO <*> - a"),
        (b"INFO [a[b[c[d]]]] com.acme.Orders a", b"INFO <*> a"),
        (b"INFO [a[b[c[d[e]]]]] com.acme.Orders a", b"INFO a b c d e <*> a"),
        (b"INFO [" + b"a" * 128 + b"] com.acme.Orders a", b"INFO <*> a"),
        (b"INFO [" + b"a" * 129 + b"] com.acme.Orders a", b"INFO " + b"a" * 129 + b" <*> a"),
        # commands that cron and sudo have run
        (b"USER=root ; COMMAND=/bin/ls failed (a\nb", b"USER root COMMAND <*> b"),
        (b"; COMMAND=/", b"COMMAND <*>"),
        (b"; COMMAND=list all", b"COMMAND list all"),
        (b"a COMMAND=/a b", b"a COMMAND <*> b"),
        (b"; XCOMMAND=/a b", b"XCOMMAND <*> b"),
        (b"f(a ; COMMAND=/a b)", b"f a COMMAND <*> b"),
        (b"(root) CMD (  cd / && (run failed; ls) ) ", b"root CMD <*>"),
        (b"(root) CMDEND (ls a)\nb", b"root CMDEND <*> b"),
        (b"(root) CMD (ls) a", b"root CMD ls a"),
        (b"(root) XCMD (ls a)", b"root XCMD ls a"),
        (b"((root) CMD (ls a))", b"root CMD ls a"),
        (b"(root) CMD ()", b"root CMD"),
        (b"ran CMD (ls a)", b"ran CMD ls a"),
        (b"a" * 130 + b") CMD (ls a)", b"a" * 130 + b" CMD ls a"),
        # threads before a simple name
        (b"10:00:00,123 INFO [main] Orders - a", b"<*> INFO <*> Orders - a"),
        (b"10:00:00,123 - INFO [main x]  Orders : a", b"<*> - INFO <*> Orders a"),
        (b"10:00:00 INFO [a[b=c](d=failed)] X_y$z : a", b"<*> INFO <*> X_y$z a"),
        (b"10:00:00 [main] WARN  Orders - a", b"<*> WARN Orders - a"),
        (b"10:00:00 TID [main] INFO Orders : a", b"<*> TID <*> INFO Orders a"),
        (b"INFO [main] Orders - a", b"INFO main Orders - a"),
        (b"10 INFO [main] Orders - a", b"<*> INFO main Orders - a"),
        (b"INFO [main] Orders - 10:00:00", b"INFO main Orders - <*>"),
        (b"10:00:00 INFO [main] orders - a", b"<*> INFO main orders - a"),
        (b"10:00:00 INFO [main] ORDERS - a", b"<*> INFO main ORDERS - a"),
        (b"10:00:00 INFO [main] Orders a", b"<*> INFO main Orders a"),
        (b"10:00:00 INFO [main] Orders :a", b"<*> INFO main Orders a"),
        (b"10:00:00 INFO [main] Orders-x - a", b"<*> INFO main Orders-x - a"),
        (b"10:00:00 INFO [ReadTimeout] Orders - a", b"<*> INFO ReadTimeout Orders - a"),
        (b"10:00:00 Info [main] Orders - a", b"<*> Info main Orders - a"),
        (b"10:00:00 POST [main] Orders - a", b"<*> POST main Orders - a"),
        (b"10:00:00 x[main] INFO Orders - a", b"<*> x main INFO Orders - a"),
        (b"10:00:00 [main] INFO Orders", b"<*> main INFO Orders"),
        # user agents
        (b'agent="curl/7.88 (failed)" a', b"agent <*> a"),
        (b'by "Mozilla/5.0 (X11; Linux)" a', b"by <*> a"),
        (b'by "kubectl/v1.2 darwin/arm" a', b"by <*> darwin/arm a"),
        (b'by "release/2 failed" a', b"by <*> failed a"),
        (b'by "HTTP/1.1 (failed" a', b"by <*> failed a"),
        (b'msg="curl/7.88 (failed)" a', b"msg <*> failed a"),
        (b'reason "curl/7.88 (failed)" a', b"reason <*> failed a"),
        (b'agent "curl/7.88 (failed)" a', b"agent <*> a"),
        (b"by Mozilla/5.0+(X11;+failed)+a b", b"by <*> b"),
        # groups of hex digits
        (b"at fe80::ab:1 x", b"at <*> x"),
        (b"ab:cd:ef x", b"ab cd ef x"),
        (b"a:b:c:1", b"<*>"),
        (b"a:1", b"a <*>"),
        (b"1:a:2", b"<*>"),
        (b"a :b:1", b"a b <*>"),
        (b"a:::b:1", b"a b <*>"),
        (b"abcde:a:1", b"abcde a <*>"),
        (b"ag:a:1", b"ag a <*>"),
        # paths and hosts
        (b"usr/lib/jvm", b"<*>"),
        (b"a/b", b"a/b"),
        (b"a..b", b"a..b"),
        (rb"a\b.c", b"<*>"),
        (b"./ab", b"<*>"),
        (b"../a", b"<*>"),
        (b"./", b"./"),
        (b"api::v1::Carts#show x", b"<*> x"),
        (b"as Api::V1::CartsController#update x", b"as <*> x"),
        (b"std::bad_alloc x", b"std bad_alloc x"),
        (b"a::b::ReadTimeout a::b::Timeout", b"a b ReadTimeout <*>"),
        (b"a::b:::c::d a::...b::c::d", b"a b c d <*>"),
        (b"from unknown[203.0.113.9]: x", b"from <*> x"),
        (b"from mail[2001:db8::1] x", b"from <*> x"),
        (b"IOError[10.0.0.1] x NodeReady[10.0.0.1]", b"IOError <*> x NodeReady <*>"),
        (b"a[...] b[::] c[::1]d[1..2.3] e[10.0.0.1234]", b"a b <*> d <*> e <*>"),
        (b"[IOError, retry] x [ABORT, y]", b"IOError <*> x ABORT <*>"),
        (
            b"std::io::ErrorKind::NotFound a::IOError::new",
            b"std io ErrorKind NotFound a IOError new",
        ),
        (b"failed[::a] b[1.2.3] c[1.2.3.4 d[12:00:01] e", b"<*> a b <*> c <*> d <*> e"),
        (b"p[b.c.d.e] q x[a:b:c:d:e:f:a:b]", b"p <*> q <*> a b c d e f a b"),
        (b"y[a:b:c:d:e:f:a]", b"y a b c d e f a"),
        (b"example.com", b"<*>"),
        (b"Example.COM.", b"<*>"),
        (b"example.test", b"example.test"),
        (b".com", b".com"),
        (b"a/b.com", b"<*>"),
        # what separates
        (b'err="for \\"web\\" \\\\\\"x" a\\b \\', b"err for web x a\\b \\"),
        (b"res=ok\x1dAUID=\x1croot\x1ea\x1fb", b"res ok AUID root a b"),
        (b"x 'a\x1db' y", b"x <*> y"),
        (b"wait...now", b"wait now"),
        (b"a.. b", b"a.. b"),
        (b"---- x --- -----", b"x ---"),
        (b"\x1b[1;31mred\x1b[0m x", b"red x"),
        (b"a\x1b(Bb\x1b#8c\x1bMd\x1b", b"a b c d"),
        (b"a\x1b[1", b"a <*>"),
        (b"#033[1;31mred#033[0m#033[K x", b"red x"),
        (b"a #033[1\t\tq#033c #0331 x #012 y#012", b"a <*> q c <*> x <*> y"),
        (
            b"x='a'#012y='b'#012z='c d' (a=#012b=c) (n='foo'#011d)",
            b"x <*> y <*> z <*> a b <*> n <*> d",
        ),
        # values
        (b"Node(id=7, rack=eu)", b"Node id <*> rack <*>"),
        (b"Node(rack=eu west)", b"Node rack <*> west"),
        (b"rack=eu", b"rack eu"),
        (b"to=<a>, (from=<>) x=<b c> y=<'d'> z=<e", b"to <*> from <*> x b c y <*> z e"),
        (b"msg=<a> peer=<nil> x<b> y= <c>", b"msg a peer nil x b y c"),
        (b"x(a=, b=)", b"x a <*> b <*>"),
        (b"x(a=Any(b))", b"x a Any b"),
        (b"(a=<none>)", b"a <*>"),
        (b"(a: b)", b"a <*>"),
        (b"(a: b c)", b"a b c"),
        (b"(a:b) (a:b c)", b"a b a b c"),
        (b"(a::b c)", b"a b c"),
        (b"[main] x", b"main x"),
        (b"x=[a, b] y=[]", b"x <*> y <*>"),
        (b"for [a.b, c] x [a,b,c]: [d]", b"for <*> x <*> d"),
        (b"for [a, b c] [a,, b] [a,  b] [a, b x [a, (b)]", b"for a b c a b a b a b x a b"),
        (b"[a, failed] x [[b, c]] [d=e, f]", b"<*> x <*> d <*> f"),
        (b"x [a, b]", b"x <*>"),
        (b"x=[[a, b], [c]]", b"x <*>"),
        (b"(type=user, msg=gone)", b"type user msg gone"),
        (
            b"(newState=a, http_phase=b, AN_ACTION=c) (last.verdict=d)",
            b"newState a http_phase b AN_ACTION c last.verdict d",
        ),
        (
            b"(http_method=a, requestMethod=b, http.method=c)",
            b"http_method a requestMethod b http.method c",
        ),
        (
            b"(pay_method=a, method_http=b, _method=c)",
            b"pay_method <*> method_http <*> _method <*>",
        ),
        (
            b"(event_type=a, errorType=b, x.alarm_name=c, ACTION_NAME=d)",
            b"event_type a errorType b x.alarm_name c ACTION_NAME d",
        ),
        (
            b"(user_name=a, prevent_type=b, name=c, Type=d)",
            b"user_name <*> prevent_type <*> name <*> Type d",
        ),
        (b"(direction=in, effect=a, roles=b)", b"direction in effect a roles <*>"),
        # roles
        (
            b"(role=leader, x=a) (mode: Standby) (mode: on)",
            b"role leader x <*> mode Standby mode <*>",
        ),
        (b'{"role":"Replica","mode": "MASTER", "role":"x"}', b"role Replica mode MASTER role <*>"),
        (b"(role='leader', role='admin', myrole='leader')", b"role leader role <*> myrole <*>"),
        (b'role "leader" role "admin" y', b"role leader role <*> y"),
        # JSON
        (b'{"a": "b c", "d": tru, "e": []}', b"a <*> d <*> e <*>"),
        (b'"a": "b c"', b"a <*>"),
        (b'{"a": ""}', b"a <*>"),
        (b'{"a": {"b": "c"}}', b"a b <*>"),
        (b'{"a": ["b c", "d"]}', b"a <*>"),
        (rb'{"a": "b \" c", "d": 1}', b"a <*> d <*>"),
        (b'{"a": "cut off', b"a cut off"),
        (b'{"a": "two\nlines"}', b"a two lines"),
        (b'{"a": "two\\\nlines"}', b"a two\\ lines"),
        (b'{"msg": "user gone", "user": "al b"}', b"msg user gone user <*>"),
        # names of files and units
        (b"loading app_v.pdf, Report.JSON and nginx.service.", b"loading <*> and <*>"),
        (b"at kubelet.go app.db console.log a.b", b"at kubelet.go app.db console.log a.b"),
        # access logs
        (b'"GET /a HTTP/1.1" 200 1 "x y" z', b"GET <*> z"),
        (b'"GET / HTTP/2" 200 - "-" "x (y; z)"', b"GET <*> - <*>"),
        (b'"OPTIONS * HTTP/1.0" 200 x "y \\" z" "v w"', b"OPTIONS <*> x y z <*>"),
        (b'"GET / HTTP/1.1" 200 "x" error="x (y)" a b "c d"', b"GET <*> error x y a b c d"),
        (b'"GET / HTTP/1.1" 200 7 "a "b" c d"', b"GET <*> b c d"),
        (b'"GET / HTTP/1.1" 200 "" "c d', b"GET <*> c d"),
        (b'"GET HTTP/1.1" 200 "c d"', b"GET <*>"),
        # neither
        (b'"GET /a HTTP/1.1" "x y"', b"GET <*> x y"),
        (b'"GET / HTTP/1.1" 2000 "x y"', b"GET <*> x y"),
        (b'request="GET / HTTP/1.1" 200 agent="x y"', b"request GET <*> agent x y"),
        (b'"GET / HTTP/1.1" 200 got "x y"', b"GET <*> got x y"),
        (b'"GET / HTTP" 200 "x y"', b"GET <*> HTTP <*> x y"),
        (b'"GET / HTTP/1.1', b"GET <*>"),
        (b"GET  / of / and", b"GET <*> of / and"),
        (b'"PUBLISH / HTTP/1.1" 200 "x y"', b"PUBLISH / <*> x y"),
        (b'"GET" x / HTTP/1.1" "x y"', b"<*> x / <*> x y"),
        # strings
        (b"by 'al b' x", b"by <*> x"),
        (b"by '' x", b"by <*> x"),
        (b"by 'al b c' x", b"by al b c x"),
        (b"b'al b c' (x='al b c') y=['al b c']", b"<*> x <*> y <*>"),
        (b"don't x's", b"don t x s"),
        (b"got b'x y' u'z'", b"got <*>"),
        (b"{'a': 'b c', 'd': No}", b"a <*> d <*>"),
        (b"'al'@'home'", b"<*> @ <*>"),
        (b'(x="a b")', b"x <*>"),
        (b'x="a b"', b"x a b"),
        (b'table "accounts" x', b"table <*> x"),
        (b'table "a b" x', b"table a b x"),
        (b'7 "a" ("b") ["c" x', b"<*> a b c x"),
        (b'key "a": x "b" = y', b"key <*> x b y"),
        (b'key "a" : x, key "b":x, key "c": 1', b"key a x key b x key c <*>"),
        (b'{key "a": x}', b"key a <*>"),
        (b'config "a": null, "b": trues', b"config a null b trues"),
        (b'config "a": nulls', b"config <*> nulls"),
        (b'state "idle" x ""', b"state idle x"),
        (rb'table "a\"b" "c', b"table a b c"),
        # addresses
        (b"got http://a.b/c?d=e,f&g=h now", b"got <*> now"),
        (b"<GET ftp://a/b> http://a, x", b"GET <*> x"),
        (b"http://a/b: c tcp://x", b"<*> c <*>"),
        (b"GET /a?b=c&d=failed, then /e", b"GET <*> then <*>"),
        (b"path=/v1/a?id=3,status=200,outcome=ok", b"path <*> status <*> outcome ok"),
        (b"GET /v1/a?id=3;outcome=failed", b"GET <*> outcome failed"),
        (b"/a?b=(c) /? x? a/b?c=d", b"<*> x? a/b?c d"),
        (b'at {pid: 1, node: "a b", error: "no space"}', b"at pid <*> node <*> error no space"),
        (b"a://b\x1b[mx c:/d ://e", b"<*> x c <*>"),
        (b"Monday a://7 x", b"<*> x"),
        # optional values
        (b"to Optional[(a=b, c=[d e])] x", b"to <*> x"),
        (b"to Optional.empty. x", b"to <*> x"),
        (b"to OptionalInt.empty OptionalLong[7] x", b"to <*> x"),
        (b"x(a=Some(b c), d=Some(e) f) g", b"x a <*> d <*> f g"),
        (b"Optional(a b", b"<*>"),
        (b"Some a Optional.x Optional {b}", b"Some a Optional.x Optional b"),
        (b"reason: Optional[gone away]", b"reason Optional gone away"),
        # absent values
        (b"{'a': None, 'b': 'c'} (d=null)", b"a <*> b <*> d <*>"),
        (b"a=none b: nil", b"a none b nil"),
        # lists of alike items
        (b"[(a 1), (a 2), (a 3)] x", b"a <*> x"),
        (b"x 1 y x 2 y x 3", b"x <*> y x <*>"),
        (b"a b a b", b"a b a b"),
        (b"p 1, a 2, a 3 q", b"p <*> a <*> q"),
        (b"p 1 a 2 a 3 q", b"p <*> a <*> a <*> q"),
        (b"a 1; a 2 a 3 q", b"a <*> a <*> q"),
        (b"a=1 a=2 a=3 q", b"a <*> q"),
        (b"[a 1] [a 2] q", b"a <*> q"),
        (b"a 1 | a 2 | a 3 q", b"a <*> q"),
        (b"a 1,2 a 3 q", b"a <*> a <*> q"),
        (b"a b 1 a b 2 q", b"a b <*> q"),
    ],
)
def test_tokens_of_a_structured_line(text: bytes, expected: bytes) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize("size", [2, MAX_GROUP, MAX_GROUP + 1])
def test_a_group_of_at_most_so_many_tokens_is_kept_once(size: int) -> None:
    group = b" ".join([*(b"w" + b"x" * n for n in range(size - 1)), b"1"])

    kept = tokens(b", ".join([group] * 5)).count(PLACEHOLDER)
    assert kept == (1 if size <= MAX_GROUP else 5)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"level":"error","id":1}', '{"level":"info","id":1}'),
        ('{"status":"FAILED","id":1}', '{"status":"OK","id":1}'),
        ("job(id=1, status=FAILED)", "job(id=1, status=OK)"),
        ("x {ok: false, n: 1}", "x {ok: true, n: 1}"),
        ("x {'ok': False, 'n': 1}", "x {'ok': True, 'n': 1}"),
        ("run 'it failed' 1", "run 'it passed' 1"),
        ("items=[(ok=true, n=1), (ok=false, n=2)]", "items=[(ok=true, n=1), (ok=true, n=2)]"),
        ('{"status": 200, "n": 1}', '{"status": 503, "n": 1}'),
        ('{"a": {"status":"500"}}', '{"a": {"status":"200"}}'),
        ("\x1b[31mERROR\x1b[0m disk is slow", "\x1b[33mWARN\x1b[0m disk is slow"),
        ("#033[31mERROR#033[0m disk is slow", "#033[33mWARN#033[0m disk is slow"),
        ("run a failed#012#011at 1", "run a passed#012#011at 1"),
        ("run a: #012failed x", "run a: #012passed x"),
        ("run b failed#0117 x#011y", "run b passed#0117 x#011y"),
        ("run c failed#000", "run c passed#000"),
        ("run d failed#012  at x", "run d passed#012  at x"),
        ("a.b state=<failed>, n 1", "a.b state=<passed>, n 1"),
        ("to=<bob> status=<idle> 1", "to=<bob> status=<busy> 1"),
        # what says what happened, without a protected word
        ('{"msg":"user alice logged in","n":1}', '{"msg":"disk is nearly full","n":1}'),
        ("task 7: 'quota of disk exceeded'", "task 7: 'network is slow today'"),
        ('{"alert":"disk full","n":1}', '{"alert":"cpu hot","n":1}'),
        ('{"event":"login","n":1}', '{"event":"logout","n":1}'),
        ("(state=idle, n=1)", "(state=busy, n=1)"),
        ('{"a":"x","b":"y"}', '{"a":"x","c":"y"}'),
        ('{"error":null,"n":1}', '{"error":"timeout","n":1}'),
        ("job is none, n 1", "job is nil, n 1"),
        ("to Optional[(ok=true)] x", "to Optional[(ok=false)] x"),
        ('job "failed" at 1', 'job "passed" at 1'),
        ('operation "copy" of 1', 'operation "move" of 1'),
        ("failed with result 'exit-code'", "failed with result 'oom-kill'"),
        ('{"errorMessage":null,"n":1}', '{"errorMessage":"disk is full","n":1}'),
        ('{"errorCode":"AccessDenied","n":1}', '{"errorCode":"Throttling","n":1}'),
        ('{"eventName":"GetBucketAcl","n":1}', '{"eventName":"StopLogging","n":1}'),
        ("order(order_status=paid, n=1)", "order(order_status=chargeback, n=1)"),
        ("(LAST_ERROR=none, n=1)", "(LAST_ERROR=reset, n=1)"),
        ("failed: java.net.ConnectException", "failed: java.lang.OutOfMemoryError"),
        ("failed: requests.exceptions.ConnectionError.", "failed: sqlalchemy.exc.IntegrityError."),
        ('a.go:7] "RemoveContainer" id="x"', 'a.go:7] "SyncLoop" id="x"'),
    ],
)
def test_structure_hides_no_difference_that_counts(left: str, right: str) -> None:
    lines = [left.encode(), right.encode()]
    decisions = Deduplicator("logs").process(lines)
    assert decisions[0].cluster != decisions[1].cluster
    for line in lines:
        tokens(line)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Got Node(id=1, state=null, host='a b')", "Got Node(id=2, state=null, host='')"),
        ('{"user":"al","tags":["a"],"n":1}', '{"user":"bob b","tags":[],"n":2}'),
        ("parts=[P(n=1, ok=true)]", "parts=[P(n=1, ok=true), P(n=2, ok=true), P(n=3, ok=true)]"),
        ("took 5 ms", "took 5 s"),
        ('{"rack":null,"n":1}', '{"rack":"eu west","n":2}'),
        ("Crawled (referer: None)", "Crawled (referer: http://a/b)"),
        ("sent to: ftp://a/b x", "sent to: http://c/d?e=f x"),
        ("set to Optional.empty", "set to Optional[(offset=7, segment=[0:9])]"),
        ('drop index "a_key" x', 'drop index "b_key" x'),
        ('{"statusText":"a","barcode":"b","n":1}', '{"statusText":"c","barcode":"d","n":2}'),
        ('{"countryCode":"DE","commitMessage":"a b"}', '{"countryCode":"US","commitMessage":"c"}'),
        ("at java.net.Socket.connect 1", "at java.lang.Thread.run 2"),
        ("\x1b[1mstarting\x1b[0m a", "starting a"),
        ("#033[1mstarting#033[0m a#015", "starting a"),
        # numbers, not control characters
        ("worker#011: started", "worker#018: started"),
        ("order#0000998 shipped to customer", "order#0120000 shipped to customer"),
        ("style bg=#000", "style bg=#fff0"),
        ("channel (#012) joined now", "channel (#018) joined now"),
        ("slot #012 released", "slot #123 released"),
        ("user=<ann>, session=<aBc+/d>, from=<>", "user=<bob@a.b>, session=<x>, from=<c>"),
        ("x (peer=<nil>, n=1)", "x (peer=eu, n=2)"),
    ],
)
def test_lines_that_differ_in_values_alone_are_one(left: str, right: str) -> None:
    decisions = Deduplicator("logs").process([left.encode(), right.encode()])
    assert decisions[0].cluster == decisions[1].cluster


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b'<34>1 2003-10-11T22:14:15.003Z h app - ID47 [ex@32473 iut="3" src="x y"] gone',
            '<number> <timestamp> <*> app - <*> [<*> iut="<number>" src="<*>"] gone',
        ),
        # the host in the head of a line of syslog
        (b"Nov 24 16:00:00 atlas sshd[7]: x", "<timestamp> <*> sshd[<number>]: x"),
        (b"<13>Nov  4 16:00:00 at.las cron: x", "<number><timestamp> <*> cron: x"),
        (b"2026-11-24T16:00:00.123+01:00 atlas su[7]: x", "<timestamp> <*> su[<number>]: x"),
        (b"2026-11-24T16:00:00Z atlas su: x", "<timestamp> <*> su: x"),
        (b"2026-11-24T16:00:00+0 atlas su[7]: x", "<*> atlas su[<number>]: x"),
        (b"Nov 24 16:00:00 INFO main: x", "<timestamp> INFO main: x"),
        (b"Nov 24 16:00:00 atlas last message", "<timestamp> atlas last message"),
        (b"x Nov 24 16:00:00 atlas su: x", "x <timestamp> atlas su: x"),
        (b"Nov 24 16:00:00 " + b"a" * 65 + b" su: x", "<timestamp> " + "a" * 65 + " su: x"),
        (
            b"Nov 24 16:00:00 a " + b"s" * 61 + b"[7]: x",
            "<timestamp> <*> " + "s" * 61 + "[<number>]: x",
        ),
        (
            b"Nov 24 16:00:00 a " + b"s" * 62 + b"[7]: x",
            "<timestamp> a " + "s" * 62 + "[<number>]: x",
        ),
        (b"Nov 24 16:00:00 client error: x", "<timestamp> client error: x"),
        (b"Nov 24 16:00:00 error worker[7]: x", "<timestamp> error worker[<number>]: x"),
        (b"Nov 24 16:00:00 fw %ASA-6-x: x", "<timestamp> <*>: x"),
        (b"Nov 24 16:00:00 fw CRON: x", "<timestamp> <*> CRON: x"),
        (b"Nov 24 16:00:00 fw Charon: x", "<timestamp> <*> Charon: x"),
        (b"Nov 24 16:00:00 fw NetworkManager: x", "<timestamp> <*> NetworkManager: x"),
        (b"Nov 24 16:00:00 fw su : x", "<timestamp> fw su : x"),
        # as network equipment writes it
        (b"Mar 18 2026 06:03:56 fw-dc : %ASA-4-x: a", "<timestamp> <*>: a"),
        (b"Mar 18 2026 06:03:56 fw-dc %ASA-4-x: a", "<timestamp> <*>: a"),
        (b"2026 Mar 18 06:03:56 nx %ETHPORT-5-IF_UP: a", "<number> <timestamp> <*>: a"),
        (
            b"Mar 18 06:03:56 nx : 2026 Mar 18 06:03:56 UTC: %A-5-B: a",
            "<timestamp> <*> : <number> <timestamp>: <*>: a",
        ),
        (
            b"Mar 18 06:03:56 RTR 7: *Mar 18 06:03:56.123: %SYS-5-C: a",
            "<timestamp> <*> <number>: <*>: a",
        ),
        (
            b"Mar 18 06:03:56 rtr: 7: rtr: .Mar 18 06:03:56: %SYS-SP-5-C: a",
            "<timestamp> <*>: <number>: <*>: a",
        ),
        (b"Mar 18 2026 06:03:56: %ASA-4-x: a", "<timestamp>: <*>: a"),
        (b"Mar 18 06:03:56 rtr lost %SYS-5-C: a", "<timestamp> rtr lost <*>: a"),
        (b"Mar 18 06:03:56 rtr 7: %SYS: a", "<timestamp> rtr <number>: %SYS: a"),
        (b"Mar 18 06:03:56 rtr 7: %SYS-5-C a", "<timestamp> rtr <number>: <*> a"),
        (b"Mar 18 06:03:56 INFO 7: %SYS-5-C: a", "<timestamp> INFO <number>: <*>: a"),
        (b"<13>Oct 11 22:14:15 host su: root", "<number><timestamp> <*> su: root"),
        (b"<13>hello 1", "<number>hello <number>"),
        (b"[2024-01-01 10:00:00] [INFO] x", "[<timestamp>] [INFO] x"),
        (b"x [1] [2] {3}", "x [<number>] [<number>] {<number>}"),
        (b"\x1b[31mERROR\x1b[0m: a 1", "ERROR: a <number>"),
        (b'{"level":"error","user":"al b"}', '{"level":"error","user":"<*>"}'),
        (b"[(a=1, b=x), (a=2, b=y)] z", "[(a=<number>, b=<*>)] z"),
        (b"x=[] y", "x=[<*>] y"),
        (b"took 12 ms", "took <number> <unit>"),
        (b"[<02114408>] do_page_fault+0x12f/0x446", "[<number>] do_page_fault+<*>"),
        (b"/usr/lib64/x2 7", "/usr/<*> <number>"),
        (b"12 7 4", "12 7 4"),
    ],
)
def test_patterns_of_structured_lines(line: bytes, expected: str) -> None:
    assert Patterns(LOGS).pattern(line) == expected
    assert NATIVE_READER.read(line) == READER.read(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'"Reconciling" namespace="aa" name="qa" n="1"', [b"aa", b"qa"]),
        (b"user=ann host=web, n=1", [b"ann", b"web"]),
        (b'a="two words" b="x y c="z" d=y" e=x(k="v") msg="w" f=""', [b"z"]),
        (b'["k="v" k="w"', []),
        (b'="a" b="c', [b"a"]),
    ],
)
def test_words_that_are_values_of_keys_are_assigned(line: bytes, words: list[bytes]) -> None:
    assert [token.text for token in READER.read(line).tokens if token.assigned] == words
    assert _pieces.pieces(line) == pieces.pieces(line)


def test_quoted_values_of_keys_are_learned_together() -> None:
    given = [b'"Reconciling" namespace="%b" name="%b"' % (a * 2, b * 2) for a, b in PAIRS]
    clusters = {decision.cluster for decision in Deduplicator("logs").process(given)[-3:]}
    assert len(clusters) == 1


def record(pairs: int, value: bytes) -> bytes:
    """A line of `pairs` keys with values."""
    keys = (bytes([97 + n // 26, 97 + n % 26]) for n in range(pairs))
    return b" ".join(b"%b=%b" % (key, value) for key in keys)


def test_values_of_keys_are_variables_in_lines_of_many_words() -> None:
    line = record(24, b"ann")
    assert PLACEHOLDER.decode() not in Patterns(LOGS).pattern(line)
    line += b" type=traffic action=deny code=7 status=500 rest"
    assert Patterns(LOGS).pattern(line) == (
        record(24, b"<*>").decode() + " type=traffic action=deny code=<number> status=<5xx> rest"
    )
    assert tokens(line) == tokens(line.replace(b"ann", b"bob"))
    assert tokens(line) != tokens(line.replace(b"deny", b"accept"))
    assert NATIVE_READER.read(line) == READER.read(line)


def test_lists_in_lines_of_many_words_are_shown_once() -> None:
    line = record(30, b"ann") + b" x=bob 1, x=bob 2, x=bob 3 rest"
    shown = record(30, b"<*>").decode() + " x=<*> <number> rest"
    assert Patterns(LOGS).pattern(line) == shown
    assert NATIVE_READER.read(line) == READER.read(line)


def test_repeats_do_not_make_a_line_one_of_many_words() -> None:
    few, many = (b"report zone=eu tier=gold items: " + b", ".join([b"disk 1"] * n) for n in (3, 60))
    assert tokens(few) == tokens(many) == b"report zone eu tier gold items disk <*>"
    assert NATIVE_READER.read(many, lists=False) == READER.read(many, lists=False)
    assert NATIVE_READER.read(many) == READER.read(many)


@pytest.mark.parametrize(
    ("line", "nested"),
    [
        (b"created Order(note (by van), id) at noon", [b"note", b"by", b"van", b"id"]),
        (b'{"msg": "took a box", "k": {"n": 1}} now', [b"msg", b"k", b"n"]),
        (b"f(msg='took a box', k='a b', n=1) now", [b"msg", b"k", b"n"]),
        (b"took (a box) and (never [closed] it", [b"a", b"box"]),
        (b"(took [a box] home", []),
        (b"took [a box (and) more", [b"a", b"box", b"and", b"more"]),
    ],
)
def test_words_in_brackets_are_nested(line: bytes, nested: list[bytes]) -> None:
    assert [token.text for token in READER.read(line).tokens if token.nested] == nested
    assert _pieces.pieces(line) == pieces.pieces(line)


def test_a_pattern_shows_values_of_keys_that_are_learned() -> None:
    line = b"login refused; uid=root tty=console user=ann state=up"
    assert Patterns(LOGS).pattern(line, learned=1 << ALL_ASSIGNED) == (
        "login refused; uid=<*> tty=<*> user=<*> state=up"
    )
    line = b"cache lookup hit=true user=ann"
    assert Patterns(LOGS).pattern(line, learned=1 << ALL_ASSIGNED) == (
        "cache lookup hit=true user=<*>"
    )


PIECES = st.sampled_from(
    [
        *(b" ", b" ", b", ", b": ", b"=", b"(", b")", b"[", b"]", b"{", b"}", b'"', b"'", b"b'"),
        *(b"; COMMAND=/a ", b"; COMMAND=", b") CMD (a ", b") CMD (", b") CMDEND (", b") \n"),
        *(b"<", b">", b'":"', b'": ', b"\\", b"\\'", b"\n", b"\x1b", b"\x1b[1m", b":", b"::"),
        *(b"=<", b"=<nil>", b"#033[1m", b"#033", b"#012", b"#011", b"#", b"#0", b"#033(B", b"=<>"),
        *(
            b"...",
            b"..",
            b"----",
            b"--",
            b".",
            b"/",
            b"a",
            b"ms",
            b"ab",
            b"12",
            b"1",
            b"msg",
            b"ok",
        ),
        *(
            b"tty",
            b"tty=",
            b"x_y+0x1f",
            b"\x1anumber",
            b"Monday",
            b"/failed/",
            b"level=info",
            b"user=info",
        ),
        *(
            b"Nov 24 16:00:00 ",
            b"<13>",
            b"2026-11-24T16:00:00",
            b".12Z ",
            b"+01:00 ",
            b"atlas ",
            b"su[7]: ",
            b"Mar 18 2026 06:03:56 ",
            b"2026 Mar 18 06:03:56 ",
            b"fw : ",
            b"fw: ",
            b"7: ",
            b"*Mar 18 06:03:56.1: ",
            b"UTC: ",
            b"%SYS-5-C: ",
            b"%A_B-SP-5-x: ",
        ),
        *(
            b'"x": ',
            b"x ",
            b"GET / ",
            b"+up",
            b"-up",
            b": UP(",
            b"Operation = ",
            b" = ",
            b"exitCode 0",
            b", ",
        ),
        *(b"responded 200", b"Sent 200 in ", b"3 errors", b"0 failures", b"finished with code "),
        *(b'"GET ', b'"GET / HTTP/1.1" 200 ', b' HTTP/1.1" 404', b" HTTP/2", b'"x y" ', b' "-"'),
        *(b"newState", b"http_method", b"event_type", b"ACTION_NAME", b"x.aType", b"direction"),
        *(
            b"role=",
            b"(role: ",
            b"mode",
            b" = ",
            b"leader",
            b"'Standby'",
            b'"REPLICA"',
            b"_method=",
        ),
        *(b"sPcjGvUEEbbLIeyA", b"vTHcjnJiLY", b"ePXsaB", b"XsA", b"lower", b"UPPER"),
        *(b"errorCode", b"LAST_ERROR", b"job_Status", b"x1Err", b"result ", b'="ab"', b"n't"),
        *(b"1/FAILED", b"a.b.c", b"Exception", b"x.y.ZError", b"/Error"),
        *(b"Optional", b"Some", b"Optional.empty", b"null", b"None", b"://", b"http://x/"),
        *(
            b"[::a]",
            b"[10.0.0.1]",
            b"a::b::c",
            b"::ZError",
            b"k=a:b",
            b"\x1d",
            b'\\"',
            b'=\\"',
            b'="<',
        ),
        *(b"NodeNotReady", b"session_open", b"on-x-deleted", b"a_", b"A", b"\x1f"),
        *(b"4:00:02 ", b"12:30.5 ", b"AM ", b"PM", b"UTC ", b"****", b"#####", b"text/html"),
        *(
            b"10:00:00 INFO [",
            b"] Orders - ",
            b"] INFO Orders : ",
            b"] X_y : ",
            b"[a[b](c=d)] ",
            b"INFO",
        ),
        *(b"INFO ", b"WARNING ", b"--- ", b"[main] ", b"[a b] ", b"com.acme.Foo ", b".m.a.Ex:"),
        *(b'"curl/7.8', b"curl/v7", b" X/1 ", b"Mozilla/5.0 (", b"Mozilla/5.0+(", b"+(", b";+a"),
        *(b"was moved", b"being ", b"is ", b"paid ", b"state UP_ ", b"role ", b"LEADER "),
        *(b" - 404 - ", b"GET http://a/b", b" - a/b 3", b"Request finished in 1.2ms 404", b"::1"),
        *(b"failed", b"a.com", b"x/y/z", b"./a", b"Mon", b"status", b"200", b"\xc3\xa9", b"\x00"),
    ]
)
structured_lines = st.builds(
    lambda before, group, times, after: before + group * times + after,
    st.lists(PIECES, max_size=20).map(b"".join),
    st.lists(PIECES, max_size=8).map(b"".join),
    st.integers(1, 4),
    st.lists(PIECES, max_size=8).map(b"".join),
)


@settings(max_examples=scaled(500))
@given(st.lists(structured_lines | log_lines, max_size=6))
@example([b'12...null":"12...null":"'])  # an outcome behind a number and a run, in a string
@example([b"/abc Apr 0 /abc Apr 0"])  # calendar names that repeat, in a line of variables
def test_the_native_kernel_reads_the_same_structure(texts: list[bytes]) -> None:
    assert REFERENCE.scan(texts, full=True) == NATIVE.scan(texts, full=True)


@settings(max_examples=scaled(500))
@given(structured_lines | log_lines | raw_bytes)
@example(b"\x1a12\x1a k=\x1aname, [~/x a@b 1.2.3.a]")  # substitutes, and the other classes
def test_native_pieces_equal_the_reference(line: bytes) -> None:
    assert _pieces.pieces(line) == pieces.pieces(line)
    assert NATIVE_READER.read(line) == READER.read(line)


@given(structured_lines)
def test_tokens_are_in_order_and_words_verbatim(line: bytes) -> None:
    at = 0
    for token in READER.read(line).tokens:
        assert at <= token.start <= token.end
        assert token.variable or line[token.start : token.end] == token.text
        at = max(token.end, token.until)
    assert at <= len(line)


SAME_CLOSE = (b"k=[", b',\x1b\\"', b'" ' + b" " * 30_000 + b"x")
"""All these strings end at the same quote: an escaped one begins another, but ends none."""


@pytest.mark.parametrize(
    ("head", "piece", "tail"),
    [
        *((b"", piece, b"") for piece in (b"a ", b"'a ", b' "a', b'{"', b"[", b"a=[", b"a...")),
        *((b"", piece, b"") for piece in (b"----", b"\x1b[", b"ab:", b"1:", b"x 1 ", b"'a' : ")),
        *(
            (b"", piece, b"")
            for piece in (b"b'", b"a.", b"\\'", b"a b c d 1 ", b'":"', b"[,\t", b"a!")
        ),
        *((b"", piece, b"") for piece in (b"a://,", b"Some(", b'x "', b'x "a\\"')),
        *((b"", piece, b"") for piece in (b"INFO [a", b"10:00:00 INFO [", b"[a] INFO A")),
        (b"Mar 18 06:03:56 fw ", b"%A-", b"5-C: "),
        *((b"Mar 18 06:03:56 fw ", piece, b"%A-5-C: ") for piece in (b"7: ", b"*", b"a", b": ")),
        *((b"", piece, b"") for piece in (b"=<", b"a#012", b"#033[", b"#", b"k=<a")),
        (b"a" * 100_000, b"=<>", b""),
        (b"A_" * 50_000, b"=''", b""),
        SAME_CLOSE,
    ],
)
def test_hostile_lines_take_time_in_proportion_to_their_length(
    head: bytes, piece: bytes, tail: bytes
) -> None:
    recipe = replace(LOGS, input__max_bytes=1 << 24)
    kernel = extension("fingerprint._kernel").Kernel(recipe, PUBLIC_KEY)
    started = process_time()
    kernel.scan([head + piece * 100_000 + tail * 20], full=True)
    assert process_time() - started < 2  # quadratic time would be minutes

    small = head + piece * 300 + tail[:300]
    assert REFERENCE.scan([small], full=True) == NATIVE.scan([small], full=True)


def test_message_keys_are_shorter_than_what_is_read_of_a_key() -> None:
    assert max(map(len, kinds.MESSAGE_KEYS | kinds.OUTCOME_KEYS)) < kinds.MAX_KEY
    for key in (
        b"a" * 99 + b"_event_type",
        b"a" * 20 + b"_message_name",
        b"event" + b"A" * 32 + b"Type",
        b"a" * 99 + b"_status",
        b"a" * 99 + b"Error",
        b"_" + b"A" * 99,
        b"a" * 99 + b"msg",
    ):
        tokens(b"x(%b=<b>, %b='c')" % (key, key))


def test_structure_needs_the_delimiters_of_logs() -> None:
    with pytest.raises(RecipeError) as raised:
        replace(LOGS, features__delimiters="word")
    assert str(raised.value).endswith(
        "text.classes: is 'structured', but features.delimiters is 'word'; "
        "set it to true, or features.delimiters to 'log'"
    )


def test_an_unknown_kind_of_classes_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"text\.classes"):
        replace(LOGS, text__classes="structure")


@pytest.mark.parametrize(
    ("text", "word", "is_one"),
    [
        ("document 17 was moved by ann", "moved", True),
        ("order 17 has been paid", "paid", True),
        ("it is used now", "used", True),
        ("this used now", "used", False),
        ("was karen here", "karen", False),
        ("was Moved by", "Moved", False),
        ("now in state SECONDARY", "SECONDARY", True),
        ("role LEADER of", "LEADER", True),
        ("user LEADER of", "LEADER", False),
        ("in state Secondary", "Secondary", False),
        ("role Leader of", "Leader", True),
        ("mode=standby x", "standby", True),
        ("mode = standby x", "standby", True),
        ('"role": "follower"', "follower", True),
        ("role: follower", "follower", True),
        ("role=admin", "admin", False),
        ("myrole=leader", "leader", False),
        ("role, leader", "leader", False),
        ("newState=idle", "idle", True),
        ("errorType=quota", "quota", True),
        ("userType=quota", "quota", False),
        ("title SECONDARY", "SECONDARY", False),
    ],
)
def test_what_was_done_and_states_in_capitals_are_kinds(text: str, word: str, is_one: bool) -> None:
    start = text.index(word)
    assert kinds.names_kind(text.encode(), start, start + len(word)) is is_one

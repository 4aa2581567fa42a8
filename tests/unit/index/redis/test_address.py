from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.address import Address, parse


@pytest.mark.parametrize(
    ("url", "kind", "secure", "hosts", "path", "database"),
    [
        ("redis://h", "standalone", False, [("h", 6379)], "", 0),
        ("redis://h:1/3", "standalone", False, [("h", 1)], "3", 3),
        ("rediss://[::1]:7000", "standalone", True, [("::1", 7000)], "", 0),
        ("redis://", "standalone", False, [], "", 0),
        ("unix:///run/redis.sock", "unix", False, [], "/run/redis.sock", 0),
        ("redis+cluster://a:1,b", "cluster", False, [("a", 1), ("b", 6379)], "", 0),
        ("rediss+cluster://a/0", "cluster", True, [("a", 6379)], "0", 0),
        ("redis+sentinel://a,b:2/logs", "sentinel", False, [("a", 26379), ("b", 2)], "logs", 0),
    ],
)
def test_urls_name_every_way_to_deploy(
    url: str, kind: str, secure: bool, hosts: list[tuple[str, int]], path: str, database: int
) -> None:
    assert Address(kind, secure, hosts, path, database, None, None) == parse(url)


def test_credentials_may_hold_any_character() -> None:
    address = parse("redis://us%40er:p%3A%2F%40ss@h")
    assert (address.username, address.password) == ("us@er", "p:/@ss")
    assert parse("redis://:secret@h")[-2:] == (None, "secret")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:secret@h:1/2", "redis://h:1/2"),
        ("rediss+cluster://:secret@a,b:2", "rediss+cluster://a:6379,b:2"),
        ("unix://u:secret@/run/r.sock", "unix:///run/r.sock"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert str(parse(url)) == shown


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://u:secret@h", "redis://"),
        ("h:6379", "redis://"),
        ("redis://u:secret@h:port", "host:port"),
        ("redis://u:secret@h:99999", "host:port"),
        ("redis+cluster://u:secret@,", "host:port"),
        ("redis://u:sec/secret@h", "%2F"),
        ("redis://u:2024/secret@h:6379/0", "%2F"),
        ("redis+sentinel://u:123/secret@h/name", "%2F"),
        ("redis+cluster://u:/secret@h", "%2F"),
        ("unix://u:pa/secret@/run/redis.sock", "%2F"),
        ("redis://u:1/secret", "number"),
        ("secret://u:secret@h", "redis://"),
        ("redis://u:secret@[::1", "out of place"),
        ("redis://h/first", "number"),
        ("redis://u:secret@h?db=1", "no '\\?'"),
        ("redis+cluster://h/1", "database 0"),
        ("redis+sentinel://h", "service's name"),
        ("rediss://u:secret@a,b", "rediss\\+cluster"),
    ],
)
def test_an_invalid_address_is_refused_without_showing_secrets(url: str, says: str) -> None:
    with pytest.raises(IndexRefused, match=says) as caught:
        parse(url)
    assert "sec" not in str(caught.value)


_WILD = st.lists(st.sampled_from([*"QZJ", *"0123456789", *"/@:?#[]%,. +"])).map("".join)
SECRETS = st.tuples(
    st.sampled_from(["", "1", "2024", "Q", ":1"]), st.sampled_from(["", "/", "/Q", "Q"]), _WILD
).map("".join)
"""Letters that stand in no scheme, host or message of ours, and all that has a meaning in a URL."""


@given(
    SECRETS,
    st.sampled_from(
        [
            "redis://me:{}@h:6379/0",
            "rediss://:{}@h",
            "unix://me:{}@/run/redis.sock",
            "redis+cluster://me:{}@a:1,b:2",
            "redis+sentinel://me:{}@h/name",
        ]
    ),
)
def test_no_part_of_a_password_is_ever_shown(secret: str, form: str) -> None:
    try:
        address = parse(form.format(secret))
    except IndexRefused as error:
        shown = f"{error} {error!r}"
    else:
        shown = f"{address} {address!r}"
    assert not set("qzj") & set(shown.lower())


def test_a_path_may_contain_an_escaped_at_sign() -> None:
    assert parse("unix:///run/me%40home.sock").path == "/run/me@home.sock"

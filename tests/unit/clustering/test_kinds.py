"""Words that name a kind of event are never learned, and never missing."""

from __future__ import annotations

import pytest

from stream_dedup.deduplicator import Deduplicator


def clusters(lines: list[str]) -> int:
    """How many clusters lines have in the end."""
    dedup = Deduplicator("logs")
    dedup.process(lines)
    return sum(summary.closing is None or summary.merged_into is None for summary in dedup.close())


KINDS = {
    "{} of the page failed at once": "ConnectionError HTTPError SSLError KeyError ReadTimeout",
    "the peer said [{} x] to us": "PUB MSG SUB PING PONG HPUB HMSG",
    "session a b of web {} c d": "SH-- PH-- SC-- LR-- CD--",
    "processing request type:{} of a session": "exists getData getACL sync setData getChildren",
    "call of x failed with {} today": "ECONNREFUSED ETIMEDOUT ENOENT EPIPE EPERM EACCES",
    "child of x was ended by {} today": "SIGTERM SIGKILL SIGSEGV SIGABRT SIGHUP SIGINT",
    "the pod of web got condition {} now": "NodeReady NotReady DiskUp session_open SERVICE_STOP",
    "master of the set is {} mymaster now": "+sdown -sdown +odown -odown +tilt -tilt",
    "dhcp of lan: {}(br) for laptop": "DHCPACK DHCPNAK DHCPOFFER DHCPINFORM DHCPREQUEST",
    "{}[7]: it is out of memory": "sshd nginx named squid smbd crond",
    "audit of bob cmd={} on table": "mkdirs rename listStatus setOwner append",
    "principal bob Operation = {} from host": "Read Write Describe Alter Create",
    "a page was asked for by {} today": "GET PUT POST HEAD PATCH OPTIONS",
}


@pytest.mark.parametrize("line", KINDS)
def test_kinds_stay_apart_however_many_there_are(line: str) -> None:
    lines = [line.format(word) for word in KINDS[line].split()]
    without = line.format("").replace("  ", " ")
    assert clusters([without, *lines]) == len(lines) + 1


@pytest.mark.parametrize(
    "line",
    [
        "{} of the page failed at once",
        "the peer said ({} x) to us",
        "key name:{} of a session",
        'level=info msg="{} logged in from the office today"',
        "sshd: error:{} is unknown in the office",
        "session [{}] logged in from the office today",
        "session on-{}-deleted logged in from the office today",
    ],
)
def test_other_words_in_such_places_are_learned(line: str) -> None:
    names = "alice иван мария dave erin Frank".split()
    assert clusters([line.format(name) for name in names]) == 1

"""The scripts as texts: what a reader and the server rely on."""

from __future__ import annotations

import re

import pytest

from stream_dedup.index.redis.scripts import ALL, RULES, SPREAD, Script

SCRIPTS = [*ALL, *SPREAD, RULES]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_each_script_says_what_it_takes_returns_and_costs(script: Script) -> None:
    assert script.text.startswith("#!lua")
    for word in ("KEYS  ", "ARGV  ", "Returns ", "Cost  "):
        assert f"-- {word}" in script.text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_script_lists_keys_or_runs_code(script: Script) -> None:
    commands = set(re.findall(r"call\('([A-Z]+)'", script.text))
    assert commands
    assert not commands & {"KEYS", "SCAN", "EVAL", "FLUSHALL", "HGETALL"}


def test_only_what_adds_events_is_refused_when_memory_is_full() -> None:
    assert {script.name for script in ALL if "allow-oom" not in script.text.partition("\n")[0]} == {
        "resolve",
        "resolve_bands",
        "combine",
        "record",
    }


def test_commits_that_are_decided_are_finished_when_memory_is_full() -> None:
    refused = {s.name for s in SPREAD if "allow-oom" not in s.text.partition("\n")[0]}
    assert refused == {"steps"}


def test_commands_of_all_scripts_are_those_of_the_first_ones() -> None:
    """So users need no other permissions where a namespace is sharded by fingerprint."""
    known, others = (
        {name for s in some for name in re.findall(r"call\('([A-Z]+)'", s.text)}
        for some in (ALL, SPREAD)
    )
    assert others <= known


def test_scripts_have_names_of_their_own_on_the_server() -> None:
    assert len(SCRIPTS) == len({script.sha for script in SCRIPTS})
    assert all(re.fullmatch(rb"[0-9a-f]{40}", script.sha) for script in SCRIPTS)

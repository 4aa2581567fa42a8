"""The layouts of bytes: one table for Python and for the scripts, and a stored format."""

from __future__ import annotations

import re
from importlib import resources
from struct import calcsize, unpack_from

import pytest

from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.layouts import LUA_CONSTANTS, Layout
from stream_dedup.index.redis.namespace import plan_layout
from stream_dedup.index.redis.scripts import ALL, PERMISSIONS, RULES, SPREAD, Script, with_constants
from tests.contract.driver import A, query

LUA = resources.files("stream_dedup.index.redis") / "lua"
SCRIPTS = [*ALL, *SPREAD, PERMISSIONS, RULES]
FILES = sorted(file.name for file in LUA.iterdir() if file.name.endswith(".lua"))


@pytest.mark.parametrize(
    ("layout", "stored"),
    [
        (layouts.CLUSTER, "<7s7s7s7s6s6s7s7s7sI3H7B2I"),
        (layouts.RARE, "<7s7s"),
        (layouts.SNAPSHOT, "<5d2BdH8sd"),
        (layouts.MERGED_CLUSTER, "<8sd"),
        (layouts.POSTING, ">B3s8s"),
        (layouts.PIECE, ">QH"),
        (layouts.HEAD, "<2d"),
        (layouts.INSERTING_CALL, "<8sd"),
        (layouts.SPREAD_MEMBER, ">8s8s16s"),
        (layouts.TICKET, ">QIHH"),
    ],
)
def test_stored_layouts_do_not_change(layout: Layout, stored: str) -> None:
    assert layout.struct.size == calcsize(stored)
    packed = bytes(range(1, 1 + calcsize(stored)))
    assert layout.struct.unpack(packed) == unpack_from(stored, packed)


def test_the_sizes_of_stored_parts_do_not_change() -> None:
    assert (
        layouts.ID_BYTES,
        layouts.EXACT_FIELD_BYTES,
        layouts.NAMES_HEAD_BYTES,
        layouts.NAME_OTHER_BYTES,
        layouts.INSERTED_OTHER_BYTES,
    ) == (8, 12, 4, 9, 10)
    states = (layouts.OPEN, layouts.EXPIRED, layouts.EVICTED, layouts.ENDED, layouts.GONE)
    assert (*states, layouts.MERGED) == (0, 1, 2, 3, 4, 5)


def test_scripts_get_the_same_format_as_python() -> None:
    assert LUA_CONSTANTS["CLUSTER"] == "'<i7i7i7i7I6I6i7I7i7I4HHHBBBBBBBI4I4'"
    assert LUA_CONSTANTS["BARE_DELTA"] == "'<ddddc8c16'"
    assert LUA_CONSTANTS["RESOLUTION"] == "'>c8ddBBd'"
    assert LUA_CONSTANTS["CLUSTER_STATE_AT"] == str(1 + calcsize("<61sI3HB"))
    assert LUA_CONSTANTS["SNAPSHOT_STATE_AT"] == str(1 + calcsize("<5d"))


def test_a_cluster_has_the_fields_of_its_layout() -> None:
    assert codec.Cluster._fields == layouts.CLUSTER.names
    *texts, rare = layouts.CLUSTER_TEXTS
    rare_fields = (*layouts.RARE.names, *layouts.RARE_TEXTS)
    assert (rare, codec.ClusterTexts._fields) == ("rare", (*texts, *rare_fields))
    assert list(layouts.CLUSTER_TEXTS.values()) == list("BHIIHHII")  # stored
    assert list(layouts.RARE_TEXTS.values()) == list("BIII")


def test_queries_are_packed_as_their_layout_says() -> None:
    packer = Packer("logs", plan_layout(Recipe(match=Match(k=3)), 1_000, 1), PUBLIC_KEY)
    asked = query(5, A)
    _, packed, _ = packer.queries(packer.shards[0], [asked], [b"near"])
    assert layouts.QUERY_COUNT.struct.unpack_from(packed) == (1,)
    at = layouts.QUERY_COUNT.struct.size
    first_us, last_us, identity, field = layouts.QUERY.struct.unpack_from(packed, at)
    assert (first_us, last_us) == (asked.first_us, asked.last_us)
    assert (len(identity), field[layouts.GROUP_BYTES :]) == (8, asked.exact.to_bytes(8, "big"))
    at += layouts.QUERY.struct.size
    texts = {}
    for name in layouts.QUERY_TEXTS:
        (length,) = unpack_from(">I", packed, at)
        texts[name] = packed[at + 4 : at + 4 + length]
        at += 4 + length
    assert at == len(packed)
    assert texts["fingerprint"] == asked.fingerprint.to_bytes(8, "big")
    assert texts["position"] == codec.pack_position(asked.position)
    assert texts["mirrored"] == b"near"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_constant_is_left_in_a_script(script: Script) -> None:
    code = re.sub(r"--[^\n]*|'[^'\n]*'", "", script.text)
    assert not set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", code)) & set(LUA_CONSTANTS)


@pytest.mark.parametrize("file", FILES)
def test_scripts_name_formats_and_places_of_bytes(file: str) -> None:
    code = re.sub(r"--[^\n]*", "", (LUA / file).read_text("utf-8"))
    formats = re.findall(r"pack_bytes\(('[^']*')", code)
    assert formats == []
    numbers = re.findall(r"\b(?:sub|byte)\([^()]*?,[^()]*?\b([2-9]|[1-9][0-9]+)\b[^()]*\)", code)
    assert numbers == (["8"] if file == "_shard.lua" else [])  # digits of the incarnation


def test_only_code_is_replaced() -> None:
    lua = "local x = C_STATE  -- C_STATE\nreturn 'C_STATE', C_STATEMENT"
    place = LUA_CONSTANTS["C_STATE"]
    assert with_constants(lua) == f"local x = {place}  -- C_STATE\nreturn 'C_STATE', C_STATEMENT"

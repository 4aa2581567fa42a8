"""The binary layouts that Python and the scripts share, each described once.

Python packs with the `struct` of a layout. Scripts name its constants, which `scripts` replaces by
their values when it loads a script. For a layout ``X`` with a field ``some_field``::

    X                  its format, for Redis's struct library
    X_FIELDS           the names of its fields, separated by commas: as locals
    X_BYTES            its size
    X_SOME_FIELD_AT    where the field begins; the first byte is 1

Layouts that hold a fingerprint are as wide as that is, so their constants are sizes and places
before and behind it; a negative place counts from the end.

Times are microseconds of the event's clock (``…_us``) or seconds (``…_s``). They and the counts are
doubles, exact to 2^53, or integers of a few bytes where many are stored. Ids, hashes, fingerprints
and sketches are bytes, big-endian, so that no script ever makes a number of them. All that ends in
a key or in a value of one is a stored format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from struct import Struct, calcsize
from typing import Final, Literal

from stream_dedup.clustering import learning
from stream_dedup.fingerprint import bands, combinations, one_off
from stream_dedup.fingerprint.combinations import ANCHORS
from stream_dedup.index.base import MAX_MERGED_NAMED, MIN_WAITING
from stream_dedup.index.spread.protocol import LEASE_US
from stream_dedup.tables import sketches

_LUA_TYPES = {"I": "I4", "Q": "c8"}
"""Types that Redis's struct library names otherwise. A Q is an id: bytes to a script."""

_INTEGER = re.compile(r"[iI]([1-9])")
"""Integers of so many bytes, as Redis's struct library names them; Python's has no such."""


class Layout:
    """A byte string of fixed fields.

    Args:
        order: ``<`` for little-endian numbers, ``>`` for big-endian ones.
        fields: name and type of each, as Python's `struct` names types, or `_INTEGER`; padding has
            no value.
    """

    def __init__(self, order: str, **fields: str) -> None:
        self.names: Final = tuple(name for name, code in fields.items() if "x" not in code)
        types = [_INTEGER.sub(r"\1s", code) for code in fields.values()]
        self.struct: Final = Struct(order + "".join(types))
        self.lua: Final = order + "".join(map(_lua_type, fields.values()))
        self._order: Literal["little", "big"] = "little" if order == "<" else "big"
        self._integers = [
            (place, code[0] == "i")
            for place, code in enumerate(fields.values())
            if _INTEGER.fullmatch(code)
        ]
        self._starts = {
            name: 1 + calcsize(order + "".join(types[:place])) for place, name in enumerate(fields)
        }

    def integers(self, packed: bytes) -> list[int]:
        """Unpack fields that are integers, all of them, from the beginning of what is stored.

        Raises:
            struct.error: it is cut off.
        """
        values = [*self.struct.unpack_from(packed)]
        for place, signed in self._integers:
            values[place] = int.from_bytes(values[place], self._order, signed=signed)
        return values

    def constants(self, name: str) -> dict[str, str]:
        """The constants of scripts, by name."""
        return {
            name: f"'{self.lua}'",
            f"{name}_FIELDS": ", ".join(self.names),
            f"{name}_BYTES": str(self.struct.size),
            **{f"{name}_{field.upper()}_AT": str(at) for field, at in self._starts.items()},
        }


def _lua_type(code: str) -> str:
    return f"c{code[:-1]}" if code.endswith("s") else _LUA_TYPES.get(code, code)


# ------------------------------------------------------------ stored

ID_BYTES = 8

CLUSTER = Layout(
    "<",
    opened_us="i7",  # first event time of the window
    last_us="i7",  # latest event time that was resolved: what the idle time counts from
    first_us="i7",  # earliest event time that was recorded
    latest_us="i7",  # latest event time that was recorded
    events="I6",  # recorded
    emitted="I6",  # events in the last confirmed summary
    emitted_us="i7",  # stream time of the last confirmed summary
    bytes="I7",  # of its events, as they were read
    since_us="i7",  # earliest event time recorded since the last claim; `NO_TIME_US` without
    revision="I",  # of the last claimed summary
    names="H",  # by which events find it: how many `name_list` has
    searchable="H",  # those of them that are in the tables
    sampled="H",  # events chosen by chance that are stored
    samples="B",  # how many are stored
    state="B",  # OPEN, EXPIRED, EVICTED, ENDED or GONE
    provisional="B",  # 1 until its opening is recorded
    before="B",  # its state before it was opened; OPEN if it was not stored
    due="B",  # 1 if a periodic summary is due, or will be
    leased="B",  # 1 while a summary is claimed and not confirmed: its `snapshot`
    learned_words="B",  # words of its representative that are learned variables: how many
    renewed_s="I",  # clock at which its time to live began, at the earliest
    born="I",  # the first four bytes of the incarnation under which it was opened
)
"""What a cluster begins with. `CLUSTER_TEXTS` follow, each behind its length."""

CLUSTER_TEXTS: Final = {
    "fingerprint": "B",  # of the representative; with keys of bands it is in the name list
    "sketch": "H",  # as a query has it; empty if it is in no table: it is compared with nothing
    "name_list": "I",  # by which events find it; see `NAMES_HEAD_BYTES`
    "group": "I",
    "position": "H",
    "posting_keys": "H",  # of the posting lists that name it, `KEY_BYTES` each
    "representative": "I",
    "rare": "I",  # `RARE` and `RARE_TEXTS`; empty if all of them are
}
"""Texts of a cluster, and the types of their lengths. What is not there is empty. Samples and
events chosen by chance are fields of another key."""

RARE = Layout(
    "<",
    until_us="i7",  # clock until which its tombstone is kept; 0 without one
    learned="I7",  # bit i: the word i of its representative is a learned variable
)
"""Numbers that most clusters do not have."""

RARE_TEXTS: Final = {
    "into": "B",  # the id of the cluster into which it has merged
    "merged": "I",  # clusters that merged into it since its last summary: `MERGED_CLUSTER` each
    "snapshot": "I",  # the summary that is claimed: `SNAPSHOT`, and what follows it
    "chosen": "I",  # fields of the events chosen by chance that belong to that summary
}

SEARCHED_BYTES = 1024
"""More than the numbers of a cluster, its fingerprint, its sketch and its first name take, which
stand at its beginning. A mirror reads them."""

NO_TIME_US = 1 << 53
"""Later than any event."""

OPEN, EXPIRED, EVICTED, ENDED, GONE, MERGED = range(6)
"""States of a cluster: it takes events; why it was closed; only its tombstone is left (GONE)."""

SNAPSHOT = Layout(
    "<",
    revision="d",
    events="d",
    new_events="d",  # since the last confirmed summary
    first_us="d",
    latest_us="d",
    state="B",
    samples="B",
    learned="d",
    merged="H",
    into=f"{ID_BYTES}s",  # the cluster into which it merged; NOWHERE or NEVER_MERGES without one
    since_us="d",  # earliest event time of the new events
)
"""The summary of a cluster that is claimed. So many elements of `merged` and the group follow.

One that is NEVER_MERGES has not merged, and never will: it may have been sent."""

MERGED_CLUSTER = Layout("<", id=f"{ID_BYTES}s", events="d")
"""A cluster that merged into another one, with what it had counted."""

POSTING_VALUE_BYTES = 3
POSTING = Layout(">", number="B", value=f"{POSTING_VALUE_BYTES}s", id=f"{ID_BYTES}s")
"""A posting: `FIRST_NUMBER` is added to the number for a word of the representative. A posting
list is a field, group hash ‖ key, in a slice of posting lists."""
FIRST_NUMBER = 128

PRIORITY_BYTES = 8
SAMPLED = ord("v")
PRIORITY_AT = 2
SAMPLED_FIELD_BYTES = 1 + PRIORITY_BYTES
"""A field of the values of a cluster that holds an event chosen by chance (`engine.sampling`):
`SAMPLED` ‖ its priority."""

HEAD = Layout("<", time_us="d", seen_us="d")
"""A value of ``heads``: a partition's latest event time, and the clock when it was last active;
its name follows."""

ID_WORDS = Layout(">", high="I", low="I")
"""An id, or a hash of a sketch, in parts that a script can compare as numbers."""

GROUP_BYTES = 4
"""Of the hash of a group."""
GROUP_WORDS = Layout(">", high="H", low="H")
"""The hash of a group in parts, likewise."""
GROUP_FACTOR = 0x9E37_79B9_7F4A_7C15
"""A slice is the first bits of a hash, of 64, after an exclusive or with this times the hash of its
group, modulo 2^64: so groups of a few entries share slices evenly."""
EXACT_BYTES = 8
LOW_GROUP_BYTES = 2
"""The last bytes of a group's hash: what a member of a table holds."""
LOW_GROUP_AT = GROUP_BYTES - LOW_GROUP_BYTES + 1
SKETCH_HASH_BYTES = 8

EXACT_FIELD_BYTES = GROUP_BYTES + EXACT_BYTES
"""A field in a slice of exact hashes: group hash ‖ exact hash. Its value is id ‖ distance(1)."""

KEY_BYTES = 8
"""Of a pattern."""

PIECE = Layout(">", id="Q", posting_keys="H")
"""A piece of garbage: what it begins with. The cluster's posting keys and name list follow."""

NAMES_HEAD_BYTES = GROUP_BYTES
"""The name list of a cluster: group hash ‖ name ‖ name …, the representative's first."""

FLAG_BYTES = 1
"""A 1 or 0 behind a name of a cluster, or behind the token of a claim."""

NAME_OTHER_BYTES = EXACT_BYTES + FLAG_BYTES
"""A name: exact hash ‖ fingerprint ‖ 1 if it is in the tables. These are the bytes of a name
without its fingerprint."""

BAND_KEY_BYTES = bands.KEY_BYTES
"""Of the key of a band. A fingerprint is `bands.BANDS` of them."""
SKETCH_HEAD = Layout(">", head="B", values="B")
"""What a packed sketch begins with, where fingerprints are keys of bands (`tables.sketches.pack`).
Otherwise a sketch is hashes of `SKETCH_HASH_BYTES`."""
MIRRORED = Layout(">", id=f"{ID_BYTES}s", fingerprint=f"{bands.BITS // 8}s", similarity="d")
"""What the caller's mirror holds near a query, and how similar they are. The packed sketch that it
has compared follows, behind two bytes with its length: empty if it knows none."""
IN_TABLES = Layout(">", tables="H")
"""The tables that hold the representative's keys, the first in the highest bit: a key that was full
when the cluster was opened is not in its table."""

BANDS_HEAD_BYTES = GROUP_BYTES + bands.BITS // 8 + IN_TABLES.struct.size
"""The name list of a cluster whose fingerprint is the keys of bands: group hash ‖ fingerprint ‖
`IN_TABLES` ‖ name ‖ name …; names hold no fingerprints."""

CALL_NAME_BYTES = 8

INSERTING_CALL = Layout("<", name=f"{CALL_NAME_BYTES}s", number="d")
"""What an element of ``inserted`` begins with: the call's name, and its number."""

INSERTED_OTHER_BYTES = LOW_GROUP_BYTES + ID_BYTES
"""An entry that follows: low group hash ‖ fingerprint ‖ id. These are its bytes without the
fingerprint."""


# ------------------------------------------------------------ arguments and answers

SETTINGS = Layout(
    "<",
    now_us="d",  # the caller's clock
    idle_us="d",
    max_age_us="d",
    max_future_us="d",
    quiet_us="d",
    every_us="d",  # below 0: no periodic summaries
    final_summaries="d",  # 0 if nobody reads them
    retention_us="d",
    lease_us="d",
    ttl_ms="d",  # time to live of a key that nobody writes to
    max_clusters="d",
    least_events="d",  # a periodic summary is of a cluster with more events
)
"""The caller's clock, windows, summaries and limits."""

MATCHING = Layout(
    "<",
    k="d",
    jaccard="d",
    max_names="d",
    max_candidates="d",
    max_verified="d",
    prefix_bytes="d",  # of a member of a table
    member_bytes="d",
    tables="d",
    budget="d",  # work of a call, in commands
    search_work="d",  # that each query adds to what the searches of a call may do together
    learn="d",  # `Match.learn`
    exact_bits="d",  # of the number of a slice of exact hashes
    posting_bits="d",  # of the number of a slice of posting lists
)
"""What counts as near, for ``resolve``."""

QUERY = Layout(">", first_us="d", last_us="d", id=f"{ID_BYTES}s", field=f"{EXACT_FIELD_BYTES}s")
"""What a query begins with. `QUERY_TEXTS` follow, each behind its length. `tables.entries` packs
it; see `Row` there."""

PATTERN = Layout(">", words="B", counted="B", plain="B", slices="B", keys="B", bytes="H")
"""What the keys of a query's pattern begin with; a query without keys has no words. Counted:
`one_off.Keys.counted`. Plain: no other query before has one of its keys, and none occurs twice.
`LISTS` follow, and then so many bytes: see `index.redis.one_off`."""

LISTS = Layout(">", shape=f"{KEY_BYTES}s", fields=f"{ANCHORS * (GROUP_BYTES + KEY_BYTES)}s")
"""The shape of a pattern, and the fields of the lists of combinations that it may have: see
`combinations`."""

PATTERN_KEY = Layout(
    ">",
    field=f"{GROUP_BYTES + KEY_BYTES}s",
    posting=f"{POSTING.struct.size}s",  # what the event notes there if it opens a cluster
    around="B",
    assigned="B",  # 1 if the word is the value of a key
    place="B",  # 0 for the pattern's own key, then the slots in order
)
"""A key of a query's pattern."""

COMBINED_KEY = Layout(">", high="H", middle="H", low="I")
"""A key of a pattern without the words of a combination: the high bits, and the sum in two."""

QUERY_COUNT = Layout(">", count="I")
"""How many queries follow."""

QUERY_TEXTS = ("fingerprint", "sketch", "group", "position", "members", "mirrored")
"""The last is what the caller's mirror holds near the query: id ‖ fingerprint, for each. If
fingerprints are the keys of bands, `IN_TABLES` stands before them, tables that may be full, and
they are `MIRRORED`."""

RESOLUTION = Layout(">", id="Q", opened_us="d", last_us="d", distance="B", flags="B", learned="d")
"""The answer to a query."""

NEW, RECORDED_BEFORE, INSERTED, FOUND_BY = 1, 2, 4, 8
"""Flags of a resolution: the event is the representative; the cluster's opening was recorded
before; the query's fingerprint was inserted. And so many times the number of how it was found."""

BY_EXACT, BY_LEARNED, BY_WORDS, BY_FINGERPRINT, BY_OPENING = range(5)
"""How a cluster was found: `model.FoundBy`, in that order."""

MIRROR_STATE = Layout("<", known="B", number="d", entries="d", last=f"{CALL_NAME_BYTES}s")
"""Whether the calls that the caller has seen are known; number of the last call that inserted,
entries in the tables, name of that call."""

BATCH = Layout(
    "<",
    fence="d",
    first="d",  # offset
    last="d",  # offset
    committed="d",  # offset
    time_us="d",  # latest event time
    max_samples="d",  # of a cluster
    max_sampled="d",  # events of a cluster chosen by chance
    steps="d",  # clusters to sweep
    pieces="d",  # of garbage to return
    attempt="d",  # its number under the fence, where a commit is made on many shards
    part="d",  # of it, if it is made on many shards: PART_WHOLE otherwise
)
"""A commit, for ``record``."""

PART_WHOLE, PART_PREPARE, PART_DECIDE, PART_FINISH = range(4)
"""Parts of a commit on many shards (`spread.counting`): one decides, the others prepare and
finish."""

HOLD = Layout("<", holds="H", recency_us="d", expiry_us="d")
"""A value of ``held``: how many prepared commits hold a cluster open, and its scores in the queues,
from which it is taken meanwhile; `NO_TIME_US` without one."""

DELTA = Layout(
    "<",
    count="d",
    earliest="d",
    latest="d",
    size="d",  # bytes of the events
    samples="H",
    sampled="H",
    is_representative="B",
)
"""A cluster delta with values, which are arguments of their own."""

BARE_DELTA = Layout("<", count="d", earliest="d", latest="d", size="d", id="8s", digits="16s")
"""A cluster delta without values: the id also as the cluster's key has it, in hexadecimal digits,
which a script would take long to write."""


# ------------------------------------------------------------ one group on many nodes

TICKET = Layout(">", since_us="Q", caller="I", row="H", attempt="H")
"""A ticket (`spread.protocol.Ticket`). All but the last number are its rank."""
RANK = Layout(">", since_high="I", since_low="I", caller="I", row="H")
"""The same in parts that a script can compare as numbers."""

_TICKET = f"{TICKET.struct.size}s"
SPREAD_ENTRY = Layout(">", id=f"{ID_BYTES}s", ticket=_TICKET)
SLICE_HASH_BYTES = 8
SPREAD_MEMBER = Layout(">", hash=f"{SLICE_HASH_BYTES}s", id=f"{ID_BYTES}s", ticket=_TICKET)
"""A member of a slice: the hash of group, table and prefix, and an entry. The fingerprint follows.
All tables, that of exact hashes too, have their slices in common."""

STEP = Layout(
    ">",
    kind="B",
    query="H",  # the place of its `ASKED`, where it has one
    id=f"{ID_BYTES}s",
    ticket=_TICKET,
    asker=_TICKET,
    hash=f"{SLICE_HASH_BYTES}s",
    cut="B",  # whether the search was cut short
)
"""A request (`spread.protocol`). A fingerprint follows, behind a byte with its length."""

(STEP_BEGIN, STEP_OFFER, STEP_JUDGE, STEP_JUDGE_EQUAL, STEP_OPEN, STEP_JOIN, STEP_JOIN_NAMED,
 STEP_ADD, STEP_REMOVE, STEP_WITHDRAW) = range(10)  # fmt: skip
"""Kinds of requests."""

ASKED = Layout(">", first_us="d", last_us="d", exact=f"{EXACT_BYTES}s", near="B")
"""A query of requests; `ASKED_TEXTS` follow, each behind its length."""
ASKED_TEXTS = ("fingerprint", "sketch", "group", "position")

BEGUN = Layout(">", since_s="I", exact=f"{EXACT_BYTES}s", near="B")
"""An attempt: since when by the server's clock, and whether it has entries in the tables. The
fingerprint and the group follow."""

SPREAD_NAMES = Layout(">", ticket=_TICKET, group="I")
"""What the name list of a cluster begins with there: the ticket under which it was opened, and
the length of the group, which follows. Then its names, as elsewhere."""

(ANSWER_FOUND, ANSWER_BESIDE, ANSWER_WAIT, ANSWER_ABSENT, ANSWER_STALE, ANSWER_LOST,
 ANSWER_FULL, ANSWER_CUT, ANSWER_DONE) = range(9)  # fmt: skip
"""The first byte of an answer. Entries follow ANSWER_BESIDE, each with a fingerprint behind it; and
ANSWER_CUT, which says that some were left out."""

FOUND = Layout(
    ">",
    kind="B",
    id=f"{ID_BYTES}s",
    ticket=_TICKET,
    distance="B",
    similarity="d",
    opened_us="d",
    last_us="d",
    recorded="B",
    names="H",
)
"""A cluster that was found (`spread.protocol.Found`)."""


# ------------------------------------------------------------ for the scripts


def _lua_texts(types: Mapping[str, str]) -> str:
    return "".join(f"{_lua_type(code)}c0" for code in types.values())


def _with_lengths(places: Sequence[str]) -> str:
    return ", ".join(f"#{place}, {place}" for place in places)


_OF_MODULES = {
    learning: "OWN COMBINATION LEAST_SAME LEAST_COMMON LEAST_COUNTED MANY_COUNTED FEW_AROUND "
    "MAX_POSTINGS MAX_POSTING_LISTS MAX_MERGED MAX_MOVED MAX_LOADED MAX_COMBINATIONS MAX_ASSUMED "
    "MAX_LISTED",
    combinations: "ALL_ASSIGNED ANCHORS MOST_ANCHORS COMBINATION_FACTOR COMBINED_WORDS "
    "LEAST_LEFT SHAPE_NUMBERS SUM_BITS",
    one_off: "ALL_GAPS ASSIGNED BESIDE_GAP GAP_BITS REPEATED",
    bands: "BANDS CROWD",
    sketches: "FEW FEW_JACCARD",
}


def _constants() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in list(globals().items()):
        if isinstance(value, Layout):
            found |= value.constants(name)
        elif name.isupper() and isinstance(value, int):
            found[name] = str(value)
    for module, names in _OF_MODULES.items():
        found |= {name: str(getattr(module, name)) for name in names.split()}
    high, low = divmod(GROUP_FACTOR, 1 << 32)  # in halves: doubles have 53 bits
    found["GROUP_FACTOR_HIGH"], found["GROUP_FACTOR_LOW"] = str(high), str(low)
    found["LEARNED"] = "'" + "\\255" * POSTING_VALUE_BYTES + "'"
    found["NOWHERE"] = f"string.rep('\\0', {ID_BYTES})"
    found["NEVER_MERGES"] = f"string.rep('\\255', {ID_BYTES})"
    found["WORD_FACTORS"] = f"{{{', '.join(map(str, combinations.WORD_FACTORS))}}}"
    found["MAX_MERGED_NAMED"], found["MIN_WAITING"] = str(MAX_MERGED_NAMED), str(MIN_WAITING)
    fields = (*CLUSTER.names, *CLUSTER_TEXTS, *RARE.names, *RARE_TEXTS)
    for place, field in enumerate(fields, 1):
        found[f"C_{field.upper()}"] = str(place)
    places = [f"c[{place}]" for place in range(1, len(fields) + 1)]
    texts_at, rare_at = len(CLUSTER.names), len(CLUSTER.names) + len(CLUSTER_TEXTS)
    rare_texts_at = rare_at + len(RARE.names)
    found["WHOLE_CLUSTER"] = f"'{CLUSTER.lua}{_lua_texts(CLUSTER_TEXTS)}'"
    found["NUMBERS_OF_C"] = ", ".join(places[:texts_at])
    found["TEXTS_OF_C"] = _with_lengths(places[texts_at:rare_at])
    found["RARE"] = f"'{RARE.lua}{_lua_texts(RARE_TEXTS)}'"
    found["RARE_OF_C"] = ", ".join(places[rare_at:])
    found["RARE_NUMBERS_OF_C"] = ", ".join(places[rare_at:rare_texts_at])
    found["RARE_TEXTS_OF_C"] = _with_lengths(places[rare_texts_at:])
    found["NOTHING_RARE"] = ", ".join(["0"] * len(RARE.names) + ["''"] * len(RARE_TEXTS))
    found["NO_TEXTS"] = ", ".join(["''"] * len(CLUSTER_TEXTS) + [found["NOTHING_RARE"]])
    found["PATTERN_SLICE"], found["PATTERN_SLICE_FIELDS"] = "'>Bc0B'", "digits, keys, first_at"
    found["MIRRORED"] = f"'{MIRRORED.lua}Hc0'"
    found["MIRRORED_FIELDS"] += ", sketch, behind"
    found["QUERY"] = f"'{QUERY.lua}{'I4c0' * len(QUERY_TEXTS)}'"
    found["QUERY_FIELDS"] = ", ".join((*QUERY.names, *QUERY_TEXTS))
    found["ASKED"] = f"'{ASKED.lua}{'I4c0' * len(ASKED_TEXTS)}'"
    found["ASKED_FIELDS"] = ", ".join((*ASKED.names, *ASKED_TEXTS))
    found["STEP"] = f"'{STEP.lua}Bc0'"
    found["STEP_FIELDS"] = ", ".join((*STEP.names, "fingerprint"))
    found["SPREAD_NAMES"] = f"'{SPREAD_NAMES.lua}c0'"
    found["LEASE_MS"] = str(LEASE_US // 1000)
    return found


LUA_CONSTANTS: Final = _constants()
"""Names that scripts may use, and the Lua that replaces them. The numbers and texts of a cluster
are a Lua table ``c``; ``C_SOME_FIELD`` is the place of a field of `CLUSTER`, or of a text."""

"""What happened, in a log line: the keys whose values say it, and the words that name its kind.

Such words are never variables. The values of other keys are (`pieces`), and other words become
variables when many different ones stand in one place.
"""

from __future__ import annotations

import re

from stream_dedup.features.tokens import STRUCTURE_DELIMITERS, is_named_kind
from stream_dedup.features.variants import METHODS

MESSAGE_KEYS = frozenset(
    b"msg message text log event type kind action operation op method verb cmd error err "
    b"errmsg exception reason cause description detail details title subject summary problem "
    b"warning alert alertname status state result outcome code command query sql statement "
    b"textpayload @m @mt decision verdict conclusion phase severity failure eventname eventtype "
    b"direction transition effect operationname apiname eventphase subtype utmaction disposition "
    b"health "
    b"errorcode error_code error.code exitcode exit_code returncode return_code resultcode "
    b"result_code reasoncode reason_code errormessage error_message error.message".split()
)
"""Keys whose values say what happened, lower case: their words stay words."""

SENTENCE_KEYS = frozenset(
    b"msg message text log error err errmsg exception cause description detail details title "
    b"subject summary problem warning alert alertname query sql statement textpayload @m @mt "
    b"failure errormessage error_message error.message".split()
)
"""Those of them whose values are sentences: their words do not name kinds of events."""

OUTCOME_KEYS = frozenset(
    b"error err reason result status cause exception outcome state phase action verb transition "
    b"decision verdict".split()
)
"""Keys that are message keys also as the last part of a name, behind other letters, lower case."""

METHOD_PARTS = frozenset((b"http", b"request"))
"""Parts of a name before ``method`` that make it a message key, lower case."""

NAME_PARTS = frozenset((b"event", b"action", b"message", b"error", b"alarm"))
"""Parts of a name before ``type`` and ``name`` that make it a message key, lower case."""

STATES = frozenset(
    b"up down open opened close closed start started stop stopped ready fail failed success "
    b"succeeded died killed enabled disabled connect connected disconnect disconnected create "
    b"created delete deleted added removed accepted rejected denied allowed locked unlocked lost "
    b"found completed cancelled canceled aborted expired online offline healthy unhealthy "
    b"available unavailable active inactive timeout login logout".split()
)
"""Last parts of names that say what happened or how it is, lower case: of ``session_open``."""

IRREGULAR = frozenset(
    b"begun bought bound broken brought built caught chosen cut done drawn driven forgotten found "
    b"frozen given gone grown held hidden hit kept known left lent lost made met overridden paid "
    b"put read reset rewritten run seen sent set shown shut sold spent split spoken stolen taken "
    b"taught thrown told torn undone withdrawn won written".split()
)
"""Participles that do not end in *ed*, lower case."""

STATE_KEYS = frozenset((b"role", b"mode"))
"""Words before a space and a word in capitals that says how something is, and before one of
`ROLES`, lower case."""

ROLES = frozenset(
    b"leader follower primary secondary standby candidate learner observer master slave "
    b"replica".split()
)
"""What says, behind one of `STATE_KEYS`, how a member of a cluster is, lower case."""

MAX_KEY = 32
"""No message key is as long, so no more bytes of a key are read than its last ones."""

_DIVIDERS = (b"_", b".", b"-")
_QUOTES, _SEPARATORS = (b"'", b'"'), (b"=", b":")
_CAPITAL, _NO_CAPITAL = re.compile(rb"[A-Z]"), re.compile(rb"[a-z\x80-\xff]")
_LAST_PART = re.compile(  # of a key: "status" of "job_status", "Error" of "lastError"
    rb"(?:(?<=[_.-])(?:[A-Z]++|[A-Za-z][a-z]*+)|(?<=[a-z0-9])[A-Z][a-z]*+)\Z"
)
_PARTS_BEFORE = {b"method": METHOD_PARTS, b"type": NAME_PARTS, b"name": NAME_PARTS}
_ROLE_BEFORE = re.compile(
    rb"(?:\A|[%b])([A-Za-z]{4})[\"']?(?: ?= ?|: ?| )[\"']?\Z" % re.escape(STRUCTURE_DELIMITERS)
)
_ROLE_BYTES = 10
_CAPITALS = re.compile(rb"[A-Z][A-Z_]++")
_REGULAR = re.compile(rb"[a-z]{2,}ed")
_TO_BE = re.compile(rb"(?:\A|[^A-Za-z0-9_\x80-\xff])(?:was|were|is|are|been|being|be|got) \Z")
_SPACE = ord(" ")
_SIGNED = re.compile(rb"[+-][A-Za-z]")
_PROCESS_NUMBER = re.compile(rb"\[[0-9]{1,9}\]: ")
_LETTERS = re.compile(rb"[A-Z]++[a-z]*+|[a-z]++")


def is_message_key(key: bytes) -> bool:
    """Return whether the value of a key says what happened.

    >>> [is_message_key(key) for key in (b"msg", b"errorCode", b"newState", b"event_type", b"name")]
    [True, True, True, True, False]
    """
    if key.lower() in MESSAGE_KEYS:
        return True
    last = _LAST_PART.search(key)
    if last is None:
        return False
    word = last[0].lower()
    if word in OUTCOME_KEYS:
        return True
    if word not in _PARTS_BEFORE:
        return False
    rest = key[: last.start()]
    rest = rest[:-1] if rest[-1:] in _DIVIDERS else rest
    before = _LAST_PART.search(rest)
    return (before[0] if before else rest).lower() in _PARTS_BEFORE[word]


def names_kind(text: bytes, start: int, end: int) -> bool:
    """Return whether a word names a kind of event, and so is never learned to be a variable.

    It ends like the name of an exception (``SSLError``) or with a part that is one of `STATES`
    (``session_open``, ``NodeNotReady``); it is a method of HTTP or a tag (``[PUB]``); it has a sign
    (``-sdown``); or it is the value of a message key (``type:exists``), or the name of a process
    before its number (``sshd[7]: ``); or it says what was done (`is_participle`), or the role of a
    member of a cluster (`is_role`).
    """
    return (
        names_itself(text, start, end)
        or text[start:end] in METHODS
        or is_said(text, start, end)
        or is_role(text, start, end)
        or _SIGNED.match(text, start, end) is not None
        or _PROCESS_NUMBER.match(text, end) is not None
        or is_participle(text, start, end)
    )


def is_participle(text: bytes, start: int, end: int) -> bool:
    """Return whether a word says what was done, behind a form of *to be*: ``was refunded``.

    >>> [is_participle(b"order was refunded by ann", *span) for span in ((10, 18), (22, 25))]
    [True, False]
    """
    word = text[start:end]
    return (
        text[start - 1 : start] == b" "
        and (word in IRREGULAR or _REGULAR.fullmatch(word) is not None)
        and _TO_BE.search(text[max(start - 7, 0) : start]) is not None
    )


def is_role(text: bytes, start: int, end: int) -> bool:
    """Return whether a word is one of `ROLES`, directly behind one of `STATE_KEYS`.

    >>> [is_role(text, 5, 11) for text in (b"role=leader", b"role Leader", b"rule=leader")]
    [True, True, False]
    """
    if text[start:end].lower() not in ROLES:
        return False
    before = _ROLE_BEFORE.search(text[max(start - _ROLE_BYTES, 0) : start])
    return before is not None and before[1].lower() in STATE_KEYS


def has_state(word: bytes) -> bool:
    """Return whether the last of a name's parts says what happened or how it is.

    Names with dashes are those of things.

    >>> [has_state(word) for word in (b"NotReady", b"session_open", b"SERVICE_STOP", b"open")]
    [True, True, True, False]
    """
    parts = _LETTERS.findall(word)
    return len(parts) > 1 and parts[-1].lower() in STATES and b"-" not in word


def says_what_happened(word: bytes) -> bool:
    """Return whether a word by itself is the name of an exception, or ends with a state."""
    return is_named_kind(word) or has_state(word)


def names_itself(text: bytes, start: int, end: int) -> bool:
    """Return whether a word names a kind of event by its own form, or by the bracket before it."""
    return says_what_happened(text[start:end]) or is_tag(text, start, end)


def is_tag(text: bytes, start: int, end: int) -> bool:
    """Return whether a word in capitals is behind ``[``, before ``(`` or ends with a dash.

    The bracket counts behind a colon and a space.

    >>> [is_tag(text, 2, 6) for text in (b" [HPUB 7]", b"  SH-- ", b": PING(7)", b", PING(7)")]
    [True, True, True, False]
    """
    marked = (
        text[start - 1 : start] == b"["
        or text[end - 1] == ord("-")
        or (text[max(start - 2, 0) : start] == b": " and text[end : end + 1] == b"(")
    )
    return bool(
        marked and _CAPITAL.search(text, start, end) and not _NO_CAPITAL.search(text, start, end)
    )


def is_said(text: bytes, start: int, end: int) -> bool:
    """Return whether a word is the value of a message key: ``type:exists``, ``state="UP"``.

    It is directly behind the key, alone in quotes or not, or behind ``key = ``; a word in capitals
    may also be behind the key and a space: ``state SECONDARY``. Words of sentences are no such
    values.
    """
    quote = text[start - 1 : start]
    at = start - (quote in _QUOTES)
    if at < start and text[end : end + 1] != quote:
        return False
    is_spaced = False
    if text[max(at - 3, 0) : at] == b" = ":
        end = at - 3
    elif at and text[at - 1 : at] in _SEPARATORS:
        end = at - 1 - (text[at - 2 : at - 1] in _QUOTES)
    elif at and text[at - 1] == _SPACE and _CAPITALS.fullmatch(text, start, end):
        is_spaced, end = True, at - 1
    else:
        return False
    begin = end
    while begin > 0 and end - begin < MAX_KEY and text[begin - 1] not in STRUCTURE_DELIMITERS:
        begin -= 1
    key = text[begin:end]
    if is_spaced and key.lower() in STATE_KEYS:
        return True
    return is_message_key(key) and key.lower() not in SENTENCE_KEYS

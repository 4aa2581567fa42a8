"""Variants: what keeps two lines apart however alike they are.

Problem: ``job backup finished with status OK`` and ``… FAILED`` differ in one word of seven, and so
do ``session closed for alice`` and ``… bob``. The first two must never be counted as one, the
second two should. No similarity of bags of words tells them apart; the words themselves do.

Idea: an event's *variant* is the sequence, in order, of

1. its *protected words*: outcomes such as ``ok``, ``failed``, ``up``, ``not`` (`OUTCOMES`), or a
   recipe's own list; also behind a number and a slash (``1/FAILURE``), and ``n't`` for ``not``;
2. its log levels (`LEVELS`), unless they are values of keys that name something else
   (``user=info``); in capitals also before a slash (``ERROR/MainProcess``). The letter with which
   lines of klog and glog begin is one too: in ``E1126 10:02:11.3``, ``E`` is ``error`` and
   ``1126`` the day;
3. its HTTP status classes: ``2xx`` for three digits directly after ``HTTP/1.1"``, ``HTTP``,
   ``responded`` or ``status code`` (unless a unit follows), in ``Sent 200 in`` (Phoenix), after a
   request (``GET /a 200``; but not where IIS has
   the port, between ``-`` and ``-`` and an address), or after ``status``, ``statusCode``, ``code``
   or another of `STATUS_KEYS` with ``=`` or ``:``; and where logs have them: between a time of the
   day and a duration (``12:00:00 | 200 | 1.2ms |``: Gin, Fiber), after what ASP.NET Core says of a
   request, after five times (``3/0/1/20/24 200``:
   HAProxy), behind the name of a result (``TCP_MISS/200``: Squid), before another status, two
   sizes and a request (``200 200 34 366 "GET``: load balancers of AWS), and before the last three
   numbers of a line of IIS;
4. its exit codes and error numbers: ``zero`` or ``nonzero`` for a number after ``exit code``,
   ``exited with status`` and the like, or after a key of `EXIT_KEYS` with ``=`` or ``:``, or after
   one that ends in one of `EXIT_KEY_ENDINGS` with these or a space; and for a number before
   ``errors`` or ``failures``.

The exceptions and innermost frames of a stack trace belong to it too (`traces`).

Events of different variants never share a cluster, as if they were of different groups. Case and a
full stop or an exclamation mark at the end of a word do not count.

Worked example::

    GET /a/7 HTTP/1.1" 200 512       2xx
    GET /a/9 HTTP/1.1" 503 17        5xx
    POST /a/9 -> 404 in 17 ms        4xx
    ERROR job 7 finished: not OK.    error not ok
    job 9 exited with code 137       nonzero

The kernel adds the variant's words to the exact hash, and the fingerprinter the frames; an index
takes the variant as a part of the group. It is not learned: it holds from the first event on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stream_dedup.features.tokens import UNITS

OUTCOMES = frozenset(
    """
    ok okay ko pass passes passed fail fails failed failing failure failures
    error errors success successes successful successfully succeed succeeds succeeded unsuccessful
    true false yes no on off null none nil up down alive dead healthy unhealthy ready unready
    active inactive running stopped started starting stopping start stop begin end
    enable enabled disable disabled open opened close closed connect connected disconnect
    disconnected online offline available unavailable reachable unreachable
    allow allowed deny denied accept accepted reject rejected refuse refused grant granted
    revoke revoked valid invalid found missing locked unlocked added removed created deleted
    mounted unmounted attached detached installed uninstalled complete completed incomplete
    aborted cancelled canceled expired normal abnormal hit miss
    not never without cannot unable nor neither almost nearly hardly barely partially
    skipped skipping timeout unlock locking unlocking
    unmount mounting unmounting detach attaching detaching
    enabling disabling opening closing connecting disconnecting allowing denying granting revoking
    remove adding removing delete creating deleting uninstall installing uninstalling
    accepting rejecting
    trusted untrusted verified unverified authorized unauthorized authenticated unauthenticated
    registered unregistered blocked unblocked loaded unloaded responsive unresponsive encrypted
    unencrypted consistent inconsistent matched mismatch mismatched correct incorrect supported
    unsupported
    increased decreased increasing decreasing raised cleared gained lost paused resumed
    promoted demoted permitted forbidden acquired released
    uploaded downloaded above below killed
    nxdomain servfail noerror nodata bounced deferred dropped discarded degraded corrupt corrupted
    infected exceeded
    nicht kein keine niet geen nunca jamais nie inte ikke
    waiting pending
    eacces eaddrinuse eaddrnotavail eagain ebadf ebusy ecanceled echild econnaborted econnrefused
    econnreset eexist efault efbig ehostdown ehostunreach einprogress eintr einval eio eisdir eloop
    emfile emsgsize enametoolong enetdown enetunreach enfile enobufs enodev enoent enoexec enomem
    enospc enosys enotconn enotdir enotempty enotfound enotsock enotsup enxio eoverflow eperm epipe
    eproto erange erofs espipe esrch estale etimedout etxtbsy exdev
    sigabrt sigalrm sigbus sigfpe sighup sigill sigint sigkill sigpipe sigquit sigsegv sigstop
    sigterm sigtrap sigxcpu
    """.split()
)
"""Words, in lower case, that say how something ended, how it is, or what went wrong.

Recipes name this list, so it never changes once it is released: another list would have another
name. Words that are also usual names of users, topics or programs are not in it.
"""

LEVELS = frozenset(
    """
    trace debug info notice warn warning err error severe critical crit alert emerg fatal panic
    trc dbg inf wrn ftl
    """.split()
)
"""Names of log levels, lower case."""

LEVEL_KEYS = frozenset(
    b"level lvl severity sev priority prio loglevel log_level log-level log.level levelname l "
    b"status state result outcome type kind event alert".split()
)
"""Keys whose value may be a log level, lower case: ``level=info`` is one, ``user=info`` is none."""

MAX_KEY_BYTES = 15
"""Maximum length of such a key."""

STATUS_KEYS = frozenset(
    b"code status statuscode httpstatus httpstatuscode httpresponsestatuscode responsestatus "
    b"responsecode httpcode httpresponsecode scstatus upstreamstatus downstreamstatus "
    b"originstatus elbstatuscode resp".split()
)
"""Names before ``=`` or ``:`` and an HTTP status, in lower case, without `IGNORED_IN_KEYS`."""

EXIT_KEYS = frozenset(
    b"rc retcode retval exitvalue err errno errcode grpcstatus failed failures errors "
    b"unreachable".split()
)
"""Names before ``=`` or ``:`` and an exit code, an error number or a count of failures, written
likewise."""

EXIT_KEY_ENDINGS = (b"exitcode", b"exitstatus", b"returncode")
"""Ends of such names, which are of letters, `MAX_LETTERS` at most."""

IGNORED_IN_KEYS = b"_-.\\"
"""What does not count in names of statuses and exit codes: separators, and what escapes quotes."""

MAX_LETTERS = 31

SEVERITIES = {ord("I"): b"info", ord("W"): b"warning", ord("E"): b"error", ord("F"): b"fatal"}
"""Levels by the letter that klog and glog have for them."""

STANDS_FOR = re.compile(
    rf"<(?:[1-5]xx|(?:non)?zero|{'|'.join(map(bytes.decode, SEVERITIES.values()))})>"
)
"""A status class, an exit code, or the level of such a letter, as patterns show it."""

METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS".split())
"""Methods of requests, before a path or a URL, and a status behind that."""

MAX_WORD_BYTES = 16
"""Maximum length of a protected word."""

ENDINGS = b".!"
"""Not counted at the end of a protected word."""

_KEY = re.compile(rb"[A-Za-z0-9_.-]{1,%d}\Z" % (MAX_KEY_BYTES + 1))
_STATUS = re.compile(rb"[0-9]{3}")
_CLASSES = frozenset(b"12345")
_SEVERITY = re.compile(
    rb"[%b][0-9]{4}(?:[0-9]{4})?(?= [0-9]{2}:[0-9]{2}:[0-9]{2})" % bytes(SEVERITIES)
)
_NEGATION = re.compile(rb"[nN]'")
_LEVEL_BEFORE = re.compile(rb"([A-Z]{3,8})/")
_NAMED_NUMBER = re.compile(rb"[0-9]++/(.++)", re.DOTALL)
_VERSION = re.compile(rb"HTTP/[0-9](?:\.[0-9])?", re.IGNORECASE)
_TIMES = re.compile(rb"[-+]?[0-9]++(?:/[-+]?[0-9]++){4}")
_AFTER_VERSION = frozenset(b'" ')
_AFTER_KEY = frozenset(b"\\\"' =:")
_MAX_PHRASE = 48  # bytes of the longest phrase below, and of what comes before it
_HTTP_PHRASE = re.compile(
    rb"(?:\A|[^A-Za-z0-9_])(?:HTTP(?: error| status)?(?: code)?|HTTP response code"
    rb"|(?:status|response) code|responded(?: with)?"
    rb"|Request finished in [0-9]{1,9}(?:\.[0-9]{1,9})?ms) \Z",
    re.IGNORECASE,
)
_SENT = re.compile(rb"(?:\A|[^A-Za-z0-9_])Sent \Z")
_EXIT_PHRASE = re.compile(
    rb"(?:\A|[^A-Za-z0-9_])(?:"
    rb"(?:(?:exit|return) |(?:exited|terminated)(?: abnormally| unexpectedly)? with |exited,? )"
    rb"(?:code|status)(?:(?: of| is| was)? | ?[:=] ?)[\[('\"]?"
    rb"|(?:finished|ended|completed|failed) with code |exited \(|(?P<bare>exited with ))-?\Z",
    re.IGNORECASE,
)
_FAILURES_BEHIND = re.compile(rb" (?:errors|failures)(?![A-Za-z0-9_\x80-\xff-])")
_LOWER_CASE_WORD = re.compile(rb" [a-z]")
_GOES_ON = re.compile(rb":[0-9]")
# Below and in `_STATUS` what decides is where digits are, not which: the kernel remembers lines
# without their digits, but for those that tell a class.
_EXIT_CODE = re.compile(rb"-?(?:[0-9][xX][0-9A-Fa-f]{1,16}|[0-9]{1,20})")
_SQUID = re.compile(rb"(?:NONE|(?:TCP|UDP|NONE|TAG)_[A-Z_]++)/(?=[0-9]{3}\Z)")
_BEFORE_SIZE = re.compile(rb" [0-9]")
_BEFORE_SIZES = re.compile(
    rb' (?:[0-9]{3}|-) [0-9]{1,10} [0-9]{1,10} "[A-Z-]{1,7} [a-z][a-z0-9]{0,5}://'
)
_TO_AGENT = re.compile(rb" /[^ ]*+ [^ ]++ [0-9]{1,5} [^ ]++ [0-9A-Fa-f.:%]++ ")  # from a method
_LAST_FIELDS = re.compile(rb" [0-9]{3} [0-9]{1,3} [0-9]{1,10} [0-9]{1,10}\r?\Z")
_MAX_LAST_FIELDS = 32
_DIGITS = rb"(?=[0-9]{3}(?:[\s\"'|)\]]|[,;](?:\s|\Z)|\Z))"
_PORT = (  # of a line of IIS: no user and an address follow
    rb"(?<= - )[0-9]{3} - [0-9A-Fa-f%]*+[.:][0-9A-Fa-f%]*+[.:]"
)
_TO_STATUS = re.compile(  # from the end of a method; Kestrel writes what the request held, too
    rb"[ \"']{1,8}+(?:/[^ \"']*+[ \"'=>:|-]{1,8}+(?!%b)|https?://[^ \"']*+"
    rb"(?: - [^ ]++ (?:[0-9]++|-)(?= - ))?[ \"'=>:|-]{1,8}+)%b" % (_PORT, _DIGITS)
)
_WORD_BEHIND = re.compile(rb" +([^\s,;)\]\"'|]++)")
_MICROSECONDS = frozenset({"\N{MICRO SIGN}s".encode(), "\N{GREEK SMALL LETTER MU}s".encode()})
_TIME_BEFORE = re.compile(rb"[0-9]{2}:[0-9]{2}:[0-9]{2} \| ")
_DURATION_BEHIND = re.compile(rb" \| *[0-9][^ |]*+(?<=s) *\|")


def status_word(
    text: bytes, before: tuple[int, int] | None, start: int, end: int, *, of_request: bool
) -> VariantWord | None:
    """Return the HTTP status class, or the kind of exit code, that is in a token, if one is.

    Args:
        text: the line.
        before: where the token before it begins and ends.
        start: where the token begins.
        end: where it ends.
        of_request: whether it is where the status of a request is.
    """
    squid = _SQUID.match(text[:end], start)
    if squid is not None and _BEFORE_SIZE.match(text, end):
        start = squid.end()
    else:
        end = start + len(text[start:end].rstrip(ENDINGS))
        is_number = _EXIT_CODE.fullmatch(text, start, end) is not None
        if is_number and _is_exit_code(text, before, start, end):
            return _exit_word(text, start, end)
        is_three = _STATUS.fullmatch(text, start, end) is not None
        if not (is_three and (of_request or _is_status(text, before, start, end))):
            counts_failures = is_number and _FAILURES_BEHIND.match(text, end)
            return _exit_word(text, start, end) if counts_failures else None
    if text[start] not in _CLASSES:
        return None
    return VariantWord(text[start : start + 1] + b"xx", start, end, True)


def _exit_word(text: bytes, start: int, end: int) -> VariantWord:
    word = b"nonzero" if text[start:end].strip(b"-0xX") else b"zero"
    return VariantWord(word, start, end, True)


def _is_status(text: bytes, before: tuple[int, int] | None, start: int, end: int) -> bool:
    """Return whether three digits, not directly after a request, are an HTTP status."""
    if before is None:
        return False
    name, gap = text[before[0] : before[1]], text[before[1] : start]
    phrase = text[max(start - _MAX_PHRASE, 0) : start]
    if _VERSION.fullmatch(name) and set(gap) <= _AFTER_VERSION:
        return True
    if _TIMES.fullmatch(name) and gap == b" ":
        return True
    if _letters(name) in STATUS_KEYS and _assigns(gap):
        return True
    is_before_sizes = text[start - 1 : start] == b" " and _BEFORE_SIZES.match(text, end)
    return bool(
        is_before_sizes
        or _is_between_bars(text, start, end)
        or (_HTTP_PHRASE.search(phrase) and not _is_amount(text, end))
        or (_SENT.search(phrase) and text[end : end + 4] == b" in ")
    )


def _is_exit_code(text: bytes, before: tuple[int, int] | None, start: int, end: int) -> bool:
    """Return whether a number is behind what announces an exit code."""
    if before is None or _GOES_ON.match(text, end):
        return False
    phrase = _EXIT_PHRASE.search(text[max(start - _MAX_PHRASE, 0) : start])
    if phrase is not None:
        is_counted = phrase["bare"] is not None and _LOWER_CASE_WORD.match(text, end)
        return not is_counted and not _is_amount(text, end)
    letters, gap = _letters(text[before[0] : before[1]]), text[before[1] : start].removesuffix(b"-")
    if letters.isalpha() and len(letters) <= MAX_LETTERS and letters.endswith(EXIT_KEY_ENDINGS):
        return gap == b" " or _assigns(gap)
    return letters in EXIT_KEYS and _assigns(gap)


def _letters(name: bytes) -> bytes:
    """Return what counts of a name."""
    return name.lower().translate(None, IGNORED_IN_KEYS)


def _is_amount(text: bytes, end: int) -> bool:
    """Return whether a unit follows a number."""
    behind = _WORD_BEHIND.match(text, end)
    return bool(behind and (behind[1].rstrip(b".") in UNITS or behind[1] in _MICROSECONDS))


def _assigns(gap: bytes) -> bool:
    """Return whether what is between two tokens makes them a key and its value."""
    return set(gap) <= _AFTER_KEY and (b"=" in gap or b":" in gap)


def status_of_request(text: bytes, start: int, end: int) -> int:
    """Return where the status of a request is, -1 if a token is no method of one that has it.

    Args:
        text: the line.
        start: where the token begins.
        end: where it ends.
    """
    if text[start:end] not in METHODS:
        return -1
    found = _TO_STATUS.match(text, end)
    if found and not _is_amount(text, found.end() + 3):
        return found.end()
    agent = _TO_AGENT.match(text, end)
    if not agent:
        return -1
    last = _LAST_FIELDS.search(text, max(agent.end() - 1, len(text) - _MAX_LAST_FIELDS))
    return last.start() + 1 if last else -1


def is_severity(text: bytes, start: int, end: int) -> bool:
    """Return whether a token is a level's letter and a day, before a time of the day."""
    found = _SEVERITY.match(text, start)
    return found is not None and found.end() == end and not _is_of_other_key(text, start)


def _is_between_bars(text: bytes, start: int, end: int) -> bool:
    """Return whether a token is between a time of the day and a duration, and bars."""
    time = text[max(start - 11, 0) : start]
    return bool(_TIME_BEFORE.fullmatch(time) and _DURATION_BEHIND.match(text, end))


class VariantWord(NamedTuple):
    """A word of a variant, and the token that holds it.

    Attributes:
        word: in lower case; of an HTTP status, its class; of an exit code, whether it is zero.
        start: where it begins in its token.
        end: where it ends, or its token.
        stands_for: whether the text has something else in its place: a status for its class, a
            letter and a day for a level.
    """

    word: bytes
    start: int
    end: int
    stands_for: bool


def variant_words(
    text: bytes,
    spans: Iterable[tuple[int, int]],
    protected: frozenset[bytes],
    levels: frozenset[bytes],
    *,
    status: bool,
) -> Iterator[VariantWord]:
    """Yield the words that make a line's variant, in order.

    Args:
        text: any bytes.
        spans: where each of its tokens begins and ends.
        protected: protected words, levels included, in lower case.
        levels: those that are levels and nothing else.
        status: whether HTTP status classes and exit codes count.
    """
    before, of_request = None, -1
    for start, end in spans:
        word = protected_word(text, start, end, protected, levels)
        if word:
            named = _NAMED_NUMBER.match(text, start, end)
            level = _LEVEL_BEFORE.match(text, start, end)
            yield VariantWord(
                word, named.start(1) if named else start, level.end(1) if level else end, False
            )
        elif levels and is_severity(text, start, end):
            yield VariantWord(SEVERITIES[text[start]], start, end, True)
        elif status:
            found = status_word(text, before, start, end, of_request=start == of_request)
            if found is not None:
                yield found
        before = start, end
        if status and of_request < end:
            of_request = status_of_request(text, start, end)


def protected_word(
    text: bytes, start: int, end: int, protected: frozenset[bytes], levels: frozenset[bytes]
) -> bytes:
    """Return a token as the protected word that it is, or nothing; arguments as above."""
    token = text[start:end]
    word = token.rstrip(ENDINGS).lower()
    if word in protected:
        return b"" if word in levels and _is_of_other_key(text, start) else word
    if word == b"t" and b"not" in protected and _NEGATION.fullmatch(text, max(start - 2, 0), start):
        return b"not"
    named = _NAMED_NUMBER.fullmatch(word)
    if named:
        return named[1] if named[1] in protected and named[1] not in levels else b""
    level = _LEVEL_BEFORE.match(token)
    if level is None or level[1].lower().decode() not in LEVELS:
        return b""
    return level[1].lower() if level[1].lower() in protected else b""


def is_key(text: bytes, end: int) -> bool:
    """Return whether the token that ends here is a key, as in ``err=`` and ``"error":``."""
    return text[end : end + 1] == b"=" or text[end : end + 2] in (b'":', b"':")


def _is_of_other_key(text: bytes, start: int) -> bool:
    """Return whether a token is the value of a key that has no levels."""
    if text[start - 1 : start] != b"=":
        return False
    key = _KEY.search(text[max(start - 2 - MAX_KEY_BYTES, 0) : start - 1])
    return key is not None and key[0].lower() not in LEVEL_KEYS

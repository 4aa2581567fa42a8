"""Reports spam campaigns: many near messages, at a rate, from several senders.

    python campaigns.py messages.jsonl
    tail -F messages.jsonl | python campaigns.py

A message is a JSON object a line, with ``text`` and, if known, ``sender`` and ``time`` (seconds
since 1970, or ISO 8601); or a line ``label<TAB>text``; or a line of text. Messages without a sender
count as one sender each, those without a time as sent now.

Each is decided by a recipe, which gives it a cluster. As soon as a cluster passes the rule, a
verdict is written, a JSON line: the cluster, how many messages it has, how many came in the last
minute, the senders, and its first message. A cluster is reported once; later messages have the
same cluster.

Memory is bounded: of a cluster the newest SIZE times and senders are kept, which is all the rule
looks at, and of clusters the `MAX_CLUSTERS` seen last.
"""

from __future__ import annotations

import random
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stream_dedup import Deduplicator, Limits, Recipe, Windows, load_recipe
from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.errors import StreamDedupError
from stream_dedup.io.files import InputFile

HERE = Path(__file__).resolve().parent
MAX_LINE_BYTES = 256 * 1024
"""A longer line is not a message; it is left out, and counted."""

MAX_CLUSTERS = 20_000
MAX_CANDIDATES = 40_000
"""Fingerprints compared with one message: at a k so large, nearly all there are."""
MAX_NAME = 100
"""Characters kept of a sender, a label, a cluster's name."""
KEPT = 1_000
"""Characters kept of a cluster's first text; the rule's letters are counted in them."""
SHOWN = 160
"""Characters shown of it."""
BATCH = 1_000
MINUTE_US = 60 * US_PER_S

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came.

    Attributes:
        text: what it says.
        sender: who sent it.
        time_us: when, in microseconds since 1970.
        label: what somebody says it is; for measuring alone.
        kind: which sort of it; for measuring alone.
        cluster: what another has decided; empty if nobody has.
    """

    text: str
    sender: str
    time_us: int
    label: str = ""
    kind: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a cluster a campaign.

    Attributes:
        size: least messages within the window.
        window_s: seconds.
        rate: least messages within the last minute.
        senders: least senders among the newest `size` messages.
        letters: a message with fewer letters is too common to be distinguished from chance.
    """

    size: int = 10
    window_s: int = 3600
    rate: int = 3
    senders: int = 5
    letters: int = 40


@dataclass(slots=True)
class Cluster:
    """What is remembered of a cluster."""

    first: Message
    newest: deque[tuple[int, str]]
    count: int = 0
    reported: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A cluster has passed the rule."""

    cluster: str
    size: int
    rate: int
    senders: list[str]
    time_us: int
    first: Message

    def json(self) -> bytes:
        """The verdict as a JSON line."""
        shaped = {
            "verdict": "campaign",
            "cluster": self.cluster,
            "time": iso(self.time_us),
            "size": self.size,
            "rate_per_minute": self.rate,
            "senders": self.senders,
            "first": {
                "time": iso(self.first.time_us),
                "sender": self.first.sender,
                "text": self.first.text[:SHOWN],
            },
        }
        return msgspec.json.encode(shaped) + b"\n"


class Campaigns:
    """Clusters under watch. Knows nothing of how they are made.

    Args:
        rule: what makes a campaign.
        max_clusters: above it the cluster not seen for longest is forgotten.
    """

    def __init__(self, rule: Rule, max_clusters: int = MAX_CLUSTERS) -> None:
        self.rule = rule
        self._max_clusters = max_clusters
        self._clusters: OrderedDict[str, Cluster] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clusters)

    def see(self, name: str, message: Message) -> Verdict | None:
        """Take note of a message of a cluster; a verdict if the cluster passes the rule by it."""
        cluster = self._clusters.get(name)
        if cluster is None:
            first = replace(message, text=message.text[:KEPT])
            cluster = Cluster(first, deque(maxlen=self.rule.size))
            self._clusters[name] = cluster
            if len(self._clusters) > self._max_clusters:
                self._clusters.popitem(last=False)
        self._clusters.move_to_end(name)
        cluster.count += 1
        cluster.newest.append((message.time_us, message.sender))
        if cluster.reported or not self._passes(cluster):
            return None
        cluster.reported = True
        end_us = max(time_us for time_us, _ in cluster.newest)
        return Verdict(
            cluster=name,
            size=cluster.count,
            rate=self._rate(cluster, end_us),
            senders=sorted({sender for _, sender in cluster.newest}),
            time_us=end_us,
            first=cluster.first,
        )

    def _passes(self, cluster: Cluster) -> bool:
        if len(cluster.newest) < self.rule.size:
            return False
        times = [time_us for time_us, _ in cluster.newest]
        return (
            max(times) - min(times) <= self.rule.window_s * US_PER_S
            and self._rate(cluster, max(times)) >= self.rule.rate
            and len({sender for _, sender in cluster.newest}) >= self.rule.senders
            and sum(map(str.isalpha, cluster.first.text)) >= self.rule.letters
        )

    def _rate(self, cluster: Cluster, end_us: int) -> int:
        return sum(time_us > end_us - MINUTE_US for time_us, _ in cluster.newest)


class Decider:
    """Gives messages their clusters, by a recipe, in this process.

    Args:
        recipe: what counts as near.
        window_s: a cluster that had no message for so long is closed.
        seed: the same seed decides the same messages alike; None makes the hashes' key random, so
            that no sender can foresee what is compared.
    """

    def __init__(self, recipe: Recipe, window_s: int, seed: int | None = None) -> None:
        key = None
        if seed is not None:
            key = random.Random(seed).randbytes(16)  # noqa: S311 -- repeatable, said to be no secret
        self._dedup = Deduplicator(
            recipe,
            key=key,
            windows=Windows(idle_us=window_s * US_PER_S),
            limits=Limits(max_clusters=MAX_CLUSTERS, max_candidates=MAX_CANDIDATES),
            keep_summaries=False,
        )

    def clusters(self, messages: Sequence[Message]) -> list[str]:
        """The cluster of each message; empty where there is nothing to compare."""
        decisions = self._dedup.process(
            [message.text for message in messages],
            times_us=[message.time_us for message in messages],
        )
        return [decision.cluster_hex or "" for decision in decisions]


@dataclass(slots=True)
class Reader:
    """Messages out of files, in batches; counts the lines that are none.

    Attributes:
        paths: files, plain or compressed; ``-`` for standard input.
        read: lines that were messages.
        left_out: reason → lines that were not.
    """

    paths: Sequence[str]
    read: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def batches(self) -> Iterator[list[Message]]:
        """Messages as they come, `BATCH` at most together."""
        clock = SystemClock()
        for path in self.paths:
            source = InputFile(path, max_line_bytes=MAX_LINE_BYTES)
            try:
                while (lines := source.read()) is not None:
                    parts = lines.pieces | lines.tails
                    now_us = clock.now_us()
                    found: list[Message] = []
                    for index, line in enumerate(lines.values):
                        if index in parts or len(line) > MAX_LINE_BYTES:
                            if index not in lines.pieces:  # its end: a long line counts once
                                self._leave_out(f"longer than {MAX_LINE_BYTES} bytes")
                            continue
                        number = lines.first + index
                        message = parse(line, f"{source.name}:{number}", now_us)
                        if isinstance(message, str):
                            self._leave_out(message)
                        else:
                            found.append(message)
                    self.read += len(found)
                    for start in range(0, len(found), BATCH):
                        yield found[start : start + BATCH]
            finally:
                source.close()

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def parse(line: bytes, place: str, now_us: int) -> Message | str:
    """A line's message, or why it is none. Takes any bytes.

    >>> parse(b'spam\\twin a prize', "a:1", 7)
    Message(text='win a prize', sender='a:1', time_us=7, label='spam', kind='', cluster='')
    >>> parse(b'{"txet": "hello"}', "a:1", 7)
    'no text'

    Args:
        line: its bytes.
        place: used as the sender where none is given.
        now_us: used as the time where none is given; later times are cut back to it.
    """
    line = line.strip()
    if not line:
        return "empty"
    if not line.startswith(b"{"):
        label, tab, rest = line.decode("utf-8", "replace").partition("\t")
        return Message(rest, place, now_us, label) if tab else Message(label, place, now_us)
    try:
        given = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "not JSON"
    text = given.get("text")
    if not isinstance(text, str):
        return "no text"
    try:
        time_us = min(time_of(given["time"]), now_us) if "time" in given else now_us
    except ValueError:
        return "not a time"
    dedup = given.get("dedup")
    return Message(
        text=text,
        sender=_text(given, "sender") or place,
        time_us=time_us,
        label=_text(given, "label"),
        kind=_text(given, "kind"),
        cluster=_text(dedup, "cluster") if isinstance(dedup, dict) else "",
    )


def _text(given: dict[str, Any], name: str) -> str:
    """A name that a message gives; empty if it gives none."""
    value = given.get(name)
    return value[:MAX_NAME] if isinstance(value, str) else ""


def time_of(value: object) -> int:
    """A time in microseconds since 1970.

    >>> time_of("2026-01-05T08:00:00Z") == time_of(1767600000) == 1767600000000000
    True

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return round(value * US_PER_S)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no time")  # noqa: TRY004 -- a wrong value of a message
    moment = datetime.fromisoformat(value[:40])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, round(moment.timestamp() * US_PER_S))
    except OverflowError as error:
        raise ValueError(f"{value!r} is no time") from error


def iso(time_us: int) -> str:
    """A time as ISO 8601, to the second."""
    return datetime.fromtimestamp(time_us // US_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(text: str | None) -> str:
    """A module's docstring as click shows it: lines that are set in are kept as they are."""
    return re.sub(r"\n\n(?=    )", "\n\n\b\n", text or "")


def rule_options(command: F) -> F:
    """The options of the rule, for a click command."""
    at_least_1 = click.IntRange(min=1)
    default = Rule()
    options = (
        click.option("--size", type=at_least_1, default=default.size, show_default=True,
                     help="Least messages within the window."),
        click.option("--window-s", type=click.IntRange(1, 7 * 86_400), default=default.window_s,
                     show_default=True, help="The window, in seconds."),
        click.option("--rate", type=at_least_1, default=default.rate, show_default=True,
                     help="Least messages within the last minute; SIZE at most."),
        click.option("--senders", type=at_least_1, default=default.senders, show_default=True,
                     help="Least senders among the newest SIZE messages."),
        click.option("--letters", type=click.IntRange(min=0), default=default.letters,
                     show_default=True, help="A message with fewer letters starts no campaign."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def rule_of(size: int, window_s: int, rate: int, senders: int, letters: int) -> Rule:
    """The rule of the options.

    Raises:
        click.UsageError: they contradict one another, so that no cluster can pass.
    """
    for name, value in (("rate", rate), ("senders", senders)):
        if value > size:
            raise click.UsageError(f"--{name} is {value}, --size only {size}: raise --size")
    return Rule(size, window_s, rate, senders, letters)


def recipe_of(name: str) -> Recipe:
    """A recipe by its name or file, with this folder's extractors at hand.

    Raises:
        click.UsageError: there is none, or it is wrong.
    """
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))
    try:
        return load_recipe(name)
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error


@click.command(help=shown(__doc__))
@click.argument("paths", nargs=-1, metavar="[FILE]...")
@click.option("--recipe", default=str(HERE / "spam.toml"), metavar="NAME|FILE",
              help="What counts as near; spam.toml beside this program, if not given.")  # fmt: skip
@click.option(
    "--decided",
    is_flag=True,
    help="Messages hold their cluster already, in dedup.cluster, where a worker writes it.",
)
@click.option(
    "--seed",
    type=int,
    metavar="NUMBER",
    help="Decide as every run with this number does. Not where senders may know it: without it the "
    "hashes have a random key, and of long texts other parts are compared in each run.",
)
@rule_options
def main(paths: tuple[str, ...], recipe: str, decided: bool, seed: int | None, **rule: int) -> None:
    """Read messages, write verdicts."""
    campaigns = Campaigns(rule_of(**rule))
    decider = None if decided else Decider(recipe_of(recipe), campaigns.rule.window_s, seed)
    reader = Reader(paths or ("-",))
    reported = 0
    try:
        for batch in reader.batches():
            clusters = decider.clusters(batch) if decider else [m.cluster for m in batch]
            for cluster, message in zip(clusters, batch, strict=True):
                verdict = campaigns.see(cluster, message) if cluster else None
                if verdict is not None:
                    reported += 1
                    sys.stdout.buffer.write(verdict.json())
            sys.stdout.flush()
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    left_out = "".join(f", {count:,} {why}" for why, count in sorted(reader.left_out.items()))
    click.echo(f"{reader.read:,} messages{left_out}; {reported} campaigns", err=True)


if __name__ == "__main__":
    main()

"""Reports spam campaigns: many near messages, at a rate, from several senders.

    python campaigns.py messages.jsonl
    tail -F messages.jsonl | python campaigns.py

A message is a JSON object a line, with ``text`` and, if known, ``sender`` and ``time`` (seconds
since 1970, or ISO 8601); or a line ``label<TAB>text``; or a line of text. Messages without a sender
count as one sender each, those without a time as sent now.

Each is decided by a recipe, which gives it a cluster. A second, wider search joins clusters whose
texts are disguised too heavily for the recipe. As soon as a campaign passes the rule, a line of
JSON is written, of type "alert"; later, every minute with news and at the end, one of type
"campaign". They have its size, growth, senders, and what varies in its texts: links, amounts and
names.

Output is ASCII: whatever else a sender wrote is escaped.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import click
from counting import Growth, Hash, Senders, Slots
from messages import MAX_NAME, Message, Reader, iso, printable, shown
from wider import TEXTS, Face, WiderSearch

from stream_dedup import Deduplicator, Limits, Recipe, Windows, load_recipe
from stream_dedup.clock import US_PER_S
from stream_dedup.errors import StreamDedupError
from stream_dedup.fingerprint.siphash import KEY_BYTES, HashKey, fastest_siphash

MAX_CLUSTERS = 20_000
KEPT = 1_000
"""Characters kept of a campaign's first text; the rule's letters are counted in them."""
SHOWN = 160
"""Characters shown of it."""
FACES = 16
"""Texts of a campaign that the wider search knows."""
AGREE = 2
"""Similar texts that a new one needs to join a campaign by the wider search, if it has so many."""
MINUTE_US = 60 * US_PER_S

F = TypeVar("F", bound=Callable[..., Any])
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a campaign worth an alert.

    Attributes:
        size: least messages within the window.
        window_s: seconds; a campaign without a message for so long has ended.
        rate: least messages within the last minute.
        senders: least senders among the newest `size` messages.
        letters: a message with fewer letters is too common to be distinguished from chance.
        growth_s: seconds of each of the two windows that are compared.
    """

    size: int = 10
    window_s: int = 3600
    rate: int = 3
    senders: int = 5
    letters: int = 40
    growth_s: int = 300


@dataclass(slots=True, eq=False)
class Campaign:
    """What is remembered of a campaign.

    Attributes:
        name: its first cluster.
        first: its first message.
        newest: time and sender of its newest messages.
        senders: how many there are.
        growth: how many messages came in two windows.
        slots: what varies; None as long as there is one message.
        size: messages.
        wider: of these, the messages of clusters that the wider search has joined.
        clusters: clusters that are remembered; and faces: texts that the wider search knows.
        alerted: whether it has passed the rule.
        recorded: its size when it was last written, and when that was.
    """

    name: str
    first: Message
    newest: deque[tuple[int, str]]
    senders: Senders
    growth: Growth
    last_us: int
    slots: Slots | None = None
    size: int = 0
    wider: int = 0
    clusters: int = 0
    faces: int = 0
    alerted: bool = False
    recorded: tuple[int, int] = (0, 0)

    def add(self, message: Message) -> None:
        """Count a message."""
        self.size += 1
        self.last_us = max(self.last_us, message.time_us)
        self.newest.append((message.time_us, message.sender))
        self.senders.add(message.sender)
        self.growth.add(message.time_us)
        if self.size > 1:
            self.slots = self.slots or Slots(self.first)
            self.slots.add(message.text[:KEPT])

    def rate(self) -> int:
        """Messages within its last minute, `Rule.size` at most."""
        return sum(time_us > self.last_us - MINUTE_US for time_us, _ in self.newest)

    def record(self, kind: str, rule: Rule, *, final: bool = False) -> Record:
        """Its state, in shape for output."""
        now, before = self.growth.until(self.last_us)
        newest = {printable(sender, MAX_NAME) for _, sender in self.newest}
        return {
            "type": kind,
            "campaign": printable(self.name, MAX_NAME),
            "time": iso(self.last_us),
            "final": final,
            "size": self.size,
            "rate_per_minute": self.rate(),
            "growth": {"window_s": rule.growth_s, "now": now, "before": before},
            "senders": {
                "count": self.senders.count,
                "exact": self.senders.exact,
                "newest": sorted(newest),
            },
            "joined_by_wider_search": self.wider,
            "slots": self.slots.shaped() if self.slots else {},
            "first": {
                "time": iso(self.first.time_us),
                "sender": printable(self.first.sender, MAX_NAME),
                "text": printable(self.first.text, SHOWN),
            },
        }


class Campaigns:
    """Campaigns under watch. Knows nothing of how clusters are made.

    Args:
        rule: what makes an alert.
        key: of the hashes of texts and senders; random by default.
        texts: how many the wider search keeps; 0: there is no wider search.
        max_clusters: above it the cluster not seen for longest is forgotten.
    """

    def __init__(
        self,
        rule: Rule,
        key: HashKey | None = None,
        *,
        texts: int = TEXTS,
        max_clusters: int = MAX_CLUSTERS,
    ) -> None:
        self.rule = rule
        key = key or HashKey.random()
        self._hash: Hash = partial(fastest_siphash(), key)
        self._wider: WiderSearch[Campaign] | None = WiderSearch(key, texts) if texts else None
        self._max_clusters = max_clusters
        self._window_us = rule.window_s * US_PER_S
        self._clusters: OrderedDict[str, tuple[Campaign, bool]] = OrderedDict()
        self._alerted: dict[Campaign, None] = {}
        self._records: list[Record] = []
        self._now_us = 0

    def __len__(self) -> int:
        return len(self._clusters)

    def see(self, name: str, message: Message) -> Campaign:
        """Count a message of a cluster, and return the campaign it belongs to."""
        self._now_us = max(self._now_us, message.time_us)
        campaign, by_wider = self._clusters.get(name) or (None, False)
        if campaign is None or self._has_ended(campaign, message.time_us):
            campaign, by_wider = self._campaign_of(name, message)
            self._remember(name, campaign, by_wider)
        self._clusters.move_to_end(name)
        campaign.add(message)
        campaign.wider += by_wider
        if not campaign.alerted and self._passes(campaign):
            campaign.alerted = True
            self._write("alert", campaign)
        if campaign.alerted:
            self._alerted[campaign] = None
        return campaign

    def _has_ended(self, campaign: Campaign, now_us: int) -> bool:
        return now_us - campaign.last_us > self._window_us

    def _campaign_of(self, name: str, message: Message) -> tuple[Campaign, bool]:
        """The campaign of a cluster that is not known, and whether the wider search found it."""
        first = replace(message, text=message.text[:KEPT])
        face: Face | None = None
        campaign: Campaign | None = None
        if self._wider is not None and _letters(first.text) >= self.rule.letters:
            face = self._wider.face(first.text)
            campaign = self._similar(self._wider.similar(face), message.time_us)
        found = campaign is not None
        if campaign is None:
            campaign = Campaign(
                name,
                first,
                deque(maxlen=self.rule.size),
                Senders(self._hash),
                Growth(self.rule.growth_s * US_PER_S),
                message.time_us,
            )
        if self._wider is not None and face is not None and campaign.faces < FACES:
            campaign.faces += 1
            self._wider.add(face, campaign)
        return campaign, found

    def _similar(self, similar: Sequence[Campaign], now_us: int) -> Campaign | None:
        """The most similar campaign of which enough texts are similar."""
        live = [campaign for campaign in similar if not self._has_ended(campaign, now_us)]
        counts = Counter(live)
        return next((each for each in live if counts[each] >= min(AGREE, each.faces)), None)

    def _remember(self, name: str, campaign: Campaign, by_wider: bool) -> None:
        self._forget(name)
        campaign.clusters += 1
        self._clusters[name] = campaign, by_wider
        if len(self._clusters) > self._max_clusters:
            self._forget(next(iter(self._clusters)))

    def _forget(self, name: str) -> None:
        campaign, _ = self._clusters.pop(name, (None, False))
        if campaign is not None:
            campaign.clusters -= 1
            if not campaign.clusters:
                self._end(campaign)

    def _passes(self, campaign: Campaign) -> bool:
        if len(campaign.newest) < self.rule.size:
            return False
        times = [time_us for time_us, _ in campaign.newest]
        return (
            max(times) - min(times) <= self._window_us
            and campaign.rate() >= self.rule.rate
            and len({sender for _, sender in campaign.newest}) >= self.rule.senders
            and _letters(campaign.first.text) >= self.rule.letters
        )

    def records(self, every_s: int) -> list[Record]:
        """Return what is to be written since the last call.

        Args:
            every_s: seconds of the messages' time between two records of a campaign.
        """
        for campaign in list(self._alerted):
            if self._has_ended(campaign, self._now_us):
                self._end(campaign)
                continue
            size, at_us = campaign.recorded
            if campaign.size > size and self._now_us - at_us >= every_s * US_PER_S:
                self._write("campaign", campaign)
        records, self._records = self._records, []
        return records

    def finish(self) -> list[Record]:
        """Return the final records of all campaigns that had an alert."""
        for campaign in list(self._alerted):
            self._end(campaign)
        records, self._records = self._records, []
        return records

    def _end(self, campaign: Campaign) -> None:
        if campaign in self._alerted:
            del self._alerted[campaign]
            self._write("campaign", campaign, final=True)

    def _write(self, kind: str, campaign: Campaign, *, final: bool = False) -> None:
        self._records.append(campaign.record(kind, self.rule, final=final))
        campaign.recorded = campaign.size, self._now_us


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


class Decider:
    """Gives messages their clusters, by a recipe, in this process.

    Args:
        recipe: what counts as near.
        window_s: a cluster that had no message for so long is closed.
        key: of the hashes; random by default, so that no sender can foresee what is compared.
    """

    def __init__(self, recipe: Recipe, window_s: int, key: HashKey | None = None) -> None:
        self._dedup = Deduplicator(
            recipe,
            key=None if key is None else key.secret(),
            windows=Windows(idle_us=window_s * US_PER_S),
            limits=Limits(max_clusters=MAX_CLUSTERS),
            keep_summaries=False,
        )

    def clusters(self, messages: Sequence[Message]) -> list[str]:
        """The cluster of each message; empty where there is nothing to compare."""
        decisions = self._dedup.process(
            [message.text for message in messages],
            times_us=[message.time_us for message in messages],
        )
        return [decision.cluster_hex or "" for decision in decisions]


def key_of(path: str | None) -> HashKey | None:
    """The key in a file of 32 hex digits; None for a random one.

    Raises:
        click.UsageError: it cannot be read, or holds something else, which is not printed.
    """
    if path is None:
        return None
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 -- may be a pipe: <(…)
            return HashKey(bytes.fromhex(file.read(1_000).strip()))
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be opened: {error.strerror}") from error
    except ValueError:
        problem = f"holds no key of {2 * KEY_BYTES} hex digits"
        remedy = f"make one with: openssl rand -hex {KEY_BYTES} > {path}"
        raise click.UsageError(f"{path}: {problem}; {remedy}") from None


def rule_options(command: F) -> F:
    """The options of the rule, for a click command."""
    at_least_1 = click.IntRange(min=1)
    seconds = click.IntRange(1, 7 * 86_400)
    default = Rule()
    options = (
        click.option("--size", type=click.IntRange(1, 1_000), default=default.size,
                     show_default=True, help="Least messages within the window."),
        click.option("--window-s", type=seconds, default=default.window_s, show_default=True,
                     help="The window, in seconds."),
        click.option("--rate", type=at_least_1, default=default.rate, show_default=True,
                     help="Least messages within the last minute; SIZE at most."),
        click.option("--senders", type=at_least_1, default=default.senders, show_default=True,
                     help="Least senders among the newest SIZE messages."),
        click.option("--letters", type=click.IntRange(min=0), default=default.letters,
                     show_default=True, help="A message with fewer letters starts no campaign."),
        click.option("--growth-s", type=seconds, default=default.growth_s, show_default=True,
                     help="Seconds of each of the two windows that growth compares."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def rule_of(**given: int) -> Rule:
    """The rule of the options.

    Raises:
        click.UsageError: they contradict one another, so that no cluster can pass.
    """
    rule = Rule(**given)
    for name, value in (("rate", rule.rate), ("senders", rule.senders)):
        if value > rule.size:
            raise click.UsageError(f"--{name} is {value}, --size only {rule.size}: raise --size")
    return rule


def recipe_of(name: str) -> Recipe:
    """A recipe by its name or file.

    Raises:
        click.UsageError: there is none, or it is wrong.
    """
    try:
        return load_recipe(name)
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error


def lines(records: Sequence[Record]) -> Iterator[bytes]:
    """Records as JSON lines of ASCII."""
    return (json.dumps(record).encode() + b"\n" for record in records)


@click.command(help=shown(__doc__))
@click.argument("paths", nargs=-1, metavar="[FILE]...")
@click.option("--recipe", default="text", show_default=True, metavar="NAME|FILE",
              help="What counts as near.")  # fmt: skip
@click.option(
    "--decided",
    is_flag=True,
    help="Messages hold their cluster already, in dedup.cluster, where a worker writes it.",
)
@click.option(
    "--key-file",
    metavar="FILE",
    help="The secret key of the hashes, 32 hex digits. Without it the key is random, and other in "
    "each run. Two runs with one key decide the same messages alike.",
)
@click.option(
    "--wider",
    "texts",
    default=TEXTS,
    show_default=True,
    type=click.IntRange(0, 1_000_000),
    metavar="TEXTS",
    help="How many texts the wider search keeps, of 5 to 17 KB each; 0 turns it off.",
)
@click.option(
    "--every-s",
    default=60,
    show_default=True,
    type=click.IntRange(1, 86_400),
    help="Least seconds between two records of a campaign.",
)
@rule_options
def main(
    paths: tuple[str, ...],
    recipe: str,
    decided: bool,
    key_file: str | None,
    texts: int,
    every_s: int,
    **rule: int,
) -> None:
    """Read messages, write alerts and campaigns."""
    checked = rule_of(**rule)
    key = key_of(key_file) or HashKey.random()
    campaigns = Campaigns(checked, key, texts=texts)
    decider = None if decided else Decider(recipe_of(recipe), checked.window_s, key)
    reader = Reader(paths or ("-",))
    counts = Counter[str]()

    def write(records: Sequence[Record]) -> None:
        counts.update(record["type"] for record in records)
        sys.stdout.buffer.writelines(lines(records))
        sys.stdout.flush()

    try:
        for batch in reader.batches():
            clusters = decider.clusters(batch) if decider else [m.cluster for m in batch]
            for cluster, message in zip(clusters, batch, strict=True):
                if cluster:
                    campaigns.see(cluster, message)
            write(campaigns.records(every_s))
        write(campaigns.finish())
    except StreamDedupError as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    left_out = "".join(f", {count:,} {why}" for why, count in sorted(reader.left_out.items()))
    click.echo(f"{reader.read:,} messages{left_out}; {counts['alert']} campaigns", err=True)


if __name__ == "__main__":
    main()

"""The errors, as a tree.

::

    StreamDedupError             every error that this package raises on purpose
    ├── RecipeError              a recipe is wrong; names file, key, value and remedy
    ├── ConfigError              the configuration is wrong; names place, key and remedy
    ├── RuleError                a rule about patterns is wrong; names place, key and remedy
    │   └── RuleConflict         it contradicts other rules; names them
    ├── RulesChanged             somebody else changed the rules meanwhile; look and try again
    ├── WorkerEnded              a worker has ended by the error that is its cause; its log has it
    ├── InputError               a file cannot be read, or an option does not fit it
    ├── StateError               a saved state cannot be loaded; names file, problem and remedy
    ├── ProtocolError            the methods of an index were called in a wrong order: a bug
    │   ├── StaleFence           another worker owns the partition now; drop the batch unsent
    │   ├── PartitionUnclaimed   nobody owns the partition; claim it again and go on
    │   └── AlreadyRecorded      a commit's events were recorded before; read the partition again
    ├── IndexUnavailable         the index cannot be reached or refuses for now; retry
    │   └── IndexFull            its memory is full, or too many final summaries wait
    ├── IndexReset               the index lost its data; claim again and go on
    ├── IndexRefused             the index refuses for good; names the remedy
    ├── RecipeMismatch           the namespace belongs to another recipe
    ├── BrokerUnavailable        a broker cannot be reached or refuses for now; retry
    │   ├── ProducerFenced       another worker writes for the partition now
    │   ├── GroupLost            the group assigned the partitions to another worker
    │   ├── RecordsRefused       a topic refuses records for good; deliver again without them
    │   ├── DeliveryTimeout      a delivery took too long; its partition is read again
    │   └── OffsetGone           the offset to be read does not exist; open the partition again
    ├── BrokerRefused            the broker refuses for good; names the remedy
    ├── UnreadableBatch          records were read, but cannot be unpacked; a retry does not help
    └── TooManyInvalidEvents     so many events are invalid that the settings must be wrong

Adapters turn errors of drivers and of the system into these, with the original as `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class StreamDedupError(Exception):
    """Base of every error that this package raises on purpose."""


def _sentence(place: str, key: str, problem: str, remedy: str) -> str:
    """Return one line that names a wrong setting."""
    where = f"{place}: {key}" if key else place
    return f"{where}: {problem}; {remedy}" if remedy else f"{where}: {problem}"


class RecipeError(StreamDedupError):
    """A recipe is wrong.

    Attributes:
        file: where the recipe came from.
        key: dotted path of the setting; empty for the file as a whole.
    """

    def __init__(self, file: str, key: str, problem: str, remedy: str = "") -> None:
        self.file = file
        self.key = key
        super().__init__(_sentence(file, key, problem, remedy))


MISSING = "missing"
"""The problem of a setting that is not given."""


class ConfigProblem(NamedTuple):
    """One problem of the configuration. It holds no secrets.

    Attributes:
        place: the file, environment variable or flag that gave the value.
        key: dotted path of the setting; empty for the place as a whole.
        problem: what is wrong.
        remedy: what to do about it; empty where the problem says it.
    """

    place: str
    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        return _sentence(*self)


class ConfigError(StreamDedupError):
    """The configuration is wrong.

    Attributes:
        problems: every problem found, at least one.
    """

    def __init__(self, *problems: ConfigProblem) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class RuleError(StreamDedupError):
    """A rule about patterns is wrong.

    Attributes:
        place: the rule, or the file.
        key: the setting; empty for the place as a whole.
        problem: what is wrong.
        remedy: what to do about it; empty where the problem says it.
    """

    def __init__(self, place: str, key: str, problem: str, remedy: str = "") -> None:
        self.place = place
        self.key = key
        self.problem = problem
        self.remedy = remedy
        super().__init__(_sentence(place, key, problem, remedy))


class RuleConflict(RuleError):  # noqa: N818 -- says what it is
    """A rule contradicts others.

    Attributes:
        rules: the ids of the rules that cannot hold together.
    """

    def __init__(self, rules: Sequence[str], problem: str) -> None:
        self.rules = tuple(rules)
        super().__init__(" and ".join(rules), "", problem, "undo one of them, or leave it out")


class RulesChanged(StreamDedupError):  # noqa: N818 -- as above
    """The rules were changed by somebody else after they were read; nothing was written."""


class WorkerEnded(StreamDedupError):  # noqa: N818 -- its cause is the error
    """A worker has ended by the error that is the cause; its log says so already."""


class InputError(StreamDedupError):
    """An input cannot be read, or an option does not fit it."""


class StateError(StreamDedupError):
    """A saved state cannot be loaded.

    Attributes:
        file: the file.
    """

    def __init__(self, file: str, problem: str, remedy: str) -> None:
        self.file = file
        super().__init__(f"{file}: {problem}; {remedy}")


class ProtocolError(StreamDedupError):
    """The methods of an index were called in a wrong order."""


class StaleFence(ProtocolError):  # noqa: N818 -- a name from the index protocol
    """Another worker has claimed the partition meanwhile; nothing was written."""


class PartitionUnclaimed(ProtocolError):  # noqa: N818 -- as above
    """Nobody owns the partition: it was never claimed, or its state expired. Claim it again."""


class AlreadyRecorded(ProtocolError):  # noqa: N818 -- as above
    """Events of a commit were recorded before, by a call whose answer was lost.

    Perhaps with other decisions: the partition's journal holds those that were counted.
    """


class IndexUnavailable(StreamDedupError):  # noqa: N818 -- as above
    """The index cannot be reached, or refuses for now.

    The call may have taken effect. Repeat it: each method of the port says what a repeat does.
    """


class IndexFull(IndexUnavailable):
    """The index is full; the message names the cause.

    Its memory is used up: it accepts nothing until clusters expire or it gets more memory. Or too
    many closed clusters wait for their final summaries: it opens no clusters until those are
    claimed and confirmed.

    Attributes:
        decisions: of a `Deduplicator`: the decisions for the first events of the batch, which are
            counted. Continue with the event after them.
    """

    def __init__(self, message: str, decisions: Sequence[Any] = ()) -> None:
        self.decisions = list(decisions)
        super().__init__(message)


class IndexReset(StreamDedupError):  # noqa: N818 -- as above
    """The index came back without its data, or its namespace was deleted.

    It is empty and ready: drop what is cached from it, claim the partitions again and go on.
    """


class IndexRefused(StreamDedupError):  # noqa: N818 -- as above
    """The index refuses for good: credentials, permissions, version or address are wrong."""


class RecipeMismatch(StreamDedupError):  # noqa: N818 -- as above
    """A namespace carries the digest of another recipe."""

    def __init__(self, namespace: str, theirs: str, ours: str) -> None:
        self.namespace = namespace
        self.theirs = theirs
        self.ours = ours
        super().__init__(
            f"namespace {namespace!r} holds fingerprints of recipe {theirs}, not of {ours}; "
            "use the recipe it was made with, or another namespace"
        )


class BrokerUnavailable(StreamDedupError):  # noqa: N818 -- as above
    """A broker cannot be reached, or refuses for now. Records sent before may have been stored."""


class ProducerFenced(BrokerUnavailable):
    """Another worker opened a producer for the partition; this one can store nothing more."""


class GroupLost(BrokerUnavailable):
    """The group assigned the partitions to another worker; the offsets were not committed."""


class RecordsRefused(BrokerUnavailable):
    """A topic refuses records for good. The next delivery replaces those that are known."""


class DeliveryTimeout(BrokerUnavailable):
    """A delivery was not finished within its time limit; some of it may have been stored."""


class OffsetGone(BrokerUnavailable):
    """The next offset of a partition does not exist: it expired, or the topic was created again.

    Attributes:
        topic, number: name the partition.
    """

    def __init__(self, topic: str, number: int, offset: int) -> None:
        self.topic = topic
        self.number = number
        super().__init__(
            f"{topic}-{number} has no offset {offset}: its records have expired, or the topic was "
            "truncated or created again"
        )


class BrokerRefused(StreamDedupError):  # noqa: N818 -- as above
    """The broker refuses for good: credentials, permissions, topics or addresses are wrong."""


class UnreadableBatch(StreamDedupError):  # noqa: N818 -- as above
    """Records that a broker sent cannot be unpacked, or would unpack to too much."""


class TooManyInvalidEvents(StreamDedupError):  # noqa: N818 -- as above
    """The share of invalid events is so large that the settings must be wrong."""

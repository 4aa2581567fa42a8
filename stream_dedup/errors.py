"""The errors, as a tree.

::

    StreamDedupError            everything this package raises on purpose
    ├── RecipeError             a recipe is wrong: names file, key, value and remedy
    ├── ConfigError             the configuration is wrong: names place, key and remedy
    ├── InputError              a file cannot be read, or an option does not fit it
    ├── ProtocolError           an index was called out of turn: a bug in the caller
    │   ├── StaleFence          another worker owns the partition now: drop the batch, unsent
    │   └── PartitionUnclaimed  nobody owns the partition: claim it again and go on
    ├── IndexUnavailable        the index cannot be reached, or refuses for now: try again
    │   └── IndexFull           its memory is full, or too much waits to be told of
    ├── IndexReset              the index lost its data: claim again and go on
    ├── IndexRefused            the index will not serve as it is set up: names the remedy
    ├── RecipeMismatch          the namespace belongs to another recipe
    ├── BrokerUnavailable       a broker cannot be reached, or refuses for now: try again
    │   ├── ProducerFenced        another worker writes for the partition now
    │   └── GroupLost           the group has given the partitions to another worker
    ├── BrokerRefused           the broker will not serve as it is set up: names the remedy
    └── TooManyInvalidEvents           so many events are bad that the settings must be wrong

Errors of a driver or the system arrive as one of these, with the original as ``__cause__``.
"""

from __future__ import annotations

from typing import NamedTuple


class StreamDedupError(Exception):
    """Base of every error this package raises on purpose."""


class RecipeError(StreamDedupError):
    """A recipe is wrong.

    Attributes:
        file: where the recipe came from.
        key: dotted path of the setting, empty when the whole file is meant.
    """

    def __init__(self, file: str, key: str, problem: str, remedy: str) -> None:
        self.file = file
        self.key = key
        place = f"{file}: {key}" if key else file
        super().__init__(f"{place}: {problem}; {remedy}")


class ConfigProblem(NamedTuple):
    """Something wrong with the configuration; it repeats no secrets.

    Attributes:
        place: the file, environment variable or flag that says so.
        key: dotted path of the setting, empty when the whole place is meant.
        problem: what is wrong.
        remedy: what to do about it.
    """

    place: str
    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        place = f"{self.place}: {self.key}" if self.key else self.place
        return f"{place}: {self.problem}; {self.remedy}"


class ConfigError(StreamDedupError):
    """The configuration is wrong.

    Attributes:
        problems: all that is wrong with it, at least one.
    """

    def __init__(self, *problems: ConfigProblem) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class InputError(StreamDedupError):
    """An input cannot be read, or an option does not fit it."""


class ProtocolError(StreamDedupError):
    """An index was called out of turn."""


class StaleFence(ProtocolError):  # noqa: N818 -- named for what it says, as the port's docs do
    """Another worker has claimed the partition since; nothing was written."""


class PartitionUnclaimed(ProtocolError):  # noqa: N818 -- as above
    """Nobody owns the partition: it was never claimed, or its state has run out; claim it."""


class IndexUnavailable(StreamDedupError):  # noqa: N818 -- as above
    """The index cannot be reached, or refuses for now.

    Whether the call had its effect is not known; making it again is safe, as every method of the
    port says what that does.
    """


class IndexFull(IndexUnavailable):
    """The index is full; the message says of what.

    Its memory: it takes nothing until clusters expire or it is given more. Or too many closed
    clusters wait for their final summary: it opens no others until those are claimed and confirmed.
    """


class IndexReset(StreamDedupError):  # noqa: N818 -- as above
    """The index came back without its data, or its namespace was deleted.

    It is ready again, empty: forget what was learnt from it, claim the partitions again and go on.
    """


class IndexRefused(StreamDedupError):  # noqa: N818 -- as above
    """The index will not serve as it is set up: credentials, permissions, version or address."""


class RecipeMismatch(StreamDedupError):  # noqa: N818 -- as above
    """A namespace is stamped with the digest of another recipe."""

    def __init__(self, namespace: str, theirs: str, ours: str) -> None:
        self.namespace = namespace
        self.theirs = theirs
        self.ours = ours
        super().__init__(
            f"namespace {namespace!r} holds fingerprints of recipe {theirs}, not of {ours}; "
            "use the recipe it was made with, or another namespace"
        )


class BrokerUnavailable(StreamDedupError):  # noqa: N818 -- as above
    """A broker cannot be reached, or refuses for now.

    Whether what was sent was stored is not known.
    """


class ProducerFenced(BrokerUnavailable):
    """Another worker opened a producer for the partition; this one can store nothing more."""


class GroupLost(BrokerUnavailable):
    """The group has given the partitions to another worker; the offsets were not stored."""


class BrokerRefused(StreamDedupError):  # noqa: N818 -- as above
    """The broker will not serve as it is set up: credentials, permissions, topics or addresses."""


class TooManyInvalidEvents(StreamDedupError):  # noqa: N818 -- as above
    """So large a share of the events is bad that the settings must be wrong."""

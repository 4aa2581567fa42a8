"""What tests do to a Kafka broker, through librdkafka, which none of our code uses."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.services.kafka_records import Group, Headers, Record, group_of, number, record_of
from tests.services.processes import ServiceError, wait_until

CALL_S = 60.0
"""As long as a machine may do nothing, several times over."""

COORDINATOR_S = 60.0
"""How long to wait for a group's coordinator: it answers when pending transactions have ended."""

# Far longer than a commit takes to reach its partitions, which is milliseconds.
_SETTLE_S = 1.0

_NOT_YET_LED = {
    *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE),
    *(KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE),
}

T = TypeVar("T")

_NO_COORDINATOR = {
    *(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE),
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}

# librdkafka writes to standard error what it also reports, and is slow to connect again.
_QUIET = {
    "log_level": 0,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


Answers = dict[TopicPartition, Future[Any]]


class Kafka(ABC):
    """A running Kafka. What is done here is done by one who may do anything."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Where clients connect, as `host:port`."""

    @abstractmethod
    def _operator_config(self) -> dict[str, Any]:
        """What librdkafka needs to connect as one who may do anything."""

    def operator_config(self, **more: Any) -> dict[str, Any]:
        """A configuration of librdkafka. Underscores in the names of `more` stand for dots."""
        given = {name.replace("_", "."): value for name, value in more.items()}
        return {**_QUIET, **self._operator_config(), **given}

    def admin(self) -> AdminClient:
        """A client to keep until its answers are there: with it, they go."""
        return AdminClient(self.operator_config())

    def producer(self, **config: Any) -> Producer:
        """A producer, such as `producer(transactional_id="a")`, as in `operator_config`."""
        return Producer(self.operator_config(**config))

    def consumer(self, group: str, **config: Any) -> Consumer:
        """A consumer from the beginning, which commits nothing by itself; to be closed."""
        first = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        return Consumer(self.operator_config(**{**first, **config}))

    def fresh_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic of a name that nobody else has."""
        name = f"tests-{secrets.token_hex(6)}"
        self.create_topic(name, partitions, config)
        return name

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and return once it can be used."""
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin = self.admin()
        _result(admin.create_topics([new], request_timeout=CALL_S)[name])
        wait_until(
            lambda: len(_led_partitions(admin, name)) == partitions,
            what=f"topic {name} has its leaders",
        )
        self.end_offsets(name)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions, and return once they can be used."""
        admin = self.admin()
        wanted = NewPartitions(name, partitions)
        _result(admin.create_partitions([wanted], request_timeout=CALL_S)[name])
        wait_until(
            lambda: len(_led_partitions(admin, name)) == partitions,
            what=f"the partitions of {name} have their leaders",
        )
        self.end_offsets(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and return once no broker lists it any more."""
        admin = self.admin()
        _result(admin.delete_topics([name], request_timeout=CALL_S)[name])
        wait_until(lambda: name not in self.topics(), what=f"topic {name} goes")

    def topics(self, *, timeout_s: float = CALL_S) -> list[str]:
        """The names of all topics that are not Kafka's own, in order."""
        try:
            listed = self.admin().list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise ServiceError(f"Kafka does not list its topics: {error}") from error
        return sorted(name for name in listed.topics if not name.startswith("__"))

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The offset of the first record that is kept, for each partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        """The offset that the next record gets, for each partition.

        Args:
            topic: An existing topic.
            read_committed: The offset of the first record of an open transaction instead, if there
                is one.
        """
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, OffsetSpec.latest(), level)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        partition: int | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        timeout_s: float = CALL_S,
        **config: Any,
    ) -> list[tuple[int, int]]:
        """Write records, and return once all are stored.

        Args:
            topic: An existing topic.
            values: A record's value each; None is a tombstone.
            partition: Where all of them go; by default, what librdkafka makes of the keys.
            keys: A key for each value.
            headers: Headers for each value.
            timestamps_ms: A time since 1970 for each value; 0 is now.
            timeout_s: How long to wait for the last ones.
            config: More of librdkafka's, as in `operator_config`: `compression_type="zstd"`.

        Returns:
            Partition and offset of each record.
        """
        producer = self.producer(**{"linger_ms": 1, "queue_buffering_max_messages": 0, **config})
        stored: dict[int, tuple[int, int]] = {}
        failed: list[KafkaError] = []
        count = 0
        for index, value in enumerate(values):

            def delivered(error: KafkaError | None, message: Message, index: int = index) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    stored[index] = (number(message.partition()), number(message.offset()))

            producer.produce(
                topic,
                value=value,
                key=None if keys is None else keys[index],
                partition=-1 if partition is None else partition,
                headers=None if headers is None else list(headers[index] or ()),
                timestamp=0 if timestamps_ms is None else timestamps_ms[index],
                on_delivery=delivered,
            )
            producer.poll(0)
            count += 1
        producer.flush(timeout_s)
        if failed or len(stored) != count:
            why = failed[0] if failed else "no answer"
            raise ServiceError(f"{count - len(stored)} of {count} records not stored: {why}")
        return [stored[index] for index in range(count)]

    def consume(
        self, topic: str, *, read_committed: bool = True, timeout_s: float = CALL_S
    ) -> list[Record]:
        """All records up to the current end, in the order of partitions and offsets.

        Args:
            topic: An existing topic.
            read_committed: Leave out what transactions wrote that did not commit, and everything
                after the first record of one that is still open. One that stays open costs 1 s.
            timeout_s: How long it may take.

        Raises:
            ServiceError: The end was not reached in that time.
        """
        if read_committed:
            self._wait_for_topic(topic)
        consumer = self.consumer(
            "tests-consume",
            enable_partition_eof=True,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            fetch_wait_max_ms=10,
            auto_offset_reset="error",
        )
        records: list[Record] = []
        with closing(consumer):
            # Numbers: librdkafka waits half a second before it asks where the beginning is.
            starts = self.start_offsets(topic)
            # Else it sometimes looks for the leaders a second late.
            consumer.list_topics(topic, timeout=CALL_S)
            pending = set(starts)
            consumer.assign([TopicPartition(topic, *each) for each in starts.items()])
            end = time.monotonic() + timeout_s
            while pending:
                if time.monotonic() > end:
                    raise ServiceError(f"{topic}: no end after {len(records)} records")
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    records.append(record_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    pending.discard(number(message.partition()))
                elif not error.retriable():
                    raise ServiceError(f"{topic}: {error}")
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed, for each topic and partition where it did.

        Asked as a member would, who never joins: an admin client crashes where no coordinator is
        known yet (https://github.com/confluentinc/librdkafka/issues/5040).
        """
        with closing(self.consumer(group)) as consumer:
            listed = consumer.list_topics(timeout=CALL_S).topics
            places = [
                TopicPartition(name, number)
                for name, topic in listed.items()
                if not name.startswith("__")
                for number in topic.partitions
            ]

            def ask() -> list[TopicPartition]:
                try:
                    found: list[TopicPartition] = consumer.committed(places, timeout=COORDINATOR_S)
                except KafkaException as error:
                    raise ServiceError(
                        f"group {group}: no word of what is committed: {error}"
                    ) from error
                return found

            # A broker that has just started may name a coordinator that is none yet.
            found = _retried(ask, _NO_COORDINATOR, COORDINATOR_S)
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def describe_group(self, group: str) -> Group:
        """The members of a consumer group, and what each was given."""
        admin = self.admin()
        answers = admin.describe_consumer_groups([group], request_timeout=CALL_S)
        return group_of(_result(answers[group]))

    def delete_group(self, group: str) -> None:
        """Delete a consumer group without members, with its offsets."""
        admin = self.admin()
        answers = admin.delete_consumer_groups([group], request_timeout=CALL_S)
        _result(answers[group])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Have the broker forget the records before an offset, as it does with old ones."""
        where = TopicPartition(topic, partition, before_offset)
        admin = self.admin()
        _once_led(lambda: admin.delete_records([where], request_timeout=CALL_S))

    def _wait_for_topic(self, topic: str) -> None:
        """Return once no transaction is open, or after a moment, as some stay open on purpose.

        A producer's commit is answered before the partitions know of it, which make it visible.
        """
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end:
            if self.end_offsets(topic, read_committed=True) == self.end_offsets(topic):
                return
            time.sleep(0.01)

    def _offsets(
        self,
        topic: str,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        admin = self.admin()
        asked = {TopicPartition(topic, each): spec for each in _led_partitions(admin, topic)}
        if not asked:
            raise ServiceError(f"there is no topic {topic}; create it first")
        found = _once_led(
            lambda: admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_S)
        )
        return dict(sorted((where.partition, found_at.offset) for where, found_at in found.items()))


def _led_partitions(admin: AdminClient, topic: str) -> list[int]:
    """The partitions that have a leader."""
    try:
        listed = admin.list_topics(topic, timeout=CALL_S).topics[topic]
    except KafkaException as error:
        raise ServiceError(f"Kafka does not describe {topic}: {error}") from error
    return [number for number, each in listed.partitions.items() if each.leader >= 0]


def _once_led(ask: Callable[[], Answers]) -> dict[TopicPartition, Any]:
    """The answers for some partitions, once the broker is ready to lead them.

    Its metadata names it before: after a topic is made, and after a restart.
    """
    return _retried(
        lambda: {where: _result(answer) for where, answer in ask().items()}, _NOT_YET_LED, CALL_S
    )


def _retried(ask: Callable[[], T], passing: AbstractSet[int], seconds: float) -> T:
    """Ask again while the broker answers with an error that passes."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServiceError as error:
            cause = error.__cause__
            passes = isinstance(cause, KafkaException) and cause.args[0].code() in passing
            if not passes or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _result(answer: Future[Any]) -> Any:
    try:
        return answer.result(CALL_S + 1)
    except (KafkaException, TimeoutError) as error:
        raise ServiceError(f"Kafka refused, or did not answer: {error}") from error

"""Real Kafka for tests: a broker of our own, or one that the environment names."""

from tests.services.kafka_broker import USERS, KafkaBroker
from tests.services.kafka_client import Kafka
from tests.services.kafka_existing import DockerKafka, ExistingKafka, named_kafka
from tests.services.kafka_jars import KAFKA_VARIABLE, find_java, find_kafka
from tests.services.kafka_records import Group, GroupMember, Record
from tests.services.kafka_security import ClientCertificates, Security

__all__ = [
    "KAFKA_VARIABLE",
    "USERS",
    "ClientCertificates",
    "DockerKafka",
    "ExistingKafka",
    "Group",
    "GroupMember",
    "Kafka",
    "KafkaBroker",
    "Record",
    "Security",
    "find_java",
    "find_kafka",
    "named_kafka",
]

"""The members of a consumer group, queried in a separate process.

librdkafka can crash in this query while a broker is away
(https://github.com/confluentinc/librdkafka/issues/4605); then only that process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient

ANSWER_S = 60.0
ROOT = Path(__file__).parents[2]


def members(bootstrap: str, group: str) -> Counter[str]:
    """The number of partitions of each member, by client id; empty if the query fails."""
    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__, bootstrap, group],
            cwd=ROOT, capture_output=True, timeout=ANSWER_S + 5, check=True,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return Counter()
    return Counter(json.loads(asked.stdout))


def main(bootstrap: str, group: str) -> None:
    """Query the group, and print the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    answer = admin.describe_consumer_groups([group], request_timeout=ANSWER_S)[group].result()
    print(  # noqa: T201 -- what the process is for
        json.dumps({m.client_id: len(m.assignment.topic_partitions) for m in answer.members})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

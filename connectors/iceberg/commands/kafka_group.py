"""Questions about the connector's consumer group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from connect_py.api.errors import ConnectError

SECONDS: Final = 15.0
_PASSING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


def member_count(kafka: Mapping[str, Any], group: str) -> int:
    """How many consumers a group has; `kafka`: settings of the client.

    Raises:
        ConnectError: Kafka does not answer.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(kafka))  # its answers come while it lives
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return len(admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result().members)
        except KafkaException as error:
            name = error.args[0].name()
            if name in ("GROUP_ID_NOT_FOUND", "_NO_OFFSET"):
                return 0
            if name not in _PASSING or time.monotonic() > deadline:
                raise ConnectError(f"Kafka does not say who is in group {group}: {error}") from error
        time.sleep(0.2)

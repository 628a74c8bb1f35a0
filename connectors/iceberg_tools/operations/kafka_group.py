"""Administer the connector's consumer group and topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TIMEOUT_SECONDS: Final = 15.0
_MISSING: Final = ("GROUP_ID_NOT_FOUND", "_NO_OFFSET", "UNKNOWN_TOPIC_OR_PART")
_TRANSIENT: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


def member_count(kafka: Mapping[str, Any], group: str) -> int:
    """Return the number of consumers in a group.

    Args:
        kafka: Settings of the Kafka client.
        group: The consumer group.

    Raises:
        ConfigError: A setting is invalid.
        ConnectError: Kafka does not respond.
    """
    description = _ask(
        kafka,
        lambda admin: admin.describe_consumer_groups([group], request_timeout=TIMEOUT_SECONDS)[
            group
        ],
        f"list the members of group {group}",
    )
    return 0 if description is None else len(description.members)


def remove_group(kafka: Mapping[str, Any], group: str) -> None:
    """Delete a group and its offsets if the group exists.

    Raises:
        ConfigError: A setting is invalid.
        ConnectError: Kafka does not respond, or rejects the request because the group has members.
    """
    _ask(
        kafka,
        lambda admin: admin.delete_consumer_groups([group], request_timeout=TIMEOUT_SECONDS)[group],
        f"remove group {group}",
    )


def remove_topic(kafka: Mapping[str, Any], topic: str) -> None:
    """Delete a topic if it exists.

    Raises:
        ConfigError: A setting is invalid.
        ConnectError: Kafka does not respond, or rejects the request.
    """
    _ask(
        kafka,
        lambda admin: admin.delete_topics([topic], request_timeout=TIMEOUT_SECONDS)[topic],
        f"remove topic {topic}",
    )


def _ask(
    kafka: Mapping[str, Any], request: Callable[[AdminClient], Future[Any]], action: str
) -> Any:
    """Return the response, or None if the group or topic does not exist.

    The request is retried while the group coordinator is moving.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient(dict(kafka))
    except KafkaException as error:  # a setting is unknown, or its value is invalid
        raise ConfigError("", f"invalid Kafka client settings: {error.args[0].str()}") from error
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return request(admin).result()
        except KafkaException as error:
            name, reason = error.args[0].name(), error.args[0].str()
            if name in _MISSING:
                return None
            if name not in _TRANSIENT or time.monotonic() > deadline:
                raise ConnectError(
                    f"Kafka at {kafka.get('bootstrap.servers')} failed to {action}: {reason}"
                ) from error
        time.sleep(0.2)

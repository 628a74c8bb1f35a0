"""Questions about the connector's consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SECONDS: Final = 15.0
_NOT_THERE: Final = ("GROUP_ID_NOT_FOUND", "_NO_OFFSET", "UNKNOWN_TOPIC_OR_PART")
_PASSING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


def member_count(kafka: Mapping[str, Any], group: str) -> int:
    """How many consumers a group has; `kafka`: settings of the client.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka does not answer.
    """
    found = _ask(
        kafka,
        lambda admin: admin.describe_consumer_groups([group], request_timeout=SECONDS)[group],
        f"say who is in group {group}",
    )
    return 0 if found is None else len(found.members)


def remove_group(kafka: Mapping[str, Any], group: str) -> None:
    """Remove a group and its offsets; one that is not there is left alone.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka refuses, as it does while the group has members, or does not answer.
    """
    _ask(
        kafka,
        lambda admin: admin.delete_consumer_groups([group], request_timeout=SECONDS)[group],
        f"remove group {group}",
    )


def remove_topic(kafka: Mapping[str, Any], topic: str) -> None:
    """Remove a topic, if it is there.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka refuses, or does not answer.
    """
    _ask(
        kafka,
        lambda admin: admin.delete_topics([topic], request_timeout=SECONDS)[topic],
        f"remove topic {topic}",
    )


def _ask(kafka: Mapping[str, Any], request: Callable[[AdminClient], Future[Any]], what: str) -> Any:
    """The answer, asked for again while the coordinator moves; None if there is no such group or
    topic."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient(dict(kafka))
    except KafkaException as error:  # a setting is none, or has a value that cannot be
        raise ConfigError("", f"the settings of the Kafka client: {error.args[0].str()}") from error
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return request(admin).result()
        except KafkaException as error:
            name, text = error.args[0].name(), error.args[0].str()
            if name in _NOT_THERE:
                return None
            if name not in _PASSING or time.monotonic() > deadline:
                raise ConnectError(
                    f"Kafka at {kafka.get('bootstrap.servers')} does not {what}: {text}"
                ) from error
        time.sleep(0.2)

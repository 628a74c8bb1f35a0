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
_PASSING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


def member_count(kafka: Mapping[str, Any], group: str) -> int:
    """How many consumers a group has; `kafka`: settings of the client.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka does not answer.
    """
    from confluent_kafka import KafkaException

    admin = _admin(kafka)  # its answers come while it lives
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return len(admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result().members)
        except KafkaException as error:
            name = error.args[0].name()
            if name in ("GROUP_ID_NOT_FOUND", "_NO_OFFSET"):
                return 0
            if name not in _PASSING or time.monotonic() > deadline:
                servers = kafka.get("bootstrap.servers")
                text = error.args[0].str()
                raise ConnectError(f"Kafka at {servers} does not say who is in group {group}: {text}") from error
        time.sleep(0.2)


def remove_group(kafka: Mapping[str, Any], group: str) -> None:
    """Remove a group and its offsets; one that is not there is left alone.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka refuses, as it does while the group has members, or does not answer.
    """
    admin = _admin(kafka)
    _ask(lambda: admin.delete_consumer_groups([group], request_timeout=SECONDS)[group], f"remove group {group}")


def remove_topic(kafka: Mapping[str, Any], topic: str) -> None:
    """Remove a topic, if it is there.

    Raises:
        ConfigError: The settings are not acceptable.
        ConnectError: Kafka refuses, or does not answer.
    """
    admin = _admin(kafka)
    _ask(lambda: admin.delete_topics([topic], request_timeout=SECONDS)[topic], f"remove topic {topic}")


def _admin(kafka: Mapping[str, Any]) -> AdminClient:
    """Raises ConfigError if a setting is none, or has a value that cannot be."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(dict(kafka))
    except KafkaException as error:
        raise ConfigError("", f"the settings of the Kafka client: {error.args[0].str()}") from error


def _ask(request: Callable[[], Future[Any]], what: str) -> None:
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + SECONDS
    while True:
        try:
            request().result()
        except KafkaException as error:
            name = error.args[0].name()
            if name in ("GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PART"):
                return
            if name not in _PASSING or time.monotonic() > deadline:
                raise ConnectError(f"Kafka does not {what}: {error}") from error
        else:
            return
        time.sleep(0.2)

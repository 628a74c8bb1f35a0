"""The producer of the control topic that outside listeners read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, Producer

from connect_py.api.errors import ConnectError
from connectors.iceberg.channel import MESSAGE_MS, ClientConfig, create_topic, producer_settings

log = logging.getLogger(__name__)


class EventWriter:
    """Writes events, best effort: no caller waits for them. Safe to call from any thread."""

    def __init__(self, client_config: ClientConfig, topic: str, replication: int, overrides: Mapping[str, str]) -> None:
        """Make the topic unless it exists, as a broker that creates topics by itself would for a Java sink."""
        try:
            create_topic(client_config, topic, replication)
        except ConnectError as error:
            log.warning("events for outside listeners may be lost: %s", error)
        self._topic = topic
        self._producer = Producer(producer_settings(client_config, MESSAGE_MS, **overrides))

    def write(self, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topic, value, key, on_delivery=_log_failure)
        self._producer.poll(0)

    def close(self) -> None:
        """Wait a moment for what is on its way."""
        self._producer.flush(2.0)


def _log_failure(error: KafkaError | None, _record: object) -> None:
    if error is not None:
        log.warning("an event for outside listeners was not written: %s", error.str())

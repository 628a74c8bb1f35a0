"""The producer of the control topic that outside listeners read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, Producer

from connectors.iceberg.channel import MESSAGE_MS, ClientConfig, producer_settings

log = logging.getLogger(__name__)


class EventWriter:
    """Writes events, best effort: nobody waits for them. Safe to call from any thread."""

    def __init__(self, client_config: ClientConfig, topic: str, overrides: Mapping[str, str]) -> None:
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

"""Writes source offsets in a transaction that fences the connector's earlier tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer

from connect_py.api.errors import ConnectError
from connect_py.kafka.client_log import client_log

ABORT_SECONDS: Final = 2.0


def write_in_transaction(
    settings: Mapping[str, object],
    topic: str,
    records: Sequence[tuple[bytes, bytes | None]],
    timeout: float,
) -> None:
    """Write records in one transaction and wait until they are committed.

    Args:
        settings: Producer settings. The previous owner of the `transactional.id` is fenced.
        topic: Offset topic.
        records: Key-value pairs.
        timeout: Timeout in seconds for each step.

    Raises:
        ConnectError: The records were not written, or the outcome is unknown.
    """
    producer = Producer({**settings, "partitioner": "murmur2_random"}, logger=client_log)
    try:
        producer.init_transactions(timeout)
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, value, key)
        producer.commit_transaction(timeout)
    except (KafkaException, BufferError) as error:
        with contextlib.suppress(KafkaException):  # there may be no open transaction
            # without this, readers would be blocked until the broker's transaction timeout
            producer.abort_transaction(ABORT_SECONDS)
        raise ConnectError(f"failed to write offsets to topic '{topic}': {error}") from error

"""Writes source offsets in a transaction that fences earlier tasks of the connector."""

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
        settings: Producer settings, with the `transactional.id` whose previous owner is fenced.
        topic: Offset topic.
        records: Pairs of key and value.
        timeout: Seconds for each of the steps.

    Raises:
        ConnectError: They were not written, or the outcome is unknown.
    """
    producer = Producer({**settings, "partitioner": "murmur2_random"}, logger=client_log)
    try:
        producer.init_transactions(timeout)
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, value, key)
        producer.commit_transaction(timeout)
    except (KafkaException, BufferError) as error:
        with contextlib.suppress(KafkaException):  # no transaction is open, or that is unknown
            # readers need not wait for the broker's timeout
            producer.abort_transaction(ABORT_SECONDS)
        raise ConnectError(f"failed to write offsets to topic '{topic}': {error}") from error

"""Writing source offsets in a transaction that no earlier task of the connector can interfere
with."""

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
    """Write records, all or none, and wait until they are committed.

    Args:
        settings: Of a producer, with the `transactional.id` whose earlier holder is fenced by this.
        timeout: Seconds for each of the steps.

    Raises:
        ConnectError: They are not written, or the outcome is unknown.
    """
    producer = Producer({**settings, "partitioner": "murmur2_random"}, logger=client_log)
    try:
        producer.init_transactions(timeout)
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, value, key)
        producer.commit_transaction(timeout)
    except (KafkaException, BufferError) as error:
        with contextlib.suppress(KafkaException):  # none is open, or that is not known
            # readers need not wait for the broker's time-out
            producer.abort_transaction(ABORT_SECONDS)
        raise ConnectError(f"offsets were not written to topic '{topic}': {error}") from error

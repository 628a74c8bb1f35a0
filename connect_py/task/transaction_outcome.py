"""Whether a transaction got into Kafka: if it did, a consumer that reads committed records gets its
records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.client_log import client_log
from connect_py.storage.storage_clients import Settings

POLL_SECONDS: Final = 0.2  # a stop is noticed this late

# A topic that is gone is not waited for: its record was in it.
_LASTING: Final = REFUSALS | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where the broker put a record."""

    topic: str
    partition: int
    offset: int


def is_committed(settings: Settings, place: RecordPlace, check: Callable[[], None]) -> bool:
    """Whether the transaction of this record, which has ended, was committed. Waits, however long.

    Transactions of others that began earlier and are still open hold the answer back until they
    end.

    Args:
        settings: Of a consumer that reads committed records and reports the end of a partition.
        place: Of a record that no later one has replaced: compaction has no reason to remove it.
        check: Called every now and then; raises to give up.

    Raises:
        ConnectError: The topic cannot be read, and will not become readable by waiting.
    """
    news: set[int] = set()  # each code is logged once
    with closing(Consumer(settings, logger=client_log)) as consumer:
        consumer.assign([ClientTopicPartition(place.topic, place.partition, place.offset)])
        while True:
            check()
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error, at = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.fatal() or error.code() in _LASTING:
                    raise ConnectError(
                        f"whether a transaction was committed is not found out: {place.topic} "
                        f"cannot be read: {error.str()}"
                    ) from KafkaException(error)
                if error.code() not in news:
                    news.add(error.code())
                    log.warning("%s cannot be read yet: %s", place.topic, error.str())
                continue  # the client goes on by itself
            if error is None:
                return at == place.offset
            if at is not None and at > place.offset:
                return False  # read past it

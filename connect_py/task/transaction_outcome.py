"""Whether a transaction got into Kafka, told by one of its records: who reads committed records sees it, or never."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.kafka.client_log import client_log
from connect_py.storage.storage_clients import Settings

POLL_SECONDS: Final = 0.2  # a stop is noticed this late


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where the broker put a record."""

    topic: str
    partition: int
    offset: int


def is_committed(settings: Settings, place: RecordPlace, check: Callable[[], None]) -> bool:
    """Whether the transaction of this record, which has ended, was committed. Waits, however long.

    Transactions of others that began earlier and are still open hold the answer back until they end.

    Args:
        settings: Of a consumer that reads committed records and is told of the end of a partition.
        place: Of a record that nobody has replaced since: compaction has no reason to remove it.
        check: Called every now and then; raises to give up.
    """
    with closing(Consumer(settings, logger=client_log)) as consumer:
        consumer.assign([ClientTopicPartition(place.topic, place.partition, place.offset)])
        while True:
            check()
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error, at = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.fatal():
                    raise KafkaException(error)
                continue  # the client goes on by itself
            if error is None:
                return at == place.offset
            if at is not None and at > place.offset:
                return False  # read past it

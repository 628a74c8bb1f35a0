"""Uses a consumer that reads only committed records to determine a transaction's outcome."""

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

POLL_SECONDS: Final = 0.2  # maximum delay of a stop

# Permanent errors. A missing topic must have been deleted, because it once contained the record.
_LASTING: Final = REFUSALS | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Location of a record."""

    topic: str
    partition: int
    offset: int


def is_committed(settings: Settings, location: RecordPlace, check: Callable[[], None]) -> bool:
    """Return True if the transaction of a record was committed. The transaction must have ended.

    Waits without a time limit, because older open transactions of other producers delay the result.

    Args:
        settings: Settings for a consumer that reads only committed records and reports the end of a
            partition.
        location: Location of the record, which must be the latest for its key so that compaction
            does not remove it.
        check: Called regularly. Raises an error to end the wait.

    Raises:
        ConnectError: The topic is permanently unreadable.
    """
    logged_codes: set[int] = set()  # each code is logged once
    with closing(Consumer(settings, logger=client_log)) as consumer:
        consumer.assign([ClientTopicPartition(location.topic, location.partition, location.offset)])
        while True:
            check()
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error, at = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.fatal() or error.code() in _LASTING:
                    raise ConnectError(
                        "failed to determine the outcome of a transaction: cannot read "
                        f"{location.topic}: {error.str()}"
                    ) from KafkaException(error)
                if error.code() not in logged_codes:
                    logged_codes.add(error.code())
                    log.warning("cannot read %s, will retry: %s", location.topic, error.str())
                continue  # the client recovers automatically
            if error is None:
                return at == location.offset
            if at is not None and at > location.offset:
                return False  # the consumer has read past the record

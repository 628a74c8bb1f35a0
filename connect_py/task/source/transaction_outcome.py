"""Outcome of a transaction, determined with a consumer of committed records."""

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

# A missing topic is not waited for: the record was in it.
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
    """Return True if the ended transaction of this record was committed. Waits without a limit.

    Older open transactions of other producers delay the result until they end.

    Args:
        settings: Of a consumer that reads committed records and reports the end of a partition.
        location: Of the latest record of its key, so that compaction does not remove it.
        check: Called regularly; raises to give up.

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
                continue  # the client recovers without help
            if error is None:
                return at == location.offset
            if at is not None and at > location.offset:
                return False  # read past it

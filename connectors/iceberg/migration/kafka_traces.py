"""What the Java sink left in Kafka: offsets of its groups, events on its control topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import TopicPartition
from connectors.iceberg.client_error_log import ClientErrorLog
from connectors.iceberg.migration.java_event import JavaEvent

ASK_SECONDS = 30.0


def group_offsets(settings: Mapping[str, str], group: str) -> dict[TopicPartition, int]:
    """What a group has committed; empty if the cluster does not know the group.

    Raises:
        ConnectError: The cluster does not answer.
    """
    own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    with _client({**settings, **own}, f"offsets of group {group}") as consumer:  # never joins
        topics = consumer.list_topics(timeout=ASK_SECONDS).topics
        asked = [ClientTopicPartition(name, p) for name, topic in topics.items() for p in topic.partitions]
        found = consumer.committed(asked, timeout=ASK_SECONDS)  # an admin client may crash when a coordinator moves
    return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def control_events(settings: Mapping[str, str], topic: str, group: str) -> list[JavaEvent]:
    """All events of this group that the control topic still holds.

    Raises:
        ConnectError: The cluster does not answer.
    """
    own = {
        "group.id": f"{topic}-migration",  # required by the client; never joined, never committed
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    with _client({**settings, **own}, f"control topic {topic}") as consumer:
        found = consumer.list_topics(topic, timeout=ASK_SECONDS).topics.get(topic)
        if found is None or found.error is not None:
            return []
        left = set(found.partitions)
        consumer.assign([ClientTopicPartition(topic, partition, 0) for partition in left])
        return list(_read(consumer, topic, group, left))


@contextmanager
def _client(settings: dict[str, Any], subject: str) -> Iterator[Consumer]:
    """A client for as long as the block takes; its errors are RetriableErrors about the subject."""
    news = ClientErrorLog()
    try:
        consumer = Consumer(news.quiet(settings))
    except KafkaException as error:
        raise RetriableError(f"{subject}: {news.of(error)}") from error
    try:
        yield consumer
    except KafkaException as error:
        raise RetriableError(f"{subject}: {news.of(error, consumer)}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, group: str, left: set[int]) -> list[JavaEvent]:
    events: list[JavaEvent] = []
    heard = time.monotonic()
    while left:
        messages = consumer.consume(1000, 0.5)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() > heard + ASK_SECONDS:
            raise ConnectError(f"control topic {topic}: nothing for {ASK_SECONDS:.0f} s, and no end")
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                continue
            event = JavaEvent.decode(message.partition() or 0, message.offset() or 0, message.value())
            if event is not None and event.group == group:
                events.append(event)
    return events

"""State of the Java sink in Kafka: its groups' offsets, and the events in its control topic."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg_tools.client_error_log import TO_THE_END, consumer_of
from connectors.iceberg_tools.migration.java_event import JavaEvent

TIMEOUT_SECONDS = 30.0


def group_offsets(settings: Mapping[str, str], group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, or an empty dictionary if it does not exist.

    Raises:
        ConnectError: The cluster does not respond.
    """
    consumer_settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
    }
    # the consumer does not join the group
    with consumer_of({**settings, **consumer_settings}, f"offsets of group {group}") as consumer:
        topics = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        partitions = [
            ClientTopicPartition(name, p)
            for name, topic in topics.items()
            for p in topic.partitions
        ]
        # an admin client may crash when a coordinator moves
        committed = consumer.committed(partitions, timeout=TIMEOUT_SECONDS)
    return {TopicPartition(p.topic, p.partition): p.offset for p in committed if p.offset >= 0}


def control_events(settings: Mapping[str, str], topic: str, group: str) -> list[JavaEvent]:
    """Return all events from a group in the control topic.

    Raises:
        ConnectError: The cluster does not respond.
    """
    # The client requires a group ID, but it never joins the group or commits offsets.
    consumer_settings = {
        **TO_THE_END,
        "group.id": f"{topic}-migration",
        "auto.offset.reset": "earliest",
    }
    with consumer_of({**settings, **consumer_settings}, f"control topic {topic}") as consumer:
        metadata = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics.get(topic)
        if metadata is None or metadata.error is not None:
            return []
        partitions = set(metadata.partitions)
        consumer.assign([ClientTopicPartition(topic, partition, 0) for partition in partitions])
        return list(_read(consumer, topic, group, partitions))


def _read(consumer: Consumer, topic: str, group: str, remaining: set[int]) -> list[JavaEvent]:
    events: list[JavaEvent] = []
    last_record_at = time.monotonic()
    while remaining:
        messages = consumer.consume(1000, 0.5)
        if messages:
            last_record_at = time.monotonic()
        elif time.monotonic() > last_record_at + TIMEOUT_SECONDS:
            raise ConnectError(
                f"control topic {topic}: timed out after {TIMEOUT_SECONDS:.0f} s without records "
                "while reading to the end"
            )
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    remaining.discard(message.partition())
                continue
            event = JavaEvent.decode(
                message.partition() or 0, message.offset() or 0, message.value()
            )
            if event is not None and event.group == group:
                events.append(event)
    return events

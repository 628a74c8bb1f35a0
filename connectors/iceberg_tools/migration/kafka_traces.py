"""What the Java sink left in Kafka: offsets of its groups, events on its control topic."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg_tools.client_error_log import TO_THE_END, consumer_of
from connectors.iceberg_tools.migration.java_event import JavaEvent

ASK_SECONDS = 30.0


def group_offsets(settings: Mapping[str, str], group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group; empty if the cluster does not know the group.

    Raises:
        ConnectError: The cluster does not answer.
    """
    own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    with consumer_of({**settings, **own}, f"offsets of group {group}") as consumer:  # never joins
        topics = consumer.list_topics(timeout=ASK_SECONDS).topics
        asked = [
            ClientTopicPartition(name, p)
            for name, topic in topics.items()
            for p in topic.partitions
        ]
        # an admin client may crash when a coordinator moves
        found = consumer.committed(asked, timeout=ASK_SECONDS)
    return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def control_events(settings: Mapping[str, str], topic: str, group: str) -> list[JavaEvent]:
    """All events of this group that the control topic still holds.

    Raises:
        ConnectError: The cluster does not answer.
    """
    # The client requires a group; it is never joined, never committed.
    own = {**TO_THE_END, "group.id": f"{topic}-migration", "auto.offset.reset": "earliest"}
    with consumer_of({**settings, **own}, f"control topic {topic}") as consumer:
        found = consumer.list_topics(topic, timeout=ASK_SECONDS).topics.get(topic)
        if found is None or found.error is not None:
            return []
        left = set(found.partitions)
        consumer.assign([ClientTopicPartition(topic, partition, 0) for partition in left])
        return list(_read(consumer, topic, group, left))


def _read(consumer: Consumer, topic: str, group: str, left: set[int]) -> list[JavaEvent]:
    events: list[JavaEvent] = []
    heard = time.monotonic()
    while left:
        messages = consumer.consume(1000, 0.5)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() > heard + ASK_SECONDS:
            raise ConnectError(
                f"control topic {topic}: nothing for {ASK_SECONDS:.0f} s, and no end"
            )
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                continue
            event = JavaEvent.decode(
                message.partition() or 0, message.offset() or 0, message.value()
            )
            if event is not None and event.group == group:
                events.append(event)
    return events

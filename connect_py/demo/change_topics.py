"""`ChangeTopics`: reads Debezium's events in order to show when each change arrives."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.record import TopicPartition

OPERATIONS: Final[Mapping[str, str]] = {"r": "READ", "c": "INSERT", "u": "UPDATE", "d": "DELETE"}
_METADATA_SECONDS: Final = 10.0
_BATCH: Final = 500
_DATE: Final = "io.debezium.time.Date"  # days since 1970
_EPOCH: Final = date(1970, 1, 1)
_QUIET: Final = logging.getLogger(f"{__name__}.client")  # keeps client logs off the terminal
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the database, read from one Debezium event."""

    table: str
    operation: str
    key: Mapping[str, Any]
    changed_ms: int  # commit time of the transaction, or, for READ, time of the snapshot


class ChangeTopics:
    """Reads all topics with a prefix, without joining a group. Use it on one thread only."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._prefix = prefix
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "demo-view",
                "enable.auto.commit": False,
            },
            logger=_QUIET,
        )
        self._followed: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, deque[tuple[int, Change]]] = {}

    def close(self) -> None:
        self._consumer.close()

    def tables(self) -> set[str]:
        """Return the tables whose topics existed when `read` was last called."""
        return {tp.topic.removeprefix(self._prefix) for tp in self._followed}

    def read(self) -> None:
        """Read all available events."""
        self._follow_new_topics()
        while messages := self._consumer.consume(_BATCH, timeout=0.05):
            for message in messages:
                topic, value = message.topic(), message.value()
                partition, offset, key = message.partition(), message.offset(), message.key()
                if (
                    message.error() is not None
                    or topic is None
                    or partition is None
                    or offset is None
                ):
                    continue
                if value is None or key is None:
                    continue  # a tombstone contains no change
                change = _change(topic.removeprefix(self._prefix), key, value)
                self._waiting.setdefault(TopicPartition(topic, partition), deque()).append(
                    (offset, change)
                )

    def take(self, table: str, offsets: Mapping[TopicPartition, int]) -> list[Change]:
        """Remove and return a table's changes whose offsets are below these offsets."""
        changes = []
        for partition, end in offsets.items():
            if partition.topic != f"{self._prefix}{table}":
                continue  # a snapshot contains the offsets of all of the connector's topics
            waiting = self._waiting.get(partition, deque())
            while waiting and waiting[0][0] < end:
                changes.append(waiting.popleft()[1])
        return changes

    def _follow_new_topics(self) -> None:
        topics = self._consumer.list_topics(timeout=_METADATA_SECONDS).topics
        partitions = {
            TopicPartition(name, number)
            for name, topic in topics.items()
            if name.startswith(self._prefix)
            for number in topic.partitions
        }
        if new := partitions - self._followed:
            self._consumer.incremental_assign(
                [ClientTopicPartition(*tp, OFFSET_BEGINNING) for tp in sorted(new)]
            )
            self._followed |= new


def _change(table: str, key: bytes, value: bytes) -> Change:
    event, document = json.loads(value)["payload"], json.loads(key)
    operation = OPERATIONS.get(event["op"], event["op"])
    dates = {field["field"] for field in document["schema"]["fields"] if field.get("name") == _DATE}
    key_values = {
        name: _day(value) if name in dates else value for name, value in document["payload"].items()
    }
    return Change(table, operation, key_values, int(event["source"]["ts_ms"]))


def _day(number: int) -> date:
    return _EPOCH + timedelta(days=number)

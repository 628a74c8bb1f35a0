"""`StatusStore`: reads the status topic into a table, and writes to the topic.

Regular and safe puts follow Kafka Connect's rules; see `StatusStore.put`.
"""

from __future__ import annotations

import logging
import threading

from confluent_kafka import KafkaError

from connect_py.clock import Clock, SystemClock
from connect_py.kafka.client_log import client_log
from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.log_store import LogStore
from connect_py.storage.status_table import (
    StatusId,
    StatusTable,
    TopicStatus,
    status_key,
    status_value,
    topic_key,
    topic_value,
)
from connect_py.storage.storage_log import LogMaker, LogRecord

log = logging.getLogger(__name__)

SAFE_STATES = (State.UNASSIGNED, State.FAILED)
RETRY_SECONDS = 0.3


class StatusStore(LogStore):
    """Stores the statuses of connectors and tasks, and the topics that they use. Thread-safe."""

    def __init__(self, topic: str, logs: LogMaker, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._table = StatusTable()
        self._lock = threading.Lock()
        self._sequence: dict[StatusId, int] = {}  # sequence number of the latest write for each ID
        # (connector, topic) pairs that have been written but may not have been read back yet
        self._written_topics: set[tuple[str, str]] = set()
        self._retries: set[threading.Timer] = set()
        self._stopping = False
        super().__init__(topic, logs.log(topic, "statuses", self._apply, read_committed=False))

    def stop(self) -> None:
        """Flush writes and stop."""
        with self._lock:
            self._stopping = True
            for timer in self._retries:
                timer.cancel()
        super().stop()

    def _apply(self, record: LogRecord) -> None:
        with self._lock:
            self._table.apply(record.partition, record.timestamp, record.key, record.value)
            # The record is this worker's own write, read back, or another worker's record or
            # tombstone. In either case, the table now reflects it.
            self._written_topics = {
                pair for pair in self._written_topics if topic_key(pair[1], pair[0]) != record.key
            }

    def get(self, id: StatusId) -> Status | None:  # noqa: A002 - Connect's term
        with self._lock:
            return self._table.get(id)

    def tasks(self, connector: str) -> dict[int, Status]:
        """Return the statuses of a connector's tasks by task number, in ascending order."""
        with self._lock:
            return self._table.tasks(connector)

    def ids(self) -> list[StatusId]:
        """Return all IDs that have a status."""
        with self._lock:
            return list(self._table.ids())

    def highest_generation(self) -> int:
        """Return the highest generation read so far. This worker's generation must exceed it."""
        with self._lock:
            return self._table.highest_generation

    def put(self, id: StatusId, status: Status) -> None:  # noqa: A002 - Connect's term
        """Publish a status.

        UNASSIGNED and FAILED are not written if a newer owner has already published a status.
        """
        with self._lock:
            if status.state in SAFE_STATES and not self._table.permits_safe_put(id, status):
                log.debug(
                    "not writing status %s of %s: a newer owner has published one",
                    status.state.value,
                    id,
                )
                return
            sequence = self._sequence[id] = self._sequence.get(id, 0) + 1
        self._send(id, status, sequence)

    def delete(self, id: StatusId) -> None:  # noqa: A002 - Connect's term
        """Write a tombstone."""
        self.put(id, Status(State.DESTROYED, "", 0))

    def _send(self, id: StatusId, status: Status, sequence: int) -> None:  # noqa: A002 - Connect's term
        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._retry(id, status, sequence, error)

        self._log.send(status_key(id), status_value(status), done)

    def _retry(
        self,
        id: StatusId,  # noqa: A002 - Connect's term
        status: Status,
        sequence: int,
        error: KafkaError,
    ) -> None:
        """Retry a write unless it has been superseded or is no longer permitted.

        Called on a Kafka client thread.
        """
        with self._lock:
            superseded = self._sequence.get(id) != sequence
            unsafe = status.state in SAFE_STATES and not self._table.permits_safe_put(id, status)
            if superseded or unsafe or self._stopping:
                return
            if error.code() in (
                KafkaError.MSG_SIZE_TOO_LARGE,
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
            ):
                log.error("failed to write the status of %s: %s", id, error.str())
                return
            client_log.warning("failed to write the status of %s, retrying: %s", id, error.str())
            timer = threading.Timer(RETRY_SECONDS, self._send_again, (id, status, sequence))
            timer.name = f"status-retry-{id}"
            timer.daemon = True
            self._retries = {timer for timer in self._retries if timer.is_alive()} | {timer}
            timer.start()

    def _send_again(self, id: StatusId, status: Status, sequence: int) -> None:  # noqa: A002 - Connect's term
        with self._lock:
            current = self._sequence.get(id) == sequence and not self._stopping
        if current:
            self._send(id, status, sequence)

    def topics(self, connector: str) -> list[TopicStatus]:
        """Return the topics that a connector has used."""
        with self._lock:
            return self._table.topics(connector)

    def put_topic(self, task: ConnectorTaskId, topic: str) -> None:
        """Record that a task has used a topic. Writes one record per connector and topic."""
        with self._lock:
            pair = (task.connector, topic)
            if pair in self._written_topics or self._table.has_topic(*pair):
                return
            self._written_topics.add(pair)
        status = TopicStatus(topic, task.connector, task.task, self._clock.time_ms())
        self._log.send(topic_key(topic, task.connector), topic_value(status))

    def delete_topics(self, connector: str) -> None:
        """Delete the records of all topics that a connector has used."""
        with self._lock:
            topics = {status.topic for status in self._table.topics(connector)}
            topics |= {topic for name, topic in self._written_topics if name == connector}
            self._written_topics = {pair for pair in self._written_topics if pair[0] != connector}
        for topic in topics:
            self._log.send(topic_key(topic, connector), None)

"""`ControlStore`: reads and writes a worker group's control topic; see `control_records`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from connect_py.storage.control_records import (
    ASSIGNMENT_KEY,
    EPOCH_KEY,
    MEMBER_PREFIX,
    Assignment,
    Epoch,
    Heartbeat,
    heartbeat_key,
)
from connect_py.storage.kafka_based_log import KafkaBasedLog
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.log_store import LogStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import LogRecord, Write

log = logging.getLogger(__name__)


class ControlListener(Protocol):
    """Receives the topic's records in order on the reader's thread. Must not block."""

    def on_heartbeat(self, heartbeat: Heartbeat) -> None: ...

    def on_left(self, member: str) -> None: ...

    def on_epoch(self, epoch: Epoch) -> None: ...

    def on_assignment(self, assignment: Assignment) -> None: ...

    def on_topic_lost(self) -> None:
        """Handle the recreation of the topic, which is then read from its beginning."""


class ControlStore(LogStore):
    """Reads the control topic and writes the leader's records with the leader's producer."""

    def __init__(
        self, topic: str, clients: StorageClients, leader: LeaderProducer, listener: ControlListener
    ) -> None:
        self._leader = leader
        self._listener = listener
        super().__init__(
            topic,
            KafkaBasedLog(
                topic,
                clients,
                "control",
                self._apply,
                read_committed=True,
                on_reset=listener.on_topic_lost,
            ),
        )

    def put_epoch(self, epoch: Epoch, timeout: float) -> None:
        """Start a term by writing its epoch, and wait until the record has been read back.

        Raises the same errors as `LeaderProducer.write`, and LogTimeoutError.
        """
        written = self._leader.write([Write(self.topic, EPOCH_KEY, epoch.encode())], timeout)
        self._log.await_offset(written, timeout)

    def put_assignment(
        self, epoch: Epoch, assignment: Assignment, removed: Iterable[str], timeout: float
    ) -> None:
        """Write an assignment with its epoch, and remove members, in one transaction.

        The sessions of the members in `removed` must have definitely expired. Raises the same
        errors as `LeaderProducer.write`.
        """
        writes = [Write(self.topic, heartbeat_key(member), None) for member in removed]
        writes += [
            Write(self.topic, EPOCH_KEY, epoch.encode()),
            Write(self.topic, ASSIGNMENT_KEY, assignment.encode()),
        ]
        self._leader.write(writes, timeout)

    def _apply(self, record: LogRecord) -> None:
        key = record.key or b""
        if key == EPOCH_KEY:
            epoch = Epoch.decode(record.value)
            if epoch is not None:
                return self._listener.on_epoch(epoch)
        elif key == ASSIGNMENT_KEY:
            assignment = Assignment.decode(record.value)
            if assignment is not None:
                return self._listener.on_assignment(assignment)
        elif key.startswith(MEMBER_PREFIX):
            if record.value is None:
                return self._listener.on_left(
                    key.removeprefix(MEMBER_PREFIX).decode(errors="replace")
                )
            heartbeat = Heartbeat.decode(key, record.value)
            if heartbeat is not None:
                return self._listener.on_heartbeat(heartbeat)
        log.warning("control topic, offset %d: skipping unreadable record", record.offset)
        return None

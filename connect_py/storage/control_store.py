"""`ControlStore`: the control topic of a worker group, whose leader and members write what
`control_records` holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from connect_py.storage.control_records import (
    ASSIGNMENT_KEY,
    EPOCH_KEY,
    HELLO_PREFIX,
    Assignment,
    Epoch,
    Hello,
    hello_key,
)
from connect_py.storage.kafka_based_log import KafkaBasedLog
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.log_store import LogStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import LogRecord, Write

log = logging.getLogger(__name__)


class ControlListener(Protocol):
    """Takes the records of the topic in order, on the reader's thread; returns soon."""

    def on_hello(self, hello: Hello) -> None: ...

    def on_left(self, member: str) -> None: ...

    def on_epoch(self, epoch: Epoch) -> None: ...

    def on_assignment(self, assignment: Assignment) -> None: ...

    def on_topic_lost(self) -> None:
        """The topic was made anew and is read from its beginning."""


class ControlStore(LogStore):
    """Reads the control topic; the leader writes it through its producer."""

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
        """Announce a term; errors of `LeaderProducer.write`, LogTimeoutError."""
        written = self._leader.write([Write(self.topic, EPOCH_KEY, epoch.encode())], timeout)
        self._log.await_offset(written, timeout)

    def put_assignment(
        self, epoch: Epoch, assignment: Assignment, removed: Iterable[str], timeout: float
    ) -> None:
        """Write an assignment with its epoch, which must not be older in the topic, and take
        members out.

        `removed` are those whose lease surely ended. Errors of `LeaderProducer.write`.
        """
        writes = [Write(self.topic, hello_key(member), None) for member in removed]
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
        elif key.startswith(HELLO_PREFIX):
            if record.value is None:
                return self._listener.on_left(
                    key.removeprefix(HELLO_PREFIX).decode(errors="replace")
                )
            hello = Hello.decode(key, record.value)
            if hello is not None:
                return self._listener.on_hello(hello)
        log.warning("control topic, offset %d: not readable; skipped", record.offset)
        return None

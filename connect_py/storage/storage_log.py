"""What a store reads from and writes to: a topic of Kafka, or in standalone mode something local
that acts like one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError


class LogTimeoutError(ConnectError):
    """The log could not be read to its end, or written, in time."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log."""

    partition: int
    offset: int
    timestamp: int  # ms since the epoch, -1 when there is none
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Write:
    """One record of a transaction."""

    topic: str
    key: bytes
    value: bytes | None


class StorageLog(Protocol):
    """Hands every record to its store, in the order of each partition. Methods may be called on any
    thread."""

    refusal: str | None  # why it may not be read

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """Write what was sent, and end."""

    def await_offset(self, offset: int, timeout: float) -> None:
        """Wait until this record of partition 0 was applied; LogTimeoutError."""

    def await_end(self, timeout: float) -> None:
        """Wait until everything written so far was applied; LogTimeoutError."""

    def read_to_end(self) -> Future[None]:
        """Done when everything written so far was applied."""

    def send(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        """Write one record, soon; `done` is called when it is safe or refused. ConnectError."""

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        """Write one record and wait until it is safe; LogTimeoutError, ConnectError."""

    def flush(self, timeout: float) -> None:
        """Wait until everything sent so far is safe or refused, at most `timeout` seconds."""


class LogMaker(Protocol):
    """Opens logs by their names."""

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> StorageLog:
        """Prepare a log; `apply` is called with each record. `client` names its clients in
        Kafka."""


class TransactionWriter(Protocol):
    """Writes what only one worker of a group may write."""

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records together and return the offset of the last one."""

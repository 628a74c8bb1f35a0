"""Log interface that the stores use. A log is a Kafka topic or, in standalone mode, local."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError


class LogTimeoutError(ConnectError):
    """The log was not read to its end, or a record was not written, in time."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record in a log."""

    partition: int
    offset: int
    timestamp: int  # ms since the epoch, or -1
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Write:
    """One record in a transaction."""

    topic: str
    key: bytes
    value: bytes | None


class StorageLog(Protocol):
    """A log that passes every record to its store, in order within a partition. Thread-safe."""

    refusal: str | None  # error message if reading is denied

    def start(self) -> None:
        """Start reading."""

    def stop(self) -> None:
        """Flush writes and stop."""

    def await_offset(self, offset: int, timeout: float) -> None:
        """Wait until this record in partition 0 has been applied. May raise LogTimeoutError."""

    def await_end(self, timeout: float) -> None:
        """Wait until all records written so far have been applied. May raise LogTimeoutError."""

    def read_to_end(self) -> Future[None]:
        """Return a future that completes when all records written so far have been applied."""

    def send(
        self,
        key: bytes,
        value: bytes | None,
        on_delivery: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        """Write one record asynchronously. May raise ConnectError.

        `on_delivery` is called when the record has been stored or rejected.
        """

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        """Write one record and wait until it is stored.

        May raise LogTimeoutError or ConnectError.
        """

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until all sent records are stored or rejected."""


class LogMaker(Protocol):
    """Opens logs by name."""

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> StorageLog:
        """Create a log that passes each record to `apply`. `client` is part of the client ID."""


class TransactionWriter(Protocol):
    """Writes records that only the leader of a group may write."""

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records in one transaction and return the offset of the last one."""

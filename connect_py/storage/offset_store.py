"""`OffsetStore`: reads a topic of source offsets into a table, and writes to the topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError
from connect_py.storage.log_store import LogStore
from connect_py.storage.offset_table import (
    OffsetTable,
    SourceOffset,
    SourcePartition,
    check_primitives,
)
from connect_py.storage.storage_log import LogMaker, LogRecord


class OffsetStore(LogStore):
    """Stores the offset of each source partition in a log. Thread-safe."""

    def __init__(self, topic: str, logs: LogMaker) -> None:
        self._table = OffsetTable()
        self._lock = threading.Lock()
        super().__init__(topic, logs.log(topic, "offsets", self._apply, read_committed=True))

    def _apply(self, record: LogRecord) -> None:
        with self._lock:
            self._table.apply(record.partition, record.timestamp, record.key, record.value)

    def get(self, connector: str, partition: SourcePartition) -> SourceOffset | None:
        """Return the latest offset that has been read for a source partition, or None."""
        with self._lock:
            return self._table.get(connector, partition)

    def offsets(self, connector: str) -> list[tuple[SourcePartition, SourceOffset]]:
        """Return every source partition of a connector that has an offset, with its offset."""
        with self._lock:
            return self._table.offsets(connector)

    def set(
        self, connector: str, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> Future[None]:
        """Write offsets. An offset of None resets a partition.

        The returned future completes when all records are acknowledged and `get` returns their
        offsets.

        Raises:
            DataError: A value is not primitive. Nothing is written.
        """
        return self._write(self.records(connector, offsets))

    def records(
        self, connector: str, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the records that store offsets, as key-value pairs for another producer to write.

        Raises:
            DataError: A value is not primitive.
        """
        for partition, offset in offsets:
            check_primitives(partition)
            check_primitives(offset)
        with self._lock:
            return [record for pair in offsets for record in self._table.records(connector, *pair)]

    def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> Future[None]:
        outcome: Future[None] = Future()
        pending = len(records)
        problem: KafkaError | None = None
        if not pending:
            outcome.set_result(None)

        def delivered(error: KafkaError | None) -> None:
            nonlocal pending, problem
            pending -= 1
            problem = problem or error
            if pending:
                return  # the last delivery completes the outcome
            if problem is not None:
                outcome.set_exception(ConnectError(f"failed to write offsets: {problem.str()}"))
            else:
                self._log.read_to_end().add_done_callback(read_back)

        def read_back(reading: Future[None]) -> None:
            error = reading.exception()
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        for key, value in records:
            self._log.send(key, value, delivered)
        return outcome

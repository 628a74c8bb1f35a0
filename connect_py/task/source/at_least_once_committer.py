"""`AtLeastOnceCommitter`: stores source offsets after their records have been acknowledged.

Some records may be delivered again after a crash.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.plurals import pluralize
from connect_py.task.messages import WriteSourceOffsets
from connect_py.task.source.source_committer import SourceCommitter
from connect_py.task.source.source_producer import OutgoingRecord, SourceProducer
from connect_py.task.source.submitted_records import (
    Entry,
    PartitionKey,
    Submitted,
    SubmittedRecords,
)
from connect_py.task.task_control import TaskControl
from connect_py.task.worker_client import result_of

# minimum time for storing offsets on close, even if deliveries have used up the timeout
LEAST_FLUSH_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class AtLeastOnceCommitter(SourceCommitter):
    """Stores offsets through the worker at every commit interval while polling continues."""

    def __init__(
        self,
        task: SourceTask,
        producer: SourceProducer,
        control: TaskControl,
        metrics: SourceMetrics,
        clock: Clock,
        *,
        commit_interval_ms: int,
        commit_timeout_ms: int,
    ) -> None:
        super().__init__(task, metrics, clock)
        self._producer = producer
        self._control = control
        self._interval = commit_interval_ms / 1000
        self._timeout = commit_timeout_ms / 1000
        self._submitted = SubmittedRecords()
        self._next_commit = clock.monotonic() + self._interval
        # offsets of acknowledged records that have not been stored yet
        self._unstored: dict[PartitionKey, tuple[Entry, Entry]] = {}
        self._running: Future[None] | None = None
        self._started = 0.0

    def open(self) -> None:
        self._next_commit = self._clock.monotonic() + self._interval

    def submit(self, record: SourceRecord) -> Submitted:
        return self._submitted.submit(record)

    def drop(self, submitted: Submitted) -> None:
        self._done(submitted, None)

    def sending(self, topic: str) -> None:
        return

    def refused(self, error: KafkaException) -> None:
        raise error

    def dispatched(self, submitted: Submitted, record: OutgoingRecord) -> None:
        return

    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        self._metrics.written += 1
        self._done(submitted, OffsetAndMetadata(message.offset() or 0))

    def lost(self, submitted: Submitted, error: KafkaError | None) -> None:
        self._done(submitted, None)

    @property
    def tolerates_lost_records(self) -> bool:
        return True

    @property
    def active(self) -> int:
        return self._submitted.active

    def _done(self, submitted: Submitted, metadata: OffsetAndMetadata | None) -> None:
        self._submitted.acknowledge(submitted)
        self._record_committed(submitted.record, metadata)

    def batch_done(self) -> None:
        return

    def tick(self) -> None:
        now = self._clock.monotonic()
        if self._running is not None:
            self._check(self._running, now)
        elif now >= self._next_commit:
            self._start_commit(now)

    def _start_commit(self, now: float) -> None:
        self._next_commit = now + self._interval
        self._unstored |= self._submitted.committable()
        self._started = now
        if not self._unstored:
            self._succeeded(0.0)
            return
        self._running = self._control.submit(WriteSourceOffsets(list(self._unstored.values())))

    def _check(self, running: Future[None], now: float) -> None:
        try:
            if running.done():
                result_of(running)
                self._stored(now)
            elif now - self._started > self._timeout:
                self._failed(f"no response within {self._timeout * 1000:.0f} ms", now)
        except ConnectError as error:
            self._failed(str(error), now)

    def _stored(self, now: float) -> None:
        self._running = None
        self._unstored.clear()
        self._succeeded(now - self._started)

    def _succeeded(self, seconds: float) -> None:
        self._metrics.commits.succeeded(seconds)
        self._notify_task()

    def _failed(self, reason: str, now: float) -> None:
        """Record a failed commit. The next commit stores the same offsets again."""
        self._running = None
        self._metrics.commits.failed(now - self._started)
        log.error("Failed to commit offsets: %s", reason, extra={"action": "commit_failed"})

    def close(self, *, failed: bool) -> None:
        """Flush the producer and store offsets, even after a failure."""
        deadline = self._clock.monotonic() + self._timeout
        unacknowledged = self._producer.client.flush(self._timeout)
        if unacknowledged:
            log.error(
                "%s not acknowledged within %.0f ms and will be read again",
                pluralize(unacknowledged, "record was", "records were"),
                self._timeout * 1000,
            )
        self._running = None
        self._unstored |= self._submitted.committable()
        self._started = self._clock.monotonic()
        if not self._unstored:
            self._succeeded(0.0)
            return
        request = WriteSourceOffsets(list(self._unstored.values()))
        try:
            self._control.call(request, max(LEAST_FLUSH_SECONDS, deadline - self._started))
        except ConnectError as error:
            self._failed(str(error), self._clock.monotonic())
        else:
            self._stored(self._clock.monotonic())

"""`SourceCommitter`: tracks the delivery of a source task's records and stores their offsets."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.task.source.source_producer import OutgoingRecord
from connect_py.task.source.submitted_records import Submitted

log = logging.getLogger(__name__)


class SourceCommitter(ABC):
    """Commits the offsets of one task. All methods are called on the task's thread.

    The loop first calls `open`. For each record, it calls `submit`, followed by either `drop` or
    `sending` and `dispatched`. It calls `acknowledged` or `lost` when the client reports the result
    for a record, `batch_done` after all records of a poll, `tick` periodically, and `close` at the
    end.
    """

    def __init__(self, task: SourceTask, metrics: SourceMetrics, clock: Clock) -> None:
        self._task = task
        self._metrics = metrics
        self._clock = clock

    @abstractmethod
    def open(self) -> None:
        """Prevent other producers from writing on behalf of this task.

        Called before the task starts.
        """

    @abstractmethod
    def submit(self, record: SourceRecord) -> Submitted:
        """Register a record exactly as the task returned it."""

    @abstractmethod
    def drop(self, submitted: Submitted) -> None:
        """Complete a record that was filtered or whose failure is tolerated."""

    @abstractmethod
    def sending(self, topic: str) -> None:
        """Prepare to hand a record for `topic` to the client.

        Raises:
            ConnectError: The task must not write to this topic.
        """

    @abstractmethod
    def refused(self, error: KafkaException) -> None:
        """Handle a record that the client rejected and whose loss is not tolerated.

        Return if the record should be sent again; otherwise, raise an error.
        """

    @abstractmethod
    def dispatched(self, submitted: Submitted, record: OutgoingRecord) -> None:
        """Handle a record that the client has accepted."""

    @abstractmethod
    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        """Handle a record that the broker has stored. Called from the client's `poll`."""

    @abstractmethod
    def lost(self, submitted: Submitted, error: KafkaError | None) -> None:
        """Handle a record that the client did not deliver.

        The loss is tolerated or fails the next commit.

        Called from the client's `poll` with the error, or from the loop without an error.
        """

    @property
    @abstractmethod
    def tolerates_lost_records(self) -> bool:
        """Return True if `errors.tolerance` applies to undelivered records.

        Otherwise, the next commit fails.
        """

    @property
    @abstractmethod
    def active(self) -> int:
        """Return the number of records that have not been delivered yet."""

    @abstractmethod
    def batch_done(self) -> None:
        """Handle the end of a poll. Its records have all been handed to the client or dropped."""

    @abstractmethod
    def tick(self) -> None:
        """Commit if due."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Deliver and store as much as possible within the commit timeout. Errors are logged."""

    def _notify_task(self) -> None:
        """Notify the task that offsets are stored. Its errors are only logged, as in Java."""
        try:
            self._task.commit()
        except Exception:
            log.exception("the commit method of the task failed")

    def _record_committed(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        try:
            self._task.commit_record(record, metadata)
        except Exception:
            log.exception("the commit_record method of the task failed")


class NotDeliveredError(ConnectError):
    """A record or a transaction was not written to Kafka."""

"""`SourceCommitter`: when the records of a source task count as delivered, and when their offsets
are stored."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.task.source_producer import OutgoingRecord
from connect_py.task.submitted_records import Submitted

log = logging.getLogger(__name__)


class SourceCommitter(ABC):
    """Commits offsets of one source task.

    Every method is called on the task thread. The loop calls `open`; for each record, `submit` and
    either `drop` or `sending` and `dispatched`; `acknowledged` or `lost` when the client reports
    the result; `batch_done` after the records of each poll; `tick` in between; `close` at the end.
    """

    def __init__(self, task: SourceTask, metrics: SourceMetrics, clock: Clock) -> None:
        self._task = task
        self._metrics = metrics
        self._clock = clock

    @abstractmethod
    def open(self) -> None:
        """Before the task starts: keep other producers from writing in this task's place."""

    @abstractmethod
    def submit(self, record: SourceRecord) -> Submitted:
        """Take a record in hand, as the task made it."""

    @abstractmethod
    def drop(self, submitted: Submitted) -> None:
        """It was filtered, or failed and is tolerated."""

    @abstractmethod
    def sending(self, topic: str) -> None:
        """A record is about to be handed to the client. ConnectError: it may not go to this
        topic."""

    @abstractmethod
    def refused(self, error: KafkaException) -> None:
        """The client did not take a record whose loss is not tolerated: return when it may be tried
        again, or raise."""

    @abstractmethod
    def dispatched(self, submitted: Submitted, record: OutgoingRecord) -> None:
        """The client has the record, in this form."""

    @abstractmethod
    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        """The broker has the record. Inside the client's `poll`."""

    @abstractmethod
    def lost(self, submitted: Submitted, error: KafkaError | None) -> None:
        """The client did not deliver the record, and that is tolerated, or stops the next commit.

        Inside the client's `poll`, with its error; or in the loop, without.
        """

    @property
    @abstractmethod
    def tolerates_lost_records(self) -> bool:
        """Whether `errors.tolerance` decides about records that are not delivered; else the next
        commit fails."""

    @property
    @abstractmethod
    def active(self) -> int:
        """How many records are in hand and not safe yet."""

    @abstractmethod
    def batch_done(self) -> None:
        """All records of a poll are with the client."""

    @abstractmethod
    def tick(self) -> None:
        """Commit if it is time."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Deliver and store what can still be, within the time of a commit; errors are logged."""

    def _tell_task(self) -> None:
        """Say that offsets are stored; what the task makes of it changes nothing, as in Java."""
        try:
            self._task.commit()
        except Exception:
            log.exception("commit of the task failed")

    def _record_committed(self, record: SourceRecord, metadata: OffsetAndMetadata | None) -> None:
        try:
            self._task.commit_record(record, metadata)
        except Exception:
            log.exception("commit_record of the task failed")


class NotDeliveredError(ConnectError):
    """A record, or a transaction, did not get into Kafka."""

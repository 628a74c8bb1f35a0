"""`ExactlyOnceCommitter`: writes records and their offsets to Kafka in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.plurals import pluralize
from connect_py.storage import compact_json
from connect_py.storage.offset_table import check_primitives
from connect_py.task.messages import (
    CopySourceOffsets,
    FenceZombies,
    MakeOffsetKeys,
    TaskNotWantedError,
    VerifyTask,
)
from connect_py.task.source.source_committer import NotDeliveredError, SourceCommitter
from connect_py.task.source.source_producer import OutgoingRecord, SourceProducer
from connect_py.task.source.submitted_records import Entry, PartitionKey, Submitted, partition_key
from connect_py.task.source.transaction_boundary import (
    TransactionBoundary,
    WorkerTransactionContext,
)
from connect_py.task.source.transaction_outcome import RecordPlace
from connect_py.task.task_control import TaskControl
from connect_py.task.worker_client import TaskStoppedError

SLICE_SECONDS: Final = (
    1.0  # timeout of one client call, which is repeated until the outcome is known
)
FENCE_SECONDS: Final = 60.0
ABORT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 60.0
# total size of keys and values at which a transaction with the boundary `interval` ends early
FULL_BYTES: Final = 64 << 20

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
# Errors that the records in a transaction did not cause. For example, the broker may have been
# unavailable for longer than the transaction timeout. The records can be sent again.
_LOST: Final = _FENCED | frozenset(
    {
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.TRANSACTION_ABORTABLE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
)
_UNEXPLAINED: Final = frozenset({KafkaError._STATE, KafkaError._FATAL, KafkaError._INCONSISTENT})

log = logging.getLogger(__name__)


class TaskFencedError(ConnectError):
    """Raised if a newer producer for this task exists.

    The open transaction was either aborted or fully committed.
    """

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(f"producer {transactional_id} was fenced: {reason}")


class TransactionLostError(ConnectError):
    """Raised if the producer can no longer write. Its transaction may have been committed."""


class ExactlyOnceCommitter(SourceCommitter):
    """Writes a task's records and offsets in transactions.

    A commit consists of the following steps. After a crash between steps, the next `open` with
    this transactional ID or the broker's timeout aborts the transaction. Consumers that read only
    committed records skip the aborted records, and the previous offsets remain in effect.

    1. The records are handed to the client (`dispatched`).
    2. The offset records are written in the same transaction (`_store_offsets`).
    3. The client waits for all acknowledgements and commits the transaction (`_commit_client`).
    4. The task is notified (`commit_record`, `commit`).

    If a transaction exceeds its timeout, for example during a broker outage, the broker aborts it,
    and the producer can no longer write. A new producer takes over the transactional ID and resends
    the records that are not in Kafka (`_repair`). The broker reports the same error to a producer
    that was fenced by another producer. The age of the transaction distinguishes the two cases.
    """

    def __init__(
        self,
        task: SourceTask,
        producer: SourceProducer,
        transactional_id: str,
        control: TaskControl,
        metrics: SourceMetrics,
        clock: Clock,
        *,
        boundary: TransactionBoundary,
        interval_ms: int,
        timeout_ms: int,
        transactions: WorkerTransactionContext | None,
        copies_offsets: bool,
        is_committed: Callable[[RecordPlace], bool],
    ) -> None:
        """Create the committer.

        Args:
            interval_ms: Commit interval for the boundary `interval`; limited to half of
                `timeout_ms`.
            timeout_ms: Time after which the broker aborts a transaction.
            transactions: The task's commit and abort requests if the boundary is `connector`.
            copies_offsets: True if the connector has its own offset topic, from which offsets are
                copied to the worker's offset topic.
            is_committed: Waits until the transaction of a record has ended, and returns True if it
                was committed. Raises TaskStoppedError.
        """
        super().__init__(task, metrics, clock)
        self._producer = producer
        self._id = transactional_id
        self._control = control
        self._boundary = boundary
        self._interval = min(interval_ms, timeout_ms / 2) / 1000
        self._timeout = timeout_ms / 1000
        self._transactions = transactions
        self._copies_offsets = copies_offsets
        self._is_committed = is_committed
        self._next_commit = 0.0
        self._open = False  # a transaction is open
        self._started_at = 0.0  # start time of the last transaction
        self._size = 0  # number of records in the open transaction
        self._bytes = 0  # total size of the keys and values of these records, which stay in memory
        # offsets that have not been stored yet
        self._offsets: dict[PartitionKey, tuple[Entry, Entry]] = {}
        # records to report to the task after the commit
        self._to_report: list[tuple[Submitted, OffsetAndMetadata | None]] = []
        self._raw_keys: dict[PartitionKey, bytes] = {}
        self._offset_topic = ""
        self._active = 0  # records that have not been committed yet
        # records in the open transaction
        self._sent: list[tuple[Submitted, OutgoingRecord]] = []
        # location of an offset record in the transaction that is being committed
        self._stored_at: RecordPlace | None = None
        # first delivery error in the transaction
        self._delivery_error: KafkaError | None = None
        self._repairing = False

    def open(self) -> None:
        """Fence producers from earlier task sets, and acquire this task's transactional ID.

        Raises:
            ConnectError: The task set has changed, or the cluster denies the request.
            TaskStoppedError: A stop was requested.
        """
        self._fence_zombies()
        self._acquire_id()
        self._offset_topic = self._control.call_until_stopped(VerifyTask())
        self._next_commit = self._clock.monotonic() + self._interval

    def _acquire_id(self) -> None:
        while True:
            self._control.check()
            try:
                self._producer.client.init_transactions(SLICE_SECONDS)
                return
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if problem.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    raise ConnectError(
                        f"not authorized to use transactional id '{self._id}' (required ACL: "
                        f"Write and Describe on TransactionalId '{self._id}')"
                    ) from error
                if not problem.retriable():
                    raise ConnectError(
                        f"failed to acquire transactional id {self._id}: {problem.str()}"
                    ) from error
                log.debug("waiting for transactional id %s: %s", self._id, problem.str())

    def _fence_zombies(self) -> None:
        """Fence earlier producers. Retries because the worker group's leader may be changing."""
        deadline = self._clock.monotonic() + FENCE_SECONDS
        while True:
            try:
                self._control.call_until_stopped(FenceZombies())
                return
            except ConnectError as error:
                if self._clock.monotonic() >= deadline:
                    raise
                log.warning("failed to fence zombies, will retry: %s", error)
            self._control.wait(SLICE_SECONDS)

    # Records

    def submit(self, record: SourceRecord) -> Submitted:
        self._active += 1
        return Submitted(record)

    def drop(self, submitted: Submitted) -> None:
        self._to_report.append((submitted, None))
        self._note_offset(submitted)

    def sending(self, topic: str) -> None:
        if topic == self._offset_topic:
            raise ConnectError(
                "a source task with exactly-once support must not write to its offset topic "
                f"'{topic}'"
            )
        try:
            self._begin_transaction()
        except TransactionLostError as lost:
            self._repair(lost)
            self._begin_transaction()

    def refused(self, error: KafkaException) -> None:
        try:
            self._fail("write", error)
        except TransactionLostError as lost:
            self._repair(lost)
            self._begin_transaction()

    def dispatched(self, submitted: Submitted, record: OutgoingRecord) -> None:
        self._size += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")
        self._sent.append((submitted, record))
        self._note_offset(submitted)

    def _note_offset(self, submitted: Submitted) -> None:
        record = submitted.record
        self._offsets[partition_key(record.source_partition)] = (
            record.source_partition,
            record.source_offset,
        )
        if self._transactions is not None:
            commit, abort = self._transactions.take_record(record)
            self._end_if_requested(commit=commit, abort=abort)

    def acknowledged(self, submitted: Submitted, message: Message) -> None:
        self._to_report.append((submitted, OffsetAndMetadata(message.offset() or 0)))

    def lost(self, submitted: Submitted, error: KafkaError | None) -> None:
        self._delivery_error = self._delivery_error or error
        # the transaction was aborted, or its commit will fail
        self._to_report.append((submitted, None))

    @property
    def tolerates_lost_records(self) -> bool:
        return False

    @property
    def active(self) -> int:
        return self._active

    # Boundaries

    def batch_done(self) -> None:
        if self._boundary is TransactionBoundary.POLL:
            self._commit()
        elif self._transactions is not None:
            commit, abort = self._transactions.take_batch()
            self._end_if_requested(commit=commit, abort=abort)
        self.tick()

    def tick(self) -> None:
        if self._boundary is not TransactionBoundary.INTERVAL:
            return
        if self._bytes >= FULL_BYTES or self._clock.monotonic() >= self._next_commit:
            self._next_commit = self._clock.monotonic() + self._interval
            self._commit()

    def _end_if_requested(self, *, commit: bool, abort: bool) -> None:
        """Commit or abort if requested.

        Offsets are stored even after an abort because the records must not be delivered again.
        """
        if abort:
            self._abort_as_requested()
        if commit or abort:
            self._commit()

    def _abort_as_requested(self) -> None:
        if not self._open:
            log.warning("the task requested to abort a transaction without records")
            return
        log.info(
            "aborting the transaction as requested by the task: dropping %s",
            pluralize(self._size, "record"),
        )
        try:
            # librdkafka fails fatally if it ends a transaction whose partitions are not registered
            # with the broker yet (librdkafka issue 4849). After the records have been delivered,
            # the partitions are registered.
            self._producer.client.flush(ABORT_SECONDS)
            self._producer.client.abort_transaction()
        except KafkaException as error:
            self._abort_by_force(error)
        self._reset()
        # the records were not written to Kafka
        self._to_report = [(submitted, None) for submitted, _ in self._to_report]

    def _abort_by_force(self, error: KafkaException) -> None:
        """Abort by replacing the producer. The new producer ends the open transaction first."""
        try:
            self._fail("abort", error)
        except TransactionLostError as lost:
            self._to_report = self._to_report_from_before() + [
                (submitted, None) for submitted, _ in self._sent
            ]
            self._sent.clear()
            self._repair(lost)

    # Transactions

    def _begin_transaction(self) -> None:
        if self._open:
            return
        try:
            self._producer.client.begin_transaction()
        except KafkaException as error:
            self._fail("begin", error)
        self._open = True
        self._started_at = self._clock.monotonic()

    def _reset(self) -> None:
        self._open = False
        self._size = self._bytes = 0
        self._sent.clear()
        self._delivery_error = self._stored_at = None

    def _commit(self) -> None:
        started = self._clock.monotonic()
        if not self._open and not self._offsets:
            return
        offsets = list(self._offsets.values())
        while not self._committed(started):
            pass  # the transaction was restored; try again
        self._metrics.transaction(self._size)
        self._reset()
        self._metrics.commits.succeeded(self._clock.monotonic() - started)
        self._offsets.clear()
        to_report, self._to_report = self._to_report, []
        for submitted, metadata in to_report:
            self._metrics.written += metadata is not None
            self._record_committed(submitted.record, metadata)
        self._active = 0
        self._notify_task()
        if self._copies_offsets:
            self._control.notify(CopySourceOffsets(offsets))

    def _committed(self, started: float) -> bool:
        """Try to commit. Return False if the transaction was lost and has been restored."""
        try:
            self._begin_transaction()  # not open yet if all records were filtered
            self._store_offsets()
            self._commit_client()
        except TransactionLostError as lost:
            self._metrics.commits.failed(self._clock.monotonic() - started)
            return self._repair(lost)
        except Exception:
            self._metrics.commits.failed(self._clock.monotonic() - started)
            raise
        return True

    def _store_offsets(self) -> None:
        """Write the offset records. The worker creates their keys, which never change."""
        without_key = {
            key: pair for key, pair in self._offsets.items() if key not in self._raw_keys
        }
        if without_key:
            request = MakeOffsetKeys([partition for partition, _ in without_key.values()])
            keys: Sequence[bytes] = self._control.call(request, ANSWER_SECONDS)
            self._raw_keys |= zip(without_key, keys, strict=True)
        for key, (_, offset) in self._offsets.items():
            check_primitives(offset)
            value = compact_json.encode(dict(offset))
            offset_record = OutgoingRecord(
                self._offset_topic, value, self._raw_keys[key], (), 0, None, self._offset_stored
            )
            self._produce(offset_record, "store the offsets of")

    def _offset_stored(self, error: KafkaError | None, message: Message) -> None:
        """Record the location of an offset record. Called from the client's `poll`."""
        if error is not None:
            self._delivery_error = self._delivery_error or error
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is not None and partition is not None and offset is not None:
            self._stored_at = RecordPlace(topic, partition, offset)

    def _commit_client(self) -> None:
        """Commit without a separate time limit; the client fails at the transaction timeout."""
        while True:
            try:
                self._producer.client.commit_transaction(SLICE_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._fail("commit", error)

    def _fail(self, operation: str, error: KafkaException) -> NoReturn:
        problem = _root_error(self._producer, self._delivery_error, error.args[0])
        timed_out = self._open and self._clock.monotonic() - self._started_at >= self._timeout
        if problem.code() in _FENCED and not timed_out:
            self._open = False
            raise TaskFencedError(self._id, "a newer instance of this task exists") from error
        message = f"cannot {operation} a transaction of {self._id}: {problem.str()}"
        raise (
            TransactionLostError(message) if problem.code() in _LOST else NotDeliveredError(message)
        ) from error

    # Replacing the producer

    def _repair(self, lost: TransactionLostError) -> bool:
        """Replace a lost producer and restore its transaction.

        Return True if the transaction was committed.

        After a crash between steps, the next instance starts from the offsets of the last
        committed transaction.

        1. Verify that the worker owns the task, because an older instance must not fence a newer
           instance.
        2. Acquire the transactional ID with a new producer, which commits or aborts the old
           transaction.
        3. Verify the ownership again. If step 2 fenced a newer instance, that instance repairs its
           transaction in the same way.
        4. If an offset record had been acknowledged, check whether its transaction was committed.
        5. If it was not committed, resend the records in a new transaction.
        """
        self._repairing = True
        stored_at = self._stored_at
        while True:
            log.warning("%s; replacing the producer", lost, extra={"action": "producer_replaced"})
            self._verify_ownership()
            self._producer.renew()
            self._open = False
            self._delivery_error = self._stored_at = None
            self._acquire_id()
            self._verify_ownership()
            committed = stored_at is not None and self._is_committed(stored_at)
            stored_at = None
            try:
                if not committed:
                    self._send_again()
            except TransactionLostError as again:
                lost = again
                self._control.wait(SLICE_SECONDS)
                continue
            self._repairing = False
            return committed

    def _verify_ownership(self) -> None:
        while True:
            try:
                self._control.call_until_stopped(VerifyTask())
                return
            except TaskNotWantedError as refusal:
                raise TaskFencedError(self._id, str(refusal)) from refusal
            except ConnectError as error:
                log.warning("failed to verify the ownership of the task, will retry: %s", error)
            self._control.wait(SLICE_SECONDS)

    def _send_again(self) -> None:
        if not self._sent:
            return
        log.info("sending %s of the lost transaction again", pluralize(len(self._sent), "record"))
        self._to_report = self._to_report_from_before()
        self._begin_transaction()
        for _, record in self._sent:
            self._produce(record, "repeat")

    def _to_report_from_before(self) -> list[tuple[Submitted, OffsetAndMetadata | None]]:
        """Return the pending notifications for records that are not in the open transaction."""
        sent = {id(submitted) for submitted, _ in self._sent}
        return [entry for entry in self._to_report if id(entry[0]) not in sent]

    def _produce(self, record: OutgoingRecord, operation: str) -> None:
        while True:
            try:
                self._producer.send(record)
                return
            except BufferError:  # deliveries free up space in the queue
                self._producer.poll(SLICE_SECONDS)
            except KafkaException as error:
                self._fail(operation, error)

    def close(self, *, failed: bool) -> None:
        """Commit the last transaction, or abort it.

        The transaction is aborted if the task failed, or if the task defines the boundaries and has
        not requested a commit.
        """
        try:
            if failed or self._repairing:
                pass  # the contents of the transaction are unknown
            elif self._boundary is not TransactionBoundary.CONNECTOR:
                self._commit()
            elif self._transactions is not None:
                commit, abort = self._transactions.take_batch()
                self._end_if_requested(commit=commit, abort=abort)
        except (ConnectError, TaskStoppedError) as error:
            log.warning(
                "failed to commit the last transaction: %s", error or "the task was stopped"
            )
        if self._open:
            try:
                # otherwise, consumers would wait until the transaction times out
                self._producer.client.abort_transaction(ABORT_SECONDS)
            except KafkaException as error:
                log.warning("failed to abort the open transaction: %s", error.args[0].str())


def _root_error(
    producer: SourceProducer, delivery_error: KafkaError | None, problem: KafkaError
) -> KafkaError:
    """Return the root cause of an error that reports only that the producer is in an error state.

    `delivery_error`, the error for an undelivered record, takes precedence.
    """
    unexplained = problem.code() in _UNEXPLAINED
    if delivery_error is not None and (unexplained or delivery_error.code() not in _LOST):
        return delivery_error
    if unexplained:
        try:
            producer.client.commit_transaction(0)  # also fails, but with the root cause
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return] # the client's class has no types
    return problem
